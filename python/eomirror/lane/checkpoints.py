"""
What a lane does with the offsets of followed groups: pure, words of the driver in, checkpoints out.

The lane is the only writer of checkpoints for its partitions, and its fencing is theirs (rule 2).  The driver tells
it where groups stand on the source.  What follows depends on the lane's position:

* the group is ahead of it: the checkpoint waits for the transaction that mirrors the records in between, and is
  written into that one; a group that moves on meanwhile is waited for at the first such offset and at the newest, for a
  lane that lags behind it would otherwise reach none;
* the group is behind it, and the lane has mirrored the records there itself: they are committed, so the
  checkpoint goes into the lane's next transaction, or one of its own;
* it stands further back than the lane remembers: the lane says so, the driver looks into the committed
  offset map and comes back with the answer.

So a checkpoint never names an offset whose record is not committed on the target, or by the same transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror._native import PartitionMap
from eomirror.records.mm2 import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eomirror.lane.spec import GroupOffset
    from eomirror.plane.protocol import Account
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["Checkpoints", "PlannedCheckpoints"]

# ranges that a lane remembers in all, 24 bytes each; a partition begins anew when its share is full
_REMEMBERED = 400_000
_LEAST = 1_000
# one transaction stays small, whatever the number of groups
_MOST_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class PlannedCheckpoints:
    """
    Checkpoints of one transaction.

    Attributes:
        offsets: Where the groups stand, with the target offsets that the checkpoints name.
        checkpoints: As MM2 writes them, in the same order.
        unknown: Offsets that waited for this transaction and cannot be translated after all.
        stopped: Offsets in topics that the lane has stopped; nobody waits for them any more.
    """

    offsets: Sequence[GroupOffset]
    checkpoints: Sequence[Checkpoint]
    unknown: Sequence[GroupOffset]
    stopped: Sequence[GroupOffset] = ()


class _Memory:
    """The offset map of a partition from ``since`` on, without a hole."""

    __slots__ = ("map", "since")

    def __init__(self, since: int) -> None:
        self.map = PartitionMap()
        self.since = since


_Key = tuple[str, str, int]


class Checkpoints:
    """
    The followed groups of a lane's partitions.

    Args:
        partitions: How many partitions the lane has, about; they share the memory.
    """

    def __init__(self, partitions: int) -> None:
        self._share = max(_LEAST, _REMEMBERED // max(1, partitions))
        self._memories: dict[SourcePartition, _Memory] = {}
        # in the order in which the lane comes to them: one, or the nearest and the newest
        self._waiting: dict[SourcePartition, dict[str, tuple[GroupOffset, ...]]] = {}
        self._ready: dict[_Key, GroupOffset] = {}
        self._answers: list[GroupOffset] = []

    @property
    def ready(self) -> bool:
        """Whether a checkpoint could be written now."""
        return bool(self._ready)

    @property
    def topics(self) -> set[str]:
        """Source topics of the checkpoints that could be written now."""
        return {item.source.topic for item in self._ready.values()}

    def update(self, offsets: Iterable[GroupOffset], positions: Mapping[SourcePartition, Position]) -> bool:
        """
        The driver says where groups stand; a later word on a group and partition replaces an earlier one.

        But for an offset before it that the lane has not come to: see at the top.

        Args:
            offsets: What it says; with a target offset where it has looked that up.
            positions: As committed.

        Returns:
            Whether there is a checkpoint to write that was not there before: what is not confirmed is told again.
        """
        news = False
        for item in offsets:
            key = _key(item)
            before = self._ready.pop(key, None)
            waited = self._waiting.get(item.source, {}).pop(item.group, ())
            position = positions.get(item.source)
            if position is None:
                # its topic is stopped
                continue
            if before is not None and before.upstream < item.upstream:
                # behind where it is, until something better is known
                self._ready[key] = before
            if item.downstream is None and item.upstream > position.offset:
                # of one that went back nothing holds that lies behind where it is now
                nearest = tuple(one for one in waited if one.upstream < item.upstream)[:1]
                self._waiting.setdefault(item.source, {})[item.group] = (*nearest, item)
                continue
            if item.downstream is None:
                item = replace(item, downstream=self._remembered(position, item.upstream))  # noqa: PLW2901  the same, completed
            if item.downstream is None:
                self._answers.append(item)
            else:
                self._ready[key] = item
                news = news or item != before
        return news

    def plan(
        self,
        moved: Iterable[Position],
        chunks: Iterable[Account],
        positions: Mapping[SourcePartition, Position],
        sound: Callable[[Position], bool],
    ) -> PlannedCheckpoints:
        """
        Checkpoints for a transaction; changes nothing.

        Args:
            moved: Positions that it will hold.
            chunks: Accounts whose ranges it will hold.
            positions: As committed before.
            sound: Whether both topics of a position are still those that it speaks of.
        """
        ranges = {account.source: account for account in chunks}
        offsets: list[GroupOffset] = []
        unknown: list[GroupOffset] = []
        stopped: list[GroupOffset] = []
        targets: dict[SourcePartition, Position] = {}
        unsound: set[SourcePartition] = set()
        # those that must wait do not keep the others waiting
        for item in self._ready.values():
            if len(offsets) == _MOST_AT_ONCE:
                break
            there = positions.get(item.source)
            if there is None:
                stopped.append(item)
            elif item.source in targets or (item.source not in unsound and sound(there)):
                targets[item.source] = there
                offsets.append(item)
            else:
                unsound.add(item.source)
        for position in moved:
            targets[position.source] = position
            waiting = self._waiting.get(position.source)
            if not waiting:
                continue
            account = ranges.get(position.source)
            for items in waiting.values():
                reached = [item for item in items if item.upstream <= position.offset]
                for item in reached[-1:]:
                    at = _in_transaction(item.upstream, position, account)
                    (unknown if at is None else offsets).append(replace(item, downstream=at))
        checkpoints = [_checkpoint(item, targets[item.source]) for item in offsets]
        return PlannedCheckpoints(offsets, checkpoints, unknown, stopped)

    def committed(
        self, plan: PlannedCheckpoints, moved: Iterable[Position], chunks: Iterable[Account]
    ) -> None:
        """The transaction that ``plan`` was made for is committed."""
        for item in (*plan.offsets, *plan.unknown):
            self._answers.append(item)
            waiting = self._waiting.get(item.source, {})
            waited = waiting.pop(item.group, ())
            if left := tuple(one for one in waited if one.upstream > item.upstream):
                waiting[item.group] = left
            known = self._ready.get(_key(item))
            # what is ready behind one that was waited for has had no place in the transaction, and would undo it
            behind = item.downstream is not None and any(one.upstream == item.upstream for one in waited)
            if known is not None and (
                known.upstream == item.upstream or (behind and known.upstream < item.upstream)
            ):
                del self._ready[_key(item)]
        for item in plan.stopped:
            if self._ready.get(_key(item)) is item:
                del self._ready[_key(item)]
        before = {position.source: position for position in moved}
        for account in chunks:
            self._remember(account, before[account.source])

    def take_answers(self) -> tuple[GroupOffset, ...]:
        """What became of offsets since the last call: committed, or (without a target offset) not remembered."""
        answers, self._answers = tuple(self._answers), []
        return answers

    def forget(self) -> None:
        """The lane begins again from what the target says; what it was told still holds."""
        self._memories.clear()

    def _remember(self, account: Account, position: Position) -> None:
        memory = self._memories.get(account.source)
        if memory is None or memory.map.ranges() > self._share:
            since = account.first_source_offset if position.prev is None else position.prev
            memory = self._memories[account.source] = _Memory(since)
        memory.map.take_in(account.offset_map, position.target_topic, position.target_partition)

    def _remembered(self, position: Position, offset: int) -> int | None:
        """Target offset of the next mirrored record at or behind a source offset that is not beyond the position."""
        if offset == position.offset:
            return None if position.target_offset is None else position.target_offset + 1
        memory = self._memories.get(position.source)
        if memory is None or offset < memory.since:
            return None
        return _next_in(memory.map, offset, position)


def _in_transaction(offset: int, position: Position, account: Account | None) -> int | None:
    """Likewise, for an offset within the transaction that moves the position to where it is."""
    if position.prev is not None and offset < position.prev:
        return None
    map_ = PartitionMap()
    if account is not None:
        map_.take_in(account.offset_map, position.target_topic, position.target_partition)
    return _next_in(map_, offset, position)


def _next_in(map_: PartitionMap, offset: int, position: Position) -> int | None:
    kind, at = map_.to_target(offset, position.offset)
    if kind in {"exact", "next"}:
        return at
    if kind == "before":
        # nothing was mirrored between the offset and the map's first record
        return map_.to_target(at, position.offset)[1]
    if kind == "nothing" and position.target_offset is not None:
        return position.target_offset + 1
    return None


def _checkpoint(item: GroupOffset, position: Position) -> Checkpoint:
    if item.downstream is None:
        raise AssertionError("only translated offsets are planned")
    return Checkpoint(
        item.group,
        position.target_topic,
        position.target_partition,
        item.upstream,
        item.downstream,
        item.metadata,
    )


def _key(item: GroupOffset) -> _Key:
    return (item.group, *item.source)
