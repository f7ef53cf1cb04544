"""
Reads lists of offsets that an application keeps in a store of its own. Pure.

Three forms are known::

    [{"topic": "orders", "partition": 0, "offset": 1000}, ...]        also under "offsets"
    {"orders": {"0": 1000, "1": 998}}                                 Spark, as `startingOffsets` takes it
    v1 / {...} / {"orders": {"0": 1000, "1": 998}} / -                Spark, a file of `CHECKPOINT/offsets`

A file of a Spark checkpoint has a line for its version, one for the batch, and one for each source of the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OFFSET_LIST_FIX", "read_offset_list"]

OFFSET_LIST_FIX = (
    'write [{"topic": "orders", "partition": 0, "offset": 1000}, ...] or {"orders": {"0": 1000}}, or name a file of '
    "Spark's CHECKPOINT/offsets"
)


def read_offset_list(content: bytes, name: str) -> list[tuple[str, int, int]]:
    """
    Returns topic, partition and next offset to read of each entry, without repetitions.

    Args:
        content: The file.
        name: Its name, for messages.

    Raises:
        UsageError: It has none of the forms, or an entry is not an offset.
    """
    found: dict[tuple[str, int], int] = {}
    for topic, partition, offset in _entries(content, name):
        if type(topic) is not str or not topic:
            raise _refused(name, f"{topic!r} is not a topic")
        if type(partition) is not int or partition < 0:
            raise _refused(name, f"{topic} has no partition {partition!r}")
        # True is an int in Python; -1 and -2 are the end and the beginning for Spark, and no offsets.
        if type(offset) is not int or offset < 0:
            raise _refused(name, f"{topic}-{partition}: {offset!r} is not an offset")
        if found.setdefault((topic, partition), offset) != offset:
            raise _refused(
                name, f"{topic}-{partition} has two offsets, {found[topic, partition]} and {offset}"
            )
    if not found:
        raise _refused(name, "it has no offset")
    return [(*where, offset) for where, offset in found.items()]


def _entries(content: bytes, name: str) -> Iterator[tuple[Any, Any, Any]]:
    try:
        parsed = [orjson.loads(content)]
    except orjson.JSONDecodeError:
        parsed = list(_spark_sources(content, name))
    for each in parsed:
        rows = (
            each.get("offsets") if isinstance(each, dict) and isinstance(each.get("offsets"), list) else each
        )
        if isinstance(rows, list):
            for row in rows:
                if not isinstance(row, dict) or not {"topic", "partition", "offset"} <= row.keys():
                    raise _refused(name, f"{row!r} has no topic, partition and offset")
                yield row["topic"], row["partition"], row["offset"]
        elif isinstance(rows, dict):
            for topic, partitions in rows.items():
                if not isinstance(partitions, dict):
                    raise _refused(name, f"{topic} has no partitions")
                for partition, offset in partitions.items():
                    yield topic, int(partition) if partition.isdecimal() else partition, offset
        else:
            raise _refused(name, f"{rows!r} is no list")


def _spark_sources(content: bytes, name: str) -> Iterator[Any]:
    """Yields the sources of a file of `CHECKPOINT/offsets`; a line of one without an offset is ``-``."""
    lines = content.decode(errors="replace").splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):  # noqa: PLR2004  version, batch, and a source
        raise _refused(name, "it is not JSON")
    for line in lines[2:]:
        if line.strip() in {"", "-"}:
            continue
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:
            raise _refused(name, f"{line[:80]!r} is not JSON") from None


def _refused(name: str, reason: str) -> UsageError:
    return UsageError(f"{name} is no list of offsets: {reason}", fix=OFFSET_LIST_FIX)
