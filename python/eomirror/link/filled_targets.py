"""
Decides whether a link may begin to write into a copy that it has no position for (EO-1, EO-5). Pure.

A position is known by the name of its link.  A renamed link or alias, a second file for the same clusters, or deleted
state topics turn a link that has run into one that never ran, which would mirror the same records again.  Records in
the copy reveal this.  Some copies hold records by right:

* records of applications, where equal names go both ways: only records whose provenance header names this link's source
  count;
* records of other links that write from another source into the same topic, according to their own positions.

Links that started at the same time are detected as well: another running link has a position for the same source
partition and the same copy.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.errors import NotReadyError, StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.lane.spec import AssignedPartition
    from eomirror.link.reverse_link import ReverseLink
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["Copy", "Held", "filled", "filled_error", "link_of", "running_twin", "sharers", "twins"]

# options to adopt that an error lists: they fill three lines of a terminal
_MOST_OPTIONS = 12


class Held(enum.Enum):
    """
    Content of a copy.

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
        end: High watermark of the copy.
        held: Content of the copy.
        twin: Another link that has a position for the same source partition and this copy.
        shared: Other links that write into this copy from other sources.
        writers: Links whose transactional ids have written to the copy, as far as brokers remember.
    """

    item: AssignedPartition
    start: int
    end: int
    held: Held
    twin: ReverseLink | None = None
    shared: frozenset[str] = frozenset()
    writers: frozenset[str] = frozenset()

    @property
    def most(self) -> int:
        """Upper bound of the copy's record count; markers and aborted records count."""
        return self.end - self.start


def link_of(transactional_id: str) -> str:
    """Returns the state name of the link that owns a lane's transactional id; empty for any other id."""
    parts = transactional_id.split(".")
    if len(parts) < _PARTS or parts[0] != "eomirror" or not parts[-1].isdigit():
        return ""
    return ".".join(parts[1:-1])


# eomirror.LINK.LANE
_PARTS = 3


def twins(
    items: Iterable[AssignedPartition], others: Iterable[ReverseLink], *, source_cluster_id: str
) -> dict[SourcePartition, tuple[ReverseLink, ...]]:
    """
    Returns other links that write the same copies from the same source partitions.

    Args:
        items: Partitions that the link mirrors.
        others: Partitions that other links write on its target.
        source_cluster_id: Id of its source.
    """
    found: dict[SourcePartition, tuple[ReverseLink, ...]] = {}
    written = _by_copy(others)
    for item in items:
        same = tuple(
            each
            for each in written.get(_copy_of(item), ())
            if each.position.source_cluster_id == source_cluster_id and _is_of(item, each.position)
        )
        if same:
            found[item.source] = same
    return found


def sharers(
    items: Iterable[AssignedPartition], others: Iterable[ReverseLink], *, source_cluster_id: str
) -> dict[SourcePartition, frozenset[str]]:
    """
    Returns other links that write the same copies from other sources.

    Args:
        items: Partitions that the link mirrors.
        others: Partitions that other links write on its target.
        source_cluster_id: Id of its source.
    """
    written = _by_copy(others)
    return {
        item.source: frozenset(
            each.link
            for each in written.get(_copy_of(item), ())
            if each.position.source_cluster_id != source_cluster_id or not _is_of(item, each.position)
        )
        for item in items
    }


def _is_of(item: AssignedPartition, position: Position) -> bool:
    """Returns True if a position is of this source partition; if it is placed by key, of its topic."""
    if position.keyed:
        return position.topic == item.source.topic
    return position.source == item.source


def _copy_of(item: AssignedPartition) -> tuple[str, str, int]:
    return item.target_topic, item.target_topic_id, item.source.partition


def _by_copy(others: Iterable[ReverseLink]) -> Mapping[tuple[str, str, int], list[ReverseLink]]:
    written: dict[tuple[str, str, int], list[ReverseLink]] = {}
    for each in others:
        at = each.position
        for topic, partition in at.copies:
            written.setdefault((topic, at.target_topic_id, partition), []).append(each)
    return written


def running_twin(link: str, found: Mapping[SourcePartition, Sequence[ReverseLink]]) -> StateError | None:
    """
    Returns the error that keeps the link from running beside a twin; None if no twin runs.

    Args:
        found: Result of `twins`.
    """
    for source, same in sorted(found.items()):
        for each in same:
            if each.running:
                at = each.position
                return StateError(
                    f"link {link}: link {each.link} runs, and mirrors {source} into "
                    f"{at.target_topic}-{at.target_partition} as well: every record would be written twice",
                    fix=f"stop the mirror that runs link {each.link} and resume at its positions "
                    f"(`eomirror status` shows them; --adopt {source}=OFFSET), or take the topic out of one "
                    "of the links; a mirror that was killed on another machine counts as running for a minute",
                )
    return None


def filled(copy: Copy, *, link: str, guard: bool) -> bool:
    """
    Returns True if the link would write records a second time by beginning to write into the copy.

    Args:
        link: State name of the link.
        guard: True if the link checks provenance: equal names go both ways, and applications write to the copy too.
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


def filled_error(link: str, state_name: str, found: Sequence[Copy], *, first_run: bool) -> NotReadyError:
    """
    Returns the error that names the copies' content, its writer, and the ways to resume.

    Args:
        state_name: State name of the link.
        found: Copies for which `filled` is True; at least one.
        first_run: True if the link never ran.
    """
    copy = found[0]
    source, item = copy.item.source, copy.item
    more = f"; so do the copies of {len(found) - 1} more partitions" if len(found) > 1 else ""
    what = {
        Held.OURS: f"holds up to {copy.most} records, some of them copied from this link's source",
        Held.OPEN: f"holds an open transaction of up to {copy.most} records",
        Held.UNSEEN: f"may hold up to {copy.most} records, and could not be read to its end",
    }.get(copy.held, f"holds up to {copy.most} records")
    who = ""
    if copy.twin is not None:
        who = (
            f"; link {copy.twin.link} has written them from the same source partition, and is at "
            f"{copy.twin.position.offset}"
        )
    elif state_name in copy.writers:
        who = "; transactional ids of this very link have written there, so that its eomirror.* topics were deleted"
    elif copy.writers:
        who = f"; link {', '.join(sorted(copy.writers))} has written there"
    why = "it never ran" if first_run else f"{source.topic} is new to it"
    latest = "to mirror only new records: `start: latest`; " if first_run else ""
    return NotReadyError(
        f"link {link}: {why}, but copy {item.target_topic}-{source.partition} {what}{more}{who}: what is "
        "mirrored already would be written a second time",
        fix="if a link of another name mirrored it, use that name; or set each partition's resume offset: "
        f"{_adopt(found)}; {latest}to keep these records beside those of the source: "
        "--into-filled",
    )


def _adopt(found: Sequence[Copy]) -> str:
    """Returns the options that set the resume offset of each copy, those of another link where it is known."""
    options = [
        f"--adopt {copy.item.source}={'OFFSET' if copy.twin is None else copy.twin.position.offset}"
        for copy in found[:_MOST_OPTIONS]
    ]
    more = len(found) - len(options)
    return " ".join(options) + (f" and so on for {more} more" if more else "")
