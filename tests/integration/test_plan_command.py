"""`eomirror plan` as a user types it: what would change, from real brokers, and nothing changed by asking."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from eomirror.localkafka.ports import free_ports
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

ONE_SCREEN = 24


def plan(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "eomirror", "plan", str(path), *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def write(folder: Path, east: Any, west: Any, **link: Any) -> Path:
    """A configuration file with one link."""
    path = folder / "mirror.yaml"
    clusters = {"east": dict(east), "west": dict(west)}
    path.write_text(
        yaml.safe_dump({"clusters": clusters, "links": [{"source": "east", "target": "west", **link}]})
    )
    path.chmod(0o600)
    return path


def topics(properties: Any) -> set[str]:
    """Every topic of a cluster."""
    return set(AdminClient(dict(properties)).list_topics(timeout=10).topics)


def test_it_tells_what_would_be_created_and_creates_nothing(
    east: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """Partitions and the settings that decide what a copy loses, for data and for the link's own topics."""
    create_topic(east.client_properties, topic_name, 3, **{"cleanup.policy": "compact"})
    path = write(
        tmp_path, east.client_properties, west.client_properties, name=topic_name, topics=[topic_name]
    )
    before = topics(west.client_properties)

    done = plan(path, "-o", "json")

    assert done.returncode == 3, done.stderr
    (link,) = json.loads(done.stdout)["links"]
    created = {change["topic"]: change for change in link["changes"] if change["action"] == "create"}
    copy = created[f"east.{topic_name}"]
    assert (copy["partitions"], copy["configs"]["cleanup.policy"], copy["configs"]["retention.ms"]) == (
        3, "compact", "-1",
    )  # fmt: skip
    own = {f"eomirror.{topic_name}.{kind}" for kind in ("control", "positions", "offset-map")}
    assert own <= created.keys()
    assert created[f"eomirror.{topic_name}.positions"]["configs"]["cleanup.policy"] == "compact"
    assert (link["first_run"], link["topics"]) == (True, {topic_name: f"east.{topic_name}"})
    assert topics(west.client_properties) == before


def test_a_copy_that_exists_is_compared_with_its_source(
    east: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """Too few partitions, and a setting that would lose records sooner than the source does."""
    create_topic(east.client_properties, topic_name, 4)
    create_topic(west.client_properties, f"east.{topic_name}", 2, **{"retention.ms": "60000"})
    path = write(
        tmp_path, east.client_properties, west.client_properties, name=topic_name, topics=[topic_name]
    )

    done = plan(path, "-o", "json")

    (link,) = json.loads(done.stdout)["links"]
    changes = {change["action"]: change for change in link["changes"] if change["source"] == topic_name}
    assert (changes["grow"]["before"], changes["grow"]["partitions"]) == (2, 4)
    assert changes["configure"]["configs"]["retention.ms"] == "-1"


def test_a_table_is_for_people(east: Any, west: Any, topic_name: str, tmp_path: Path) -> None:
    """The same in words, with the names of topics and of both clusters."""
    create_topic(east.client_properties, topic_name, 1)
    path = write(
        tmp_path, east.client_properties, west.client_properties, name=topic_name, topics=[topic_name]
    )

    done = plan(path, "-o", "table")

    assert done.returncode == 3
    assert "1 topic to mirror" in done.stdout
    assert topic_name in done.stdout.replace("\n", "").replace(" ", "")


def test_a_cluster_that_does_not_answer_is_one_screen(west: Any, topic_name: str, tmp_path: Path) -> None:
    """What, where, and what to do; exit code 1."""
    (port,) = free_ports(1)
    path = write(
        tmp_path, {"bootstrap.servers": f"127.0.0.1:{port}"}, west.client_properties, topics=[topic_name]
    )

    done = plan(path)

    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "fix:" in done.stderr
    words = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(words) <= ONE_SCREEN
