"""
A transactional producer that knows whether its commits were clean (EO-7, EO-8 and EO-9).

librdkafka speaks transaction protocol V1.  An EndTxn that was delayed in the network and repeated by the library ends
the transaction that is open when it finally arrives, while ``commit_transaction()`` has long returned without an error
(measured, docs/adr/0003)::

    producer                    network                       coordinator

    commit 1 -> EndTxn          held
    socket breaks, EndTxn again                        ->     commit 1, OK
    begin 2, produce            held EndTxn arrives    ->     commit 2, half written!

So every request and answer is counted by a `Witness`, an interceptor on librdkafka's own threads.  A transaction with
any transactional request that was sent twice, or answered with an error, is SUSPECT even if it is committed: the lane
then takes a new producer, whose epoch invalidates the straggler.

EndTxn is answered before the markers of the transaction are written.  A producer that registers partitions for the next
transaction meanwhile gets CONCURRENT_TRANSACTIONS, and librdkafka retries after 20 ms (rdkafka_txnmgr.c), which is
longer than the markers take.  Measured at 1,000 records/s on two lanes: two of three transactions got the error, and
their first flush took 28 ms; after a pause of 5 ms it took 9.7 ms.

So the next transaction waits a little.  The wait depends on brokers and on the number of partitions, and is learnt::

    error         wait longer: half a millisecond, and a quarter more
    no error      wait 1.5 % less

which settles where about one transaction in 16 gets the error.  A lane that lags never waits: when it has fetched the
next records, the pause is over.
"""

from __future__ import annotations

from collections import deque
from itertools import starmap
from operator import length_hint
from typing import TYPE_CHECKING, Any

import orjson
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, cimpl

from eomirror._native import Acks, Witness
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import producer_properties
from eomirror.config.rights import Right, account_of
from eomirror.errors import (
    AuthorizationError,
    FencedError,
    LaneError,
    MirrorError,
    OutcomeUnknownError,
    TransactionFailedError,
)
from eomirror.kafka.client_factory import ClientLog, connect, create_client
from eomirror.kafka.errors import Action, classify_delivery, classify_transaction, said, to_mirror_error
from eomirror.plane.client.rejected_record import TargetRefusedError, at_most
from eomirror.plane.protocol import CommitOutcome, MetadataRecord, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eomirror.config import Cluster

__all__ = ["CommitBackoff", "TransactionalProducer"]

_LONGEST_SECONDS = 0.02
_STEP_SECONDS = 0.0005
_GROWTH = 1.25
_DECAY = 0.985


class CommitBackoff:
    """
    Learns the pause of one producer.

    Attributes:
        seconds: From the answer to EndTxn to the first record of the next transaction.
    """

    __slots__ = ("_ended", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.002
        self._ended = float("-inf")

    def ended(self, now: float, *, retried: bool) -> None:
        """
        Records a commit.

        Args:
            now: Monotonic time of the answer.
            sent_away: Whether its first registration of partitions got CONCURRENT_TRANSACTIONS.
        """
        self._ended = now
        if retried:
            self.seconds = min(_LONGEST_SECONDS, self.seconds * _GROWTH + _STEP_SECONDS)
        else:
            self.seconds *= _DECAY

    def left(self, now: float) -> float:
        """Returns the seconds to wait before the next transaction's first record."""
        return max(0.0, self._ended + self.seconds - now)


log = structlog.get_logger(__name__)

# API keys (https://kafka.apache.org/protocol#protocol_api_keys) that move a transaction on the coordinator
_INIT_PRODUCER_ID = 22
_ADD_PARTITIONS_TO_TXN = 24
_ADD_OFFSETS_TO_TXN = 25
_END_TXN = 26
_TRANSACTION_KEYS = (_INIT_PRODUCER_ID, _ADD_PARTITIONS_TO_TXN, _ADD_OFFSETS_TO_TXN, _END_TXN)
_PRODUCE = 0

# errors of records that fail because another one did: a neighbour in the batch, or all that the client purges
_CONSEQUENCES = frozenset(
    {KafkaError._INVALID_DIFFERENT_RECORD, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
)
_GIVEN_UP = _CONSEQUENCES - {KafkaError._INVALID_DIFFERENT_RECORD}

# the first delivery that failed: why, what it was in words, topic and partition
_Failure = tuple[KafkaError, str, str, int]

# one document per interval; librdkafka reports the producer id only there (STATISTICS.md: eos)
_STATISTICS_SECONDS = 0.1
_INIT_SLICE_SECONDS = 5.0
_MOST_BYTES = 100_000_000
# longer than a transaction of a lagging lane stays open before its flush
_LINGER_MS = 1000
# max.in.flight of an idempotent producer
_REQUESTS_IN_FLIGHT = 5
_REPORT_SECONDS = 0.1
_REPORT_POLLS = 10
# an abort only speeds up readers: the successor's InitProducerId aborts in any case
_ABORT_SECONDS = 5.0


def _linger_ms(partitions: int) -> int:
    """
    Returns how long a partial batch waits for more records; `flush`, which ends every transaction, never waits.

    An idempotent librdkafka keeps one request of a partition in flight.  While the next batch is due by age, the broker
    thread polls without pause for that answer: a fifth of a lane's CPU when few partitions carry much data.  A batch
    that is due by size only waits without polling.  With more partitions than in-flight requests per connection, the
    thread waits for the socket instead, and all batches of a transaction would be left to its end: there, available
    records are sent at once.
    """
    return _LINGER_MS if partitions <= _REQUESTS_IN_FLIGHT else 0


# What a call of the client raises.  When librdkafka has a fatal error for its error callback while it runs a
# delivery callback, even a callback that does nothing wrong ends in a SystemError (fault table, row 4): with the
# KafkaException as its cause, or, when a flush is cut short by the fencing of a mirror that had been frozen (fault F3),
# with none at all.
_RAISED = (KafkaException, SystemError)


def _error_of(raised: BaseException) -> KafkaError:
    """Returns the client's own error, which a SystemError holds as its cause; without one, nothing is guessed."""
    cause: BaseException | None = raised
    while cause is not None:
        if isinstance(cause, KafkaException):
            error: KafkaError = cause.args[0]
            return error
        cause = cause.__cause__
    return KafkaError(KafkaError.UNKNOWN, f"the client ended a call without saying why: {raised}")


class TransactionalProducer:
    """
    A producer with a transactional.id, from InitProducerId to its last commit or abort.

    Args:
        transactional_id: The id to take; `init` fences older producers with it.
        transaction_timeout: Seconds after which the coordinator aborts an open transaction.
        known_topic: A topic that exists and that we may describe.
        partitions: Approximate number of partitions written at a time; decides when batches are sent.
        batch_bytes: Maximum batch size; None for librdkafka's own, or the user's.
        statistics_seconds: Interval of librdkafka's statistics, the longest wait of `identity`.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str,
        transactional_id: str,
        transaction_timeout: float,
        known_topic: str,
        partitions: int = 1,
        batch_bytes: int | None = None,
        statistics_seconds: float = _STATISTICS_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._account = account_of(cluster)
        self._known_topic = known_topic
        self.transactional_id = transactional_id
        self._clock = clock
        self._timeout = transaction_timeout
        self._identity: ProducerIdentity | None = None
        self._failure: _Failure | None = None
        self._pause = CommitBackoff()
        self._log = ClientLog(transactional_id=transactional_id)
        properties = producer_properties(
            cluster,
            client_id=client_id,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(transaction_timeout * 1000),
        )
        properties.update(
            {
                "plugin.library.paths": Witness.plugin_path(),
                "statistics.interval.ms": int(statistics_seconds * 1000),
                "stats_cb": self._on_statistics,
                "error_cb": self._on_error,
                # successes are counted by the witness, without a Python call per record
                "delivery.report.only.error": True,
                "on_delivery": self._on_failed_delivery,
                "logger": self._log,
            }
        )
        # the queue holds a whole transaction (lane.commit_trigger.CommitTrigger)
        properties.setdefault("queue.buffering.max.messages", 500_000)
        properties.setdefault("linger.ms", _linger_ms(partitions))
        # librdkafka's default is below the brokers' 1048576 + overhead; the broker shall decide
        properties.setdefault("message.max.bytes", _MOST_BYTES)
        if batch_bytes is not None:
            properties["batch.size"] = at_most(batch_bytes, properties.get("batch.size"))
        self._witness = Witness.arm(str(cimpl.__file__))
        self._producer = create_client(Producer, cluster, properties)
        if not self._witness.attached:
            raise MirrorError(
                "the commit witness could not attach to librdkafka",
                fix="install the release of confluent-kafka that eomirror asks for (pip check)",
            )

    # -- the life of a producer ------------------------------------------------------------------

    def init(self, seconds: float = 60.0) -> None:
        """
        Runs InitProducerId: fences older producers of the id, and aborts their open transactions.

        Raises:
            FencedError: A newer producer took the id meanwhile.
            MirrorError: The cluster refuses us, or cannot be reached in time.
        """
        deadline = Deadline(seconds, self._clock)
        connect(self._producer, [self._known_topic])
        while True:
            try:
                self._producer.init_transactions(max(0.1, min(_INIT_SLICE_SECONDS, deadline.remaining())))
            except _RAISED as raised:
                error = _error_of(raised)
                classified = classify_transaction(error)
                again = error.retriable() or classified.action in {Action.RETRY, Action.UNREACHABLE}
                if again and not deadline.passed:
                    self._producer.poll(0)
                    continue
                raise self._lane_error(error, "take its transactional.id") from raised
            self._witness.mark()
            return

    def learn(self, topics: Sequence[str]) -> None:
        """Requests metadata of these topics, so that added partitions are known before the first write."""
        connect(self._producer, topics)

    def identity(self, seconds: float = 5.0) -> ProducerIdentity:
        """Returns producer id and epoch, from librdkafka's statistics after `init`."""
        deadline = Deadline(seconds, self._clock)
        while self._identity is None:
            if deadline.passed:
                raise TransactionFailedError("librdkafka did not tell its producer id in time")
            self._producer.poll(0.01)
        return self._identity

    def begin(self) -> None:
        """Begins a transaction once the markers of the last one are probably written; sends nothing."""
        if (left := self._pause.left(self._clock.monotonic())) > 0:
            self._clock.sleep(left)
        self._witness.mark()
        self._log.denied = ""
        try:
            self._producer.begin_transaction()
        except _RAISED as raised:
            raise self._lane_error(_error_of(raised), "begin a transaction") from raised

    def produce_all(self, records: Sequence[tuple[Any, ...]]) -> None:
        """
        Produces records in order; each is a tuple of `Producer.produce`'s positional arguments.

        Raises:
            TargetRefusedError: A record is larger than this client may send; the transaction must be aborted, although
                librdkafka would commit it without the record (measured).
            LaneError: The transaction cannot continue.
        """
        done = 0
        while done < len(records):
            left = iter(records[done:] if done else records)
            try:
                # the interpreter's own C loop: a step of Python's would cost a record 2 % more
                deque(starmap(self._producer.produce, left), maxlen=0)
                done = len(records)
            except BufferError:
                done = len(records) - length_hint(left) - 1
                # librdkafka's queue is full: let it send; poll also raises what is fatal
                self._serve(0.05)
            except _RAISED as raised:
                error = _error_of(raised)
                if error.code() == KafkaError._STATE:
                    self._await_failure()
                refused = records[len(records) - length_hint(left) - 1]
                raise self._record_error(error, refused) from raised
        self._serve(0)

    def write(self, records: Iterable[MetadataRecord]) -> None:
        """Produces state records."""
        self.produce_all([(record.topic, record.value, record.key, record.partition) for record in records])

    def flush(self, seconds: float) -> None:
        """
        Waits until every record is acknowledged.

        Raises:
            TargetRefusedError: The target refused a record for its content.
            TransactionFailedError: A record failed, or was not acknowledged in time.
            AuthorizationError: A write ACL is missing; names the target topic, if it concerns one.
            FencedError: A newer producer has our id.
        """
        deadline = Deadline(seconds, self._clock)
        while True:
            try:
                left = self._producer.flush(min(0.25, deadline.remaining()))
            except _RAISED as raised:
                raise self._lane_error(_error_of(raised), "send records") from raised
            self._raise_failure()
            if left == 0:
                return
            if deadline.passed:
                raise TransactionFailedError(f"{left} records were not acknowledged within {seconds:g} s")

    def serve(self) -> None:
        """
        Delivers the client's events; an idle producer needs this a few times a second.

        Raises:
            FencedError: A newer producer has our id.
        """
        self._serve(0)

    def take_acks(self) -> Acks:
        """Returns the acknowledgements since the last call."""
        return self._witness.take_acks()

    def commit(self) -> CommitOutcome:
        """
        Commits the open transaction.

        Raises:
            FencedError: A newer producer has our id.
            TransactionFailedError: It is certainly not committed.
            OutcomeUnknownError: It may be committed (EO-8).
        """
        try:
            # librdkafka's own default has no end: while answers are lost it repeats EndTxn for as long as it is let
            # (measured: minutes).  A commit that takes longer is of unknown outcome, and the producer is thrown away.
            self._producer.commit_transaction(self._timeout)
        except _RAISED as raised:
            error = _error_of(raised)
            if classify_transaction(error).action is Action.FENCED:
                raise FencedError(str(error)) from raised
            if self._witness.requests().get(_END_TXN, (0, 0, 0))[0] > 0:
                raise OutcomeUnknownError(str(error)) from raised
            raise TransactionFailedError(str(error)) from raised
        retried = self._witness.early_registrations() > 1
        self._pause.ended(self._clock.monotonic(), retried=retried)
        return CommitOutcome.CLEAN if self.clean() else CommitOutcome.SUSPECT

    def clean(self) -> bool:
        """Returns whether no transactional request since `begin` can still be in flight (EO-9)."""
        requests = self._witness.requests()
        for key in _TRANSACTION_KEYS:
            sent, answered, errors = requests.get(key, (0, 0, 0))
            if errors or answered < sent:
                log.info("commit_suspect", api_key=key, sent=sent, answered=answered, errors=errors)
                return False
        return requests.get(_END_TXN, (0, 0, 0))[0] <= 1 and not requests.get(_PRODUCE, (0, 0, 0))[2]

    def abort(self) -> None:
        """Aborts the open transaction, best effort. The producer must not be reused."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(_ABORT_SECONDS)
        except (*_RAISED, RuntimeError) as raised:
            # the next InitProducerId with this id aborts it
            log.info("abort_left_to_successor", transactional_id=self.transactional_id, error=str(raised))

    def close(self) -> None:
        """Releases the client; queued records are dropped."""
        try:
            self._producer.purge()
            self._producer.poll(0)
        except (*_RAISED, RuntimeError) as raised:
            log.debug("producer_close_failed", error=str(raised))
        del self._producer

    # -- what went wrong ------------------------------------------------------------------------

    def _await_failure(self) -> None:
        """
        Waits briefly for the report of a failed record.

        librdkafka accepts no more records of a transaction once one was refused, and reports that record a moment
        later.  Only the report has the reason; without it a refused record would be sent again for ever.
        """
        for _ in range(_REPORT_POLLS):
            self._serve(_REPORT_SECONDS)

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        for _ in range(_REPORT_POLLS):
            if self._failure[0].code() not in _GIVEN_UP:
                break
            # librdkafka's threads purge the queue before they report the record that is the cause
            self._poll(_REPORT_SECONDS)
        error, what, topic, partition = self._failure
        if error.code() in _GIVEN_UP and (cause := self._transaction_error()) is not None:
            raise self._record_refusal(cause, what, topic)
        classified = classify_delivery(error)
        if classified.action is Action.REFUSED_RECORD:
            raise TargetRefusedError(what, error, topic, partition)
        if classified.action in {Action.CONFIGURATION, Action.FATAL}:
            # such as an unknown codec: a new attempt would fail again
            raise to_mirror_error(error, doing=f"send {what} ({classified.reason})", cluster=self._account)
        raise self._record_refusal(error, what, topic)

    def _record_refusal(self, error: KafkaError, what: str, topic: str) -> LaneError | MirrorError:
        refused = self._lane_error(error, f"send {what}", topic)
        if isinstance(refused, AuthorizationError) and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            refused.topic = self._log.denied or topic
        return refused

    def _transaction_error(self) -> KafkaError | None:
        """
        Returns the error that ended the transaction, if its coordinator's answer did; None if that is not known.

        librdkafka (2.16) purges the queue when the coordinator refuses the transaction, such as for a
        transactional.id that has expired, and reports every record as purged.  The refusal is the answer to any
        further call of the transaction.  Beginning one is the call that changes nothing while one is open.
        """
        try:
            self._producer.begin_transaction()
        except _RAISED as raised:
            error = _error_of(raised)
            return None if error.code() == KafkaError._STATE else error
        return None

    def _serve(self, seconds: float) -> None:
        self._poll(seconds)
        self._raise_failure()

    def _poll(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except _RAISED as raised:
            raise self._lane_error(_error_of(raised), "send records") from raised

    def _record_error(self, error: KafkaError, record: tuple[Any, ...]) -> LaneError | MirrorError:
        if classify_delivery(error).action is Action.REFUSED_RECORD:
            topic, partition = str(record[0]), int(record[3])
            what = f"a record of {len(record[1] or b'')} bytes for {topic}-{partition}"
            return TargetRefusedError(what, error, topic, partition, by_client=True)
        return self._lane_error(error, "produce")

    def _lane_error(self, error: KafkaError, doing: str, topic: str = "") -> LaneError | MirrorError:
        action = classify_transaction(error).action
        if action is Action.FENCED:
            return FencedError(str(error))
        if action in {Action.UNAUTHORIZED, Action.CONFIGURATION, Action.FATAL}:
            right = Right("Write", "transactional-id", self.transactional_id)
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                right = Right("Write", "topic", self._log.denied or topic or self._known_topic)
            return to_mirror_error(error, doing=doing, cluster=self._account, right=right)
        expired = error.code() == KafkaError.INVALID_PRODUCER_ID_MAPPING
        why = f"; {self.transactional_id} has expired on its coordinator" if expired else ""
        return TransactionFailedError(f"could not {doing}: {said(error)}{why}")

    def _on_error(self, error: KafkaError) -> None:
        # informational: librdkafka recovers, and the next call raises a fatal error too
        if error.fatal() and self._failure is None:
            self._failure = (error, "records", "", -1)

    def _on_failed_delivery(self, error: KafkaError | None, message: Any) -> None:
        # The first failure is the cause, and what fails behind it is out of order.  But a broker that refuses one
        # record of a batch fails its neighbours too, as "a different record", and librdkafka purges what is queued,
        # which may be reported first: the one that is really refused says why, and is the one to name.
        # Called from C: an exception here would surface in an unrelated call (fault table, row 4).
        if error is None:
            return
        if self._failure is None or (
            self._failure[0].code() in _CONSEQUENCES and error.code() not in _CONSEQUENCES
        ):
            size = len(message.value() or b"") + len(message.key() or b"")
            what = f"a record of {size} bytes for {message.topic()}-{message.partition()}"
            self._failure = (error, what, str(message.topic()), int(message.partition()))

    def _on_statistics(self, document: str) -> None:
        if self._identity is None:
            eos = orjson.loads(document).get("eos", {})
            if eos.get("producer_id", -1) >= 0 and eos.get("producer_epoch", -1) >= 0:
                self._identity = ProducerIdentity(eos["producer_id"], eos["producer_epoch"])
