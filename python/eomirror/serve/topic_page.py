"""Draws the page of one topic of a link: its lines, and its partitions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.serve.link_facts import old
from eomirror.serve.markup import (
    age,
    count,
    drawn,
    fix,
    html,
    link_path,
    macro,
    many,
    name,
    seconds,
    section,
    word,
)
from eomirror.serve.page import lines, tabs
from eomirror.serve.topics_table import Column, sorted_rows, topic_state
from eomirror.status.lag import topic_state as partition_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.serve.body import Judged
    from eomirror.serve.history import Lines
    from eomirror.serve.markup import Section
    from eomirror.status.lag import LagRow
    from eomirror.status.model import PartitionStatus

__all__ = ["topic_page"]

_MOST_SHOWN = 50
_MOST_LISTED = 10


def _state(row: PartitionStatus) -> str:
    return partition_state([row])


_COLUMNS: tuple[Column[PartitionStatus], ...] = (
    Column("partition", "partition", lambda row: row.partition, "n", "ascending"),
    Column("state", "state", _state),
    Column("lag", "lag, records", lambda row: row.lag_records, "n"),
    Column("time", "lag, time", lambda row: row.lag_seconds, "n"),
    Column("rate", "records/s", lambda row: row.rate, "n"),
    Column("position", "position", lambda row: row.position, "n"),
    Column("end", "end of the source", lambda row: row.source_lso, "n"),
    Column("lane", "lane", lambda row: row.lane, "n", "ascending"),
    Column("commit", "last commit", lambda row: row.last_commit, "t"),
)


def topic_page(
    link: Judged,
    topic: LagRow,
    partitions: Sequence[PartitionStatus],
    history: Lines | None,
    question: Mapping[str, str],
    *,
    version: str,
    wall_ms: int,
) -> str:
    """
    Returns the page of one topic.

    Args:
        link: Its link.
        topic: The topic.
        partitions: Its partitions, those that lag most first.
        history: Its lines; None if they are not kept.
        question: Query of the request, which filters and sorts partitions (`eomirror.serve.topics_table`).
        version: Release of eomirror.
        wall_ms: Time of the data, in ms.
    """
    state = topic_state(topic, link)
    path = link_path(link, "topics", topic.topic)
    found = sorted_rows(
        partitions, _COLUMNS, question, state=_state, path=path, noun="partition", anchor="partitions"
    )
    rows = [_cells(row, link, wall_ms) for row in found.rows]
    facts = [
        ("lag", _lag(topic)),
        ("rate", "unknown" if link.status.unread else f"{count(topic.rate)} records/s"),
        ("mirrored", many(topic.records, "record")),
        ("copy", html("{} on {}", topic.target_topic, link.facts.target)),
        ("link", html('<a href="{}">{}</a>', link_path(link), name(link.name))),
    ]
    top = html(
        '<section id="verdict"><p class="verdict">{} {}{}</p>{}</section><section id="facts">{}</section>',
        word(state), topic.problem, fix(topic.fix), old(link), macro("facts", facts),
    )  # fmt: skip
    parts = [
        _problems(partitions),
        lines(history, wall_ms),
        section("Partitions", found.heads, rows, key="partitions", before=found.before),
    ]
    return drawn(
        "sections.html", title=f"{state}: {topic.topic} of {link.name}", heading=topic.topic, top=top,
        parts=[part for part in parts if part is not None], listed=False, version=version, wall_ms=wall_ms,
        tabs=tabs(link, None), every=3,
    )  # fmt: skip


def _lag(topic: LagRow) -> str:
    if topic.lag_records is None:
        return "unknown"
    if not topic.lag_records:
        return "0 records: caught up"
    return f"{many(topic.lag_records, 'record')}, {seconds(topic.lag_seconds)}"


def _problems(partitions: Sequence[PartitionStatus]) -> Section | None:
    """Returns what is wrong, once for all partitions with the same words."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in partitions:
        if row.problem:
            found.setdefault((row.problem, row.fix), []).append(row.partition)
        if row.open_records:
            held = f"open transactions hold back {many(row.open_records, 'offset')} behind the lag"
            found.setdefault((held, ""), []).append(row.partition)
    rows = [
        (_listed(sorted(some)), html("{}{}", told, fix(advice))) for (told, advice), some in found.items()
    ]
    if not rows:
        return None
    return section("Problems", ("partitions", "what, and what to do"), rows[:_MOST_SHOWN], key="problems")


def _listed(numbers: Sequence[int]) -> str:
    more = len(numbers) - _MOST_LISTED
    return ", ".join(map(str, numbers[:_MOST_LISTED])) + (f" and {count(more)} more" if more > 0 else "")


def _cells(row: PartitionStatus, link: Judged, wall_ms: int) -> tuple[object, ...]:
    return (
        count(row.partition), word(_state(row)), count(row.lag_records), seconds(row.lag_seconds),
        count(None if link.status.unread else row.rate), count(row.position), count(row.source_lso),
        count(row.lane), age(row.last_commit, wall_ms) if row.last_commit else "-",
    )  # fmt: skip
