"""
Status of a link, derived from its topics alone. Pure.

No running mirror is needed.  Lag in records is the source's last stable offset minus the position.  Lag in seconds
is the age of the oldest record that is not mirrored yet, by its own timestamp and our clock.  Rates and ages of the
mirror's own records are computed with the mirror's clock, as `eomirror.status.liveness` found it.  If that differs from
ours, either may be wrong, and lag in seconds is unknown.

A position is compared only with the topics that it names.  `eomirror.recovery.resume.decide_resume`, which decides at
the start of a lane, is used here as well, so that ``problem`` names what stops (or would stop) a topic.
A record that the target refuses cannot be seen from outside: only the running mirror knows that reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eomirror.errors import BrokerFailedError, UnreachableError
from eomirror.plane.protocol import Serving
from eomirror.records.dealt_ranges import rest
from eomirror.recovery.resume import Stop, decide_resume
from eomirror.status.model import (
    MOST_GROUPS,
    GroupsStatus,
    GroupStatus,
    LaneStatus,
    LinkStatus,
    OffsetRange,
    OrphansStatus,
    OwnerStatus,
    PartitionStatus,
    SchemasStatus,
    VerificationStatus,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.errors import MirrorError
    from eomirror.records.control import ControlView, Stopped
    from eomirror.records.mm2 import Checkpoint
    from eomirror.records.position import AttemptClaim, Position
    from eomirror.records.reports import Reports, Verification
    from eomirror.recovery.resume import SourceFacts, TargetFacts
    from eomirror.status.liveness import Liveness
    from eomirror.types import SourcePartition

__all__ = [
    "IN_STEP_MS",
    "RATE_WINDOW_SECONDS",
    "Observed",
    "groups_status",
    "is_away",
    "link_status",
    "planes_line",
    "unread_status",
    "with_reports",
]


def with_reports(status: LinkStatus, reports: Reports, *, now_ms: int) -> LinkStatus:
    """
    Returns the status with restarts of the owner's run, comparisons, the last drill, and processes that stand by.

    Args:
        reports: Informative records of the link.
        now_ms: Our wall clock.
    """
    run = None if status.owner is None else status.owner.run
    positions: dict[str, dict[str, int]] = {}
    for item in status.partitions:
        if not item.parked or item.problem:
            positions.setdefault(item.topic, {})[str(item.partition)] = item.position
    left, refused = reports.left, reports.refused
    return replace(
        status,
        restarts=tuple(one for one in reports.restarts if one.run == run),
        verifications=tuple(
            VerificationStatus(one, _unverified(one, positions[one.topic]))
            for one in reports.verifications
            if one.topic in positions
        ),
        left_groups=left if left is not None and left.run == run and left.count else None,
        drill=reports.drill,
        tail=reports.tail,
        standbys=tuple(one for one in reports.standbys if one.stands(now_ms)),
        comparison=reports.comparison,
        refused_configuration=refused if refused is not None and refused.run == run else None,
        schemas=None
        if reports.schemas is None or reports.schemas.run != run
        else SchemasStatus.of(reports.schemas, now_ms + round(1000 * status.clock_offset_seconds)),
    )


def _unverified(one: Verification, positions: Mapping[str, int]) -> int:
    # of a partition that was not compared, everything from its beginning
    return sum(max(0, position - one.up_to.get(number, 0)) for number, position in positions.items())


#: Records per second are averaged over this time before the newest commit.
RATE_WINDOW_SECONDS = 10.0

#: Synchronized clocks differ by less than this; a record from further in the future has a wrong timestamp.
IN_STEP_MS = 5_000


@dataclass(frozen=True, slots=True)
class Observed:
    """
    A mirrored partition as both clusters describe it.

    Attributes:
        source: The source partition, its high watermark included.
        lso: Its last stable offset; None if the partition does not exist.
        target: The target partition.
        gone: True if the source has the partition no more.
    """

    source: SourceFacts
    lso: int | None
    target: TargetFacts
    gone: bool = False


def groups_status(
    checkpoints: Iterable[tuple[Checkpoint | str, int]],
    topics: Collection[str],
    ends: Mapping[tuple[str, int], int] | None = None,
) -> GroupsStatus:
    """
    Returns the status of one link's groups from the records of the checkpoint topic.

    Args:
        checkpoints: Checkpoint (or the reason why a record is not one) and timestamp of each, in the order of the log.
        topics: Target topics of the link; other links of the same source write checkpoints too.
        ends: Last stable offset of the source of each target partition, as far as known.
    """
    newest: dict[tuple[str, str, int], int] = {}
    upstream: dict[tuple[str, str, int], int] = {}
    unreadable: list[str] = []
    for found, timestamp in checkpoints:
        if isinstance(found, str):
            unreadable.append(found)
        elif found.topic in topics:
            newest[found.group, found.topic, found.partition] = timestamp
            upstream[found.group, found.topic, found.partition] = found.upstream
    lags: dict[str, int | None] = {}
    for (group, topic, number), offset in upstream.items():
        end, lag = (ends or {}).get((topic, number)), lags.get(group, 0)
        lags[group] = None if end is None or lag is None else lag + max(0, end - offset)
    by_group: dict[str, list[int]] = {}
    for (group, _, _), timestamp in newest.items():
        by_group.setdefault(group, []).append(timestamp)
    return GroupsStatus(
        followed=len(by_group),
        offsets=len(newest),
        last_checkpoint=max(newest.values(), default=None),
        unreadable=len(unreadable),
        first_unreadable=unreadable[0] if unreadable else "",
        by_group=tuple(
            GroupStatus(group=group, offsets=len(times), last_checkpoint=max(times), lag_records=lags[group])
            for group, times in sorted(by_group.items())[:MOST_GROUPS]
        ),
    )


def planes_line(lanes: Iterable[LaneStatus]) -> str:
    """
    Returns one line that names the planes of a link's lanes; empty if no lane has reported its plane.

    It names the older transaction protocol, of a target below `transaction.version` 2.
    """
    of: dict[tuple[str, str], list[str]] = {}
    for lane in lanes:
        if plane := lane.serving.plane:
            reason = lane.serving.reason or (
                "transaction protocol V1" if lane.serving.protocol == "V1" else ""
            )
            of.setdefault((plane, reason), []).append(str(lane.lane))
    parts = [
        f"{'lane' if len(numbers) == 1 else 'lanes'} {', '.join(numbers)} on the {plane} plane"
        + (f": {reason}" if reason else "")
        for (plane, reason), numbers in of.items()
    ]
    return "; ".join(parts)


def link_status(
    link: str,
    control: ControlView,
    positions: Mapping[SourcePartition, Position],
    *,
    history: Collection[Position],
    attempts: Iterable[AttemptClaim],
    observed: Mapping[SourcePartition, Observed],
    oldest: Mapping[SourcePartition, int],
    now_ms: int,
    liveness: Liveness,
    opened: Mapping[SourcePartition, int] | None = None,
    accept_gaps: bool = False,
    left_out: Mapping[SourcePartition, MirrorError | None] | None = None,
    gone: Collection[SourcePartition] = (),
    later: Mapping[SourcePartition, int] | None = None,
    away: bool = False,
    problem: str = "",
    fix: str = "",
) -> LinkStatus:
    """
    Returns the status of a link.

    Args:
        history: Every position record still in the log, for the rate.
        attempts: Claims of lanes.
        observed: Both sides of each partition, as far as the clusters answered.
        oldest: Timestamp in ms of the first record behind each position that lags, as far as known.
        opened: Timestamp in ms of the first record of the oldest open transaction of each source partition, if known.
        now_ms: Our wall clock.
        liveness: Liveness of the owner.
        accept_gaps: ``on_gap: accept``.
        left_out: Parked partitions that the link should mirror, and the reason that it cannot, as far as visible.
        gone: Partitions that the source has no more.
        later: Offset of each position, read after the ends of ``observed``: what was mirrored meanwhile is no lag.
        away: True if ``problem`` is that the source does not answer.
        problem: Reason that the source could not be read.
        fix: Recommended action for it.
    """
    if control.generation is None:
        return LinkStatus(link=link, state="never ran")
    owner_ms = now_ms + liveness.offset_ms
    in_step = abs(liveness.offset_ms) <= IN_STEP_MS
    # what a released link wrote in its last seconds is no rate any more
    rates = {} if liveness.state == "stopped" else _rates(history, owner_ms)
    generation = control.generation
    # only a lane that lost its slot gives all that it has; one that never had any has no claim
    lent = {lane for lane in range(len(generation.since)) if not generation.assignment.of(lane)}
    if liveness.state != "running":
        # no lane runs, and the next run spreads all partitions again
        lent.clear()
    shown = {
        source: _partition(
            position,
            observed.get(source),
            oldest.get(source) if in_step else None,
            later=(later or {}).get(source, 0),
            opened_ms=(opened or {}).get(source),
            rate=rates.get(source, 0.0),
            now_ms=now_ms,
            accept_gaps=accept_gaps,
            parked=source not in generation.assignment.partitions,
            paused=control.pause is not None and control.pause.holds(source.topic),
        )
        for source, position in sorted(positions.items())
    }
    for source, item in shown.items():
        # It was deleted to be copied back, and the promoted link does not read it.
        if control.recreated.get(source.topic) == positions[source].topic_id:
            shown[source] = replace(item, problem="", fix="")
        if source in control.history.gone:
            # The link back may have created it again since.
            shown[source] = replace(item, gone=True, problem="", fix="")
        elif source in gone:
            shown[source] = replace(item, gone=True)
    out = left_out or {}
    stopped = _stopped(control, positions, {source.topic for source in out})
    partitions = tuple(
        _left_out(item, out[source], stopped.get(source.topic))
        if source in out
        else _with_stop(item, stopped.get(source.topic))
        for source, item in shown.items()
    )
    seen_ms = control.seen if problem else None
    if seen_ms is not None and seen_ms > owner_ms + IN_STEP_MS:
        # The owner's clock was ahead of ours, by a time that its claim does not tell any more.
        seen_ms = None
    # A left-out partition falls behind by an unknown amount: the link must not look like one without lag.
    mirrored = [item for item in partitions if (not item.parked or item.problem) and not item.gone]
    return LinkStatus(
        link=link,
        state=_state(control, liveness),
        owner=_owner(control, now_ms, liveness.offset_ms),
        clock_offset_seconds=liveness.offset_ms / 1000,
        generation=generation.generation,
        lanes={
            attempt.lane: LaneStatus(
                lane=attempt.lane,
                partitions=len(generation.assignment.of(attempt.lane)),
                run=attempt.run,
                epoch=attempt.epoch,
                attempt=attempt.attempt,
                host=attempt.host,
                pid=attempt.pid,
                since=attempt.timestamp,
                serving=Serving(attempt.plane, attempt.plane_reason, protocol=attempt.transaction_protocol),
                lent=attempt.lane in lent,
            )
            for attempt in sorted(attempts, key=lambda attempt: attempt.lane)
            # a lane that got partitions goes on with the claim that it has
            if attempt.generation == generation.generation
            or (generation.since and attempt.run == generation.run)
        },
        lag_records=_all_known([item.lag_records for item in mirrored], sum),
        lag_seconds=_all_known(
            [item.lag_seconds for item in mirrored], lambda known: max(known, default=0.0)
        ),
        rate=sum(item.rate for item in partitions),
        partitions=partitions,
        stopped=tuple(stop for _, stop in sorted(stopped.items())),
        gaps=tuple(control.gaps),
        paused=control.pause,
        fence=control.history.fence,
        known_lost=None if seen_ms is None else _known_lost(positions, control),
        source_seen_seconds=None if seen_ms is None else max(0.0, (owner_ms - seen_ms) / 1000),
        last_rate=None if seen_ms is None else control.seen_rate,
        orphans=_orphans(control, observed),
        away=("source",) if away else (),
        problem=problem,
        fix=fix,
    )


def is_away(error: MirrorError) -> bool:
    """Returns True if an error is that a cluster does not answer, and not that it refuses."""
    return isinstance(error, UnreachableError | BrokerFailedError)


def unread_status(link: str, last: LinkStatus | None, error: MirrorError) -> LinkStatus:
    """
    Returns the status of a link whose topics cannot be read now, with what they showed last.

    Its state is ``unknown``.  Owner, commits, gaps, comparisons and events are those of ``last``; lags, rates, the age
    of the claim and the times of answers are unknown, because they change by themselves.

    Args:
        link: Name of the link.
        last: Status of the last read that succeeded, or what this function made of it; None if there is none.
        error: Reason that the topics cannot be read.
    """
    problem, fix = error.message, error.fix
    away = ("target",) if is_away(error) else ()
    if last is None:
        return LinkStatus(link=link, state="unknown", away=away, problem=problem, fix=fix)
    if last.state == "unknown":
        return replace(last, away=away, problem=problem, fix=fix)
    owner = None if last.owner is None else replace(last.owner, claim_age_seconds=None)
    return replace(
        last,
        state="unknown",
        owner=owner,
        lag_records=None,
        lag_seconds=None,
        rate=0.0,
        known_lost=None,
        source_seen_seconds=None,
        last_rate=None,
        partitions=tuple(
            replace(item, lag_records=None, lag_seconds=None, rate=0.0, source_lso=None, open_records=None)
            for item in last.partitions
        ),
        source_seconds=None,
        target_seconds=None,
        retention=(),
        away=away,
        problem=problem,
        fix=fix,
    )


def _known_lost(positions: Mapping[SourcePartition, Position], control: ControlView) -> int | None:
    """Returns the offsets between the positions and the last known ends of the source, and those without a position."""
    assigned = {} if control.generation is None else control.generation.assignment.partitions
    offsets = {source: position.offset for source, position in positions.items()}
    mirrored = offsets.keys() & assigned.keys()
    lost = sum(end - start for start, end in control.ends_beside(mirrored, offsets).values())
    for source in mirrored:
        end = control.ends.get(source)
        if end is None:
            return None
        lost += max(0, end - offsets[source])
    return lost


def _orphans(control: ControlView, observed: Mapping[SourcePartition, Observed]) -> OrphansStatus | None:
    """Returns what the promotion in force left on the source; without its answer up to the recorded ends."""
    history = control.history
    if (promotion := history.current) is None:
        return None
    reversal, dealt = history.reversals.get(promotion.number), history.dealt(promotion.number)
    ranges: list[OffsetRange] = []
    decided: dict[str, int] = {}
    for cut in promotion.cuts:
        seen, done = observed.get(cut.source), dealt.get(cut.source, ())
        if cut.gone or (seen is not None and seen.source.topic_id != cut.topic_id):
            continue  # its orphans were deleted with the topic
        for one in done:
            decided[one.action] = decided.get(one.action, 0) + one.records
        if reversal is not None:
            # the link back writes behind this end
            end: int | None = reversal.ends.get(cut.source, cut.position)
        else:
            end = cut.source_end if seen is None else seen.source.high_watermark
        if end is None:
            return None
        ranges += [
            OffsetRange(topic=cut.topic, partition=cut.partition, start=low, end=high)
            for low, high in rest(cut.position, end, done)
        ]
    return OrphansStatus(
        offsets=sum(one.end - one.start for one in ranges),
        at_least=bool(promotion.uncut or promotion.at_least),
        ranges=tuple(ranges),
        decided=decided,
    )


def _state(control: ControlView, liveness: Liveness) -> str:
    if control.history.current is not None:
        return "promoted"
    if control.handed_over is not None:
        return "handed back"
    paused = control.pause is not None and not control.pause.topics
    return "paused" if paused and liveness.state == "running" else liveness.state


def _partition(
    position: Position,
    observed: Observed | None,
    oldest_ms: int | None,
    *,
    later: int,
    opened_ms: int | None,
    rate: float,
    now_ms: int,
    accept_gaps: bool,
    parked: bool,
    paused: bool,
) -> PartitionStatus:
    lag: int | None = None
    seconds: float | None = None
    problem = fix = ""
    if observed is not None and not parked:
        decision = decide_resume(position, observed.source, observed.target, accept_gaps=accept_gaps)
        if isinstance(decision, Stop):
            # Offsets of another topic, or of a log that lost its end, cannot be compared with this position.
            problem, fix = decision.error.message, decision.error.fix
        elif observed.lso is not None:
            lag = max(0, observed.lso - max(position.offset, later))
    if lag == 0:
        seconds = 0.0
    elif lag is not None and oldest_ms is not None and oldest_ms <= now_ms + IN_STEP_MS:
        seconds = max(0.0, (now_ms - oldest_ms) / 1000)
    return PartitionStatus(
        topic=position.topic,
        partition=position.partition,
        target_topic=position.target_topic,
        lane=position.lane,
        position=max(position.offset, later),
        source_lso=None if observed is None else observed.lso,
        lag_records=lag,
        lag_seconds=seconds,
        records=position.total_records,
        copied_headers=position.total_copied_headers,
        dropped=position.total_dropped,
        changed=position.total_changed,
        open_records=None
        if observed is None or observed.lso is None
        else max(0, observed.source.high_watermark - observed.lso),
        open_seconds=None if opened_ms is None else max(0.0, (now_ms - opened_ms) / 1000),
        rate=rate,
        last_commit=position.timestamp,
        parked=parked,
        paused=paused,
        problem=problem,
        fix=fix,
        missing=position.missing,
    )


def _left_out(
    partition: PartitionStatus, reason: MirrorError | None, stop: Stopped | None
) -> PartitionStatus:
    """Returns the status of a partition that a running mirror, or its last start, leaves out."""
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
    """Returns the topics that control shows as stopped, without topics that the link does not mirror any more."""
    generation = control.generation
    assigned = set() if generation is None else {each.topic for each in generation.assignment.partitions}
    parked = {source.topic for source in positions} - assigned - set(left_out)
    return {stop.topic: stop for stop in control.stopped if stop.topic not in parked}


def _with_stop(partition: PartitionStatus, stop: Stopped | None) -> PartitionStatus:
    """Returns the partition with its owner's stop; a problem that the topics show themselves comes first."""
    if stop is None or partition.parked:
        return partition
    problem = partition.problem or stop.reason
    fix = partition.fix if partition.problem else stop.fix
    return replace(partition, stopped=True, problem=problem, fix=fix)


def _rates(history: Iterable[Position], now_ms: int) -> dict[SourcePartition, float]:
    since = now_ms - RATE_WINDOW_SECONDS * 1000
    # A transaction may hold several positions of a partition, each in place of the one before.
    held: dict[tuple[SourcePartition, Any], int] = {}
    for position in history:
        if position.timestamp >= since:
            identity = position.run, position.producer_id, position.producer_epoch, position.txn
            held[position.source, identity] = position.records
    records: dict[SourcePartition, int] = {}
    for (source, _), count in held.items():
        records[source] = records.get(source, 0) + count
    return {source: count / RATE_WINDOW_SECONDS for source, count in records.items()}


def _owner(control: ControlView, now_ms: int, offset_ms: int) -> OwnerStatus | None:
    claim = control.claim
    if claim is None:
        return None
    return OwnerStatus(
        run=claim.run,
        host=claim.host,
        pid=claim.pid,
        released=claim.released,
        claimed_at=claim.timestamp - offset_ms,
        claim_age_seconds=max(0.0, (now_ms + offset_ms - claim.timestamp) / 1000),
    )


def _all_known(values: Sequence[Any], fold: Any) -> Any:
    return None if any(value is None for value in values) else fold(values)
