"""
The client plane: confluent-kafka's consumer and transactional producer, with decisions per batch in the Rust core.

A consumed batch crosses into Rust once (`Planner.plan`) and returns as ready arguments for ``produce``, so Python
touches each record only to pass it on.  Works with every broker and every authentication that librdkafka supports.

Target offsets come from the `Witness` (an acknowledgement interceptor), in the order of delivery, which for an
idempotent producer is the order of produce: the n-th acknowledgement of a target partition belongs to the n-th record
that was produced to it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from eomirror._native import Acks, Planner, Policy
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.rights import account_of
from eomirror.errors import AuthorizationError, SourceDamagedError, TransactionFailedError
from eomirror.kafka.client_factory import connect
from eomirror.plane.client.bisect import RangeSender
from eomirror.plane.client.fetch_errors import fetch_failure, split_ends
from eomirror.plane.client.position_checks import LogComparison, validate_epochs
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.client.rejected_record import TargetRefusedError, named
from eomirror.plane.client.source_consumer import SourceConsumer
from eomirror.plane.protocol import (
    SLICE_SECONDS,
    Account,
    Advance,
    CommitOutcome,
    Flushed,
    Holes,
    MetadataRecord,
    ProducerIdentity,
    Pumped,
    RecordMark,
    Seen,
    SendPlan,
    Serving,
    Start,
)
from eomirror.plane.transaction_size import TransactionSize
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.lane.spec import LaneSpec

__all__ = ["ClientPlane"]

# maximum wait of a fetch inside an open transaction; a multiple of it delays each commit of a caught-up lane
_PUMP_SLICE_SECONDS = 0.005
# a fetch of this many bytes shows that the lane lags, even with few records; far below the client's queue
_MUCH = 1024 * 1024
# a commit writes one control batch of one record to each partition of the transaction
_MARKER = 1


class ClientPlane:
    """
    Moves one lane's records through librdkafka; see `eomirror.plane.protocol.Plane` for each call.

    Reason for its size: one method for each of them.

    Args:
        reason: Why the native plane is not used.
        policies: Reads ``cleanup.policy`` of source topics; None to compare nothing with the log.
        explain: Reads the batches of a range of the source's log: returns holes, and whether it was compacted; None to
            ignore holes.
    """

    def __init__(
        self,
        spec: LaneSpec,
        clock: Clock = SYSTEM_CLOCK,
        *,
        reason: str = "",
        policies: Callable[[Sequence[str]], Mapping[str, str | None]] | None = None,
        explain: Callable[[SourcePartition, int, int], tuple[list[tuple[int, int]], bool] | None]
        | None = None,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._reason = reason
        self._names = LinkNames(spec.link.state_name)
        self._routes: dict[str, str] = {}
        # target topic -> its number of partitions, if records are placed by key
        self._counts: dict[str, int] = {}
        self._producer: TransactionalProducer | None = None
        self._transform = spec.link.compiled()
        self._planner = Planner(self._policy())
        self._source = SourceConsumer(spec.source, lane=spec.lane, names=self._names)
        self._pending: list[Any] = []
        self._log = LogComparison(policies, explain)
        self._transaction = _OpenTransaction()
        self._range_sender = RangeSender()
        self._transaction_size = TransactionSize.for_link(
            spec.link.commit_interval,
            overdue=spec.overdue,
            transaction_timeout=spec.link.transaction_timeout,
        )

    # -- producer side ---------------------------------------------------------------------------

    def serving(self) -> Serving:
        """Returns the client plane, with the reason: librdkafka waits without a report."""
        return Serving("client", self._reason)

    def open(self) -> ProducerIdentity:
        """Replaces the producer, and runs InitProducerId with the new one."""
        spec = self._spec
        # connects in the background while the producer takes its id
        self._source.client()
        self._close_producer()
        self._planner.clear()
        self._transaction = _OpenTransaction()
        self._producer = TransactionalProducer(
            spec.target,
            client_id=self._names.client_id(f"lane-{spec.lane}"),
            transactional_id=self._names.transactional_id(spec.lane),
            transaction_timeout=spec.link.transaction_timeout,
            known_topic=self._names.control_topic,
            partitions=len(spec.partitions),
            batch_bytes=self._range_sender.batch_bytes,
            clock=self._clock,
        )
        self._producer.init()
        # headers name this producer from here on
        self._planner.set_policy(self._policy())
        return self._producer.identity()

    def begin(self) -> ProducerIdentity:
        """Begins a transaction."""
        self._range_sender.dead_letters.clear()
        self._tx.begin()
        self._transaction = _OpenTransaction(self._transaction.next_offsets, begun=self._clock.monotonic())
        return self._tx.identity()

    def has_more(self) -> bool:
        """Returns False: librdkafka reveals no record without returning it."""
        return False

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Produces state records into the open transaction."""
        with self._naming_source_topics():
            self._tx.write(records)

    def speculate(self) -> Flushed | None:
        """
        Returns the expected result of `flush` if no other producer writes to the target partitions.

        After our commit, the next offset of a partition follows our last record and the marker of its transaction.
        Before this producer's first commit to it, the result is None.
        """
        acks = self._transaction.expected(self._planner.planned())
        return None if acks is None else self._flushed(acks, speculative=True)

    def flush(self, seconds: float) -> Flushed:
        """Waits for every acknowledgement, and balances the account (EO-7)."""
        with self._naming_source_topics():
            self._tx.flush(seconds)
        acks = self._tx.take_acks()
        if acks.failed:
            raise TransactionFailedError(f"EO-7: {acks.failed} records were not acknowledged")
        transaction = self._transaction
        self._transaction_size.acknowledged(transaction.bytes, self._clock.monotonic() - transaction.begun)
        flushed = self._flushed(acks)
        transaction.flushed(flushed)
        return flushed

    def _flushed(self, acks: Acks, *, speculative: bool = False) -> Flushed:
        accounts = self._planner.settle(acks)
        advances = dict(self.advances())
        for account in accounts:
            source = SourcePartition(account.source_topic, account.source_partition)
            after = account.last_source_offset + 1
            advance = advances.get(source)
            if advance is None or advance.offset < after:
                epoch = account.leader_epoch if account.leader_epoch >= 0 else None
                advance = Advance(after, epoch)
            if account.tail is not None and not self._spec.link.masks:
                advance = replace(advance, seen=Seen(record=RecordMark(*account.tail)))
            advances[source] = advance
        if not speculative:
            self._log.explain(accounts, self._source.committed, advances, self._clock.monotonic())
        dead_letters = self._range_sender.dead_letters
        balanced = [Account.of(account, () if speculative else account.ranges) for account in accounts]
        if self._spec.link.masks:
            balanced = [replace(one, digest="") for one in balanced]
        if dead_letters:
            balanced = [
                replace(one, dead_letters=tuple(dead_letters.get(one.source, ()))) for one in balanced
            ]
        return Flushed(tuple(balanced), advances)

    def commit(self) -> CommitOutcome:
        """Commits the open transaction."""
        with self._naming_source_topics():
            self._tx.flush(self._spec.link.transaction_timeout)
        acks = self._tx.take_acks()
        if acks.failed:
            raise TransactionFailedError(f"EO-7: {acks.failed} state records were not acknowledged")
        began = self._clock.monotonic()
        outcome = self._tx.commit()
        self._transaction_size.committed(self._clock.monotonic() - began)
        # the flushed advances, not the current ones: a claim commits no positions
        for source, advance in self._transaction.advances.items():
            if advance.seen.record is not None:
                self._log.last_records.mirrored(source, advance.seen.record)
            self._source.committed[source] = max(self._source.committed[source], advance.offset)
        self._transaction.committed()
        self._planner.clear()
        return outcome

    def abort(self) -> None:
        """Aborts the open transaction, best effort. The producer must not be reused."""
        if self._producer is not None:
            self._producer.abort()
        self._planner.clear()

    # -- consumer side ---------------------------------------------------------------------------

    def start(self, starts: Sequence[Start]) -> None:
        """Begins to fetch these partitions, besides those already fetched."""
        consumer = self._source.client()
        connect(consumer, sorted({start.source.topic for start in starts}))
        self._tx.learn(sorted({start.target_topic for start in starts}))
        for start in starts:
            self._routes[start.source.topic] = start.target_topic
            self._source.begin(start.source, start.offset)
            if start.target_partitions is not None:
                self._counts[start.target_topic] = start.target_partitions
            self._log.begin(start)
        self._planner.set_policy(self._policy())
        positions = [
            TopicPartition(start.source.topic, start.source.partition, _first_offset(start))
            if start.leader_epoch is None
            else TopicPartition(
                start.source.topic,
                start.source.partition,
                _first_offset(start),
                leader_epoch=start.leader_epoch,
            )
            for start in starts
        ]
        if positions:
            consumer.incremental_assign(positions)
            validate_epochs(consumer, positions, self._clock)

    def stop(self, sources: Collection[SourcePartition]) -> None:
        """Drops these partitions with all that was fetched of them."""
        for source in sources:
            # once it returns, records of other lanes follow ours in the copy
            self._transaction.next_offsets.pop((self._routes.get(source.topic, ""), source.partition), None)
        self._source.stop(sources)
        self._pending = self._source.fetched(self._pending)
        self._log.stop(sources)

    def set_send_plan(self, send_plan: SendPlan) -> None:
        """Sets how to send records from the next transaction on; the caller aborts an open one."""
        # held records of a partition are older than all others of it
        self._pending = [*self._range_sender.set_send_plan(send_plan), *self._pending]
        self._source.reached.consumed()
        if self._source.opened is not None:
            self._range_sender.update_pauses(self._source.opened)

    def restart(self) -> None:
        """Forgets everything fetched; `start` sets the new fetch offsets."""
        self._pending.clear()
        self._log.clear()
        self._range_sender.clear(self._source.opened)
        self._planner.clear()
        self._source.restart()

    def await_records(self, seconds: float, other: int | None = None) -> bool:
        """Waits for records to mirror, and records ends of partitions."""
        if self._pending or self._range_sender.holding:
            return True
        # librdkafka's wait ends for messages only
        deadline = Deadline(seconds if other is None else min(seconds, SLICE_SECONDS), self._clock)
        consumer = self._source.client()
        while True:
            if self._producer is not None:
                # without polls the producer keeps its events, and does not report that it was fenced
                self._producer.serve()
            messages = consumer.consume(1, deadline.remaining())
            self._source.reached.consumed()
            if messages:
                messages += consumer.consume(self._transaction_size.records(0), 0)
            messages = self._compared(messages)
            if messages:
                self._pending, ends = split_ends(messages)
                self._source.record_ends(ends)
                if self._pending:
                    return True
            if deadline.passed:
                return False

    def advances(self) -> Mapping[SourcePartition, Advance]:
        """
        Returns partitions whose next offset has moved since the last commit, up to the records that were planned.

        Records in ``_pending`` and held records were consumed, but not planned.
        """
        waiting = {SourcePartition(message.topic(), message.partition()) for message in self._pending}
        found = self._source.found(self._planner.reached(), waiting.union(self._range_sender.holding))
        committed = self._source.committed
        return {source: advance for source, advance in found.items() if advance.offset > committed[source]}

    def pump(self, seconds: float) -> Pumped:
        """Fetches, decides and produces the available records, waiting at most ``seconds`` for them."""
        source = account_of(self._spec.source)
        failure = fetch_failure(self._pending[0], source) if self._pending else None
        if failure is not None:
            if isinstance(failure, SourceDamagedError) and self._planner.reached():
                # the records before the failure are valid: they are committed first
                return Pumped(0, 0, drained=False, enough=True)
            raise failure
        messages, self._pending = self._pending, []
        transaction = self._transaction
        wanted = self._transaction_size.records(transaction.bytes)
        if not messages:
            # with held records there is no need to wait
            slice_seconds = 0.0 if self._range_sender.holding else _PUMP_SLICE_SECONDS
            messages = self._source.client().consume(wanted, max(0.0, min(seconds, slice_seconds)))
            full = len(messages) >= wanted
            messages = self._compared(messages)
        else:
            full = len(messages) >= wanted
        if self._range_sender.active:
            messages = self._range_sender.hold_back(messages)
        plan = self._planner.plan(messages)
        self._source.reached.consumed()
        self._source.record_ends(plan.ends)
        if plan.error_at is not None:
            self._pending, more_ends = split_ends(messages[plan.error_at :])
            self._source.record_ends(more_ends)
            full = True
        with self._naming_source_topics():
            self._tx.produce_all(plan.records)
        kept, size = plan.kept, plan.bytes
        if self._range_sender.active:
            with self._naming_source_topics():
                more, larger = self._range_sender.send(
                    self._planner, self._tx, self._routes, self._spec.link.transaction_timeout
                )
            self._range_sender.update_pauses(self._source.client())
            kept, size = kept + more, size + larger
            full = full or bool(self._range_sender.holding)
        # with this much data the client's queue is likely to hold more
        full = full or size >= _MUCH
        transaction.bytes += size
        self._transaction_size.fetched(kept, size)
        return Pumped(kept, size, drained=not full, enough=self._transaction_size.enough(transaction.bytes))

    def close(self) -> None:
        """Closes all clients."""
        self._close_producer()
        self._source.close()

    def pinned(self) -> AbstractSet[str]:
        """Returns nothing: librdkafka fetches and produces by name."""
        return frozenset()

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """Returns last stable offsets as fetches have shown them; partitions without one are left out."""
        return self._source.log_ends()

    # -- inside ----------------------------------------------------------------------------------

    def _close_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            # creating the next one may fail, because a certificate can be missing for a moment
            self._producer = None

    @contextmanager
    def _naming_source_topics(self) -> Iterator[None]:
        """Renames the topic in the producer's errors from target to source."""
        try:
            yield
        except AuthorizationError as error:
            # a state topic: it concerns everything that the lane mirrors
            error.topic = next(
                (source for source, target in self._routes.items() if target == error.topic), ""
            )
            raise
        except TargetRefusedError as error:
            letter = error.target_topic == self._names.dead_letter_topic
            source = (
                next(iter(self._range_sender.dead_letters), None)
                if letter
                else _source_of(error, self._routes, self._counts)
            )
            if source is None:
                if error.target_topic in self._counts:
                    sources = [
                        source for source, target in self._routes.items() if target == error.target_topic
                    ]
                    error.topic = sources[0] if len(sources) == 1 else ""
                raise
            begin, end = self._source.committed.get(source, 0), self._source.end_of(source)
            raise named(error, source, begin=begin, end=end, letter=letter) from error

    @property
    def _tx(self) -> TransactionalProducer:
        if self._producer is None:
            raise AssertionError("the runner opens the plane before it uses it")
        return self._producer

    def _compared(self, messages: list[Any]) -> list[Any]:
        """
        Returns the valid messages of the last consume, without the last mirrored records, which are compared (EO-5).

        After a lost connection the log may have changed: these records are fetched and compared first.
        """
        messages = self._source.fetched(messages)
        if self._source.lost and not self._range_sender.active:
            self._source.lost = False
            # records that the open transaction dropped behind its last kept one are planned as well
            planned = dict(self._source.committed)
            for topic, partition, offset, _ in self._planner.reached():
                source = SourcePartition(topic, partition)
                planned[source] = max(offset, planned.get(source, 0))
            messages = self._log.fetch_again(
                messages, self._source.client(), tails=self._planner.tails(), planned=planned
            )
        return self._log.compare(messages)

    def _policy(self) -> Policy:
        spec = self._spec
        writer = self._producer if spec.link.provenance_header else None
        return Policy(
            self._routes,
            source_cluster_id=spec.source_cluster_id,
            target_cluster_id=spec.target_cluster_id,
            header=spec.link.provenance_header,
            guard=spec.link.drops,
            origins=spec.link.origin_ids(spec.source.alias, spec.source_cluster_id),
            origin=spec.link.source if spec.link.origin_header else None,
            # librdkafka keeps it for the life of the producer: only an abort may bring another, and ends that life
            producer_id=None if writer is None else writer.identity().producer_id,
            keyed=self._counts,
            transform=self._transform,
        )


class _OpenTransaction:
    """
    Account of the open transaction.

    Args:
        next_offsets: Offset of our next record in each target partition, after the last commit.
        begun: Time of its begin.

    Attributes:
        next_offsets: As given.
        begun: As given.
        bytes: Size of its records.
        advances: Flushed advances.
    """

    def __init__(self, next_offsets: dict[tuple[str, int], int] | None = None, *, begun: float = 0.0) -> None:
        self.next_offsets = {} if next_offsets is None else next_offsets
        self.begun = begun
        self.bytes = 0
        self.advances: Mapping[SourcePartition, Advance] = {}
        # as `next_offsets`, after this transaction
        self._written: dict[tuple[str, int], int] = {}

    def expected(self, planned: Sequence[tuple[str, int, int]]) -> Acks | None:
        """Returns the acknowledgements of planned records if no other producer writes there; None if unknown."""
        runs = []
        for topic, partition, count in planned:
            first = self.next_offsets.get((topic, partition))
            if first is None:
                return None
            runs.append((topic, partition, [(first, count)]))
        return Acks(runs)

    def flushed(self, flushed: Flushed) -> None:
        """Records the acknowledged records."""
        self.advances = flushed.advances
        for account in flushed.accounts:
            if account.target_offset is None:
                continue
            for partition, _, last in account.placed or (
                (account.target_partition, 0, account.target_offset),
            ):
                where = (account.target_topic, partition)
                # two source partitions may share a target partition
                self._written[where] = max(last + 1 + _MARKER, self._written.get(where, 0))

    def committed(self) -> None:
        """Records the commit."""
        self.next_offsets.update(self._written)


def _first_offset(start: Start) -> int:
    """Returns the first offset to fetch: records before the position are compared and skipped."""
    first = start.offset
    if start.leader_epoch is not None and start.epoch_offset is not None:
        first = start.epoch_offset
    record = start.history.record
    if record is None or start.history.holes is Holes.COUNT:
        return first
    return min(first, record.offset)


def _source_of(
    error: TargetRefusedError, routes: Mapping[str, str], placed_by_key: Mapping[str, int]
) -> SourcePartition | None:
    """Returns the source partition of a refused record; the target partition of one placed by key does not tell it."""
    for source, target in routes.items():
        if target == error.target_topic and target not in placed_by_key:
            return SourcePartition(source, error.target_partition)
    return None
