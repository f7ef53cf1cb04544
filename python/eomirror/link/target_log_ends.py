"""
Checks once a minute, in the background of a lane, that copies still end behind their last acknowledged record.

A transaction shows the offsets of its records on the target (`eomirror.lane.commit.grant`).  A partition without new
records shows nothing: its copy may lose records with a broker's disk, or in an unclean election, and stay short for
hours (EO-5).

A copy that seems cut is read again, after a pause and with a new client each time.  A broker that was frozen, and
does not know yet that another one leads, answers from its old state.  A log does not shrink under one leader epoch, so
an answer counts only if its epoch is newer than the one that showed the copy whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import DataLossError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.log_ends import skip_missing
from eomirror.link.background_look import BackgroundLook
from eomirror.recovery.resume import copy_cut_error, cut_copies

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["TargetLogEnds"]

_SECONDS = 60.0
# Between the reads of a copy that seems cut; the second is as long as a broker's session with its controller.
_PAUSES = (2.0, 9.0)
_CLOSE_SECONDS = 0.1
_SLICE_SECONDS = 0.1
# The leader epoch of a broker that reports none.
_UNKNOWN = -1

_Where = tuple[str, int]
_Pair = tuple["SourcePartition", _Where]


class TargetLogEnds(BackgroundLook[DataLossError]):
    """
    Compares the ends of a lane's copies with its positions; see `eomirror.lane.ports.CopyWatch`.

    Args:
        target: Connections to the target.
    """

    def __init__(self, link: Link, target: ClusterSession, *, clock: Clock = SYSTEM_CLOCK) -> None:
        # A starting lane has compared all of them.
        super().__init__(
            link=link.name,
            event="copies_not_looked_at",
            first_seconds=_SECONDS,
            seconds=_SECONDS,
            close_seconds=_CLOSE_SECONDS,
            clock=clock,
        )
        self._target = target
        # The newest leader epoch under which a copy was seen whole.
        self._whole: dict[_Where, int] = {}

    def look(self, positions: Collection[Position]) -> tuple[DataLossError, ...]:
        """
        Checks and waits; returns one error for each topic whose copy lost records.

        Args:
            positions: Positions that the lane has committed.

        Raises:
            MirrorError: The target does not answer.
        """
        waiting = [one for each in positions for one in each.by_copy() if one.target_offset is not None]
        cut = self._cut(self._target.admin, waiting)
        for pause in _PAUSES:
            if not cut:
                return ()
            if not self._pauses(pause):
                return ()
            waiting = [one for one in waiting if _pair(one) in cut]
            # Not the lane's client: its connection may lead to a broker that was frozen.
            admin = ClusterAdmin(self._target.cluster, client_id=self._target.client_id, clock=self._clock)
            try:
                cut = self._cut(admin, waiting)
                # A recreated topic is handled elsewhere (`eomirror.recovery.resume`).
                topics = admin.visible_topics(sorted({one.target_topic for one in waiting}))[0]
            finally:
                admin.close()
            same = {
                _pair(one)
                for one in waiting
                if (facts := topics.get(one.target_topic)) and facts.topic_id == one.target_topic_id
            }
            cut = {pair: end for pair, end in cut.items() if pair in same}
        errors: dict[str, DataLossError] = {}
        for one in waiting:
            if _pair(one) in cut:
                errors.setdefault(one.topic, copy_cut_error(one, cut[_pair(one)]))
        return tuple(errors.values())

    # -- inside ----------------------------------------------------------------------------------

    def _pauses(self, seconds: float) -> bool:
        """Sleeps; returns False if the lane closes in the meantime."""
        deadline = Deadline(seconds, self._clock)
        while not deadline.passed and not self._closing.is_set():
            self._clock.sleep(min(_SLICE_SECONDS, deadline.remaining()))
        return not self._closing.is_set()

    def _cut(self, admin: ClusterAdmin, positions: Collection[Position]) -> dict[_Pair, int]:
        """Returns the log ends of copies that seem cut, from one read."""
        epochs: dict[_Where, int] = {}

        def ask(partitions: Sequence[_Where]) -> Mapping[_Where, int]:
            found = admin.log_ends(partitions)
            epochs.update({where: epoch for where, (_, epoch) in found.items()})
            return {where: end for where, (end, _) in found.items()}

        ends = skip_missing(ask, {(one.target_topic, one.target_partition) for one in positions})
        cut = {_pair(one): end for one in positions for end in cut_copies([one], ends).values()}
        shorter = {where for _, where in cut}
        for where in ends.keys() - shorter:
            self._whole[where] = max(epochs[where], self._whole.get(where, _UNKNOWN))
        return {
            (source, where): end
            for (source, where), end in cut.items()
            if epochs[where] == _UNKNOWN or epochs[where] > self._whole.get(where, _UNKNOWN)
        }


def _pair(position: Position) -> _Pair:
    """Returns the source partition and the copy that a position concerns."""
    return position.source, (position.target_topic, position.target_partition)
