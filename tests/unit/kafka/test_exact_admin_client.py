"""What is made of librdkafka's rows of offsets: their metadata has a length and no NUL behind it."""

from __future__ import annotations

import ctypes

import pytest

from eomirror.kafka.exact_admin_client import RawPartition, group_partition


def row(metadata: bytes, *, behind: bytes = b"\xff\xfe") -> tuple[RawPartition, object]:
    """A row whose metadata is followed by other bytes in memory."""
    memory = ctypes.create_string_buffer(metadata + behind, len(metadata) + len(behind))
    made = RawPartition(topic=b"t", partition=3, offset=7)
    made.metadata, made.metadata_size = ctypes.addressof(memory), len(metadata)
    return made, memory


@pytest.mark.parametrize("text", ["", "m", "x" * 24, "é€" * 2_000, "a\0b"])
def test_metadata_ends_at_its_length(text: str) -> None:
    """Whatever is behind it in memory."""
    made, _memory = row(text.encode())
    assert group_partition(made) == ("t", 3, 7, text, None)


def test_metadata_that_is_no_text_is_an_error_of_its_partition() -> None:
    """Named, so that other groups are read."""
    made, _memory = row(b"a\xff")
    found = group_partition(made)
    assert found.error is not None
    assert "t-3" in found.error.str()
    assert "not UTF-8" in found.error.str()
