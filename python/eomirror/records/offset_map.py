"""
Keys of the offset map, which maps source offsets to target offsets. Pure.

One record per transaction and source partition, and one for many transactions once they are merged
(`eomirror.lane.offset_map_compaction`).  The Rust core encodes and decodes the value
(`eomirror._native.encode_offset_map`): target topic, partition, and ranges (source, target, count).
"""

from __future__ import annotations

import zlib

import orjson

from eomirror.errors import StateError
from eomirror.types import SourcePartition

__all__ = [
    "chunk_prefix",
    "merged_chunk_key",
    "offset_map_key",
    "offset_map_partition",
    "prefix_of_chunk",
    "read_offset_map_key",
]

_FIRST = b'"first":'


def offset_map_key(source: SourcePartition, topic_id: str, first_offset: int) -> bytes:
    """Returns the key of the chunk that starts with source offset ``first_offset``."""
    return orjson.dumps(
        {"topic": source.topic, "partition": source.partition, "topic_id": topic_id, "first": first_offset}
    )


def merged_chunk_key(source: SourcePartition, topic_id: str, first_offset: int, merged: int) -> bytes:
    """
    Returns the key of a chunk merged from ``merged`` chunks; ``first_offset`` is that of the first one's key.

    It differs from the key of every unmerged chunk, so that only one transaction writes each key.
    """
    return orjson.dumps(
        {
            "topic": source.topic,
            "partition": source.partition,
            "topic_id": topic_id,
            "first": first_offset,
            "merged": merged,
        }
    )


def chunk_prefix(source: SourcePartition, topic_id: str) -> bytes:
    """Returns the common prefix of the keys of a source partition's chunks."""
    return prefix_of_chunk(offset_map_key(source, topic_id, 0))


def prefix_of_chunk(key: bytes | None) -> bytes:
    """Returns `chunk_prefix` for the partition of a key; empty for a key that is not of the offset map."""
    before, found, _ = (key or b"").partition(_FIRST)
    return before + found if found else b""


def read_offset_map_key(key: bytes | None, *, where: str) -> tuple[SourcePartition, str, int]:
    """
    Decodes source partition, topic id and first source offset of a chunk.

    Raises:
        StateError: The key is not of the offset map.
    """
    try:
        body = orjson.loads(key or b"")
        source = SourcePartition(str(body["topic"]), int(body["partition"]))
        return source, str(body["topic_id"]), int(body["first"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{where}: the key of this record is not one of the offset map: {key!r:.120}",
            fix="find out which program wrote it; only eomirror may write to this topic",
        ) from error


def offset_map_partition(source: SourcePartition, partitions: int) -> int:
    """
    Returns the partition of the offset map that has all chunks of ``source``: crc32 of name and number.

    Stable over releases and languages, so that a reader can find one source partition without reading all.
    """
    return zlib.crc32(f"{source.topic}\0{source.partition}".encode()) % partitions
