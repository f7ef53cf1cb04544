"""
Records of failover in the control topic: the promotion of a link, its reversal, and its return. Pure.

A promotion is decided by one record, so that every process sees the same link before and after it (docs/adr/0019):

* ``{"kind":"promotion","number"}`` -> `Promotion`: applications write to the copies, and the link must not.  It holds
  the *cut* of each partition: the source position that was mirrored last, and the end of the copy at that moment.
* ``{"kind":"reversal","number"}`` -> `Reversal`: the link in the other direction starts at the cut of that promotion.
  It holds the range of each source partition that never reached the target (the orphans), and other cuts for the
  partitions in which the source had changed; every reader of the promotion gets these.
* ``{"kind":"restoration","number"}`` -> `Restoration`: ranges of the orphans of that promotion have been dealt with.
* ``{"kind":"resumption","number"}`` -> `Resumption`: the link mirrors again, from positions that its owner has set.
* ``{"kind":"fence","number"}`` -> `Fence`: how the applications on the source were stopped before that promotion, so
  that exactly this can be undone.

A link may have more partitions than one record holds: brokers refuse one of more than ``max.message.bytes``.  What a
promotion, reversal, restoration or resumption says about each partition then stands in records of its own before it, in
the same transaction: ``{"kind":"part","of":"promotion","number":N,"part":0}`` and so on.  The record itself has their
number in ``parts``, and version 2, which a release that does not know of parts refuses.

All five carry the number of the promotion, which counts from 1.  They are never deleted: they are the history.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from eomirror.clock import utc
from eomirror.records.control_record import (
    OMITTED,
    PARTED_VERSION,
    ControlEntry,
    ControlRecord,
    FailoverRecord,
    RecordError,
    RecordsByClass,
    control_record,
    counted,
    named,
    read_field,
)
from eomirror.records.dealt_ranges import DealtRange, decoded_ranges, encoded_ranges
from eomirror.records.json_fields import JsonType, by_topic, checked, text, whole
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eomirror.records.dealt_ranges import DealtRanges
    from eomirror.records.json_fields import Whole

__all__ = [
    "Cut",
    "Fence",
    "Part",
    "Promotion",
    "PromotionHistory",
    "Restoration",
    "Resumption",
    "Reversal",
    "encoded",
    "joined",
    "lost",
    "standing_fence",
    "with_cuts",
]

# Brokers take 1 MiB by default, and a part may exceed this by one slice.
_PART_BYTES = 256 * 1024
_SLICE = 1_000

_Numbered = TypeVar("_Numbered", bound=FailoverRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """
    Cut of one partition: everything before it was mirrored, exactly once, and nothing behind it.

    Attributes:
        topic: Source topic.
        partition: Source partition.
        topic_id: Id of the source topic.
        position: Next source offset to mirror.
        target_topic: Its copy.
        target_topic_id: Id of the copy.
        target_end: Offset behind which the copy holds nothing of the link: applications write at or behind it.
        timestamp: Time of the commit of ``position``, ms since the epoch.
        source_end: End of the source partition's log (high watermark): at the cut, or without the source as of the
            promotion's ``ends_at``; None if it is not known.
        proven: False if the copy is not whole, and nothing proved how far it goes: the position is an upper bound.
        gone: True if the source had the partition no more: nothing of it was left to mirror.
    """

    topic: str
    partition: int
    topic_id: str
    position: int
    target_topic: str
    target_topic_id: str
    target_end: int
    timestamp: int
    source_end: int | None = None
    proven: bool = True
    gone: bool = False

    @property
    def source(self) -> SourcePartition:
        """The source partition."""
        return SourcePartition(self.topic, self.partition)

    @property
    def copy(self) -> SourcePartition:
        """The partition of the copy, which has the same number."""
        return SourcePartition(self.target_topic, self.partition)

    @property
    def lost(self) -> int | None:
        """Source offsets beyond the position (markers count); None if the end, or the position, is not known."""
        if self.gone:
            return 0
        if self.source_end is None or not self.proven:
            return None
        return max(0, self.source_end - self.position)


def lost(cuts: Iterable[Cut]) -> int | None:
    """Returns the source offsets beyond these cuts; None if an end is not known."""
    known = [cut.lost for cut in cuts]
    return None if None in known else sum(each or 0 for each in known)


def _written_cuts(cuts: Iterable[Cut]) -> dict[str, dict[str, Any]]:
    """Returns cuts grouped by topic, because a link may have thousands of partitions."""
    topics: dict[str, dict[str, Any]] = {}
    for cut in cuts:
        ids = {"topic_id": cut.topic_id, "target": cut.target_topic, "target_topic_id": cut.target_topic_id}
        topic = topics.setdefault(cut.topic, {**ids, "partitions": {}})
        topic["partitions"][str(cut.partition)] = [
            cut.position,
            cut.target_end,
            cut.timestamp,
            cut.source_end,
        ]
        if cut.gone:
            topic.setdefault("gone", []).append(cut.partition)
        if not cut.proven:
            topic.setdefault("unproven", []).append(cut.partition)
    return topics


def _read_cuts(topics: Mapping[str, Any]) -> tuple[Cut, ...]:
    cuts = [
        checked(
            Cut(
                topic=text(topic),
                partition=whole(int(partition)),
                topic_id=there["topic_id"],
                position=position,
                target_topic=there["target"],
                target_topic_id=there["target_topic_id"],
                target_end=end,
                timestamp=timestamp,
                source_end=source_end,
                proven=int(partition) not in there.get("unproven", ()),
                gone=int(partition) in there.get("gone", ()),
            )
        )
        for topic, there in topics.items()
        for partition, (position, end, timestamp, source_end) in there["partitions"].items()
    ]
    return tuple(sorted(cuts, key=lambda cut: cut.source))


_CUTS = JsonType(_read_cuts, _written_cuts)
_RANGES = JsonType(
    lambda value: None if value is None else decoded_ranges(value),
    lambda ranges: by_topic(encoded_ranges(ranges)),
)


@control_record("promotion", key=("number",), parts="topics")
@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion(FailoverRecord):
    """
    Promotion of a link.

    Attributes:
        number: Counts the promotions of the link, from 1.
        planned: True if the source was silent and everything was mirrored; False for a failover.
        run: Run that promoted it.
        host: Host of that run.
        generation: Generation of the lane layout that fenced the last lanes.
        source_cluster_id: Id of the source cluster; empty if no position names it.
        target_cluster_id: Id of the target cluster.
        cuts: One for each partition with a position, sorted.
        groups: Consumer groups by result, such as ``{"moved": 3}``.
        started: Time at which the command started, ms since the epoch; later by the time that its question took.
        timestamp: Time of this record, ms since the epoch.
        milliseconds: Duration of each step.
        ends_at: Without the source: time as of which the cuts' ends are known, ms since the epoch; else None.
        uncut: Source offsets of partitions that the link should mirror and that have no cut, as far as known.
        at_least: True if more may be lost than is known, of topics that were stopped or left out.
    """

    number: Whole
    planned: bool
    run: str
    host: str
    generation: Whole
    source_cluster_id: str
    target_cluster_id: str
    groups: Mapping[str, int] = field(default_factory=dict, metadata={"needed": True})
    started: Whole
    timestamp: Whole
    milliseconds: Mapping[str, int] = field(default_factory=dict, metadata={"needed": True})
    ends_at: Whole | None = field(default=None, metadata=OMITTED)
    uncut: Whole = field(default=0, metadata=OMITTED)
    at_least: bool = field(default=False, metadata=OMITTED)
    cuts: tuple[Cut, ...] = field(metadata={"name": "topics", "json_type": _CUTS})

    @property
    def kind(self) -> str:
        """``planned`` or ``failover``."""
        return "planned" if self.planned else "failover"

    @property
    def lost(self) -> int | None:
        """
        Bound on the source offsets that were not mirrored; None if an end is not known.

        With ``ends_at`` it covers what was written until then, and with ``at_least`` it is no bound for some topics.
        """
        beyond = lost(cut for cut in self.cuts if not self.at_least or cut.source_end is not None)
        return None if beyond is None else beyond + self.uncut

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        beyond = [
            None if cut.source_end is None else max(0, cut.source_end - cut.position) for cut in self.cuts
        ]
        if None in beyond and not self.at_least:
            left = "an unknown number of source offsets"
        else:
            # without the source, its ends are those that the mirror saw last
            least = "" if self.ends_at is None and not self.at_least else "at least "
            left = least + counted(sum(each or 0 for each in beyond) + self.uncut, "source offset")
        return (
            f"{self.host} {'promoted' if self.planned else 'failed over'} (promotion {self.number}): applications "
            f"write to the copies of {counted(len(self.cuts), 'partition')}; left behind: {left}"
        )


def with_cuts(promotion: Promotion, cuts: Mapping[SourcePartition, tuple[int, int]]) -> Promotion:
    """Returns a promotion with other positions and target ends of some cuts."""
    return replace(
        promotion,
        cuts=tuple(
            replace(cut, position=cuts[cut.source][0], target_end=cuts[cut.source][1])
            if cut.source in cuts
            else cut
            for cut in promotion.cuts
        ),
    )


@control_record(
    "reversal",
    key=("number",),
    parts="ends",
    sentence="the link back, {one.link}, begins at the cut of promotion {one.number}",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal(FailoverRecord):
    """
    Start of the link in the other direction.

    Attributes:
        number: Number of the promotion.
        link: Name of the link in the other direction.
        ends: Log end of each source partition before that link wrote to it.  The orphans of a partition are the
            records from its cut to this end.
        run: Run that reversed the link.
        timestamp: Milliseconds since the epoch.
        cuts: Position and target end of the cuts that this overrules: a source that had lost records, or held others
            than were mirrored, and its copy hold the same records up to there.
    """

    number: Whole
    link: str
    ends: Mapping[SourcePartition, int]
    run: str
    timestamp: Whole
    cuts: Mapping[SourcePartition, tuple[int, int]] = field(default_factory=dict, metadata=OMITTED)


@control_record("restoration", key=("number",), parts="ranges")
@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration(FailoverRecord):
    """
    Work on the orphans of a promotion; a later one says what the earlier ones have done, too.

    Attributes:
        number: Number of the promotion.
        orphans: What was asked for last: ``export``, ``merge`` or ``keep``.
        records: Orphans that were dealt with.
        place: Topic or file that holds those that were exported last; empty for none.
        run: Run that did it.
        timestamp: Milliseconds since the epoch.
        lost: Ranges of source offsets that were deleted before they could be read.
        ranges: What was dealt with, of each partition; None if an older release has written the record.
    """

    number: Whole
    orphans: str
    records: Whole
    place: str
    run: str
    timestamp: Whole
    lost: Mapping[SourcePartition, tuple[tuple[int, int], ...]] = field(
        default_factory=dict, metadata=OMITTED
    )
    ranges: DealtRanges | None = field(default=None, metadata=OMITTED | {"json_type": _RANGES})

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        done = {
            "export": f"exported to {self.place}",
            "merge": "merged into the copies",
            "keep": "kept where they are",
            "recreate": "deleted with their topics",
        }.get(self.orphans, self.orphans)
        text = f"{counted(self.records, 'orphan')} of promotion {self.number}: {done}"
        lost = sum(end - start for ranges in self.lost.values() for start, end in ranges)
        return text + (f"; {counted(lost, 'source offset')} had been deleted before" if lost else "")


@control_record(
    "resumption",
    key=("number",),
    parts="starts",
    sentence="promotion {one.number} has ended: the link mirrors again, from the cut of {one.link}",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption(FailoverRecord):
    """
    Return of a promoted link: it mirrors again.

    Attributes:
        number: Number of the promotion that it ends.
        link: Name of the link in the other direction, whose promotion gave the positions.
        starts: Source offset at which each partition mirrors again.  Between the cut and this offset stand the orphans,
            and what the link in the other direction has written.
        run: Run that resumed the link.
        timestamp: Milliseconds since the epoch.
    """

    number: Whole
    link: str
    starts: Mapping[SourcePartition, int]
    run: str
    timestamp: Whole


@control_record("fence", key=("number",))
@dataclass(frozen=True, slots=True, kw_only=True)
class Fence(FailoverRecord):
    """
    Fence of the applications that write to the source.  Unlike the others it is not written by the link's owner.

    Attributes:
        number: Number of the promotion that it is for.
        method: ``acl`` or ``command``.
        topics: Source topics whose ACL entry this fence must delete: it was added by this fence, or by one of another
            link that still stood; empty for a command.
        lifted: True once it was undone.
        host: Host of the command.
        timestamp: Milliseconds since the epoch.
        lifting: True from the moment at which a command begins to undo it.
        source_cluster_id: Id of the cluster of the entries; empty for a command, and in records of older releases.
    """

    number: Whole
    method: str
    topics: tuple[str, ...]
    lifted: bool
    host: str
    timestamp: Whole
    lifting: bool = False
    source_cluster_id: str = ""

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        if self.lifted:
            return f"the fence before promotion {self.number} is lifted: applications may write to the source again"
        if self.lifting:
            return f"the fence before promotion {self.number} is being lifted"
        who = f"{self.host} fenced (method {self.method}), before promotion {self.number}"
        return f"{who}: no application may write to {named(self.topics) if self.topics else 'the source'}"


@dataclass(frozen=True, slots=True)
class PromotionHistory:
    """
    All promotions of a link, by number.

    Attributes:
        promotions: Every promotion, with the cuts that its reversal overrules in place.
        reversals: Reversals of promotions.
        restorations: Work on the orphans of promotions.
        resumptions: Returns from promotions.
        fences: Fences of the source's applications.
    """

    promotions: Mapping[int, Promotion] = field(default_factory=dict)
    reversals: Mapping[int, Reversal] = field(default_factory=dict)
    restorations: Mapping[int, Restoration] = field(default_factory=dict)
    resumptions: Mapping[int, Resumption] = field(default_factory=dict)
    fences: Mapping[int, Fence] = field(default_factory=dict)

    @classmethod
    def of(cls, records: RecordsByClass) -> PromotionHistory:
        """Returns the history that these records tell; those of other kinds are ignored."""
        reversals = _by_number(records.all(Reversal))
        return cls(
            {
                number: with_cuts(promotion, reversals[number].cuts) if number in reversals else promotion
                for number, promotion in _by_number(records.all(Promotion)).items()
            },
            reversals,
            _by_number(records.all(Restoration)),
            _by_number(records.all(Resumption)),
            _by_number(records.all(Fence)),
        )

    @property
    def last(self) -> Promotion | None:
        """The newest promotion, ended or not; None for none."""
        return self.promotions[max(self.promotions)] if self.promotions else None

    @property
    def fence(self) -> Fence | None:
        """The newest fence that was not lifted; None for none."""
        standing = [number for number, fence in self.fences.items() if not fence.lifted]
        return self.fences[max(standing)] if standing else None

    @property
    def gone(self) -> frozenset[SourcePartition]:
        """Partitions that the source had no more at the promotion in force."""
        current = self.current
        return frozenset() if current is None else frozenset(cut.source for cut in current.cuts if cut.gone)

    @property
    def current(self) -> Promotion | None:
        """The promotion in force; None if the link mirrors."""
        last = self.last
        return None if last is None or last.number in self.resumptions else last

    def dealt(self, number: int) -> DealtRanges:
        """
        Returns the ranges of orphans of a promotion that were dealt with.

        A record of an older release has none.  It stands for all orphans if the ends of the logs were recorded before
        it, or if the promotion has ended; else nothing tells how far it went.
        """
        restoration, reversal = self.restorations.get(number), self.reversals.get(number)
        if restoration is None:
            return {}
        if restoration.ranges is not None:
            return restoration.ranges
        if reversal is None or (
            number not in self.resumptions and restoration.timestamp < reversal.timestamp
        ):
            return {}
        return {
            source: (DealtRange(0, end, restoration.orphans, restoration.place),)
            for source, end in reversal.ends.items()
        }


def _by_number(records: Iterable[_Numbered]) -> dict[int, _Numbered]:
    return {one.number: one for one in sorted(records, key=lambda one: one.number)}


@control_record("part", key=("of", "number", "part"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Part(ControlRecord):
    """
    Part of a record that has too many partitions for one.

    Attributes:
        of: Kind of that record.
        number: Number of its promotion.
        part: Counts the parts of the record, from 0.
        found: Its value: the field of that record which stands in parts.
    """

    of: str
    number: Whole
    part: Whole
    found: Mapping[str, Any]

    def body(self) -> dict[str, Any]:
        """Returns the fields of the value in their JSON form."""
        return dict(self.found)

    @classmethod
    def decoded(cls, name: Mapping[str, Any], body: Mapping[str, Any]) -> Part:
        """Returns the record; raises `RecordError` if a field of the key is missing, or has another type."""
        of = read_field(name, "of", text)
        number, part = (read_field(name, item, whole) for item in ("number", "part"))
        return cls(of=of, number=number, part=part, found=body)


def encoded(record: FailoverRecord, *, most: int = _PART_BYTES) -> list[tuple[bytes, bytes]]:
    """
    Returns key and value of each record that a record of failover is written as; the deciding one comes last.

    Args:
        record: The record.
        most: Bytes that a record may have before it is written in parts.
    """
    value, kind, item = record.value(), record.declaration.kind, record.declaration.parts
    body = record.body()
    if not item or len(value) <= most or item not in body:
        return [(record.key(), value)]
    parts = [
        Part(of=kind, number=record.number, part=number, found={item: topics})
        for number, topics in enumerate(_parts(body[item], most))
    ]
    deciding = {"v": PARTED_VERSION, **body, "parts": len(parts), item: {}}
    return [*((part.key(), part.value()) for part in parts), (record.key(), orjson.dumps(deciding))]


def _parts(topics: dict[str, dict[str, Any]], most: int) -> Iterator[dict[str, dict[str, Any]]]:
    """Yields the topics in portions; a topic of very many partitions is in several."""
    portion: dict[str, dict[str, Any]] = {}
    size = 0
    for topic, body in topics.items():
        partitions = body.get("partitions", body)
        entries = iter(partitions.items())
        while some := dict(itertools.islice(entries, _SLICE)):
            one = some if partitions is body else {**body, "partitions": some}
            took = len(orjson.dumps({topic: one}))
            if portion and (size + took > most or topic in portion):
                yield portion
                portion, size = {}, 0
            portion[topic] = one
            size += took
    yield portion


def joined(entry: ControlEntry, parts: Iterable[Part]) -> ControlEntry:
    """
    Returns an entry with its parts in its value; itself if it has none.

    Args:
        entry: The entry.
        parts: Parts of any records.

    Raises:
        RecordError: A part is missing, or is none.
    """
    declared = entry.declared
    if declared is None or entry.body.get("v") != PARTED_VERSION:
        return entry
    item = declared.declaration.parts
    topics: dict[str, dict[str, Any]] = {}
    try:
        number = whole(entry.name["number"])
        own = {part.part: part.found for part in parts if (part.of, part.number) == (entry.kind, number)}
        for part in range(whole(entry.body["parts"])):
            for topic, more in own[part][item].items():
                there = topics.setdefault(topic, {})
                if "partitions" in more:
                    partitions = {**there.get("partitions", {}), **more["partitions"]}
                    there.update({**more, "partitions": partitions})
                else:
                    there.update(more)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"a part is missing, or is none: {error}") from error
    return entry._replace(body={**entry.body, item: topics})


def standing_fence(link: str, fence: Fence) -> tuple[str, str]:
    """
    Returns the text of a fence that stands, and the command that lifts it.

    Args:
        link: Name of the link.
        fence: Record of the fence.
    """
    since = utc(fence.timestamp)
    where = named(fence.topics) if fence.topics else "the source"
    text = f"writes to {where} are stopped: the fence ({fence.method}) stands since {since}, by {fence.host}"
    how = " --fence-command COMMAND" if fence.method == "command" else ""
    return (
        text,
        f"`eomirror unfence CONFIG --link {quote(link)}{how}`, once applications may write there again",
    )
