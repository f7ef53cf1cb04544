"""
The owner of the link in the model: the steps of `eomirror.link.owner.LinkOwner`, one per action.

Its decisions are the real ones (`eomirror.link.ownership`, `eomirror.recovery.resolve_hanging`); I/O is the simulated
cluster's, in the steps of `eomirror.link.control_producer` where what it wrote itself was left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim_forgotten import filled_copies, refuse_filled
from sim_lane import SimAttempt, spec_of
from sim_left_open import SimHangingClient
from sim_network import SimProducer
from sim_state import SimState, assigned, meta

from eomirror.errors import LaneError, MirrorError, TransactionFailedError
from eomirror.lane.spec import Released
from eomirror.link.ownership import (
    AfterFencing,
    ClaimDecision,
    after_fencing,
    check_positions,
    is_complete,
    judge_claim,
    moved,
    next_generation,
    revised,
    unpublished,
)
from eomirror.plane.protocol import CommitOutcome, MetadataRecord
from eomirror.records.control import Claim, Generation, decode_control
from eomirror.records.names import LinkNames
from eomirror.records.position import Position, decode_key
from eomirror.recovery.resolve_hanging import HangingResolver

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from sim_world import World

    from eomirror.lane.spec import LaneSpec
    from eomirror.records.control import ControlView
    from eomirror.recovery.hanging import OpenRange
    from eomirror.types import SourcePartition


#: Mutations of a move: its two steps in the wrong order, and without the second.
FENCED_FIRST = "lanes fenced before the move is published"
NOT_FENCED = "lanes not fenced after a move"
#: Of lanes that go on: they are neither fenced nor asked whether they still have their ids.
NOT_ASKED = "partitions given as soon as their lane is told"
MOVES = {FENCED_FIRST, NOT_FENCED, NOT_ASKED}

_TRIES = 5
# steps of the owner for which it waits until lanes that give partitions have claimed the move
_CLAIM_STEPS = 12
# steps of the owner in which another attempt of a lane may come to its first transaction
_BEGUN_STEPS = 12
_MOST_ATTEMPTS = 5
# three seconds, as in `eomirror.link.control_producer`
_HELD_WAITS = 6
_INITIALIZE_TRIES = 3


class SimOwner:
    """One run of a mirror: takes the link, starts lanes, adds partitions, changes the layout."""

    __slots__ = (
        "_attempts", "_hanging_client", "_moving", "_sequence", "_state", "_steps", "_world", "busy", "claims", "dead",
        "extend", "given", "lanes", "layout", "move", "name", "producer", "refused", "relayout", "run", "running",
        "take_over",
    )  # fmt: skip

    def __init__(self, world: World, run: str, lanes: int, *, take_over: bool) -> None:
        self.run = self.name = run
        self.lanes = lanes
        self.dead = self.busy = False
        self.relayout = self.extend = self.running = False
        # new lanes of partitions that are to move
        self.move: dict[SourcePartition, int] = {}
        # what moves, and the lanes that had it, until it has moved
        self._moving: tuple[dict[SourcePartition, int], set[int]] | None = None
        # generation that moved a partition to its lane
        self.given: dict[SourcePartition, int] = {}
        # newest generation that an attempt of each lane has claimed
        self.claims: dict[int, int] = {}
        self.take_over = take_over
        # topics that a lane stopped for a record in them
        self.refused: set[str] = set()
        self.layout: Generation | None = None
        self.producer: SimProducer | None = None
        self._world = world
        self._state = SimState(world, self)
        self._hanging_client = SimHangingClient(world, self)
        self._attempts = 0
        self._sequence = 0
        self._steps = self._life()

    def step(self, world: World) -> None:
        """The next step of its life; a MirrorError ends it, as it ends the program."""
        try:
            what = next(self._steps)
            world.say(self, what)
        except (MirrorError, LaneError) as error:
            # the program ends, and its supervisor starts another run
            world.say(self, "gives up:", error)
            self.dead = True

    def start_lane(self, lane: int) -> SimAttempt:
        """A new attempt; Spark may start one while the one before it still runs."""
        spec = self.next_spec(lane)
        name = f"{self.run}/g{spec.generation}/lane{lane}#{self._attempts}"
        return SimAttempt(self._world, self, spec, name)

    def next_spec(self, lane: int) -> LaneSpec:
        """What the next attempt of a lane is told."""
        layout = self.layout
        assert layout is not None
        self._attempts += 1
        pending = {} if self._moving is None else self._moving[0]
        partitions = tuple(
            assigned(self._world, item, self.given.get(item, 0))
            for item in layout.assignment.of(lane)
            if item.topic not in self.refused and pending.get(item) != lane
        )
        return spec_of(self, lane, self._attempts, partitions, self._world)

    # -- its life --------------------------------------------------------------------------------

    def _life(self) -> Iterator[str]:
        while True:
            yield from self._until_acquired()
            self.running = True
            while not self.relayout:
                moving = self._moving is not None or bool(self.move)
                if moving and not (self.extend and self._world.draw(2)):
                    yield from self._move()
                    continue
                if self.extend:
                    self.extend = False
                    self._extend()
                    yield "extended"
                    continue
                self._start_missing()
                yield "supervised"
            self.relayout = self.running = False
            self._moving = None
            self.move.clear()
            self.given.clear()
            for attempt in self._world.attempts:
                if attempt.owner is self:
                    attempt.mailbox.stopping = True

    def _until_acquired(self) -> Iterator[str]:
        for _ in range(_TRIES):
            try:
                yield from self._acquire()
            except LaneError as error:
                yield f"failed to take the link: {error}"
                if self._superseded():
                    raise MirrorError("another mirror owns the link") from error
            else:
                return
        raise MirrorError("could not take the link")

    def _acquire(self) -> Iterator[str]:
        world, state = self._world, self._state
        claim = self._view(wait_for_open=False).claim
        decision = judge_claim(
            claim, claim, run=self.run, watched=1e9, take_over=self.take_over, is_dead=lambda _: False
        )
        assert decision is ClaimDecision.TAKE
        self.take_over = False
        yield "watched"
        self._initialize()
        yield "initialized"
        if self._is_held():
            # a gap that a lane left open there is ended first, with all that its lane may still do
            newest = self._view(wait_for_open=False).generation
            if newest is not None:
                yield from self._fence(newest.highest_lane)
                yield from self._resolve_hanging(newest.highest_lane)
        view = self._view()
        yield "control read"
        positions = state.read("positions", wait_for_open=False)
        check_positions("l", view, positions, map_has_records=False)
        yield "positions checked"
        known = frozenset() if view.generation is None else view.generation.assignment.known
        torn = unpublished(view, positions).keys()
        known |= torn
        before = [] if view.generation is None else list(view.generation.assignment.partitions)
        generation = next_generation(
            view, run=self.run, lanes=self.lanes, partitions=sorted({*before, *world.first, *torn}),
            now_ms=0,
            above=max((position.generation for position in positions.values()), default=0),
        )  # fmt: skip
        fresh = [item for item in generation.assignment.partitions if item not in known]
        if view.generation is None:
            refuse_filled(world, fresh)
        self._publish(generation, fresh)
        self.layout = generation
        yield f"published generation {generation.generation}"
        yield from self._fence(generation.highest_lane)
        world.fenced_generation = max(world.fenced_generation, generation.generation)
        yield from self._resolve_hanging(generation.highest_lane)

    def _is_held(self) -> bool:
        for _ in range(_HELD_WAITS):
            if not self._hanging_client.open([(LinkNames("l").control_topic, 0)]):
                return False
            self._world.wait(self)
        return True

    def _fence(self, highest: int) -> Iterator[str]:
        for lane in range(highest + 1):
            SimProducer(self._world, self, f"lane-{lane}").init()
            yield f"fenced lane {lane}"

    def _resolve_hanging(self, highest: int) -> Iterator[str]:
        """What lanes of older layouts left open in control and positions; they may never run again."""
        for _ in range(_TRIES):
            mending = HangingResolver(LinkNames("l"), self._hanging_client)
            if not mending.find_hanging_state(
                range(self._world.positions),
                lambda: self._hanging_client.lanes(highest),
                lambda: self._state.read("positions", wait_for_open=False),
            ):
                return
            yield f"ended {mending.end({})}"
        raise TransactionFailedError("what lanes left open stays open, although it was ended")

    def _publish(self, generation: Generation, fresh: Sequence[SourcePartition]) -> None:
        world, producer = self._world, self.producer
        assert producer is not None
        self._sequence += 1
        claim = Claim(
            run=self.run, host="h", pid=1, boot="", started="", sequence=self._sequence, interval_ms=5000,
            released=False, timestamp=0,
        )  # fmt: skip
        records = [
            MetadataRecord("l.control", 0, generation.key(), generation.value()),
            MetadataRecord("l.control", 0, claim.key(), claim.value()),
        ]
        for source in fresh:
            lane = generation.assignment.partitions[source]
            first = Position(
                topic=source.topic, partition=source.partition, offset=world.source[source].start,
                source_cluster_id="S", topic_id=world.topic_ids[source.topic],
                target_topic=f"east.{source.topic}", target_partition=source.partition,
                target_topic_id=f"id-east.{source.topic}", generation=generation.of_lane(lane), lane=lane,
                run=self.run, epoch=0, attempt=0, producer_id=producer.id, producer_epoch=producer.epoch,
                txn=0, timestamp=0,
            )  # fmt: skip
            records.append(MetadataRecord("l.positions", lane % world.positions, first.key(), first.value()))
        producer.begin()
        try:
            for where, items in meta(records, generation.generation).items():
                producer.produce(where, items)
            producer.flush()
            outcome = producer.commit()
        except LaneError:
            producer.abort()
            self.producer = None
            raise
        if outcome is CommitOutcome.SUSPECT and world.mutation != "suspect taken for clean":
            self.producer = None
            return
        for _ in range(_HELD_WAITS):
            if not (found := self._own_hanging(producer)):
                return
            world.wait(self)
        self._end_own(found)
        raise TransactionFailedError("the target left out how the control producer's transaction ended")

    # -- what its own producer left open: `eomirror.link.control_producer` ------------------------

    def _initialize(self) -> None:
        for _ in range(_INITIALIZE_TRIES):
            producer = self.producer = SimProducer(self._world, self, "control")
            producer.init()
            found = self._own_hanging(producer)
            if not found:
                return
            self._end_own(found)
        raise TransactionFailedError("what the control producer left open stays open, although it was ended")

    def _own_hanging(self, producer: SimProducer) -> Sequence[OpenRange]:
        names = LinkNames("l")
        positions = [(names.positions_topic, number) for number in range(self._world.positions)]
        found = self._hanging_client.open([(names.control_topic, 0), *positions])
        return [one for one in found if one.producer_id == producer.id]

    def _end_own(self, found: Sequence[OpenRange]) -> None:
        commit = self._may_commit(found)
        self.producer = None
        self._world.say(self, "ends its own", commit, *(one.where for one in found))
        self._hanging_client.end(None, [one.where for one in found], commit=commit)

    def _may_commit(self, found: Sequence[OpenRange]) -> bool:
        control = LinkNames("l").control_topic
        published = [
            (key, value, "")
            for one in found
            if one.topic == control
            for key, value in self._hanging_client.records(one)
        ]
        keys = [key for one in found if one.topic != control for key, _ in self._hanging_client.records(one)]
        sources = {source for key in keys if not isinstance(source := decode_key(key, where=""), int)}
        view = self._view(wait_for_open=False)
        if published:
            there = sources | self._state.read("positions", wait_for_open=False).keys()
            return is_complete(decode_control(published), view, there)
        known = frozenset() if view.generation is None else view.generation.assignment.known
        return sources <= known

    def _extend(self) -> None:
        world, before = self._world, self.layout
        assert before is not None
        view = self._view()
        if after_fencing(view, run=self.run) is AfterFencing.LEAVE:
            raise MirrorError("another mirror owns the link")
        try:
            if self.producer is None:
                self._initialize()
            # another run may have taken the link between the look and our InitProducerId
            view = self._view()
            if after_fencing(view, run=self.run) is AfterFencing.LEAVE:
                raise MirrorError("another mirror owns the link")
            # a revision whose outcome was not known may have been committed: LinkOwner publishes it again
            before = view.generation if view.generation is not None else before
            fresh = [item for item in world.later if item not in before.assignment.partitions]
            left_out = {copy.item.source for copy in filled_copies(world, fresh)}
            fresh = [item for item in fresh if item not in left_out]
            after = revised(before, fresh, now_ms=0)
            self._publish(after, fresh)
        except LaneError:
            self.extend = True
            self.producer = None
            return
        self.layout = after
        for attempt in world.attempts:
            if attempt.owner is self:
                attempt.mailbox.letters.extend(
                    assigned(world, item)
                    for item in fresh
                    if after.assignment.partitions[item] == attempt.lane and item.topic not in self.refused
                )

    def _move(self) -> Iterator[str]:
        """`LinkOwner.move`, and what the driver does around it: it gives partitions of lanes to others."""
        world, layout = self._world, self.layout
        assert layout is not None
        had = layout.assignment.partitions
        if self._moving is None:
            lanes = {source: lane for source, lane in self.move.items() if had.get(source, lane) != lane}
            self.move.clear()
            if not lanes:
                return
            self._moving = lanes, {had[source] for source in lanes}
        lanes, givers = self._moving
        if len(world.attempts) < _MOST_ATTEMPTS and world.draw(3) == 2:
            # Spark begins a lane again that still runs: either of the two may have the id, or hear of the move
            world.attempts.append(self.start_lane(min(givers)))
            for _ in range(world.draw(_BEGUN_STEPS)):
                yield "lets the lane begin again"
        try:
            if world.mutation == FENCED_FIRST:
                yield from self._fence_some(givers)
            after = self._publish_move(layout, lanes, givers)
            yield f"published generation {after.generation}, which moves {sorted(lanes)}"
            goes_on = world.mutation == NOT_ASKED or (world.mutation not in MOVES and world.draw(2) == 1)
            claimed = goes_on and (yield from self._claimed(after, lanes, givers))
            if not claimed and world.mutation not in {FENCED_FIRST, NOT_FENCED}:
                yield from self._fence_some(givers)
        except LaneError:
            self.producer = None
            yield "could not move partitions yet"
            return
        self._give(after, lanes, givers)
        yield "moved partitions"

    def _claimed(
        self, after: Generation, lanes: dict[SourcePartition, int], givers: set[int]
    ) -> Generator[str, None, bool]:
        """`PartitionMoves`: the lanes that give go on without the partitions; whether all of them claim the move."""
        world = self._world
        # attempts that begin from here on are of the new layout
        self.layout = after
        for attempt in world.attempts:
            # a connection may break before the order is read
            if attempt.owner is self and attempt.lane in givers and world.draw(4) != 3:
                attempt.mailbox.release(Released(frozenset(lanes), after.generation))
        waiting = set(givers)
        for _ in range(_CLAIM_STEPS):
            waiting -= {lane for lane, claimed in self.claims.items() if claimed >= after.generation}
            if not waiting or world.mutation == NOT_ASKED:
                return True
            self._start_missing()
            yield f"waits for claims of {after.generation} by lanes {sorted(waiting)}"
        return False

    def _publish_move(
        self, layout: Generation, lanes: dict[SourcePartition, int], givers: set[int]
    ) -> Generation:
        if self._superseded():
            raise MirrorError("another mirror owns the link")
        if self.producer is None:
            self._initialize()
        view = self._view()
        if after_fencing(view, run=self.run) is AfterFencing.LEAVE:
            raise MirrorError("another mirror owns the link")
        # as for a revision: its outcome may not have been known
        before = view.generation if view.generation is not None else layout
        if all(before.assignment.partitions[item] == lane for item, lane in lanes.items()):
            return before
        after = moved(before, lanes, givers=givers, now_ms=0)
        self._publish(after, ())
        return after

    def _give(self, after: Generation, lanes: dict[SourcePartition, int], givers: set[int]) -> None:
        world = self._world
        self.layout, self._moving = after, None
        self.given.update(dict.fromkeys(lanes, after.generation))
        for lane in givers:
            if world.mutation not in {NOT_FENCED, NOT_ASKED}:
                world.fenced_lanes[lane] = max(world.fenced_lanes.get(lane, 0), after.of_lane(lane))
        for attempt in world.attempts:
            if attempt.owner is self and attempt.lane in set(lanes.values()):
                attempt.mailbox.letters.extend(
                    assigned(world, item, after.generation)
                    for item, lane in lanes.items()
                    if lane == attempt.lane and item.topic not in self.refused
                )

    def _fence_some(self, lanes: set[int]) -> Iterator[str]:
        for lane in sorted(lanes):
            SimProducer(self._world, self, f"lane-{lane}").init()
            yield f"fenced lane {lane}"
        mending = HangingResolver(LinkNames("l"), self._hanging_client)
        layout = self.layout
        assert layout is not None
        if mending.find_hanging_state(
            sorted({lane % self._world.positions for lane in lanes}),
            lambda: {
                producer: lane
                for producer, lane in self._hanging_client.lanes(layout.highest_lane).items()
                if lane in lanes
            },
            lambda: self._state.read("positions", wait_for_open=False),
        ):
            yield f"ended {mending.end({})}"

    def _start_missing(self) -> None:
        assert self.layout is not None
        if self._superseded():
            raise MirrorError("another mirror owns the link")
        if self.producer is None:
            # to renew its claim
            try:
                self._initialize()
            except LaneError:
                self.producer = None
        running = {
            attempt.lane for attempt in self._world.attempts if attempt.owner is self and not attempt.parked
        }
        for lane in range(self.layout.assignment.lanes):
            if lane not in running and self.layout.assignment.of(lane):
                self._world.attempts.append(self.start_lane(lane))

    def _superseded(self) -> bool:
        return after_fencing(self._view(), run=self.run) is AfterFencing.LEAVE

    def _view(self, *, wait_for_open: bool = True) -> ControlView:
        view: ControlView = self._state.read("control", wait_for_open=wait_for_open)
        return view
