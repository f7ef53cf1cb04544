"""
Decides from its claim whether a link's owner is alive. Pure.

A claim carries the wall clock of the machine that wrote it, and the reader has another one.  A claim that looks
fresh is believed, since it also shows that both clocks agree.  A claim that looks old, or lies in the future, is
ambiguous: the owner may be dead, or a clock may be wrong (fault F34)::

    owner (a day slow)     reader
    renews at 12:00        its clock says 12:00 of the next day: a claim that looks a day old
    renews at 12:00:05     the claim moved while it was watched: the owner is alive, and its clock is a day slow

Such a claim is watched on the reader's own monotonic clock, for longer than the owner's interval, as by a mirror that
wants the link (EO-10, `eomirror.link.ownership.judge_claim`).  One case remains: an owner whose clock runs ahead, and
that dies, looks alive for as long as its last claim looks fresh.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.link.ownership import watch_seconds
from eomirror.records.events import LinkEvent, Outage

if TYPE_CHECKING:
    from eomirror.records.control import Claim
    from eomirror.status.live import LinkView

__all__ = ["Liveness", "StandingEvents", "judge_liveness"]

# A claim that is more renewals overdue than this is not fresh.
_SILENT_INTERVALS = 3
# A claim that is further in the future than this is not fresh.
_EARLY_INTERVALS = 1


@dataclass(frozen=True, slots=True)
class Liveness:
    """
    Liveness of an owner.

    Attributes:
        state: ``stopped`` (it released the link, or there was none), ``running``, or ``silent`` (its claim does not
            advance); empty if the claim has to be watched further.
        offset_ms: How far its clock is ahead of ours, if they are known to disagree; else 0.
    """

    state: str
    offset_ms: int = 0


def judge_liveness(
    first: Claim | None,
    latest: Claim | None,
    *,
    watched: float,
    now_ms: int,
    offset_ms: int = 0,
    dead: bool = False,
) -> Liveness:
    """
    Returns the liveness of a link's owner.

    Args:
        first: Claim at the beginning of the watch.
        latest: Newest claim.
        watched: Seconds between the two, on our own monotonic clock.
        now_ms: Our wall clock.
        offset_ms: How far the owner's clock was found to be ahead of ours before.
        dead: True if the claim's process is known to be dead.
    """
    if latest is None or latest.released:
        return Liveness("stopped")
    if dead:
        return Liveness("silent")
    age = now_ms + offset_ms - latest.timestamp
    if -_EARLY_INTERVALS * latest.interval_ms <= age <= _SILENT_INTERVALS * latest.interval_ms:
        return Liveness("running", offset_ms)
    if first is None or (first.run, first.sequence) != (latest.run, latest.sequence):
        return Liveness("running", latest.timestamp - now_ms)
    return Liveness("silent" if watched >= watch_seconds(latest.interval_ms / 1000) else "")


# one question that fails is no outage
_AWAY_SECONDS = 5.0
_WITHOUT_MIRROR = frozenset({"stopped", "silent"})


class StandingEvents:
    """
    Tracks since when clusters of one link are away, and its mirror is silent.  Not thread-safe.

    Attributes:
        unrecorded: Outages that are over and that no mirror records, because none ran when they ended.
    """

    def __init__(self) -> None:
        self.unrecorded: list[Outage] = []
        # cluster -> begin of its outage, ms since the epoch
        self._since: dict[str, int] = {}

    def look(self, view: LinkView, wall_ms: int) -> LinkView:
        """
        Takes a look at the link, and returns it with the events of what stands.

        Args:
            view: The link.
            wall_ms: Time of the look.
        """
        facts, status = view.facts, view.status
        unread = view.kept_seconds is not None or status.state == "unknown"
        live = view.live
        failing = (status.source_seen_seconds if live is None else live.source_failing_seconds) or 0.0
        away = {facts.target: wall_ms} if unread else {}
        if failing >= _AWAY_SECONDS or (view.live is None and "source" in status.away):
            away[facts.source] = wall_ms - round(failing * 1000)
        elif unread and facts.source in self._since:
            # what the target does not tell stays as it was
            away[facts.source] = wall_ms
        if live is None and status.owner is not None and status.state in _WITHOUT_MIRROR:
            self.unrecorded += [
                Outage(at=since, cluster=name, until=wall_ms)
                for name, since in self._since.items()
                if name not in away and wall_ms - since >= _AWAY_SECONDS * 1000
            ]
        self._since = {name: self._since.get(name, since) for name, since in away.items()}
        events = [
            LinkEvent(since, "outage", self._text(view, name, answers="target" not in status.away))
            for name, since in self._since.items()
        ]
        if status.state == "silent":
            owner = status.owner
            text = (
                f"the mirror{owner.process if owner else ''} stopped renewing its claim: it was killed, or its host is "
                "away"
            )
            events.append(LinkEvent((owner and owner.claimed_at) or wall_ms, "silent", text))
        if not events:
            return view
        found = sorted((*status.events, *events), key=lambda event: event.at)
        return replace(view, status=replace(status, events=tuple(found)))

    def _text(self, view: LinkView, name: str, *, answers: bool) -> str:
        if name == view.facts.target and answers:
            return f"the topics of the link on {name} cannot be read"
        return f"cluster {name} does not answer"
