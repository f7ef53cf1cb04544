"""
Timeline of a link, from the records of its control and positions topics. Pure.

Control is compacted: of each key the newest record stays.  So a writer of a record whose event must last writes that
event beside it, with a key of its own (`PastEvent`), and the owner deletes those older than `KEPT_MS`, and more
than `MOST_EVENTS` (`old_events`).  Restarts and comparisons thin out.  The class of a record has its sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.clock import utc
from eomirror.records.control import Claim
from eomirror.records.control_record import ControlEntry, ControlRecord, RecordError, control_record, named
from eomirror.records.promotion import Fence, Part, joined
from eomirror.records.reports import LaneRestarts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.records.json_fields import Excerpt, Whole
    from eomirror.records.position import AttemptClaim

__all__ = [
    "KEPT_MS",
    "MOST_EVENTS",
    "RECENT_TAKE_OVER_MS",
    "TAKE_OVER",
    "LinkEvent",
    "Outage",
    "PastEvent",
    "change_events",
    "lasting_events",
    "link_events",
    "old_events",
]

#: Newest events that a timeline holds.
MOST_EVENTS = 1000
#: Events last for so long: 8 days, so that the last 7 are whole.
KEPT_MS = 8 * 24 * 3600 * 1000
#: Kind of the event of an owner that took the link although the one before had not released it.
TAKE_OVER = "take-over"
#: A take-over is told, and alerted on, for so long.
RECENT_TAKE_OVER_MS = 15 * 60 * 1000

# so many changes of one sign at a time have an event each, and more share one
_SINGLE = 20
# the event of a record is written with it, and has its time
_BESIDE_MS = 60_000
# a record of restarts is written within this time
_LATE_MS = 60_000

_Record = tuple[bytes | None, bytes | None, int]


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """
    An event of a link.

    Attributes:
        at: Time, ms since the epoch.
        kind: ``owner``, ``take-over``, ``released``, ``generation``, ``gap``, ``adoption``, ``hand-back``,
            ``taken-back``, ``stopped``, ``resumed``, ``pause``, ``lane``, ``restarts``, ``protocol``, ``slot``,
            ``balance``, ``verification``, ``tail``, ``drill``, ``promotion``, ``fence``, ``reversal``, ``restoration``,
            ``resumption``, ``recreation``, ``copy-back``, ``schemas``, ``outage``, ``target`` or ``silent``; or
            the kind of a control record of a newer release.
        text: One line for people.
        topic: Source topic that it is about; empty for none.
    """

    at: int
    kind: str
    text: str
    topic: str = ""


@control_record("event", key=("at", "of", "topic"), informative=True, dated=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class PastEvent(ControlRecord):
    """
    An event whose record may have been replaced since.

    Attributes:
        at: Time, ms since the epoch.
        of: Kind of the event.
        topic: Source topic that it is about; empty for none.
        text: One line for people.
    """

    at: Whole
    of: str
    topic: str
    text: Excerpt


@control_record("outage", key=("at", "cluster"), informative=True, dated=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class Outage(ControlRecord):
    """
    Time for which a cluster did not answer; written by the mirror, or by `serve` if none ran at its end.

    Attributes:
        at: Begin, ms since the epoch.
        cluster: Alias of the cluster.
        until: End, ms since the epoch.
    """

    at: Whole
    cluster: str
    until: Whole

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        seconds = (self.until - self.at) / 1000
        return f"cluster {self.cluster} did not answer for {seconds:.0f} s, until {utc(self.until)}"


def lasting_events(
    records: Iterable[tuple[bytes | None, bytes | None]], *, owner: Claim | None, now_ms: int
) -> tuple[list[PastEvent], Claim | None]:
    """
    Returns the events that have to be written beside control records, and the claim that stands after them.

    Args:
        records: Key and value of each, in order.
        owner: Claim that stands.
        now_ms: Wall clock.
    """
    timeline = _Timeline(owner)
    for key, value in records:
        declared = ControlEntry.of(key, None).declared
        if declared is not None and declared.declaration.lasting:
            timeline.take(key, value, now_ms)
    events = [
        PastEvent(at=event.at, of=event.kind, topic=event.topic, text=event.text)
        for event in timeline.lasting
    ]
    return events, timeline.owner


def change_events(changed: Iterable[tuple[str, str]], *, now_ms: int) -> list[PastEvent]:
    """
    Returns the events of changes that were made on the target at one time.

    Args:
        changed: Sign (``+``, ``~``, ``-``) and text of each.
        now_ms: Time of the first event; each has a time of its own.
    """
    by_sign: dict[str, list[str]] = {}
    for sign, text in changed:
        by_sign.setdefault(sign, []).append(text)
    texts: list[str] = []
    for sign, some in by_sign.items():
        if len(some) <= _SINGLE:
            texts += [f"{sign} {text}" for text in some]
        else:
            texts.append(f"{sign} {len(some):,} on the target: {named(some)}")
    return [
        PastEvent(at=now_ms + number, of="target", topic="", text=text) for number, text in enumerate(texts)
    ]


def old_events(dated: Mapping[bytes, int], *, now_ms: int) -> list[bytes]:
    """
    Returns the keys of events that have to be deleted, at most `MOST_EVENTS` at once.

    Every starting lane reads control, so a topic that stops and resumes for months must not fill it.

    Args:
        dated: Keys of all events, with their times.
        now_ms: Wall clock.
    """
    keys = sorted(dated, key=dated.__getitem__)
    surplus, oldest = len(keys) - MOST_EVENTS, now_ms - KEPT_MS
    old = [key for number, key in enumerate(keys) if number < surplus or dated[key] < oldest]
    return old[:MOST_EVENTS]


def link_events(control: Iterable[_Record], attempts: Iterable[AttemptClaim]) -> tuple[LinkEvent, ...]:
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
    # since the first of them, each record that lasts has its event, at a time that differs by milliseconds
    begin = min((event.at for event in timeline.past), default=0) - _BESIDE_MS
    known = set(map(id, timeline.lasting))
    found = [
        event for event in timeline.events if not (timeline.past and id(event) in known and event.at >= begin)
    ]
    found += timeline.past
    found += [LinkEvent(one.at, "outage", one.sentence()) for one in _merged(timeline.outages)]
    found += [
        LinkEvent(
            claim.timestamp,
            "lane",
            f"lane {claim.lane} starts epoch {claim.epoch}, attempt {claim.attempt}, on {claim.host}/{claim.pid}"
            + (f", {claim.plane} plane" if claim.plane else ""),
        )
        for claim in attempts
        # the task of each lane is replaced every few minutes; its failures are restarts, with attempts
        if claim.epoch == 1 or claim.attempt > 1
    ]
    found.sort(key=lambda event: event.at)
    return tuple(found[-MOST_EVENTS:])


class _Timeline:
    """Collects the events of control records, oldest first."""

    def __init__(self, owner: Claim | None = None) -> None:
        self.events: list[LinkEvent] = []
        # those of them that last, and those that others have written
        self.lasting: list[LinkEvent] = []
        self.past: list[LinkEvent] = []
        self.outages: list[Outage] = []
        self.owner = owner
        self._fences: dict[int, Fence] = {}
        self._parts: dict[bytes | None, Part] = {}

    def take(self, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        """Adds the event of a record, if it is one."""
        entry = ControlEntry.of(key, value)
        if not entry.kind or (entry.declared is not None and entry.declared.declaration.silent):
            return
        topic = str(entry.name.get("topic", ""))
        try:
            record = None if value is None else joined(entry, self._parts.values()).record()
            kind, text = _deleted(entry, topic)
        except RecordError:
            record, kind = None, entry.kind
            text = f"{kind} {topic}-{entry.name.get('partition')}" if topic else kind
        if record is not None and self._kept(key, record):
            return
        if isinstance(record, Claim):
            if event := self._claimed(record):
                self._add(entry, LinkEvent(timestamp, *event))
        elif record is None and entry.declared not in {Claim, PastEvent, Outage}:
            self._add(entry, LinkEvent(timestamp, kind, text, topic))
        # a fence is written again unchanged once the applications are stopped
        elif record is not None and record not in self._fences.values():
            self._add(entry, LinkEvent(_time(record, timestamp), entry.kind, record.sentence(), topic))
            if isinstance(record, Fence):
                self._fences[record.number] = record

    def _kept(self, key: bytes | None, record: ControlRecord) -> bool:
        """Keeps a record that is an event together with others, or that tells one itself."""
        if isinstance(record, Part):
            self._parts[key] = record
        elif isinstance(record, PastEvent):
            self.past.append(LinkEvent(record.at, record.of, record.text, record.topic))
        elif isinstance(record, Outage):
            self.outages.append(record)
        else:
            return False
        return True

    def _add(self, entry: ControlEntry, event: LinkEvent) -> None:
        self.events.append(event)
        if entry.declared is not None and entry.declared.declaration.lasting:
            self.lasting.append(event)

    def _claimed(self, claim: Claim) -> tuple[str, str] | None:
        """Returns kind and text of the event of a claim; None for a renewal."""
        before, self.owner = self.owner, claim
        if before is not None and (before.run, before.released) == (claim.run, claim.released):
            return None
        if claim.released or before is None or before.released:
            return "released" if claim.released else "owner", claim.sentence()
        taken = f"{claim.who} took the link from run {before.run}"
        if claim.command:
            # a command of failover takes it from a mirror that runs
            return "owner", taken
        seen = f"whose claim was last renewed at {utc(before.timestamp)}"
        return TAKE_OVER, f"{taken} on {before.host}/{before.pid}, {seen}: it was killed, or superseded"


def _deleted(entry: ControlEntry, topic: str) -> tuple[str, str]:
    """Returns kind and text of the event of a deletion."""
    told = None if entry.declared is None else entry.declared.declaration.deleted
    if told is None:
        return str(entry.kind), f"the {entry.kind} record is deleted"
    kind, text = told
    return kind, text.format(topic=topic)


def _merged(outages: Iterable[Outage]) -> list[Outage]:
    """Returns one outage for those of a cluster that overlap: several processes may have seen it."""
    found: list[Outage] = []
    for one in sorted(outages, key=lambda each: (each.cluster, each.at)):
        if found and found[-1].cluster == one.cluster and one.at <= found[-1].until:
            found[-1] = replace(found[-1], until=max(found[-1].until, one.until))
        else:
            found.append(one)
    return found


def _time(record: ControlRecord, timestamp: int) -> int:
    """Returns the time of an event: records of restarts are written some seconds later."""
    if isinstance(record, LaneRestarts) and 0 <= timestamp - record.timestamp <= _LATE_MS:
        return record.timestamp
    return timestamp
