"""Translates librdkafka's errors of a refused record for `eomirror.lane.poison_records`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError

from eomirror.errors import RecordRefusedError
from eomirror.kafka.errors import said
from eomirror.plane.protocol import RangeRefusedError, RefusedRecord, Rejection, RejectionReason
from eomirror.records.dead_letter import DeadLetter

if TYPE_CHECKING:
    from eomirror.plane.protocol import SkippedRecord
    from eomirror.types import SourcePartition

__all__ = ["TargetRefusedError", "at_most", "dead_letter_of", "named", "refused_record_of"]

_E = KafkaError
_GROUNDS: Final = {
    _E.MSG_SIZE_TOO_LARGE: RejectionReason.SIZE,
    _E.INVALID_MSG_SIZE: RejectionReason.SIZE,
    _E.RECORD_LIST_TOO_LARGE: RejectionReason.SEGMENT,
    _E.INVALID_TIMESTAMP: RejectionReason.TIMESTAMP,
}

# librdkafka's default of batch.size
_BATCH_BYTES = 1_000_000

# of a batch of one record (https://kafka.apache.org/documentation/#recordbatch): its header, and everything of
# the record besides key, value and headers, each number at its longest; of a header its two lengths
_BATCH_HEADER = 61
_RECORD_NUMBERS = 36
_HEADER_NUMBERS = 10


class TargetRefusedError(RecordRefusedError):
    """
    The target or this client refuses a record; names the target partition.

    Args:
        what: Description of the record.
        cause: librdkafka's error.
        target_topic: Topic of the record.
        by_client: The client library refused it, and sent nothing.
    """

    def __init__(
        self,
        what: str,
        cause: KafkaError,
        target_topic: str,
        target_partition: int,
        *,
        by_client: bool = False,
    ) -> None:
        super().__init__(
            f"the target refuses {what}: {said(cause)}",
            fix=f"check the settings of topic {target_topic} (max.message.bytes, message.timestamp.*)",
        )
        self.target_topic = target_topic
        self.target_partition = target_partition
        self.words = said(cause)
        self.reason = (
            RejectionReason.CLIENT_SIZE if by_client else _GROUNDS.get(cause.code(), RejectionReason.INVALID)
        )


def named(
    error: TargetRefusedError,
    source: SourcePartition,
    *,
    begin: int,
    end: int,
    only: Any = None,
    letter: bool = False,
) -> RangeRefusedError:
    """
    Returns the rejection with the source partition.

    Args:
        begin: Offset of the first record in question.
        end: Offset after the last one.
        only: The message, if only one is in question.
        letter: A dead letter was refused, not the record.
    """
    return RangeRefusedError(
        Rejection(
            source=source,
            target_topic=error.target_topic,
            reason=RejectionReason.DEAD_LETTER if letter else error.reason,
            words=error.words,
            begin=begin,
            end=end,
            record=None if only is None else refused_record_of(only),
        )
    )


def refused_record_of(message: Any) -> RefusedRecord:
    """Returns the description of a confluent-kafka message for a rejection."""
    headers = message.headers() or ()
    size = _BATCH_HEADER + _RECORD_NUMBERS + len(message.key() or b"") + len(message.value() or b"")
    size += sum(_HEADER_NUMBERS + len(name.encode()) + len(value or b"") for name, value in headers)
    return RefusedRecord(
        offset=message.offset(),
        timestamp=_timestamp(message),
        keyless=message.key() is None,
        batch_bytes=size,
    )


def dead_letter_of(
    message: Any,
    left_out: SkippedRecord,
    *,
    source: SourcePartition,
    target_topic: str,
    digest: str,
    whole: bool,
) -> DeadLetter:
    """Returns the dead letter of a skipped message."""
    return DeadLetter(
        source=source,
        offset=message.offset(),
        target_topic=target_topic,
        reason=left_out.reason,
        error=left_out.words,
        limit=left_out.limit,
        timestamp=_timestamp(message),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        digest=digest,
        whole=whole,
    )


def at_most(batch_bytes: int, configured: str | float | None) -> int:
    """Returns ``batch.size`` of a producer whose batches must not exceed ``batch_bytes``."""
    return max(1, min(batch_bytes, int(configured or _BATCH_BYTES)))


def _timestamp(message: Any) -> int:
    kind, milliseconds = message.timestamp()
    return -1 if kind == TIMESTAMP_NOT_AVAILABLE else int(milliseconds)
