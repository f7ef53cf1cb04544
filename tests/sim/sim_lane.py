"""The edges of the real `LanePump` on the simulated clusters: plane, state reader, topic comparer, mailbox."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from sim_kafka import DATA, META
from sim_network import SimProducer

from eomirror.errors import ClusterError, LaneError, OutcomeUnknownError, TransactionFailedError
from eomirror.formats.control import ControlView, Generation, decode_control
from eomirror.formats.dead_letter import DeadLetter
from eomirror.kafka.positions import valid_positions
from eomirror.lane.commit import StateTopics
from eomirror.lane.parking import is_successor
from eomirror.lane.plane import (
    Account,
    Advance,
    CommitOutcome,
    ProducerIdentity,
    Pumped,
    Sealed,
    Serving,
    Treatment,
)
from eomirror.lane.pump import LanePump
from eomirror.lane.recover import SourceFacts, TargetFacts
from eomirror.lane.refusal import Ground, Limits, RangeRefusedError, Refusal, RefusedRecord
from eomirror.lane.spec import AssignedPartition, LaneSpec, StopReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim_world import Actor, World

    from eomirror.formats.position import Position
    from eomirror.lane.machine import Command
    from eomirror.lane.plane import MetadataRecord, Start
    from eomirror.types import SourcePartition

CONTROL = ("control", 0)
_READ_WAITS = 80


class SimRecord(NamedTuple):
    """A committed record of a state topic."""

    partition: int
    key: bytes
    value: bytes
    where: str


def assigned(world: World, source: SourcePartition) -> AssignedPartition:
    """A source partition as the driver sees it now."""
    return AssignedPartition(
        source, world.topic_ids[source.topic], f"east.{source.topic}", f"id-east.{source.topic}"
    )


def meta(records: Sequence[MetadataRecord], generation: int) -> dict[Any, list[Any]]:
    """State records by simulated partition; those of the offset map are left out."""
    found: dict[Any, list[Any]] = {}
    for record in records:
        kind = record.topic.rpartition(".")[2]
        if kind != "offset-map":
            found.setdefault((kind, record.partition), []).append(
                (META, record.key, record.value, generation)
            )
    return found


class SimState:
    """Reads the state topics to their ends (rule 3), on behalf of one actor."""

    def __init__(self, world: World, actor: Actor, spec: LaneSpec | None = None) -> None:
        self._world = world
        self._actor = actor
        self._spec = spec
        self.before_fencing: Mapping[SourcePartition, Position] | None = None

    def read(self, kind: str, *, wait_for_open: bool = True) -> Any:
        """Read to the end, then decode as the product does; what was decoded before is not decoded again."""
        world = self._world
        world.pause(self._actor)
        world.trouble()
        names = (
            [CONTROL] if kind == "control" else [("positions", number) for number in range(world.positions)]
        )
        if wait_for_open:
            for name in names:
                log = world.target.log(name)
                end = len(log.entries)
                for _ in range(_READ_WAITS):
                    if log.cursor >= end:
                        break
                    world.wait(self._actor)
                else:
                    raise ClusterError(f"could not read {kind} to the end in time")
        logs = [(name[1], world.target.log(name).visible) for name in names]
        size = sum(len(visible) for _, visible in logs)
        known = world.decoded.get(kind)
        if known is None or known[0] != size:
            records = [
                SimRecord(number, item[1], item[2], f"{kind}-{number}@{offset}")
                for number, visible in logs
                for offset, item in visible
            ]
            known = world.decoded[kind] = (size, _decode(kind, records))
        return known[1]

    def read_control(self) -> ControlView:
        world, spec = self._world, self._spec
        if world.mutation == "control not read" and spec is not None:
            # what the driver told it is all that this attempt believes
            return ControlView(
                Generation(
                    generation=spec.generation, revision=0, run=spec.run, highest_lane=0,
                    assignment=None, timestamp=0,  # type: ignore[arg-type]
                )
            )  # fmt: skip
        view: ControlView = self.read("control")
        return view

    def read_positions(self) -> Mapping[SourcePartition, Position]:
        if self.before_fencing is not None:
            return self.before_fencing
        found: Mapping[SourcePartition, Position] = self.read(
            "positions", wait_for_open=self._world.mutation != "positions to the stable offset"
        )
        return found

    def look_before_fencing(self) -> None:
        """The mutation that rule 2 forbids."""
        self.before_fencing = self.read("positions")

    def state_topics(self) -> StateTopics:
        return StateTopics(
            "eomirror.l.positions",
            self._world.positions,
            "eomirror.l.offset-map",
            1,
            "eomirror.l.dead-letter",
        )


def _decode(kind: str, records: list[SimRecord]) -> Any:
    if kind == "control":
        return decode_control([(item.key, item.value, item.where) for item in records])
    return valid_positions(records)  # type: ignore[arg-type]


class SimTopics:
    """Topics of both clusters as they are at the moment of asking."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    def facts(self, positions: Sequence[Position]) -> dict[SourcePartition, tuple[SourceFacts, TargetFacts]]:
        world = self._world
        world.pause(self._actor)
        world.trouble()
        found = {}
        for position in positions:
            log = world.source[position.source]
            found[position.source] = (
                SourceFacts(log.topic_id, log.start, log.end),
                TargetFacts(
                    position.target_topic_id, len(world.target.log(("data", position.source)).entries)
                ),
            )
        return found

    def ask_ids(self, source_topics: Sequence[str], target_topics: Sequence[str]) -> Any:
        world = self._world
        answer = ({topic: world.topic_ids[topic] for topic in source_topics},
                  {topic: f"id-{topic}" for topic in target_topics})  # fmt: skip
        return SimpleNamespace(result=lambda: answer)

    def limits(self, source_topic: str, target_topic: str) -> Limits:
        del source_topic, target_topic
        self._world.trouble()
        source, target = self._world.limits
        return Limits({"max.message.bytes": str(source)}, {"max.message.bytes": str(target)})

    def raise_limit(self, target_topic: str, size: int) -> None:
        self._world.trouble()
        self._world.say(self._actor, "raises the limit of", target_topic, "to", size)
        self._world.limits = (self._world.limits[0], size)


class SimMailbox:
    """What the driver says to one attempt."""

    def __init__(self) -> None:
        self.letters: list[AssignedPartition] = []
        self.stopping = False

    def report(self, progress: object) -> None:
        del progress

    def stop(self) -> StopReason | None:
        return StopReason.RECONFIGURE if self.stopping else None

    def added(self) -> tuple[AssignedPartition, ...]:
        letters, self.letters = tuple(self.letters), []
        return letters


class SimPlane:
    """The client plane: a consumer that skips what is not committed, and a `SimProducer`."""

    def __init__(self, world: World, actor: Actor, spec: LaneSpec, state: SimState) -> None:
        self._world = world
        self._actor = actor
        self._spec = spec
        self._state = state
        self._producer: SimProducer | None = None
        self._cursor: dict[SourcePartition, int] = {}
        self._committed: dict[SourcePartition, int] = {}
        self._batch: dict[SourcePartition, list[Any]] = {}
        # of the open transaction: first offset that was fetched, and what is left out
        self._first: dict[SourcePartition, int] = {}
        self._letters: dict[SourcePartition, list[DeadLetter]] = {}
        self._treatment = Treatment()
        self._refusal: RangeRefusedError | None = None
        self._begin: int | None = None
        self._queued = 0
        self._sent: list[tuple[Any, list[Any]]] = []

    def open(self) -> ProducerIdentity:
        if self._world.mutation == "positions before fencing":
            self._state.look_before_fencing()
            self._world.pause(self._actor)
        self._world.trouble()
        self._producer = SimProducer(self._world, self._actor, f"lane-{self._spec.lane}")
        return self._producer.init()

    def treat(self, treatment: Treatment) -> None:
        self._treatment = treatment

    def restart(self) -> None:
        self._cursor.clear()
        self._committed.clear()
        self._forget()

    def start(self, starts: Sequence[Start]) -> None:
        for start in starts:
            self._cursor[start.source] = self._committed[start.source] = start.offset

    def await_records(self, seconds: float) -> bool:
        self._world.pause(self._actor)
        self._world.trouble()
        for source in self._cursor:
            if self._read(source, 1):
                return True
        self._world.now += seconds
        return False

    def advances(self) -> Mapping[SourcePartition, Advance]:
        return {
            source: Advance(offset, 1)
            for source, offset in self._cursor.items()
            if offset > self._committed[source]
        }

    def pinned(self) -> frozenset[str]:
        return frozenset()

    def log_ends(self) -> Mapping[SourcePartition, int]:
        return {}

    def serving(self) -> Serving:
        return Serving("client")

    def throttled(self) -> float | None:
        return None

    def begin(self) -> ProducerIdentity:
        self._world.trouble()
        self._forget()
        self._tx.begin()
        return ProducerIdentity(self._tx.id, self._tx.epoch)

    def pump(self, seconds: float) -> Pumped:
        world = self._world
        del seconds
        world.pause(self._actor)
        world.trouble()
        records = 0
        for source in self._cursor:
            offsets = self._read(source, 1 + world.draw(3))
            if not offsets:
                continue
            offsets = self._range(source, offsets)
            topic_id = world.source[source].topic_id
            self._cursor[source] = offsets[-1] + 1
            self._first.setdefault(source, offsets[0])
            sent = self._sift(source, offsets)
            items = [(DATA, source, topic_id, offset, self._spec.generation) for offset in sent]
            self._batch.setdefault(source, []).extend(items)
            records += len(items)
            if world.draw(40) == 39 and items:
                world.say(self._actor, "produce raised for one record of", source)
                items.pop()
            self._queued += len(items)
            if items:
                self._produce(("data", source), items)
        if world.draw(3) == 2:
            self._tx.flush()
        return Pumped(records, records, drained=world.draw(4) != 3)

    def seal(self, seconds: float) -> Sealed:
        del seconds
        self._world.trouble()
        if self._refusal is not None:
            raise self._refusal
        self._tx.flush()
        fetched = sum(map(len, self._batch.values()))
        if fetched != self._queued and self._world.mutation != "account not checked":
            raise TransactionFailedError(f"EO-7: {fetched} fetched, {self._queued} acknowledged")
        return self._sealed("")

    def forecast(self) -> Sealed | None:
        """Right, wrong, or not to be told: only ever compared with what `seal` says."""
        kind = self._world.draw(3)
        return None if kind == 2 else self._sealed("another writer came between" if kind else "")

    def write(self, records: Sequence[MetadataRecord]) -> None:
        self._world.trouble()
        letters = any(record.topic.endswith("dead-letter") for record in records)
        if letters and self._treatment.whole_letters and self._world.draw(3) == 2:
            raise self._named(next(iter(self._letters)), Ground.LETTER)
        for where, items in meta(records, self._spec.generation).items():
            self._produce(where, items)

    def commit(self) -> CommitOutcome:
        world = self._world
        self._tx.flush()
        world.trouble()
        try:
            outcome = self._tx.commit()
        except OutcomeUnknownError:
            if world.mutation == "unknown taken for committed":
                outcome = CommitOutcome.CLEAN
            elif world.mutation == "unknown taken for failed":
                outcome = self._again()
            else:
                raise
        if world.mutation == "suspect taken for clean":
            outcome = CommitOutcome.CLEAN
        self._committed.update(self._cursor)
        self._forget()
        return outcome

    def abort(self) -> None:
        if self._producer is not None:
            self._producer.abort()
        self._forget()

    def close(self) -> None:
        """Nothing runs."""

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _tx(self) -> SimProducer:
        assert self._producer is not None
        return self._producer

    def _produce(self, where: Any, items: list[Any]) -> None:
        self._sent.append((where, items))
        self._tx.produce(where, items)

    def _again(self) -> CommitOutcome:
        sent = list(self._sent)
        self._producer = SimProducer(self._world, self._actor, f"lane-{self._spec.lane}")
        self._producer.init()
        self._producer.begin()
        for where, items in sent:
            self._producer.produce(where, items)
        self._producer.flush()
        return self._producer.commit()

    def _sift(self, source: SourcePartition, offsets: list[int]) -> list[int]:
        """Leave out what is to be left out; the target refuses what it does not take with all that is beside it."""
        left_out = self._treatment.left_out.get(source, {})
        for offset in offsets:
            if offset in left_out:
                letter = DeadLetter(
                    source=source, offset=offset, target_topic=f"east.{source.topic}", reason="size", error="",
                    limit="", timestamp=0, key=None, value=None, headers=(), digest="",
                )  # fmt: skip
                self._letters.setdefault(source, []).append(letter)
        sent = [offset for offset in offsets if offset not in left_out]
        if any(self._world.refuses(source, offset) for offset in sent):
            only = sent[0] if len(sent) == 1 and source in self._treatment.ranges else None
            refusal = self._named(source, Ground.SIZE, only)
            if source in self._treatment.ranges:
                raise refusal
            self._refusal = self._refusal or refusal
        return sent

    def _range(self, source: SourcePartition, offsets: list[int]) -> list[int]:
        """What of it goes in one range, if the partition is suspected."""
        self._begin = None
        if source not in self._treatment.ranges:
            return offsets
        end, most = self._treatment.range_at(source, offsets[0])
        self._begin = offsets[0]
        return [offset for offset in offsets if offset < end][:most]

    def _named(self, source: SourcePartition, ground: Ground, only: int | None = None) -> RangeRefusedError:
        self._world.say(self._actor, "is refused", source, ground.value, only)
        record = None
        if only is not None:
            size = self._world.size(source, only)
            record = RefusedRecord(offset=only, timestamp=0, keyless=True, batch_bytes=size)
        return RangeRefusedError(
            Refusal(
                source=source, target_topic=f"east.{source.topic}", ground=ground, words="no",
                begin=self._begin if self._begin is not None else self._committed[source],
                end=self._cursor[source], record=record,
            )
        )  # fmt: skip

    def _sealed(self, digest: str) -> Sealed:
        accounts = tuple(
            Account(
                source=source, target_topic=f"east.{source.topic}", target_partition=source.partition,
                records=len(self._batch[source]), bytes=len(self._batch[source]), dropped={}, target_offset=None,
                source_timestamp=None, first_source_offset=first, offset_map=b"", digest=digest,
                dead_letters=tuple(self._letters.get(source, ())),
            )
            for source, first in self._first.items()
        )  # fmt: skip
        return Sealed(accounts, dict(self.advances()))

    def _forget(self) -> None:
        self._batch.clear()
        self._first.clear()
        self._letters.clear()
        self._refusal = None
        self._sent.clear()
        self._queued = 0

    def _read(self, source: SourcePartition, limit: int) -> list[int]:
        """Committed offsets from the cursor on; at the end of the partition the cursor moves past what is none."""
        log = self._world.source[source]
        at = self._cursor[source]
        if not log.start <= at <= log.end:
            raise TransactionFailedError(f"{source}: offset {at} is out of range")
        offsets = log.readable(at, log.stable)[:limit]
        if not offsets:
            self._cursor[source] = max(at, log.stable)
        return offsets


class SimAttempt:
    """One attempt of a lane: the real pump, one command at a time."""

    __slots__ = ("busy", "dead", "error", "lane", "mailbox", "name", "next", "owner", "pump")

    def __init__(self, world: World, owner: Any, spec: LaneSpec, name: str) -> None:
        self.name = name
        self.owner = owner
        self.lane = spec.lane
        self.dead = self.busy = False
        self.mailbox = SimMailbox()
        state = SimState(world, self, spec)
        self.pump = LanePump(
            spec,
            plane=SimPlane(world, self, spec, state),
            state=state,
            topics=SimTopics(world, self),
            mailbox=self.mailbox,
            clock=world,
        )
        self.next: Command = self.pump.machine.first()

    def resume(self, world: World) -> bool:
        """Go on in the next epoch with the same producer, when the driver's table allows it."""
        pump, owner = self.pump, self.owner
        layout = owner.layout
        if layout is None or owner.dead or self.lane >= layout.assignment.lanes:
            return False
        spec = replace(owner.next_spec(self.lane), epoch=pump._spec.epoch + 1, attempt=1)
        if not is_successor(pump._spec, pump.mirrored, spec):
            return False
        world.say(self, "goes on in the next epoch")
        world.taken |= pump.machine.taken
        self.mailbox = SimMailbox()
        pump.resume(spec, self.mailbox)
        self.next = pump.machine.first()
        return True

    def step(self, world: World) -> None:
        """Carry out one command, as `LanePump.run` does."""
        if world.trace is not None:
            world.say(self, "->", self.next.value)
        event = self.pump._carry_out(self.next)
        self.next = self.pump.machine.step(event)
        if world.trace is not None:
            world.say(self, "<-", event.value, self.pump.outcome.reason)


def spec_of(
    owner: Any, lane: int, attempt: int, partitions: tuple[AssignedPartition, ...], world: World
) -> LaneSpec:
    """What the driver tells an attempt."""
    link = SimpleNamespace(
        state_name="l", name="east->west", commit_interval=0.1, commit_interval_min=0.01,
        transaction_timeout=15.0, on_gap=world.on_gap, on_refused=world.on_refused, raise_limit_to=None,
        source="east", target="west", offset_syncs="off", groups=(),
    )  # fmt: skip
    return LaneSpec(
        link=link, source=None, target=None, source_cluster_id="S", target_cluster_id="T",  # type: ignore[arg-type]
        run=owner.run, generation=owner.layout.generation, lane=lane, epoch=1, attempt=attempt,
        seconds=5.0, partitions=partitions,
    )  # fmt: skip


__all__ = ["LaneError", "SimAttempt", "SimState", "assigned", "meta", "spec_of"]
