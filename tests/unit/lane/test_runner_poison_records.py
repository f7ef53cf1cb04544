"""What a lane does about records that the target refuses: sought, left out, or the end of their topic."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from eomirror.errors import AuthorizationError, PlaneChangedError
from eomirror.lane.machine import Event, LaneState
from eomirror.lane.runner import LaneRunner
from eomirror.lane.spec import Ending
from eomirror.plane.protocol import (
    CommitOutcome,
    RangeRefusedError,
    RefusedRecord,
    Rejection,
    RejectionReason,
)
from eomirror.plane.select import PlaneSelector
from eomirror.records.dead_letter import DeadLetter
from support.fakes.lane_fakes import ORDERS, PAYMENTS, FakePlane, spec
from support.fakes.runner_rig import Rig


def rejection(**changes: Any) -> RangeRefusedError:
    """The target refuses something of ORDERS up to offset 15."""
    values = {
        "source": ORDERS,
        "target_topic": "east.orders",
        "reason": RejectionReason.SIZE,
        "words": "too large",
        "begin": 10,
        "end": 15,
    }
    return RangeRefusedError(Rejection(**{**values, **changes}))


def the_record(offset: int, size: int = 5_000) -> RefusedRecord:
    return RefusedRecord(offset=offset, timestamp=1, keyless=False, batch_bytes=size)


def two_planes() -> tuple[Rig, list[FakePlane]]:
    """A lane whose client plane is the rig's; and the native planes that serve it one after the other."""
    rig = Rig()
    natives = [FakePlane(rig.clock), FakePlane(rig.clock)]
    made = iter(natives)
    rig.pump = LaneRunner(
        spec(ORDERS),
        planes=PlaneSelector(0, native=lambda: next(made), client=lambda _: rig.plane),
        state=rig.state,
        topics=rig.topics,
        mailbox=rig.mailbox,
        clock=rig.clock,
    )
    return rig, natives


def test_a_refused_record_is_sought_without_handing_back() -> None:
    """The transaction is aborted, a new producer sends in ranges, and once past the rejection as usual again."""
    rig = Rig(payments=3)
    rig.plane.fetches = [{ORDERS: 5, PAYMENTS: 1}]
    rig.plane.rejections = [rejection()]

    report = rig.run()

    assert report.ending is Ending.STOPPED
    assert report.records == 6
    assert not report.stopped_topics
    assert [send_plan.ranges for send_plan in rig.plane.send_plans] == [{ORDERS: ((15, 1),)}, {}]
    assert rig.plane.send_plans[0].batch_bytes == 1_000
    assert rig.plane.calls.count("abort") == 1
    assert rig.plane.calls.count("open") == 2


def test_a_plane_that_cannot_read_on_gives_way_without_handing_back() -> None:
    """The transaction is aborted, and the next producer begins where the last commit ended, in the same attempt."""
    rig = Rig(payments=3)
    rig.plane.fetches = [{ORDERS: 5, PAYMENTS: 1}]
    rig.plane.pump_errors = [PlaneChangedError("message format 1")]

    report = rig.run()

    assert (report.ending, report.records, dict(report.stopped_topics)) == (Ending.STOPPED, 6, {})
    assert rig.plane.calls.count("abort") == 1
    assert rig.plane.calls.count("open") == 2
    assert {
        (LaneState.OPEN, Event.PLANE_CHANGED),
        (LaneState.DISCARDING, Event.ABORTED),
    } <= rig.pump.machine.taken


def test_a_plane_that_cannot_serve_the_target_gives_way_before_anything_else() -> None:
    """What the lane reads next, it reads behind the other plane's fencing; in the same attempt."""
    rig, (native, _) = two_planes()
    native.open_errors = [PlaneChangedError("transaction.version is 1")]
    rig.plane.fetches = [{ORDERS: 5}]

    report = rig.run()

    assert (report.ending, report.records) == (Ending.STOPPED, 5)
    assert native.calls == ["close"]
    assert rig.plane.calls.count("open") == 1
    assert (LaneState.STARTING, Event.PLANE_CHANGED) in rig.pump.machine.taken


def test_a_plane_that_cannot_serve_the_source_gives_way_with_its_first_fetch() -> None:
    """Nothing is open: the other plane fences and reads, in the same attempt."""
    rig, (native, _) = two_planes()
    native.await_errors = [PlaneChangedError("Kafka 2.7 has no Fetch 12")]
    rig.plane.fetches = [{ORDERS: 5}]

    report = rig.run()

    assert (report.ending, report.records) == (Ending.STOPPED, 5)
    assert native.calls == ["open", "begin", "commit", "close"]
    assert rig.plane.calls.count("open") == 1
    assert (LaneState.IDLE, Event.PLANE_CHANGED) in rig.pump.machine.taken


def test_the_native_plane_goes_on_behind_a_refused_record() -> None:
    """The client plane seeks it with a producer of its own, and the commit that passes it asks for another one."""
    rig, (before, behind) = two_planes()
    before.fetches = [{ORDERS: 5}]
    before.rejections = [rejection()]
    rig.plane.fetches = [{ORDERS: 5}]

    report = rig.run()

    assert (report.ending, report.records) == (Ending.STOPPED, 5)
    assert before.calls == ["open", "begin", "commit", "begin", "flush", "abort", "close"]
    assert rig.plane.calls == ["open", "begin", "commit", "begin", "flush", "commit", "close"]
    assert behind.calls == ["open", "begin", "commit"]
    assert (LaneState.COMMITTING, Event.COMMIT_SUSPECT) in rig.pump.machine.taken


def test_an_epoch_does_not_end_in_the_middle_of_a_search() -> None:
    """The next epoch may run elsewhere, and would begin the search anew: short epochs would never find anything."""
    rig = Rig(spec(ORDERS, seconds=0.01))
    rig.mailbox.idle_looks = 99
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.rejections = [rejection()]

    report = rig.run()

    assert (report.ending, report.records) == (Ending.EPOCH, 5)


def test_a_record_that_is_found_stops_its_topic_with_a_name() -> None:
    """Topic, partition, offset, size and limit are in the text; the others go on."""
    rig = Rig(payments=3)
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.rejections = [rejection(), rejection(record=the_record(12))]

    report = rig.run()

    assert report.ending is Ending.REBUILD
    stop = report.stopped_topics["orders"]
    assert stop.exit_code == 1
    for word in ("orders-0@12", "5000 bytes", "max.message.bytes=1000", "dead-letter"):
        assert word in str(stop)


def test_a_dead_letter_is_in_the_transaction_that_moves_past_its_record() -> None:
    """Rule 7: the pointer and the position behind the record become true together."""
    rig = Rig(spec(ORDERS, on_refused="dead-letter"))
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.rejections = [rejection(), rejection(record=the_record(12))]
    rig.plane.dead_letters = {
        ORDERS: (
            DeadLetter(
                source=ORDERS, offset=12, target_topic="east.orders", reason="size", error="too large", limit="",
                timestamp=5, key=b"k", value=None, headers=(), digest="00",
            ),
        )
    }  # fmt: skip

    report = rig.run()

    assert report.ending is Ending.STOPPED
    (left_out,) = rig.plane.send_plans[1].left_out.values()
    assert left_out[12].limit == "max.message.bytes=1000"
    last = rig.plane.committed[-1]
    (letter,) = [record for record in last if record.topic == "letters"]
    assert orjson.loads(letter.key) == {"topic": "orders", "partition": 0, "offset": 12}
    assert orjson.loads(letter.value)["topic_id"] == "id-orders"
    assert [item["offset"] for item in rig.positions(-1)] == [15]


@pytest.mark.parametrize(("bound", "raised"), [(6_000, [("east.orders", 5_000)]), (4_000, [])])
def test_a_limit_is_raised_as_far_as_it_may_be(bound: int, raised: list[tuple[str, int]]) -> None:
    """To what the record needs, up to the source's own limit; beyond it the topic stops and names the bound."""
    rig = Rig(spec(ORDERS, on_refused="raise-limit"))
    rig.topics.size_limits = (bound, 1_000)
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.rejections = [rejection(), rejection(record=the_record(12))]

    report = rig.run()

    assert rig.topics.raised == raised
    assert set(report.stopped_topics) == (set() if raised else {"orders"})
    if not raised:
        assert "up to 4000" in str(report.stopped_topics["orders"])


def test_a_limit_that_may_not_be_raised_stops_the_topic() -> None:
    """A missing right is named, with what it was for."""
    rig = Rig(spec(ORDERS, on_refused="raise-limit"))
    rig.topics.size_limits = (9_000, 1_000)
    rig.topics.raise_error = AuthorizationError("lacks AlterConfigs", fix="grant it")
    rig.plane.fetches = [{ORDERS: 5}]
    rig.plane.rejections = [rejection(), rejection(record=the_record(12))]

    report = rig.run()

    assert "raise-limit could not raise" in str(report.stopped_topics["orders"])
    assert "lacks AlterConfigs" in str(report.stopped_topics["orders"])


def test_a_dead_letter_that_is_refused_goes_without_the_record() -> None:
    """Written behind the seal, and sent again as a pointer; a pointer that is refused stops the topic."""
    rig = Rig(spec(ORDERS, on_refused="dead-letter"))
    rig.plane.fetches = [{ORDERS: 5}]
    letter = {"reason": RejectionReason.DEAD_LETTER, "target_topic": "letters"}
    rig.plane.outcomes = [CommitOutcome.CLEAN, rejection(**letter), CommitOutcome.CLEAN, rejection(**letter)]

    report = rig.run()

    assert [send_plan.whole_dead_letters for send_plan in rig.plane.send_plans] == [False]
    assert "dead letter" in str(report.stopped_topics["orders"])
    assert rig.pump.machine.taken >= {
        (LaneState.COMMITTING, Event.RECORD_REFUSED), (LaneState.DISCARDING, Event.ABORTED),
    }  # fmt: skip
