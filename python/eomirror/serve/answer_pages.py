"""Draws the pages of questions that are answered on request: readiness, groups, one offset. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eomirror.serve.markup import (
    Number,
    count,
    fix,
    link_path,
    name,
    page,
    partition,
    section,
    text,
    time,
    word,
)
from eomirror.serve.page import ROWS, tabs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def readiness_page(link: Mapping[str, Any], answer: Mapping[str, Any], *, version: str, wall_ms: int) -> str:
    """
    Returns the page of a link's readiness.

    Args:
        link: Name of the link, as ``link``.
        answer: Answer of `eomirror.serve.queries.LinkQueries.readiness`.
        version: Release of eomirror.
        wall_ms: Wall clock, in ms.
    """
    head = f"<h1>Can {name(link['link'])} fail over?</h1>"
    body = _unanswered(answer)
    if not body:
        tables = [
            _checks(
                link, "Planned: cutover or promote, while the source lives", answer["planned"], "planned"
            ),
            _checks(link, "Disaster: failover, if the source is lost now", answer["failover"], "failover"),
        ]
        # without the source only a failover is left
        body = "".join(tables if answer["planned"]["source_answers"] else reversed(tables))
    return page(
        f"readiness of {link['link']}", head + body, version=version, wall_ms=wall_ms,
        tabs=tabs(link, "readiness"), every=_every(answer),
    )  # fmt: skip


def groups_page(link: Mapping[str, Any], answer: Mapping[str, Any], *, version: str, wall_ms: int) -> str:
    """Returns the page of a link's groups; arguments are those of `readiness_page`."""
    head = f"<h1>Consumer groups of {name(link['link'])}</h1>"
    body = _unanswered(answer)
    if not body:
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
        body = f"<p>{lead}</p>" + _groups(moves, since) + _moves(moves)
        if problem := _check(answer["planned"], "groups"):
            body = f"<p>{word(problem['level'])} {text(problem['text'])}{fix(problem['fix'])}</p>" + body
    return page(
        f"groups of {link['link']}", head + body, version=version, wall_ms=wall_ms, tabs=tabs(link, "groups"),
        every=_every(answer),
    )  # fmt: skip


def offset_page(
    link: Mapping[str, Any],
    question: Question,
    answer: Mapping[str, Any] | None,
    *,
    version: str,
    wall_ms: int,
) -> str:
    """
    Returns the page that translates one offset.

    Args:
        link: Name, source and target of the link.
        question: Values of the form, as sent.
        answer: Answer of `eomirror.serve.queries.LinkQueries.offset`; None without a question.
        version: Release of eomirror.
        wall_ms: Wall clock, in ms.
    """
    reverse = question.get("from") == "target"
    here, there = (link["target"], link["source"]) if reverse else (link["source"], link["target"])
    choices = "".join(
        f'<option value="{end}"{" selected" if reverse == (end == "target") else ""}>{text(link[end])} ({end})</option>'
        for end in ("source", "target")
    )
    form = (
        f'<form role="search" action="{link_path(link, "offset")}"><label for="from">Cluster</label>'
        f'<select id="from" name="from">{choices}</select>'
        + "".join(
            f'<label for="{field}">{field.capitalize()}</label>'
            f'<input id="{field}" name="{field}"{kind} required value="{text(question.get(field, ""))}">'
            for field, kind in (
                ("topic", ""),
                ("partition", ' inputmode="numeric" pattern="[0-9]+" size="4"'),
                ("offset", ' inputmode="numeric" pattern="[0-9]+" size="12"'),
            )
        )
        + "<button>Translate</button></form>"
    )
    body = f"<h1>Find an offset of {name(link['link'])}</h1>{form}"
    if answer is not None:
        body += f'<section id="answer" role="status"><h2>Answer</h2>{_offsets(answer, here, there)}</section>'
    return page(
        f"offset of {link['link']}", body, version=version, wall_ms=wall_ms, tabs=tabs(link, "offset"),
        every=_PENDING_SECONDS if answer is not None and answer.get("pending") else 0,
    )  # fmt: skip


def _offsets(answer: Mapping[str, Any], here: str, there: str) -> str:
    if unanswered := _unanswered(answer):
        return unanswered
    parts = []
    for each in answer["offsets"]:
        where = f"{each['topic']}-{each['partition']} at {each['offset']:,} on {here}"
        if each["to_offset"] is None:
            parts.append(f"<p>{word('unknown')} {text(where)}: {text(each['reason'])}</p>")
            continue
        to = f"{each['to_topic']}-{each['to_partition']} at {each['to_offset']:,} on {there}"
        same = "the same record" if each["kind"] == "exact" else "the next record that was mirrored"
        parts.append(f"<p>{word(each['kind'])} {text(where)} is <strong>{text(to)}</strong>: {same}</p>")
    return "".join(parts) or "<p>no link knows this topic</p>"


def _checks(link: Mapping[str, Any], title: str, readiness: Mapping[str, Any], key: str) -> str:
    """Returns a verdict with its checks, those that fail first."""
    rows = [
        (_named(link, check), word(check["level"]), f"{text(check['text'])}{fix(_wanted(check))}")
        for check in sorted(readiness["checks"], key=lambda check: _LEVELS.index(check["level"]))
    ]
    state = "ok" if readiness["ready"] else "no"
    if (
        key == "failover"
        and readiness["ready"]
        and (readiness["lost"] != 0 or not readiness["source_answers"])
    ):
        state = "warn"
    told = "it would start" if readiness["ready"] else "it would not start: see each check with NO"
    before = f"<p>{word(state)} {told}"
    # the same words as on the other pages: two numbers a second apart would look like two answers
    before += f"; {text(link['failover'])}</p>" if key == "failover" else "</p>"
    return section(title, ("check", "result", "what, and what to do"), rows, key=key, before=before)


def _named(link: Mapping[str, Any], check: Mapping[str, Any]) -> str:
    """Returns the name of a check; of one that is not met, as a link to what it counts."""
    parts = _DETAILS.get(check["name"])
    if parts is None or check["level"] == "ok":
        return text(check["name"])
    page_, anchor = parts
    return f'<a href="{link_path(link, *filter(None, [page_]))}{anchor}">{text(check["name"])}</a>'


def _wanted(check: Mapping[str, Any]) -> str:
    return "" if check["level"] == "ok" else str(check["fix"])


def _check(readiness: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    return next((check for check in readiness["checks"] if check["name"] == name), None)


def _checkpoints(link: Mapping[str, Any]) -> dict[str, int]:
    """Returns the time of the newest checkpoint of each group, as far as known."""
    groups = link.get("groups") or {"by_group": ()}
    return {each["group"]: each["last_checkpoint"] for each in groups["by_group"]}


def _groups(moves: Sequence[Mapping[str, Any]], since: Mapping[str, int]) -> str:
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
            text(group),
            Number(
                f"what it read since {time(since[group])}"
                if total[group] is None and group in since
                else count(total[group])
            ),
            Number(count(len(parts[group]))),
            _kinds(parts[group]),
        )
        for group in first
    ]
    heads = ("group", "#reads again" if since else "#reads again, at most", "#partitions", "translation")
    return section("Groups, those that read most again first", heads, rows, key="groups")


def _kinds(moves: Sequence[Mapping[str, Any]]) -> str:
    kinds = Counter(str(move["kind"]) for move in moves)
    return "<br>".join(
        f'<span class="t">{word(kind)} {count(number)}</span>' for kind, number in kinds.most_common()
    )


def _most(again: int | None) -> float:
    """Returns the order of a number of records; unknown comes before all."""
    return float("inf") if again is None else again


def _moves(moves: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            text(move["group"]),
            partition(move["topic"], move["partition"]),
            Number("-" if move["offset"] < 0 else count(move["offset"])),
            Number(count(move["to_offset"])),
            Number("unknown" if move["again"] is None else count(move["again"])),
            Number("-" if move["has"] is None else count(move["has"])),
            word(move["kind"])
            + (f'<br><span class="soft">{text(move["reason"])}</span>' if move["reason"] else ""),
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
    before = f"<p class=soft>{count(len(moves))} partitions of groups, {len(rows)} shown</p>"
    return section("Partitions", heads, rows, key="moves", before=before)


def _every(answer: Mapping[str, Any]) -> int:
    return _PENDING_SECONDS if answer.get("pending") else _EVERY_SECONDS


def _unanswered(answer: Mapping[str, Any]) -> str:
    """Returns a message in place of an answer that is not known; empty if it is."""
    if answer.get("pending"):
        return '<p id="pending" role="status">The clusters are asked. The answer appears here.</p>'
    if "error" in answer:
        return f'<p id="failed" class="banner">{text(answer["error"])}{fix(answer["fix"])}</p>'
    return ""
