"""
Translates offsets of a link that has returned from a promotion, and names the link that knows the others. Pure.

The return sets the position of each partition by a command, so that the position names no record of the copy until the
link mirrors the next one.  What the link mirrored before the promotion is still in both logs and in its offset map::

    source    0 ---- mirrored ---- position of the cut ---- written by the link back, or orphans ---- position
    copy      0 ---- mirrored ---- end of the cut --------- written by applications ----------------- end

Below the cut the map is valid, as it was at the cut.  Behind the cut the link back knows.
"""

from __future__ import annotations

from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eomirror.groups.translation import Asked
    from eomirror.records.position import Position
    from eomirror.records.promotion import Cut, PromotionHistory

__all__ = ["at_cut", "before_back_link", "behind_cut"]


def at_cut(position: Position, offset: int, history: PromotionHistory, *, reverse: bool) -> Position | None:
    """
    Returns the position as it was at the cut from which the link has returned, for an offset below it; else None.

    Args:
        position: Position of the partition today.
        offset: Offset on the source, or on the copy in ``reverse``.
        history: Promotions of the link.
    """
    cut = _cut(position, history)
    if cut is None or not cut.proven or offset >= (cut.target_end if reverse else cut.position):
        return None
    if (cut.topic_id, cut.target_topic_id) != (position.topic_id, position.target_topic_id):
        return None
    return replace(position, offset=cut.position, target_offset=cut.target_end - 1)


def behind_cut(asked: Asked, position: Position, history: PromotionHistory, *, reverse: bool) -> str:
    """Returns why a link that has returned does not know an offset, and the command of the link that does."""
    cut = _cut(position, history)
    if cut is None:
        return ""
    at = cut.target_end if reverse else cut.position
    back = history.resumptions[max(history.promotions)].link
    where = "behind" if asked.offset >= at else "before"
    if where == "before":
        return (
            f"it is before the cut of promotion {max(history.promotions)}, which is at {at}; a topic was recreated, or "
            "the copy was not whole there, so that the offset map of that time is not valid"
        )
    return (
        f"it is behind the cut of promotion {max(history.promotions)}, which is at {at}, and the link has mirrored "
        f"nothing since its return; ask the link back: {_command(asked, back, reverse=not reverse)}"
    )


def before_back_link(asked: Asked, link: str, *, reverse: bool) -> str:
    """
    Returns the command that translates what stands before the beginning of a link, as copies do before a way back.

    Args:
        link: The link in the other direction.
        reverse: Direction of the question to the link back.
    """
    return f"if it is a copy of the link in the other direction, ask that: {_command(asked, link, reverse=not reverse)}"


def _cut(position: Position, history: PromotionHistory) -> Cut | None:
    """Returns the cut of a position that a return has set and that names no record yet."""
    last = history.last
    if position.target_offset is not None or last is None or last.number not in history.resumptions:
        return None
    return next((cut for cut in last.cuts if cut.source == position.source), None)


def _command(asked: Asked, link: str, *, reverse: bool) -> str:
    what = (
        f"--group {quote(asked.group)}"
        if asked.group
        else f"--topic {quote(asked.name[0])} --partition {asked.name[1]} --offset {asked.offset}"
    )
    return f"`eomirror offsets translate CONFIG --link {quote(link)} {what}{' --reverse' if reverse else ''}`"
