"""Builds the records that show results of `eomirror verify` on the target, one for each topic. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eomirror.records.reports import Verification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.verify.scope import Bound
    from eomirror.verify.verdict import LinkVerdict, PartitionVerdict

__all__ = ["verifications"]


def verifications(verdict: LinkVerdict, bound: Bound, *, host: str, now_ms: int) -> list[Verification]:
    """
    Returns a record for each topic of a verdict, sorted.

    A topic that was neither compared wholly nor found to differ has none: its earlier result says more.

    Args:
        verdict: Result of a comparison.
        bound: Requested offsets.
        host: This host, for people.
        now_ms: Wall clock.
    """
    topics: dict[str, list[PartitionVerdict]] = {}
    for partition in verdict.partitions:
        topics.setdefault(partition.scope.source.topic, []).append(partition)
    found = []
    for topic, partitions in sorted(topics.items()):
        differs = any(partition.differs for partition in partitions)
        if not differs and not all(partition.whole for partition in partitions):
            continue
        differences: Counter[str] = Counter()
        for partition in partitions:
            differences.update(partition.differences)
        ranges = [partition.scope.source for partition in partitions if partition.whole]
        found.append(
            Verification(
                topic=topic,
                outcome="differs" if differs else "equal",
                partitions=len(ranges),
                offsets=sum(each.end - each.start for each in ranges),
                up_to={str(each.partition): each.end for each in ranges},
                differences={kind: count for kind, count in sorted(differences.items()) if count},
                problem=_problem(partitions),
                from_offset=bound.from_offset or 0,
                since=bound.since_ms or 0,
                host=host,
                timestamp=now_ms,
            )
        )
    return found


def _problem(partitions: Sequence[PartitionVerdict]) -> str:
    """Returns the first reason that a partition could not be compared; empty for none."""
    for partition in partitions:
        if partition.scope.problem:
            return f"{partition.scope.source.topic}-{partition.scope.source.partition}: {partition.scope.problem}"
    return ""
