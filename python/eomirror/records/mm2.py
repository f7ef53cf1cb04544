"""
MirrorMaker 2's records, byte for byte: offset syncs, checkpoints, heartbeats, and the names of their topics. Pure.

Source: Apache Kafka 4.3, connect/mirror: OffsetSync.java, Checkpoint.java, Heartbeat.java and
DefaultReplicationPolicy.java (KIP-382; location of offset syncs: KIP-716; separator of internal topics: KIP-690).
All three are structs of Kafka's protocol types, big endian, in partition 0 of a compact topic, without record
headers::

    record      key                                      value
    OffsetSync  STRING topic, INT32 partition            INT64 upstream, INT64 downstream
    Checkpoint  STRING group, STRING topic, INT32 part.  INT16 0, INT64 upstream, INT64 downstream, STRING metadata
    Heartbeat   STRING source, STRING target             INT16 0, INT64 timestamp

A STRING is an INT16 length and UTF-8.  No field is nullable: Java's reader fails on a null.  Decoding is strict and
accounts for every byte, because a misread record would become a wrong offset.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from eomirror.errors import StateError

__all__ = [
    "Checkpoint",
    "Heartbeat",
    "Mm2Names",
    "OffsetSync",
    "decode_checkpoint",
    "decode_heartbeat",
    "decode_offset_sync",
]

#: The only version of checkpoints and heartbeats; an offset sync has none.
VERSION = 0

_MAX_STRING = 32_767


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """
    Offsets of one record on both clusters.

    Attributes:
        topic: Name on the source cluster.
        partition: Partition, the same on both clusters.
        upstream: Offset of the record on the source.
        downstream: Offset of the same record on the target.
    """

    topic: str
    partition: int
    upstream: int
    downstream: int

    def key(self) -> bytes:
        """
        Returns the key of the record.

        Raises:
            StateError: A value does not fit MM2's format.
        """
        return _string("topic", self.topic) + _int32(self.partition)

    def value(self) -> bytes:
        """
        Returns the value of the record.

        Raises:
            StateError: A value does not fit MM2's format.
        """
        return _offset("upstream", self.upstream) + _offset("downstream", self.downstream)


class Checkpoint(NamedTuple):
    """
    Offsets of a consumer group in one partition, on both clusters.

    Attributes:
        group: Name of the consumer group.
        topic: Name on the TARGET cluster.
        upstream: Committed offset on the source.
        downstream: Translated offset on the target.
        metadata: Metadata that the group committed with its offset; empty for none.
    """

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        """
        Returns the key of the record.

        Raises:
            StateError: A value does not fit MM2's format.
        """
        return _string("group", self.group) + _string("topic", self.topic) + _int32(self.partition)

    def value(self) -> bytes:
        """
        Returns the value of the record.

        Raises:
            StateError: A value does not fit MM2's format.
        """
        return (
            struct.pack(">h", VERSION)
            + _offset("upstream", self.upstream)
            + _offset("downstream", self.downstream)
            + _string("metadata", self.metadata)
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """
    Heartbeat of one flow.

    Attributes:
        source: Alias of the source cluster.
        target: Alias of the target cluster.
        timestamp: Time of the heartbeat, ms since the epoch.
    """

    source: str
    target: str
    timestamp: int

    def key(self) -> bytes:
        """
        Returns the key of the record.

        Raises:
            StateError: A value does not fit MM2's format.
        """
        return _string("source alias", self.source) + _string("target alias", self.target)

    def value(self) -> bytes:
        """
        Returns the value of the record.

        Raises:
            StateError: A value does not fit MM2's format.
        """
        return struct.pack(">h", VERSION) + _offset("timestamp", self.timestamp)


def decode_offset_sync(key: bytes | None, value: bytes | None, *, where: str) -> OffsetSync:
    """
    Decodes an offset sync.

    Args:
        where: Topic-partition@offset of the record, for the error.

    Raises:
        StateError: The record is not in MM2's format.
    """
    read = _StructReader(key, f"{where}: key of an offset sync")
    topic, partition = read.string("topic"), read.partition()
    read.end()
    read = _StructReader(value, f"{where}: offset sync of {topic}-{partition}")
    sync = OffsetSync(topic, partition, read.offset("upstream offset"), read.offset("downstream offset"))
    read.end()
    return sync


def decode_checkpoint(key: bytes | None, value: bytes | None, *, where: str) -> Checkpoint:
    """
    Decodes a checkpoint.

    Args:
        where: Topic-partition@offset of the record, for the error.

    Raises:
        StateError: The record is not in MM2's format, or of a version that this release does not know.
    """
    if (quick := _well_formed(key, value)) is not None:
        return quick
    read = _StructReader(key, f"{where}: key of a checkpoint")
    group, topic, partition = read.string("group"), read.string("topic"), read.partition()
    read.end()
    read = _StructReader(value, f"{where}: checkpoint of {group} in {topic}-{partition}")
    read.version()
    checkpoint = Checkpoint(
        group,
        topic,
        partition,
        read.offset("upstream offset"),
        read.offset("downstream offset"),
        read.string("metadata"),
    )
    read.end()
    return checkpoint


def decode_heartbeat(key: bytes | None, value: bytes | None, *, where: str) -> Heartbeat:
    """
    Decodes a heartbeat.

    Args:
        where: Topic-partition@offset of the record, for the error.

    Raises:
        StateError: The record is not in MM2's format, or of a version that this release does not know.
    """
    read = _StructReader(key, f"{where}: key of a heartbeat")
    source, target = read.string("source alias"), read.string("target alias")
    read.end()
    read = _StructReader(value, f"{where}: heartbeat of {source}->{target}")
    read.version()
    heartbeat = Heartbeat(source, target, read.offset("timestamp"))
    read.end()
    return heartbeat


@dataclass(frozen=True, slots=True)
class Mm2Names:
    """
    Names of MM2's topics.

    Attributes:
        separator: ``replication.policy.separator``.
        separator_for_internal: ``replication.policy.internal.topic.separator.enabled``: True if the names of internal
            topics contain the separator, too.
    """

    separator: str = "."
    separator_for_internal: bool = True

    @property
    def heartbeats(self) -> str:
        """Topic of a cluster's own heartbeats, mirrored as a remote topic."""
        return "heartbeats"

    def offset_syncs(self, other: str) -> str:
        """Returns the topic of offset syncs; ``other`` is the alias of the other cluster."""
        return f"mm2-offset-syncs{self._internal}{other}{self._internal}internal"

    def checkpoints(self, source: str) -> str:
        """Returns the topic of checkpoints on the target, for all groups of ``source``."""
        return f"{source}{self._internal}checkpoints{self._internal}internal"

    def remote_heartbeats(self, source: str) -> str:
        """Returns the topic of mirrored heartbeats of ``source`` on the target, prefixed under every policy."""
        return f"{source}{self.separator}{self.heartbeats}"

    @property
    def _internal(self) -> str:
        return self.separator if self.separator_for_internal else "."


def _string(what: str, text: str) -> bytes:
    try:
        body = text.encode()
    except UnicodeEncodeError as error:
        raise _unwritable(f"{what} {text!a:.80} is not Unicode text") from error
    if len(body) > _MAX_STRING:
        raise _unwritable(f"{what} has {len(body)} bytes, MM2's format holds {_MAX_STRING}")
    return struct.pack(">h", len(body)) + body


def _int32(partition: int) -> bytes:
    if not 0 <= partition < 2**31:
        raise _unwritable(f"{partition} is not a partition")
    return struct.pack(">i", partition)


def _offset(what: str, number: int) -> bytes:
    if not 0 <= number < 2**63:
        raise _unwritable(f"{what} is {number}")
    return struct.pack(">q", number)


def _unwritable(what: str) -> StateError:
    return StateError(
        f"a record for MM2's readers cannot be encoded: {what}", fix="report this as a bug, with the name"
    )


_PARTITION = struct.Struct(">i")
_OFFSETS = struct.Struct(">hqqh")


def _well_formed(key: bytes | None, value: bytes | None) -> Checkpoint | None:
    """
    Returns a checkpoint in a tenth of the time of `_StructReader`; None if a field is faulty, which that one names.

    A failover decodes 100,000 of them.
    """
    if key is None or value is None or len(value) < _OFFSETS.size:
        return None
    version, upstream, downstream, size = _OFFSETS.unpack_from(value)
    try:
        topic_at = 2 + (key[0] << 8 | key[1])
        partition_at = topic_at + 2 + (key[topic_at] << 8 | key[topic_at + 1])
        (partition,) = _PARTITION.unpack(key[partition_at:])
        if (
            version != VERSION
            or upstream < 0
            or downstream < 0
            or partition < 0
            or len(value) != _OFFSETS.size + size
            or topic_at > _MAX_STRING + 2
            or partition_at > topic_at + _MAX_STRING + 2
        ):
            return None
        return Checkpoint(
            key[2:topic_at].decode(),
            key[topic_at + 2 : partition_at].decode(),
            partition,
            upstream,
            downstream,
            value[_OFFSETS.size :].decode() if size else "",
        )
    except (IndexError, UnicodeDecodeError, struct.error):
        return None


class _StructReader:
    """Decodes one struct; its errors name the faulty field."""

    def __init__(self, body: bytes | None, what: str) -> None:
        self._what = what
        if body is None:
            raise self._bad("is null")
        self._body = body
        self._at = 0

    def _take(self, count: int, field: str) -> bytes:
        taken = self._body[self._at : self._at + count]
        if len(taken) < count:
            raise self._bad(f"ends within its {field}")
        self._at += count
        return taken

    def string(self, field: str) -> str:
        length = int.from_bytes(self._take(2, field), signed=True)
        if length < 0:
            raise self._bad(f"has a {field} of length {length}")
        try:
            return self._take(length, field).decode()
        except UnicodeDecodeError as error:
            raise self._bad(f"has a {field} that is not UTF-8") from error

    def partition(self) -> int:
        number = int.from_bytes(self._take(4, "partition"), signed=True)
        if number < 0:
            raise self._bad(f"names partition {number}")
        return number

    def offset(self, field: str) -> int:
        number = int.from_bytes(self._take(8, field), signed=True)
        if number < 0:
            raise self._bad(f"has {field} {number}")
        return number

    def version(self) -> None:
        found = int.from_bytes(self._take(2, "version"), signed=True)
        if found != VERSION:
            raise StateError(
                f"{self._what} has version {found}, this release knows {VERSION}",
                fix="upgrade eomirror to a release that knows it",
            )

    def end(self) -> None:
        if rest := len(self._body) - self._at:
            raise self._bad(f"has {rest} bytes too many")

    def _bad(self, problem: str) -> StateError:
        return StateError(
            f"{self._what} {problem}",
            fix="find out which program wrote it; only MirrorMaker 2 and eomirror may write to this topic",
        )
