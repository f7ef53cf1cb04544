"""
Draws tables of topics and partitions that a reader sorts, filters and pages by links. Pure.

A question is the query of a request: ``topic`` is a part of names, ``state`` one state, ``sort`` the name of a column,
``order`` ``ascending`` or ``descending``, ``page`` a number from 1.  What it does not name, or names wrongly, is as
without a question, so that each link works without scripts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlencode

from markupsafe import Markup

from eomirror.serve.markup import Head, Section, count, html, link_path, many, seconds, section, word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.serve.body import Judged
    from eomirror.status.lag import LagRow

__all__ = ["Column", "Sorted", "digits", "sorted_rows", "topic_state", "topics_section"]

#: Rows of one page.
ROWS = 200

# a longer list of topics that need nothing is folded
_MOST_OPEN = 20
# numbers of pages have at most 19 digits
_MOST_DIGITS = 19
# links to other pages of a table; the rest is reached from there
_MOST_PAGES = 30

_ORDERS = ("ascending", "descending")

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """
    A column by which rows are sorted.

    Attributes:
        key: Its name in a question.
        title: Its head.
        value: Returns the value of a row; None is unknown, and the largest.
        kind: See `eomirror.serve.markup.Head`.
        first: Order of the first click.
    """

    key: str
    title: str
    value: Callable[[Row], Any]
    kind: str = ""
    first: str = "descending"


@dataclass(frozen=True, slots=True)
class Sorted(Generic[Row]):
    """
    The rows that a question wants.

    Attributes:
        rows: Those of one page.
        heads: Heads with links that sort.
        before: Chips of states, the number of rows, and links to other pages.
        asked: True if the question names anything.
    """

    rows: list[Row]
    heads: list[Head]
    before: Markup
    asked: bool


def digits(text: str | None) -> int | None:
    """Returns a number that is written as digits; None for another text."""
    if not text or not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        return None
    return int(text)


def sorted_rows(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    question: Mapping[str, str],
    *,
    state: Callable[[Row], str],
    path: str,
    noun: str,
    anchor: str,
) -> Sorted[Row]:
    """
    Returns the rows that a question wants, in its order.

    Args:
        rows: All rows, in the order of a question that names none.
        columns: Columns of the table.
        question: Query of the request.
        state: Returns the state of a row.
        path: Path of the page.
        noun: What a row is.
        anchor: Id of the section.
    """
    wanted = {key: question[key] for key in ("topic", "state", "sort", "order") if question.get(key)}
    states = Counter(map(state, rows))
    column = next((each for each in columns if each.key == wanted.get("sort")), None)
    order = wanted.get("order", "")
    if column is not None and order not in _ORDERS:
        order = column.first
    found = [row for row in rows if wanted.get("state") in {None, state(row)}]
    if column is not None:
        value = column.value
        found.sort(key=lambda row: _place(value(row)), reverse=order == "descending")

    def to(**changes: object) -> str:
        query = {key: value for key, value in {**wanted, **changes}.items() if value}
        return f"{path}?{urlencode(query)}#{anchor}" if query else f"{path}#{anchor}"

    pages = max(1, -(-len(found) // ROWS))
    page = min(max(1, digits(question.get("page")) or 1), pages)
    heads = []
    for each in columns:
        here = order if each is column else ""
        turned = _ORDERS[1 - _ORDERS.index(here)] if here else each.first
        heads.append(Head(each.title, each.kind, to(sort=each.key, order=turned), here))
    chips = [_chip("all", len(rows), to(state=""), current="state" not in wanted)] + [
        _chip(each, number, to(state=each), current=wanted.get("state") == each)
        for each, number in sorted(states.items(), key=lambda pair: (pair[0] != "ok", pair[0]))
    ]
    others = Markup().join(
        html(' <a href="{}" aria-label="page {}">{}</a>', to(page=number), number, number)
        for number in range(max(1, page - _MOST_PAGES), min(pages, page + _MOST_PAGES) + 1)
        if number != page
    )
    told = html('<p class="soft">{}, page {} of {}{}</p>', many(len(found), noun), page, pages, others)
    before = (
        html('<nav class="chips" aria-label="States">{}</nav>', Markup(" ").join(chips))
        if len(states) > 1 or "state" in wanted
        else Markup()
    ) + (told if pages > 1 or "topic" in wanted else Markup())
    shown = found[(page - 1) * ROWS : page * ROWS]
    return Sorted(shown, heads, before, asked=bool(wanted or question.get("page")))


def _place(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value is None else (False, value)


def _chip(state: str, number: int, path: str, *, current: bool) -> Markup:
    here = Markup(' aria-current="true"') if current else Markup()
    return html('<a href="{}"{}>{} {}</a>', path, here, state, count(number))


def topic_state(row: LagRow, link: Judged) -> str:
    """Returns the state of a topic; records on their way are no trouble unless the link falls behind."""
    trouble = link.verdict.word in {"behind", "stalled"}
    return "behind" if row.state == "ok" and row.lag_records and trouble else row.state


def _state(row: LagRow) -> str:
    return row.state


_COLUMNS: tuple[Column[LagRow], ...] = (
    Column("topic", "topic", lambda row: row.topic, first="ascending"),
    Column("state", "state", lambda row: row.state, first="descending"),
    Column("lag", "lag, records", lambda row: row.lag_records, "n"),
    Column("time", "lag, time", lambda row: row.lag_seconds, "n"),
    Column("rate", "records/s", lambda row: row.rate, "n"),
    Column("records", "records", lambda row: row.records, "n"),
)


def topics_section(link: Judged, question: Mapping[str, str]) -> list[Section]:
    """
    Returns the topics of a link: those that are not well, then all, which are folded if they are many.

    Args:
        link: The link.
        question: Query of the request.
    """
    every = [
        row if (state := topic_state(row, link)) == row.state else replace(row, state=state)
        for row in link.topic_rows
    ]
    wanted = question.get("topic", "")
    rows = [row for row in every if wanted in row.topic]
    path = link_path(link)
    found = sorted_rows(rows, _COLUMNS, question, state=_state, path=path, noun="topic", anchor="topics")
    form = html(
        '<form role="search" action="{}#topics"><label for="topic">Topics whose name contains</label>'
        '<input id="topic" name="topic" value="{}"><button>Show</button></form>',
        path, wanted,
    )  # fmt: skip
    well = [row for row in every if row.state == "ok"]
    troubled = [row for row in every if row.state != "ok"]
    folded = not found.asked and len(every) > _MOST_OPEN and (len(troubled) <= _MOST_OPEN)
    parts = []
    if folded and troubled:
        heads = [Head(head.title, head.kind) for head in found.heads]
        cells = [_topic_cells(row, link) for row in troubled]
        parts.append(section("Topics that are not ok", heads, cells, key="troubled"))
    before = form + found.before
    cells = [_topic_cells(row, link) for row in found.rows]
    summary = f"{many(len(every), 'topic')}, {count(len(well))} ok"
    title = "Topics" if "sort" in question else "Topics, by lag"
    part = section(title, found.heads, cells, key="topics", before=before, folded=folded, summary=summary)
    return [*parts, part]


def _topic_cells(row: LagRow, link: Judged) -> tuple[object, ...]:
    return (
        html('<a href="{}">{}</a>', link_path(link, "topics", row.topic), row.topic),
        word(row.state), count(row.lag_records), seconds(row.lag_seconds),
        count(None if link.status.unread else row.rate), count(row.records),
    )  # fmt: skip
