"""Partitions of a lane without a slot, or behind, go to others: each step in its order, again if it fails."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.driver import moves as moves_module
from eomirror.driver.balance import LOOK_SECONDS, WINDOW_SECONDS
from eomirror.driver.moves import PartitionMoves
from eomirror.driver.slots import TOLD_SECONDS, WAIT_SECONDS
from eomirror.errors import UnreachableError
from eomirror.lane.spec import AssignedPartition
from eomirror.link.ownership import moved
from eomirror.records.control import Generation
from eomirror.status.work import PartitionLoad
from eomirror.types import Assignment, SourcePartition
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ZERO, ONE, TWO = (SourcePartition("t", number) for number in range(3))


class Lane:
    """A lane that obeys at once."""

    def __init__(self, number: int, source: SourcePartition) -> None:
        self.number = number
        self.items = [AssignedPartition(source, "s", "t", "t")]
        self.generation, self.away = 1, ""
        # what answers an order to release; None for a lane that does not
        self.claims: Any = None

    @property
    def partitions(self) -> list[SourcePartition]:
        return [item.source for item in self.items]

    def take(self, sources: Collection[SourcePartition], *, moved_by: int = 0) -> list[AssignedPartition]:
        taken = [item for item in self.items if item.source in sources]
        self.items = [item for item in self.items if item.source not in sources]
        if not moved_by:
            self.away = "giving"
        else:
            self.generation = moved_by
            if self.claims is not None:
                self.claims(self.number, moved_by)
        return taken

    def wait_at_rest(self, _seconds: float) -> bool:
        return True

    def moved(
        self, generation: int | None, got: Collection[AssignedPartition], *, lent: bool = False
    ) -> None:
        self.generation, self.away = generation or self.generation, "lent" if lent else ""
        self.items += got


class Jobs:
    """Spark, which has a slot or none."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.cancelled: list[int] = []

    def thread(self, target: Any, name: str) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)

    def cancel(self, _link: str, lane: int) -> None:
        self.cancelled.append(lane)

    def await_slot(self, _link: str, _lane: int) -> bool:
        return self.free.wait(0.05)


class Link:
    """What `PartitionMoves` has around it: lanes 0 to 2 with a partition each, progress, timeline and owner."""

    def __init__(self, *, balance: bool = False) -> None:
        self.clock = PlayedClock(0.0)
        self.jobs = Jobs()
        self.lanes = {number: Lane(number, source) for number, source in enumerate((ZERO, ONE, TWO))}
        self.states: dict[int, str] = {}
        self.lane_of: dict[SourcePartition, int] = {}
        self.timeline: list[str] = []
        self.layout = Generation(
            generation=1, revision=0, run="r", highest_lane=2,
            assignment=Assignment(3, {ZERO: 0, ONE: 1, TWO: 2}), timestamp=0,
        )  # fmt: skip
        self.fenced: list[tuple[int, ...]] = []
        self.fails = 0
        self.work: dict[SourcePartition, PartitionLoad] = {}
        given: Any = self
        self.moves = PartitionMoves(
            "a->b", given.lanes, progress=given, records=SimpleNamespace(lanes=given), clock=given.clock
        )
        self.moves.start(given.jobs, balance=balance)
        for lane in self.lanes:
            self.moves.slots.begun(lane, 0.0)
            self.moves.slots.connected(lane, 0.0)

    def set_lane_state(self, lane: int, state: str) -> None:
        self.states[lane] = state

    def assign(self, lane: int, items: Collection[AssignedPartition]) -> None:
        self.lane_of.update(dict.fromkeys((item.source for item in items), lane))

    def tell(self, kind: str, text: str) -> None:
        assert kind in {"slot", "balance"}
        self.timeline.append(text)

    def loads(self) -> dict[SourcePartition, PartitionLoad]:
        return self.work

    def publish(
        self, lanes: Mapping[SourcePartition, int | None], givers: Collection[int], *, fence: bool
    ) -> Generation:
        if self.fails:
            self.fails -= 1
            raise UnreachableError("the target is away")
        if any(self.layout.assignment.partitions.get(source) != lane for source, lane in lanes.items()):
            self.layout = moved(self.layout, lanes, givers=givers, now_ms=0)
        if fence:
            assert all(self.lanes[giver].away == "giving" for giver in givers), "none begins meanwhile"
            self.fenced.append(tuple(givers))
        return self.layout

    def look(
        self, at: float, *, elastic: bool = True
    ) -> tuple[int, Mapping[SourcePartition, int | None]] | None:
        self.clock.now = at
        return self.moves.look(self.publish, elastic=elastic)

    @property
    def layout_of_lanes(self) -> dict[int, list[SourcePartition]]:
        return {number: lane.partitions for number, lane in self.lanes.items()}


@pytest.fixture
def link() -> Any:
    """A link whose lanes run."""
    made = Link()
    yield made
    made.moves.stop()


def lose(link: Link, lane: int, at: float) -> None:
    """The worker of a lane is killed, and Spark has no other slot."""
    link.moves.slots.disconnected(lane, at, parted=False)
    link.look(at + 1.0)
    link.moves.slots.ended(lane, crashed=True, now=at + 1.0)
    link.moves.slots.begun(lane, at + 1.2)


def test_a_lane_without_a_slot_lends_its_partitions_and_gets_them_back(link: Link) -> None:
    """The job is cancelled at once, the timeline tells of it, and both moves are fenced generations."""
    lose(link, 2, 100.0)
    assert link.jobs.cancelled == [2]
    assert link.look(100.5 + TOLD_SECONDS) is None
    assert link.states[2] == "queued"
    assert link.look(100.5 + WAIT_SECONDS) is not None
    assert link.layout_of_lanes == {0: [ZERO, TWO], 1: [ONE], 2: []}
    assert [(lane.generation, lane.away) for lane in link.lanes.values()] == [(2, ""), (1, ""), (2, "lent")]
    assert [item.generation for item in link.lanes[0].items] == [0, 2]
    assert link.lane_of == {TWO: 0}
    assert link.timeline == [
        "lane 2 waits for a slot: Spark gives 2 of 3",
        "lane 2 waits for a slot: Spark gives 2 of 3; its partitions are lent to 0",
    ]

    assert link.look(200.0) is None, "Spark has no slot"
    link.moves.slots.found(2, 200.0)
    generation, sources = link.look(202.0) or (0, ())
    assert (generation, set(sources)) == (3, {TWO})
    assert link.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: [TWO]}
    assert [(lane.generation, lane.away) for lane in link.lanes.values()] == [(3, ""), (1, ""), (3, "")]
    assert link.fenced == [(2,), (0,)]
    assert link.timeline[-1] == "lane 2 has a slot, and gets its partitions back"


def test_a_move_that_fails_is_made_again_as_it_was(link: Link) -> None:
    """It may have been published: nothing has the partitions until it is certain, whatever else is due."""
    lose(link, 2, 100.0)
    link.fails = 2
    for at in (110.0, 111.0):
        with pytest.raises(UnreachableError):
            link.look(at)
        assert link.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: []}
        assert link.lanes[2].away == "giving"
    link.moves.slots.disconnected(1, 111.0, parted=False)
    assert link.look(130.0) is not None
    assert link.layout_of_lanes == {0: [ZERO, TWO], 1: [ONE], 2: []}
    assert link.look(130.5) is not None, "the next one"
    assert link.layout_of_lanes == {0: [ZERO, TWO, ONE], 1: [], 2: []}
    assert link.fenced == [(2,), (1,)]


def test_new_partitions_of_a_lane_without_a_slot_go_on_at_once(link: Link) -> None:
    """The owner gives them to the lane that has the fewest; they belong there, and return with the others."""
    lose(link, 2, 100.0)
    link.look(110.0)
    new = SourcePartition("t", 3)
    link.layout = Generation(
        generation=2, revision=1, run="r", highest_lane=2, since=link.layout.since,
        assignment=Assignment(3, {**link.layout.assignment.partitions, new: 2}), timestamp=0,
    )  # fmt: skip
    link.lanes[2].items.append(AssignedPartition(new, "s", "t", "t"))
    assert link.look(110.5) is not None
    assert link.layout_of_lanes == {0: [ZERO, TWO], 1: [ONE, new], 2: []}
    assert link.lanes[2].away == "lent"
    link.moves.slots.found(2, 200.0)
    link.look(202.0)
    assert link.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: [TWO, new]}
    assert link.fenced == [(2,), (2,), (0, 1)]


def test_nothing_is_moved_once_the_link_stops(link: Link) -> None:
    """A publication after the release would take the link again."""
    lose(link, 2, 100.0)
    link.moves.stop()
    assert link.look(200.0) is None
    assert link.fenced == []


def test_a_lane_that_mirrors_for_another_and_loses_its_slot_too(link: Link) -> None:
    """What it got goes on with its own, and each partition returns to the lane that it is of."""
    lose(link, 2, 100.0)
    link.look(110.0)
    assert link.layout_of_lanes == {0: [ZERO, TWO], 1: [ONE], 2: []}
    lose(link, 0, 120.0)
    link.look(130.0)
    assert link.layout_of_lanes == {0: [], 1: [ONE, ZERO, TWO], 2: []}

    link.moves.slots.found(2, 200.0)
    link.look(202.0)
    assert link.layout_of_lanes == {0: [], 1: [ONE, ZERO], 2: [TWO]}
    link.moves.slots.found(0, 300.0)
    link.look(302.0)
    assert link.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: [TWO]}
    assert link.fenced == [(2,), (0,), (1,), (1,)]
    assert {lane.away for lane in link.lanes.values()} == {""}


def test_settings_wait_while_partitions_are_between_two_lanes(link: Link) -> None:
    """A topic that left the link then, and came back, would have two lanes."""
    lose(link, 2, 100.0)
    assert not link.moves.pending
    link.fails = 1
    with pytest.raises(UnreachableError):
        link.look(110.0)
    assert link.moves.pending
    link.look(111.0)
    assert not link.moves.pending


THREE = SourcePartition("t", 3)


@pytest.fixture
def uneven(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A link whose lane 0 has two busy partitions and is behind; lanes 1 and 2 keep up."""
    monkeypatch.setattr(moves_module, "REST_SECONDS", 0.05)
    made = Link(balance=True)
    made.lanes[0].items.append(AssignedPartition(THREE, "s", "t", "t"))
    made.layout = Generation(
        generation=1, revision=1, run="r", highest_lane=2,
        assignment=Assignment(3, {ZERO: 0, ONE: 1, TWO: 2, THREE: 0}), timestamp=0,
    )  # fmt: skip
    yield made
    made.moves.stop()


def until_it_pays(link: Link) -> tuple[int, Mapping[SourcePartition, int | None]] | None:
    """Looks for a window, with lane 0 behind; returns what the last look says."""
    at = link.clock.now
    for number in range(int(WINDOW_SECONDS / LOOK_SECONDS)):
        done = number * 5_000_000
        link.work = {
            ZERO: PartitionLoad(0, done, 6 * done, done, 60.0),
            THREE: PartitionLoad(0, done, 5 * done, done, 60.0),
            ONE: PartitionLoad(1, done, 2 * done, 0, 0.0),
            TWO: PartitionLoad(2, done, done, 0, 0.0),
        }
        assert link.look(at + number * LOOK_SECONDS, elastic=False) is None
    return link.look(at + WINDOW_SECONDS, elastic=False)


def test_a_lane_that_is_behind_gives_partitions_and_goes_on(uneven: Link) -> None:
    """Published, told, claimed, given: the lane is not fenced, and no attempt of it ends."""
    order: list[str] = []
    uneven.lanes[0].claims = lambda lane, number: (order.append("told"), uneven.moves.claimed(lane, number))
    assert until_it_pays(uneven) == (2, {THREE: 2})
    assert uneven.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: [TWO, THREE]}
    assert [(lane.generation, lane.away) for lane in uneven.lanes.values()] == [(2, ""), (1, ""), (2, "")]
    assert uneven.fenced == []
    assert order == ["told"]
    assert uneven.lanes[2].items[-1].generation == 2
    (text,) = uneven.timeline
    assert text.startswith("lane 0 is behind with ")
    assert "lane 2, with " in text
    assert uneven.moves.needs.keys() == {ZERO, ONE, TWO, THREE}


def test_a_lane_that_does_not_claim_the_move_ends_and_is_fenced(uneven: Link) -> None:
    """EO-2: its partitions are given to none before; a claim of an older generation proves nothing."""
    uneven.moves.claimed(0, 1)
    assert until_it_pays(uneven) is None
    assert THREE not in uneven.lane_of
    assert uneven.moves.pending
    assert uneven.look(45.0, elastic=False) is None
    assert uneven.fenced == []
    assert uneven.look(90.0, elastic=False) == (2, {THREE: 2})
    assert uneven.fenced == [(0,)]
    assert uneven.layout.generation == 2, "it was published once"
    assert uneven.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: [TWO, THREE]}
    assert uneven.lanes[0].away == ""


def test_a_lane_in_a_long_transaction_is_waited_for_while_it_runs(uneven: Link) -> None:
    """It mirrors its partitions until then; one that runs no more ends, and its next attempt has the new layout."""
    assert until_it_pays(uneven) is None
    uneven.moves.claimed(0, 2)
    assert uneven.look(45.0, elastic=False) == (2, {THREE: 2})
    assert uneven.fenced == []
    assert uneven.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: [TWO, THREE]}


def test_a_lane_that_runs_no_more_proves_nothing(uneven: Link) -> None:
    """EO-2: it is fenced at once, so that its partitions do not wait for a worker that is lost."""
    assert until_it_pays(uneven) is None
    uneven.moves.slots.ended(0, crashed=True, now=45.0)
    assert uneven.look(45.0, elastic=False) == (2, {THREE: 2})
    assert uneven.fenced == [(0,)]


def test_a_balancing_move_that_fails_takes_nothing_before_it_is_published(uneven: Link) -> None:
    """The lane mirrors its partitions until it is told."""
    uneven.fails = 1
    with pytest.raises(UnreachableError):
        until_it_pays(uneven)
    assert uneven.layout_of_lanes == {0: [ZERO, THREE], 1: [ONE], 2: [TWO]}
    uneven.lanes[0].claims = uneven.moves.claimed
    assert uneven.look(31.0, elastic=False) is not None
    assert uneven.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: [TWO, THREE]}
    assert uneven.fenced == []


OTHER = SourcePartition("other", 0)


@pytest.fixture
def leaving(link: Link) -> Link:
    """A link whose lane 0 has a partition of another topic as well."""
    link.lanes[0].items.append(AssignedPartition(OTHER, "s", "other", "t"))
    link.layout = moved(
        Generation(
            generation=0, revision=1, run="r", highest_lane=2,
            assignment=Assignment(3, {ZERO: 0, ONE: 1, TWO: 2, OTHER: 0}), timestamp=0,
        ), {}, givers=[], now_ms=0,
    )  # fmt: skip
    return link


def test_a_topic_that_leaves_is_parked_and_its_lane_goes_on(leaving: Link) -> None:
    """EO-2: no attempt ends; it is parked for good once the lane has claimed a generation without it."""
    leaving.lanes[0].claims = leaving.moves.claimed
    assert leaving.moves.park({"other", "unknown"}) == {"other"}
    assert leaving.moves.pending
    assert not leaving.moves.parked({"other"})
    assert leaving.look(1.0, elastic=False) == (2, {OTHER: None})
    assert leaving.layout.assignment == Assignment(3, {ZERO: 0, ONE: 1, TWO: 2}, frozenset({OTHER}))
    assert leaving.layout_of_lanes == {0: [ZERO], 1: [ONE], 2: [TWO]}
    assert [lane.generation for lane in leaving.lanes.values()] == [2, 1, 1]
    assert leaving.fenced == []
    assert leaving.moves.parked({"other"})
    assert leaving.moves.park({"unknown"}) == set()
    assert not leaving.moves.pending


@pytest.mark.parametrize("claiming", [True, False])
def test_a_lane_that_has_nothing_left_or_claims_nothing_is_fenced(leaving: Link, *, claiming: bool) -> None:
    """An attempt without partitions would end, and a query makes no claims: both rest until the fence."""
    leaving.moves.start(leaving.jobs, claiming=claiming)  # type: ignore[arg-type]
    topics, givers = ({"t"}, (0, 1, 2)) if claiming else ({"other"}, (0,))
    assert leaving.moves.park(topics) == topics
    assert all(leaving.lanes[lane].away == "giving" for lane in givers)
    leaving.fails = 1
    with pytest.raises(UnreachableError):
        leaving.look(1.0, elastic=False)
    assert leaving.moves.pending
    assert leaving.look(2.0, elastic=False) is not None
    assert leaving.fenced == [givers]
    assert {lane.away for lane in leaving.lanes.values()} == {""}
    assert leaving.layout_of_lanes == (
        {0: [OTHER], 1: [], 2: []} if claiming else {0: [ZERO], 1: [ONE], 2: [TWO]}
    )


def test_a_lane_whose_topics_left_while_it_waits_for_a_slot_holds_no_other_up(link: Link) -> None:
    """It is due as long as it waits, and has nothing to lend."""
    lose(link, 1, 100.0)
    lose(link, 2, 100.5)
    link.lanes[1].items.clear()
    assert link.look(110.0) is None
    assert link.jobs.cancelled[-1] == 1
    assert link.look(111.0) == (2, {TWO: 0})


def test_lanes_are_not_balanced_unless_the_link_says_so(link: Link) -> None:
    """Off is the default, and what is not measured spreads no new partition."""
    assert until_it_pays(link) is None
    assert link.moves.needs == {}
