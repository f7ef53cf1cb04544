"""
Draws the page of all links and the page of one from the bodies of the API. Pure.

A page is whole without scripts, and then refreshes itself.  `page.js` replaces what changed, so that scroll position,
focus and selection stay.  The page loads nothing from other servers.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from eomirror.metrics.verdict import NO_ACTION
from eomirror.records.events import RECENT_TAKE_OVER_MS, TAKE_OVER
from eomirror.serve.markup import (
    Number,
    Time,
    age,
    count,
    facts,
    fix,
    link_path,
    name,
    page,
    partition,
    seconds,
    section,
    text,
    time,
    word,
)
from eomirror.status.live import ASKED_SECONDS
from eomirror.status.retention import RETENTION_FIX, retention_text, risky_rows
from eomirror.status.standing_fence import standing_fence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ROWS", "link_page", "message_page", "overview_page", "tabs"]

#: Rows of one page of topics.
ROWS = 200

_HOUR_MS = 3_600_000
_SECTION = re.compile('<section id="(?P<key>[a-z]+)"><h2>(?P<title>[^<]+)</h2>')
# a read that is older is told, because the page shows it as the present
_OLD_SECONDS = 20.0
_MOST_PROBLEMS = 50
# rows of tables above those that a reader searches
_MOST_SHOWN = 20
_MOST_EVENTS = 50
# one request about topics; a broker that works answers in milliseconds
_SLOW_SECONDS = 0.3
# states in which the owner renews its claim
_ALIVE = {"preparing", "waiting", "acquiring", "running", "paused", "stopping"}
_STEPS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def overview_page(links: Sequence[Mapping[str, Any]], *, version: str, wall_ms: int) -> str:
    """Returns the page of all links; each is a summary of `eomirror.serve.body`."""
    cards = "".join(_card(link, wall_ms) for link in links)
    clusters = sorted({str(link[end]) for link in links for end in ("source", "target")})
    many = "link" if len(links) == 1 else "links"
    head = f"<h1>{count(len(links))} {many} between {count(len(clusters))} clusters</h1>"
    todo = "".join(
        f'<li><a href="{link_path(link)}">{name(link["link"])}</a>: {text(each["what"])}{fix(each["fix"])}</li>'
        for link in links
        for each in link["todo"]
    )
    text_ = "" if todo else "nothing: all links keep up"
    todo = (
        f'<ul>{todo}</ul><p class="soft">CONFIG is the file with the configuration of the link.</p>'
        if todo
        else ""
    )
    now = f'<section id="now"><h2>What to do now</h2>{todo or f"<p>{text_}</p>"}</section>'
    body = f'{head}{now if links else ""}<ul id="cards" class="cards">{cards or "<li>no link was read yet</li>"}</ul>'
    return page("links", body, version=version, wall_ms=wall_ms)


def tabs(link: Mapping[str, Any], here: str) -> list[tuple[str, str, bool]]:
    """Returns the pages about a link, for `page`; ``here`` is the one that is shown."""
    pages = [("", "Link"), ("readiness", "Readiness"), ("groups", "Groups"), ("offset", "Find an offset")]
    return [(link_path(link, *filter(None, [part])), title, part == here) for part, title in pages]


def link_page(
    link: Mapping[str, Any], *, version: str, wall_ms: int, wanted: str = "", number: int = 1
) -> str:
    """
    Returns the page of one link.

    Args:
        link: Its body.
        version: Release of eomirror.
        wall_ms: Time of the data, in ms.
        wanted: Show only topics whose names contain this text.
        number: Page of topics, from 1.
    """
    parts = [
        f"<h1>{name(link['link'])}</h1>",
        f'<section id="verdict">{_verdict(link)}{_old(link)}</section>',
        f'<section id="facts">{_facts(link, wall_ms)}</section>',
        _problems(link, wall_ms),
        _take_overs(link, wall_ms),
        _open(link, wall_ms),
        _dead_letters(link),
        _retention(link),
        _gaps(link, wall_ms),
        _speed(link),
        _topics(link, wanted, number),
        _events(link, wall_ms),
        _verifications(link, wall_ms),
        _groups(link, wall_ms),
        _lanes(link, wall_ms),
    ]
    parts.insert(1, _contents(parts))
    title = f"{link['verdict']}: {link['link']}"
    return page(title, "".join(parts), version=version, wall_ms=wall_ms, tabs=tabs(link, ""))


def message_page(title: str, message: str, *, version: str, wall_ms: int) -> str:
    """Returns a page with one message."""
    body = f"<h1>{text(title)}</h1><p>{text(message)}</p>"
    return page(title, body, version=version, wall_ms=wall_ms, every=0)


def _card(link: Mapping[str, Any], wall_ms: int) -> str:
    kind = text(link["verdict"].replace(" ", "-"))
    listed = [
        ("lag", _lag(link, wall_ms)),
        ("rate", _rate(link)),
        ("safe to fail over", _failover(link)),
        ("last commit", age(link["last_commit"], wall_ms) if link["last_commit"] else "unknown"),
        ("owner", _host(link)),
        (
            "topics",
            "unknown"
            if _unread(link) and not link["topics"]
            else f"{count(link['topics'])}, {count(link['stopped_topics'])} stopped",
        ),
        ("from, to", f"{text(link['source'])} → {text(link['target'])}"),
    ]
    return (
        f'<li class="card {kind}"><h2><a href="{link_path(link)}">{name(link["link"])}</a></h2>'
        f"{_short_verdict(link)}{_old(link)}{facts(listed)}</li>"
    )


def _short_verdict(link: Mapping[str, Any]) -> str:
    """Returns the verdict of a card; *What to do now* has the reason of one that needs an action."""
    reason = text(link["reason"]) if link["verdict"] in NO_ACTION else ""
    return f'<p class="verdict">{word(link["verdict"])} {reason}</p>'


def _verdict(link: Mapping[str, Any]) -> str:
    return f'<p class="verdict">{word(link["verdict"])} {text(link["reason"])}{fix(link["fix"])}</p>'


def _old(link: Mapping[str, Any]) -> str:
    """Returns a banner if the values are not those of the moment; empty if they are."""
    if (kept := link["kept_seconds"]) is not None:
        old = "Events, gaps, groups and comparisons were" if link.get("live") else "What is shown here was"
        told = (
            f"The topics of the link on {text(link['target'])} cannot be read now. {old} read "
            f"{seconds(kept + link['age_seconds'])} ago."
        )
        if before := link["before"]:
            told += f" The link was then {word(before['verdict'])} {text(before['reason'])}"
    elif link["age_seconds"] > _OLD_SECONDS:
        told = f"This is old: the link was last read {seconds(link['age_seconds'])} ago."
    else:
        return ""
    return f'<p class="banner">{told}</p>'


def _failover(link: Mapping[str, Any]) -> str:
    return f'{text(link["failover"])} <a href="{link_path(link, "readiness")}">Readiness</a>'


def _lag(link: Mapping[str, Any], wall_ms: int) -> str:
    if link["ended"]:
        return "none: the link no longer mirrors"
    if (seen := link["source_seen_seconds"]) is not None and (lost := link["known_lost"]) is not None:
        then = f"at least {count(lost)} records" if lost else "unknown; no record was waiting when"
        return f"{then}{'; ' if lost else ' '}the source was last read, {seconds(seen)} ago"
    if link["lag_records"] is None:
        unknown, topics = link["unknown_topics"], link["topics"]
        if not topics or unknown == topics:
            return "unknown"
        rest = f"{count(link['known_lag_records'])} records in the others"
        return f"unknown for {count(unknown)} of {count(topics)} topics; {rest}"
    if not link["lag_records"]:
        return "0 records: caught up"
    shown = f"{count(link['lag_records'])} records"
    behind = link["lag_seconds"]
    if behind is None:
        return f"{shown}, for an unknown time"
    return f"{shown}, {seconds(behind)}: behind since {time(wall_ms - behind * 1000)}"


def _facts(link: Mapping[str, Any], wall_ms: int) -> str:
    listed = [
        ("safe to fail over", _failover(link)),
        ("lag", _lag(link, wall_ms) + _worst(link)),
        ("rate", _rate(link)),
        ("changed in the last hour", _changed(link, wall_ms)),
        ("last commit", age(link["last_commit"], wall_ms) if link["last_commit"] else "unknown"),
        ("verified", _verified(link, wall_ms)),
        ("owner", _owner(link, wall_ms)),
        ("state", text(link["state"])),
        ("from, to", f"{text(link['source'])} → {text(link['target'])}, names: {text(link['naming'])}"),
    ]
    if fence := link.get("fence"):
        what, advice = standing_fence(link["link"], fence)
        listed.insert(0, ("fence", f"{word('warn')} {text(what)}{fix(advice)}"))
    if tail := link.get("tail"):
        told = f"{word(tail['outcome'])} the last {count(tail['tail'])} offsets of each partition"
        listed.append(
            ("compared at the cut", f"{told}, before {text(tail['command'])}, {age(tail['at'], wall_ms)}")
        )
    if drill := link.get("drill"):
        # a drill that failed measured nothing
        failed = (
            f"failed at {text(drill['stage'])}: {text(drill['problem'])}" if drill.get("stage") else "failed"
        )
        outcome = f"passed, {seconds(drill['rto_seconds'])} to promote" if drill["passed"] else failed
        advice = "" if drill["passed"] else fix("repeat it, and see its stage: eomirror drill --report FILE")
        listed.append(("last drill", f"{outcome}, {age(drill['at'], wall_ms)}{advice}"))
    if link["clock_offset_seconds"]:
        listed.append(("clocks", f"the owner's differs by {seconds(abs(link['clock_offset_seconds']))}"))
    return facts(listed)


def _worst(link: Mapping[str, Any]) -> str:
    """Returns the topic that lags most, if there are several."""
    rows = link["topic_rows"]
    if len(rows) < 2 or not rows[0]["lag_records"]:  # noqa: PLR2004  one topic is the link
        return ""
    return f'<br><span class="soft">most in {text(rows[0]["topic"])}: {count(rows[0]["lag_records"])} records</span>'


def _unread(link: Mapping[str, Any]) -> bool:
    """Returns True if the target did not answer: what its topics hold is unknown, not absent."""
    return bool(link["state"] == "unknown")


def _rate(link: Mapping[str, Any]) -> str:
    return "unknown" if _unread(link) else f"{count(link['records_per_second'])} records/s"


def _changed(link: Mapping[str, Any], wall_ms: int) -> str:
    recent = [event for event in link["events"] if event["at"] >= wall_ms - _HOUR_MS]
    if not recent:
        return "unknown" if _unread(link) else "nothing"
    many = "event" if len(recent) == 1 else "events"
    return f'<a href="#events">{count(len(recent))} {many}</a>, the newest: {text(recent[0]["text"])}'


def _contents(parts: Sequence[str]) -> str:
    """Returns links to the sections of the page that have a title."""
    found = [match for part in parts if (match := _SECTION.match(part))]
    links = " ".join(f'<a href="#{match["key"]}">{match["title"]}</a>' for match in found)
    return f'<nav id="contents" aria-label="On this page">{links}</nav>'


def _host(link: Mapping[str, Any]) -> str:
    """Returns host and process of the owner, and if it is alive."""
    owner = link["owner"] or {}
    if not owner.get("run"):
        return "unknown" if _unread(link) else "none"
    shown = text(f"{owner['host']}, process {owner['pid']}" if owner.get("host") else "this process")
    if _unread(link):
        return f"{shown}, as far as known"
    if owner.get("released"):
        return f"{shown}, which released it"
    if link["state"] == "silent":
        return f"{shown}: does not renew its claim"
    return f"{shown}: alive" if link["state"] in _ALIVE else shown


def _owner(link: Mapping[str, Any], wall_ms: int) -> str:
    owner = link["owner"] or {}
    run = str(owner.get("run") or "")
    if not run:
        return "unknown" if _unread(link) else "none"
    who = f"{owner['host']}, process {owner['pid']}" if owner.get("host") else "this process"
    shown = text(who)
    try:
        # the first 48 bits of a run's id are its start
        since = int(run[:12], 16)
    except ValueError:
        since = 0
    if 0 < since <= wall_ms:
        shown += f", since {age(since, wall_ms)}"
    if owner.get("released"):
        shown += ", released since"
    elif link["state"] == "silent" and owner.get("claimed_at"):
        shown += f", claim last renewed {age(owner['claimed_at'], wall_ms)}"
    elif owner.get("claim_age_seconds") is not None:
        shown += f", claim {seconds(owner['claim_age_seconds'] // 5 * 5)} old"
    shown += f'<br><span class="soft">run {text(run)}'
    return shown + (f", generation {text(link['generation'])}</span>" if link["generation"] else "</span>")


def _verified(link: Mapping[str, Any], wall_ms: int) -> str:
    found = link.get("verifications") or []
    if not found and _unread(link):
        return "unknown"
    if not found:
        return "no comparison is recorded; compare: <code>eomirror verify CONFIG</code>"
    # a topic without records, or one that was created again, is equal to nothing
    empty = [each for each in found if each["outcome"] == "equal" and not each["offsets"]]
    worst = [each for each in found if each["outcome"] != "equal"]
    told = [
        f"{word(str(outcome))} {count(number)} of {count(link['topics'])} topics"
        + (f", {text(worst[0]['topic'])} first" if outcome == worst[0]["outcome"] else "")
        for outcome, number in Counter(each["outcome"] for each in worst).items()
    ]
    if equal := len(found) - len(worst) - len(empty):
        told.append(f"{word('equal')} {count(equal)} of {count(link['topics'])} topics")
    if empty:
        told.append(f"{count(len(empty))} had no records to compare, such as {text(empty[0]['topic'])}")
    if never := max(0, link["topics"] - len(found)):
        told.append(f"{word('warn')} {count(never)} never compared")
    oldest = min(each["at"] for each in found)
    since = sum(each["unverified"] for each in found)
    told.append(f"the oldest comparison: {age(oldest, wall_ms)}; {count(since)} offsets were mirrored since")
    return "<br>".join(told)


def _problems(link: Mapping[str, Any], wall_ms: int) -> str:
    rows = [
        (
            text(stop["topic"]),
            f"{text(stop['reason'])}{fix(stop['fix'])}",
            Time(time(stop["at"]) if stop.get("at") else "-"),
        )
        for stop in link["stopped"]
    ]
    rows += [("target", f"{text(each['problem'])}{fix(each['fix'])}", Time("-")) for each in link["hanging"]]
    rows += [("state topic", text(each), Time("-")) for each in link["drifted"]]
    rows += [
        (
            "copy",
            text(
                f"other producers have written behind the link: {each['target_topic']}-{each['partition']} "
                f"[{each['from']}, {each['to']})"
            ),
            Time("-"),
        )
        for each in link.get("foreign") or ()
    ]
    stopped = {stop["topic"] for stop in link["stopped"]}
    rows += [
        (text(row["topic"]), f"{text(row['problem'])}{fix(row['fix'])}", Time("-"))
        for row in link["topic_rows"]
        if row["problem"] and row["topic"] not in stopped
    ]
    del wall_ms
    if not rows:
        return ""
    more = len(rows) - _MOST_PROBLEMS
    before = f"<p class=soft>{count(more)} more are not shown</p>" if more > 0 else ""
    heads = ("where", "what, and what to do", "since")
    return section("Problems", heads, rows[:_MOST_PROBLEMS], key="problems", before=before)


def _take_overs(link: Mapping[str, Any], wall_ms: int) -> str:
    """Returns the owners that took the link in the last minutes: the metric of the alert counts the same."""
    rows = [
        (Time(age(event["at"], wall_ms)), text(event["text"]))
        for event in link["events"]
        if event["kind"] == TAKE_OVER and event["at"] >= wall_ms - RECENT_TAKE_OVER_MS
    ]
    if not rows:
        return ""
    advice = (
        "if the first one was killed, see its log for the reason; else two processes run the link: stop one"
    )
    before = f"<p>A mirror took the link from another one that had not released it.{fix(advice)}</p>"
    return section("Superseded", ("time", "what"), rows, key="take-overs", before=before)


def _open(link: Mapping[str, Any], wall_ms: int) -> str:
    """Returns the open transactions of the source, which hide what follows from consumers and from the lag."""
    rows = [
        (
            partition(each["topic"], each["partition"]),
            Number(count(each["from"])),
            Number(count(each["offsets"])),
            Time(age(wall_ms - each["seconds"] * 1000, wall_ms)),
        )
        for each in link.get("open_transactions") or []
    ]
    if not rows:
        return ""
    before = (
        "<p>What follows an open transaction cannot be mirrored until it ends, and the lag does not count it."
        + fix("end the producer, or abort: kafka-transactions.sh find-hanging, abort")
        + "</p>"
    )
    heads = ("partition", "#from offset", "#offsets held back", "open since")
    title = "Open transactions on the source"
    return section(title, heads, rows[:_MOST_PROBLEMS], key="open", before=before)


def _speed(link: Mapping[str, Any]) -> str:
    """Returns the times of source, target and transactions: which of them is slow."""
    listed = [(f"{end}, {link[end]}", _answers(link, end)) for end in ("source", "target")]
    listed.append(
        ("network", "part of both times: if both are long, look at the network of this process first")
    )
    if (work := link.get("work")) is not None:
        since = work["source_age_seconds"]
        each = f"{seconds(work['transaction_seconds'])} each on average"
        listed += [
            ("lanes heard the source", "not yet" if since is None else f"{seconds(since // 5 * 5)} ago"),
            ("last commit on the target", f"took {seconds(work['commit_seconds'])}"),
            ("transactions", f"{count(work['transactions'])} committed, {each}"),
            ("source to target", _latency(work["latency_seconds"])),
            ("quotas of brokers", f"throttled for {seconds(work['throttled_seconds'])}"),
        ]
    return f'<section id="speed"><h2>Is a cluster slow?</h2>{facts(listed)}</section>'


def _latency(mean: float | None) -> str:
    if mean is None:
        return "not measured yet: what was mirrored is older than its lane, or nothing was"
    return f"{seconds(mean)} on average, by the timestamps of records that are younger than their lane"


def _answers(link: Mapping[str, Any], end: str) -> str:
    took = link.get(f"{end}_seconds")
    if took is not None:
        return f"{word('slow' if took > _SLOW_SECONDS else 'fast')} answers in {_about(took)}"
    if end == "target" and (_unread(link) or link["kept_seconds"] is not None):
        return (
            "does not answer"
            if "target" in link["away"]
            else "answers, but the topics of the link cannot be read"
        )
    heard = (link["work"] or {}).get("source_age_seconds") if end == "source" else None
    if heard is not None and heard <= ASKED_SECONDS:
        return f"answers: lanes heard it {seconds(heard // 5 * 5)} ago"
    if end == "source" and _unread(link):
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


def _verifications(link: Mapping[str, Any], wall_ms: int) -> str:
    found = sorted(link.get("verifications") or [], key=lambda each: (each["outcome"] == "equal", each["at"]))
    rows = [
        (
            text(each["topic"]),
            (
                word(each["outcome"])
                if each["offsets"] or each["outcome"] != "equal"
                else "no records to compare"
            )
            + "".join(f", {count(number)} {text(kind)}" for kind, number in each["differences"].items())
            + (f'<br><span class="soft">{text(each["problem"])}</span>' if each["problem"] else "")
            + (
                '<br><span class="soft">only a part</span>'
                if each.get("from_offset") or each.get("since")
                else ""
            ),
            Number(count(each["offsets"])),
            Number(count(each["unverified"])),
            Time(age(each["at"], wall_ms)),
        )
        for each in found[:_MOST_SHOWN]
    ]
    if not rows:
        return ""
    before = (
        f"<p class=soft>{count(len(found))} topics, {len(rows)} shown: differences first, then the oldest</p>"
    )
    heads = ("topic", "result", "#offsets compared", "#mirrored since", "compared at")
    return section("Verification", heads, rows, key="verification", before=before)


def _topic_state(row: Mapping[str, Any], link: Mapping[str, Any]) -> str:
    """Returns the state of a topic; records on their way are no trouble unless the link falls behind."""
    trouble = link["verdict"] in {"behind", "stalled"}
    return "behind" if row["state"] == "ok" and row["lag_records"] and trouble else str(row["state"])


def _topics(link: Mapping[str, Any], wanted: str, number: int) -> str:
    rows = [row for row in link["topic_rows"] if wanted in row["topic"]]
    pages = max(1, -(-len(rows) // ROWS))
    number = min(max(1, number), pages)
    shown = rows[(number - 1) * ROWS : number * ROWS]
    cells = [
        (
            text(row["topic"]), word(_topic_state(row, link)), Number(count(row["lag_records"])),
            Number(seconds(row["lag_seconds"])), Number(count(None if _unread(link) else row["rate"])),
            Number(count(row["records"])),
        )
        for row in shown
    ]  # fmt: skip
    form = (
        f'<form role="search" action="{link_path(link)}"><label for="topic">Topics whose name contains</label>'
        f'<input id="topic" name="topic" value="{text(wanted)}"><button>Show</button></form>'
    )
    others = "".join(
        f' <a href="{link_path(link)}?{text(urlencode({"topic": wanted, "page": each}))}"'
        f' aria-label="page {each}">{each}</a>'
        for each in range(1, pages + 1)
        if each != number
    )
    total = f"<p class=soft>{count(len(rows))} topics, page {number} of {pages}{others}</p>"
    heads = ("topic", "state", "#lag, records", "#lag, time", "#records/s", "#records")
    return section("Topics, by lag", heads, cells, key="topics", before=form + total)


def _worker(lane: Mapping[str, Any], wall_ms: int) -> str:
    """Returns the state of a lane, which only the running driver knows, and the worker that took it last."""
    since = f", since {age(lane['since'], wall_ms)}" if lane.get("since") else ""
    where = f"{text(lane['host'])}, process {text(lane['pid'])}{since}" if lane.get("host") else ""
    return ": ".join(filter(None, [text(lane.get("state") or ""), where])) or "-"


def _lanes(link: Mapping[str, Any], wall_ms: int) -> str:
    restarts = {each["lane"]: each for each in link.get("restarts") or []}
    rows = []
    for lane in link["lanes"]:
        again = restarts.get(lane["lane"])
        told = text(lane.get("delayed") or lane["plane_reason"] or "")
        if again is not None:
            told += f"{'<br>' if told else ''}last: {text(again['reason'])}, {age(again['at'], wall_ms)}"
        rows.append((
            Number(text(lane["lane"])),
            _worker(lane, wall_ms),
            text(lane["plane"] or "-"),
            Number(count(0 if again is None else again["count"])),
            told or "-",
        ))  # fmt: skip
    return (
        section("Lanes", ("#lane", "worker", "plane", "#restarts", "reason"), rows, key="lanes")
        if rows
        else ""
    )


def _groups(link: Mapping[str, Any], wall_ms: int) -> str:
    groups = link["groups"]
    if groups is None:
        return ""
    rows = [
        (
            text(group["group"]), Number(count(group["offsets"])),
            Time(age(group["last_checkpoint"], wall_ms)),
        )
        for group in groups["by_group"][:ROWS]
    ]  # fmt: skip
    before = (
        f"<p class=soft>{count(groups['followed'])} groups are followed; {len(rows)} shown. "
        f'<a href="{link_path(link, "groups")}">What each group would read again</a></p>'
    )
    heads = ("group", "#checkpoints", "newest checkpoint")
    return section("Consumer groups", heads, rows, key="groups", before=before)


def _retention(link: Mapping[str, Any]) -> str:
    """Returns the topics whose records the source may delete before they are mirrored."""
    rows = [
        (partition(row["topic"], row["partition"]), text(retention_text(row)), Number(f"{row['used']:.0%}"))
        for row in risky_rows(link["retention"])
    ]
    if not rows:
        return ""
    before = f"<p>Retention of the source is near to records that wait.{fix(RETENTION_FIX)}</p>"
    heads = ("partition", "what", "#retention used")
    return section("Records that the source may delete", heads, rows[:ROWS], key="retention", before=before)


def _gaps(link: Mapping[str, Any], wall_ms: int) -> str:
    rows = [
        (
            Time(age(gap["at"], wall_ms)),
            partition(gap["topic"], gap["partition"]),
            text(f"[{gap['from']}, {gap['to']})"),
        )
        for gap in link["gaps"]
    ]
    if not rows:
        return ""
    advice = "keep records on the source for longer than the mirror may stand, or set on_gap: stop"
    before = (
        f"<p>The source lost these records before they were mirrored; the copy lacks them.{fix(advice)}</p>"
    )
    return section("Accepted gaps", ("time", "partition", "lost offsets"), rows, key="gaps", before=before)


def _dead_letters(link: Mapping[str, Any]) -> str:
    rows = [(text(each["topic"]), Number(count(each["records"]))) for each in link["dead_letters"]]
    if not rows:
        return ""
    advice = (
        "raise the limit that each letter names on the target, or have the application write smaller records"
    )
    before = (
        "<p>The target refused these records for their content; the copies lack them, and the link's dead-letter "
        f"topic has them.{fix(advice)}</p>"
    )
    return section("Dead letters", ("topic", "#records"), rows[:ROWS], key="letters", before=before)


def _events(link: Mapping[str, Any], wall_ms: int) -> str:
    rows = [
        (Time(age(event["at"], wall_ms)), Time(text(event["kind"])), text(event["text"]))
        for event in link["events"][:_MOST_EVENTS]
    ]
    recent = sum(event["at"] >= wall_ms - _HOUR_MS for event in link["events"])
    more = max(0, len(link["events"]) - len(rows))
    before = (
        f"<p class=soft>{count(recent)} in the last hour"
        + (f"; {count(more)} older ones: <code>eomirror events CONFIG</code></p>" if more else "</p>")
        if rows
        else "<p class=soft>none are known here</p>"
    )
    return section("What changed, newest first", ("time", "event", "what"), rows, key="events", before=before)
