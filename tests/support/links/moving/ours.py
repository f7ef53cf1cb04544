"""Trials of eomirror: the library's answers at random moments, while the mirror is killed again and again."""

from __future__ import annotations

import itertools
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from eomirror import load_config
from eomirror.groups import group_offsets
from support.links.mirrors import CommandMirror
from support.links.moving.flows import PARTITIONS, Flow, create
from support.links.moving.moves import Move, Moves, Place
from support.links.moving.standing import Standing, somewhere
from support.links.moving.traffic import Application, Tail, read_on
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from eomirror.groups import GroupPartition
    from support.links.moving.java import JavaClient
    from support.links.moving.judge import Count, Log

__all__ = ["CONSUMERS", "OurTrials", "Run"]

_PATIENCE_SECONDS = 240.0
_STRIKE = 0.5
CONSUMERS = 4
"""How many consumers of each flow move in a round."""
_READERS = 4
_OTHER = {"east": "west", "west": "east"}


@dataclass(slots=True, kw_only=True)
class Run:
    """
    What came of one run.

    Attributes:
        counts: By teller and kind of flow.
        wrong: Every move that skipped or repeated something, in words.
        kills: SIGKILLs to the mirror's whole process tree.
        aborted: Transactions that applications aborted.
        records: Committed records that they wrote.
        unsure: Answers that had to be waited for.
    """

    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    kills: int = 0
    aborted: int = 0
    records: int = 0
    unsure: int = 0


class OurTrials:
    """
    Four links between two clusters, with a topic of each kind, and consumers that move.

    Args:
        sides: Client properties of ``east`` and ``west``.
        folder: For the mirror's files; made here.
        seed: Everything random follows from it, but for the moments at which signals arrive.
        plane: Of all links.
        tag: Part of every name; unlike that of other runs on these clusters.
        java: Asks MirrorMaker 2's client as well.
    """

    _intervals: ClassVar = {"commit_interval": "50ms"}

    def __init__(
        self, sides: Mapping[str, Mapping[str, Any]], folder: Path, *, seed: int, plane: str, tag: str,
        java: JavaClient | None = None,
    ) -> None:  # fmt: skip
        self._sides = {name: dict(properties) for name, properties in sides.items()}
        self._tag, self._java = tag, java
        self._seed = f"{seed}/{tag}"
        self._rng = random.Random(self._seed)
        self._moves = Moves()
        self._run = Run()
        self._standing = {name: Standing(properties) for name, properties in self._sides.items()}
        self._flows = self._made_flows()
        settings = {
            "clusters": self._mirror_clusters(),
            "links": self._made_links(),
            "defaults": {"lanes": 1, "plane": plane, **self._intervals},
        }
        self._config = load_config(settings)
        self._mirror = CommandMirror(settings, folder)
        self._up = False
        self._left: dict[Place, frozenset[bytes]] = {}
        self._applications: list[Application] = []
        topics = {flow.topic for flow in self._flows}
        self._tails = {
            "east": Tail(self._sides["east"], topics | {f"west.{topic}" for topic in topics}),
            "west": Tail(self._sides["west"], topics | {flow.copy for flow in self._flows}),
        }

    def run(self, rounds: int, *, back: int = 0, on_round: Callable[[str], None] = lambda _: None) -> Run:
        """
        Let consumers move, and judge them.

        Args:
            rounds: How often one consumer of every flow moves to the other side.
            back: How often one moves back, after the applications have moved.
            on_round: Told how far it is.
        """
        try:
            with ExitStack() as stack:
                for tail in self._tails.values():
                    stack.enter_context(tail)
                self._prepare()
                self._start()
                self._trials(rounds, back, on_round)
                self._read_what_is_left()
        except AssertionError as error:
            # what was found until then counts
            self._run.wrong.append(f"broken off: {error}")
        finally:
            for application in self._applications:
                application.finish()
            self._mirror.close()
        self._run.counts, wrong = self._moves.judged(self._log, self._left.get)
        self._run.wrong += wrong
        for side, tail in self._tails.items():
            self._run.wrong += [f"{value!r} is twice in {topic} on {side}" for topic, value in tail.twice]
        self._run.aborted = sum(application.aborted for application in self._applications)
        self._run.records = sum(
            len(log) for application in self._applications for log in application.ledger.values()
        )
        return self._run

    # -- what it is about ------------------------------------------------------------------------

    def _made_flows(self) -> list[Flow]:
        tag = self._tag
        return [
            Flow("prefix, delete", f"{tag}-pd", f"east.{tag}-pd", "delete"),
            Flow("prefix, compact", f"{tag}-pc", f"east.{tag}-pc", "compact"),
            Flow("identity, delete", f"{tag}-id", f"{tag}-id", "delete"),
            Flow("identity, compact", f"{tag}-ic", f"{tag}-ic", "compact"),
            Flow("equal names, written on both sides", f"{tag}-both", f"{tag}-both", "delete", "both"),
        ]

    def _made_links(self) -> list[dict[str, Any]]:
        return [
            self._made_link(f"{self._tag}-{naming}-{source}", source, naming, words)
            for naming, words in (("prefix", "pd|pc"), ("identity", "id|ic|both"))
            for source in ("east", "west")
        ]

    def _made_link(self, name: str, source: str, naming: str, words: str) -> dict[str, Any]:
        return {
            "name": name,
            "source": source,
            "target": _OTHER[source],
            # a pattern, because a topic of the way back need not be there yet
            "topics": [f"{self._tag}-({words})"],
            "naming": naming,
            "groups": [f"{self._tag}-.*"],
        }

    def _mirror_clusters(self) -> dict[str, dict[str, Any]]:
        """The clusters as the mirror sees them."""
        return self._sides

    def _trials(self, rounds: int, back: int, on_round: Callable[[str], None]) -> None:
        for number in range(rounds):
            on_round(f"{self._tag}: move {number + 1} of {rounds}, {self._run.kills} kills")
            self._forward(number)
        self._applications_move()
        for number in range(back):
            on_round(f"{self._tag}: way back {number + 1} of {back}, {self._run.kills} kills")
            self._backward(number)
        self._settle()
        self._ask_java("java, at the end", [move for move in self._moves.made if move.by == "library"])

    # -- the mirror ------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._up:
            self._mirror.start()
            self._up = True

    def _strike(self) -> None:
        if self._up and self._rng.random() < _STRIKE:
            time.sleep(self._rng.uniform(0, 1))
            self._mirror.check()
            self._mirror.kill()
            self._up = False
            self._run.kills += 1

    # -- the applications ------------------------------------------------------------------------

    def _prepare(self) -> None:
        for flow in self._flows:
            create(self._sides["east"], flow.topic, flow.policy)
            self._write("east", flow.topic)
            if flow.written == "both":
                create(self._sides["west"], flow.topic, flow.policy)
                self._write("west", flow.topic)

    def _write(self, side: str, topic: str) -> None:
        application = Application(self._sides[side], topic, PARTITIONS, name=side, seed=self._seed)
        self._applications.append(application)
        application.start()

    def _applications_move(self) -> None:
        """From east to west, when everything has been mirrored; only where both sides write they stay."""
        stay = {flow.topic for flow in self._flows if flow.written == "both"}
        for application in self._applications:
            if application.topic not in stay:
                application.finish()
        self._settle()
        for flow in self._flows:
            if flow.written == "both":
                continue
            if flow.copy != flow.topic:
                create(self._sides["west"], flow.topic, flow.policy)
            self._write("west", flow.topic)

    def _settle(self) -> None:
        """Until the mirror has dealt with everything that the sources hold now, and the tails have seen it."""
        self._start()
        for side, other in _OTHER.items():
            group = f"{self._tag}-settled-{side}-{time.monotonic_ns()}"
            topics = {each.topic for each in self._applications if each.side == side}
            if not topics:
                continue
            ends = {where: end for topic in topics for where, end in self._ends(side, topic).items()}
            self._standing[side].stand(group, ends)
            rows = self._answers(side, re.escape(group), set(ends))
            for row in rows.values():
                place = row.to_topic, row.to_partition
                end = self._standing[other].stable_ends(row.to_topic, [row.to_partition])[row.to_partition]
                wait_for(lambda p=place, e=end, o=other: self._tails[o].reached(*p) >= e, _PATIENCE_SECONDS)

    # -- consumers -------------------------------------------------------------------------------

    def _ends(self, side: str, topic: str) -> dict[tuple[str, int], int]:
        ends = self._standing[side].stable_ends(topic, range(PARTITIONS))
        return {(topic, number): end for number, end in ends.items()}

    def _stand(self, side: str, topic: str, group: str) -> dict[tuple[str, int], int]:
        """A consumer has read some of a topic, and left."""
        ends = self._ends(side, topic)
        offsets = {
            where: somewhere(self._rng, self._log(Place(side, *where)), end) for where, end in ends.items()
        }
        self._standing[side].stand(group, offsets)
        return offsets

    def _forward(self, number: int) -> None:
        time.sleep(self._rng.uniform(0, 0.6))
        stood: dict[str, dict[tuple[str, str, int], tuple[Flow, int]]] = {"east": {}, "west": {}}
        for index, flow in enumerate(self._flows):
            sides = ("east", "west") if flow.written == "both" else ("east",)
            for side, one in itertools.product(sides, range(CONSUMERS)):
                group = f"{self._tag}-there-{number}-{index}-{one}-{side}"
                for where, offset in self._stand(side, flow.topic, group).items():
                    stood[side][group, *where] = (flow, offset)
        self._strike()
        for side, places in stood.items():
            wanted = {(topic, partition) for _, topic, partition in places}
            rows = self._answers(side, f"{self._tag}-there-{number}-.*-{side}", wanted)
            self._enter(side, places, rows)
        self._ask_java(
            "java, at once", [move for move in self._moves.made if f"-there-{number}-" in move.group]
        )

    def _backward(self, number: int) -> None:
        time.sleep(self._rng.uniform(0, 0.6))
        places: dict[tuple[str, str, int], tuple[Flow, int]] = {}
        copies: dict[tuple[str, str, int], tuple[Flow, int]] = {}
        for (index, flow), one in itertools.product(enumerate(self._flows), range(CONSUMERS)):
            group = f"{self._tag}-back-{number}-{index}-{one}"
            for where, offset in self._stand("west", flow.topic, group).items():
                places[group, *where] = (flow, offset)
            if flow.copy != flow.topic:
                for where, offset in self._stand("west", flow.copy, group).items():
                    copies[group, *where] = (flow, offset)
        self._strike()
        pattern = f"{self._tag}-back-{number}-.*"
        rows = self._answers("west", pattern, {where[1:] for where in places})
        self._enter("west", places, rows)
        rows = self._answers("west", pattern, {where[1:] for where in copies}, reverse=True)
        self._enter("west", copies, rows)

    def _answers(
        self, side: str, pattern: str, wanted: Any, *, reverse: bool = False
    ) -> dict[tuple[str, str, int], GroupPartition]:
        """What the library says of the groups of one side, once it knows all of it."""
        links = [
            each.name for each in self._config.links if (each.target if reverse else each.source) == side
        ]
        wanted = {tuple(where) for where in wanted}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        waited = False
        while True:
            rows = {
                (row.group, row.topic, row.partition): row
                for link in links
                for row in group_offsets(self._config, groups=pattern, link=link, reverse=reverse)
                if (row.topic, row.partition) in wanted
            }
            missing = wanted - {where[1:] for where in rows}
            unknown = [
                row
                for row in rows.values()
                if row.to_offset is None
                and ("mirrored yet" in row.skipped or "never mirrored" in row.skipped)
            ]
            if not missing and not unknown:
                self._run.unsure += waited
                return rows
            assert time.monotonic() < deadline, (missing, unknown, self._mirror.tree.last_lines())
            waited = True
            self._start()
            self._mirror.check()
            time.sleep(0.3)

    def _enter(
        self,
        side: str,
        stood: Mapping[tuple[str, str, int], tuple[Flow, int]],
        rows: Mapping[tuple[str, str, int], GroupPartition],
    ) -> None:
        """The consumers go on where they were told, and read."""
        other = _OTHER[side]
        by_group: dict[str, dict[tuple[str, int], int]] = {}
        starts = {}
        for where, row in rows.items():
            start = row.to_offset
            if start is None:
                # before the first record that was ever mirrored: the answer is to begin at the beginning
                start = self._standing[other].start(row.to_topic, row.to_partition)
            starts[where] = start
            by_group.setdefault(where[0], {})[row.to_topic, row.to_partition] = start
        with ThreadPoolExecutor(_READERS) as readers:
            reading = {
                group: readers.submit(read_on, self._sides[other], group, places)
                for group, places in by_group.items()
            }
        saw = {group: each.result() for group, each in reading.items()}
        assert rows.keys() >= stood.keys(), stood.keys() - rows.keys()
        for where, (flow, read_to) in stood.items():
            row = rows[where]
            assert row.offset == read_to, (row, read_to)
            kind = flow.kind if side == "east" else f"{flow.kind}, back"
            if side == "west" and flow.copy != flow.topic:
                kind += " from the copy" if row.topic == flow.copy else " from its own topic"
            to = Place(other, row.to_topic, row.to_partition)
            self._moves.made.append(
                Move(
                    "library", kind, where[0], Place(side, *where[1:]), read_to, to, starts[where],
                    getattr(row, "again", 0), saw[where[0]][row.to_topic, row.to_partition],
                )
            )  # fmt: skip

    def _ask_java(self, by: str, moves: Sequence[Move]) -> None:
        """What RemoteClusterUtils says of consumers that the library has moved; an older answer is none."""
        if self._java is None:
            return
        for side, other in _OTHER.items():
            # of a copy that is read on the way back no checkpoint speaks, and none is exact where both sides write
            mine = [
                move
                for move in moves
                if move.by == "library"
                and move.origin.side == side
                and "copy" not in move.kind
                and "both" not in move.kind
            ]
            if not mine:
                continue
            told = self._java.translate(self._sides[other], side, f"{self._tag}-.*")
            for move in mine:
                start = told.get(move.group, {}).get((move.to.topic, move.to.partition))
                self._moves.made.append(
                    Move(by, move.kind, move.group, move.origin, move.read_to, move.to, start)
                )

    # -- what the judge asks ---------------------------------------------------------------------

    def _log(self, place: Place) -> Log:
        log = self._tails[place.side].log(place.topic, place.partition)
        for application in self._applications:
            if application.side == place.side and application.topic == place.topic:
                log |= application.ledger[place.partition]
        return log

    def _read_what_is_left(self) -> None:
        """Compacted logs, as they are in the end."""
        for flow in self._flows:
            if flow.policy != "compact":
                continue
            for side, topic in (
                ("east", flow.topic),
                ("west", flow.copy),
                ("west", flow.topic),
                ("east", f"west.{flow.topic}"),
            ):
                for number in range(PARTITIONS):
                    place = Place(side, topic, number)
                    if not self._tails[side].log(topic, number) or place in self._left:
                        continue
                    start = self._standing[side].start(topic, number)
                    read = read_on(self._sides[side], "left", {(topic, number): start}, most=10**9)
                    self._left[place] = frozenset(read[topic, number])
