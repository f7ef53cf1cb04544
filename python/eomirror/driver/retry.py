"""
Decides what follows when an attempt of a lane has ended: one table, and the backoff between attempts.  Pure.

A lane is a chain of attempts.  An *epoch* is one planned stay on a worker; the next epoch follows at once, so that
Spark may place the lane elsewhere.  Every other end of an attempt is early:

==============  =======================  ==========================================================
ending          action                   reason
==============  =======================  ==========================================================
EPOCH           next epoch               planned
STOPPED         retry                    no stop was requested: the connection to the driver broke
                next epoch               another lane stopped a topic of this lane
REBUILD         retry                    recovery heals it (EO-8)
UNAUTHORIZED    retry                    a revoked ACL may be granted again
                fail the link            the run ends when caught up, and would wait without end
SUPERSEDED      check the owner          our own newer attempt, or another mirror (EO-10)
FAILED          fail the link            needs the user
WORKER_DIED     retry                    a crash; the positions on the target are the truth (EO-1)
TASK_RAISED     retry, a few times       a bug: retry in case it depends on timing, then report it
CANCELLED       retry                    the job was cancelled from outside
ENGINE_GONE     fail the mirror          the Spark context has stopped
==============  =======================  ==========================================================

Once the driver stops the lane, every ending but FAILED ends the lane; FAILED is still reported to the user.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from eomirror.lane.spec import Ending

__all__ = ["AFTER", "MAX_RAISES", "Backoff", "NextAction", "epoch_seconds", "next_action"]

#: A link fails after this many consecutive exceptions of a lane without a commit in between.
MAX_RAISES = 5

_FIRST_SECONDS = 0.2
_LONGEST_SECONDS = 10.0

# the first epochs of a link's lanes end spread over this last part of an epoch, so that lanes do not restart together
_SPREAD = 0.5


class NextAction(enum.Enum):
    """Next action of the driver for a lane."""

    NEXT_EPOCH = enum.auto()
    RETRY = enum.auto()
    CHECK_OWNER = enum.auto()
    FAIL_LINK = enum.auto()
    FAIL_MIRROR = enum.auto()
    END = enum.auto()


AFTER: dict[Ending, NextAction] = {
    Ending.EPOCH: NextAction.NEXT_EPOCH,
    Ending.STOPPED: NextAction.RETRY,
    Ending.REBUILD: NextAction.RETRY,
    Ending.UNAUTHORIZED: NextAction.RETRY,
    Ending.SUPERSEDED: NextAction.CHECK_OWNER,
    Ending.FAILED: NextAction.FAIL_LINK,
    Ending.WORKER_DIED: NextAction.RETRY,
    Ending.TASK_RAISED: NextAction.RETRY,
    Ending.CANCELLED: NextAction.RETRY,
    Ending.ENGINE_GONE: NextAction.FAIL_MIRROR,
}


def next_action(
    ended: Ending,
    *,
    stopping: bool,
    raises: int = 0,
    topics_changed: bool = False,
    patient: bool = True,
) -> NextAction:
    """
    Returns the action that follows the end of an attempt.

    Args:
        ended: Ending of the attempt.
        stopping: True if the driver wants the lane to end.
        raises: Consecutive exceptions of the lane, including this one.
        topics_changed: True if topics of the attempt were stopped, by this lane or by another one, or stopped topics
            are to be retried.  The next attempt starts at once with other topics, and the link does not fail.
        patient: True if the run waits for missing ACLs.
    """
    action = AFTER[ended]
    if topics_changed and ended in {Ending.REBUILD, Ending.FAILED, Ending.STOPPED}:
        action = NextAction.NEXT_EPOCH
    elif (ended is Ending.UNAUTHORIZED and not patient) or (
        ended is Ending.TASK_RAISED and raises >= MAX_RAISES
    ):
        action = NextAction.FAIL_LINK
    if stopping and action is not NextAction.FAIL_LINK:
        return NextAction.END
    return action


@dataclass(frozen=True, slots=True)
class Backoff:
    """
    Delay before a retry: doubles up to a limit, and starts again after a commit.

    Attributes:
        failures: Consecutive retries without a commit.
    """

    failures: int = 0

    def failed(self, *, progressed: bool) -> Backoff:
        """Returns the backoff after another failed attempt."""
        return Backoff(1 if progressed else self.failures + 1)

    @property
    def seconds(self) -> float:
        """Delay before the next attempt, without jitter."""
        if self.failures == 0:
            return 0.0
        return float(min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(self.failures - 1, 16)))


def epoch_seconds(epoch: float, *, lane: int, lanes: int, number: int) -> float:
    """
    Returns the duration of an epoch; first epochs are shortened so that the lanes of a link restart at other times.

    Args:
        epoch: The link's setting, in seconds.
        lane: Number of the lane, from 0.
        lanes: Number of lanes of the link.
        number: Number of the epoch, from 1.
    """
    if number > 1:
        return epoch
    return epoch * (1 - _SPREAD * (lanes - 1 - lane % lanes) / lanes)
