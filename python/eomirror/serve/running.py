"""
Endpoints of a running mirror: ``/metrics``, ``/livez``, ``/readyz``.

They read the newest snapshot that the driver's loop has handed over, so a scrape asks neither a broker nor a lane.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.metrics.collect import exposition
from eomirror.metrics.exposition import wants_openmetrics
from eomirror.metrics.view import LinkFacts, running_view
from eomirror.serve.http import Response
from eomirror.serve.process import process_facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.config import Link
    from eomirror.driver.snapshot import LinkSnapshot, Snapshot
    from eomirror.serve.http import Request

__all__ = ["RunningEndpoints"]

#: The driver's loop hands over a snapshot about twice a second; one that stands still for this long is stuck.
STUCK_SECONDS = 15.0

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"


class RunningEndpoints:
    """
    Answers requests about the mirror of this process.  Thread-safe.

    Args:
        links: Links that it runs.
        version: Release of eomirror.
        per_partition: Export the lag and the position of each partition.
        clock: Source of time.
    """

    def __init__(
        self, links: Iterable[Link], *, version: str, per_partition: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._facts = {link.name: LinkFacts.of(link) for link in links}
        self._version = version
        self._per_partition = per_partition
        self._clock = clock
        # replaced as a whole, so that no lock is needed
        self._latest: tuple[float, Snapshot | None] = (clock.monotonic(), None)

    def update(self, snapshot: Snapshot) -> None:
        """Takes the newest snapshot, from the driver's loop."""
        self._latest = (self._clock.monotonic(), snapshot)

    def answer(self, request: Request) -> Response:
        """Answers a request."""
        match request.path:
            case ("metrics",):
                return self._metrics(request)
            case ("livez",) | ("health",):
                return self._live()
            case ("readyz",) | ("ready",):
                return self._ready()
            case _:
                return Response(b"not found\n", _TEXT, HTTPStatus.NOT_FOUND)

    def _metrics(self, request: Request) -> Response:
        _, snapshot = self._latest
        found = exposition(
            [running_view(self._facts[link.link], link) for link in (snapshot.links if snapshot else ())],
            process_facts(self._version),
            now_ms=self._clock.wall_ms(),
            per_partition=self._per_partition,
            openmetrics=wants_openmetrics(request.accept),
        )
        return Response(found.text(), found.content_type)

    def _live(self) -> Response:
        at, _ = self._latest
        seconds = self._clock.monotonic() - at
        return _health("alive", ok=seconds <= STUCK_SECONDS, loop_age_seconds=round(seconds, 1))

    def _ready(self) -> Response:
        _, snapshot = self._latest
        states = dict.fromkeys(self._facts, "preparing")
        if snapshot is not None:
            states |= {link.link: _state(link) for link in snapshot.links}
        return _health("ready", ok=all(state == "running" for state in states.values()), links=states)


def _state(link: LinkSnapshot) -> str:
    """Returns the state of a link; ``starting`` until each of its lanes has run on a worker once."""
    begun = all(lane.plane or lane.state == "idle" for lane in link.lanes)
    return link.state if begun or link.state != "running" else "starting"


def _health(name: str, *, ok: bool, **facts: object) -> Response:
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(orjson.dumps({name: ok, **facts}) + b"\n", _JSON, status)
