"""`eomirror run --otlp` as a user types it: a receiver counts the records, and the key of its header is nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from support.judges.otlp_receiver import Receiver, points
from support.traffic.records import create_topic, produce, some_records

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

SECRET = "planted-header-secret"  # noqa: S105  it is planted


def test_a_run_exports_its_counters_to_the_end(east: Any, west: Any, topic_name: str, tmp_path: Path) -> None:
    """Without --listen; the last export has every record of a run that is shorter than the interval."""
    topic = f"{topic_name}.orders"
    create_topic(east.client_properties, topic, 2)
    written = produce(east.client_properties, topic, 2, some_records(7, 500), transactional_id=topic_name)
    config = tmp_path / "mirror.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
                "links": [{"name": topic_name, "source": "east", "target": "west", "topics": [topic]}],
            }
        )
    )
    config.chmod(0o600)
    with closing(Receiver()) as receiver:
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "run", str(config), "--until", "caught-up", "--otlp",
             "--log-level", "debug"],
            capture_output=True, text=True, timeout=120, check=False,
            env={
                **os.environ,
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
                "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={SECRET}",
                "OTEL_METRIC_EXPORT_INTERVAL": "3600000",
            },
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ((headers, message),) = receiver.messages
    assert headers["x-key"] == SECRET
    found = points(message)
    labels = (("link", topic_name), ("topic", topic))
    assert found["eomirror_records_total", labels].as_int == sum(map(len, written.values()))
    assert found["eomirror_lag_records", labels].as_int == 0
    # these records claim to be years old
    assert found["eomirror_replication_latency_seconds", (("link", topic_name),)].count == 0
    assert found["eomirror_replication_latency_left_out_total", (("link", topic_name),)].as_int >= 2
    assert SECRET not in done.stdout + done.stderr
    assert f'"endpoint":"{receiver.url}"' in done.stderr
