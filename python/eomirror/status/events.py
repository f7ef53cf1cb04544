"""
Timeline of a link, from the records of its control and positions topics. Pure.

Both topics are compacted, so the timeline of the last minutes is complete and older events thin out: of each key the
newest record stays.  Nothing else is stored for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.status.failover_events import FailoverTexts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.records.position import AttemptClaim

__all__ = ["MOST_EVENTS", "RECENT_TAKE_OVER_MS", "TAKE_OVER", "Event", "link_events"]

#: Newest events that a timeline holds.
MOST_EVENTS = 200
#: Kind of the event of an owner that took the link although the one before had not released it.
TAKE_OVER = "take-over"
#: A take-over is told, and alerted on, for so long.
RECENT_TAKE_OVER_MS = 15 * 60 * 1000

# written every few seconds while a link runs: ends of the source and the time of its last answer
_NO_EVENTS = frozenset({"ends", "groups-left", "seen"})
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
    found: list[Event] = []
    owner: tuple[str, bool] | None = None
    # take-overs, by the run that took the link
    taken: dict[str, int] = {}
    failover = FailoverTexts()
    for key, value, timestamp in control:
        name, body = _parsed(key), _parsed(value)
        kind = str(name.get("kind", ""))
        if not kind or kind in _NO_EVENTS:
            continue
        if kind == "claim":
            claimed = (str(body.get("run")), bool(body.get("released")))
            # renewals are no events
            if body and claimed != owner:
                found.append(_claim_event(body, timestamp, before=owner, released=claimed[1]))
                if found[-1].kind == TAKE_OVER:
                    taken[claimed[0]] = len(found) - 1
            owner = claimed
            continue
        text = None if value is None else failover.text(kind, name, body)
        if text is None:
            found.append(_event(kind, name, body if value is not None else None, timestamp))
        elif text:
            found.append(Event(timestamp, kind, text))
            if (at := taken.pop(str(body.get("run")), None)) is not None:
                found[at] = _on_request(found[at])
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


def _claim_event(
    body: dict[str, Any], timestamp: int, *, before: tuple[str, bool] | None, released: bool
) -> Event:
    who = f"{body.get('host')}/{body.get('pid')} run {body.get('run')}"
    if command := body.get("command"):
        who += f" (eomirror {command})"
    if released:
        return Event(timestamp, "released", f"{who} released the link")
    if before is not None and not before[1]:
        text = f"{who} took the link from run {before[0]}, which had not released it: it was killed, or superseded"
        return Event(timestamp, TAKE_OVER, text)
    return Event(timestamp, "owner", f"{who} owns the link")


def _on_request(taken: Event) -> Event:
    """Returns the take-over of a command of failover, which takes the link from a mirror that runs."""
    text = taken.text.partition(", which had not released it")[0]
    return replace(taken, kind="owner", text=f"{text}, for a command of failover")


def _event(kind: str, name: dict[str, Any], body: dict[str, Any] | None, timestamp: int) -> Event:
    topic = str(name.get("topic", ""))
    where = f"{topic}-{name.get('partition')}"
    if body is None:
        text = {
            "stopped": f"topic {topic} resumes",
            "hand-back": "the link is taken back",
            "pause": "the link resumes",
        }.get(kind, f"the {kind} record is deleted")
        return Event(
            timestamp,
            {"stopped": "resumed", "hand-back": "taken-back", "pause": "resumed"}.get(kind, kind),
            text,
            topic,
        )
    match kind:
        case "generation":
            number, revision = body.get("generation"), body.get("revision")
            text = f"generation {number}, {body.get('lanes')} lanes, run {body.get('run')}"
            text += f", revision {revision} adds partitions" if revision else ""
        case "gap":
            text = f"{where}: the loss of offsets [{name.get('from')}, {body.get('to')}) was accepted"
        case "adoption":
            text = f"{where}: resumes at {body.get('offset')}, where {body.get('replicator')} stopped"
        case "hand-back":
            text = f"the link was handed back to {body.get('replicator')}"
        case "stopped":
            text = f"topic {topic} is stopped: {body.get('reason')}"
        case "restarts":
            often = "once" if body.get("count") == 1 else f"{body.get('count')} times"
            text = f"lane {name.get('lane')} ended early, {often} in this run"
            text += f": {body.get('ending')}: {body.get('reason')}"
            # the record is written some seconds later
            ended = body.get("timestamp")
            if isinstance(ended, int) and 0 <= timestamp - ended <= _LATE_MS:
                timestamp = ended
        case "verification":
            text = f"topic {topic} was compared with its source: {_compared(body)}"
        case _:
            text = _other(kind, body, where if topic else "")
    return Event(timestamp, kind, text, topic)


def _other(kind: str, body: dict[str, Any], where: str) -> str:
    if kind == "pause":
        return f"{body.get('host')} paused {body.get('topics') or 'all topics'}"
    if kind == "tail":
        tail = body.get("tail")
        part = f"only the last {tail:,} offsets" if isinstance(tail, int) else "only the last offsets"
        text = f"{part} of each partition were compared with the source, before a {body.get('command')}"
        return f"{text}: {_compared(body)}"
    return _drilled(body) if kind == "drill" else f"{kind} {where}".rstrip()


def _drilled(body: dict[str, Any]) -> str:
    if not body.get("passed"):
        # it measured nothing
        where = f" at the stage {body['stage']!r}" if body.get("stage") else ""
        why = f": {body['problem']}" if body.get("problem") else ""
        return f"a drill failed{where}{why}; repeat it with eomirror drill --report FILE"
    text = f"a drill passed: {body.get('rpo_records')} records left behind, all merged later; "
    return text + f"{body.get('rto_ms')} ms to the promotion"


def _compared(body: dict[str, Any]) -> str:
    differences = body.get("differences")
    counts = differences.items() if isinstance(differences, dict) else ()
    found = [f"{count} {kind}" for kind, count in counts]
    problem = [str(body["problem"])] if body.get("problem") else []
    start, since = body.get("from_offset"), body.get("since")
    part = [f"from offset {start} on"] if start else []
    if isinstance(since, int) and since > 0:
        part.append(f"records since {_iso(since)}")
    return ", ".join([f"{body.get('outcome')}, {body.get('offsets')} offsets", *part, *found, *problem])


def _iso(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return str(milliseconds)


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        found = orjson.loads(data or b"null")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
