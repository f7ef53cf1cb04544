"""
Counts the restarts of one link's lanes, and keeps them in control for `status`, `serve` and `events`.

As with a stopped topic (`eomirror.driver.stopped_topics`), only the driver knows them, and the owner writes them with
the next renewal of its claim: at most one record for each lane and renewal, however often the lane restarts.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.kafka.client_factory import holds_secret
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.records.reports import LaneRestarts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.clock import Clock
    from eomirror.lane.spec import LaneSpec

__all__ = ["RestartRecords"]

_HIDDEN = "the reason is hidden because it contains a secret"


class RestartRecords:
    """
    Keeps the restarts of lanes in control up to date.  Thread-safe.

    Args:
        spec: Spec of the link's lanes; names the link, its clusters and the run.
        clock: Source of timestamps.
    """

    def __init__(self, spec: LaneSpec, clock: Clock) -> None:
        self._topic = LinkNames(spec.link.state_name).control_topic
        self._run = spec.run
        self._clusters = (spec.source, spec.target)
        self._clock = clock
        self._lock = threading.Lock()
        self._lanes: dict[int, LaneRestarts] = {}
        self._written: dict[int, LaneRestarts] = {}

    def ended(self, lane: int, ending: str, reason: str) -> None:
        """
        Records an attempt that ended early.

        Args:
            lane: Its lane.
            ending: Kind of the ending.
            reason: Reason, for people.
        """
        hidden = any(holds_secret(cluster, reason) for cluster in self._clusters)
        with self._lock:
            known = self._lanes.get(lane) or LaneRestarts(
                lane=lane, count=0, endings={}, ending="", reason="", run=self._run, timestamp=0
            )
            self._lanes[lane] = replace(
                known,
                count=known.count + 1,
                endings={**known.endings, ending: known.endings.get(ending, 0) + 1},
                ending=ending,
                reason=_HIDDEN if hidden else reason,
                timestamp=self._clock.wall_ms(),
            )

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the same records are due again.
        """
        with self._lock:
            due = {lane: one for lane, one in self._lanes.items() if one != self._written.get(lane)}
        commit([MetadataRecord(self._topic, 0, one.key(), one.value()) for _, one in sorted(due.items())])
        with self._lock:
            self._written.update(due)
