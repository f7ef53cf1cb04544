"""
Structured logs on stderr: readable lines on a terminal, JSON lines otherwise (contract.md).

The driver and each Spark worker call `configure_logging`; a forked worker inherits no logging.  Values under names of
secrets are masked here as the last line of defence; the first is `eomirror.config.Secret`, which renders as stars.

A process writes one format.  Workers write JSON, which `relay` converts to the driver's format together with the lines
of Spark's JVM; `forward_logging` does the same for Python's ``logging`` and warnings.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import re
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO, cast

import orjson
import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

__all__ = [
    "FORMATS",
    "LossyStream",
    "configure_logging",
    "divert",
    "end_stream",
    "forward_logging",
    "is_dumb",
    "logs_json",
    "print_line",
    "printable",
    "quiet_unless_configured",
    "relay",
    "wants_colour",
]

#: Formats of a log.
FORMATS = ("text", "json")

_SECRET = re.compile(r"password|secret|token|jaas|private[._]?key", re.IGNORECASE)


def is_dumb(stream: TextIO) -> bool:
    """Returns True if ``stream`` does not interpret control sequences: not a terminal, or with ``TERM=dumb``."""
    return not stream.isatty() or os.environ.get("TERM", "") in {"dumb", "unknown"}


def wants_colour(stream: TextIO) -> bool:
    """Returns True for colours on ``stream``: a terminal, without NO_COLOR (https://no-color.org)."""
    return not is_dumb(stream) and not os.environ.get("NO_COLOR")


def printable(text: str) -> str:
    """Replaces control characters: a foreign name, such as a group's, could contain an escape sequence."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def end_stream(stream: TextIO) -> None:
    """
    Flushes a stream for the last time; drops text that cannot be written.

    Otherwise the interpreter would flush again at its end, and exit with 120 (CPython 3.11.2 of Debian 12, at least).
    """
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def divert(stream: TextIO, write: Callable[[str], None]) -> Iterator[None]:
    """
    Passes lines that `LossyStream` would write to ``stream`` to ``write``, until the block ends.

    Args:
        stream: Terminal with a `LiveFrame`.
        write: Takes whole lines, each with its line feed; called from several threads.
    """
    before = _DIVERTED[:]
    _DIVERTED[:] = [(stream, write), *(each for each in before if each[0] is not stream)]
    try:
        yield
    finally:
        _DIVERTED[:] = before


#: Diversions, one for each stream at most.
_DIVERTED: list[tuple[TextIO, Callable[[str], None]]] = []


class LossyStream:
    """
    Text stream that drops text which cannot be written: a full disk or a closed pipe must not end the mirror.

    Only `OSError` is ignored; any other exception is a bug.  While a `eomirror.screen.LiveFrame` is on the terminal,
    lines go above it.

    Args:
        stream: Stream to write to, usually stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._unfinished = ""
        atexit.register(end_stream, stream)

    @property
    def inner(self) -> TextIO:
        """Underlying stream."""
        return self._stream

    @property
    def encoding(self) -> str:
        """Encoding of the stream."""
        return self._stream.encoding

    def write(self, text: str) -> int:
        """Writes a text, or drops it."""
        for stream, write in _DIVERTED:
            if stream is self._stream:
                whole, feed, self._unfinished = (self._unfinished + text).rpartition("\n")
                if feed:
                    write(whole + feed)
                return len(text)
        if self._unfinished:
            text, self._unfinished = self._unfinished + text, ""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream; ignores errors."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        """Returns True if the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Returns the file descriptor of the stream."""
        return self._stream.fileno()


def print_line(text: str) -> None:
    """Writes a line to stderr, for people; ignores a stderr that cannot be written."""
    print(printable(text), file=cast("TextIO", LossyStream(sys.stderr)), flush=True)


def configure_logging(level: str = "info", form: str | None = None) -> None:
    """
    Configures structlog for this process.

    Args:
        level: Lowest level that is written: debug, info, warning or error.
        form: One of `FORMATS`; None for text on a terminal and JSON elsewhere.
    """
    terminal = sys.stderr.isatty()
    text = form == "text" or (form is None and terminal)
    # a terminal line has little room: no date
    readable = [_only_printable, *([_short_time] if terminal else [])]
    renderer: Any = (
        structlog.dev.ConsoleRenderer(
            colors=wants_colour(sys.stderr),
            pad_event_to=0,
            pad_level=False,
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,
        )
        if text
        else structlog.processors.JSONRenderer(
            serializer=lambda value, **_: orjson.dumps(value, default=str).decode()
        )
    )
    _FORM[:] = ["text" if text else "json"]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            # a relayed line already has a time
            structlog.processors.MaybeTimeStamper(fmt="iso", utc=True),
            _mask,
            structlog.processors.format_exc_info,
            *(readable if text else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # One write for a line with its line feed: Spark's workers share one pipe, and their stderr is not buffered.
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", LossyStream(sys.stderr))),
        cache_logger_on_first_use=False,
    )


def quiet_unless_configured() -> None:
    """
    Shows warnings and errors only, in a program that has not configured structlog.

    A source or sink runs in processes of a user, and of Spark; structlog's default prints debug lines there.
    """
    if not structlog.is_configured():
        configure_logging("warning")


#: The format of this process, once configured.
_FORM: list[str] = []


def logs_json() -> bool:
    """Returns True if this process writes its log as JSON lines."""
    return _FORM == ["json"]


def forward_logging() -> None:
    """
    Logs records of Python's ``logging``, warnings, and tracebacks of threads as events of this log.

    Only for processes of eomirror; an application that imports the library configures its own logging.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, _Forward) for handler in root.handlers):
        root.addHandler(_Forward())
    logging.captureWarnings(capture=True)
    threading.excepthook = _thread_failed


class _Forward(logging.Handler):
    """Passes records of Python's ``logging`` to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Passes a record to structlog; called by ``logging``."""
        try:
            named = {"exc_info": record.exc_info} if record.exc_info else {}
            structlog.get_logger(record.name).log(
                record.levelno, " ".join(record.getMessage().split()), logger=record.name, **named
            )
        except Exception:  # noqa: BLE001  a record that cannot be logged must not end the caller
            self.handleError(record)


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is SystemExit or failed.exc_value is None:
        return
    structlog.get_logger(__name__).error(
        "thread_failed",
        thread=failed.thread.name if failed.thread is not None else "",
        exc_info=(failed.exc_type, failed.exc_value, failed.exc_traceback),
    )


_SPARK_LINE = re.compile(r"spark (?P<level>[A-Z]+) (?P<logger>\S+): (?P<text>.*)")
_JAVA_LINE = re.compile(r"(?:(?:OpenJDK|Java).* VM )?(?P<level>WARNING|warning|INFO): (?P<text>.*)")
_LEVELS = {"FATAL": "error", "ERROR": "error", "WARN": "warning", "INFO": "info"}
_EVENT_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})
_OBJECTS = json.JSONDecoder()


def relay(line: str) -> None:
    """
    Logs a line of another process (a worker, Spark, or the JVM) as an event of this log.

    Events of a worker are unchanged.  Messages of the JVM get level debug.  Spark copies the output of its workers in
    pieces, between which the JVM may write, so a line may hold several events and other text.

    Args:
        line: Line without its line feed.
    """
    log = structlog.get_logger(__name__)
    begin = at = 0
    while (at := line.find('{"', at)) >= 0:
        found = _event_at(line, at)
        if found is None:
            at += 1
            continue
        event, end = found
        _relay_text(line[begin:at])
        getattr(log, event.pop("level", "info"))(event.pop("event"), **event)
        begin = at = end
    _relay_text(line[begin:])


def _event_at(line: str, at: int) -> tuple[dict[str, Any], int] | None:
    """Returns the event of a worker that begins at an index of a line, and the index behind it."""
    try:
        event, end = _OBJECTS.raw_decode(line, at)
    except (ValueError, RecursionError):
        return None
    name, level = event.get("event"), event.get("level", "info")
    return (event, end) if isinstance(name, str) and level in _EVENT_LEVELS else None


def _relay_text(line: str) -> None:
    """Logs a text that is no event."""
    log = structlog.get_logger(__name__)
    if found := _SPARK_LINE.fullmatch(line):
        getattr(log, _LEVELS.get(found["level"], "debug"))(
            "spark", logger=found["logger"], says=found["text"]
        )
    elif found := _JAVA_LINE.fullmatch(line):
        log.debug("java", says=found["text"])
    elif line.strip():
        log.warning("spark", says=line)


def _mask(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in event:
        if _SECRET.search(name):
            event[name] = "***"
    return event


def _only_printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replaces control characters, for the text format: a group's name could be an escape sequence."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
    return event


def _short_time(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replaces the timestamp by the time of day, in UTC."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        event["timestamp"] = datetime.fromisoformat(event["timestamp"]).astimezone(UTC).strftime("%H:%M:%SZ")
    return event
