"""
Sources that make offsets jump, stand still or multiply (faults F22 to F25): none of it is a gap.

Open transactions, long runs of aborted records, compaction, and partitions that are added under load.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from eomirror.demo.clients import Offsets
from eomirror.demo.scenario import judge
from eomirror.demo.watch import TopicWatcher
from support.fix_rig import RECORDS
from support.links.mirrors import MemoryWatch
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(3600),
]  # fmt: skip

OPEN_SECONDS = float(os.environ.get("EOMIRROR_FAULT_SECONDS", "20"))
ABORTED = int(os.environ.get("EOMIRROR_FAULT_ABORTED", "60000"))
"""How many records are aborted in a row; 1,800,000 in a long run, as in the report that the fault is from."""

MEGABYTE = 1024 * 1024


class Stranger:
    """Another application on the source, whose transactions end when the test says so."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._topic = scene.name
        self._producer = Producer(
            {
                **scene.source.direct,
                "transactional.id": f"{scene.name}-{name}",
                "transaction.timeout.ms": 900_000,
                "linger.ms": 20,
            }
        )
        self._producer.init_transactions(30)

    def begin(self, values: list[bytes], partition: int = 0) -> None:
        """Write into a transaction that stays open."""
        self._producer.begin_transaction()
        for value in values:
            while True:
                try:
                    self._producer.produce(self._topic, value, None, partition)
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
        self._producer.flush(120)

    def end(self, *, commit: bool) -> None:
        """End it."""
        if commit:
            self._producer.commit_transaction(60)
        else:
            self._producer.abort_transaction(60)


def seen(scene: Scene) -> list[int]:
    """How many records the reader was shown, by partition."""
    return [len(scene.watcher.histories[number].offsets) for number in range(scene.partitions)]


@pytest.mark.fault("F22")
def test_an_open_transaction_on_the_source_holds_its_partition_only(scene: Scene) -> None:
    """F22: nothing beyond the last stable offset is copied; aborted, none of it is; committed, all of it is."""
    scene.start()
    for commit in (False, True):
        stranger = Stranger(scene, f"open-{commit}")
        stranger.begin([b"stranger %d" % number for number in range(100)])
        scene.entry.injected()
        # what was stable before is on its way
        scene.rest(3.0)
        before = seen(scene)
        scene.rest(OPEN_SECONDS)
        after = seen(scene)
        assert after[0] == before[0]
        assert after[1] > before[1]
        assert after[2] > before[2]
        stranger.end(commit=commit)
        if commit:
            # they have no stamp, and the source has them as well
            scene.strangers += 100
        scene.heal()
        scene.write_for(500)
    scene.catch_up()

    scene.judge()


@pytest.mark.fault("F23")
def test_a_long_run_of_aborted_records_is_passed_in_flat_memory(scene: Scene) -> None:
    """F23: tens of thousands of aborted records in a row (librdkafka#2993), then the flow goes on."""
    scene.start()
    with scene.traffic.held():
        stranger = Stranger(scene, "aborted")
        with MemoryWatch(scene.mirror.workers) as memory:
            scene.rest(2.0)
            value = b"x" * 100
            for _ in range(max(1, ABORTED // 5_000)):
                stranger.begin([value] * 5_000)
                stranger.end(commit=False)
                scene.rest(0.0)
            scene.entry.injected(max(1, ABORTED // 5_000))
            scene.rest(1.0)
    scene.heal()
    scene.catch_up()
    scene.entry.notes["growth_mb"] = round(memory.growth / MEGABYTE, 1)

    assert memory.growth < 150 * MEGABYTE, memory.samples
    scene.judge()


@pytest.mark.fault("F23")
def test_a_long_run_of_aborted_records_before_the_start(scene: Scene) -> None:
    """F23: the same run lies there already when the mirror starts; it goes past it."""
    scene.traffic.write(500)
    stranger = Stranger(scene, "aborted")
    for _ in range(max(1, ABORTED // 5_000)):
        stranger.begin([b"x" * 100] * 5_000)
        stranger.end(commit=False)
    scene.entry.injected(max(1, ABORTED // 5_000))
    scene.traffic.write(500)
    scene.start()
    scene.catch_up(120.0)

    scene.judge()


@pytest.mark.fault("F25")
def test_partitions_that_are_added_under_load(scene: Scene) -> None:
    """F25: 3 to 12 while records are written, on a target that was widened by hand before."""
    scene.start()
    scene.write_for(500)
    for side, topic in ((scene.target, scene.copy), (scene.source, scene.name)):
        admin = AdminClient(side.direct)
        for future in admin.create_partitions([NewPartitions(topic, 12)]).values():
            future.result(30)
    wait_for(lambda: Offsets(scene.source.direct).partitions(scene.name) == 12)
    scene.entry.injected()
    scene.traffic.widen(12)
    wide = TopicWatcher(scene.target.direct, scene.copy, 12)
    wide.start()
    began = time.monotonic()
    scene.wait(
        lambda: all(wide.histories[number].offsets for number in range(3, 12)),
        60,
        "new partitions stay empty",
    )
    scene.entry.recovered(time.monotonic() - began)
    scene.write_for(RECORDS)
    scene.traffic.finish()
    expected = scene.traffic.ledger.records
    scene.wait(lambda: wide.records >= expected, 60, "not everything arrives")
    scene.mirror.stop()
    wide.check()

    comparison, revision = judge(
        scene.source.direct, scene.target.direct, scene.name, {scene.copy: wide}, 12
    )[scene.copy]
    wide.finish()
    scene.entry.compared(comparison, revision)
    assert comparison.line == "0 missing, 0 duplicate, 0 reordered, 0 altered", comparison.differences
    assert comparison.source == comparison.target == expected
    assert revision.stable, revision
    assert wide.broken == 0
    # the first three were watched before the change as well
    _, revision = judge(
        scene.source.direct, scene.target.direct, scene.name, {scene.copy: scene.watcher}, scene.partitions
    )[scene.copy]
    assert revision.stable, revision
    scene.check_generations()
