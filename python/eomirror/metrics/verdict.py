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
from eomirror.failover.readiness import Facts, assess
from eomirror.status.live import owner_process
from eomirror.status.retention import retention_risk

if TYPE_CHECKING:
    from eomirror.status.live import LinkView

__all__ = ["VERDICTS", "Verdict", "Window"]

#: All verdicts, best first.
VERDICTS = ("ok", "promoted", "paused", "behind", "unknown", "down", "stalled", "stopped", "rewound")

#: Seconds of looks that decide.
WINDOW_SECONDS = 60.0
# Of the time that passed: a lag that grows more slowly is noise, such as the time between reading position and end.
_GROWTH = 0.1
# a shorter series of looks says nothing about a trend
_ENOUGH_SECONDS = 20.0
# A lane that works commits several times a second.  With a look every 3 s, a stall is told within 15 s.
_STALLED_SECONDS = 8.0
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
    """

    word: str
    text: str
    fix: str
    failover: str


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    position: int
    end: int
    lag: int
    seconds: float | None


class Window:
    """Looks at one link over the last `WINDOW_SECONDS`.  Not thread-safe."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()
        self._rewound = ""

    def judge(self, view: LinkView, now: float) -> Verdict:
        """
        Adds a look and returns the verdict.

        Args:
            view: The link.
            now: Monotonic seconds.
        """
        status = view.status
        self._add(view, now)
        failover = _failover(view)
        if status.state == "unknown":
            return Verdict("unknown", status.problem or "its topics cannot be read", status.fix, failover)
        if status.state == "promoted":
            text = "it was promoted: applications write to the target"
            return Verdict("promoted", text, "the way back: `eomirror failback CONFIG`", "it has happened")
        if status.state == "paused":
            text = "it is paused: lanes hold all topics at their positions"
            return Verdict("paused", text, f"`eomirror resume CONFIG --link '{status.link}'`", failover)
        if status.state not in {"running", "preparing", "acquiring"}:
            return Verdict(*_down(view), failover)
        if self._rewound:
            fix = "find out whether the source was restored or recreated: `eomirror status CONFIG`"
            return Verdict("rewound", self._rewound, fix, failover)
        if status.stopped:
            first = status.stopped[0]
            more = f" and {len(status.stopped) - 1} more" if len(status.stopped) > 1 else ""
            many = len({item.topic for item in status.partitions if not item.parked})
            verb = "are" if more else "is"
            of = f" ({len(status.stopped)} of {many})" if many > 1 else ""
            text = f"topic {first['topic']}{more}{of} {verb} stopped: {first['reason']}"
            return Verdict("stopped", text, first["fix"], failover)
        if not status.problem and (silent := _silent(view)):
            return Verdict("stalled", *silent, failover)
        if status.problem or status.lag_records is None:
            return Verdict("unknown", *_unknown(view), failover)
        if not any(not item.parked for item in status.partitions):
            return Verdict("ok", "it mirrors no topic yet", "", failover)
        return Verdict(*self._trend(), failover)

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
        look = _Look(
            now, sum(item.position for item in known), sum(item.source_lso or 0 for item in known),
            sum(item.lag_records or 0 for item in known),
            max((item.lag_seconds for item in known if item.lag_seconds is not None), default=None),
        )  # fmt: skip
        before = self._looks[-1] if self._looks else None
        if before is not None and look.position < before.position and look.end < before.end:
            self._rewound = f"the source's log went back by {before.end - look.end} offsets"
            self._looks.clear()
        elif before is not None and look.position > before.position:
            self._rewound = ""
        self._looks.append(look)
        # keep one look at or before the begin of the window
        while len(self._looks) > 1 and self._looks[1].at <= now - WINDOW_SECONDS:
            self._looks.popleft()

    def _trend(self) -> tuple[str, str, str]:
        if not self._looks:
            return "ok", "caught up", ""
        first, last = self._looks[0], self._looks[-1]
        seconds, lag = last.at - first.at, last.lag
        if lag and (stood := self._stood()) >= _STALLED_SECONDS:
            text = f"no record was mirrored for {stood:.0f} s, and {lag:,} are waiting"
            return "stalled", text, "see the lanes of the link, and the log of the mirror"
        if not lag or seconds < _ENOUGH_SECONDS or not all(look.lag for look in self._looks):
            return "ok", f"{lag:,} records behind" if lag else "caught up", ""
        if self._grows():
            text = f"the lag grew from {first.lag:,} to {last.lag:,} records in {seconds:.0f} s"
            return "behind", text, "add lanes, or see docs/troubleshoot.md: slow link"
        return "ok", f"{lag:,} records behind, and catching up", ""

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


def _silent(view: LinkView) -> tuple[str, str] | None:
    """Returns reason and fix if a lane of this process's mirror has stopped reporting; None if all report."""
    lanes = () if view.live is None else view.live.lanes
    silent = [lane for lane in lanes if lane.silent_seconds >= _STALLED_SECONDS]
    if not silent:
        return None
    more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
    text = f"lane {silent[0].lane}{more} has not reported for {silent[0].silent_seconds:.0f} s"
    return text, "its process stands still or is cut off: eomirror events names its host and process id"


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
    mirror = f"its mirror{owner_process(status.owner)}"
    text = {
        "never ran": "the link never ran",
        "stopped": "its mirror was stopped",
        "silent": f"{mirror} does not renew its claim: it was killed, or its host is away",
        "handed back": "the link was handed back to another replicator",
        "waiting": f"it waits for a cluster: {status.problem}",
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
    if status.state == "unknown":
        return f"not now: the topics of the link on {view.facts.target} cannot be read"
    # the lag of a running mirror, and the last known ends, are those of topics that it mirrors; else it is that of all
    partial = view.live is not None or bool(status.problem)
    more = ", and what stopped topics lack" if status.stopped and partial else ""
    # the one judgement of what a failover loses, which `eomirror readiness` prints as well
    found = assess(Facts.of_status(status), Verb.FAILOVER, force=True)
    if found.lost is None:
        return _part_of_loss(view)
    if (since := found.lost_age_seconds) is not None:
        least = f"at least {found.lost:,} records, and " if found.lost else ""
        text = f"loses {least}what was written since the source was last read, {_duration(since)} ago"
        if guess := (status.last_rate or 0.0) * since:
            rate = _rough(guess / since)
            text += f" (about {_rough(guess)} records, if applications went on at {rate} records/s)"
        return text + more
    if not found.lost:
        return "loses what stopped topics lack, and nothing else" if more else "yes: nothing would be lost"
    seconds = "" if found.lost_seconds is None else f", {_duration(found.lost_seconds)}"
    return f"loses at most {found.lost:,} records{seconds}{more}"


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
    return f"unknown for {named}; of the others it loses at most {others:,} records"


def _rough(value: float) -> str:
    """Returns a number with two digits that count."""
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"  # noqa: PLR2004  two digits


def _duration(seconds: float) -> str:
    if seconds < _MINUTES_FROM:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
