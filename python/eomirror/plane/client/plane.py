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

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eomirror._native import Acks, Planner, Policy
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.config.rights import account_of
from eomirror.errors import AuthorizationError, SourceDamagedError, TransactionFailedError, hole_error
from eomirror.kafka.client_factory import ClientLog, connect, create_client
from eomirror.plane.client.bisect import RangeSender
from eomirror.plane.client.fetch_errors import fetch_failure, split_ends
from eomirror.plane.client.fetch_progress import FetchProgress
from eomirror.plane.client.position_checks import EndOffsets, LastRecords, OffsetGaps, validate_epochs
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.client.rejected_record import TargetRefusedError, named
from eomirror.plane.protocol import (
    Account,
    Advance,
    CommitOutcome,
    Flushed,
    History,
    Holes,
    MetadataRecord,
    ProducerIdentity,
    Pumped,
    RecordMark,
    Seen,
    SendPlan,
    Serving,
    Start,
    is_compacting,
)
from eomirror.plane.transaction_size import TransactionSize
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.lane.spec import LaneSpec

__all__ = ["ClientPlane"]

log = structlog.get_logger(__name__)

# maximum wait of a fetch inside an open transaction; a multiple of it delays each commit of a caught-up lane
_PUMP_SLICE_SECONDS = 0.005
# a fetch of this many bytes shows that the lane lags, even with few records; far below the client's queue
_MUCH = 1024 * 1024
# a commit writes one control batch of one record to each partition of the transaction
_MARKER = 1


class ClientPlane:
    """
    Moves one lane's records through librdkafka; see `eomirror.plane.protocol.Plane` for each call.

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
        self._planner = Planner(self._policy())
        self._consumer: Consumer | None = None
        self._pending: list[Any] = []
        # next offset to fetch as last committed, and as reached now
        self._committed: dict[SourcePartition, int] = {}
        self._reached = FetchProgress()
        self._policies = policies
        self._last_records = LastRecords()
        # a connection to the source was lost: the log may have changed
        self._lost = False
        self._jumps = None if explain is None else OffsetGaps(explain)
        self._histories: dict[SourcePartition, History] = {}
        self._log_ends = EndOffsets(self._shown_end)
        # target partitions: offset of our next record after the last commit, and after the open transaction
        self._next_target: dict[tuple[str, int], int] = {}
        self._written: dict[tuple[str, int], int] = {}
        # the open transaction: advances, bytes, start
        self._advancing: Mapping[SourcePartition, Advance] = {}
        self._used = 0
        self._begun = 0.0
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
        self._source()
        self._close_producer()
        self._planner.clear()
        self._written.clear()
        self._next_target.clear()
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
        self._written = {}
        self._advancing = {}
        self._used = 0
        self._range_sender.dead_letters.clear()
        self._tx.begin()
        self._begun = self._clock.monotonic()
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
        runs = []
        for topic, partition, count in self._planner.planned():
            first = self._next_target.get((topic, partition))
            if first is None:
                return None
            runs.append((topic, partition, [(first, count)]))
        return self._flushed(Acks(runs), speculative=True)

    def flush(self, seconds: float) -> Flushed:
        """Waits for every acknowledgement, and balances the account (EO-7)."""
        with self._naming_source_topics():
            self._tx.flush(seconds)
        acks = self._tx.take_acks()
        if acks.failed:
            raise TransactionFailedError(f"EO-7: {acks.failed} records were not acknowledged")
        self._transaction_size.acknowledged(self._used, self._clock.monotonic() - self._begun)
        flushed = self._flushed(acks)
        self._advancing = flushed.advances
        for account in flushed.accounts:
            if account.target_offset is None:
                continue
            for partition, _, last in account.placed or (
                (account.target_partition, 0, account.target_offset),
            ):
                where = (account.target_topic, partition)
                # two source partitions may share a target partition
                self._written[where] = max(last + 1 + _MARKER, self._written.get(where, 0))
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
            if account.tail is not None:
                advance = replace(advance, seen=Seen(record=RecordMark(*account.tail)))
            advances[source] = advance
        if not speculative and self._jumps is not None:
            self._explain(self._jumps, accounts, advances)
        dead_letters = self._range_sender.dead_letters
        balanced = [Account.of(account, () if speculative else account.ranges) for account in accounts]
        if dead_letters:
            balanced = [
                replace(one, dead_letters=tuple(dead_letters.get(one.source, ()))) for one in balanced
            ]
        return Flushed(tuple(balanced), advances)

    def _explain(
        self, jumps: OffsetGaps, accounts: Sequence[Any], advances: dict[SourcePartition, Advance]
    ) -> None:
        """Finds holes in the source's logs at jumps of offsets (EO-6)."""
        found = jumps.look(
            (
                (
                    source := SourcePartition(account.source_topic, account.source_partition),
                    _jumps(account, self._committed[source]),
                )
                for account in accounts
            ),
            self._clock.monotonic(),
        )
        for source, (holes, compacted) in found.items():
            history, advance = self._histories[source], advances[source]
            if compacted or self._is_compacting(source.topic):
                advances[source] = replace(advance, seen=replace(advance.seen, compacted=True))
                continue
            if history.holes is Holes.STOP:
                raise hole_error(source, *holes[0])
            missing = history.missing + sum(end - start for start, end in holes)
            self._histories[source] = replace(history, missing=missing)
            advances[source] = replace(advance, seen=replace(advance.seen, missing=missing, holes=holes))

    def _is_compacting(self, topic: str) -> bool:
        policies = {} if self._policies is None else self._policies([topic])
        return is_compacting(policies.get(topic, "compact"))

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
        for source, advance in self._advancing.items():
            if advance.seen.record is not None:
                self._last_records.mirrored(source, advance.seen.record)
            self._committed[source] = max(self._committed[source], advance.offset)
        self._next_target.update(self._written)
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
        consumer = self._source()
        connect(consumer, sorted({start.source.topic for start in starts}))
        self._tx.learn(sorted({start.target_topic for start in starts}))
        for start in starts:
            self._routes[start.source.topic] = start.target_topic
            self._committed[start.source] = start.offset
            if start.target_partitions is not None:
                self._counts[start.target_topic] = start.target_partitions
            if start.history.holes is not Holes.COUNT and self._policies is not None:
                self._last_records.begin(start.source, start.history.record, start.offset)
                self._histories[start.source] = start.history
                if self._jumps is not None:
                    self._jumps.begin(start.source)
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

    def set_send_plan(self, send_plan: SendPlan) -> None:
        """Sets how to send records from the next transaction on; the caller aborts an open one."""
        # held records of a partition are older than all others of it
        self._pending = [*self._range_sender.set_send_plan(send_plan), *self._pending]
        self._reached.consumed()
        if self._consumer is not None:
            self._range_sender.update_pauses(self._consumer)

    def restart(self) -> None:
        """Forgets everything fetched; `start` sets the new fetch offsets."""
        self._pending.clear()
        self._last_records.clear()
        self._lost = False
        self._histories.clear()
        if self._jumps is not None:
            self._jumps.clear()
        self._range_sender.clear(self._consumer)
        self._committed.clear()
        self._reached.clear()
        self._planner.clear()
        if self._consumer is not None:
            self._consumer.unassign()

    def await_records(self, seconds: float) -> bool:
        """Waits for records to mirror, and notes ends of partitions."""
        if self._pending or self._range_sender.holding:
            return True
        deadline = Deadline(seconds, self._clock)
        consumer = self._source()
        while True:
            if self._producer is not None:
                # without polls the producer keeps its events, and does not report that it was fenced
                self._producer.serve()
            messages = consumer.consume(1, deadline.remaining())
            self._reached.consumed()
            if messages:
                messages += consumer.consume(self._transaction_size.records(0), 0)
            messages = self._compared(self._after_loss(messages))
            if messages:
                self._pending, ends = split_ends(messages)
                self._note_ends(ends)
                if self._pending:
                    return True
            if deadline.passed:
                return False

    def advances(self) -> Mapping[SourcePartition, Advance]:
        """Returns partitions whose next offset has moved since the last commit."""
        return {
            source: advance
            for source, advance in self._found().items()
            if advance.offset > self._committed[source]
        }

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
        wanted = self._transaction_size.records(self._used)
        if not messages:
            # with held records there is no need to wait
            slice_seconds = 0.0 if self._range_sender.holding else _PUMP_SLICE_SECONDS
            messages = self._source().consume(wanted, max(0.0, min(seconds, slice_seconds)))
            full = len(messages) >= wanted
            messages = self._compared(self._after_loss(messages))
        else:
            full = len(messages) >= wanted
        if self._range_sender.active:
            messages = self._range_sender.hold_back(messages)
        plan = self._planner.plan(messages)
        self._reached.consumed()
        self._note_ends(plan.ends)
        if plan.error_at is not None:
            self._pending, more_ends = split_ends(messages[plan.error_at :])
            self._note_ends(more_ends)
            full = True
        with self._naming_source_topics():
            self._tx.produce_all(plan.records)
        kept, size = plan.kept, plan.bytes
        if self._range_sender.active:
            more, larger = self._sift_ranges()
            kept, size = kept + more, size + larger
            full = full or bool(self._range_sender.holding)
        # with this much data the client's queue is likely to hold more
        full = full or size >= _MUCH
        self._used += size
        self._transaction_size.fetched(kept, size)
        return Pumped(kept, size, drained=not full, enough=self._transaction_size.enough(self._used))

    def close(self) -> None:
        """Closes all clients."""
        self._close_producer()
        if self._consumer is not None:
            try:
                self._consumer.close()
            except (KafkaException, RuntimeError) as error:
                log.debug("consumer_close_failed", error=str(error))
            self._consumer = None

    def pinned(self) -> AbstractSet[str]:
        """Returns nothing: librdkafka fetches and produces by name."""
        return frozenset()

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """Returns last stable offsets as fetches have shown them; partitions without one are left out."""
        if self._consumer is None:
            return {}
        return self._log_ends.ends(
            self._committed, {source: end.offset for source, end in self._reached.ends.items()}
        )

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
            source = next(iter(self._range_sender.dead_letters), None) if letter else self._source_of(error)
            if source is None:
                if error.target_topic in self._counts:
                    sources = [
                        source for source, target in self._routes.items() if target == error.target_topic
                    ]
                    error.topic = sources[0] if len(sources) == 1 else ""
                raise
            begin = self._committed.get(source, 0)
            raise named(error, source, begin=begin, end=self._end_of(source), letter=letter) from error

    def _source_of(self, error: TargetRefusedError) -> SourcePartition | None:
        for source, target in self._routes.items():
            # placed by key: the target partition does not tell the source partition
            if target == error.target_topic and target not in self._counts:
                return SourcePartition(source, error.target_partition)
        return None

    def _end_of(self, source: SourcePartition) -> int:
        """Returns the offset after the last consumed record of a partition."""
        (position,) = self._source().position([TopicPartition(*source)])
        return max(int(position.offset), self._committed.get(source, 0))

    def _sift_ranges(self) -> tuple[int, int]:
        with self._naming_source_topics():
            sent = self._range_sender.send(
                self._planner, self._tx, self._routes, self._spec.link.transaction_timeout
            )
        self._range_sender.update_pauses(self._source())
        return sent

    @property
    def _tx(self) -> TransactionalProducer:
        if self._producer is None:
            raise AssertionError("the runner opens the plane before it uses it")
        return self._producer

    def _source(self) -> Consumer:
        if self._consumer is None:
            self._consumer = create_client(
                Consumer,
                self._spec.source,
                consumer_properties(
                    self._spec.source,
                    client_id=self._names.client_id(f"lane-{self._spec.lane}"),
                    **{
                        # when librdkafka's queue is full it pauses a partition's fetches for this long; its
                        # default of 1 s is longer than we need to empty the queue
                        "fetch.queue.backoff.ms": 10,
                        # the default of 64 MiB is memory of every lane, and what has waited in it for so long is in no
                        # cache of the processor any more
                        "queued.max.messages.kbytes": 8 * 1024,
                    },
                )
                | {"error_cb": self._on_error, "logger": ClientLog(client=f"lane-{self._spec.lane}")},
            )
        return self._consumer

    def _after_loss(self, messages: list[Any]) -> list[Any]:
        """
        Returns the valid messages of the last consume.

        After a lost connection the log may have changed: the last mirrored records are fetched and compared first.
        """
        if not self._lost or self._range_sender.active:
            return messages
        self._lost = False
        return self._fetch_again(messages)

    def _on_error(self, error: KafkaError) -> None:
        """Handles an error of the client, mostly of its connections; librdkafka calls it within a call of ours."""
        log.debug("source_client_error", lane=self._spec.lane, code=error.name())
        self._lost = True

    def _compared(self, messages: list[Any]) -> list[Any]:
        """Compares the last mirrored records with the log (EO-5), and returns the other messages."""
        if not self._last_records.expecting:
            return messages
        messages, changed = self._last_records.compare(messages)
        if changed is not None:
            if self._is_compacting(changed.topic):
                # since it was asked: the next attempt knows, and compares nothing
                raise TransactionFailedError(f"{changed.message}, and the topic is compacted now")
            raise changed
        return messages

    def _fetch_again(self, messages: list[Any]) -> list[Any]:
        """Seeks to the last mirrored records; drops messages of those partitions, which will be fetched again."""
        tails = {
            SourcePartition(topic, partition): RecordMark(*tail)
            for topic, partition, tail in self._planner.tails()
        }
        # records that the open transaction dropped behind its last kept one are planned as well
        planned = dict(self._committed)
        for topic, partition, offset, _ in self._planner.reached():
            source = SourcePartition(topic, partition)
            planned[source] = max(offset, planned.get(source, 0))
        expected = self._last_records.again(tails, planned)
        try:
            for source, one in expected.items():
                self._source().seek(TopicPartition(*source, one.mark.offset))
        except KafkaException as raised:
            raise TransactionFailedError(
                f"could not fetch the last mirrored records again: {raised.args[0].str()}"
            ) from raised
        return [
            message
            for message in messages
            if SourcePartition(message.topic(), message.partition()) not in expected
            # an end of partition from before the seek proves nothing; it comes again behind the record
            or (message.error() is not None and message.error().code() != KafkaError._PARTITION_EOF)
        ]

    def _shown_end(self, source: SourcePartition) -> int | None:
        marks = self._source().get_watermark_offsets(TopicPartition(*source), cached=True)
        return None if marks is None or marks[1] < 0 else int(marks[1])

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
        )

    def _note_ends(self, ends: Sequence[tuple[str, int, int]]) -> None:
        for topic, partition, offset in ends:
            source = SourcePartition(topic, partition)
            if source in self._committed:
                self._reached.end(source, offset)

    def _found(self) -> Mapping[SourcePartition, Advance]:
        """
        Returns the next offset to fetch of every partition, up to the records that the planner has seen.

        Records in ``_pending`` and held records were consumed, but not planned.
        """
        if self._consumer is None or not self._committed:
            return {}
        waiting = {SourcePartition(message.topic(), message.partition()) for message in self._pending}
        return self._reached.find(
            self._consumer,
            self._committed.keys(),
            self._planner.reached(),
            waiting.union(self._range_sender.holding),
        )


def _jumps(account: Any, committed: int) -> list[tuple[int, int]]:
    """Returns the offset ranges without a record in a transaction, from the committed position on."""
    first = account.first_source_offset
    return [*([(committed, first)] if first > committed else []), *account.jumps]


def _first_offset(start: Start) -> int:
    """Returns the first offset to fetch: records before the position are compared and skipped."""
    first = start.offset
    if start.leader_epoch is not None and start.epoch_offset is not None:
        first = start.epoch_offset
    record = start.history.record
    if record is None or start.history.holes is Holes.COUNT:
        return first
    return min(first, record.offset)
