"""Forks: PySpark's daemon forks a worker for each lane, and users' own programs fork as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from support.traffic.records import create_topic, produce, read_committed, some_records

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.integration

_PROGRAM = Path(__file__).parent / "fork_program.py"


def written_config(path: Path, east: Mapping[str, Any], west: Mapping[str, Any], name: str) -> str:
    """A configuration of one link."""
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": {"east": dict(east), "west": dict(west)},
                "links": [{"name": name, "source": "east", "target": "west", "topics": [name], "lanes": 1}],
            }
        )
    )
    path.chmod(0o600)
    return str(path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(200)
def test_a_process_that_has_mirrored_may_fork_and_the_child_may_mirror(
    east: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """The child opens consumer, admin clients and a transactional producer of its own; nothing hangs."""
    names = {who: f"{topic_name}-{who}" for who in ("parent", "child")}
    committed = {}
    for number, (who, name) in enumerate(names.items()):
        create_topic(east.client_properties, name, 2)
        committed[who] = produce(
            east.client_properties, name, 2, some_records(60 + number, 300), transactional_id=name
        )
    configs = [
        written_config(tmp_path / f"{who}.yaml", east.client_properties, west.client_properties, name)
        for who, name in names.items()
    ]

    # a process of its own: this one holds the Spark context of the session, and pytest's own threads
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), *configs],
        capture_output=True,
        text=True,
        timeout=190,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )

    assert done.stdout.splitlines() == [
        "parent: exit code 0",
        f"child: stopped, {sum(map(len, committed['child'].values()))} records",
        "child: exit status 0",
    ], done.stderr
    assert done.returncode == 0, done.stderr
    for who, name in names.items():
        assert read_committed(west.client_properties, f"east.{name}") == committed[who]
