"""
What follows when an attempt of a lane has ended: one table, and the times between attempts.  Pure.

A lane is a chain of attempts.  An *epoch* is one planned stay on a worker; when it is over the next follows at
once, so that Spark may place the lane anew.  Everything else is an attempt that ended early:

==============  =======================  ==========================================================
how it ended    what follows             why
==============  =======================  ==========================================================
EPOCH           next epoch               planned
STOPPED         retry                    nobody asked: its line to us broke
                next epoch               another lane stopped a topic of this one
REBUILD         retry                    recovery heals it (rule 8)
UNAUTHORIZED    retry                    what was revoked may be granted again, without anybody's restart
                fail the link            the run ends when it has caught up, and would wait for ever
SUPERSEDED      check the owner          our own newer attempt, or another mirror (rule 10)
FAILED          fail the link            only a person can help
WORKER_DIED     retry                    a crash; positions in the target are the truth (rule 1)
TASK_RAISED     retry, a few times       a bug: repeat in case it depends on the moment, then say so
CANCELLED       retry                    somebody cancelled the job; a lane of ours must run
ENGINE_GONE     fail the mirror          the Spark context has stopped
==============  =======================  ==========================================================

Once the driver wants the lane to stop, every ending but FAILED ends the lane; FAILED is still told to the user.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from eomirror.lane.spec import Ending
from eomirror.spark.job_errors import Crash

__all__ = ["AFTER", "MAX_RAISES", "Action", "Backoff", "epoch_seconds", "next_action"]

#: How often in a row, without a commit in between, a lane may raise before its link fails.
MAX_RAISES = 5

_FIRST_SECONDS = 0.2
_LONGEST_SECONDS = 10.0

# the first epochs end spread over this last part of an epoch, so that lanes do not roll over together
_SPREAD = 0.5


class Action(enum.Enum):
    """What the driver does next with a lane."""

    NEXT_EPOCH = enum.auto()
    RETRY = enum.auto()
    CHECK_OWNER = enum.auto()
    FAIL_LINK = enum.auto()
    FAIL_MIRROR = enum.auto()
    END = enum.auto()


AFTER: dict[Ending | Crash, Action] = {
    Ending.EPOCH: Action.NEXT_EPOCH,
    Ending.STOPPED: Action.RETRY,
    Ending.REBUILD: Action.RETRY,
    Ending.UNAUTHORIZED: Action.RETRY,
    Ending.SUPERSEDED: Action.CHECK_OWNER,
    Ending.FAILED: Action.FAIL_LINK,
    Crash.WORKER_DIED: Action.RETRY,
    Crash.TASK_RAISED: Action.RETRY,
    Crash.CANCELLED: Action.RETRY,
    Crash.ENGINE_GONE: Action.FAIL_MIRROR,
}


def next_action(
    ended: Ending | Crash,
    *,
    stopping: bool,
    raises: int = 0,
    topics_changed: bool = False,
    patient: bool = True,
) -> Action:
    """
    What follows.

    Args:
        ended: How the attempt ended.
        stopping: Whether the driver wants the lane to end.
        raises: How often in a row the lane has raised, this time included.
        topics_changed: Whether topics that the attempt had been given were stopped, by itself or by another
            lane, or stopped ones are to be tried again: the next goes on without or with them, and need not wait,
            nor fail if there was nothing else.
        patient: Whether the run waits for rights.
    """
    action = AFTER[ended]
    if topics_changed and ended in {Ending.REBUILD, Ending.FAILED, Ending.STOPPED}:
        action = Action.NEXT_EPOCH
    elif (ended is Ending.UNAUTHORIZED and not patient) or (
        ended is Crash.TASK_RAISED and raises >= MAX_RAISES
    ):
        action = Action.FAIL_LINK
    if stopping and action is not Action.FAIL_LINK:
        return Action.END
    return action


@dataclass(frozen=True, slots=True)
class Backoff:
    """
    How long to wait before a retry: doubles up to a limit, starts anew once something was committed.

    Attributes:
        failures: Retries in a row without a commit.
    """

    failures: int = 0

    def failed(self, *, progressed: bool) -> Backoff:
        """After another failed attempt."""
        return Backoff(1 if progressed else self.failures + 1)

    @property
    def seconds(self) -> float:
        """To wait before the next attempt, before jitter."""
        if self.failures == 0:
            return 0.0
        return float(min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(self.failures - 1, 16)))


def epoch_seconds(epoch: float, *, lane: int, lanes: int, number: int) -> float:
    """
    How long an epoch lasts: the first ones are cut so that the lanes of a link roll over at different times.

    Args:
        epoch: The link's setting, in seconds.
        lane: Number of the lane, from 0.
        lanes: How many there are.
        number: Number of the epoch, from 1.
    """
    if number > 1:
        return epoch
    return epoch * (1 - _SPREAD * (lanes - 1 - lane % lanes) / lanes)
