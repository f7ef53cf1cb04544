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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eomirror.errors import StateError
from eomirror.records.control_record import (
    OMITTED,
    PARTED_VERSION,
    VERSION,
    ControlEntry,
    ControlRecord,
    RecordError,
    RecordsByClass,
    SingleRecord,
    control_record,
    read_field,
)
from eomirror.records.json_fields import whole
from eomirror.records.promotion import Part, PromotionHistory, joined
from eomirror.records.recreation import CopyBack, Recreation
from eomirror.types import Assignment, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from eomirror.records.json_fields import Whole

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
    "dated_keys",
    "decode_control",
]

# fields of a generation
_NUMBERS = ("generation", "revision", "highest_lane", "timestamp")


@control_record("generation", lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(SingleRecord):
    """
    A lane layout of a link.

    Attributes:
        generation: Number of the generation; every start of a mirror and every change of lanes takes the next one.
        revision: Number of times that partitions were added to it, or left the link.
        run: Run of the mirror that published it.
        highest_lane: Highest lane number that any generation has used: transactional ids up to it must be fenced.
        assignment: Assignment of partitions to lanes.
        timestamp: Milliseconds since the epoch.
        since: Generation in which each lane's partitions were last moved, from lane 0 on; empty if all lanes began
            with this generation (docs/adr/0030).
    """

    generation: int
    revision: int
    run: str
    highest_lane: int
    assignment: Assignment
    timestamp: int
    since: tuple[int, ...] = ()

    def of_lane(self, lane: int) -> int:
        """Returns the generation in which attempts of a lane run."""
        return self.since[lane] if lane < len(self.since) else self.generation

    def body(self) -> dict[str, Any]:
        """Returns the fields of the value in their JSON form: the assignment is in three of them."""
        return {
            "generation": self.generation,
            "revision": self.revision,
            "run": self.run,
            "lanes": self.assignment.lanes,
            "highest_lane": self.highest_lane,
            "assignment": [_by_topic(self.assignment.of(lane)) for lane in range(self.assignment.lanes)],
            "parked": _by_topic(sorted(self.assignment.parked)),
            "timestamp": self.timestamp,
            **({"since": list(self.since)} if self.since else {}),
        }

    @classmethod
    def decoded(cls, _name: Mapping[str, Any], body: Mapping[str, Any]) -> Generation:
        """Returns the record; raises `RecordError` if a field is missing, or has another type."""
        numbers = {name: read_field(body, name, whole) for name in _NUMBERS}
        assignment = Assignment(
            read_field(body, "lanes", whole),
            read_field(body, "assignment", _lanes),
            read_field(body, "parked", lambda topics: frozenset(_partitions(topics))),
        )
        since = read_field(body, "since", lambda given: tuple(map(whole, given))) if "since" in body else ()
        return cls(run=read_field(body, "run", str), assignment=assignment, since=since, **numbers)

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        text = f"generation {self.generation}, {self.assignment.lanes} lanes, run {self.run}"
        if self.since:
            text += ", after partitions changed lanes"
        return text + (f", revision {self.revision} adds partitions" if self.revision else "")


@control_record("claim", lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(SingleRecord):
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
        alone: True if the owner has released the link while its other links went on, which may have carried copies on.
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
    alone: bool = field(default=False, metadata=OMITTED)

    @property
    def who(self) -> str:
        """Process and run of the owner, with its command, in words."""
        command = f" (eomirror {self.command})" if self.command else ""
        return f"{self.host}/{self.pid} run {self.run}{command}"

    def sentence(self) -> str:
        """Returns the text of the record in the timeline, if the owner before it had released the link."""
        return f"{self.who} {'released' if self.released else 'owns'} the link"


@control_record(
    "gap",
    key=("topic", "partition", "start"),
    sentence="{one.topic}-{one.partition}: the loss of offsets [{one.start}, {one.end}) was accepted",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(ControlRecord):
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
    start: int = field(metadata={"name": "from"})
    end: int = field(metadata={"name": "to"})
    reason: str
    run: str
    timestamp: int

    @property
    def source(self) -> SourcePartition:
        """The source partition."""
        return SourcePartition(self.topic, self.partition)


@control_record(
    "adoption",
    key=("topic", "partition"),
    sentence="{one.topic}-{one.partition}: resumes at {one.offset}, where {one.replicator} stopped",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted(ControlRecord):
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


@control_record(
    "hand-back",
    lasting=True,
    sentence="the link was handed back to {one.replicator}",
    deleted=("taken-back", "the link is taken back"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver(SingleRecord):
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


@control_record(
    "stopped",
    key=("topic",),
    lasting=True,
    sentence="topic {one.topic} is stopped: {one.reason}",
    deleted=("resumed", "topic {topic} resumes"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(ControlRecord):
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

    def same_reason(self, other: Stopped) -> bool:
        """Returns True if both have the same reason, fix and exit code; run and time may differ."""
        return (self.reason, self.fix, self.exit_code) == (other.reason, other.fix, other.exit_code)


@control_record("pause", lasting=True, deleted=("resumed", "the link resumes"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(SingleRecord):
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

    def holds(self, topic: str) -> bool:
        """Returns True if lanes hold this source topic."""
        return not self.topics or re.fullmatch(self.topics, topic) is not None

    @property
    def pattern(self) -> str:
        """Regular expression of the source topics that lanes hold."""
        return self.topics or ".*"

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        return f"{self.host} paused {self.topics or 'all topics'}"


@control_record("ends", key=("topic",), silent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEnds(ControlRecord):
    """
    Log ends of one source topic, for a failover without the source.

    Attributes:
        topic: Source topic.
        ends: Partition -> end of its log (high watermark), as the mirror read it last.
        starts: Partition -> start of its log, of partitions that no lane mirrors.
    """

    topic: str
    ends: Mapping[int, int]
    starts: Mapping[int, int] = field(default_factory=dict, metadata=OMITTED)


@control_record("seen", silent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSeen(SingleRecord):
    """
    Time as of which the ends of all source topics hold.

    Attributes:
        timestamp: Milliseconds since the epoch.
        rate: Offsets per second by which the ends of the source have grown before it; None if not known.
    """

    timestamp: Whole
    rate: float | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True, slots=True)
class ControlView:
    """
    State in the control topic; all fields are empty for a link that never ran.

    Attributes:
        ends: Log ends of the source, as the mirror has read them.
        starts: Log starts of those of these partitions that no lane mirrors.
        seen: Time as of which the ends hold, ms since the epoch; None if it is not known.
        seen_rate: Offsets per second by which they grew before; None if it is not known.
        recreation: The last recreation of source topics; None for none.
        copy_back: The last order that this link copies topics back whole; None for none.
        dated: Keys of past events, with their times, ms since the epoch.
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
    seen_rate: float | None = None
    recreation: Recreation | None = None
    copy_back: CopyBack | None = None
    dated: Mapping[bytes, int] = field(default_factory=dict)

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


def decode_control(records: Iterable[tuple[bytes | None, bytes | None, str]]) -> ControlView:
    """
    Builds the state from control records, oldest first.

    Args:
        records: Key, value and place (topic-partition@offset, for errors) of each record.

    Raises:
        StateError: A record is corrupt or of an unknown version.
    """
    newest: dict[bytes | None, ControlRecord] = {}
    parted: dict[bytes | None, ControlEntry] = {}
    records = list(records)
    for key, value, where in records:
        if value is None:
            if (record := newest.get(key)) is not None and record.declaration.deleted is not None:
                del newest[key]
            continue
        entry = _entry(key, value, where)
        if (declared := entry.declared) is None or declared.declaration.informative:
            continue
        try:
            record = entry.record()
        except RecordError as error:
            raise _corrupt(where, f"{entry.kind} record", str(error)) from error
        if (
            isinstance(record, SingleRecord)
            and declared.declaration.deleted is not None
            and key != record.key()
        ):
            # a newer release has several of them, so this is not the one that its deletion ends
            continue
        newest[key] = record
        parted.pop(key, None)
        if entry.body["v"] == PARTED_VERSION:
            parted[key] = entry
    # the parts that count are those that were written last, possibly after the first record that has them
    parts = [record for record in newest.values() if isinstance(record, Part)]
    for key, entry in parted.items():
        try:
            newest[key] = joined(entry, parts).record()
        except RecordError as error:
            raise _corrupt("the parts of a promotion", f"{entry.kind} record", str(error)) from error
    found = RecordsByClass(newest.values())
    ends, seen = found.all(SourceEnds), found.last(SourceSeen)
    return ControlView(
        generation=found.last(Generation),
        claim=found.last(Claim),
        gaps=tuple(found.all(Gap)),
        adopted=tuple(found.all(Adopted)),
        handed_over=found.last(HandedOver),
        stopped=tuple(found.all(Stopped)),
        history=PromotionHistory.of(found),
        pause=found.last(Pause),
        ends={SourcePartition(one.topic, number): end for one in ends for number, end in one.ends.items()},
        starts={SourcePartition(one.topic, number): at for one in ends for number, at in one.starts.items()},
        seen=None if seen is None else seen.timestamp,
        seen_rate=None if seen is None else seen.rate,
        recreation=found.last(Recreation),
        copy_back=found.last(CopyBack),
        dated=dated_keys((key, value) for key, value, _ in records),
    )


def dated_keys(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes, int]:
    """Returns the keys of past events among records, given by key and value, with their times."""
    found: dict[bytes, int] = {}
    for key, value in records:
        entry = ControlEntry.of(key, None)
        at = entry.name.get("at")
        if (
            key is None
            or entry.declared is None
            or not entry.declared.declaration.dated
            or not isinstance(at, int)
        ):
            continue
        if value is None:
            found.pop(key, None)
        else:
            found[key] = at
    return found


def _entry(key: bytes | None, value: bytes, where: str) -> ControlEntry:
    entry = ControlEntry.of(key, value)
    if entry.kind is None or "v" not in entry.body:
        raise _corrupt(where, "control record", "its key has no kind, or its value no version")
    if not entry.known_version:
        raise StateError(
            f"{where}: a {entry.kind} record has version {entry.body['v']}, this release knows {VERSION}",
            fix="run the release of eomirror that wrote it, or a newer one",
        )
    return entry


def _lanes(lanes: list[dict[str, list[int]]]) -> dict[SourcePartition, int]:
    return {source: lane for lane, topics in enumerate(lanes) for source in _partitions(topics)}


def _partitions(topics: dict[str, list[int]]) -> list[SourcePartition]:
    return [SourcePartition(topic, whole(number)) for topic, numbers in topics.items() for number in numbers]


def _by_topic(partitions: Iterable[SourcePartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _corrupt(where: str, what: str, why: str) -> StateError:
    return StateError(
        f"{where}: this {what} is not readable: {why}",
        fix="find out which program wrote it; only eomirror may write to this topic",
    )
