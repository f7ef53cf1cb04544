"""
Equal names on two clusters, mirrored both ways, cut in between, and dead one after the other (fault F33).

What a cluster wrote itself has no provenance header, what came from the other one has; so each half of a topic can be
compared with its origin, and a record that went round would be there twice.
"""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror._native import HangingTransactionClient
from eomirror.demo.clients import Offsets, ReadRecord, create_topic, read_partition
from eomirror.demo.compare import Comparison, Revision, compare_partition
from eomirror.demo.traffic import TrafficPlan
from eomirror.demo.watch import TopicWatcher
from eomirror.records.names import HOPS_HEADER
from support.fix_rig import REPEATS
from support.links.mirrors import ThreadMirror
from support.links.plane import plane_under_test
from support.links.scene import HEAL_SECONDS, START_SECONDS
from support.traffic.records import wait_for
from support.traffic.writer import Writer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from support.clusters.rig import Rig, Side
    from support.judges.ledger import Entry

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

PARTITIONS = 2
# a broker that was killed, on a machine that does much else
_BROKER_SECONDS = 240.0


class Half:
    """One of the two clusters: a writer and a reader of the same topic."""

    def __init__(self, side: Side, topic: str, seed: int) -> None:
        self.side = side
        self.topic = topic
        create_topic(side.direct, topic, PARTITIONS, retention_ms="-1")
        self.writer = Writer(side.direct, topic, TrafficPlan(seed, PARTITIONS), rate=200.0)
        self.watcher = TopicWatcher(side.direct, topic, PARTITIONS)

    def hanging(self) -> list[tuple[str, int, int, int, int]]:
        """Transactions that are open here: topic, partition, producer id, epoch, first record."""
        client = HangingTransactionClient({name: str(value) for name, value in self.side.direct.items()})
        return list(client.open([(self.topic, number) for number in range(PARTITIONS)], START_SECONDS))

    def read(self) -> dict[int, list[ReadRecord]]:
        """Everything that is committed."""
        ends = Offsets(self.side.direct).settled_ends(self.topic, PARTITIONS)
        return {
            number: list(read_partition(self.side.direct, self.topic, number, end))
            for number, end in ends.items()
        }


@pytest.fixture
def halves(rig: Rig, topic_name: str, rng: random.Random) -> Iterator[tuple[Half, Half]]:
    made = tuple(Half(side, topic_name, rng.getrandbits(32)) for side in (rig.source, rig.target))
    yield made  # type: ignore[misc]
    for half in made:
        half.writer.asked.set()
        half.watcher.asked.set()


def came(record: ReadRecord) -> bool:
    """Whether a record came from the other cluster."""
    return any(name == HOPS_HEADER for name, _ in record.headers)


def cut(halves: tuple[Half, Half], entry: Entry) -> Iterator[None]:
    """Break all connections of both sides, for five seconds."""
    for half in halves:
        half.side.proxy.cut(refuse_seconds=5.0)
    entry.injected(2)
    time.sleep(5.0)
    yield


def fail_over(halves: tuple[Half, Half], entry: Entry) -> Iterator[None]:
    """One cluster dies, and its application works with the other one; it comes back, and so does the application."""
    for half in halves:
        (broker,) = half.side.cluster.brokers
        # what was committed here and is not there yet is not lost: it arrives when the cluster is back
        with half.writer.held():
            # for the markers of what it committed: Kafka 4.3 may leave them out when it starts again (ADR 0012), and
            # what others left open on a source is not for the mirror to end
            time.sleep(1.0)
            broker.kill()
            entry.injected()
            time.sleep(3.0)
            broker.start(timeout=_BROKER_SECONDS)
        yield


@pytest.mark.fault("F33")
@pytest.mark.parametrize("interrupt", [cut, fail_over])
def test_both_directions_are_interrupted_and_heal(
    halves: tuple[Half, Half],
    topic_name: str,
    spark_context: Any,
    entry: Entry,
    interrupt: Callable[[tuple[Half, Half], Entry], Iterator[None]],
) -> None:
    """F33: after each time everything is everywhere once, in the order of its origin; nothing went round."""
    links = [
        {
            "name": f"{topic_name}-{source}",
            "source": source,
            "target": target,
            "topics": [topic_name],
            "naming": "identity",
        }
        for source, target in (("one", "two"), ("two", "one"))
    ]
    clusters = {name: half.side.proxied for name, half in zip(("one", "two"), halves, strict=True)}
    mirror = ThreadMirror(
        {"clusters": clusters, "links": links, "defaults": {"plane": plane_under_test()}}, spark_context
    )

    def await_all(seconds: float) -> float:
        """Seconds until everything that is committed, on either side, is on both."""
        began = time.monotonic()
        # no application writes meanwhile: what a side wrote later itself would stand for copies that it lacks
        with halves[0].writer.held(), halves[1].writer.held():
            expected = sum(half.writer.ledger.records for half in halves)
            while min(half.watcher.records for half in halves) < expected:
                mirror.check()
                for half in halves:
                    half.writer.check()
                    half.watcher.check()
                assert time.monotonic() < began + seconds, (
                    f"not all of {expected} records are everywhere; open: {[half.hanging() for half in halves]}"
                )
                time.sleep(0.05)
        return time.monotonic() - began

    try:
        for thread in itertools.chain([mirror], *((half.writer, half.watcher) for half in halves)):
            thread.start()
        # of either side, so that both links must have flowed: one that only starts ends when a cluster is down
        wait_for(lambda: all(half.writer.ledger.records for half in halves), START_SECONDS)
        await_all(START_SECONDS)
        for _ in range(REPEATS):
            for _ in interrupt(halves, entry):
                log.info("everything is everywhere after %.1f s", entry.recovered(await_all(HEAL_SECONDS)))
                time.sleep(1.0)
        for half in halves:
            half.writer.finish()
        await_all(HEAL_SECONDS)
        # time to go round again
        time.sleep(2.0)
        mirror.stop()
    finally:
        mirror.close()

    contents = [half.read() for half in halves]
    for half, here, there in zip(halves, contents, reversed(contents), strict=True):
        comparison, revision = Comparison(), Revision()
        for number in range(PARTITIONS):
            own = [record for record in here[number] if not came(record)]
            copied = [record for record in there[number] if came(record)]
            comparison = comparison.plus(compare_partition(number, own, copied))
            revision = revision.plus(half.watcher.histories[number].revised(here[number]))
        entry.compared(comparison, revision)
        assert comparison.line == "0 missing, 0 duplicate, 0 reordered, 0 altered", comparison.differences
        assert comparison.source == half.writer.ledger.records
        assert revision.stable, revision
        assert half.watcher.broken == 0
