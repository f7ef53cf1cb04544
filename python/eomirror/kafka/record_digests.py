"""Reads a range of one partition as offsets and digests, to compare two logs without keeping their records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from eomirror.kafka.session import ClusterSession

__all__ = ["RecordDigest", "RecordDigestReader"]

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class RecordDigest:
    """
    A record of a log.

    Attributes:
        digest: Of its key, value, headers and timestamp: equal records have equal digests.
    """

    offset: int
    digest: bytes


class RecordDigestReader:
    """
    Reader of one partition at a time.

    Args:
        uncommitted: Read pending and aborted records too: only to compare with the copy of a replicator that reads
            them, never to mirror (EO-12).
    """

    def __init__(self, cluster: ClusterSession, *, uncommitted: bool = False) -> None:
        self._cluster = cluster
        self._uncommitted = uncommitted

    def read(
        self, topic: str, partition: int, low: int, high: int, *, most: int | None = None, timestamps: bool
    ) -> list[RecordDigest]:
        """
        Returns records of ``[low, high)``, ascending.

        Args:
            topic: A topic that exists.
            partition: Its number.
            low: First offset, at or after the log start.
            high: End offset; not beyond the end that this reader sees.
            most: Maximum number of records.
            timestamps: Whether timestamps are part of the digests.

        Raises:
            UnreachableError: No record arrived within a minute.
            MirrorError: The cluster refuses us.
        """
        records: list[RecordDigest] = []
        if low >= high:
            return records

        def take(_: tuple[str, int], message: Any) -> bool:
            records.append(RecordDigest(message.offset(), _digest(message, timestamps=timestamps)))
            return len(records) == most

        with self._cluster.reader(uncommitted=self._uncommitted) as reader:
            reader.connect([topic])
            reader.read({(topic, partition): (low, high)}, take)
        return records


def _digest(message: Any, *, timestamps: bool) -> bytes:
    """Returns the digest of all parts that replicators copy; each part with its length, so that parts stay distinct."""
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def add(part: bytes | None) -> None:
        found.update(b"-" if part is None else b"%d:" % len(part))
        found.update(part or b"")

    add(message.key())
    add(message.value())
    for name, value in message.headers() or ():
        # a link that was handed back may have written it into its copies, and its source differs
        if name != HOPS_HEADER:
            add(name.encode())
            add(value)
    if timestamps:
        add(b"%d" % message.timestamp()[1])
    return found.digest()
