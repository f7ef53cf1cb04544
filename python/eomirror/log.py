"""
Structured logs on stderr: readable lines on a terminal, JSON lines otherwise (contract.md).

Driver and Spark workers call `configure_logging` each for itself; a forked worker inherits nothing that would
need it.  Values under names that hold secrets are masked here as the last line of defence; the first is
`eomirror.config.Secret`, which never renders itself.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

import orjson
import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["LossyStream", "configure_logging", "end_stream", "is_dumb", "printable", "wants_colour"]

_SECRET = re.compile(r"password|secret|token|jaas|private[._]?key", re.IGNORECASE)


def is_dumb(stream: TextIO) -> bool:
    """Whether ``stream`` takes no control sequences: it is no terminal, or one with ``TERM=dumb``."""
    return not stream.isatty() or os.environ.get("TERM", "") in {"dumb", "unknown"}


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour what goes to ``stream``: a terminal, and NO_COLOR is not set (https://no-color.org)."""
    return not is_dumb(stream) and not os.environ.get("NO_COLOR")


def printable(text: str) -> str:
    """Without what a name that somebody else chose, such as a group's, could tell a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def end_stream(stream: TextIO) -> None:
    """
    Flush for the last time; what cannot be written is dropped.

    The interpreter would try again at its end, and then end with 120 (CPython 3.11.2, that of Debian 12, at least).
    """
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


class LossyStream:
    """
    A text stream that drops what cannot be written: a full disk or a closed pipe must not end the mirror.

    Only `OSError` is swallowed; whatever else goes wrong is a bug.

    Args:
        stream: Where text goes, stderr as a rule.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        atexit.register(end_stream, stream)

    @property
    def encoding(self) -> str:
        """Of the stream."""
        return self._stream.encoding

    def write(self, text: str) -> int:
        """Write, or do not."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, as far as that goes."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Of the stream."""
        return self._stream.fileno()


def configure_logging(level: str = "info") -> None:
    """
    Set up structlog for this process.

    Args:
        level: Lowest level that is written: debug, info, warning or error.
    """
    terminal = sys.stderr.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=wants_colour(sys.stderr))
        if terminal
        else structlog.processors.JSONRenderer(
            serializer=lambda value, **_: orjson.dumps(value, default=str).decode()
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _mask,
            structlog.processors.format_exc_info,
            *([_only_printable] if terminal else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", LossyStream(sys.stderr))),
        cache_logger_on_first_use=False,
    )


def _mask(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in event:
        if _SECRET.search(name):
            event[name] = "***"
    return event


def _only_printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """JSON escapes by itself; on a terminal a group's name could be an escape sequence."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
    return event
