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
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.records.dealt_ranges import DealtRange, decoded_ranges, encoded_ranges
from eomirror.records.json_fields import checked, text, whole
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eomirror.records.dealt_ranges import DealtRanges
    from eomirror.records.recreation import CopyBack, Recreation

__all__ = [
    "KINDS",
    "PARTED_VERSION",
    "Cut",
    "Fence",
    "HistoryRecords",
    "Promotion",
    "PromotionHistory",
    "Restoration",
    "Resumption",
    "Reversal",
    "encoded",
    "lost",
    "with_cuts",
]

VERSION = 1

#: Version of a record that has parts.
PARTED_VERSION = 2

# Brokers take 1 MiB by default, and a part may exceed this by one slice.
_PART_BYTES = 256 * 1024
_SLICE = 1_000

#: Kinds of control records that this module reads.
KINDS = frozenset({"part", "promotion", "reversal", "restoration", "resumption", "fence"})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
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
        started: Time at which the command started, ms since the epoch.
        timestamp: Time of this record, ms since the epoch.
        milliseconds: Duration of each step.
        ends_at: Without the source: time as of which the cuts' ends are known, ms since the epoch; else None.
        uncut: Source offsets of partitions that the link should mirror and that have no cut, as far as known.
        at_least: True if more may be lost than is known, of topics that were stopped or left out.
    """

    number: int
    planned: bool
    run: str
    host: str
    generation: int
    source_cluster_id: str
    target_cluster_id: str
    cuts: tuple[Cut, ...]
    groups: Mapping[str, int] = field(default_factory=dict)
    started: int
    timestamp: int
    milliseconds: Mapping[str, int] = field(default_factory=dict)
    ends_at: int | None = None
    uncut: int = 0
    at_least: bool = False

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

    def key(self) -> bytes:
        """Key of the record."""
        return _key("promotion", self.number)

    def value(self) -> bytes:
        """Value of the record; the cuts are grouped by topic, because a link may have thousands of partitions."""
        topics: dict[str, dict[str, Any]] = {}
        for cut in self.cuts:
            topic = topics.setdefault(
                cut.topic,
                {
                    "topic_id": cut.topic_id,
                    "target": cut.target_topic,
                    "target_topic_id": cut.target_topic_id,
                    "partitions": {},
                },
            )
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
        body = {item: getattr(self, item) for item in _PROMOTION_FIELDS}
        body |= {} if self.ends_at is None else {"ends_at": self.ends_at}
        body |= {name: value for name in ("uncut", "at_least") if (value := getattr(self, name))}
        return orjson.dumps({"v": VERSION, **body, "topics": topics})


_PROMOTION_FIELDS = (
    "planned", "run", "host", "generation", "source_cluster_id", "target_cluster_id", "groups", "started", "timestamp",
    "milliseconds",
)  # fmt: skip


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversal:
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

    number: int
    link: str
    ends: Mapping[SourcePartition, int]
    run: str
    timestamp: int
    cuts: Mapping[SourcePartition, tuple[int, int]] = field(default_factory=dict)

    def key(self) -> bytes:
        """Key of the record."""
        return _key("reversal", self.number)

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps(
            {
                "v": VERSION,
                "link": self.link,
                "ends": _by_topic(self.ends),
                "run": self.run,
                "timestamp": self.timestamp,
                **({"cuts": _by_topic(self.cuts)} if self.cuts else {}),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
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

    number: int
    orphans: str
    records: int
    place: str
    run: str
    timestamp: int
    lost: Mapping[SourcePartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    ranges: DealtRanges | None = None

    def key(self) -> bytes:
        """Key of the record."""
        return _key("restoration", self.number)

    def value(self) -> bytes:
        """Value of the record."""
        body: dict[str, Any] = {item: getattr(self, item) for item in _RESTORATION_FIELDS}
        body |= {"lost": _by_topic(self.lost)} if self.lost else {}
        if self.ranges is not None:
            body["ranges"] = _by_topic(encoded_ranges(self.ranges))
        return orjson.dumps({"v": VERSION, **body})


_RESTORATION_FIELDS = ("orphans", "records", "place", "run", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
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

    number: int
    link: str
    starts: Mapping[SourcePartition, int]
    run: str
    timestamp: int

    def key(self) -> bytes:
        """Key of the record."""
        return _key("resumption", self.number)

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps(
            {
                "v": VERSION,
                "link": self.link,
                "starts": _by_topic(self.starts),
                "run": self.run,
                "timestamp": self.timestamp,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
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

    number: int
    method: str
    topics: tuple[str, ...]
    lifted: bool
    host: str
    timestamp: int
    lifting: bool = False
    source_cluster_id: str = ""

    def key(self) -> bytes:
        """Key of the record."""
        return _key("fence", self.number)

    def value(self) -> bytes:
        """Value of the record."""
        return _numbered(asdict(self))


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


def encoded(
    record: Promotion | Reversal | Restoration | Resumption | Fence | Recreation | CopyBack,
    *,
    most: int = _PART_BYTES,
) -> list[tuple[bytes, bytes]]:
    """
    Returns key and value of each record that a record of failover is written as; the deciding one comes last.

    Args:
        record: The record.
        most: Bytes that a record may have before it is written in parts.
    """
    value = record.value()
    kind = next((each for each, owner in _PARTED.items() if isinstance(record, owner)), None)
    if kind is None or len(value) <= most:
        return [(record.key(), value)]
    body = orjson.loads(value)
    item = _ITEMS[kind]
    if item not in body:
        return [(record.key(), value)]
    parts = list(_parts(body[item], most))
    found = [
        (
            orjson.dumps({"kind": "part", "of": kind, "number": record.number, "part": part}),
            orjson.dumps({"v": VERSION, item: topics}),
        )
        for part, topics in enumerate(parts)
    ]
    return [
        *found,
        (record.key(), orjson.dumps({**body, "v": PARTED_VERSION, "parts": len(parts), item: {}})),
    ]


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


def _whole(kind: str, body: dict[str, Any], parts: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Returns the body of a record with its parts."""
    if body["v"] != PARTED_VERSION:
        return body
    item = _ITEMS[kind]
    topics: dict[str, dict[str, Any]] = {}
    for part in range(whole(body["parts"])):
        for topic, more in parts[part][item].items():
            there = topics.setdefault(topic, {})
            if "partitions" in more:
                partitions = {**there.get("partitions", {}), **more["partitions"]}
                there.update({**more, "partitions": partitions})
            else:
                there.update(more)
    return {**body, item: topics}


class HistoryRecords:
    """Collects the records of failover of one control topic, oldest first."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], dict[str, Any]] = {}
        self._parts: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}

    def take(self, kind: str, name: Mapping[str, Any], body: dict[str, Any]) -> None:
        """
        Takes a record; ignores one of another kind.

        Args:
            kind: Kind of the record.
            name: Its key.
            body: Its value.

        Raises:
            AttributeError: It is not one of ours; so for the errors below.
            KeyError: A field is missing.
            TypeError: A field has another type.
            ValueError: A number is negative.
        """
        if kind == "part":
            parts = self._parts.setdefault((text(name["of"]), whole(name["number"])), {})
            parts[whole(name["part"])] = body
        elif kind in KINDS:
            number = whole(name["number"])
            _decoders(PromotionHistory({}, {}, {}, {}, {}))[kind][1](number, body)
            self._records[kind, number] = body

    def history(self) -> PromotionHistory:
        """Returns the history of the link; raises as `take` if a part is missing."""
        history = PromotionHistory({}, {}, {}, {}, {})
        decoders = _decoders(history)
        for (kind, number), body in sorted(self._records.items(), key=lambda item: item[0]):
            found, decode = decoders[kind]
            found[number] = decode(number, _whole(kind, body, self._parts.get((kind, number), {})))
        for number, reversal in history.reversals.items():
            if reversal.cuts and number in history.promotions:
                decoders["promotion"][0][number] = with_cuts(history.promotions[number], reversal.cuts)
        return history


def _decoders(history: PromotionHistory) -> dict[str, tuple[Any, Any]]:
    return {
        "promotion": (history.promotions, _promotion),
        "reversal": (history.reversals, _reversal),
        "restoration": (history.restorations, _restoration),
        "resumption": (history.resumptions, _resumption),
        "fence": (history.fences, _fence),
    }


# Kinds that may be written in parts, and the item of each that these hold.
_PARTED = {
    "promotion": Promotion, "reversal": Reversal, "restoration": Restoration, "resumption": Resumption,
}  # fmt: skip
_ITEMS = {"promotion": "topics", "reversal": "ends", "restoration": "ranges", "resumption": "starts"}


def _promotion(number: int, body: dict[str, Any]) -> Promotion:
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
        for topic, there in body["topics"].items()
        for partition, (position, end, timestamp, source_end) in there["partitions"].items()
    ]
    rest = {item: body[item] for item in _PROMOTION_FIELDS}
    if (ends_at := body.get("ends_at")) is not None:
        rest["ends_at"] = whole(ends_at)
    rest["uncut"], rest["at_least"] = whole(body.get("uncut", 0)), body.get("at_least") is True
    promotion = Promotion(number=number, cuts=tuple(sorted(cuts, key=lambda cut: cut.source)), **rest)
    for name in ("run", "host", "source_cluster_id", "target_cluster_id"):
        text(getattr(promotion, name))
    for name in ("generation", "started", "timestamp"):
        whole(getattr(promotion, name))
    if type(promotion.planned) is not bool:
        raise TypeError("planned")
    return promotion


def _reversal(number: int, body: dict[str, Any]) -> Reversal:
    return Reversal(
        number=number,
        link=text(body["link"]),
        ends=_offsets(body["ends"]),
        run=text(body["run"]),
        timestamp=whole(body["timestamp"]),
        cuts={
            SourcePartition(topic, int(partition)): (whole(position), whole(end))
            for topic, partitions in body.get("cuts", {}).items()
            for partition, (position, end) in partitions.items()
        },
    )


def _resumption(number: int, body: dict[str, Any]) -> Resumption:
    return Resumption(
        number=number,
        link=text(body["link"]),
        starts=_offsets(body["starts"]),
        run=text(body["run"]),
        timestamp=whole(body["timestamp"]),
    )


def _restoration(number: int, body: dict[str, Any]) -> Restoration:
    lost = {
        SourcePartition(topic, int(partition)): tuple((whole(start), whole(end)) for start, end in ranges)
        for topic, partitions in body.get("lost", {}).items()
        for partition, ranges in partitions.items()
    }
    return Restoration(
        number=number,
        orphans=text(body["orphans"]),
        records=whole(body["records"]),
        place=text(body["place"]),
        run=text(body["run"]),
        timestamp=whole(body["timestamp"]),
        lost=lost,
        ranges=None if (ranges := body.get("ranges")) is None else decoded_ranges(ranges),
    )


def _offsets(topics: dict[str, dict[str, int]]) -> dict[SourcePartition, int]:
    return {
        SourcePartition(topic, int(partition)): whole(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def _by_topic(offsets: Mapping[SourcePartition, Any]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = defaultdict(dict)
    for source, offset in sorted(offsets.items()):
        topics[source.topic][str(source.partition)] = offset
    return topics


def _fence(number: int, body: dict[str, Any]) -> Fence:
    if type(body["lifted"]) is not bool:
        raise TypeError("lifted")
    return Fence(
        number=number,
        method=text(body["method"]),
        topics=tuple(text(topic) for topic in body["topics"]),
        lifted=body["lifted"],
        host=text(body["host"]),
        timestamp=whole(body["timestamp"]),
        lifting=body.get("lifting") is True,
        source_cluster_id=text(body.get("source_cluster_id", "")),
    )


def _numbered(body: dict[str, Any]) -> bytes:
    del body["number"]
    return orjson.dumps({"v": VERSION, **body})


def _key(kind: str, number: int) -> bytes:
    return orjson.dumps({"kind": kind, "number": number})
