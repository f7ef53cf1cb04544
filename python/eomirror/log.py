"""
Structured logs on stderr: readable lines on a terminal, JSON lines otherwise (contract.md).

Driver and Spark workers call `configure_logging` each for itself; a forked worker inherits nothing that would
need it.  Values under names that hold secrets are masked here as the last line of defence; the first is
`eomirror.config.Secret`, which never renders itself.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any

import orjson
import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["configure_logging"]

_SECRET = re.compile(r"password|secret|token|jaas|private[._]?key", re.IGNORECASE)


def configure_logging(level: str = "info") -> None:
    """
    Set up structlog for this process.

    Args:
        level: Lowest level that is written: debug, info, warning or error.
    """
    terminal = sys.stderr.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=terminal)
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
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def _mask(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in event:
        if _SECRET.search(name):
            event[name] = "***"
    return event
