"""
Decides whether a link may begin to write into a copy that it has no position for (pure; rules 1 and 5).

A position is known by the name of its link.  A link under another name, a renamed alias, a second file for the same
clusters, or state topics that were deleted: each makes a link that never ran out of one that has, and what it has
mirrored would be written once more.  The copy tells: it holds records.  Some copies hold records by right:

* those of applications, where equal names go both ways: only records that came from this link's source count, which
  their provenance header says;
* those of other links that write from another source into the same topic, by their own positions.

Twins that began together are noticed as well: another link that runs and has a position for the same source partition
and the same copy.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.lane.spec import AssignedPartition
    from eomirror.link.reverse_link import Opposite
    from eomirror.types import SourcePartition

__all__ = ["Copy", "Held", "filled", "filled_error", "link_of", "running_twin", "sharers", "twins"]


class Held(enum.Enum):
    """
    What stands in a copy.

    NOTHING: markers and aborted data at most.  RECORDS: committed records.  OURS: records that were copied from the
    link's own source.  OPEN: nothing is committed, and a transaction is open.  UNSEEN: it could not be read in time, or
    not at all.  HEARTBEATS: MirrorMaker 2's heartbeats, on which nothing depends.
    """

    NOTHING = "nothing"
    RECORDS = "records"
    OURS = "ours"
    OPEN = "open"
    UNSEEN = "unseen"
    HEARTBEATS = "heartbeats"


@dataclass(frozen=True, slots=True)
class Copy:
    """
    A copy that a link has no position for.

    Attributes:
        item: The source partition and its copy.
        start: Log start of the copy.
        end: Its high watermark.
        held: What stands in it.
        twin: Another link that has a position for the same source partition and this copy.
        shared: Other links that write into this copy from other sources.
        writers: Links whose transactional ids have written there, as far as brokers remember.
    """

    item: AssignedPartition
    start: int
    end: int
    held: Held
    twin: Opposite | None = None
    shared: frozenset[str] = frozenset()
    writers: frozenset[str] = frozenset()

    @property
    def most(self) -> int:
        """The largest number of records that the copy may hold; markers and aborted records count."""
        return self.end - self.start


def link_of(transactional_id: str) -> str:
    """The link that a lane's transactional id belongs to, as its topics are named; empty for any other id."""
    parts = transactional_id.split(".")
    if len(parts) < _PARTS or parts[0] != "eomirror" or not parts[-1].isdigit():
        return ""
    return ".".join(parts[1:-1])


# eomirror.LINK.LANE
_PARTS = 3


def twins(
    items: Iterable[AssignedPartition], others: Iterable[Opposite], *, source_cluster_id: str
) -> dict[SourcePartition, tuple[Opposite, ...]]:
    """
    Other links that write the same copies from the same source partitions.

    Args:
        items: What the link mirrors.
        others: What other links write on its target.
        source_cluster_id: Of its source.
    """
    found: dict[SourcePartition, tuple[Opposite, ...]] = {}
    written = _by_copy(others)
    for item in items:
        same = tuple(
            each
            for each in written.get(_copy_of(item), ())
            if each.position.source_cluster_id == source_cluster_id and each.position.source == item.source
        )
        if same:
            found[item.source] = same
    return found


def sharers(
    items: Iterable[AssignedPartition], others: Iterable[Opposite], *, source_cluster_id: str
) -> dict[SourcePartition, frozenset[str]]:
    """
    Other links that write the same copies from other sources.

    Args:
        items: What the link mirrors.
        others: What other links write on its target.
        source_cluster_id: Of its source.
    """
    written = _by_copy(others)
    return {
        item.source: frozenset(
            each.link
            for each in written.get(_copy_of(item), ())
            if each.position.source_cluster_id != source_cluster_id or each.position.source != item.source
        )
        for item in items
    }


def _copy_of(item: AssignedPartition) -> tuple[str, str, int]:
    return item.target_topic, item.target_topic_id, item.source.partition


def _by_copy(others: Iterable[Opposite]) -> Mapping[tuple[str, str, int], list[Opposite]]:
    written: dict[tuple[str, str, int], list[Opposite]] = {}
    for each in others:
        at = each.position
        written.setdefault((at.target_topic, at.target_topic_id, at.target_partition), []).append(each)
    return written


def running_twin(link: str, found: Mapping[SourcePartition, Sequence[Opposite]]) -> StateError | None:
    """
    Why the link must not run beside another one; None where no twin of it runs.

    Args:
        link: Our link.
        found: From `twins`.
    """
    for source, same in sorted(found.items()):
        for each in same:
            if each.running:
                at = each.position
                return StateError(
                    f"link {link}: link {each.link} runs, and mirrors {source} into "
                    f"{at.target_topic}-{at.target_partition} as well: every record would be written twice",
                    fix=f"stop the mirror that runs link {each.link} and go on where it stands "
                    f"(`eomirror status` names its positions; --adopt {source}=OFFSET), or take the topic out of one "
                    "of the links; a mirror that was killed on another machine counts as running for a minute",
                )
    return None


def filled(copy: Copy, *, link: str, guard: bool) -> bool:
    """
    Whether beginning to write into a copy would write records a second time, as far as can be told.

    Args:
        copy: The copy.
        link: Our link, as its topics are named.
        guard: Whether the link looks at where records came from: equal names go both ways, and the copy is a topic that
            applications write to as well.
    """
    if copy.held in {Held.NOTHING, Held.HEARTBEATS}:
        return False
    if copy.twin is not None and copy.twin.position.target_offset is not None:
        return True
    if copy.held is Held.OURS or link in copy.writers:
        return True
    if guard:
        return copy.held is Held.UNSEEN
    return not copy.shared


def filled_error(link: str, state_name: str, found: Sequence[Copy], *, first_run: bool) -> StateError:
    """
    The error that names what the copies hold, who wrote it, and the ways to go on.

    Args:
        link: Our link.
        state_name: The same, as its topics are named.
        found: Copies for which `filled` holds; at least one.
        first_run: Whether the link never ran.
    """
    copy = found[0]
    source, item = copy.item.source, copy.item
    more = f"; so do the copies of {len(found) - 1} more partitions" if len(found) > 1 else ""
    what = {
        Held.OURS: f"holds up to {copy.most} records, some of them copied from this link's source",
        Held.OPEN: f"holds an open transaction of up to {copy.most} records",
        Held.UNSEEN: f"may hold up to {copy.most} records, and could not be read to its end",
    }.get(copy.held, f"holds up to {copy.most} records")
    resume = "OFFSET"
    who = ""
    if copy.twin is not None:
        resume = str(copy.twin.position.offset)
        who = (
            f"; link {copy.twin.link} has written them from the same source partition, and stands at {resume}"
        )
    elif state_name in copy.writers:
        who = "; transactional ids of this very link have written there, so that its eomirror.* topics were deleted"
    elif copy.writers:
        who = f"; link {', '.join(sorted(copy.writers))} has written there"
    why = "it never ran" if first_run else f"{source.topic} is new to it"
    latest = "to mirror only what comes from now on: `start: latest`; " if first_run else ""
    return StateError(
        f"link {link}: {why}, but copy {item.target_topic}-{source.partition} {what}{more}{who}: what is "
        "mirrored already would be written a second time",
        fix="if a link of another name mirrored it, use that name; or say which source offset each partition goes on "
        f"at: --adopt {source}={resume}; {latest}if these records are meant to stay beside those of the source: "
        "--into-filled",
    )
