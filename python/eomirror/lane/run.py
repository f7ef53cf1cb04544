"""One attempt of a lane: builds the adapters around the pump and turns a signal into an abort."""

from __future__ import annotations

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import LaneError, MirrorError
from eomirror.lane.pump import LanePump
from eomirror.lane.spec import Ending, LaneMailbox, LaneReport, LaneSpec

__all__ = ["LaneInterruptedError", "run_lane"]

log = structlog.get_logger(__name__)


class LaneInterruptedError(BaseException):
    """Raised in the lane's thread by a signal handler; no ``except Exception`` on the way may swallow it."""


def run_lane(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock = SYSTEM_CLOCK) -> LaneReport:
    """
    Run one attempt of a lane until its epoch is over, it is told to stop, or it cannot go on.

    Blocks the calling thread, which must be the process's main thread so that signals reach it.  Never raises
    for what can be expected: the report says how it ended.  An exception is a bug or a crash.

    Args:
        spec: What to mirror.
        mailbox: The line to the driver.
        clock: Where time comes from.
    """
    from eomirror.kafka.lane_adapters import LaneState, LaneTopics
    from eomirror.kafka.plane import ClientPlane

    plane = ClientPlane(spec, clock)
    topics: LaneTopics | None = None
    state: LaneState | None = None
    try:
        topics = LaneTopics(spec)
        state = LaneState(spec, topics.target_admin, clock)
        pump = LanePump(spec, plane=plane, state=state, topics=topics, mailbox=mailbox, clock=clock)
        try:
            return pump.run()
        except LaneInterruptedError as signal:
            log.info("lane_interrupted", lane=spec.lane, signal=str(signal))
            pump.interrupt()
            return _report(spec, Ending.STOPPED, f"interrupted: {signal}")
    except LaneError as error:
        return _report(spec, Ending.REBUILD, str(error))
    except MirrorError as error:
        return _report(spec, Ending.FAILED, error.message, error)
    finally:
        plane.close()
        if state is not None:
            state.close()
        if topics is not None:
            topics.close()


def _report(spec: LaneSpec, ending: Ending, reason: str, error: MirrorError | None = None) -> LaneReport:
    return LaneReport(
        lane=spec.lane,
        epoch=spec.epoch,
        attempt=spec.attempt,
        ending=ending,
        reason=reason,
        error="" if error is None else str(error),
        exit_code=0 if error is None else error.exit_code,
    )
