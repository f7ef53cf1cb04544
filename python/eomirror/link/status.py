"""
Where a link stands, told from its topics alone: pure, records in and a picture out.

Nothing here needs a running mirror.  Lag in records is the source's last stable offset minus the position;
lag in seconds is the age of the oldest record that is not mirrored yet, by its own timestamp and our clock.  Rates and
ages of what the mirror wrote are told by its own clock, as `eomirror.link.liveness` found it; where that is not ours, nobody
knows which one is wrong, and lag in seconds is not known.

A position is only compared with the topics it speaks of: `eomirror.recovery.resume.decide_resume`, which decides what
a lane does when it comes up, is asked here as well, so that ``problem`` names what stops (or would stop) a topic.
What cannot be seen from outside is a record that the target refuses: only the running mirror knows that reason.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eomirror.recovery.resume import Stop, decide_resume

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.errors import MirrorError
    from eomirror.link.liveness import Sight
    from eomirror.records.control import ControlView, Stopped
    from eomirror.records.mm2 import Checkpoint
    from eomirror.records.position import AttemptClaim, Position
    from eomirror.recovery.resume import SourceFacts, TargetFacts
    from eomirror.types import SourcePartition

__all__ = [
    "RATE_WINDOW_SECONDS",
    "GroupsStatus",
    "LinkStatus",
    "Observed",
    "PartitionStatus",
    "groups_status",
    "link_status",
    "planes_line",
]

#: Records per second are averaged over this time before the newest commit.
RATE_WINDOW_SECONDS = 10.0

# clocks of machines that are kept in step are closer to each other than this, and records from the future are none
_IN_STEP_MS = 5_000


@dataclass(frozen=True, slots=True)
class Observed:
    """
    A mirrored partition as both clusters describe it now.

    Attributes:
        source: The source partition, its high watermark included.
        lso: Its last stable offset; None when the partition does not exist.
        target: The target partition.
    """

    source: SourceFacts
    lso: int | None
    target: TargetFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """
    One source partition.

    Attributes:
        topic: Source topic.
        partition: Source partition.
        target_topic: Where it goes.
        lane: Lane that mirrors it.
        position: Next offset to fetch, as committed.
        source_lso: Last stable offset of the source; None when not known.
        lag_records: Offsets between both (markers count); None when not known, and with a ``problem``.
        lag_seconds: Age of the oldest record not mirrored; 0 when there is none; None when not known, such as for one
            from the future.
        records: Records mirrored since the link first ran.
        copied_headers: Of them, those that carried the provenance header of another record: an application had
            copied it.
        rate: Records per second over the last `RATE_WINDOW_SECONDS` before now.
        last_commit: When the position was committed, ms since the epoch.
        parked: Nobody mirrors it: it has a position, but is not in the newest generation's assignment.
        stopped: The owner has stopped its topic, or did before it ended; ``lag_records`` counts on.
        problem: Why it cannot be mirrored from where it stands, such as a recreated or truncated source, or is parked
            although the link's topics match it, or why its topic is stopped; empty where nothing is wrong.
        fix: What to do about that.
        missing: Source offsets that were passed over since the link first ran, and that no batch had: holes, which
            compaction makes, and a lost segment file.  The client plane counts those only that it has looked at.
    """

    topic: str
    partition: int
    target_topic: str
    lane: int
    position: int
    source_lso: int | None
    lag_records: int | None
    lag_seconds: float | None
    records: int
    rate: float
    last_commit: int
    parked: bool = False
    stopped: bool = False
    problem: str = ""
    fix: str = ""
    copied_headers: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStatus:
    """
    Followed groups of a link, as the checkpoints in the target tell.

    Attributes:
        followed: Groups with a checkpoint in a mirrored topic.
        offsets: Checkpoints of these groups, one per partition.
        last_checkpoint: When the newest was written, ms since the epoch; None where there is none.
        unreadable: Records that are no checkpoint; they are passed over.
        first_unreadable: Where the first of them is, and what is wrong with it; empty for none.
    """

    followed: int
    offsets: int
    last_checkpoint: int | None
    unreadable: int = 0
    first_unreadable: str = ""


def groups_status(
    checkpoints: Iterable[tuple[Checkpoint | str, int]], topics: Collection[str]
) -> GroupsStatus:
    """
    What the records of the checkpoint topic say about the groups of one link.

    Args:
        checkpoints: Checkpoint (or why a record is none) and timestamp of each, in the order of the log.
        topics: Target topics of the link; other links of the same source write checkpoints too.
    """
    newest: dict[tuple[str, str, int], int] = {}
    unreadable: list[str] = []
    for found, timestamp in checkpoints:
        if isinstance(found, str):
            unreadable.append(found)
        elif found.topic in topics:
            newest[found.group, found.topic, found.partition] = timestamp
    return GroupsStatus(
        followed=len({group for group, _, _ in newest}),
        offsets=len(newest),
        last_checkpoint=max(newest.values(), default=None),
        unreadable=len(unreadable),
        first_unreadable=unreadable[0] if unreadable else "",
    )


def planes_line(lanes: Iterable[tuple[int, str, str]]) -> str:
    """
    Which planes serve a link, in a line; empty when no lane has said so.

    Args:
        lanes: Number, plane, and why it is not the native one, of each lane.
    """
    of: dict[tuple[str, str], list[str]] = {}
    for number, plane, reason in lanes:
        if plane:
            of.setdefault((plane, reason), []).append(str(number))
    parts = [
        f"{'lane' if len(numbers) == 1 else 'lanes'} {', '.join(numbers)} on the {plane} plane"
        + (f": {reason}" if reason else "")
        for (plane, reason), numbers in of.items()
    ]
    return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """
    One link.

    Attributes:
        link: Its name.
        state: ``never ran``, ``stopped`` (its owner released it), ``running``, ``silent`` (the owner's claim does not
            move), ``handed back`` (MirrorMaker 2 mirrors since), or ``unknown`` (its topics cannot be read now).
        owner: Run, host and pid of the owner, and the age of its claim in seconds; None if it never ran.
        clock_offset_seconds: How far the owner's clock is ahead of ours, where they disagree; 0 where they agree, or
            nobody knows.
        generation: Newest lane layout.
        lanes: Lane -> its newest attempt, with the plane that moves its bytes and why that is not the native one.
        lag_records: Sum over partitions that are not parked; None when one is not known, or was left out.
        lag_seconds: Largest over partitions that are not parked; None when one is not known, or was left out.
        rate: Records per second, all partitions.
        partitions: One per source partition that has a position.
        stopped: Topics that the owner has stopped, or had when it ended: topic, reason, fix, exit code of the error,
            lane and run that stopped it, and when.  A topic that goes on is taken out.
        gaps: Accepted gaps.
        groups: Followed groups, as their checkpoints tell; None if the link writes none.
        problem: Why the source, or with ``unknown`` the link, could not be looked at; empty if it could.
        fix: What to do about that.
        hanging: Transactions on the target that nobody will end (`eomirror.link.hanging_transactions.Hanging`), of the link's own topics
            too; the first of each copy is the problem of its partition as well.
        drifted: Topics of the link's own whose settings lose what it must remember, each with the fix.
    """

    link: str
    state: str
    owner: dict[str, Any] | None = None
    clock_offset_seconds: float = 0.0
    generation: int | None = None
    lanes: dict[int, dict[str, Any]] = field(default_factory=dict)
    lag_records: int | None = None
    lag_seconds: float | None = None
    rate: float = 0.0
    partitions: tuple[PartitionStatus, ...] = ()
    stopped: tuple[dict[str, Any], ...] = ()
    gaps: tuple[dict[str, Any], ...] = ()
    groups: GroupsStatus | None = None
    problem: str = ""
    fix: str = ""
    drifted: tuple[str, ...] = ()
    hanging: tuple[dict[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For ``-o json``: topics hold their partitions."""
        body = asdict(self)
        topics: dict[str, list[dict[str, Any]]] = {}
        for partition in body.pop("partitions"):
            topics.setdefault(partition.pop("topic"), []).append(partition)
        body["topics"] = [{"topic": topic, "partitions": found} for topic, found in topics.items()]
        return body


def link_status(
    link: str,
    control: ControlView,
    positions: Mapping[SourcePartition, Position],
    *,
    history: Iterable[Position],
    attempts: Iterable[AttemptClaim],
    observed: Mapping[SourcePartition, Observed],
    oldest: Mapping[SourcePartition, int],
    now_ms: int,
    sight: Sight,
    accept_gaps: bool = False,
    left_out: Mapping[SourcePartition, MirrorError | None] | None = None,
    problem: str = "",
    fix: str = "",
) -> LinkStatus:
    """
    Put a link's picture together.

    Args:
        link: Name of the link.
        control: Its control topic.
        positions: Valid position of each source partition.
        history: Every position record still in the log, for the rate.
        attempts: Claims of lanes.
        observed: Both sides of each partition, as far as the clusters answered.
        oldest: Timestamp in ms of the first record behind each position that lags, as far as known.
        now_ms: Our wall clock.
        sight: What we made of the owner's claim.
        accept_gaps: ``on_gap: accept``.
        left_out: Parked partitions that the link should mirror, and what keeps it from that, as far as can be seen.
        problem: Why the source could not be looked at.
        fix: What to do about that.
    """
    if control.generation is None:
        return LinkStatus(link=link, state="never ran")
    owner_ms = now_ms + sight.offset_ms
    in_step = abs(sight.offset_ms) <= _IN_STEP_MS
    rates = _rates(history, owner_ms)
    generation = control.generation
    shown = {
        source: _partition(
            position,
            observed.get(source),
            oldest.get(source) if in_step else None,
            rate=rates.get(source, 0.0),
            now_ms=now_ms,
            accept_gaps=accept_gaps,
            parked=source not in generation.assignment.partitions,
        )
        for source, position in sorted(positions.items())
    }
    out = left_out or {}
    stopped = _stopped(control, positions, {source.topic for source in out})
    partitions = tuple(
        _left_out(item, out[source], stopped.get(source.topic))
        if source in out
        else _with_stop(item, stopped.get(source.topic))
        for source, item in shown.items()
    )
    # what was left out falls behind, and nobody knows how far: that is not to look like a link without lag
    mirrored = [item for item in partitions if not item.parked or item.problem]
    return LinkStatus(
        link=link,
        state="handed back" if control.handed_over is not None else sight.state,
        owner=_owner(control, owner_ms),
        clock_offset_seconds=sight.offset_ms / 1000,
        generation=generation.generation,
        lanes={
            attempt.lane: {
                "partitions": len(generation.assignment.of(attempt.lane)),
                "epoch": attempt.epoch,
                "attempt": attempt.attempt,
                "host": attempt.host,
                "pid": attempt.pid,
                "since": attempt.timestamp,
                "plane": attempt.plane,
                "plane_reason": attempt.plane_reason,
            }
            for attempt in sorted(attempts, key=lambda attempt: attempt.lane)
            if attempt.generation == generation.generation
        },
        lag_records=_all_known([item.lag_records for item in mirrored], sum),
        lag_seconds=_all_known(
            [item.lag_seconds for item in mirrored], lambda known: max(known, default=0.0)
        ),
        rate=sum(item.rate for item in partitions),
        partitions=partitions,
        stopped=tuple(
            {
                "topic": stop.topic,
                "reason": stop.reason,
                "fix": stop.fix,
                "exit_code": stop.exit_code,
                "lane": stop.lane,
                "run": stop.run,
                "at": stop.timestamp,
            }
            for _, stop in sorted(stopped.items())
        ),
        gaps=tuple(
            {
                "topic": gap.topic,
                "partition": gap.partition,
                "from": gap.start,
                "to": gap.end,
                "at": gap.timestamp,
            }
            for gap in control.gaps
        ),
        problem=problem,
        fix=fix,
    )


def _partition(
    position: Position,
    observed: Observed | None,
    oldest_ms: int | None,
    *,
    rate: float,
    now_ms: int,
    accept_gaps: bool,
    parked: bool,
) -> PartitionStatus:
    lag: int | None = None
    seconds: float | None = None
    problem = fix = ""
    if observed is not None and not parked:
        decision = decide_resume(position, observed.source, observed.target, accept_gaps=accept_gaps)
        if isinstance(decision, Stop):
            # offsets of another topic, or of a log that lost its end, say nothing about this position
            problem, fix = decision.error.message, decision.error.fix
        elif observed.lso is not None:
            lag = max(0, observed.lso - position.offset)
    if lag == 0:
        seconds = 0.0
    elif lag is not None and oldest_ms is not None and oldest_ms <= now_ms + _IN_STEP_MS:
        seconds = max(0.0, (now_ms - oldest_ms) / 1000)
    return PartitionStatus(
        topic=position.topic,
        partition=position.partition,
        target_topic=position.target_topic,
        lane=position.lane,
        position=position.offset,
        source_lso=None if observed is None else observed.lso,
        lag_records=lag,
        lag_seconds=seconds,
        records=position.total_records,
        copied_headers=position.total_copied_headers,
        rate=rate,
        last_commit=position.timestamp,
        parked=parked,
        problem=problem,
        fix=fix,
        missing=position.missing,
    )


def _left_out(
    partition: PartitionStatus, reason: MirrorError | None, stop: Stopped | None
) -> PartitionStatus:
    """One that a running mirror, or its last start, goes on without."""
    where = f"{partition.topic}-{partition.partition}"
    if reason is None and stop is not None:
        problem, fix = stop.reason, stop.fix
    elif reason is None:
        problem = f"{where}: the link's topics match it, but it is not mirrored now"
        fix = "see topic_left_out in the mirror's log; a mirror that runs takes it up when it can"
    else:
        problem, fix = f"{where} is not mirrored now: {reason.message}", reason.fix
    return replace(partition, problem=problem, fix=fix)


def _stopped(
    control: ControlView, positions: Mapping[SourcePartition, Position], left_out: Collection[str]
) -> dict[str, Stopped]:
    """Return what control shows as stopped, by topic, without topics that the link does not mirror any more."""
    generation = control.generation
    assigned = set() if generation is None else {each.topic for each in generation.assignment.partitions}
    parked = {source.topic for source in positions} - assigned - set(left_out)
    return {stop.topic: stop for stop in control.stopped if stop.topic not in parked}


def _with_stop(partition: PartitionStatus, stop: Stopped | None) -> PartitionStatus:
    """Return the partition as its owner left it; what the topics themselves tell now comes first."""
    if stop is None or partition.parked:
        return partition
    problem = partition.problem or stop.reason
    fix = partition.fix if partition.problem else stop.fix
    return replace(partition, stopped=True, problem=problem, fix=fix)


def _rates(history: Iterable[Position], now_ms: int) -> dict[SourcePartition, float]:
    since = now_ms - RATE_WINDOW_SECONDS * 1000
    # a transaction may hold several positions of a partition, each in place of the one before
    held: dict[tuple[SourcePartition, Any], int] = {}
    for position in history:
        if position.timestamp >= since:
            identity = position.run, position.producer_id, position.producer_epoch, position.txn
            held[position.source, identity] = position.records
    records: dict[SourcePartition, int] = {}
    for (source, _), count in held.items():
        records[source] = records.get(source, 0) + count
    return {source: count / RATE_WINDOW_SECONDS for source, count in records.items()}


def _owner(control: ControlView, owner_ms: int) -> dict[str, Any] | None:
    claim = control.claim
    if claim is None:
        return None
    return {
        "run": claim.run,
        "host": claim.host,
        "pid": claim.pid,
        "released": claim.released,
        "claim_age_seconds": max(0.0, (owner_ms - claim.timestamp) / 1000),
    }


def _all_known(values: Sequence[Any], fold: Any) -> Any:
    return None if any(value is None for value in values) else fold(values)
