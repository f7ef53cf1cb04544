"""
Adds to a link's timeline what only a process that looks at it can see: a cluster or the mirror that went away. Pure.

A mirror that is killed writes no record, and neither does a cluster that stops to answer.  These events are those of
the process that serves the page: another one, or the same one after a restart, has seen others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.status.events import Event
from eomirror.status.live import owner_process

if TYPE_CHECKING:
    from eomirror.status.live import LinkView

__all__ = ["SeenEvents"]

_MOST_EVENTS = 50
# one question that fails is no outage
_AWAY_SECONDS = 5.0


class SeenEvents:
    """Tracks when clusters and mirror of one link come and go.  Not thread-safe."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._source = self._target = True
        # run whose claim stood still
        self._silent = ""

    def look(self, view: LinkView, wall_ms: int) -> LinkView:
        """
        Takes a look at the link, and returns it with the events that were seen so far.

        Args:
            view: The link.
            wall_ms: Time of the look.
        """
        facts, status = view.facts, view.status
        # what the target does not tell stays as it was
        readable = view.kept_seconds is None and status.state != "unknown"
        if readable != self._target:
            self._target = readable
            topics = f"the topics of the link on {facts.target}"
            away = (
                f"cluster {facts.target} does not answer"
                if "target" in status.away
                else f"{topics} cannot be read"
            )
            self._note(wall_ms, "target", f"{topics} are read again" if readable else away)
        if readable:
            self._look_at_source(view, wall_ms)
            self._look_at_mirror(view, wall_ms)
        if not self._events:
            return view
        events = sorted((*status.events, *self._events), key=lambda event: event.at)
        return replace(view, status=replace(status, events=tuple(events)))

    def _look_at_source(self, view: LinkView, wall_ms: int) -> None:
        failing = 0.0 if view.live is None else view.live.source_failing_seconds or 0.0
        away = bool(view.status.problem) if view.live is None else failing >= _AWAY_SECONDS
        if away != self._source:
            return
        self._source = not away
        found = "does not answer" if away else "answers again"
        self._note(wall_ms - round(failing * 1000), "source", f"cluster {view.facts.source} {found}")

    def _look_at_mirror(self, view: LinkView, wall_ms: int) -> None:
        owner = view.status.owner or {}
        run = str(owner.get("run") or "")
        if view.status.state != "silent":
            # another run writes records of its own
            if self._silent and run == self._silent and not owner.get("released"):
                self._note(wall_ms, "mirror", f"the mirror{owner_process(owner)} renews its claim again")
            self._silent = ""
        elif run != self._silent:
            self._silent = run
            text = f"the mirror{owner_process(owner)} stopped renewing its claim: it was killed, or its host is away"
            self._note(owner.get("claimed_at") or wall_ms, "mirror", text)

    def _note(self, at: int, kind: str, text: str) -> None:
        self._events.append(Event(at, kind, text))
