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

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eomirror.records.dealt_ranges import rest
from eomirror.recovery.resume import Stop, decide_resume
from eomirror.status.failover_events import fence_dict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.errors import MirrorError
    from eomirror.records.control import ControlView, Stopped
    from eomirror.records.mm2 import Checkpoint
    from eomirror.records.position import AttemptClaim, Position
    from eomirror.recovery.resume import SourceFacts, TargetFacts
    from eomirror.status.events import Event
    from eomirror.status.liveness import Liveness
    from eomirror.types import SourcePartition

__all__ = [
    "IN_STEP_MS",
    "MOST_GROUPS",
    "RATE_WINDOW_SECONDS",
    "GroupsStatus",
    "LinkStatus",
    "Observed",
    "PartitionStatus",
    "groups_status",
    "link_status",
    "planes_line",
    "unread_status",
]

#: Records per second are averaged over this time before the newest commit.
RATE_WINDOW_SECONDS = 10.0

#: Groups that a status lists by name.
MOST_GROUPS = 500

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """
    Status of one source partition.

    Attributes:
        position: Next offset to fetch, as committed.
        source_lso: Last stable offset of the source; None if unknown.
        lag_records: Offsets between both (markers count); None if unknown, and with a ``problem``.
        lag_seconds: Age of the oldest record not mirrored; 0 if there is none; None if unknown, such as for a record
            from the future.
        records: Records mirrored since the link first ran.
        copied_headers: Of these, records with the provenance header of another record, copied by an application.
        rate: Records per second over the last `RATE_WINDOW_SECONDS`; 0 if the link is stopped.
        last_commit: Commit time of the position, ms since the epoch.
        parked: True if it has a position but is not in the newest generation's assignment, so no lane mirrors it.
        stopped: True if the owner has stopped its topic, or had when it ended; ``lag_records`` is still counted.
        paused: True if lanes hold its topic (`eomirror pause`).
        problem: Reason that it cannot be mirrored from its position (recreated or truncated source), is parked
            although the link's topics match it, or that its topic is stopped; empty without a problem.
        fix: Recommended action.
        dropped: Records dropped by configuration since the link first ran, by reason: ``hop`` and ``origin`` (the loop
            guard), ``dead-letter``.
        open_records: Offsets that open transactions of the source hold back: its end minus its last stable offset; None
            if unknown.
        open_seconds: Age of the first record of the oldest of these transactions; None if there is none, or unknown.
        missing: Skipped source offsets since the link first ran that were in no batch: holes, which
            compaction makes, and a lost segment file.  The client plane counts only those that it has looked at.
        gone: True if the source has the partition no more (`eomirror.recovery.resume.gone_sources`): it has no lag.
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
    paused: bool = False
    problem: str = ""
    fix: str = ""
    copied_headers: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    open_records: int | None = None
    open_seconds: float | None = None
    missing: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStatus:
    """
    Followed groups of a link, according to the checkpoints in the target.

    Attributes:
        followed: Groups with a checkpoint in a mirrored topic.
        offsets: Checkpoints of these groups, one per partition.
        last_checkpoint: Timestamp of the newest checkpoint, ms since the epoch; None without checkpoints.
        unreadable: Skipped records that are not checkpoints.
        first_unreadable: Location and error of the first of them; empty for none.
        by_group: The first `MOST_GROUPS` groups by name: name, number of checkpoints, time of the newest, and source
            offsets from the checkpoints to the end of the source (None if the source is unknown).
    """

    followed: int
    offsets: int
    last_checkpoint: int | None
    unreadable: int = 0
    first_unreadable: str = ""
    by_group: tuple[dict[str, Any], ...] = ()


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
            {
                "group": group,
                "offsets": len(times),
                "last_checkpoint": max(times),
                "lag_records": lags[group],
            }
            for group, times in sorted(by_group.items())[:MOST_GROUPS]
        ),
    )


def planes_line(lanes: Iterable[tuple[int, str, str]]) -> str:
    """
    Returns one line that names the planes of a link's lanes; empty if no lane has reported its plane.

    Args:
        lanes: Number, plane, and the reason against the native plane, of each lane.
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
    Status of one link.

    Attributes:
        state: ``never ran``, ``stopped`` (its owner released it), ``running``, ``silent`` (the owner's claim does not
            advance), ``handed back`` (MirrorMaker 2 mirrors since), ``promoted`` (applications may write to the copies
            since), ``paused`` (its owner lives and holds all topics), or ``unknown`` (its topics cannot be read).
        owner: Run, host and pid of the owner, and the age of its claim in seconds; None if it never ran.
        clock_offset_seconds: How far the owner's clock is ahead of ours; 0 if they agree, or if that is unknown.
        generation: Newest lane layout.
        lanes: Lane -> its newest attempt, with its plane and the reason against the native one.
        lag_records: Sum over partitions that are not parked; None if one is unknown, or was left out.
        lag_seconds: Largest over partitions that are not parked; None if one is unknown, or was left out.
        rate: Records per second, all partitions.
        partitions: One per source partition that has a position.
        stopped: Topics that the owner has stopped, or had when it ended: topic, reason, fix, exit code of the error,
            lane and run that stopped it, and time.  A topic that resumes is removed.
        paused: Pause that stands: topics (a regular expression; ``.*`` for all), host and time; None for none.
        fence: Fence of the source's applications that stands: method, topics, host and time; None for none
            (`eomirror.status.failover_events.standing_fence` makes its text).
        gaps: Accepted gaps.
        groups: Followed groups, according to their checkpoints; None if the link writes none.
        known_lost: Without the source: offsets up to the ends that the mirror read last that are not mirrored, also of
            topics that it leaves out; None if these ends or their age are not known, or the source answers.
        source_seen_seconds: Age of these ends; None without them.
        last_rate: Without the source: records per second in the `RATE_WINDOW_SECONDS` before it was last read; None if
            that time is not known.
        problem: Reason that the source, or with ``unknown`` the link, could not be read; empty if it could.
        fix: Recommended action.
        hanging: Hanging transactions on the target (`eomirror.status.hanging.Hanging`), also of the link's
            own topics; the first of each copy is the problem of its partition as well.
        drifted: State topics whose settings lose records, each with the fix.
        restarts: Lanes that restarted in the owner's run: lane, count, count by kind of ending, last reason, time.
        left_groups: Groups that the owner leaves alone on the target, because consumers there have reached their
            offsets: their ``count``, and the first ``groups`` with the reason of each; empty for none.
        verifications: Last comparison of each topic that was compared: outcome, counts, mirrored offsets since
            (``unverified``), time.
        drill: Last recorded drill: passed, RPO, RTO, time; None for none.
        tail: Last comparison of only the ends of all copies, before a planned promotion: outcome, requested offsets of
            each partition, counts, command, time; None for none.  ``verifications`` do not show it.
        retention: Topics whose records have waited for a minute or more, with what is left of the source's retention,
            the nearest first (`eomirror.status.retention.retention_rows`).
        source_seconds: Time in which the source answered one request of the reader; None if it did not.
        target_seconds: The same of the target.
        events: Newest events, oldest first; older ones thin out (`eomirror.status.events`).
        remark: Restriction that the link's settings imply; empty for none.
        orphans: Of a promoted link, source ``offsets`` beyond the cut that have no copy and about which nothing was
            decided (markers count), their ``ranges``, and the ``decided`` records by action (`eomirror restore`);
            ``at_least`` is true if the source had topics without a position.  None if the link is not promoted, or an
            end is not known.
        foreign: Records behind the last one of the link in its copies, which no link in the other direction mirrors:
            topic, partition, copy, and offsets of the copy (``from`` the first record, ``to`` the end).
        awaited: Topics that `topics` gives by name and that the source lacks: mirrored when they appear.
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
    paused: dict[str, Any] | None = None
    fence: dict[str, Any] | None = None
    known_lost: int | None = None
    source_seen_seconds: float | None = None
    last_rate: float | None = None
    problem: str = ""
    fix: str = ""
    drifted: tuple[str, ...] = ()
    hanging: tuple[dict[str, Any], ...] = ()
    restarts: tuple[dict[str, Any], ...] = ()
    verifications: tuple[dict[str, Any], ...] = ()
    drill: dict[str, Any] | None = None
    left_groups: dict[str, Any] = field(default_factory=dict)
    tail: dict[str, Any] | None = None
    retention: tuple[dict[str, Any], ...] = ()
    source_seconds: float | None = None
    target_seconds: float | None = None
    events: tuple[Event, ...] = ()
    remark: str = ""
    orphans: dict[str, Any] | None = None
    foreign: tuple[dict[str, Any], ...] = ()
    awaited: tuple[str, ...] = ()

    @property
    def unread(self) -> bool:
        """Returns True if its topics could not be read."""
        return self.state == "unknown"

    @property
    def ended(self) -> bool:
        """Returns True if the link was promoted or handed back: no mirror should run it, and its lag has no meaning."""
        return self.state in {"promoted", "handed back"}

    def as_dict(self) -> dict[str, Any]:
        """Returns the status for ``-o json``, without events: topics hold their partitions."""
        body = asdict(replace(self, events=()))
        del body["events"]
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
    shown = {
        source: _partition(
            position,
            observed.get(source),
            oldest.get(source) if in_step else None,
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
        paused=None
        if control.pause is None
        else {
            "topics": control.pause.topics or ".*",
            "host": control.pause.host,
            "at": control.pause.timestamp,
        },
        fence=fence_dict(control.history.fence),
        known_lost=None if seen_ms is None else _known_lost(positions, control),
        source_seen_seconds=None if seen_ms is None else max(0.0, (owner_ms - seen_ms) / 1000),
        last_rate=None if seen_ms is None else sum(_rates(history, seen_ms).values()),
        orphans=_orphans(control, observed),
        problem=problem,
        fix=fix,
    )


def unread_status(link: str, last: LinkStatus | None, *, problem: str, fix: str) -> LinkStatus:
    """
    Returns the status of a link whose topics cannot be read now, with what they showed last.

    Its state is ``unknown``.  Owner, commits, gaps, comparisons and events are those of ``last``; lags, rates, the age
    of the claim and the times of answers are unknown, because they change by themselves.

    Args:
        link: Name of the link.
        last: Status of the last read that succeeded, or what this function made of it; None if there is none.
        problem: Reason that the topics cannot be read.
        fix: Recommended action.
    """
    if last is None:
        return LinkStatus(link=link, state="unknown", problem=problem, fix=fix)
    if last.state == "unknown":
        return replace(last, problem=problem, fix=fix)
    owner = None if last.owner is None else {**last.owner, "claim_age_seconds": None}
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


def _orphans(control: ControlView, observed: Mapping[SourcePartition, Observed]) -> dict[str, Any] | None:
    """Returns what the promotion in force left on the source; without its answer up to the recorded ends."""
    history = control.history
    if (promotion := history.current) is None:
        return None
    reversal, dealt = history.reversals.get(promotion.number), history.dealt(promotion.number)
    ranges: list[dict[str, Any]] = []
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
            {"topic": cut.topic, "partition": cut.partition, "from": low, "to": high}
            for low, high in rest(cut.position, end, done)
        ]
    return {
        "offsets": sum(one["to"] - one["from"] for one in ranges),
        "at_least": bool(promotion.uncut or promotion.at_least),
        "ranges": ranges,
        "decided": decided,
    }


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
            lag = max(0, observed.lso - position.offset)
    if lag == 0:
        seconds = 0.0
    elif lag is not None and oldest_ms is not None and oldest_ms <= now_ms + IN_STEP_MS:
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
        dropped=position.total_dropped,
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


def _owner(control: ControlView, now_ms: int, offset_ms: int) -> dict[str, Any] | None:
    claim = control.claim
    if claim is None:
        return None
    return {
        "run": claim.run,
        "host": claim.host,
        "pid": claim.pid,
        "released": claim.released,
        "claimed_at": claim.timestamp - offset_ms,
        "claim_age_seconds": max(0.0, (now_ms + offset_ms - claim.timestamp) / 1000),
    }


def _all_known(values: Sequence[Any], fold: Any) -> Any:
    return None if any(value is None for value in values) else fold(values)
