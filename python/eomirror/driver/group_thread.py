"""
Thread that follows the consumer groups of a link in rounds (`eomirror.groups.follower`).

A run with ``until="caught-up"`` also waits until the groups' offsets are translated.  After the first call of
`GroupThread.settled`, rounds follow each other without a pause.  The wait ends with a round that began later and found
no offset that still waits for the mirror.  A group that commits all the time never gets there, so the number of these
rounds is limited.  If the last round found no groups, there is no wait.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import Clock, Deadline
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.records.reports import GroupsLeft

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.driver.background import Background
    from eomirror.groups.followed_groups import GroupsSnapshot, MirroredPartitions
    from eomirror.groups.follower import GroupFollower
    from eomirror.lane.spec import GroupOffset, LaneSpec
    from eomirror.types import SourcePartition

__all__ = ["GroupThread", "LeftGroupRecords"]

log = structlog.get_logger(__name__)

# after an unexpected error
_AGAIN_SECONDS = 30.0
# between two rounds of a run that waits: a lane reads its messages every 0.1 s
_HURRIED_SECONDS = 0.2
_MOST_HURRIED = 20


class GroupThread:
    """
    Follows the groups of one link.

    Args:
        background: Background threads of the link.
        make: Creates the follower; returns None if the link follows no groups.
        mirrored: Returns the partitions that the lanes mirror now, and the stopped topics.
        over: Set when the link is to end.
        clock: Measures the pauses.
        waited_for: Whether the run may call `settled`; otherwise a pause is one wait.
    """

    def __init__(
        self,
        background: Background,
        make: Callable[[], GroupFollower | None],
        mirrored: Callable[[], MirroredPartitions],
        *,
        over: threading.Event,
        clock: Clock,
        waited_for: bool = True,
    ) -> None:
        self._waited_for = waited_for
        self._background = background
        self._make = make
        self._mirrored = mirrored
        self._over = over
        self._clock = clock
        self._follower: GroupFollower | None = None
        # of a run that waits: since when, for how many rounds, and whether the wait is over
        self._asked: float | None = None
        self._hurried = 0
        self._settled = threading.Event()
        # whether the last round found groups to follow; None before the first
        self._some: bool | None = None

    def run(self) -> None:
        """Follows groups until the link is to end."""
        try:
            follower = self._background.obtained("groups_not_followed", self._make, until=self._over)
            if follower is None:
                return
            self._follower = follower
            try:
                self._rounds(follower)
            finally:
                follower.close()
        finally:
            # without this thread, `settled` would never become true
            self._settled.set()

    def record_answers(self, offsets: tuple[GroupOffset, ...]) -> None:
        """Passes a lane's answer about group offsets to the follower."""
        if self._follower is not None:
            self._follower.record_answers(offsets)

    def lane_restarted(self, partitions: Collection[SourcePartition]) -> None:
        """Tells the follower that the lane of these partitions has a new attempt."""
        if self._follower is not None:
            self._follower.lane_restarted(partitions)

    def left(self, partitions: Collection[SourcePartition]) -> None:
        """Tells the follower that the link has forgotten these partitions."""
        if self._follower is not None:
            self._follower.left(partitions)

    def snapshot(self) -> GroupsSnapshot | None:
        """Returns the state of the followed groups; None if the link follows none."""
        return None if self._follower is None else self._follower.snapshot()

    def left_alone(self) -> dict[str, str]:
        """Returns groups whose offsets consumers on the target have reached, with the reason."""
        return {} if self._follower is None else self._follower.left_alone()

    def settled(self) -> bool:
        """Returns True once all group offsets of the first call are translated, as far as that is possible."""
        if self._some is False:
            return True
        if self._asked is None:
            self._asked = self._clock.monotonic()
        return self._settled.is_set()

    # -- inside ----------------------------------------------------------------------------------

    def _rounds(self, follower: GroupFollower) -> None:
        while not self._over.is_set():
            began = self._clock.monotonic()
            try:
                pause = follower.round(self._mirrored())
            except Exception:
                # a bug; records are mirrored nevertheless
                log.exception("groups_not_followed", link=self._background.link.name)
                pause = _AGAIN_SECONDS
            waits = follower.waits()
            self._some = waits or follower.snapshot().followed > 0
            if self._asked is not None and began >= self._asked:
                self._hurried += 1
                if self._hurried >= _MOST_HURRIED or not waits:
                    self._settled.set()
            self._wait(pause)

    def _wait(self, pause: float) -> None:
        deadline = Deadline(pause, self._clock)
        while not deadline.passed:
            left = deadline.remaining()
            self._over.wait(min(_HURRIED_SECONDS, left) if self._waited_for else left)
            if self._over.is_set() or (self._asked is not None and not self._settled.is_set()):
                return


# every starting lane reads control
_MOST = 20


class LeftGroupRecords:
    """
    Keeps the record of groups that are left alone up to date.

    Args:
        spec: Spec of the link's lanes; names the link and the run.
        left_alone: Returns these groups, with the reason of each.
        clock: Source of timestamps.
    """

    def __init__(self, spec: LaneSpec, left_alone: Callable[[], Mapping[str, str]], clock: Clock) -> None:
        self._topic = LinkNames(spec.link.state_name).control_topic
        self._run = spec.run
        self._left_alone = left_alone
        self._clock = clock
        self._written: Mapping[str, str] = {}

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the record that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the record is due again.
        """
        left = self._left_alone()
        if left == self._written:
            commit([])
            return
        one = GroupsLeft(
            groups=dict(sorted(left.items())[:_MOST]),
            count=len(left),
            run=self._run,
            timestamp=self._clock.wall_ms(),
        )
        commit([MetadataRecord(self._topic, 0, one.key(), one.value())])
        self._written = left
