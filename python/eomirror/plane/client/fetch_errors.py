"""Translates the errors that a Consumer returns between records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaError

from eomirror.config.rights import Right
from eomirror.errors import (
    DataLossError,
    LaneError,
    MirrorError,
    SourceDamagedError,
    SourceUnreadableError,
    TransactionFailedError,
)
from eomirror.kafka.errors import Action, classify_fetch, said, to_mirror_error
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config.rights import ClusterUser

__all__ = ["fetch_failure", "split_ends"]

log = structlog.get_logger(__name__)

# errors of a source partition that another fetch may repair
_LEADER_CANNOT = {Action.DAMAGED: SourceDamagedError, Action.UNREADABLE: SourceUnreadableError}


def fetch_failure(message: Any, source: ClusterUser | None = None) -> LaneError | MirrorError | None:
    """
    Returns the error that must stop the lane; None for a record, an end of partition, and a retriable error.

    librdkafka continues after a batch that it cannot read: records that follow such an error in the same partition must
    not be mirrored.

    Args:
        message: As a Consumer gave it.
        source: Our user on the source, for the command that grants a right.
    """
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return None
    action = classify_fetch(error).action
    where = f"{message.topic()}-{message.partition()}" if message.topic() else "the source"
    if action is Action.RETRY:
        log.debug("fetch_retried", where=where, error=said(error))
        return None
    if action in _LEADER_CANNOT and message.topic():
        partition = SourcePartition(message.topic(), message.partition())
        return _LEADER_CANNOT[action](f"{where}: {said(error)}", partition)
    if action is Action.SOURCE_TRUNCATED:
        return DataLossError(
            f"{where}: the source's log diverges from what was mirrored: {said(error)}",
            fix="find out whether the source was restored or a broker without all data became leader; "
            f"to go on from the source as it is now: --resume-at {where}=OFFSET",
            topic=str(message.topic()),
        )
    if action in {Action.UNAUTHORIZED, Action.CONFIGURATION, Action.FATAL}:
        right = Right("Read", "topic", str(message.topic()))
        refused = to_mirror_error(error, doing=f"fetch {where}", cluster=source or "source", right=right)
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            refused.topic = str(message.topic())
        return refused
    # recovery compares the logs and says exactly what is missing
    return TransactionFailedError(f"{where}: {said(error)}")


def split_ends(messages: Sequence[Any]) -> tuple[list[Any], list[tuple[str, int, int]]]:
    """
    Removes events that are neither a record nor a failure.

    Returns:
        Records in order, and everything from the first failure on; ends of partitions before it, as topic, partition,
        offset.
    """
    kept: list[Any] = []
    ends = []
    for at, message in enumerate(messages):
        error = message.error()
        if error is None:
            kept.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends.append((message.topic(), message.partition(), message.offset()))
        elif fetch_failure(message) is not None:
            kept.extend(messages[at:])
            break
    return kept, ends
