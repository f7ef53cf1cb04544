"""
Timeline of a link, from the records of its control and positions topics. Pure.

Both topics are compacted, so the timeline of the last minutes is complete and older events thin out: of each key the
newest record stays.  Nothing else is stored for it.  The class of a record has its sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.records.control import Claim
from eomirror.records.control_record import ControlEntry, FailoverRecord, RecordError
from eomirror.records.promotion import Fence, Part, joined
from eomirror.records.reports import LaneRestarts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.records.control_record import ControlRecord
    from eomirror.records.position import AttemptClaim

__all__ = ["MOST_EVENTS", "RECENT_TAKE_OVER_MS", "TAKE_OVER", "Event", "link_events"]

#: Newest events that a timeline holds.
MOST_EVENTS = 200
#: Kind of the event of an owner that took the link although the one before had not released it.
TAKE_OVER = "take-over"
#: A take-over is told, and alerted on, for so long.
RECENT_TAKE_OVER_MS = 15 * 60 * 1000

# a record of restarts is written within this time
_LATE_MS = 60_000

_Record = tuple[bytes | None, bytes | None, int]


@dataclass(frozen=True, slots=True)
class Event:
    """
    An event of a link.

    Attributes:
        at: Time, ms since the epoch.
        kind: ``owner``, ``take-over``, ``released``, ``generation``, ``gap``, ``adoption``, ``hand-back``,
            ``taken-back``, ``stopped``, ``resumed``, ``pause``, ``lane``, ``restarts``, ``verification``, ``tail``,
            ``drill``, ``promotion``, ``fence``, ``reversal``, ``restoration``, ``resumption``, ``recreation`` or
            ``copy-back``; or the kind of a control record of a newer release.
        text: One line for people.
        topic: Source topic that it is about; empty for none.
    """

    at: int
    kind: str
    text: str
    topic: str = ""


def link_events(control: Iterable[_Record], attempts: Iterable[AttemptClaim]) -> tuple[Event, ...]:
    """
    Returns the newest `MOST_EVENTS` events, oldest first.

    Args:
        control: Key, value and timestamp in ms of each control record, in the order of the log; records that are not
            readable are skipped, since the readers that decide refuse them.
        attempts: Claims of lanes, in the order of the log.
    """
    timeline = _Timeline()
    for key, value, timestamp in control:
        timeline.take(key, value, timestamp)
    found = timeline.events
    found += [
        Event(
            claim.timestamp,
            "lane",
            f"lane {claim.lane} starts epoch {claim.epoch}, attempt {claim.attempt}, on {claim.host}/{claim.pid}"
            + (f", {claim.plane} plane" if claim.plane else ""),
        )
        for claim in attempts
    ]
    found.sort(key=lambda event: event.at)
    return tuple(found[-MOST_EVENTS:])


class _Timeline:
    """Collects the events of control records, oldest first."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._owner: Claim | None = None
        # take-overs, by the run that took the link
        self._taken: dict[str, int] = {}
        self._fences: dict[int, Fence] = {}
        self._parts: dict[bytes | None, Part] = {}

    def take(self, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        """Adds the event of a record, if it is one."""
        entry = ControlEntry.of(key, value)
        if entry.kind is None or self._is_silent(entry):
            return
        topic = str(entry.name.get("topic", ""))
        try:
            record = None if value is None else joined(entry, self._parts.values()).record()
            kind, text = _deleted(entry, topic)
        except RecordError:
            record, kind = None, entry.kind
            text = f"{kind} {topic}-{entry.name.get('partition')}" if topic else kind
        if isinstance(record, Part):
            self._parts[key] = record
        elif isinstance(record, Claim):
            self._claim(record, timestamp)
        elif record is None and entry.declared is not Claim:
            self.events.append(Event(timestamp, kind, text, topic))
        # a fence is written again unchanged once the applications are stopped
        elif record is not None and record not in self._fences.values():
            self.events.append(Event(_time(record, timestamp), entry.kind, record.sentence(), topic))
            self._failover(record)

    def _is_silent(self, entry: ControlEntry) -> bool:
        """Returns True if an entry is no event: a renewal of a claim is none."""
        if entry.declared is Claim and self._owner is not None:
            return (self._owner.run, self._owner.released) == (
                entry.body.get("run"),
                entry.body.get("released"),
            )
        return not entry.kind or (entry.declared is not None and entry.declared.declaration.silent)

    def _claim(self, claim: Claim, timestamp: int) -> None:
        before, self._owner = self._owner, claim
        if claim.released or before is None or before.released:
            self.events.append(Event(timestamp, "released" if claim.released else "owner", claim.sentence()))
            return
        self._taken[claim.run] = len(self.events)
        text = f"{claim.who} took the link from run {before.run}, which had not released it"
        self.events.append(Event(timestamp, TAKE_OVER, f"{text}: it was killed, or superseded"))

    def _failover(self, record: ControlRecord) -> None:
        if isinstance(record, Fence):
            self._fences[record.number] = record
        if isinstance(record, FailoverRecord):
            at = self._taken.pop(getattr(record, "run", ""), None)
            if at is not None:
                self.events[at] = _on_request(self.events[at])


def _on_request(taken: Event) -> Event:
    """Returns the take-over of a command of failover, which takes the link from a mirror that runs."""
    text = taken.text.partition(", which had not released it")[0]
    return replace(taken, kind="owner", text=f"{text}, for a command of failover")


def _deleted(entry: ControlEntry, topic: str) -> tuple[str, str]:
    """Returns kind and text of the event of a deletion."""
    told = None if entry.declared is None else entry.declared.declaration.deleted
    if told is None:
        return str(entry.kind), f"the {entry.kind} record is deleted"
    kind, text = told
    return kind, text.format(topic=topic)


def _time(record: ControlRecord, timestamp: int) -> int:
    """Returns the time of an event: a record of restarts is written some seconds later."""
    if isinstance(record, LaneRestarts) and 0 <= timestamp - record.timestamp <= _LATE_MS:
        return record.timestamp
    return timestamp
