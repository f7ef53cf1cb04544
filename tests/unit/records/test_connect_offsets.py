"""Source offsets and task counts as Kafka Connect keeps them."""

from __future__ import annotations

import pytest

from eomirror._native import key_partition
from eomirror.errors import StateError
from eomirror.records.connect_offsets import (
    Mm2Flow,
    SourceOffset,
    decode_source_offset,
    decode_task_count,
    encode_source_offset,
    is_connect_key,
)
from eomirror.types import SourcePartition

FLOW = Mm2Flow.dedicated("east", "west")
KEY = b'["MirrorSourceConnector",{"cluster":"east","partition":3,"topic":"orders"}]'


def decoded(key: bytes | None, value: bytes | None) -> SourceOffset | None:
    return decode_source_offset(key, value, FLOW, where="t-0@7")


def test_bytes_of_a_real_mm2_are_read() -> None:
    """As Kafka 4.3 wrote them; the order of fields and blanks between them mean nothing."""
    expected = SourceOffset(SourcePartition("orders", 3), 118)
    assert decoded(KEY, b'{"offset":118}') == expected
    other = b'["MirrorSourceConnector", {"topic": "orders", "cluster": "east", "partition": 3}]'
    assert decoded(other, b'{"offset": 118}') == expected
    assert decode_task_count(b'{"task-count":2}', where="t-0@7") == 2


def test_a_deleted_offset_is_told_from_none() -> None:
    """Connect deletes an offset with a tombstone."""
    assert decoded(KEY, None) == SourceOffset(SourcePartition("orders", 3), None)
    assert decode_task_count(None, where="t-0@7") == 0


@pytest.mark.parametrize(
    "key",
    [
        b'["MirrorSourceConnector",{"cluster":"north","partition":3,"topic":"orders"}]',
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"east","targetClusterAlias":"west"}]',
        b'["some-sink",null]',
        b"junk",
        b"7",
        b"[1,2,3]",
        None,
    ],
)
def test_what_others_keep_in_the_topic_is_passed_over(key: bytes | None) -> None:
    """Of another cluster, another connector, or in another form."""
    assert decoded(key, b'{"offset":118}') is None


@pytest.mark.parametrize(
    "value", [b"junk", b"{}", b'{"offset":-1}', b'{"offset":"7"}', b'{"offset":true}', b"[]"]
)
def test_an_unreadable_offset_of_the_flow_is_refused(value: bytes) -> None:
    """By its place, never taken for position 0."""
    with pytest.raises(StateError, match="t-0@7"):
        decoded(KEY, value)


def test_an_unreadable_task_count_is_refused() -> None:
    """Fencing too few ids would let MM2 go on."""
    with pytest.raises(StateError, match="task count"):
        decode_task_count(b"{}", where="t-0@7")


def test_names_are_those_of_the_dedicated_mode() -> None:
    """Group, topics, and the ids of its tasks' producers."""
    assert FLOW.group == "east-mm2"
    assert FLOW.offsets_topic == "mm2-offsets.east.internal"
    assert FLOW.transactional_id(1) == "east-mm2-MirrorSourceConnector-1"


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_has_the_partition_that_a_java_producer_chooses(key: bytes, hashed: int) -> None:
    """The values of Apache Kafka's own test of murmur2 (UtilsTest)."""
    assert key_partition(key, 25) == (hashed & 0x7FFFFFFF) % 25


def test_a_source_offset_has_the_bytes_that_connect_looks_for() -> None:
    """As a real MirrorMaker 2 has written it, and what is written is what is read."""
    source = SourcePartition("t", 0)
    key, value = encode_source_offset(source, 118, FLOW)
    assert key == b'["MirrorSourceConnector",{"cluster":"east","partition":0,"topic":"t"}]'
    assert value == b'{"offset":118}'
    assert decode_source_offset(key, value, FLOW, where="x") == SourceOffset(source, 118)


@pytest.mark.parametrize(
    ("key", "known"),
    [(b'["Other",{"file":"x"}]', True), (b'["Other",null]', True), (None, False), (b"", False), (b"\xff", False),
     (b'["Other"', False), (b"{}", False), (b"[1,{}]", False)],
)  # fmt: skip
def test_keys_of_any_connector_are_told_from_what_is_none(key: bytes | None, known: bool) -> None:
    """Connect writes its connector's name and whatever the connector calls a partition."""
    assert is_connect_key(key) is known
