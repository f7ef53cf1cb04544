"""
Decides if the offset of a group may be written on the side that it moves to. Pure.

The running mirror (`sync_group_offsets`), an import, and every verb of a failover with its dry run ask the same five
questions, in this order:

1. *Members there*: they commit for the group, and a coordinator refuses all others.
2. *The offset there*: one that is ahead was reached by consumers there, unless the link wrote it.  Where the link keeps
   the group's offsets (`sync_group_offsets`), one behind that it did not write was reached by consumers there as well::

       copy:    | read there | 850 records that only the source's consumers have read |
       group:                 has                                                       at

   Consumers there would skip them, so the offset is left alone and named.
3. *Records of another link*: with equal names or ``aggregate`` a copy has several sources.  An offset map knows its own
   records only, so the translated offset is past records of the other source, which the group may not have read::

       copy:    a0 a1 | b0 b1 b2 | a2 a3 |        a: of this link, b: of the other
       group:   has read a0 to a3; resumes behind a3, past b0 to b2

   Up to the first record of the other link the offset is exact.  Behind it no offset is written: which records of the
   other source the group has read cannot be known from this link.
4. *The direction*: an offset that goes back is a rewind, which a running mirror may be told to ignore.
5. *The brokers there*: a commit needs the right Read on the topic.  Metadata that is larger than they take is left out.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.groups.translation import Name, OtherRecords

__all__ = [
    "LEFT_OUT",
    "NOT_OURS",
    "PASSES",
    "Ruling",
    "commit_denied",
    "has_members",
    "members_there",
    "metadata_left_out",
    "past_others",
    "ruling",
]

# in these states a group has no members
_IDLE = frozenset({"EMPTY", "DEAD"})

#: Words of the reason of an offset that would pass records of another link.
PASSES = "which the group may not have read"

#: Words of the reason of an offset that consumers have reached where the link keeps the group's offsets.
NOT_OURS = "which is not the link's"

#: Words of the reason of an offset that moves without its metadata.
LEFT_OUT = "moves without its metadata"


class Ruling(NamedTuple):
    """
    Decision about one offset of a group.

    Attributes:
        action: ``move``, ``stay`` (the offset is correct already) or ``skip``.
        reason: Reason for ``skip``; may be empty for an unknown offset, whose translation has it.
    """

    action: str
    reason: str = ""


def has_members(state: str) -> bool:
    """Returns True for the state of a group with members; one that is not known to be idle has some."""
    return state.upper() not in _IDLE


def members_there(state: str, *, side: str = "the target") -> str:
    """Returns the reason that only members commit for a group on the side that it moves to; empty without members."""
    return (
        f"it has members on {side} (state {state.lower()}): they commit for it" if has_members(state) else ""
    )


def commit_denied(where: Name, denied: Mapping[str, str]) -> str:
    """
    Returns the reason that the brokers refuse a commit for a topic; empty if they do not.

    Args:
        denied: Topics that we may not read, with who lacks the right, and the command that grants it.
    """
    lacks = denied.get(where[0])
    return f"a commit needs the right Read on topic {where[0]}: {lacks}" if lacks else ""


def metadata_left_out(where: Name, metadata: str, limit: int | None) -> str:
    """
    Returns what happens to metadata that is larger than brokers take; empty if they take it.

    In spite of the name of their setting, brokers count as Java does: UTF-16 units, not bytes.
    """
    size = len(metadata.encode("utf-16-le")) // 2
    if limit is None or size <= limit:
        return ""
    return (
        f"{where[0]}-{where[1]}: {LEFT_OUT} of {size} characters: the target takes {limit} "
        "(offset.metadata.max.bytes)"
    )


def past_others(where: Name, at: int | None, others: OtherRecords | None) -> str:
    """
    Returns the reason that a group must not resume at an offset: records of another link are before it; else empty.

    Args:
        where: Topic and partition of the copy.
        at: The offset; None if it is unknown.
        others: Records of other links in this copy; None for none.
    """
    if at is None or others is None or at <= others.first:
        return ""
    return (
        f"{where[0]}-{where[1]} holds records of link {others.link} from offset {others.first} on, before {at}, "
        f"{PASSES}: set it by hand, at {others.first} it skips none"
    )


def ruling(
    where: Name,
    at: int | None,
    has: int | None,
    state: str,
    *,
    placed: Collection[int],
    others: OtherRecords | None = None,
    rewind: str = "follow",
    keeps: bool = False,
    denied: Mapping[str, str] = MappingProxyType({}),
) -> Ruling:
    """
    Returns what happens to the offset of a group in one partition.

    Args:
        where: Topic and partition on the side that it moves to.
        at: Offset at which it resumes there; None if it is unknown.
        has: Offset that it has there; None for none.
        state: Its state there.
        placed: Offsets there that the link may have written.
        others: Records of other links in this copy; None for none.
        rewind: ``follow`` or ``ignore``: whether an offset of the link goes back with the group.
        keeps: True if the link keeps the group's offsets there: one that it did not write is left alone.
        denied: As of `commit_denied`.
    """
    if at is None:
        return Ruling("skip")
    if reason := members_there(state):
        return Ruling("skip", reason)
    read_there = has is not None and has not in placed
    if has is not None and has > at and read_there:
        return Ruling("skip", "it is ahead on the target, where it has been read")
    if has == at and read_there:
        return Ruling("stay")
    if reason := past_others(where, at, others):
        return Ruling("skip", reason)
    if has == at:
        return Ruling("stay")
    if keeps and read_there:
        return Ruling(
            "skip",
            f"it was read on the target to {has} of {where[0]}-{where[1]}, {NOT_OURS}: a later one would skip "
            f"what was not read there; `eomirror offsets export` and `import` set it",
        )
    if has is not None and has > at and rewind != "follow":
        return Ruling("skip", "it went back on the source, and group_rewind is ignore")
    if reason := commit_denied(where, denied):
        return Ruling("skip", reason)
    return Ruling("move")
