"""The example of docs/move-consumers.md: what was mirrored is read before what is local, and all of it once."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import Mirror, load_config
from support.links.moving.standing import Standing
from support.traffic.records import create_topic, produce, read_committed

if TYPE_CHECKING:
    from support.traffic.records import Record

pytestmark = [pytest.mark.integration, pytest.mark.spark]

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "mirrored_first.py"
PARTITIONS = 2


def numbered(word: str, count: int) -> list[Record]:
    """Records with a value of their own each."""
    return [(None, f"{word}-{number}".encode(), 1_600_000_000_000 + number, ()) for number in range(count)]


@pytest.mark.slow
def test_the_copy_is_read_to_its_end_before_the_local_topic(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """In every partition, from where the group stood on the source; aborted records on both sides."""
    source, target, copy = dict(east.client_properties), dict(west.client_properties), f"east.{topic_name}"
    create_topic(source, topic_name, PARTITIONS)
    produce(source, topic_name, PARTITIONS, numbered("old", 300), transactional_id=f"{topic_name}-old")
    path = tmp_path / "mirror.yaml"
    links = [{"name": topic_name, "source": "east", "target": "west", "topics": [topic_name], "lanes": 1}]
    path.write_text(yaml.safe_dump({"clusters": {"east": source, "west": target}, "links": links}))
    path.chmod(0o600)
    with Mirror(load_config(path), spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    there = read_committed(source, topic_name)
    Standing(source).stand(topic_name, {(topic_name, number): 40 for number in range(PARTITIONS)})
    create_topic(target, topic_name, PARTITIONS)
    produce(target, topic_name, PARTITIONS, numbered("new", 200), transactional_id=f"{topic_name}-new")
    here = read_committed(target, topic_name)

    reader = subprocess.Popen(
        [
            sys.executable, str(EXAMPLE), str(path), "--group", topic_name, "--topic", topic_name,
            "--target", target["bootstrap.servers"],
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    watchdog = threading.Timer(120, reader.kill)
    watchdog.start()
    found: dict[int, list[tuple[str, bytes]]] = {number: [] for number in range(PARTITIONS)}
    wanted = {number: [(topic_name, record[1]) for record in here[number]] for number in range(PARTITIONS)}
    try:
        assert reader.stdout is not None
        for line in reader.stdout:
            topic, number, _, value = line.split(maxsplit=3)
            found[int(number)].append((topic, value.strip()[2:-1].encode()))
            if all(
                len([1 for name, _ in found[one] if name == topic_name]) == len(wanted[one]) for one in found
            ):
                break
    finally:
        watchdog.cancel()
        reader.kill()
        reader.communicate()

    for number, records in found.items():
        old = [value for name, value in records if name == copy]
        assert records == [(copy, value) for value in old] + wanted[number]
        # the last ones of the source, in order: it had read those below offset 40
        values = [record[1] for record in there[number]]
        assert old == values[len(values) - len(old) :]
        assert 0 < len(old) < len(values)
