"""Adds the informative records of control to the status of a link: restarts, comparisons, the last drill. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.reports import GroupsLeft, LaneRestarts, Reports, TailComparison, Verification
    from eomirror.status.derive import LinkStatus

__all__ = ["with_reports"]


def with_reports(status: LinkStatus, reports: Reports) -> LinkStatus:
    """
    Returns the status with restarts of the owner's run, comparisons of mirrored topics, and the last drill.

    Args:
        reports: Informative records of the link.
    """
    run = (status.owner or {}).get("run")
    positions: dict[str, dict[str, int]] = {}
    for item in status.partitions:
        if not item.parked or item.problem:
            positions.setdefault(item.topic, {})[str(item.partition)] = item.position
    drill = reports.drill
    return replace(
        status,
        restarts=tuple(_restart(one) for one in reports.restarts if one.run == run),
        verifications=tuple(
            _verification(one, positions[one.topic])
            for one in reports.verifications
            if one.topic in positions
        ),
        left_groups=_left(reports.left, run),
        drill=None
        if drill is None
        else {
            "passed": drill.passed,
            "rpo_records": drill.rpo_records,
            "rto_seconds": drill.rto_ms / 1000,
            "host": drill.host,
            "stage": drill.stage,
            "problem": drill.problem,
            "at": drill.timestamp,
        },
        tail=None if reports.tail is None else _tail(reports.tail),
    )


def _left(one: GroupsLeft | None, run: str | None) -> dict[str, Any]:
    if one is None or one.run != run or not one.count:
        return {}
    return {"count": one.count, "groups": dict(one.groups)}


def _restart(one: LaneRestarts) -> dict[str, Any]:
    return {
        "lane": one.lane,
        "count": one.count,
        "endings": dict(one.endings),
        "ending": one.ending,
        "reason": one.reason,
        "at": one.timestamp,
    }


def _tail(tail: TailComparison) -> dict[str, Any]:
    return {
        "outcome": tail.outcome,
        "tail": tail.tail,
        "topics": tail.topics,
        "partitions": tail.partitions,
        "offsets": tail.offsets,
        "command": tail.command,
        "problem": tail.problem,
        "host": tail.host,
        "at": tail.timestamp,
    }


def _verification(one: Verification, positions: Mapping[str, int]) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "outcome": one.outcome,
        "partitions": one.partitions,
        "offsets": one.offsets,
        # mirrored since; of a partition that was not compared, everything from its beginning
        "unverified": sum(
            max(0, position - one.up_to.get(number, 0)) for number, position in positions.items()
        ),
        "differences": dict(one.differences),
        "problem": one.problem,
        "from_offset": one.from_offset,
        "since": one.since,
        "host": one.host,
        "at": one.timestamp,
    }
