"""
State of the links of a running mirror, for its endpoints.

It is the newest snapshot that the driver's loop has handed over, so a request asks neither a broker nor a lane.

What only the topics hold (gaps, events, checkpoints, hanging transactions, results of `verify`) a thread for each link
reads again and again, as `serve` does, for a small share of the time.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.metrics.verdict import NOT_MIRRORING, Window
from eomirror.serve.body import Judged
from eomirror.serve.endpoints import Endpoints
from eomirror.serve.history import SAMPLE_SECONDS
from eomirror.status.live import LinkFacts, running_view
from eomirror.status.liveness import StandingEvents
from eomirror.status.repeated_reader import TopicsReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eomirror.config import Link
    from eomirror.metrics.families import Sink
    from eomirror.serve.endpoints import Queries
    from eomirror.serve.http import Request, Response
    from eomirror.status.live import LinkView
    from eomirror.status.repeated_reader import Reader, TopicsRead
    from eomirror.status.snapshot import LinkSnapshot, Snapshot

__all__ = ["STUCK_SECONDS", "RunningEndpoints"]

#: The driver's loop hands over a snapshot about twice a second; one that stands still for this long is stuck.
STUCK_SECONDS = 15.0

# a verdict compares looks over a minute; one more often than this adds nothing
_JUDGE_SECONDS = 1.0

# between two reads of a link's topics, and the share of the time that they may take beside the mirror
_READ_SECONDS = 10.0
_SHARE = 0.1


class RunningEndpoints:
    """
    Answers requests about the mirror of this process.  Thread-safe.

    Args:
        links: Links that it runs.
        version: Release of eomirror.
        readers: Makes the reader of each link's topics, by name; empty to read none.
        per_partition: Export the lag and the position of each partition.
        per_group: Export lag and age of each group.
        holds_secret: Returns True for a text that contains a secret of the configuration.
        queries: Answers questions about links; None if they cannot be asked here.
    """

    def __init__(
        self,
        links: Iterable[Link],
        *,
        version: str,
        readers: Mapping[str, Callable[[], Reader]] | None = None,
        per_partition: bool = False,
        per_group: bool = False,
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
        self._seen = {name: StandingEvents() for name in self._facts}
        # with its time, and the states of the links then
        self._judged: tuple[float, list[str], list[Judged]] = (float("-inf"), [], [])
        self._endpoints = Endpoints(
            self,
            links=self._facts,
            version=version,
            per_partition=per_partition,
            per_group=per_group,
            holds_secret=holds_secret,
            clock=clock,
            queries=queries,
        )
        # transactions of each link's run, and when their number last changed
        self._commits: dict[str, tuple[int, int]] = {}
        # the last read of each link's topics
        self._topics: dict[str, TopicsRead] = {}
        self._readers = dict(readers or {})
        self._over = threading.Event()
        # ends the thread that reads the topics of a link
        self._ends: dict[str, threading.Event] = {}

    def start(self) -> None:
        """Starts to read the links' topics, and to keep the history of the links."""
        for name, make in self._readers.items():
            self._begin(name, make)
        threading.Thread(target=self._keep_history, name="history", daemon=True).start()

    def close(self) -> None:
        """Ends both, the current reads at the latest."""
        self._over.set()
        for over in self._ends.values():
            over.set()

    def reconfigure(
        self,
        links: Iterable[Link],
        readers: Mapping[str, Callable[[], Reader]],
        *,
        holds_secret: Callable[[str], bool],
        queries: Queries | None,
    ) -> None:
        """
        Takes a changed configuration.

        Args:
            links: All links that the mirror runs.
            readers: As of the constructor.
            holds_secret: As of the constructor.
            queries: As of the constructor.
        """
        self._endpoints.reconfigure(holds_secret=holds_secret, queries=queries)
        facts = {link.name: LinkFacts.of(link) for link in links}
        with self._lock:
            for name in self._facts.keys() - facts.keys():
                self._topics.pop(name, None)
                self._commits.pop(name, None)
            for name in facts.keys() - self._facts.keys():
                self._windows[name], self._seen[name] = Window(), StandingEvents()
            self._facts.update(facts)
            for name in list(self._facts.keys() - facts.keys()):
                del self._facts[name]
            self._judged = (float("-inf"), [], [])
        for over in self._ends.values():
            over.set()
        if not self._over.is_set():
            for name, make in readers.items():
                self._begin(name, make)

    def _begin(self, name: str, make: Callable[[], Reader]) -> None:
        over = self._ends[name] = threading.Event()
        threading.Thread(
            target=self._read, args=(name, make, over), name=f"topics-{name}", daemon=True
        ).start()

    def update(self, snapshot: Snapshot) -> None:
        """Takes the newest snapshot, from the driver's loop."""
        self._latest = (self._clock.monotonic(), snapshot)
        for link in snapshot.links:
            committed = sum(lane.work.committed for lane in link.lanes)
            if committed != self._commits.get(link.link, (0, 0))[0]:
                self._commits[link.link] = committed, self._clock.wall_ms()

    def answer(self, request: Request) -> Response:
        """Answers a request."""
        return self._endpoints.answer(request)

    def collect(self, out: Sink) -> None:
        """Adds to a sink what ``/metrics`` says."""
        self._endpoints.collect(out)

    def judged(self) -> list[Judged]:
        """Returns the newest view of each link."""
        at, snapshot = self._latest
        if snapshot is None:
            return []
        now = self._clock.monotonic()
        states = [link.state for link in snapshot.links]
        with self._lock:
            judged_at, judged_states, judged = self._judged
            # the end of a run is shown at once: the last export must not be of a moment before
            if now - judged_at < _JUDGE_SECONDS and states == judged_states:
                return judged
            # a link that left the configuration may still end
            views = [self._view(link, now) for link in snapshot.links if link.link in self._facts]
            wall_ms = self._clock.wall_ms()
            found = [
                Judged(view, self._windows[view.facts.name].judge(view, now, wall_ms), now - at)
                for view in views
            ]
            self._judged = (now, states, found)
            return found

    def _view(self, link: LinkSnapshot, now: float) -> LinkView:
        facts, topics = self._facts[link.link], self._topics.get(link.link)
        if topics is None:
            view = running_view(facts, link)
        else:
            kept = topics.kept_seconds(now)
            view = running_view(facts, link, topics.status, topics.took_seconds, kept)
        _, commit_ms = self._commits.get(link.link, (0, None))
        return self._seen[link.link].look(replace(view, commit_ms=commit_ms), self._clock.wall_ms())

    def live(self) -> tuple[bool, dict[str, Any]]:
        """Returns True while the driver's loop moves."""
        seconds = self._clock.monotonic() - self._latest[0]
        return seconds <= STUCK_SECONDS, {"loop_age_seconds": round(seconds, 1)}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Returns True while each link mirrors: it has begun, and both clusters answer; a stopped topic alerts."""
        words = dict.fromkeys(self._facts, "starting")
        judged = self.judged()
        words |= {each.view.facts.name: each.verdict.word for each in judged}
        # the verdict on a link with a stopped topic is that, also while a cluster is away
        away = any(each.verdict.word == "stopped" and each.view.status.away for each in judged)
        return not away and not any(word in NOT_MIRRORING for word in words.values()), {"links": words}

    def _keep_history(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            for judged in self.judged():
                self._endpoints.prepare(judged)

    def _read(self, name: str, make: Callable[[], Reader], over: threading.Event) -> None:
        topics = TopicsReader(name, make, self._clock)
        try:
            while not over.is_set():
                read = topics.read()
                if not over.is_set():
                    self._topics[name] = read
                over.wait(read.pause_seconds(_READ_SECONDS, _SHARE))
        finally:
            topics.close()
