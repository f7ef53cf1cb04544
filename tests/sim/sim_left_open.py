"""What is open on the simulated target, as its leaders tell it, and the transactions that end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim_damage import NO_MAP, WRITER_NOT_ASKED, named_by_map
from sim_kafka import META, OPEN, VISIBLE
from sim_network import SimProducer

from eomirror.recovery.hanging import OpenRange, RecordState
from eomirror.recovery.resolve_hanging import HangingResolver
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from sim_world import Actor, World

    from eomirror.plane.protocol import ProducerIdentity
    from eomirror.records.position import Position

__all__ = ["ALWAYS_ABORTED", "ANYBODYS", "NOT_LOOKED_FOR", "OVERTAKEN", "AbortsCopies", "SimHangingClient"]

#: Mutations.
NOT_LOOKED_FOR = "left open not looked for"
ALWAYS_ABORTED = "open copies always aborted"
OVERTAKEN = "left open ended by who was overtaken"
ANYBODYS = "what anybody wrote taken for proof"

_OURS = "eomirror."
# as long as it takes that brokers write the markers of the last transaction, if they do not leave them out
_MARKED_WAITS = 10


class SimHangingClient:
    """See `eomirror.recovery.hanging.HangingClient`; on behalf of one actor."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    def open(self, partitions: Collection[tuple[str, int]]) -> Sequence[OpenRange]:
        self._asked()
        logs = self._world.target.logs
        return [
            OpenRange(
                topic=topic, partition=number, producer_id=producer_id, epoch=epoch, start=offsets[0],
                end=len(log.entries),
            )
            for topic, number in partitions
            if (log := logs.get(_simulated(topic, number))) is not None
            for producer_id, (epoch, offsets) in log.open.items()
        ]  # fmt: skip

    def records(self, found: OpenRange) -> Sequence[tuple[bytes | None, bytes | None]]:
        self._asked()
        log = self._world.target.log(_simulated(*found.where))
        between = log.entries[found.start : found.end]
        return [(item[1], item[2]) for item in between if item is not None and item[0] == META]

    def record_states(self, records: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], RecordState]:
        self._asked()
        return {where: self._fate(where, offset) for where, offset in records.items()}

    def is_written_by(self, where: tuple[str, int], offset: int, writer: ProducerIdentity) -> bool:
        self._asked()
        if self._world.mutation == ANYBODYS:
            return True
        log = self._world.target.log(_simulated(*where))
        transaction = log.transactions[offset] if offset < len(log.transactions) else None
        if transaction is None:
            return False
        producer_id = self._world.target.ids[transaction.name].producer_id
        return (producer_id, transaction.epoch) == (writer.producer_id, writer.producer_epoch)

    def overwritten(
        self, records: Mapping[tuple[str, int], tuple[int, ProducerIdentity]]
    ) -> AbstractSet[tuple[str, int]]:
        self._asked()
        found: set[tuple[str, int]] = set()
        if self._world.mutation == WRITER_NOT_ASKED:
            return found
        for where, (offset, writer) in records.items():
            log = self._world.target.log(_simulated(*where))
            # with nothing behind the marker the coordinator is not asked
            if not log.start <= offset < log.cursor or log.cursor == offset + 2:
                continue
            transaction = log.transactions[offset]
            producer_id = -1 if transaction is None else self._world.target.ids[transaction.name].producer_id
            epoch = -1 if transaction is None else transaction.epoch
            if (producer_id, epoch) != (writer.producer_id, writer.producer_epoch):
                found.add(where)
        return found

    def committed_behind(
        self, records: Mapping[tuple[str, int], int], producer_ids: Callable[[], AbstractSet[int]]
    ) -> AbstractSet[tuple[str, int]]:
        self._asked()
        found = set()
        for where, offset in records.items():
            log = self._world.target.log(_simulated(*where))
            names = {
                transaction.name
                for at in range(max(offset + 1, log.start), log.cursor)
                if log.status[at] == VISIBLE and (transaction := log.transactions[at]) is not None
            }
            if names and {self._world.target.ids[name].producer_id for name in names} & producer_ids():
                found.add(where)
        return found

    def mapped_behind(self, positions: Collection[Position]) -> AbstractSet[tuple[str, int]]:
        self._asked()
        named = {(one.target_topic, one.target_partition): one.target_offset for one in positions}
        return {
            where
            for where, last in named.items()
            if last is not None
            and self._world.mutation != NO_MAP
            and named_by_map(self._world.target.log(_simulated(*where)), last)
        }

    def lanes(self, highest: int) -> Mapping[int, int]:
        self._asked()
        ids = self._world.target.ids
        return {ids[name].producer_id: lane for lane in range(highest + 1) if (name := f"lane-{lane}") in ids}

    def release(self) -> None:
        """Nothing is connected."""

    def end(
        self,
        lane: int | None,
        partitions: Collection[tuple[str, int]],
        *,
        commit: bool,
        held: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        self._asked()
        producer = SimProducer(self._world, self._actor, "control" if lane is None else f"lane-{lane}")
        identity = producer.init(None if self._world.mutation == OVERTAKEN else held)
        self._world.oracle.menders.add((producer.name, producer.epoch))
        producer.end_all([_simulated(*where) for where in partitions], commit=commit)
        for _ in range(_MARKED_WAITS):
            if not any(
                producer.id in self._world.target.log(_simulated(*where)).open for where in partitions
            ):
                break
            self._world.wait(self._actor)
        return identity

    # -- inside ----------------------------------------------------------------------------------

    def _asked(self) -> None:
        self._world.pause(self._actor)
        self._world.trouble()

    def _fate(self, where: tuple[str, int], offset: int) -> RecordState:
        log = self._world.target.log(_simulated(*where))
        if offset >= len(log.entries) or offset < log.start:
            # deleted; or foreseen, and never written: a leader says that it is out of range
            return RecordState.DELETED
        # behind another producer's open transaction nothing is shown
        if offset >= log.cursor or log.status[offset] == OPEN:
            return RecordState.PENDING
        # nothing aborted is around a marker: the target says of it what it says of a record
        shown = log.status[offset] == VISIBLE or log.transactions[offset] is None
        return RecordState.COMMITTED if shown else RecordState.ABORTED


class AbortsCopies(HangingResolver):
    """The mutation: what is open in a copy is taken for aborted, whatever the position says."""

    def _end_later(self, found: OpenRange, lane: int, *, commit: bool) -> None:
        super()._end_later(found, lane, commit=commit and found.topic.startswith(_OURS))


def _simulated(topic: str, number: int) -> Any:
    if topic.startswith(_OURS):
        return topic.rpartition(".")[2], number
    return "data", SourcePartition(topic.partition(".")[2], number)
