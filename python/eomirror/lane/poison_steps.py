"""Carries out the decisions of `eomirror.lane.poison_records`: reads limits and raises one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.errors import LaneError, MirrorError, RecordRefusedError, UnreachableError
from eomirror.lane.poison_records import Limits, Narrow, Pointers, Raise, RejectionPolicy, SkipRecord, Stopped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Link
    from eomirror.lane.poison_records import Decision
    from eomirror.lane.ports import TopicComparer
    from eomirror.plane.protocol import Rejection
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["RejectionHandler"]

log = structlog.get_logger(__name__)


class RejectionHandler:
    """
    Handles refused records of a lane.

    Args:
        link: Its ``on_refused`` policy applies.
        topics: Reads and raises limits.

    Attributes:
        policy: Decides, and tracks the rejections in progress.
    """

    def __init__(self, link: Link, topics: TopicComparer) -> None:
        self._topics = topics
        self.policy = RejectionPolicy(link.on_refused, link.raise_limit_to)

    def handle(
        self, rejection: Rejection, positions: Mapping[SourcePartition, Position]
    ) -> LaneError | MirrorError | None:
        """
        Handles a rejection.

        Args:
            rejection: What was refused.
            positions: As committed.

        Returns:
            None to start over once the transaction is aborted; or the error that ends the attempt, with the topic to
            stop if only that is affected.
        """
        try:
            limits = self._topics.limits(rejection.source.topic, rejection.target_topic)
        except (LaneError, MirrorError) as error:
            # nothing is lost: the next attempt meets the record again
            return error
        position = positions.get(rejection.source)
        # no position: the topic was stopped, and is not sent again
        decision = self.policy.decide(rejection, 0 if position is None else position.offset, limits)
        return self._carry_out(decision, rejection, limits)

    def _carry_out(
        self, decision: Decision, rejection: Rejection, limits: Limits
    ) -> LaneError | MirrorError | None:
        where = {"source": str(rejection.source), "target": rejection.target_topic, "reason": rejection.words}
        match decision:
            case Stopped(error):
                return error
            case Narrow(records):
                log.warning("refused_record_sought", **where, range=records, end=rejection.end)
            case SkipRecord(record):
                log.error("record_left_out", **where, offset=record.offset, ground=rejection.reason.value)
            case Pointers():
                log.warning("dead_letters_without_records", **where)
            case Raise(topic, before, size):
                bound = limits.max_message_bytes(limits.source)
                log.warning("limit_raised", **where, before=before, after=size, limit_of_source=bound)
                return self._raise(topic, size, rejection)
        return None

    def _raise(self, topic: str, size: int, rejection: Rejection) -> LaneError | MirrorError | None:
        try:
            self._topics.raise_limit(topic, size)
        except (LaneError, UnreachableError) as error:
            return error
        except MirrorError as error:
            return RecordRefusedError(
                f"{rejection.source}: on_refused: raise-limit could not raise max.message.bytes of {topic} to {size}: "
                f"{error.message}",
                fix=error.fix,
                topic=rejection.source.topic,
            )
        return None
