"""States the facts of a link in words, for the page of all links and for its own. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from markupsafe import Markup

from eomirror.metrics.verdict import NO_ACTION
from eomirror.records.promotion import standing_fence
from eomirror.serve.markup import age, count, fix, html, joined, link_path, many, seconds, time, word

if TYPE_CHECKING:
    from eomirror.serve.body import Judged
    from eomirror.status.model import OwnerStatus

__all__ = [
    "HOUR_MS",
    "failover",
    "host",
    "lag",
    "last_commit",
    "link_facts",
    "old",
    "rate",
    "since",
    "topics",
]

HOUR_MS = 3_600_000
# a read that is older is told, because the page shows it as the present
_OLD_SECONDS = 20.0
# a shorter lag comes and goes with each transaction
_CALM_SECONDS = 5.0
# states in which the owner renews its claim
_ALIVE = {"standby", "preparing", "waiting", "acquiring", "running", "paused", "stopping"}


def old(link: Judged) -> Markup:
    """Returns a banner if the values are not those of the moment; empty if they are."""
    if (kept := link.view.kept_seconds) is not None:
        shown = (
            "Events, gaps, groups and comparisons were"
            if link.view.live is not None
            else "What is shown here was"
        )
        told = html(
            "The topics of the link on {} cannot be read now. {} read {} ago.",
            link.facts.target, shown, seconds(kept + link.age_seconds),
        )  # fmt: skip
        if before := link.before:
            told += html(" The link was then {} {}", word(before.word), before.text)
    elif link.age_seconds > _OLD_SECONDS:
        told = html("This is old: the link was last read {} ago.", seconds(link.age_seconds))
    else:
        return Markup()
    return html('<p class="banner">{}</p>', told)


def since(link: Judged, wall_ms: int) -> Markup:
    """Returns the time from which on a link has had its verdict; empty if it needs no action or that is unknown."""
    if link.verdict.word in NO_ACTION or not link.verdict.since_ms:
        return Markup()
    return html(' <span class="soft">since</span> {}', age(link.verdict.since_ms, wall_ms))


def failover(link: Judged) -> Markup:
    """Returns what a failover would lose, with the way to its checks."""
    return html('{} <a href="{}">Readiness</a>', link.verdict.failover, link_path(link, "readiness"))


def lag(link: Judged, wall_ms: int) -> Markup:
    """Returns the lag of a link, what open transactions hold back behind it, and since when it is a problem."""
    if link.status.ended:
        return html("none: the link no longer mirrors")
    if link.status.lag_records == 0 and link.held_back:
        return html("0 records, and {} behind open transactions", many(link.held_back, "offset"))
    if (seen := link.status.source_seen_seconds) is not None and (lost := link.status.known_lost) is not None:
        then = f"at least {many(lost, 'record')};" if lost else "unknown; no record was waiting when"
        return html("{} the source was last read, {} ago", then, seconds(seen))
    if link.status.lag_records is None:
        unknown, all_topics = link.unknown_topics, link.topics
        if not all_topics or unknown == all_topics:
            return html("unknown")
        rest = f"{many(link.known_lag_records, 'record')} in the others"
        return html("unknown for {} of {} topics; {}", count(unknown), count(all_topics), rest)
    if not link.status.lag_records:
        return html("0 records: caught up")
    shown, behind = many(link.status.lag_records, "record"), link.status.lag_seconds
    if behind is None:
        return html("{}, for an unknown time", shown)
    if behind < _CALM_SECONDS:
        return html("{}, less than {:.0f} s", shown, _CALM_SECONDS)
    if link.verdict.word in NO_ACTION:
        # it catches up, so the time of its begin would be another one at each look
        return html("{}, {}", shown, seconds(behind))
    return html("{}, {}: behind since {}", shown, seconds(behind), time(wall_ms - behind * 1000))


def rate(link: Judged) -> str:
    """Returns the rate of a link."""
    return "unknown" if link.status.unread else f"{count(link.status.rate)} records/s"


def last_commit(link: Judged, wall_ms: int) -> Markup | str:
    """Returns the time of the last commit."""
    return age(link.last_commit, wall_ms) if link.last_commit else "unknown"


def topics(link: Judged) -> str:
    """Returns the number of topics, and of those that are stopped."""
    if link.status.unread and not link.topics:
        return "unknown"
    stopped = len(link.status.stopped)
    return count(link.topics) + (f", {count(stopped)} stopped" if stopped else "")


def host(link: Judged) -> str:
    """Returns host and process of the owner, and if it is alive."""
    owner = link.status.owner
    if owner is None or not owner.run:
        return "unknown" if link.status.unread else "none"
    shown = _process(owner)
    if link.status.unread:
        return f"{shown}, as far as known"
    if owner.released:
        return f"{shown}, which released it"
    if link.status.state == "silent":
        return f"{shown}: does not renew its claim"
    return f"{shown}: alive" if link.status.state in _ALIVE else shown


def _process(owner: OwnerStatus) -> str:
    return f"{owner.host}, process {owner.pid}" if owner.host else "this process"


def link_facts(link: Judged, wall_ms: int) -> list[tuple[str, object]]:
    """Returns names and values of what a reader asks first."""
    listed: list[tuple[str, object]] = [
        ("safe to fail over", failover(link)),
        ("lag", lag(link, wall_ms) + _worst(link)),
        ("rate", rate(link)),
        ("changed in the last hour", _changed(link, wall_ms)),
        ("last commit", last_commit(link, wall_ms)),
        ("verified", _verified(link, wall_ms)),
        ("owner", _owner(link, wall_ms)),
        ("state", link.status.state),
        ("from, to", html("{} → {}, names: {}", link.facts.source, link.facts.target, link.facts.naming)),
    ]
    if link.status.remark:
        listed.append(("note", link.status.remark))
    if link.status.standbys:
        listed.insert(7, ("stands by", _standbys(link, wall_ms)))
    if (fence := link.status.fence) is not None:
        what, advice = standing_fence(link.name, fence)
        listed.insert(0, ("fence", html("{} {}{}", word("warn"), what, fix(advice))))
    if (tail := link.status.tail) is not None:
        told = html(
            "{} the last {} offsets of each partition, before {}, {}",
            word(tail.outcome), count(tail.tail), tail.command, age(tail.timestamp, wall_ms),
        )  # fmt: skip
        listed.append(("compared at the cut", told))
    if (drill := link.status.drill) is not None:
        # a drill that failed measured nothing
        failed = f"failed at {drill.stage}: {drill.problem}" if drill.stage else "failed"
        outcome = f"passed, {seconds(drill.rto_seconds)} to promote" if drill.passed else failed
        advice = "" if drill.passed else "repeat it, and see its stage: eomirror drill --report FILE"
        listed.append(("last drill", html("{}, {}{}", outcome, age(drill.timestamp, wall_ms), fix(advice))))
    if (comparison := link.status.comparison) is not None and (comparison.problems or comparison.changed_at):
        problems = "; ".join(f"{what}: {why}" for what, why in sorted(comparison.problems.items()))
        changed = age(comparison.changed_at, wall_ms) if comparison.changed_at else "never"
        told = html("{} {}", word("warn"), problems) if problems else Markup()
        listed.append(("target kept alike", html("last change {} {}", changed, told)))
    if (refused := link.status.refused_configuration) is not None:
        told = html("{} {}, {}", word("warn"), refused.reason, age(refused.timestamp, wall_ms))
        listed.append(("refused configuration", told))
    if link.status.clock_offset_seconds:
        listed.append(("clocks", f"the owner's differs by {seconds(abs(link.status.clock_offset_seconds))}"))
    return listed


def _worst(link: Judged) -> Markup:
    """Returns the topic that lags most, if there are several."""
    rows = link.topic_rows
    if len(rows) < 2 or not rows[0].lag_records:  # noqa: PLR2004  one topic is the link
        return Markup()
    topic, records = rows[0].topic, many(rows[0].lag_records or 0, "record")
    path = link_path(link, "topics", topic)
    return html('<br><span class="soft">most in <a href="{}">{}</a>: {}</span>', path, topic, records)


def _changed(link: Judged, wall_ms: int) -> Markup | str:
    recent = [event for event in link.events if event.at >= wall_ms - HOUR_MS]
    if not recent:
        return "unknown" if link.status.unread else "nothing"
    number = many(len(recent), "event")
    return html('<a href="#events">{}</a>, the newest: {}', number, recent[0].text)


def _standbys(link: Judged, wall_ms: int) -> Markup:
    """Returns the processes that take the link when its owner is gone."""
    shown = (
        html("{}, process {}, {}", one.host, one.pid, age(one.since, wall_ms)) for one in link.status.standbys
    )
    return Markup("; ").join(shown)


def _owner(link: Judged, wall_ms: int) -> Markup | str:
    owner = link.status.owner
    if owner is None or not owner.run:
        return "unknown" if link.status.unread else "none"
    shown = html("{}", _process(owner))
    try:
        # the first 48 bits of a run's id are its start
        began = int(owner.run[:12], 16)
    except ValueError:
        began = 0
    if 0 < began <= wall_ms:
        shown += html(", since {}", age(began, wall_ms))
    if owner.released:
        shown += html(", released since")
    elif link.status.state == "silent" and owner.claimed_at:
        shown += html(", claim last renewed {}", age(owner.claimed_at, wall_ms))
    elif owner.claim_age_seconds is not None:
        shown += html(", claim {} old", seconds(owner.claim_age_seconds // 5 * 5))
    generation = f", generation {link.status.generation}" if link.status.generation else ""
    return shown + html('<br><span class="soft">run {}{}</span>', owner.run, generation)


def _verified(link: Judged, wall_ms: int) -> Markup | str:
    found = [each.result for each in link.status.verifications]
    if not found and link.status.unread:
        return "unknown"
    if not found:
        return html("no comparison is recorded; compare: <code>eomirror verify CONFIG</code>")
    # a topic without records, or one that was created again, is equal to nothing
    empty = [each for each in found if each.outcome == "equal" and not each.offsets]
    worst = [each for each in found if each.outcome != "equal"]
    of = f"of {count(link.topics)} topics"
    told = [
        html("{} {} {}", word(str(outcome)), count(number), of)
        + (html(", {} first", worst[0].topic) if outcome == worst[0].outcome else "")
        for outcome, number in Counter(each.outcome for each in worst).items()
    ]
    if equal := len(found) - len(worst) - len(empty):
        told.append(html("{} {} {}", word("equal"), count(equal), of))
    if empty:
        told.append(html("{} had no records to compare, such as {}", count(len(empty)), empty[0].topic))
    if never := max(0, link.topics - len(found)):
        told.append(html("{} {} never compared", word("warn"), count(never)))
    oldest = min(each.timestamp for each in found)
    later = count(sum(each.unverified for each in link.status.verifications))
    told.append(
        html("the oldest comparison: {}; {} offsets were mirrored since", age(oldest, wall_ms), later)
    )
    return joined(told)
