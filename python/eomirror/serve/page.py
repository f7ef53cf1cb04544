"""
Draws the page from the bodies of the API, as HTML without scripts. Pure.

Names of topics, groups and hosts are foreign text; every value passes `_text`, which escapes it.  The page loads one
style sheet (`style.css`) from its own server and refreshes itself.  So it works offline, and under a policy that
forbids scripts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["link_page", "message_page", "overview_page"]

#: Rows of one page of topics.
ROWS = 200

_REFRESH_SECONDS = 5

_MARKS = {
    "ok": "✓", "behind": "↘", "unknown": "?", "down": "■", "stalled": "‖", "stopped": "■", "rewound": "↺",
    "problem": "!",
    "promoted": "▲",
    "paused": "‖",
}  # fmt: skip


def overview_page(links: Sequence[Mapping[str, Any]], *, version: str, wall_ms: int) -> str:
    """Returns the page of all links; each is a summary of `eomirror.serve.body`."""
    cards = "".join(_card(link) for link in links) or "<li>no links</li>"
    clusters = sorted({str(link[end]) for link in links for end in ("source", "target")})
    many = "link" if len(links) == 1 else "links"
    head = f"<h1>{_text(len(links))} {many} between {_text(len(clusters))} clusters</h1>"
    return _page("links", f'{head}<ul class="cards">{cards}</ul>', version=version, wall_ms=wall_ms)


def link_page(
    link: Mapping[str, Any], *, version: str, wall_ms: int, wanted: str = "", number: int = 1
) -> str:
    """
    Returns the page of one link.

    Args:
        link: Its body.
        version: Release of eomirror.
        wall_ms: Wall clock, in ms.
        wanted: Show only topics whose names contain this text.
        number: Page of topics, from 1.
    """
    parts = [
        f"<h1>{_text(link['link'])}</h1>",
        _verdict(link),
        _facts(link, wall_ms),
        _problems(link),
        _topics(link, wanted, number),
        _lanes(link),
        _groups(link, wall_ms),
        _gaps(link),
        _events(link),
    ]
    return _page(str(link["link"]), "".join(parts), version=version, wall_ms=wall_ms)


def message_page(title: str, text: str, *, version: str, wall_ms: int) -> str:
    """Returns a page with one message."""
    body = f"<h1>{_text(title)}</h1><p>{_text(text)}</p>"
    return _page(title, body, version=version, wall_ms=wall_ms)


def _page(title: str, body: str, *, version: str, wall_ms: int) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{_REFRESH_SECONDS}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{_text(title)} - eomirror</title><link rel="stylesheet" href="/style.css"></head><body>'
        '<a class="skip" href="#content">Skip to the content</a>'
        f'<header><strong>eomirror</strong><nav aria-label="Pages"><a href="/">Links</a></nav>'
        f"<span>as of {_time(wall_ms)}, refreshed every {_REFRESH_SECONDS} s</span></header>"
        f'<main id="content">{body}</main>'
        f'<footer>eomirror {_text(version)} · <a href="/metrics">metrics</a> · '
        '<a href="/api/v1/links">JSON</a> · all times are UTC</footer></body></html>\n'
    )


def _card(link: Mapping[str, Any]) -> str:
    return (
        f'<li class="card {_text(link["verdict"])}"><h2><a href="{_path(link)}">{_text(link["link"])}</a></h2>'
        f"{_verdict(link)}<dl>"
        f"<dt>lag</dt><dd>{_count(link['lag_records'])} records, {_seconds(link['lag_seconds'])}</dd>"
        f"<dt>rate</dt><dd>{_count(link['records_per_second'])} records/s</dd>"
        f"<dt>failover</dt><dd>{_text(link['failover'])}</dd>"
        f"<dt>topics</dt><dd>{_count(link['topics'])}, {_count(link['stopped_topics'])} stopped</dd>"
        f"<dt>from, to</dt><dd>{_text(link['source'])} → {_text(link['target'])}</dd>"
        "</dl></li>"
    )


def _verdict(link: Mapping[str, Any]) -> str:
    fix = f'<br><span class="soft">What to do: {_text(link["fix"])}</span>' if link["fix"] else ""
    return f"<p>{_word(link['verdict'])} {_text(link['reason'])}{fix}</p>"


def _facts(link: Mapping[str, Any], wall_ms: int) -> str:
    owner = link["owner"] or {}
    who = (
        f"{owner['host']}/{owner['pid']}, run {owner['run']}" if owner.get("host") else owner.get("run", "-")
    )
    claim = owner.get("claim_age_seconds")
    facts = [
        ("state", _text(link["state"])),
        ("failover", _text(link["failover"])),
        ("lag", f"{_count(link['lag_records'])} records, {_seconds(link['lag_seconds'])}"),
        ("rate", f"{_count(link['records_per_second'])} records/s"),
        ("from, to", f"{_text(link['source'])} → {_text(link['target'])}, names: {_text(link['naming'])}"),
        ("owner", _text(who) + (f", claim {_seconds(claim)} old" if claim is not None else "")),
        ("generation", _text("-" if link["generation"] is None else link["generation"])),
        ("read", f"{_seconds(link['age_seconds'])} before {_time(wall_ms)}"),
    ]
    if link["clock_offset_seconds"]:
        facts.append(("clocks", f"the owner's differs by {_seconds(abs(link['clock_offset_seconds']))}"))
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>"


def _problems(link: Mapping[str, Any]) -> str:
    rows = [(_text(stop["topic"]), f"{_text(stop['reason'])}{_fix(stop['fix'])}") for stop in link["stopped"]]
    rows += [("target", f"{_text(each['problem'])}{_fix(each['fix'])}") for each in link["hanging"]]
    rows += [("state topic", _text(text)) for text in link["drifted"]]
    stopped = {stop["topic"] for stop in link["stopped"]}
    rows += [
        (_text(row["topic"]), f"{_text(row['problem'])}{_fix(row['fix'])}")
        for row in link["topic_rows"][:ROWS]
        if row["problem"] and row["topic"] not in stopped
    ]
    return _section("Problems", ("where", "what, and what to do"), rows) if rows else ""


def _topics(link: Mapping[str, Any], wanted: str, number: int) -> str:
    rows = [row for row in link["topic_rows"] if wanted in row["topic"]]
    pages = max(1, -(-len(rows) // ROWS))
    number = min(max(1, number), pages)
    shown = rows[(number - 1) * ROWS : number * ROWS]
    cells = [
        (
            _text(row["topic"]), _Number(_count(row["lag_records"])), _Number(_seconds(row["lag_seconds"])),
            _Number(_count(row["rate"])), _Number(_count(row["records"])), _word(row["state"]),
        )
        for row in shown
    ]  # fmt: skip
    form = (
        f'<form role="search" action="{_path(link)}"><label for="topic">Topics whose name contains</label>'
        f'<input id="topic" name="topic" value="{_text(wanted)}"><button>Show</button></form>'
    )
    others = "".join(
        f' <a href="{_path(link)}?{_text(urlencode({"topic": wanted, "page": page}))}">{page}</a>'
        for page in range(1, pages + 1)
        if page != number
    )
    count = f"<p class=soft>{_count(len(rows))} topics, page {number} of {pages}{others}</p>"
    heads = ("topic", "#lag", "#lag s", "#rate", "#records", "state")
    return _section("Topics, by lag", heads, cells, before=form + count)


def _lanes(link: Mapping[str, Any]) -> str:
    rows = [
        (
            _Number(_text(lane["lane"])),
            # only the running driver knows the state of a lane's worker
            _text(lane.get("state") or "-"),
            _text(f"{lane['epoch']}.{lane['attempt']}"),
            _text(lane["plane"] or "-"),
            _text(lane.get("delayed") or lane["plane_reason"] or "-"),
        )
        for lane in link["lanes"]
    ]
    return _section("Lanes", ("#lane", "state", "epoch.attempt", "plane", "reason"), rows) if rows else ""


def _groups(link: Mapping[str, Any], wall_ms: int) -> str:
    groups = link["groups"]
    if groups is None:
        return ""
    rows = [
        (
            _text(group["group"]), _Number(_count(group["offsets"])),
            _Number(_seconds(max(0.0, (wall_ms - group["last_checkpoint"]) / 1000))),
        )
        for group in groups["by_group"]
    ]  # fmt: skip
    count = f"<p class=soft>{_count(groups['followed'])} groups are followed; {len(rows)} shown</p>"
    return _section("Groups", ("group", "#checkpoints", "#age of the newest"), rows, before=count)


def _gaps(link: Mapping[str, Any]) -> str:
    rows = [
        (
            _Time(_time(gap["at"])),
            _text(f"{gap['topic']}-{gap['partition']}"),
            _text(f"[{gap['from']}, {gap['to']})"),
        )
        for gap in link["gaps"]
    ]
    return _section("Accepted gaps", ("time", "partition", "lost offsets"), rows) if rows else ""


def _events(link: Mapping[str, Any]) -> str:
    rows = [
        (_Time(_time(event["at"])), _text(event["kind"]), _text(event["text"])) for event in link["events"]
    ]
    before = "" if rows else "<p class=soft>none are known here</p>"
    return _section("Events, newest first", ("time", "event", "what"), rows, before=before)


class _Number(str):
    """Markup of a cell that is aligned to the right."""

    __slots__ = ()


class _Time(str):
    """Markup of a cell that does not wrap."""

    __slots__ = ()


def _section(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, before: str = "") -> str:
    """Returns a titled table of cells that are markup already; a head with ``#`` is one of numbers."""
    top = "".join(
        f'<th scope="col" class="n">{_text(head[1:])}</th>'
        if head[0] == "#"
        else f'<th scope="col">{_text(head)}</th>'
        for head in heads
    )
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    if body:
        body = (
            f'<div class="table" role="region" aria-label="{_text(title)}" tabindex="0"><table><thead><tr>{top}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>"
        )
    return f"<section><h2>{_text(title)}</h2>{before}{body}</section>"


def _cell(markup: str) -> str:
    kind = ' class="n"' if isinstance(markup, _Number) else ' class="t"' if isinstance(markup, _Time) else ""
    return f"<td{kind}>{markup}</td>"


def _word(word: str) -> str:
    return f'<span class="word {_text(word)}">{_MARKS.get(word, "?")} {_text(word)}</span>'


def _fix(text: str) -> str:
    return f'<span class="fix">What to do: {_text(text)}</span>' if text else ""


def _path(link: Mapping[str, Any]) -> str:
    return "/links/" + quote(str(link["link"]), safe="")


def _text(value: object) -> str:
    """Returns a foreign value as markup; control characters become a mark."""
    text = "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in str(value)
    )
    return escape(text, quote=True)


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    minutes, seconds = divmod(value, 60)
    if not minutes:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds:.0f} s"


def _time(wall_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return "-"
    return f'<time datetime="{at.isoformat(timespec="milliseconds")}">{at:%Y-%m-%d %H:%M:%S}</time>'
