"""
Draws templates and the pieces of text that pages share: numbers, times, states, tables.

Names of topics, groups and hosts are foreign text.  Every value that is no `Markup` is escaped, in templates by Jinja2
and in Python by `html`, and its control characters become a mark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from eomirror.clock import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eomirror.serve.body import Judged

__all__ = [
    "Head",
    "Section",
    "age",
    "count",
    "drawn",
    "fix",
    "html",
    "joined",
    "link_path",
    "macro",
    "many",
    "name",
    "partition",
    "prepare",
    "seconds",
    "section",
    "table",
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


@dataclass(frozen=True, slots=True)
class Head:
    """
    The head of a column.

    Attributes:
        title: Plain text; a phone shows it before each cell, unless it begins with ``what``.
        kind: ``n`` for numbers, which are aligned to the right, ``t`` for cells that do not wrap; else empty.
        href: Path that sorts by this column; empty if none does.
        order: ``ascending`` or ``descending`` if the table is sorted by it; else empty.
    """

    title: str
    kind: str = ""
    href: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """
    A part of a page with a heading.

    Attributes:
        key: Id of the element.
        title: Heading, plain text.
        body: Content.
        folded: True if only the heading and the summary are shown until the reader opens it.
        summary: Short plain text beside the heading of a folded one.
    """

    key: str
    title: str
    body: Markup
    folded: bool = False
    summary: str = ""


def _clean(value: object) -> object:
    """Returns a value whose control characters are marks; markup as it is."""
    if isinstance(value, Markup) or not isinstance(value, str) or value.isprintable():
        return value
    return "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in value
    )


def html(template: str, *values: object) -> Markup:
    """Returns markup with escaped values in place of each ``{}``."""
    return Markup(template).format(*map(_clean, values))  # noqa: S704  templates are literals


def joined(parts: Iterable[object], between: str = "<br>") -> Markup:
    """Returns escaped parts with markup between them."""
    return Markup(between).join(html("{}", part) for part in parts)  # noqa: S704  a literal


def drawn(template: str, **values: Any) -> str:
    """Returns a whole page."""
    return _ENVIRONMENT.get_template(template).render(**values)


def prepare() -> None:
    """Compiles all templates, which takes a third of a second, so that no reader waits for it."""
    for each in _ENVIRONMENT.list_templates():
        _ENVIRONMENT.get_template(each)


def macro(called: str, *values: object) -> Markup:
    """Returns what a macro of ``macros.html`` makes."""
    found: Markup = getattr(_ENVIRONMENT.get_template("macros.html").module, called)(*values)
    return found


def table(title: str, heads: Sequence[str | Head], rows: Sequence[Sequence[object]]) -> Markup:
    """
    Returns a table; empty without rows.

    Args:
        title: Its name, plain text.
        heads: Heads of columns; a text with ``#`` is one of numbers, one with ``~`` has cells that do not wrap.
        rows: Cells.
    """
    kinds = {"#": "n", "~": "t"}
    made = [
        head if isinstance(head, Head) else Head(head.lstrip("#~"), kinds.get(head[:1], "")) for head in heads
    ]
    return macro("table", title, made, rows) if rows else Markup()


def section(
    title: str,
    heads: Sequence[str | Head],
    rows: Sequence[Sequence[object]],
    *,
    key: str,
    before: Markup = Markup(),  # noqa: B008  it cannot change
    folded: bool = False,
    summary: str = "",
) -> Section:
    """Returns a section with a table; ``before`` stands above the table, other arguments are of `table`, `Section`."""
    return Section(key, title, before + table(title, heads, rows), folded, summary)


def word(name: str) -> Markup:
    """Returns a state with its mark, so that colour is not needed to tell it."""
    return html(
        '<span class="word {}"><span aria-hidden="true">{}</span> {}</span>', kind(name), mark(name), name
    )


def kind(name: str) -> str:
    """Returns the class of a state."""
    return name.replace(" ", "-") if name in _MARKS or (name.isascii() and name.isalpha()) else "unknown"


def mark(name: str) -> str:
    """Returns the mark of a state."""
    return _MARKS.get(name, "•")


def fix(what: str) -> Markup:
    """Returns a recommended action, with commands between backticks as code; empty without one."""
    if not what:
        return Markup()
    # every second part stands between backticks
    parts = [_code(part) if at % 2 else html("{}", part) for at, part in enumerate(_CODE.split(what))]
    return html('<span class="fix">What to do: {}</span>', Markup().join(parts))


def _code(command: str) -> Markup:
    """Returns a command, whose words no line end divides."""
    words = [
        html('<span class="t">{}</span>' if len(each) <= _MOST_UNDIVIDED else "{}", each)
        for each in command.split(" ")
    ]
    return html("<code>{}</code>", Markup(" ").join(words))


def name(value: object) -> Markup:
    """Returns the name of a link, whose arrow no line end divides."""
    return Markup('<span class="t">-&gt;</span>').join(html("{}", part) for part in str(value).split("->"))


def partition(topic: object, number: object) -> Markup:
    """Returns the name of a partition, which no line end divides unless it is long."""
    shown = f"{topic}-{number}"
    return html('<span class="t">{}</span>' if len(shown) <= _MOST_UNDIVIDED else "{}", shown)


def link_path(link: Judged, *parts: str) -> str:
    """Returns the path of a page about a link."""
    return "/".join(["/links", *(quote(part, safe="") for part in (link.name, *parts))])


def count(value: float | None) -> str:
    """Returns a number with separators; ``unknown`` for None."""
    return "unknown" if value is None else f"{value:,.0f}"


def many(value: float | None, noun: str) -> str:
    """Returns a number with its noun, which takes an s unless there is one of it."""
    return f"{count(value)} {noun}" + ("" if value == 1 else "s")


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


def age(at_ms: float, wall_ms: float) -> Markup:
    """Returns a time and, coarsely, how long ago it was."""
    since = max(0, int((wall_ms - at_ms) / 1000))
    minutes = since // 60
    ago = f"{since} s ago"
    if minutes:
        # a finer number would change with each look
        ago = (
            f"{seconds(minutes * 60.0).removesuffix(' 0 s').removesuffix(' 0 min').removesuffix(' 0 h')} ago"
        )
    return html('{} <span class="soft">({})</span>', time(at_ms), ago)


def time(wall_ms: float) -> Markup:
    """Returns a time."""
    shown = utc(wall_ms)
    return html('<time datetime="{}">{}</time>', shown, shown.replace("T", " "))


_ENVIRONMENT = Environment(
    loader=PackageLoader("eomirror.serve"), autoescape=True, undefined=StrictUndefined, finalize=_clean,
    trim_blocks=True, lstrip_blocks=True, auto_reload=False,
)  # fmt: skip
_ENVIRONMENT.globals.update(
    age=age, count=count, fix=fix, kind=kind, link_path=link_path, many=many, mark=mark, name=name,
    refresh_seconds=REFRESH_SECONDS, seconds=seconds, time=time, word=word,
)  # fmt: skip
