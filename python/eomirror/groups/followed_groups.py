"""
What follows from where consumer groups stand: pure, looks at both clusters in, words for lanes out.

`GroupBook` remembers every followed group and partition.  Its entries go round like this::

    seen on the source -> told to the lane -> committed as a checkpoint -> (if wanted) committed for the group there
                               |    ^
             not remembered by |    | translated from the committed offset map
                     the lane  v    |
                            looked up

An entry that is not confirmed is told again after `RETELL_SECONDS`: lines break, lanes end.  A checkpoint that is
written twice does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eomirror.lane.spec import GroupOffset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from eomirror.kafka.consumer_groups import Committed, TargetGroup, TargetPartition
    from eomirror.types import SourcePartition

__all__ = [
    "ASK_AGAIN_SECONDS",
    "GONE_SECONDS",
    "RETELL_SECONDS",
    "WAITS",
    "DeletedGroups",
    "GroupBook",
    "GroupsSnapshot",
    "Mirrored",
    "SyncDecision",
    "decide_deletion",
    "decide_sync",
    "not_below",
]

#: A lane that has not answered is told again.
RETELL_SECONDS = 5.0

#: No record of a partition was mirrored: the first one is looked for so often.
ASK_AGAIN_SECONDS = 10.0

#: How long the source must have said that a group has no offsets before that is believed.
GONE_SECONDS = 10.0

_IDLE = frozenset({"empty", "dead"})

#: Why an offset has no checkpoint yet where only the mirror has to get there.
WAITS = "waiting for the mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSnapshot:
    """
    How a link follows consumer groups.

    Attributes:
        followed: Groups with an offset in a mirrored partition.
        age_seconds: Since the source was last asked where they stand; None before the first answer.
        pending: Offsets without a checkpoint yet, by reason.
        skipped: Groups that are left alone, by reason.
        moved: How often offsets were committed for a group on the target.
        deleted: How many groups were deleted on the target, because they are gone on the source.
        error: Why they are not followed right now; empty while they are.
    """

    followed: int = 0
    age_seconds: float | None = None
    pending: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    moved: int = 0
    deleted: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """
    What the link mirrors right now.

    Attributes:
        lanes: The lane of every partition.
        stopped: Source topics that are not mirrored any more.
    """

    lanes: Mapping[SourcePartition, int]
    stopped: Collection[str]


class _Entry:
    """One group in one partition."""

    __slots__ = (
        "ask_at", "checkpoint", "confirmed", "downstream", "looked_up", "metadata", "seen", "told", "upstream", "why",
    )  # fmt: skip

    def __init__(self, committed: Committed, now: float, checkpoint: GroupOffset | None = None) -> None:
        self.upstream = committed.offset
        self.metadata = committed.metadata
        self.seen = now
        self.told = float("-inf")
        self.downstream: int | None = None
        self.confirmed = False
        # the lane does not remember it; when that was said
        self.looked_up = False
        # when the map may be asked: an answer costs all of it, where it does not know
        self.ask_at = float("-inf")
        self.why = WAITS
        # the last one that was committed: a group that commits all the time has moved on whenever one is
        self.checkpoint = checkpoint


def _unknown_to_lane(entry: _Entry | None) -> bool:
    """
    Whether the lane does not remember where the group stood, and nobody has looked it up yet.

    A lane's answer comes after a look, and by the next one a group that commits all the time has moved on: where it is
    then is looked up in its stead, or none of its offsets ever were.  After that the lane is asked again.
    """
    return entry is not None and entry.looked_up and entry.downstream is None and entry.why == WAITS


def _behind(entry: _Entry | None, committed: Committed) -> GroupOffset | None:
    """The last checkpoint, unless the group went back behind it: from there on it would skip what it wants again."""
    checkpoint = None if entry is None else entry.checkpoint
    return checkpoint if checkpoint is not None and checkpoint.upstream <= committed.offset else None


class GroupBook:
    """Every followed group and partition.  Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[SourcePartition, _Entry]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def observe(
        self, group: str, offsets: Mapping[SourcePartition, Committed], now: float
    ) -> frozenset[SourcePartition]:
        """
        Where a group stands on the source now.

        Args:
            group: The group.
            offsets: Everything that it has committed in mirrored partitions.
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
        """Groups that the source does not know any more are not followed any longer."""
        for group in self._groups.keys() - set(groups):
            del self._groups[group]

    def to_tell(
        self, lanes: Mapping[SourcePartition, int], stopped: Collection[str], now: float
    ) -> dict[int, list[GroupOffset]]:
        """
        What each lane must be told.

        Args:
            lanes: The lane of every mirrored partition.
            stopped: Source topics that are not mirrored any more.
            now: Monotonic seconds.
        """
        told: dict[int, list[GroupOffset]] = {}
        for group, source, entry in self._entries():
            lane = lanes.get(source)
            if entry.confirmed or lane is None or now - entry.told < RETELL_SECONDS:
                continue
            if source.topic in stopped:
                entry.why = "its topic is stopped"
                continue
            if entry.looked_up and entry.downstream is None:
                continue
            entry.told = now
            item = GroupOffset(group, source, entry.upstream, entry.downstream, entry.metadata)
            told.setdefault(lane, []).append(item)
        return told

    def forget_told(self, partitions: Collection[SourcePartition]) -> None:
        """These partitions' lane has begun anew: what it was told, and what it did not remember, counts no more."""
        for _, source, entry in self._entries():
            if source in partitions and not entry.confirmed:
                entry.told = entry.ask_at = float("-inf")

    def answered(self, items: Iterable[GroupOffset]) -> list[GroupOffset]:
        """
        What a lane says has become of them.

        Returns:
            Those that are committed as checkpoints now.
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
                # it has gone back since, and what lies between is to be read again; or it is known further on
                continue
            entry.checkpoint = item
            committed.append(item)
        return committed

    def questions(self, now: float) -> list[tuple[str, SourcePartition, int]]:
        """Group, partition and source offset of what is to be looked up in the offset map at this monotonic second."""
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
        What the offset map says.

        Args:
            group: The group.
            source: The partition.
            upstream: The offset that was looked up.
            downstream: Where it is on the target; None when that is not known.
            why: Why not; empty for what may be known later.
            ask_at: Where there is a reason, when it may be another one by itself.
        """
        entry = self._groups.get(group, {}).get(source)
        if entry is None or entry.upstream != upstream:
            return
        entry.downstream = downstream
        entry.told = float("-inf")
        if downstream is None:
            entry.why = why or entry.why
            # what cannot be known now is asked for again only when something has changed
            entry.looked_up = bool(why)
            entry.ask_at = ask_at if why else entry.ask_at

    def checkpoints(self, group: str) -> dict[SourcePartition, GroupOffset]:
        """A group's newest committed checkpoints, although it may stand further on by now."""
        return {
            source: entry.checkpoint
            for source, entry in self._groups.get(group, {}).items()
            if entry.checkpoint is not None
        }

    def groups(self) -> list[str]:
        """All followed groups, sorted."""
        return sorted(self._groups)

    def pending(self) -> dict[str, int]:
        """How many offsets have no checkpoint yet, by reason."""
        counts: dict[str, int] = {}
        for _, _, entry in self._entries():
            if not entry.confirmed:
                counts[entry.why] = counts.get(entry.why, 0) + 1
        return counts

    def _entries(self) -> Iterator[tuple[str, SourcePartition, _Entry]]:
        for group, partitions in self._groups.items():
            for source, entry in partitions.items():
                yield group, source, entry


@dataclass(frozen=True, slots=True)
class SyncDecision:
    """
    What to do about a group on the target.

    Attributes:
        write: Offsets to commit, all in one request; empty for none.
        skipped: Why some or all are left alone; empty when none is.
    """

    write: Mapping[TargetPartition, Committed]
    skipped: str = ""


def not_below(
    starts: Mapping[TargetPartition, int], wanted: Mapping[TargetPartition, Committed]
) -> dict[TargetPartition, Committed]:
    """
    What groups would read first, where their copy begins behind the record that they stand at.

    Retention takes records of a copy that the source still has.  An offset below the log start is out of range, and a
    consumer with ``auto.offset.reset=latest`` goes to the end from there, past all that the copy holds.

    Args:
        starts: Where partitions begin; where that is not known, an offset stays as it is.
        wanted: Translated offsets.
    """
    return {
        where: one if one.offset >= starts.get(where, 0) else replace(one, offset=starts[where])
        for where, one in wanted.items()
    }


def decide_sync(
    wanted: Mapping[TargetPartition, Committed],
    there: TargetGroup,
    placed: Mapping[TargetPartition, int],
    *,
    rewind: str,
    renew: bool,
) -> SyncDecision:
    """
    Which translated offsets to commit for the group on the target.

    An offset there that is ahead of the group's own was reached by somebody who reads there, unless the link put it
    there itself: only then a rewind is followed.  The rule for all others is MM2's: forward only (KIP-545).

    Args:
        wanted: Its translated offsets.
        there: The group as it is.
        placed: Where the link's own words put it last.
        rewind: ``follow`` or ``ignore``.
        renew: Offsets that are right already are due to be written again, before they expire.
    """
    if there.state not in _IDLE:
        return SyncDecision({}, f"it has members on the target (state {there.state})")
    write: dict[TargetPartition, Committed] = {}
    skipped = ""
    for where, committed in wanted.items():
        now = there.offsets.get(where)
        if now is None or now < committed.offset or (now == committed.offset and renew):
            write[where] = committed
        elif now > committed.offset:
            if placed.get(where) != now:
                skipped = "it is ahead on the target, where it has been read"
            elif rewind == "follow":
                write[where] = committed
            else:
                skipped = "it went back on the source, and group_rewind is ignore"
    return SyncDecision(write, skipped)


class DeletedGroups:
    """
    Which groups that we moved have no offsets on the source any more: deleted, their offsets deleted, or expired.

    A coordinator that moves from one broker to another is on neither for a moment, and the groups that it keeps seem to
    be gone.  So one look decides nothing.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def seen(self, placed: Collection[str], standing: Collection[str], now: float) -> list[str]:
        """
        Groups that have been gone for `GONE_SECONDS`, sorted.

        Args:
            placed: Groups that have offsets on the target which come from us.
            standing: Groups that have an offset on the source, or may have one; of a look that every broker answered.
            now: Monotonic seconds.
        """
        gone = set(placed) - set(standing)
        self._since = {group: self._since.get(group, now) for group in gone}
        return sorted(group for group, since in self._since.items() if now - since >= GONE_SECONDS)


def decide_deletion(there: TargetGroup, placed: Mapping[TargetPartition, int]) -> str | None:
    """
    Whether a group that is gone on the source may be deleted on the target.

    Args:
        there: The group as it is on the target.
        placed: Where the link's own words put it last.

    Returns:
        Why it stays, empty if it may be deleted; None where there is nothing to delete.
    """
    if not there.offsets and there.state == "dead":
        return None
    if there.state not in _IDLE:
        return f"it was deleted on the source and has members on the target (state {there.state})"
    if not there.offsets.keys() <= placed.keys():
        return "it was deleted on the source and has offsets on the target that the link did not write"
    if any(placed[where] != offset for where, offset in there.offsets.items()):
        return "it was deleted on the source and has been read on the target"
    return ""
