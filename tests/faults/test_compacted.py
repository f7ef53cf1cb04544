"""
Compacted sources (faults F24, F36): holes, empty partitions, tombstones, and tombstones that are gone.

Here a copy is right when what the source still has is there once and in order, and every key ends in the same state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eomirror import Mirror, load_config
from eomirror.demo.clients import Offsets, ReadRecord, read_partition
from eomirror.status.reader import StatusReader
from support.fix_rig import RECORDS
from support.links.mirrors import CommandMirror
from support.links.plane import plane_under_test
from support.traffic.records import create_topic

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from support.clusters.rig import Rig
    from support.judges.ledger import Entry

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(1800),
]  # fmt: skip

PARTITIONS = 4
KEYS, EMPTY, TOMBSTONES, MIXED = range(PARTITIONS)


@dataclass(slots=True)
class Compacted:
    """A compacted topic, its copy, and who writes and mirrors it."""

    rig: Rig
    name: str
    spark: Any
    entry: Entry
    rng: random.Random
    delete_retention_ms: int
    written: int = 0
    fresh: set[int] = field(default_factory=set)

    def create(self) -> None:
        """Make the topic."""
        create_topic(
            self.rig.source.direct,
            self.name,
            PARTITIONS,
            **{
                "cleanup.policy": "compact",
                "segment.ms": "200",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": str(self.delete_retention_ms),
            },
        )

    def write(
        self, count: int, *, deleted: frozenset[int] = frozenset(), but: frozenset[int] = frozenset()
    ) -> None:
        """Write so many records in transactions, one in ten aborted; ``deleted`` keys get tombstones, ``but`` none."""
        producer = Producer({**self.rig.source.direct, "transactional.id": self.name, "linger.ms": 5})
        producer.init_transactions(30)
        for number in range(0, count, 50):
            producer.begin_transaction()
            keyed = set()
            for _ in range(50):
                partition = self.rng.choice((KEYS, TOMBSTONES, MIXED))
                key = self.rng.choice([key for key in range(50) if key not in but])
                gone = partition == TOMBSTONES or key in deleted or self.rng.random() < 0.1
                value = None if gone else b"value %d" % self.written
                # also a tombstone can be told from the others
                header = ("number", b"%d" % self.written)
                producer.produce(self.name, value, b"key %d" % key, partition, headers=[header])
                if partition == KEYS:
                    keyed.add(self.written)
                self.written += 1
            if number % 500 == 450:
                producer.flush(30)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
                self.fresh |= keyed

    def source(self, partition: int) -> list[ReadRecord]:
        """What the source has now."""
        return self._read(self.rig.source.direct, self.name, partition)

    def target(self, partition: int) -> list[ReadRecord]:
        """What the target has now."""
        return self._read(self.rig.target.direct, f"source.{self.name}", partition)

    def compact(self) -> None:
        """Write on until the cleaner has removed more than half of what was committed since the last time."""
        until = time.monotonic() + 300
        # it may have been at work all the time, so what is there now is nothing to compare with
        while (
            len(self.fresh) < 200 or len(self.fresh & set(_numbers(self.source(KEYS)))) > len(self.fresh) / 2
        ):
            assert time.monotonic() < until, "the cleaner does nothing"
            self.write(50)
            # closes a segment; many small ones would keep the cleaner of a busy machine from ever being done
            time.sleep(1.0)
        self.fresh.clear()
        self.entry.injected()

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "clusters": {"source": self.rig.source.direct, "target": self.rig.target.direct},
            "links": [{"name": self.name, "source": "source", "target": "target", "topics": [self.name]}],
            "defaults": {"plane": plane_under_test()},
        }

    def catch_up(self) -> None:
        """Mirror what is there."""
        with Mirror(load_config(self.settings), spark=self.spark) as mirror:
            mirror.run(until="caught-up")

    def judge(self) -> None:
        """Compare each partition; no gap was seen, no topic stopped."""
        for partition in range(PARTITIONS):
            original, copy = self.source(partition), self.target(partition)
            numbers, copied = _numbers(original), _numbers(copy)
            assert copied == sorted(set(copied)), f"partition {partition} is out of order or has duplicates"
            # the cleaner of the target may be ahead of the source's, so a record may be gone if a later one rules
            latest = {record.key: _number(record) for record in copy}
            lost = [
                record
                for record in original
                if _number(record) not in set(copied) and latest.get(record.key, -1) < _number(record)
            ]
            self.entry.records += len(original)
            self.entry.missing += len(lost)
            assert not lost, lost[:5]
            content = {_number(record): (record.key, record.value, record.timestamp) for record in original}
            for record in copy:
                expected = content.get(_number(record))
                assert expected in (None, (record.key, record.value, record.timestamp))
            assert not numbers or max(numbers) == max(copied)
        assert not self.target(EMPTY)
        config = load_config(self.settings)
        reader = StatusReader(config.links[0], config.clusters["source"], config.clusters["target"])
        status = reader.read()
        reader.close()
        assert not status.gaps
        assert len(status.partitions) == PARTITIONS
        assert not [item for item in (status, *status.partitions) if item.problem], status

    @staticmethod
    def _read(properties: dict[str, str], topic: str, partition: int) -> list[ReadRecord]:
        ends = Offsets(properties).settled_ends(topic, PARTITIONS)
        return list(read_partition(properties, topic, partition, ends[partition]))


def _number(record: ReadRecord) -> int:
    return int(dict(record.headers)["number"] or -1)


def _numbers(records: list[ReadRecord]) -> list[int]:
    return [_number(record) for record in records]


def _state(records: list[ReadRecord]) -> dict[bytes | None, bytes]:
    """The last value of each key; a tombstone is the same as nothing."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


@pytest.fixture
def compacted(rig: Rig, topic_name: str, spark_context: Any, entry: Entry, rng: random.Random) -> Compacted:
    return Compacted(rig, topic_name, spark_context, entry, rng, delete_retention_ms=86_400_000)


@pytest.mark.fault("F24")
def test_holes_tombstones_and_empty_partitions_are_no_gaps(compacted: Compacted) -> None:
    """F24: compacted before the first run, between runs, and after the last; every key ends in the same state."""
    compacted.create()
    compacted.write(max(2_000, RECORDS))
    compacted.compact()
    compacted.catch_up()
    compacted.write(max(1_000, RECORDS // 2))
    compacted.compact()
    compacted.catch_up()
    compacted.judge()
    compacted.compact()
    compacted.catch_up()
    compacted.judge()

    for partition in range(PARTITIONS):
        assert _state(compacted.target(partition)) == _state(compacted.source(partition))


@pytest.fixture
def missed_tombstones(compacted: Compacted) -> Compacted:
    """A mirror that was down while keys were deleted, and until their tombstones were gone as well."""
    compacted.delete_retention_ms = 300
    compacted.create()
    compacted.write(2_000)
    compacted.catch_up()
    # for a shorter time the lane does not ask
    back = time.monotonic() + 65.0
    deleted = frozenset(range(10))
    compacted.write(2_000, deleted=deleted)

    def tombstones() -> list[ReadRecord]:
        names = {b"key %d" % key for key in deleted}
        return [record for record in compacted.source(KEYS) if record.key in names]

    until = time.monotonic() + 120
    while tombstones():
        assert time.monotonic() < until, f"{len(tombstones())} tombstones are still there"
        compacted.write(50, but=deleted)
        time.sleep(0.5)
    time.sleep(max(0.0, back - time.monotonic()))
    compacted.entry.injected()
    return compacted


@pytest.mark.fault("F36")
def test_a_mirror_that_overslept_tombstones_goes_on_and_says_so(
    missed_tombstones: Compacted, tmp_path: Path
) -> None:
    """F36, EO-6: what is left arrives, in order; the topic is named, for its copy may keep deleted keys."""
    mirrors = [
        CommandMirror(missed_tombstones.settings, tmp_path / name, "--until", "caught-up")
        for name in ("one", "two")
    ]
    for mirror in mirrors:
        mirror.start()
        assert mirror.await_exit(120.0) == 0, mirror.tree.last_lines()
    missed_tombstones.judge()

    source, target = _state(missed_tombstones.source(KEYS)), _state(missed_tombstones.target(KEYS))
    assert {key: target.get(key) for key in source} == source
    # the second comes back in time
    assert [mirror.said("deletions_may_be_lost") for mirror in mirrors] == [1, 0]
    assert mirrors[0].said(missed_tombstones.name)
