"""
One verdict for each link, without thresholds for lag, as Burrow gives them for consumers. Pure.

A window of looks decides.  A lag is bad only if it grows: the age of the oldest record that is not mirrored rises with
the time.  A position that stands is bad only if the source has more.  A position and an end that went back are a loss.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from eomirror.failover.machine import Verb
from eomirror.failover.readiness import Facts, assess, rough
from eomirror.status.model import ADD_SLOTS, slots_line, waits_for_slot
from eomirror.status.retention import retention_risk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.status.live import LinkView
    from eomirror.status.model import LaneStatus, LinkStatus

__all__ = ["NOT_MIRRORING", "NO_ACTION", "VERDICTS", "Verdict", "Window"]

#: All verdicts, best first.
VERDICTS = (
    "ok", "promoted", "handed back", "paused", "starting", "behind", "unknown", "source away", "target away",
    "down", "stalled", "stopped", "rewound",
)  # fmt: skip

#: Verdicts of links that need no action.
NO_ACTION = {"ok", "promoted", "handed back", "starting"}

#: Verdicts of links that mirror nothing although they should.
NOT_MIRRORING = {"starting", "source away", "target away", "down", "stalled"}

#: Seconds of looks that decide.
WINDOW_SECONDS = 60.0
# Records behind a transaction that is open for longer than this are behind, though no reader may see them yet.
_OPEN_SECONDS = 60.0
# Of the time that passed: a lag that grows more slowly is noise, such as the time between reading position and end.
_GROWTH = 0.1
# a shorter series of looks says nothing about a trend
_ENOUGH_SECONDS = 20.0
# A lane that Spark has not begun for so long has no slot.
_SLOT_SECONDS = 20.0
# A lane that works commits several times a second.  With a look every 3 s, a stall is told within 15 s.
_STALLED_SECONDS = 8.0
# A shorter lag comes and goes with each transaction: its number would change the sentence at each look.
_CALM_SECONDS = 5.0
# a longer time is told in minutes
_MINUTES_FROM = 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    A verdict on a link.

    Attributes:
        word: One of `VERDICTS`.
        text: Reason, one sentence.
        fix: Recommended action; empty for none.
        failover: What a failover at this moment would lose.
        since_ms: Time from which on the link is in this state, ms since the epoch; None if unknown.
    """

    word: str
    text: str
    fix: str
    failover: str
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    position: int
    end: int
    lag: int
    seconds: float | None


class Window:
    """Looks at one link over the last `WINDOW_SECONDS`.  Not thread-safe."""

    def __init__(self) -> None:
        self._looks: deque[_Sample] = deque()
        # position and end of each partition at the last look
        self._offsets: dict[tuple[str, int], tuple[int, int]] = {}
        self._rewound = ""
        # lanes that Spark has not begun -> time since which
        self._unbegun: dict[int, float] = {}
        self._word, self._since_ms = "", 0

    def judge(self, view: LinkView, now: float, wall_ms: int | None = None) -> Verdict:
        """
        Adds a look and returns the verdict.

        Args:
            view: The link.
            now: Monotonic seconds.
            wall_ms: Wall clock; None if the time of a change is of no interest.
        """
        self._add(view, now)
        word, text, fix = self._judged(view, now)
        since_ms = _since_ms(view, word, wall_ms)
        if wall_ms is not None and word != self._word:
            # what the first look finds has been so for an unknown time
            self._word, self._since_ms = word, wall_ms if self._word else 0
        return Verdict(word, text, fix, _failover(view), since_ms or self._since_ms or None)

    def _judged(self, view: LinkView, now: float) -> tuple[str, str, str]:
        status = view.status
        if status.state != "running":
            return _at_rest(view)
        if status.stopped:
            return _stopped(status)
        if status.away:
            return f"{status.away[0]} away", *_away(view)
        if self._rewound:
            # what a partition says of itself is more than that its log went back
            reason = next(((item.problem, item.fix) for item in status.partitions if item.problem), None)
            fix = "find out whether the source was restored or recreated: `eomirror status CONFIG`"
            return "rewound", *(reason or (self._rewound, fix))
        if waits := self._waiting_lanes(view, now):
            return waits
        if not status.problem and (silent := _silent(view)):
            return "stalled", *silent
        if status.problem or status.lag_records is None:
            return "unknown", *_unknown(view)
        if not any(not item.parked for item in status.partitions):
            return "ok", "it mirrors no topic yet", ""
        word, text, fix = self._trend(view)
        if line := slots_line(_all_lanes(view)):
            return word, f"{text}; {line}", fix or ADD_SLOTS
        return word, text, fix

    def _waiting_lanes(self, view: LinkView, now: float) -> tuple[str, str, str] | None:
        """Returns the verdict on lanes that Spark has not begun; None if it has begun all, or is about to."""
        waiting, every, told = _unbegun(view)
        self._unbegun = {lane: self._unbegun.get(lane, now) for lane in waiting}
        if not waiting:
            return None
        if len(waiting) == every:
            return "starting", f"it waits for Spark to begin {_lanes(waiting)}", ""
        longest = max(now - since for since in self._unbegun.values())
        if longest < _SLOT_SECONDS and not told:
            return None
        lent = sum(lane.lent for lane in _all_lanes(view))
        text = f"{waits_for_slot(waiting, every - len(waiting) - lent, every)} since {longest:.0f} s"
        return "stalled", text, ADD_SLOTS

    def _add(self, view: LinkView, now: float) -> None:
        status = view.status
        # what lanes hold on request neither stalls nor falls behind
        known = [
            item
            for item in status.partitions
            if item.lag_records is not None and not item.parked and not item.paused
        ]
        if status.lag_records is None or not known:
            return
        look = _Sample(
            now, sum(item.position for item in known), sum(item.source_lso or 0 for item in known),
            sum(item.lag_records or 0 for item in known),
            max((item.lag_seconds for item in known if item.lag_seconds is not None), default=None),
        )  # fmt: skip
        before, self._offsets = (
            self._offsets,
            {(item.topic, item.partition): (item.position, item.source_lso or 0) for item in known},
        )
        # a topic that is paused, or left the link, has not gone back
        both = before.keys() & self._offsets.keys()
        position, end = (sum(self._offsets[each][one] - before[each][one] for each in both) for one in (0, 1))
        if position < 0 and end < 0:
            self._rewound = f"the source's log went back by {-end} offsets"
            self._looks.clear()
        elif position > 0:
            self._rewound = ""
        self._looks.append(look)
        # keep one look at or before the begin of the window
        while len(self._looks) > 1 and self._looks[1].at <= now - WINDOW_SECONDS:
            self._looks.popleft()

    def _trend(self, view: LinkView) -> tuple[str, str, str]:
        if held := _held_back(view):
            return held
        if not self._looks:
            return "ok", "caught up", ""
        first, last = self._looks[0], self._looks[-1]
        seconds, lag = last.at - first.at, last.lag
        if lag and (stood := self._stood()) >= _STALLED_SECONDS:
            text = (
                f"no record was mirrored for {stood:.0f} s, and {lag:,} {'is' if lag == 1 else 'are'} waiting"
            )
            return "stalled", text, "see the lanes of the link, and the log of the mirror"
        if not lag or seconds < _ENOUGH_SECONDS or not all(look.lag for look in self._looks):
            # a lag that comes and goes is the time between two commits
            return "ok", "keeps up" if any(look.lag for look in self._looks) else "caught up", ""
        if self._grows():
            text = f"the lag grew from {first.lag:,} to {last.lag:,} records in {seconds:.0f} s"
            return "behind", text, "add lanes, or see docs/troubleshoot.md: slow link"
        if last.seconds is not None and last.seconds < _CALM_SECONDS:
            return "ok", "keeps up", ""
        return "ok", f"{_records(lag)} behind, and catching up", ""

    def _stood(self) -> float:
        """Returns the seconds for which records have waited at the same position."""
        last = since = self._looks[-1]
        for look in reversed(self._looks):
            if not look.lag or look.position != last.position:
                break
            since = look
        return last.at - since.at

    def _grows(self) -> bool:
        first, last = self._looks[0], self._looks[-1]
        if first.seconds is not None and last.seconds is not None:
            return last.seconds - first.seconds > _GROWTH * (last.at - first.at)
        return last.lag > first.lag and all(
            after.lag >= before.lag for before, after in pairwise(self._looks)
        )


def _at_rest(view: LinkView) -> tuple[str, str, str]:
    """Returns the verdict on a link whose state says that no lane mirrors now."""
    status = view.status
    match status.state:
        case "unknown":
            word = "target away" if "target" in status.away else "unknown"
            return word, status.problem or "its topics cannot be read", status.fix
        case "promoted":
            text = "it was promoted: applications write to the target"
            return "promoted", text, "the way back: `eomirror readiness CONFIG --runbook`"
        case "handed back":
            return "handed back", "the link was handed back to another replicator", ""
        case "paused":
            text = "it is paused: lanes hold all topics at their positions"
            return "paused", text, f"`eomirror resume CONFIG --link '{status.link}'`"
        case "preparing":
            return "starting", "it reads the topics of both clusters", status.fix
        case "standby":
            return "starting", "it stands by: another mirror has the link", status.fix
        case "acquiring":
            return "starting", "it waits for the claim of the run before", status.fix
        case "waiting":
            return "starting", f"it waits for a cluster: {status.problem}", status.fix
        case _:
            return _down(view)


def _stopped(status: LinkStatus) -> tuple[str, str, str]:
    first = status.stopped[0]
    more = f" and {len(status.stopped) - 1} more" if len(status.stopped) > 1 else ""
    many = len({item.topic for item in status.partitions if not item.parked})
    of = f" ({len(status.stopped)} of {many})" if many > 1 else ""
    text = f"topic {first.topic}{more}{of} {'are' if more else 'is'} stopped: {first.reason}"
    return "stopped", text, first.fix


def _since_ms(view: LinkView, word: str, wall_ms: int | None) -> int | None:
    """Returns the time from which on a link is in a state, as far as its records tell it."""
    status, owner = view.status, view.status.owner
    if word == "stopped":
        return status.stopped[0].timestamp or None
    if word == "paused" and status.paused is not None:
        return status.paused.timestamp or None
    if word == "down":
        return None if owner is None else owner.claimed_at
    if word == "source away" and wall_ms is not None and status.source_seen_seconds is not None:
        return wall_ms - round(status.source_seen_seconds * 1000)
    return None


def _all_lanes(view: LinkView) -> Sequence[LaneStatus]:
    return tuple(view.status.lanes.values()) if view.live is None else view.live.lanes


def _unbegun(view: LinkView) -> tuple[list[int], int, bool]:
    """Returns the lanes that Spark has not begun in the owner's run, the number of all, and if the driver is sure."""
    if view.live is not None:
        lanes = view.live.lanes
        told = [lane.lane for lane in lanes if lane.state == "queued"]
        new = [
            lane.lane
            for lane in lanes
            if lane.state == "starting" and not (lane.serving.plane or lane.silent_seconds)
        ]
        return sorted([*told, *new]), len(lanes), bool(told)
    run = None if view.status.owner is None else view.status.owner.run
    claimed = view.status.lanes
    waiting = [number for number, lane in claimed.items() if run and (lane.run or run) != run]
    return sorted(waiting), len(claimed), False


def _lanes(numbers: list[int]) -> str:
    return f"lane{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _held_back(view: LinkView) -> tuple[str, str, str] | None:
    """Returns the verdict on records that a long transaction of the source holds back; None without one."""
    held = [item for item in view.status.partitions if item.open_records and not (item.parked or item.paused)]
    old = [item for item in held if (item.open_seconds or 0.0) >= _OPEN_SECONDS]
    if not old:
        return None
    longest = max(old, key=lambda item: item.open_seconds or 0.0)
    offsets = sum(item.open_records or 0 for item in held)
    where = f"{longest.topic}-{longest.partition} for {_duration(longest.open_seconds or 0.0)}"
    return (
        "behind",
        f"a transaction that is open on {where} holds back {offsets:,} offsets",
        "end its producer, or abort it: kafka-transactions.sh find-hanging, abort",
    )


def _away(view: LinkView) -> tuple[str, str]:
    """Returns reason and fix if a cluster does not answer."""
    status = view.status
    name = view.facts.source if status.away[0] == "source" else view.facts.target
    text = (
        f"cluster {name} is away: {status.problem}" if status.problem else f"cluster {name} does not answer"
    )
    return text, "; ".join(filter(None, [status.fix, _fail_over(view)]))


def _silent(view: LinkView) -> tuple[str, str] | None:
    """Returns reason and fix if a lane of this process's mirror has stopped reporting; None if all report."""
    lanes = () if view.live is None else view.live.lanes
    silent = [lane for lane in lanes if lane.silent_seconds >= _STALLED_SECONDS]
    if not silent:
        return None
    more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
    text = f"lane {silent[0].lane}{more} has not reported for {silent[0].silent_seconds:.0f} s"
    fix = "its process stands still or is cut off: eomirror events names its host and process id"
    if silent[0].silent_seconds >= _SLOT_SECONDS:
        # Spark begins a task that was lost with its executor again, and tells the driver nothing while it cannot
        text += f": {len(lanes) - len(silent)} of {len(lanes)} lanes run"
        fix += f"; if it was killed on a Spark cluster, its lane waits for a slot: {ADD_SLOTS}"
    return text, fix


def _unknown(view: LinkView) -> tuple[str, str]:
    """Returns reason and fix of a lag that is unknown."""
    status = view.status
    if status.problem:
        return status.problem, "; ".join(filter(None, [status.fix, _fail_over(view)]))
    troubled = [item for item in status.partitions if item.problem]
    if not troubled:
        unknown = sorted({item.topic for item in status.partitions if item.lag_records is None})
        where = f"topic {unknown[0]}" if unknown else "a topic"
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        return (
            f"the lag of {where}{more} is unknown{_why(view)}",
            status.fix or "see the lanes, and the log of the mirror",
        )
    more = f"; and {len(troubled) - 1} more partitions have a problem" if len(troubled) > 1 else ""
    return troubled[0].problem + more, troubled[0].fix


def _down(view: LinkView) -> tuple[str, str, str]:
    status = view.status
    mirror = f"its mirror{'' if status.owner is None else status.owner.process}"
    text = {
        "never ran": "the link never ran",
        "stopped": "its mirror was stopped",
        "silent": f"{mirror} does not renew its claim: it was killed, or its host is away",
        "failed": f"it failed: {status.problem}",
    }.get(status.state, f"it is {status.state}")
    if status.problem and status.problem not in text:
        text += f"; also: {status.problem}"
    if risk := retention_risk(status.retention):
        text += f"; {risk}"
    if status.state not in {"never ran", "stopped", "silent"}:
        return "down", text, status.fix
    return (
        "down",
        text,
        "; ".join(filter(None, ["start the mirror: `eomirror run CONFIG`", _fail_over(view)])),
    )


def _fail_over(view: LinkView) -> str:
    """Returns the action for a source that does not come back; empty while it answers."""
    away = view.status.problem if view.live is None else view.live.source_failing_seconds
    if not away or view.status.state == "never ran":
        return ""
    link = f"CONFIG --link '{view.facts.name}'"
    return (
        f"if {view.facts.source} is lost for good, see the loss, `eomirror readiness {link}`, and fail over: "
        f"`eomirror failover {link}`"
    )


def _failover(view: LinkView) -> str:
    status = view.status
    if status.state == "never ran":
        return "no: the link never ran, so there is no copy"
    if status.state == "unknown" or "target" in status.away:
        return f"not now: the topics of the link on {view.facts.target} cannot be read"
    # the last known ends are those of topics that lanes read
    more = ", and what stopped topics lack" if status.stopped and status.problem else ""
    # the one judgement of what a failover loses, which `eomirror readiness` prints as well
    found = assess(Facts.of_status(status), Verb.FAILOVER, force=True)
    if found.lost is None:
        return _part_of_loss(view)
    if (since := found.lost_age_seconds) is not None:
        least = f"at least {_records(found.lost)}, and " if found.lost else ""
        text = f"loses {least}what was written since the source was last read, {_duration(since)} ago"
        if guess := (status.last_rate or 0.0) * since:
            rate = rough(guess / since)
            text += f" (about {rough(guess)} records, if applications went on at {rate} records/s)"
        return text + more
    if not view.counts_open:
        return "unknown: what open transactions of the source hold back was not read yet"
    if not found.lost:
        return "loses what stopped topics lack, and nothing else" if more else "yes: nothing would be lost"
    seconds = "" if found.lost_seconds is None else f", {_duration(found.lost_seconds)}"
    return f"loses at most {_records(found.lost)}{seconds}{more}"


def _why(view: LinkView) -> str:
    """Returns why the running mirror does not know the lag, as an insertion in a sentence; may be empty."""
    live = view.live
    if live is None or live.lag_unknown:
        return "" if live is None else f": {live.lag_unknown}"
    age = live.source_age_seconds
    return f": {view.facts.source} has not answered the driver {'yet' if age is None else f'for {age:.0f} s'}"


def _part_of_loss(view: LinkView) -> str:
    """Returns what a failover would lose if that is unknown for the source or for some topics."""
    status = view.status
    if status.problem:
        return f"unknown: the source, {view.facts.source}, does not answer"
    mirrored = [item for item in status.partitions if not item.parked and not item.gone]
    unknown = sorted({item.topic for item in mirrored if item.lag_records is None})
    if not unknown:
        return "unknown: topics are left out, or the source has not been asked yet"
    named = f"topic {unknown[0]}" + (f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else "")
    others = sum(item.lag_records or 0 for item in mirrored)
    return f"unknown for {named}; of the others it loses at most {_records(others)}"


def _records(number: int) -> str:
    return f"{number:,} record{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < _MINUTES_FROM:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
