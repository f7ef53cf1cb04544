"""
The control producer of a link's owner: what it writes is committed, or an error, and can be read by the lanes.

A transaction of it that was left open (`eomirror.recovery.hanging`) hides the layout from every lane, and its positions
as well.  Nobody acts on what it holds before it can be read: so it is committed if it is complete, whatever its
coordinator had decided.  It is not where its owner died in the midst of it, or where part of it was aborted: then a
layout lacks first positions, or positions are of partitions that no layout knows.  Those of them that are shown all the
same are taken up with the next layout (`eomirror.link.ownership.unpublished`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.clock import Clock, Deadline
from eomirror.errors import LaneError, MirrorError, StateError, TransactionFailedError
from eomirror.link.ownership import is_complete
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import CommitOutcome, ProducerIdentity
from eomirror.records.control import decode_control
from eomirror.records.names import LinkNames
from eomirror.records.position import decode_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.plane.protocol import MetadataRecord
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import HangingClient, OpenRange
    from eomirror.types import SourcePartition

__all__ = ["ControlProducer"]

log = structlog.get_logger(__name__)

_TRIES = 3
# markers follow a commit within milliseconds, of a coordinator that has much to do within seconds
_SHOWN_SECONDS = 3.0
_LOOK_SECONDS = 0.05


class ControlProducer:
    """
    Writes the control topic of one link, and positions that are the owner's.  For one thread at a time.

    Args:
        link: The link.
        target: Its target cluster.
        read_control: Reads control, as far as it can be read.
        read_positions: Reads positions, likewise.
        partitions: How many partitions the positions topic has.
        hanging_client: Sees and ends what was left open on the target; None: nobody looks.
        clock: Where time comes from.
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

    @property
    def ready(self) -> bool:
        """Whether there is a producer, so that nothing has to be initialized before the next commit."""
        return self._producer is not None

    def initialize(self) -> None:
        """
        Run InitProducerId, which fences an older owner's producer, and end what that left open.

        Raises:
            LaneError: Somebody else has initialized since, or it cannot be done now.
            MirrorError: The target refuses us.
        """
        for _ in range(_TRIES):
            try:
                self._take()
                found = self._left_open(self._places())
            except (LaneError, MirrorError):
                # whoever finds a producer here takes it for one that has been initialized and looked for
                self.drop()
                raise
            if not found:
                return
            self._end(found)
        raise TransactionFailedError(
            "what the control producer left open stays open, also after it was ended"
        )

    def identity(self) -> ProducerIdentity:
        """Of the producer, which is made if there is none."""
        return self._ready().identity()

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        """
        Commit records in a transaction of their own.

        Raises:
            LaneError: It is not committed, or nobody knows; the producer is gone.
            MirrorError: The target refuses us.
        """
        producer = self._ready()
        producer.begin()
        try:
            producer.write(records)
            producer.flush(self._link.transaction_timeout)
            producer.take_acks()
            outcome = producer.commit()
        except (LaneError, MirrorError):
            # also where a right is missing: what it has begun can no longer be committed by this producer
            producer.abort()
            self.drop()
            raise
        if outcome is CommitOutcome.SUSPECT:
            # a straggling EndTxn must not end our next transaction (rule 9)
            self.drop()

    def publish(self, records: Sequence[MetadataRecord]) -> None:
        """
        Commit records that lanes wait for, and see that they can be read.

        Raises:
            LaneError: As `commit`, or they cannot be read: they are to be published again.
            MirrorError: The target refuses us.
        """
        self.commit(records)
        deadline = Deadline(_SHOWN_SECONDS, self._clock)
        places = self._places()
        while found := self._left_open(places):
            if deadline.passed:
                self._end(found)
                raise TransactionFailedError(
                    "the target left out how the control producer's transaction ended"
                )
            self._clock.sleep(_LOOK_SECONDS)

    def is_held(self) -> bool:
        """Whether somebody has a transaction open in control, and does not end it."""
        if self._hanging_client is None:
            return False
        deadline = Deadline(_SHOWN_SECONDS, self._clock)
        while self._hanging_client.open([(self._names.control_topic, 0)]):
            if deadline.passed:
                return True
            self._clock.sleep(_LOOK_SECONDS)
        return False

    def drop(self) -> None:
        """Let go of the producer; the next commit makes another."""
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
            clock=self._clock,
        )
        self._producer.init()
        return self._producer

    def _ready(self) -> TransactionalProducer:
        if self._producer is None:
            self.initialize()
        if self._producer is None:
            raise AssertionError("initialize sets the producer")
        return self._producer

    def _places(self) -> Sequence[tuple[str, int]]:
        """Partitions that it writes to, if somebody looks at them."""
        if self._hanging_client is None or self._producer is None:
            return ()
        positions = [(self._names.positions_topic, number) for number in range(self._partitions())]
        return [(self._names.control_topic, 0), *positions]

    def _left_open(self, places: Sequence[tuple[str, int]]) -> Sequence[OpenRange]:
        """What is open by our producer; a commit that was suspect has none any more, and its successor looks."""
        if self._hanging_client is None or self._producer is None:
            return ()
        found = self._hanging_client.open(places)
        # librdkafka tells the id a tenth of a second later: it is asked for only where somebody has something open
        ours = self._producer.identity().producer_id if found else -1
        return [one for one in found if one.producer_id == ours]

    def _end(self, found: Sequence[OpenRange]) -> None:
        assert self._hanging_client is not None, "somebody looked"  # noqa: S101  for the type checker
        commit = self._may_commit(found)
        # its InitProducerId fences our producer
        self.drop()
        self._hanging_client.end(None, [one.where for one in found], commit=commit)
        log.warning(
            "left_open_ended",
            link=self._link.name,
            committed={f"{one.topic}-{one.partition}": commit for one in found},
        )

    def _may_commit(self, found: Sequence[OpenRange]) -> bool:
        """Whether it is complete: layout and first positions were written together."""
        assert self._hanging_client is not None, "somebody looked"  # noqa: S101  likewise
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
