"""Draws the page of all links. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.metrics.verdict import NO_ACTION, VERDICTS
from eomirror.serve.cluster_map import cluster_map
from eomirror.serve.link_facts import failover, host, lag, last_commit, old, rate, since, topics
from eomirror.serve.markup import count, drawn, html, many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.serve.body import Judged

__all__ = ["overview_page"]

# more cards of links that need nothing are folded
_MOST_OPEN = 6


def overview_page(links: Sequence[Judged], *, version: str, wall_ms: int) -> str:
    """Returns the page of all links."""
    # worst first
    graded = sorted(links, key=lambda link: (-VERDICTS.index(link.verdict.word), link.name))
    calm = [link for link in graded if link.verdict.word in NO_ACTION and not link.todo]
    folded = calm if len(links) > _MOST_OPEN else []
    shown = [link for link in graded if link not in folded]
    return drawn(
        "overview.html",
        title=_title(links, len(links) - len(calm)),
        links=links,
        clusters=len({end for link in links for end in (link.facts.source, link.facts.target)}),
        todo=[(link, each) for link in graded for each in link.todo],
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


def _title(links: Sequence[Judged], troubled: int) -> str:
    if not links:
        return "links"
    if troubled:
        return f"{troubled} of {many(len(links), 'link')} need{'s' if troubled == 1 else ''} action"
    return f"ok: {many(len(links), 'link')}"


def _rate(link: Judged) -> str:
    """Returns the rate as the map has it, in few letters."""
    return "rate unknown" if link.status.unread else f"{_short(link.status.rate)}/s"


def _short(value: float) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if value >= 100 * size or (size > 1_000 and value >= size):  # noqa: PLR2004  thousands are short enough
            return f"{value / size:,.1f} {unit}"
    return count(value)


def _lag(link: Judged) -> str:
    if link.status.ended:
        return "no lag"
    return "lag unknown" if link.status.lag_records is None else f"lag {_short(link.status.lag_records)}"


def _told(link: Judged) -> str:
    return f"{link.facts.source} to {link.facts.target}: {link.verdict.word}, {_rate(link)}, {_lag(link)}"


def _card(link: Judged, wall_ms: int) -> dict[str, object]:
    """Returns a card; *What to do now* has the reason of a verdict that needs an action."""
    return {
        "link": link,
        "reason": link.verdict.text if link.verdict.word in NO_ACTION else since(link, wall_ms),
        "old": old(link),
        "facts": [
            ("lag", lag(link, wall_ms)),
            ("rate", rate(link)),
            ("safe to fail over", failover(link)),
            ("last commit", last_commit(link, wall_ms)),
            ("owner", host(link)),
            ("topics", topics(link)),
            ("from, to", html("{} → {}", link.facts.source, link.facts.target)),
        ],
    }
