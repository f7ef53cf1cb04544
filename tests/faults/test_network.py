"""
The whole mirror over a network that breaks: proxies on both sides, judged past them (faults F6, F11, F12, F13).

Each test writes while the fault lasts, one transaction in ten aborted, and ends with a comparison byte for byte of
all that was committed; a reader of the target watches all along that nothing is ever taken back.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import Mirror, load_config
from eomirror.config import Cluster
from eomirror.demo.judge import judge
from eomirror.demo.traffic import TrafficPlan
from eomirror.demo.watch import TopicWatcher, Traffic
from eomirror.formats.names import LinkNames
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.compact_log import CompactLogReader
from eomirror.kafka.demo_clients import Offsets, TrafficProducer, create_topic
from fix_rig import REPEATS
from rig.frames import Api
from rig.rules import CutAfter, Delay, HalfOpen, Hold, Lifetimes, Match

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from rig.clusters import Rig

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

PARTITIONS = 3
RATE = 500.0
START_SECONDS = 120.0
# the goal is 10 s on a machine of its own; a loaded one gets more before a test calls it a standstill
HEAL_SECONDS = 45.0
REFUSED = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED


class Scene:
    """A running link through both proxies, traffic past the source's, and a reader past the target's."""

    def __init__(self, rig: Rig, name: str, spark: Any, seed: int) -> None:
        self.name = name
        self.source, self.target = rig.source, rig.target
        self.copy = f"source.{name}"
        self.lane_id = LinkNames(name).transactional_id(0)
        self._spark = spark
        self._error: BaseException | None = None
        self._mirror: Mirror | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        create_topic(self.source.direct, name, PARTITIONS, retention_ms="-1")
        self.traffic = Traffic(self.source.direct, name, TrafficPlan(seed, PARTITIONS), rate=RATE)
        self.watcher = TopicWatcher(self.target.direct, self.copy, PARTITIONS)

    def start(self, *, lanes: int = 2, **properties: str) -> None:
        """Mirror from now on; ``properties`` go to both clusters' clients, with ``_`` for each dot."""
        settings = {key.replace("_", "."): value for key, value in properties.items()}
        link = {
            "name": self.name,
            "source": "source",
            "target": "target",
            "topics": [self.name],
            "lanes": lanes,
        }
        clusters = {
            "source": {**self.source.proxied, **settings},
            "target": {**self.target.proxied, **settings},
        }
        config = load_config({"clusters": clusters, "links": [link], "defaults": {"plane": "client"}})
        self._mirror = Mirror(config, spark=self._spark)
        self.traffic.start()
        self.watcher.start()
        self._thread.start()
        self.await_news(START_SECONDS)

    def await_news(self, seconds: float = HEAL_SECONDS) -> float:
        """Seconds until the reader is shown something new."""
        began = time.monotonic()
        return self.wait(lambda: self.watcher.first_arrival(began), seconds, "no record arrives") - began

    def wait(self, condition: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait, as long as the mirror lives: nobody starts it again by hand."""
        until = time.monotonic() + seconds
        while not (value := condition()):
            self._check()
            assert time.monotonic() < until, f"{what} within {seconds:g} s"
            time.sleep(0.05)
        return value

    def write_for(self, records: int) -> None:
        """Wait until so many more records are committed on the source."""
        goal = self.traffic.ledger.records + records
        self.wait(lambda: self.traffic.ledger.records >= goal, 120, f"{records} records are not written")

    def catch_up(self) -> None:
        """End the traffic, and wait until the reader has seen all of it."""
        self.traffic.finish()
        expected = self.traffic.ledger.records
        self.wait(
            lambda: self.watcher.records >= expected, HEAL_SECONDS, f"not all of {expected} records are there"
        )

    def judge(self) -> None:
        """Stop, and compare."""
        self.stop()
        self._check(ended=True)
        ends = Offsets(self.target.direct).settled_ends(self.copy, PARTITIONS)
        until = time.monotonic() + 30
        while not self.watcher.has_reached(ends) and time.monotonic() < until:
            time.sleep(0.05)
        comparison, revision = judge(
            self.source.direct, self.target.direct, self.name, {self.copy: self.watcher}, PARTITIONS
        )[self.copy]
        assert comparison.line == "0 missing, 0 duplicate, 0 reordered, 0 altered", comparison.differences
        assert comparison.source == comparison.target == self.traffic.ledger.records > 0
        assert revision.stable, revision
        assert self.watcher.broken == 0
        assert self.traffic.ledger.aborted_transactions > 0
        assert not Offsets(self.target.direct).open_transactions(self.copy, PARTITIONS)

    def stop(self) -> None:
        if self._mirror is not None:
            self._mirror.stop()
            self._thread.join(30)
            assert not self._thread.is_alive(), "the mirror does not stop"

    def close(self) -> None:
        for worker in (self.traffic, self.watcher):
            worker.asked.set()
        try:
            self.stop()
        finally:
            for worker in (self.traffic, self.watcher):
                if worker.ident is not None:
                    worker.join(30)

    def _check(self, *, ended: bool = False) -> None:
        self.traffic.check()
        self.watcher.check()
        if self._error is not None:
            raise AssertionError(f"the mirror ended: {self._error}") from self._error
        assert ended or self._thread.is_alive(), "the mirror ended"

    def _run(self) -> None:
        assert self._mirror is not None
        try:
            self._mirror.run()
        except BaseException as error:  # noqa: BLE001  told by whoever waits
            self._error = error


def test_an_answer_that_never_came_is_no_offset(rig: Rig, topic_name: str) -> None:
    """EO-3, EO-6: librdkafka gives offset -1001 without an error for it; a reader would skip the partition."""
    target = rig.target
    create_topic(target.direct, topic_name, 2)
    traffic = TrafficProducer(target.direct, topic=topic_name, transactional_id=topic_name)
    plan = TrafficPlan(1, 2, abort_every=0)
    transaction = plan.transaction(0, plan.new_ledger(), sent_us=0, wall_ms=1_700_000_000_000)
    traffic.write(transaction)
    written = [sum(record.partition == number for record in transaction.records) for number in range(2)]
    cluster = Cluster("target", target.proxied)
    names = [(topic_name, number) for number in range(2)]
    for times in (1, 2):
        admin = ClusterAdmin(cluster, client_id="test")
        reader = CompactLogReader(cluster, admin, client_id="test")
        for at, expected in (("earliest", [0, 0]), ("latest", [count + 1 for count in written])):
            target.proxy.arm("cut", CutAfter(match=Match(api_key=Api.LIST_OFFSETS), times=times))
            assert list(admin.offsets(names, at=at, read_committed=False).values()) == expected, times
        target.proxy.arm("cut", CutAfter(match=Match(api_key=Api.LIST_OFFSETS), times=times))
        _, records = reader.read(topic_name)
        reader.close()
        admin.close()

        assert len(records) == len(transaction.records), times


@pytest.fixture
def scene(rig: Rig, topic_name: str, spark_context: Any, rng: random.Random) -> Iterator[Scene]:
    made = Scene(rig, topic_name, spark_context, rng.getrandbits(32))
    yield made
    made.close()


def test_connections_that_die_young_on_both_sides(scene: Scene) -> None:
    """F13: no connection lives longer than 1.5 s, and the mirror keeps up."""
    scene.start()
    for side in (scene.source, scene.target):
        side.proxy.arm("young", Lifetimes())
        side.proxy.cut()
    scene.write_for(4_000)
    scene.catch_up()
    died = [len(side.proxy.events("cut")) for side in (scene.source, scene.target)]
    log.info("%d connections died on the source's side, %d on the target's", *died)

    assert min(died) > 10
    scene.judge()


def test_a_link_that_is_cut_goes_on_when_it_is_whole_again(scene: Scene) -> None:
    """F12: the target's side, the source's side and both, without anybody's help."""
    scene.start()
    for sides in ([scene.target], [scene.source], [scene.source, scene.target]):
        for side in sides:
            side.proxy.cut(refuse_seconds=3.0)
        time.sleep(3.0)
        log.info("after a cut of %d sides: %.1f s", len(sides), scene.await_news())
        scene.write_for(500)
    scene.catch_up()

    scene.judge()


@pytest.mark.parametrize("side", ["source", pytest.param("target", marks=pytest.mark.slow)])
def test_a_half_open_cluster_is_left_and_found_again(scene: Scene, side: str) -> None:
    """F11, F12: longer than the socket timeout nothing comes, and nothing says so."""
    proxy = getattr(scene, side).proxy
    scene.start(socket_timeout_ms="2000")
    proxy.arm("dead", HalfOpen())
    proxy.await_event("swallowed")
    time.sleep(5.0)
    proxy.disarm("dead")
    log.info("after a half-open %s: %.1f s", side, scene.await_news())
    scene.write_for(500)
    scene.catch_up()

    scene.judge()


def test_a_straggling_commit_of_the_lane_is_worthless(scene: Scene, rng: random.Random) -> None:
    """F6, EO-9: each time the lane's commit is held, repeated and delivered late into its successor's transaction."""
    scene.start(lanes=1)
    proxy = scene.target.proxy
    inits = proxy.requests(Api.INIT_PRODUCER_ID, scene.lane_id)
    for number in range(REPEATS):
        rule = f"straggler {number}"
        match = Match(api_key=Api.END_TXN, transactional_id=scene.lane_id, commit=True)
        proxy.arm(rule, Hold(match=match, nth=rng.randint(1, 10)))
        proxy.await_event("held", rule)
        # the successor has taken the id and has something open
        proxy.await_requests(inits + number + 1, Api.INIT_PRODUCER_ID, scene.lane_id)
        written = proxy.requests(Api.PRODUCE, scene.lane_id)
        proxy.await_requests(written + rng.randint(1, 20), Api.PRODUCE, scene.lane_id)
        proxy.release(rule)
        assert proxy.await_event("late answer", rule).error in REFUSED
    scene.write_for(500)
    scene.catch_up()

    scene.judge()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_connections_die_young_for_a_minute_from_the_start(scene: Scene) -> None:
    """F13: taking the link, recovering and mirroring, all over connections that die."""
    for side in (scene.source, scene.target):
        side.proxy.arm("young", Lifetimes())
    scene.start()
    for _ in range(6):
        scene.write_for(int(10 * RATE * 0.9))
        scene.await_news(10.0)
    scene.catch_up()

    scene.judge()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_slow_uneven_network_is_only_slow(scene: Scene) -> None:
    """F14: 200 ms, give or take 100, in each direction, and now and then a cut."""
    scene.start()
    for side in (scene.source, scene.target):
        side.proxy.arm("slow", Delay(seconds=0.2, jitter=0.1))
    for _ in range(3):
        scene.write_for(2_000)
        scene.target.proxy.cut()
        scene.await_news()
    scene.catch_up()

    scene.judge()
