"""
Plans checkpoints of followed groups. Pure: offsets from the driver in, checkpoints out.

The lane is the only writer of checkpoints for its partitions, so its fencing protects them too (EO-2).  The driver
reports the source offsets of groups.  The lane compares each with its own position:

* The group is ahead.  The checkpoint waits for the transaction that mirrors the records in between, and is written into
  it.  If the group moves meanwhile, the lane keeps the first such offset and the newest one: a lane that lags would
  never reach the newest alone.
* The group is behind, and the lane has mirrored the records there in this attempt.  They are committed, so the
  checkpoint goes into the lane's next transaction, or into one of its own.
* The group is behind the oldest range that the lane remembers.  The lane answers that it cannot translate the offset.
  The driver reads the committed offset map and sends the offset again, translated.

A checkpoint therefore never names an offset whose record is not committed on the target before it or with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror._native import PartitionMap
from eomirror.records.mm2 import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.lane.spec import GroupOffset
    from eomirror.plane.protocol import Account
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["Checkpoints", "PlannedCheckpoints"]

# remembered ranges of the whole lane, 24 bytes each; a partition starts over when its share is full
_REMEMBERED = 400_000
_LEAST = 1_000
# one transaction stays small, whatever the number of groups
_MOST_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class PlannedCheckpoints:
    """
    Checkpoints of one transaction.

    Attributes:
        offsets: Source offsets of groups, with the target offsets that the checkpoints name.
        checkpoints: As MM2 writes them, in the same order.
        unknown: Offsets that waited for this transaction but cannot be translated.
        stopped: Offsets in topics that the lane has stopped.
    """

    offsets: Sequence[GroupOffset]
    checkpoints: Sequence[Checkpoint]
    unknown: Sequence[GroupOffset]
    stopped: Sequence[GroupOffset] = ()


class _Memory:
    """Offset map of a partition from ``since`` on, without a gap."""

    __slots__ = ("map", "since")

    def __init__(self, since: int) -> None:
        self.map = PartitionMap()
        self.since = since


_Key = tuple[str, str, int]


class Checkpoints:
    """
    Tracks the followed groups of a lane's partitions.

    Args:
        partitions: Approximate number of partitions of the lane; they share the memory.
    """

    def __init__(self, partitions: int) -> None:
        self._share = max(_LEAST, _REMEMBERED // max(1, partitions))
        self._memories: dict[SourcePartition, _Memory] = {}
        # in offset order: one, or the nearest and the newest
        self._waiting: dict[SourcePartition, dict[str, tuple[GroupOffset, ...]]] = {}
        self._ready: dict[_Key, GroupOffset] = {}
        self._answers: list[GroupOffset] = []

    @property
    def ready(self) -> bool:
        """Returns whether a checkpoint could be written now."""
        return bool(self._ready)

    @property
    def topics(self) -> set[str]:
        """Source topics of the checkpoints that could be written now."""
        return {item.source.topic for item in self._ready.values()}

    def update(self, offsets: Iterable[GroupOffset], positions: Mapping[SourcePartition, Position]) -> bool:
        """
        Records the source offsets of groups; a later offset of a group and partition replaces an earlier one.

        The exception is an earlier offset that the lane has not reached yet: see the module.

        Args:
            offsets: As reported by the driver; translated where the driver has looked them up.
            positions: Committed positions.

        Returns:
            Whether a checkpoint became ready that was not ready before; the driver repeats unconfirmed offsets.
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
                # an earlier checkpoint is still correct, only not the newest
                self._ready[key] = before
            if item.downstream is None and item.upstream > position.offset:
                # after a group was reset, later offsets that it had waited for are void
                nearest = tuple(one for one in waited if one.upstream < item.upstream)[:1]
                self._waiting.setdefault(item.source, {})[item.group] = (*nearest, item)
                continue
            if item.downstream is None:
                item = replace(item, downstream=self._translate_remembered(position, item.upstream))  # noqa: PLW2901  the same, completed
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
        Returns the checkpoints for a transaction; changes nothing.

        Args:
            moved: Positions that the transaction will hold.
            chunks: Accounts whose ranges the transaction will hold.
            positions: Committed positions.
            sound: Whether both topics of a position still have the ids that it names.
        """
        ranges = {account.source: account for account in chunks}
        offsets: list[GroupOffset] = []
        unknown: list[GroupOffset] = []
        stopped: list[GroupOffset] = []
        targets: dict[SourcePartition, Position] = {}
        unsound: set[SourcePartition] = set()
        # an unsound partition does not hold up the others
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
                    at = _translate_in_transaction(item.upstream, position, account)
                    (unknown if at is None else offsets).append(replace(item, downstream=at))
        checkpoints = [_checkpoint(item, targets[item.source]) for item in offsets]
        return PlannedCheckpoints(offsets, checkpoints, unknown, stopped)

    def committed(
        self, plan: PlannedCheckpoints, moved: Iterable[Position], chunks: Iterable[Account]
    ) -> None:
        """Records that the transaction of ``plan`` is committed."""
        for item in (*plan.offsets, *plan.unknown):
            self._answers.append(item)
            waiting = self._waiting.get(item.source, {})
            waited = waiting.pop(item.group, ())
            if left := tuple(one for one in waited if one.upstream > item.upstream):
                waiting[item.group] = left
            known = self._ready.get(_key(item))
            # an older ready offset that did not fit into the transaction would overwrite the newer checkpoint
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
        """Returns the results since the last call: committed offsets, and untranslated ones without a target offset."""
        answers, self._answers = tuple(self._answers), []
        return answers

    def release(self, sources: Collection[SourcePartition]) -> None:
        """Forgets partitions that another lane gets, to which the driver reports the groups again."""
        for source in sources:
            self._memories.pop(source, None)
            self._waiting.pop(source, None)
        self._ready = {key: item for key, item in self._ready.items() if item.source not in sources}

    def forget(self) -> None:
        """Forgets remembered ranges when the lane recovers; reported offsets are kept."""
        self._memories.clear()

    def _remember(self, account: Account, position: Position) -> None:
        memory = self._memories.get(account.source)
        if memory is None or memory.map.ranges() > self._share:
            since = account.first_source_offset if position.prev is None else position.prev
            memory = self._memories[account.source] = _Memory(since)
        memory.map.take_in(account.offset_map, position.target_topic, position.target_partition)

    def _translate_remembered(self, position: Position, offset: int) -> int | None:
        """Returns the target offset of the next mirrored record at or after a source offset up to the position."""
        if offset == position.offset:
            return None if position.target_offset is None else position.target_offset + 1
        memory = self._memories.get(position.source)
        if memory is None or offset < memory.since:
            return None
        return _translate(memory.map, offset, position)


def _translate_in_transaction(offset: int, position: Position, account: Account | None) -> int | None:
    """Returns the same for an offset inside the transaction that moves the position."""
    if position.prev is not None and offset < position.prev:
        return None
    map_ = PartitionMap()
    if account is not None:
        map_.take_in(account.offset_map, position.target_topic, position.target_partition)
    return _translate(map_, offset, position)


def _translate(map_: PartitionMap, offset: int, position: Position) -> int | None:
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
