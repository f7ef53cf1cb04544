"""
Sends records of suspected partitions in ranges that the target acknowledges one by one.

`eomirror.lane.poison_records` plans the ranges and decides about rejections; this module holds records back, sends them
and waits.  A partition with held records is paused, so that at most one fetch of it is held.  Its position does not
move meanwhile, except with accounted records.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from eomirror.plane.client.fetch_errors import fetch_failure
from eomirror.plane.client.rejected_record import TargetRefusedError, dead_letter_of, named
from eomirror.plane.protocol import SendPlan
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from confluent_kafka import Consumer

    from eomirror._native import Planner
    from eomirror.plane.client.producer import TransactionalProducer
    from eomirror.records.dead_letter import DeadLetter

__all__ = ["RangeSender"]


class RangeSender:
    """
    Holds back records of suspected partitions.

    Attributes:
        dead_letters: Dead letters of the open transaction, by partition.
    """

    def __init__(self) -> None:
        self.dead_letters: dict[SourcePartition, list[DeadLetter]] = {}
        self._send_plan = SendPlan()
        self._held: dict[SourcePartition, deque[Any]] = {}
        self._paused: set[SourcePartition] = set()

    @property
    def active(self) -> bool:
        """Returns whether any partition is suspected."""
        return bool(self._send_plan.ranges)

    @property
    def holding(self) -> Collection[SourcePartition]:
        """Partitions with held records."""
        return [source for source, held in self._held.items() if held]

    @property
    def batch_bytes(self) -> int | None:
        """Maximum batch size; None for the client's own."""
        return self._send_plan.batch_bytes

    def set_send_plan(self, send_plan: SendPlan) -> list[Any]:
        """Sets a new send plan; returns held records of partitions that are no longer suspected, in order."""
        self._send_plan = send_plan
        freed: list[Any] = []
        for source in [source for source in self._held if source not in send_plan.ranges]:
            freed.extend(self._held.pop(source))
        return freed

    def clear(self, consumer: Consumer | None) -> None:
        """Drops held records and resumes all partitions."""
        self._held.clear()
        self.dead_letters.clear()
        if consumer is not None:
            self.update_pauses(consumer)

    def hold_back(self, messages: Sequence[Any]) -> list[Any]:
        """Holds records of suspected partitions up to the first failure; returns the rest, with events and errors."""
        others: list[Any] = []
        for at, message in enumerate(messages):
            if fetch_failure(message) is not None:
                # later records may follow an unreadable batch, and are not sent before it is reported
                others.extend(messages[at:])
                break
            source = SourcePartition(message.topic(), message.partition())
            if message.error() is None and source in self._send_plan.ranges:
                self._held.setdefault(source, deque()).append(message)
            else:
                others.append(message)
        return others

    def update_pauses(self, consumer: Consumer) -> None:
        """Pauses partitions with held records, and resumes the others."""
        holding = set(self.holding)
        for wanted, call in (
            (holding - self._paused, consumer.pause),
            (self._paused - holding, consumer.resume),
        ):
            if wanted:
                call([TopicPartition(*source) for source in wanted])
        self._paused = holding

    def send(
        self, planner: Planner, producer: TransactionalProducer, routes: Mapping[str, str], seconds: float
    ) -> tuple[int, int]:
        """
        Sends the next range of each suspected partition, and waits for the acknowledgements.

        Args:
            planner: Decides about records, and keeps the account.
            producer: Has a transaction open.
            routes: Source topic -> target topic.
            seconds: Maximum wait for acknowledgements.

        Returns:
            Number of records and bytes sent.

        Raises:
            RangeRefusedError: The target refused something of a range; names the record if it was alone.
            LaneError: The transaction cannot go on.
        """
        records = size = 0
        for source in self.holding:
            chosen = self._next_range(source)
            try:
                for plan in self._plans(planner, source, routes[source.topic], chosen):
                    producer.produce_all(plan.records)
                    records, size = records + plan.kept, size + plan.bytes
                producer.flush(seconds)
            except TargetRefusedError as error:
                if (error.target_topic, error.target_partition) != (routes[source.topic], source.partition):
                    raise
                sent = [item for item in chosen if not self._is_left_out(source, item)]
                only = sent[0] if len(sent) == 1 else None
                begin, end = chosen[0].offset(), chosen[-1].offset() + 1
                raise named(error, source, begin=begin, end=end, only=only) from error
        return records, size

    def _next_range(self, source: SourcePartition) -> list[Any]:
        held = self._held[source]
        end, most = self._send_plan.range_at(source, held[0].offset())
        chosen: list[Any] = []
        while held and len(chosen) < most and held[0].offset() < end:
            chosen.append(held.popleft())
        return chosen

    def _plans(
        self, planner: Planner, source: SourcePartition, target_topic: str, messages: Sequence[Any]
    ) -> list[Any]:
        plans = []
        for left_out, run in groupby(messages, lambda item: self._is_left_out(source, item)):
            if not left_out:
                plans.append(planner.plan(list(run)))
                continue
            for message in run:
                (digest,) = planner.leave_out([message])
                reason = self._send_plan.left_out[source][message.offset()]
                letter = dead_letter_of(
                    message,
                    reason,
                    source=source,
                    target_topic=target_topic,
                    digest=digest,
                    whole=self._send_plan.whole_dead_letters,
                )
                self.dead_letters.setdefault(source, []).append(letter)
        return plans

    def _is_left_out(self, source: SourcePartition, message: Any) -> bool:
        return message.offset() in self._send_plan.left_out.get(source, {})
