"""
Reads the states of acknowledged records: committed, aborted, pending or deleted.

A `read_committed` consumer starts at each record's offset.  It gets the record, a later one, or the end of the
partition.  If it does not get the record, a `read_uncommitted` consumer starts there too.  A record that only the
second one gets was aborted (KIP-98); a record that neither gets was deleted or compacted away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from eomirror.kafka.errors import Action
from eomirror.recovery.hanging import RecordState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.kafka.session import ClusterSession

__all__ = ["RecordStateReader"]

log = structlog.get_logger(__name__)

# per partition and answer; a larger batch arrives too, one per answer
_FETCH_BYTES = 32 * 1024
# for whole ranges: over a long link each answer takes its time
_RANGE_BYTES = 1024 * 1024
# the offset no longer exists, or may not be read
_UNREADABLE = frozenset({Action.SOURCE_GAP, Action.TOPIC_GONE, Action.UNAUTHORIZED})

_Where = tuple[str, int]


class RecordStateReader:
    """Reads single records of one cluster."""

    def __init__(self, cluster: ClusterSession) -> None:
        self._cluster = cluster

    def read(self, records: Mapping[_Where, int]) -> dict[_Where, RecordState]:
        """
        Returns the states of acknowledged records.

        Args:
            records: One offset per partition.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The cluster refuses us; records of a topic without the Read ACL are `RecordState.DELETED`.
        """
        found = dict.fromkeys(records, RecordState.DELETED)
        admin = self._cluster.admin
        topics = admin.describe_topics(sorted({topic for topic, _ in records}))
        there = {}
        for where, offset in records.items():
            facts = topics[where[0]]
            if facts is not None and where[1] < facts.partitions:
                there[where] = offset
        stable = admin.offsets(there, at="latest", read_committed=True) if there else {}
        decided = {where: offset for where, offset in there.items() if offset < stable[where]}
        found.update(dict.fromkeys(there.keys() - decided.keys(), RecordState.PENDING))
        shown = self._present(decided, uncommitted=False)
        found.update(dict.fromkeys(shown, RecordState.COMMITTED))
        hidden = self._present({where: decided[where] for where in decided.keys() - shown}, uncommitted=True)
        found.update(dict.fromkeys(hidden, RecordState.ABORTED))
        return found

    def range(
        self, topic: str, partition: int, start: int, end: int
    ) -> list[tuple[bytes | None, bytes | None]]:
        """
        Returns keys and values of all records of ``[start, end)``, pending and aborted ones too, in log order.

        Raises:
            UnreachableError: No record arrived in time.
            MirrorError: The cluster refuses us.
        """
        records: list[tuple[bytes | None, bytes | None]] = []

        def take(_: _Where, message: Any) -> None:
            records.append((message.key(), message.value()))

        self._each({(topic, partition): (start, end)}, take, uncommitted=True, fetch_bytes=_RANGE_BYTES)
        return records

    # -- inside ----------------------------------------------------------------------------------

    def _present(self, records: Mapping[_Where, int], *, uncommitted: bool) -> set[_Where]:
        """Returns the partitions whose record a reader of this isolation level gets at exactly its offset."""
        present: set[_Where] = set()
        if records:
            ranges = {where: (offset, offset + 1) for where, offset in records.items()}
            self._each(
                ranges, lambda where, _: present.add(where), uncommitted=uncommitted, fetch_bytes=_FETCH_BYTES
            )
        return present

    def _each(
        self,
        ranges: Mapping[_Where, tuple[int, int]],
        take: Callable[[_Where, Any], None],
        *,
        uncommitted: bool,
        fetch_bytes: int,
    ) -> None:
        tuning = {"fetch.message.max.bytes": fetch_bytes, "queued.min.messages": 1}
        with self._cluster.reader(uncommitted=uncommitted, tuning=tuning) as reader:
            reader.connect({topic for topic, _ in ranges})
            unread = reader.read(ranges, take, passing=_UNREADABLE)
        for (topic, number), action in unread.items():
            if action is Action.UNAUTHORIZED:
                log.warning(
                    "record_not_readable",
                    partition=f"{topic}-{number}",
                    reason="a transaction that the target dropped would go unnoticed",
                    fix=f"grant Read on topic {topic} of the target",
                )
