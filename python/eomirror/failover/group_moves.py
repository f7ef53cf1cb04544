"""
Decides where consumer groups resume on the target of a promoted link. Pure.

The offset map translates an offset exactly.  Three cases are left to a promotion, which ends the link for now:

* an offset beyond the cut lies among records that were never mirrored (orphans).  The group resumes at the cut: it has
  read all that is before it.  If a restoration merges the orphans, it reads those again that it has read;
* an offset before the first mirrored record, or no checkpoint: the group resumes at the beginning of the copy;
* an offset of a recreated topic has no meaning in the copy: the group is left alone, and the report says so;
* an offset among what the link back wrote to the source, of a link that has returned from a promotion: one map cannot
  tell it.  The group resumes where applications began to write to the copy, and reads again.  If both links are
  configured, the offset map of each is asked instead, and this case does not occur.

`eomirror.groups.offset_rule` decides if the offset may be written.  The link may have placed the offset of any of its
checkpoints that are still in the log: a group that goes back on the source has a checkpoint for that before its offset
on the target follows.

A group with members on the source commits there after this look.  It skips nothing, and how much it reads again is not
known.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from eomirror.errors import some
from eomirror.failover.machine import Verb
from eomirror.groups.offset_rule import LEFT_OUT, PASSES, metadata_left_out, past_others, ruling
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.failover.readiness import Facts
    from eomirror.groups.offset_queries import GroupsThere
    from eomirror.groups.translation import Translation
    from eomirror.records.promotion import Cut

__all__ = ["Absence", "GroupMove", "counted", "found_groups", "plan_moves", "unread", "written"]

_STOP_CONSUMERS = "stop their consumers on the source first: they go on reading and committing there"
_TAKE_OUT = "if the link back mirrors only after a failover, take its entry out, and restart the mirror"


# The offset belongs to another topic (`eomirror.groups.corrections`), or would pass records of another link:
# neither the cut nor the start stands for it.
_VOID = ("created again", "does not exist", PASSES)
# groups, and partitions of one, that a text names
_MOST_NAMED = 3
_UNKNOWN = float("inf")
_FURTHER = "it has read further than the link has mirrored"
_MERGED = ", and reads those records again if `restore --orphans merge` brings them"


@dataclass(frozen=True, slots=True)
class Absence:
    """
    Source offsets that a link did not mirror while it was promoted.

    Attributes:
        start: First offset: the position at the cut.
        end: Offset at which the link mirrors again.
        target_end: End of the copy at the cut: applications wrote to it from there on.
    """

    start: int
    end: int
    target_end: int


class GroupMove(NamedTuple):
    """
    A group in one partition; 1,000 groups in 100 partitions are 100,000 of these.

    Attributes:
        group: Name of the group.
        topic: Source topic.
        offset: Committed offset on the source, or that of the last checkpoint; -1 for none.
        to_topic: Its copy.
        to_offset: Resume offset there; None if it is unknown.
        kind: ``exact``, ``next`` or ``earlier`` as the offset map answers; ``earlier`` also for a group with members on
            the source; ``cut``: among orphans, so at the cut; ``start``: at the beginning of the copy; ``unknown``.
        again: Upper bound of the records that the group reads again; None if unknown.
        has: Offset that the group has on the target; None for none.
        action: ``move``, ``stay`` (the offset is correct already) or ``skip``.
        reason: Reason for ``skip``, or for a resume offset that is not exact; may be empty.
        metadata: Commit metadata.
        from_checkpoint: True if ``offset`` is that of the last checkpoint, which the link has written.
        active_on_source: True if the group has members on the source, or if that could not be found out.
    """

    group: str
    topic: str
    partition: int
    offset: int
    to_topic: str
    to_offset: int | None
    kind: str
    again: int | None
    has: int | None
    action: str
    reason: str = ""
    metadata: str = ""
    from_checkpoint: bool = False
    active_on_source: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return self._asdict()


def plan_moves(
    rows: Iterable[Translation],
    there: GroupsThere,
    cuts: Mapping[SourcePartition, Cut],
    starts: Mapping[tuple[str, int], int],
    placed: Mapping[tuple[str, str, int], Collection[int]],
    *,
    absences: Mapping[SourcePartition, Sequence[Absence]] | None = None,
    active: Mapping[str, str] | None = None,
    from_checkpoints: bool = False,
    keeps: bool = False,
    denied: Mapping[str, str] = MappingProxyType({}),
    limit: int | None = None,
) -> list[GroupMove]:
    """
    Returns what happens to every group and partition.

    Args:
        rows: Groups with their translated offsets.
        there: These groups on the target.
        cuts: Cut of each partition.
        starts: Log start of each copy without an answer, and of those with absences.
        placed: Group, copy and partition -> offsets on the target that the link may have committed.
        absences: Times at which the link was promoted, of partitions whose other map is not asked.
        active: Groups that commit on the source, or may, with the reason.
        from_checkpoints: True if the source was not asked.
        keeps: True if the link keeps the groups' offsets on the target.
        denied: As of `commit_denied`, on the target.
        limit: Bytes of metadata that brokers of the target take; None if unknown.
    """
    moves = []
    for row in rows:
        source = SourcePartition(row.topic, row.partition)
        at, kind, again, reason = _resume(row, cuts.get(source), starts, from_checkpoints=from_checkpoints)
        absence = _absence(row, absences.get(source, ())) if absences and kind != "unknown" else None
        if absence is not None:
            # retention may have removed what applications wrote first: an offset below the log start is out of range
            start = starts.get((row.to_topic, row.to_partition), absence.target_end)
            at, kind, again = max(absence.target_end, start), "earlier", None
            reason = "it stands among records that the link back wrote"
        copy = row.to_topic, row.to_partition
        if passed := past_others(copy, at, row.others):
            # The cut, and what applications wrote to the copy, are behind records of the other link as well.
            at, kind, again, reason = None, "unknown", None, passed
        busy = (active or {}).get(row.group, "")
        if busy:
            kind, again = ("earlier" if kind in {"exact", "next"} else kind), None
            reason = f"{reason}; {busy}" if reason else busy
        has = there.offset(row.group, copy) if there.offsets else None
        action, why = ruling(
            copy,
            at,
            has,
            there.states[row.group].name,
            placed=placed.get((row.group, *copy), ()),
            keeps=keeps,
            denied=denied,
        )
        if row.group in there.problems:
            action, why = "skip", there.problems[row.group]
        if action == "move" and (without := metadata_left_out(copy, row.metadata, limit)):
            reason = f"{reason}; {without}" if reason else without
        moves.append(
            GroupMove(
                row.group,
                row.topic,
                row.partition,
                row.offset,
                row.to_topic,
                at,
                kind,
                again,
                has,
                action,
                why or reason,
                row.metadata,
                from_checkpoints or absence is not None,
                bool(busy),
            )
        )
    return moves


def _absence(row: Translation, absences: Sequence[Absence]) -> Absence | None:
    """Returns the time of which the link back wrote the records behind a group's offset; None for none."""
    return next(
        (
            each
            for each in absences
            if each.start <= row.offset < each.end
            # Until the link has mirrored a record since its return, its map gives no answer.
            and (row.to_offset is None or row.to_offset > each.target_end)
        ),
        None,
    )


def _resume(
    row: Translation,
    cut: Cut | None,
    starts: Mapping[tuple[str, int], int],
    *,
    from_checkpoints: bool,
) -> tuple[int | None, str, int | None, str]:
    """Returns offset, kind, records read again and reason."""
    if row.to_offset is not None and cut is not None and row.to_offset > cut.target_end:
        # The offset map names records that the copy has lost: others take their offsets from here on.
        return cut.target_end, "cut", None, "its copy has lost records before this offset"
    if row.to_offset is not None:
        if from_checkpoints:
            # A checkpoint is as old as the last look at the source: how far the group read since is not known.
            return row.to_offset, row.kind, None, "as of its last checkpoint"
        return row.to_offset, row.kind, row.again, ""
    start = starts.get((row.to_topic, row.to_partition))
    if cut is None or start is None or any(word in row.reason for word in _VOID):
        return None, "unknown", None, row.reason
    if row.offset >= cut.position:
        # What it has read of the orphans comes again behind the cut if they are merged; markers count.
        read = row.offset - cut.position
        return cut.target_end, "cut", read, _FURTHER + (_MERGED if read else "")
    return start, "start", None, row.reason


def unread(moves: Iterable[GroupMove]) -> dict[str, str]:
    """Returns the groups whose offsets cannot be read on one side, with the reason."""
    return {
        move.group: move.reason
        for move in moves
        if move.action == "skip" and "cannot be read: " in move.reason
    }


def read_again(moves: Iterable[GroupMove]) -> str:
    """
    Returns how many records groups read again at most, an unknown number first; empty if none reads any.

    A group at the cut reads again only what a restoration merges.  One with members on the source is not counted.
    """
    found: dict[str, list[GroupMove]] = defaultdict(list)
    for move in moves:
        if move.action != "skip" and move.kind == "earlier" and move.again != 0 and not move.active_on_source:
            found[move.group].append(move)
    totals = {group: sum(_most_again(row) for row in rows) for group, rows in found.items()}
    texts = []
    for group in sorted(totals, key=lambda group: (-totals[group], group))[:_MOST_NAMED]:
        rows = sorted(found[group], key=lambda row: (-_most_again(row), row.topic, row.partition))
        known = totals[group] < _UNKNOWN
        text = f"reads at most {totals[group]:,} records again" if known else "reads an unknown number again"
        named = (f"{row.topic}-{row.partition}" for row in rows[:_MOST_NAMED])
        where = ", ".join(
            name if row.again is None else f"{name}: {row.again:,}"
            for name, row in zip(named, rows, strict=False)
        )
        texts.append(f"{group} {text} ({where}{', ...' if len(rows) > _MOST_NAMED else ''})")
    if (rest := len(totals) - _MOST_NAMED) > 0:
        texts.append(f"and {rest} more groups")
    return "; ".join(texts)


def _most_again(move: GroupMove) -> float:
    return _UNKNOWN if move.again is None else move.again


def written(moves: Iterable[GroupMove]) -> dict[str, list[GroupMove]]:
    """Returns the offsets to commit, by group."""
    found: dict[str, list[GroupMove]] = defaultdict(list)
    for move in moves:
        if move.action == "move":
            found[move.group].append(move)
    return dict(found)


def counted(moves: Iterable[GroupMove], failed: Mapping[str, str]) -> dict[str, int]:
    """
    Returns the number of groups by result: moved, stayed, at the cut, and skipped.

    Args:
        failed: Groups whose commit was refused, with the reason.
    """
    of: dict[str, list[GroupMove]] = defaultdict(list)
    for move in moves:
        of[move.group].append(move)
    found = {"moved": 0, "stayed": 0, "cut": 0, "skipped": 0}
    for group, rows in of.items():
        if group in failed or any(row.action == "skip" for row in rows):
            found["skipped"] += 1
        elif any(row.action == "move" for row in rows):
            found["moved"] += 1
        else:
            found["stayed"] += 1
        found["cut"] += any(row.kind == "cut" for row in rows)
    return found


def found_groups(facts: Facts, verb: Verb) -> tuple[bool, str, str]:
    """Returns what a failover would do with the groups: True if the user must know, the text, and a fix."""
    if facts.groups_problem:
        return True, facts.groups_problem, ""
    if not facts.groups:
        return _no_groups(facts)
    skipped = {move.group for move in facts.groups if move.action == "skip"}
    inexact = {move.group for move in facts.groups if move.kind not in {"exact", "next"}} - skipped
    exact = {move.group for move in facts.groups} - skipped - inexact
    text = _counts({"exact": len(exact), "read again or at the cut": len(inexact), "not moved": len(skipped)})
    reasons = sorted({f"{move.group}: {move.reason}" for move in facts.groups if move.action == "skip"})
    left_out = sorted(f"{move.group}: {move.reason}" for move in facts.groups if LEFT_OUT in move.reason)
    reasons += left_out
    old = not facts.source_answers
    if old:
        resumed = "resume at their last checkpoints and read again what they have read since"
        text = _counts({resumed: len(exact) + len(inexact), "not moved": len(skipped)})
    active = sorted({move.group for move in facts.groups if move.active_on_source})
    if active:
        text += f"; {len(active)} with members on the source read again an unknown number: {some(active)}"
        reasons.insert(0, _STOP_CONSUMERS)
    unprepared = facts.no_checkpoints and verb is Verb.FAILOVER
    if unprepared:
        # Asked on a quiet day, for the day on which it is too late to change it.
        text += "; without the source none could be moved: no checkpoints are written"
        reasons.append(_TAKE_OUT)
    again = "" if old else read_again(facts.groups)
    if again:
        text += f"; {again}"
        reasons.append(
            "read up to the end on the source, and on past what was merged there: then fewer come again"
        )
    warned = skipped or old or unprepared or active or left_out or facts.covered or again
    text += f"; {facts.covered}" if facts.covered else ""
    return bool(warned), text, some(reasons)


def _no_groups(facts: Facts) -> tuple[bool, str, str]:
    """Tells groups that do not exist from groups that cannot be moved."""
    if not facts.follows:
        return False, "none is followed: the link's `groups` is empty", ""
    if facts.source_answers:
        none = "0: no followed group has offsets on the source"
        if facts.covered:
            return True, f"{none}; {facts.covered}", "take one of the patterns out"
        return False, none, ""
    if facts.no_checkpoints:
        return (
            True,
            "none would be moved: a link with its link back in the configuration has no checkpoints",
            _TAKE_OUT,
        )
    return (
        True,
        "none would be moved: the target has no checkpoint of a followed group",
        "a running mirror writes them for the groups of `groups` that have offsets on the source",
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items() if number)
