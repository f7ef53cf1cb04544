"""
Decides from the committed offsets of groups on both clusters which checkpoints and offsets to write. Pure.

`GroupBook` remembers every followed group and partition.  Its entries go through these states::

    seen on the source -> sent to the lane -> committed as a checkpoint -> (if wanted) committed for the group there
                               |    ^
                   unknown to  |    | translated from the committed offset map
                     the lane  v    |
                            looked up

An entry that is not confirmed is sent again after `RESEND_SECONDS`: connections break, lanes end.  A checkpoint that
is written twice does no harm.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eomirror.groups.offset_rule import has_members, ruling
from eomirror.lane.spec import GroupOffset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from eomirror.groups.translation import OtherRecords
    from eomirror.kafka.consumer_groups import Committed, TargetGroup, TargetPartition
    from eomirror.types import SourcePartition

__all__ = [
    "ASK_AGAIN_SECONDS",
    "GONE_SECONDS",
    "MOST_REREADS",
    "RESEND_SECONDS",
    "WAITS",
    "DeletedGroups",
    "GroupBook",
    "GroupsSnapshot",
    "MirroredPartitions",
    "SyncDecision",
    "decide_deletion",
    "decide_sync",
]

#: Seconds after which an entry is sent again to a lane that has not answered.
RESEND_SECONDS = 5.0

#: Seconds between lookups of the first record of a partition without mirrored records.
ASK_AGAIN_SECONDS = 10.0

#: Seconds for which the source must report a group without offsets before that is believed.
GONE_SECONDS = 10.0

#: Groups whose records to be read again are told by name.
MOST_REREADS = 20

#: Reason for an offset without a checkpoint that only waits for the mirror.
WAITS = "waiting for the mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSnapshot:
    """
    Progress of following consumer groups.

    Attributes:
        followed: Groups with an offset in a mirrored partition.
        age_seconds: Time since the last look at the source; None before the first answer.
        pending: Offsets without a checkpoint yet, by reason.
        skipped: Groups that are not moved, by reason.
        rereads: Source offsets from its checkpoints to its commits, as of the last look, of the groups with most.
        moved: Number of commits for groups on the target.
        deleted: Number of groups deleted on the target, because they were deleted on the source.
        error: Reason that groups are not followed at this moment; empty while they are.
    """

    followed: int = 0
    age_seconds: float | None = None
    pending: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    rereads: Mapping[str, int] = field(default_factory=dict)
    moved: int = 0
    deleted: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class MirroredPartitions:
    """
    Partitions that the link mirrors.

    Attributes:
        lanes: Lane of every partition.
        stopped: Stopped source topics.
    """

    lanes: Mapping[SourcePartition, int]
    stopped: Collection[str]


class _Entry:
    """One group in one partition."""

    __slots__ = (
        "ask_at", "checkpoint", "confirmed", "downstream", "looked_up", "metadata", "seen", "sent", "upstream", "why",
    )  # fmt: skip

    def __init__(self, committed: Committed, now: float, checkpoint: GroupOffset | None = None) -> None:
        self.upstream = committed.offset
        self.metadata = committed.metadata
        self.seen = now
        self.sent = float("-inf")
        self.downstream: int | None = None
        self.confirmed = False
        # When the lane reported that it does not remember the offset.
        self.looked_up = False
        # When the map may be asked: an unsuccessful lookup reads all of it.
        self.ask_at = float("-inf")
        self.why = WAITS
        # The last one that was committed: a busy group has always moved on by the time of the commit.
        self.checkpoint = checkpoint


def _unknown_to_lane(entry: _Entry | None) -> bool:
    """
    Returns True if the lane does not remember the group's offset, and it has not been looked up yet.

    A lane's answer comes after a look, and by the next look a busy group has moved on: its new offset is then looked up
    instead, or none of its offsets would ever be.  After that the lane is asked again.
    """
    return entry is not None and entry.looked_up and entry.downstream is None and entry.why == WAITS


def _behind(entry: _Entry | None, committed: Committed) -> GroupOffset | None:
    """Returns the last checkpoint, unless the group went back behind it and wants to read records again."""
    checkpoint = None if entry is None else entry.checkpoint
    return checkpoint if checkpoint is not None and checkpoint.upstream <= committed.offset else None


def _reread(entries: Iterable[_Entry]) -> int | None:
    """Returns the offsets from checkpoints to commits; None if an entry has no checkpoint."""
    total = 0
    for entry in entries:
        if entry.confirmed:
            continue
        if entry.checkpoint is None:
            return None
        total += entry.upstream - entry.checkpoint.upstream
    return total


class GroupBook:
    """Tracks every followed group and partition.  Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[SourcePartition, _Entry]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def observe(
        self, group: str, offsets: Mapping[SourcePartition, Committed], now: float
    ) -> frozenset[SourcePartition]:
        """
        Records the offsets of a group on the source.

        Args:
            offsets: All of its committed offsets in mirrored partitions.
            now: Monotonic seconds.

        Returns:
            Partitions in which it has no offset any more.
        """
        known = self._groups.setdefault(group, {})
        for source, committed in offsets.items():
            entry = known.get(source)
            if entry is None or (entry.upstream, entry.metadata) != (committed.offset, committed.metadata):
                known[source] = made = _Entry(committed, now, _behind(entry, committed))
                made.looked_up = _unknown_to_lane(entry)
        gone = frozenset(known.keys() - offsets.keys())
        for source in gone:
            del known[source]
        if not known:
            del self._groups[group]
        return gone

    def keep_only(self, groups: Collection[str]) -> None:
        """Forgets all other groups, which the source does not know any more."""
        for group in self._groups.keys() - set(groups):
            del self._groups[group]

    def to_send(
        self, lanes: Mapping[SourcePartition, int], stopped: Collection[str], now: float
    ) -> dict[int, list[GroupOffset]]:
        """
        Returns the offsets to send to each lane.

        Args:
            lanes: Lane of every mirrored partition.
            stopped: Stopped source topics.
            now: Monotonic seconds.
        """
        sent: dict[int, list[GroupOffset]] = {}
        for group, source, entry in self._entries():
            lane = lanes.get(source)
            if entry.confirmed or lane is None or now - entry.sent < RESEND_SECONDS:
                continue
            if source.topic in stopped:
                entry.why = "its topic is stopped"
                continue
            if entry.looked_up and entry.downstream is None:
                continue
            entry.sent = now
            item = GroupOffset(group, source, entry.upstream, entry.downstream, entry.metadata)
            sent.setdefault(lane, []).append(item)
        return sent

    def forget(self, partitions: Collection[SourcePartition]) -> None:
        """Forgets the offsets and checkpoints of these partitions."""
        for group, source, _ in list(self._entries()):
            if source in partitions:
                del self._groups[group][source]

    def forget_sent(self, partitions: Collection[SourcePartition]) -> None:
        """Forgets which offsets of these partitions were sent: their lane was restarted."""
        for _, source, entry in self._entries():
            if source in partitions and not entry.confirmed:
                entry.sent = entry.ask_at = float("-inf")

    def answered(self, items: Iterable[GroupOffset]) -> list[GroupOffset]:
        """
        Records the answers of a lane.

        Returns:
            Offsets that are committed as checkpoints.
        """
        committed = []
        for item in items:
            entry = self._groups.get(item.group, {}).get(item.source)
            if entry is None:
                continue
            now_there = entry.upstream == item.upstream
            if item.downstream is None:
                entry.looked_up |= now_there
                continue
            if now_there:
                entry.downstream, entry.confirmed, entry.why = item.downstream, True, ""
                item = replace(item, metadata=entry.metadata)  # noqa: PLW2901  says more
            elif item.upstream > entry.upstream or (
                entry.checkpoint is not None and entry.checkpoint.upstream >= item.upstream
            ):
                # The group has gone back since and reads records again; or a later checkpoint is known.
                continue
            entry.checkpoint = item
            committed.append(item)
        return committed

    def questions(self, now: float) -> list[tuple[str, SourcePartition, int]]:
        """Returns group, partition and source offset of each lookup that is due at this monotonic second."""
        return [
            (group, source, entry.upstream)
            for group, source, entry in self._entries()
            if entry.looked_up and entry.downstream is None and not entry.confirmed and now >= entry.ask_at
        ]

    def found(
        self,
        group: str,
        source: SourcePartition,
        upstream: int,
        downstream: int | None,
        why: str = "",
        *,
        ask_at: float = float("inf"),
    ) -> None:
        """
        Records an answer of the offset map.

        Args:
            upstream: The source offset that was looked up.
            downstream: Its target offset; None if unknown.
            why: Reason for an unknown offset; empty for one that may become known.
            ask_at: Time of the next lookup if the reason may change.
        """
        entry = self._groups.get(group, {}).get(source)
        if entry is None or entry.upstream != upstream:
            return
        entry.downstream = downstream
        entry.sent = float("-inf")
        if downstream is None:
            entry.why = why or entry.why
            # An offset that is unknown for a reason is looked up again only after a change.
            entry.looked_up = bool(why)
            entry.ask_at = ask_at if why else entry.ask_at

    def checkpoints(self, group: str) -> dict[SourcePartition, GroupOffset]:
        """Returns a group's newest committed checkpoints, which may lag behind its offsets."""
        return {
            source: entry.checkpoint
            for source, entry in self._groups.get(group, {}).items()
            if entry.checkpoint is not None
        }

    def groups(self) -> list[str]:
        """Returns all followed groups, sorted."""
        return sorted(self._groups)

    def pending(self) -> dict[str, int]:
        """Returns the number of offsets without a checkpoint, by reason."""
        counts: dict[str, int] = {}
        for _, _, entry in self._entries():
            if not entry.confirmed:
                counts[entry.why] = counts.get(entry.why, 0) + 1
        return counts

    def rereads(self, most: int = MOST_REREADS) -> dict[str, int]:
        """
        Returns the source offsets that groups would read again if they resumed from their checkpoints now.

        Args:
            most: Number of groups, those that would read most.

        Returns:
            Group -> offsets from its checkpoints to its commits, without groups that lack a checkpoint (`pending`).
        """
        again = {
            group: offsets
            for group, entries in self._groups.items()
            if (offsets := _reread(entries.values())) is not None
        }
        first = heapq.nsmallest(most, again, key=lambda group: (-again[group], group))
        return {group: again[group] for group in first}

    def _entries(self) -> Iterator[tuple[str, SourcePartition, _Entry]]:
        for group, partitions in self._groups.items():
            for source, entry in partitions.items():
                yield group, source, entry


@dataclass(frozen=True, slots=True)
class SyncDecision:
    """
    Decision about a group on the target.

    Attributes:
        write: Offsets to commit, all in one request; empty for none.
        skipped: Reason that some or all are not written; empty if all are.
    """

    write: Mapping[TargetPartition, Committed]
    skipped: str = ""


def decide_sync(
    wanted: Mapping[TargetPartition, Committed],
    there: TargetGroup,
    placed: Mapping[TargetPartition, int],
    *,
    rewind: str,
    renew: bool,
    others: Mapping[TargetPartition, OtherRecords] | None = None,
) -> SyncDecision:
    """
    Returns the translated offsets to commit for the group on the target.

    `eomirror.groups.offset_rule` decides about each offset.  Both forward and back, it moves only where the link wrote
    the offset that the group has there, or where the group has none.

    Args:
        wanted: Translated offsets of the group.
        there: The group on the target.
        placed: Offsets that the link wrote last.
        rewind: ``follow`` or ``ignore``.
        renew: True if correct offsets are due for a rewrite, before they expire.
        others: Records of other links in copies; None for none.
    """
    write: dict[TargetPartition, Committed] = {}
    skipped = ""
    for where, committed in wanted.items():
        found = ruling(
            where,
            committed.offset,
            there.offsets.get(where),
            there.state,
            placed=(placed[where],) if where in placed else (),
            others=(others or {}).get(where),
            rewind=rewind,
            keeps=True,
        )
        if found.action == "move" or (found.action == "stay" and renew):
            write[where] = committed
        skipped = found.reason or skipped
    return SyncDecision(write, skipped)


class DeletedGroups:
    """
    Detects moved groups without offsets on the source: deleted, their offsets deleted, or expired.

    A coordinator that moves from one broker to another is on neither for a moment, and its groups seem to
    be deleted.  So one look does not decide.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def seen(self, placed: Collection[str], standing: Collection[str], now: float) -> list[str]:
        """
        Returns groups that have been gone for `GONE_SECONDS`, sorted.

        Args:
            placed: Groups that have offsets on the target which the link wrote.
            standing: Groups that have, or may have, an offset on the source, from a look that every broker answered.
            now: Monotonic seconds.
        """
        gone = set(placed) - set(standing)
        self._since = {group: self._since.get(group, now) for group in gone}
        return sorted(group for group, since in self._since.items() if now - since >= GONE_SECONDS)


def decide_deletion(there: TargetGroup, placed: Mapping[TargetPartition, int]) -> str | None:
    """
    Decides if a group that was deleted on the source may be deleted on the target.

    Args:
        there: The group on the target.
        placed: Offsets that the link wrote last.

    Returns:
        Reason that it stays, empty if it may be deleted; None if there is no group to delete.
    """
    if not there.offsets and there.state == "dead":
        return None
    if has_members(there.state):
        return f"it was deleted on the source and has members on the target (state {there.state})"
    if not there.offsets.keys() <= placed.keys():
        return "it was deleted on the source and has offsets on the target that the link did not write"
    if any(placed[where] != offset for where, offset in there.offsets.items()):
        return "it was deleted on the source and has been read on the target"
    return ""
