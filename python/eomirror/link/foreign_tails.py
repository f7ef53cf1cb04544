"""
Finds records behind the last one of a link in its copies, which other producers have written.

A promotion lets the link in the other direction begin with them.  Until then they are on one side only, and a producer
that writes into a copy has most likely been forgotten.  Where a link in the other direction mirrors them now, as with
equal names on both sides, they are records like others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from eomirror.config.rights import Right, account_of, named
from eomirror.errors import AuthorizationError, MirrorError
from eomirror.lane.spec import AssignedPartition
from eomirror.link.other_links import OtherLinks
from eomirror.link.reverse_link import meetings
from eomirror.recovery.hanging_client import extension_client

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from eomirror._native import HangingTransactionClient
    from eomirror.config import Link
    from eomirror.kafka.session import LinkSessions
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["ForeignTail", "ForeignTails"]

log = structlog.get_logger(__name__)

_SECONDS = 2.0
# that one request covers
_OFFSETS = 10_000
# a transaction's marker behind its last record
_MARKER = 1

_Where = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTail:
    """
    Records behind the last one of a link in one copy.

    Attributes:
        topic: Source topic.
        partition: Partition of the copy.
        target_topic: Copy.
        start: Offset of the first of them, in the copy.
        end: End of the copy.
    """

    topic: str
    partition: int
    target_topic: str
    start: int = field(metadata={"name": "from"})
    end: int = field(metadata={"name": "to"})


class ForeignTails:
    """
    Looks behind the last records of a link; keeps what it has seen, for repeated looks.

    Args:
        sessions: Connections to the clusters of the link.
    """

    def __init__(self, link: Link, sessions: LinkSessions) -> None:
        self._link, self._sessions = link, sessions
        self._others = OtherLinks(link.name, sessions.source, event="opposite_link_unknown")
        self._client: HangingTransactionClient | None = None
        self._seen: dict[_Where, tuple[tuple[int, int], int | None]] = {}

    def look(
        self,
        positions: Iterable[Position],
        ends: Mapping[_Where, int],
        producers: Callable[[], Collection[int]],
    ) -> tuple[ForeignTail, ...]:
        """
        Returns such records, one item for each partition.

        Args:
            positions: Positions of the link, read before the ends.
            ends: Ends of the copies.
            producers: Returns the ids of producers of the link's lanes; called behind a record that may be theirs, of a
                transaction that was committed since the positions were read.
        """
        if self._link.aggregate or self._link.keyed:
            # other links, or other partitions, write into the same copy
            return ()
        longer = {
            _copy(one): one
            for one in positions
            if (start := one.target_next) is not None
            and ends.get(_copy(one), 0) > start + (0 if one.target_offset is None else _MARKER)
        }
        try:
            first = self._first(longer, ends, producers) if longer else {}
            mirrored = self._mirrored([longer[where] for where in first]) if first else set()
        except MirrorError as error:
            log.debug("copies_not_looked_at", link=self._link.name, reason=error.message)
            return ()
        return tuple(
            ForeignTail(
                topic=one.topic,
                partition=one.partition,
                target_topic=one.target_topic,
                start=offset,
                end=ends[where],
            )
            for where, offset in sorted(first.items())
            if (one := longer[where]).source not in mirrored
        )

    # -- inside ----------------------------------------------------------------------------------

    def _first(
        self,
        longer: Mapping[_Where, Position],
        ends: Mapping[_Where, int],
        producers: Callable[[], Collection[int]],
    ) -> dict[_Where, int]:
        """Returns the offset of the first committed record behind the last one of the link, of another producer."""
        facts = {where: (one.target_next or 0, ends[where]) for where, one in longer.items()}
        self._seen = {where: seen for where, seen in self._seen.items() if facts.get(where) == seen[0]}
        asked = {where: start for where, (start, _) in facts.items() if where not in self._seen}
        found = {
            where: batch for where, at in asked.items() if (batch := self._batch(where, at, ends[where]))
        }
        ours = producers() if found else ()
        for where in asked:
            offset, producer_id = found.get(where, (None, None))
            # one of ours is of a transaction that was committed since the position was read
            if offset is None or producer_id not in ours:
                self._seen[where] = facts[where], offset
        return {where: offset for where, (_, offset) in self._seen.items() if offset is not None}

    def _batch(self, where: _Where, at: int, end: int) -> tuple[int, int] | None:
        """Returns offset and producer of the first committed record from an offset on; None for none."""
        target = self._sessions.target
        if self._client is None:
            self._client = extension_client(target.cluster, target.client_id)
        while at < end:
            try:
                batches, until = self._client.committed(where, (at, min(end, at + _OFFSETS)), _SECONDS)
            except AuthorizationError as error:
                right = Right("Read", "topic", where[0])
                raise named(error, account_of(target.cluster), rights=[right]) from None
            if batches:
                return max(at, batches[0][0]), batches[0][4]
            if until <= at:
                break
            at = until
        return None

    def _mirrored(self, positions: Iterable[Position]) -> set[SourcePartition]:
        """Returns the partitions whose copies a link in the other direction mirrors, or will when it runs again."""
        if not self._link.guard:
            return set()
        items = [
            AssignedPartition(one.source, one.topic_id, one.target_topic, one.target_topic_id)
            for one in positions
        ]
        cluster_id = self._sessions.target.admin.describe_cluster().cluster_id
        met = meetings(items, self._others.written(), target_cluster_id=cluster_id)
        return {source for source, links in met.items() if any(each.cut is None for each in links)}


def _copy(position: Position) -> _Where:
    return position.target_topic, position.target_partition
