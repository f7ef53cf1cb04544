"""
Renews the claim of an owned link, writes what changed to control, and sends heartbeats.

Two background threads of the link.  Both run while the lanes finish, because the driver owns the link until it is
released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from eomirror.link.ownership import CLAIM_INTERVAL_SECONDS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from eomirror.clock import Clock
    from eomirror.driver.background import Background
    from eomirror.driver.left_groups import LeftGroupRecords
    from eomirror.driver.outage_records import OutageRecords
    from eomirror.driver.restart_records import RestartRecords
    from eomirror.driver.source_ends import EndRecords
    from eomirror.driver.stopped_topics import StopRecords
    from eomirror.link.heartbeats import Heartbeats
    from eomirror.link.owner import LinkOwner
    from eomirror.plane.protocol import MetadataRecord

__all__ = ["HEARTBEAT_SECONDS", "ClaimRenewal"]

_Commit: TypeAlias = "Callable[[Sequence[MetadataRecord]], None]"

#: MirrorMaker 2's default interval.
HEARTBEAT_SECONDS = 1.0


class ClaimRenewal:
    """
    Renews the claim of one link and sends its heartbeats.

    Args:
        background: Background threads of the link.
        stops: Stopped topics to write to control.
        restarts: Restarts of lanes to write to control.
        left: Groups that are left alone, to write to control.
        outages: Outages of both clusters, to write to control.
        ends: Ends of the source to write to control.
        make_heart: Creates the sender of the link's heartbeats; None if it has none.
        quit_: Set when the lanes have finished.
        clock: Measures the age of the claim.

    Attributes:
        renewed: Monotonic seconds of the last renewal; None before the link is owned.
    """

    def __init__(
        self,
        background: Background,
        stops: StopRecords,
        restarts: RestartRecords,
        ends: EndRecords,
        make_heart: Callable[[], Heartbeats | None],
        *,
        left: LeftGroupRecords,
        outages: OutageRecords,
        quit_: threading.Event,
        clock: Clock,
    ) -> None:
        self.renewed: float | None = None
        self._clock = clock
        self._background = background
        self._stops = stops
        self._restarts = restarts
        self._left = left
        self._outages = outages
        self._ends = ends
        self._make_heart = make_heart
        self._quit = quit_

    def begin(self, owner: LinkOwner) -> None:
        """Starts both threads; the link is owned."""
        self.renewed = self._clock.monotonic()
        self._background.start(lambda: self._keep_claim(owner), "keeper")
        self._background.start(lambda: self._background.guard("heartbeats_ended", self._beat), "heart")

    def _keep_claim(self, owner: LinkOwner) -> None:
        while not self._quit.wait(CLAIM_INTERVAL_SECONDS):
            self._background.guard("claim_not_renewed", lambda: self._renew(owner))

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """Passes the records that control lacks to ``commit``; if that raises, they are due again."""
        for due in (self._outages, self._ends, self._left, self._restarts, self._stops):
            commit = _beside(due.write, commit)
        commit([])

    def _renew(self, owner: LinkOwner) -> None:
        self.write(owner.renew)
        self.renewed = self._clock.monotonic()

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
