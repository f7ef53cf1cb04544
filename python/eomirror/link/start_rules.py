"""
Decides what must hold before a link begins or continues to write (EO-1, EO-5, EO-6). Pure.

**No copy is written twice.**  A position is known by the name of its link.  A renamed link or alias, a second file for
the same clusters, or deleted state topics turn a link that has run into one that never ran, which would mirror the same
records again.  Records in the copy reveal this.  Some copies hold records by right:

* records of applications, where equal names go both ways: only records whose provenance header names this link's source
  count;
* records of other links that write from another source into the same topic, according to their own positions.

Links that started at the same time are detected as well: another running link has a position for the same source
partition and the same copy.

**No record cycles.**  The provenance header keeps two links apart that carry equal names in both directions: records
that have passed the target are dropped.  Links of one file know of each other and write the header
(`eomirror.topology.graph`).  That leaves two possible cycles::

    in two files, A->B and B->A       neither writes the header nor looks for it: each record cycles for ever
    B->A is added after a year        what A->B copied until then has no header: B->A takes it for B's own, and A
                                      gets every record of that year once more

So a link checks, before it begins, if the topics that it reads are written by a link that reads those which it
writes.  Clusters and topics are compared by their ids: a recreated topic is another topic.

**Deletions that the source has forgotten are named.**  A compacted topic forgets a deleted key for good
``delete.retention.ms`` after its tombstone was cleaned.  A mirror that resumes later never sees the deletion, and the
copy keeps the key.  The log shows a hole, as after any compaction, so this is not a gap, and a warning is all that is
possible.
https://kafka.apache.org/documentation/#compaction
"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.errors import NotReadyError, StateError, TopicError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.control import Claim
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = [
    "LIVING_MS",
    "Copy",
    "Held",
    "MissedTombstones",
    "ReverseLink",
    "ahead",
    "carried_on_error",
    "copies_back",
    "filled",
    "filled_error",
    "link_of",
    "meetings",
    "missed_tombstones",
    "round_trip",
    "running_twin",
    "runs",
    "sharers",
    "still_marking",
    "twins",
    "unmoved",
]

# options to adopt that an error lists: they fill three lines of a terminal
_MOST_OPTIONS = 12
# eomirror.LINK.LANE
_PARTS = 3

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
        ranges: Ranges of its offset map that ours lacks: source offset, target offset and record count; ascending.
    """

    link: str
    position: Position
    adopted: int | None = None
    running: bool = False
    cut: int | None = None
    ranges: tuple[tuple[int, int, int], ...] = ()

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
                fix=f"begin behind them: --resume-at {source.topic}-{source.partition}={last + 1}, and so on for each "
                "partition; a link that never ran may begin with `start: latest` as well; or `exclude` the topic"
                if each.cut is None
                # `start: latest` would leave out what applications have written to the copies since.
                else f"that link was promoted: `eomirror reverse CONFIG`, with its name, starts {link} at the cut, "
                "behind which applications write",
                topic=source.topic,
            )
    return None


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
                    f"(`eomirror status` shows them; --resume-at {source}=OFFSET), or take the topic out of one "
                    "of the links; a mirror that was killed on another machine counts as running for a minute",
                )
    return None


def ahead(
    items: Iterable[AssignedPartition],
    offsets: Mapping[SourcePartition, int],
    others: Iterable[ReverseLink],
    *,
    source_cluster_id: str,
    keyed: bool,
) -> dict[SourcePartition, ReverseLink]:
    """
    Returns the partitions whose copies another link has carried on since our link had them.

    Args:
        items: Partitions that the link is to mirror.
        offsets: Next source offset of our link, of those that it had.
        others: Partitions that other links write, or have written, on its target.
        source_cluster_id: Id of its source.
        keyed: True if it places records by key; a link that places them in another way has not carried it on.
    """
    wanted = {(item.source, item.topic_id, item.target_topic, item.target_topic_id) for item in items}
    found: dict[SourcePartition, ReverseLink] = {}
    for each in others:
        at = each.position
        if (
            (at.source, at.topic_id, at.target_topic, at.target_topic_id) in wanted
            and (at.source_cluster_id, bool(at.keyed)) == (source_cluster_id, keyed)
            and at.offset > offsets.get(at.source, -1)
            and (at.source not in found or at.offset > found[at.source].position.offset)
        ):
            found[at.source] = each
    return found


def carried_on_error(
    link: str, found: Mapping[SourcePartition, ReverseLink], offsets: Mapping[SourcePartition, int]
) -> NotReadyError:
    """
    Returns the error for a topic that another link has mirrored in the meantime.

    Args:
        found: Result of `ahead` for the topic; at least one.
        offsets: As of `ahead`.
    """
    source, each = min(found.items())
    more = f", and so are {len(found) - 1} more partitions" if len(found) > 1 else ""
    return NotReadyError(
        f"link {link}: link {each.link} has mirrored {source} in the meantime, and is at {each.position.offset} where "
        f"this link is at {offsets[source]}{more}: what is between them would be written a second time",
        fix="resume where the other link has stopped, once it mirrors the topic no more: "
        f"{_adopt([(one, twin) for one, twin in sorted(found.items())])}",
    )


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
        f"{_adopt([(each.item.source, each.twin) for each in found])}; {latest}to keep these records beside those of "
        "the source: --into-filled",
    )


def _adopt(found: Sequence[tuple[SourcePartition, ReverseLink | None]]) -> str:
    """Returns the options that set the resume offset of each partition, those of another link where it is known."""
    options = [
        f"--resume-at {source}={'OFFSET' if twin is None else twin.position.offset}"
        for source, twin in found[:_MOST_OPTIONS]
    ]
    more = len(found) - len(options)
    return " ".join(options) + (f" and so on for {more} more" if more else "")


@dataclass(frozen=True, slots=True)
class MissedTombstones:
    """
    A topic that may have dropped tombstones since its position was written.

    Attributes:
        topic: Source topic.
        seconds: Age of its oldest position that lags.
        kept_seconds: Its delete.retention.ms in seconds.
    """

    topic: str
    seconds: float
    kept_seconds: float


def missed_tombstones(
    positions: Iterable[Position],
    *,
    kept_ms: Mapping[str, int],
    ends: Mapping[SourcePartition, int],
    young_from: Mapping[SourcePartition, int],
    now_ms: int,
) -> list[MissedTombstones]:
    """
    Returns the topics whose tombstones may have been dropped.

    A partition is safe if it has no new records, or if no record after its position is older than delete.retention.ms.

    Args:
        positions: Positions of the partitions to check.
        kept_ms: ``delete.retention.ms`` of compacted topics; others are not compacted.
        ends: Log ends of partitions.
        young_from: Offset of the first record younger than its topic's delete.retention.ms; -1 if there is none.
        now_ms: Wall clock.
    """
    found: dict[str, MissedTombstones] = {}
    for position in positions:
        kept = kept_ms.get(position.topic)
        age = now_ms - position.timestamp
        if kept is None or age <= kept or position.offset >= ends.get(position.source, 0):
            continue
        if 0 <= young_from.get(position.source, -1) <= position.offset:
            continue
        before = found.get(position.topic)
        seconds = max(age / 1000, before.seconds if before is not None else 0.0)
        found[position.topic] = MissedTombstones(position.topic, seconds, kept / 1000)
    return [found[topic] for topic in sorted(found)]
