"""
The network as a set of messages, and a producer library on top of it that repeats requests in silence.

A request either arrives now, after whatever else the scheduler lets happen first; or its answer is lost; or it
never arrives; or its connection dies and it stays in the network, to arrive at any later moment or never.  In
the last three cases the library sends it again silently, as librdkafka does with EndTxn.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from sim_kafka import CONCURRENT, FENCED, OK

from eomirror.errors import FencedError, OutcomeUnknownError, TransactionFailedError
from eomirror.plane.protocol import CommitOutcome, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim_world import Actor, World

_TRIES = 4
_WAITS = 60
INIT, ADD, PRODUCE, END = "InitProducerId", "AddPartitions", "Produce", "EndTxn"
BOTH = f"{ADD} and {END}"


class SimProducer:
    """A transactional producer of protocol V1, with a witness that counts copies of its requests."""

    __slots__ = (
        "_actor",
        "_world",
        "added",
        "copies",
        "epoch",
        "failures",
        "firsts",
        "id",
        "name",
        "offsets",
        "queue",
        "sequences",
    )

    def __init__(self, world: World, actor: Actor, name: str) -> None:
        self._world = world
        self._actor = actor
        self.name = name
        self.id = self.epoch = -1
        self.copies = 0
        self.failures = 0
        self.sequences: dict[Any, int] = {}
        self.added: set[Any] = set()
        # of the first and of the last record that this transaction wrote to a partition
        self.firsts: dict[Any, int] = {}
        self.offsets: dict[Any, int] = {}
        self.queue: list[tuple[Any, list[Any]]] = []

    def init(self, held: ProducerIdentity | None = None) -> ProducerIdentity:
        """InitProducerId; with an identity only if the id still has it (KIP-360)."""
        world = self._world
        epoch = None if held is None else held.producer_epoch
        for _ in range(_WAITS):
            status, self.id, self.epoch = self._ask(
                INIT, lambda: world.target.init_producer(self.name, epoch)
            )
            self._fenced(INIT, status)
            if status == OK:
                self.copies = self.failures = 0
                return ProducerIdentity(self.id, self.epoch)
            world.wait(self._actor)
        raise TransactionFailedError("InitProducerId: markers are not written in time")

    def begin(self) -> None:
        self.copies = self.failures = 0
        self.added.clear()
        self.offsets.clear()
        self.firsts.clear()

    def produce(self, where: Any, items: list[Any]) -> None:
        """Queue records; the library sends them when it likes, at the latest in `flush`."""
        self.queue.append((where, items))

    def flush(self) -> None:
        target, name = self._world.target, self.name
        while self.queue:
            where, items = self.queue.pop(self._world.overtakes([where for where, _ in self.queue]))
            self.add(where)
            sequence = self.sequences.get(where, 0)
            status, last = self._ask(PRODUCE, _Produce(target, name, self.epoch, where, sequence, items))
            self._judge(PRODUCE, status)
            self.sequences[where] = sequence + len(items)
            first = last - len(items) + 1
            if first <= self.offsets.get(where, -1):
                # the extension's offset map takes only what comes behind
                raise TransactionFailedError(
                    f"EO-7: {where} was acknowledged at {first} behind {self.offsets[where]}"
                )
            self.firsts.setdefault(where, first)
            self.offsets[where] = last

    def add(self, where: Any) -> None:
        """Make a partition part of the open transaction, or open one with it."""
        if where in self.added:
            return
        for _ in range(_WAITS):
            status = self._ask(ADD, _AddPartition(self._world, self.name, self.epoch, where))[0]
            if status != CONCURRENT:
                break
            self._world.wait(self._actor)
        self._judge(ADD, status)
        self.added.add(where)

    def foreseen(self, where: Any, records: int) -> int | None:
        """Offset that the last of so many records for a partition has, or will have without another producer."""
        queued = sum(len(items) for name, items in self.queue if name == where)
        if not queued and (where in self.offsets or not records):
            return self.offsets.get(where)
        return len(self._world.target.log(where).entries) + (queued or records) - 1

    def commit(self) -> CommitOutcome:
        """Commit, and tell whether a copy of the request may still travel."""
        self.end(commit=True)
        return CommitOutcome.SUSPECT if self.copies or self.failures else CommitOutcome.CLEAN

    def end(self, *, commit: bool) -> None:
        """EndTxn, repeated inside the library for as long as it takes."""
        target, name, epoch = self._world.target, self.name, self.epoch
        for _ in range(_WAITS):
            try:
                status = self._ask(END, lambda: (target.end(name, epoch, commit=commit),))[0]
            except TransactionFailedError as error:
                raise OutcomeUnknownError(str(error)) from error
            if status != CONCURRENT:
                break
            self.copies += 1
            self._world.wait(self._actor)
        self._fenced(END, status)
        if status != OK:
            raise OutcomeUnknownError(f"EndTxn: {status}")

    def end_all(self, partitions: list[Any], *, commit: bool) -> None:
        """AddPartitions and EndTxn over one connection, of which the second is sent before the first is answered."""
        self.begin()
        for _ in range(_WAITS):
            try:
                added, ended = self._ask(
                    BOTH, _EndAll(self._world, self.name, self.epoch, partitions, commit)
                )
            except TransactionFailedError as error:
                raise OutcomeUnknownError(str(error)) from error
            if CONCURRENT not in {added, ended}:
                break
            self._world.wait(self._actor)
        for what, status in (ADD, added), (END, ended):
            self._judge(what, status)

    def abort(self) -> None:
        self.queue.clear()
        if self.epoch < 0:
            return
        target, name, epoch = self._world.target, self.name, self.epoch
        # when it is not answered, the next InitProducerId of this id aborts what is open
        with contextlib.suppress(TransactionFailedError):
            self._ask(END, lambda: (target.end(name, epoch, commit=False),))

    def _judge(self, what: str, status: str) -> None:
        if status == OK:
            return
        self.failures += 1
        self._fenced(what, status)
        raise TransactionFailedError(f"{what}: {status}")

    def _fenced(self, what: str, status: str) -> None:
        if status == FENCED:
            raise FencedError(f"{what}: a newer producer has the id")

    def _ask(self, what: str, request: Callable[[], Any]) -> Any:
        """Send one request and wait for its answer; every copy beyond the first makes the commit suspect."""
        world, actor = self._world, self._actor
        for _ in range(_TRIES):
            world.pause(actor)
            fate = world.fate()
            if fate == 0:
                answer = request()
                world.say(actor, what, self.name, self.epoch, answer[0])
                return answer
            self.copies += 1
            if fate == 1:
                world.say(actor, what, self.name, self.epoch, "applied, answer lost:", request()[0])
            elif fate == 2:
                world.say(actor, what, self.name, self.epoch, "lost")
            else:
                world.say(actor, what, self.name, self.epoch, "held in the network, connection died")
                world.network.append((what, self.name, self.epoch, request))
            if world.out_of_time():
                break
        raise TransactionFailedError(f"{what} was not answered in time")


class _AddPartition:
    """An AddPartitionsToTxn request as a value."""

    __slots__ = ("_epoch", "_name", "_where", "_world")

    def __init__(self, world: World, name: str, epoch: int, where: Any) -> None:
        self._world, self._name, self._epoch, self._where = world, name, epoch, where

    def __call__(self) -> tuple[str]:
        return (self._world.target.add_partitions(self._name, self._epoch, (self._where,), self._world.now),)


class _EndAll:
    """Both requests of `SimProducer.end_all` as one value: they arrive together, and are carried out in their order."""

    __slots__ = ("_commit", "_epoch", "_name", "_partitions", "_world")

    def __init__(self, world: World, name: str, epoch: int, partitions: list[Any], commit: bool) -> None:
        self._world, self._name, self._epoch = world, name, epoch
        self._partitions, self._commit = tuple(partitions), commit

    def __call__(self) -> tuple[str, str]:
        target, name, epoch = self._world.target, self._name, self._epoch
        added = target.add_partitions(name, epoch, self._partitions, self._world.now)
        return added, target.end(name, epoch, commit=self._commit)


class _Produce:
    """A Produce request as a value: a late copy carries what it carried when it was sent."""

    __slots__ = ("_epoch", "_items", "_name", "_sequence", "_target", "_where")

    def __init__(
        self, target: Any, name: str, epoch: int, where: Any, sequence: int, items: list[Any]
    ) -> None:
        self._target, self._name, self._epoch = target, name, epoch
        self._where, self._sequence, self._items = where, sequence, items

    def __call__(self) -> tuple[str, int]:
        status = self._target.produce(self._name, self._epoch, self._where, self._sequence, self._items)
        # of a copy too: the broker remembers what it gave the request before
        return status, self._target.last_offset(self._name, self._where)
