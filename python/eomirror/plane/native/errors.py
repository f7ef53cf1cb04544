"""
Translates failures of the native plane for a lane: one table, a row per kind. Pure.

The rows follow `eomirror.kafka.errors`, so that the same fault ends a lane in the same way on both planes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from eomirror.config.rights import ClusterUser, Right, lacking
from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    DataLossError,
    FencedError,
    LaneError,
    MirrorError,
    OutcomeUnknownError,
    PlaneChangedError,
    RecordRefusedError,
    SourceDamagedError,
    SourceUnreadableError,
    TopicError,
    TransactionFailedError,
    UnreachableError,
    changed_error,
    gap_error,
    hole_error,
    truncated_error,
)
from eomirror.plane.protocol import RangeRefusedError, Rejection, RejectionReason
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KINDS", "NativeFailureError", "RefusedBatch", "Users", "lane_error"]


class RefusedBatch(NamedTuple):
    """
    A refused batch.

    Attributes:
        source: Source partition of its records; None for state records of the lane.
        target_topic: Topic that refuses.
        first: Source offset of the first record in question.
        last: Source offset of the last one.
        code: Kafka's name of the broker's error code.
    """

    source: tuple[str, int] | None
    target_topic: str
    first: int
    last: int
    code: str


class Users(NamedTuple):
    """The mirror's users on source and target, and the transactional id of a lane."""

    source: ClusterUser
    target: ClusterUser
    transactional_id: str = ""


class NativeFailureError(Exception):
    """
    Failure of the extension, and only of it; `lane_error` translates it.

    Args:
        kind: A key of the table.
        message: What happened, and where.
        fix: What the user can do.
        partition: The affected source partition.
        refused: For kind ``refused``.
        gap: For kind ``gap``, if the source has reported its log's bounds: committed position, first offset, offset
            after the last.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        fix: str = "",
        partition: tuple[str, int] | None = None,
        refused: tuple[tuple[str, int] | None, str, int, int, str] | None = None,
        gap: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.fix = fix
        self.partition = None if partition is None else SourcePartition(*partition)
        self.refused = None if refused is None else RefusedBatch(*refused)
        self.gap = gap

    @property
    def topic(self) -> str:
        """The affected source topic; empty if there is no single one."""
        return "" if self.partition is None else self.partition.topic


# by Kafka's error codes; INVALID_RECORD and others are against a topic's rules
_GROUNDS: Final = {
    "INVALID_FETCH_SIZE": RejectionReason.SIZE,
    "MESSAGE_TOO_LARGE": RejectionReason.SIZE,
    "RECORD_LIST_TOO_LARGE": RejectionReason.SEGMENT,
    "INVALID_TIMESTAMP": RejectionReason.TIMESTAMP,
}


# how the extension names a denied topic of the target
_DENIED_TOPIC: Final = re.compile(r"(?P<topic>[\w.-]+)-\d+ refuses .*: TOPIC_AUTHORIZATION_FAILED")


def _failed(failure: NativeFailureError) -> LaneError:
    return TransactionFailedError(failure.message)


def _cluster(failure: NativeFailureError) -> MirrorError:
    return ClusterError(failure.message, fix=failure.fix)


def _unauthorized(failure: NativeFailureError, users: Users) -> MirrorError:
    if denied := _DENIED_TOPIC.search(failure.message):
        right = Right("Write", "topic", denied["topic"])
        return lacking(f"{failure.message}; ", users.target, [right], topic=failure.topic)
    if failure.topic:
        right = Right("Read", "topic", failure.topic)
        return lacking(f"{failure.message}; ", users.source, [right], topic=failure.topic)
    if "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in failure.message:
        right = Right("Write", "transactional-id", users.transactional_id)
        return lacking(f"{failure.message}; ", users.target, [right])
    return AuthorizationError(failure.message, fix=failure.fix)


def _truncated(failure: NativeFailureError) -> MirrorError:
    where = failure.partition
    return DataLossError(
        f"{where}: the source's log diverges from what was mirrored: {failure.message}",
        fix="find out whether the source was restored or a broker without all data became leader; "
        f"to go on from the source as it is now: --resume-at {where}=OFFSET",
        topic=failure.topic,
    )


def _gap(failure: NativeFailureError) -> LaneError | MirrorError:
    where = failure.partition
    if where is None or failure.gap is None:
        # recovery reads the log's bounds again
        return _failed(failure)
    position, start, end = failure.gap
    if position < start:
        return gap_error(where, position, start)
    if position > end:
        return truncated_error(where, position, end)
    # the log has grown over the position since: only its epochs tell whether it is still the same
    return _failed(failure)


def _rewritten(failure: NativeFailureError) -> LaneError | MirrorError:
    if failure.partition is None:
        return _failed(failure)
    return changed_error(failure.partition, failure.message.removeprefix(f"{failure.partition}: "))


def _hole(failure: NativeFailureError) -> LaneError | MirrorError:
    if failure.partition is None or failure.gap is None:
        return _failed(failure)
    start, end, _ = failure.gap
    return hole_error(failure.partition, start, end)


def _damaged(failure: NativeFailureError) -> LaneError:
    if failure.partition is None:
        return _failed(failure)
    return SourceDamagedError(failure.message, failure.partition)


def _unreadable(failure: NativeFailureError) -> LaneError:
    if failure.partition is None:
        return _failed(failure)
    return SourceUnreadableError(failure.message, failure.partition)


def _refused(failure: NativeFailureError, *, search: bool = True) -> MirrorError:
    refused = failure.refused
    if refused is None or refused.source is None:
        return RecordRefusedError(
            f"the target refuses a record of the lane: {failure.message}",
            fix="check the settings of the link's own topics (max.message.bytes, message.timestamp.*)",
        )
    source = SourcePartition(*refused.source)
    if not search:
        return RecordRefusedError(
            f"{source}: the target topic {refused.target_topic} refuses a record of "
            f"[{refused.first}, {refused.last + 1}): {failure.message}",
            fix=f"check the settings of topic {refused.target_topic} (max.message.bytes, message.timestamp.*)",
            topic=source.topic,
        )
    return RangeRefusedError(
        Rejection(
            source=source,
            target_topic=refused.target_topic,
            reason=_GROUNDS.get(refused.code, RejectionReason.INVALID),
            words=failure.message,
            begin=refused.first,
            end=refused.last + 1,
        )
    )


def _topic(failure: NativeFailureError) -> MirrorError:
    return TopicError(failure.message, fix=failure.fix, topic=failure.topic)


#: Translation of each kind of `NativeLane.failure_kinds`.
KINDS: Final[dict[str, Callable[[NativeFailureError], LaneError | MirrorError]]] = {
    "unhonoured": _cluster,
    "configuration": _cluster,
    "unauthorized": lambda failure: _unauthorized(
        failure, Users(ClusterUser("source"), ClusterUser("target"))
    ),
    "protocol": _cluster,
    "unreachable": lambda failure: UnreachableError(failure.message, fix=failure.fix),
    "abortable": _failed,
    "refused": _refused,
    "superseded": lambda failure: FencedError(failure.message),
    "outcome-unknown": lambda failure: OutcomeUnknownError(failure.message),
    "truncated": _truncated,
    "rewritten": _rewritten,
    "hole": _hole,
    "gap": _gap,
    # recovery compares the ids, and reports the replaced topic
    "topic-gone": _failed,
    "damaged": _damaged,
    "unreadable": _unreadable,
    "old-format": _topic,
    "topic": _topic,
    "unaccounted": lambda failure: TransactionFailedError(f"EO-7: {failure.message}"),
    "misuse": _failed,
}


#: Kinds of failures that the client plane does not have.
_OF_THIS_PLANE: Final = {"unhonoured", "old-format"}


def lane_error(
    failure: NativeFailureError,
    *,
    accept_gaps: bool = False,
    fall_back: bool = False,
    search: bool = True,
    users: Users | None = None,
) -> LaneError | MirrorError:
    """
    Returns the error for the lane; an unknown kind ends the attempt.

    Args:
        failure: From the extension.
        accept_gaps: ``on_gap: accept``; recovery then records the gap in a transaction (EO-6).
        fall_back: ``plane: auto``; the client plane then takes over where it can serve.
        search: The client plane may search for a refused record.
        users: Who lacks a right, for the command that grants it.
    """
    if failure.kind == "unauthorized" and users is not None:
        return _unauthorized(failure, users)
    if fall_back and failure.kind in _OF_THIS_PLANE:
        return PlaneChangedError(failure.message)
    if failure.kind == "gap" and accept_gaps:
        return _failed(failure)
    if failure.kind == "refused":
        return _refused(failure, search=search)
    return KINDS.get(failure.kind, _failed)(failure)
