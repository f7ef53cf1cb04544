"""Makes the texts of a fence that stands. Pure."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import utc
from eomirror.records.control_record import named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.promotion import Fence

__all__ = ["fence_dict", "standing_fence"]


def fence_dict(fence: Fence | None) -> dict[str, Any] | None:
    """Returns a fence that stands for ``-o json`` and `standing_fence`; None for none."""
    if fence is None:
        return None
    return {"method": fence.method, "topics": list(fence.topics), "host": fence.host, "at": fence.timestamp}


def standing_fence(link: str, fence: Mapping[str, Any]) -> tuple[str, str]:
    """
    Returns the text of a fence that stands, and the command that lifts it.

    Args:
        link: Name of the link.
        fence: As `fence_dict` returns it.
    """
    since = utc(fence["at"])
    where = named(fence["topics"]) if fence["topics"] else "the source"
    text = f"writes to {where} are stopped: the fence ({fence['method']}) stands since {since}, by {fence['host']}"
    how = " --fence-command COMMAND" if fence["method"] == "command" else ""
    return (
        text,
        f"`eomirror unfence CONFIG --link {quote(link)}{how}`, once applications may write there again",
    )
