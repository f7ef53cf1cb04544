"""
The state of a link as metrics, page and terminal show it. Pure.

It is the model of `eomirror status`, with the counters of the driver if this process mirrors the link.  A `LinkStatus`
is read from the target's topics.  A running mirror makes one of its own snapshot, so that metrics cost it no request.
What only the topics hold, such as accepted gaps, comes from a status that it reads in the background, if at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eomirror.status.model import GroupsStatus, LinkStatus, PartitionStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Link
    from eomirror.status.snapshot import LinkSnapshot, TopicSnapshot

__all__ = ["STATES", "LinkFacts", "LinkView", "owner_process", "running_status", "running_view"]

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

    @property
    def counts_open(self) -> bool:
        """True if what open transactions of the source hold back is known: the driver alone does not ask for it."""
        return self.live is None or self.has_topics


def owner_process(owner: Mapping[str, Any] | None) -> str:
    """Returns process and host of a link's owner as an insertion in a sentence; empty if they are not known."""
    return f", process {owner['pid']} on host {owner['host']}," if owner and owner.get("host") else ""


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
        kept = None if kept_seconds is None else topics
        status = replace(running_status(snapshot, kept), away=away, problem=problem, fix=fix)
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
    mine = (topics.owner or {}).get("run") == (status.owner or {}).get("run")
    away = bool(status.problem)
    return replace(
        status,
        owner={**((topics.owner or {}) if mine else {}), **(status.owner or {})},
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
        lanes={
            number: {**_worker(lane, topics.lanes.get(number, {})), **lane}
            for number, lane in status.lanes.items()
        },
        source_seconds=topics.source_seconds,
        target_seconds=topics.target_seconds,
    )


def _worker(lane: Mapping[str, Any], recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what the topics say of a lane's attempt; empty if they know another attempt."""
    same = (lane.get("epoch"), lane.get("attempt")) == (recorded.get("epoch"), recorded.get("attempt"))
    return recorded if same else {}


def _dated(
    stopped: tuple[dict[str, Any], ...], recorded: tuple[dict[str, Any], ...]
) -> tuple[dict[str, Any], ...]:
    """Returns the stops of a running link with the times that its owner recorded."""
    times = {stop["topic"]: stop.get("at") for stop in recorded}
    return tuple({**stop, "at": times.get(stop["topic"])} for stop in stopped)


def running_status(snapshot: LinkSnapshot, topics: LinkStatus | None = None) -> LinkStatus:
    """
    Returns the status of a link from the snapshot of its driver.

    A lag of 0 is true only while the source answers: a lane that is caught up and hears nothing more would show it for
    ever.  So a lag of 0 is unknown when the source has not answered the driver within `ASKED_SECONDS`.  That of a run
    that ended as caught up is true as of its goals, which the source answered, however long Spark took to start.

    No lane reads the end of a topic that is paused or stopped: its lag is the one that the topics showed last.
    """
    age = snapshot.source_age_seconds
    asked = snapshot.caught_up or (age is not None and age <= ASKED_SECONDS)
    seen = {(item.topic, item.partition): item for item in (topics.partitions if topics else ())}
    partitions = tuple(
        partition for topic in snapshot.topics for partition in _partitions(topic, seen, asked=asked)
    )
    read = all(topic.paused or topic.stopped for topic in snapshot.topics) and bool(partitions)
    known = (read or snapshot.lag_records is not None) and all(
        item.lag_records is not None for item in partitions
    )
    in_time = (read or snapshot.lag_seconds is not None) and all(
        item.lag_seconds is not None for item in partitions
    )
    groups = snapshot.groups
    return LinkStatus(
        link=snapshot.link,
        state=snapshot.state,
        generation=snapshot.generation,
        owner={"run": snapshot.run, "claim_age_seconds": snapshot.claim_age_seconds},
        lanes={
            lane.lane: {
                "state": lane.state,
                "epoch": lane.epoch,
                "attempt": lane.attempt,
                "plane": lane.plane,
                "plane_reason": lane.plane_reason,
                "delayed": lane.delayed,
            }
            for lane in snapshot.lanes
        },
        lag_records=sum(item.lag_records or 0 for item in partitions) if known else None,
        lag_seconds=max((item.lag_seconds or 0.0 for item in partitions), default=0.0) if in_time else None,
        rate=snapshot.records_per_second,
        partitions=partitions,
        stopped=tuple(
            {
                "topic": topic.topic,
                "reason": _without_fix(topic.stopped, topic.fix),
                "fix": topic.fix,
                "exit_code": topic.exit_code,
            }
            for topic in snapshot.topics
            if topic.stopped
        ),
        groups=None
        if groups is None
        else GroupsStatus(followed=groups.followed, offsets=0, last_checkpoint=None),
        paused={"topics": snapshot.paused} if snapshot.paused else None,
        problem=_without_fix(snapshot.error or snapshot.waiting or snapshot.away, snapshot.fix),
        fix=snapshot.fix,
    )


def _trouble(facts: LinkFacts, snapshot: LinkSnapshot, topics: LinkStatus | None) -> tuple[str, str]:
    """
    Returns reason and fix of what is wrong with the link as a whole; empty for nothing.

    A request fails only after half a minute, so a cluster that has not answered for some seconds is named before the
    driver's error, by the reader of the topics if it has met an error, too.
    """
    if snapshot.error or snapshot.waiting or snapshot.state not in {"running", "paused"}:
        return _without_fix(snapshot.error or snapshot.waiting, snapshot.fix), snapshot.fix
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
        return _without_fix(snapshot.away, snapshot.fix), snapshot.fix
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


def _without_fix(reason: str, fix: str) -> str:
    """Returns a reason without the fix that the text of an error ends with; pages show it apart."""
    return reason.removesuffix(f"\n  fix: {fix}")


def _partitions(
    topic: TopicSnapshot, seen: Mapping[tuple[str, int], PartitionStatus], *, asked: bool
) -> list[PartitionStatus]:
    """Returns the partitions of a topic; what the driver does not know as its topics showed it last, if they did."""
    found = []
    for item in topic.partitions:
        there = seen.get((topic.topic, item.partition))
        lso, lag, behind = item.lso, item.lag_records, item.lag_seconds
        if topic.paused or topic.stopped:
            lso, lag, behind = (
                (None, None, None)
                if there is None
                else (there.source_lso, there.lag_records, there.lag_seconds)
            )
        elif not lag and not asked:
            lag = behind = None
        found.append(
            PartitionStatus(
                topic=topic.topic,
                partition=item.partition,
                target_topic=topic.target_topic,
                lane=item.lane,
                position=item.position or 0,
                source_lso=lso,
                lag_records=lag,
                lag_seconds=behind,
                records=0 if there is None else there.records,
                rate=0.0 if there is None else there.rate,
                last_commit=0 if there is None else there.last_commit,
                stopped=bool(topic.stopped),
                paused=topic.paused,
                problem=_without_fix(topic.stopped, topic.fix) or ("" if there is None else there.problem),
                fix=topic.fix or ("" if there is None else there.fix),
                open_records=None if there is None else there.open_records,
                open_seconds=None if there is None else there.open_seconds,
                missing=0 if there is None else there.missing,
                dropped={} if there is None else there.dropped,
            )
        )
    return found
