"""
Position records: where a source partition stands, committed with the data itself (rule 1). Pure.

The topic is compact.  Two kinds of key live in it:

* ``{"topic","partition"}`` -> `Position`: the next offset to fetch, and all that is needed to notice that
  either side was replaced since (rule 5);
* ``{"lane"}`` -> `AttemptClaim`: which attempt of a lane runs, committed before its first data.

The value is JSON with a version field.  An unknown version is refused, an unknown field is kept, so that an
older mirror can pass over what a newer one wrote without destroying it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.errors import StateError
from eomirror.records.json_fields import checked, text, whole
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping

__all__ = ["AttemptClaim", "Position", "decode_attempt", "decode_key", "decode_position"]

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """
    Where one source partition stands.

    Attributes:
        topic: Source topic.
        partition: Source partition.
        offset: Next source offset to fetch, past markers, aborted ranges and dropped records (rule 4).
        prev: The ``offset`` of the position before this one, so that an audit can check the chain (O4);
            None on the first.
        source_cluster_id: Of the cluster the records came from.
        topic_id: Of the source topic; a recreated topic has another (rule 5).
        leader_epoch: Of the record before ``offset``; None when not known, then nothing is compared.
        epoch_offset: The offset that ``leader_epoch`` belongs to, where only markers and aborted records lie between
            it and ``offset``; None where it is ``offset`` itself.
        target_topic: Where records of this partition go.
        target_partition: Partition there.
        target_topic_id: Id of the target topic.
        target_offset: Of the last record that was written there; None before the first.
        target_producer_id: Of the producer that wrote this record in an earlier transaction; None where this
            transaction wrote it, or nobody knows.
        target_producer_epoch: Likewise.
        generation: Of the lane layout that wrote this; the highest wins (rule 3).
        lane: Lane that wrote this.
        run: Run of the mirror.
        epoch: Number of the Spark task of the lane in this run.
        attempt: Attempt within the epoch.
        producer_id: Of the transaction that holds this record.
        producer_epoch: Likewise.
        txn: Number of the transaction in this attempt, from 1; 0 for a position set before the lane ran.
        records: Records mirrored in this transaction from this partition.
        bytes: Their keys, values and headers, in bytes.
        dropped: Records dropped on purpose in this transaction, by reason.
        copied_headers: Of ``records``, those that carried the provenance header of another record, which an application
            copied; they are mirrored as local records.
        header: Whether the link wrote the provenance header when it began with the partition; later changes of the
            topology do not show, because what was copied before them stays as it is.
        timestamp: When this was written, ms since the epoch (of the worker's clock; for people).
        source_timestamp: Timestamp of the last mirrored record, ms; None when none was mirrored.
        total_records: Records mirrored from this partition since the link first ran.
        total_copied_headers: Records with a copied header since the link first ran.
        digest: Chained xxh3-64 of the transaction's records of this partition, hexadecimal; empty for none.
        batch_offset: Base offset of the source's batch before ``offset``, whatever it holds; None when not known.
        batch_crc: Its checksum.
        batch_timestamp: Its largest timestamp, ms.
        record_offset: Of the last mirrored record, where the client plane has mirrored it; None otherwise.
        record_digest: The chained digest before that record and behind it, hexadecimal; empty without one.
        compacted: Whether the source topic was seen compacted since the link first ran.
        missing: Source offsets that were passed over since the link first ran, and that no batch had.
        extra: Fields of a newer version, kept as they are.
    """

    topic: str
    partition: int
    offset: int
    prev: int | None = None
    source_cluster_id: str
    topic_id: str
    leader_epoch: int | None = None
    epoch_offset: int | None = None
    target_topic: str
    target_partition: int
    target_topic_id: str
    target_offset: int | None = None
    target_producer_id: int | None = None
    target_producer_epoch: int | None = None
    generation: int
    lane: int
    run: str
    epoch: int
    attempt: int
    producer_id: int
    producer_epoch: int
    txn: int
    records: int = 0
    bytes: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    copied_headers: int = 0
    header: bool = False
    timestamp: int
    source_timestamp: int | None = None
    total_records: int = 0
    total_copied_headers: int = 0
    digest: str = ""
    batch_offset: int | None = None
    batch_crc: int | None = None
    batch_timestamp: int | None = None
    record_offset: int | None = None
    record_digest: str = ""
    compacted: bool = False
    missing: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> SourcePartition:
        """The source partition this is about."""
        return SourcePartition(self.topic, self.partition)

    @property
    def target_writer(self) -> tuple[int, int] | None:
        """Producer id and epoch that wrote the record at ``target_offset``; None where that is not known."""
        if self.target_offset is None:
            return None
        if self.target_producer_id is not None and self.target_producer_epoch is not None:
            return self.target_producer_id, self.target_producer_epoch
        return (self.producer_id, self.producer_epoch) if self.records else None

    def key(self) -> builtins.bytes:
        """Key of the record."""
        return position_key(self.source)

    def value(self) -> builtins.bytes:
        """Value of the record."""
        body: dict[str, Any] = {"v": VERSION}
        for item in _POSITION_FIELDS:
            body[item] = getattr(self, item)
        # behind ours: a field of a newer release may hold an `"offset"` inside, and a tool, or a release that looks for
        # the first one in the text, is to find the position's
        later = {name: value for name, value in self.extra.items() if name not in body}
        return orjson.dumps(body | later)


_POSITION_FIELDS = tuple(
    item.name for item in fields(Position) if item.name not in {"topic", "partition", "extra"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptClaim:
    """
    Which attempt of a lane runs; committed alone, before the attempt's first data.

    Attributes:
        lane: Lane number.
        generation: Generation the attempt belongs to.
        run: Run of the mirror.
        epoch: Number of the Spark task of the lane in this run.
        attempt: Attempt within the epoch.
        producer_id: Of the attempt's producer.
        producer_epoch: Likewise.
        host: Where the worker runs, for people.
        pid: Of the worker, for people.
        timestamp: Milliseconds since the epoch.
        plane: Which plane moves the lane's bytes, ``native`` or ``client``; empty when an older release wrote it.
        plane_reason: Why it is not the native one.
    """

    lane: int
    generation: int
    run: str
    epoch: int
    attempt: int
    producer_id: int
    producer_epoch: int
    host: str
    pid: int
    timestamp: int
    plane: str = ""
    plane_reason: str = ""

    def key(self) -> bytes:
        """Key of the record."""
        return orjson.dumps({"lane": self.lane})

    def value(self) -> bytes:
        """Value of the record."""
        body: dict[str, Any] = {"v": VERSION}
        for item in fields(self):
            if item.name != "lane":
                body[item.name] = getattr(self, item.name)
        return orjson.dumps(body)


def position_key(source: SourcePartition) -> bytes:
    """Key of the position record of ``source``."""
    return orjson.dumps({"topic": source.topic, "partition": source.partition})


def decode_key(key: bytes | None, *, where: str) -> SourcePartition | int:
    """
    Tell whose record a key names.

    Args:
        key: The record's key.
        where: Topic-partition@offset, for the error.

    Returns:
        A source partition for a position, or the number of a lane for an attempt's claim.

    Raises:
        StateError: The key is none of ours.
    """
    try:
        body = orjson.loads(key or b"")
        if "lane" in body:
            return whole(body["lane"])
        return SourcePartition(text(body["topic"]), whole(body["partition"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{where}: the key of this record is not one of a position: {key!r:.120}",
            fix="find out who wrote it; only eomirror may write to this topic",
        ) from error


def decode_position(source: SourcePartition, value: bytes, *, where: str) -> Position:
    """
    Read a position record's value.

    Args:
        source: From the record's key.
        value: The record's value.
        where: Topic-partition@offset, for the error.

    Raises:
        StateError: The value is corrupt, or of a version that this release does not know.
    """
    try:
        body = orjson.loads(value)
        version = body.pop("v")
    except (orjson.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise StateError(
            f"{where}: the position of {source} is not readable",
            fix=f"if you know where the mirror stood, run with --adopt {source}=OFFSET",
        ) from error
    if version != VERSION:
        raise StateError(
            f"{where}: the position of {source} has version {version}, this release knows {VERSION}",
            fix="run the release of eomirror that wrote it, or a newer one",
        )
    known = {item: body.pop(item) for item in _POSITION_FIELDS if item in body}
    try:
        position = checked(Position(topic=source.topic, partition=source.partition, extra=body, **known))
    except TypeError as error:
        raise _incomplete(source, where) from error
    if position.offset < 0 or position.generation < 0:
        raise _incomplete(source, where)
    return position


def decode_attempt(lane: int, value: bytes, *, where: str) -> AttemptClaim:
    """
    Read the value of an attempt's claim.

    Raises:
        StateError: The value is corrupt, or of a version that this release does not know.
    """
    try:
        body = orjson.loads(value)
        if body["v"] != VERSION:
            raise StateError(
                f"{where}: the claim of lane {lane} has version {body['v']}, this release knows {VERSION}",
                fix="run the release of eomirror that wrote it, or a newer one",
            )
        needed = [
            item.name for item in fields(AttemptClaim) if item.default is MISSING and item.name != "lane"
        ]
        later = [item.name for item in fields(AttemptClaim) if item.default is not MISSING]
        told = {name: body[name] for name in needed} | {name: body[name] for name in later if name in body}
        claim = checked(AttemptClaim(lane=lane, **told))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise StateError(
            f"{where}: the claim of lane {lane} is not readable",
            fix="find out who wrote it; only eomirror may write to this topic",
        ) from error
    return claim


def _incomplete(source: SourcePartition, where: str) -> StateError:
    return StateError(
        f"{where}: the position of {source} lacks fields or has wrong ones",
        fix=f"if you know where the mirror stood, run with --adopt {source}=OFFSET",
    )
