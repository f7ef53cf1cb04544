"""
Lanes without Kafka, for tests of the engine alone; importable on workers through PYTHONPATH.

Each function has the signature of `eomirror.spark.attempt.run_lane`.  Offsets advance with time; traces of
a worker (its pid, signals) go to a file in the folder that FAKE_LANES_FOLDER names.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eomirror.config import Secret
from eomirror.errors import AuthorizationError
from eomirror.lane.spec import (
    AssignedPartition,
    Ending,
    LaneMailbox,
    LaneProgress,
    LaneReport,
    LaneSpec,
    PartitionProgress,
    StoppedTopic,
    StopReason,
)
from eomirror.spark.attempt import LaneInterruptedError

if TYPE_CHECKING:
    from eomirror.clock import Clock


def note(kind: str, spec: LaneSpec, **facts: Any) -> None:
    """Append a line to the notes of this lane."""
    folder = os.environ.get("FAKE_LANES_FOLDER")
    if not folder:
        return
    line = {"kind": kind, "lane": spec.lane, "epoch": spec.epoch, "attempt": spec.attempt, "pid": os.getpid()}
    line |= {"at": time.monotonic(), **facts}
    with Path(folder, f"lane-{spec.lane}").open("a") as notes:
        notes.write(json.dumps(line) + "\n")


def report(spec: LaneSpec, ending: Ending, **facts: Any) -> LaneReport:
    """The report of this attempt."""
    return LaneReport(lane=spec.lane, epoch=spec.epoch, attempt=spec.attempt, ending=ending, **facts)


def say(
    spec: LaneSpec, mailbox: LaneMailbox, partitions: list[AssignedPartition], position: int, records: int
) -> None:
    """Report this position for every partition."""
    mailbox.report(
        LaneProgress(
            lane=spec.lane,
            epoch=spec.epoch,
            state="AWAITING",
            transactions=records,
            records=records,
            bytes=records * 100,
            commit_ms=5.0,
            partitions=tuple(
                PartitionProgress(
                    topic=item.source.topic,
                    partition=item.source.partition,
                    position=position,
                    lso=position,
                    lag_seconds=0.0,
                )
                for item in partitions
            ),
        )
    )


def knows_its_secret(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock) -> LaneReport:
    """Notes the source's password as this worker sees it, and works on."""
    secret = spec.source.properties["sasl.password"]
    note("secret", spec, text=secret.reveal() if isinstance(secret, Secret) else "in clear")
    return steady(spec, mailbox, clock)


def steady(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock) -> LaneReport:
    """Works until its epoch is over or it is told to stop."""
    note("begin", spec, partitions=[str(item.source) for item in spec.partitions])
    partitions = list(spec.partitions)
    end = clock.monotonic() + spec.seconds
    records = 0
    try:
        while clock.monotonic() < end:
            reason = mailbox.stop()
            if reason is StopReason.MOVE:
                break
            if reason is not None:
                note("stopped", spec, reason=reason)
                return report(spec, Ending.STOPPED, records=records, transactions=records, progressed=True)
            added = mailbox.added()
            if added:
                note("added", spec, partitions=[str(item.source) for item in added])
                partitions.extend(added)
            records += 1
            say(spec, mailbox, partitions, 1000 + records, records)
            clock.sleep(0.01)
    except LaneInterruptedError as signal:
        note("signal", spec, signal=str(signal))
        return report(spec, Ending.STOPPED, reason=f"interrupted: {signal}")
    note("end", spec)
    return report(spec, Ending.EPOCH, records=records, transactions=records, progressed=True)


def raises_once(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock) -> LaneReport:
    """Lane 0 raises in its first attempt."""
    if spec.lane == 0 and spec.attempt == 1:
        note("raise", spec)
        raise ZeroDivisionError("a bug of the lane")
    return steady(spec, mailbox, clock)


def raises_always(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock) -> LaneReport:
    """Lane 0 raises in every attempt."""
    if spec.lane == 0:
        note("raise", spec)
        raise ZeroDivisionError("a bug of the lane")
    return steady(spec, mailbox, clock)


def superseded_once(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock) -> LaneReport:
    """Lane 0 is fenced in its first attempt."""
    if spec.lane == 0 and spec.attempt == 1:
        return report(spec, Ending.SUPERSEDED, reason="fenced")
    return steady(spec, mailbox, clock)


def loses_data(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock) -> LaneReport:
    """Every lane stops the topic `orders` and goes on with what else it has."""
    if any(item.source.topic == "orders" for item in spec.partitions):
        stop = StoppedTopic("orders-0: offsets [0, 7) are gone", "accept the gap", exit_code=4)
        return report(spec, Ending.REBUILD, reason="topic orders is stopped", stopped_topics={"orders": stop})
    return steady(spec, mailbox, clock)


def lacks_a_right(spec: LaneSpec, mailbox: LaneMailbox, clock: Clock) -> LaneReport:
    """May not read `orders` in its first attempt, nor use its own id in the next; then both are granted."""
    mirrored = any(item.source.topic == "orders" for item in spec.partitions)
    if spec.epoch == 1 and mirrored:
        stop = StoppedTopic("lacks Read", retried=True)
        return report(spec, Ending.REBUILD, reason="topic orders is stopped", stopped_topics={"orders": stop})
    if spec.attempt == 1:
        return report(
            spec, Ending.UNAUTHORIZED, reason="lacks Write", error=AuthorizationError("lacks Write")
        )
    return steady(spec, mailbox, clock)


def deaf(spec: LaneSpec, _: LaneMailbox, clock: Clock) -> LaneReport:
    """Hears nothing, not even SIGHUP's exception: only a kill ends it."""
    note("begin", spec)
    while True:
        try:
            clock.sleep(0.05)
        except LaneInterruptedError:
            continue
