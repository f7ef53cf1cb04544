"""
Follows the control topic of a link: its claim, its pause, and the processes that stand by.

The owner looks for a pause, and for processes that stand by: it renews its claim more often for them.  A process that
stands by looks for a claim that stands still (`eomirror.link.standby`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from eomirror.clock import Deadline
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import Claim, Pause, decode_control
from eomirror.records.control_record import ControlEntry, RecordError
from eomirror.records.names import LinkNames
from eomirror.records.reports import MISSED_RENEWALS, StandbyProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.config import Link
    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.kafka.session import ClusterSession

__all__ = ["CONTROL_SECONDS", "ControlWatch"]

#: Interval at which the owner looks for a request.
CONTROL_SECONDS = 2.0

_READ_SECONDS = 30.0
# renewals that a process may miss until the owner deletes its record
_FORGOTTEN = 2 * MISSED_RENEWALS


class ControlWatch:
    """
    Reads what was written to control since the last look.  Not thread-safe; `standbys` may be read by others.

    Args:
        link: The link.
        target: Connections to its target.

    Attributes:
        claim: The claim that stood at the last look; None for none.
        pause: The pause that stood then; None for none.
        sign: Changes whenever a claim is written; after a look for what is hidden, also while an open transaction of
            another producer hides it.
    """

    def __init__(self, link: Link, target: ClusterSession) -> None:
        self.claim: Claim | None = None
        self.pause: Pause | None = None
        self.sign: tuple[Claim | None, int] = (None, 0)
        self._topic = LinkNames(link.state_name).control_topic
        self._target = target
        self._reader = CompactedTopicReader(target)
        self._next: int | None = None
        # key -> newest record, and when it was read
        self._standbys: dict[bytes, tuple[StandbyProcess, float]] = {}

    @property
    def standbys(self) -> int:
        """Number of the processes that stand by."""
        return sum(self._missed(*each) < MISSED_RENEWALS for each in list(self._standbys.values()))

    def look(self, *, hidden: bool = False) -> None:
        """
        Takes a look.

        Args:
            hidden: Look for records behind an open transaction, too, with one request more.

        Raises:
            StateError: A record is not readable.
            ClusterError: The target does not answer.
        """
        where = (self._topic, 0)
        admin = self._target.admin
        if self._next is None:
            if admin.describe_topics([self._topic])[self._topic] is None:
                return
            self._next = admin.offsets([where], at="earliest", read_committed=False)[where]
        # in this order: what is written in between is behind no open transaction
        high = admin.offsets([where], at="latest", read_committed=False)[where] if hidden else 0
        end = admin.offsets([where], at="latest", read_committed=True)[where]
        if end > self._next:
            deadline = Deadline(_READ_SECONDS, self._target.clock)
            self._take(self._reader.range(self._topic, 0, self._next, end, deadline=deadline))
            self._next = end
        self.sign = (self.claim, high if high > end else 0)

    def _take(self, records: Sequence[LogRecord]) -> None:
        now = self._target.clock.monotonic()
        for one in records:
            key = one.key or b""
            entry = ControlEntry.of(key, one.value)
            kind = entry.declared
            if kind is StandbyProcess:
                self._standbys.pop(key, None)
                with suppress(RecordError):
                    self._standbys[key] = cast("StandbyProcess", entry.record()), now
            elif kind is Pause:
                self.pause = decode_control([(key, one.value, one.where)]).pause
            elif kind is Claim:
                self.claim = decode_control([(key, one.value, one.where)]).claim

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """Passes tombstones of processes that were killed while they stood by to ``commit``, possibly none."""
        found = list(self._standbys.items())
        gone = [key for key, each in found if self._missed(*each) >= _FORGOTTEN]
        commit([MetadataRecord(self._topic, 0, key, None) for key in gone])

    def _missed(self, one: StandbyProcess, seen: float) -> float:
        """Returns the time since a renewal was read, in intervals of renewals."""
        return (self._target.clock.monotonic() - seen) * 1000 / max(1, one.interval_ms)
