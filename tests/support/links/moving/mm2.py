"""The same trials with a real MirrorMaker 2, exactly-once on: what RemoteClusterUtils and its group sync say."""

from __future__ import annotations

import itertools
import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from support.clusters.mm2 import MirrorMaker
from support.links.moving.flows import PARTITIONS, Flow, create
from support.links.moving.moves import Move, Moves, Place
from support.links.moving.ours import CONSUMERS, Run
from support.links.moving.standing import Standing, somewhere
from support.links.moving.traffic import Application, Tail
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from support.links.moving.java import JavaClient
    from support.links.moving.judge import Log

__all__ = ["Mm2Trials"]

_PATIENCE_SECONDS = 240.0
# after the copy has caught up with a group: five of its intervals for checkpoints
_GRACE_SECONDS = 5.0
_STRIKE = 0.5


class Mm2Trials:
    """
    One flow of MirrorMaker 2 with a topic of each policy, and consumers that move.

    Intervals of checkpoints, group offsets and groups are one second instead of one and ten minutes, which is in its
    favour; an answer is asked for when the copy has caught up with the group, and five seconds have passed.

    Args:
        sides: Client properties of ``east`` and ``west``.
        folder: For its files; exists.
        seed: Everything random follows from it, but for the moments at which signals arrive.
        tag: Its alias of the source, and part of every name.
        lag: ``offset.lag.max``; 100 is the default, 0 a sync for every record.
        java: MirrorMaker 2's client.
    """

    def __init__(
        self, sides: Mapping[str, Mapping[str, Any]], folder: Path, *, seed: int, tag: str, lag: int,
        java: JavaClient,
    ) -> None:  # fmt: skip
        self._east, self._west = dict(sides["east"]), dict(sides["west"])
        self._tag, self._java, self._seed = tag, java, f"{seed}/{tag}"
        self._rng = random.Random(self._seed)
        self._moves, self._run = Moves(), Run()
        self._standing = {"east": Standing(self._east), "west": Standing(self._west)}
        self._flows = [
            Flow("prefix, delete", f"{tag}-pd", f"{tag}.{tag}-pd", "delete"),
            Flow("prefix, compact", f"{tag}-pc", f"{tag}.{tag}-pc", "compact"),
        ]
        self._maker = MirrorMaker(
            self._east["bootstrap.servers"], self._west["bootstrap.servers"], tag,
            ",".join(flow.topic for flow in self._flows), folder, exactly_once=True,
            settings={
                "groups": f"{tag}-.*",
                "emit.checkpoints.interval.seconds": "1",
                "sync.group.offsets.enabled": "true",
                "sync.group.offsets.interval.seconds": "1",
                "refresh.groups.interval.seconds": "1",
                "offset.lag.max": str(lag),
            },
        )  # fmt: skip
        self._applications: list[Application] = []
        self._tail = Tail(self._west, [flow.copy for flow in self._flows])

    def run(self, rounds: int, *, on_round: Callable[[str], None] = lambda _: None) -> Run:
        """Let consumers move, and judge them."""
        with ExitStack() as stack:
            stack.enter_context(self._tail)
            for flow in self._flows:
                create(self._east, flow.topic, flow.policy)
                self._applications.append(
                    stack.enter_context(
                        Application(self._east, flow.topic, PARTITIONS, name="east", seed=self._seed)
                    )
                )
            stack.callback(self._maker.kill)
            self._maker.start()
            for number in range(rounds):
                on_round(f"{self._tag}: move {number + 1} of {rounds}, {self._run.kills} kills")
                self._forward(number)
            time.sleep(_GRACE_SECONDS)
            first = [move for move in self._moves.made if move.by == "mm2, at once"]
            self._ask("mm2, at the end", first)
            self._ask_groups(first)
        self._run.counts, self._run.wrong = self._moves.judged(self._log, lambda _: None)
        self._run.wrong += [f"{value!r} is twice in {topic}" for topic, value in self._tail.twice]
        self._run.aborted = sum(application.aborted for application in self._applications)
        self._run.records = sum(
            len(log) for application in self._applications for log in application.ledger.values()
        )
        return self._run

    def _forward(self, number: int) -> None:
        time.sleep(self._rng.uniform(0, 0.6))
        moves = []
        for (index, flow), one in itertools.product(enumerate(self._flows), range(CONSUMERS)):
            group = f"{self._tag}-there-{number}-{index}-{one}"
            ends = self._standing["east"].stable_ends(flow.topic, range(PARTITIONS))
            offsets = {}
            for partition, end in ends.items():
                log = self._applications[index].ledger[partition]
                offsets[flow.topic, partition] = somewhere(self._rng, dict(log), end)
            self._standing["east"].stand(group, offsets)
            moves += [
                Move(
                    "", flow.kind, group, Place("east", *where), offset,
                    Place("west", flow.copy, where[1]), None,
                )
                for where, offset in offsets.items()
            ]  # fmt: skip
        if self._rng.random() < _STRIKE:
            time.sleep(self._rng.uniform(0, 1))
            self._maker.check()
            self._maker.kill()
            self._maker.start()
            self._run.kills += 1
        wait_for(lambda: all(self._caught_up(move) for move in moves), _PATIENCE_SECONDS)
        time.sleep(_GRACE_SECONDS)
        self._ask("mm2, at once", moves)

    def _caught_up(self, move: Move) -> bool:
        """Whether the last record that the group has read is in the copy, or one behind it."""
        self._maker.check()
        source = self._log(move.origin)
        copy = self._tail.log(move.to.topic, move.to.partition)
        read = [offset for offset in source.values() if offset < move.read_to]
        return not read or max((source[value] for value in copy), default=-1) >= max(read)

    def _ask(self, by: str, moves: list[Move]) -> None:
        told = self._java.translate(self._west, self._tag, f"{self._tag}-.*")
        for move in moves:
            start = told.get(move.group, {}).get((move.to.topic, move.to.partition))
            self._enter(by, move, start)

    def _ask_groups(self, moves: list[Move]) -> None:
        """What ``sync.group.offsets`` has committed for the groups on the target."""
        for group in sorted({move.group for move in moves}):
            mine = [move for move in moves if move.group == group]
            stands = self._standing["west"].standing(
                group, [(move.to.topic, move.to.partition) for move in mine]
            )
            for move in mine:
                self._enter("mm2, synced groups", move, stands.get((move.to.topic, move.to.partition)))

    def _enter(self, by: str, move: Move, start: int | None) -> None:
        self._moves.made.append(Move(by, move.kind, move.group, move.origin, move.read_to, move.to, start))

    def _log(self, place: Place) -> Log:
        if place.side == "west":
            return self._tail.log(place.topic, place.partition)
        (application,) = [one for one in self._applications if one.topic == place.topic]
        return dict(application.ledger[place.partition])
