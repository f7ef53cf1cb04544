"""Answers of page, API and metrics that a running mirror and ``eomirror serve`` share."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import orjson
import psutil

from eomirror.metrics.collect import ProcessFacts, collect, exposition
from eomirror.metrics.exposition import wants_openmetrics
from eomirror.serve.answer_pages import groups_page, offset_page, readiness_page
from eomirror.serve.body import Value, link_body, masked, summary_body, topic_body
from eomirror.serve.history import PERIODS, LinkSeries, topics_each
from eomirror.serve.http import Response
from eomirror.serve.markup import prepare
from eomirror.serve.overview_page import overview_page
from eomirror.serve.page import link_page, message_page
from eomirror.serve.topic_page import topic_page
from eomirror.serve.topics_table import digits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from eomirror.clock import Clock
    from eomirror.metrics.families import Sink
    from eomirror.serve.body import Judged
    from eomirror.serve.history import Lines
    from eomirror.serve.http import Request
    from eomirror.status.lag import LagRow
    from eomirror.status.live import LinkView
    from eomirror.status.model import PartitionStatus

__all__ = ["Endpoints", "LinkSource", "Queries", "process_facts"]


def process_facts(version: str) -> ProcessFacts:
    """Returns the figures of this process; ``version`` is the release of eomirror."""
    process = psutil.Process()
    with process.oneshot():
        times, memory, started = process.cpu_times(), process.memory_info(), process.create_time()
    files: int | None = None
    with contextlib.suppress(psutil.Error, AttributeError):
        files = process.num_fds()
    return ProcessFacts(version, times.user + times.system, memory.rss, started, files)


_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_FILES = {
    "style.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class _Shown(TypedDict):
    """Arguments of all pages."""

    version: str
    wall_ms: int


class LinkSource(Protocol):
    """The state of links, from a running driver or from topics."""

    def judged(self) -> Sequence[Judged]:
        """Returns the newest view of each link; never blocks."""

    def live(self) -> tuple[bool, dict[str, Any]]:
        """Returns True if the process works, and facts about it."""

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Returns True if the process can do what it is for, and facts about it."""


class Queries(Protocol):
    """Questions that are answered on request: `eomirror.serve.queries.LinkQueries`."""

    def readiness(self, link: str) -> dict[str, Any]:
        """Returns the checks of a link, and its groups."""

    def offset(
        self, link: str, topic: str, partition: int, offset: int, *, reverse: bool = False
    ) -> dict[str, Any]:
        """Returns an offset on the other side of a link."""


class Endpoints:
    """
    Answers requests.  Thread-safe.

    Args:
        source: The state of links.
        version: Release of eomirror.
        per_partition: Export the lag and the position of each partition.
        per_group: Export lag and age of each group.
        holds_secret: Returns True for a text that contains a secret of the configuration.
        queries: Answers questions about links; None if they cannot be asked here.
        links: Names of all links.
    """

    def __init__(
        self,
        source: LinkSource,
        *,
        links: Collection[str],
        version: str,
        per_partition: bool,
        per_group: bool = False,
        holds_secret: Callable[[str], bool],
        clock: Clock,
        queries: Queries | None = None,
    ) -> None:
        self._queries = queries
        # Of the newest views, without secrets: thousands of topics are masked and sorted once for each read.
        self._shown: dict[str, tuple[LinkView, Judged]] = {}
        self._lock = threading.Lock()
        # a sink of a Spark query is found later
        self._history: defaultdict[str, LinkSeries] = defaultdict(
            partial(LinkSeries, topics_each(len(links)))
        )
        self._source = source
        self._version = version
        self._per_partition = per_partition
        self._per_group = per_group
        self._holds_secret = holds_secret
        self._clock = clock
        prepare()
        folder = files("eomirror.serve")
        self._files = {
            name: Response(folder.joinpath(name).read_bytes(), kind) for name, kind in _FILES.items()
        }

    def answer(self, request: Request) -> Response:
        """Answers a request."""
        match request.path:
            case ():
                return self._overview()
            case ("links", name, *rest) if tuple(rest) in {(), ("readiness",), ("groups",), ("offset",)}:
                return self._link_page(name, "".join(rest), request)
            case ("links", name, "topics", topic):
                return self._topic_page(name, topic, request)
            case (name,) if name in _FILES:
                return self._files[name]
            case ("api", *rest):
                return self._api(rest, request)
            case ("metrics",):
                return self._metrics(request)
            case ("livez",) | ("health",):
                return _health("alive", *self._source.live())
            case ("readyz",) | ("ready",):
                return _health("ready", *self._source.ready())
            case _:
                return self._no_page("No such page", "There is nothing at this address.")

    def _api(self, path: Sequence[str], request: Request) -> Response:
        match path:
            case ("v1", "links"):
                return _json(
                    {"links": [summary_body(self._without_secrets(each)) for each in self._source.judged()]}
                )
            case ("v1", "links", name, *rest) if tuple(rest) in {(), ("readiness",), ("offset",)}:
                return self._data(name, "".join(rest), request)
            case ("v1", "links", name, "topics", topic):
                found = self._find_topic(name, topic)
                if found is None:
                    return _json({"error": "no such topic"}, HTTPStatus.NOT_FOUND)
                _, row, partitions, history = found
                return _json({**topic_body(row, partitions), "history": _history(history)})
            case _:
                return _json({"error": "no such path"}, HTTPStatus.NOT_FOUND)

    def reconfigure(self, *, holds_secret: Callable[[str], bool], queries: Queries | None) -> None:
        """Takes secrets and answers of a changed configuration; what is shown is drawn anew without these secrets."""
        before = self._holds_secret
        # one that was replaced stays secret
        self._holds_secret = lambda text: holds_secret(text) or before(text)
        self._queries = queries
        with self._lock:
            self._shown = {}

    def prepare(self, judged: Judged) -> None:
        """Builds what a request about a link needs, so that the request only draws it, and adds it to the history."""
        shown, now = self._without_secrets(judged), self._clock.monotonic()
        with self._lock:
            self._history[judged.name].add(shown, now)

    def collect(self, out: Sink) -> None:
        """Adds to a sink what ``/metrics`` says."""
        collect(
            out,
            [(each.view, each.verdict) for each in self._source.judged()],
            process_facts(self._version),
            now_ms=self._clock.wall_ms(),
            per_partition=self._per_partition,
            per_group=self._per_group,
        )

    def _overview(self) -> Response:
        judged = self._source.judged()
        links = [self._without_secrets(each) for each in judged]
        oldest = max((each.age_seconds for each in judged), default=0.0)
        wall_ms = self._clock.wall_ms() - round(oldest * 1000)
        return _html(overview_page(links, version=self._version, wall_ms=_whole_second(wall_ms)))

    def _find(self, name: str) -> tuple[Judged, Lines] | None:
        for each in self._source.judged():
            if each.name == name:
                with self._lock:
                    history = self._history[name].link(self._clock.monotonic())
                return self._without_secrets(each), history
        return None

    def _find_topic(
        self, name: str, topic: str
    ) -> tuple[Judged, LagRow, list[PartitionStatus], Lines | None] | None:
        found = self._find(name)
        row = (
            None if found is None else next((row for row in found[0].topic_rows if row.topic == topic), None)
        )
        if found is None or row is None:
            return None
        with self._lock:
            history = self._history[name].topic(topic, self._clock.monotonic())
        return found[0], row, found[0].partitions_of(topic), history

    def _without_secrets(self, judged: Judged) -> Judged:
        known = self._shown.get(judged.name)
        if known is None or known[0] is not judged.view:
            known = self._shown[judged.name] = judged.view, self._masked(judged)
        known[1].age_seconds = judged.age_seconds
        return known[1]

    def _masked(self, value: Value) -> Value:
        return masked(value, self._holds_secret)

    def _data(self, name: str, what: str, request: Request) -> Response:
        found = self._find(name)
        if found is None:
            return _json({"error": "no such link"}, HTTPStatus.NOT_FOUND)
        if not what:
            return _json({**link_body(found[0]), "history": _history(found[1])})
        answer = self._readiness(name) if what == "readiness" else self._offset(name, request)
        return _json(answer)

    def _readiness(self, name: str) -> dict[str, Any]:
        if self._queries is None:
            return {"error": "this process answers no questions", "fix": "ask: eomirror readiness CONFIG"}
        return self._masked(self._queries.readiness(name))

    def _offset(self, name: str, request: Request) -> dict[str, Any]:
        if self._queries is None:
            return {
                "error": "this process answers no questions",
                "fix": "ask: eomirror offsets translate CONFIG",
            }
        query = request.query
        partition, offset = digits(query.get("partition")), digits(query.get("offset"))
        if partition is None or offset is None or not query.get("topic"):
            return {
                "error": "a topic, a partition and an offset are needed",
                "fix": "write partition and offset as numbers",
            }
        reverse = query.get("from") == "target"
        return self._masked(self._queries.offset(name, query["topic"], partition, offset, reverse=reverse))

    def _link_page(self, name: str, what: str, request: Request) -> Response:
        found, answer = self._find(name), {}
        if found is not None and what in {"readiness", "groups"}:
            # an answer may take seconds, and what the page shows beside it must not be older
            answer = self._readiness(name)
            found = self._find(name)
        now_ms = self._clock.wall_ms()
        if found is None:
            return self._no_page("No such link", name)
        link, history = found
        query, shown = request.query, _Shown(version=self._version, wall_ms=_whole_second(now_ms))
        if what in {"readiness", "groups"}:
            # an answer is given again for some seconds: the page shows when it was found
            shown["wall_ms"] = _whole_second(now_ms - round(answer.get("age_seconds", 0.0) * 1000))
            draw = readiness_page if what == "readiness" else groups_page
            return _html(draw(link, answer, **shown))
        if what == "offset":
            question = {key: query.get(key, "") for key in ("from", "topic", "partition", "offset")}
            translated = (
                self._offset(name, request) if any(map(query.get, ("topic", "partition", "offset"))) else None
            )
            return _html(offset_page(link, question, translated, **shown))
        shown["wall_ms"] = _whole_second(now_ms - round(link.age_seconds * 1000))
        return _html(link_page(link, history, query, **shown))

    def _topic_page(self, name: str, topic: str, request: Request) -> Response:
        found = self._find_topic(name, topic)
        if found is None:
            return self._no_page("No such topic", f"{name} mirrors no topic of this name: {topic}")
        wall_ms = _whole_second(self._clock.wall_ms() - round(found[0].age_seconds * 1000))
        return _html(topic_page(*found, request.query, version=self._version, wall_ms=wall_ms))

    def _no_page(self, title: str, message: str) -> Response:
        wall_ms = _whole_second(self._clock.wall_ms())
        page = message_page(title, message, version=self._version, wall_ms=wall_ms)
        return _html(page, HTTPStatus.NOT_FOUND)

    def _metrics(self, request: Request) -> Response:
        found = exposition(
            [(each.view, each.verdict) for each in self._source.judged()],
            process_facts(self._version),
            now_ms=self._clock.wall_ms(),
            per_partition=self._per_partition,
            per_group=self._per_group,
            openmetrics=wants_openmetrics(request.accept),
        )
        return Response(found.text(), found.content_type)


def _history(lines: Lines | None) -> dict[str, Any] | None:
    """Returns lines as JSON, with the seconds of one value."""
    if lines is None:
        return None
    return {name: {"step_seconds": PERIODS[name][0], **values} for name, values in lines.items()}


def _whole_second(wall_ms: int) -> int:
    """Returns a time without its fraction, so that a page of the same data is the same page."""
    return wall_ms // 1000 * 1000


def _html(page: str, status: int = HTTPStatus.OK) -> Response:
    return Response(page.encode("utf-8", "replace"), _HTML, status)


def _json(value: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), _JSON, status)


def _health(name: str, ok: bool, facts: dict[str, Any]) -> Response:  # noqa: FBT001  the answer of a source
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(orjson.dumps({name: ok, **facts}) + b"\n", _JSON, status)
