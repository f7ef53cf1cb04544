"""
The thread that follows the consumer groups of a link, one round after the other (`eomirror.groups.follower`).

A run that ends when everything is mirrored ends when its groups are where they were as well: from the moment that
somebody asks for it (`Following.settled`), rounds come without a pause, until one that began later finds no offset that
only waits for the mirror.  A group that commits all the time never gets there, so that has an end of its own.
Where the last round found no groups, nobody waits.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import Clock, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from eomirror.driver.background import Helpers
    from eomirror.driver.protocols import Follower
    from eomirror.groups.followed_groups import GroupsSnapshot, Mirrored
    from eomirror.lane.spec import GroupOffset
    from eomirror.types import SourcePartition

__all__ = ["Following"]

log = structlog.get_logger(__name__)

# after a fault of ours
_AGAIN_SECONDS = 30.0
# between two rounds that somebody waits for: a lane looks for what it is told every tenth of a second
_HURRIED_SECONDS = 0.2
_MOST_HURRIED = 20


class Following:
    """
    Follows the groups of one link.

    Args:
        helpers: Of the link.
        make: Makes the follower; None where nobody follows groups.
        mirrored: What the lanes of the link mirror at the moment.
        over: Set when the link is to end.
        clock: Where time comes from.
    """

    def __init__(
        self,
        helpers: Helpers,
        make: Callable[[], Follower | None],
        mirrored: Callable[[], Mirrored],
        *,
        over: threading.Event,
        clock: Clock,
    ) -> None:
        self._helpers = helpers
        self._make = make
        self._mirrored = mirrored
        self._over = over
        self._clock = clock
        self._follower: Follower | None = None
        # of whoever waits: since when, after how many rounds, and whether it has come
        self._asked: float | None = None
        self._hurried = 0
        self._settled = threading.Event()
        # whether the last round found groups to follow; None before the first
        self._some: bool | None = None

    def run(self) -> None:
        """Follow, until the link is to end."""
        try:
            follower = self._helpers.obtained("groups_not_followed", self._make, until=self._over)
            if follower is None:
                return
            self._follower = follower
            try:
                self._rounds(follower)
            finally:
                follower.close()
        finally:
            # nobody shall wait for what does not come
            self._settled.set()

    def heard(self, offsets: tuple[GroupOffset, ...]) -> None:
        """What a lane says about offsets of groups."""
        if self._follower is not None:
            self._follower.heard(offsets)

    def begun_anew(self, partitions: Collection[SourcePartition]) -> None:
        """The lane of these partitions has a new attempt."""
        if self._follower is not None:
            self._follower.begun_anew(partitions)

    def snapshot(self) -> GroupsSnapshot | None:
        """Where following stands; None where nobody follows groups."""
        return None if self._follower is None else self._follower.snapshot()

    def settled(self) -> bool:
        """Whether groups are where they stood when this was asked first, as far as that is possible."""
        if self._some is False:
            return True
        if self._asked is None:
            self._asked = self._clock.monotonic()
        return self._settled.is_set()

    # -- inside ----------------------------------------------------------------------------------

    def _rounds(self, follower: Follower) -> None:
        while not self._over.is_set():
            began = self._clock.monotonic()
            try:
                pause = follower.round(self._mirrored())
            except Exception:
                # a fault of ours; records are mirrored all the same
                log.exception("groups_not_followed", link=self._helpers.link.name)
                pause = _AGAIN_SECONDS
            waits = follower.waits()
            self._some = waits or follower.snapshot().followed > 0
            if self._asked is not None and began >= self._asked:
                self._hurried += 1
                if self._hurried >= _MOST_HURRIED or not waits:
                    self._settled.set()
            self._rest(pause)

    def _rest(self, pause: float) -> None:
        deadline = Deadline(pause, self._clock)
        while not deadline.passed:
            self._over.wait(min(_HURRIED_SECONDS, deadline.remaining()))
            if self._over.is_set() or (self._asked is not None and not self._settled.is_set()):
                return
