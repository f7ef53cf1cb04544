"""
Trials of what Java's client says while a mirror is dead that was killed in an open transaction.

Java's client reads checkpoints without regard to transactions (RemoteClusterUtils drops ``isolation.level``), so that
it meets those of a transaction that will be aborted.  Such a transaction is made on purpose: a proxy before the target
keeps the EndTxn of every lane, behind the records and checkpoints, and the mirror's whole process tree is killed.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror.records.mm2 import Mm2Names, decode_checkpoint
from eomirror.records.names import LinkNames
from support.clusters.frames import Api
from support.clusters.rules import Hold, Match
from support.links.moving.flows import PARTITIONS, Flow
from support.links.moving.moves import Move, Place
from support.links.moving.ours import CONSUMERS, OurTrials
from support.links.moving.standing import somewhere
from support.links.moving.traffic import read_on
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from eomirror.records.mm2 import Checkpoint
    from support.clusters.rig import Side
    from support.links.moving.java import JavaClient

__all__ = ["ABORTED", "BACK", "DOWN", "RESET", "InterruptedTrials"]

ABORTED = "java, mirror dead: from a checkpoint that was aborted"
DOWN = "java, mirror dead: from a committed checkpoint"
BACK = "java, mirror back"
RESET = "java, mirror back: the group was reset meanwhile"

_PATIENCE_SECONDS = 120.0
# groups are looked at every second
_TOLD_SECONDS = 1.5
_TRIES = 12
_TOPIC = Mm2Names().checkpoints("east")

_Places = dict[tuple[str, str, int], tuple[Flow, int]]


class InterruptedTrials(OurTrials):
    """
    Two one-way links, and consumers that move when the mirror was killed in an open transaction.

    Args:
        east: Client properties of the source.
        west: The target, with its proxy.
        folder: For the mirror's files; made here.
        seed: Everything random follows from it, but for the moments at which signals arrive.
        plane: Of both links.
        tag: Part of every name; unlike that of other runs on these clusters.
        java: MirrorMaker 2's client.
    """

    # transactions of some size, and few of them
    _intervals: ClassVar = {"commit_interval": "500ms", "commit_interval_min": "500ms"}

    def __init__(
        self, east: Mapping[str, Any], west: Side, folder: Path, *, seed: int, plane: str, tag: str,
        java: JavaClient,
    ) -> None:  # fmt: skip
        self._proxied = west
        self._client = java
        super().__init__(
            {"east": east, "west": west.direct}, folder, seed=seed, plane=plane, tag=tag, java=java
        )

    def _made_flows(self) -> list[Flow]:
        return [flow for flow in super()._made_flows() if flow.written != "both"]

    def _made_links(self) -> list[dict[str, Any]]:
        return [
            self._made_link(f"{self._tag}-{naming}", "east", naming, words)
            for naming, words in (("prefix", "pd|pc"), ("identity", "id|ic"))
        ]

    def _mirror_clusters(self) -> dict[str, dict[str, Any]]:
        return {**self._sides, "west": self._proxied.proxied}

    def _trials(self, rounds: int, back: int, on_round: Callable[[str], None]) -> None:
        del back
        self._settle()
        # where applications have only just begun, there was nothing to settle, and lanes that are held commit nothing
        wait_for(self._begun, _PATIENCE_SECONDS)
        for number in range(rounds):
            on_round(f"{self._tag}: kill {number + 1} of {rounds}")
            self._interrupt(number)
        for application in self._applications:
            application.finish()
        self._settle()

    def _interrupt(self, number: int) -> None:
        pattern = f"{self._tag}-open-{number}-.*"
        lanes = {
            LinkNames(link.state_name).transactional_id(0): {
                flow.copy for flow in self._flows if link.mirrors(flow.topic)
            }
            for link in self._config.links
        }
        with ThreadPoolExecutor(len(lanes)) as pool:
            # what is written from here on comes into the next transaction of each lane, and so do its checkpoints
            held = dict(zip(lanes, pool.map(self._hold, lanes), strict=True))
            stood = self._stand_all(number)
            time.sleep(_TOLD_SECONDS)
            list(
                pool.map(
                    lambda lane: self._next_with_checkpoints(lane, held[lane], lanes[lane], pattern), lanes
                )
            )
        self._mirror.check()
        self._mirror.kill()
        self._up = False
        self._run.kills += 1
        for lane in lanes:
            self._proxied.proxy.disarm(lane)

        first = self._java_says(pattern)
        meant = newest(checkpoints_of(self._sides["west"], pattern, committed=False))
        anew = self._reset(stood)
        self._start()
        self._await_checkpoints(pattern, {**stood, **anew})
        known = {at for at, _ in checkpoints_of(self._sides["west"], pattern, committed=True)}
        again = self._java_says(pattern)
        for where, (flow, offset) in stood.items():
            if where not in first:
                self._moved(DOWN, where, flow, offset, None)
                continue
            at, checkpoint = meant[where[0], flow.copy, where[2]]
            start = first[where]
            assert start == checkpoint.downstream, (where, start, checkpoint)
            self._moved(DOWN if at in known else ABORTED, where, flow, offset, start)
        for where, (flow, offset) in {**stood, **anew}.items():
            self._moved(RESET if where in anew else BACK, where, flow, offset, again.get(where))

    def _stand_all(self, number: int) -> _Places:
        time.sleep(self._rng.uniform(0.3, 1))
        stood: _Places = {}
        groups: dict[str, dict[tuple[str, int], int]] = {}
        for index, flow in enumerate(self._flows):
            ends = self._ends("east", flow.topic)
            for one in range(CONSUMERS):
                group = f"{self._tag}-open-{number}-{index}-{one}"
                groups[group] = {where: self._somewhere(where, end) for where, end in ends.items()}
                stood.update({(group, *where): (flow, offset) for where, offset in groups[group].items()})
        self._standing["east"].stand_all(groups)
        return stood

    def _hold(self, lane: str) -> int:
        """Keep the next EndTxn of a lane; how many were kept in all."""
        proxy = self._proxied.proxy
        count = len(proxy.events("held", lane)) + 1
        proxy.arm(lane, Hold(match=Match(api_key=Api.END_TXN, transactional_id=lane, commit=True), cut=False))
        proxy.await_event("held", lane, nth=count, seconds=_PATIENCE_SECONDS)
        return count

    def _next_with_checkpoints(self, lane: str, held: int, copies: set[str], pattern: str) -> None:
        """Let a lane go on, until the EndTxn is kept of a transaction whose checkpoints name its own records."""
        proxy, west = self._proxied.proxy, self._sides["west"]
        for count in range(held + 1, held + _TRIES):
            proxy.arm(
                lane, Hold(match=Match(api_key=Api.END_TXN, transactional_id=lane, commit=True), cut=False)
            )
            proxy.release(lane)
            proxy.await_event("held", lane, nth=count, seconds=_PATIENCE_SECONDS)
            open_from = {
                (copy, partition): end
                for copy in copies
                for partition, end in self._standing["west"].stable_ends(copy, range(PARTITIONS)).items()
            }
            told = checkpoints_of(west, pattern, committed=False)
            # a checkpoint at the first record of the open transaction is true also when that is aborted
            if any(
                one.downstream > open_from.get((one.topic, one.partition), one.downstream) for _, one in told
            ):
                return

    def _java_says(self, pattern: str) -> dict[tuple[str, str, int], int]:
        """By group, source topic and partition."""
        sources = {flow.copy: flow.topic for flow in self._flows}
        return {
            (group, sources[topic], partition): offset
            for group, offsets in self._client.translate(self._sides["west"], "east", pattern).items()
            for (topic, partition), offset in offsets.items()
        }

    def _reset(self, stood: _Places) -> _Places:
        """One group in four goes back while the mirror is dead: where it stood before does not count any more."""
        anew: _Places = {}
        for group in sorted({where[0] for where in stood})[::4]:
            mine = {where[1:]: told for where, told in stood.items() if where[0] == group}
            back = {
                where: max(self._first(*where) + 1, offset - self._rng.randrange(1, 60))
                for where, (_, offset) in mine.items()
            }
            self._standing["east"].stand(group, back)
            anew.update({(group, *where): (mine[where][0], offset) for where, offset in back.items()})
        return anew

    def _somewhere(self, where: tuple[str, int], end: int) -> int:
        """Behind the first record: before it there is no checkpoint, and nothing that could be wrong with it."""
        drawn = somewhere(self._rng, self._log(Place("east", *where)), end)
        return max(drawn, self._first(*where) + 1)

    def _first(self, topic: str, partition: int) -> int:
        """Source offset of the first mirrored record; compaction may have taken earlier ones before."""
        (flow,) = [flow for flow in self._flows if flow.topic == topic]
        return min(self._mirrored(flow, partition))

    def _begun(self) -> bool:
        """Whether something of every partition has been mirrored."""
        self._mirror.check()
        return all(self._mirrored(flow, partition) for flow in self._flows for partition in range(PARTITIONS))

    def _mirrored(self, flow: Flow, partition: int) -> list[int]:
        """Source offsets of mirrored records; what was read of the copy may be ahead of what was read here."""
        source = self._log(Place("east", flow.topic, partition))
        copy = self._log(Place("west", flow.copy, partition))
        return [source[value] for value in copy if value in source]

    def _await_checkpoints(self, pattern: str, expected: _Places) -> None:
        """Until the newest committed checkpoint of every group says where it stands now."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            self._mirror.check()
            found = newest(checkpoints_of(self._sides["west"], pattern, committed=True))
            missing = {
                where: (offset, told and told[1])
                for where, (flow, offset) in expected.items()
                for told in [found.get((where[0], flow.copy, where[2]))]
                if told is None or told[1].upstream != offset
            }
            if not missing:
                return
            assert time.monotonic() < deadline, (missing, self._mirror.tree.last_lines())
            time.sleep(0.3)

    def _moved(
        self, by: str, where: tuple[str, str, int], flow: Flow, offset: int, start: int | None
    ) -> None:
        group, topic, partition = where
        to = Place("west", flow.copy, partition)
        saw = None
        if by == ABORTED and start is not None:
            place = to.topic, to.partition
            saw = read_on(self._sides["west"], group, {place: start})[place]
        self._moves.made.append(
            Move(by, flow.kind, group, Place("east", topic, partition), offset, to, start, saw=saw)
        )


def newest(
    read: list[tuple[int, Checkpoint]],
) -> dict[tuple[str, str, int], tuple[int, Checkpoint]]:
    """The last one of each group, target topic and partition."""
    return {(one.group, one.topic, one.partition): (at, one) for at, one in read}


def checkpoints_of(
    properties: Mapping[str, Any], pattern: str, *, committed: bool
) -> list[tuple[int, Checkpoint]]:
    """
    All checkpoints of some groups, with their offsets in the log.

    Args:
        properties: Client properties of the target.
        pattern: Of the groups.
        committed: Only those that a reader of committed records sees.
    """
    consumer = Consumer(
        {
            **properties,
            "group.id": "moving.checkpoints",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    wanted = re.compile(pattern)
    found: list[tuple[int, Checkpoint]] = []
    try:
        consumer.assign([TopicPartition(_TOPIC, 0, 0)])
        while True:
            for message in consumer.consume(2_000, 0.2):
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    return found
                one = decode_checkpoint(message.key(), message.value(), where=f"{_TOPIC}@{message.offset()}")
                if wanted.fullmatch(one.group):
                    found.append((message.offset(), one))
    finally:
        consumer.close()
