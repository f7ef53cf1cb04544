"""
Requests the topic ids that a commit compares (EO-5). Pure.

A plane that fetches and produces by topic id cannot meet another topic of the same name: a recreated topic has a new
id, and brokers refuse the old one.  Such topics are *pinned* and need no request.  All others are requested on both
sides after the transaction's last fetch, while its acknowledgements are outstanding, so the answer costs no extra
time::

    pump ... pump | request ids ---------> | answers
                  | await acknowledgements -> | flushed | compare, permit | commit

A plane reports pinned topics twice: before the flush as an expectation, after it as a fact.  A broker that is too old
for ids shows only in its answer; its topics are then requested after all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from eomirror.lane.ports import PendingIds, TopicComparer
    from eomirror.plane.protocol import Plane
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["TopicIdRequest"]


class TopicIdRequest:
    """
    Ids of the topics of one transaction; made after its last fetch.

    Args:
        wanted: Source topics whose ids the commit compares.
        targets: Target topics by source topic.
        plane: The plane that moved the records.
        topics: Reads ids on both clusters.
    """

    def __init__(
        self, wanted: AbstractSet[str], *, targets: Mapping[str, str], plane: Plane, topics: TopicComparer
    ) -> None:
        self.wanted = wanted
        self._targets = targets
        self._plane = plane
        self._topics = topics
        self._pinned = wanted & plane.pinned()
        self._pending = self._request(wanted - self._pinned)

    def result(
        self, positions: Mapping[SourcePartition, Position]
    ) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
        """
        Returns the ids on the source and on the target; None for a topic that does not exist.

        Args:
            positions: As committed before; pinned topics have the ids that they name.

        Raises:
            UnreachableError: A cluster does not answer.
        """
        source_ids: dict[str, str | None] = {}
        target_ids: dict[str, str | None] = {}
        pinned = self._pinned & self._plane.pinned()
        for position in positions.values():
            if position.topic in pinned:
                source_ids[position.topic] = position.topic_id
                target_ids[position.target_topic] = position.target_topic_id
        for pending in (self._pending, self._request(self._pinned - pinned)):
            if pending is not None:
                on_source, on_target = pending.result()
                source_ids.update(on_source)
                target_ids.update(on_target)
        return source_ids, target_ids

    def _request(self, topics: AbstractSet[str]) -> PendingIds | None:
        if not topics:
            return None
        return self._topics.request_ids(sorted(topics), sorted({self._targets[topic] for topic in topics}))
