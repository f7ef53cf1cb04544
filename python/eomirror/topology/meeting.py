"""
Decides whether two links write into the same copies. Pure.

Records of two sources in one topic are an aggregate, which is a use as well as a common mistake.  The answer is certain
if a link spells out its topics, or if both have the same naming and their patterns overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.topology.filters import is_literal
from eomirror.topology.flow import Flow, covers, literal_targets, overlap

if TYPE_CHECKING:
    from eomirror.topology.flow import LinkShape

__all__ = ["meeting"]


def meeting(one: LinkShape, other: LinkShape) -> Flow:
    """Returns whether both links can write to a topic of the same name on the same cluster."""
    if one.target != other.target:
        return Flow.NO
    if _equally_named(one, other):
        return _overlap(one, other)
    known, other_known = _target_names(one), _target_names(other)
    if known is not None and other_known is not None:
        return _certain(yes=bool(known & other_known))
    for names, reader in ((known, other), (other_known, one)):
        if names is not None and reader.naming.kind in ("identity", "prefix"):
            return _certain(yes=any(_writes(reader, name) for name in names))
    kinds = {one.naming.kind, other.naming.kind}
    if "prefix" in kinds or (one.naming == other.naming and _names_source(one)):
        # Names that begin with the source's alias; a topic of such a name elsewhere is a coincidence.
        return Flow.NO
    return Flow.MAYBE


def _equally_named(one: LinkShape, other: LinkShape) -> bool:
    """Returns True if a topic has the same name on the target, whichever link mirrors it."""
    return one.naming == other.naming and (one.source == other.source or not _names_source(one))


def _names_source(link: LinkShape) -> bool:
    return link.naming.kind == "prefix" or "{source}" in link.naming.pattern


def _overlap(one: LinkShape, other: LinkShape) -> Flow:
    if not overlap(one, other):
        return Flow.NO
    # Literal names are certain; two patterns are certain only if one covers the other.
    spelled_out = any(all(map(is_literal, each.topics)) for each in (one, other))
    return Flow.YES if spelled_out or covers(one, other) or covers(other, one) else Flow.MAYBE


def _target_names(link: LinkShape) -> frozenset[str] | None:
    """Returns the names of all copies of a link; None if its patterns do not tell."""
    if link.naming.kind == "map":
        return frozenset(new for old, new in link.naming.names if link.filter.matches(old))
    if all(is_literal(pattern) for pattern in link.topics):
        return frozenset(literal_targets(link))
    return None


def _writes(link: LinkShape, name: str) -> bool:
    """Returns True if a link with names of the source, prefixed or not, may write a topic of this name."""
    prefix = f"{link.source}{link.naming.separator}" if link.naming.kind == "prefix" else ""
    return name.startswith(prefix) and link.filter.matches(name.removeprefix(prefix))


def _certain(*, yes: bool) -> Flow:
    return Flow.YES if yes else Flow.NO
