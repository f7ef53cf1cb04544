"""
Whether records would be written back to where they came from, by a link that another one comes to meet (pure).

Two links that carry equal names there and back are kept apart by the provenance header: what has passed the target is
dropped.  Links of one file know of each other, and write it (`eomirror.topology.graph`).  That leaves two ways round::

    in two files, A->B and B->A       neither writes the header nor looks for it: each record goes round for ever
    B->A is added after a year        what A->B copied until then has no header: B->A takes it for B's own, and A
                                      gets every record of that year once more

So a link asks, before it begins, whether the topics that it reads are written by a link that reads those which it
writes.  Clusters and topics are compared by their ids: a topic that was created anew since is another one.
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
    "Opposite",
    "copies_back",
    "meetings",
    "round_trip",
    "runs",
    "still_marking",
    "unmoved",
]

#: A claim that is older than this has no living owner: it is renewed every few seconds, and clocks of two machines are
#: not that far apart.
LIVING_MS = 60_000


@dataclass(frozen=True, slots=True)
class Opposite:
    """
    A partition that another link writes, and ours reads.

    Attributes:
        link: The other link, as its topics are named.
        position: Where it stands.
        adopted: Offset of the last record there that another replicator wrote before it; that one writes no header.
        running: Somebody runs it, and it mirrors this partition.
    """

    link: str
    position: Position
    adopted: int | None = None
    running: bool = False

    @property
    def unmarked(self) -> int | None:
        """Offset up to which copies may lack the provenance header; None for none."""
        return self.adopted if self.position.header else self.position.target_offset


def runs(claim: Claim | None, *, dead: bool, now_ms: int) -> bool:
    """
    Whether a link seems to have a living owner.

    Args:
        claim: What its control topic says.
        dead: Whether the claim's process is known to be dead.
        now_ms: Wall clock.
    """
    return claim is not None and not (claim.released or dead) and now_ms - claim.timestamp < LIVING_MS


def meetings(
    items: Iterable[AssignedPartition], opposites: Iterable[Opposite], *, target_cluster_id: str
) -> dict[SourcePartition, tuple[Opposite, ...]]:
    """
    Which of our partitions another link writes from the very topic that we would write them to.

    Args:
        items: What our link mirrors.
        opposites: What links write on our source.
        target_cluster_id: Of the cluster that our link writes.
    """
    # names besides ids: brokers that have no topic ids say the same of all topics
    written: dict[tuple[str, str, str, str, int], list[Opposite]] = defaultdict(list)
    for each in opposites:
        at = each.position
        if at.source_cluster_id == target_cluster_id:
            there, here = (at.topic, at.topic_id), (at.target_topic, at.target_topic_id)
            written[*there, *here, at.target_partition].append(each)
    found = {}
    for item in items:
        there, here = (item.target_topic, item.target_topic_id), (item.source.topic, item.topic_id)
        if met := written.get((*there, *here, item.source.partition)):
            found[item.source] = tuple(met)
    return found


def unmoved(
    positions: Mapping[SourcePartition, Position], besides: Collection[SourcePartition]
) -> dict[SourcePartition, int]:
    """Where partitions begin of which nothing was mirrored yet, but for those that the user has positions for."""
    return {
        source: position.offset
        for source, position in positions.items()
        if position.txn == 0 and position.total_records == 0 and source not in besides
    }


def still_marking(link: Link, positions: Iterable[Position]) -> Link:
    """
    The link, which goes on marking its copies where it has begun to, unless ``provenance: off``.

    The way back may be out of the file for a month only.  What is copied without the header meanwhile would be brought
    back by it, which goes on where it stood.
    """
    if link.provenance != "auto" or link.provenance_header or not any(each.header for each in positions):
        return link
    return replace(link, loops=replace(link.loops, provenance_header=True))


def round_trip(
    link: str, met: Mapping[SourcePartition, Sequence[Opposite]], *, guard: bool
) -> TopicError | None:
    """
    Why records would go round for ever; None where they would not.

    Args:
        link: Our link.
        met: From `meetings`.
        guard: Whether our link drops what has passed its target.
    """
    for source, each in ((source, each) for source, found in sorted(met.items()) for each in found):
        if each.running and not guard:
            return TopicError(
                f"link {link}: topic {source.topic} is written by link {each.link}, which runs and reads what this "
                "link would write: every record would go round for ever",
                fix="put both links into one configuration, there and here, and name the one to run with --link: "
                "then both mark what they copy; or use `naming: prefix`, or `exclude` the topic from one of them",
                topic=source.topic,
            )
    return None


def copies_back(
    link: str,
    starts: Mapping[SourcePartition, int],
    met: Mapping[SourcePartition, Sequence[Opposite]],
    *,
    guard: bool,
) -> TopicError | None:
    """
    Why copies would be written back as new records; None where they would not.

    Args:
        link: Our link.
        starts: Where our link would begin, of partitions of which it has mirrored nothing.
        met: From `meetings`.
        guard: Whether our link drops what has passed its target.
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
                "partition; a link that never ran may begin with `start: latest` as well; or `exclude` the topic",
                topic=source.topic,
            )
    return None
