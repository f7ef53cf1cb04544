"""Makes the texts of a fence that stands. Pure."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from eomirror.clock import utc
from eomirror.records.control_record import named

if TYPE_CHECKING:
    from eomirror.records.promotion import Fence

__all__ = ["standing_fence"]


def standing_fence(link: str, fence: Fence) -> tuple[str, str]:
    """
    Returns the text of a fence that stands, and the command that lifts it.

    Args:
        link: Name of the link.
        fence: Record of the fence.
    """
    since = utc(fence.timestamp)
    where = named(fence.topics) if fence.topics else "the source"
    text = f"writes to {where} are stopped: the fence ({fence.method}) stands since {since}, by {fence.host}"
    how = " --fence-command COMMAND" if fence.method == "command" else ""
    return (
        text,
        f"`eomirror unfence CONFIG --link {quote(link)}{how}`, once applications may write there again",
    )
