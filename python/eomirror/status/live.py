"""
The state of a link as metrics, page and terminal show it. Pure.

It is the model of `eomirror status`, with the counters of the driver if this process mirrors the link.  A `LinkStatus`
is read from the target's topics.  A running mirror makes one of its own snapshot, so that metrics cost it no request.
What only the topics hold, such as accepted gaps, comes from a status that it reads in the background, if at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.status.model import PartitionStatus

if TYPE_CHECKING:
    from eomirror.config import Link
    from eomirror.records.control import Stopped
    from eomirror.status.model import LaneStatus, LinkStatus
    from eomirror.status.snapshot import LinkSnapshot

__all__ = ["STATES", "LinkFacts", "LinkView", "running_view"]

#: States of a link: those of a running driver, then those that only its topics show.
STATES = (
    "standby", "preparing", "waiting", "acquiring", "running", "paused", "stopping", "done", "failed",
    "silent", "stopped", "never ran", "handed back", "promoted", "unknown",
)  # fmt: skip

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

    @property
    def counts_open(self) -> bool:
        """True if what open transactions of the source hold back is known: the driver alone does not ask for it."""
        return self.live is None or self.has_topics


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
    if snapshot.state == "standby" and topics is not None:
        # the mirror that has the link runs elsewhere
        return LinkView(facts=facts, status=topics, read_seconds=read_seconds, kept_seconds=kept_seconds)
    problem, fix = _trouble(facts, snapshot, topics)
    away = _away(snapshot, topics)
    status = replace(snapshot.status, away=away, problem=problem, fix=fix)
    if topics is not None and topics.state == "unknown" and kept_seconds is None:
        topics = None
    if topics is None:
        return LinkView(facts=facts, status=status, live=snapshot)
    seen = {(item.topic, item.partition): item for item in topics.partitions}
    partitions = tuple(
        _partition(item, seen.pop((item.topic, item.partition), None)) for item in status.partitions
    )
    lag_records, lag_seconds = snapshot.lag_of(partitions)
    status = replace(
        _with_topics(status, topics), partitions=partitions, lag_records=lag_records, lag_seconds=lag_seconds
    )
    if topics.state == "unknown":
        return LinkView(facts=facts, status=status, live=snapshot, kept_seconds=kept_seconds)
    left_out = [item for item in seen.values() if item.parked and item.problem]
    if left_out:
        # it falls behind by an unknown amount
        status = replace(status, partitions=(*partitions, *left_out), lag_records=None, lag_seconds=None)
    return LinkView(facts=facts, status=status, live=snapshot, read_seconds=read_seconds or 0.0)


def _with_topics(status: LinkStatus, topics: LinkStatus) -> LinkStatus:
    """
    Returns what the topics of a running link hold, with what its driver knows better.

    They may be those of the run before.  The last known ends of the source count only while the driver misses it, too.
    """
    owner = status.owner
    if owner is not None and topics.owner is not None and topics.owner.run == owner.run:
        owner = replace(topics.owner, claim_age_seconds=owner.claim_age_seconds)
    away = bool(status.problem)
    return replace(
        topics,
        state=status.state,
        owner=owner,
        clock_offset_seconds=0.0,
        generation=status.generation,
        lanes={number: _with_worker(lane, topics.lanes.get(number)) for number, lane in status.lanes.items()},
        lag_records=status.lag_records,
        lag_seconds=status.lag_seconds,
        rate=status.rate,
        partitions=status.partitions,
        stopped=_dated(status.stopped, topics.stopped),
        groups=topics.groups or status.groups,
        paused=status.paused,
        known_lost=topics.known_lost if away else None,
        source_seen_seconds=topics.source_seen_seconds if away else None,
        last_rate=topics.last_rate if away else None,
        away=status.away,
        problem=status.problem,
        fix=status.fix,
        refused_configuration=status.refused_configuration,
        schemas=status.schemas,
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


def _partition(item: PartitionStatus, there: PartitionStatus | None) -> PartitionStatus:
    """Returns a partition; what the driver does not know as its topics showed it last, if they did."""
    if there is None:
        return item
    if item.paused or item.stopped:
        item = replace(
            item,
            source_lso=there.source_lso,
            lag_records=there.lag_records,
            lag_seconds=there.lag_seconds,
        )
    # not `replace`: of thousands of partitions it is half of a scrape
    return PartitionStatus(
        topic=item.topic,
        partition=item.partition,
        target_topic=item.target_topic,
        lane=item.lane,
        position=item.position,
        source_lso=item.source_lso,
        lag_records=item.lag_records,
        lag_seconds=item.lag_seconds,
        lag_unknown=item.lag_unknown,
        parked=item.parked,
        stopped=item.stopped,
        paused=item.paused,
        gone=item.gone,
        copied_headers=item.copied_headers,
        problem=item.problem or there.problem,
        fix=item.fix or there.fix,
        records=there.records,
        rate=there.rate,
        last_commit=there.last_commit,
        open_records=there.open_records,
        open_seconds=there.open_seconds,
        missing=there.missing,
        dropped=there.dropped,
        changed=there.changed,
    )
