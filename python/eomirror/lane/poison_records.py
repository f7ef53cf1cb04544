"""
Isolates records that the target refuses, and plans how they are sent.

A broker refuses a whole batch because of one record, and for most reasons does not name the record.  So the transaction
is aborted, and the partition's records are sent again in ranges, each acknowledged before the next.  After each abort
the refused range is sent in smaller ranges, until a range of one record is refused.  Other partitions continue in the
same transactions, and records before the refused range are committed::

    refused somewhere in [5000, 9000)        ranges of 250
    refused somewhere in [7250, 7500)        ranges of 15     [5000, 7250) is committed, or sent again
    refused somewhere in [7310, 7325)        ranges of 1
    refused: 7318                            stop, dead-letter or raise-limit

A range is a sixteenth of the one before it.  An abort costs a new producer, about ten round trips, and a range costs
one: halving would take longer over a slow link, and single records much longer.  Records before the refused range were
acknowledged and need no small ranges next time.  Neither do records after it, except a few: refused records come in
groups.

Each rejection shrinks the ranges, names a new record, raises a limit up to a bound, or stops the topic, so the search
always ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import LaneError, MirrorError, RecordRefusedError, UnreachableError
from eomirror.plane.protocol import RefusedRecord, Rejection, RejectionReason, SendPlan, SkippedRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Link
    from eomirror.lane.ports import TopicComparer
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = [
    "Decision",
    "Limits",
    "Narrow",
    "Pointers",
    "Raise",
    "RejectionHandler",
    "RejectionPolicy",
    "SkipRecord",
    "StopTopic",
]

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
            case StopTopic(error):
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


_SHRINK = 16
# rejections of a partition whose position does not move: five ranges lead from the largest transaction to one record
_MOST_NARROWED = 8
# a broker takes a new setting in within milliseconds of the controller's answer
_MOST_RAISES = 5
_SIZE = "max.message.bytes"


@dataclass(frozen=True, slots=True)
class Limits:
    """Effective settings of both topics; empty where they may not be read."""

    source: Mapping[str, str | None] = field(default_factory=dict)
    target: Mapping[str, str | None] = field(default_factory=dict)

    def max_message_bytes(self, side: Mapping[str, str | None]) -> int | None:
        """Returns the size limit of one side."""
        value = side.get(_SIZE)
        return int(value) if value is not None and value.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Narrow:
    """Send the partition in ranges of this many records."""

    records: int


@dataclass(frozen=True, slots=True)
class SkipRecord:
    """Skip the record; the transaction that would have held it gets a dead letter."""

    record: RefusedRecord


@dataclass(frozen=True, slots=True)
class Pointers:
    """Write dead letters without the records themselves."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise the target topic's max.message.bytes."""

    topic: str
    before: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class StopTopic:
    """Stop the topic; others go on."""

    error: RecordRefusedError


Decision = Narrow | SkipRecord | Pointers | Raise | StopTopic


@dataclass(slots=True)
class _Suspect:
    """
    A partition with a rejection.

    Attributes:
        records: Default size of ranges.
        until: Ranges end at this position.
        spans: As in `SendPlan.ranges`.
        committed: Position at the last rejection.
        narrowed: Rejections since the position moved.
    """

    records: int
    until: int
    spans: tuple[tuple[int, int], ...]
    committed: int
    narrowed: int = 1

    def aim(self, *spans: tuple[int, int]) -> None:
        """Sends these spans, and the default ranges after the last of them."""
        chosen: list[tuple[int, int]] = []
        for aimed, records in (*spans, (self.until, self.records)):
            end = min(aimed, self.until)
            if end > (chosen[-1][0] if chosen else self.committed):
                chosen.append((end, min(records, self.records)))
        self.spans = tuple(chosen)

    def aim_at(self, offset: int) -> None:
        """Sends small ranges around one refused record: its successors may be refused too."""
        self.until = max(self.until, offset + 1)
        near, far = offset + 1 + _SHRINK, offset + 1 + _SHRINK + _SHRINK**2
        self.aim((offset, self.records), (near, 1), (far, _SHRINK))


class RejectionPolicy:
    """
    Decides about a lane's rejections, and tracks those in progress.

    Args:
        policy: ``stop``, ``dead-letter`` or ``raise-limit``.
        raise_to: Largest limit that may be set; None for the source topic's own.
    """

    def __init__(self, policy: str, raise_to: int | None) -> None:
        self._policy = policy
        self._raise_to = raise_to
        self._suspects: dict[SourcePartition, _Suspect] = {}
        self._left_out: dict[SourcePartition, dict[int, SkippedRecord]] = {}
        # target topic -> the limit that was asked for, and how often
        self._raised: dict[str, tuple[int, int]] = {}
        self._batch_bytes: int | None = None
        self._whole = True

    @property
    def searching(self) -> bool:
        """True while any partition has not passed its rejection yet."""
        return bool(self._suspects)

    @property
    def send_plan(self) -> SendPlan:
        """Current plan of how partitions with refused records are sent."""
        return SendPlan(
            ranges={source: suspect.spans for source, suspect in self._suspects.items()},
            left_out={source: dict(offsets) for source, offsets in self._left_out.items()},
            batch_bytes=self._batch_bytes,
            whole_dead_letters=self._whole,
        )

    def decide(self, rejection: Rejection, committed: int, limits: Limits) -> Decision:
        """
        Decides about a rejection, and updates `send_plan` to match.

        Args:
            rejection: Its transaction is aborted in any case.
            committed: The partition's committed position.
            limits: Current settings of both topics.
        """
        if rejection.reason is RejectionReason.DEAD_LETTER:
            return self._letter(rejection)
        if rejection.record is None:
            return self._narrow(rejection, committed, limits)
        record = rejection.record
        self._suspects.setdefault(
            rejection.source, _Suspect(1, record.offset + 1, ((record.offset + 1, 1),), committed)
        ).aim_at(record.offset)
        if self._policy == "dead-letter":
            left_out = self._left_out.setdefault(rejection.source, {})
            if record.offset not in left_out:
                left_out[record.offset] = SkippedRecord(
                    rejection.reason.value, rejection.words, _limit(rejection.reason, limits)
                )
                return SkipRecord(record)
        if self._policy == "raise-limit" and rejection.reason is RejectionReason.SIZE:
            return self._raise(rejection, record, limits)
        return StopTopic(_stopping(rejection, record, limits))

    def passed(self, positions: Mapping[SourcePartition, Position]) -> bool:
        """
        Records a commit; returns whether `send_plan` has changed.

        Args:
            positions: Committed positions of all partitions that the lane mirrors.
        """
        over = [
            source
            for source, suspect in self._suspects.items()
            if source not in positions or positions[source].offset >= suspect.until
        ]
        for source in over:
            del self._suspects[source]
            self._left_out.pop(source, None)
        return bool(over)

    def _narrow(self, rejection: Rejection, committed: int, limits: Limits) -> Decision:
        if (
            rejection.reason is RejectionReason.SIZE
            and (most := limits.max_message_bytes(limits.target)) is not None
        ):
            # the batch may have been too large, and no record in it
            self._batch_bytes = min(most, self._batch_bytes or most)
        known = self._suspects.get(rejection.source)
        if known is None:
            until = max(rejection.end, committed + 1)
            records = max(1, (until - committed) // _SHRINK)
            self._suspects[rejection.source] = _Suspect(records, until, ((until, records),), committed)
            return Narrow(records)
        if committed > known.committed:
            known.committed, known.narrowed = committed, 0
        _, records = self.send_plan.range_at(rejection.source, rejection.begin)
        if records == 1 or known.narrowed >= _MOST_NARROWED:
            # single records were sent already, and none of them is at fault
            return StopTopic(
                RecordRefusedError(
                    f"{rejection.source}: the target topic {rejection.target_topic} refuses a record of "
                    f"[{rejection.begin}, {rejection.end}): {rejection.words}",
                    fix="check the log of the target's brokers for the record and the reason",
                    topic=rejection.source.topic,
                )
            )
        smaller = max(1, records // _SHRINK)
        known.narrowed += 1
        known.until = max(known.until, rejection.end)
        known.aim((rejection.begin, known.records), (rejection.end, smaller))
        return Narrow(smaller)

    def _letter(self, rejection: Rejection) -> Decision:
        if self._whole:
            self._whole = False
            return Pointers()
        return StopTopic(
            RecordRefusedError(
                f"{rejection.source}: the target refuses the dead letter of a record of this partition: "
                f"{rejection.words}",
                fix=f"check the settings of topic {rejection.target_topic} (max.message.bytes, "
                "message.timestamp.*), then start again",
                topic=rejection.source.topic,
            )
        )

    def _raise(self, rejection: Rejection, record: RefusedRecord, limits: Limits) -> Decision:
        wanted = record.batch_bytes
        bound = self._raise_to or limits.max_message_bytes(limits.source)
        asked, times = self._raised.get(rejection.target_topic, (0, 0))
        times = times if asked >= wanted else 0
        if bound is None or wanted > bound or times >= _MOST_RAISES:
            return StopTopic(_stopping(rejection, record, limits, bound=bound))
        self._raised[rejection.target_topic] = (max(wanted, asked), times + 1)
        return Raise(rejection.target_topic, limits.max_message_bytes(limits.target), max(wanted, asked))


def _limit(reason: RejectionReason, limits: Limits) -> str:
    """Returns the settings behind a rejection of this kind, as ``name=value``."""
    names = {
        RejectionReason.SIZE: (_SIZE,),
        RejectionReason.SEGMENT: ("segment.bytes",),
        RejectionReason.TIMESTAMP: ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
        RejectionReason.INVALID: ("cleanup.policy",),
    }.get(reason, ())
    return ", ".join(f"{name}={limits.target[name]}" for name in names if limits.target.get(name))


def _stopping(
    rejection: Rejection, record: RefusedRecord, limits: Limits, *, bound: int | None = None
) -> RecordRefusedError:
    where = f"{rejection.source}@{record.offset}"
    topic = rejection.target_topic
    limit = _limit(rejection.reason, limits)
    against = f" ({limit})" if limit else ""
    size = f"{record.batch_bytes} bytes"
    policy = "to go on without such records, set on_refused: dead-letter on the link"
    if rejection.reason is RejectionReason.SIZE:
        beyond = f"; on_refused: raise-limit may go up to {bound}" if bound is not None else ""
        message = f"a batch of it alone, at most {size}, is too large for topic {topic}{against}{beyond}"
        fix = (
            f"raise {_SIZE} of {topic} to {record.batch_bytes}, or let the link do it (on_refused: raise-limit, "
            "raise_limit_to); where the source's producers compress, so must we: compression.type under `producer` "
            f"of the target cluster; {policy}"
        )
    elif rejection.reason is RejectionReason.CLIENT_SIZE:
        message = f"a batch of it alone, at most {size}, is larger than this client may send"
        fix = f"raise message.max.bytes under `producer` of the target cluster; {policy}"
    elif rejection.reason is RejectionReason.TIMESTAMP:
        message = f"topic {topic} does not take its timestamp {record.timestamp}{against}"
        fix = f"widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of {topic}; {policy}"
    elif rejection.reason is RejectionReason.SEGMENT:
        message = f"a batch of it alone, at most {size}, is larger than a segment of topic {topic}{against}"
        fix = f"raise segment.bytes of {topic}; {policy}"
    else:
        key = "; it has no key" if record.keyless else ""
        message = f"topic {topic} does not take it{against}{key}"
        fix = f"see what {topic} asks of records (a compacted topic: a key); {policy}"
    return RecordRefusedError(
        f"{where}: the target refuses this record: {message}: {rejection.words}",
        fix=fix,
        topic=rejection.source.topic,
    )
