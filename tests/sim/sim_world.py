"""
The world of one schedule: clusters, network, actors, and a scheduler that draws what happens next.

Everything that can differ between two schedules is a number drawn from `Choices`, and 0 is always the dull
one: no fault, go on.  So a schedule is its list of draws; a replay reads the list, and shrinking shortens it.

What happens between two steps of an actor's command happens inside its call (`World.pause`): other actors,
messages, markers, crashes, time.  An actor that was overtaken in the middle of a command goes on when the
overtaking command is over; two commands do not overtake each other crosswise.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

from sim_damage import damage
from sim_forgotten import forget
from sim_kafka import PREPARE_ABORT, PREPARE_COMMIT, SourceLog, Target
from sim_left_open import ALWAYS_ABORTED, ANYBODYS, NOT_LOOKED_FOR, OVERTAKEN
from sim_owner import MOVES, SimOwner
from sim_rules import STUCK, BrokenRuleError, Oracle, UnsolvedError

import eomirror.lane.poison_records
import eomirror.lane.start
import eomirror.lane.transaction
from eomirror.errors import ClusterError, TransactionFailedError
from eomirror.lane.spec import Ending
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim_kafka import Coordinated
    from sim_lane import SimAttempt

    from eomirror.lane.machine import Event, LaneState

    Actor = SimAttempt | SimOwner

_TIMEOUT = 15.0
_OWNER_TOO = bool(os.environ.get("EOMIRROR_SIM_OWNER_TOO"))
# of 16, and all above are for all
_LEAVE_OUT_ONE = 13
_CALM_ROUNDS = 400
_DEPTH = 3


class Crashed(BaseException):
    """The process of an actor is gone."""


class Choices:
    """Draws of a schedule: from a seed, or from a list whose end is followed by zeros."""

    __slots__ = ("_random", "_script", "drawn")

    def __init__(self, seed: int | None = None, script: Sequence[int] = ()) -> None:
        self._random = None if seed is None else random.Random(seed).random
        self._script = iter(script)
        self.drawn: list[int] = []

    def draw(self, size: int) -> int:
        value = next(self._script, 0) % size if self._random is None else int(self._random() * size)
        self.drawn.append(value)
        return value


class Silent:
    """Takes the pump's log lines."""

    def error(self, event: str, **fields: object) -> None:
        del event, fields

    warning = info = debug = error


eomirror.lane.start.log = Silent()
eomirror.lane.transaction.log = Silent()
eomirror.lane.poison_records.log = Silent()

# with poison: every so many offsets of topic b, and the sizes of two kinds of records there
_POISON_EVERY = 13
_POISON_SIZES = (2_000, 5_000)
_SOURCE_LIMIT = 3_000
_TARGET_LIMIT = 1_000


class World:
    """
    One schedule; see the module's docstring.

    Args:
        choices: What happens.
        mutation: The safeguard that is switched off; or what switches off nothing: ``poison``, with which the target
            refuses some records of topic b, and what `sim_damage` takes away.
        trace: Takes what happens in words.
    """

    def __init__(self, choices: Choices, *, mutation: str = "", trace: list[str] | None = None) -> None:
        self.draw = choices.draw
        self.mutation = mutation
        self.trace = trace
        self.now = 0.0
        self.calm = False
        self._depth = 0
        self.network: list[Any] = []
        self.decoded: dict[str, tuple[int, Any]] = {}
        self.target = Target(_TIMEOUT)
        self.oracle = Oracle(self)
        self.target.on_decision = self.oracle.decision
        self.target.on_ended = self.oracle.ended
        self.target.on_visible = self.oracle.visible
        # the target leaves markers out
        forgets = self.draw(4) == 3
        # which breaks a rule on its own now and then (`UnsolvedError`): only beside safeguards that are against it
        beside = {"", "poison", NOT_LOOKED_FOR, ALWAYS_ABORTED, OVERTAKEN, ANYBODYS}
        self.forgetful = forgets and mutation in beside
        # and those of the owner's transactions; not all that follows is solved, or told from what is
        self.owner_too = _OWNER_TOO
        # transactions take more behind the seal
        self.rounds = True
        # a running owner moves partitions between lanes
        self.moves = mutation in {"", "poison", *MOVES}
        # requests to different leaders are carried out in any order
        self.apart = True
        self.positions = 1 + self.draw(2)
        self.on_gap = ("accept", "stop")[self.draw(2)]
        self.poison = mutation == "poison"
        self.on_refused = ("dead-letter", "stop", "raise-limit")[self.draw(3)] if self.poison else "stop"
        self.limits = (_SOURCE_LIMIT, _TARGET_LIMIT)
        self.first = [SourcePartition("a", 0), SourcePartition("a", 1), SourcePartition("b", 0)]
        self.later = [SourcePartition("b", 1)]
        self.topic_ids = {"a": "a1", "b": "b1"}
        self.source = {item: SourceLog(self.topic_ids[item.topic]) for item in [*self.first, *self.later]}
        self.incarnations = {(log.topic_id, item): log for item, log in self.source.items()}
        self.began: dict[SourcePartition, int] = {}
        self.fenced_generation = 0
        # of lanes that gave partitions away since
        self.fenced_lanes: dict[int, int] = {}
        self.attempts: list[SimAttempt] = []
        lanes = 2 if mutation in MOVES else 1 + self.draw(2)
        self.owners = [SimOwner(self, "run1", lanes, take_over=False)]
        self._runs = 1
        self.taken: set[tuple[LaneState, Event]] = set()
        # what this schedule ended with, if that is known and not solved
        self.unsolved = ""
        self.steps = 0
        # the state topics were deleted, and what came then was refused (`sim_forgotten`)
        self.forgotten = self.refused_for_good = False

    # -- what the target refuses -------------------------------------------------------------------

    def size(self, source: SourcePartition, offset: int) -> int:
        """Of a record; most have none to speak of."""
        if not self.poison or source.topic != "b" or offset % _POISON_EVERY != 3:
            return 1
        return _POISON_SIZES[offset // _POISON_EVERY % 2]

    def refuses(self, source: SourcePartition, offset: int) -> bool:
        """Whether the target refuses a record now."""
        return self.size(source, offset) > self.limits[1]

    # -- the clock, for the pump -----------------------------------------------------------------

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    # -- what the edges call -----------------------------------------------------------------------

    def pause(self, actor: Actor) -> None:
        """A point where anything may happen before the actor's next step."""
        if not self.calm and self._depth < _DEPTH and (many := self.draw(20) - 16) > 0:
            self._depth += 1
            for _ in range(many * 4):
                self.act()
            self._depth -= 1
        if actor.dead:
            raise Crashed

    def wait(self, actor: Actor) -> None:
        """The actor waits for brokers or for time."""
        self.pause(actor)
        self.now += 0.5
        self.progress()
        if self.calm:
            self.now += 1

    def progress(self) -> None:
        """Brokers do one thing they have to do."""
        for name in self.target.expire(self.now):
            self.say(None, "transaction of", name, "timed out: aborted, epoch bumped")
        unmarked = self.target.unmarked()
        if unmarked:
            it = unmarked[self.draw(len(unmarked)) if not self.calm else 0]
            which = 0 if self.calm else self.draw(len(it.partitions))
            if not self._leave_out(it, which):
                self.target.write_marker(it, which)

    def _leave_out(self, it: Coordinated, which: int) -> bool:
        """
        Sometimes partitions have no leader when their markers are due: mostly all, as with a single broker.

        Those of the owner's transactions only where a run asks for it (`owner_too`).
        """
        if (
            self.calm
            or not self.forgetful
            or (it.name == "control" and not self.owner_too)
            or (kind := self.draw(16)) < _LEAVE_OUT_ONE
        ):
            return False
        said = {PREPARE_COMMIT: "commit", PREPARE_ABORT: "abort"}[it.state]
        chosen = [it.partitions[which]] if kind == _LEAVE_OUT_ONE else list(it.partitions)
        self.target.leave_out(it, chosen)
        self.say(None, f"markers of {it.name} ({said}) are left out in", *chosen)
        return True

    def trouble(self) -> None:
        """Sometimes a call fails for a reason of its own."""
        if not self.calm and (kind := self.draw(150)) >= 148:
            if kind == 148:
                raise TransactionFailedError("injected: a broker went away")
            raise ClusterError("injected: a right was taken away")

    def fate(self) -> int:
        """Of a request: 0 answered, 1 answer lost, 2 request lost, 3 held in the network."""
        return 0 if self.calm else max(0, self.draw(32) - 28)

    def overtakes(self, queue: Sequence[Any]) -> int:
        """Which of the requests, of the partition each is for, comes next; those for one keep their order."""
        first = {where: at for at, where in reversed(list(enumerate(queue)))}
        if self.calm or not self.apart or len(first) < 2 or self.draw(4) != 3:
            return 0
        heads = sorted(first.values())
        return heads[self.draw(len(heads))]

    def out_of_time(self) -> bool:
        """Whether the library gives a request up after a failed try, its transaction's time being over."""
        return not self.calm and self.draw(3) == 2

    def say(self, actor: Actor | None, *words: object) -> None:
        if self.trace is not None:
            name = "brokers" if actor is None else actor.name
            self.trace.append(f"{self.now:8.2f} {'  ' * self._depth}{name}: {' '.join(map(str, words))}")

    # -- the scheduler -----------------------------------------------------------------------------

    def run(self, actions: int) -> None:
        """
        A storm of ``actions``, then calm until everything is mirrored.

        Raises:
            BrokenRuleError: A rule does not hold.
        """
        try:
            self._storm_and_calm(actions)
        except UnsolvedError as error:
            self.unsolved = str(error)

    def _storm_and_calm(self, actions: int) -> None:
        for _ in range(actions):
            self.act()
        self.calm = True
        self.say(None, "calm: faults stop, what the network still holds arrives")
        while self.network:
            self._deliver(0)
        for log in self.source.values():
            if log.open_from is not None:
                log.finish(commit=True)
        for _ in range(_CALM_ROUNDS):
            self._round()
            if not self.target.unmarked() and not self.oracle.missing():
                return
        if undecidable := self.oracle.undecidable():
            raise UnsolvedError(undecidable)
        rule = "EO-8" if self.oracle.unnoticed() else STUCK
        raise BrokenRuleError(rule, f"after {_CALM_ROUNDS} calm rounds {self.oracle.missing()}")

    def act(self) -> None:
        """One action; 0 is a step of the first actor that is free."""
        self.now += 0.004
        self.steps += 1
        damage(self)

        forget(self)
        kind = self.draw(100)
        if kind < 58:
            self._step_one()
        elif kind < 70:
            self._source_event()
        elif kind < 82:
            self.progress()
        elif kind < 89:
            if self.network:
                self._deliver(self.draw(len(self.network)))
        elif kind < 91:
            self._pass_time()
        elif kind < 93:
            self._crash()
        else:
            self._driver_event(kind - 93)

    def _actors(self) -> list[Actor]:
        return [*self.owners, *self.attempts]

    def _step_one(self) -> None:
        free = [actor for actor in self._actors() if not actor.busy and not actor.dead]
        if free:
            self._step(free[self.draw(len(free))])
        elif not self.owners:
            self._newcomer()

    def _step(self, actor: Actor) -> None:
        actor.busy = True
        try:
            actor.step(self)
        except Crashed:
            self.say(actor, "is dead")
        finally:
            actor.busy = False
            self._bury()

    def _bury(self) -> None:
        for attempt in self.attempts:
            if attempt.next.value == "end" and not attempt.dead and not attempt.busy:
                # a lane that left between two transactions keeps its producer for a while, and may go on with it: at
                # once, or when its successor comes for it
                left = attempt.pump.outcome.ending is Ending.EPOCH and not attempt.pump.stopped
                what = self.draw(3) if left else 0
                attempt.dead = not ((what == 2 and attempt.extend(self)) or (what and attempt.resume(self)))
            if attempt.dead:
                self.taken |= attempt.pump.machine.taken
                attempt.owner.refused |= {
                    topic for topic, stop in attempt.pump.stopped.items() if "refuses" in str(stop)
                }
        self.attempts = [attempt for attempt in self.attempts if not attempt.dead]
        self.owners = [owner for owner in self.owners if not owner.dead]

    def _round(self) -> None:
        self.now += 0.3
        forget(self)
        self.progress()
        if not self.owners:
            self._newcomer()
        for actor in self._actors():
            if not actor.dead:
                self._step(actor)

    def _deliver(self, which: int) -> None:
        what, name, epoch, request = self.network.pop(which)
        answer = request()
        self.say(None, f"late {what} of {name} epoch {epoch} arrives:", answer[0])

    def _pass_time(self) -> None:
        self.now += (0.3, 1.0, 5.0, 20.0)[self.draw(4)]
        self.progress()

    def _crash(self) -> None:
        actors = self._actors()
        if actors:
            victim = actors[self.draw(len(actors))]
            self.say(victim, "is killed")
            victim.dead = True
            self._bury()

    def _newcomer(self) -> None:
        self._runs += 1
        self.owners.append(SimOwner(self, f"run{self._runs}", 1 + self.draw(2), take_over=True))

    def _driver_event(self, kind: int) -> None:  # noqa: C901  one branch for each event
        owners = [owner for owner in self.owners if owner.running]
        if kind == 0 and len(self.owners) < 2:
            if self.draw(3) == 2:
                self._newcomer()
        elif not owners:
            return
        elif kind in {1, 5} and len(self.attempts) < 5:
            owner = owners[self.draw(len(owners))]
            if owner.layout is not None:
                lane = self.draw(owner.layout.assignment.lanes)
                if owner.layout.assignment.of(lane):
                    self.attempts.append(owner.start_lane(lane))
        elif kind in {2, 3} and self.mutation in MOVES:
            # once: the next move would fence who survived this one
            if not owners[0].given:
                self._move_partitions(owners[0])
        elif kind == 2 and self.moves and self.draw(2):
            self._move_partitions(owners[0])
        elif kind == 2:
            owners[0].relayout = True
            owners[0].lanes = 1 + self.draw(3)
        elif kind == 3:
            owners[0].extend = True
        elif kind in {4, 6} and self.attempts:
            self.attempts[self.draw(len(self.attempts))].mailbox.stopping = True

    def _move_partitions(self, owner: SimOwner) -> None:
        if owner.layout is not None and (lanes := owner.layout.assignment.lanes) > 1:
            getter, every = self.draw(lanes), self.draw(2) == 0
            owner.move = {
                source: getter for source in owner.layout.assignment.partitions if every or self.draw(2)
            }

    def _source_event(self) -> None:
        sources = list(self.source)
        source = sources[self.draw(len(sources))]
        log = self.source[source]
        kind = self.draw(40)
        if kind < 24:
            log.append(1 + self.draw(3))
        elif kind < 29:
            log.append_aborted(1 + self.draw(2))
        elif kind < 38:
            if log.open_from is None:
                log.begin()
            else:
                log.finish(commit=self.draw(2) == 0)
        elif kind == 38:
            log.start += self.draw(max(1, log.stable - log.start + 1))
            self.say(None, f"retention: {source} starts at {log.start}")
        elif self.draw(4) == 3:
            self._recreate(source.topic)

    def _recreate(self, topic: str) -> None:
        number = int(self.topic_ids[topic][1:]) + 1
        self.topic_ids[topic] = f"{topic}{number}"
        self.say(None, f"source topic {topic} is deleted and created again")
        for source in self.source:
            if source.topic == topic:
                log = self.source[source] = SourceLog(self.topic_ids[topic])
                log.append(self.draw(12))
                self.incarnations[log.topic_id, source] = log
