"""What the reader through librdkafka takes for records and ends of its partition, and what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from confluent_kafka import KafkaError

from eomirror.errors import AuthorizationError, MirrorError
from eomirror.kafka import partition_reader
from eomirror.kafka.record_reader import CommittedPartition

if TYPE_CHECKING:
    from eomirror.config import Cluster


class Event:
    """A message, or an error in its place."""

    def __init__(self, topic: str, offset: int, code: int | None = None) -> None:
        self._topic, self._offset = topic, offset
        self._error = None if code is None else KafkaError(code)

    def topic(self) -> str:
        """Its topic."""
        return self._topic

    def partition(self) -> int:
        """Its partition."""
        return 0

    def offset(self) -> int:
        """Its offset."""
        return self._offset

    def error(self) -> KafkaError | None:
        """What it says in place of a record."""
        return self._error


class Record(Event):
    """A record whose header names are Latin-1."""

    def key(self) -> bytes:
        """Its key."""
        return b"k"

    def value(self) -> None:
        """None: a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """Its kind and time."""
        return 1, 7

    def headers(self) -> None:
        """Cannot be told."""
        b"na\xefve".decode("utf-8")


class Events:
    """A consumer that hands out what it was given."""

    def __init__(self, *events: Event) -> None:
        self._events = list(events)

    def assign(self, _: Any) -> None:
        """Nothing changes."""

    def unassign(self) -> None:
        """Nothing changes."""

    def consume(self, _: int, __: float) -> list[Event]:
        """All of them."""
        events, self._events = self._events, []
        return events


class East:
    """A cluster, as far as is asked."""

    alias = "east"
    properties: ClassVar[dict[str, str]] = {}
    bootstrap_servers = "e:1"


def reader(monkeypatch: pytest.MonkeyPatch, *events: Event) -> CommittedPartition:
    """A reader of these."""
    monkeypatch.setattr(partition_reader, "create_client", lambda *_: Events(*events))
    monkeypatch.setattr(partition_reader, "consumer_properties", lambda *_, **__: {})
    made = CommittedPartition(cast("Cluster", East()), client_id="test")
    made.assign("t", 0, 0)
    return made


def test_the_end_of_another_partition_is_not_the_end_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would pass for records that are not there, on both sides at once perhaps."""
    stale, record = Event("other", 1_000_000, KafkaError._PARTITION_EOF), Event("t", 5)
    messages, reached = reader(monkeypatch, stale, record).read(10, 0.1)
    assert (messages, reached) == ([record], None)
    own = Event("t", 6, KafkaError._PARTITION_EOF)
    assert reader(monkeypatch, record, own).read(10, 0.1) == ([record], 6)


@pytest.mark.parametrize(
    "code",
    [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.UNKNOWN_TOPIC_OR_PART],
)
def test_a_record_that_is_to_be_shown_and_is_gone_is_none(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Retention must not turn a difference that was found into a comparison that failed; reading on fails still."""
    assert reader(monkeypatch, Event("t", 5, code)).one("t", 0, 5) is None
    with pytest.raises(MirrorError):
        reader(monkeypatch, Event("t", 5, code)).read(10, 0.1)


def test_a_record_that_we_may_not_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may well be there."""
    refused = Event("t", 5, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError):
        reader(monkeypatch, refused).one("t", 0, 5)


def test_a_record_is_shown_without_header_names_that_are_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native reader compares them byte by byte; to show one through librdkafka must not fail."""
    found = reader(monkeypatch, Record("t", 5)).one("t", 0, 5)
    assert found is not None
    assert (found["key"], found["value"], found["timestamp"]) == (b"k", None, 7)
    assert "not UTF-8" in found["headers"][0][0]
