"""The ends of the source in control: what a failover without the source knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror import load_config
from eomirror.driver.source_ends import EndRecords
from eomirror.errors import UnreachableError
from eomirror.lane.spec import LaneProgress, PartitionProgress
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


def report(*ends: tuple[str, int, int | None]) -> LaneProgress:
    """A lane's report with last stable offsets."""
    return LaneProgress(
        lane=0, epoch=1, state="idle",
        partitions=tuple(
            PartitionProgress(topic=topic, partition=number, position=0, lso=end) for topic, number, end in ends
        ),
    )  # fmt: skip


def test_ends_are_written_when_they_move_with_the_time_as_of_which_they_hold() -> None:
    """An idle source costs one small record a renewal; an end that is not known is left as it was."""
    clock, control = PlayedClock(1000), Control()
    ends = EndRecords(LINK, lambda: 2.0, clock)
    ends.update(report(("t1", 0, 5), ("t1", 1, None), ("t2", 0, 7)))

    ends.write(control.commit)

    found = control.view()
    assert dict(found.ends) == {SourcePartition("t1", 0): 5, SourcePartition("t2", 0): 7}
    assert found.seen == 998_000
    written = len(control.records)
    clock.now += 5
    ends.update(report(("t1", 0, 9), ("t2", 0, 7)))
    ends.write(control.commit)
    assert control.view().ends[SourcePartition("t1", 0)] == 9
    assert len(control.records) == written + 2
    clock.now += 5
    ends.write(control.commit)
    assert len(control.records) == written + 3
    assert control.view().seen == 1_008_000


def test_a_write_that_failed_is_due_again_and_a_source_that_never_answered_says_nothing() -> None:
    """The time of the ends must not be later than they are."""
    clock, control = PlayedClock(1000), Control()
    age: list[float | None] = [None]
    ends = EndRecords(LINK, lambda: age[0], clock)
    ends.update(report(("t1", 0, 5)))
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
    ends = EndRecords(LINK, lambda: 0.0, clock)
    ends.update(report(*((f"t{number}", 0, 1) for number in range(200))))
    ends.write(control.commit)
    ends.update(report(("t0", 0, 2)))
    clock.now += 5

    ends.write(control.commit)

    assert control.view().ends[SourcePartition("t0", 0)] == 1
    assert control.view().seen == 1_000_000
    clock.now += 6
    ends.write(control.commit)
    assert control.view().ends[SourcePartition("t0", 0)] == 2
    assert control.view().seen == 1_011_000
