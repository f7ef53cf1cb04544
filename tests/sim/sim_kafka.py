"""
Two Kafka clusters as small exact values: logs, producer epochs, and a transaction coordinator of protocol V1.

What a broker does to one request, at one moment, and nothing else: the network, which decides when a request
arrives and how often, is `sim_network`.  Sources: KIP-98 (coordinator, markers), KIP-360 (epoch bump),
KIP-890 part 1 (a first write to a partition is verified with the coordinator); not part 2, whose epoch per
transaction is what librdkafka lacks.

A coordinator may leave markers out (docs/adr/0012): for it the transaction is over, in the log it stays open, and takes
the outcome of whatever marker its producer is given there next.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

DATA, META = 0, 1
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMMITTED, ABORTED, EMPTY = range(6)
OPEN, VISIBLE, GONE = range(3)
# the sequence that is expected of a producer that a log does not know
ANY = -1

OK = "ok"
FENCED = "fenced"
CONCURRENT = "concurrent transactions"
INVALID_STATE = "invalid transaction state"
OUT_OF_ORDER = "out of order sequence"


class SourceLog:
    """One incarnation of a source partition; offsets hold committed data, or something a reader skips."""

    __slots__ = ("committed", "end", "open_from", "start", "topic_id")

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.start = 0
        self.end = 0
        self.open_from: int | None = None
        self.committed: list[int] = []

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return self.end if self.open_from is None else self.open_from

    def append(self, records: int) -> None:
        """A plain producer's records; behind an open transaction they wait with it."""
        self.committed.extend(range(self.end, self.end + records))
        self.end += records

    def append_aborted(self, records: int) -> None:
        """An aborted transaction and its marker: nothing for a reader."""
        self.end += records + 1

    def begin(self) -> None:
        """A transaction opens with one record."""
        self.open_from = self.end
        self.end += 1

    def finish(self, *, commit: bool) -> None:
        """The open transaction ends with a marker."""
        if self.open_from is not None and commit:
            self.committed.insert(bisect_left(self.committed, self.open_from), self.open_from)
        self.open_from = None
        self.end += 1

    def readable(self, start: int, end: int) -> list[int]:
        """Offsets of committed records in ``[start, end)``, those that retention removed included."""
        return self.committed[bisect_left(self.committed, start) : bisect_left(self.committed, end)]


class TargetLog:
    """A partition of the target: what a read_committed reader sees is `visible`, and only ever grows."""

    __slots__ = ("cursor", "entries", "open", "sequences", "start", "status", "transactions", "visible")

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.status: list[int] = []
        # of each entry; none for a marker
        self.transactions: list[Transaction | None] = []
        # producer id -> newest epoch that wrote there, and its records, those of transactions before included
        self.open: dict[int, tuple[int, list[int]]] = {}
        self.sequences: dict[int, tuple[int, int]] = {}
        self.cursor = 0
        self.visible: list[Any] = []
        # what was before it retention has deleted; the model keeps it for its oracle
        self.start = 0

    def cut(self, end: int) -> None:
        """The log ends there, as a leader says that never had more; of producers it knows nothing any more."""
        for entries in (self.entries, self.status, self.transactions):
            del entries[end:]
        self.cursor = min(self.cursor, end)
        self.visible = [each for each in self.visible if each[0] < end]
        for producer_id, (epoch, offsets) in list(self.open.items()):
            if kept := [offset for offset in offsets if offset < end]:
                self.open[producer_id] = epoch, kept
            else:
                del self.open[producer_id]
        self.sequences = {producer_id: (epoch, ANY) for producer_id, (epoch, _) in self.sequences.items()}

    def mark(self, producer_id: int, *, commit: bool) -> list[Any]:
        """Write a transaction marker; returns what became visible by it."""
        _, offsets = self.open.pop(producer_id, (0, []))
        for offset in offsets:
            self.status[offset] = VISIBLE if commit else GONE
        self.entries.append(None)
        self.status.append(GONE)
        self.transactions.append(None)
        before = len(self.visible)
        status, end = self.status, len(self.entries)
        while self.cursor < end and status[self.cursor] != OPEN:
            if status[self.cursor] == VISIBLE:
                self.visible.append((self.cursor, self.entries[self.cursor]))
            self.cursor += 1
        return self.visible[before:]


class Transaction:
    """
    What its coordinator decided, and what became of it where the marker was left out.

    Attributes:
        name: The transactional.id.
        epoch: Of the producer that began it.
        commit: As decided; None before.
        asked: Whether its producer has asked for that; else it was aborted behind its back.
        wrote: Partitions in which it wrote.
        hanging: Those of them in which it has no marker of its own -> how it was ended there since.
    """

    __slots__ = ("asked", "commit", "epoch", "hanging", "name", "wrote")

    def __init__(self, name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch
        self.commit: bool | None = None
        self.asked = False
        self.wrote: set[Any] = set()
        self.hanging: dict[Any, bool | None] = {}

    def shown(self) -> bool:
        """Whether a reader sees any of its records of the source."""
        return any(self.hanging.get(where, self.commit) for where in self.wrote if where[0] == "data")


class Coordinated:
    """What the coordinator knows of one transactional.id."""

    __slots__ = ("epoch", "held", "name", "partitions", "producer_id", "started", "state", "transaction")

    def __init__(self, name: str, producer_id: int) -> None:
        self.name = name
        self.producer_id = producer_id
        self.epoch = -1
        # what the last InitProducerId said its epoch was
        self.held: int | None = None
        self.state = EMPTY
        self.partitions: list[Any] = []
        self.started = 0.0
        self.transaction = Transaction(name, -1)


class Target:
    """The target cluster: logs and one transaction coordinator."""

    __slots__ = ("ids", "logs", "on_decision", "on_ended", "on_visible", "timeout")

    def __init__(self, timeout: float) -> None:
        self.logs: dict[Any, TargetLog] = {}
        self.ids: dict[str, Coordinated] = {}
        self.timeout = timeout
        self.on_decision: Any = None
        self.on_ended: Any = None
        self.on_visible: Any = None

    def log(self, name: Any) -> TargetLog:
        """A partition, made at first use."""
        found = self.logs.get(name)
        if found is None:
            found = self.logs[name] = TargetLog()
        return found

    # -- requests --------------------------------------------------------------------------------

    def init_producer(self, name: str, held: int | None) -> tuple[str, int, int]:
        """
        InitProducerId: bump the epoch, abort what is open first.

        With the epoch that the caller has, only if it is the newest, or was before this same request (KIP-360).
        """
        it = self.ids.get(name)
        if it is None:
            it = self.ids[name] = Coordinated(name, 1000 + len(self.ids))
        if held is not None and held != it.epoch:
            again = held == it.epoch - 1 == it.held and it.state == EMPTY
            return (OK, it.producer_id, it.epoch) if again else (FENCED, -1, -1)
        if it.state == ONGOING:
            it.epoch += 1
            self._prepare(it, commit=False)
            return CONCURRENT, -1, -1
        if it.state in {PREPARE_COMMIT, PREPARE_ABORT}:
            return CONCURRENT, -1, -1
        it.held = held
        it.epoch += 1
        it.state = EMPTY
        return OK, it.producer_id, it.epoch

    def add_partitions(self, name: str, epoch: int, partitions: tuple[Any, ...], now: float) -> str:
        """AddPartitionsToTxn: opens a transaction when none is open, which is why a late copy does harm."""
        it = self.ids[name]
        if epoch != it.epoch:
            return FENCED
        if it.state in {PREPARE_COMMIT, PREPARE_ABORT}:
            return CONCURRENT
        if it.state != ONGOING:
            it.state, it.partitions, it.started = ONGOING, [], now
            it.transaction = Transaction(it.name, epoch)
        it.partitions.extend(name for name in partitions if name not in it.partitions)
        return OK

    def produce(self, name: str, epoch: int, where: Any, sequence: int, items: list[Any]) -> str:
        """Produce: idempotent by sequence, verified with the coordinator when it opens the partition."""
        it = self.ids[name]
        log = self.log(where)
        opened = log.open.get(it.producer_id)
        known = log.sequences.get(it.producer_id, (-1, 0))
        if epoch < known[0] or (epoch < it.epoch and (opened is None or opened[0] != epoch)):
            return FENCED
        if (opened is None or opened[0] != epoch) and (it.state != ONGOING or where not in it.partitions):
            return INVALID_STATE
        following = known[1] if known[0] == epoch else 0
        if following == ANY:
            following = sequence
        if sequence < following:
            return OK
        if sequence > following:
            return OUT_OF_ORDER
        transaction: Transaction = it.transaction
        if opened is not None and (epoch < it.epoch or where not in it.partitions):
            # late, into what was left open, and taken for a part of it
            if transaction.epoch != epoch:
                transaction = log.transactions[opened[1][-1]]  # type: ignore[assignment]
            transaction.hanging.setdefault(where, None)
        offsets = [] if opened is None else opened[1]
        log.open[it.producer_id] = (epoch, offsets)
        first = len(log.entries)
        offsets.extend(range(first, first + len(items)))
        log.entries.extend(items)
        log.status.extend([OPEN] * len(items))
        log.transactions.extend([transaction] * len(items))
        transaction.wrote.add(where)
        log.sequences[it.producer_id] = (epoch, sequence + len(items))
        return OK

    def last_offset(self, name: str, where: Any) -> int:
        """Of what a producer has open in a partition."""
        opened = self.log(where).open.get(self.ids[name].producer_id)
        return -1 if opened is None else opened[1][-1]

    def end(self, name: str, epoch: int, *, commit: bool) -> str:
        """EndTxn of protocol V1: ends whatever transaction of this id and epoch is open now."""
        it = self.ids[name]
        if epoch != it.epoch:
            return FENCED
        if it.state == ONGOING:
            it.transaction.asked = True
            self._prepare(it, commit=commit)
            return OK
        if it.state == (COMMITTED if commit else ABORTED):
            return OK
        if it.state == (PREPARE_COMMIT if commit else PREPARE_ABORT):
            return CONCURRENT
        return INVALID_STATE

    # -- what the broker does on its own ------------------------------------------------------------

    def write_marker(self, it: Coordinated, which: int) -> None:
        """One leader writes its marker; each partition shows a commit at its own moment."""
        where = it.partitions.pop(which % len(it.partitions))
        log, commit = self.log(where), it.state == PREPARE_COMMIT
        if it.producer_id in log.open:
            self._ended(where, log, log.open[it.producer_id][1], it.transaction)
        shown = log.mark(it.producer_id, commit=commit)
        self._all_marked(it)
        if shown and self.on_visible is not None:
            self.on_visible(where, shown)

    def leave_out(self, it: Coordinated, partitions: list[Any]) -> None:
        """Drop the markers of these partitions, as they have no leader now; for good."""
        for where in partitions:
            it.partitions.remove(where)
            log = self.log(where)
            _, offsets = log.open.get(it.producer_id, (0, ()))
            if any(log.transactions[offset] is it.transaction for offset in offsets):
                it.transaction.hanging[where] = None
        self._all_marked(it)

    def expire(self, now: float) -> list[str]:
        """Abort what has been open for longer than transaction.timeout.ms; its epoch is bumped, so it is fenced."""
        expired = []
        for it in self.ids.values():
            if it.state == ONGOING and now - it.started > self.timeout:
                it.epoch += 1
                self._prepare(it, commit=False)
                expired.append(it.name)
        return expired

    def unmarked(self) -> list[Coordinated]:
        """Transactions that are decided and not yet shown everywhere."""
        return [it for it in self.ids.values() if it.state in {PREPARE_COMMIT, PREPARE_ABORT}]

    def _prepare(self, it: Coordinated, *, commit: bool) -> None:
        it.state = PREPARE_COMMIT if commit else PREPARE_ABORT
        it.transaction.commit = commit
        if commit:
            self.on_decision(it)
        self._all_marked(it)

    def _all_marked(self, it: Coordinated) -> None:
        if not it.partitions:
            it.state = COMMITTED if it.state == PREPARE_COMMIT else ABORTED

    def _ended(self, where: Any, log: TargetLog, offsets: list[int], by: Transaction) -> None:
        """What hangs there from transactions before has its outcome now, and its watchers are told."""
        hanging = [at for at in offsets if where in log.transactions[at].hanging]  # type: ignore[union-attr]
        for offset in hanging:
            log.transactions[offset].hanging[where] = by.commit  # type: ignore[union-attr]
        if hanging:
            self.on_ended(where, [(log.transactions[at], log.entries[at]) for at in hanging], by)

    def written(self, it: Coordinated) -> dict[Any, list[Any]]:
        """What the open transaction of an id holds, by partition; not what hangs there from those before."""
        found = {}
        for where in it.partitions:
            log = self.log(where)
            opened = log.open.get(it.producer_id)
            if opened is not None:
                mine = it.transaction
                held = [log.entries[at] for at in opened[1] if log.transactions[at] is mine]
                if held:
                    found[where] = held
        return found
