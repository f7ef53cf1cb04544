"""Reads what `eomirror.status` needs: the link's topics on the target, and the ends of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from confluent_kafka import Consumer, TopicPartition

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import ClusterError
from eomirror.formats.control import ControlView, decode_control
from eomirror.formats.names import LinkNames
from eomirror.formats.position import AttemptClaim, Position, decode_attempt, decode_key, decode_position
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.compact_log import CompactLogReader
from eomirror.kafka.positions import valid_positions
from eomirror.status import LinkStatus, link_status
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from eomirror.config import Cluster, Link

__all__ = ["StatusReader"]

log = structlog.get_logger(__name__)

_PEEK_SECONDS = 2.0


class StatusReader:
    """
    Tells where one link stands; keeps its connections, so that it may be asked again and again.

    Args:
        link: The link.
        source: Its source cluster.
        target: Its target cluster.
        clock: Where time comes from.
    """

    def __init__(self, link: Link, source: Cluster, target: Cluster, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._link = link
        self._clock = clock
        self._names = LinkNames(link.state_name)
        role = self._names.client_id("status")
        self._source = ClusterAdmin(source, client_id=role)
        self._target = ClusterAdmin(target, client_id=role)
        self._reader = CompactLogReader(target, self._target, client_id=role, clock=clock)
        self._peek = Consumer(consumer_properties(source, client_id=role, **{"fetch.wait.max.ms": 50}))

    def read(self) -> LinkStatus:
        """
        Where the link stands now.

        Raises:
            ClusterError: The target cannot be reached.  A source that is down only leaves lags unknown.
        """
        topics = [self._names.control_topic, self._names.positions_topic]
        if any(facts is None for facts in self._target.describe_topics(topics).values()):
            return link_status(
                self._link.name, ControlView(), {}, history=(), attempts=(), lsos={}, oldest={}, now_ms=0
            )
        _, control_records = self._reader.read(self._names.control_topic, wait_for_open=False)
        control = decode_control([(record.key, record.value, record.where) for record in control_records])
        _, records = self._reader.read(self._names.positions_topic, wait_for_open=False)
        history: list[Position] = []
        attempts: dict[int, AttemptClaim] = {}
        for record in records:
            name = decode_key(record.key, where=record.where)
            if record.value is None:
                continue
            if isinstance(name, int):
                attempts[name] = decode_attempt(name, record.value, where=record.where)
            else:
                history.append(decode_position(name, record.value, where=record.where))
        positions = valid_positions(records)
        lsos = self._ends(list(positions))
        behind = {
            source: position.offset
            for source, position in positions.items()
            if source in lsos and lsos[source] > position.offset
        }
        return link_status(
            self._link.name,
            control,
            positions,
            history=history,
            attempts=attempts.values(),
            lsos=lsos,
            oldest=self._oldest(behind),
            now_ms=self._clock.wall_ms(),
        )

    def close(self) -> None:
        """Close all clients."""
        self._peek.close()
        self._reader.close()
        self._source.close()
        self._target.close()

    def _ends(self, sources: list[SourcePartition]) -> dict[SourcePartition, int]:
        try:
            found = self._source.offsets(sources, at="latest", read_committed=True)
        except ClusterError as error:
            log.warning("source_unreachable", link=self._link.name, error=error.message)
            return {}
        return {SourcePartition(*name): offset for name, offset in found.items() if offset >= 0}

    def _oldest(self, behind: dict[SourcePartition, int]) -> dict[SourcePartition, int]:
        """Timestamp of the first record behind each position; a tail of markers has none, and is left out."""
        oldest: dict[SourcePartition, int] = {}
        if not behind:
            return oldest
        waiting = set(behind)
        self._peek.assign(
            [TopicPartition(source.topic, source.partition, offset) for source, offset in behind.items()]
        )
        deadline = Deadline(_PEEK_SECONDS, self._clock)
        while waiting and not deadline.passed:
            for message in self._peek.consume(500, 0.05):
                source = SourcePartition(str(message.topic()), int(message.partition()))
                if source not in waiting:
                    continue
                waiting.discard(source)
                if message.error() is None:
                    oldest[source] = message.timestamp()[1]
                self._peek.pause([TopicPartition(*source)])
        self._peek.unassign()
        return oldest
