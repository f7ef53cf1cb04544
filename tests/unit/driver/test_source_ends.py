"""The ends of the source in control: what a failover without the source knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.driver.source_ends import EndRecords
from eomirror.errors import UnreachableError
from eomirror.lane.spec import LaneProgress, PartitionProgress
from eomirror.records.control import ControlView, Stopped, decode_control
from eomirror.topics.source_topics import Listing
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock
from support.links.one_link import CONFIG

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eomirror.plane.protocol import MetadataRecord


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
    """Answers with the ends that it has; partitions in ``silent`` have no answer, and unknown ones do not exist."""

    def __init__(self, clock: PlayedClock, **ends: int) -> None:
        self.ends = ends
        self.silent: set[str] = set()
        self.requests = 0
        # a request may take time, in which the source goes on
        self.seconds = 0.0
        self._clock = clock

    def answered_offsets(
        self, partitions: Collection[tuple[str, int]], *, at: str, **_: object
    ) -> tuple[dict[tuple[str, int], int], set[tuple[str, int]]]:
        self.requests += 1
        self._clock.now += self.seconds
        asked = [where for where in partitions if where[0] not in self.silent]
        found = self.ends if at == "latest" else dict.fromkeys(self.ends, 2)
        return (
            {where: found[where[0]] for where in asked if where[0] in self.ends},
            {where for where in asked if where[0] not in self.ends},
        )


def records_of(clock: PlayedClock, *topics: str) -> EndRecords:
    """Of a link with one partition of each topic."""
    return EndRecords(
        CONFIG.links[0], clock, assigned=lambda: [SourcePartition(topic, 0) for topic in topics]
    )


def report(*ends: tuple[str, int, int | None]) -> LaneProgress:
    """A lane's report with last stable offsets."""
    return LaneProgress(
        lane=0, epoch=1, state="idle",
        partitions=tuple(
            PartitionProgress(topic=topic, partition=number, position=0, lso=end) for topic, number, end in ends
        ),
    )  # fmt: skip


def test_ends_are_written_when_they_move_with_the_time_as_of_which_they_hold() -> None:
    """An idle source costs one small record a renewal."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock, t1=5, t2=7)
    source.seconds = 2
    ends = records_of(clock, "t1", "t2")
    ends.read(source, None)

    ends.write(control.commit)

    found = control.view()
    assert dict(found.ends) == {SourcePartition("t1", 0): 5, SourcePartition("t2", 0): 7}
    # of the request, and not of the answer
    assert found.seen == 1_000_000
    written = len(control.records)
    clock.now += 5
    source.ends["t1"] = 9
    ends.read(source, None)
    ends.write(control.commit)
    assert control.view().ends[SourcePartition("t1", 0)] == 9
    assert len(control.records) == written + 2
    clock.now += 5
    ends.read(source, None)
    ends.write(control.commit)
    assert len(control.records) == written + 3
    assert control.view().seen == 1_014_000
    ends.write(control.commit)
    assert len(control.records) == written + 3, "nothing is new"


def test_a_write_that_failed_is_due_again() -> None:
    """The records are not lost with the renewal."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock, t1=5)
    ends = records_of(clock, "t1")
    ends.read(source, None)
    control.away = True
    with pytest.raises(UnreachableError):
        ends.write(control.commit)
    control.away = False

    ends.write(control.commit)

    assert dict(control.view().ends) == {SourcePartition("t1", 0): 5}
    assert control.view().seen == 1_000_000


def test_many_topics_are_written_less_often_and_the_time_waits_for_them() -> None:
    """Every starting lane reads control: it must not fill with ends."""
    clock, control = PlayedClock(1000), Control()
    topics = [f"t{number}" for number in range(200)]
    source: Any = Source(clock, **dict.fromkeys(topics, 1))
    ends = records_of(clock, *topics)
    ends.read(source, None)
    ends.write(control.commit)
    source.ends["t0"] = 2
    clock.now += 5
    ends.read(source, None)

    ends.write(control.commit)

    assert control.view().ends[SourcePartition("t0", 0)] == 1
    assert control.view().seen == 1_000_000
    clock.now += 6
    ends.write(control.commit)
    assert control.view().ends[SourcePartition("t0", 0)] == 2
    assert control.view().seen == 1_005_000


def test_a_lane_raises_an_end_and_not_the_time() -> None:
    """Its report may be as old as its last fetch: before it waited for the target, say."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock, t1=5)
    ends = records_of(clock, "t1")
    ends.update(report(("t1", 0, 3), ("t1", 1, None)))
    ends.write(control.commit)
    assert dict(control.view().ends) == {SourcePartition("t1", 0): 3}
    assert control.view().seen is None
    ends.read(source, None)
    ends.update(report(("t1", 0, 4)))
    clock.now += 1
    ends.write(control.commit)
    assert control.view().ends[SourcePartition("t1", 0)] == 5
    clock.now += 30
    ends.update(report(("t1", 0, 8)))

    ends.write(control.commit)

    assert control.view().ends[SourcePartition("t1", 0)] == 8
    assert control.view().seen == 1_000_000


def test_a_partition_without_a_leader_holds_the_time_back_and_a_deleted_one_does_not() -> None:
    """Records may wait in the former, and none in the latter."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock, t1=5, t2=7)
    ends = records_of(clock, "t1", "t2", "gone")
    source.silent.add("t2")
    ends.read(source, None)
    ends.write(control.commit)
    assert control.view().seen is None, "the end of t2 was never known"

    source.silent.clear()
    clock.now += 5
    ends.read(source, None)
    ends.write(control.commit)
    assert control.view().seen == 1_005_000

    source.silent.add("t2")
    source.ends["t1"] = 6
    clock.now += 5
    ends.read(source, None)
    ends.write(control.commit)
    assert control.view().ends[SourcePartition("t1", 0)] == 6
    assert control.view().seen == 1_005_000


def stop(topic: str) -> tuple[bytes, bytes, str]:
    """What the owner records of a topic that it leaves out."""
    made = Stopped(topic=topic, reason="r", fix="", exit_code=1, lane=None, run="r", timestamp=1)
    return made.key(), made.value(), ""


def listed(clock: PlayedClock, *topics: str) -> Listing:
    """One partition of each topic, found now."""
    return Listing(clock.wall_ms(), frozenset(SourcePartition(topic, 0) for topic in topics))


def test_a_topic_that_no_lane_has_is_recorded_from_its_start_and_forgotten_once_it_is_gone() -> None:
    """A failover without the source loses it as well; one that was deleted holds nothing."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock, t1=5, out=7)
    ends = records_of(clock, "t1")
    control.records.append(stop("out"))
    ends.read(source, listed(clock, "t1", "out"))
    ends.write(control.commit)

    out = SourcePartition("out", 0)
    assert control.view().ends_beside({SourcePartition("t1", 0)}, {}) == {out: (2, 7)}
    # what was mirrored before it was left out has a copy
    assert control.view().ends_beside({SourcePartition("t1", 0)}, {out: 4}) == {out: (4, 7)}
    assert control.view().ends_beside({SourcePartition("t1", 0)}, {out: 7}) == {}
    del source.ends["out"]
    clock.now += 5
    ends.read(source, listed(clock, "t1", "out"))
    ends.write(control.commit)
    assert dict(control.view().ends) == {SourcePartition("t1", 0): 5}
    assert control.view().seen == 1_005_000


def test_the_record_of_a_topic_that_left_the_filter_is_no_loss() -> None:
    """It stays in control, and nothing stops it."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock, left=7)
    ends = records_of(clock)
    ends.read(source, listed(clock, "left"))
    ends.write(control.commit)
    assert control.view().ends_beside((), {}) == {}


def test_topics_that_were_made_since_the_last_list_hold_the_time_back() -> None:
    """Their records are not counted."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock, t1=5)
    ends = records_of(clock, "t1")
    listing = listed(clock, "t1")
    clock.now += 20
    ends.read(source, listing)
    ends.write(control.commit)
    assert control.view().seen == 1_000_000


def test_records_without_starts_are_readable() -> None:
    """An older mirror has written them; a newer record stands for its topic alone."""
    key, seen = b'{"kind":"ends","topic":"t1"}', SourcePartition("t1", 0)
    view = decode_control([(key, b'{"v":1,"ends":{"0":5,"1":6}}', ""), (key, b'{"v":1,"ends":{"0":7}}', "")])
    assert (dict(view.ends), dict(view.starts)) == ({seen: 7}, {})


def test_very_many_ends_are_asked_for_less_often() -> None:
    """A request for 5,000 partitions is not made every 5 s."""
    topics = [f"t{number}" for number in range(5_000)]
    clock = PlayedClock(1000)
    source: Any = Source(clock, **dict.fromkeys(topics, 1))
    ends = records_of(clock, *topics)
    ends.read(source, None)
    clock.now += 19
    ends.read(source, None)
    assert source.requests == 1
    clock.now += 2
    ends.read(source, None)
    assert source.requests == 2


def test_a_link_without_partitions_says_nothing() -> None:
    """There is no end, and no time."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock)
    ends = records_of(clock)
    ends.read(source, None)
    ends.write(control.commit)
    assert (control.records, source.requests) == ([], 0)


def test_the_rate_of_the_source_is_that_of_the_last_minute() -> None:
    """Of all ends together; a partition that is new, or that went back, is no growth."""
    clock, control = PlayedClock(1000), Control()
    source: Any = Source(clock, t1=1_000, t2=0)
    ends = records_of(clock, "t1", "t2", "t3")

    def rate() -> float | None:
        # a lane reports what it has fetched just before each answer
        ends.update(report(("t1", 0, source.ends["t1"]), ("t2", 0, source.ends["t2"])))
        ends.read(source, None)
        ends.write(control.commit)
        return control.view().seen_rate

    assert rate() is None
    for growing in (*[True] * 20, False, False):
        clock.now += 5
        source.ends["t1"] += 50 * growing
        source.ends["t2"] += 100 * growing
        found = rate()
        assert found == 30 or not growing
    # ten of the last twelve looks
    assert found == 25
    source.ends |= {"t3": 10**9, "t1": 0}
    clock.now += 5
    assert rate() == 22.5
