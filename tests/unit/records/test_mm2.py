"""MirrorMaker 2's records: golden bytes, laws, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eomirror.errors import StateError
from eomirror.records.mm2 import (
    Checkpoint,
    Heartbeat,
    Mm2Names,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
)

# computed with Apache Kafka's own classes; tests/interop asks them again
GOLDEN = [
    (
        OffsetSync("orders", 3, 1000, 998),
        decode_offset_sync,
        "00066f726465727300000003",
        "00000000000003e800000000000003e6",
    ),
    (
        Checkpoint("g1", "A.orders", 3, 1000, 998),
        decode_checkpoint,
        "000267310008412e6f726465727300000003",
        "000000000000000003e800000000000003e60000",
    ),
    (
        Heartbeat("A", "B", 1_700_000_000_000),
        decode_heartbeat,
        "000141000142",
        "00000000018bcfe56800",
    ),
]
DECODERS = [decode for _, decode, _, _ in GOLDEN]
FORMATS = pytest.mark.parametrize(("record", "decode", "key", "value"), GOLDEN)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
offsets = st.integers(0, 2**63 - 1)
partitions = st.integers(0, 2**31 - 1)
records = st.one_of(
    st.tuples(st.builds(OffsetSync, texts, partitions, offsets, offsets), st.just(decode_offset_sync)),
    st.tuples(
        st.builds(Checkpoint, texts, texts, partitions, offsets, offsets, texts), st.just(decode_checkpoint)
    ),
    st.tuples(st.builds(Heartbeat, texts, texts, offsets), st.just(decode_heartbeat)),
)


@FORMATS
def test_bytes_are_those_of_mm2(record: Any, decode: Callable[..., Any], key: str, value: str) -> None:
    """What we write is what MM2 writes, and what it writes we read."""
    assert (record.key().hex(), record.value().hex()) == (key, value)
    assert decode(bytes.fromhex(key), bytes.fromhex(value), where="t-0@0") == record


@given(records)
def test_a_record_survives_a_round_trip(pair: tuple[Any, Callable[..., Any]]) -> None:
    """Any record that can be written is read back the same."""
    record, decode = pair
    assert decode(record.key(), record.value(), where="t-0@0") == record


@given(st.sampled_from(DECODERS), st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_any_bytes_are_a_record_or_a_named_error(
    decode: Callable[..., Any], key: bytes | None, value: bytes | None
) -> None:
    """Whatever lies in the topic: a record that has these very bytes, or an error that says where."""
    refusal = None
    try:
        record = decode(key, value, where="syncs-0@17")
    except StateError as error:
        refusal = error
    if refusal is None:
        assert (record.key(), record.value()) == (key, value)
    else:
        assert "syncs-0@17" in refusal.message
        assert refusal.fix


@given(records, st.data())
def test_a_cut_or_longer_record_is_refused(pair: tuple[Any, Callable[..., Any]], data: st.DataObject) -> None:
    """A byte that is missing or too many, in key or value, is named."""
    record, decode = pair
    for whole, other, swap in (
        (record.key(), record.value(), False),
        (record.value(), record.key(), True),
    ):
        cut = data.draw(st.integers(0, len(whole) - 1))
        for wrong in (whole[:cut], whole + b"\0"):
            key, value = (other, wrong) if swap else (wrong, other)
            with pytest.raises(StateError, match="t-0@0"):
                decode(key, value, where="t-0@0")


@pytest.mark.parametrize(("record", "decode", "key", "value"), GOLDEN[1:])
def test_an_unknown_version_is_refused(record: Any, decode: Callable[..., Any], key: str, value: str) -> None:
    """Version 1 of a checkpoint or heartbeat is refused by its number."""
    del record
    with pytest.raises(StateError, match="has version 1, this release knows 0"):
        decode(bytes.fromhex(key), b"\0\x01" + bytes.fromhex(value)[2:], where="t-0@0")


def test_negative_numbers_and_null_strings_are_refused() -> None:
    """-1 is Kafka's word for `none` and never becomes an offset; a null string is none of MM2's."""
    key = OffsetSync("t", 0, 1, 2).key()
    with pytest.raises(StateError, match="upstream offset -1"):
        decode_offset_sync(key, b"\xff" * 8 + b"\0" * 8, where="t-0@0")
    with pytest.raises(StateError, match="partition -1"):
        decode_offset_sync(b"\0\x01t" + b"\xff" * 4, b"\0" * 16, where="t-0@0")
    with pytest.raises(StateError, match="topic of length -1"):
        decode_offset_sync(b"\xff\xff" + b"\0" * 4, b"\0" * 16, where="t-0@0")
    with pytest.raises(StateError, match="topic that is not UTF-8"):
        decode_offset_sync(b"\0\x01\xff" + b"\0" * 4, b"\0" * 16, where="t-0@0")


@pytest.mark.parametrize(
    "change",
    [
        {"group": "x" * 32_768},
        {"group": "\ud800"},
        {"partition": -1},
        {"partition": 2**31},
        {"upstream": -1},
        {"downstream": 2**63},
    ],
)
def test_what_does_not_fit_is_not_written(change: dict[str, Any]) -> None:
    """A value that Java would read wrong is an error here."""
    checkpoint = Checkpoint("g", "t", 0, 1, 2)._replace(**change)
    with pytest.raises(StateError, match="a record for MM2's readers cannot be encoded"):
        checkpoint.key() + checkpoint.value()


def test_topics_are_called_as_in_mm2() -> None:
    """Default separator, another one, and another one that internal topics do not take."""
    names = Mm2Names()
    assert names.offset_syncs("east") == "mm2-offset-syncs.east.internal"
    assert names.checkpoints("east") == "east.checkpoints.internal"
    assert names.remote_heartbeats("east") == "east.heartbeats"
    names = Mm2Names("_")
    assert names.offset_syncs("east") == "mm2-offset-syncs_east_internal"
    assert names.checkpoints("east") == "east_checkpoints_internal"
    assert names.remote_heartbeats("east") == "east_heartbeats"
    names = Mm2Names("_", separator_for_internal=False)
    assert names.offset_syncs("east") == "mm2-offset-syncs.east.internal"
    assert names.checkpoints("east") == "east.checkpoints.internal"
