"""Readers of single records and ranges, of committed, aborted and open transactions on a real broker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eomirror.clock import Deadline
from eomirror.config import Cluster
from eomirror.errors import UnreachableError
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.kafka.partition_reader import PartitionReader
from eomirror.kafka.record_reader import CommittedPartition, TimestampReader
from eomirror.kafka.session import ClusterSession
from eomirror.recovery.hanging import RecordState
from eomirror.recovery.hanging_client import extension_client
from eomirror.recovery.record_state import RecordStateReader
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.kafka.admin import ClusterAdmin

pytestmark = pytest.mark.integration

PARTITIONS = 6
OPEN = PARTITIONS - 1


@pytest.fixture
def cluster(east: Any) -> Cluster:
    """The source."""
    return Cluster("east", east.client_properties)


@pytest.fixture
def session(cluster: Cluster) -> Iterator[ClusterSession]:
    """Its connections."""
    made = ClusterSession(cluster, client_id="test")
    yield made
    made.close()


@pytest.fixture
def admin(session: ClusterSession) -> ClusterAdmin:
    """Its adapter."""
    return session.admin


@pytest.fixture
def topic(cluster: Cluster, admin: ClusterAdmin, topic_name: str) -> Iterator[str]:
    """Each partition has an aborted record, a marker, a committed one and a marker; the last one an open one too."""
    # the records are of 1970: without this the next check of the retention, every five minutes, deletes them
    admin.create_topics([CreateTopic(topic_name, PARTITIONS, 1, {"retention.ms": "-1"})])
    wait_for(lambda: admin.describe_topics([topic_name])[topic_name])
    producer = Producer({**cluster.properties, "transactional.id": topic_name})
    producer.init_transactions(30)

    def write(value: bytes, partitions: range) -> None:
        producer.begin_transaction()
        for number in partitions:
            producer.produce(topic_name, value, b"k", number, timestamp=1000 + number)
        producer.flush(30)

    write(b"aborted", range(PARTITIONS))
    producer.abort_transaction(30)
    write(b"committed", range(PARTITIONS))
    producer.commit_transaction(30)
    write(b"open", range(OPEN, PARTITIONS))
    yield topic_name
    producer.abort_transaction(30)


def test_the_states_of_records(session: ClusterSession, topic: str) -> None:
    """A lane without the extension's client decides by them what became of its last transaction."""
    reader = RecordStateReader(session)

    assert reader.read({(topic, 0): 0, (topic, 1): 2, (topic, 2): 1, (topic, OPEN): 4, (topic, 99): 0}) == {
        (topic, 0): RecordState.ABORTED,
        (topic, 1): RecordState.COMMITTED,
        (topic, 2): RecordState.DELETED,
        (topic, OPEN): RecordState.PENDING,
        (topic, 99): RecordState.DELETED,
    }
    values = [value for _, value in reader.range(topic, OPEN, 0, 5)]
    assert values == [b"aborted", b"committed", b"open"]


def test_timestamps_and_single_records(cluster: Cluster, session: ClusterSession, topic: str) -> None:
    """The first committed record at or after each offset, several of one partition too; none at the end."""
    stamps = TimestampReader(session)
    reader = CommittedPartition(cluster, client_id="test")
    try:
        wanted = [(topic, number, offset) for number in range(PARTITIONS) for offset in (0, 2, 3, 4)]
        assert stamps.read(wanted) == {
            (topic, number, offset): 1000 + number for number in range(PARTITIONS) for offset in (0, 2)
        }
        found = reader.one(topic, 1, 2)
        assert found is not None
        assert (found["key"], found["value"]) == (b"k", b"committed")
        assert [reader.one(topic, 1, offset) for offset in (0, 3, 4)] == [None] * 3
        reader.assign(topic, 3, 0)
        deadline, messages, reached = Deadline(30), [], None
        while reached is None and not deadline.passed:
            more, reached = reader.read(100, 0.1)
            messages += more
        assert ([message.offset() for message in messages], reached) == ([2], 4)
    finally:
        reader.close()


def test_ranges_of_many_partitions(cluster: Cluster, topic: str) -> None:
    """Each ends on its own; an open transaction is waited for, and the reader can be used again."""
    reader = PartitionReader(cluster, client_id="test")
    taken: list[tuple[str, int]] = []

    def take(where: tuple[str, int], message: Any) -> None:
        taken.append((where[0], message.offset()))

    try:
        decided = {(topic, number): (0, 4) for number in range(PARTITIONS)}
        for _ in range(2):
            taken.clear()
            assert reader.read(decided, take) == {}
            assert taken == [(topic, 2)] * PARTITIONS
        ranges = {**decided, (topic, OPEN): (0, 5)}
        with pytest.raises(UnreachableError, match=f"{topic}-{OPEN} to offset 5"):
            reader.read(ranges, take, deadline=Deadline(3))
    finally:
        reader.close()


def test_batches_that_are_asked_for_together_are_those_of_one_question_each(
    cluster: Cluster, topic: str
) -> None:
    """Also one that does not fit into the answer for many, one that is not there, and one of a marker."""
    producer = Producer(
        {**cluster.properties, "transactional.id": f"{topic}-big", "message.max.bytes": 900_000}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(OPEN):
        # what does not shrink
        producer.produce(topic, os.urandom(300_000 if number % 2 else 10), partition=number)
    producer.commit_transaction(30)
    client = extension_client(cluster, "test")
    wait_for(lambda: client.batch_at((topic, OPEN - 1, 4), 30.0))
    asked = [(topic, 0, 2), (topic, 1, 4), (topic, 2, 4), (topic, 3, 4), (topic, 4, 99)]
    wait_for(lambda: all(client.batch_at(each, 30.0) for each in asked[:4]))

    found = {(name, number): batch for name, number, batch in client.batches_at(asked, 30.0)}

    assert found == {each[:2]: client.batch_at(each, 30.0) for each in asked[:4]}
    assert client.batches_at([], 30.0) == []
