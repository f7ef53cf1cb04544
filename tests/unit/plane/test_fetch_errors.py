"""What a Consumer hands out between the records."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from eomirror.errors import (
    AuthorizationError,
    DataLossError,
    SourceDamagedError,
    SourceUnreadableError,
    TransactionFailedError,
)
from eomirror.plane.client.fetch_errors import fetch_failure, split_ends


class Message:
    """As much of a message as is looked at."""

    def __init__(self, name: str = "", *, topic: str | None = "orders", offset: int = 5) -> None:
        self._error = KafkaError(getattr(KafkaError, name), "words") if name else None
        self._topic, self._offset = topic, offset

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str | None:
        return self._topic

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return self._offset


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message(), None),
        (Message("_PARTITION_EOF"), None),
        (Message("_TRANSPORT"), None),
        (Message("_BAD_MSG"), SourceDamagedError),
        (Message("_BAD_MSG", topic=None), TransactionFailedError),
        (Message("INVALID_MSG"), SourceDamagedError),
        (Message("UNKNOWN"), SourceUnreadableError),
        (Message("UNKNOWN", topic=None), TransactionFailedError),
        # a broker's code that is none of a fetch, and one of librdkafka's own
        (Message("INVALID_REQUEST"), SourceUnreadableError),
        (Message("_STATE"), TransactionFailedError),
        (Message("_LOG_TRUNCATION"), DataLossError),
        (Message("OFFSET_OUT_OF_RANGE"), TransactionFailedError),
        (Message("TOPIC_AUTHORIZATION_FAILED"), AuthorizationError),
    ],
)
def test_what_a_lane_must_not_go_on_behind(message: Message, kind: type[Exception] | None) -> None:
    """What passes on its own is no failure; a damaged batch is one of its partition."""
    failure: Any = fetch_failure(message)
    assert (None if failure is None else type(failure)) is kind
    if kind in {SourceDamagedError, SourceUnreadableError}:
        assert failure.source == ("orders", 2)
    if kind in {DataLossError, AuthorizationError}:
        assert failure.topic == "orders"


def test_everything_from_the_first_failure_on_stays_as_it_is() -> None:
    """EO-1: librdkafka goes on behind a batch that it cannot read, and what follows may not be taken for the next."""
    before, failed, behind, end = Message(), Message("_BAD_MSG"), Message(), Message("_PARTITION_EOF")
    passing = Message("_TRANSPORT")

    kept, ends = split_ends([Message("_PARTITION_EOF", offset=3), passing, before, failed, behind, end])

    assert kept == [before, failed, behind, end]
    assert ends == [("orders", 2, 3)]
    assert split_ends([passing, before]) == ([before], [])
