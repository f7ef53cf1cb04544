"""
The state of a link as metrics, page and terminal show it. Pure.

It is the model of `eomirror status`, with the counters of the driver if this process mirrors the link.  A `LinkStatus`
is read from the target's topics.  A running mirror makes one of its own snapshot, so that metrics cost it no request.
What only the topics hold, such as accepted gaps, comes from a status that it reads in the background, if at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.records.control import Pause, Stopped
from eomirror.status.model import GroupsStatus, LinkStatus, OwnerStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Link
    from eomirror.status.model import LaneStatus, PartitionStatus
    from eomirror.status.snapshot import LinkSnapshot

__all__ = ["STATES", "LinkFacts", "LinkView", "running_status", "running_view"]

#: States of a link: those of a running driver, then those that only its topics show.
STATES = (
    "preparing", "waiting", "acquiring", "running", "paused", "stopping", "done", "failed",
    "silent", "stopped", "never ran", "handed back", "promoted", "unknown",
)  # fmt: skip

#: The source was asked if it answered within this time; the driver asks every 5 s.
ASKED_SECONDS = 15.0

# the driver renews its claim every 5 s
_LATE_SECONDS = 9.0


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """
    Configured facts of a link.

    Attributes:
        name: Name of the link.
        source: Alias of the source.
        target: Alias of the target.
        naming: Naming policy, as text.
        plane: ``auto``, ``native`` or ``client``.
    """

    name: str
    source: str
    target: str
    naming: str
    plane: str

    @classmethod
    def of(cls, link: Link) -> LinkFacts:
        """Returns the facts of a configured link."""
        return cls(link.name, link.source, link.target, str(link.naming), link.plane)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """
    A link at one moment.

    Attributes:
        facts: Its configuration.
        status: Its status.
        live: Snapshot of the running driver; None if the status is read from topics.
        read_seconds: Time that reading the topics took; None if they were not read.
        kept_seconds: Age of what the topics showed last, if they cannot be read now; None if they can, or never were.
        commit_ms: Time at which the running driver last heard of a commit; None if it has not.
    """

    facts: LinkFacts
    status: LinkStatus
    live: LinkSnapshot | None = None
    read_seconds: float | None = None
    kept_seconds: float | None = None
    commit_ms: int | None = None

    @property
    def has_topics(self) -> bool:
        """True if the status holds what only the topics do."""
        return self.read_seconds is not None


def running_view(
    facts: LinkFacts,
    snapshot: LinkSnapshot,
    topics: LinkStatus | None = None,
    read_seconds: float | None = None,
    kept_seconds: float | None = None,
) -> LinkView:
    """
    Returns the view of a link that this process mirrors.

    Args:
        facts: Its configuration.
        snapshot: Newest snapshot of its driver.
        topics: Status as its topics showed it last, ``unknown`` if they cannot be read now; None if they never were.
        read_seconds: Time that reading them took.
        kept_seconds: Age of what it holds, if they cannot be read now; None if they can, or never were.
    """
    problem, fix = _trouble(facts, snapshot, topics)
    away = _away(snapshot, topics)
    if topics is None or topics.state == "unknown":
        status = replace(running_status(snapshot), away=away, problem=problem, fix=fix)
        if topics is not None and kept_seconds is not None:
            status = _with_topics(status, topics)
        return LinkView(facts=facts, status=status, live=snapshot, kept_seconds=kept_seconds)
    status = replace(running_status(snapshot, topics), away=away)
    mirrored = {(item.topic, item.partition) for item in status.partitions}
    left_out = tuple(
        item
        for item in topics.partitions
        if item.parked and item.problem and (item.topic, item.partition) not in mirrored
    )
    status = replace(
        _with_topics(replace(status, problem=problem, fix=fix), topics),
        partitions=status.partitions + left_out,
        # it falls behind by an unknown amount
        lag_records=None if left_out else status.lag_records,
        lag_seconds=None if left_out else status.lag_seconds,
    )
    return LinkView(facts=facts, status=status, live=snapshot, read_seconds=read_seconds or 0.0)


def _with_topics(status: LinkStatus, topics: LinkStatus) -> LinkStatus:
    """
    Returns the status of a running link with what only its topics hold.

    They may be those of the run before.  The last known ends of the source count only while the driver misses it, too.
    """
    owner = status.owner
    if owner is not None and topics.owner is not None and topics.owner.run == owner.run:
        owner = replace(topics.owner, claim_age_seconds=owner.claim_age_seconds)
    away = bool(status.problem)
    return replace(
        status,
        owner=owner,
        stopped=_dated(status.stopped, topics.stopped),
        gaps=topics.gaps,
        fence=topics.fence,
        groups=topics.groups or status.groups,
        hanging=topics.hanging,
        drifted=topics.drifted,
        restarts=topics.restarts,
        verifications=topics.verifications,
        tail=topics.tail,
        drill=topics.drill,
        retention=topics.retention,
        events=topics.events,
        known_lost=topics.known_lost if away else None,
        source_seen_seconds=topics.source_seen_seconds if away else None,
        last_rate=topics.last_rate if away else None,
        lanes={number: _with_worker(lane, topics.lanes.get(number)) for number, lane in status.lanes.items()},
        source_seconds=topics.source_seconds,
        target_seconds=topics.target_seconds,
    )


def _with_worker(lane: LaneStatus, recorded: LaneStatus | None) -> LaneStatus:
    """Returns a lane with what the topics say of its attempt; without it if they know another attempt."""
    if recorded is None or (lane.epoch, lane.attempt) != (recorded.epoch, recorded.attempt):
        return lane
    return replace(
        lane,
        partitions=recorded.partitions,
        run=recorded.run,
        host=recorded.host,
        pid=recorded.pid,
        since=recorded.since,
    )


def _dated(stopped: tuple[Stopped, ...], recorded: tuple[Stopped, ...]) -> tuple[Stopped, ...]:
    """Returns the stops of a running link with the times that its owner recorded."""
    times = {stop.topic: stop.timestamp for stop in recorded}
    return tuple(replace(stop, timestamp=times.get(stop.topic, 0)) for stop in stopped)


def running_status(snapshot: LinkSnapshot, topics: LinkStatus | None = None) -> LinkStatus:
    """
    Returns the status of a link from the snapshot of its driver.

    A lag of 0 is true only while the source answers: a lane that is caught up and hears nothing more would show it for
    ever.  So a lag of 0 is unknown when the source has not answered the driver within `ASKED_SECONDS`.  That of a run
    that ended as caught up is true as of its goals, which the source answered, however long Spark took to start.
    """
    age = snapshot.source_age_seconds
    asked = snapshot.caught_up or (age is not None and age <= ASKED_SECONDS)
    seen = {(item.topic, item.partition): item for item in (topics.partitions if topics else ())}
    partitions = tuple(
        _partition(item, seen, asked=asked) for topic in snapshot.topics for item in topic.partitions
    )
    going = [item for item in partitions if not item.stopped and not item.paused]
    known = snapshot.lag_records is not None and not any(item.lag_records is None for item in going)
    in_time = snapshot.lag_seconds is not None and not any(item.lag_seconds is None for item in going)
    groups = snapshot.groups
    return LinkStatus(
        link=snapshot.link,
        state=snapshot.state,
        generation=snapshot.generation,
        owner=OwnerStatus(run=snapshot.run, claim_age_seconds=snapshot.claim_age_seconds),
        lanes={lane.lane: lane for lane in snapshot.lanes},
        lag_records=sum(item.lag_records or 0 for item in going) if known else None,
        lag_seconds=max((item.lag_seconds or 0.0 for item in going), default=0.0) if in_time else None,
        rate=snapshot.records_per_second,
        partitions=partitions,
        stopped=tuple(
            Stopped(
                topic=topic.topic,
                reason=topic.stopped.reason,
                fix=topic.stopped.fix,
                exit_code=topic.stopped.exit_code,
                lane=None,
                run="",
                timestamp=0,
            )
            for topic in snapshot.topics
            if topic.stopped
        ),
        groups=None
        if groups is None
        else GroupsStatus(followed=groups.followed, offsets=0, last_checkpoint=None),
        paused=Pause(topics=snapshot.paused, host="", timestamp=0) if snapshot.paused else None,
        problem=snapshot.error or snapshot.waiting or snapshot.away,
        fix=snapshot.fix,
    )


def _trouble(facts: LinkFacts, snapshot: LinkSnapshot, topics: LinkStatus | None) -> tuple[str, str]:
    """
    Returns reason and fix of what is wrong with the link as a whole; empty for nothing.

    A request fails only after half a minute, so a cluster that has not answered for some seconds is named before the
    driver's error, by the reader of the topics if it has met an error, too.
    """
    if snapshot.error or snapshot.waiting or snapshot.state not in {"running", "paused"}:
        return snapshot.error or snapshot.waiting, snapshot.fix
    silent = ""
    if snapshot.source_failing_seconds:
        silent = f"cluster {facts.source} has not answered for {snapshot.source_failing_seconds:.0f} s"
    elif snapshot.claim_age_seconds is not None and snapshot.claim_age_seconds > _LATE_SECONDS:
        silent = (
            f"cluster {facts.target} has not taken the link's claim for {snapshot.claim_age_seconds:.0f} s"
        )
    if silent and topics is not None and topics.problem:
        return topics.problem, topics.fix
    if snapshot.away or not silent:
        return snapshot.away, snapshot.fix
    return silent, "check bootstrap.servers, the brokers, the credentials and the network"


def _away(snapshot: LinkSnapshot, topics: LinkStatus | None) -> tuple[str, ...]:
    """Returns the clusters that do not answer the driver, or the reader of the topics."""
    found = [] if topics is None else [end for end in topics.away if end == "target"]
    if snapshot.state in {"running", "paused"}:
        if snapshot.source_failing_seconds:
            found.append("source")
        if (snapshot.claim_age_seconds or 0.0) > _LATE_SECONDS:
            found.append("target")
    return tuple(sorted(set(found)))


def _partition(
    item: PartitionStatus, seen: Mapping[tuple[str, int], PartitionStatus], *, asked: bool
) -> PartitionStatus:
    """Returns a partition; what the driver does not know as its topics showed it last, if they did."""
    if not (item.lag_records or asked):
        item = replace(item, lag_records=None, lag_seconds=None)
    there = seen.get((item.topic, item.partition))
    if there is None:
        return item
    return replace(
        item,
        records=there.records,
        rate=there.rate,
        last_commit=there.last_commit,
        problem=item.problem or there.problem,
        fix=item.fix or there.fix,
        open_records=there.open_records,
        open_seconds=there.open_seconds,
        missing=there.missing,
        dropped=there.dropped,
    )
