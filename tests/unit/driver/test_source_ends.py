"""The ends of the source in control: what a failover without the source knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror import load_config
from eomirror.driver.source_ends import EndRecords
from eomirror.errors import TopicError, UnreachableError
from eomirror.lane.spec import LaneProgress, PartitionProgress, StoppedTopic
from eomirror.records.control import ControlView, decode_control
from eomirror.types import SourcePartition
from support.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.plane.protocol import MetadataRecord

LINK = load_config(
    {
        "clusters": {
            "east": {"bootstrap.servers": "127.0.0.1:1"},
            "west": {"bootstrap.servers": "127.0.0.1:2"},
        },
        "links": [{"source": "east", "target": "west", "topics": ["t.*"]}],
    }
).links[0]

# epoch and number of an attempt
FIRST, SECOND = (1, 1), (1, 2)


class Control:
    """Takes records; may be out of reach."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None, str]] = []
        self.away = False

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        if self.away:
            raise UnreachableError("away")
        self.records += [(one.key, one.value, "") for one in records]

    def view(self) -> ControlView:
        return decode_control(self.records)


class Source:
    """Answers with the ends that it has; a topic without is gone, and a partition in ``offline`` has no leader."""

    def __init__(self, **ends: int) -> None:
        self.ends = ends
        self.offline: set[str] = set()
        self.asked: list[list[str]] = []

    def offsets(self, partitions: Sequence[tuple[str, int]], **_: object) -> dict[tuple[str, int], int]:
        self.asked.append([topic for topic, _ in partitions])
        for topic, _ in partitions:
            if topic in self.offline:
                raise UnreachableError("no leader", topic=topic)
            if topic not in self.ends:
                raise TopicError("gone", topic=topic)
        return {(topic, number): self.ends[topic] for topic, number in partitions}


def assigned(*topics: str, lane: int = 0) -> dict[SourcePartition, int]:
    return dict.fromkeys((SourcePartition(topic, 0) for topic in topics), lane)


def report(*ends: tuple[str, int, int | None], **changes: Any) -> LaneProgress:
    """A lane's report with last stable offsets."""
    return LaneProgress(
        **{"lane": 0, "epoch": 1, "state": "idle", **changes},
        partitions=tuple(
            PartitionProgress(topic=topic, partition=number, position=0, lso=end) for topic, number, end in ends
        ),
    )  # fmt: skip


def test_ends_are_written_when_they_move_with_the_time_as_of_which_they_hold() -> None:
    """An idle source costs one small record a renewal; an end that is not known is left as it was."""
    clock, control = PlayedClock(1000), Control()
    ends = EndRecords(LINK, lambda: 2.0, clock, assigned=lambda: assigned("t1", "t2"))
    ends.update(FIRST, report(("t1", 0, 5), ("t1", 1, None), ("t2", 0, 7)))

    ends.write(control.commit)

    found = control.view()
    assert dict(found.ends) == {SourcePartition("t1", 0): 5, SourcePartition("t2", 0): 7}
    assert found.seen == 998_000
    written = len(control.records)
    clock.now += 5
    ends.update(FIRST, report(("t1", 0, 9), ("t2", 0, 7)))
    ends.write(control.commit)
    assert control.view().ends[SourcePartition("t1", 0)] == 9
    assert len(control.records) == written + 2
    clock.now += 5
    ends.update(FIRST, report())
    ends.write(control.commit)
    assert len(control.records) == written + 3
    assert control.view().seen == 1_008_000


def test_a_write_that_failed_is_due_again_and_a_source_that_never_answered_says_nothing() -> None:
    """The time of the ends must not be later than they are."""
    clock, control = PlayedClock(1000), Control()
    age: list[float | None] = [None]
    ends = EndRecords(LINK, lambda: age[0], clock, assigned=lambda: assigned("t1"))
    ends.update(FIRST, report(("t1", 0, 5)))
    ends.write(control.commit)
    assert control.records == []

    age[0] = 0.0
    control.away = True
    with pytest.raises(UnreachableError):
        ends.write(control.commit)
    control.away = False
    ends.write(control.commit)

    assert dict(control.view().ends) == {SourcePartition("t1", 0): 5}


def test_many_topics_are_written_less_often_and_the_time_waits_for_them() -> None:
    """Every starting lane reads control: it must not fill with ends."""
    clock, control = PlayedClock(1000), Control()
    topics = [f"t{number}" for number in range(200)]
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned(*topics))
    ends.update(FIRST, report(*((topic, 0, 1) for topic in topics)))
    ends.write(control.commit)
    clock.now += 5
    ends.update(FIRST, report(("t0", 0, 2)))

    ends.write(control.commit)

    assert control.view().ends[SourcePartition("t0", 0)] == 1
    assert control.view().seen == 1_000_000
    clock.now += 6
    ends.update(FIRST, report())
    ends.write(control.commit)
    assert control.view().ends[SourcePartition("t0", 0)] == 2
    assert control.view().seen == 1_011_000


@pytest.mark.parametrize(
    "silence",
    [
        None,
        pytest.param((FIRST, report(delayed="t2-0: no answer")), id="cannot read"),
        pytest.param((SECOND, report(("t1", 0, 5))), id="t2 is paused"),
        pytest.param((SECOND, report(("t1", 0, 5), ("t2", 0, None))), id="t2 was not fetched yet"),
        pytest.param((FIRST, report(stopped_topics={"t2": StoppedTopic("gap")})), id="t2 is stopped"),
        pytest.param((FIRST, report(lane=1)), id="another lane"),
    ],
)
def test_an_end_that_no_lane_reads_holds_the_time_back(
    silence: tuple[tuple[int, int], LaneProgress] | None,
) -> None:
    """The source answers the driver, which says nothing about an end that was read 30 s ago."""
    clock, control = PlayedClock(1000), Control()
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned("t1", "t2"))
    ends.update(FIRST, report(("t1", 0, 5), ("t2", 0, 7)))
    clock.now += 30
    if silence is not None:
        ends.update(*silence)

    ends.write(control.commit)

    assert control.view().seen == 1_000_000


def test_without_an_end_of_each_partition_there_is_no_time() -> None:
    """The bound would leave out what waits in a partition that no lane has read."""
    clock, control = PlayedClock(1000), Control()
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned("t1") | assigned("t2", lane=1))
    ends.update(FIRST, report(("t1", 0, 5)))

    ends.write(control.commit)

    assert dict(control.view().ends) == {SourcePartition("t1", 0): 5}
    assert control.view().seen is None


def test_a_late_report_of_an_earlier_attempt_says_nothing() -> None:
    """It may come behind the first one of the next attempt."""
    clock, control = PlayedClock(1000), Control()
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned("t1"))
    ends.update(SECOND, report(("t1", 0, 5)))
    clock.now += 30
    ends.update(FIRST, report(("t1", 0, 4)))

    ends.write(control.commit)

    assert control.view().ends[SourcePartition("t1", 0)] == 5
    assert control.view().seen == 1_000_000


def test_the_source_is_asked_for_ends_that_no_lane_reads() -> None:
    """Such as those of a paused topic; a deleted topic holds nothing back, and one without a leader does."""
    clock, control, source = PlayedClock(1000), Control(), Source(t1=5, t2=9)
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned("t1", "t2", "t3"))
    ends.update(FIRST, report(("t1", 0, 5)))
    ends.ask(source.offsets)
    assert source.asked == [["t2", "t3"], ["t2"]]
    clock.now += 1
    ends.update(FIRST, report())

    ends.write(control.commit)

    assert control.view().ends[SourcePartition("t2", 0)] == 9
    assert control.view().seen == 1_000_000

    source.offline.add("t2")
    clock.now += 60
    ends.update(FIRST, report())
    ends.ask(source.offsets)
    ends.write(control.commit)
    assert control.view().seen == 1_000_000


def test_the_source_is_asked_for_the_ends_of_a_silent_lane() -> None:
    """It waits for its target, and is about to go on."""
    clock, control, source = PlayedClock(1000), Control(), Source(t1=8)
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned("t1"))
    ends.update(FIRST, report(("t1", 0, 5)))
    clock.now += 30

    ends.ask(source.offsets)
    ends.write(control.commit)

    assert control.view().ends[SourcePartition("t1", 0)] == 8
    assert control.view().seen == 1_030_000


def test_a_source_that_fails_is_asked_again() -> None:
    """The failure is no end."""
    clock, control, source = PlayedClock(1000), Control(), Source(t1=5)
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned("t1"))

    def away(*_: object, **__: object) -> dict[tuple[str, int], int]:
        raise UnreachableError("away")

    ends.ask(away)
    ends.write(control.commit)
    assert control.records == []
    clock.now += 1
    ends.ask(source.offsets)
    ends.write(control.commit)
    assert control.view().seen == 1_001_000


def test_ends_that_lanes_report_are_not_asked_for() -> None:
    """A mirror that runs costs its source no request."""
    clock, source = PlayedClock(1000), Source(t1=5)
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned("t1"))
    ends.update(FIRST, report(("t1", 0, 5)))
    clock.now += 3

    ends.ask(source.offsets)

    assert source.asked == []


def test_very_many_ends_are_asked_for_less_often() -> None:
    """A request for 20,000 partitions is not made every 5 s."""
    topics = [f"t{number}" for number in range(20_000)]
    clock, source = PlayedClock(1000), Source(**dict.fromkeys(topics, 1))
    ends = EndRecords(LINK, lambda: 0.0, clock, assigned=lambda: assigned(*topics))
    ends.ask(source.offsets)
    clock.now += 19
    ends.ask(source.offsets)
    assert len(source.asked) == 1
    clock.now += 2
    ends.ask(source.offsets)
    assert len(source.asked) == 2
