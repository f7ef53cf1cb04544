"""Validates the leader epochs of newly assigned partitions against the log (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from eomirror.clock import Clock, Deadline
from eomirror.errors import TransactionFailedError
from eomirror.kafka.error_text import said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer

__all__ = ["validate_epochs"]

_SECONDS = 5.0
_PAUSE_SECONDS = 0.01


def validate_epochs(consumer: Consumer, positions: Sequence[Any], clock: Clock) -> None:
    """
    Seeks every partition to its assigned offset, if its epoch is known.

    librdkafka validates an epoch when it learns of a leader, or on a seek.  A partition whose leader is known at
    assignment is fetched without validation (measured with 2.16): a log that was restored from an older one and then
    extended past the position would be mirrored from its middle (fault F19).

    Args:
        consumer: Partitions are assigned, and nothing was consumed yet.
        positions: TopicPartitions as assigned.

    Raises:
        TransactionFailedError: The client was not ready to seek in time; nothing may be fetched without validation.
    """
    deadline = Deadline(_SECONDS, clock)
    for position in positions:
        if position.leader_epoch is None:
            continue
        while True:
            try:
                consumer.seek(position)
            except KafkaException as raised:
                # the partition is assigned in the background, and cannot be sought before it is
                error: KafkaError = raised.args[0]
                if not deadline.passed:
                    clock.sleep(_PAUSE_SECONDS)
                    continue
                where = f"{position.topic}-{position.partition}"
                raise TransactionFailedError(
                    f"{where}: could not compare its leader epoch: {said(error)}"
                ) from raised
            break
