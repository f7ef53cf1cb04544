"""
Status of a link, for every view. Pure.

`eomirror.status.derive` makes it from the link's topics, `eomirror.status.live` from the driver of this process.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.events import LinkEvent

__all__ = ["MOST_GROUPS", "GroupsStatus", "LinkStatus", "PartitionStatus"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """
    Status of one link.

    Reason for its size: one field for each figure of the JSON status.

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
            (`eomirror.status.standing_fence.standing_fence` makes its text).
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
        events: Newest events, oldest first; older ones thin out (`eomirror.records.events`).
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
    away: tuple[str, ...] = ()
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
    events: tuple[LinkEvent, ...] = ()
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
