"""
Keeps a link that was taken: renews the claim, with what control is to show of stopped topics, and beats the heart.

Two threads, of the link's helpers; both go on while lanes finish, because the link is the driver's until it is
released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.link.ownership import CLAIM_INTERVAL_SECONDS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from eomirror.driver.background import Helpers
    from eomirror.driver.protocols import Heart, Owner
    from eomirror.driver.stopped_topics import StopRecords

__all__ = ["HEARTBEAT_SECONDS", "Keeping"]

#: MirrorMaker 2's own pace.
HEARTBEAT_SECONDS = 1.0


class Keeping:
    """
    Keeps one link.

    Args:
        helpers: Of the link.
        stops: What control is to show of stopped topics.
        make_heart: Makes what writes the link's heartbeats; None where there are none.
        quit_: Set when lanes have finished.
    """

    def __init__(
        self,
        helpers: Helpers,
        stops: StopRecords,
        make_heart: Callable[[], Heart | None],
        *,
        quit_: threading.Event,
    ) -> None:
        self._helpers = helpers
        self._stops = stops
        self._make_heart = make_heart
        self._quit = quit_

    def begin(self, owner: Owner) -> None:
        """Start both threads; the link was taken."""
        self._helpers.start(lambda: self._keep_claim(owner), "keeper")
        self._helpers.start(lambda: self._helpers.guard("heartbeats_ended", self._beat), "heart")

    def _keep_claim(self, owner: Owner) -> None:
        while not self._quit.wait(CLAIM_INTERVAL_SECONDS):
            self._helpers.guard("claim_not_renewed", lambda: self._stops.write(owner.renew))

    def _beat(self) -> None:
        heart = self._helpers.obtained("heartbeats_wait", self._make_heart, until=self._quit)
        if heart is None:
            return
        try:
            while not self._quit.wait(HEARTBEAT_SECONDS):
                heart.beat()
        finally:
            heart.close()
