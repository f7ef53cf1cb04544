"""
The native plane: Rust fetches, decides and produces; Python begins, flushes and commits.

A batch without changes is never opened (docs: the two planes).  So an `Account` of this plane counts the bytes of whole
batches as sent, its timestamp is the largest of its records, and its digest is empty: `eomirror verify` compares
content by reading both sides.

Every transaction has an identity of its own, under protocol V1 as well (docs/adr/0025), and a commit whose answer was
lost is resolved by sending the same request again: a commit that returns is clean (EO-8 and EO-9).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror._native import NativeLane, PlaneReader
from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.clients import consumer_properties, producer_properties
from eomirror.config.rights import account_of
from eomirror.config.rules import CODECS
from eomirror.errors import TransactionFailedError
from eomirror.kafka.cluster_metadata import native_id
from eomirror.plane.native.errors import NativeFailureError, Users, lane_error
from eomirror.plane.native.oauth import as_text, with_tokens
from eomirror.plane.protocol import (
    Account,
    Advance,
    BatchMark,
    CommitOutcome,
    Flushed,
    MetadataRecord,
    ProducerIdentity,
    Pumped,
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
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.lane.spec import LaneSpec

__all__ = ["NativePlane", "stalled_text", "unsupported_properties"]

log = structlog.get_logger(__name__)

_INIT_SECONDS = 60.0
# an abort only speeds up readers: the successor's InitProducerId aborts in any case
_ABORT_SECONDS = 5.0
# used if a topic's settings may not be read: Kafka's own default; a smaller limit shows as a rejection
_MAX_MESSAGE_BYTES = 1_048_588
# shorter delays, such as a leader election, are not reported
_WORTH_SAYING_SECONDS = 10.0
# failures that prove something only in a log that was never compacted
_PROVED_BY_POLICY = {"rewritten", "hole"}
# maximum of one fetch answer, and librdkafka's default for it
_ANSWER, _ANSWER_BYTES = "fetch.max.bytes", 52_428_800


def _lane_properties(spec: LaneSpec) -> tuple[dict[str, str], dict[str, str]]:
    """Returns properties of a lane's source and target connections as text, as in librdkafka's own files."""
    names = LinkNames(spec.link.state_name)
    role = names.client_id(f"lane-{spec.lane}")
    return (
        as_text(consumer_properties(spec.source, client_id=role)),
        as_text(
            producer_properties(
                spec.target,
                client_id=role,
                transactional_id=names.transactional_id(spec.lane),
                transaction_timeout_ms=int(spec.link.transaction_timeout * 1000),
            )
        ),
    )


def unsupported_properties(spec: LaneSpec) -> list[str]:
    """Returns the clusters' properties that this plane cannot honour, each with its reason."""
    source, target = _lane_properties(spec)
    refused = [
        f"{cluster.alias}: {name}: {reason}"
        for cluster, properties in ((spec.source, source), (spec.target, target))
        for name, reason in PlaneReader.unsupported_properties(*with_tokens(properties))
    ]
    reason = "batches keep the compression of their producers"
    return refused + [f"{spec.target.alias}: {name}: {reason}" for name in CODECS if name in target]


def stalled_text(stalled: Sequence[tuple[str, int, float, str]]) -> str:
    """
    Returns the partition that has been unreadable longest, and the number of others, for display.

    Args:
        stalled: Topic, partition, seconds, reason.
    """
    worth = [one for one in stalled if one[2] >= _WORTH_SAYING_SECONDS]
    if not worth:
        return ""
    topic, partition, seconds, reason = max(worth, key=lambda delay: delay[2])
    more = f", and {len(worth) - 1} more" if len(worth) > 1 else ""
    return f"{SourcePartition(topic, partition)}{more} cannot be read for {seconds:.0f} s: {reason}"


class NativePlane:
    """
    Moves one lane's records through the extension; see `eomirror.plane.protocol.Plane` for each call.

    Reason for its size: one method for each of them.

    Args:
        settings: Reads settings of target topics, in one request.
        policies: Reads ``cleanup.policy`` of source topics, in one request.
    """

    def __init__(
        self,
        spec: LaneSpec,
        settings: Callable[[Sequence[str]], Mapping[str, Mapping[str, str | None]]],
        clock: Clock = SYSTEM_CLOCK,
        *,
        policies: Callable[[Sequence[str]], Mapping[str, str | None]],
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._policies = policies
        self._clock = clock
        self._lane: NativeLane | None = None
        # source topic -> partitions of its target topic, if records are placed by key
        self._routed: dict[str, int | None] = {}
        # the last ones, as the extension gives them and as readers get them
        self._found_ends: list[tuple[str, int, int]] = []
        self._log_ends: Mapping[SourcePartition, int] = {}
        self._used = 0
        self._begun = self._flushed_after = 0.0
        self._transaction_size = TransactionSize.for_link(
            spec.link.commit_interval,
            overdue=spec.overdue,
            transaction_timeout=spec.link.transaction_timeout,
        )

    # -- producer side ---------------------------------------------------------------------------

    def serving(self) -> Serving:
        """Returns the native plane with the throttling on both sides, partitions without a leader, and the protocol."""
        if self._lane is None:
            return Serving("native", throttled=0.0)
        with self._errors_translated():
            (_, source), (_, target) = self._lane.throttled()
            return Serving(
                "native",
                throttled=source + target,
                delayed=stalled_text(self._lane.stalled()),
                protocol=self._lane.protocol(),
            )

    def open(self) -> ProducerIdentity:
        """Replaces the producer, and runs InitProducerId with the new one."""
        with self._errors_translated():
            if self._lane is None:
                self._lane = self._new_lane()
            return ProducerIdentity(*self._lane.open(_INIT_SECONDS))

    def begin(self) -> ProducerIdentity:
        """Begins a transaction."""
        self._used = 0
        with self._errors_translated():
            identity = ProducerIdentity(*self._open_lane.begin(self._spec.link.transaction_timeout))
        self._begun = self._clock.monotonic()
        return identity

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Produces state records into the open transaction."""
        with self._errors_translated():
            self._open_lane.write(
                [(record.topic, record.partition, record.key, record.value) for record in records],
                self._clock.wall_ms(),
            )

    def speculate(self) -> Flushed | None:
        """Returns the expected result of `flush` if no other producer writes to the target partitions."""
        with self._errors_translated():
            accounts = self._open_lane.speculative_accounts()
        if accounts is None:
            return None
        return Flushed(tuple(map(Account.of, accounts)), self.advances())

    def flush(self, seconds: float) -> Flushed:
        """Waits for every acknowledgement, and balances the account (EO-7)."""
        with self._errors_translated():
            accounts = self._open_lane.settle(seconds)
        self._flushed_after = self._clock.monotonic() - self._begun
        return Flushed(tuple(Account.of(account, account.ranges) for account in accounts), self.advances())

    def has_more(self) -> bool:
        """Returns whether more records of the open transaction's partitions are available."""
        with self._errors_translated():
            return self._open_lane.has_more()

    def commit(self) -> CommitOutcome:
        """Commits the open transaction; a lost answer is requested again (EO-8)."""
        began = self._clock.monotonic()
        self._transaction_size.acknowledged(self._used, self._flushed_after)
        with self._errors_translated():
            whole = self._open_lane.commit(self._spec.link.transaction_timeout)
        self._transaction_size.committed(self._clock.monotonic() - began)
        if not whole:
            log.info("target_leaders_moved", lane=self._spec.lane)
        return CommitOutcome.CLEAN if whole else CommitOutcome.SUSPECT

    def abort(self) -> None:
        """Aborts the open transaction, best effort. The producer must not be reused."""
        if self._lane is None:
            return
        try:
            answered = self._lane.abort(_ABORT_SECONDS)
        except NativeFailureError as failure:
            log.info("abort_left_to_successor", lane=self._spec.lane, error=failure.message)
        else:
            if not answered:
                log.info("abort_left_to_successor", lane=self._spec.lane, error="no answer in time")

    # -- consumer side ---------------------------------------------------------------------------

    def start(self, starts: Sequence[Start]) -> None:
        """Begins to fetch these partitions, besides those already fetched."""
        self._route({start.source.topic: start for start in starts})
        with self._errors_translated():
            self._open_lane.start(
                [
                    (
                        *start.source,
                        start.offset,
                        start.leader_epoch,
                        start.epoch_offset,
                        native_id(start.topic_id) or None,
                        (start.history.batch, start.history.holes.value, start.history.missing),
                    )
                    for start in starts
                ]
            )

    def stop(self, sources: Collection[SourcePartition]) -> None:
        """Drops these partitions with all that was fetched of them."""
        with self._errors_translated():
            self._open_lane.stop(list(sources))

    def restart(self) -> None:
        """Forgets everything fetched; `start` sets the new fetch offsets."""
        # settings may have changed, and topics have been replaced
        self._routed.clear()
        if self._lane is not None:
            with self._errors_translated():
                self._lane.restart()

    def set_send_plan(self, send_plan: SendPlan) -> None:
        """Accepts no ranges: only the client plane sends records in ranges; see `eomirror.plane.select`."""
        if send_plan.ranges:
            raise AssertionError("only the client plane isolates refused records")

    def await_records(self, seconds: float, other: int | None = None) -> bool:
        """Waits for records to mirror; positions advance past markers and dropped records."""
        with self._errors_translated():
            return self._open_lane.await_records(seconds, other)

    def advances(self) -> Mapping[SourcePartition, Advance]:
        """Returns partitions whose next offset has moved since the last commit."""
        with self._errors_translated():
            moved = self._open_lane.advances()
        return {
            SourcePartition(topic, partition): Advance(
                offset, leader_epoch, seen=self._believed(topic, _seen(*seen))
            )
            for topic, partition, offset, leader_epoch, seen in moved
        }

    def pump(self, seconds: float) -> Pumped:
        """Fetches, decides and produces the available records, waiting at most ``seconds`` for them."""
        with self._errors_translated():
            records, size, drained, full = self._open_lane.pump(seconds, int(self._transaction_size.bytes))
        self._used += size
        return Pumped(records, size, drained=drained, enough=full)

    def close(self) -> None:
        """Closes all connections."""
        if self._lane is not None:
            self._lane.close()
            self._lane = None

    def pinned(self) -> AbstractSet[str]:
        """Returns source topics of the open transaction that both sides know by id."""
        with self._errors_translated():
            return frozenset(self._open_lane.pinned())

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """Returns last stable offsets as fetches have shown them."""
        if self._lane is None:
            return {}
        with self._errors_translated():
            found = self._lane.log_ends()
        if found != self._found_ends:
            self._found_ends = found
            self._log_ends = {SourcePartition(topic, partition): end for topic, partition, end in found}
        return self._log_ends

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except NativeFailureError as failure:
            if failure.kind in _PROVED_BY_POLICY and self._is_compacting(failure.topic):
                # since it was asked: the next attempt knows, and compares nothing
                raise TransactionFailedError(
                    f"{failure.message}, and the topic is compacted now"
                ) from failure
            link = self._spec.link
            raise lane_error(
                failure,
                accept_gaps=link.on_gap == "accept",
                fall_back=link.plane == "auto",
                search=not link.keyed,
                users=Users(
                    account_of(self._spec.source),
                    account_of(self._spec.target),
                    LinkNames(link.state_name).transactional_id(self._spec.lane),
                ),
            ) from failure

    def _believed(self, topic: str, seen: Seen) -> Seen:
        """Removes observed holes if the topic has become a compacted one since the lane began."""
        if seen.holes and self._is_compacting(topic):
            return replace(seen, compacted=True, holes=())
        return seen

    def _is_compacting(self, topic: str) -> bool:
        return is_compacting(self._policies([topic]).get(topic, "compact"))

    @property
    def _open_lane(self) -> NativeLane:
        if self._lane is None:
            raise AssertionError("the runner opens the plane before it uses it")
        return self._lane

    def _new_lane(self) -> NativeLane:
        spec = self._spec
        if refused := unsupported_properties(spec):
            raise NativeFailureError(
                "unhonoured",
                f"the native plane cannot honour {'; '.join(refused)}",
                fix="set plane: auto or plane: client on the link, or remove these properties",
            )
        (source, source_tokens), (target, target_tokens) = map(with_tokens, _lane_properties(spec))
        if spec.overdue:
            # fetched records of a partition are sent in one transaction: limit the fetch for a slow target
            most = int(source.get(_ANSWER, _ANSWER_BYTES))
            source[_ANSWER] = str(min(most, int(self._transaction_size.bytes)))
        return NativeLane(
            source,
            target,
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            transactional_id=LinkNames(spec.link.state_name).transactional_id(spec.lane),
            transaction_timeout=spec.link.transaction_timeout,
            source_cluster_id=spec.source_cluster_id,
            target_cluster_id=spec.target_cluster_id,
            header=spec.link.provenance_header,
            guard=spec.link.drops,
            origins=spec.link.origin_ids(spec.source.alias, spec.source_cluster_id),
            origin=spec.link.source if spec.link.origin_header else None,
            transform=spec.link.compiled(),
        )

    def _route(self, wanted: Mapping[str, Start]) -> None:
        """Passes routes and limits of target topics to the extension."""
        fresh = {
            topic: start
            for topic, start in wanted.items()
            if self._routed.get(topic, -1) != start.target_partitions
        }
        if not fresh:
            return
        found = self._settings(sorted({start.target_topic for start in fresh.values()}))
        for topic, start in fresh.items():
            # a limit that has changed since shows as a rejection; no other setting is used
            size = found.get(start.target_topic, {}).get("max.message.bytes") or ""
            with self._errors_translated():
                self._open_lane.route(
                    topic,
                    start.target_topic,
                    target_id=native_id(start.target_topic_id) or None,
                    max_batch_bytes=int(size) if size.isdecimal() else _MAX_MESSAGE_BYTES,
                    partitions=start.target_partitions,
                )
            self._routed[topic] = start.target_partitions


def _seen(
    batch: tuple[int, int, int] | None,
    missing: int,
    compacted: bool,  # noqa: FBT001  as the extension gives it
    holes: Sequence[tuple[int, int]],
) -> Seen:
    mark = None if batch is None else BatchMark(*batch)
    return Seen(mark, missing=missing, compacted=compacted, holes=tuple(holes))
