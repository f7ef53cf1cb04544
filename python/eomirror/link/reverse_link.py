"""
Detects replication cycles between two links that are configured in different files. Pure.

The provenance header keeps two links apart that carry equal names in both directions: records that have passed the
target are dropped.  Links of one file know of each other and write the header (`eomirror.topology.graph`).  That leaves
two possible cycles::

    in two files, A->B and B->A       neither writes the header nor looks for it: each record cycles for ever
    B->A is added after a year        what A->B copied until then has no header: B->A takes it for B's own, and A
                                      gets every record of that year once more

So a link checks, before it begins, if the topics that it reads are written by a link that reads those which it
writes.  Clusters and topics are compared by their ids: a recreated topic is another topic.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.errors import TopicError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.control import Claim
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = [
    "LIVING_MS",
    "ReverseLink",
    "copies_back",
    "meetings",
    "round_trip",
    "runs",
    "still_marking",
    "unmoved",
]

#: A claim that is older than this has no living owner: it is renewed every few seconds, and the clocks of two machines
#: differ by less.
LIVING_MS = 60_000


@dataclass(frozen=True, slots=True)
class ReverseLink:
    """
    A partition that another link writes, and ours reads.

    Attributes:
        link: State name of the other link.
        position: Position of the other link.
        adopted: Offset of the last record there that an earlier replicator wrote, which adds no header.
        running: True if the other link has a living owner and mirrors this partition.
        cut: End of the copy at the promotion of the other link that is in force; None for none.  Behind it that link
            has only merged orphans, which it marks.
    """

    link: str
    position: Position
    adopted: int | None = None
    running: bool = False
    cut: int | None = None

    @property
    def unmarked(self) -> int | None:
        """Offset up to which copies may lack the provenance header; None for none."""
        last = self.adopted if self.position.header else self.position.target_offset
        return last if last is None or self.cut is None else min(last, self.cut - 1)


def runs(claim: Claim | None, *, dead: bool, now_ms: int) -> bool:
    """
    Returns True if a link seems to have a living owner.

    Args:
        claim: Claim in its control topic.
        dead: True if the claim's process is known to be dead.
        now_ms: Wall clock.
    """
    return claim is not None and not (claim.released or dead) and now_ms - claim.timestamp < LIVING_MS


def meetings(
    items: Iterable[AssignedPartition], opposites: Iterable[ReverseLink], *, target_cluster_id: str
) -> dict[SourcePartition, tuple[ReverseLink, ...]]:
    """
    Returns our partitions that another link writes from the very topic that we would write them to.

    Args:
        items: Partitions that our link mirrors.
        opposites: Partitions that links write on our source.
        target_cluster_id: Id of the cluster that our link writes to.
    """
    # Names besides ids: brokers without topic ids report the same id for all topics.
    written: dict[tuple[str, str, str, str, int], list[ReverseLink]] = defaultdict(list)
    for each in opposites:
        at = each.position
        if at.source_cluster_id == target_cluster_id:
            there, here = (at.topic, at.topic_id), (at.target_topic, at.target_topic_id)
            for _, number in at.copies:
                written[*there, *here, number].append(each)
    found = {}
    for item in items:
        there, here = (item.target_topic, item.target_topic_id), (item.source.topic, item.topic_id)
        if met := written.get((*there, *here, item.source.partition)):
            found[item.source] = tuple(met)
    return found


def unmoved(
    positions: Mapping[SourcePartition, Position], besides: Collection[SourcePartition]
) -> dict[SourcePartition, int]:
    """Returns the start offset of partitions of which no record was mirrored yet, except those that the user adopts."""
    return {
        source: position.offset
        for source, position in positions.items()
        if position.txn == 0 and position.total_records == 0 and source not in besides
    }


def still_marking(link: Link, positions: Iterable[Position]) -> Link:
    """
    Returns the link with provenance on if its positions show that it has marked copies, unless ``provenance: off``.

    The way back may be missing from the file for a month only.  It resumes at its position, and would bring back all
    copies that were written without the header in the meantime.
    """
    if link.provenance != "auto" or link.provenance_header or not any(each.header for each in positions):
        return link
    return replace(link, loops=replace(link.loops, provenance_header=True))


def round_trip(
    link: str, met: Mapping[SourcePartition, Sequence[ReverseLink]], *, guard: bool
) -> TopicError | None:
    """
    Returns the error for records that would cycle for ever; None if they would not.

    Args:
        met: Result of `meetings`.
        guard: True if our link drops records that have passed its target.
    """
    for source, each in ((source, each) for source, found in sorted(met.items()) for each in found):
        if each.running and not guard:
            return TopicError(
                f"link {link}: topic {source.topic} is written by link {each.link}, which runs and reads what this "
                "link would write: every record would cycle for ever",
                fix="put both links into one configuration, there and here, and name the one to run with --link: "
                "then both mark what they copy; or use `naming: prefix`, or `exclude` the topic from one of them",
                topic=source.topic,
            )
    return None


def copies_back(
    link: str,
    starts: Mapping[SourcePartition, int],
    met: Mapping[SourcePartition, Sequence[ReverseLink]],
    *,
    guard: bool,
) -> TopicError | None:
    """
    Returns the error for copies that would be written back as new records; None if there are none.

    Args:
        starts: Start offset of partitions of which our link has mirrored no record.
        met: Result of `meetings`.
        guard: True if our link drops records that have passed its target.
    """
    for source, offset in sorted(starts.items()):
        for each in met.get(source, ()):
            last = each.unmarked if guard else each.position.target_offset
            if last is None or offset > last:
                continue
            return TopicError(
                f"link {link}: {source.topic}-{source.partition} holds what link {each.link} has copied up to offset "
                f"{last} from where this link would write it back, and nothing marks these copies: beginning at "
                f"{offset} it would write them a second time",
                fix=f"begin behind them: --adopt {source.topic}-{source.partition}={last + 1}, and so on for each "
                "partition; a link that never ran may begin with `start: latest` as well; or `exclude` the topic"
                if each.cut is None
                # `start: latest` would leave out what applications have written to the copies since.
                else f"that link was promoted: `eomirror reverse CONFIG`, with its name, starts {link} at the cut, "
                "behind which applications write",
                topic=source.topic,
            )
    return None
