"""Reads what a run would copy: the positions of a link, the ends of the logs of its source, and their sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError
from eomirror.link.state import LinkState
from eomirror.recovery.hanging_client import extension_client
from eomirror.topics.expected_copy import ExpectedCopy, SourceLogs, expected_copy
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession, LinkSessions
    from eomirror.records.position import Position
    from eomirror.topics.plan import Plan

__all__ = ["planned_copy"]

log = structlog.get_logger(__name__)

# A partition whose leader does not answer in this time has no offsets.
_SECONDS = 10.0


def planned_copy(link: Link, plan: Plan, sessions: LinkSessions) -> ExpectedCopy | None:
    """
    Returns what a run would copy by a plan, and no longer mirror; None if the plan names no partitions.

    Costs a few requests to each broker, whatever the number of partitions.  What cannot be read is not known, and no
    error.
    """
    if plan.partitions is None:
        return None
    try:
        return _compared(link, plan, plan.partitions, sessions)
    except MirrorError as error:
        log.debug("planned_copy_unknown", link=link.name, reason=error.message)
        return ExpectedCopy(problem=error.message)


def _compared(
    link: Link, plan: Plan, partitions: Collection[SourcePartition], sessions: LinkSessions
) -> ExpectedCopy:
    positions: Mapping[SourcePartition, Position] = {}
    mirrored: Collection[SourcePartition] = ()
    if not plan.first_run:
        state = LinkState(link, sessions.target)
        control = state.control(wait_for_open=False)
        if control.history.current is not None:
            return ExpectedCopy(problem="the link is promoted: a run is refused")
        if control.generation is not None:
            positions = state.positions(wait_for_open=False, overruled=())
            mirrored = control.generation.assignment.partitions.keys()
    is_first = plan.first_run or not positions
    logs = _logs(
        sessions.source,
        partitions,
        begin=[source for source in partitions if source not in positions],
        # a topic that a later run finds is mirrored from its beginning
        start=link.start if is_first else "earliest",
    )
    left = sorted({source.topic for source in mirrored} - plan.targets.keys())
    there, hidden = sessions.source.admin.visible_topics(left) if left else ({}, set())
    sizes, problem = _sizes(sessions.source, partitions)
    found = expected_copy(
        plan.targets,
        partitions,
        positions,
        mirrored=mirrored,
        there={topic for topic, facts in there.items() if facts is not None} | set(hidden),
        reason=link.filter.reason,
        logs=replace(logs, sizes=sizes),
    )
    return replace(found, bytes_problem=problem)


def _logs(
    source: ClusterSession,
    partitions: Collection[SourcePartition],
    *,
    begin: Collection[SourcePartition],
    start: str | int,
) -> SourceLogs:
    admin = source.admin
    starts, _ = admin.answered_offsets(partitions, at="earliest", seconds=_SECONDS)
    ends, _ = admin.answered_offsets(partitions, at="latest", seconds=_SECONDS)
    begins: Mapping[tuple[str, int], int] = starts
    if start == "latest":
        begins = ends
    elif start != "earliest":
        asked = [source for source in begin if source in ends]
        told = admin.offsets(asked, at=start, read_committed=True) if asked else {}
        begins = {where: at if at >= 0 else ends[where] for where, at in told.items()}
    return SourceLogs(
        starts=_by_source(starts),
        ends=_by_source(ends),
        begins={source: at for source, at in _by_source(begins).items() if source in begin},
        sizes={},
    )


def _by_source(found: Mapping[tuple[str, int], int]) -> dict[SourcePartition, int]:
    return {SourcePartition(*where): at for where, at in found.items()}


def _sizes(
    source: ClusterSession, partitions: Collection[SourcePartition]
) -> tuple[dict[SourcePartition, int], str]:
    """Returns the sizes of logs, and why some are not known: that is another right than the mirror needs."""
    if not partitions:
        return {}, ""
    try:
        told = extension_client(source.cluster, source.client_id).log_sizes(sorted(partitions), _SECONDS)
    except MirrorError as error:
        log.debug("log_sizes_unknown", cluster=source.cluster.alias, reason=error.message)
        return {}, f"{error.message}; it takes Describe on the cluster"
    sizes = {SourcePartition(topic, number): size for topic, number, size in told}
    return sizes, "" if len(sizes) == len(set(partitions)) else "not all brokers tell the sizes of their logs"
