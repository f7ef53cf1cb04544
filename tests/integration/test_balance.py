"""Partitions that move between lanes which go on: the copies are the source, whatever moves when."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from eomirror import load_config
from eomirror.driver import moves
from eomirror.records.names import LinkNames
from support.clusters.quotas import set_quota
from support.judges.audited import assert_audited
from support.links.moving.java import java_gateway
from support.links.restless import Restless
from support.traffic.records import wait_for
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    import random

    from support.links.link import TestLink

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

_MOVES = 20
_LANES = 3


def generation(run: Any) -> int:
    """Generation of the link as the run shows it; 0 for none yet."""
    return 0 if run._snapshot is None else int(run._snapshot.links[0].generation)


@pytest.mark.link(lanes=_LANES, balance="bytes")
def test_partitions_that_move_again_and_again_are_mirrored_once_and_in_order(
    link: TestLink, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EO-1, EO-2: no lane starts an attempt for a move, and none is fenced."""
    restless = Restless(rng, lanes=_LANES, most=_MOVES)
    monkeypatch.setattr(moves, "Balance", lambda: restless)
    link.create("a", "b", partitions=6)
    with link.running() as run:
        while restless.made < _MOVES:
            link.write("a", 300)
            link.write("b", 100)
            run.wait(lambda: run.error is None)
        run.wait(lambda: link.whole("a", "b"))
        # the last move is chosen before it is published
        run.wait(lambda: generation(run) > _MOVES)
        (one,) = run._snapshot.links
        assert [lane.last_failure for lane in one.lanes] == [""] * _LANES
        assert one.generation == 1 + _MOVES, "each is published once"
        assert not run.stopped
    link.check("a", "b")
    assert_audited(load_config(link.path))
    # the next run keeps a layout that was balanced
    link.write("a", 100)
    link.catch_up()
    link.check("a", "b")


#: Bytes a second that the target takes from a lane, state records included; that two partitions of the first lane get.
_QUOTA, _HEAVY = 600_000.0, 350_000
_BYTES = 10_000


class Uneven(WorkerThread):
    """Writes much to two partitions and little to the others; the times between arrivals in each copy tell a pause."""

    def __init__(self, link: TestLink, word: str, heavy: set[int]) -> None:
        super().__init__("uneven traffic")
        self._link, self._word, self._heavy = link, word, heavy
        self._arrivals: dict[int, list[float]] = {number: [] for number in link.written[word]}

    def work(self) -> None:
        link, word = self._link, self._word
        producer = Producer({**link.east, "linger.ms": 0})
        consumer = Consumer({**link.west, "group.id": "arrivals", "isolation.level": "read_committed"})
        copies = [TopicPartition(link.copy(word), number, OFFSET_END) for number in self._arrivals]
        wait_for(lambda: link.copy(word) in consumer.list_topics(timeout=10).topics, 60)
        consumer.assign(copies)
        began = time.monotonic()
        while not self.asked.wait(0.01):
            for number, written in link.written[word].items():
                size = _BYTES if number in self._heavy else 10
                due = (time.monotonic() - began) * (_HEAVY / _BYTES if number in self._heavy else 50)
                while len(written) < due:
                    value = b"%09d " % len(written) * (size // 10)
                    at = int(1000 * time.time())
                    producer.produce(link.topic(word), value, None, number, timestamp=at)
                    written.append((None, value, at, ()))
            producer.poll(0)
            now = time.monotonic()
            for message in consumer.consume(500, 0):
                self._arrivals[message.partition()].append(now)
        producer.flush(30)
        consumer.close()

    def longest(self, begin: float, end: float) -> dict[int, int]:
        """The longest time without an arrival in each partition, in ms."""
        found = {}
        for number, arrivals in self._arrivals.items():
            within = [at for at in arrivals if begin <= at <= end]
            gaps = [after - before for before, after in pairwise(within)]
            found[number] = round(1000 * max(gaps, default=0.0))
        return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.link(lanes=2, balance="bytes")
def test_a_lane_that_is_behind_gives_a_partition_and_both_keep_up(link: TestLink, west: Any) -> None:
    """EO-1: the target takes less from a lane than its partitions get; one move, and no other for two minutes."""
    link.create("a", partitions=4)
    with java_gateway() as gateway:
        for lane in range(2):
            entity = {"client-id": LinkNames(link.name).client_id(f"lane-{lane}")}
            set_quota(
                gateway, west.client_properties["bootstrap.servers"], entity, "producer_byte_rate", _QUOTA
            )
    began = time.monotonic()
    with link.running() as run, Uneven(link, "a", {0, 2}) as traffic:

        def status() -> Any:
            traffic.check()
            return wait_for(lambda: run._snapshot).links[0]

        run.wait(lambda: status().generation == 2, 240)
        moved = time.monotonic()
        run.wait(lambda: (status().lag_seconds or 0) < 3, 150)
        level = time.monotonic()
        behind: list[float] = []
        while time.monotonic() < level + 90:
            time.sleep(1)
            behind.append(status().lag_seconds or 0)
            run.wait(lambda: True)
        ended = [lane.last_failure for lane in status().lanes]
        times = (
            traffic.longest(began, moved - 5),
            traffic.longest(moved - 5, moved + 5),
            traffic.longest(level, level + 60),
        )
        print(  # noqa: T201
            f"\nmoved after {moved - began:.0f} s, level {level - moved:.0f} s later, then at most {max(behind):.1f} s "
            f"behind; ended early: {ended}; longest times in ms without an arrival in each partition, before the move, "
            f"around it and later: {times}",
            flush=True,
        )
        assert status().generation == 2, "one move was enough"
        traffic.finish(60)
        run.wait(lambda: status().lag_records == 0)
    link.check("a")
    assert_audited(load_config(link.path))
