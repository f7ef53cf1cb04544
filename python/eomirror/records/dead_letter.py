"""
Dead letters: records that the target refuses and that the user allows to skip. Pure.

The key is ``{"topic","partition","offset"}`` of the source, so that a dead letter can be found from a gap in the target
topic.  The value is JSON with a version field, and contains the record if it fits.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.errors import StateError
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    import builtins

__all__ = ["LARGEST_MESSAGE", "DeadLetter", "read_letter"]

VERSION = 1

#: max.message.bytes with which the dead-letter topic is created.
LARGEST_MESSAGE = 8 * 1024 * 1024

# room for the batch, the key and the other fields beside the record; base64 makes four bytes of three
_ROOM = 64 * 1024
_LARGEST_RECORD = (LARGEST_MESSAGE - _ROOM) // 4 * 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """
    A refused record.

    Attributes:
        offset: Source offset.
        target_topic: Topic that refuses it; the partition has the same number.
        reason: Kind of rejection, such as ``size`` or ``timestamp`` (`eomirror.plane.protocol.RejectionReason`).
        error: Error message of the target.
        limit: Setting that the record exceeds, such as ``max.message.bytes=1048588``; empty if unknown.
        timestamp: Timestamp of the record, ms; -1 for none.
        key: Key of the record; None differs from empty.
        value: Value of the record; None differs from empty.
        headers: Headers in their order.
        digest: xxh3-64 of the record alone (rust/core, digest), hexadecimal.
        whole: True if the dead letter may contain the record; a record that is too large is never contained.
    """

    source: SourcePartition
    offset: int
    target_topic: str
    reason: str
    error: str
    limit: str
    timestamp: int
    key: builtins.bytes | None
    value: builtins.bytes | None
    headers: tuple[tuple[str, builtins.bytes | None], ...]
    digest: str
    whole: bool = True

    @property
    def header_bytes(self) -> int:
        """Size of names and values of all headers."""
        return sum(len(name.encode()) + len(value or b"") for name, value in self.headers)

    def record_key(self) -> builtins.bytes:
        """Key of the dead letter."""
        return orjson.dumps(
            {"topic": self.source.topic, "partition": self.source.partition, "offset": self.offset}
        )

    def record_value(self, *, topic_id: str, run: str, timestamp: int) -> builtins.bytes:
        """
        Returns the value of the dead letter.

        Args:
            topic_id: Id of the source topic.
            run: Run of the mirror.
            timestamp: Wall-clock time at the end of the transaction, ms.
        """
        sizes = (len(self.key or b""), len(self.value or b""), self.header_bytes)
        return orjson.dumps(
            {
                "v": VERSION,
                "reason": self.reason,
                "error": self.error,
                "limit": self.limit,
                "target_topic": self.target_topic,
                "topic_id": topic_id,
                "record_timestamp": self.timestamp,
                "key_bytes": None if self.key is None else sizes[0],
                "value_bytes": None if self.value is None else sizes[1],
                "header_bytes": sizes[2],
                "headers": len(self.headers),
                "digest": self.digest,
                "record": self._record() if self.whole and sum(sizes) <= _LARGEST_RECORD else None,
                "run": run,
                "timestamp": timestamp,
            }
        )

    def _record(self) -> dict[str, Any]:
        return {
            "key": _text(self.key),
            "value": _text(self.value),
            "headers": [[name, _text(value)] for name, value in self.headers],
        }


def read_letter(key: bytes | None, value: bytes, *, where: str) -> tuple[SourcePartition, int, str, str]:
    """
    Decodes the record that a dead letter names: source partition, offset, id of the source topic, digest.

    Raises:
        StateError: The record is not a dead letter, or of an unknown version.
    """
    try:
        name, body = orjson.loads(key or b""), orjson.loads(value)
        known = body["v"] == VERSION
        source = SourcePartition(str(name["topic"]), int(name["partition"]))
        found = source, int(name["offset"]), str(body["topic_id"]), str(body["digest"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{where}: this dead letter is not readable",
            fix="find out which program wrote it; only eomirror may write to this topic",
        ) from error
    if not known:
        raise StateError(
            f"{where}: a dead letter has version {body['v']}, this release knows {VERSION}",
            fix="run the release of eomirror that wrote it, or a newer one",
        )
    return found


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")
