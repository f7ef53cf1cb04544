"""What control shows of stopped topics, from what lanes say: written once, kept while in doubt, deleted in the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Link, Secret
from eomirror.driver.stopped_topics import SETTLED_SECONDS, StopRecords
from eomirror.errors import DataLossError, QuotaError, TopicError
from eomirror.lane.machine import LaneState
from eomirror.lane.spec import LaneProgress, LaneSpec, PartitionProgress, StoppedTopic
from eomirror.records.control import Stopped, decode_control
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.plane.protocol import MetadataRecord

LOSS = DataLossError("east.orders-1: the target lost records 50 to 99", fix="say --resume-at orders-1=50")
MIRRORED = [SourcePartition("orders", 0), SourcePartition("orders", 1), SourcePartition("pay", 0)]


class Control:
    """The control topic, as far as it is about stopped topics."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes | None, bytes | None, str]] = []
        self.fails = False

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        if self.fails:
            raise OSError("the target is away")
        self.log += [(record.key, record.value, "control-0") for record in records]

    @property
    def stopped(self) -> dict[str, Stopped]:
        return {stop.topic: stop for stop in decode_control(self.log).stopped}


class Rig:
    """One run of a link."""

    def __init__(self, control: Control | None = None) -> None:
        self.control = control or Control()
        self.clock = PlayedClock(100.0)
        spec: Any = replace(
            LaneSpec(
                link=Link(name="a->b", source="a", target="b", topics=(".*",)),
                source=Cluster("a", {"sasl.password": Secret("hunter2")}), target=Cluster("b", {}),
                source_cluster_id="", target_cluster_id="", run="r7", generation=0, lane=0, epoch=0, attempt=0,
                seconds=1.0, partitions=(),
            )
        )  # fmt: skip
        self.stops = StopRecords(spec, self.clock)

    def write(self) -> dict[str, Stopped]:
        """What control shows after the next renewal."""
        self.stops.write(self.control.commit)
        return self.control.stopped

    def hear(self, *positions: tuple[str, int, int, int | None], state: LaneState = LaneState.IDLE) -> None:
        """A lane says where partitions stand, and where they end."""
        items = tuple(
            PartitionProgress(topic=topic, partition=number, position=at, lso=lso)
            for topic, number, at, lso in positions
        )
        self.stops.update(LaneProgress(lane=0, epoch=1, state=state, partitions=items), ())


def test_any_error_is_carried_with_its_exit_code_and_fix() -> None:
    """Whatever stops a topic: the record has the text, the fix and the code, and says who and when."""
    rig = Rig()
    progress = LaneProgress(lane=3, epoch=1, state="idle", stopped_topics={"orders": StoppedTopic.of(LOSS)})
    rig.stops.update(progress, ["orders"])
    assert rig.write()["orders"] == Stopped(
        topic="orders", reason=LOSS.message, fix=LOSS.fix, exit_code=4, lane=3, run="r7", timestamp=100_000
    )


def test_it_is_written_once_and_again_when_that_failed() -> None:
    """A renewal has nothing to add where control shows it; what was not committed is due again."""
    rig = Rig()
    rig.stops.stopped({"orders": StoppedTopic("why")}, 0)
    rig.control.fails = True
    with pytest.raises(OSError, match="away"):
        rig.write()
    rig.control.fails = False
    assert set(rig.write()) == {"orders"}
    rig.stops.stopped({"orders": StoppedTopic("another lane says it too")}, 1)
    rig.write()
    assert len(rig.control.log) == 1


def inherited(*topics: str) -> Rig:
    """A run behind one that stopped these."""
    before = Rig()
    before.stops.stopped(dict.fromkeys(topics, StoppedTopic("why")), 0)
    before.write()
    rig = Rig(before.control)
    rig.stops.inherit(tuple(before.control.stopped.values()), MIRRORED)
    return rig


def test_it_stays_until_every_partition_has_moved_or_is_at_its_end() -> None:
    """A lane that has begun may find the same record again."""
    rig = inherited("orders")
    assert rig.write()
    rig.hear(("orders", 0, 10, None), ("orders", 1, 20, None))
    assert rig.write()
    rig.hear(("orders", 0, 11, 50))
    assert rig.write()
    rig.hear(("orders", 1, 20, 20))
    assert rig.write() == {}


def test_it_goes_when_lanes_have_had_the_topic_for_a_while() -> None:
    """Also where nothing moves and the end is not known; not before each of its partitions has been begun with."""
    rig = inherited("orders")
    rig.hear(("orders", 0, 10, None))
    rig.clock.sleep(10 * SETTLED_SECONDS)
    assert rig.write()
    rig.hear(("orders", 1, 20, None))
    assert rig.write()
    rig.clock.sleep(SETTLED_SECONDS)
    assert rig.write() == {}


def test_it_stays_when_the_topic_is_stopped_again() -> None:
    """With the newer word about it."""
    rig = inherited("orders")
    rig.hear(("orders", 0, 10, 10), ("orders", 1, 20, None))
    rig.stops.stopped({"orders": StoppedTopic("lost", exit_code=4)}, 1)
    rig.clock.sleep(10 * SETTLED_SECONDS)
    assert rig.write()["orders"].reason == "lost"


def test_a_stop_that_comes_again_for_the_same_reason_is_as_old_as_the_first() -> None:
    """A right that is missing is tried again once a minute, and a restart meets the same record: neither is news."""
    rig = inherited("orders")
    first = rig.control.stopped
    rig.clock.sleep(60)
    rig.stops.stopped({"orders": StoppedTopic("why")}, 5)
    assert rig.write() == first
    rig.stops.tried_again(["orders"], MIRRORED)
    rig.clock.sleep(60)
    rig.stops.stopped({"orders": StoppedTopic("why")}, 5)
    assert rig.write() == first
    assert len(rig.control.log) == 1


@pytest.mark.parametrize("state", [LaneState.POSITIONS, LaneState.COMPARING, LaneState.CLOSED])
def test_positions_that_were_not_compared_yet_say_nothing(state: LaneState) -> None:
    """A lane that fails on its way up has read them all the same."""
    rig = inherited("pay")
    rig.hear(("pay", 0, 10, 10), state=state)
    assert rig.write()


def test_a_topic_that_is_not_mirrored_any_more_is_not_stopped() -> None:
    """It was excluded, or deleted on the source."""
    assert inherited("gone").write() == {}


def test_a_topic_that_is_tried_again_is_shown_until_it_goes_on() -> None:
    """A right that was granted again; also where the stop is being written just then."""
    rig = Rig()
    rig.stops.stopped({"pay": StoppedTopic("why")}, 0)
    rig.write()
    rig.stops.tried_again(["pay"], MIRRORED)
    assert rig.write()
    rig.hear(("pay", 0, 10, 10))
    assert rig.write() == {}

    rig.stops.stopped({"pay": StoppedTopic("why")}, 0)

    def meanwhile(records: Sequence[MetadataRecord]) -> None:
        rig.control.commit(records)
        rig.stops.tried_again(["pay"], MIRRORED)

    rig.stops.write(meanwhile)
    assert rig.write() == {}


def test_topics_that_no_lane_has_are_shown_until_they_are_prepared() -> None:
    """Each look says which ones these are; what a lane has stopped is not touched by it."""
    rig = Rig()
    rig.stops.stopped({"pay": StoppedTopic("why")}, 0)
    left = TopicError(
        "topic orders and Orders cannot live side by side on b", fix="exclude one", topic="orders"
    )
    rig.stops.left_out({"orders": left})
    found = rig.write()
    assert (found["orders"].reason, found["orders"].fix, found["orders"].lane) == (
        left.message,
        left.fix,
        None,
    )
    rig.stops.left_out({"orders": left})
    assert rig.write() == found
    rig.stops.left_out({})
    assert set(rig.write()) == {"pay"}


def test_a_reason_that_changes_is_written_again() -> None:
    """A quota lets topics through one after the other; a reason that stays is written once."""
    rig = Rig()
    written = []
    for count in (6, 12, 12):
        rig.stops.left_out({"orders": QuotaError(f"{count} of 30 topics created", seconds=5)})
        found = rig.write()
        written.append(found["orders"].reason)
        rig.clock.sleep(5)
    assert written == ["6 of 30 topics created", "12 of 30 topics created", "12 of 30 topics created"]
    assert found["orders"].timestamp == 105_000


def test_a_reason_that_shows_a_secret_is_left_out() -> None:
    """Control is read by all that may read the target's topics."""
    rig = Rig()
    rig.stops.stopped({"orders": StoppedTopic("refused: hunter2 is wrong")}, 0)
    stop = rig.write()["orders"]
    assert "hunter2" not in str(stop)
    assert "secret" in stop.reason
