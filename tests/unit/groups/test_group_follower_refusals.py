"""One group that cannot be moved must not hold up the others: the follower, between coordinators that are played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from eomirror.config import Cluster, Link
from eomirror.errors import AuthorizationError, TopicError
from eomirror.groups import follower, offset_writer
from eomirror.groups.followed_groups import GONE_SECONDS, MirroredPartitions
from eomirror.groups.follower import GroupFollower
from eomirror.kafka.consumer_groups import Committed, TargetGroup
from eomirror.kafka.session import ClusterSession
from eomirror.lane.spec import GroupOffset
from eomirror.records.mm2 import Checkpoint
from eomirror.topology.flow import LoopRules
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eomirror.link.offset_map_reader import Question

ORDERS, PAYMENTS = SourcePartition("orders", 0), SourcePartition("payments", 0)
LANES = {ORDERS: 0, PAYMENTS: 0}
GROUPS = ("a", "b", "c")

Offsets = dict[tuple[str, int], Committed]


class Clock:
    """Time as a test wants it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Coordinators:
    """The groups of one cluster."""

    def __init__(self) -> None:
        self.offsets: dict[str, Offsets] = {}
        self.hidden: dict[str, str] = {}
        self.unauthorized: set[str] = set()

    def names(self, *, strict: bool) -> tuple[list[str], bool]:
        assert not strict
        return sorted(self.offsets), True

    def shared(self) -> list[str]:
        return []

    def read_offsets(self, groups: Sequence[str]) -> Iterator[tuple[str, Offsets]]:
        for group in groups:
            yield group, self.offsets[group]

    def committed(self, groups: Iterable[str]) -> dict[str, Offsets]:
        return {group: self.offsets.get(group, {}) for group in groups}

    def describe(self, groups: Sequence[str]) -> dict[str, TargetGroup | str]:
        return {
            group: self.hidden.get(group)
            or TargetGroup(
                "empty" if group in self.offsets else "dead",
                {where: one.offset for where, one in self.offsets.get(group, {}).items()},
            )
            for group in groups
        }

    def write(self, group: str, offsets: Mapping[tuple[str, int], Committed]) -> str:
        self._ask(group)
        self.offsets.setdefault(group, {}).update(offsets)
        return ""

    def delete(self, group: str) -> str:
        self._ask(group)
        del self.offsets[group]
        return ""

    def retention_seconds(self) -> float:
        return 1e6

    def close(self) -> None:
        pass

    def _ask(self, group: str) -> None:
        if group in self.unauthorized:
            raise AuthorizationError(f"no right to {group}")


class Ends:
    """
    Where partitions of the target begin and end; those that are not there are named one by one.

    And the offset map of partitions with a position, 1,000 behind the source.
    """

    def __init__(self) -> None:
        self.ends = {("west.orders", 0): 9000, ("west.payments", 0): 9000}
        self.starts: dict[tuple[str, int], int] = {}
        self.mirrored: dict[SourcePartition, Any] = {}
        self.leaderless: set[tuple[str, int]] = set()
        self.asked = 0
        self.before = False
        self.log: list[list[Checkpoint]] = []

    def positions(self) -> dict[SourcePartition, Any]:
        return self.mirrored

    def answers(self, questions: Sequence[Question]) -> list[tuple[str, int]]:
        self.asked += 1
        return [("before", 9) if self.before else ("exact", question.offset + 1000) for question in questions]

    def checkpoint_log(self) -> list[list[Checkpoint]]:
        return self.log

    def with_leader(self, partitions: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        return set(partitions) - self.leaderless

    def log_starts(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        assert self.leaderless.isdisjoint(partitions), "that takes until there is one"
        return {where: self.starts.get(where, 0) for where in self.stable_ends(partitions)}

    def stable_ends(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        for where in partitions:
            if where not in self.ends:
                raise TopicError(f"{where[0]} does not exist", topic=where[0])
        return {where: self.ends[where] for where in partitions}

    def close(self) -> None:
        pass


class Flow:
    """A follower between two clusters that are played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.source, self.target, self.clock = Coordinators(), Coordinators(), Clock()
        sides = {"west": self.source, "east": self.target}
        for module in (follower, offset_writer):
            monkeypatch.setattr(module, "ClusterGroups", lambda cluster, **_: sides[cluster.alias])
        self.ends = Ends()
        monkeypatch.setattr(follower, "OffsetMapReader", lambda *_, **__: self.ends)
        monkeypatch.setattr(follower, "handed_over", lambda *_: frozenset())
        link = Link(
            name="one",
            source="west",
            target="east",
            topics=(".*",),
            **{"sync_group_offsets": True, **settings},
        )
        self.follower = GroupFollower(
            link,
            Cluster("west", {}),
            ClusterSession(Cluster("east", {}), client_id="test"),
            send=lambda *_: None,
            clock=self.clock,
        )

    def stand(self, group: str, offset: int, *, on: SourcePartition = ORDERS) -> None:
        """A group of the source is there, and the lane has committed a checkpoint for it."""
        self.source.offsets.setdefault(group, {})[on.topic, on.partition] = Committed(offset)
        self.round()
        self.follower.record_answers((GroupOffset(group, on, offset, offset + 1000),))

    def round(self, *, stopped: Sequence[str] = ()) -> None:
        self.follower.round(MirroredPartitions(LANES, stopped))
        assert self.follower.snapshot().error == ""

    def standing(self) -> dict[str, int]:
        """Offset in the copy of orders, of the groups that are there."""
        return {
            group: offsets["west.orders", 0].offset
            for group, offsets in self.target.offsets.items()
            if ("west.orders", 0) in offsets
        }


@pytest.mark.parametrize("how", ["hidden", "unauthorized"])
def test_a_group_that_may_not_be_touched_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A missing right on one group is about that group; it is moved when the right is there."""
    flow = Flow(monkeypatch)
    if how == "hidden":
        flow.target.hidden["a"] = "no right to a"
    else:
        flow.target.unauthorized.add("a")
    for group in GROUPS:
        flow.stand(group, 7)
    flow.round()
    assert flow.standing() == {"b": 1007, "c": 1007}
    assert flow.follower.snapshot().skipped == {"no right to a": 1}

    flow.target.hidden.clear()
    flow.target.unauthorized.clear()
    flow.clock.now += 60
    flow.round()
    assert flow.standing()["a"] == 1007
    assert flow.follower.snapshot().skipped == {}


def test_a_group_that_may_not_be_deleted_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise where the policy is to delete what is gone on the source."""
    flow = Flow(monkeypatch, group_deletions="delete")
    for group in GROUPS:
        flow.stand(group, 7)
    flow.round()
    flow.target.unauthorized.add("a")
    for group in ("a", "b"):
        del flow.source.offsets[group]
    flow.round()
    flow.clock.now += GONE_SECONDS + 60
    flow.round()

    assert sorted(flow.standing()) == ["a", "c"]
    assert flow.follower.snapshot().skipped == {"no right to a": 1}


def test_nothing_is_said_of_a_topic_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy may have been created anew, where the old offset lies beyond the end and would skip what comes."""
    flow = Flow(monkeypatch)
    flow.stand("a", 7)
    flow.round()
    # deleted there with all offsets of its groups, and created again
    del flow.target.offsets["a"]["west.orders", 0]
    flow.stand("a", 3, on=PAYMENTS)
    flow.round(stopped=["orders"])
    assert flow.target.offsets["a"] == {("west.payments", 0): Committed(1003)}
    assert flow.follower.snapshot().skipped == {"one of its topics is stopped": 1}

    # it only lacked a right
    flow.clock.now += 60
    flow.round()
    assert flow.standing() == {"a": 1007}
    assert flow.follower.snapshot().skipped == {}


@pytest.mark.parametrize("now", [{("west.orders", 0): 12}, {}])
def test_a_group_is_never_placed_beyond_the_end_of_its_copy(
    monkeypatch: pytest.MonkeyPatch, now: dict[tuple[str, int], int]
) -> None:
    """The copy was created again, or is gone, and its lane has nothing to mirror: nobody has noticed yet."""
    flow = Flow(monkeypatch)
    flow.stand("a", 7)
    flow.round()
    del flow.target.offsets["a"]["west.orders", 0]
    flow.ends.ends = {**now, ("west.payments", 0): 9000}
    flow.stand("a", 3, on=PAYMENTS)
    flow.round()

    assert flow.target.offsets["a"] == {("west.payments", 0): Committed(1003)}
    assert flow.follower.snapshot().skipped == {"its copy on the target ends before its translated offset": 1}


@pytest.mark.parametrize("rewind", ["follow", "ignore"])
def test_a_group_is_never_placed_before_the_beginning_of_its_copy(
    monkeypatch: pytest.MonkeyPatch, rewind: str
) -> None:
    """Retention took what it stands at; out of range, a consumer may go to the end and skip what is left."""
    flow = Flow(monkeypatch, group_rewind=rewind)
    flow.ends.starts["west.orders", 0] = 1010
    flow.stand("a", 7)
    flow.stand("a", 3, on=PAYMENTS)
    flow.round()
    placed = {("west.orders", 0): Committed(1010), ("west.payments", 0): Committed(1003)}
    assert flow.target.offsets["a"] == placed

    # where it stands by itself is no rewind, nor is it one to look at it again
    flow.stand("a", 8)
    for _ in range(3):
        flow.clock.now += 60
        flow.round()
    assert flow.target.offsets["a"] == placed
    assert (flow.follower.snapshot().moved, flow.follower.snapshot().skipped) == (2, {})
    flow.stand("a", 12)
    flow.round()
    assert flow.standing() == {"a": 1012}

    # it went on meanwhile, and what would be written again lies before it
    flow.ends.starts["west.orders", 0] = 1020
    flow.clock.now += 1e6
    flow.round()
    assert flow.standing() == {"a": 1020}


@pytest.mark.parametrize(("had", "expected"), [(1050, 1005), (1051, 1051)], ids=["ours", "consumers'"])
def test_a_group_that_went_back_before_a_restart_is_followed(
    monkeypatch: pytest.MonkeyPatch, had: int, expected: int
) -> None:
    """The lane had written the checkpoint, and nothing had committed it: what the link wrote before is in the log."""
    flow = Flow(monkeypatch)
    flow.ends.log = [
        [Checkpoint("a", "west.orders", 0, upstream, upstream + 1000, "") for upstream in (50, 5)],
    ]
    flow.target.offsets["a"] = {("west.orders", 0): Committed(had)}
    flow.stand("a", 5)
    flow.round()

    assert flow.standing() == {"a": expected}


def read_on_the_target(flow: Flow, offset: int) -> None:
    """Consumers there read group a to an offset, and leave."""
    flow.target.offsets["a"] = {("west.orders", 0): Committed(offset)}


def test_an_offset_that_consumers_there_have_reached_is_left_alone_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records up to the group's offset on the source were not read there; its own offsets follow as before."""
    flow = Flow(monkeypatch)
    flow.stand("b", 100)
    read_on_the_target(flow, 1150)
    with capture_logs() as logs:
        flow.stand("a", 2000)
        flow.stand("b", 2000)
        flow.round()

    assert flow.standing() == {"a": 1150, "b": 3000}
    (said,) = flow.follower.snapshot().skipped
    assert said.startswith("a: it was read on the target to 1150 of west.orders-0")
    assert [each["group"] for each in logs if each["event"] == "group_not_moved"] == ["a"]


def test_consumers_there_who_read_as_far_as_the_group_leave_an_offset_that_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is between the two."""
    flow = Flow(monkeypatch)
    read_on_the_target(flow, 1150)
    flow.stand("a", 150)
    flow.round()
    flow.stand("a", 200)
    flow.round()

    assert (flow.standing(), flow.follower.snapshot().skipped) == ({"a": 1200}, {})


def test_an_offset_with_which_the_group_left_for_the_source_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link back has moved it, and wrote a checkpoint of that on the source."""
    flow = Flow(monkeypatch)
    monkeypatch.setattr(follower, "handed_over", lambda *_: {("a", "west.orders", 0)})
    read_on_the_target(flow, 1150)
    flow.stand("a", 200)
    flow.round()

    assert flow.standing() == {"a": 1200}


def test_a_commit_whose_answer_was_lost_is_the_links_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator executed it, and the request failed."""
    flow = Flow(monkeypatch)
    flow.stand("a", 7)
    written = flow.target.write

    def unanswered(group: str, offsets: Mapping[tuple[str, int], Committed]) -> str:
        written(group, offsets)
        return "no answer"

    monkeypatch.setattr(flow.target, "write", unanswered)
    flow.round()
    monkeypatch.setattr(flow.target, "write", written)
    flow.stand("a", 9)
    flow.round()

    assert flow.standing() == {"a": 1009}


def test_an_offset_at_the_log_start_of_its_time_is_the_links_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier run wrote it in place of a checkpoint before the log start, which has moved on since."""
    flow = Flow(monkeypatch)
    monkeypatch.setattr(follower, "handed_over", lambda *_: ())
    flow.ends.log = [[Checkpoint("a", "west.orders", 0, 5, 1005, "")]]
    flow.ends.starts["west.orders", 0] = 1020
    read_on_the_target(flow, 1010)
    flow.stand("a", 200)
    flow.round()

    assert flow.standing() == {"a": 1200}


def test_a_copy_without_a_leader_keeps_no_group_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it begins nobody can tell; the offsets of its groups are another topic's business."""
    flow = Flow(monkeypatch)
    flow.stand("a", 7)
    flow.round()
    flow.ends.leaderless.add(("west.orders", 0))
    flow.stand("a", 8)
    flow.stand("b", 3, on=PAYMENTS)
    flow.round()
    assert flow.standing() == {"a": 1008}
    assert flow.target.offsets["b"] == {("west.payments", 0): Committed(1003)}


@pytest.mark.parametrize("guard", [True, False])
def test_a_link_whose_groups_are_not_moved_says_so_when_it_begins(
    monkeypatch: pytest.MonkeyPatch, guard: bool
) -> None:
    """With equal names both ways the setting has no effect; the log has the reason, once."""
    with capture_logs() as logs:
        flow = Flow(monkeypatch, loops=LoopRules(guard=guard))
        flow.stand("a", 5)
        flow.round()

    told = [entry for entry in logs if entry["event"] == "groups_not_moved"]
    assert len(told) == guard
    assert all("`eomirror cutover` and `failback`" in entry["fix"] for entry in told)
    assert (flow.standing() == {}) is guard
