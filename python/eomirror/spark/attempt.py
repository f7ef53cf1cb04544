"""Runs one attempt of a lane: builds the runner with its adapters, or resumes a parked one; aborts on a signal."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from contextlib import ExitStack
from dataclasses import replace

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import LaneError, MirrorError
from eomirror.lane.errors import judge
from eomirror.lane.machine import Command
from eomirror.lane.runner import LaneRunner
from eomirror.lane.spec import Ending, LaneMailbox, LaneReport, LaneSpec
from eomirror.spark.handover import ParkedLane, Parking

__all__ = ["LaneInterruptedError", "leave_parked", "release_freed_memory", "run_lane"]

log = structlog.get_logger(__name__)

_PARKING = Parking()


class LaneInterruptedError(BaseException):
    """Raised in the lane's thread by a signal handler; not an ``Exception``, so that no handler swallows it."""


def run_lane(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock = SYSTEM_CLOCK) -> LaneReport:
    """
    Runs one attempt of a lane until its epoch is over, it is stopped, or it fails.

    Blocks the calling thread, which must be the process's main thread so that signals reach it.  Expected errors are in
    the report; an exception is a bug or a crash.

    Args:
        spec: Spec of the attempt.
        mailbox: Connection to the driver.
    """
    clients = ExitStack()
    close = clients.close
    parked = False
    try:
        lane = _PARKING.take(spec)
        if lane is None:
            lane = _build(spec, mailbox, clock, clients)
        else:
            # not wrapped: one more wrapper per epoch would reach the recursion limit after a thousand epochs
            close = lane.close
            lane.pump.resume(spec, mailbox)
        report = _drive(spec, lane.pump)
        if report.ending is Ending.EPOCH and not report.stopped_topics:
            # set first: a signal may come between this and the call
            parked = True
            parked = _PARKING.put(ParkedLane(spec, lane.pump, mailbox, close))
            report = replace(report, continues=parked)
    except LaneInterruptedError:
        # the driver would not know that a parked lane mirrors on, so close it
        leave_parked()
        raise
    except (LaneError, MirrorError) as error:
        outcome = judge(error, Command.INIT_PRODUCER).outcome
        return spec.report(outcome.ending, outcome.reason, outcome.error)
    else:
        return report
    finally:
        if not parked:
            close()


def leave_parked() -> None:
    """Closes the lane that this process has parked between two epochs, if any, after its transaction."""
    _PARKING.leave()


def release_freed_memory() -> None:
    """
    Returns freed memory to the kernel: of thousands of partitions it is more than what stays in use.

    Answers about all of them come at the start and once a minute; the heaps of many threads keep what they had
    (`eomirror.spark.task`).
    """
    gc.collect()
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _drive(spec: LaneSpec, pump: LaneRunner) -> LaneReport:
    try:
        return pump.run()
    except LaneInterruptedError as signal:
        log.info("lane_interrupted", lane=spec.lane, signal=str(signal))
        pump.interrupt()
        return spec.report(Ending.STOPPED, f"interrupted: {signal}")


def _build(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock, clients: ExitStack) -> ParkedLane:
    from eomirror.kafka.plain_producer import SourceSyncs
    from eomirror.kafka.session import link_sessions
    from eomirror.link.background_looks import OffsetMapSweep, TargetLogEnds
    from eomirror.link.hanging import target_hanging_client
    from eomirror.link.lane_state import LaneStateReader, LaneTopics
    from eomirror.plane.select import plane_selector

    # the stack closes its last entry first: the plane at once, and the sessions behind the looks that use them
    sessions = link_sessions(spec.link, spec.source, spec.target, f"lane-{spec.lane}", clock=clock)
    clients.callback(sessions.close)
    topics = LaneTopics(spec, sessions.source.admin, sessions.target.admin, clock)
    state = LaneStateReader(spec, sessions.target)
    sweep = OffsetMapSweep(spec.link, *sessions, clock=clock)
    clients.callback(sweep.close)
    copies = TargetLogEnds(spec.link, sessions.target, clock=clock)
    clients.callback(copies.close)
    syncs = None
    if spec.link.offset_syncs == "source":
        syncs = SourceSyncs(
            spec.source,
            client_id=sessions.source.client_id,
            topic=spec.link.mm2_names.offset_syncs(spec.link.target),
        )
        clients.callback(syncs.close)

    def rest() -> None:
        if not (copies.looking or sweep.looking):
            sessions.rest()
        release_freed_memory()

    planes = plane_selector(spec, topics, clock)
    clients.callback(planes.close)
    pump = LaneRunner(
        spec,
        planes=planes,
        state=state,
        topics=topics,
        mailbox=mailbox,
        clock=clock,
        syncs=syncs,
        sweep=sweep,
        hanging_client=target_hanging_client(spec.link, sessions.target),
        copies=copies,
        at_rest=rest,
    )
    return ParkedLane(spec, pump, mailbox, clients.close)
