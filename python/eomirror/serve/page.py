"""
Draws the page of one link, and the page of a message. Pure.

A page is whole without scripts, and then refreshes itself.  `page.js` replaces what changed, so that scroll position,
focus, selection and opened parts stay.  The page loads nothing from other servers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from eomirror.records.events import RECENT_TAKE_OVER_MS, TAKE_OVER
from eomirror.records.position import QUERY_RULE
from eomirror.serve.chart import charts
from eomirror.serve.link_facts import HOUR_MS, link_facts, old, since
from eomirror.serve.markup import (
    Section,
    age,
    count,
    drawn,
    fix,
    html,
    joined,
    link_path,
    macro,
    many,
    name,
    partition,
    seconds,
    section,
    time,
    word,
)
from eomirror.serve.topics_table import topics_section
from eomirror.status.model import rule_counts
from eomirror.status.retention import RETENTION_FIX, retention_text, risky_rows
from eomirror.status.snapshot import ASKED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.reports import Verification
    from eomirror.serve.body import Judged
    from eomirror.serve.history import Lines
    from eomirror.status.model import LaneStatus

__all__ = ["ROWS", "link_page", "message_page", "tabs"]

#: Rows of one page of groups.
ROWS = 200

_MOST_PROBLEMS = 50
# rows of tables above those that a reader searches
_MOST_SHOWN = 20
_MOST_EVENTS = 50
# one request about topics; a broker that works answers in milliseconds
_SLOW_SECONDS = 0.3
_STEPS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def tabs(link: Judged, here: str | None) -> list[tuple[str, str, bool]]:
    """Returns path, name and True for the one that is shown, of the pages about a link; ``here`` is that one."""
    pages = [("", "Link"), ("readiness", "Readiness"), ("groups", "Groups"), ("offset", "Find an offset")]
    return [(link_path(link, *filter(None, [part])), title, part == here) for part, title in pages]


def link_page(
    link: Judged, history: Lines, question: Mapping[str, str], *, version: str, wall_ms: int
) -> str:
    """
    Returns the page of one link.

    Args:
        link: The link.
        history: Its lines.
        question: Query of the request, which filters and sorts topics (`eomirror.serve.topics_table`).
        version: Release of eomirror.
        wall_ms: Time of the data, in ms.
    """
    facts = macro("facts", link_facts(link, wall_ms))
    top = html(
        '<section id="verdict">{}{}</section><section id="facts">{}</section>',
        verdict(link, wall_ms), old(link), facts,
    )  # fmt: skip
    parts = [
        _problems(link),
        _open(link, wall_ms),
        _dead_letters(link),
        _rules(link),
        _retention(link),
        _gaps(link, wall_ms),
        lines(history, wall_ms),
        _take_overs(link, wall_ms),
        _events(link, wall_ms),
        _groups(link, wall_ms),
        *topics_section(link, question),
        _verifications(link, wall_ms),
        _speed(link),
        _lanes(link, wall_ms),
    ]
    return drawn(
        "sections.html", title=f"{link.verdict.word}: {link.name}", heading=name(link.name), top=top,
        parts=[part for part in parts if part is not None], listed=True, version=version, wall_ms=wall_ms,
        tabs=tabs(link, ""), every=3,
    )  # fmt: skip


def message_page(title: str, message: str, *, version: str, wall_ms: int) -> str:
    """Returns a page with one message."""
    top = html('<p>{}</p><p><a href="/">All links</a></p>', message)
    return drawn(
        "sections.html", title=title, heading=title, top=top, parts=(), listed=False, version=version,
        wall_ms=wall_ms, tabs=(), every=0,
    )  # fmt: skip


def verdict(link: Judged, wall_ms: int) -> Markup:
    """Returns the verdict on a link, with its reason, its time and what to do."""
    told = word(link.verdict.word), link.verdict.text, since(link, wall_ms), fix(link.verdict.fix)
    return html('<p class="verdict">{} {}{}{}</p>', *told)


def lines(history: Lines | None, wall_ms: int) -> Section | None:
    """Returns the lines of a link or topic; None if none of its values is known."""
    found = charts(history, wall_ms) if history else []
    return Section("lines", "Last hour and day", macro("charts", found)) if found else None


def _problems(link: Judged) -> Section | None:
    topics = {row.topic for row in link.topic_rows}

    def topic(of: str) -> Markup | str:
        return html('<a href="{}">{}</a>', link_path(link, "topics", of), of) if of in topics else of

    rows: list[tuple[object, ...]] = [
        (
            topic(stop.topic),
            html("{}{}", stop.reason, fix(stop.fix)),
            time(stop.timestamp) if stop.timestamp else "-",
        )
        for stop in link.status.stopped
    ]
    rows += [("target", html("{}{}", each.problem, fix(each.fix)), "-") for each in link.status.hanging]
    rows += [("state topic", each, "-") for each in link.status.drifted]
    rows += [
        (
            "copy",
            html(
                "other producers have written behind the link: {}-{} [{}, {})",
                each.target_topic,
                each.partition,
                each.start,
                each.end,
            ),
            "-",
        )
        for each in link.status.foreign
    ]
    stopped = {stop.topic for stop in link.status.stopped}
    rows += [
        (topic(row.topic), html("{}{}", row.problem, fix(row.fix)), "-")
        for row in link.topic_rows
        if row.problem and row.topic not in stopped
    ]
    if not rows:
        return None
    more = len(rows) - _MOST_PROBLEMS
    before = html('<p class="soft">{} more are not shown</p>', count(more)) if more > 0 else Markup()
    heads = ("where", "what, and what to do", "~since")
    return section("Problems", heads, rows[:_MOST_PROBLEMS], key="problems", before=before)


def _take_overs(link: Judged, wall_ms: int) -> Section | None:
    """Returns the owners that took the link in the last minutes: the metric of the alert counts the same."""
    rows = [
        (age(event.at, wall_ms), event.text)
        for event in link.events
        if event.kind == TAKE_OVER and event.at >= wall_ms - RECENT_TAKE_OVER_MS
    ]
    if not rows:
        return None
    advice = (
        "if the first one was killed, see its log for the reason; else two processes run the link: stop one"
    )
    before = html("<p>A mirror took the link from another one that had not released it.{}</p>", fix(advice))
    # one is a mirror that was killed and started again; two that run the link take it from each other
    once, summary = len(rows) == 1, "once in the last 15 minutes"
    return section(
        "Superseded", ("~time", "what"), rows, key="take-overs", before=before, folded=once, summary=summary
    )


def _open(link: Judged, wall_ms: int) -> Section | None:
    """Returns the open transactions of the source, which hide what follows from consumers and from the lag."""
    rows = [
        (
            partition(each.topic, each.partition),
            count(each.source_lso),
            count(each.open_records),
            age(wall_ms - (each.open_seconds or 0.0) * 1000, wall_ms),
        )
        for each in link.open_transactions
    ]
    if not rows:
        return None
    before = html(
        "<p>What follows an open transaction cannot be mirrored until it ends, and the lag does not count it.{}</p>",
        fix("end the producer, or abort: kafka-transactions.sh find-hanging, abort"),
    )
    heads = ("partition", "#from offset", "#offsets held back", "~open since")
    title = "Open transactions on the source"
    return section(title, heads, rows[:_MOST_PROBLEMS], key="open", before=before)


def _speed(link: Judged) -> Section:
    """Returns the times of source, target and transactions: which of them is slow."""
    answers = {end: _answers(link, end) for end in ("source", "target")}
    listed: list[tuple[str, object]] = [
        (f"{end}, {getattr(link.facts, end)}", html("{}", answers[end])) for end in answers
    ]
    listed.append(
        ("network", "part of both times: if both are long, look at the network of this process first")
    )
    if (work := link.work) is not None:
        heard = work.source_age_seconds
        each = f"{seconds(work.transaction_seconds)} each on average"
        listed += [
            ("lanes heard the source", "not yet" if heard is None else f"{seconds(heard // 5 * 5)} ago"),
            ("last commit on the target", f"took {seconds(work.commit_seconds)}"),
            ("transactions", f"{count(work.transactions)} committed, {each}"),
            ("source to target", _latency(work.latency_seconds)),
            ("quotas of brokers", f"throttled for {seconds(work.throttled_seconds)}"),
        ]
    fast = all(_fast(link, end) for end in answers)
    summary = "no: both answer fast" if fast else ""
    return Section("speed", "Is a cluster slow?", macro("facts", listed), folded=fast, summary=summary)


def _latency(mean: float | None) -> str:
    if mean is None:
        return "not measured yet: what was mirrored is older than its lane, or nothing was"
    return f"{seconds(mean)} on average, by the timestamps of records that are younger than their lane"


def _fast(link: Judged, end: str) -> bool:
    took: float | None = getattr(link.status, f"{end}_seconds")
    return took is not None and took <= _SLOW_SECONDS


def _answers(link: Judged, end: str) -> Markup | str:
    took: float | None = getattr(link.status, f"{end}_seconds")
    if took is not None:
        return html("{} answers in {}", word("fast" if _fast(link, end) else "slow"), _about(took))
    if end == "target" and (link.status.unread or link.view.kept_seconds is not None):
        return (
            "does not answer"
            if "target" in link.status.away
            else "answers, but the topics of the link cannot be read"
        )
    heard = link.work.source_age_seconds if link.work is not None and end == "source" else None
    if heard is not None and heard <= ASKED_SECONDS:
        return f"answers: lanes heard it {seconds(heard // 5 * 5)} ago"
    if end == "source" and link.status.unread:
        return "unknown while the topics of the link cannot be read"
    return "does not answer" if link.status.problem else "not asked yet"


def _about(took: float) -> str:
    """Returns a duration in steps, so that the page changes only if it matters."""
    if took <= _STEPS[0]:
        return f"less than {seconds(_STEPS[0])}"
    for low, high in pairwise(_STEPS):
        if took <= high:
            return f"{seconds(low)} to {seconds(high)}"
    return seconds(took)


def _verifications(link: Judged, wall_ms: int) -> Section | None:
    every = link.status.verifications
    found = sorted(every, key=lambda each: (each.result.outcome == "equal", each.result.timestamp))
    rows = [
        (
            each.topic,
            joined(filter(None, [_outcome(each), _soft(each.problem), _soft(_partly(each))])),
            count(each.offsets),
            count(one.unverified),
            age(each.timestamp, wall_ms),
        )
        for one in found[:_MOST_SHOWN]
        for each in [one.result]
    ]
    if not rows:
        return None
    equal = sum(each.result.outcome == "equal" for each in found)
    told = f"{many(len(found), 'topic')}, {len(rows)} shown: differences first, then the oldest"
    return section(
        "Verification", ("topic", "result", "#offsets compared", "#mirrored since", "~compared at"), rows,
        key="verification", before=html('<p class="soft">{}</p>', told), folded=equal == len(found),
        summary=f"{many(equal, 'topic')} equal",
    )  # fmt: skip


def _outcome(each: Verification) -> Markup:
    compared = each.offsets or each.outcome != "equal"
    differences = "".join(f", {count(number)} {kind}" for kind, number in each.differences.items())
    return html("{}{}", word(each.outcome) if compared else "no records to compare", differences)


def _partly(each: Verification) -> str:
    return "only a part" if each.from_offset or each.since else ""


def _soft(told: str) -> Markup:
    return html('<span class="soft">{}</span>', told) if told else Markup()


def _worker(lane: LaneStatus, wall_ms: int) -> Markup:
    """Returns the state of a lane, which only the running driver knows, and the worker that took it last."""
    took = html(", since {}", age(lane.since, wall_ms)) if lane.since else ""
    where = html("{}, process {}{}", lane.host, lane.pid, took) if lane.host else ""
    return joined(filter(None, [lane.state or "", where]), ": ") or Markup("-")


def _lanes(link: Judged, wall_ms: int) -> Section | None:
    restarts = {each.lane: each for each in link.status.restarts}
    rows, troubled = [], 0
    for number, lane in sorted(link.status.lanes.items()):
        again = restarts.get(number)
        told: list[Markup | str] = [lane.delayed or lane.serving.reason]
        if lane.lent or lane.state == "queued":
            told.append("it waits for a slot" + (": its partitions are lent" if lane.lent else ""))
        if again is not None:
            told.append(html("last: {}, {}", again.reason, age(again.timestamp, wall_ms)))
        troubled += len(told) > 1 or bool(lane.delayed)
        rows.append((
            number,
            _worker(lane, wall_ms),
            " ".join(filter(None, (lane.serving.plane, lane.serving.protocol))) or "-",
            count(0 if again is None else again.count),
            joined(filter(None, told)) or "-",
        ))  # fmt: skip
    if not rows:
        return None
    heads = ("#lane", "worker", "plane", "#restarts", "reason")
    summary = f"{many(len(rows), 'lane')}, none was restarted"
    return section("Lanes", heads, rows, key="lanes", folded=not troubled, summary=summary)


def _groups(link: Judged, wall_ms: int) -> Section | None:
    groups = link.status.groups
    if groups is None:
        return None
    rows = [
        (
            group.group, count(group.lag_records), count(group.offsets), age(group.last_checkpoint, wall_ms),
        )
        for group in sorted(groups.by_group, key=lambda group: -(group.lag_records or 0))[:_MOST_SHOWN]
    ]  # fmt: skip
    before = html(
        '<p class="soft">{} followed, {} shown, those with most lag first. '
        '<a href="{}">What each group would read again</a></p>',
        f"{many(groups.followed, 'group')} {'is' if groups.followed == 1 else 'are'}", len(rows),
        link_path(link, "groups"),
    )  # fmt: skip
    heads = ("group", "#lag, offsets", "#checkpoints", "~newest checkpoint")
    return section("Consumer groups", heads, rows, key="groups", before=before)


def _retention(link: Judged) -> Section | None:
    """Returns the topics whose records the source may delete before they are mirrored."""
    rows = [
        (partition(row.topic, row.partition), retention_text(row), f"{row.used:.0%}")
        for row in risky_rows(link.status.retention)
    ]
    if not rows:
        return None
    before = html("<p>Retention of the source is near to records that wait.{}</p>", fix(RETENTION_FIX))
    heads = ("partition", "what", "#retention used")
    return section("Records that the source may delete", heads, rows[:ROWS], key="retention", before=before)


def _gaps(link: Judged, wall_ms: int) -> Section | None:
    rows = [
        (
            age(gap.timestamp, wall_ms),
            partition(gap.topic, gap.partition),
            f"[{gap.start}, {gap.end})",
        )
        for gap in link.status.gaps
    ]
    if not rows:
        return None
    advice = "keep records on the source for longer than the mirror may stand, or set on_gap: stop"
    before = html(
        "<p>The source lost these records before they were mirrored; the copy lacks them.{}</p>", fix(advice)
    )
    return section("Accepted gaps", ("~time", "partition", "lost offsets"), rows, key="gaps", before=before)


def _rules(link: Judged) -> Section | None:
    rows = [
        (topic, rule, count(dropped), count(None if rule == QUERY_RULE else changed))
        for topic, rule, dropped, changed in rule_counts(link.status.partitions)
    ]
    if not rows:
        return None
    before = html(
        "<p>Since the link first ran; a rule's number is its place under <code>transform</code>.</p>"
    )
    return section(
        "Transform", ("topic", "rule", "#left out", "#changed"), rows[:ROWS], key="rules", before=before
    )


def _dead_letters(link: Judged) -> Section | None:
    rows = [(topic, count(records)) for topic, records in link.dead_letters.items()]
    if not rows:
        return None
    advice = (
        "raise the limit that each letter names on the target, or have the application write smaller records"
    )
    before = html(
        "<p>The target refused these records for their content; the copies lack them, and the link's dead-letter "
        "topic has them.{}</p>",
        fix(advice),
    )
    return section("Dead letters", ("topic", "#records"), rows[:ROWS], key="letters", before=before)


def _events(link: Judged, wall_ms: int) -> Section:
    rows = [(age(event.at, wall_ms), event.kind, event.text) for event in link.events[:_MOST_EVENTS]]
    recent = sum(event.at >= wall_ms - HOUR_MS for event in link.events)
    more = max(0, len(link.events) - len(rows))
    older = html("; {} older ones: <code>eomirror events CONFIG</code>", count(more)) if more else ""
    told = html("{} in the last hour{}", count(recent), older) if rows else "none are known here"
    before = html('<p class="soft">{}</p>', told)
    heads = ("~time", "~event", "what")
    return section("What changed, newest first", heads, rows, key="events", before=before)
