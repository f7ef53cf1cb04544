"""
librdkafka's log lines, as events of ours.

Without a logger, librdkafka writes to stderr by itself, between the JSON lines that a program reads there.  What it
says is detail: every failure that matters comes out of a call or a callback as well.
"""

from __future__ import annotations

from typing import Any

import structlog

from eomirror.kafka.error_text import without_values

__all__ = ["ClientLog"]


class ClientLog:
    """
    confluent-kafka calls `log` like a `logging.Logger`'s.

    Args:
        names: What the lines are about, such as the client's role.
    """

    def __init__(self, **names: str) -> None:
        self._log = structlog.get_logger(__name__).bind(**names)

    def log(self, level: int, template: str, *arguments: Any) -> None:
        """One line of librdkafka's log."""
        self._log.debug(
            "librdkafka", level=level, line=without_values(template % arguments if arguments else template)
        )
