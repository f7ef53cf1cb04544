"""
Control records: the owner of a link, the assignment of its partitions to lanes, and accepted exceptions. Pure.

One partition, compact.  The link's control producer writes it in transactions; only informative records may come from
others.  Keys:

* ``{"kind":"generation"}`` -> `Generation`: the newest lane layout; a higher number fences all lanes of a lower one
  (EO-2).  A *revision* is the same generation with partitions added to lanes; no partition changes its lane within a
  generation.
* ``{"kind":"claim"}`` -> `Claim`: the owner's heartbeat (EO-10).
* ``{"kind":"gap","topic","partition","from"}`` -> `Gap`: a lost range of the source that the user accepted.
* ``{"kind":"adoption","topic","partition"}`` -> `Adopted`: the resume offset of a partition that another replicator
  had mirrored before.
* ``{"kind":"hand-back"}`` -> `HandedOver`: another replicator mirrors the link; deleted when the link is taken back.
* ``{"kind":"pause"}`` -> `Pause`: lanes hold all topics, or some; deleted by a resume.  A command writes it, with a
  producer of its own, and the owner obeys.
* ``{"kind":"stopped","topic"}`` -> `Stopped`: a topic that the owner has stopped; deleted when the topic resumes.
* ``{"kind":"ends","topic"}`` -> `SourceEnds`: log ends of a source topic, as the mirror read them last; and
  ``{"kind":"seen"}`` -> `SourceSeen`: the time as of which all of them hold.
* ``{"kind":"promotion","number"}`` and its kin: promotions of the link (`eomirror.records.promotion`).
* ``{"kind":"recreation"}`` and ``{"kind":"copy-back"}``: topics of an old source that are copied back whole
  (`eomirror.records.recreation`).
* ``restarts``, ``verification``, ``tail`` and ``drill``: informative; nothing is decided from them
  (`eomirror.records.reports`).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.errors import StateError
from eomirror.records.json_fields import checked, text, whole
from eomirror.records.promotion import KINDS, PARTED_VERSION, HistoryRecords, PromotionHistory
from eomirror.records.recreation import COPY_BACK_KEY, RECREATION_KEY, CopyBack, Recreation
from eomirror.types import Assignment, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = [
    "Adopted",
    "Claim",
    "ControlView",
    "Gap",
    "Generation",
    "HandedOver",
    "Pause",
    "SourceEnds",
    "SourceSeen",
    "Stopped",
    "decode_control",
]

VERSION = 1
_GENERATION_KEY = orjson.dumps({"kind": "generation"})
_CLAIM_KEY = orjson.dumps({"kind": "claim"})
_HAND_BACK_KEY = orjson.dumps({"kind": "hand-back"})
_PAUSE_KEY = orjson.dumps({"kind": "pause"})
_SEEN_KEY = orjson.dumps({"kind": "seen"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """
    A lane layout of a link.

    Attributes:
        generation: Number of the generation; every start of a mirror and every change of lanes takes the next one.
        revision: Number of times that partitions were added to it.
        run: Run of the mirror that published it.
        highest_lane: Highest lane number that any generation has used: transactional ids up to it must be fenced.
        assignment: Assignment of partitions to lanes.
        timestamp: Milliseconds since the epoch.
    """

    generation: int
    revision: int
    run: str
    highest_lane: int
    assignment: Assignment
    timestamp: int

    def key(self) -> bytes:
        """Key of the record."""
        return _GENERATION_KEY

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps(
            {
                "v": VERSION,
                "generation": self.generation,
                "revision": self.revision,
                "run": self.run,
                "lanes": self.assignment.lanes,
                "highest_lane": self.highest_lane,
                "assignment": [_by_topic(self.assignment.of(lane)) for lane in range(self.assignment.lanes)],
                "parked": _by_topic(sorted(self.assignment.parked)),
                "timestamp": self.timestamp,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """
    Claim of the owner, renewed as a heartbeat.

    Attributes:
        run: Run of the mirror that owns the link.
        host: Host of the owner, for people.
        pid: Process id of the owner on that host.
        boot: Id of the host's boot and process namespace, by which a process on the same machine detects without a
            wait that the owner is dead; empty if the system does not provide it.
        started: Start time of the owner's process in the system's ticks; with ``pid`` it identifies the process.
        sequence: Number that grows with every renewal.
        interval_ms: Interval of renewals.
        released: True once the owner has stopped and released the link.
        timestamp: Milliseconds since the epoch, for people.
        command: Command that took the link, such as ``failover``; empty for a mirror.
    """

    run: str
    host: str
    pid: int
    boot: str
    started: str
    sequence: int
    interval_ms: int
    released: bool
    timestamp: int
    command: str = ""

    def key(self) -> bytes:
        """Key of the record."""
        return _CLAIM_KEY

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps({"v": VERSION, **asdict(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """
    Source offsets ``[start, end)`` of a partition that were lost, and that the user accepted (EO-6).

    Attributes:
        topic: Source topic.
        partition: Source partition.
        start: First lost offset.
        end: First offset that exists.
        reason: Observation that proved the gap.
        run: Run that resumed after the gap.
        timestamp: Milliseconds since the epoch.
    """

    topic: str
    partition: int
    start: int
    end: int
    reason: str
    run: str
    timestamp: int

    @property
    def source(self) -> SourcePartition:
        """The source partition."""
        return SourcePartition(self.topic, self.partition)

    def key(self) -> bytes:
        """Key of the record."""
        return orjson.dumps(
            {"kind": "gap", "topic": self.topic, "partition": self.partition, "from": self.start}
        )

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps(
            {
                "v": VERSION,
                "to": self.end,
                "reason": self.reason,
                "run": self.run,
                "timestamp": self.timestamp,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """
    Resume offset of a partition that another replicator had mirrored before.

    Attributes:
        topic: Source topic.
        partition: Source partition.
        offset: First source offset that the link mirrored.
        target_offset: Offset of the last record on the target at that time; None if there was none.
        replicator: Replicator that mirrored it before, such as ``mm2``.
        place: Topic in which that replicator stored its source offsets.
        committed: Last source offset that it had committed; None for none.
        evidence: Proof that ``offset`` is the next record.
        timestamp: Milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    target_offset: int | None
    replicator: str
    place: str
    committed: int | None
    evidence: str
    run: str
    timestamp: int

    @property
    def source(self) -> SourcePartition:
        """The source partition."""
        return SourcePartition(self.topic, self.partition)

    def key(self) -> bytes:
        """Key of the record."""
        return orjson.dumps({"kind": "adoption", "topic": self.topic, "partition": self.partition})

    def value(self) -> bytes:
        """Value of the record."""
        body = asdict(self)
        del body["topic"], body["partition"]
        return orjson.dumps({"v": VERSION, **body})


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """
    Hand-over of the link to another replicator; the link must not run until it is taken back.

    Attributes:
        replicator: Replicator that mirrors now, such as ``mm2``.
        place: Topic in which it stores its source offsets.
        run: Run that handed the link over.
        timestamp: Milliseconds since the epoch.
    """

    replicator: str
    place: str
    run: str
    timestamp: int

    @staticmethod
    def key() -> bytes:
        """Key of the record."""
        return _HAND_BACK_KEY

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps({"v": VERSION, **asdict(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """
    A stopped source topic; the owner mirrors the others.

    Attributes:
        topic: Source topic.
        reason: Message of the error, with topic, partition and range.
        fix: Fix of the error; may be empty.
        exit_code: Exit code of the error (contract.md).
        lane: Lane that stopped the topic; None if the owner did, before a lane had it.
        timestamp: Time of the stop, in milliseconds since the epoch.
    """

    topic: str
    reason: str
    fix: str
    exit_code: int
    lane: int | None
    run: str
    timestamp: int

    def key(self) -> bytes:
        """Key of the record."""
        return self.key_of(self.topic)

    def same_reason(self, other: Stopped) -> bool:
        """Returns True if both have the same reason, fix and exit code; run and time may differ."""
        return (self.reason, self.fix, self.exit_code) == (other.reason, other.fix, other.exit_code)

    @staticmethod
    def key_of(topic: str) -> bytes:
        """Returns the key of a source topic's record."""
        return orjson.dumps({"kind": "stopped", "topic": topic})

    def value(self) -> bytes:
        """Value of the record."""
        body = asdict(self)
        del body["topic"]
        return orjson.dumps({"v": VERSION, **body})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """
    A request that lanes hold: they stop at the end of a transaction, and keep their positions.

    Attributes:
        topics: Full-match regular expression of source topics; empty for all.
        host: Host of the command.
        timestamp: Milliseconds since the epoch.
    """

    topics: str
    host: str
    timestamp: int

    @staticmethod
    def key() -> bytes:
        """Key of the record."""
        return _PAUSE_KEY

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps({"v": VERSION, **asdict(self)})

    def holds(self, topic: str) -> bool:
        """Returns True if lanes hold this source topic."""
        return not self.topics or re.fullmatch(self.topics, topic) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEnds:
    """
    Log ends of one source topic, for a failover without the source.

    Attributes:
        topic: Source topic.
        ends: Partition -> end of its log (high watermark), as the mirror read it last.
        starts: Partition -> start of its log, of partitions that no lane mirrors.
    """

    topic: str
    ends: Mapping[int, int]
    starts: Mapping[int, int] = field(default_factory=dict)

    def key(self) -> bytes:
        """Key of the record."""
        return orjson.dumps({"kind": "ends", "topic": self.topic})

    def value(self) -> bytes:
        """Value of the record."""
        body = {"v": VERSION, "ends": {str(number): end for number, end in self.ends.items()}}
        if self.starts:
            body["starts"] = {str(number): start for number, start in self.starts.items()}
        return orjson.dumps(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSeen:
    """
    Time as of which the ends of all source topics hold.

    Attributes:
        timestamp: Milliseconds since the epoch.
    """

    timestamp: int

    @staticmethod
    def key() -> bytes:
        """Key of the record."""
        return _SEEN_KEY

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps({"v": VERSION, "timestamp": self.timestamp})


@dataclass(frozen=True, slots=True)
class ControlView:
    """
    State in the control topic; all fields are empty for a link that never ran.

    Attributes:
        ends: Log ends of the source, as the mirror has read them.
        starts: Log starts of those of these partitions that no lane mirrors.
        seen: Time as of which the ends hold, ms since the epoch; None if it is not known.
        recreation: The last recreation of source topics; None for none.
        copy_back: The last order that this link copies topics back whole; None for none.
    """

    generation: Generation | None = None
    claim: Claim | None = None
    gaps: tuple[Gap, ...] = ()
    adopted: tuple[Adopted, ...] = ()
    handed_over: HandedOver | None = None
    stopped: tuple[Stopped, ...] = ()
    history: PromotionHistory = field(default_factory=PromotionHistory)
    pause: Pause | None = None
    ends: Mapping[SourcePartition, int] = field(default_factory=dict)
    starts: Mapping[SourcePartition, int] = field(default_factory=dict)
    seen: int | None = None
    recreation: Recreation | None = None
    copy_back: CopyBack | None = None

    @property
    def recreated(self) -> Mapping[str, str]:
        """Ids of source topics that were deleted on purpose since the promotion in force, by name."""
        current = self.history.current
        if current is None or self.recreation is None or self.recreation.number != current.number:
            return {}
        return self.recreation.topics

    def ends_beside(
        self, cut: Collection[SourcePartition], positions: Mapping[SourcePartition, int]
    ) -> dict[SourcePartition, tuple[int, int]]:
        """
        Returns the known source offsets of partitions that the link should mirror and that have no cut.

        The record of a topic that left the link's filter stays: only partitions of lanes, and those of topics that the
        owner has stopped or left out, are the link's.

        Args:
            cut: Partitions with a cut.
            positions: Next offset to mirror of partitions with a position: what stands before it has a copy.
        """
        lanes = {} if self.generation is None else self.generation.assignment.partitions
        without_lane = {stop.topic for stop in self.stopped}
        found = {
            source: (positions.get(source, self.starts.get(source, 0)), end)
            for source, end in self.ends.items()
            if source not in cut and (source in lanes or source.topic in without_lane)
        }
        return {source: (start, end) for source, (start, end) in found.items() if end > start}


def decode_control(records: list[tuple[bytes | None, bytes | None, str]]) -> ControlView:
    """
    Builds the state from control records, oldest first.

    Args:
        records: Key, value and place (topic-partition@offset, for errors) of each record.

    Raises:
        StateError: A record is corrupt or of an unknown version.
    """
    generation: Generation | None = None
    claim: Claim | None = None
    gaps: dict[tuple[str, int, int], Gap] = {}
    adopted: dict[SourcePartition, Adopted] = {}
    single: dict[bytes | None, Any] = {}
    stopped: dict[bytes | None, Stopped] = {}
    promotions = HistoryRecords()
    source = _Source()
    for key, value, where in records:
        if value is None:
            single.pop(key, None)
            stopped.pop(key, None)
            continue
        kind, name, body = _open(key, value, where)
        try:
            promotions.take(kind, name, body)
            source.take(kind, name, body)
            if kind == "generation":
                generation = _decode_generation(body)
            elif kind == "claim":
                claim = _decode_claim(body)
            elif kind == "gap":
                gap = checked(
                    Gap(
                        topic=name["topic"],
                        partition=name["partition"],
                        start=name["from"],
                        end=body["to"],
                        reason=body["reason"],
                        run=body["run"],
                        timestamp=body["timestamp"],
                    )
                )
                gaps[gap.topic, gap.partition, gap.start] = gap
            elif kind == "adoption":
                names = {"topic": name["topic"], "partition": name["partition"]}
                others = {item: body[item] for item in Adopted.__slots__ if item not in names}
                adoption = checked(Adopted(**names, **others))
                adopted[adoption.source] = adoption
            elif made := _SINGLE.get(kind):
                single[key] = checked(made(**{item: body[item] for item in made.__slots__ if item in body}))
            elif kind == "stopped":
                rest = {item: body[item] for item in Stopped.__slots__ if item != "topic"}
                stopped[key] = checked(Stopped(topic=name["topic"], **rest))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _corrupt(where) from error
    return ControlView(
        generation,
        claim,
        tuple(gaps.values()),
        tuple(adopted.values()),
        single.get(_HAND_BACK_KEY),
        tuple(stopped.values()),
        _history(promotions),
        single.get(_PAUSE_KEY),
        source.ends,
        source.starts,
        source.seen,
        single.get(RECREATION_KEY),
        single.get(COPY_BACK_KEY),
    )


def _decode_claim(body: dict[str, Any]) -> Claim:
    # A release before the field wrote claims of commands like those of mirrors.
    given = {"command": "", **body}
    return checked(Claim(**{item: given[item] for item in Claim.__slots__}))


# Kinds of which one record stands at a time, until it is deleted.
_SINGLE: dict[str, Any] = {
    "hand-back": HandedOver, "pause": Pause, "recreation": Recreation, "copy-back": CopyBack,
}  # fmt: skip


class _Source:
    """Collects what control says of the source's ends."""

    def __init__(self) -> None:
        self.seen: int | None = None
        self._topics: dict[str, tuple[dict[int, int], dict[int, int]]] = {}

    def take(self, kind: str, name: dict[str, Any], body: dict[str, Any]) -> None:
        """Takes a record, in place of the one before it; ignores one of another kind."""
        if kind == "ends":
            self._topics[text(name["topic"])] = _numbers(body["ends"]), _numbers(body.get("starts", {}))
        elif kind == "seen":
            self.seen = whole(body["timestamp"])

    @property
    def ends(self) -> dict[SourcePartition, int]:
        """Log ends of all partitions."""
        return self._flat(0)

    @property
    def starts(self) -> dict[SourcePartition, int]:
        """Log starts of the partitions that have one."""
        return self._flat(1)

    def _flat(self, which: int) -> dict[SourcePartition, int]:
        return {
            SourcePartition(topic, number): offset
            for topic, found in self._topics.items()
            for number, offset in found[which].items()
        }


def _numbers(found: dict[str, Any]) -> dict[int, int]:
    return {whole(int(number)): whole(offset) for number, offset in found.items()}


def _history(records: HistoryRecords) -> PromotionHistory:
    try:
        return records.history()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _corrupt("the parts of a promotion") from error


def _open(key: bytes | None, value: bytes, where: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    try:
        name = orjson.loads(key or b"")
        body = orjson.loads(value)
        kind, version = str(name["kind"]), body["v"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise _corrupt(where) from error
    if version != VERSION and (version, kind in KINDS) != (PARTED_VERSION, True):
        raise StateError(
            f"{where}: a {kind} record has version {version}, this release knows {VERSION}",
            fix="run the release of eomirror that wrote it, or a newer one",
        )
    return kind, name, body


def _decode_generation(body: dict[str, Any]) -> Generation:
    partitions = {
        source: lane for lane, topics in enumerate(body["assignment"]) for source in _partitions(topics)
    }
    return Generation(
        generation=whole(body["generation"]),
        revision=whole(body["revision"]),
        run=str(body["run"]),
        highest_lane=whole(body["highest_lane"]),
        assignment=Assignment(whole(body["lanes"]), partitions, frozenset(_partitions(body["parked"]))),
        timestamp=whole(body["timestamp"]),
    )


def _partitions(topics: dict[str, list[int]]) -> list[SourcePartition]:
    return [SourcePartition(topic, whole(number)) for topic, numbers in topics.items() for number in numbers]


def _by_topic(partitions: list[SourcePartition] | tuple[SourcePartition, ...]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _corrupt(where: str) -> StateError:
    return StateError(
        f"{where}: this control record is not readable",
        fix="find out which program wrote it; only eomirror may write to this topic",
    )
