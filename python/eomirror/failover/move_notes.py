"""
Notes the offsets that a promotion is about to commit for groups, as checkpoints, before it commits them.

A promotion moves groups before its record, so it may die in between.  The link stays a mirror then, and a group may go
back on the source.  The next call finds the group ahead on the target, and must not take that for the work of consumers
there: an offset that a checkpoint has is one that the link placed (`eomirror.failover.group_moves`).  The mirror writes
checkpoints of what it follows; an offset that this call has translated itself, and the end of a cut, have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.kafka.plain_producer import write_records
from eomirror.records.mm2 import Checkpoint
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.config import Link
    from eomirror.failover.group_moves import GroupMove
    from eomirror.kafka.session import ClusterSession

__all__ = ["note_moves"]

_SECONDS = 15.0
# A producer queues so many.
_MOST = 10_000


def note_moves(link: Link, target: ClusterSession, moves: Iterable[GroupMove]) -> str:
    """
    Writes a checkpoint of each offset that was not taken from one; returns the reason if that failed.

    Links with the loop guard have no checkpoints, nor has a link that never followed a group: nothing is written.

    Raises:
        ClusterError: The target does not answer.
    """
    found = [
        Checkpoint(move.group, move.to_topic, move.partition, move.offset, move.to_offset, move.metadata)
        for move in moves
        if not move.from_checkpoint and move.offset >= 0 and move.to_offset is not None
    ]
    topic = link.mm2_names.checkpoints(link.source)
    if not found or link.guard or target.admin.describe_topics([topic])[topic] is None:
        return ""
    for begin in range(0, len(found), _MOST):
        failed = write_records(
            target.cluster,
            topic,
            [(one.key(), one.value()) for one in found[begin : begin + _MOST]],
            client_id=LinkNames(link.state_name).client_id("checkpoints"),
            seconds=_SECONDS,
        )
        if failed:
            return failed
    return ""
