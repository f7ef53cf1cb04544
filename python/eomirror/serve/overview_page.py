"""Draws the page of all links from their summaries in the API. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.metrics.verdict import NO_ACTION, VERDICTS
from eomirror.serve.cluster_map import cluster_map
from eomirror.serve.link_facts import failover, host, lag, last_commit, old, rate, since, topics, unread
from eomirror.serve.markup import count, drawn, html, many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["overview_page"]

# more cards of links that need nothing are folded
_MOST_OPEN = 6


def overview_page(links: Sequence[Mapping[str, Any]], *, version: str, wall_ms: int) -> str:
    """Returns the page of all links; each is a summary of `eomirror.serve.body`."""
    # worst first
    graded = sorted(links, key=lambda link: (-VERDICTS.index(link["verdict"]), str(link["link"])))
    calm = [link for link in graded if link["verdict"] in NO_ACTION and not link["todo"]]
    folded = calm if len(links) > _MOST_OPEN else []
    shown = [link for link in (graded if folded else links) if link not in folded]
    return drawn(
        "overview.html",
        title=_title(links, len(links) - len(calm)),
        links=links,
        clusters=len({str(link[end]) for link in links for end in ("source", "target")}),
        todo=[(link, each) for link in links for each in link["todo"]],
        map=cluster_map(links),
        told="; ".join(_told(link) for link in links),
        graded=graded,
        shown=[_card(link, wall_ms) for link in shown],
        folded=[_card(link, wall_ms) for link in folded],
        rate=_rate,
        lag=_lag,
        version=version,
        wall_ms=wall_ms,
        tabs=(),
        every=3,
    )


def _title(links: Sequence[Mapping[str, Any]], troubled: int) -> str:
    if not links:
        return "links"
    if troubled:
        return f"{troubled} of {many(len(links), 'link')} need{'s' if troubled == 1 else ''} action"
    return f"ok: {many(len(links), 'link')}"


def _rate(link: Mapping[str, Any]) -> str:
    """Returns the rate as the map has it, in few letters."""
    return "rate unknown" if unread(link) else f"{_short(link['records_per_second'])}/s"


def _short(value: float) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if value >= 100 * size or (size > 1_000 and value >= size):  # noqa: PLR2004  thousands are short enough
            return f"{value / size:,.1f} {unit}"
    return count(value)


def _lag(link: Mapping[str, Any]) -> str:
    if link["ended"]:
        return "no lag"
    return "lag unknown" if link["lag_records"] is None else f"lag {_short(link['lag_records'])}"


def _told(link: Mapping[str, Any]) -> str:
    return f"{link['source']} to {link['target']}: {link['verdict']}, {_rate(link)}, {_lag(link)}"


def _card(link: Mapping[str, Any], wall_ms: int) -> dict[str, Any]:
    """Returns a card; *What to do now* has the reason of a verdict that needs an action."""
    return {
        "link": link,
        "reason": link["reason"] if link["verdict"] in NO_ACTION else since(link, wall_ms),
        "old": old(link),
        "facts": [
            ("lag", lag(link, wall_ms)),
            ("rate", rate(link)),
            ("safe to fail over", failover(link)),
            ("last commit", last_commit(link, wall_ms)),
            ("owner", host(link)),
            ("topics", topics(link)),
            ("from, to", html("{} → {}", link["source"], link["target"])),
        ],
    }
