"""The edges of the real `LaneRunner` on the simulated clusters: plane and mailbox."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sim_damage import DAMAGED, NOT_COMPARED, SimCopies
from sim_kafka import DATA
from sim_left_open import ALWAYS_ABORTED, NOT_LOOKED_FOR, AbortsCopies, SimHangingClient
from sim_network import SimProducer
from sim_state import SimState, SimTopics, assigned, meta

from eomirror.clock import Deadline
from eomirror.errors import LaneError, MirrorError, OutcomeUnknownError, TransactionFailedError
from eomirror.lane.commit import SpeculativeState
from eomirror.lane.runner import LaneRunner
from eomirror.lane.spec import AssignedPartition, LaneProgress, LaneSpec, Released, StopReason
from eomirror.plane.protocol import (
    Account,
    Advance,
    CommitOutcome,
    Flushed,
    ProducerIdentity,
    Pumped,
    RangeRefusedError,
    RefusedRecord,
    Rejection,
    RejectionReason,
    SendPlan,
    Serving,
)
from eomirror.records.dead_letter import DeadLetter
from eomirror.records.mm2 import Mm2Names
from eomirror.records.names import LinkNames
from eomirror.spark.handover import OVERLAP_SECONDS, is_successor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sim_world import Actor, World

    from eomirror.lane.machine import Command
    from eomirror.plane.protocol import MetadataRecord, Start
    from eomirror.types import SourcePartition

SAID_ONCE = "state foreseen once only"


class SimMailbox:
    """
    What the driver says to one attempt.

    Args:
        claims: What the driver has heard of moves: the newest generation that an attempt of each lane has claimed.
        lane: Lane of the attempt.
    """

    def __init__(self, claims: dict[int, int], lane: int) -> None:
        self.letters: list[AssignedPartition] = []
        self.stopping = False
        self._claims = claims
        self._lane = lane
        self._released: Released | None = None

    def release(self, released: Released) -> None:
        """What is added from here on comes behind it."""
        self._released = released
        self.letters = [item for item in self.letters if item.source not in released.sources]

    def report(self, progress: LaneProgress) -> None:
        self._claims[self._lane] = max(self._claims.get(self._lane, 0), progress.released)

    def stop(self) -> StopReason | None:
        return StopReason.RECONFIGURE if self.stopping else None

    def descriptor(self) -> None:
        """Nothing to wait for."""

    def released(self) -> Released | None:
        released, self._released = self._released, None
        return released

    def added(self) -> tuple[AssignedPartition, ...]:
        letters, self.letters = tuple(self.letters), []
        return letters


class SimPlane:
    """The client plane, the only one of its lane: a consumer that skips what is not committed, and a `SimProducer`."""

    def __init__(self, world: World, actor: Actor, spec: LaneSpec, state: SimState) -> None:
        self._world = world
        self._actor = actor
        self._spec = spec
        self._state = state
        # of the next transaction
        self.generation: Callable[[], int] = lambda: spec.generation
        self._producer: SimProducer | None = None
        self._cursor: dict[SourcePartition, int] = {}
        self._committed: dict[SourcePartition, int] = {}
        self._batch: dict[SourcePartition, list[Any]] = {}
        # of the open transaction: first offset that was fetched, and what is left out
        self._first: dict[SourcePartition, int] = {}
        self._letters: dict[SourcePartition, list[DeadLetter]] = {}
        self._send_plan = SendPlan()
        self._rejection: RangeRefusedError | None = None
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

    def select(self, send_plan: SendPlan) -> SimPlane:
        self._send_plan = send_plan
        return self

    def restart(self) -> None:
        self._cursor.clear()
        self._committed.clear()
        self._forget()

    def start(self, starts: Sequence[Start]) -> None:
        for start in starts:
            self._cursor[start.source] = self._committed[start.source] = start.offset

    def stop(self, sources: Collection[SourcePartition]) -> None:
        for source in sources:
            self._cursor.pop(source, None)
            self._committed.pop(source, None)

    def await_records(self, seconds: float, other: int | None = None) -> bool:
        del other
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
            items = [(DATA, source, topic_id, offset, self.generation()) for offset in sent]
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

    def flush(self, seconds: float) -> Flushed:
        del seconds
        self._world.trouble()
        if self._rejection is not None:
            raise self._rejection
        self._tx.flush()
        fetched = sum(map(len, self._batch.values()))
        if fetched != self._queued and self._world.mutation != "account not checked":
            raise TransactionFailedError(f"EO-7: {fetched} fetched, {self._queued} acknowledged")
        return self._sealed("")

    def speculate(self) -> Flushed | None:
        """Right, wrong, or not to be told: only ever compared with what `flush` says."""
        kind = self._world.draw(3)
        return None if kind == 2 else self._sealed("another writer came between" if kind else "")

    def has_more(self) -> bool:
        world = self._world
        if not world.rounds or world.draw(3) != 2:
            return False
        world.trouble()
        world.say(self._actor, "takes more, behind the seal")
        return True

    def write(self, records: Sequence[MetadataRecord]) -> None:
        self._world.trouble()
        letters = any(record.topic.endswith("dead-letter") for record in records)
        if letters and self._send_plan.whole_dead_letters and self._world.draw(3) == 2:
            raise self._named(next(iter(self._letters)), RejectionReason.DEAD_LETTER)
        for where, items in meta(records, self.generation()).items():
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
        left_out = self._send_plan.left_out.get(source, {})
        for offset in offsets:
            if offset in left_out:
                letter = DeadLetter(
                    source=source, offset=offset, target_topic=f"east.{source.topic}", reason="size", error="",
                    limit="", timestamp=0, key=None, value=None, headers=(), digest="",
                )  # fmt: skip
                self._letters.setdefault(source, []).append(letter)
        sent = [offset for offset in offsets if offset not in left_out]
        if any(self._world.refuses(source, offset) for offset in sent):
            only = sent[0] if len(sent) == 1 and source in self._send_plan.ranges else None
            rejection = self._named(source, RejectionReason.SIZE, only)
            if source in self._send_plan.ranges:
                raise rejection
            self._rejection = self._rejection or rejection
        return sent

    def _range(self, source: SourcePartition, offsets: list[int]) -> list[int]:
        """What of it goes in one range, if the partition is suspected."""
        self._begin = None
        if source not in self._send_plan.ranges:
            return offsets
        end, most = self._send_plan.range_at(source, offsets[0])
        self._begin = offsets[0]
        return [offset for offset in offsets if offset < end][:most]

    def _named(
        self, source: SourcePartition, reason: RejectionReason, only: int | None = None
    ) -> RangeRefusedError:
        self._world.say(self._actor, "is refused", source, reason.value, only)
        record = None
        if only is not None:
            size = self._world.size(source, only)
            record = RefusedRecord(offset=only, timestamp=0, keyless=True, batch_bytes=size)
        return RangeRefusedError(
            Rejection(
                source=source, target_topic=f"east.{source.topic}", reason=reason, words="no",
                begin=self._begin if self._begin is not None else self._committed[source],
                end=self._cursor[source], record=record,
            )
        )  # fmt: skip

    def _sealed(self, digest: str) -> Flushed:
        accounts = tuple(
            Account(
                source=source, target_topic=f"east.{source.topic}", target_partition=source.partition,
                records=len(self._batch[source]), bytes=len(self._batch[source]), dropped={},
                target_offset=self._tx.foreseen(("data", source), len(self._batch[source])),
                source_timestamp=None, first_source_offset=first, offset_map=b"", digest=digest,
                dead_letters=tuple(self._letters.get(source, ())),
                first_target_offset=self._first_acknowledged(source),
            )
            for source, first in self._first.items()
        )  # fmt: skip
        return Flushed(accounts, dict(self.advances()))

    def _first_acknowledged(self, source: SourcePartition) -> int | None:
        if self._world.mutation == NOT_COMPARED:
            return None
        return self._tx.firsts.get(("data", source))

    def _forget(self) -> None:
        self._batch.clear()
        self._first.clear()
        self._letters.clear()
        self._rejection = None
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


class SaysItOnce(SpeculativeState):
    """The mutation: what a transaction has said of a key it does not say again, whatever has become of it."""

    def changed(self, records: Sequence[MetadataRecord]) -> list[MetadataRecord]:
        said = set(self._written)
        super().changed(records)
        return [one for one in records if (one.topic, one.partition, one.key) not in said]


class SimReading:
    """What a lane reads for added partitions while it goes on: at once, and known some steps later."""

    def __init__(self, world: World, read: Callable[[], Any]) -> None:
        self._world = world
        self._found: Any = None
        try:
            self._found = read()
        except (LaneError, MirrorError) as error:
            self._found = error

    def done(self) -> bool:
        return self._world.draw(2) == 1

    def result(self) -> Any:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


class SimAttempt:
    """One attempt of a lane: the real pump, one command at a time."""

    __slots__ = (
        "busy", "dead", "error", "lane", "mailbox", "name", "next", "owner", "parked", "pump", "successor",
    )  # fmt: skip

    def __init__(self, world: World, owner: Any, spec: LaneSpec, name: str) -> None:
        self.name = name
        self.owner = owner
        self.lane = spec.lane
        self.dead = self.busy = self.parked = False
        self.mailbox = SimMailbox(owner.claims, spec.lane)
        # what the driver tells the next epoch, which it makes at the end of this one
        self.successor: LaneSpec | None = None
        state = SimState(world, self, spec)
        plane = SimPlane(world, self, spec, state)
        self.pump = LaneRunner(
            spec,
            planes=plane,
            state=state,
            topics=SimTopics(world, self),
            mailbox=self.mailbox,
            clock=world,
            hanging_client=None if world.mutation == NOT_LOOKED_FOR else SimHangingClient(world, self),
            copies=SimCopies(world) if world.mutation in DAMAGED else None,
            later=lambda read: SimReading(world, read),  # type: ignore[arg-type,return-value]
        )
        plane.generation = lambda: self.pump.generation
        if world.mutation == SAID_ONCE:
            self.pump._transaction._written = SaysItOnce()
        if world.mutation == ALWAYS_ABORTED:
            self.pump._start._resolver = AbortsCopies(LinkNames("l"), SimHangingClient(world, self))
        self.next: Command = self.pump.machine.first()

    def extend(self, world: World) -> bool:
        """Go on behind the epoch's end, once; others are started for the lane meanwhile."""
        if self.parked:
            return False
        world.say(self, "goes on behind its epoch")
        world.taken |= self.pump.machine.taken
        self.parked = True
        self.successor = self._next_spec()
        self.pump.extend(Deadline(OVERLAP_SECONDS, world))
        self.next = self.pump.machine.first()
        return True

    def resume(self, world: World) -> bool:
        """Go on in the next epoch with the same producer, when the driver's table allows it."""
        pump = self.pump
        spec = self.successor or self._next_spec()
        if spec is None or not is_successor(
            pump._epoch.spec, pump.mirrored, spec, generation=pump.generation
        ):
            return False
        world.say(self, "goes on in the next epoch")
        world.taken |= pump.machine.taken
        self.parked, self.successor = False, None
        self.mailbox = SimMailbox(self.owner.claims, self.lane)
        pump.resume(spec, self.mailbox)
        self.next = pump.machine.first()
        return True

    def _next_spec(self) -> LaneSpec | None:
        owner, before = self.owner, self.pump._epoch.spec
        if owner.layout is None or owner.dead or self.lane >= owner.layout.assignment.lanes:
            return None
        return replace(owner.next_spec(self.lane), epoch=before.epoch + 1, attempt=1)

    def step(self, world: World) -> None:
        """Carry out one command, as `LaneRunner.run` does."""
        if world.trace is not None:
            world.say(self, "->", self.next.value)
        event = self.pump._carry_out(self.next)
        if self.pump.stopped:
            world.oracle.stopped(self.pump.stopped)
        self.next = self.pump.machine.step(event)
        if world.trace is not None:
            world.say(self, "<-", event.value, self.pump.outcome.reason)


def spec_of(
    owner: Any, lane: int, attempt: int, partitions: tuple[AssignedPartition, ...], world: World
) -> LaneSpec:
    """What the driver tells an attempt."""
    # each step takes long here, and pauses are short: with the usual intervals rounds would be rare
    interval, pause = (1.0, 0.0) if world.rounds else (0.1, 0.01)
    link = SimpleNamespace(
        state_name="l", name="east->west", commit_interval=interval, commit_interval_min=pause,
        transaction_timeout=15.0, on_gap=world.on_gap, on_refused=world.on_refused, raise_limit_to=None,
        source="east", target="west", offset_syncs="off", mm2_names=Mm2Names(), groups=(), keyed=False,
    )  # fmt: skip
    return LaneSpec(
        link=link, source=None, target=None, source_cluster_id="S", target_cluster_id="T",  # type: ignore[arg-type]
        run=owner.run, generation=owner.layout.of_lane(lane), lane=lane, epoch=1, attempt=attempt,
        seconds=5.0, partitions=partitions,
    )  # fmt: skip


__all__ = [
    "SAID_ONCE", "LaneError", "SimAttempt", "SimState", "assigned", "meta", "spec_of",
]  # fmt: skip
