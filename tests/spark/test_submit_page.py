"""The page docs/run-under-spark.md, followed word for word: spark-submit mirrors real clusters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.peers.standalone import SAFE
from test_standalone_cluster import cluster, workers  # noqa: F401  the fixtures

from support.traffic.records import create_topic, produce, read_committed, some_records

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "run-under-spark.md").read_text()


def block(title: str, language: str) -> str:
    """The first block of a section of the page."""
    section = PAGE.partition(f"\n{title}\n")[2]
    found = re.search(rf"^```{language}\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.parametrize("place", ["local", "standalone"])
def test_spark_submit_mirrors_as_the_page_says(
    place: str, east: Any, west: Any, topic_name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The command and the section `spark` of the page; only the address of the master is ours."""
    create_topic(east.client_properties, topic_name, 2)
    written = produce(
        east.client_properties, topic_name, 2, some_records(11, 800), transactional_id=topic_name
    )
    shared = yaml.safe_load(block("### Authentication and encryption are required", "yaml"))
    document = {
        "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
        "links": [{"name": topic_name, "source": "east", "target": "west", "topics": [topic_name]}],
        "defaults": {"lanes": 2},
        **shared,
    }
    (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "mirror.yaml").chmod(0o600)
    command = block("## With spark-submit", "sh")
    master = "local[*]" if place == "local" else request.getfixturevalue("cluster")
    assert "spark://spark-master:7077" in command
    folder = Path(sys.executable).parent
    done = subprocess.run(
        ["/bin/bash", "-ec", command.replace("spark://spark-master:7077", master)],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SECRET": SAFE["spark.authenticate.secret"],
        },
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert read_committed(west.client_properties, f"east.{topic_name}") == written
    assert SAFE["spark.authenticate.secret"] not in done.stdout + done.stderr
