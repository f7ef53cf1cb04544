"""A link's picture from control, positions and topics: what counts as lag, and what is a problem instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.errors import StateError, UnreachableError
from eomirror.failover.report import LinkHistory
from eomirror.kafka.cluster_metadata import TopicFacts
from eomirror.plane.protocol import Serving
from eomirror.records.control import ControlView, Generation, Pause, Stopped
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.mm2 import Checkpoint
from eomirror.records.position import AttemptClaim, Position
from eomirror.records.promotion import Cut, Fence, Promotion, PromotionHistory, Restoration, Reversal
from eomirror.records.recreation import Recreation
from eomirror.recovery.resume import SourceFacts, TargetFacts
from eomirror.status.derive import Observed, groups_status, link_status, planes_line, unread_status
from eomirror.status.liveness import Liveness
from eomirror.status.model import LaneStatus, slots_line
from eomirror.status.reader import StatusReader
from eomirror.types import Assignment, SourcePartition
from support.fakes.claims import claim

if TYPE_CHECKING:
    from eomirror.status.model import LinkStatus

ORDERS = SourcePartition("orders", 0)
PAY = SourcePartition("pay", 0)


def position(source: SourcePartition, offset: int) -> Position:
    """Mirrored up to ``offset``."""
    return Position(
        topic=source.topic, partition=source.partition, offset=offset, source_cluster_id="S",
        topic_id=f"id-{source.topic}", target_topic=f"a.{source.topic}", target_partition=source.partition,
        target_topic_id=f"id-a.{source.topic}", target_offset=7, generation=1, lane=0, run="r", epoch=1, attempt=1,
        producer_id=1, producer_epoch=0, txn=1, timestamp=1_000, total_records=8,
        total_copied_headers=3,
    )  # fmt: skip


def seen(source: SourcePartition, lso: int | None, **changes: Any) -> Observed:
    """Healthy topics whose source ends at ``lso``, unless a change says otherwise."""
    facts: dict[str, Any] = {"topic_id": f"id-{source.topic}", "log_start": 0, "high_watermark": lso or 0}
    facts.update(changes)
    return Observed(SourceFacts(**facts), lso, TargetFacts(f"id-a.{source.topic}", 8))


CLAIM = claim(timestamp=4_000)


def picture(
    *observed: tuple[SourcePartition, Observed],
    assigned: Any = (ORDERS, PAY),
    history: Any = (),
    now_ms: int = 5_000,
    offset_ms: int = 0,
    left_out: Any = None,
    stopped: Any = (),
    state: str = "running",
    pause: Pause | None = None,
    past: PromotionHistory | None = None,
    recreation: Recreation | None = None,
    problem: str = "",
    ends: Any = (),
    seen_ms: int | None = None,
    seen_rate: float | None = None,
) -> LinkStatus:
    """The status of a link that stands at offset 10 of two partitions."""
    layout = Assignment(1, dict.fromkeys(assigned, 0))
    generation = Generation(generation=1, revision=0, run="r", highest_lane=0, assignment=layout, timestamp=0)
    return link_status(
        "a->b",
        ControlView(
            generation,
            CLAIM,
            stopped=stopped,
            pause=pause,
            history=past or PromotionHistory(),
            recreation=recreation,
            ends=dict(ends),
            seen=seen_ms,
            seen_rate=seen_rate,
        ),
        {ORDERS: position(ORDERS, 10), PAY: position(PAY, 10)},
        history=history,
        attempts=(),
        observed=dict(observed),
        oldest={ORDERS: 4_000},
        now_ms=now_ms,
        liveness=Liveness(state, offset_ms),
        left_out=left_out,
        problem=problem,
    )


@pytest.mark.parametrize(
    ("ends", "seen_ms", "problem", "expected"),
    [
        ({ORDERS: 25, PAY: 10}, 2_000, "away", (15, 3.0)),
        ({ORDERS: 25, PAY: 4}, 2_000, "away", (15, 3.0)),
        ({ORDERS: 25}, 2_000, "away", (None, 3.0)),
        ({ORDERS: 25, PAY: 10}, None, "away", (None, None)),
        ({ORDERS: 25, PAY: 10}, 2_000, "", (None, None)),
        # the clock of the mirror that wrote it was ahead of ours: its age is not known
        ({ORDERS: 25, PAY: 10}, 90_000, "away", (None, None)),
    ],
)
def test_without_the_source_the_lanes_last_ends_bound_the_loss(
    ends: Any, seen_ms: int | None, problem: str, expected: Any
) -> None:
    """They are known as of a time; an end that no lane has seen leaves the loss unknown."""
    found = picture(ends=ends, seen_ms=seen_ms, problem=problem)
    assert (found.known_lost, found.source_seen_seconds) == expected


def test_without_the_source_a_topic_that_is_left_out_is_part_of_the_loss() -> None:
    """Whether it has a position or not; one that left the filter is not."""
    new = SourcePartition("new", 0)
    ends = {ORDERS: 25, PAY: 14, new: 300}
    away: dict[str, Any] = {"ends": ends, "seen_ms": 2_000, "problem": "away", "assigned": [ORDERS]}
    assert picture(**away).known_lost == 15
    assert picture(**away, stopped=[stop("pay"), stop("new")]).known_lost == 15 + 4 + 300


def test_the_last_rate_is_that_before_the_source_was_last_read() -> None:
    """As the owner recorded it: positions are compacted, so the longer an outage, the lower their rate would be."""
    ends = {ORDERS: 25, PAY: 10}
    away: dict[str, Any] = {"ends": ends, "seen_ms": 3_000, "problem": "away", "now_ms": 90_000}
    assert picture(**away, seen_rate=385.5).last_rate == 385.5
    assert picture(**away).last_rate is None
    assert picture(ends=ends, seen_ms=3_000, seen_rate=385.5).last_rate is None


def test_what_topics_showed_last_is_kept_without_what_changes_by_itself() -> None:
    """Owner, commits and comparisons stay; lags, rates and the age of the claim are unknown."""
    last = picture((ORDERS, seen(ORDERS, 13)), (PAY, seen(PAY, 10)))
    kept = unread_status("a->b", last, UnreachableError("no way to b", fix="check it"))
    assert (kept.state, kept.problem, kept.fix) == ("unknown", "no way to b", "check it")
    assert kept.away == ("target",)
    assert unread_status("a->b", last, StateError("not readable")).away == ()
    assert (kept.lag_records, kept.lag_seconds, kept.rate) == (None, None, 0.0)
    assert {(item.lag_records, item.lag_seconds, item.source_lso) for item in kept.partitions} == {
        (None, None, None)
    }
    assert [item.position for item in kept.partitions] == [item.position for item in last.partitions]
    assert kept.owner is not None
    assert kept.owner.run == CLAIM.run
    assert kept.owner.claim_age_seconds is None
    assert unread_status("a->b", None, UnreachableError("no way to b")).partitions == ()


def test_lag_is_the_distance_to_the_last_stable_offset() -> None:
    """In records over all partitions, in seconds the oldest record that is not mirrored."""
    found = picture((ORDERS, seen(ORDERS, 13)), (PAY, seen(PAY, 10)))
    assert (found.lag_records, found.lag_seconds) == (3, 1.0)
    assert [item.problem for item in found.partitions] == ["", ""]


def test_a_deleted_source_topic_is_a_problem_of_its_own() -> None:
    """It has no lag, and the other topic keeps its own."""
    found = picture((ORDERS, seen(ORDERS, None, topic_id=None)), (PAY, seen(PAY, 12)))
    orders, pay = found.partitions
    assert (orders.lag_records, orders.lag_seconds, pay.lag_records) == (None, None, 2)
    assert "the source topic is gone" in orders.problem
    assert orders.fix
    assert found.lag_records is None


def test_records_with_a_copied_header_are_told() -> None:
    """EO-7: of each partition, since the link first ran, also in JSON."""
    body = picture((ORDERS, seen(ORDERS, 10))).as_dict()
    assert [one["copied_headers"] for topic in body["topics"] for one in topic["partitions"]] == [3, 3]


def test_a_recreated_source_topic_has_no_lag() -> None:
    """Not even when the new topic is longer or shorter than the old one: its offsets mean something else."""
    for end in (0, 10, 500):
        orders = picture((ORDERS, seen(ORDERS, end, topic_id="another"))).partitions[0]
        assert (orders.lag_records, orders.lag_seconds) == (None, None)
        assert "deleted and created again" in orders.problem


def test_a_topic_that_was_recreated_on_purpose_is_no_problem_of_a_promoted_link() -> None:
    """The fix of the problem would mirror into what applications write to; another topic of that name is one."""
    promotion = Promotion(
        number=2, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=(), started=1, timestamp=1,
    )  # fmt: skip
    recreation = Recreation(
        number=2, link="back", topics={"orders": "id-orders"}, ends={}, records=1, place="", done=True, run="r",
        timestamp=1,
    )  # fmt: skip
    observed = [(source, seen(source, 500, topic_id="another")) for source in (ORDERS, PAY)]

    found = picture(*observed, past=PromotionHistory({2: promotion}), recreation=recreation).partitions

    assert [bool(item.problem) for item in found] == [False, True]


def test_a_truncated_source_has_no_lag() -> None:
    """A position beyond the end is not 0 records behind it."""
    orders = picture((ORDERS, seen(ORDERS, 4))).partitions[0]
    assert orders.lag_records is None
    assert "truncated" in orders.problem


def test_an_open_transaction_behind_the_stable_end_is_no_truncation() -> None:
    """Only a position beyond the high watermark is."""
    orders = picture((ORDERS, seen(ORDERS, 10, high_watermark=90))).partitions[0]
    assert (orders.lag_records, orders.problem) == (0, "")


def test_a_lane_that_gave_all_its_partitions_has_no_slot() -> None:
    """
    Control tells it, also without the driver.

    One that has no partition from the start is only idle; and nothing is lent by a mirror that does not run.
    """
    for since, state, lent in (
        ((2, 1, 2), "running", [False, False, True]),
        ((2, 1, 2), "stopped", [False] * 3),
        ((2, 1, 2), "silent", [False] * 3),
        ((), "running", [False] * 3),
    ):
        layout = Assignment(3, {ORDERS: 0, PAY: 1})
        found = link_status(
            "a->b",
            ControlView(
                Generation(
                    generation=2,
                    revision=0,
                    run="r",
                    highest_lane=2,
                    assignment=layout,
                    timestamp=0,
                    since=since,
                ),
                CLAIM,
            ),
            {},
            history=(),
            attempts=[
                AttemptClaim(
                    lane=lane,
                    generation=1 if since else 2,
                    run="r",
                    epoch=1,
                    attempt=1,
                    producer_id=1,
                    producer_epoch=0,
                    host="h",
                    pid=1,
                    timestamp=1,
                )
                for lane in range(3)
            ],
            observed={},
            oldest={},
            now_ms=5_000,
            liveness=Liveness(state, 0),
        )
        assert [lane.lent for lane in found.lanes.values()] == lent
        line = "lane 2 waits for a slot: Spark gives 2 of 3; its partitions are lent to the lanes that run"
        assert slots_line(found.lanes.values()) == (line if any(lent) else "")


def test_parked_partitions_do_not_count() -> None:
    """A topic that left the filter has a position, but no lane will ever move it."""
    found = picture((ORDERS, seen(ORDERS, 13)), (PAY, seen(PAY, 99)), assigned=[ORDERS])
    assert (found.lag_records, found.lag_seconds) == (3, 1.0)
    assert [item.parked for item in found.partitions] == [False, True]
    assert found.partitions[1].lag_records is None


def test_a_partition_that_a_start_left_out_is_a_problem_and_not_parked_in_peace() -> None:
    """It falls behind while its topic waits for a right or a leader; a link without lag would be a lie."""
    known = UnreachableError("pay-0 has no leader on cluster a", fix="bring back a broker")
    for reason, words in ((known, "has no leader"), (None, "match it, but it is not mirrored now")):
        found = picture((ORDERS, seen(ORDERS, 13)), assigned=[ORDERS], left_out={PAY: reason})
        orders, pay = found.partitions
        assert (found.lag_records, found.lag_seconds, orders.lag_records) == (None, None, 3)
        assert pay.parked
        assert words in pay.problem
        assert pay.fix


def stop(topic: str) -> Stopped:
    """What an owner has recorded."""
    return Stopped(
        topic=topic,
        reason=f"{topic}-0: refused",
        fix="mend it",
        exit_code=1,
        lane=0,
        run="r",
        timestamp=4_500,
    )


def test_a_topic_that_its_owner_stopped_is_a_problem_that_topics_do_not_tell() -> None:
    """With reason, fix and lag; other topics are well, and a topic that was mirrored never is listed with the link."""
    found = picture(
        (ORDERS, seen(ORDERS, 13)), (PAY, seen(PAY, 10)), stopped=(stop("orders"), stop("never-begun"))
    )
    orders, pay = found.partitions
    assert (orders.stopped, orders.problem, orders.fix) == (True, "orders-0: refused", "mend it")
    assert (orders.lag_records, pay.stopped, pay.problem) == (3, False, "")
    assert [each.topic for each in found.stopped] == ["never-begun", "orders"]
    assert found.as_dict()["stopped"][1]["at"] == 4_500


def test_what_a_start_left_out_has_the_owners_reason() -> None:
    """Where nothing shows from outside why; a reason that shows now comes first."""
    silent = UnreachableError("pay-0 has no leader on cluster a", fix="bring back a broker")
    for reason, words in ((None, "pay-0: refused"), (silent, "has no leader")):
        found = picture(
            (ORDERS, seen(ORDERS, 13)), assigned=[ORDERS], left_out={PAY: reason}, stopped=(stop("pay"),)
        )
        assert words in found.partitions[1].problem
        assert [each.topic for each in found.stopped] == ["pay"]


def test_what_topics_tell_now_counts_for_more_than_why_one_was_stopped() -> None:
    """And a topic that left the filter is no problem, whatever stopped it."""
    gone = seen(ORDERS, None, topic_id=None)
    found = picture((ORDERS, gone), assigned=[ORDERS], stopped=(stop("orders"), stop("pay")))
    orders, pay = found.partitions
    assert "the source topic is gone" in orders.problem
    assert orders.stopped
    assert (pay.parked, pay.stopped, pay.problem) == (True, False, "")
    assert [each.topic for each in found.stopped] == ["orders"]


def test_a_source_that_does_not_answer_leaves_lag_unknown() -> None:
    """No facts, no lag, no invented problem of a topic."""
    found = picture()
    assert found.lag_records is None
    assert [item.problem for item in found.partitions] == ["", ""]


def test_records_of_a_transaction_count_once_however_often_it_speaks_of_them() -> None:
    """EO-7: a position of a later round stands for those before it; other transactions count beside it."""
    rounds = [replace(position(ORDERS, 10), records=5), replace(position(ORDERS, 12), records=7)]
    others = [
        replace(position(ORDERS, 20), records=8, txn=2),
        replace(position(ORDERS, 30), records=10, txn=2, producer_epoch=1),
        replace(position(PAY, 10), records=25),
    ]
    assert picture(history=[*rounds, *others]).rate == 5.0


@pytest.mark.parametrize(("state", "rate"), [("running", 5.0), ("silent", 5.0), ("stopped", 0.0)])
def test_a_link_that_has_just_stopped_has_no_rate(state: str, rate: float) -> None:
    """What it wrote in its last ten seconds says nothing about now."""
    found = picture(history=[replace(position(ORDERS, 10), records=50)], state=state)
    assert (found.rate, found.partitions[0].rate) == (rate, rate)


@pytest.mark.parametrize("ahead_ms", [-86_400_000, 86_400_000])
def test_clocks_that_disagree_leave_only_lag_in_seconds_unknown(ahead_ms: int) -> None:
    """F34: rate and age of the claim follow the owner's clock; the record's age may be wrong."""
    history = [replace(position(ORDERS, 10), records=50)]  # of 1,000 ms on the owner's clock
    found = picture(
        (ORDERS, seen(ORDERS, 13)),
        (PAY, seen(PAY, 10)),
        history=history,
        now_ms=5_000 - ahead_ms,
        offset_ms=ahead_ms,
    )
    assert (found.state, found.clock_offset_seconds) == ("running", ahead_ms / 1000)
    assert (found.lag_records, found.lag_seconds, found.rate) == (3, None, 5.0)
    assert found.owner is not None
    assert found.owner.claim_age_seconds == 1.0
    assert found.partitions[1].lag_seconds == 0.0, "at its end, whatever the clocks say"


def test_a_record_from_the_future_has_no_age() -> None:
    """Its application's clock is wrong, or ours; a lag of 0 s would be an invention."""
    found = picture((ORDERS, seen(ORDERS, 13)), (PAY, seen(PAY, 10)), now_ms=-86_400_000)
    assert (found.lag_records, found.lag_seconds) == (3, None)


def test_groups_are_told_from_checkpoints() -> None:
    """The newest of each group and partition, in topics of the link alone; what is none is counted, not believed."""
    one, two = Checkpoint("g", "east.orders", 0, 5, 50), Checkpoint("h", "east.orders", 0, 6, 60)
    other = Checkpoint("x", "east.else", 0, 1, 1)

    found = groups_status(
        [(one, 10), (two, 20), (one, 30), (other, 40), ("x-0@4 is null", 50)], {"east.orders"}
    )

    assert (found.followed, found.offsets, found.last_checkpoint, found.unreadable) == (2, 2, 30, 1)
    assert found.first_unreadable == "x-0@4 is null"
    assert groups_status([], {"east.orders"}).last_checkpoint is None


def test_lanes_on_the_same_plane_are_told_together() -> None:
    """Which plane serves, and why it is not the native one; an older release has not said."""
    old = "the target has transaction.version 0"

    def lane(number: int, *serving: str, protocol: str = "") -> LaneStatus:
        return LaneStatus(lane=number, serving=Serving(*serving, protocol=protocol))  # type: ignore[arg-type]

    assert planes_line([lane(0, "native"), lane(1, "native")]) == "lanes 0, 1 on the native plane"
    assert planes_line([lane(0, "native"), lane(1, "client", old)]) == (
        f"lane 0 on the native plane; lane 1 on the client plane: {old}"
    )
    assert planes_line([lane(0)]) == ""
    assert planes_line([lane(0, "native", protocol="V2"), lane(1, "native", protocol="V1")]) == (
        "lane 0 on the native plane; lane 1 on the native plane: transaction protocol V1"
    )


@pytest.mark.parametrize(
    ("topics", "state", "paused"), [("", "paused", [True, True]), ("orders", "running", [True, False])]
)
def test_a_pause_is_shown(topics: str, state: str, paused: list[bool]) -> None:
    """The link is paused if all of it is; a part of it is shown at its topics."""
    pause = Pause(topics=topics, host="h", timestamp=5)
    found = picture((ORDERS, seen(ORDERS, 13)), (PAY, seen(PAY, 99)), pause=pause)

    assert found.state == state
    assert [item.paused for item in found.partitions] == paused
    assert found.paused == pause
    assert picture((ORDERS, seen(ORDERS, 13)), pause=pause, state="silent").state == "silent"


def test_a_fence_that_stands_is_shown() -> None:
    """Also of a promoted link; one that was lifted is history."""
    fence = Fence(number=1, method="acl", topics=("orders",), lifted=False, host="h", timestamp=5)
    standing = {"method": "acl", "topics": ["orders"], "host": "h", "at": 5}
    for one, shown in (
        (fence, standing),
        (replace(fence, lifting=True), standing),
        (replace(fence, lifted=True), None),
    ):
        history = PromotionHistory(fences={1: one})
        assert picture((ORDERS, seen(ORDERS, 13)), past=history).fence == (shown and one)
        assert LinkHistory("a->b", history).as_dict()["fence"] == shown


@pytest.mark.parametrize(
    ("end", "source_end", "dealt", "reversed_at", "expected"),
    [
        (10, 10, (), None, (0, [], {})),  # a switch without loss leaves nothing
        (30, 10, (), None, (20, [(10, 30)], {})),
        (None, 30, (), None, (20, [(10, 30)], {})),  # the source is away: as of the recorded end
        (30, 30, (DealtRange(10, 18, "keep", records=7),), None, (12, [(18, 30)], {"keep": 7})),
        (30, 30, (DealtRange(12, 14, "merge", records=2), DealtRange(20, 30, "export", records=9)), None,
         (8, [(10, 12), (14, 20)], {"merge": 2, "export": 9})),
        (900, 30, (), 25, (15, [(10, 25)], {})),  # the link back writes behind
        (None, None, (), None, None),
    ],
)  # fmt: skip
def test_a_promoted_link_tells_what_the_cut_left_on_the_source(
    end: int | None, source_end: int | None, dealt: Any, reversed_at: int | None, expected: Any
) -> None:
    """In offsets, without what a restoration has dealt with; none without a promotion."""
    cut = Cut(
        topic="orders", partition=0, topic_id="id-orders", position=10, target_topic="a.orders", timestamp=1,
        target_topic_id="id-a.orders", target_end=8, source_end=source_end,
    )  # fmt: skip
    promotion = Promotion(
        number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=(cut, replace(cut, topic="gone", gone=True, source_end=None)), started=1, timestamp=1,
    )  # fmt: skip
    restoration = Restoration(
        number=1, orphans="keep", records=0, place="", run="r", timestamp=2, ranges={ORDERS: dealt}
    )
    reversal = Reversal(number=1, link="back", ends={ORDERS: reversed_at or 0}, run="r", timestamp=3)
    past = PromotionHistory(
        {1: promotion},
        restorations={1: restoration} if dealt else {},
        reversals={1: reversal} if reversed_at else {},
    )
    observed = [] if end is None else [(ORDERS, seen(ORDERS, end))]

    found = picture(*observed, past=past).orphans

    if expected is None:
        assert found is None
    else:
        assert found is not None
        ranges = [(each.start, each.end) for each in found.ranges]
        assert (found.offsets, ranges, found.decided) == expected
    # a topic that was made again since has none of them
    if end is not None:
        again = picture((ORDERS, seen(ORDERS, end, topic_id="new")), past=past).orphans
        assert again is not None
        assert again.offsets == 0
    assert picture(*observed).orphans is None


def test_records_that_arrive_while_the_ends_are_read_are_behind_no_open_transaction() -> None:
    """The high watermark is read before the last stable offset: a topic without transactions shows no held records."""

    class Admin:
        name = "east"
        end = 100

        def describe_topics(self, topics: list[str]) -> dict[str, TopicFacts]:
            ids = {"orders": "id-orders", "a.orders": "id-a.orders"}
            return {topic: TopicFacts(topic, ids[topic], 1, 1) for topic in topics}

        def offsets(self, wanted: list[SourcePartition], *, at: str, **_: Any) -> dict[SourcePartition, int]:
            self.end += 5
            return dict.fromkeys(wanted, 0 if at == "earliest" else self.end)

    reader: Any = StatusReader.__new__(StatusReader)
    reader._source = reader._target = Admin()
    found = reader._observe([position(ORDERS, 90)])[ORDERS]
    assert found.source.high_watermark <= found.lso
