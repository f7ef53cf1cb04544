"""
Reads the topics of a link repeatedly, and keeps the last status while they cannot be read.

An operator needs that status most while the target does not answer.  It has an age: an old finding would look like a
new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import structlog

from eomirror.errors import MirrorError
from eomirror.kafka.parallel import run_all
from eomirror.kafka.plain_producer import write_records
from eomirror.records.names import LinkNames
from eomirror.status.derive import unread_status
from eomirror.status.hanging import HangingTransactions
from eomirror.status.reader import StatusReader
from eomirror.status.sinks import SinkReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Config
    from eomirror.records.events import Outage
    from eomirror.status.model import LinkStatus

__all__ = ["LinkReaders", "Reader", "TopicsRead", "TopicsReader", "more_seconds", "record_outages"]

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


_WRITE_SECONDS = 5.0


def record_outages(config: Config, link: str, outages: Sequence[Outage]) -> str:
    """Writes outages that no mirror saw end to the control topic of a link; returns the reason if it cannot."""
    found = config.link(link)
    names = LinkNames(found.state_name)
    return write_records(
        config.clusters[found.target],
        names.control_topic,
        [(one.key(), one.value()) for one in outages],
        client_id=names.client_id("serve"),
        seconds=_WRITE_SECONDS,
    )


_MOST_AT_ONCE = 32
# the clients of many links share the CPU with each other and with a mirror: a cluster that answers looked silent
_FEW_LINKS = 8
_SECONDS_PER_LINK = 0.2
_MOST_MORE_SECONDS = 8.0


def more_seconds(links: int) -> float:
    """Returns the time that a cluster may take to answer, beyond that of a status of few links."""
    return min(_MOST_MORE_SECONDS, max(0, links - _FEW_LINKS) * _SECONDS_PER_LINK)


class LinkReaders:
    """
    Reads the status of links; keeps the connections until it is closed.

    Args:
        links: Names of the links; empty for all.
        sinks: Also read the sinks of Spark queries.
    """

    def __init__(self, config: Config, links: tuple[str, ...], *, sinks: bool = False) -> None:
        chosen = config.chosen(links)
        more = more_seconds(len(chosen))
        self._readers = [
            (
                link.name,
                StatusReader(
                    link,
                    config.clusters[link.source],
                    config.clusters[link.target],
                    hanging=HangingTransactions,
                    more_seconds=more,
                ),
            )
            for link in chosen
        ]
        self._sinks = SinkReader(config.clusters, more_seconds=more) if sinks else None

    def read(self, *, strict: bool = False) -> list[LinkStatus]:
        """
        Returns the status of each link, then of the sinks; an unreachable one delays no other.

        Args:
            strict: Raise the error of a single link that cannot be read; otherwise, and with several links, it is
                shown as unknown.

        Raises:
            MirrorError: The only link cannot be read.
        """
        found: dict[int, LinkStatus] = {}
        of_sinks: list[LinkStatus] = []
        alone = strict and len(self._readers) == 1

        def read(place: int) -> None:
            if place < len(self._readers):
                found[place] = _read(*self._readers[place], alone=alone)
            elif self._sinks is not None:
                of_sinks.extend(self._sinks.read())

        run_all(read, range(len(self._readers) + 1), threads=_MOST_AT_ONCE, name="status")
        return [*(found[place] for place in range(len(self._readers))), *of_sinks]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for _, reader in self._readers:
            reader.close()
        if self._sinks is not None:
            self._sinks.close()


def _read(link: str, reader: StatusReader, *, alone: bool) -> LinkStatus:
    """Returns the status of a link; unknown if it fails and is not ``alone``, so that the others are shown."""
    try:
        return reader.read()
    except MirrorError as error:
        if alone:
            raise
        return unread_status(link, None, error)
