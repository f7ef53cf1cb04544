"""The pump's order of steps, and what each failure leads to."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest

from eomirror.clock import Deadline
from eomirror.errors import (
    AuthorizationError,
    FencedError,
    OutcomeUnknownError,
    RecordRefusedError,
    SourceDamagedError,
    TransactionFailedError,
    UnreachableError,
)
from eomirror.lane.spec import AssignedPartition, Ending, Released, StoppedTopic
from eomirror.plane.protocol import CommitOutcome
from eomirror.recovery.corrupt_batches import MOST_DAMAGED, Damage
from eomirror.recovery.resume import SourceFacts
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import ORDERS, PAYMENTS, FakeMailbox, position, spec
from support.fakes.runner_rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.lane.start import AddedRead
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position


def test_the_claim_is_committed_before_any_data() -> None:
    """An attempt's first transaction holds its claim and nothing else."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]

    report = rig.run()

    assert report.ending is Ending.STOPPED
    assert next(list(item) for item in rig.positions(0))[:2] == ["lane", "v"]
    assert rig.plane.calls == ["open", "begin", "commit", "begin", "flush", "commit"]


def test_position_and_offset_map_share_the_transaction_of_the_data() -> None:
    """EO-1: the position behind the data, chained to the one before, and its ranges are in one transaction."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]

    rig.run()

    (moved,) = rig.positions(1)
    assert (moved["offset"], moved["prev"], moved["txn"], moved["records"]) == (15, 10, 1, 5)
    assert (moved["generation"], moved["run"], moved["producer_epoch"]) == (2, "new", 1)
    assert [record.topic for record in rig.plane.committed[1]] == [
        "eomirror.east.west.positions",
        "eomirror.east.west.offset-map",
    ]


def test_state_that_came_as_foreseen_is_written_once() -> None:
    """Positions and offset map travel with the data, and are not written a second time behind it."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.foreign = 0

    rig.run()

    assert [record.topic for record in rig.plane.committed[1]] == [
        "eomirror.east.west.positions",
        "eomirror.east.west.offset-map",
    ]
    assert rig.positions(1)[0]["target_offset"] == 14


def test_state_that_was_foreseen_wrongly_is_corrected_in_the_same_transaction() -> None:
    """EO-1: where another producer wrote to the target partition, the last record of each key says what is true."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.foreign = 3

    rig.run()

    assert [position["target_offset"] for position in rig.positions(1)] == [11, 14]
    assert [record.topic for record in rig.plane.committed[1]] == [
        "eomirror.east.west.positions",
        "eomirror.east.west.offset-map",
        "eomirror.east.west.positions",
    ]


def test_what_comes_while_a_transaction_is_acknowledged_goes_into_it() -> None:
    """Once; the last position of a partition speaks of all of it, and what has not changed is not said again."""
    rig = Rig(payments=40)
    rig.plane.fetches = [{ORDERS: 5, PAYMENTS: 1}]
    rig.plane.late = [{ORDERS: 2}, {ORDERS: 9}]
    rig.plane.foreign = 0

    rig.run()

    assert rig.plane.calls[:8] == ["open", "begin", "commit", "begin", "flush", "flush", "commit", "begin"]
    said = [(position["topic"], position["offset"], position["records"]) for position in rig.positions(1)]
    assert said == [("orders", 15, 5), ("payments", 41, 1), ("orders", 17, 7)]
    assert {position["prev"] for position in rig.positions(1)} == {10, 40}
    assert len({position["timestamp"] for position in rig.positions(1)}) == 1
    last = {record.key: record for record in rig.plane.committed[1] if record.topic.endswith("offset-map")}
    assert len(last) == 2
    # the second of what came late has a transaction of its own
    assert [position["offset"] for position in rig.positions(2)] == [26]


def test_a_lane_that_is_to_leave_takes_no_more() -> None:
    """Nor does one that is behind, or whose transaction is open for long: `CommitTrigger.takes_more`."""
    rig = Rig(spec(ORDERS, seconds=0.015))
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.late = [{ORDERS: 2}]

    rig.run()

    assert [position["offset"] for position in rig.positions(1)] == [15]
    assert rig.plane.calls.count("flush") == 1


def test_a_lane_that_is_stopped_merges_the_chunks_that_it_has_written() -> None:
    """In a last transaction of its own, which moves no position."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}] * 100

    assert rig.run().ending is Ending.STOPPED

    *before, last = rig.plane.committed
    chunks = [record.key for records in before for record in records if record.topic.endswith("offset-map")]
    assert len(chunks) >= 16
    merged, *deleted = last
    assert orjson.loads(merged.key)["merged"] == len(chunks)
    assert [(record.key, record.value) for record in deleted] == [(key, None) for key in chunks]


class Sweep:
    """Finds one chunk, once."""

    def __init__(self) -> None:
        self.begun = 0
        self.found = [(5, b"chunk")]

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        self.begun += bool(positions)

    def take(self) -> Sequence[tuple[int, bytes]]:
        found, self.found = self.found, []
        return found


def test_what_no_reader_needs_is_deleted_from_the_offset_map() -> None:
    """By the lane, in the partition of the map where it was found."""
    rig = Rig()
    rig.pump._transaction._sweep = sweep = Sweep()
    rig.plane.fetches = [{ORDERS: 5}]

    rig.run()

    assert sweep.begun
    deleted = [record for records in rig.plane.committed for record in records if record.value is None]
    assert [(one.topic, one.partition, one.key) for one in deleted] == [
        ("eomirror.east.west.offset-map", 5, b"chunk")
    ]


def test_ids_of_exactly_the_transactions_topics_are_compared() -> None:
    """EO-5: the describe request names the topics of this transaction and no other."""
    rig = Rig(payments=3)
    rig.plane.fetches = [{PAYMENTS: 1}]

    rig.run()

    assert rig.topics.asked == [(["payments"], ["east.payments"])]


def test_a_topic_recreated_under_way_is_not_committed() -> None:
    """EO-5: a changed topic id between fetch and commit aborts the transaction."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]
    rig.topics.ids["orders"] = "another"

    report = rig.run()

    assert report.ending is Ending.REBUILD
    assert "EO-5" in report.reason
    assert rig.plane.calls[-1] == "abort"
    assert len(rig.plane.committed) == 1


def test_a_newer_generation_makes_the_attempt_leave() -> None:
    """EO-2: after InitProducerId the lane reads control and leaves if it is not its generation."""
    rig = Rig()
    rig.state.generation = 3

    report = rig.run()

    assert report.ending is Ending.SUPERSEDED
    assert rig.plane.calls == ["open"]


def test_a_stop_in_the_start_of_a_lane_does_not_wait_for_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-10: a driver that stops has seconds; no transaction was begun, so there is nothing to finish."""
    rig = Rig()
    rig.mailbox.stops = True
    assert rig.run().ending is Ending.STOPPED
    assert rig.plane.calls == []

    rig = Rig()
    read = rig.state.read_control

    def read_control() -> ControlView:
        rig.mailbox.stops = True
        return read()

    monkeypatch.setattr(rig.state, "read_control", read_control)
    assert rig.run().ending is Ending.STOPPED
    assert rig.plane.calls == ["open"]


def test_a_move_in_the_start_of_a_lane_waits_for_its_claim() -> None:
    """The lane is parked behind it, and mirrors on."""
    rig = Rig()
    rig.mailbox.moves = True
    assert rig.run().ending is Ending.EPOCH
    assert rig.plane.calls == ["open", "begin", "commit"]


def test_a_stop_behind_a_suspect_commit_waits_for_the_way_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-9: markers of that commit may be missing, and the way up finds and resolves that."""
    rig = Rig()
    rig.plane.outcomes = [CommitOutcome.SUSPECT]
    commit = rig.plane.commit

    def then_stop() -> CommitOutcome:
        rig.mailbox.stops = True
        return commit()

    monkeypatch.setattr(rig.plane, "commit", then_stop)
    assert rig.run().ending is Ending.STOPPED
    assert rig.plane.calls == ["open", "begin", "commit", "open", "begin", "commit"]


def test_the_same_generation_of_another_run_makes_the_attempt_leave() -> None:
    """EO-10: the run counts too."""
    rig = Rig()
    rig.state.run = "another run"

    assert rig.run().ending is Ending.SUPERSEDED


def test_a_suspect_commit_takes_a_new_producer_and_goes_on() -> None:
    """EO-9: the next transaction has another producer epoch, after a full recovery."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.outcomes = [CommitOutcome.CLEAN, CommitOutcome.SUSPECT]

    report = rig.run()

    assert report.ending is Ending.STOPPED
    assert rig.plane.calls == [
        "open",
        "begin",
        "commit",
        "begin",
        "flush",
        "commit",
        "open",
        "begin",
        "commit",
    ]


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (OutcomeUnknownError("?"), Ending.REBUILD),
        (TransactionFailedError("!"), Ending.REBUILD),
        (FencedError("newer"), Ending.SUPERSEDED),
    ],
)
def test_a_commit_that_did_not_succeed_is_never_counted(error: Exception, ending: Ending) -> None:
    """EO-8: nothing is guessed; the next attempt reads what is true."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.outcomes = [CommitOutcome.CLEAN, error]

    report = rig.run()

    assert (report.ending, report.records, report.transactions) == (ending, 0, 0)


@pytest.mark.parametrize(("seconds", "overdue"), [(14.0, True), (5.0, False)])
def test_a_transaction_that_was_too_much_is_told(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, overdue: bool
) -> None:
    """F15: not acknowledged within most of the transaction timeout; the driver has the next attempt begin with less."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]

    def flush(_: float) -> None:
        rig.clock.now += seconds
        raise TransactionFailedError("records were not acknowledged")

    monkeypatch.setattr(rig.plane, "flush", flush)

    report = rig.run()

    assert (report.ending, report.overdue) == (Ending.REBUILD, overdue)


def test_a_refused_record_stops_its_topic_only() -> None:
    """A record that the target refuses aborts, and the next attempt goes on without its topic."""
    rig = Rig(payments=3)
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.seal_error = RecordRefusedError("too large", fix="raise it", topic="orders")

    report = rig.run()

    assert report.ending is Ending.REBUILD
    assert set(report.stopped_topics) == {"orders"}
    assert rig.plane.calls[-1] == "abort"


@pytest.mark.parametrize("times", [1, MOST_DAMAGED - 1])
def test_a_batch_that_cannot_be_read_stops_its_topic_in_the_end(times: int) -> None:
    """F16: counted over attempts at one position; until then the bytes may be whole when they are fetched again."""
    damage = Damage(source=ORDERS, position=10, times=times)
    rig = Rig(replace(spec(ORDERS, PAYMENTS), damaged=(damage,)), payments=3)
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.seal_error = SourceDamagedError("CRC", ORDERS)

    report = rig.run()

    assert report.ending is Ending.REBUILD
    assert report.damaged == (replace(damage, times=times + 1),)
    assert set(report.stopped_topics) == ({"orders"} if times + 1 == MOST_DAMAGED else set())


def test_damage_in_a_topic_that_is_stopped_ends_the_attempt_and_no_more() -> None:
    """Its last fetches may arrive after it was stopped, and then there is no position to count at."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.seal_error = SourceDamagedError("CRC", PAYMENTS)

    report = rig.run()

    assert (report.ending, report.damaged) == (Ending.REBUILD, ())


def test_a_right_that_concerns_no_one_topic_ends_the_attempt_as_such() -> None:
    """F30: the driver waits for the grant; a right on one topic stops that topic, and says that it is a right."""
    rig = Rig(payments=3)
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.seal_error = AuthorizationError("lacks Write on transactional-id", fix="grant it")

    report = rig.run()

    assert (report.ending, report.error) == (Ending.UNAUTHORIZED, rig.plane.seal_error)
    assert rig.plane.calls[-1] == "abort"

    rig = Rig(payments=3)
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.seal_error = AuthorizationError("lacks Write", fix="grant it", topic="orders")

    report = rig.run()

    assert report.ending is Ending.REBUILD
    assert report.stopped_topics == {"orders": StoppedTopic("lacks Write", "grant it", retried=True)}


def test_a_gap_stops_its_topic_and_the_others_go_on() -> None:
    """EO-6: the report names the exact range; the healthy topic is mirrored."""
    rig = Rig(payments=3)
    rig.topics.source[ORDERS] = SourceFacts("id-orders", 25, 100)
    rig.plane.fetches = [{PAYMENTS: 2}]

    report = rig.run()

    assert report.stopped_topics["orders"].exit_code == 4
    assert "[10, 25)" in report.stopped_topics["orders"].reason
    assert [start.source for start in rig.plane.started] == [PAYMENTS]
    assert report.records == 2


def test_an_accepted_gap_is_recorded_with_the_position_behind_it() -> None:
    """EO-6: gap and moved position are committed in one transaction."""
    rig = Rig(spec(ORDERS, on_gap="accept"))
    rig.topics.source[ORDERS] = SourceFacts("id-orders", 25, 100)

    rig.run()

    topics = [record.topic for record in rig.plane.committed[0]]
    assert topics.count("eomirror.east.west.control") == 1
    moved = [item for item in rig.positions(0) if "topic" in item]
    assert [(item["offset"], item["prev"]) for item in moved] == [(25, 10)]


def test_an_advance_without_records_is_committed_within_a_second() -> None:
    """EO-4: markers and aborted ranges move the position in a transaction of their own."""
    rig = Rig()
    rig.plane.silent_advance = {ORDERS: 12}
    began = rig.clock.now

    rig.run()

    (moved,) = rig.positions(1)
    assert (moved["offset"], moved["records"]) == (12, 0)
    assert rig.clock.now - began < 1.5


def test_added_partitions_are_taken_up_without_leaving() -> None:
    """EO-2: a revision is adopted between two transactions; the producer stays."""
    rig = Rig()
    rig.state.positions[PAYMENTS] = position(PAYMENTS, 0, generation=2)
    rig.mailbox.additions = [
        (AssignedPartition(PAYMENTS, "id-payments", "east.payments", "id-east.payments"),)
    ]

    report = rig.run()

    assert report.ending is Ending.STOPPED
    assert [start.source for start in rig.plane.started] == [ORDERS, PAYMENTS]
    assert rig.plane.calls.count("open") == 1


def added_slowly() -> tuple[Rig, list[AddedRead]]:
    """A lane to which payments are added while it has records, and what it reads for them: known once it has none."""
    read: list[AddedRead] = []

    def later(now: Callable[[], AddedRead]) -> Future[AddedRead]:
        found: Future[AddedRead] = Future()
        read.append(now())
        found.set_result(read[-1])
        found.done = lambda: not rig.plane.fetches  # type: ignore[method-assign]
        return found

    rig = Rig(later=later)
    rig.state.positions[PAYMENTS] = position(PAYMENTS, 0, generation=2)
    rig.plane.fetches = [{ORDERS: 1}]
    rig.mailbox.idle_looks = 3
    rig.mailbox.additions = [
        (AssignedPartition(PAYMENTS, "id-payments", "east.payments", "id-east.payments", 2),)
    ]
    return rig, read


def test_a_lane_goes_on_while_it_reads_for_added_partitions() -> None:
    """No partition that stays waits for a read of the positions topic."""
    rig, read = added_slowly()
    begun: list[int] = []
    start = rig.plane.start
    rig.plane.start = lambda starts: (begun.append(len(rig.plane.committed)), start(starts))[1]  # type: ignore[method-assign]

    assert rig.run().ending is Ending.STOPPED
    assert [one.source for one in rig.plane.started] == [ORDERS, PAYMENTS]
    assert begun == [0, 2], "behind the claim, and a transaction"
    assert len(read) == 1


def test_what_is_given_away_while_it_is_read_for_is_not_started() -> None:
    """EO-2: another lane has it."""
    rig, read = added_slowly()
    rig.mailbox.releases = [None, Released(frozenset({PAYMENTS}), 3)]
    rig.state.generation, rig.state.since = 3, (2,)

    assert rig.run().ending is Ending.STOPPED
    assert [one.source for one in rig.plane.started] == [ORDERS]
    assert len(read) == 1


def test_positions_of_a_lane_that_got_partitions_are_the_newest() -> None:
    """EO-3: another lane wrote the last position of what was moved, in an older generation."""
    rig = Rig()
    rig.state.positions[PAYMENTS] = position(PAYMENTS, 0, generation=2)
    rig.state.generation = 3
    rig.state.since = (2,)
    rig.plane.fetches = [{PAYMENTS: 2}]
    rig.mailbox.additions = [
        (AssignedPartition(PAYMENTS, "id-payments", "east.payments", "id-east.payments", 3),)
    ]

    report = rig.run()

    assert report.ending is Ending.STOPPED
    said = [each["generation"] for each in rig.positions(-1)]
    assert said
    assert set(said) == {3}


class Gives:
    """A lane that is told to give payments away: generation 3 is published by then, and is the lane's own."""

    def __init__(self, *outcomes: CommitOutcome | Exception) -> None:
        self.rig = rig = Rig(payments=40)
        rig.state.generation, rig.state.since = 3, (2,)
        rig.plane.fetches = [{ORDERS: 5}]
        rig.plane.outcomes = [CommitOutcome.CLEAN, *outcomes]
        rig.mailbox.releases = [Released(frozenset({PAYMENTS}), 3)]
        give = rig.mailbox.released
        rig.mailbox.released = lambda: (setattr(rig.state, "since", (3,)), give())[1]  # type: ignore[method-assign]
        self.report = rig.run()

    @property
    def claimed(self) -> list[int]:
        return [progress.released for progress in self.rig.mailbox.reports]


def test_given_partitions_are_dropped_and_then_the_move_is_claimed() -> None:
    """EO-2: the others go on with the same producer, in the generation of the move."""
    gives = Gives()
    rig = gives.rig

    assert gives.report.ending is Ending.STOPPED
    assert rig.plane.calls == [
        "open",
        "begin",
        "commit",
        "stop",
        "begin",
        "commit",
        "begin",
        "flush",
        "commit",
    ]
    assert [next(iter(one)) for one in rig.positions(1)] == ["lane"]
    assert [one["generation"] for number in range(3) for one in rig.positions(number)] == [2, 3, 3]
    assert set(rig.plane.next) == {ORDERS}
    assert [item.source for item in rig.pump.mirrored] == [ORDERS]
    assert gives.claimed[0] == 2
    assert gives.claimed[-1] == 3
    assert sorted(gives.claimed) == gives.claimed


def test_a_lane_whose_claim_of_a_move_is_suspect_starts_over_without_the_partitions() -> None:
    """EO-9: it is committed, so it proves the move; control holds the lane's generation."""
    gives = Gives(CommitOutcome.SUSPECT)

    assert gives.report.ending is Ending.STOPPED
    assert gives.rig.plane.calls.count("open") == 2
    assert [start.source for start in gives.rig.plane.started] == [ORDERS, PAYMENTS, ORDERS]
    assert gives.claimed[-1] == 3


def test_a_lane_that_lost_its_id_proves_nothing() -> None:
    """EO-2: another attempt has it, and may mirror what this one dropped."""
    gives = Gives(FencedError("a newer producer has the id"))

    assert gives.report.ending is Ending.SUPERSEDED
    assert max(gives.claimed) == 2


@pytest.mark.parametrize(("since", "ending"), [((2,), Ending.STOPPED), ((3,), Ending.SUPERSEDED)])
def test_a_lane_leaves_only_if_its_own_partitions_were_moved(since: tuple[int, ...], ending: Ending) -> None:
    """EO-2: a move between other lanes is a newer generation that does not concern it, with positions of its own."""
    rig = Rig()
    rig.state.generation, rig.state.since = 3, since
    rig.state.positions[SourcePartition("elsewhere", 0)] = position(
        SourcePartition("elsewhere", 0), 5, generation=3
    )

    assert rig.run().ending is ending


def test_a_partition_without_a_position_is_refused() -> None:
    """A position that control promises and the topic does not hold is never replaced by 0."""
    rig = Rig(spec(ORDERS, PAYMENTS))

    report = rig.run()

    assert report.ending is Ending.FAILED
    assert "--resume-at payments-0=OFFSET" in str(report.error)


def test_the_epoch_ends_between_two_transactions() -> None:
    """When its time is over the lane commits what is open, and hands back."""
    rig = Rig(spec(ORDERS, seconds=0.05))
    rig.plane.fetches = [{ORDERS: 1}] * 50
    rig.mailbox.idle_looks = 10_000

    report = rig.run()

    assert report.ending is Ending.EPOCH
    assert rig.plane.calls[-1] == "commit"
    assert 0 < report.records < 50


def test_an_order_to_move_ends_the_epoch_and_not_what_goes_on_behind_it() -> None:
    """The next epoch begins on another worker; meanwhile the lane mirrors on as after any epoch, although told once."""
    rig = Rig(spec(ORDERS, seconds=60.0))
    rig.plane.fetches = [{ORDERS: 5}]
    rig.mailbox.moves = True
    first = rig.run()
    assert (first.ending, first.stopped_topics) == (Ending.EPOCH, {})

    rig.plane.fetches = [{ORDERS: 5}, {ORDERS: 3}]
    rig.pump.extend(Deadline(0.2, rig.clock))
    on = rig.pump.run()

    assert (on.ending, on.epoch, on.records) == (Ending.EPOCH, 1, 8)


def test_the_next_epoch_goes_on_with_the_same_producer() -> None:
    """EO-2: a successor commits its claim with the producer it finds, and reads nothing that cannot have changed."""
    rig = Rig(spec(ORDERS, seconds=0.2))
    rig.plane.fetches = [{ORDERS: 5}]
    rig.mailbox.idle_looks = 10
    began = rig.clock.wall_ms()
    assert rig.run().ending is Ending.EPOCH
    calls = len(rig.plane.calls)

    rig.plane.fetches = [{ORDERS: 2}]
    after = replace(spec(ORDERS, PAYMENTS), epoch=2)
    rig.state.positions[PAYMENTS] = position(PAYMENTS, 7)
    rig.pump.resume(after, FakeMailbox(rig.plane))
    report = rig.pump.run()

    assert (report.ending, report.epoch, report.transactions) == (Ending.STOPPED, 2, 1)
    assert rig.plane.calls[calls:] == ["begin", "commit", "begin", "flush", "commit"]
    assert [moved["offset"] for moved in rig.positions(-1)] == [17]
    assert [start.source for start in rig.plane.started] == [ORDERS, PAYMENTS]
    # the lane has run since then: what came meanwhile has a latency
    assert rig.pump._epoch.stats.since_ms == began < rig.clock.wall_ms()


def test_a_lane_goes_on_behind_its_epoch() -> None:
    """EO-1: as the attempt that it was, without another claim, and it goes on counting; the successor begins at 0."""
    rig = Rig(spec(ORDERS, seconds=0.2))
    rig.plane.fetches = [{ORDERS: 5}]
    rig.mailbox.idle_looks = 10
    first = rig.run()
    assert (first.ending, first.records) == (Ending.EPOCH, 5)
    calls = len(rig.plane.calls)

    rig.plane.fetches = [{ORDERS: 3}]
    rig.mailbox.idle_looks = 10
    rig.pump.extend(Deadline(0.2, rig.clock))
    on = rig.pump.run()
    assert (on.ending, on.epoch, on.records, on.transactions) == (Ending.EPOCH, 1, 8, 2)
    assert rig.plane.calls[calls:] == ["begin", "flush", "commit"]
    (moved,) = rig.positions(-1)
    assert (moved["offset"], moved["epoch"], moved["attempt"]) == (18, 1, 1)

    rig.plane.fetches = [{ORDERS: 2}]
    rig.pump.resume(replace(spec(ORDERS), epoch=2), FakeMailbox(rig.plane))
    report = rig.pump.run()

    assert (report.epoch, report.records, report.transactions) == (2, 2, 1)
    assert [moved["offset"] for moved in rig.positions(-1)] == [20]


def test_a_lane_that_goes_on_never_takes_its_id_again() -> None:
    """EO-2, EO-9: a successor may have it by now: what a suspect commit asks for is left to that."""
    rig = Rig(spec(ORDERS, seconds=0.2))
    rig.mailbox.idle_looks = 10
    assert rig.run().ending is Ending.EPOCH
    rig.plane.fetches = [{ORDERS: 3}]
    rig.plane.outcomes = [CommitOutcome.SUSPECT]
    calls = len(rig.plane.calls)

    rig.pump.extend(Deadline(60.0, rig.clock))

    assert rig.pump.run().ending is Ending.REBUILD
    assert rig.plane.calls[calls:] == ["begin", "flush", "commit"]


def test_a_successor_that_was_fenced_in_between_ends_before_any_data() -> None:
    """EO-2: another attempt took the lane's id between two epochs; the claim does not commit."""
    rig = Rig(spec(ORDERS, seconds=0.2))
    rig.mailbox.idle_looks = 10
    assert rig.run().ending is Ending.EPOCH
    rig.plane.fetches = [{ORDERS: 2}]
    rig.plane.outcomes = [FencedError("epoch 2")]

    rig.pump.resume(replace(spec(ORDERS), epoch=2), FakeMailbox(rig.plane))
    report = rig.pump.run()

    assert report.ending is Ending.SUPERSEDED
    assert len(rig.plane.committed) == 1


def test_a_cluster_that_does_not_answer_is_no_reason_to_give_up() -> None:
    """The attempt ends and is rebuilt, again and again, until the cluster is back; no operator has to act."""
    rig = Rig()
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.seal_error = UnreachableError("no way to cluster east")

    report = rig.run()

    assert (report.ending, report.error) == (Ending.REBUILD, None)
    assert "no way to cluster east" in report.reason


def test_a_gap_that_is_accepted_under_way_is_recorded_before_any_data() -> None:
    """EO-6: a partition that a revision adds behind a gap gets its record of the gap and its position together."""
    rig = Rig(spec(ORDERS, on_gap="accept"))
    added = AssignedPartition(PAYMENTS, "id-payments", "east.payments", "id-east.payments")
    rig.state.positions[PAYMENTS] = position(PAYMENTS, 3)
    rig.topics.source[PAYMENTS] = SourceFacts("id-payments", log_start=8, high_watermark=20)
    rig.mailbox.additions = [(added,)]
    rig.plane.fetches = []

    rig.run()

    kept = [[record.topic for record in written] for written in rig.plane.committed]
    assert kept[1] == [
        "eomirror.east.west.positions",
        "eomirror.east.west.control",
        "eomirror.east.west.positions",
    ]
    assert rig.positions(1)[1]["offset"] == 8


def test_an_end_that_shows_itself_late_is_reported_without_a_commit() -> None:
    """Fetches show where the source ends after the claim; an idle partition never commits again."""
    rig = Rig(payments=7)
    real = rig.plane.log_ends
    rig.plane.log_ends = lambda: real() if rig.clock.now > 101 else {}  # type: ignore[method-assign]
    rig.mailbox.idle_looks = 20

    rig.run()

    said = [item for report in rig.mailbox.reports for item in report.partitions]
    assert [(item.topic, item.lso) for item in said] == [
        ("orders", None), ("payments", None), ("orders", 10), ("payments", 7),
    ]  # fmt: skip


@pytest.mark.parametrize("first", [True, False])
def test_an_accepted_gap_of_a_topic_that_is_stopped_is_not_skipped(*, first: bool) -> None:
    """EO-6: one partition begins behind an accepted gap, another stops the topic: the claim records no gap."""
    more = SourcePartition(ORDERS.topic, 1)
    rig = Rig(spec(ORDERS, more, PAYMENTS, on_gap="accept"), payments=3)
    rig.state.positions[more] = position(more, 5)
    gap, recreated = (ORDERS, more) if first else (more, ORDERS)
    rig.topics.source[gap] = SourceFacts("id-orders", log_start=20, high_watermark=30)
    rig.topics.source[recreated] = SourceFacts("recreated", log_start=0, high_watermark=30)

    report = rig.run()

    assert set(report.stopped_topics) == {"orders"}
    assert [record.topic for record in rig.plane.committed[0]] == ["eomirror.east.west.positions"]


def test_a_lane_rests_once_it_is_calm_and_then_once_a_minute() -> None:
    """What it opened at its start is closed soon; a lane to which records come keeps it."""
    rig = Rig(spec(ORDERS, seconds=150.0))
    rig.mailbox.idle_looks = 100_000
    began = rig.clock.monotonic()
    assert rig.run().ending is Ending.EPOCH
    assert [round(at - began) for at in rig.rests] == [10, 70, 130]
