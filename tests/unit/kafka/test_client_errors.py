"""What the producer makes of the ways in which confluent-kafka says that a call has failed."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from eomirror.kafka.errors import Action, classify_transaction
from eomirror.plane.client.producer import _error_of


def test_the_cause_of_a_system_error_is_what_counts() -> None:
    """A fencing that surfaces in a delivery callback is still a fencing."""
    error = SystemError("flush returned a result with an exception set")
    error.__cause__ = KafkaException(KafkaError(KafkaError._FENCED, "fenced"))

    assert classify_transaction(_error_of(error)).action is Action.FENCED


def test_a_system_error_without_a_cause_ends_the_attempt_and_nothing_more() -> None:
    """F3: a mirror that wakes up fenced rebuilds, reads control and leaves with exit 5, not with a traceback."""
    error = SystemError("flush returned NULL without setting an exception")

    assert classify_transaction(_error_of(error)).action is Action.REBUILD
