"""
Renews the claim of an owned link, writes what changed to control, and sends heartbeats.

Two background threads of the link.  Both run while the lanes finish, because the driver owns the link until it is
released.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eomirror.link.ownership import CLAIM_INTERVAL_SECONDS, STANDBY_INTERVAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.clock import Clock
    from eomirror.driver.background import Background
    from eomirror.driver.group_thread import LeftGroupRecords
    from eomirror.driver.outage_records import (
        ConfigurationRecords,
        LaneRecords,
        OutageRecords,
        TargetRecords,
    )
    from eomirror.driver.registry_thread import RegistryThread
    from eomirror.driver.source_ends import EndRecords
    from eomirror.driver.stopped_topics import StopRecords
    from eomirror.link.control_watch import ControlWatch
    from eomirror.link.heartbeats import Heartbeats
    from eomirror.link.owner import LinkOwner
    from eomirror.plane.protocol import MetadataRecord

__all__ = ["HEARTBEAT_SECONDS", "ClaimRenewal", "LinkRecords"]

_Commit: TypeAlias = "Callable[[Sequence[MetadataRecord]], None]"

#: MirrorMaker 2's default interval.
HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LinkRecords:
    """
    Records that only the driver of a link knows; the owner writes them to control with the next renewal of its claim.

    Attributes:
        stops: Stopped topics.
        lanes: Restarts of lanes, and changes of their transaction protocol.
        ends: Ends of the source.
        left: Groups that are left alone.
        outages: Outages of both clusters.
        target: Changes on the target, and what stands.
        configuration: Changes of the configuration.
        watch: Processes that stood by.
        schemas: State of the mirror of schema registries, and the thread that runs it.
    """

    stops: StopRecords
    lanes: LaneRecords
    ends: EndRecords
    left: LeftGroupRecords
    outages: OutageRecords
    target: TargetRecords
    configuration: ConfigurationRecords
    watch: ControlWatch
    schemas: RegistryThread

    def write(self, commit: _Commit) -> None:
        """Passes the records that control lacks to ``commit``; if that raises, they are due again."""
        kept = (self.ends, self.left, self.lanes, self.target, self.configuration, self.stops, self.schemas)
        for due in (self.outages, *kept, self.watch):
            commit = _beside(due.write, commit)
        commit([])


class ClaimRenewal:
    """
    Renews the claim of one link and sends its heartbeats.

    Args:
        background: Background threads of the link.
        records: Records to write to control.
        make_heart: Creates the sender of the link's heartbeats; None if it has none.
        clock: Measures the age of the claim.
        standby: True if the run stood by for the link, as others do.
    """

    def __init__(
        self,
        background: Background,
        records: LinkRecords,
        make_heart: Callable[[], Heartbeats | None],
        clock: Clock,
        *,
        standby: bool = False,
    ) -> None:
        self._renewed: float | None = None
        self._clock = clock
        self._background = background
        self._records = records
        self._make_heart = make_heart
        self._quit = threading.Event()
        self._standby = standby
        self._interval = STANDBY_INTERVAL_SECONDS if standby else CLAIM_INTERVAL_SECONDS

    @property
    def age_seconds(self) -> float | None:
        """Seconds since the last renewal; None before the link is owned."""
        return None if self._renewed is None else max(0.0, self._clock.monotonic() - self._renewed)

    def begin(self, owner: LinkOwner) -> None:
        """Starts both threads; the link is owned."""
        self._renewed = self._clock.monotonic()
        self._background.start(lambda: self._keep_claim(owner), "keeper")
        self._background.start(lambda: self._background.guard("heartbeats_ended", self._beat), "heart")

    def end(self) -> None:
        """Ends both threads; the lanes have finished."""
        self._quit.set()

    def _keep_claim(self, owner: LinkOwner) -> None:
        while not self._quit.wait(self._interval):
            self._background.guard("claim_not_renewed", lambda: self._renew(owner))

    def _renew(self, owner: LinkOwner) -> None:
        often = self._standby or self._records.watch.standbys
        interval = STANDBY_INTERVAL_SECONDS if often else CLAIM_INTERVAL_SECONDS
        # until a claim is committed that promises less
        self._interval = min(self._interval, interval)
        self._records.write(lambda notes: owner.renew(notes, interval=interval))
        self._interval = interval
        self._renewed = self._clock.monotonic()

    def _beat(self) -> None:
        heart = self._background.obtained("heartbeats_wait", self._make_heart, until=self._quit)
        if heart is None:
            return
        try:
            while not self._quit.wait(HEARTBEAT_SECONDS):
                heart.beat()
        finally:
            heart.close()


def _beside(write: Callable[[_Commit], None], commit: _Commit) -> _Commit:
    """Returns a commit that adds the records that ``write`` passes."""
    return lambda records: write(lambda own: commit([*records, *own]))
