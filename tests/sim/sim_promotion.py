"""
A link, its mirrors, and operators who promote it: the world of one schedule of `test_promotion_model`.

Real are the commands (`eomirror.failover.promotion`, its state machine, the fence of writers) and the owner
(`eomirror.link.owner`), with all their decisions and records.  Simulated are the clusters, in the steps that matter
here: the fencing of producers, transactions of lanes, control and positions.  Every call to a cluster is a point at
which other actors go on, an actor dies, or an answer is lost.

An actor that waits inside a call is a thread that is handed the turn (`Thread`), so that two commands overtake each
other in any order; exactly one thread runs at a time.  What is drawn comes from `Choices`, so a seed is a schedule.
"""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sim_world import Choices, Crashed

from eomirror import load_config
from eomirror.errors import FencedError, LaneError, MirrorError, TransactionFailedError
from eomirror.failover import drain, group_reader, promoted_link, promotion, writer_fence
from eomirror.failover.group_moves import plan_moves
from eomirror.failover.machine import Verb
from eomirror.failover.promotion import PromotionOptions
from eomirror.failover.readiness import Facts
from eomirror.failover.writer_fence import FenceMethod, LinkWriterFence
from eomirror.groups.offset_queries import GroupsThere
from eomirror.groups.translation import Translation
from eomirror.kafka.cluster_metadata import TopicFacts
from eomirror.kafka.consumer_groups import Committed, GroupState
from eomirror.kafka.session import LinkSessions
from eomirror.lane.spec import AssignedPartition
from eomirror.link import owned_control
from eomirror.link import owner as owner_module
from eomirror.link.first_positions import FirstPositions
from eomirror.link.owner import LinkOwner
from eomirror.records.control import ControlView, decode_control
from eomirror.records.position import Position, decode_key, decode_position
from eomirror.recovery.copy_end import whole
from eomirror.status.model import LinkStatus
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from eomirror.kafka.consumer_groups import Row
    from eomirror.link.start_checks import StartFacts
    from eomirror.plane.protocol import MetadataRecord
    from eomirror.records.promotion import Promotion
    from eomirror.recovery.copy_end import CopyEnd

__all__ = ["STEPS", "BrokenPromotionError", "PromotionWorld", "installed"]

TOPIC, COPY, GROUP = "a", "east.a", "g"
CONFIG = load_config(
    {
        "clusters": {
            "east": {"bootstrap.servers": "127.0.0.1:1"},
            "west": {"bootstrap.servers": "127.0.0.1:2"},
        },
        "links": [{"name": "l", "source": "east", "target": "west", "topics": [TOPIC], "lanes": 2}],
    }
)
LINK = CONFIG.links[0]
_NEVER = 1e9
_ROUNDS = 400
# partitions in which the group has an offset from the beginning on
_FIRST = 2
# one commit of a promotion in so many fails, or is not answered
_DECIDING = 4
#: Steps of a cutover from its groups to its end.
STEPS = 8
# until the first mirror has the link
_BEFORE = 25


class BrokenPromotionError(AssertionError):
    """A rule does not hold; the text begins with its name."""


class Thread:
    """
    An actor whose code waits inside calls.

    Args:
        world: The world; hands out turns.
        name: For traces.
        life: Called once, in a thread of its own.
    """

    def __init__(self, world: PromotionWorld, name: str, life: Callable[[], None]) -> None:
        self.name = name
        self.killed = self.over = False
        self.failure: BaseException | None = None
        self._world, self._life = world, life
        self._turn, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = False

    def step(self) -> None:
        """Let it run until its next call."""
        before, self._world.current = self._world.current, self
        if not self._started:
            self._started = True
            self._thread.start()
        self._turn.release()
        self._done.acquire()
        self._world.current = before
        if self.failure is not None:
            raise self.failure

    def pause(self) -> None:
        """Called by its own code: others have their turn."""
        if self.killed:
            raise Crashed
        self._done.release()
        self._turn.acquire()
        if self.killed:
            raise Crashed

    def end(self) -> None:
        """Kill it as kill -9 does; nothing that it still calls has an effect."""
        self.killed = True
        if self._started and not self.over:
            self.step()
        self.over = True

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.killed:
                self._life()
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001  raised in the scheduler's thread
            self.failure = error
        self.over = True
        self._done.release()


class PromotionWorld:
    """
    One schedule.

    Args:
        choices: What is drawn.
        trace: Takes what happens in words.
    """

    def __init__(self, choices: Choices, trace: list[str] | None = None) -> None:
        self.draw = choices.draw
        self.trace = trace
        self.now = 0.0
        self.calm = False
        self.current: Thread | None = None
        # the source: records of each partition are 0, 1, 2...; applications may be denied to write
        self.source = {SourcePartition(TOPIC, 0): 3, SourcePartition(TOPIC, 1): 2}
        self.denied = False
        self.fence_epoch = 0
        # the target: (what, state) with a lane's record as its source offset, and state open, shown, or gone
        self.copies: dict[SourcePartition, list[list[Any]]] = {}
        self.lane_epochs: dict[int, int] = {}
        self.open: dict[int, tuple[int, dict[SourcePartition, list[list[Any]]]]] = {}
        self.control: list[tuple[bytes | None, bytes | None, str]] = []
        self._viewed, self._view = 0, ControlView()
        self.control_epoch = 0
        self.positions: dict[SourcePartition, Position] = {}
        # the group's offsets on both sides
        self.read = dict.fromkeys(self.source, 1)
        self.moved: dict[SourcePartition, int] = {}
        self.looked: dict[Thread, dict[SourcePartition, int]] = {}
        self.unfenced = self._lost = False
        self.by: dict[str, Thread] = {}
        self.threads: list[Thread] = []
        self.lanes: list[tuple[str, Iterator[str]]] = []
        self.commands = 0
        self.runs = 0
        # of the clock: a claim that is not renewed meanwhile counts as dead
        self.leaps = 0
        planned = (Verb.CUTOVER, Verb.CUTOVER, Verb.PROMOTE)
        self.verbs = planned if self.draw(2) else (Verb.FAILOVER, *planned)
        # operators who do not know of each other, and applications that write whenever they can
        self.fight = self.draw(2) == 1
        if self.fight:
            self.verbs = planned
        self.mirror()

    # -- what happens ------------------------------------------------------------------------------

    def run(self, actions: int) -> None:
        """
        A storm of ``actions``, then calm until the link is promoted.

        Raises:
            BrokenPromotionError: A rule does not hold.
        """
        try:
            self.calm = True
            for _ in range(_BEFORE):
                self._round()
            self.calm = False
            for _ in range(actions):
                self.act()
            self._settle()
        finally:
            self._end()

    def lose_the_next_decision(self) -> None:
        """The commit of the next promotion is done, and not answered."""
        self._lost = True

    def lift_while_cut_over(self, step: int, lifting: int, pause: int) -> None:
        """
        A cutover, and an operator who lifts its fence; applications write whenever they may.

        Args:
            step: Step of the cutover behind its groups before which the other begins.
            lifting: Steps that the other takes there.
            pause: Steps of the cutover before the other takes the rest; 0 for all.
        """
        try:
            self.calm = True
            for _ in range(_BEFORE):
                self._round()
            self.command(Verb.CUTOVER)
            command, behind = self.threads[-1], -1
            while not command.over:
                behind += bool(self.moved)
                if self.moved and behind == step:
                    self.unfence()
                    self._lift(lifting)
                if pause and behind == step + pause:
                    self._lift(_ROUNDS)
                command.step()
                self._write_if_allowed()
                for at in range(len(self.lanes) - 1, -1, -1):
                    self._lane_step(at)
            self._lift(_ROUNDS)
        finally:
            self._end()

    def _lift(self, steps: int) -> None:
        for thread in self.threads:
            for _ in range(steps):
                if thread.name.endswith("unfence") and not thread.over:
                    thread.step()
                    self._write_if_allowed()

    def _write_if_allowed(self) -> None:
        if self.moved and not self.denied:
            for item in self.source:
                self.source[item] += 1

    def _end(self) -> None:
        for thread in self.threads:
            thread.failure = None
            thread.killed = True
            if not thread.over:
                thread.end()

    def act(self) -> None:
        """One action; 0 is a step of the first actor."""
        self.now += 0.05
        kind = self.draw(100)
        alive = [thread for thread in self.threads if not thread.over]
        if kind < 70 and (alive or self.lanes):
            which = self.draw(len(alive) + len(self.lanes))
            if which < len(alive):
                alive[which].step()
            else:
                self._lane_step(which - len(alive))
        elif kind < 77 or (self.fight and kind < 85):
            self._write()
        elif kind < 82:
            self._read_on()
        elif kind < 83:
            self.leaps += 1
            self.now += (0.5, 3.0, 8.0)[self.draw(3)]
        elif kind < 85 and alive:
            victim = alive[self.draw(len(alive))]
            self.say(f"{victim.name} is killed")
            victim.end()
        elif kind < 87 and self.lanes and self.draw(4) == 3:
            del self.lanes[self.draw(len(self.lanes))]
        else:
            self._start_something(kind, len(alive))

    def _start_something(self, kind: int, alive: int) -> None:
        commands = [one for one in self.threads if not one.over and one.name.startswith("command")]
        if kind < 90 and len(self.source) < 3 and self.draw(8) == 7:
            self.source[SourcePartition(TOPIC, 2)] = 0
            self.read[SourcePartition(TOPIC, 2)] = 0
        elif kind < 94 and alive < 4:
            self.mirror()
        elif len(commands) < 2 + self.fight:
            if self.draw(3 if self.fight else 8) == 1:
                self.unfence()
            else:
                self.command(self.verbs[self.draw(len(self.verbs))])

    def _settle(self) -> None:
        """No more faults: all that runs ends, and one more call promotes the link."""
        self.calm = True
        for _ in range(_ROUNDS):
            commands = [one for one in self.threads if not one.over and one.name.startswith("command")]
            if not commands:
                break
            commands[0].step()
            self.now += 0.2
        else:
            raise BrokenPromotionError("ends: a command does not end")
        if self.view().history.current is None:
            self._heal()
            self.command(Verb.FAILOVER)
            self._until(
                lambda: self.view().history.current is not None,
                "resumes: a second call does not promote the link",
            )
        # the application on the target begins, and so does whatever mirror is still there
        for copy in self.copies.values():
            copy.append(["application", "shown"])
        for _ in range(60):
            self._round()
        self._check_groups()

    def _heal(self) -> None:
        """A mirror that is started again heals what was left, and an operator lifts what a dead command fenced."""
        fence = LinkWriterFence(CONFIG, LINK, FenceMethod(name="acl"), clock=self)
        self._alone("unfence", fence.lift)
        if self.denied:
            raise BrokenPromotionError("undone: applications stay stopped, and no fence is known")
        for thread in self.threads:
            thread.end()
        self.mirror()

        def caught_up() -> bool:
            claim = self.view().claim
            owned = claim is not None and claim.run == f"run{self.runs}"
            at = {item: one.offset for item, one in self.positions.items()}
            return owned and all(at.get(item) == end for item, end in self.source.items())

        self._until(caught_up, "heals: a mirror that starts again does not catch up")

    def _until(self, holds: Callable[[], bool], rule: str) -> None:
        for _ in range(_ROUNDS):
            self._round()
            if holds():
                return
        raise BrokenPromotionError(rule)

    def _round(self) -> None:
        self.now += 0.3
        for thread in [one for one in self.threads if not one.over]:
            thread.step()
        for at in range(len(self.lanes) - 1, -1, -1):
            self._lane_step(at)

    def _alone(self, name: str, call: Callable[[], object]) -> None:
        thread = Thread(self, name, lambda: (call(), None)[1])
        while not thread.over:
            thread.step()

    def say(self, text: str) -> None:
        """Trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:7.2f} {text}")

    # -- applications ------------------------------------------------------------------------------

    def _write(self) -> None:
        if not self.denied:
            items = sorted(self.source)
            self.source[items[self.draw(len(items))]] += 1 + self.draw(2)
            promoted = self.view().history.current
            if promoted is not None and "cutover" in self.by[promoted.run].name and not self.unfenced:
                # the fence of a cutover stands until the user lifts it
                raise BrokenPromotionError(
                    "fence: applications write to the source of a link that was cut over"
                )

    def _read_on(self) -> None:
        items = sorted(self.source)
        item = items[self.draw(len(items))]
        self.read[item] += self.draw(self.source[item] - self.read[item] + 1)

    # -- clock -------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def wall_ms(self) -> int:
        """The same in ms."""
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        """An actor waits: time passes, and others go on."""
        self.now += seconds
        self.point()

    def point(self) -> None:
        """A point between two steps of the actor that runs."""
        assert self.current is not None
        self.current.pause()

    def fate(self, size: int) -> int:
        """Of a write, one in ``size`` each: 0 answered, 1 failed, 2 done but its answer is lost."""
        if self._lost and size == _DECIDING:
            self._lost = False
            return 2
        return 0 if self.calm else max(0, self.draw(size) - size + 3)

    # -- actors ------------------------------------------------------------------------------------

    def mirror(self) -> None:
        """A mirror is started."""
        self.runs += 1
        run, take_over = f"run{self.runs}", self.calm or self.draw(3) == 2
        self.threads.append(Thread(self, run, lambda: self._mirror_life(run, take_over=take_over)))

    def _mirror_life(self, run: str, *, take_over: bool) -> None:
        owner = LinkOwner(
            LINK, *sessions(self), run=run, clock=self, take_over=take_over, hanging_client=None
        )
        try:
            layout = owner.acquire(
                2,
                [AssignedPartition(item, "id-a", COPY, "id-copy") for item in sorted(self.source)],
            )
            for lane, items in layout.lanes.items():
                self.lanes.append(
                    (
                        f"{run}/{lane}",
                        lane_life(self, run, layout.generation, lane, [one.source for one in items]),
                    )
                )
            while True:
                self.point()
                if self.calm or self.draw(6) == 5:
                    owner.renew()
        except (MirrorError, LaneError) as error:
            self.say(f"{run} ends: {error}")
        finally:
            if not self.current_killed():
                owner.close()

    def current_killed(self) -> bool:
        """True if the actor that runs is dead."""
        return self.current is not None and self.current.killed

    def command(self, verb: Verb) -> None:
        """An operator calls a command."""
        self.commands += 1
        thread = Thread(
            self, f"command{self.commands} {verb.value}", lambda: self._command_life(verb, thread)
        )
        self.threads.append(thread)

    def unfence(self) -> None:
        """An operator lifts the fence, whatever happens at the same time."""
        fence = LinkWriterFence(CONFIG, LINK, FenceMethod(name="acl"), clock=self)
        self.commands += 1

        def life() -> None:
            self.unfenced = True
            with contextlib.suppress(MirrorError):
                fence.lift()

        self.threads.append(Thread(self, f"command{self.commands} unfence", life))

    def _command_life(self, verb: Verb, thread: Thread) -> None:
        fence = None
        if verb is Verb.CUTOVER:
            fence = LinkWriterFence(CONFIG, LINK, FenceMethod(name="acl"), clock=self)
        options = PromotionOptions(
            force=True, source_gone=verb is Verb.FAILOVER, patience=20.0, quiet=0.2, fence=fence
        )
        alone = not self.denied and not self._fencing(thread)
        number, leaps = self.commands, self.leaps
        try:
            report = promotion.promote(CONFIG, verb, options=options, clock=self)
        except MirrorError as error:
            self.say(f"{thread.name} raises {error}")
            return
        self.say(f"{thread.name} ends: {report.state}, {report.error}")
        recorded = [one for one in self.view().history.promotions.values() if self.by.get(one.run) is thread]
        if report.promoted != bool(recorded):
            raise BrokenPromotionError(f"truth: {thread.name} says {report.state}, control has {recorded}")
        beaten = report.error is not None and report.error.message.startswith("link l is owned by run")
        if beaten and leaps == self.leaps:
            raise BrokenPromotionError(f"rank: {thread.name} gives way to a mirror: {report.error}")
        alone = alone and number == self.commands
        mirrors = self.view().history.current is None
        if verb is Verb.CUTOVER and report.state == "failed" and alone and self.denied and mirrors:
            raise BrokenPromotionError("undone: a failed cutover leaves applications stopped")

    def _fencing(self, thread: Thread) -> bool:
        """True if another command that fences or lifts runs."""
        return any(
            one is not thread and not one.over and ("cutover" in one.name or "unfence" in one.name)
            for one in self.threads
        )

    def _lane_step(self, at: int) -> None:
        name, life = self.lanes[at]
        try:
            self.say(f"lane {name} {next(life)}")
        except StopIteration:
            del self.lanes[at]

    # -- the target --------------------------------------------------------------------------------

    def view(self) -> ControlView:
        """Control as it is."""
        if self._viewed != len(self.control):
            self._viewed, self._view = len(self.control), decode_control(self.control)
        return self._view

    def copy(self, item: SourcePartition) -> list[list[Any]]:
        """The copy of a partition."""
        return self.copies.setdefault(item, [])

    def init_lane(self, lane: int) -> int:
        """InitProducerId of a lane: aborts what is open, fences older producers."""
        _, held = self.open.pop(lane, (0, {}))
        for item, entries in held.items():
            for entry in entries:
                entry[1] = "gone"
            self.copy(item).append(["marker", "gone"])
        self.lane_epochs[lane] = self.lane_epochs.get(lane, -1) + 1
        return self.lane_epochs[lane]

    def open_transaction(
        self, lane: int, epoch: int, items: Sequence[SourcePartition]
    ) -> dict[SourcePartition, list[list[Any]]]:
        """A lane writes up to two records of each partition; empty if there are none."""
        wrote: dict[SourcePartition, list[list[Any]]] = {}
        for item in items:
            start = self.positions[item].offset
            if end := max(0, min(self.source.get(item, 0), start + 2) - start):
                wrote[item] = [[offset, "open"] for offset in range(start, start + end)]
                self.copy(item).extend(wrote[item])
        if wrote:
            self.open[lane] = epoch, wrote
        return wrote

    def commit_lane(
        self, lane: int, wrote: Mapping[SourcePartition, list[list[Any]]], generation: int, run: str
    ) -> dict[SourcePartition, int]:
        """The transaction of a lane is committed; its positions."""
        del self.open[lane]
        self.check_silent()
        offsets = {}
        for item, entries in wrote.items():
            for entry in entries:
                entry[1] = "shown"
            self.copy(item).append(["marker", "gone"])
            offsets[item] = entries[-1][0] + 1
            self.positions[item] = position(item, offsets[item], generation, lane, run, self.wall_ms())
        return offsets

    def commit_control(self, records: Sequence[MetadataRecord]) -> None:
        """A transaction of the control producer is committed."""
        before = self.view().history
        for record in records:
            if record.topic.endswith(".positions"):
                name = decode_key(record.key or b"", where="")
                assert not isinstance(name, int)
                self.positions[name] = decode_position(name, record.value or b"", where="")
            else:
                self.control.append((record.key or b"", record.value, ""))
        after = self.view().history
        for number in after.promotions.keys() - before.promotions.keys():
            if before.current is not None:
                raise BrokenPromotionError("one decision: a link that is promoted is promoted again")
            self._check_cut(after.promotions[number])
            assert self.current is not None
            self.by[after.promotions[number].run] = self.current

    # -- rules -------------------------------------------------------------------------------------

    def _check_cut(self, found: Promotion) -> None:
        """The cut is what was mirrored; a planned promotion leaves nothing behind."""
        self.say(f"promotion {found.number}, planned {found.planned}")
        for cut in found.cuts:
            entries = self.copy(cut.source)
            mirrored = [what for what, state in entries if state == "shown"]
            if mirrored != list(range(self.positions[cut.source].offset)):
                raise BrokenPromotionError(f"cut: {cut.source} holds {mirrored}")
            if cut.position != self.positions[cut.source].offset:
                raise BrokenPromotionError(f"cut: {cut.source} is cut at {cut.position}")
            if any(state == "open" for _, state in entries):
                raise BrokenPromotionError(f"cut: a transaction is open in {cut.source}")
            if cut.target_end != len(entries):
                raise BrokenPromotionError(f"cut: {cut.source} ends at {len(entries)}, not {cut.target_end}")
        if found.planned:
            cuts = {cut.source: cut.position for cut in found.cuts}
            # what is fenced cannot write behind the last look; who stops writers without a fence promises it
            fenced = self.current is not None and "cutover" in self.current.name
            ends = self.source if fenced else self.looked.get(self.current, {})  # type: ignore[call-overload]
            behind = {item: end for item, end in ends.items() if end > cuts.get(item, 0)}
            if behind:
                raise BrokenPromotionError(f"planned: {behind} lie beyond the cut {cuts}")

    def check_silent(self) -> None:
        """A lane writes: the link must not be promoted."""
        if (found := self.view().history.current) is not None:
            raise BrokenPromotionError(f"silence: a lane commits behind promotion {found.number}")

    def _check_groups(self) -> None:
        """The group skips no record that is in the copy."""
        found = self.view().history.current
        assert found is not None
        for cut in found.cuts:
            at = self.moved.get(cut.source)
            if at is None and cut.source.partition < _FIRST and cut.position:
                raise BrokenPromotionError(f"groups: the group has no offset in {cut.source}")
            skipped = [
                what
                for offset, (what, state) in enumerate(self.copy(cut.source))
                if state == "shown"
                and what != "application"
                and offset < (at or 0)
                and what >= self.read[cut.source]
            ]
            if skipped:
                raise BrokenPromotionError(f"groups: the group skips {skipped} of {cut.source}")


def lane_life(
    world: PromotionWorld, run: str, generation: int, lane: int, items: Sequence[SourcePartition]
) -> Iterator[str]:
    """A lane: attempt after attempt until control has another generation."""
    while True:
        epoch = world.init_lane(lane)
        yield f"has epoch {epoch}"
        view = world.view()
        if view.generation is None or view.generation.generation != generation:
            return
        yield "read control"
        while world.lane_epochs[lane] == epoch:
            wrote = world.open_transaction(lane, epoch, items)
            yield "wrote" if wrote else "idle"
            if wrote and world.lane_epochs[lane] == epoch:
                yield f"committed {world.commit_lane(lane, wrote, generation, run)}"
        yield "is fenced, and starts again"


def position(item: SourcePartition, offset: int, generation: int, lane: int, run: str, now: int) -> Position:
    """A position of a lane, or a first one."""
    return Position(
        topic=item.topic, partition=item.partition, offset=offset, source_cluster_id="S", topic_id="id-a",
        target_topic=COPY, target_partition=item.partition, target_topic_id="id-copy", generation=generation,
        lane=lane, run=run, epoch=1, attempt=1, producer_id=1, producer_epoch=1, txn=1, timestamp=now,
    )  # fmt: skip


# -- what stands for Kafka in the modules under test ------------------------------------------------


class _Admin:
    """The admin client of one side."""

    def __init__(self, world: PromotionWorld, side: str) -> None:
        self._world, self._side = world, side
        self.name = side

    def describe_cluster(self) -> Any:
        return SimpleNamespace(cluster_id=self._side[0].upper())

    def topic_names(self) -> list[str]:
        return [TOPIC]

    def visible_topics(self, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        return self.describe_topics(names), {}

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicFacts | None]:
        numbers = len(self._world.source)
        ids = {TOPIC: "id-a", COPY: "id-copy"}
        return {
            name: TopicFacts(
                name=name, topic_id=ids.get(name, name), partitions=numbers, replication_factor=1
            )
            for name in names
        }

    def offsets(self, asked: Iterable[tuple[str, int]], *, at: str, read_committed: bool) -> dict[Any, int]:
        del read_committed
        world = self._world
        world.point()
        if at == "earliest":
            return {SourcePartition(*where): 0 for where in asked}
        if self._side == "east":
            assert world.current is not None
            found = {SourcePartition(*where): world.source[SourcePartition(*where)] for where in asked}
            world.looked[world.current] = {**world.looked.get(world.current, {}), **found}
            return found
        return {where: len(world.copy(SourcePartition(TOPIC, where[1]))) for where in asked}


class _Session:
    """Connections to one side."""

    def __init__(self, world: PromotionWorld, side: str) -> None:
        self.admin = _Admin(world, side)
        self.cluster = CONFIG.clusters[side]
        self.world = world

    def close(self) -> None:
        """Nothing is open."""


class _State:
    """Control and positions, as `eomirror.link.state.LinkState` reads them."""

    def __init__(self, link: object, target: Any) -> None:
        del link
        self._world: PromotionWorld = target.world

    def control(self, *, wait_for_open: bool = True) -> ControlView:
        del wait_for_open
        self._world.point()
        return self._world.view()

    def positions(self, *, wait_for_open: bool, overruled: object) -> Mapping[SourcePartition, Position]:
        del wait_for_open, overruled
        self._world.point()
        return dict(self._world.positions)

    def positions_partitions(self) -> int:
        return 1

    def map_has_records(self) -> bool:
        return False


class _Topics:
    """The same, as `eomirror.status.topics.StatusTopics` follows them."""

    def __init__(self, target: Any, **_: object) -> None:
        self._world: PromotionWorld = target.world

    def control(self, topic: str) -> tuple[ControlView, list[Any]]:
        del topic
        self._world.point()
        return self._world.view(), []

    def positions(self, topic: str) -> Any:
        del topic
        self._world.point()
        found = dict(self._world.positions)
        return SimpleNamespace(valid=lambda: found)


class _ControlProducer:
    """The control producer: fenced by whichever producer of its id is initialized later."""

    def __init__(self, link: object, target: object, **_: object) -> None:
        del link, target
        self._world = _world()
        self._epoch: int | None = None

    @property
    def ready(self) -> bool:
        return self._epoch is not None

    def initialize(self) -> None:
        self._world.point()
        self._world.control_epoch += 1
        self._epoch = self._world.control_epoch

    def is_held(self) -> bool:
        return False

    def identity(self) -> Any:
        return SimpleNamespace(id=1, epoch=self._epoch)

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        world = self._world
        world.point()
        deciding = any(b"promotion" in (record.key or b"") for record in records)
        fate = world.fate(_DECIDING if deciding else 24)
        if fate == 1:
            self._epoch = None
            raise TransactionFailedError("injected: a broker went away")
        if self._epoch != world.control_epoch:
            self._epoch = None
            raise FencedError("a newer producer of this id is there")
        world.commit_control(records)
        if fate == 2:
            self._epoch = None
            raise TransactionFailedError("injected: the answer is lost")
        world.point()

    publish = commit

    def drop(self) -> None:
        self._epoch = None


class _FenceProducer:
    """The producer of the records about fences."""

    def __init__(self, *_: object, **__: object) -> None:
        self._world = _world()
        self._records: list[MetadataRecord] = []
        self._epoch = 0

    def init(self) -> None:
        self._world.point()
        self._world.fence_epoch += 1
        self._epoch = self._world.fence_epoch

    def begin(self) -> None:
        self._records = []

    def write(self, records: Sequence[MetadataRecord]) -> None:
        self._records += records

    def flush(self, seconds: float) -> None:
        """Nothing waits."""

    def commit(self) -> None:
        self._world.point()
        if self._epoch != self._world.fence_epoch:
            raise FencedError("a newer producer of this id is there")
        self._world.commit_control(self._records)
        self._world.say(f"{self._world.current.name} records {self._records[0].value!r}")

    def close(self) -> None:
        """Nothing is open."""


class _Denials:
    """ACL entries on the source."""

    def __init__(self, *_: object, **__: object) -> None:
        self._world = _world()

    def cluster_id(self) -> str:
        return "east"

    def bare(self, topics: object) -> frozenset[str]:
        del topics
        return frozenset()

    def existing(self) -> frozenset[str]:
        return frozenset({TOPIC} if self._world.denied else ())

    def deny(self, topics: Sequence[str]) -> None:
        self._world.point()
        self._world.denied = self._world.denied or bool(topics)
        self._world.say(f"{self._world.current.name} denies {topics}")

    def allow(self, topics: Sequence[str]) -> None:
        self._world.point()
        if topics:
            self._world.denied = False
        self._world.say(f"{self._world.current.name} allows {topics}")

    def close(self) -> None:
        """Nothing is open."""


class _Groups:
    """The group's offsets on the target."""

    def __init__(self, *_: object, **__: object) -> None:
        self._world = _world()

    def write_all(self, wanted: Mapping[str, Sequence[Row]]) -> dict[str, str]:
        self._world.point()
        for _, number, offset, _ in wanted[GROUP]:
            self._world.moved[SourcePartition(TOPIC, number)] = offset
        return {GROUP: ""}

    def close(self) -> None:
        """Nothing is open."""


class _Nothing:
    """Looks at other links, of which there are none; and the renewal of a claim, which the model leaves out."""

    def __init__(self, *_: object, **__: object) -> None:
        self.refused: dict[str, Any] = {}

    def look(self, *_: object, **__: object) -> None: ...

    refuse = start = stop = look

    def without_refused(self, _: object, asked: StartFacts) -> Sequence[Any]:
        return asked.items

    def fences(self, **_: object) -> tuple[()]:
        return ()


class _Copies:
    """Copies that hold what their positions say, up to their log ends (`sim_disaster` has others)."""

    def __init__(self, _: object, target: Any) -> None:
        self._target = target

    def read(self, positions: Collection[Position], **_: object) -> dict[SourcePartition, CopyEnd]:
        copies = [(one.target_topic, one.target_partition) for one in positions]
        ends = self._target.admin.offsets(copies, at="latest", read_committed=False)
        return {
            one.source: whole(one, one.target_topic_id, ends[one.target_topic, one.target_partition])
            for one in positions
        }


class _Firsts:
    """First positions of new partitions: at their beginning."""

    def __init__(self, *_: object, **kept: Any) -> None:
        self._run, self._names = kept["run"], _[1]

    published_and_adopted = FirstPositions.published_and_adopted

    @staticmethod
    def begun_again(*_: object) -> set[Any]:
        """None: no topic of the model is deleted."""
        return set()

    def records(
        self, generation: Any, partitions: Sequence[Any], known: Any, *, adopt: Any, start: str
    ) -> list[Any]:
        del adopt, start
        found = []
        for one in partitions:
            if one.source not in known:
                lane = generation.assignment.partitions[one.source]
                first = position(one.source, 0, generation.generation, lane, self._run, 0)
                found.append(
                    owner_module.MetadataRecord(self._names.positions_topic, 0, first.key(), first.value())
                )
        return found


_CURRENT: list[PromotionWorld] = []


def _world() -> PromotionWorld:
    return _CURRENT[-1]


def sessions(world: PromotionWorld) -> LinkSessions:
    """Connections to both sides."""
    return LinkSessions(_Session(world, "east"), _Session(world, "west"))  # type: ignore[arg-type]


def _fence(*_: object, **kept: Any) -> None:
    world = _world()
    ids = _[1]
    for name in ids:  # type: ignore[attr-defined]
        world.point()
        world.init_lane(int(name.rpartition(".")[2].removeprefix("lane-")))
    del kept


def _fence_control(*_: object, **kept: Any) -> None:
    del kept
    _world().point()
    _world().control_epoch += 1


def _facts(*_: object, answers: bool, **__: object) -> Facts:
    world = _world()
    world.point()
    view = world.view()
    state = "running" if view.generation is not None else "never ran"
    return Facts(
        status=LinkStatus(link="l", state=state, lag_records=0),
        promotion=view.history.current,
        source_answers=answers,
        now_ms=world.wall_ms(),
    )


class _Reader:
    """Where the group resumes."""

    def __init__(self, *_: object) -> None:
        self._world = _world()

    def moves(self, cuts: Any, history: object, *, answers: bool) -> Any:
        del history, answers
        world = self._world
        world.point()
        rows = []
        for item, offset in world.read.items():
            if not offset:
                continue
            entries = world.copy(item)
            at = next(
                (
                    n
                    for n, (what, state) in enumerate(entries)
                    if state == "shown" and what != "application" and what >= offset
                ),
                None,
            )
            rows.append(
                Translation(
                    link="l", group=GROUP, topic=TOPIC, partition=item.partition, offset=offset, to_topic=COPY,
                    to_partition=item.partition, to_offset=at, kind="unknown" if at is None else "exact",
                )
            )  # fmt: skip
        moved = {(COPY, item.partition): Committed(offset) for item, offset in world.moved.items()}
        placed = {(GROUP, COPY, item.partition): [offset] for item, offset in world.moved.items()}
        there = GroupsThere({GROUP: GroupState("EMPTY", 0, idle=True)}, {GROUP: moved})
        return plan_moves(rows, there, cuts, {(COPY, item.partition): 0 for item in world.copies}, placed)

    def close(self) -> None:
        """Nothing is open."""


def _history(link: object, target: Any) -> Any:
    del link, target
    _world().point()
    return _world().view().history


class _Closing:
    """A session of the fence."""

    def __init__(self, *_: object, **__: object) -> None:
        self.world = _world()

    def close(self) -> None:
        """Nothing is open."""


_RUNS = iter(range(10**9))

_REPLACED: dict[Any, dict[str, Any]] = {
    owner_module: {
        "StartChecks": _Nothing, "FirstPositions": _Firsts,
        "crash_point": lambda _: _world().point(), "still_marking": lambda link, _: link,
        "unmoved": lambda positions, _: positions, "warn_of_lost_deletions": lambda *_: None,
        "refuse_unwritable": lambda *_: None, "is_dead": lambda _: False,
    },
    owned_control: {
        "LinkState": _State, "ControlProducer": _ControlProducer, "fence": _fence,
        "crash_point": lambda _: _world().point(), "refuse_unwritable": lambda *_: None,
    },
    promotion: {
        "source_answers": lambda *_: True, "read_facts": _facts, "LinkState": _State,
        "end_hanging_copies": lambda *_, **__: None, "_Renewal": _Nothing,
        "crash_point": lambda _: _world().point(),
    },
    promoted_link: {
        "link_sessions": lambda *_, **__: sessions(_world()), "CopyEnds": _Copies, "target_hanging_client": None,
        "new_run_id": lambda: f"command-{next(_RUNS)}",
    },
    group_reader: {
        "GroupReader": _Reader, "note_moves": lambda *_: "", "ClusterGroups": _Groups,
        "crash_point": lambda _: _world().point(),
    },
    drain: {"StatusTopics": _Topics},
    writer_fence: {
        "OtherLinks": _Nothing,
        "history_of": _history, "LinkState": _State, "TransactionalProducer": _FenceProducer,
        "WriteDenials": _Denials, "ClusterSession": _Closing, "fence": _fence_control,
    },
}  # fmt: skip


class installed:  # noqa: N801  used like a function
    """
    Replaces what stands for Kafka in the modules under test while the block runs.

    Args:
        mutant: (module or class, name) -> what stands there instead: a safeguard that is switched off.
    """

    def __init__(self, mutant: Mapping[tuple[Any, str], Any] | None = None) -> None:
        self._wanted = [
            (place, name, value) for place, names in _REPLACED.items() for name, value in names.items()
        ]
        self._wanted += [(place, name, value) for (place, name), value in (mutant or {}).items()]
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Callable[[Choices, list[str] | None], PromotionWorld]:
        for place, name, value in self._wanted:
            self._before.append((place, name, getattr(place, name)))
            setattr(place, name, value)
        return self._made

    def __exit__(self, *_: object) -> None:
        for place, name, value in reversed(self._before):
            setattr(place, name, value)
        _CURRENT.clear()

    def _made(self, choices: Choices, trace: list[str] | None = None) -> PromotionWorld:
        world = PromotionWorld(choices, trace)
        _CURRENT[:] = [world]
        return world
