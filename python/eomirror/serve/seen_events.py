"""
Adds to a link's timeline what only a process that looks at it can see: a cluster or the mirror that went away. Pure.

A mirror that is killed writes no record, and neither does a cluster that stops to answer.  These events are those of
the process that serves the page: another one, or the same one after a restart, has seen others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.link.events import Event

if TYPE_CHECKING:
    from eomirror.metrics.view import LinkView

__all__ = ["SeenEvents"]

_MOST_EVENTS = 50


class SeenEvents:
    """Tracks when clusters and mirror of one link come and go.  Not thread-safe."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._source = self._target = self._mirror = True

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
            self._note(wall_ms, "target", facts.target, answers=readable)
        if readable:
            away = bool(status.problem) if view.live is None else bool(view.live.source_failing_seconds)
            if away == self._source:
                self._source = not away
                self._note(wall_ms, "source", facts.source, answers=not away)
            self._look_at_mirror(view, wall_ms)
        if not self._events:
            return view
        events = sorted((*status.events, *self._events), key=lambda event: event.at)
        return replace(view, status=replace(status, events=tuple(events)))

    def _look_at_mirror(self, view: LinkView, wall_ms: int) -> None:
        status = view.status
        alive = status.state != "silent"
        if alive or not self._mirror:
            # its next owner writes records of its own
            self._mirror = alive
            return
        self._mirror = False
        owner = status.owner or {}
        which = f", process {owner['pid']} on host {owner['host']}," if owner.get("host") else ""
        since = owner.get("claimed_at") or wall_ms
        text = f"the mirror{which} renewed its claim for the last time: it was killed, or its host is away"
        self._events.append(Event(since, "mirror", text))

    def _note(self, wall_ms: int, end: str, cluster: str, *, answers: bool) -> None:
        found = "answers again" if answers else "does not answer"
        self._events.append(Event(wall_ms, end, f"cluster {cluster} {found}"))
