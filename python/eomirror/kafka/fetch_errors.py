"""What the errors mean that a Consumer hands out between the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaError

from eomirror.errors import DataLossError, TransactionFailedError
from eomirror.kafka.classify import Action, classify_fetch, to_mirror_error

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["raise_fetch_errors"]

log = structlog.get_logger(__name__)


def raise_fetch_errors(errors: Sequence[Any]) -> None:
    """
    Raise what a lane must not go on behind; what passes by itself is only logged.

    Args:
        errors: Messages of a Consumer that carry an error instead of a record.

    Raises:
        DataLossError: The source's log is not the one that was mirrored (KIP-320).
        TransactionFailedError: Recovery has to look at both sides again.
        MirrorError: A right is missing, or the configuration is refused.
    """
    for message in errors:
        error = message.error()
        action = classify_fetch(error).action
        where = f"{message.topic()}-{message.partition()}" if message.topic() else "the source"
        if action is Action.RETRY:
            log.debug("fetch_retried", where=where, error=str(error))
        elif action is Action.SOURCE_TRUNCATED:
            raise DataLossError(
                f"{where}: the source's log diverges from what was mirrored: {error.str()}",
                fix="find out whether the source was restored or a broker without all data became leader; "
                f"to go on from the source as it is now: --adopt {where}=OFFSET",
                topic=str(message.topic()),
            )
        elif action in {Action.SOURCE_GAP, Action.TOPIC_GONE}:
            # recovery compares the logs and says exactly what is missing
            raise TransactionFailedError(f"{where}: {error.str()}")
        elif action in {Action.UNAUTHORIZED, Action.CONFIGURATION, Action.FATAL}:
            refused = to_mirror_error(error, doing=f"fetch {where}", cluster="source")
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                refused.topic = str(message.topic())
            raise refused
        else:
            raise TransactionFailedError(f"{where}: {error.str()}")
