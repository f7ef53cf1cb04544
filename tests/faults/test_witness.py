"""
EO-9 on a real broker: stragglers that a proxy holds and delivers late (faults F6, F7 and F8).

Each danger has a control experiment that leaves the rule out and shows the damage: without it, a green test would
say nothing.  ``EOMIRROR_REPEATS=200`` repeats every straggler that often, each time with other numbers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from eomirror.config import Cluster
from eomirror.errors import LaneError, OutcomeUnknownError
from eomirror.kafka.demo_clients import Offsets, ReadRecord, read_partition
from eomirror.kafka.producer import TransactionalProducer
from eomirror.lane.plane import CommitOutcome
from fix_rig import REPEATS
from records import create_topic, wait_for
from rig.frames import Api
from rig.rules import CutAfter, DropAnswers, Hold, Match

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from eomirror._native import Acks
    from rig.clusters import Rig
    from rig.decider import Event

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.faults, pytest.mark.integration]

NO_ERROR = 0
REFUSED = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
repeated = pytest.mark.parametrize("number", range(REPEATS))


class Stage:
    """One topic of one partition on the target, one transactional.id, and what should be visible."""

    def __init__(self, rig: Rig, topic: str, rng: random.Random) -> None:
        self.topic = topic
        self.proxy = rig.target.proxy
        self.direct = rig.target.direct
        self.proxied = rig.target.proxied
        self.rng = rng
        self.committed: list[bytes] = []
        self._written = 0
        self._producers: list[TransactionalProducer] = []
        create_topic(self.direct, topic)

    def producer(self, *, timeout: float = 15.0, **properties: str) -> TransactionalProducer:
        """A producer through the proxy that has taken the id."""
        settings = {key.replace("_", "."): value for key, value in properties.items()}
        made = TransactionalProducer(
            Cluster("west", {**self.proxied, **settings}),
            client_id=self.topic,
            transactional_id=self.topic,
            transaction_timeout=timeout,
            known_topic=self.topic,
        )
        self._producers.append(made)
        made.init()
        return made

    def spent(self, producer: TransactionalProducer) -> None:
        """What a lane does with a producer whose commit was not clean."""
        self._producers.remove(producer)
        producer.close()

    def close(self) -> None:
        for producer in self._producers:
            producer.close()

    def write(self, producer: TransactionalProducer, *, most: int = 20) -> list[bytes]:
        """Produce some records and see them acknowledged; their values."""
        values = self.values(most)
        producer.produce_all([(self.topic, value, None, 0) for value in values])
        producer.flush(30)
        return values

    def values(self, most: int = 20) -> list[bytes]:
        """Values that no other record has."""
        begin = self._written
        self._written += self.rng.randint(1, most)
        return [b"%06d" % number for number in range(begin, self._written)]

    def transaction(self, producer: TransactionalProducer) -> None:
        """One clean transaction."""
        producer.begin()
        values = self.write(producer)
        assert producer.commit() is CommitOutcome.CLEAN
        self.committed += values

    def some_clean_transactions(self, producer: TransactionalProducer) -> None:
        for _ in range(self.rng.randrange(3)):
            self.transaction(producer)

    def ends(self, *, commit: bool) -> Match:
        """Requests that end a transaction of ours."""
        return Match(api_key=Api.END_TXN, transactional_id=self.topic, commit=commit)

    def of(self, api_key: Api) -> Match:
        """Requests of our transactions."""
        return Match(api_key=api_key, transactional_id=self.topic)

    def deliver_late(self, rule: str) -> Event:
        """Let the straggler go, and wait for what the broker says to it."""
        self.proxy.await_event("held", rule)
        self.proxy.release(rule)
        return self.proxy.await_event("late answer", rule)

    def visible(self) -> list[bytes | None]:
        """What a read_committed reader sees now, past the proxy."""
        return [record.value for record in self.records()]

    def records(self) -> list[ReadRecord]:
        end = Offsets(self.direct).ends(self.topic, 1, committed=True)[0]
        return list(read_partition(self.direct, self.topic, 0, end))

    def nothing_is_open(self) -> bool:
        return not Offsets(self.direct).open_transactions(self.topic, 1)


@pytest.fixture
def stage(rig: Rig, topic_name: str, rng: random.Random) -> Iterator[Stage]:
    made = Stage(rig, topic_name, rng)
    yield made
    made.close()


def test_two_hundred_clean_commits_raise_no_false_alarm(stage: Stage) -> None:
    """A suspicion costs a new producer, so a clean commit must never be suspect."""
    producer = stage.producer()
    outcomes: Counter[CommitOutcome] = Counter()
    for _ in range(200):
        producer.begin()
        stage.committed += stage.write(producer, most=3)
        outcomes[producer.commit()] += 1

    assert outcomes == {CommitOutcome.CLEAN: 200}
    assert stage.visible() == stage.committed
    assert stage.proxy.requests(Api.END_TXN, stage.topic) == 200


# -- F6: a straggling EndTxn ----------------------------------------------------------------------


def repeated_commit(stage: Stage, producer: TransactionalProducer) -> None:
    """A transaction whose EndTxn is held while its connection breaks, so that librdkafka sends it again."""
    stage.proxy.arm("straggler", Hold(match=stage.ends(commit=True)))
    producer.begin()
    values = stage.write(producer)
    assert producer.commit() is CommitOutcome.SUSPECT
    stage.committed += values


@repeated
def test_a_straggling_commit_does_not_touch_a_successor(stage: Stage, number: int) -> None:
    """EO-9: the commit was suspect, so a new producer took over; its open transaction stays open."""
    first = stage.producer()
    stage.some_clean_transactions(first)
    repeated_commit(stage, first)
    stage.spent(first)
    second = stage.producer()
    second.begin()
    stage.write(second)

    late = stage.deliver_late("straggler")

    assert late.error in REFUSED, number
    assert stage.visible() == stage.committed
    stage.write(second)
    second.abort()
    wait_for(stage.nothing_is_open)
    assert stage.visible() == stage.committed


@repeated
def test_without_the_rule_a_straggling_commit_tears_the_next_transaction(stage: Stage, number: int) -> None:
    """The control experiment: the same producer goes on, and what it aborts is visible."""
    producer = stage.producer()
    stage.some_clean_transactions(producer)
    repeated_commit(stage, producer)
    producer.begin()
    half = stage.write(producer)

    late = stage.deliver_late("straggler")

    assert late.error == NO_ERROR, number
    wait_for(lambda: stage.visible() == stage.committed + half)
    producer.abort()
    assert stage.visible() == stage.committed + half


@repeated
def test_a_straggling_abort_does_not_touch_a_successor(stage: Stage, number: int) -> None:
    """EO-9: nobody trusts an abort; the successor commits, and all of it is there."""
    first = stage.producer()
    stage.some_clean_transactions(first)
    stage.proxy.arm("straggler", Hold(match=stage.ends(commit=False)))
    first.begin()
    stage.write(first)
    first.abort()
    stage.spent(first)
    second = stage.producer()
    second.begin()
    values = stage.write(second)

    late = stage.deliver_late("straggler")

    assert late.error in REFUSED, number
    values += stage.write(second)
    assert second.commit() is CommitOutcome.CLEAN
    wait_for(stage.nothing_is_open)
    assert stage.visible() == stage.committed + values


@repeated
def test_without_the_rule_a_straggling_abort_ends_the_next_transaction(stage: Stage, number: int) -> None:
    """The control experiment: the broker aborts what the same producer has open."""
    producer = stage.producer()
    stage.some_clean_transactions(producer)
    stage.proxy.arm("straggler", Hold(match=stage.ends(commit=False)))
    producer.begin()
    stage.write(producer)
    producer.abort()
    producer.begin()
    stage.write(producer)

    late = stage.deliver_late("straggler")

    assert late.error == NO_ERROR, number
    wait_for(stage.nothing_is_open)
    with pytest.raises(LaneError):
        producer.commit()
    assert stage.visible() == stage.committed


# -- F7, F8: other stragglers ---------------------------------------------------------------------


@repeated
@pytest.mark.parametrize("ending", ["commit", "abort", "abort unsent"])
def test_a_straggling_produce_writes_nothing(stage: Stage, ending: str, number: int) -> None:
    """A copy of a Produce that arrives after its transaction, or in the next one, is refused."""
    first = stage.producer()
    stage.some_clean_transactions(first)
    # "unsent": only the held copy ever leaves, so the broker knows nothing of its sequence numbers
    stage.proxy.arm("straggler", Hold(match=stage.of(Api.PRODUCE), cut=ending != "abort unsent"))
    first.begin()
    if ending == "abort unsent":
        first.produce_all([(stage.topic, value, None, 0) for value in stage.values()])
        stage.proxy.await_event("held", "straggler")
        first.abort()
    else:
        values = stage.write(first)
        if ending == "commit":
            assert first.commit() is CommitOutcome.SUSPECT
            stage.committed += values
        else:
            first.abort()
    stage.spent(first)
    second = stage.producer()
    second.begin()
    values = stage.write(second)
    early = stage.rng.random() < 0.5
    if early:
        late = stage.deliver_late("straggler")
    assert second.commit() is CommitOutcome.CLEAN
    if not early:
        late = stage.deliver_late("straggler")

    assert late.error in REFUSED, (number, early)
    wait_for(stage.nothing_is_open)
    assert stage.visible() == stage.committed + values


@repeated
def test_a_straggling_request_for_partitions_opens_nothing(stage: Stage, number: int) -> None:
    """A late AddPartitionsToTxn would open a transaction that nobody ends; its commit is suspect as well."""
    first = stage.producer()
    stage.some_clean_transactions(first)
    stage.proxy.arm("straggler", Hold(match=stage.of(Api.ADD_PARTITIONS_TO_TXN)))
    first.begin()
    stage.committed += stage.write(first)
    assert first.commit() is CommitOutcome.SUSPECT
    stage.spent(first)
    second = stage.producer()

    stage.deliver_late("straggler")

    stage.transaction(second)
    assert stage.visible() == stage.committed, number
    assert stage.nothing_is_open()


@repeated
def test_a_straggling_init_fences_but_never_lies(stage: Stage, number: int) -> None:
    """A late InitProducerId aborts what is open; the commit then says so, and nothing is half there."""
    stage.proxy.arm("straggler", Hold(match=stage.of(Api.INIT_PRODUCER_ID)))
    producer = stage.producer()
    stage.some_clean_transactions(producer)
    producer.begin()
    stage.write(producer)

    late = stage.deliver_late("straggler")

    # 51, CONCURRENT_TRANSACTIONS: the coordinator aborts what is open first, and lets the asker ask again
    assert late.error == 51, number
    with pytest.raises(LaneError):
        producer.commit()
    wait_for(stage.nothing_is_open)
    assert stage.visible() == stage.committed


@repeated
def test_a_connection_that_breaks_behind_a_commit_makes_it_suspect(stage: Stage, number: int) -> None:
    """The broker committed, the answer was lost, and the library asked again: done once, never called clean."""
    first = stage.producer()
    stage.some_clean_transactions(first)
    times = stage.rng.randint(1, 3)
    stage.proxy.arm("cut", CutAfter(match=stage.ends(commit=True), times=times))
    first.begin()
    values = stage.write(first)
    try:
        assert first.commit() is CommitOutcome.SUSPECT
    except LaneError as error:
        log.info("commit with %d cuts (%d): %r", times, number, error)
    stage.committed += values
    stage.spent(first)
    stage.proxy.disarm("cut")

    stage.transaction(stage.producer())

    assert stage.visible() == stage.committed


def test_a_lost_answer_to_a_commit_makes_it_suspect(stage: Stage) -> None:
    """The connection lives, the library's request times out and is sent again."""
    producer = stage.producer(socket_timeout_ms="1500")
    stage.some_clean_transactions(producer)
    stage.proxy.arm("lost", DropAnswers(match=stage.ends(commit=True), times=1))
    producer.begin()
    values = stage.write(producer)

    assert producer.commit() is CommitOutcome.SUSPECT
    assert stage.visible() == stage.committed + values


class Commit(threading.Thread):
    """A commit that may take longer than a test can wait."""

    def __init__(self, producer: TransactionalProducer) -> None:
        super().__init__(daemon=True)
        self.producer = producer
        self.result: CommitOutcome | LaneError | None = None
        self.seconds = 0.0
        self.start()

    def run(self) -> None:
        began = time.monotonic()
        try:
            self.result = self.producer.commit()
        except LaneError as error:
            self.result = error
        self.seconds = time.monotonic() - began

    def wait(self, seconds: float) -> bool:
        """Whether it is over, after so many seconds at most."""
        self.join(seconds)
        return not self.is_alive()


def test_a_commit_that_gets_no_answers_is_never_clean(stage: Stage) -> None:
    """The library asks on, past the transaction's timeout; when answers come again, the commit is suspect, once."""
    first = stage.producer(timeout=3.0, socket_timeout_ms="1000")
    stage.some_clean_transactions(first)
    stage.proxy.arm("lost", DropAnswers(match=stage.ends(commit=True)))
    first.begin()
    values = stage.write(first)
    # in a thread: librdkafka's call cannot be interrupted, and a test must end
    commit = Commit(first)
    stage.proxy.await_event("dropped", "lost", nth=4)
    stage.proxy.disarm("lost")
    assert commit.wait(60.0)
    log.info("%d EndTxn in %.1f s", stage.proxy.requests(Api.END_TXN, stage.topic), commit.seconds)

    assert commit.result is CommitOutcome.SUSPECT or isinstance(commit.result, OutcomeUnknownError)
    assert stage.visible() == stage.committed + values


# -- EO-7: acknowledged offsets --------------------------------------------------------------------


def offsets_of(acks: Acks, topic: str) -> list[int]:
    """Acknowledged offsets of partition 0, in the order of delivery."""
    assert acks.failed == 0
    assert [(name, partition) for name, partition, _ in acks.partitions] == [(topic, 0)]
    return [
        first + place for _, _, runs in acks.partitions for first, count in runs for place in range(count)
    ]


def test_acknowledged_offsets_are_exact_beside_a_foreign_writer(stage: Stage) -> None:
    """Another producer's records in between make two runs, and each record keeps its own offset."""
    foreign = Producer({**stage.direct, "enable.idempotence": True})
    producer = stage.producer()
    producer.begin()
    before = stage.write(producer)
    foreign.produce(stage.topic, b"foreign", partition=0)
    assert foreign.flush(30) == 0
    after = stage.write(producer)
    acks = producer.take_acks()
    assert producer.commit() is CommitOutcome.CLEAN

    found = {record.value: record.offset for record in stage.records()}
    assert [len(runs) for _, _, runs in acks.partitions] == [2]
    assert offsets_of(acks, stage.topic) == [found[value] for value in before + after]


@pytest.mark.timeout(120)
def test_acknowledged_offsets_are_exact_over_dying_connections(stage: Stage) -> None:
    """Batches are repeated, answers are lost, a foreign writer is in between: n-th record, n-th offset."""
    acked: list[tuple[list[bytes], list[int]]] = []
    unknown: list[list[bytes]] = []
    failures: Counter[str] = Counter()

    def attempt(producer: TransactionalProducer) -> bool:
        """One transaction of several bursts; whether the producer may go on."""
        values: list[bytes] = []
        stage.proxy.arm("cut", CutAfter(match=stage.of(Api.PRODUCE), nth=stage.rng.randint(1, 8)))
        try:
            producer.begin()
            for _ in range(3):
                values += (burst := stage.values(60))
                producer.produce_all([(stage.topic, value, None, 0) for value in burst])
                if stage.rng.random() < 0.3:
                    stage.proxy.cut()
            producer.flush(15)
            acks = producer.take_acks()
            outcome = producer.commit()
        except OutcomeUnknownError:
            unknown.append(values)
            failures["unknown"] += 1
            return False
        except LaneError as error:
            failures[type(error).__name__] += 1
            producer.abort()
            return False
        acked.append((values, offsets_of(acks, stage.topic)))
        return outcome is CommitOutcome.CLEAN

    with foreign_writer(stage):
        producer = stage.producer(batch_num_messages="10")
        for _ in range(20):
            if not attempt(producer):
                stage.spent(producer)
                producer = stage.producer(batch_num_messages="10")
    wait_for(stage.nothing_is_open)

    records = [record for record in stage.records() if record.value != b"foreign"]
    found = {record.value: record.offset for record in records}
    lost = len(stage.proxy.events("lost answer"))
    log.info("%d acknowledged, failures %s, lost answers %d", len(acked), dict(failures), lost)
    assert len(records) == len(found), "a record is visible twice"
    for values, offsets in acked:
        assert offsets == [found.get(value) for value in values]
    for values in unknown:
        assert sum(value in found for value in values) in (0, len(values)), "a torn transaction"
    whole = [values for values in unknown if values[0] in found]
    assert len(found) == sum(len(values) for values in whole) + sum(len(values) for values, _ in acked)
    assert len(acked) > 5
    assert lost > 5, "no batch was repeated"


class foreign_writer:  # noqa: N801  reads as a block
    """Another application that writes into the same partition, past the proxy, while the block runs."""

    def __init__(self, stage: Stage) -> None:
        self._over = threading.Event()
        self._stage = stage
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        producer = Producer({**self._stage.direct, "linger.ms": 0})
        while not self._over.wait(0.005):
            producer.produce(self._stage.topic, b"foreign", partition=0)
            producer.poll(0)
        producer.flush(30)
