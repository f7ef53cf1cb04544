"""
Bulk workloads that last: more is loaded until the steady state is as long as was asked.

How fast a machine is shows when a mirror has copied what was loaded before its time was over.  A figure of the few
seconds until then is one of an end, not of a state, and no bench can load for the fastest machine on all of them:
memory and disks are those of the slowest.  So the source gets what that mirror needs at the rate that it had, and
the mirror is measured anew.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.loading import load
from bench.throughput import RanOutError, measure
from bench.verify import WrongCopyError, read_ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.process import Peer, Site
    from bench.throughput import Figures, Timing
    from bench.verify import Ledger
    from bench.workloads import Workload

__all__ = ["Supply", "missing_records", "room_for"]

_ATTEMPTS = 3
# of what is computed: a mirror is faster the second time, when its brokers are warm
_MARGIN = 1.15
# a record is on the source and on the target, and a broker keeps some room for itself
_COPIES = 2.0
_DISK_SHARE = 0.8


def missing_records(records: int, figures: Figures | None, timing: Timing) -> int:
    """
    How many records a workload lacks for a steady state of full length.

    Args:
        records: That were loaded.
        figures: Of the mirror; None when it had copied all of them before its steady state.
        timing: What was asked.

    Returns:
        0 when the steady state was long enough, or was not asked for.
    """
    if timing.whole:
        return 0
    if figures is None:
        return records
    if not figures.complete or figures.seconds >= timing.seconds:
        return 0
    wanted = math.ceil(figures.records_per_second * timing.loaded_seconds * _MARGIN)
    # one that copied everything lacks something, whatever its rate says
    return max(wanted - records, records // 4)


def room_for(records: int, more: int, value_bytes: int, free: int) -> int:
    """
    How many of the records that are missing a disk takes.

    Args:
        records: That are on the source already; their copies are to come.
        more: That are missing.
        value_bytes: Of each.
        free: Bytes on the disk of the brokers.
    """
    room = free * _DISK_SHARE - records * value_bytes * (_COPIES - 1)
    return max(0, min(more, int(room / (value_bytes * _COPIES))))


@dataclass(slots=True)
class Supply:
    """
    What the source holds of one workload, for all mirrors that are measured on it.

    Args:
        site: Where.
        workload: What.
        timing: How long mirrors are measured.
        source: What was loaded; None for a paced workload, which does not run out.
    """

    site: Site
    workload: Workload
    timing: Timing
    source: Ledger | None

    def measure(self, peer: Peer, again: Callable[[str], None]) -> Figures:
        """
        Measure a mirror, with more records where it runs out of them.

        Args:
            peer: Who.
            again: Takes away what the mirror left on the clusters, and says why it is measured anew.

        Returns:
            Its figures.  Their steady state is shorter than asked when the disk has no room for more, or when the
            third attempt ran out too.

        Raises:
            RanOutError: The same, and there was no steady state at all.
            WrongCopyError: A copy is wrong, also one that was to be measured anew.
            MirrorEndedError: The mirror ended on its own.
            TimeoutError: It copied nothing.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                figures = measure(self.site, self.workload, peer, self.source, self.timing)
            except RanOutError:
                if not attempts_left or not (more := self._missing(None)):
                    raise
            else:
                if not attempts_left or not (more := self._missing(figures)):
                    return figures
            again(f"it ran out of records; loading {more:,} more, and once again")
            self._load(more)
        raise AssertionError("the last attempt returns or raises")

    def _missing(self, figures: Figures | None) -> int:
        if self.source is None:
            return 0
        records = self.source.records
        missing = missing_records(records, figures, self.timing)
        return room_for(records, missing, self.workload.value_bytes, shutil.disk_usage(self.site.folder).free)

    def _load(self, more: int) -> None:
        assert self.source is not None
        topic, partitions, held = self.workload.topic, self.workload.partitions, self.source.records
        loaded = load(self.site.source, self.workload, more, first=held // partitions)
        self.source = read_ledger(self.site.source, topic, partitions)
        if self.source.records != held + loaded:
            raise WrongCopyError(f"{topic}: {held + loaded} records loaded, {self.source.records} found")
