"""
Position records: the progress of a source partition, committed with the records themselves (EO-1). Pure.

The topic is compact and has two kinds of keys:

* ``{"topic","partition"}`` -> `Position`: the next offset to fetch, with the ids and digests that detect a replaced
  source or target topic (EO-5);
* ``{"lane"}`` -> `AttemptClaim`: the running attempt of a lane, committed before its first records.

The value is JSON with a version field.  An unknown version is refused.  An unknown field is kept, so that an older
mirror preserves the fields of a newer one.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.errors import StateError
from eomirror.records.json_fields import checked, text, whole
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping

__all__ = [
    "QUERY_RULE",
    "AttemptClaim",
    "Position",
    "decode_attempt",
    "decode_key",
    "decode_position",
    "position_key",
]

VERSION = 1

#: Reason in `Position.dropped` of records that the query of a link left out.
QUERY_RULE = "query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """
    Progress of one source partition.

    Reason for its size: one field for each field of the record on the positions topic.

    Attributes:
        topic: Source topic.
        partition: Source partition.
        offset: Next source offset to fetch, past markers, aborted ranges and dropped records (EO-4).
        prev: ``offset`` of the previous position, so that an audit can check the chain (O4); None on the first.
        topic_id: Id of the source topic; a recreated topic has another (EO-5).
        leader_epoch: Leader epoch of the record before ``offset``; None if unknown, then it is not compared.
        epoch_offset: Offset that ``leader_epoch`` belongs to, if only markers and aborted records are between it and
            ``offset``; None if it is ``offset`` itself.
        target_topic: Target topic of this partition.
        target_partition: Target partition; with ``keyed``, that of the last record.
        target_offset: Offset of the last record written there; None before the first.
        target_begin: Offset there from which on the link writes: what others have written behind it belongs to the link
            in the other direction.  None in records of older releases.
        target_batch: ``offset``, ``crc`` and ``timestamp`` of the batch before ``target_begin``; empty if unknown.
        target_producer_id: Id of the producer that wrote that record in an earlier transaction; None if this
            transaction wrote it, or if unknown.
        generation: Generation of the lane layout that wrote this; the highest wins (EO-3).
        lane: Lane that wrote this.
        run: Run of the mirror.
        epoch: Number of the lane's Spark task in this run.
        attempt: Attempt within the epoch.
        producer_id: Producer id of the transaction with this record.
        producer_epoch: Producer epoch of the transaction with this record.
        txn: Number of the transaction in this attempt, from 1; 0 for a position set before the lane ran.
        records: Records mirrored in this transaction from this partition.
        bytes: Size of their keys, values and headers.
        dropped: Records dropped by configuration in this transaction, by reason.
        copied_headers: Of ``records``, those that carried the provenance header of another record, which an application
            had copied; they are mirrored as local records.
        changed: Of ``records``, those that rules of the transform changed, by rule.
        header: True if the link added the provenance header when it started the partition; later changes of the
            topology do not change it, because records mirrored before them have no header.
        timestamp: Time of this record, ms since the epoch (of the worker's clock; for people).
        source_timestamp: Timestamp of the last mirrored record, ms; None for none.
        total_records: Records mirrored from this partition since the link first ran.
        total_copied_headers: Records with a copied header since the link first ran.
        total_dropped: Records dropped since the link first ran, by reason.
        total_changed: Records that rules of the transform changed since the link first ran, by rule.
        digest: Chained xxh3-64 of the transaction's records of this partition, hexadecimal; empty for none.
        batch_offset: Base offset of the source batch before ``offset``, of any kind; None if unknown.
        batch_crc: Checksum of that batch.
        batch_timestamp: Largest timestamp of that batch, ms.
        batch_committed: True if a reversal has found the record before ``offset`` committed.  Its marker may stand
            behind ``offset``, so the batch does not tell.
        record_offset: Offset of the last mirrored record, on the client plane; else None.
        record_digest: Chained digest before and after that record, hexadecimal; empty without one.
        compacted: True if the source topic was seen compacted since the link first ran.
        missing: Number of source offsets that were in no batch, since the link first ran.
        keyed: Target partitions, if records are placed by key: number (a text) and the offset of the last record of
            this source partition there, -1 before the first; empty if records keep their partition.
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
    target_begin: int | None = None
    target_batch: Mapping[str, int] = field(default_factory=dict)
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
    changed: Mapping[str, int] = field(default_factory=dict)
    header: bool = False
    timestamp: int
    source_timestamp: int | None = None
    total_records: int = 0
    total_copied_headers: int = 0
    total_dropped: Mapping[str, int] = field(default_factory=dict)
    total_changed: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""
    batch_offset: int | None = None
    batch_crc: int | None = None
    batch_timestamp: int | None = None
    batch_committed: bool = False
    record_offset: int | None = None
    record_digest: str = ""
    compacted: bool = False
    missing: int = 0
    keyed: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> SourcePartition:
        """Source partition of this position."""
        return SourcePartition(self.topic, self.partition)

    @property
    def target_writer(self) -> tuple[int, int] | None:
        """Producer id and epoch that wrote the record at ``target_offset``; None if unknown."""
        if self.target_offset is None:
            return None
        if self.target_producer_id is not None and self.target_producer_epoch is not None:
            return self.target_producer_id, self.target_producer_epoch
        return (self.producer_id, self.producer_epoch) if self.records else None

    @property
    def target_next(self) -> int | None:
        """Offset of the copy from which on the link has written nothing; None if unknown."""
        return self.target_begin if self.target_offset is None else self.target_offset + 1

    @property
    def copies(self) -> tuple[tuple[str, int], ...]:
        """Target topic and number of each target partition."""
        if not self.keyed:
            return ((self.target_topic, self.target_partition),)
        return tuple((self.target_topic, int(number)) for number in self.keyed)

    def by_copy(self) -> tuple[Position, ...]:
        """
        Returns the position as it concerns each target partition with records; itself if it has only one.

        With ``keyed``, ``records`` is 0 but for the partition of the last record: the transaction's records are divided
        in an unknown way.
        """
        if not self.keyed:
            return (self,)
        return tuple(
            self
            if int(number) == self.target_partition
            else replace(self, target_partition=int(number), target_offset=last, records=0)
            for number, last in self.keyed.items()
            if last >= 0
        )

    def moved_to(self, offset: int, **changes: Any) -> Position:
        """Returns the position at another source offset: no transaction, and nothing of the log before it, is known."""
        return replace(
            self,
            offset=offset,
            leader_epoch=None,
            epoch_offset=None,
            batch_offset=None,
            batch_crc=None,
            batch_timestamp=None,
            batch_committed=False,
            record_offset=None,
            record_digest="",
            txn=0,
            records=0,
            bytes=0,
            dropped={},
            copied_headers=0,
            changed={},
            digest="",
            extra={},
            **changes,
        )

    def handed(self, **changes: Any) -> Position:
        """Returns the position for another link that goes on there: all that both logs tell, and no record counted."""
        producer_id, producer_epoch = self.target_writer or (None, None)
        return replace(
            self,
            prev=None,
            target_producer_id=producer_id,
            target_producer_epoch=producer_epoch,
            records=0,
            bytes=0,
            dropped={},
            copied_headers=0,
            changed={},
            total_records=0,
            total_copied_headers=0,
            total_dropped={},
            total_changed={},
            digest="",
            missing=0,
            extra={},
            **changes,
        )

    def key(self) -> builtins.bytes:
        """Key of the record."""
        return position_key(self.source)

    def value(self) -> builtins.bytes:
        """Value of the record."""
        body: dict[str, Any] = {"v": VERSION}
        for item in _POSITION_FIELDS:
            body[item] = getattr(self, item)
        # after our fields: a field of a newer release may contain an `"offset"`, and a tool or an older release that
        # searches the text for the first one must find the position's
        later = {name: value for name, value in self.extra.items() if name not in body}
        for name in ("batch_committed", "changed", "keyed", "target_batch", "total_changed"):
            if not body[name]:
                del body[name]
        return orjson.dumps(body | later)


_POSITION_FIELDS = tuple(
    item.name for item in fields(Position) if item.name not in {"topic", "partition", "extra"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptClaim:
    """
    Running attempt of a lane; committed alone, before the attempt's first records.

    Attributes:
        run: Run of the mirror.
        epoch: Number of the lane's Spark task in this run.
        attempt: Attempt within the epoch.
        host: Host of the worker, for people.
        pid: Process id of the worker, for people.
        timestamp: Milliseconds since the epoch.
        plane: Data plane of the lane, ``native`` or ``client``; empty if an older release wrote it.
        plane_reason: Reason why the lane does not use the native plane.
        transaction_protocol: Protocol of the attempt's first transactions, ``V1`` or ``V2``; empty if unknown.
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
    transaction_protocol: str = ""

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
    """Returns the key of the position record of ``source``."""
    return orjson.dumps({"topic": source.topic, "partition": source.partition})


def decode_key(key: bytes | None, *, where: str) -> SourcePartition | int:
    """
    Decodes the key of a record.

    Args:
        where: Topic-partition@offset of the record, for the error.

    Returns:
        A source partition for a position, or the number of a lane for an attempt's claim.

    Raises:
        StateError: The key is of neither kind.
    """
    try:
        body = orjson.loads(key or b"")
        if "lane" in body:
            return whole(body["lane"])
        return SourcePartition(text(body["topic"]), whole(body["partition"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{where}: the key of this record is not one of a position: {key!r:.120}",
            fix="find out which program wrote it; only eomirror may write to this topic",
        ) from error


def decode_position(source: SourcePartition, value: bytes, *, where: str) -> Position:
    """
    Decodes the value of a position record.

    Args:
        source: Source partition in the record's key.
        where: Topic-partition@offset of the record, for the error.

    Raises:
        StateError: The value is corrupt, or of a version that this release does not know.
    """
    try:
        body = orjson.loads(value)
        version = body.pop("v")
    except (orjson.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise StateError(
            f"{where}: the position of {source} is not readable",
            fix=f"if you know the next offset to mirror, run with --resume-at {source}=OFFSET",
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
    Decodes the value of an attempt's claim.

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
        given = {name: body[name] for name in needed} | {name: body[name] for name in later if name in body}
        claim = checked(AttemptClaim(lane=lane, **given))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise StateError(
            f"{where}: the claim of lane {lane} is not readable",
            fix="find out which program wrote it; only eomirror may write to this topic",
        ) from error
    return claim


def _incomplete(source: SourcePartition, where: str) -> StateError:
    return StateError(
        f"{where}: the position of {source} has missing or invalid fields",
        fix=f"if you know the next offset to mirror, run with --resume-at {source}=OFFSET",
    )
