"""
Decides when partitions go from a lane that is behind to one that keeps up. Pure; docs/adr/0035.

A move pays if all of this holds for a window of `WINDOW_SECONDS`::

    the lane that gives      is behind by `BEHIND_SECONDS` at every look, and does not catch up soon on its own
    the lane that gets       runs, and is behind at no look
    the fuller of the two    has a fifth less to do afterwards (`GAIN`), by bytes a second
    the partitions           have not moved for `KEPT_SECONDS`, and no others have for `REST_SECONDS`

What a partition needs is what was mirrored of it, and what its lag has grown by.  Lanes that keep up are never
balanced: a move makes nothing faster there.  Every move lowers the load of the fuller of two lanes by `GAIN`, so with
steady traffic they come to an end; with other traffic a partition moves once in `KEPT_SECONDS`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.status.work import PartitionLoad
    from eomirror.types import SourcePartition

__all__ = [
    "BEHIND_SECONDS",
    "GAIN",
    "KEPT_SECONDS",
    "LOOK_SECONDS",
    "MOST",
    "REST_SECONDS",
    "WINDOW_SECONDS",
    "Balance",
    "Shift",
    "pays",
]

#: Time between two looks.
LOOK_SECONDS = 5.0

#: Time that a decision looks back on.
WINDOW_SECONDS = 30.0

#: Age of a lane's oldest record that is not mirrored, from which on the lane is behind.
BEHIND_SECONDS = 5.0

#: A lane that will have caught up in this time at its present pace keeps its partitions.
SOON_SECONDS = 60.0

#: Share of its load that the fuller of the two lanes must lose: a move pauses what moves for about a second.
GAIN = 0.2

#: Time after a move in which nothing is measured.
REST_SECONDS = 60.0

#: Time for which a partition stays where it was moved to.
KEPT_SECONDS = 600.0

#: Partitions that move at once, at most: they fit into one message to the lane.
MOST = 100

# partitions that need less than this share of what is to move stay: each costs, and none of them helps
_WORTH = 0.02


class Shift(NamedTuple):
    """
    A move of partitions that pays.

    Attributes:
        giver: Lane that is behind.
        getter: Lane that keeps up.
        sources: Partitions that move.
        moved: Bytes a second that they need.
        loads: Bytes a second that giver and getter need before.
    """

    giver: int
    getter: int
    sources: tuple[SourcePartition, ...]
    moved: float
    loads: tuple[float, float]


def pays(
    needs: Mapping[SourcePartition, float],
    lane_of: Mapping[SourcePartition, int],
    *,
    behind: Collection[int],
    room: Collection[int],
    kept: Collection[SourcePartition] = (),
) -> Shift | None:
    """
    Returns the move that helps the fullest lane that can be helped; None if none pays.

    Args:
        needs: Bytes a second that each partition needs.
        lane_of: Lane of each partition.
        behind: Lanes that are behind.
        room: Lanes that keep up.
        kept: Partitions that stay.
    """
    load: defaultdict[int, float] = defaultdict(float)
    for source, lane in lane_of.items():
        load[lane] += needs.get(source, 0.0)
    getter = min(room, key=lambda lane: (load[lane], lane), default=None)
    if getter is None:
        return None
    empty = load[getter]
    for giver in sorted(behind, key=lambda lane: (-load[lane], lane)):
        full = load[giver]
        movable = {
            source: needs.get(source, 0.0)
            for source, lane in lane_of.items()
            if lane == giver and source not in kept
        }
        sources = _chosen(movable, full, empty)
        moved = sum(movable[source] for source in sources)
        if sources and max(full - moved, empty + moved) <= (1 - GAIN) * full:
            return Shift(giver, getter, sources, moved, (full, empty))
    return None


def _chosen(
    movable: Mapping[SourcePartition, float], full: float, empty: float
) -> tuple[SourcePartition, ...]:
    """Returns the partitions that even two lanes out best: many up to half of their difference, or one beyond it."""
    half = (full - empty) / 2
    fit: list[SourcePartition] = []
    left = half
    beyond: SourcePartition | None = None
    # the largest first, so that few move
    for source in sorted(movable, key=lambda one: (-movable[one], one)):
        need = movable[source]
        if need > half:
            beyond = source
        elif _WORTH * half < need <= left and len(fit) < MOST:
            fit.append(source)
            left -= need
    # what remains of the difference after each
    if beyond is not None and movable[beyond] - half < left:
        return (beyond,)
    return tuple(fit)


class Balance:
    """
    Looks at the lanes of one link, and says when a move pays.  One thread looks.

    Attributes:
        needs: Bytes a second that each partition needs, by the last look at a whole window; for new partitions, which
            go to the lane that needs the least.
    """

    def __init__(self) -> None:
        self.needs: Mapping[SourcePartition, float] = {}
        self._looks: deque[tuple[float, Mapping[SourcePartition, PartitionLoad]]] = deque()
        self._next = float("-inf")
        self._moved: dict[SourcePartition, float] = {}

    def due(self, now: float) -> bool:
        """Returns True if it is time to look."""
        return now >= self._next

    def disturbed(self, now: float) -> None:
        """Measures from here on: lanes were lost, or got partitions for another reason."""
        self._looks.clear()
        self._next = now + LOOK_SECONDS

    def look(
        self, loads: Mapping[SourcePartition, PartitionLoad], running: Collection[int], now: float
    ) -> Shift | None:
        """
        Takes a look; returns a move that pays, or None.

        Args:
            loads: Work on each partition that is mirrored.
            running: Lanes that run.
            now: Monotonic seconds.
        """
        self._next = now + LOOK_SECONDS
        self._looks.append((now, loads))
        while len(self._looks) > 1 and self._looks[1][0] <= now - WINDOW_SECONDS:
            self._looks.popleft()
        begin, before = self._looks[0]
        if now - begin < WINDOW_SECONDS:
            return None
        self.needs = _needs(before, loads, now - begin)
        ages = [_ages(seen) for _, seen in self._looks]
        slow = {lane for lane in running if all(age.get(lane, 0.0) >= BEHIND_SECONDS for age in ages)}
        shift = pays(
            self.needs,
            {source: load.lane for source, load in loads.items()},
            behind={lane for lane in slow if not _catches_up(lane, before, loads, now - begin)},
            room={
                lane for lane in running if all(lane in age and age[lane] < BEHIND_SECONDS for age in ages)
            },
            kept={source for source, at in self._moved.items() if now - at < KEPT_SECONDS},
        )
        if shift is not None:
            self._looks.clear()
            self._next = now + REST_SECONDS
            self._moved.update(dict.fromkeys(shift.sources, now))
        return shift


def _needs(
    before: Mapping[SourcePartition, PartitionLoad],
    after: Mapping[SourcePartition, PartitionLoad],
    seconds: float,
) -> dict[SourcePartition, float]:
    """Returns the bytes a second that each partition needs: those mirrored, and the records that its lag grew by."""
    records, size = (sum(getattr(load, name) for load in after.values()) for name in ("records", "bytes"))
    usual = size / records if records else 1.0
    needs = {}
    for source, load in after.items():
        earlier = before.get(source)
        if earlier is None or earlier.lane != load.lane:
            continue
        mean = load.bytes / load.records if load.records else usual
        grown = max(0, (load.lag or 0) - (earlier.lag or 0))
        needs[source] = (max(0, load.bytes - earlier.bytes) + grown * mean) / seconds
    return needs


def _ages(loads: Mapping[SourcePartition, PartitionLoad]) -> dict[int, float]:
    """Returns how far each lane is behind, in seconds."""
    ages: dict[int, float] = {}
    for load in loads.values():
        ages[load.lane] = max(ages.get(load.lane, 0.0), load.behind)
    return ages


def _catches_up(
    lane: int,
    before: Mapping[SourcePartition, PartitionLoad],
    after: Mapping[SourcePartition, PartitionLoad],
    seconds: float,
) -> bool:
    """Returns True if a lane will soon have caught up at the pace of the last ``seconds``."""
    was, left = (
        sum(load.lag or 0 for load in loads.values() if load.lane == lane) for loads in (before, after)
    )
    return left * seconds <= (was - left) * SOON_SECONDS
