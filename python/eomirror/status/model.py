"""
Status of a link, for every view. Pure.

`eomirror.status.derive` makes it from the link's topics, `eomirror.status.live` from the driver of this process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from eomirror.plane.protocol import Serving
from eomirror.records.control import Gap, Pause, Stopped
from eomirror.records.kept_entries import TargetComparison
from eomirror.records.position import QUERY_RULE
from eomirror.records.promotion import Fence
from eomirror.records.reports import (
    DrillResult,
    GroupsLeft,
    LaneRestarts,
    RefusedConfiguration,
    StandbyProcess,
    TailComparison,
    Verification,
)
from eomirror.status.work import Counters, LaneWork

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from eomirror.lane.spec import LaneProgress
    from eomirror.link.copy_ends import ForeignTail
    from eomirror.records.events import LinkEvent

__all__ = [
    "ADD_SLOTS",
    "MOST_GROUPS",
    "GroupStatus",
    "GroupsStatus",
    "Hanging",
    "LaneStatus",
    "LinkStatus",
    "OffsetRange",
    "OrphansStatus",
    "OwnerStatus",
    "PartitionStatus",
    "RetentionStatus",
    "SchemasStatus",
    "VerificationStatus",
    "as_json",
    "rule_counts",
    "slots_line",
    "waits_for_slot",
]

#: Groups that a status lists by name.
MOST_GROUPS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """
    Status of one source partition.

    Reason for its size: one field for each figure of the JSON status.

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
            guard), ``dead-letter``, ``unreadable``, and rules of the transform, such as ``transform[0]``.
        changed: Records that rules of the transform changed since the link first ran, by rule.
        open_records: Offsets that open transactions of the source hold back: its end minus its last stable offset; None
            if unknown.
        open_seconds: Age of the first record of the oldest of these transactions; None if there is none, or unknown.
        missing: Skipped source offsets since the link first ran that were in no batch: holes, which
            compaction makes, and a lost segment file.  The client plane counts only those that it has looked at.
        gone: True if the source has the partition no more (`eomirror.recovery.resume.gone_sources`): it has no lag.
        lag_unknown: Reason of the driver why ``lag_records`` is unknown; else empty.
    """

    topic: str
    partition: int
    target_topic: str
    lane: int
    position: int
    source_lso: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    records: int = 0
    rate: float = 0.0
    last_commit: int = 0
    parked: bool = False
    stopped: bool = False
    paused: bool = False
    problem: str = ""
    fix: str = ""
    copied_headers: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    open_records: int | None = None
    open_seconds: float | None = None
    missing: int = 0
    gone: bool = False
    lag_unknown: str = field(default="", metadata={"json": False})


def rule_counts(partitions: Iterable[PartitionStatus]) -> list[tuple[str, str, int, int]]:
    """
    Returns what rules of the transform did since the link first ran: topic, rule, and records dropped and changed.

    The rule of records that no rule can read is ``unreadable``, that of what a query left out ``query``.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for item in partitions:
        for place, counts in enumerate((item.dropped, item.changed)):
            for rule, number in counts.items():
                if rule in {"unreadable", QUERY_RULE} or rule.startswith("transform["):
                    found.setdefault((item.topic, rule), [0, 0])[place] += number
    return [(topic, rule, dropped, changed) for (topic, rule), (dropped, changed) in sorted(found.items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerStatus:
    """
    Owner of a link.

    Attributes:
        run: Id of its run.
        host: Host of its process; None if the topics were not read since it took the link, as all that follows.
        pid: Id of its process.
        released: True if it has released the link.
        claimed_at: Time at which it last renewed its claim, ms since the epoch by our clock.
        claim_age_seconds: Time since then; None if it is not known now.
    """

    run: str
    host: str | None = None
    pid: int | None = None
    released: bool | None = None
    claimed_at: int | None = None
    claim_age_seconds: float | None = None

    @property
    def process(self) -> str:
        """Process and host as an insertion in a sentence; empty if they are not known."""
        return f", process {self.pid} on host {self.host}," if self.host else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    """
    Newest attempt of a lane.

    Reason for its size: one field for each figure that is shown.

    Attributes:
        state: State of its machine while a worker runs it; else ``starting``, ``waiting``, ``idle`` or ``ended``.  None
            if only the topics are known, as with all that the driver counts in this run.
        partitions: Number of its partitions; None if the topics were not read since the attempt began, as with ``run``,
            ``host``, ``pid`` and ``since``.
        run: Run of the attempt.
        epoch: Number of the lane's Spark task in this run.
        attempt: Number of the attempt within the epoch.
        host: Host of its worker.
        pid: Process id of its worker.
        since: Time of its start, ms since the epoch.
        serving: Its plane, and what holds it back; topics know neither
            throttling nor delays.
        report: Its last report, without partitions; None without a worker.
        retries: Attempts that ended early.
        last_failure: Reason of the last early end.
        counters: Its work.
        endings: Attempts that ended early, by kind of ending.
        work: Its transactions, with histograms.
        silent_seconds: Time since the last report of an attempt that has stopped reporting, such as one whose process
            stands still; 0 while it reports, and before its first report.
        lent: True if it has no slot on Spark, and other lanes mirror its partitions.
    """

    lane: int
    state: str | None = None
    partitions: int | None = None
    run: str | None = None
    epoch: int = 0
    attempt: int = 0
    host: str | None = None
    pid: int | None = None
    since: int | None = None
    serving: Serving = field(default_factory=Serving)
    report: LaneProgress | None = None
    retries: int = 0
    last_failure: str = ""
    counters: Counters = field(default_factory=Counters)
    endings: Mapping[str, int] = field(default_factory=dict)
    work: LaneWork = field(default_factory=LaneWork)
    silent_seconds: float = 0.0
    lent: bool = False

    @property
    def delayed(self) -> str | None:
        """Source partitions that it has not been able to read for some time, with the reason; None if unknown."""
        return None if self.state is None else self.serving.delayed


#: What to do about lanes without a slot.
ADD_SLOTS = "add workers or cores to Spark, or take lanes away: `lanes`"


def waits_for_slot(lanes: Collection[int], given: int, wanted: int) -> str:
    """Returns the sentence on lanes that Spark does not begin, with the slots that it gives and should give."""
    many = len(lanes) > 1
    numbers = ", ".join(map(str, sorted(lanes)))
    return f"lane{'s' if many else ''} {numbers} wait{'' if many else 's'} for a slot: Spark gives {given} of {wanted}"


def slots_line(lanes: Collection[LaneStatus]) -> str:
    """Returns one line on lanes that wait for a slot, and whether others mirror for them; empty if none waits."""
    lent = [lane.lane for lane in lanes if lane.lent]
    waiting = [lane.lane for lane in lanes if lane.state == "queued"]
    given = len(lanes) - len(lent) - len(waiting)
    parts = [waits_for_slot(waiting, given, len(lanes))] if waiting else []
    if lent:
        whose = "its" if len(lent) == 1 else "their"
        parts.append(
            f"{waits_for_slot(lent, given, len(lanes))}; {whose} partitions are lent to the lanes that run"
        )
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class VerificationStatus:
    """
    Last comparison of a topic.

    Attributes:
        result: Its result.
        unverified: Offsets that were mirrored since; of a partition that was not compared, all.
    """

    result: Verification
    unverified: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionStatus:
    """
    Rest of the source's retention of a topic.

    Attributes:
        partition: Partition with the largest share.
        used: Share that is used; 1 if the source may delete at any time.
        left_seconds: Time that is left; None without ``retention.ms``, or if the age is unknown.
        setting: Setting that limits it: ``retention.ms`` or ``retention.bytes``.
    """

    topic: str
    partition: int
    used: float
    left_seconds: float | None
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Source offsets ``[start, end)`` of a partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphansStatus:
    """
    Source offsets that a promotion left behind.

    Attributes:
        offsets: Number of those about which nothing was decided; markers count.
        at_least: True if the source had topics without a position.
        ranges: These offsets.
        decided: Decided records by action (`eomirror restore`).
    """

    offsets: int
    at_least: bool
    ranges: tuple[OffsetRange, ...]
    decided: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """
    A hanging transaction.

    Attributes:
        producer_id: Id of the producer that wrote it.
        start: Offset of its first record; ``read_committed`` readers see no records from this offset.
        end: High watermark of the partition.
        since: Latest possible time of its beginning, ms since the epoch by the owner's clock; None if unknown.
        problem: Description for people.
        fix: Recommended action.
    """

    topic: str
    partition: int
    producer_id: int
    start: int
    end: int
    since: int | None
    problem: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """
    A followed group.

    Attributes:
        offsets: Number of its checkpoints.
        last_checkpoint: Time of the newest, ms since the epoch.
        lag_records: Source offsets from the checkpoints to the end of the source; None if the source is unknown.
    """

    group: str
    offsets: int
    last_checkpoint: int
    lag_records: int | None = None


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
        by_group: The first `MOST_GROUPS` groups by name.
    """

    followed: int
    offsets: int
    last_checkpoint: int | None
    unreadable: int = 0
    first_unreadable: str = ""
    by_group: tuple[GroupStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasStatus:
    """
    State of the mirror of schema registries, as `eomirror.registry.mirror.SchemasSnapshot` explains its fields.

    Attributes:
        age_seconds: Time since the target's registry was last seen to have all that the source's had; None if it was
            not since the link last started.
    """

    state: str
    subjects: int = 0
    versions: int = 0
    pending: int = 0
    conflicts: int = 0
    kept: int = 0
    age_seconds: float | None = None
    problem: str = ""
    fix: str = ""

    @classmethod
    def of(cls, one: Any, now_ms: int) -> SchemasStatus:
        """
        Returns the state at a time.

        Args:
            one: A `SchemasSnapshot`, or the `SchemasMirrored` that its owner recorded.
            now_ms: Wall clock of the owner.
        """
        return cls(
            state=one.state,
            subjects=one.subjects,
            versions=one.versions,
            pending=one.pending,
            conflicts=one.conflicts,
            kept=one.kept,
            age_seconds=max(0.0, (now_ms - one.equal_at) / 1000) if one.equal_at else None,
            problem=one.problem,
            fix=one.fix,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """
    Status of one link.

    Reason for its size: one field for each figure of the JSON status.

    Attributes:
        state: ``never ran``, ``stopped`` (its owner released it), ``running``, ``silent`` (the owner's claim does not
            advance), ``handed back`` (MirrorMaker 2 mirrors since), ``promoted`` (applications may write to the copies
            since), ``paused`` (its owner lives and holds all topics), or ``unknown`` (its topics cannot be read).
        owner: Its owner; None if it never ran.
        clock_offset_seconds: How far the owner's clock is ahead of ours; 0 if they agree, or if that is unknown.
        generation: Newest lane layout.
        lanes: Lane -> its newest attempt.
        lag_records: Sum over partitions that are not parked; None if one is unknown, or was left out.
        lag_seconds: Largest over partitions that are not parked; None if one is unknown, or was left out.
        rate: Records per second, all partitions.
        partitions: One per source partition that has a position.
        stopped: Topics that the owner has stopped, or had when it ended.  A topic that resumes is removed.
        paused: Pause that stands; None for none.
        fence: Fence of the source's applications that stands; None for none
            (`eomirror.records.promotion.standing_fence` makes its text).
        gaps: Accepted gaps.
        groups: Followed groups, according to their checkpoints; None if the link writes none.
        known_lost: Without the source: offsets up to the ends that the mirror read last that are not mirrored, also of
            topics that it leaves out; None if these ends or their age are not known, or the source answers.
        source_seen_seconds: Age of these ends; None without them.
        last_rate: Without the source: offsets per second by which its ends grew before it was last read, as the owner
            recorded it; None if it did not.
        away: Clusters that do not answer, of ``source`` and ``target``.
        problem: Reason that the source, or with ``unknown`` the link, could not be read; empty if it could.
        fix: Recommended action.
        hanging: Hanging transactions on the target, also of the link's own topics; the first of each copy is the
            problem of its partition as well.
        drifted: State topics whose settings lose records, each with the fix.
        restarts: Lanes that restarted in the owner's run.
        standbys: Processes that take the link when its owner is gone (`eomirror run --standby`).
        left_groups: Groups that the owner leaves alone on the target, because consumers there have reached their
            offsets; None for none.
        verifications: Last comparison of each topic that was compared.
        drill: Last recorded drill; None for none.
        tail: Last comparison of only the ends of all copies, before a planned promotion; None for none.
            ``verifications`` do not show it.
        retention: Topics whose records have waited for a minute or more, with what is left of the source's retention,
            the nearest first (`eomirror.status.retention.retention_rows`).
        source_seconds: Time in which the source answered one request of the reader; None if it did not.
        target_seconds: The same of the target.
        events: Newest events, oldest first; older ones thin out (`eomirror.records.events`).
        remark: Restriction that the link's settings imply; empty for none.
        orphans: Of a promoted link, source offsets beyond the cut that have no copy; None if the link is not promoted,
            or an end is not known.
        foreign: Records behind the last one of the link in its copies, which no link in the other direction mirrors.
        awaited: Topics that `topics` gives by name and that the source lacks: mirrored when they appear.
        comparison: Last comparison of the target with the source in settings, ACL entries and quotas; None for none.
        refused_configuration: Changed configuration file that the running mirror refuses; None for none.
        schemas: Mirror of schema registries; None if the link mirrors none.
    """

    link: str
    state: str
    owner: OwnerStatus | None = None
    clock_offset_seconds: float = 0.0
    generation: int | None = None
    lanes: Mapping[int, LaneStatus] = field(default_factory=dict)
    lag_records: int | None = None
    lag_seconds: float | None = None
    rate: float = 0.0
    partitions: tuple[PartitionStatus, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    gaps: tuple[Gap, ...] = ()
    groups: GroupsStatus | None = None
    paused: Pause | None = None
    fence: Fence | None = None
    known_lost: int | None = None
    source_seen_seconds: float | None = None
    last_rate: float | None = None
    away: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""
    drifted: tuple[str, ...] = ()
    hanging: tuple[Hanging, ...] = ()
    restarts: tuple[LaneRestarts, ...] = ()
    verifications: tuple[VerificationStatus, ...] = ()
    drill: DrillResult | None = None
    standbys: tuple[StandbyProcess, ...] = ()
    left_groups: GroupsLeft | None = None
    tail: TailComparison | None = None
    retention: tuple[RetentionStatus, ...] = ()
    source_seconds: float | None = None
    target_seconds: float | None = None
    events: tuple[LinkEvent, ...] = field(default=(), metadata={"json": False})
    remark: str = ""
    orphans: OrphansStatus | None = None
    foreign: tuple[ForeignTail, ...] = ()
    awaited: tuple[str, ...] = ()
    comparison: TargetComparison | None = None
    refused_configuration: RefusedConfiguration | None = None
    schemas: SchemasStatus | None = None

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
        body: dict[str, Any] = as_json(self)
        body["left_groups"] = body["left_groups"] or {}
        topics: dict[str, list[dict[str, Any]]] = {}
        for partition in body.pop("partitions"):
            topics.setdefault(partition.pop("topic"), []).append(partition)
        body["topics"] = [{"topic": topic, "partitions": found} for topic, found in topics.items()]
        return body


#: Fields in JSON where they are not those of the class: ``name=attribute``; one with ``?`` is omitted while it is None.
_FORMS: Mapping[type, str] = {
    DrillResult: "passed rpo_records rto_seconds host stage problem at=timestamp",
    Fence: "method topics host at=timestamp",
    Gap: "topic partition from=start to=end at=timestamp",
    GroupsLeft: "count groups",
    LaneRestarts: "lane count endings ending reason at=timestamp",
    LaneStatus: "state? partitions? run? epoch attempt host? pid? since? plane=serving.plane "
    "plane_reason=serving.reason transaction_protocol=serving.protocol delayed?",
    OffsetRange: "topic partition from=start to=end",
    OwnerStatus: "run host? pid? released? claimed_at? claim_age_seconds",
    Pause: "topics=pattern host at=timestamp",
    RefusedConfiguration: "reason at=timestamp",
    StandbyProcess: "run host pid since",
    Stopped: "topic reason fix exit_code lane run at=timestamp",
    TargetComparison: "standing problems changed changed_at command at=timestamp",
    TailComparison: "outcome tail topics partitions offsets command problem host at=timestamp",
    Verification: "topic outcome partitions offsets differences problem from_offset since host at=timestamp",
}


def as_json(value: Any, form: str = "") -> Any:
    """
    Returns the JSON of a part of a status.

    Args:
        value: The part.
        form: Its fields, as in `_FORMS`; empty for those of its class.  Metadata of a field may name it, or leave it
            out (``json``: False).
    """
    if isinstance(value, VerificationStatus):
        return {**as_json(value.result), "unverified": value.unverified}
    if isinstance(value, Stopped) and not value.run:
        # of the driver of this process, to which `eomirror.status.live` adds at most the time
        form = "topic reason fix exit_code" + (" at=timestamp" if value.timestamp else "")
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item, form) for item in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    names, omitted, read = _shown(form or _form(type(value)))
    return {
        name: as_json(item)
        for name, item in zip(names, read(value), strict=True)
        if item is not None or name not in omitted
    }


@cache
def _form(kind: Any) -> str:
    shown = [item for item in fields(kind) if item.metadata.get("json", True)]
    return _FORMS.get(kind) or " ".join(
        f"{item.metadata.get('name', item.name)}={item.name}" for item in shown
    )


@cache
def _shown(form: str) -> tuple[tuple[str, ...], frozenset[str], Callable[[Any], tuple[Any, ...]]]:
    """Returns the names of a form, those that are omitted while they are None, and the function that reads all."""
    pairs = [item.partition("=")[::2] for item in form.split()]
    paths = [(attribute or name).rstrip("?") for name, attribute in pairs]
    names = tuple(name.rstrip("?") for name, _ in pairs)
    omitted = frozenset(name[:-1] for name, _ in pairs if name.endswith("?"))
    if any("." in path for path in paths):
        return names, omitted, lambda value: tuple(_at(value, path) for path in paths)
    return names, omitted, attrgetter(*paths)


def _at(value: Any, path: str) -> Any:
    """Returns the value at a path of attributes; None if a part of it is None."""
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value
