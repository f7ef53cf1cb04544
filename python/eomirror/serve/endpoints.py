"""Answers of page, API and metrics that a running mirror and ``eomirror serve`` share."""

from __future__ import annotations

from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from eomirror.metrics.collect import exposition
from eomirror.metrics.exposition import wants_openmetrics
from eomirror.serve.body import link_body, masked, summary_body
from eomirror.serve.http import Response
from eomirror.serve.page import link_page, message_page, overview_page
from eomirror.serve.process import process_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.clock import Clock
    from eomirror.serve.body import Judged
    from eomirror.serve.http import Request

__all__ = ["Endpoints", "LinkSource"]

_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class LinkSource(Protocol):
    """The state of links, from a running driver or from topics."""

    def judged(self) -> Sequence[Judged]:
        """Returns the newest view of each link; never blocks."""

    def live(self) -> tuple[bool, dict[str, Any]]:
        """Returns True if the process works, and facts about it."""

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Returns True if the process can do what it is for, and facts about it."""


class Endpoints:
    """
    Answers requests.  Thread-safe.

    Args:
        source: The state of links.
        version: Release of eomirror.
        per_partition: Export the lag and the position of each partition.
        holds_secret: Returns True for a text that contains a secret of the configuration.
    """

    def __init__(
        self,
        source: LinkSource,
        *,
        version: str,
        per_partition: bool,
        holds_secret: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._source = source
        self._version = version
        self._per_partition = per_partition
        self._holds_secret = holds_secret
        self._clock = clock
        self._style = files("eomirror.serve").joinpath("style.css").read_bytes()

    def answer(self, request: Request) -> Response:
        """Answers a request."""
        match request.path:
            case ():
                links = [self._masked(summary_body(each)) for each in self._source.judged()]
                return _html(overview_page(links, version=self._version, wall_ms=self._clock.wall_ms()))
            case ("links", name):
                return self._link_page(name, request)
            case ("style.css",):
                return Response(self._style, "text/css; charset=utf-8")
            case ("api", "v1", "links"):
                return _json({"links": [self._masked(summary_body(each)) for each in self._source.judged()]})
            case ("api", "v1", "links", name):
                found = self._find(name)
                return (
                    _json({"error": "no such link"}, HTTPStatus.NOT_FOUND) if found is None else _json(found)
                )
            case ("metrics",):
                return self._metrics(request)
            case ("livez",) | ("health",):
                return _health("alive", *self._source.live())
            case ("readyz",) | ("ready",):
                return _health("ready", *self._source.ready())
            case _:
                return Response(b"not found\n", _TEXT, HTTPStatus.NOT_FOUND)

    def _find(self, name: str) -> dict[str, Any] | None:
        for each in self._source.judged():
            if each.view.facts.name == name:
                return self._masked(link_body(each))
        return None

    def _masked(self, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = masked(body, self._holds_secret)
        return found

    def _link_page(self, name: str, request: Request) -> Response:
        found, wall_ms = self._find(name), self._clock.wall_ms()
        if found is None:
            page = message_page("No such link", name, version=self._version, wall_ms=wall_ms)
            return _html(page, HTTPStatus.NOT_FOUND)
        number = request.query.get("page", "")
        page = link_page(
            found,
            version=self._version,
            wall_ms=wall_ms,
            wanted=request.query.get("topic", ""),
            number=int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 1,  # noqa: PLR2004
        )
        return _html(page)

    def _metrics(self, request: Request) -> Response:
        found = exposition(
            [(each.view, each.verdict) for each in self._source.judged()],
            process_facts(self._version),
            now_ms=self._clock.wall_ms(),
            per_partition=self._per_partition,
            openmetrics=wants_openmetrics(request.accept),
        )
        return Response(found.text(), found.content_type)


def _html(page: str, status: int = HTTPStatus.OK) -> Response:
    return Response(page.encode("utf-8", "replace"), _HTML, status)


def _json(value: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), _JSON, status)


def _health(name: str, ok: bool, facts: dict[str, Any]) -> Response:  # noqa: FBT001  the answer of a source
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(orjson.dumps({name: ok, **facts}) + b"\n", _JSON, status)
