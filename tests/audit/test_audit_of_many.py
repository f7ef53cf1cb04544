"""A log audit of more partitions than one broker's answers have room for at a time."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from eomirror._native import LogAudit
from eomirror.clock import SYSTEM_CLOCK, Deadline
from support.traffic.records import create_topic

pytestmark = pytest.mark.integration

PARTITIONS = 30
RECORD = 90_000
#: What a broker's answer has room for: as in production, but for fewer bytes.
LIMITS = {"fetch.max.bytes": "1000000", "max.partition.fetch.bytes": "100000"}


def produce(cluster: Any, data: str, state: str, transactions: int) -> None:
    """Transactions with a record in each partition of `data`, and more than one answer has room for in `state`."""
    producer = Producer({**cluster.client_properties, "transactional.id": data})
    producer.init_transactions(30)
    for _ in range(transactions):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(data, b"x" * RECORD, partition=partition)
        for _ in range(4):
            producer.produce(state, b"x" * RECORD, partition=0)
            producer.flush(30)
        producer.commit_transaction(30)


def audited(cluster: Any, roles: dict[str, tuple[str, int]], ends: dict[str, int]) -> None:
    properties = {name: str(value) for name, value in cluster.client_properties.items()}
    audit = LogAudit({**properties, **LIMITS}, 30.0)
    for topic, (role, partitions) in roles.items():
        for partition in range(partitions):
            audit.add(topic, partition, role, 0, ends[topic], "")
    deadline = Deadline(30, SYSTEM_CLOCK)
    while not audit.step(0.1):
        assert not deadline.passed, f"it stands still at {audit.progress()}"


@pytest.mark.timeout(120)
def test_partitions_that_are_read_to_their_ends_leave_room_for_the_others(east: Any, topic_name: str) -> None:
    """What is done with takes up nothing, however many partitions that are."""
    create_topic(east.client_properties, topic_name, PARTITIONS)
    producer = Producer(dict(east.client_properties))
    for partition in range(PARTITIONS):
        producer.produce(topic_name, b"x" * RECORD, partition=partition)
    assert producer.flush(30) == 0
    audited(east, {topic_name: ("data", PARTITIONS)}, {topic_name: 1})


@pytest.mark.timeout(120)
def test_partitions_that_wait_for_others_leave_room_for_them(east: Any, topic_name: str) -> None:
    """Data that waits for positions does not keep the positions from being fetched."""
    state = f"{topic_name}-state"
    create_topic(east.client_properties, topic_name, PARTITIONS)
    create_topic(east.client_properties, state)
    produce(east, topic_name, state, 3)
    audited(east, {topic_name: ("data", PARTITIONS), state: ("positions", 1)}, {topic_name: 6, state: 15})
