"""
Builds pieces of pages: escaped text, numbers, times, tables. Pure.

Names of topics, groups and hosts are foreign text; every value passes `text`, which escapes it.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from eomirror.clock import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Number",
    "Time",
    "age",
    "count",
    "facts",
    "fix",
    "link_path",
    "name",
    "page",
    "partition",
    "seconds",
    "section",
    "text",
    "time",
    "word",
]

#: Seconds between two looks of an open page.
REFRESH_SECONDS = 3

_MARKS = {
    "ok": "✓", "behind": "↘", "unknown": "?", "down": "■", "stalled": "‖", "stopped": "■", "rewound": "↺",
    "problem": "!", "promoted": "▲", "paused": "‖", "warn": "!", "no": "✗", "equal": "✓", "differs": "✗",
    "exact": "✓", "fast": "✓", "slow": "!", "next": "✓", "earlier": "↘", "starting": "…", "handed back": "▲",
    "source away": "✗", "target away": "✗",
}  # fmt: skip


# longer names are divided, so that a table stays within its page
_MOST_UNDIVIDED = 32

_CODE = re.compile("`([^`]+)`")


class Number(str):
    """Markup of a cell that is aligned to the right."""

    __slots__ = ()


class Time(str):
    """Markup of a cell that does not wrap."""

    __slots__ = ()


def page(
    title: str,
    body: str,
    *,
    version: str,
    wall_ms: int,
    tabs: Iterable[tuple[str, str, bool]] = (),
    every: int = REFRESH_SECONDS,
) -> str:
    """
    Returns a whole page.

    Args:
        title: Its title, plain text.
        body: Its content, sections with ids.
        version: Release of eomirror.
        wall_ms: Time of the data.
        tabs: Path, plain name and true for the one that is shown, of pages about the same link.
        every: Seconds between two looks; 0 for a page that does not change.
    """
    links = "".join(
        f'<a href="{path}"{" aria-current=page" if here else ""}>{text(name)}</a>'
        for path, name, here in tabs
    )
    again = f'<noscript><meta http-equiv="refresh" content="{max(5, every)}"></noscript>' if every else ""
    live = f' data-every="{every}"' if every else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{text(title)} - eomirror</title><link rel="icon" href="/icon.svg" type="image/svg+xml">'
        '<link rel="stylesheet" href="/style.css"><script src="/page.js" defer></script></head><body>'
        '<a class="skip" href="#content">Skip to the content</a>'
        f'<header><strong>eomirror</strong><nav aria-label="Pages"><a href="/">All links</a>{links}</nav>'
        f'<span id="asof">as of {time(wall_ms)} UTC</span>'
        '<button id="pause" type="button" hidden>Pause updates</button></header>'
        '<p id="away" class="banner" role="alert" hidden></p><p id="said" class="heard" role="status"></p>'
        f'<main id="content" tabindex="-1"{live}>{body}</main>'
        f'<footer>eomirror {text(version)} · <a href="/metrics">metrics</a> · '
        '<a href="/api/v1/links">JSON</a> · all times are UTC</footer></body></html>\n'
    )


def section(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    key: str,
    before: str = "",
) -> str:
    """
    Returns a titled table.

    Args:
        title: Its title, plain text.
        heads: Plain heads of columns; one with ``#`` is one of numbers.
        rows: Cells, markup already.
        key: Id of the section.
        before: Markup before the table.
    """
    top = "".join(
        f'<th scope="col" class="n">{text(head[1:])}</th>'
        if head[0] == "#"
        else f'<th scope="col">{text(head)}</th>'
        for head in heads
    )
    # a phone shows the head of a column before each cell; sentences need none
    named = ["" if head.startswith("what") else text(head.removeprefix("#")) for head in heads]
    body = "".join("<tr>" + "".join(map(_cell, row, named)) + "</tr>" for row in rows)
    if body:
        body = (
            f'<div class="table" role="region" aria-label="{text(title)}" tabindex="0"><table><thead><tr>{top}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>"
        )
    return f'<section id="{key}"><h2>{text(title)}</h2>{before}{body}</section>'


def facts(items: Iterable[tuple[str, str]]) -> str:
    """Returns a list of plain names with markup values."""
    return "<dl>" + "".join(f"<dt>{text(name)}</dt><dd>{value}</dd>" for name, value in items) + "</dl>"


def _cell(markup: str, head: str) -> str:
    kind = ' class="n"' if isinstance(markup, Number) else ' class="t"' if isinstance(markup, Time) else ""
    # a phone shows a row as lines, each with the head of its column
    return f'<td{kind} data-head="{head}">{markup}</td>'


def word(name: str) -> str:
    """Returns a state with its mark, so that colour is not needed to tell it."""
    kind = name.replace(" ", "-") if name in _MARKS or (name.isascii() and name.isalpha()) else "unknown"
    return f'<span class="word {kind}"><span aria-hidden="true">{_MARKS.get(name, "•")}</span> {text(name)}</span>'


def fix(what: str) -> str:
    """Returns a recommended action, with commands between backticks as code; empty without one."""
    shown = _CODE.sub(_code, text(what))
    return f'<span class="fix">What to do: {shown}</span>' if what else ""


def _code(found: re.Match[str]) -> str:
    """Returns a command, whose words no line end divides."""
    words = [
        f'<span class="t">{each}</span>' if len(each) <= _MOST_UNDIVIDED else each
        for each in found[1].split(" ")
    ]
    return f"<code>{' '.join(words)}</code>"


def name(value: object) -> str:
    """Returns the name of a link, whose arrow no line end divides."""
    return text(value).replace("-&gt;", '<span class="t">-&gt;</span>')


def partition(topic: object, number: object) -> str:
    """Returns the name of a partition, which no line end divides unless it is long."""
    shown = text(f"{topic}-{number}")
    return Time(shown) if len(shown) <= _MOST_UNDIVIDED else shown


def link_path(link: Mapping[str, Any], *parts: str) -> str:
    """Returns the path of a page about a link."""
    return "/".join(["/links", quote(str(link["link"]), safe=""), *parts])


def text(value: object) -> str:
    """Returns a foreign value as markup; control characters become a mark."""
    shown = "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in str(value)
    )
    return escape(shown, quote=True)


def count(value: float | None) -> str:
    """Returns a number with separators; ``unknown`` for None."""
    return "unknown" if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Returns a duration; ``unknown`` for None."""
    if value is None:
        return "unknown"
    if value < 0.9995:  # noqa: PLR2004  below, milliseconds say more
        return f"{value * 1000:.0f} ms" if value else "0 s"
    minutes, rest = divmod(value, 60)
    if not minutes:
        return f"{rest:.1f} s"
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest:.0f} s"


def age(at_ms: float, wall_ms: float) -> str:
    """Returns a time and, coarsely, how long ago it was."""
    since = max(0, int((wall_ms - at_ms) / 1000))
    minutes = since // 60
    ago = f"{since} s ago"
    if minutes:
        # a finer number would change with each look
        ago = (
            f"{seconds(minutes * 60.0).removesuffix(' 0 s').removesuffix(' 0 min').removesuffix(' 0 h')} ago"
        )
    return f'{time(at_ms)} <span class="soft">({ago})</span>'


def time(wall_ms: float) -> str:
    """Returns a time."""
    shown = utc(wall_ms)
    return f'<time datetime="{shown}">{shown.replace("T", " ")}</time>'
