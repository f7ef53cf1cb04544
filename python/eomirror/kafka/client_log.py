"""
Writes librdkafka's log lines as events of our log.

Without a logger, librdkafka writes to stderr, between the JSON lines that programs read there.  Its lines are details:
every relevant failure is also raised by a call or reported to a callback.
"""

from __future__ import annotations

import re
from typing import Any

import structlog

from eomirror.kafka.error_text import without_values

__all__ = ["ClientLog"]


# a connection that was usable, and that the broker closed at once
_CLOSED = re.compile(r"\(after \d{1,3}ms in state UP\)")
# a coordinator leaves out all partitions of a request where one is denied, and only this line names that one
_DENIED = re.compile(
    r'Failed to add partition "([^"]+)" \[\d+\] to transaction: Broker: Topic authorization failed'
)


class ClientLog:
    """
    Logger for confluent-kafka, which calls `log` as of `logging.Logger`.

    Args:
        names: Context of the lines, such as the client's role.

    Attributes:
        closed: Connections that a broker closed less than a second after they became usable, which librdkafka tells
            its log alone.
        denied: Topic that a coordinator last refused to add to a transaction; empty if it refused none.
    """

    def __init__(self, **names: str) -> None:
        self.closed = 0
        self.denied = ""
        self._log = structlog.get_logger(__name__).bind(**names)

    def log(self, level: int, template: str, *arguments: Any) -> None:
        """Logs one line of librdkafka."""
        line = template % arguments if arguments else template
        if _CLOSED.search(line):
            self.closed += 1
        if found := _DENIED.search(line):
            self.denied = found[1]
        self._log.debug("librdkafka", level=level, line=without_values(line))
