"""
Decides if a link can fail over, and what would be lost. Pure.

Facts go in, a list of checks and one verdict come out.  A check is ``ok``, ``warn`` (the user must know) or ``no`` (a
planned command refuses).  A failover refuses only what would make the promotion itself wrong, because its source is
gone and waiting does not help.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from eomirror.errors import some
from eomirror.failover.group_moves import found_groups
from eomirror.failover.machine import Verb
from eomirror.records.promotion import standing_fence
from eomirror.status.lag import topic_state
from eomirror.status.model import ADD_SLOTS, slots_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eomirror.errors import MirrorError
    from eomirror.failover.group_moves import GroupMove
    from eomirror.records.promotion import Promotion
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.status.model import LinkStatus

__all__ = [
    "QUIET_SECONDS",
    "Check",
    "Facts",
    "Level",
    "Readiness",
    "TopicReadiness",
    "Verified",
    "assess",
    "rough",
    "with_refusal",
    "with_verified",
]

# a shorter lag comes and goes with each transaction
_OLD_LAG_SECONDS = 5.0

#: Seconds for which the source's ends must stand still before a planned promotion.
QUIET_SECONDS: Final = 0.5


class Level(enum.StrEnum):
    """Result of one check."""

    OK = "ok"
    WARN = "warn"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Check:
    """
    A precondition with its number.

    Attributes:
        name: Name of the check, such as ``lag``.
        level: Result.
        text: The number, or the reason.
        fix: Recommended action; empty if there is none.
    """

    name: str
    level: Level
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """
    A comparison of source and copies up to the positions.

    Attributes:
        seconds: Its duration.
        scope: Compared records, in words.
        problem: Differences; empty for none.
    """

    seconds: float
    scope: str
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """
    Facts about a link, as both clusters report them.

    Reason for its size: one field for each fact, so that a check names what it reads.

    Attributes:
        status: Status of the link from its topics.
        promotion: Promotion in force; None for none.
        source_answers: True if the source was read.
        groups: Groups with their resume offsets on the target.
        groups_problem: Reason that groups could not be read; empty if they could.
        open_transactions: Source partitions whose last stable offset is before their end, with both.
        held: Those of them in which the same transaction was open at a second look, as texts; None without one.
        open_producers: Topic and partition of these -> producer of the open transaction, where brokers tell it.
        leaderless: Partitions of copies without a leader, as texts.
        silent_seconds: Time since the newest commit of the link; None if it never committed.
        under_replicated: Partitions of copies with a replica that is not in sync, as texts.
        drifts: Settings that are not as the link wants them, as texts; a text if that could not be found out; None if
            the source was not asked.
        last_pause_ms: Milliseconds that the last planned promotion took behind its verification; None for none.
        verified: Result of a comparison of source and copies; None if none was made.
        known_lost: Offsets up to the ends of the source that are not mirrored, also in partitions without a position;
            without the source up to its last known ends.  None if unknown.
        seen_seconds: Without the source: age of these ends; None if unknown.
        now_ms: Wall clock.
        whole: False if only the status was read: groups and leaders are unknown, and have no check.
        uncut: Source partitions with records that the mirror has not begun or leaves out, as texts; without the source
            as far as known; None without a look.
        uncounted: True if one of these has no leader, so that nothing tells how many it holds.
        moving: Source partitions whose end moved between two looks, as texts; None without them.
        fence: What the fence of the command would do, in words; None without one.
        fence_problem: Reason that it cannot be set; empty for none.
        fence_fix: Recommended action for it.
        unfollowed: Share and streams groups of the source that match the link's `groups`; None if it was not asked.
        follows: True if the link follows groups.
        covered: Patterns of its `groups` that match nothing, in a sentence; empty for none.
        torn_copies: Copies that are not what their positions say, by source partition as text.
        no_checkpoints: True if it writes no checkpoints of them, because it guards against its link back.
    """

    status: LinkStatus
    promotion: Promotion | None = None
    source_answers: bool = True
    covered: str = ""
    groups: tuple[GroupMove, ...] = ()
    groups_problem: str = ""
    open_transactions: tuple[tuple[str, int, int, int], ...] = ()
    open_producers: Mapping[tuple[str, int], str] = field(default_factory=dict)
    held: tuple[str, ...] | None = None
    leaderless: tuple[str, ...] = ()
    silent_seconds: float | None = None
    under_replicated: tuple[str, ...] = ()
    drifts: tuple[str, ...] | str | None = None
    last_pause_ms: int | None = None
    verified: Verified | None = None
    known_lost: int | None = None
    seen_seconds: float | None = None
    now_ms: int = 0
    whole: bool = True
    uncut: tuple[str, ...] | None = None
    uncounted: bool = False
    moving: tuple[str, ...] | None = None
    fence: str | None = None
    fence_problem: str = ""
    fence_fix: str = ""
    unfollowed: tuple[str, ...] | None = None
    follows: bool = True
    torn_copies: Mapping[str, CopyEnd] = field(default_factory=dict)
    no_checkpoints: bool = False

    @classmethod
    def of_status(cls, status: LinkStatus) -> Facts:
        """Returns the facts that the status of a link holds, for metrics and page."""
        # the problem of a running mirror may be that its target is away
        answers = status.state != "unknown" and (not status.problem or status.away == ("target",))
        opened = tuple(
            (item.topic, item.partition, item.source_lso, item.source_lso + item.open_records)
            for item in status.partitions
            if item.open_records and item.source_lso is not None and not item.parked
        )
        lag = status.lag_records
        return cls(
            status=status,
            source_answers=answers,
            open_transactions=opened,
            known_lost=status.known_lost
            if not answers or lag is None
            else lag + sum(end - stable for _, _, stable, end in opened),
            seen_seconds=status.source_seen_seconds,
            whole=False,
        )

    @property
    def lost(self) -> int | None:
        """Offsets that a failover would leave behind; None if unknown."""
        if not self.source_answers:
            return None if self.seen_seconds is None else self.known_lost
        # Only the cuts know what copies lack.
        return (
            self.status.lag_records if self.known_lost is None and not self.torn_copies else self.known_lost
        )

    @property
    def lost_seconds(self) -> float | None:
        """Age of the oldest of them; None if unknown."""
        if not self.source_answers or self.status.lag_seconds is None or self.uncut:
            return None
        ages = [item.open_seconds for item in self.status.partitions if item.open_records and not item.parked]
        return None if None in ages else max([self.status.lag_seconds, *(age or 0.0 for age in ages)])

    @property
    def at_least(self) -> bool:
        """True if more may be lost than is known: of topics that are stopped or left out, or that have no leader."""
        return bool(self.status.stopped or self.uncounted) or (
            self.source_answers
            and any(item.problem and item.lag_records is None for item in self.status.partitions)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReadiness:
    """
    One topic.

    Attributes:
        topic: Source topic.
        target: Its copy.
        partitions: Partitions with a position.
        lag_records: Source offsets that are not mirrored (markers count); None if unknown.
        lag_seconds: Age of the oldest of these records; None if unknown.
        state: See `eomirror.status.lag.topic_state`.
        problem: Reason that it is not mirrored; empty if it is.
    """

    topic: str
    target: str
    partitions: int
    lag_records: int | None
    lag_seconds: float | None
    state: str
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """
    Verdict on one link.

    Attributes:
        verb: Command that the verdict is for.
        ready: True if that command would start.
        verdict: ``READY``, ``READY WITH LOSS n`` (n may be ``at least n``), ``NOT READY``, or ``READY, LOSS NOT KNOWN``
            with what is known and an estimate of what was written since the source was last read.
        lost: Source offsets that a failover at this moment would leave behind: up to the ends of the logs, also in
            partitions without a position; None if unknown.  Without the source it counts up to the last known ends.
        at_least: True if more may be lost than ``lost``, of topics that are stopped or left out.
        lost_age_seconds: Without the source: age of these ends; what was written since is not counted.  Else None.
        lost_seconds: The same in seconds; None if unknown.
        checks: All checks.
        topics: One per topic.
        groups: Groups and partitions.
        source_answers: True if the source was read.
    """

    link: str
    verb: str
    ready: bool
    verdict: str
    lost: int | None
    lost_seconds: float | None
    lost_age_seconds: float | None = field(default=None, kw_only=True)
    at_least: bool = False
    checks: tuple[Check, ...]
    topics: tuple[TopicReadiness, ...] = ()
    groups: tuple[GroupMove, ...] = field(default=(), repr=False)
    source_answers: bool = True

    @property
    def refusals(self) -> list[Check]:
        """Checks that do not hold; of a link that is promoted, or never ran, that alone, since nothing else helps."""
        refused = [check for check in self.checks if check.level is Level.NO]
        return [check for check in refused if check.name == "link"] or refused

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {**asdict(replace(self, groups=())), "groups": [move.as_dict() for move in self.groups]}


def assess(facts: Facts, verb: Verb, *, force: bool = False) -> Readiness:
    """
    Returns the verdict on a link.

    Args:
        facts: Facts about it.
        verb: The command that is wanted; `Verb.FAILOVER` for the question what a disaster would cost.
        force: Fail over although the source answers.
    """
    # metrics ask at every scrape, for the checks alone
    topics = _topics(facts.status) if facts.whole else ()
    checks = [_link(facts), _claim(facts), _pause(facts, verb), _source(facts, verb, force=force)]
    # A link that never ran has nothing to look at.
    if facts.status.state != "never ran":
        checks += [
            _lag(facts, verb),
            _stopped(facts, verb),
            _gaps(facts),
            _foreign(facts),
            _standing_fence(facts),
            _open(facts, verb),
            _hanging(facts),
            *_planned(facts, verb),
            *(check(facts, verb) for check in (_WHOLE_CHECKS if facts.whole else ())),
        ]
        if facts.whole and facts.source_answers:
            checks.append(_write_pause(facts))
    ready = not any(check.level is Level.NO for check in checks)
    age = None if facts.source_answers else facts.seen_seconds
    lost = facts.lost
    at_least = facts.at_least and lost is not None
    disaster = verb is Verb.FAILOVER
    return Readiness(
        link=facts.status.link,
        verb=verb.value,
        ready=ready,
        verdict=_verdict(
            ready, lost if disaster else 0, age, at_least=at_least and disaster, rate=facts.status.last_rate
        ),
        lost=lost,
        at_least=at_least,
        lost_age_seconds=None if lost is None else age,
        lost_seconds=facts.lost_seconds,
        checks=tuple(checks),
        topics=topics,
        groups=facts.groups,
        source_answers=facts.source_answers,
    )


def with_verified(readiness: Readiness, found: Verified) -> Readiness:
    """Returns a verdict with the comparison that the command itself has made behind it."""
    check = _compared(found)
    return replace(
        readiness, checks=tuple(check if each.name == check.name else each for each in readiness.checks)
    )


def with_refusal(readiness: Readiness, name: str, error: MirrorError) -> Readiness:
    """Returns a verdict with one more check, which refuses."""
    check = Check(name, Level.NO, error.message, error.fix)
    return replace(readiness, ready=False, verdict="NOT READY", checks=(*readiness.checks, check))


def _verdict(
    ready: bool,  # noqa: FBT001  private, named at the call
    lost: int | None,
    age: float | None,
    *,
    at_least: bool,
    rate: float | None,
) -> str:
    if not ready:
        return "NOT READY"
    if lost is None:
        return "READY, LOSS NOT KNOWN"
    known = f"{'at least ' if at_least else ''}{lost}"
    if age is not None:
        since = f"what was written in the last {age:.0f} s"
        if rate is not None:
            since = f"about {rough(rate * age)} written in the last {age:.0f} s ({rough(rate)}/s)"
        return f"READY, LOSS NOT KNOWN: {known} known + {since}"
    return "READY" if lost == 0 and not at_least else f"READY WITH LOSS {known}"


def rough(value: float) -> str:
    """Returns a number with two digits that count: more of an estimate would look like knowledge."""
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"  # noqa: PLR2004  two digits


def _topics(status: LinkStatus) -> tuple[TopicReadiness, ...]:
    stopped = {stop.topic: stop.reason for stop in status.stopped}
    names: dict[str, list[Any]] = {}
    for partition in status.partitions:
        names.setdefault(partition.topic, []).append(partition)
    found = []
    for topic, every in names.items():
        # What the source has no more is named only if all of the topic is.
        parts = [part for part in every if not part.gone] or every
        lags = [part.lag_records for part in parts]
        ages = [part.lag_seconds for part in parts]
        state = topic_state(every)
        if topic in stopped and state != "gone":
            state = "stopped"
        problem = stopped.get(topic) or next((part.problem for part in parts if part.problem), "")
        if state == "gone":
            problem = ""
        found.append(
            TopicReadiness(
                topic=topic,
                target=parts[0].target_topic,
                partitions=len(every),
                lag_records=None if None in lags else sum(lags),
                lag_seconds=None if None in ages else max(ages),
                state=state,
                problem=problem,
            )
        )
    return tuple(found)


def _link(facts: Facts) -> Check:
    state = facts.status.state
    if facts.promotion is not None or state == "promoted":
        which = facts.promotion
        text = state if which is None else f"promoted already ({which.kind}, number {which.number})"
        return Check(
            "link", Level.NO, text, f"see `eomirror history CONFIG --link {quote(facts.status.link)}`"
        )
    if state == "unknown" or "target" in facts.status.away:
        return Check("link", Level.NO, "its topics cannot be read", facts.status.fix)
    if state in {"never ran", "handed back"}:
        return Check("link", Level.NO, state, "compare the name of the link with that of the run")
    return Check("link", Level.OK, "silent: its mirror does not run" if state == "silent" else state)


def _claim(facts: Facts) -> Check:
    owner = facts.status.owner
    if owner is None:
        return Check("claim", Level.OK, "free")
    held = f"held by {owner.host or '?'}, generation {facts.status.generation}"
    if facts.status.state not in {"running", "paused"}:
        return Check("claim", Level.OK, f"free: no mirror renews it; last {held}")
    if line := slots_line(facts.status.lanes.values()):
        return Check("claim", Level.WARN, f"{held}; {line}", ADD_SLOTS)
    return Check("claim", Level.OK, held)


def _pause(facts: Facts, verb: Verb) -> Check:
    pause = facts.status.paused
    if pause is None:
        return Check("pause", Level.OK, "none")
    text = f"lanes hold topics {pause.pattern}"
    # A failover takes what is there; a planned command would wait for what is held.
    level = Level.WARN if verb is Verb.FAILOVER else Level.NO
    return Check("pause", level, text, f"`eomirror resume CONFIG --link {quote(facts.status.link)}`")


def _source(facts: Facts, verb: Verb, *, force: bool) -> Check:
    if facts.source_answers:
        if verb is Verb.FAILOVER and not force:
            return Check(
                "source",
                Level.NO,
                "answers",
                "`eomirror cutover` or `eomirror promote` lose nothing; to fail over all the same: --force",
            )
        return Check("source", Level.OK, "answers")
    if verb is Verb.FAILOVER:
        return Check("source", Level.OK, "does not answer: a failover does not ask it")
    return Check(
        "source", Level.NO, "does not answer", "wait for it, or `eomirror failover` with the stated loss"
    )


def _lag(facts: Facts, verb: Verb) -> Check:
    lag, seconds = facts.status.lag_records, facts.status.lag_seconds
    if not facts.source_answers or lag is None:
        since = facts.silent_seconds
        age = "never" if since is None else f"{since:.0f} s ago"
        text = f"unknown: the source does not answer, last commit {age}"
        if facts.known_lost is not None and not facts.source_answers:
            seen = facts.seen_seconds
            ends = "last known ends, whose time is not known" if seen is None else f"ends of {seen:.0f} s ago"
            text = (
                f"{facts.known_lost} offsets up to the source's {ends}; what was written since is not known; last "
                f"commit {age}"
            )
        if facts.source_answers:
            text = "unknown: a partition cannot be compared with its source"
        return Check("lag", Level.WARN, text)
    text = f"{lag} offsets" + ("" if seconds is None else f", {seconds:.3f} s")
    # A running mirror drains it; a stopped one does not.
    if verb is not Verb.FAILOVER and lag and facts.status.state != "running":
        return Check("lag", Level.NO, text, "run the mirror until it has caught up: `eomirror run CONFIG`")
    if seconds is not None and seconds >= _OLD_LAG_SECONDS:
        waits = "a failover loses them" if verb is Verb.FAILOVER else "the command waits for them"
        fix = f"{waits}; `eomirror top CONFIG --link {quote(facts.status.link)}` shows if the link catches up"
        return Check("lag", Level.WARN, text, fix)
    return Check("lag", Level.OK, text)


def _stopped(facts: Facts, verb: Verb) -> Check:
    parts = facts.status.partitions
    gone = sorted(
        {item.topic for item in parts if item.gone} - {item.topic for item in parts if not item.gone}
    )
    names = sorted(
        {item.topic for item in parts if item.problem and not item.gone}
        | ({stop.topic for stop in facts.status.stopped} - set(gone))
    )
    if not names:
        text = f"0; {len(gone)} gone on the source, their copies stay: {some(gone)}" if gone else "0"
        return Check("stopped topics", Level.OK, text)
    level = Level.WARN if verb is Verb.FAILOVER else Level.NO
    return Check(
        "stopped topics", level, f"{len(names)}: {some(names)}", "`eomirror status CONFIG` has the reasons"
    )


def _gaps(facts: Facts) -> Check:
    gaps = facts.status.gaps
    if not gaps:
        return Check("gaps", Level.OK, "0")
    names = [f"{gap.topic}-{gap.partition} [{gap.start}, {gap.end})" for gap in gaps]
    return Check("gaps", Level.WARN, f"{len(gaps)} accepted: {some(names)}")


def _foreign(facts: Facts) -> Check:
    found = facts.status.foreign
    if not found:
        return Check("foreign records", Level.OK, "0")
    names = [f"{one.target_topic}-{one.partition} [{one.start}, {one.end})" for one in found]
    return Check(
        "foreign records",
        Level.WARN,
        f"other producers have written behind the link in {len(names)} copies: {some(names)}",
        "stop them: what they wrote stays on this side until the link in the other direction brings it over, which "
        "begins with it after a promotion and `eomirror reverse`",
    )


def _standing_fence(facts: Facts) -> Check:
    if facts.status.fence is None:
        return Check("standing fence", Level.OK, "none")
    return Check("standing fence", Level.WARN, *standing_fence(facts.status.link, facts.status.fence))


def _open(facts: Facts, verb: Verb) -> Check:
    if not facts.source_answers:
        text = "not known without the source; what they hold back is part of the loss"
        return Check("open transactions", Level.WARN, text)
    if not facts.open_transactions:
        return Check("open transactions", Level.OK, "0")
    names = [
        f"{topic}-{number} from {stable}"
        + (f" ({who})" if (who := facts.open_producers.get((topic, number))) else "")
        for topic, number, stable, _ in facts.open_transactions
    ]
    # A fence ends the transactions of applications that live: a cutover is refused for one that stays.
    stays = verb is Verb.PROMOTE or (verb is Verb.CUTOVER and bool(facts.held))
    held = sum(end - stable for _, _, stable, end in facts.open_transactions)
    return Check(
        "open transactions",
        Level.NO if stays else Level.WARN,
        f"{len(names)}: {some(names)}; they hold back {held} offsets",
        "end the producers, or abort: kafka-transactions.sh find-hanging, abort",
    )


def _planned(facts: Facts, verb: Verb) -> Iterator[Check]:
    """Yields the checks of what a planned command decides on while it drains, as far as they were read."""
    if facts.uncut is not None:
        text = f"{len(facts.uncut)}" + ("" if facts.source_answers else " known of without the source")
        level = Level.OK
        if facts.uncut:
            # A running mirror finds them within seconds, and the command waits.
            waits = verb is Verb.FAILOVER or facts.status.state == "running"
            level = Level.WARN if waits else Level.NO
            text += f" hold records that the mirror has not begun: {some(facts.uncut)}"
        fix = (
            "run the mirror: `eomirror run CONFIG`; `eomirror status CONFIG` names topics that it leaves out"
        )
        yield Check("new partitions", level, text, fix if facts.source_answers else "")
    if facts.moving is not None:
        fenced = verb is Verb.CUTOVER and facts.fence is not None
        text = "the source stands still"
        if facts.moving:
            text = f"records arrive in {len(facts.moving)} partitions: {some(facts.moving)}"
            text += (
                "; the fence stops them" if fenced else f"; the command waits for {QUIET_SECONDS:g} s without"
            )
        level = Level.WARN if facts.moving and not fenced else Level.OK
        yield Check("silence", level, text, "stop the producers before the command, or within its --patience")
    if facts.fence_problem:
        yield Check("fence", Level.NO, facts.fence_problem, facts.fence_fix or "choose another --method")
    elif facts.fence is not None:
        yield Check("fence", Level.OK, facts.fence)


def _hanging(facts: Facts) -> Check:
    if not facts.status.hanging:
        return Check("hanging on the target", Level.OK, "0")
    text = f"{len(facts.status.hanging)}; those of the link are ended"
    return Check("hanging on the target", Level.WARN, text, "`eomirror status CONFIG` names them")


def _leaders(facts: Facts, _: Verb) -> Check:
    if not facts.leaderless:
        return Check("target leaders", Level.OK, "all")
    text = f"no leader: {some(facts.leaderless)}"
    return Check("target leaders", Level.NO, text, "start the brokers that hold their replicas")


def _groups(facts: Facts, verb: Verb) -> Check:
    warned, text, fix = found_groups(facts, verb)
    return Check("groups", Level.WARN if warned else Level.OK, text, fix)


def _share_groups(facts: Facts, _: Verb) -> Check:
    if facts.unfollowed is None:
        return Check("share groups", Level.WARN, "not known without the source")
    if not facts.unfollowed:
        return Check("share groups", Level.OK, "0")
    return Check(
        "share groups",
        Level.WARN,
        f"{len(facts.unfollowed)} share or streams groups are not moved: {some(facts.unfollowed)}",
        "docs/disaster-recovery.md, Share groups: read their start offsets before the switch, set them after it",
    )


def _copies(facts: Facts, verb: Verb) -> Check:
    if not facts.torn_copies:
        return Check("copies", Level.OK, "end where their positions say")
    names = [
        f"{source} goes on from {copy.offset}: {copy.problem}"
        if copy.proven
        else f"{source} may lack any number of records: {copy.problem}"
        for source, copy in sorted(facts.torn_copies.items())
    ]
    level = Level.WARN if verb is Verb.FAILOVER else Level.NO
    fix = "`eomirror run CONFIG` stops these topics, and names the ways on"
    if verb is Verb.FAILOVER:
        fix = "what they lack counts as lost, and `eomirror restore` finds it on the source"
    return Check("copies", level, f"{len(names)} lack acknowledged records: {some(names)}", fix)


def _in_sync(facts: Facts, _: Verb) -> Check:
    if not facts.under_replicated:
        return Check("target replicas", Level.OK, "in sync")
    return Check(
        "target replicas",
        Level.WARN,
        f"{len(facts.under_replicated)} not in sync: {some(facts.under_replicated)}",
        "start the brokers that hold them: another failure would lose records of the target",
    )


def _settings(facts: Facts, _: Verb) -> Check:
    if facts.drifts is None:
        return Check("settings", Level.WARN, "not compared without the source")
    if isinstance(facts.drifts, str):
        return Check("settings", Level.WARN, f"not known: {facts.drifts}")
    if not facts.drifts:
        return Check("settings", Level.OK, "as on the source")
    return Check(
        "settings",
        Level.WARN,
        f"{len(facts.drifts)} differ: {some(facts.drifts)}",
        "`eomirror plan CONFIG` shows all, `eomirror apply CONFIG` sets those of the link",
    )


def _verified(facts: Facts, _: Verb) -> Check:
    found = facts.verified
    return _verified_before(facts) if found is None else _compared(found)


def _compared(found: Verified) -> Check:
    if found.problem:
        return Check("verified", Level.NO, found.problem, "`eomirror verify CONFIG` shows the differences")
    return Check("verified", Level.OK, f"{found.scope} up to now, 0 differences, in {found.seconds:.1f} s")


def _verified_before(facts: Facts) -> Check:
    """The last comparison of each topic, as `eomirror verify` has recorded it."""
    compared = {one.result.topic: one.result for one in facts.status.verifications}
    topics = {part.topic for part in facts.status.partitions if not part.parked and not part.gone}
    missing = sorted(topics - compared.keys())
    differ = sorted(topic for topic, one in compared.items() if one.outcome != "equal")
    fix = "`eomirror verify CONFIG`, or --verify tail" if facts.source_answers else ""
    if differ:
        return Check("verified", Level.WARN, f"not equal when last compared: {some(differ)}", fix)
    if missing:
        return Check(
            "verified",
            Level.WARN,
            f"no comparison is recorded of {len(missing)} topics: {some(missing)}",
            fix,
        )
    if not compared:
        return Check("verified", Level.OK, "nothing to compare")
    age = max(0, facts.now_ms - min(one.timestamp for one in compared.values())) / 1000
    since = sum(one.unverified for one in facts.status.verifications)
    # `verify --since` and --from-offset; what stands before was compared by an earlier one at best
    part = sum(bool(one.from_offset or one.since) for one in compared.values())
    text = f"up to {age:.0f} s ago, 0 differences, {since} offsets were mirrored since"
    return Check("verified", Level.OK, text + (f"; only a part of {part} topics" if part else ""), fix)


def _write_pause(facts: Facts) -> Check:
    """The time for which a planned command stops applications, from durations that were measured."""
    parts = [f"{QUIET_SECONDS:g} s of silence"]
    seconds = QUIET_SECONDS
    if facts.verified is not None and not facts.verified.problem:
        parts.append(f"verification {facts.verified.seconds:.1f} s")
        seconds += facts.verified.seconds
    if facts.last_pause_ms is not None:
        parts.append(f"steps {facts.last_pause_ms / 1000:.1f} s, as the last time")
        seconds += facts.last_pause_ms / 1000
    whole = len(parts) == 3  # noqa: PLR2004  all of them
    text = f"{'about' if whole else 'at least'} {seconds:.1f} s: {', '.join(parts)}"
    return Check("write pause", Level.OK, text)


# those that need more than the status of the link
_WHOLE_CHECKS = (_leaders, _copies, _in_sync, _settings, _groups, _share_groups, _verified)
