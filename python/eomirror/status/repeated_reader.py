"""
Reads the topics of a link repeatedly, and keeps the last status while they cannot be read.

An operator needs that status most while the target does not answer.  It has an age: an old finding would look like a
new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from eomirror.errors import MirrorError
from eomirror.status.derive import unread_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.clock import Clock
    from eomirror.status.model import LinkStatus

__all__ = ["Reader", "TopicsRead", "TopicsReader"]

log = structlog.get_logger(__name__)


class Reader(Protocol):
    """Reads the status of a link: `eomirror.status.reader.StatusReader`."""

    def read(self) -> LinkStatus:
        """Returns the status; raises MirrorError if the target cannot be read."""

    def close(self) -> None:
        """Closes all clients."""


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """
    Result of one read.

    Attributes:
        status: Status of the link; ``unknown`` with the reason, and with what the last read showed, if it failed.
        took_seconds: Time of the read.
        at: Time at which it ended, in monotonic seconds.
        read_at: The same of the last read that succeeded; None if none has.
        failed: True if the topics could not be read.
    """

    status: LinkStatus
    took_seconds: float
    at: float
    read_at: float | None
    failed: bool = False

    def kept_seconds(self, now: float) -> float | None:
        """Returns the age of the earlier read that the status shows; None if it shows none."""
        return now - self.read_at if self.failed and self.read_at is not None else None

    def pause_seconds(self, least: float, share: float) -> float:
        """Returns the time until the next read: reads take at most ``share`` of the time."""
        return max(least, self.took_seconds / share - self.took_seconds)


class TopicsReader:
    """
    Reads the topics of a link.  Not thread-safe.

    Args:
        link: Name of the link.
        make: Makes the reader; it is called at the first read, and again until it succeeds.
        clock: Source of time.
    """

    def __init__(self, link: str, make: Callable[[], Reader], clock: Clock) -> None:
        self._link = link
        self._make = make
        self._clock = clock
        self._reader: Reader | None = None
        self._last: TopicsRead | None = None

    def read(self) -> TopicsRead:
        """Reads the topics once, and returns the result; raises no error: a read that fails is a result."""
        began = self._clock.monotonic()
        before = self._last
        try:
            self._reader = self._reader or self._make()
            status = self._reader.read()
        except MirrorError as error:
            log.debug("topics_not_read", link=self._link, reason=error.message)
            reason = error
        except Exception as error:
            log.exception("topics_not_read", link=self._link)
            reason = MirrorError(
                f"reading its topics fails: {type(error).__name__}", fix="report this as a bug, with the log"
            )
        else:
            now = self._clock.monotonic()
            self._last = TopicsRead(status, now - began, now, now)
            return self._last
        now = self._clock.monotonic()
        shown, read_at = (None, None) if before is None else (before.status, before.read_at)
        status = unread_status(self._link, shown, reason)
        self._last = TopicsRead(status, now - began, now, read_at, failed=True)
        return self._last

    def close(self) -> None:
        """Closes all clients."""
        if self._reader is not None:
            self._reader.close()
