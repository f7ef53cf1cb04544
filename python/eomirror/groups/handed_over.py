"""
Finds offsets on the target from which a group left for the source, by the checkpoints of the link back.

A link keeps the offsets of groups on its target (`sync_group_offsets`).  One that it did not write was reached by
consumers there, and is left alone.  After a failover and the way back, consumers have read on both sides in turn::

    promoted:     the group reads the copies to 500
    way back:     the link back moves it to the source, and writes a checkpoint there
    mirror again: the group reads on from there; 500 is the offset with which it left, and moves

The same holds for the link back, whose target is where the group stood before the failover.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError, TopicError
from eomirror.link.offset_map_reader import OffsetMapReader

if TYPE_CHECKING:
    from collections.abc import Collection

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession

__all__ = ["handed_over", "link_wrote"]

log = structlog.get_logger(__name__)


def handed_over(link: Link, source: ClusterSession) -> frozenset[tuple[str, str, int]]:
    """
    Returns group, target topic and partition of every offset that the link back has translated.

    It is empty if the link back never ran, or if its checkpoints cannot be read.
    """
    back = OffsetMapReader(replace(link, source=link.target, target=link.source), source)
    found = set()
    try:
        for one in back.checkpoints():
            try:
                found.add((one.group, link.target_topic(one.topic), one.partition))
            except TopicError:
                # The topic has no legal name on the target, so that the link does not mirror it.
                continue
    except MirrorError as error:
        log.info("way_back_unknown", link=link.name, reason=error.message)
    return frozenset(found)


def link_wrote(has: int, downstream: Collection[int], start: int | None) -> bool:
    """
    Returns True for an offset that the link may have written.

    A checkpoint before the log start of its copy is committed as the log start, which only moves forward.

    Args:
        has: Offset of the group on the target.
        downstream: Target offsets of its checkpoints.
        start: Log start of the copy; None if it is unknown.
    """
    return has in downstream or (start is not None and has <= start and any(one <= has for one in downstream))
