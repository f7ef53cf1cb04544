"""Has the leader epochs of freshly assigned partitions compared with the log (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from eomirror.clock import Clock, Deadline
from eomirror.errors import TransactionFailedError
from eomirror.kafka.error_text import said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer

__all__ = ["seek_to_compare"]

_SECONDS = 5.0
_PAUSE_SECONDS = 0.01


def seek_to_compare(consumer: Consumer, positions: Sequence[Any], clock: Clock) -> None:
    """
    Seeks every partition to where it was just assigned, if an epoch is known there.

    librdkafka compares an epoch with the log when it learns of a leader, or when it is told to seek.  A partition
    whose leader it knows when it is assigned is fetched as it is (measured with 2.16): a log that was restored from an
    older one, and written on beyond the position, would be mirrored from its middle (fault F19).

    Args:
        consumer: To which the partitions were assigned; nothing was consumed of them yet.
        positions: TopicPartitions as assigned.

    Raises:
        TransactionFailedError: The client did not get ready to seek in time; nothing may be fetched uncompared.
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
