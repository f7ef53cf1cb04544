"""
Texts of the timeline for records of failover: promotions, fences, reversals, returns, recreations. Pure.

Nothing is decided here, so the values are taken as they stand.
"""

from __future__ import annotations

from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eomirror.records.promotion import Fence

__all__ = ["FailoverTexts", "fence_dict", "standing_fence"]

# topics named in a text
_SHOWN = 3
# in the list of a cut
_POSITION, _SOURCE_END = 0, 3


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
    since = f"{datetime.fromtimestamp(fence['at'] / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    where = _names(fence["topics"]) if fence["topics"] else "the source"
    text = f"writes to {where} are stopped: the fence ({fence['method']}) stands since {since}, by {fence['host']}"
    how = " --method command --fence-command COMMAND" if fence["method"] == "command" else ""
    return (
        text,
        f"`eomirror unfence CONFIG --link {quote(link)}{how}`, once applications may write there again",
    )


class FailoverTexts:
    """Makes the texts of one control topic's records of failover, which it gets oldest first."""

    def __init__(self) -> None:
        # the topics of a promotion that has parts stand in records before it
        self._parts: dict[int, list[Mapping[str, Any]]] = {}
        self._fences: dict[int, Mapping[str, Any]] = {}

    def text(self, kind: str, name: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
        """
        Returns the text of a record; empty for one that is no event, None for one of another kind or a strange one.

        Args:
            kind: Kind of the record.
            name: Its key.
            body: Its value.
        """
        try:
            return self._text(kind, name, body)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None

    def _text(self, kind: str, name: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
        if kind in _BY_BODY:
            return _BY_BODY[kind](body)
        if kind == "part":
            if name["of"] == "promotion":
                self._parts.setdefault(int(name["number"]), []).append(body["topics"])
            return ""
        if kind == "promotion":
            number = int(name["number"])
            return _promoted(number, body, [*self._parts.pop(number, ()), body["topics"]])
        if kind == "fence":
            number = int(name["number"])
            before, self._fences[number] = self._fences.get(number), body
            # it is written again unchanged once the applications are stopped
            return "" if before == body else _fenced(number, body)
        return _BY_NUMBER[kind](int(name["number"]), body) if kind in _BY_NUMBER else None


def _promoted(number: int, body: Mapping[str, Any], topics: Iterable[Mapping[str, Any]]) -> str:
    cuts = [cut for some in topics for topic in some.values() for cut in topic["partitions"].values()]
    beyond = [None if cut[_SOURCE_END] is None else max(0, cut[_SOURCE_END] - cut[_POSITION]) for cut in cuts]
    if any(each is None for each in beyond) and not body.get("at_least"):
        left = "an unknown number of source offsets"
    else:
        # without the source, its ends are those that the mirror saw last
        least = "" if body.get("ends_at") is None and not body.get("at_least") else "at least "
        left = least + _many(sum(each or 0 for each in beyond) + body.get("uncut", 0), "source offset")
    verb = "promoted" if body["planned"] else "failed over"
    return (
        f"{body['host']} {verb} (promotion {number}): applications write to the copies of "
        f"{_many(len(cuts), 'partition')}; left behind: {left}"
    )


def _fenced(number: int, body: Mapping[str, Any]) -> str:
    if body["lifted"]:
        return f"the fence before promotion {number} is lifted: applications may write to the source again"
    if body.get("lifting"):
        return f"the fence before promotion {number} is being lifted"
    topics = _names(body["topics"]) if body["topics"] else "the source"
    who = f"{body['host']} fenced (method {body['method']}), before promotion {number}"
    return f"{who}: no application may write to {topics}"


def _reversed(number: int, body: Mapping[str, Any]) -> str:
    return f"the link back, {body['link']}, begins at the cut of promotion {number}"


def _restored(number: int, body: Mapping[str, Any]) -> str:
    done = {
        "export": f"exported to {body['place']}",
        "merge": "merged into the copies",
        "keep": "kept where they are",
        "recreate": "deleted with their topics",
    }.get(body["orphans"], body["orphans"])
    text = f"{_many(body['records'], 'orphan')} of promotion {number}: {done}"
    lost = sum(
        end - start
        for topic in body.get("lost", {}).values()
        for some in topic.values()
        for start, end in some
    )
    return text + (f"; {_many(lost, 'source offset')} had been deleted before" if lost else "")


def _resumed(number: int, body: Mapping[str, Any]) -> str:
    return f"promotion {number} has ended: the link mirrors again, from the cut of {body['link']}"


def _recreated(body: Mapping[str, Any]) -> str:
    number = int(body["number"])
    if not body["topics"]:
        return f"no topic of the old source is deleted after promotion {number}: that was withdrawn"
    names = _names(sorted(body["topics"]))
    if body["done"]:
        return f"{body['link']} has copied back whole, after promotion {number}: {names}"
    return f"deleted on the old source after promotion {number}, to be copied back whole by {body['link']}: {names}"


def _copied_back(body: Mapping[str, Any]) -> str:
    whole = f"topics back whole, after promotion {int(body['number'])} of {body['link']}"
    return f"the link has copied {whole}" if body["done"] else f"the link copies {whole}"


_BY_NUMBER: dict[str, Callable[[int, Mapping[str, Any]], str]] = {
    "reversal": _reversed,
    "restoration": _restored,
    "resumption": _resumed,
}
_BY_BODY: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "recreation": _recreated,
    "copy-back": _copied_back,
}


def _many(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def _names(topics: Iterable[str]) -> str:
    names = list(topics)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
