"""
EO-9 on a real broker: stragglers that a proxy holds and delivers late (faults F6, F7 and F8).

Each danger has a control experiment that leaves the rule out and shows the damage: without it, a green test would
say nothing.  ``EOMIRROR_REPEATS=200`` repeats every straggler that often, each time with other numbers.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from eomirror.errors import LaneError, OutcomeUnknownError
from eomirror.plane.protocol import CommitOutcome
from support.clusters.frames import Api
from support.clusters.rules import CutAfter, DropAnswers, Hold
from support.fix_rig import REPEATS
from support.links.stage import FOREIGN, Committing, ForeignWriter, Stage
from support.traffic.records import wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from eomirror._native import Acks
    from eomirror.plane.client.producer import TransactionalProducer
    from support.clusters.rig import Rig
    from support.judges.ledger import Entry

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.faults, pytest.mark.integration]

NO_ERROR = 0
REFUSED = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
repeated = pytest.mark.parametrize("number", range(REPEATS))


@pytest.fixture
def stage(rig: Rig, topic_name: str, rng: random.Random, entry: Entry) -> Iterator[Stage]:
    made = Stage(rig, topic_name, rng)
    yield made
    kinds = Counter(event.kind for event in made.proxy.events())
    # the repeat of a held request counts for nothing: it is the same injection
    entry.injected(kinds["held"] + kinds["dropped"] or kinds["lost answer"])
    entry.records += len(made.committed)
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
    stage.shows(stage.committed)
    assert stage.proxy.requests(Api.END_TXN, stage.topic) == 200


# -- F6: a straggling EndTxn ----------------------------------------------------------------------


def repeated_commit(stage: Stage, producer: TransactionalProducer) -> None:
    """A transaction whose EndTxn is held while its connection breaks, so that librdkafka sends it again."""
    stage.proxy.arm("straggler", Hold(match=stage.ends(commit=True)))
    producer.begin()
    values = stage.write(producer)
    assert producer.commit() is CommitOutcome.SUSPECT
    stage.committed += values


@pytest.mark.fault("F6")
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
    stage.shows(stage.committed)
    stage.write(second)
    second.abort()
    wait_for(stage.nothing_is_open)
    stage.shows(stage.committed)


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
    stage.shows(stage.committed + half)


@pytest.mark.fault("F6")
@repeated
def test_a_straggling_abort_does_not_touch_a_successor(stage: Stage, number: int) -> None:
    """EO-9: no lane trusts an abort; the successor commits, and all of it is there."""
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
    stage.shows(stage.committed + values)


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
    stage.shows(stage.committed)


# -- F7, F8: other stragglers ---------------------------------------------------------------------


@pytest.mark.fault("F7")
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
    stage.shows(stage.committed + values)


@pytest.mark.fault("F8")
@repeated
def test_a_straggling_request_for_partitions_opens_nothing(stage: Stage, number: int) -> None:  # noqa: ARG001
    """A late AddPartitionsToTxn would open a transaction that no producer ends; its commit is suspect as well."""
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
    stage.shows(stage.committed)
    assert stage.nothing_is_open()


@pytest.mark.fault("F8")
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
    stage.shows(stage.committed)


@pytest.mark.fault("F8")
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

    stage.shows(stage.committed)


@pytest.mark.fault("F8")
def test_a_lost_answer_to_a_commit_makes_it_suspect(stage: Stage) -> None:
    """The connection lives, the library's request times out and is sent again."""
    producer = stage.producer(socket_timeout_ms="1500")
    stage.some_clean_transactions(producer)
    stage.proxy.arm("lost", DropAnswers(match=stage.ends(commit=True), times=1))
    producer.begin()
    values = stage.write(producer)

    assert producer.commit() is CommitOutcome.SUSPECT
    stage.shows(stage.committed + values)


@pytest.mark.fault("F8")
def test_a_commit_that_gets_no_answers_ends_with_its_outcome_unknown(stage: Stage) -> None:
    """EO-8: the library would ask on for ever; the lane gives up after the transaction timeout, and never guesses."""
    first = stage.producer(timeout=3.0, socket_timeout_ms="1000")
    stage.some_clean_transactions(first)
    stage.proxy.arm("lost", DropAnswers(match=stage.ends(commit=True)))
    first.begin()
    values = stage.write(first)
    # in a thread: librdkafka's call cannot be interrupted, and a test must end
    commit = Committing(first)
    assert commit.wait(60.0)
    log.info("%d EndTxn in %.1f s", stage.proxy.requests(Api.END_TXN, stage.topic), commit.seconds)
    assert isinstance(commit.result, OutcomeUnknownError)
    stage.spent(first)
    stage.proxy.disarm("lost")
    said = [event.error for event in stage.proxy.events() if event.kind in {"dropped", "lost answer"}]
    log.info("what the client was not told: %s", said)
    assert said
    # it was committed, as a lane finds out when it reads its position; unless this machine stood still for longer than
    # the transaction's time before the first EndTxn went out, and the broker aborted it
    if NO_ERROR in said:
        stage.committed += values

    stage.transaction(stage.producer())

    stage.shows(stage.committed)


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
    foreign = ForeignWriter(stage)
    producer = stage.producer()
    producer.begin()
    before = stage.write(producer)
    foreign.write()
    after = stage.write(producer)
    acks = producer.take_acks()
    assert producer.commit() is CommitOutcome.CLEAN

    found = {record.value: record.offset for record in stage.records()}
    assert [len(runs) for _, _, runs in acks.partitions] == [2]
    assert offsets_of(acks, stage.topic) == [found[value] for value in before + after]


@pytest.mark.fault("F13")
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

    with ForeignWriter(stage):
        producer = stage.producer(batch_num_messages="10")
        for _ in range(2 * REPEATS):
            if not attempt(producer):
                stage.spent(producer)
                producer = stage.producer(batch_num_messages="10")
    wait_for(stage.nothing_is_open)

    records = [record for record in stage.records() if record.value != FOREIGN]
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
    assert len(acked) >= REPEATS
    assert lost > 0, "no batch was repeated"
