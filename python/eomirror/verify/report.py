"""Builds the records that show results of comparisons on the target."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.kafka.client_factory import secret_hider
from eomirror.kafka.plain_producer import write_records
from eomirror.records.names import LinkNames
from eomirror.records.reports import TailComparison, Verification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config import Config, Link
    from eomirror.verify.scope import RequestedRange
    from eomirror.verify.verdict import LinkVerdict, PartitionVerdict

__all__ = ["record", "tail_records", "verifications"]

# a target that takes no records must not hold up the result
_WRITE_SECONDS = 10.0


def record(config: Config, link: Link, found: Sequence[Verification | TailComparison]) -> str:
    """
    Writes results of a link to its target; a reason that shows a secret of the configuration is hidden.

    Returns:
        Reason that they were not written; empty if they were.
    """
    hide = secret_hider(config.clusters.values())
    shown = [replace(one, problem=hide(one.problem)) for one in found]
    names = LinkNames(link.state_name)
    failed = write_records(
        config.clusters[link.target],
        names.control_topic,
        [(one.key(), one.value()) for one in shown],
        client_id=names.client_id("verify-report"),
        seconds=_WRITE_SECONDS,
    )
    return f"{failed}; fix: allow Write on topic {names.control_topic}" if failed else ""


# partitions that are named
_SHOWN = 3


def verifications(
    verdict: LinkVerdict, bound: RequestedRange, *, host: str, now_ms: int
) -> list[Verification]:
    """
    Returns a record for each topic of a verdict, sorted.

    A topic that was neither compared wholly nor found to differ has none: its earlier result says more.  One that the
    source has no more has an equal result of nothing, which replaces an earlier one.

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
        ranges = [each.scope.source for each in partitions if each.whole and not each.scope.gone]
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


def tail_records(
    verdict: LinkVerdict, bound: RequestedRange, *, tail: int, command: str, host: str, now_ms: int
) -> list[Verification | TailComparison]:
    """
    Returns the records of a comparison of the ends of copies; none if nothing was compared.

    A difference is one of the topic, so a topic that differs has a `Verification`, which only a later one replaces.  An
    equal end says nothing of what stands before it, so it replaces no result of a topic.

    Args:
        verdict: Result of the comparison.
        bound: Requested offsets.
        tail: Requested source offsets of each partition.
        command: Command that compared.
        host: This host, for people.
        now_ms: Wall clock.
    """
    partitions = [partition for partition in verdict.partitions if not partition.scope.gone]
    if not partitions:
        return []
    troubled = [
        f"{partition.scope.source.topic}-{partition.scope.source.partition}: {partition.word}"
        for partition in verdict.partitions
        if partition.differs or not partition.whole
    ]
    more = f" and {len(troubled) - _SHOWN} more" if len(troubled) > _SHOWN else ""
    starts: dict[str, int] = {}
    for source, start in bound.from_offsets.items():
        starts[source.topic] = min(start, starts.get(source.topic, start))
    found: list[Verification | TailComparison] = [
        replace(one, from_offset=starts.get(one.topic, 0))
        for one in verifications(verdict, bound, host=host, now_ms=now_ms)
        if one.outcome == "differs"
    ]
    sources = [partition.scope.source for partition in partitions]
    compared = [partition.scope.source for partition in partitions if partition.whole]
    return [
        *found,
        TailComparison(
            outcome=verdict.word,
            tail=tail,
            topics=len({source.topic for source in sources}),
            partitions=len(sources),
            offsets=sum(source.end - source.start for source in compared),
            command=command,
            problem=", ".join(troubled[:_SHOWN]) + more,
            host=host,
            timestamp=now_ms,
        ),
    ]


def _problem(partitions: Sequence[PartitionVerdict]) -> str:
    """Returns the first reason that a partition could not be compared, or is not what was mirrored; empty for none."""
    for partition in partitions:
        if problem := partition.scope.problem or partition.changed:
            return f"{partition.scope.source.topic}-{partition.scope.source.partition}: {problem}"
    return ""
