"""A plane, state topics and topics in memory, for tests of the pump's order of steps; never for Kafka facts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from eomirror._native import encode_offset_map
from eomirror.lane.poison_records import Limits
from eomirror.lane.spec import AssignedPartition, LaneProgress, LaneSpec, Released, StopReason
from eomirror.plane.protocol import (
    Account,
    Advance,
    CommitOutcome,
    Flushed,
    MetadataRecord,
    ProducerIdentity,
    Pumped,
    SendPlan,
    Serving,
    Start,
)
from eomirror.plane.select import PlaneSelector
from eomirror.records.control import ControlView, Generation
from eomirror.records.mm2 import Mm2Names
from eomirror.records.names import StateTopics
from eomirror.records.position import Position
from eomirror.recovery.resume import SourceFacts, TargetFacts
from eomirror.types import Assignment, SourcePartition
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.plane.protocol import Plane
    from eomirror.records.dead_letter import DeadLetter

ORDERS = SourcePartition("orders", 0)
PAYMENTS = SourcePartition("payments", 0)


class FakeClock(PlayedClock):
    """Time that only moves when the lane sleeps or waits."""

    def __init__(self) -> None:
        super().__init__(100.0)


def position(source: SourcePartition, offset: int, **changes: Any) -> Position:
    """A position as an earlier attempt left it."""
    values: dict[str, Any] = {
        "topic": source.topic,
        "partition": source.partition,
        "offset": offset,
        "source_cluster_id": "S",
        "topic_id": f"id-{source.topic}",
        "target_topic": f"east.{source.topic}",
        "target_partition": source.partition,
        "target_topic_id": f"id-east.{source.topic}",
        "generation": 1,
        "lane": 0,
        "run": "old",
        "epoch": 1,
        "attempt": 1,
        "producer_id": 1,
        "producer_epoch": 0,
        "txn": 1,
        "timestamp": 1,
        **changes,
    }
    return Position(**values)


def account(source: SourcePartition, first: int, count: int) -> Account:
    """A settled account of ``count`` records from offset ``first``."""
    return Account(
        source=source,
        target_topic=f"east.{source.topic}",
        target_partition=source.partition,
        records=count,
        bytes=count * 10,
        dropped={},
        target_offset=first + count - 1,
        source_timestamp=1_000,
        first_source_offset=first,
        offset_map=encode_offset_map(f"east.{source.topic}", source.partition, [(first, first, count)]),
        digest="00",
    )


def spec(
    *sources: SourcePartition, seconds: float = 60.0, on_gap: str = "stop", on_refused: str = "stop"
) -> LaneSpec:
    """A lane of generation 2 of run ``new``."""
    link = SimpleNamespace(
        state_name="east.west", name="east->west", commit_interval=0.1, commit_interval_min=0.01,
        transaction_timeout=15.0, on_gap=on_gap, on_refused=on_refused, raise_limit_to=None,
        source="east", target="west", offset_syncs="off", groups=(), guard=False, keyed=False,
        mm2_names=Mm2Names(),
    )  # fmt: skip
    return LaneSpec(
        link=link,  # type: ignore[arg-type]
        source=None,  # type: ignore[arg-type]
        target=None,  # type: ignore[arg-type]
        source_cluster_id="S",
        target_cluster_id="T",
        run="new",
        generation=2,
        lane=0,
        epoch=1,
        attempt=1,
        seconds=seconds,
        partitions=tuple(
            AssignedPartition(source, f"id-{source.topic}", f"east.{source.topic}", f"id-east.{source.topic}")
            for source in sources
        ),
    )


@dataclass
class FakePlane:
    """Follows a script: each fetch is a mapping of source partition to a number of records."""

    clock: FakeClock
    fetches: list[dict[SourcePartition, int]] = field(default_factory=list)
    outcomes: list[CommitOutcome | Exception] = field(default_factory=list)
    seal_error: Exception | None = None
    calls: list[str] = field(default_factory=list)
    committed: list[list[MetadataRecord]] = field(default_factory=list)
    started: list[Start] = field(default_factory=list)
    next: dict[SourcePartition, int] = field(default_factory=dict)
    silent_advance: dict[SourcePartition, int] = field(default_factory=dict)
    pins: AbstractSet[str] = frozenset()
    # how many records of another producer lie before ours on the target; None: the plane foresees nothing
    foreign: int | None = None
    # what `open` raises, one after the other
    open_errors: list[Exception] = field(default_factory=list)
    # what `await_records` raises, one after the other
    await_errors: list[Exception] = field(default_factory=list)
    # what `pump` raises before it fetches, one after the other
    pump_errors: list[Exception] = field(default_factory=list)
    # rejections that `flush` raises, one after the other
    rejections: list[Exception] = field(default_factory=list)
    # fetches that come while a transaction is acknowledged
    late: list[dict[SourcePartition, int]] = field(default_factory=list)
    send_plans: list[SendPlan] = field(default_factory=list)
    dead_letters: dict[SourcePartition, tuple[DeadLetter, ...]] = field(default_factory=dict)
    # where the target puts the first record of a transaction
    firsts: dict[SourcePartition, int] = field(default_factory=dict)
    _open: dict[SourcePartition, tuple[int, int]] = field(default_factory=dict)
    _written: list[MetadataRecord] = field(default_factory=list)
    _opens: int = 0
    # what an abort gives back
    _taken: list[dict[SourcePartition, int]] = field(default_factory=list)

    def open(self) -> ProducerIdentity:
        if self.open_errors:
            raise self.open_errors.pop(0)
        self.calls.append("open")
        self._opens += 1
        return ProducerIdentity(7, self._opens)

    def start(self, starts: Sequence[Start]) -> None:
        self.started.extend(starts)
        self.next.update({start.source: start.offset for start in starts})

    def set_send_plan(self, send_plan: SendPlan) -> None:
        self.send_plans.append(send_plan)

    def stop(self, sources: Collection[SourcePartition]) -> None:
        self.calls.append("stop")
        for source in sources:
            self.next.pop(source, None)
            self.silent_advance.pop(source, None)

    def restart(self) -> None:
        self.next.clear()
        self._open.clear()
        self._written.clear()

    def await_records(self, seconds: float, other: int | None = None) -> bool:
        del other
        if self.await_errors:
            raise self.await_errors.pop(0)
        if self.fetches or self.has_more():
            return True
        self.clock.sleep(seconds)
        return False

    def advances(self) -> Mapping[SourcePartition, Advance]:
        moved = {source: Advance(offset, 3) for source, offset in self.silent_advance.items()}
        moved.update({source: Advance(first + count, 3) for source, (first, count) in self._open.items()})
        return moved

    def pinned(self) -> AbstractSet[str]:
        return self.pins

    def log_ends(self) -> Mapping[SourcePartition, int]:
        return dict(self.next)

    def serving(self) -> Serving:
        return Serving("client", "it is a fake")

    def begin(self) -> ProducerIdentity:
        self.calls.append("begin")
        return ProducerIdentity(7, self._opens)

    def pump(self, seconds: float) -> Pumped:
        del seconds
        self.clock.sleep(0.02)
        if self.pump_errors:
            raise self.pump_errors.pop(0)
        fetched = self.fetches.pop(0) if self.fetches else {}
        self._taken.append(fetched)
        for source, count in fetched.items():
            first, before = self._open.get(source, (self.next[source], 0))
            self._open[source] = (first, before + count)
            self.next[source] += count
        return Pumped(sum(fetched.values()), 10 * sum(fetched.values()), drained=not self.fetches)

    def speculate(self) -> Flushed | None:
        if self.foreign is None:
            return None
        accounts = [account(source, first, count) for source, (first, count) in self._open.items()]
        return Flushed(
            tuple(replace(one, target_offset=(one.target_offset or 0) - self.foreign) for one in accounts),
            dict(self.advances()),
        )

    def flush(self, seconds: float) -> Flushed:
        del seconds
        self.calls.append("flush")
        if self.seal_error is not None:
            raise self.seal_error
        if self.rejections:
            raise self.rejections.pop(0)
        accounts = tuple(
            replace(
                account(source, first, count),
                dead_letters=self.dead_letters.get(source, ()),
                first_target_offset=self.firsts.get(source),
            )
            for source, (first, count) in self._open.items()
        )
        return Flushed(accounts, dict(self.advances()))

    def has_more(self) -> bool:
        if self.late:
            self.fetches.insert(0, self.late.pop(0))
            return True
        return False

    def write(self, records: Sequence[MetadataRecord]) -> None:
        self._written.extend(records)

    def commit(self) -> CommitOutcome:
        outcome = self.outcomes.pop(0) if self.outcomes else CommitOutcome.CLEAN
        if isinstance(outcome, Exception):
            raise outcome
        self.calls.append("commit")
        self.committed.append(self._written)
        self._taken = []
        self._written = []
        self._open = {}
        if "flush" in self.calls:
            self.silent_advance = {}
        return outcome

    def abort(self) -> None:
        self.calls.append("abort")
        self._written, self._open = [], {}
        self.fetches, self._taken = [*self._taken, *self.fetches], []

    def close(self) -> None:
        self.calls.append("close")


def served_by(plane: Plane) -> PlaneSelector:
    """A lane whose every producer is this plane's."""
    planes = PlaneSelector(0, native=lambda: plane, client=lambda _: plane)
    planes.fall_back("it is a fake")
    return planes


@dataclass
class FakeState:
    """Control and positions as a test wants them."""

    positions: dict[SourcePartition, Position]
    run: str = "new"
    generation: int = 2
    since: tuple[int, ...] = ()

    def read_control(self) -> ControlView:
        layout = Assignment(1, dict.fromkeys(self.positions, 0))
        return ControlView(
            Generation(
                generation=self.generation,
                revision=0,
                run=self.run,
                highest_lane=0,
                assignment=layout,
                timestamp=0,
                since=self.since,
            )
        )

    def read_positions(self) -> Mapping[SourcePartition, Position]:
        return dict(self.positions)

    def state_topics(self) -> StateTopics:
        return StateTopics("eomirror.east.west.positions", 8, "eomirror.east.west.offset-map", 8, "letters")


@dataclass
class FakeTopics:
    """Both clusters' topics: healthy unless a test says otherwise."""

    source: dict[SourcePartition, SourceFacts] = field(default_factory=dict)
    target: dict[SourcePartition, TargetFacts] = field(default_factory=dict)
    ids: dict[str, str | None] = field(default_factory=dict)
    asked: list[tuple[Sequence[str], Sequence[str]]] = field(default_factory=list)
    size_limits: tuple[int, int] = (1_000, 1_000)
    raised: list[tuple[str, int]] = field(default_factory=list)
    raise_error: Exception | None = None

    def facts(
        self, positions: Sequence[Position]
    ) -> Mapping[SourcePartition, tuple[SourceFacts, TargetFacts]]:
        return {
            item.source: (
                self.source.get(item.source, SourceFacts(item.topic_id, 0, 1_000_000)),
                self.target.get(item.source, TargetFacts(item.target_topic_id, 1_000_000)),
            )
            for item in positions
        }

    def request_ids(self, source_topics: Sequence[str], target_topics: Sequence[str]) -> Any:
        self.asked.append((source_topics, target_topics))
        source = {topic: self.ids.get(topic, f"id-{topic}") for topic in source_topics}
        target = {topic: self.ids.get(topic, f"id-{topic}") for topic in target_topics}
        return SimpleNamespace(result=lambda: (source, target))

    def limits(self, source_topic: str, target_topic: str) -> Limits:
        del source_topic, target_topic
        source, target = self.size_limits
        return Limits({"max.message.bytes": str(source)}, {"max.message.bytes": str(target)})

    def raise_limit(self, target_topic: str, size: int) -> None:
        if self.raise_error is not None:
            raise self.raise_error
        self.raised.append((target_topic, size))
        self.size_limits = (self.size_limits[0], size)


@dataclass
class FakeMailbox:
    """Asks the lane to stop once it has reported and the plane has nothing more to do, or to stop or move at once."""

    plane: FakePlane
    idle_looks: int = 1
    moves: bool = False
    stops: bool = False
    reports: list[LaneProgress] = field(default_factory=list)
    additions: list[tuple[AssignedPartition, ...]] = field(default_factory=list)
    releases: list[Released | None] = field(default_factory=list)

    def report(self, progress: LaneProgress) -> None:
        self.reports.append(progress)

    def stop(self) -> StopReason | None:
        if self.moves:
            return StopReason.MOVE
        if self.stops:
            return StopReason.SHUTDOWN
        if not self.reports:
            return None
        more = self.additions or self.releases
        if self.plane.fetches or self.plane.late or more or self.plane.silent_advance:
            return None
        self.idle_looks -= 1
        return StopReason.SHUTDOWN if self.idle_looks < 0 else None

    def added(self) -> tuple[AssignedPartition, ...]:
        return self.additions.pop(0) if self.additions else ()

    def released(self) -> Released | None:
        return self.releases.pop(0) if self.releases else None

    def descriptor(self) -> None:
        """Nothing to wait for."""
