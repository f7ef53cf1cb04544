"""
The control producer of a link's owner.

A hanging transaction of this producer (`eomirror.recovery.hanging`) hides the layout and the positions from every
lane.  No lane can have acted on its records, so it is committed if it is complete, whatever its coordinator decided.
It is incomplete if the owner died while writing, or if part of it was aborted: then a layout lacks first positions, or
positions belong to partitions that no layout knows.  Such positions that are visible nevertheless are adopted by the
next layout (`eomirror.link.ownership.unpublished`).

librdkafka reports a transaction on a topic without the WRITE right like one that failed for another reason, and the
owner would suspect the coordinator.  The brokers report the authorized operations of a topic (KIP-430), which
`refuse_unwritable` asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.clock import Clock, Deadline
from eomirror.config.rights import Right, lacking
from eomirror.errors import LaneError, MirrorError, StateError, TransactionFailedError, UnreachableError
from eomirror.link.ownership import is_complete
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import CommitOutcome, MetadataRecord, ProducerIdentity
from eomirror.records.control import dated_keys, decode_control
from eomirror.records.events import lasting_events, old_events
from eomirror.records.names import LinkNames
from eomirror.records.position import decode_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.records.control import Claim, ControlView
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import HangingClient, OpenRange
    from eomirror.types import SourcePartition

__all__ = ["ControlProducer", "given_up", "refuse_unwritable"]

log = structlog.get_logger(__name__)

_TRIES = 3
# A coordinator writes its markers within milliseconds of a commit; a busy one needs seconds.
_SHOWN_SECONDS = 3.0
_LOOK_SECONDS = 0.05
# where the coordinator tells its identity, nothing waits for librdkafka's statistics, which cost CPU
_STATISTICS_SECONDS = 1.0


class ControlProducer:
    """
    Writes the control topic of one link and the positions that its owner sets.  Not thread-safe.

    Args:
        read_control: Reads control up to its last stable offset.
        read_positions: Reads positions up to their last stable offsets.
        partitions: Returns the partition count of the positions topic.
        hanging_client: Finds and ends hanging transactions on the target; None to skip the check.

    Attributes:
        owner: Claim that stands, for the event of the next one; None if it is not known.
        dated: Keys of past events that stand, with their times, as far as they are known.
    """

    def __init__(
        self,
        link: Link,
        target: Cluster,
        *,
        read_control: Callable[[], ControlView],
        read_positions: Callable[[], Mapping[SourcePartition, Position]],
        partitions: Callable[[], int],
        hanging_client: HangingClient | None,
        clock: Clock,
    ) -> None:
        self._link = link
        self._target = target
        self._names = LinkNames(link.state_name)
        self._read_control = read_control
        self._read_positions = read_positions
        self._partitions = partitions
        self._hanging_client = hanging_client
        self._clock = clock
        self._producer: TransactionalProducer | None = None
        self.owner: Claim | None = None
        self.dated: Mapping[bytes, int] = {}

    @property
    def ready(self) -> bool:
        """True if a producer exists, so that the next commit needs no InitProducerId."""
        return self._producer is not None

    def initialize(self) -> None:
        """
        Runs InitProducerId, which fences an older owner's producer, and ends the transactions that it left hanging.

        Raises:
            LaneError: Another producer has initialized since, or initialization is not possible at this time.
            MirrorError: The target refuses the request.
        """
        for _ in range(_TRIES):
            try:
                self._take()
                found = self._hanging(self._places())
            except (LaneError, MirrorError):
                # An existing producer counts as initialized and checked for hanging transactions.
                self.drop()
                raise
            if not found:
                return
            self._end(found)
        raise TransactionFailedError("the control producer's transaction stays open after it was ended")

    def identity(self) -> ProducerIdentity:
        """
        Returns the producer's identity; creates the producer if there is none.

        The coordinator tells it at once, and librdkafka in its next statistics.  Another producer that has taken the id
        meanwhile does not matter: this one can commit nothing with its identity.
        """
        producer = self._ready()
        told = None if self._hanging_client is None else self._hanging_client.control_identity()
        return told or producer.identity()

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        """
        Commits records in a transaction of their own, with the events of those whose events last; deletes old events.

        Raises:
            LaneError: The transaction is not committed, or its outcome is unknown; the producer is closed.
            MirrorError: The target refuses the request.
        """
        producer = self._ready()
        events, owner, dated = self._events(records)
        producer.begin()
        try:
            producer.write([*records, *events])
            producer.flush(self._link.transaction_timeout)
            producer.take_acks()
            outcome = producer.commit()
        except (LaneError, MirrorError):
            # Also after a missing right: this producer can no longer commit the transaction that it began.
            producer.abort()
            self.drop()
            raise
        self.owner, self.dated = owner, dated
        if outcome is CommitOutcome.SUSPECT:
            # A straggling EndTxn must not end the next transaction (EO-9).
            self.drop()

    def publish(self, records: Sequence[MetadataRecord]) -> None:
        """
        Commits records that lanes wait for and verifies that they are visible.

        Raises:
            LaneError: As for `commit`, or the records are not visible and have to be published again.
            MirrorError: The target refuses the request.
        """
        self.commit(records)
        deadline = Deadline(_SHOWN_SECONDS, self._clock)
        places = self._places()
        while found := self._hanging(places):
            if deadline.passed:
                self._end(found)
                raise TransactionFailedError(
                    "the target did not write the markers of the control producer's transaction"
                )
            self._clock.sleep(_LOOK_SECONDS)

    def is_held(self) -> bool:
        """Returns True if a transaction stays open in control."""
        if self._hanging_client is None:
            return False
        deadline = Deadline(_SHOWN_SECONDS, self._clock)
        while self._hanging_client.open([(self._names.control_topic, 0)]):
            if deadline.passed:
                return True
            self._clock.sleep(_LOOK_SECONDS)
        return False

    def drop(self) -> None:
        """Closes the producer; the next commit creates another."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # -- inside ----------------------------------------------------------------------------------

    def _take(self) -> TransactionalProducer:
        self.drop()
        self._producer = TransactionalProducer(
            self._target,
            client_id=self._names.client_id("control"),
            transactional_id=self._names.control_transactional_id,
            transaction_timeout=self._link.transaction_timeout,
            known_topic=self._names.control_topic,
            statistics_seconds=_STATISTICS_SECONDS,
            clock=self._clock,
        )
        self._producer.init()
        return self._producer

    def _events(
        self, records: Sequence[MetadataRecord]
    ) -> tuple[list[MetadataRecord], Claim | None, dict[bytes, int]]:
        """Returns what to write of events beside records; and the claim and the events that stand after them."""
        topic, now_ms = self._names.control_topic, self._clock.wall_ms()
        control = [(one.key, one.value) for one in records if one.topic == topic]
        found, owner = lasting_events(control, owner=self.owner, now_ms=now_ms)
        events: list[tuple[bytes, bytes | None]] = [(one.key(), one.value()) for one in found]
        dated = {**self.dated, **dated_keys([*control, *events])}
        for key in old_events(dated, now_ms=now_ms):
            del dated[key]
            events.append((key, None))
        return [MetadataRecord(topic, 0, key, value) for key, value in events], owner, dated

    def _ready(self) -> TransactionalProducer:
        if self._producer is None:
            self.initialize()
        if self._producer is None:
            raise AssertionError("initialize sets the producer")
        return self._producer

    def _places(self) -> Sequence[tuple[str, int]]:
        """Returns the partitions that the producer writes to; empty without a hanging client."""
        if self._hanging_client is None or self._producer is None:
            return ()
        positions = [(self._names.positions_topic, number) for number in range(self._partitions())]
        return [(self._names.control_topic, 0), *positions]

    def _hanging(self, places: Sequence[tuple[str, int]]) -> Sequence[OpenRange]:
        """Returns the open transactions of this producer; after a suspect commit the next producer looks instead."""
        if self._hanging_client is None or self._producer is None:
            return ()
        found = self._hanging_client.open(places)
        # our own view of it: a newer owner's open transaction is not to be ended
        ours = self._producer.identity().producer_id if found else -1
        return [one for one in found if one.producer_id == ours]

    def _end(self, found: Sequence[OpenRange]) -> None:
        assert self._hanging_client is not None, "found needs a hanging client"  # noqa: S101  for the type checker
        commit = self._may_commit(found)
        # The InitProducerId of the hanging client fences this producer.
        self.drop()
        self._hanging_client.end(None, [one.where for one in found], commit=commit)
        log.warning(
            "hanging_transactions_ended",
            link=self._link.name,
            committed={f"{one.topic}-{one.partition}": commit for one in found},
        )

    def _may_commit(self, found: Sequence[OpenRange]) -> bool:
        """Returns True if the transaction is complete: it holds a layout and its first positions."""
        assert self._hanging_client is not None, "found needs a hanging client"  # noqa: S101  for the type checker
        published: list[tuple[bytes | None, bytes | None, str]] = []
        sources: set[SourcePartition] = set()
        for one in found:
            where = f"{one.topic}-{one.partition}@{one.start}"
            for key, value in self._hanging_client.records(one):
                if one.topic == self._names.control_topic:
                    published.append((key, value, where))
                    continue
                try:
                    source = decode_key(key, where=where)
                except StateError:
                    return False
                if not isinstance(source, int):
                    sources.add(source)
        view = self._read_control()
        if published:
            there = sources | self._read_positions().keys()
            return is_complete(decode_control(published), view, there)
        known = frozenset() if view.generation is None else view.generation.assignment.known
        return sources <= known


def refuse_unwritable(link: Link, admin: ClusterAdmin) -> None:
    """
    Raises if the owner lacks the right to write; called after a write has failed.

    Args:
        admin: Admin client of the link's target.

    Raises:
        AuthorizationError: A topic may not be written; names it, with the command that grants the right.
    """
    names = LinkNames(link.state_name)
    topics = (names.control_topic, names.positions_topic)
    try:
        rights = admin.topic_rights(topics)
    except MirrorError:
        # The cluster does not answer: the original failure is reported.
        return
    for topic in topics:
        if topic in rights and "WRITE" not in rights[topic]:
            right = Right("Write", "topic", topic)
            raise lacking(f"link {link.name}: the mirror keeps its state there: ", admin.account, [right])


def given_up(link: Link, admin: ClusterAdmin, doing: str, tries: int) -> UnreachableError:
    """
    Returns the error for a write that failed repeatedly for retriable reasons.

    Args:
        admin: Admin client of the link's target.
        doing: The attempted action, as an infinitive.
        tries: Number of attempts.
    """
    return UnreachableError(
        f"link {link.name}: could not {doing} on cluster {admin.name} in {tries} tries",
        fix="see the log for what each try met; the target's transaction coordinator may be unavailable",
    )
