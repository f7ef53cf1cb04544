"""
State of the links of a running mirror, for its endpoints.

It is the newest snapshot that the driver's loop has handed over, so a request asks neither a broker nor a lane.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.metrics.verdict import Window
from eomirror.metrics.view import LinkFacts, running_view
from eomirror.serve.body import Judged
from eomirror.serve.endpoints import Endpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eomirror.config import Link
    from eomirror.driver.snapshot import LinkSnapshot, Snapshot
    from eomirror.serve.endpoints import Queries
    from eomirror.serve.http import Request, Response

__all__ = ["STUCK_SECONDS", "RunningEndpoints"]

#: The driver's loop hands over a snapshot about twice a second; one that stands still for this long is stuck.
STUCK_SECONDS = 15.0

# a verdict compares looks over a minute; one more often than this adds nothing
_JUDGE_SECONDS = 1.0


class RunningEndpoints:
    """
    Answers requests about the mirror of this process.  Thread-safe.

    Args:
        links: Links that it runs.
        version: Release of eomirror.
        per_partition: Export the lag and the position of each partition.
        holds_secret: Returns True for a text that contains a secret of the configuration.
        queries: Answers questions about links; None if they cannot be asked here.
    """

    def __init__(
        self,
        links: Iterable[Link],
        *,
        version: str,
        per_partition: bool = False,
        holds_secret: Callable[[str], bool] = lambda _: False,
        clock: Clock = SYSTEM_CLOCK,
        queries: Queries | None = None,
    ) -> None:
        self._facts = {link.name: LinkFacts.of(link) for link in links}
        self._clock = clock
        # replaced as a whole, so that no lock is needed
        self._latest: tuple[float, Snapshot | None] = (clock.monotonic(), None)
        self._lock = threading.Lock()
        self._windows = {name: Window() for name in self._facts}
        self._judged: tuple[float, list[Judged]] = (float("-inf"), [])
        self._endpoints = Endpoints(
            self,
            version=version,
            per_partition=per_partition,
            holds_secret=holds_secret,
            clock=clock,
            queries=queries,
        )

    def update(self, snapshot: Snapshot) -> None:
        """Takes the newest snapshot, from the driver's loop."""
        self._latest = (self._clock.monotonic(), snapshot)

    def answer(self, request: Request) -> Response:
        """Answers a request."""
        return self._endpoints.answer(request)

    def judged(self) -> list[Judged]:
        """Returns the newest view of each link."""
        at, snapshot = self._latest
        if snapshot is None:
            return []
        now = self._clock.monotonic()
        with self._lock:
            if now - self._judged[0] < _JUDGE_SECONDS:
                return self._judged[1]
            views = [running_view(self._facts[link.link], link) for link in snapshot.links]
            found = [
                Judged(view, self._windows[view.facts.name].judge(view, now), now - at) for view in views
            ]
            self._judged = (now, found)
            return found

    def live(self) -> tuple[bool, dict[str, Any]]:
        """Returns True while the driver's loop moves."""
        seconds = self._clock.monotonic() - self._latest[0]
        return seconds <= STUCK_SECONDS, {"loop_age_seconds": round(seconds, 1)}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Returns True while all links run, each of their lanes with a worker or without work."""
        _, snapshot = self._latest
        states = dict.fromkeys(self._facts, "preparing")
        if snapshot is not None:
            states |= {link.link: _state(link) for link in snapshot.links}
        return all(state in {"running", "paused"} for state in states.values()), {"links": states}


def _state(link: LinkSnapshot) -> str:
    """Returns the state of a link; one that runs is ``starting`` until each lane has had a worker."""
    waiting = any(not lane.plane and lane.state not in {"idle", "paused", "ended"} for lane in link.lanes)
    return "starting" if link.state == "running" and waiting else link.state
