"""
Compares both logs of partitions that a reversal has begun, until the link has written its first record there (EO-5).

The positions that a reversal sets name what stands before them in both logs, as the reversal has found it.  A lane
compares its source with that, and a copy only behind its own first record.  So a log that loses its end between the
reversal and that record, or is restored and written on, is looked for here, whenever the link is taken.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from eomirror.errors import DataLossError
from eomirror.link.copy_ends import CopyEnds
from eomirror.link.source_comparison import changed_sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position

__all__ = ["UnmovedBeginnings"]

_SHOWN = 3


class UnmovedBeginnings:
    """
    Looks at the logs of one link.

    Args:
        source: Connections to the source.
        target: Connections to the target.
    """

    def __init__(self, link: Link, source: ClusterSession, target: ClusterSession) -> None:
        self._link, self._source, self._target = link, source, target

    def refuse(self, positions: Iterable[Position], *, highest_lane: int) -> None:
        """
        Refuses to mirror where a log is not what a reversal has found.

        Args:
            positions: Positions of partitions that are mirrored.
            highest_lane: Highest lane number that any generation ever used.

        Raises:
            DataLossError: There are such partitions.
            ClusterError: A cluster does not answer.
        """
        begun = [one for one in positions if one.target_batch and one.target_offset is None]
        unread = [one for one in positions if one.epoch == 0 and one.batch_offset is not None]
        texts = [str(each) for each in changed_sources(self._link, self._source, unread).values()]
        if begun:
            ends = CopyEnds(self._link, self._target).read(begun, highest_lane=highest_lane)
            texts += [end.problem for end in ends.values() if end.problem]
        if texts:
            some = "; ".join(texts[:_SHOWN])
            more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
            raise DataLossError(
                f"link {self._link.name}: the logs have changed since its way was recorded, and it has mirrored "
                f"nothing since: {some}{more}",
                fix="restore the logs; or compare both sides, bring by hand what one of them lacks, and begin where "
                f"both are complete: `eomirror run CONFIG --link {quote(self._link.name)} --adopt TOPIC-PARTITION="
                "OFFSET`",
            )
