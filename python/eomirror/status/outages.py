"""
Adds to a link's timeline what its topics do not tell yet: a cluster that is away, a mirror that died. Pure.

A mirror that runs through an outage records it when it is over, and the next owner records that it took the link from
one that had not released it.  Until then only a process that looks at the link sees them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.records.events import LinkEvent

if TYPE_CHECKING:
    from eomirror.status.live import LinkView

__all__ = ["StandingEvents"]

# one question that fails is no outage
_AWAY_SECONDS = 5.0


class StandingEvents:
    """Tracks since when clusters of one link are away, and its mirror is silent.  Not thread-safe."""

    def __init__(self) -> None:
        # cluster -> begin of its outage, ms since the epoch
        self._since: dict[str, int] = {}

    def look(self, view: LinkView, wall_ms: int) -> LinkView:
        """
        Takes a look at the link, and returns it with the events of what stands.

        Args:
            view: The link.
            wall_ms: Time of the look.
        """
        facts, status = view.facts, view.status
        unread = view.kept_seconds is not None or status.state == "unknown"
        failing = 0.0 if view.live is None else view.live.source_failing_seconds or 0.0
        away = {facts.target: wall_ms} if unread else {}
        if failing >= _AWAY_SECONDS or (view.live is None and "source" in status.away):
            away[facts.source] = wall_ms - round(failing * 1000)
        elif unread and facts.source in self._since:
            # what the target does not tell stays as it was
            away[facts.source] = wall_ms
        self._since = {name: self._since.get(name, since) for name, since in away.items()}
        events = [
            LinkEvent(since, "outage", self._text(view, name, answers="target" not in status.away))
            for name, since in self._since.items()
        ]
        if status.state == "silent":
            owner = status.owner
            text = (
                f"the mirror{owner.process if owner else ''} stopped renewing its claim: it was killed, or its host is "
                "away"
            )
            events.append(LinkEvent((owner and owner.claimed_at) or wall_ms, "silent", text))
        if not events:
            return view
        found = sorted((*status.events, *events), key=lambda event: event.at)
        return replace(view, status=replace(status, events=tuple(found)))

    def _text(self, view: LinkView, name: str, *, answers: bool) -> str:
        if name == view.facts.target and answers:
            return f"the topics of the link on {name} cannot be read"
        return f"cluster {name} does not answer"
