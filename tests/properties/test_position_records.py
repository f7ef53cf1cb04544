"""Laws of position records: fields of a newer release are kept, and never taken for ours."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from laws import law

from eomirror.kafka.compacted_topic import LogRecord
from eomirror.link.valid_positions import valid_positions
from eomirror.records.position import Position, decode_position
from eomirror.types import SourcePartition

ORDERS = SourcePartition("orders", 0)
OURS = sorted({"v", *(item.name for item in fields(Position))} - {"topic", "partition", "extra"})

# names of ours inside a field of a newer release are the point; beside it they would be ours
_inner = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2000) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(OURS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
_newer = st.dictionaries(
    st.sampled_from(["topic", "partition", "extra", "batch"]) | st.text("abcxyz_", min_size=12, max_size=14),
    _inner,
    max_size=3,
)


def position(offset: int, generation: int, extra: dict[str, Any]) -> Position:
    return Position(
        topic="orders", partition=0, offset=offset, source_cluster_id="S", topic_id="t", target_topic="e.orders",
        target_partition=0, target_topic_id="u", generation=generation, lane=0, run="r", epoch=1, attempt=1,
        producer_id=1, producer_epoch=0, txn=1, timestamp=1, extra=extra,
    )  # fmt: skip


@law(100)
@given(offset=st.integers(0, 1000), newer=_newer)
def test_a_position_with_fields_of_a_newer_release_is_read_back(offset: int, newer: dict[str, Any]) -> None:
    """All of them, and all of ours; a second round trip changes nothing, to the byte."""
    written = position(offset, 1, newer)

    read = decode_position(ORDERS, written.value(), where="")

    assert read == written
    assert read.value() == written.value()


@law(100)
@given(newer=_newer, taken=st.dictionaries(st.sampled_from(OURS), st.integers(0, 9), min_size=1))
def test_extra_never_overrules_a_field_of_ours(newer: dict[str, Any], taken: dict[str, int]) -> None:
    """What a caller puts there by mistake, too."""
    assert decode_position(ORDERS, position(5, 1, newer | taken).value(), where="") == position(5, 1, newer)


@law(100)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 1), _newer, st.booleans()), min_size=1, max_size=6
    )
)
def test_the_valid_position_does_not_depend_on_fields_of_a_newer_release(
    steps: list[tuple[int, int, dict[str, Any], bool]],
) -> None:
    """EO-3: the same log with and without them has the same valid position, wherever in the value they stand."""
    plain, more, offset, generation = [], [], 0, 1
    for at, (step, newer_generation, newer, first) in enumerate(steps):
        offset, generation = offset + step, generation + newer_generation
        one = position(offset, generation, {})
        body = orjson.loads(one.value())
        value = orjson.dumps({**newer, **body} if first else {**body, **newer})
        plain.append(LogRecord("positions", 0, at, one.key(), one.value()))
        more.append(LogRecord("positions", 0, at, one.key(), value))

    expected, found = valid_positions(plain)[ORDERS], valid_positions(more)[ORDERS]

    assert (found.offset, found.generation) == (expected.offset, expected.generation) == (offset, generation)
    assert found.extra == steps[-1][2]
