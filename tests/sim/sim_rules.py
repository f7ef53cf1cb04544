"""The rules, asked of the target's committed view at every decision and at every marker; ids as in design and code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from sim_kafka import DATA

from eomirror.formats.control import decode_control
from eomirror.formats.position import Position, decode_key, decode_position
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from sim_kafka import Coordinated
    from sim_world import World


class BrokenRuleError(AssertionError):
    """A schedule broke a rule; ``rule`` is its id."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Oracle:
    """Follows what is committed, from the outside, with every log of the source in its hands."""

    __slots__ = ("_shown", "_world", "decided", "gaps", "letters")

    def __init__(self, world: World) -> None:
        self._world = world
        self.decided: dict[SourcePartition, Position] = {}
        self.gaps: dict[SourcePartition, list[tuple[int, int]]] = {}
        self.letters: dict[SourcePartition, set[int]] = {}
        self._shown: dict[Any, int] = {}

    def decision(self, it: Coordinated) -> None:
        """A transaction is committed, whoever asked for it: what it holds must be complete by itself."""
        data, positions, gaps, letters, generation = self._sorted(it)
        if it.name != "control" and generation is not None and generation < self._world.fenced_generation:
            raise BrokenRuleError(
                "EO-2",
                f"{it.name} commits for generation {generation}, {self._world.fenced_generation} fenced it",
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
        if (None if before is None else before.offset) != position.prev:
            raise BrokenRuleError(
                "EO-3",
                f"{it.name} moves {source} from {position.prev} to {position.offset}, "
                f"committed is {None if before is None else before.offset}",
            )
        self.decided[source] = position
        if position.prev is None:
            self._world.began[source] = position.offset
            return
        if any(item[2] != position.topic_id for item in items):
            raise BrokenRuleError(
                "EO-5", f"{source}: records of another incarnation than {position.topic_id}"
            )
        if (*source, position.prev, position.offset) in accepted:
            self.gaps.setdefault(source, []).append((position.prev, position.offset))
            if items:
                raise BrokenRuleError("EO-6", f"{source}: records in an accepted gap")
            return
        log = self._world.incarnations[position.topic_id, source]
        found = [item[3] for item in items]
        # foreseen and corrected, a letter may be there twice under the same key
        left_out = set(letters)
        if not all(self._world.refuses(source, offset) for offset in left_out):
            raise BrokenRuleError("EO-7", f"{source}: {letters} are left out, which the target would take")
        self.letters.setdefault(source, set()).update(left_out)
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

    def missing(self) -> str:
        """What is not mirrored yet, of all that can be; empty when everything is."""
        world = self._world
        stopped = set()
        for source, position in self.decided.items():
            log = world.source[source]
            gap = log.start > position.offset and world.on_gap == "stop"
            if log.topic_id != position.topic_id or gap:
                stopped.add(source.topic)
            waiting = log.readable(position.offset, log.stable)
            if world.on_refused != "dead-letter" and any(world.refuses(source, at) for at in waiting):
                stopped.add(source.topic)
        for source in {**dict.fromkeys(world.first), **self.decided}:
            if source.topic in stopped:
                continue
            log, latest = world.source[source], self.decided.get(source)
            if latest is None or latest.offset != log.stable:
                return f"{source}: position {None if latest is None else latest.offset}, end {log.stable}"
            seen = [item[3] for _, item in world.target.log(("data", source)).visible]
            lost = self.gaps.get(source, [])
            first = world.began.get(source, 0)
            wanted = [
                offset
                for offset in log.committed
                if first <= offset < log.stable
                and offset not in self.letters.get(source, ())
                and not any(start <= offset < end for start, end in lost)
            ]
            if seen != wanted:
                return f"{source}: {wanted} wanted, {seen} visible"
        return ""
