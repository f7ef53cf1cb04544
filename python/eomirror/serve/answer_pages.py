"""Draws the pages of questions that are answered on request: readiness, groups, one offset. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from eomirror.serve.markup import (
    Section,
    count,
    drawn,
    fix,
    html,
    joined,
    link_path,
    many,
    name,
    partition,
    section,
    time,
    word,
)
from eomirror.serve.page import ROWS, tabs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.serve.body import Judged

__all__ = ["Question", "groups_page", "offset_page", "readiness_page"]

# the answers cost the clusters requests
_EVERY_SECONDS = 15
_PENDING_SECONDS = 2

# worst first
_LEVELS = ("no", "warn", "ok")
# pages and sections that show what a check counts
_DETAILS = {
    "link": ("", "#verdict"),
    "claim": ("", "#facts"),
    "source": ("", "#speed"),
    "lag": ("", "#topics"),
    "stopped topics": ("", "#problems"),
    "gaps": ("", "#gaps"),
    "open transactions": ("", "#open"),
    "hanging on the target": ("", "#problems"),
    "groups": ("groups", ""),
    "verified": ("", "#verification"),
}

Question = dict[str, str]


def readiness_page(link: Judged, answer: Mapping[str, Any], *, version: str, wall_ms: int) -> str:
    """
    Returns the page of a link's readiness.

    Args:
        link: The link.
        answer: Answer of `eomirror.serve.queries.LinkQueries.readiness`.
        version: Release of eomirror.
        wall_ms: Wall clock, in ms.
    """
    top, parts = _unanswered(answer), []
    if not top:
        planned, failover = answer["planned"], answer["failover"]
        parts = [
            _verdict(link, "Planned: cutover or promote, while the source lives", planned, "planned"),
            _verdict(link, "Disaster: failover, if the source is lost now", failover, "failover"),
        ]
        if not planned["source_answers"]:
            # without the source only a failover is left
            parts.reverse()
        parts += _checks(link, planned, failover)
    return _page(
        f"readiness of {link.name}", html("Can {} fail over?", name(link.name)), top, parts,
        version=version, wall_ms=wall_ms, tabs=tabs(link, "readiness"), every=_every(answer),
    )  # fmt: skip


def groups_page(link: Judged, answer: Mapping[str, Any], *, version: str, wall_ms: int) -> str:
    """Returns the page of a link's groups; arguments are those of `readiness_page`."""
    top, parts = _unanswered(answer), []
    if not top:
        moves: Sequence[Mapping[str, Any]] = answer["planned"]["groups"]
        alive = answer["planned"]["source_answers"]
        lead = (
            "If a group moves to the target now, it resumes there at the offset that its last commit translates to. "
            "It reads at most so many records again, and misses none. Offsets differ between clusters: markers of "
            "transactions take offsets, and so do records that are not mirrored."
            if alive
            else "The source does not answer, so its commits are not known. If a group moves to the target now, it "
            "resumes there at its last checkpoint: it misses none, and reads again what it has read since then."
        )
        since = {} if alive else _checkpoints(link)
        if problem := _check(answer["planned"], "groups"):
            told = word(problem["level"]), problem["text"], fix(problem["fix"])
            top = html("<p>{} {}{}</p>", *told)
        top += html("<p>{}</p>", lead)
        parts = [_groups(moves, since), _moves(moves)]
    return _page(
        f"groups of {link.name}", html("Consumer groups of {}", name(link.name)), top, parts,
        version=version, wall_ms=wall_ms, tabs=tabs(link, "groups"), every=_every(answer),
    )  # fmt: skip


def _page(title: str, heading: Markup, top: Markup, parts: Sequence[Section], **shown: Any) -> str:
    return drawn("sections.html", title=title, heading=heading, top=top, parts=parts, listed=False, **shown)


def offset_page(
    link: Judged,
    question: Question,
    answer: Mapping[str, Any] | None,
    *,
    version: str,
    wall_ms: int,
) -> str:
    """
    Returns the page that translates one offset.

    Args:
        link: The link.
        question: Values of the form, as sent.
        answer: Answer of `eomirror.serve.queries.LinkQueries.offset`; None without a question.
        version: Release of eomirror.
        wall_ms: Wall clock, in ms.
    """
    reverse = question.get("from") == "target"
    ends = link.facts.source, link.facts.target
    here, there = reversed(ends) if reverse else ends
    return drawn(
        "offset.html", title=f"offset of {link.name}", link=link, question=question, reverse=reverse,
        answer=None if answer is None else _offsets(answer, here, there), version=version, wall_ms=wall_ms,
        tabs=tabs(link, "offset"), every=_PENDING_SECONDS if answer is not None and answer.get("pending") else 0,
    )  # fmt: skip


def _offsets(answer: Mapping[str, Any], here: str, there: str) -> Markup:
    if unanswered := _unanswered(answer):
        return unanswered
    parts = []
    for each in answer["offsets"]:
        where = f"{each['topic']}-{each['partition']} at {each['offset']:,} on {here}"
        if each["to_offset"] is None:
            parts.append(html("<p>{} {}: {}</p>", word("unknown"), where, each["reason"]))
            continue
        to = f"{each['to_topic']}-{each['to_partition']} at {each['to_offset']:,} on {there}"
        same = "the same record" if each["kind"] == "exact" else "the next record that was mirrored"
        parts.append(html("<p>{} {} is <strong>{}</strong>: {}</p>", word(each["kind"]), where, to, same))
    return joined(parts, "") or html("<p>no link knows this topic</p>")


def _verdict(link: Judged, title: str, readiness: Mapping[str, Any], key: str) -> Section:
    """Returns one sentence."""
    state = "ok" if readiness["ready"] else "no"
    if (
        key == "failover"
        and readiness["ready"]
        and (readiness["lost"] != 0 or not readiness["source_answers"])
    ):
        state = "warn"
    refused = ", ".join(check["name"] for check in readiness["checks"] if check["level"] == "no")
    told = "it would start" if readiness["ready"] else f"it would not start, because of: {refused}"
    # the same words as on the other pages: two numbers a second apart would look like two answers
    loss = f"; {link.verdict.failover.removeprefix('yes: ')}" if key == "failover" else ""
    return Section(key, title, html('<p class="verdict">{} {}{}</p>', word(state), told, loss))


def _checks(link: Judged, planned: Mapping[str, Any], failover: Mapping[str, Any]) -> list[Section]:
    """Returns the checks that need attention, the worst first, and those that are met, folded."""
    # a check with the same words for both kinds of promotion is one row
    levels: dict[tuple[str, str, str], list[str]] = {}
    for at, readiness in enumerate((planned, failover)):
        for check in readiness["checks"]:
            key = check["name"], check["text"], "" if check["level"] == "ok" else check["fix"]
            levels.setdefault(key, ["-", "-"])[at] = check["level"]
    wrong = sorted(
        (each for each in levels if set(levels[each]) & {"no", "warn"}), key=lambda each: _worst(levels[each])
    )
    met = [each for each in levels if each not in wrong]
    heads = ("check", "planned", "failover", "what, and what to do")
    rows = [
        (_named(link, name), *map(_level, levels[name, told, advice]), html("{}{}", told, fix(advice)))
        for name, told, advice in wrong
    ]
    parts = [section("Needs attention", heads, rows, key="attention")] if rows else []
    rows = [(name, *map(_level, levels[name, told, advice]), told) for name, told, advice in met]
    summary = many(len(rows), "check")
    return [*parts, section("Met", (*heads[:3], "what"), rows, key="met", folded=True, summary=summary)]


def _worst(levels: Sequence[str]) -> int:
    return min(_LEVELS.index(level) for level in levels if level in _LEVELS)


def _level(level: str) -> Markup | str:
    return word(level) if level in _LEVELS else level


def _named(link: Judged, check: str) -> Markup | str:
    """Returns the name of a check, as a link to what it counts."""
    parts = _DETAILS.get(check)
    if parts is None:
        return check
    page, anchor = parts
    return html('<a href="{}{}">{}</a>', link_path(link, *filter(None, [page])), anchor, check)


def _check(readiness: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    return next((check for check in readiness["checks"] if check["name"] == name), None)


def _checkpoints(link: Judged) -> dict[str, int]:
    """Returns the time of the newest checkpoint of each group, as far as known."""
    groups = link.status.groups
    return {} if groups is None else {each.group: each.last_checkpoint for each in groups.by_group}


def _groups(moves: Sequence[Mapping[str, Any]], since: Mapping[str, int]) -> Section:
    """
    Returns a row for each group: what it reads again in all of its partitions.

    Args:
        since: Time of each group's newest checkpoint, if what it reads again counts from there.
    """
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for move in moves:
        parts.setdefault(move["group"], []).append(move)
    total = {
        group: None if any(move["again"] is None for move in some) else sum(move["again"] for move in some)
        for group, some in parts.items()
    }
    first = sorted(parts, key=lambda group: (-_most(total[group]), group))[:ROWS]
    rows = [
        (
            group,
            html("what it read since {}", time(since[group]))
            if total[group] is None and group in since
            else count(total[group]),
            count(len(parts[group])),
            _kinds(parts[group]),
        )
        for group in first
    ]
    heads = ("group", "#reads again" if since else "#reads again, at most", "#partitions", "translation")
    return section("Groups, those that read most again first", heads, rows, key="groups")


def _kinds(moves: Sequence[Mapping[str, Any]]) -> Markup:
    kinds = Counter(str(move["kind"]) for move in moves)
    return joined(
        html('<span class="t">{} {}</span>', word(kind), count(number))
        for kind, number in kinds.most_common()
    )


def _most(again: int | None) -> float:
    """Returns the order of a number of records; unknown comes before all."""
    return float("inf") if again is None else again


def _moves(moves: Sequence[Mapping[str, Any]]) -> Section:
    rows = [
        (
            move["group"],
            partition(move["topic"], move["partition"]),
            "-" if move["offset"] < 0 else count(move["offset"]),
            count(move["to_offset"]),
            count(move["again"]),
            "-" if move["has"] is None else count(move["has"]),
            word(move["kind"])
            + (html('<br><span class="soft">{}</span>', move["reason"]) if move["reason"] else ""),
        )
        for move in sorted(
            moves,
            key=lambda move: (-_most(move["again"]), move["group"], move["topic"], move["partition"]),
        )[:ROWS]
    ]
    heads = (
        "group", "partition", "#offset on the source", "#resumes on the target at", "#reads again, at most",
        "#committed there", "translation",
    )  # fmt: skip
    before = html('<p class="soft">{} of groups, {} shown</p>', many(len(moves), "partition"), len(rows))
    return section("Partitions", heads, rows, key="moves", before=before)


def _every(answer: Mapping[str, Any]) -> int:
    return _PENDING_SECONDS if answer.get("pending") else _EVERY_SECONDS


def _unanswered(answer: Mapping[str, Any]) -> Markup:
    """Returns a message in place of an answer that is not known; empty if it is."""
    if answer.get("pending"):
        return html(
            '<p id="pending" role="status">The clusters are asked; the answer takes some seconds.</p>'
        )
    if "error" in answer:
        return html('<p id="failed" class="banner">{}{}</p>', answer["error"], fix(answer["fix"]))
    return Markup()
