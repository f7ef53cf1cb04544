"""
State of links read from their topics, for ``eomirror serve``: a thread for each link reads it again and again.

A request never waits for a broker: it gets the last read, with its age, and the data that the thread built of it.

A link that cannot be read is unknown, with the reason, until it can.  What its topics showed last stays on the page,
with the time of that read: an operator needs it most while the target does not answer.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import BrokerFailedError, MirrorError, UnreachableError
from eomirror.link.status import LinkStatus, unread_status
from eomirror.metrics.verdict import Window
from eomirror.metrics.view import LinkFacts, LinkView
from eomirror.serve.body import Judged
from eomirror.serve.endpoints import Endpoints
from eomirror.serve.seen_events import SeenEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.metrics.verdict import Verdict
    from eomirror.serve.endpoints import Queries
    from eomirror.serve.http import Request, Response

__all__ = ["PolledEndpoints", "Reader"]

log = structlog.get_logger(__name__)

_POLL_SECONDS = 3.0
# a link with a large positions topic is read more rarely: at most this share of the time
_SHARE = 0.4
# a read may watch a claim for 7 s and wait for two clusters
_STUCK_SECONDS = 60.0


class Reader(Protocol):
    """Reads the status of a link: `eomirror.link.status_reader.StatusReader`."""

    def read(self) -> LinkStatus:
        """Returns the status; raises MirrorError if the target cannot be read."""

    def close(self) -> None:
        """Closes all clients."""


class PolledEndpoints:
    """
    Answers requests about links from their topics.  Thread-safe.

    Args:
        readers: Facts of each link, and the function that makes its reader.
        version: Release of eomirror.
        per_partition: Export the lag and the position of each partition.
        per_group: Export lag and age of each group.
        holds_secret: Returns True for a text that contains a secret of the configuration.
        queries: Answers questions about links; None if they cannot be asked here.
    """

    def __init__(
        self,
        readers: Mapping[LinkFacts, Callable[[], Reader]],
        *,
        version: str,
        per_partition: bool = False,
        per_group: bool = False,
        holds_secret: Callable[[str], bool] = lambda _: False,
        clock: Clock = SYSTEM_CLOCK,
        queries: Queries | None = None,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._judged: dict[str, Judged | None] = {facts.name: None for facts in readers}
        self._read_at = {facts.name: clock.monotonic() for facts in readers}
        self._endpoints = Endpoints(
            self,
            version=version,
            per_partition=per_partition,
            per_group=per_group,
            holds_secret=holds_secret,
            clock=clock,
            queries=queries,
        )
        self._threads = [
            threading.Thread(target=self._poll, args=(facts, make), name=f"poll-{facts.name}", daemon=True)
            for facts, make in readers.items()
        ]

    def start(self) -> None:
        """Starts to read."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends the threads, after their current read at the latest."""
        self._over.set()

    def answer(self, request: Request) -> Response:
        """Answers a request."""
        return self._endpoints.answer(request)

    def judged(self) -> list[Judged]:
        """Returns the last read of each link that was read."""
        now = self._clock.monotonic()
        with self._lock:
            return [
                replace(each, age_seconds=now - self._read_at[name])
                for name, each in self._judged.items()
                if each is not None
            ]

    def live(self) -> tuple[bool, dict[str, Any]]:
        """Returns True while every link is read again and again, successfully or not."""
        now = self._clock.monotonic()
        with self._lock:
            oldest = max((now - at for at in self._read_at.values()), default=0.0)
        return oldest <= _STUCK_SECONDS, {"oldest_read_seconds": round(oldest, 1)}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Returns True once every link was read; what a read found makes no difference."""
        with self._lock:
            states = {
                name: "not read yet" if each is None else each.view.status.state
                for name, each in self._judged.items()
            }
            return all(self._judged.values()), {"links": states}

    def _poll(self, facts: LinkFacts, make: Callable[[], Reader]) -> None:
        window, seen = Window(), SeenEvents()
        before: Verdict | None = None
        reader: Reader | None = None
        # the last read that succeeded, and its time
        last: tuple[LinkStatus, float] | None = None
        # what it showed, as long as the topics cannot be read
        stale: LinkStatus | None = None
        away = False
        try:
            while not self._over.is_set():
                began = self._clock.monotonic()
                try:
                    reader = reader or make()
                    status = reader.read()
                    last, failed, stale, away = (status, self._clock.monotonic()), None, None, False
                except MirrorError as error:
                    failed = error.message, error.fix
                    away = isinstance(error, UnreachableError | BrokerFailedError)
                except Exception as error:
                    log.exception("link_not_read", link=facts.name)
                    away = False
                    failed = (
                        f"reading it fails: {type(error).__name__}",
                        "report this as a bug, with the log",
                    )
                now = self._clock.monotonic()
                kept = None
                if failed is not None:
                    problem, fix = failed
                    status = stale = unread_status(
                        facts.name, stale or (last and last[0]), problem=problem, fix=fix
                    )
                    kept = None if last is None else now - last[1]
                view = LinkView(
                    facts=facts,
                    status=status,
                    read_seconds=now - began,
                    kept_seconds=kept,
                    target_away=away,
                )
                verdict = window.judge(view, now)
                before = verdict if kept is None else before
                judged = Judged(
                    seen.look(view, self._clock.wall_ms()), verdict, 0.0, None if kept is None else before
                )
                self._endpoints.prepare(judged)
                with self._lock:
                    self._judged[facts.name], self._read_at[facts.name] = judged, now
                self._over.wait(max(_POLL_SECONDS, (now - began) / _SHARE - (now - began)))
        finally:
            if reader is not None:
                reader.close()
