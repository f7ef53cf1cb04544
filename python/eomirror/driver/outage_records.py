"""
Records for how long a cluster did not answer, for the timeline of the link.

A mirror that runs through an outage writes one record of it, when it is over, with the next renewal of its claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.plane.protocol import MetadataRecord
from eomirror.records.events import Outage
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link

__all__ = ["OutageRecords"]

# one request that fails is no outage
_SHORTEST_SECONDS = 5.0
# Nor is one that a busy target takes slowly; one that waits for longer has waited for a target that was away.
_LONGEST_SECONDS = 10.0


class OutageRecords:
    """
    Tracks outages of both clusters of a link.  Not thread-safe: the thread that renews the claim has it.

    Args:
        link: The link.
        failing: Returns the seconds for which the source has not answered the driver; 0 while it does.
        clock: Source of timestamps.
    """

    def __init__(self, link: Link, *, failing: Callable[[], float], clock: Clock) -> None:
        self._link = link
        self._topic = LinkNames(link.state_name).control_topic
        self._failing = failing
        self._clock = clock
        # begin and length so far of the outage of the source
        self._source: tuple[int, float] | None = None
        # time of the last record that the target took, and whether it has refused one since
        self._taken_at, self._refused = clock.monotonic(), False
        self._due: list[Outage] = []

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records of outages that are over to ``commit``, possibly none.

        If ``commit`` raises, the target is away, and the same records are due again.
        """
        self._read_source()
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        found = list(self._due)
        begin = wall_ms
        if self._refused and (seconds := now - self._taken_at) >= _SHORTEST_SECONDS:
            begin -= round(seconds * 1000)
            found.append(Outage(at=begin, cluster=self._link.target, until=wall_ms))
        try:
            commit([MetadataRecord(self._topic, 0, one.key(), one.value()) for one in found])
        except Exception:
            self._refused = True
            raise
        self._due.clear()
        self._taken_at, self._refused = self._clock.monotonic(), False
        if (took := self._taken_at - now) >= _LONGEST_SECONDS:
            # in place of the record that it has just taken, if that is of the same outage
            self._due.append(Outage(at=begin, cluster=self._link.target, until=wall_ms + round(took * 1000)))

    def _read_source(self) -> None:
        wall_ms, failing = self._clock.wall_ms(), self._failing()
        if failing:
            begin = wall_ms - round(failing * 1000) if self._source is None else self._source[0]
            self._source = begin, failing
        elif self._source is not None:
            begin, longest = self._source
            self._source = None
            if longest >= _SHORTEST_SECONDS:
                self._due.append(Outage(at=begin, cluster=self._link.source, until=wall_ms))
