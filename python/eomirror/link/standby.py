"""
Stands by for a link: waits until its owner is gone, so that this process can take it.

The process that stands by writes nothing that decides anything.  It looks at the claim several times a second, and
returns once the claim is released, belongs to a process of this machine that is dead, or stands still
(`eomirror.link.ownership.judge_claim`).  The owner then is taken over like that of any dead mirror (EO-10): an owner
that only stood still finds itself fenced when it goes on.

Not to take the link from a living owner without need, a watch begins anew with each sign of life, and with each look
that failed or took long: the target that kept this process waiting may have kept the owner waiting, too.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, NamedTuple

import structlog

from eomirror.kafka.plain_producer import PlainProducer
from eomirror.link.claim import is_dead
from eomirror.link.control_watch import ControlWatch
from eomirror.link.ownership import ClaimDecision, judge_claim
from eomirror.records.names import LinkNames
from eomirror.records.reports import StandbyProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.control import Claim

__all__ = ["Standby", "StoodStill"]

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.25
# a look that takes longer says nothing about the time that it took
_SLOW_SECONDS = 0.5
_ANNOUNCE_SECONDS = 10.0


class StoodStill(NamedTuple):
    """
    A claim that has stood still.

    Attributes:
        claim: The claim; None if the link never ran.
        since: Time from which on it is known to stand still, in monotonic seconds.
    """

    claim: Claim | None
    since: float


class Standby:
    """
    Stands by for one link.

    Args:
        link: The link.
        target: Connections to its target.
        run: Id of this run.
        clock: Measures the watch.
    """

    def __init__(self, link: Link, target: ClusterSession, *, run: str, clock: Clock) -> None:
        self._link = link
        self._target = target
        self._run = run
        self._clock = clock
        self._names = LinkNames(link.state_name)

    def wait(self, stopped: Callable[[], bool], on_wait: Callable[[], None]) -> StoodStill | None:
        """
        Waits until the link may be taken.

        Args:
            stopped: Returns True if the run was asked to stop.
            on_wait: Called once if the link has a living owner.

        Returns:
            The claim that stood still; None if the run was asked to stop.

        Raises:
            StateError: A record of control is not readable.
            ClusterError: The target does not answer.
        """
        watch = ControlWatch(self._link, self._target)
        announcement: _Announcement | None = None
        since, sign = self._clock.monotonic(), watch.sign
        try:
            while not stopped():
                began = self._clock.monotonic()
                watch.look(hidden=True)
                now = self._clock.monotonic()
                if watch.sign != sign or now - began > _SLOW_SECONDS:
                    since, sign = now, watch.sign
                # until the look began: what is written during it may be missing
                watched = max(0.0, began - since)
                claim = watch.claim
                if self._judge(claim, watched) is ClaimDecision.TAKE:
                    self._tell(claim, watched)
                    return StoodStill(claim, since)
                if announcement is None:
                    announcement = _Announcement(self._names, self._target, run=self._run, clock=self._clock)
                    on_wait()
                announcement.renew()
                self._clock.sleep(_LOOK_SECONDS)
        finally:
            if announcement is not None:
                announcement.close()
        return None

    def _judge(self, claim: Claim | None, watched: float) -> ClaimDecision:
        return judge_claim(claim, claim, run=self._run, watched=watched, take_over=False, is_dead=is_dead)

    def _tell(self, claim: Claim | None, watched: float) -> None:
        if claim is None:
            return
        why = "released" if claim.released else "dead" if is_dead(claim) else "stands still"
        log.info(
            "standby_takes_link",
            link=self._link.name,
            owner=claim.run,
            host=claim.host,
            pid=claim.pid,
            claim=why,
            watched_seconds=round(watched, 2),
        )


class _Announcement:
    """Shows in control that this process stands by.  It decides nothing, so no transaction holds others up."""

    def __init__(self, names: LinkNames, target: ClusterSession, *, run: str, clock: Clock) -> None:
        self._clock = clock
        self._run, self._since = run, clock.wall_ms()
        self._due = clock.monotonic()
        self._producer = PlainProducer(
            target.cluster, client_id=names.client_id("standby"), topic=names.control_topic
        )

    def _record(self) -> StandbyProcess:
        return StandbyProcess(
            run=self._run,
            host=socket.gethostname(),
            pid=os.getpid(),
            since=self._since,
            interval_ms=round(_ANNOUNCE_SECONDS * 1000),
            timestamp=self._clock.wall_ms(),
        )

    def renew(self) -> None:
        """Renews the record if it is due."""
        if self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + _ANNOUNCE_SECONDS
            record = self._record()
            self._producer.send(record.key(), record.value())

    def close(self) -> None:
        """Deletes the record."""
        self._producer.send(self._record().key(), None)
        self._producer.close()
