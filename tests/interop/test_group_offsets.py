"""Consumer groups move to the other side and back: where they would go on, as a table, as a file, and in two lines."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from eomirror import Mirror, UsageError, load_config
from eomirror.groups import group_offsets, import_offsets
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from eomirror.config import Config

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PARTITIONS = 2


class Flow:
    """A mirrored topic of transactions, of which every tenth is aborted."""

    def __init__(self, east: Any, west: Any, name: str, folder: Path, spark: Any) -> None:
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        self.name, self.topic, self.copy = name, f"{name}.orders", f"east.{name}.orders"
        self.folder, self.path = folder, folder / "mirror.yaml"
        settings = {
            "clusters": {"east": self.east, "west": self.west},
            "links": [
                {
                    "name": name,
                    "source": "east",
                    "target": "west",
                    "topics": [self.topic],
                    "groups": [f"{name}.*"],
                }
            ],
            "defaults": {"lanes": 1},
        }
        self.path.write_text(yaml.safe_dump(settings))
        self.path.chmod(0o600)
        create_topic(self.east, self.topic, PARTITIONS)
        produce(self.east, self.topic, PARTITIONS, some_records(7, 800), transactional_id=name)
        with Mirror(self.config, spark=spark) as mirror:
            assert mirror.run(until="caught-up").exit_code == 0

    @property
    def config(self) -> Config:
        return load_config(self.path)

    def command(self, *arguments: str) -> tuple[int, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "offsets", arguments[0], str(self.path), *arguments[1:]],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def reads(self, properties: dict[str, Any], topic: str, group: str, counts: tuple[int, ...]) -> None:
        """A group that reads so many committed records of each partition, commits and leaves."""
        consumer = Consumer(
            {
                **properties,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        try:
            for number, count in enumerate(counts):
                consumer.assign([TopicPartition(topic, number, 0)])
                last = None
                for _ in range(count):
                    last = consumer.poll(30)
                    assert last is not None
                if last is not None:
                    after = [TopicPartition(topic, number, last.offset() + 1)]
                    consumer.commit(offsets=after, asynchronous=False)
        finally:
            consumer.close()


def rest(properties: dict[str, Any], places: list[TopicPartition], count: int) -> dict[int, list[Any]]:
    """Values that a consumer reads from these places on."""
    consumer = Consumer({**properties, "group.id": "moved", "isolation.level": "read_committed"})
    consumer.assign(places)
    found: dict[int, list[Any]] = {place.partition: [] for place in places}
    for _ in range(count):
        message = consumer.poll(30)
        assert message is not None
        found[message.partition()].append(message.value())
    consumer.close()
    return found


def test_groups_move_with_a_file_and_with_two_lines(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, rng: random.Random
) -> None:
    """Each goes on at the record it would have read next; an active group and a bad offset are refused whole."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context)
    billing, idle, busy = (f"{topic_name}.{word}" for word in ("billing", "idle", "busy"))
    counts = rng.randrange(1, 300), rng.randrange(1, 300)
    flow.reads(flow.east, flow.topic, billing, counts)
    flow.reads(flow.east, flow.topic, busy, (5, 5))
    flow.reads(flow.east, flow.topic, idle, (3, 0))
    expected = {
        number: [record[1] for record in records[counts[number] :]]
        for number, records in read_committed(flow.west, flow.copy).items()
    }
    total = sum(map(len, expected.values()))

    # what docs/move-consumers.md shows
    moved = group_offsets(flow.config, group=billing)
    places = [TopicPartition(each.to_topic, each.to_partition, each.to_offset) for each in moved]

    assert rest(flow.west, places, total) == expected
    member = Consumer({**flow.west, "group.id": busy})
    member.subscribe([flow.copy])
    wait_for(lambda: member.poll(0.1) is not None or member.assignment(), 60)
    code, table = flow.command("groups", "-o", "json")
    assert code == 0
    notes = {(each["group"], each["partition"]): each for each in table["groups"]}
    assert set(notes) == {(name, number) for name in (billing, busy) for number in range(2)} | {(idle, 0)}
    assert notes[billing, 0]["to_offset"] == places[0].offset
    assert notes[billing, 0]["age_seconds"] > 0
    assert notes[busy, 0]["skipped"].startswith("active there")
    code, document = flow.command("export")
    assert (code, set(document["groups"])) == (0, {billing, busy, idle})
    document["groups"][idle][0]["offset"] = 10**9
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(document))

    code, looked = flow.command("import", str(file), "--dry-run", "-o", "json")
    assert (code, [each["written"] for each in looked["groups"]]) == (3, [True, False, False])
    assert all(each.has_offset is None for each in group_offsets(flow.config, group=billing))
    code, done = flow.command("import", str(file), "-o", "json")
    member.close()

    assert (code, [each["written"] for each in done["groups"]]) == (3, [True, False, False])
    by_name = {each["group"]: each["problem"] for each in done["groups"]}
    assert "members on west" in by_name[busy]
    assert "holds [" in by_name[idle]
    assert [each.delta for each in group_offsets(flow.config, group=billing)] == [0, 0]
    # and back again: at the record that it would have read next on the source, behind a marker if it stood at one
    back = group_offsets(flow.config, group=billing, reverse=True)
    assert [each.has_offset for each in back] == [each.offset for each in moved]
    places = [TopicPartition(each.to_topic, each.to_partition, each.to_offset) for each in back]
    assert rest(flow.east, places, total) == expected
    other = {**document, "cluster_id": "other"}
    with pytest.raises(UsageError, match="made for cluster id other"):
        import_offsets(flow.config, other)


@pytest.mark.slow
def test_a_run_that_ends_when_it_has_caught_up_has_moved_its_groups(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """What a group has read on the source, it does not read on the target; of a link that mirrored nothing new, too."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context)
    group = f"{topic_name}.billing"
    counts = (120, 7)
    flow.reads(flow.east, flow.topic, group, counts)
    settings = yaml.safe_load(flow.path.read_text())
    settings["links"][0] |= {"sync_group_offsets": True, "group_interval": "10s"}
    flow.path.write_text(yaml.safe_dump(settings))

    with Mirror(flow.config, spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0

    copies = read_committed(flow.west, flow.copy)
    expected = {number: [record[1] for record in copies[number][counts[number] :]] for number in range(2)}
    there = Consumer({**flow.west, "group.id": group})
    places = there.committed([TopicPartition(flow.copy, number) for number in range(2)], timeout=30)
    there.close()
    assert rest(flow.west, places, sum(map(len, expected.values()))) == expected
