"""
Isolates records that the target refuses, and decides their treatment. Pure.

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

Each refusal shrinks the ranges, names a new record, raises a limit up to a bound, or stops the topic, so the search
always ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.errors import RecordRefusedError
from eomirror.plane.protocol import Refusal, RefusalReason, RefusedRecord, SkippedRecord, Treatment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["Decision", "Limits", "Narrow", "Pointers", "Raise", "RefusalPolicy", "SkipRecord", "Stopped"]

_SHRINK = 16
# refusals of a partition whose position does not move: five ranges lead from the largest transaction to one record
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
class Stopped:
    """Stop the topic; others go on."""

    error: RecordRefusedError


Decision = Narrow | SkipRecord | Pointers | Raise | Stopped


@dataclass(slots=True)
class _Suspect:
    """
    A partition with a refusal.

    Attributes:
        records: Default size of ranges.
        until: Ranges end at this position.
        spans: As in `Treatment.ranges`.
        committed: Position at the last refusal.
        narrowed: Refusals since the position moved.
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


class RefusalPolicy:
    """
    Decides about a lane's refusals, and tracks those in progress.

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
        """True while any partition has not passed its refusal yet."""
        return bool(self._suspects)

    @property
    def treatment(self) -> Treatment:
        """Current treatment of refused records."""
        return Treatment(
            ranges={source: suspect.spans for source, suspect in self._suspects.items()},
            left_out={source: dict(offsets) for source, offsets in self._left_out.items()},
            batch_bytes=self._batch_bytes,
            whole_dead_letters=self._whole,
        )

    def decide(self, refusal: Refusal, committed: int, limits: Limits) -> Decision:
        """
        Decides about a refusal, and updates `treatment` to match.

        Args:
            refusal: Its transaction is aborted in any case.
            committed: The partition's committed position.
            limits: Current settings of both topics.
        """
        if refusal.reason is RefusalReason.DEAD_LETTER:
            return self._letter(refusal)
        if refusal.record is None:
            return self._narrow(refusal, committed, limits)
        record = refusal.record
        self._suspects.setdefault(
            refusal.source, _Suspect(1, record.offset + 1, ((record.offset + 1, 1),), committed)
        ).aim_at(record.offset)
        if self._policy == "dead-letter":
            left_out = self._left_out.setdefault(refusal.source, {})
            if record.offset not in left_out:
                left_out[record.offset] = SkippedRecord(
                    refusal.reason.value, refusal.words, _limit(refusal.reason, limits)
                )
                return SkipRecord(record)
        if self._policy == "raise-limit" and refusal.reason is RefusalReason.SIZE:
            return self._raise(refusal, record, limits)
        return Stopped(_stopping(refusal, record, limits))

    def passed(self, positions: Mapping[SourcePartition, Position]) -> bool:
        """
        Records a commit; returns whether `treatment` has changed.

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

    def _narrow(self, refusal: Refusal, committed: int, limits: Limits) -> Decision:
        if (
            refusal.reason is RefusalReason.SIZE
            and (most := limits.max_message_bytes(limits.target)) is not None
        ):
            # the batch may have been too large, and no record in it
            self._batch_bytes = min(most, self._batch_bytes or most)
        known = self._suspects.get(refusal.source)
        if known is None:
            until = max(refusal.end, committed + 1)
            records = max(1, (until - committed) // _SHRINK)
            self._suspects[refusal.source] = _Suspect(records, until, ((until, records),), committed)
            return Narrow(records)
        if committed > known.committed:
            known.committed, known.narrowed = committed, 0
        _, records = self.treatment.range_at(refusal.source, refusal.begin)
        if records == 1 or known.narrowed >= _MOST_NARROWED:
            # single records were sent already, and none of them is at fault
            return Stopped(
                RecordRefusedError(
                    f"{refusal.source}: the target topic {refusal.target_topic} refuses a record of "
                    f"[{refusal.begin}, {refusal.end}): {refusal.words}",
                    fix="check the log of the target's brokers for the record and the reason",
                    topic=refusal.source.topic,
                )
            )
        smaller = max(1, records // _SHRINK)
        known.narrowed += 1
        known.until = max(known.until, refusal.end)
        known.aim((refusal.begin, known.records), (refusal.end, smaller))
        return Narrow(smaller)

    def _letter(self, refusal: Refusal) -> Decision:
        if self._whole:
            self._whole = False
            return Pointers()
        return Stopped(
            RecordRefusedError(
                f"{refusal.source}: the target refuses the dead letter of a record of this partition: {refusal.words}",
                fix=f"check the settings of topic {refusal.target_topic} (max.message.bytes, "
                "message.timestamp.*), then start again",
                topic=refusal.source.topic,
            )
        )

    def _raise(self, refusal: Refusal, record: RefusedRecord, limits: Limits) -> Decision:
        wanted = record.batch_bytes
        bound = self._raise_to or limits.max_message_bytes(limits.source)
        asked, times = self._raised.get(refusal.target_topic, (0, 0))
        times = times if asked >= wanted else 0
        if bound is None or wanted > bound or times >= _MOST_RAISES:
            return Stopped(_stopping(refusal, record, limits, bound=bound))
        self._raised[refusal.target_topic] = (max(wanted, asked), times + 1)
        return Raise(refusal.target_topic, limits.max_message_bytes(limits.target), max(wanted, asked))


def _limit(reason: RefusalReason, limits: Limits) -> str:
    """Returns the settings behind a refusal of this kind, as ``name=value``."""
    names = {
        RefusalReason.SIZE: (_SIZE,),
        RefusalReason.SEGMENT: ("segment.bytes",),
        RefusalReason.TIMESTAMP: ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
        RefusalReason.INVALID: ("cleanup.policy",),
    }.get(reason, ())
    return ", ".join(f"{name}={limits.target[name]}" for name in names if limits.target.get(name))


def _stopping(
    refusal: Refusal, record: RefusedRecord, limits: Limits, *, bound: int | None = None
) -> RecordRefusedError:
    where = f"{refusal.source}@{record.offset}"
    topic = refusal.target_topic
    limit = _limit(refusal.reason, limits)
    against = f" ({limit})" if limit else ""
    size = f"{record.batch_bytes} bytes"
    policy = "to go on without such records, set on_refused: dead-letter on the link"
    if refusal.reason is RefusalReason.SIZE:
        beyond = f"; on_refused: raise-limit may go up to {bound}" if bound is not None else ""
        message = f"a batch of it alone, at most {size}, is too large for topic {topic}{against}{beyond}"
        fix = (
            f"raise {_SIZE} of {topic} to {record.batch_bytes}, or let the link do it (on_refused: raise-limit, "
            "raise_limit_to); where the source's producers compress, so must we: compression.type under `producer` "
            f"of the target cluster; {policy}"
        )
    elif refusal.reason is RefusalReason.CLIENT_SIZE:
        message = f"a batch of it alone, at most {size}, is larger than this client may send"
        fix = f"raise message.max.bytes under `producer` of the target cluster; {policy}"
    elif refusal.reason is RefusalReason.TIMESTAMP:
        message = f"topic {topic} does not take its timestamp {record.timestamp}{against}"
        fix = f"widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of {topic}; {policy}"
    elif refusal.reason is RefusalReason.SEGMENT:
        message = f"a batch of it alone, at most {size}, is larger than a segment of topic {topic}{against}"
        fix = f"raise segment.bytes of {topic}; {policy}"
    else:
        key = "; it has no key" if record.keyless else ""
        message = f"topic {topic} does not take it{against}{key}"
        fix = f"see what {topic} asks of records (a compacted topic: a key); {policy}"
    return RecordRefusedError(
        f"{where}: the target refuses this record: {message}: {refusal.words}",
        fix=fix,
        topic=refusal.source.topic,
    )
