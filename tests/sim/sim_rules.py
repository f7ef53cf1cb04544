"""
The rules, asked of the target's committed view at every decision and at every marker; ids as in design and code.

A transaction is believed when it is decided.  Where its markers were left out it may turn out otherwise: `Oracle.ended`
takes back what was believed of it, and remembers the partitions whose data and position ended differently (EO-8).
Their topic must be stopped by name, with the error that says so, and none of them may go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from sim_kafka import DATA
from sim_left_open import ANYBODYS

from eomirror.records.control import decode_control
from eomirror.records.position import Position, decode_key, decode_position
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sim_kafka import Coordinated, Transaction
    from sim_world import World

    from eomirror.lane.spec import StoppedTopic

#: Id of the rule that everything is mirrored in the end.
STUCK = "EO-progress"

# of the errors that stop a topic for what the target left out or lost, and dropped by it (`eomirror.recovery.hanging`)
_LEFT_OUT = ("the target dropped", "the target has hanging transactions", "the target was truncated")
_TOLD_OF = {_LEFT_OUT[0], _LEFT_OUT[2]}

# what tells how a transaction ended: copies and positions, not what only accompanies them
_TELLING = frozenset({"data", "positions"})


class BrokenRuleError(AssertionError):
    """A schedule broke a rule; ``rule`` is its id."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class UnsolvedError(Exception):
    """A schedule came to what the product neither prevents nor notices yet (docs/adr/0012); it ends there."""


@dataclass(slots=True)
class Step:
    """A committed position, and what came with it instead of records."""

    transaction: Transaction
    position: Position
    gap: tuple[int, int] | None = None
    letters: frozenset[int] = frozenset()


class Oracle:
    """Follows what is committed, from the outside, with every log of the source in its hands."""

    __slots__ = (
        "_shown",
        "_world",
        "back",
        "cut",
        "decided",
        "left_out",
        "menders",
        "steps",
        "torn",
        "unpositioned",
    )

    def __init__(self, world: World) -> None:
        self._world = world
        self.decided: dict[SourcePartition, Position] = {}
        self.steps: dict[SourcePartition, list[Step]] = {}
        # partitions of which data and position ended differently
        self.torn: dict[SourcePartition, str] = {}
        # where positions stand that were rolled back
        self.back: dict[SourcePartition, int] = {}
        # partitions whose copies lost committed records
        self.cut: dict[SourcePartition, str] = {}
        # transactional.id and epoch of producers that only end what was left open
        self.menders: set[tuple[str, int]] = set()
        # partitions whose first position was committed with a layout, and is aborted
        self.unpositioned: set[SourcePartition] = set()
        # topics that were stopped for it
        self.left_out: set[str] = set()
        self._shown: dict[Any, int] = {}

    def decision(self, it: Coordinated) -> None:
        """A transaction is committed, at any party's request: what it holds must be complete on its own."""
        data, positions, gaps, letters, generation = self._sorted(it)
        if it.name != "control" and generation is not None and generation < self._world.fenced_generation:
            raise BrokenRuleError(
                "EO-2",
                f"{it.name} commits for generation {generation}, {self._world.fenced_generation} fenced it",
            )
        if it.name.startswith("lane-") and generation is not None:
            newest = self._world.fenced_lanes.get(int(it.name.removeprefix("lane-")), 0)
            if generation < newest:
                raise BrokenRuleError(
                    "EO-2", f"{it.name} commits for generation {generation}, a move to {newest} fenced it"
                )
        accepted = {(gap.topic, gap.partition, gap.start, gap.end) for gap in decode_control(gaps).gaps}
        for source in {*data, *letters}:
            if source not in positions:
                raise BrokenRuleError(
                    "EO-1", f"{it.name} commits records of {source} without its position: a torn transaction"
                )
        for source, position in positions.items():
            self._position(it, source, position, data.get(source, []), accepted, letters.get(source, []))

    def _sorted(
        self, it: Coordinated
    ) -> tuple[
        dict[Any, list[Any]], dict[Any, Position], list[Any], dict[SourcePartition, list[int]], int | None
    ]:
        data: dict[SourcePartition, list[Any]] = {}
        positions: dict[SourcePartition, Position] = {}
        gaps: list[Any] = []
        letters: dict[SourcePartition, list[int]] = {}
        generation = None
        for where, items in self._world.target.written(it).items():
            if where[0] == "data":
                data[where[1]] = items
                generation = items[0][4]
            elif where[0] == "positions":
                for _, key, value, number in items:
                    source = decode_key(key, where="")
                    if not isinstance(source, int):
                        positions[source] = decode_position(source, value, where="")
                        generation = number
            elif where[0] == "dead-letter":
                for _, key, _, _ in items:
                    body = orjson.loads(key)
                    source = SourcePartition(body["topic"], body["partition"])
                    letters.setdefault(source, []).append(body["offset"])
            elif it.name != "control":
                gaps.extend((key, value, "") for _, key, value, _ in items)
        return data, positions, gaps, letters, generation

    def _position(
        self,
        it: Coordinated,
        source: SourcePartition,
        position: Position,
        items: list[Any],
        accepted: set[Any],
        letters: list[int],
    ) -> None:
        before = self.decided.get(source)
        # what no lane has moved the owner may decide again, where it cannot see whether it was committed
        again = it.name == "control" and before is not None and before.epoch == 0
        if not again and (None if before is None else before.offset) != position.prev:
            raise BrokenRuleError(
                "EO-3",
                f"{it.name} moves {source} from {position.prev} to {position.offset}, "
                f"committed is {None if before is None else before.offset}",
            )
        self._goes_on(it, source, position, items)
        step = Step(it.transaction, position)
        self.decided[source] = position
        self.steps.setdefault(source, []).append(step)
        if position.prev is None:
            self._world.began[source] = position.offset
            return
        if source in self.cut:
            return
        if any(item[2] != position.topic_id for item in items):
            raise BrokenRuleError(
                "EO-5", f"{source}: records of another incarnation than {position.topic_id}"
            )
        if (*source, position.prev, position.offset) in accepted:
            step.gap = position.prev, position.offset
            if items:
                raise BrokenRuleError("EO-6", f"{source}: records in an accepted gap")
            return
        log = self._world.incarnations[position.topic_id, source]
        found = [item[3] for item in items]
        # foreseen and corrected, a letter may be there twice under the same key
        left_out = set(letters)
        if not all(self._world.refuses(source, offset) for offset in left_out):
            raise BrokenRuleError("EO-7", f"{source}: {letters} are left out, which the target would take")
        step.letters = frozenset(left_out)
        readable = log.readable(position.prev, position.offset)
        if not left_out <= set(readable):
            raise BrokenRuleError("EO-7", f"{source}: letters {letters} beside the transaction's records")
        expected = [offset for offset in readable if offset not in left_out]
        if found != expected:
            rule = "EO-7" if len(found) < len(expected) else "EO-1"
            raise BrokenRuleError(
                rule,
                f"{source}: [{position.prev}, {position.offset}) holds {expected}, committed was {found}",
            )

    def _goes_on(
        self, it: Coordinated, source: SourcePartition, position: Position, items: list[Any]
    ) -> None:
        if source in self.torn:
            raise BrokenRuleError("EO-8", f"{it.name} goes on to {position.offset}: {self.torn[source]}")
        if source in self.cut and items:
            # what was acknowledged before the cut is gone, so these were written behind it
            raise BrokenRuleError("EO-5", f"{it.name} goes on to {position.offset}: {self.cut[source]}")

    def visible(self, where: Any, shown: list[Any]) -> None:
        """A read_committed reader sees these now: each record once, in the source's order."""
        if where[0] != "data":
            return
        last = self._shown.get(where, -1)
        for _, item in shown:
            if item[0] != DATA or item[3] <= last:
                raise BrokenRuleError("EO-11", f"{where[1]}: {item[3]} is shown after {last}")
            last = item[3]
        self._shown[where] = last

    def ended(self, where: Any, found: Sequence[tuple[Transaction, Any]], by: Transaction) -> None:
        """What hung in a partition was ended there, by the marker of another transaction."""
        commit = by.commit is True
        if by.asked and (by.name, by.epoch) in self.menders:
            for transaction in {one for one, _ in found}:
                self._mended(where, transaction, commit=commit)
        if where[0] == "data":
            for transaction in {one for one, _ in found}:
                named = next(
                    (shown for name, shown in transaction.hanging.items() if name[0] == "positions"),
                    transaction.commit,
                )
                if named is not None:
                    self._compare(where[1], transaction, data=commit, position=named)
        elif where[0] == "positions":
            for transaction, (_, key, value, _) in found:
                source = decode_key(key, where="")
                if not isinstance(source, int):
                    position = decode_position(source, value, where="")
                    self._position_ended(source, transaction, position, commit=commit)
            if not commit:
                self._take_back_all(found)

    def _mended(self, where: Any, transaction: Transaction, *, commit: bool) -> None:
        """Who ends a transaction on purpose ends it as it ended elsewhere."""
        # what the owner wrote is committed if it is complete, however it ended elsewhere: no run has acted on it
        if where[0] not in _TELLING or commit == transaction.commit or transaction.name == "control":
            return
        elsewhere = {
            transaction.hanging.get(other, transaction.commit)
            for other in transaction.wrote
            if other != where and other[0] in _TELLING
        }
        if transaction.commit in elsewhere and commit not in elsewhere:
            said = "committed" if transaction.commit else "aborted"
            raise BrokenRuleError(
                "EO-8", f"{where} is mended to the opposite of what {transaction.name} has {said} elsewhere"
            )

    def _position_ended(
        self, source: SourcePartition, transaction: Transaction, position: Position, *, commit: bool
    ) -> None:
        data = transaction.hanging.get(("data", source), transaction.commit if position.records else commit)
        if data is not None:
            self._compare(source, transaction, data=data, position=commit)
        latest = self.decided.get(source)
        if commit and not transaction.commit and (latest is None or latest.offset < position.offset):
            self.decided[source] = position
            self.steps.setdefault(source, []).append(Step(transaction, position))
            if position.prev is None:
                self._world.began[source] = position.offset

    def _compare(
        self, source: SourcePartition, transaction: Transaction, *, data: bool, position: bool
    ) -> None:
        if data != position:
            which = "records are shown without their position" if data else "the position lies"
            said = "committed" if transaction.commit else "aborted"
            self.torn[source] = f"{source}: {which}, of a transaction of {transaction.name} that was {said}"
            self._world.say(None, "torn:", self.torn[source])
            if data:
                self._first_of_all(source, transaction)

    def _first_of_all(self, source: SourcePartition, transaction: Transaction) -> None:
        """Before the first position of a lane no reader can tell what is ours in a copy (docs/adr/0012)."""
        steps = self.steps.get(source, [])
        at = next((at for at, step in enumerate(steps) if step.transaction is transaction), len(steps))
        mutated = self._world.mutation not in {"", "poison", ANYBODYS}
        if not mutated and all(step.position.target_offset is None for step in steps[:at]):
            raise UnsolvedError(self.torn[source])

    def _take_back_all(self, found: Sequence[tuple[Transaction, Any]]) -> None:
        # each partition has positions of its own, of one transaction of the owner
        aborted: dict[Any, set[Transaction]] = {}
        for transaction, (_, key, _, _) in found:
            aborted.setdefault(source := decode_key(key, where=""), set()).add(transaction)
            if transaction.name == "control" and transaction.commit and not isinstance(source, int):
                self.unpositioned.add(source)
        for source in aborted.keys() & self.steps.keys():
            self._take_back(source, self.steps[source], aborted[source])

    def _take_back(self, source: SourcePartition, steps: list[Step], aborted: set[Transaction]) -> None:
        """Positions that were believed and are aborted: what was built on them must be aborted with them."""
        first = next((at for at, step in enumerate(steps) if step.transaction in aborted), None)
        if first is None:
            return
        for step in steps[first:]:
            if step.transaction not in aborted:
                raise BrokenRuleError(
                    "EO-3",
                    f"{source}: position {step.position.offset} was built on {steps[first].position.offset}, "
                    "which is aborted",
                )
        del steps[first:]
        if steps:
            self.decided[source] = steps[-1].position
        else:
            del self.decided[source]

    def rolled_back(self, source: SourcePartition, position: Position) -> None:
        """A position is valid again that was followed by others."""
        latest = self.decided[source]
        if latest.target_offset == position.target_offset:
            # what followed it named no records, and is made again
            steps = self.steps[source]
            while steps[-1].position != position:
                steps.pop()
            self.decided[source] = position
        else:
            self.torn[source] = f"{source}: position {latest.offset} was rolled back to {position.offset}"
            self.back[source] = position.offset

    def forget(self) -> None:
        """The state topics are gone: what was decided counts no more, and what was shown stays shown."""
        self.decided.clear()
        self.steps.clear()
        self.unpositioned.clear()
        self.left_out.clear()

    def undecidable(self) -> str:
        """What waits for a person, because no log tells what is right; empty for nothing."""
        if lost := sorted(self.unpositioned - self.decided.keys()):
            return f"control shows the layout that {lost[0]} came with, and its first position was aborted"
        for where, log in self._world.target.logs.items():
            for _, offsets in log.open.values() if where[0] == "positions" else ():
                told = [log.transactions[at] for at in offsets if _names_records(log.entries[at])]
                shown = [one.shown() for one in dict.fromkeys(told) if one is not None]
                if shown and not shown[-1] and any(shown):
                    return f"positions-{where[1]} holds several transactions, of which the last is not shown"
        return ""

    def stopped(self, topics: Mapping[str, StoppedTopic]) -> None:
        """An attempt has stopped topics, and says why."""
        for topic, stop in topics.items():
            text = str(stop)
            if topic in self.left_out or not any(words in text for words in _LEFT_OUT):
                continue
            damaged = {source.topic for source in (*self.torn, *self.cut)}
            if any(words in text for words in _TOLD_OF) and topic not in damaged:
                raise BrokenRuleError("EO-8", f"topic {topic} is stopped for nothing: {text}")
            self.left_out.add(topic)

    def unnoticed(self) -> str:
        """What was torn of a topic that goes on as if nothing were missing; empty for nothing."""
        return self._lie(self._stopped())

    def _lie(self, stopped: Collection[str]) -> str:
        damaged = (*self.torn.items(), *self.cut.items())
        torn = (text for source, text in damaged if source.topic not in stopped)
        return next((f"{text}, and its topic is not stopped" for text in torn), "")

    def _stopped(self) -> set[str]:
        """Topics that go no further."""
        world = self._world
        stopped = set(self.left_out)
        for source, position in self.decided.items():
            log = world.source[source]
            gap = log.start > self.back.get(source, position.offset) and world.on_gap == "stop"
            if log.topic_id != position.topic_id or gap:
                stopped.add(source.topic)
            waiting = log.readable(position.offset, log.stable)
            if world.on_refused != "dead-letter" and any(world.refuses(source, at) for at in waiting):
                stopped.add(source.topic)
        return stopped

    def missing(self) -> str:
        """What is not mirrored yet, of all that can be; empty when everything is."""
        world, stopped = self._world, self._stopped()
        if world.refused_for_good:
            return ""
        # also one that is stopped for its source alone goes no further
        if lie := self._lie(stopped):
            return lie
        layouts = [owner.layout.assignment.partitions for owner in world.owners if owner.layout is not None]
        for source in {**dict.fromkeys(world.first), **self.decided}:
            # no run has asked again for what was added by a revision that failed
            if source.topic in stopped or (
                source not in world.first and not any(source in layout for layout in layouts)
            ):
                continue
            log, latest = world.source[source], self.decided.get(source)
            if latest is None or latest.offset != log.stable:
                return f"{source}: position {None if latest is None else latest.offset}, end {log.stable}"
            seen = [item[3] for _, item in world.target.log(("data", source)).visible]
            steps = self.steps[source]
            lost = [step.gap for step in steps if step.gap is not None]
            letters = frozenset().union(*(step.letters for step in steps))
            first = world.began.get(source, 0)
            wanted = [
                offset
                for offset in log.committed
                if first <= offset < log.stable
                and offset not in letters
                and not any(start <= offset < end for start, end in lost)
            ]
            if seen != wanted:
                return f"{source}: {wanted} wanted, {seen} visible"
        return ""


def _names_records(item: Any) -> bool:
    """Whether a record of the positions topic is a position that came with records."""
    source = decode_key(item[1], where="")
    return not isinstance(source, int) and decode_position(source, item[2], where="").records > 0
