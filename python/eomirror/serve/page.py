"""
Draws the page of one link from its body in the API, and the page of a message. Pure.

A page is whole without scripts, and then refreshes itself.  `page.js` replaces what changed, so that scroll position,
focus, selection and opened parts stay.  The page loads nothing from other servers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from eomirror.records.events import RECENT_TAKE_OVER_MS, TAKE_OVER
from eomirror.serve.chart import charts
from eomirror.serve.link_facts import HOUR_MS, link_facts, old, since, unread
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
from eomirror.status.live import ASKED_SECONDS
from eomirror.status.retention import RETENTION_FIX, retention_text, risky_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def tabs(link: Mapping[str, Any], here: str | None) -> list[tuple[str, str, bool]]:
    """Returns path, name and True for the one that is shown, of the pages about a link; ``here`` is that one."""
    pages = [("", "Link"), ("readiness", "Readiness"), ("groups", "Groups"), ("offset", "Find an offset")]
    return [(link_path(link, *filter(None, [part])), title, part == here) for part, title in pages]


def link_page(link: Mapping[str, Any], question: Mapping[str, str], *, version: str, wall_ms: int) -> str:
    """
    Returns the page of one link.

    Args:
        link: Its body.
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
        _retention(link),
        _gaps(link, wall_ms),
        lines(link["history"], wall_ms),
        _take_overs(link, wall_ms),
        _events(link, wall_ms),
        _groups(link, wall_ms),
        *topics_section(link, question),
        _verifications(link, wall_ms),
        _speed(link),
        _lanes(link, wall_ms),
    ]
    return drawn(
        "sections.html", title=f"{link['verdict']}: {link['link']}", heading=name(link["link"]), top=top,
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


def verdict(link: Mapping[str, Any], wall_ms: int) -> Markup:
    """Returns the verdict on a link, with its reason, its time and what to do."""
    told = word(link["verdict"]), link["reason"], since(link, wall_ms), fix(link["fix"])
    return html('<p class="verdict">{} {}{}{}</p>', *told)


def lines(history: Mapping[str, Any] | None, wall_ms: int) -> Section | None:
    """Returns the lines of a link or topic; None if none of its values is known."""
    found = charts(history, wall_ms) if history else []
    return Section("lines", "Last hour and day", macro("charts", found)) if found else None


def _problems(link: Mapping[str, Any]) -> Section | None:
    topics = {row["topic"] for row in link["topic_rows"]}

    def topic(of: str) -> Markup | str:
        return html('<a href="{}">{}</a>', link_path(link, "topics", of), of) if of in topics else of

    rows: list[tuple[object, ...]] = [
        (
            topic(stop["topic"]),
            html("{}{}", stop["reason"], fix(stop["fix"])),
            time(stop["at"]) if stop.get("at") else "-",
        )
        for stop in link["stopped"]
    ]
    rows += [("target", html("{}{}", each["problem"], fix(each["fix"])), "-") for each in link["hanging"]]
    rows += [("state topic", each, "-") for each in link["drifted"]]
    rows += [
        (
            "copy",
            html(
                "other producers have written behind the link: {}-{} [{}, {})",
                *(each[key] for key in ("target_topic", "partition", "from", "to")),
            ),
            "-",
        )
        for each in link.get("foreign") or ()
    ]
    stopped = {stop["topic"] for stop in link["stopped"]}
    rows += [
        (topic(row["topic"]), html("{}{}", row["problem"], fix(row["fix"])), "-")
        for row in link["topic_rows"]
        if row["problem"] and row["topic"] not in stopped
    ]
    if not rows:
        return None
    more = len(rows) - _MOST_PROBLEMS
    before = html('<p class="soft">{} more are not shown</p>', count(more)) if more > 0 else Markup()
    heads = ("where", "what, and what to do", "~since")
    return section("Problems", heads, rows[:_MOST_PROBLEMS], key="problems", before=before)


def _take_overs(link: Mapping[str, Any], wall_ms: int) -> Section | None:
    """Returns the owners that took the link in the last minutes: the metric of the alert counts the same."""
    rows = [
        (age(event["at"], wall_ms), event["text"])
        for event in link["events"]
        if event["kind"] == TAKE_OVER and event["at"] >= wall_ms - RECENT_TAKE_OVER_MS
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


def _open(link: Mapping[str, Any], wall_ms: int) -> Section | None:
    """Returns the open transactions of the source, which hide what follows from consumers and from the lag."""
    rows = [
        (
            partition(each["topic"], each["partition"]),
            count(each["from"]),
            count(each["offsets"]),
            age(wall_ms - each["seconds"] * 1000, wall_ms),
        )
        for each in link.get("open_transactions") or []
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


def _speed(link: Mapping[str, Any]) -> Section:
    """Returns the times of source, target and transactions: which of them is slow."""
    answers = {end: _answers(link, end) for end in ("source", "target")}
    listed: list[tuple[str, object]] = [(f"{end}, {link[end]}", html("{}", answers[end])) for end in answers]
    listed.append(
        ("network", "part of both times: if both are long, look at the network of this process first")
    )
    if (work := link.get("work")) is not None:
        heard = work["source_age_seconds"]
        each = f"{seconds(work['transaction_seconds'])} each on average"
        listed += [
            ("lanes heard the source", "not yet" if heard is None else f"{seconds(heard // 5 * 5)} ago"),
            ("last commit on the target", f"took {seconds(work['commit_seconds'])}"),
            ("transactions", f"{count(work['transactions'])} committed, {each}"),
            ("source to target", _latency(work["latency_seconds"])),
            ("quotas of brokers", f"throttled for {seconds(work['throttled_seconds'])}"),
        ]
    fast = all(_fast(link, end) for end in answers)
    summary = "no: both answer fast" if fast else ""
    return Section("speed", "Is a cluster slow?", macro("facts", listed), folded=fast, summary=summary)


def _latency(mean: float | None) -> str:
    if mean is None:
        return "not measured yet: what was mirrored is older than its lane, or nothing was"
    return f"{seconds(mean)} on average, by the timestamps of records that are younger than their lane"


def _fast(link: Mapping[str, Any], end: str) -> bool:
    took = link.get(f"{end}_seconds")
    return took is not None and took <= _SLOW_SECONDS


def _answers(link: Mapping[str, Any], end: str) -> Markup | str:
    took = link.get(f"{end}_seconds")
    if took is not None:
        return html("{} answers in {}", word("fast" if _fast(link, end) else "slow"), _about(took))
    if end == "target" and (unread(link) or link["kept_seconds"] is not None):
        return (
            "does not answer"
            if "target" in link["away"]
            else "answers, but the topics of the link cannot be read"
        )
    heard = (link["work"] or {}).get("source_age_seconds") if end == "source" else None
    if heard is not None and heard <= ASKED_SECONDS:
        return f"answers: lanes heard it {seconds(heard // 5 * 5)} ago"
    if end == "source" and unread(link):
        return "unknown while the topics of the link cannot be read"
    return "does not answer" if link["problem"] else "not asked yet"


def _about(took: float) -> str:
    """Returns a duration in steps, so that the page changes only if it matters."""
    if took <= _STEPS[0]:
        return f"less than {seconds(_STEPS[0])}"
    for low, high in pairwise(_STEPS):
        if took <= high:
            return f"{seconds(low)} to {seconds(high)}"
    return seconds(took)


def _verifications(link: Mapping[str, Any], wall_ms: int) -> Section | None:
    found = sorted(link.get("verifications") or [], key=lambda each: (each["outcome"] == "equal", each["at"]))
    rows = [
        (
            each["topic"],
            joined(filter(None, [_outcome(each), _soft(each["problem"]), _soft(_partly(each))])),
            count(each["offsets"]),
            count(each["unverified"]),
            age(each["at"], wall_ms),
        )
        for each in found[:_MOST_SHOWN]
    ]
    if not rows:
        return None
    equal = sum(each["outcome"] == "equal" for each in found)
    told = f"{many(len(found), 'topic')}, {len(rows)} shown: differences first, then the oldest"
    return section(
        "Verification", ("topic", "result", "#offsets compared", "#mirrored since", "~compared at"), rows,
        key="verification", before=html('<p class="soft">{}</p>', told), folded=equal == len(found),
        summary=f"{many(equal, 'topic')} equal",
    )  # fmt: skip


def _outcome(each: Mapping[str, Any]) -> Markup:
    compared = each["offsets"] or each["outcome"] != "equal"
    differences = "".join(f", {count(number)} {kind}" for kind, number in each["differences"].items())
    return html("{}{}", word(each["outcome"]) if compared else "no records to compare", differences)


def _partly(each: Mapping[str, Any]) -> str:
    return "only a part" if each.get("from_offset") or each.get("since") else ""


def _soft(told: str) -> Markup:
    return html('<span class="soft">{}</span>', told) if told else Markup()


def _worker(lane: Mapping[str, Any], wall_ms: int) -> Markup:
    """Returns the state of a lane, which only the running driver knows, and the worker that took it last."""
    took = html(", since {}", age(lane["since"], wall_ms)) if lane.get("since") else ""
    where = html("{}, process {}{}", lane["host"], lane["pid"], took) if lane.get("host") else ""
    return joined(filter(None, [lane.get("state") or "", where]), ": ") or Markup("-")


def _lanes(link: Mapping[str, Any], wall_ms: int) -> Section | None:
    restarts = {each["lane"]: each for each in link.get("restarts") or []}
    rows, troubled = [], 0
    for lane in link["lanes"]:
        again = restarts.get(lane["lane"])
        told = [lane.get("delayed") or lane["plane_reason"] or ""]
        if again is not None:
            told.append(html("last: {}, {}", again["reason"], age(again["at"], wall_ms)))
        troubled += again is not None or bool(lane.get("delayed"))
        rows.append((
            lane["lane"],
            _worker(lane, wall_ms),
            lane["plane"] or "-",
            count(0 if again is None else again["count"]),
            joined(filter(None, told)) or "-",
        ))  # fmt: skip
    if not rows:
        return None
    heads = ("#lane", "worker", "plane", "#restarts", "reason")
    summary = f"{many(len(rows), 'lane')}, none was restarted"
    return section("Lanes", heads, rows, key="lanes", folded=not troubled, summary=summary)


def _groups(link: Mapping[str, Any], wall_ms: int) -> Section | None:
    groups = link["groups"]
    if groups is None:
        return None
    rows = [
        (
            group["group"], count(group.get("lag_records")), count(group["offsets"]),
            age(group["last_checkpoint"], wall_ms),
        )
        for group in sorted(groups["by_group"], key=lambda group: -(group.get("lag_records") or 0))[:_MOST_SHOWN]
    ]  # fmt: skip
    before = html(
        '<p class="soft">{} followed, {} shown, those with most lag first. '
        '<a href="{}">What each group would read again</a></p>',
        f"{many(groups['followed'], 'group')} {'is' if groups['followed'] == 1 else 'are'}", len(rows),
        link_path(link, "groups"),
    )  # fmt: skip
    heads = ("group", "#lag, offsets", "#checkpoints", "~newest checkpoint")
    return section("Consumer groups", heads, rows, key="groups", before=before)


def _retention(link: Mapping[str, Any]) -> Section | None:
    """Returns the topics whose records the source may delete before they are mirrored."""
    rows = [
        (partition(row["topic"], row["partition"]), retention_text(row), f"{row['used']:.0%}")
        for row in risky_rows(link["retention"])
    ]
    if not rows:
        return None
    before = html("<p>Retention of the source is near to records that wait.{}</p>", fix(RETENTION_FIX))
    heads = ("partition", "what", "#retention used")
    return section("Records that the source may delete", heads, rows[:ROWS], key="retention", before=before)


def _gaps(link: Mapping[str, Any], wall_ms: int) -> Section | None:
    rows = [
        (
            age(gap["at"], wall_ms),
            partition(gap["topic"], gap["partition"]),
            f"[{gap['from']}, {gap['to']})",
        )
        for gap in link["gaps"]
    ]
    if not rows:
        return None
    advice = "keep records on the source for longer than the mirror may stand, or set on_gap: stop"
    before = html(
        "<p>The source lost these records before they were mirrored; the copy lacks them.{}</p>", fix(advice)
    )
    return section("Accepted gaps", ("~time", "partition", "lost offsets"), rows, key="gaps", before=before)


def _dead_letters(link: Mapping[str, Any]) -> Section | None:
    rows = [(each["topic"], count(each["records"])) for each in link["dead_letters"]]
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


def _events(link: Mapping[str, Any], wall_ms: int) -> Section:
    rows = [
        (age(event["at"], wall_ms), event["kind"], event["text"]) for event in link["events"][:_MOST_EVENTS]
    ]
    recent = sum(event["at"] >= wall_ms - HOUR_MS for event in link["events"])
    more = max(0, len(link["events"]) - len(rows))
    older = html("; {} older ones: <code>eomirror events CONFIG</code>", count(more)) if more else ""
    told = html("{} in the last hour{}", count(recent), older) if rows else "none are known here"
    before = html('<p class="soft">{}</p>', told)
    heads = ("~time", "~event", "what")
    return section("What changed, newest first", heads, rows, key="events", before=before)
