"""
State of links read from their topics, for ``eomirror serve``: a thread for each link reads it again and again.

A request never waits for a broker: it gets the last read, with its age, and the data that the thread built of it.

A link that cannot be read is unknown, with the reason and what its topics showed last, until it can.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import MirrorError
from eomirror.metrics.verdict import Window
from eomirror.serve.body import Judged
from eomirror.serve.endpoints import Endpoints
from eomirror.status.live import LinkFacts, LinkView
from eomirror.status.liveness import StandingEvents
from eomirror.status.repeated_reader import TopicsReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.metrics.verdict import Verdict
    from eomirror.records.events import Outage
    from eomirror.serve.endpoints import Queries
    from eomirror.serve.http import Request, Response
    from eomirror.status.repeated_reader import Reader

__all__ = ["PolledEndpoints"]

log = structlog.get_logger(__name__)

_POLL_SECONDS = 3.0
# between two looks for new sinks
_SINKS_SECONDS = 15.0
# a link with a large positions topic is read more rarely: at most this share of the time
_SHARE = 0.4
# a read may watch a claim for 7 s and wait for two clusters
_STUCK_SECONDS = 60.0


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
        sinks: Returns facts and reader of each sink of a Spark query that the clusters know; called again and again.
        record: Writes outages that ended while no mirror ran to a link's control; returns the reason if it cannot.
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
        record: Callable[[str, Sequence[Outage]], str] = lambda *_: "",
        sinks: Callable[[], Mapping[LinkFacts, Callable[[], Reader]]] = dict,
    ) -> None:
        self._clock = clock
        self._record = record
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._judged: dict[str, Judged | None] = {facts.name: None for facts in readers}
        self._read_at = {facts.name: clock.monotonic() for facts in readers}
        self._endpoints = Endpoints(
            self,
            links=self._judged,
            version=version,
            per_partition=per_partition,
            per_group=per_group,
            holds_secret=holds_secret,
            clock=clock,
            queries=queries,
        )
        self._readers = readers
        self._sinks = sinks

    def start(self) -> None:
        """Starts to read."""
        for facts, make in self._readers.items():
            self._begin(facts, make)
        threading.Thread(target=self._find_sinks, name="poll-sinks", daemon=True).start()

    def _begin(self, facts: LinkFacts, make: Callable[[], Reader]) -> None:
        threading.Thread(
            target=self._poll, args=(facts, make), name=f"poll-{facts.name}", daemon=True
        ).start()

    def _find_sinks(self) -> None:
        """Reads each sink from the time on at which it is known."""
        known: set[str] = set()
        while not self._over.is_set():
            try:
                found = self._sinks()
            except MirrorError as error:
                log.debug("sinks_not_read", reason=error.message)
                found = {}
            for facts, make in found.items():
                if facts.name not in known:
                    known.add(facts.name)
                    self._begin(facts, make)
            self._over.wait(_SINKS_SECONDS)

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
        window, seen = Window(), StandingEvents()
        before: Verdict | None = None
        topics = TopicsReader(facts.name, make, self._clock)
        try:
            while not self._over.is_set():
                read = topics.read()
                kept = read.kept_seconds(read.at)
                view = LinkView(
                    facts=facts,
                    status=read.status,
                    read_seconds=read.took_seconds,
                    kept_seconds=kept,
                )
                verdict = window.judge(view, read.at, self._clock.wall_ms())
                before = verdict if kept is None else before
                judged = Judged(
                    seen.look(view, self._clock.wall_ms()), verdict, 0.0, None if kept is None else before
                )
                self._endpoints.prepare(judged)
                with self._lock:
                    self._judged[facts.name], self._read_at[facts.name] = judged, read.at
                self._record_outages(facts.name, seen)
                self._over.wait(read.pause_seconds(_POLL_SECONDS, _SHARE))
        finally:
            topics.close()

    def _record_outages(self, link: str, seen: StandingEvents) -> None:
        due, seen.unrecorded = seen.unrecorded, []
        if due and (reason := self._record(link, due)):
            log.warning(
                "outage_not_recorded",
                link=link,
                reason=reason,
                fix="give the user of `eomirror serve` Write on the link's control topic, or only this process shows "
                "the outage, while it lasts",
            )
