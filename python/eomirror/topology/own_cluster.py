"""
Decides whether a link may copy topics within one cluster. Pure.

Each topic needs a copy of another name, which the link must not read again: it would mirror its own copies for ever.
This module knows the names that the configuration spells out, and those that its patterns suggest.  A topic that only
the cluster shows is refused by its name when the link discovers it (`eomirror.topics.discovery`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eomirror.errors import TopicError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.topology.flow import LinkShape

__all__ = ["own_cluster_fault", "sample_topics"]

_ANY_TEXT = re.compile(r"\\?\.[*+]")
_FILLINGS = ("TOPIC", "topic", "")


def sample_topics(link: LinkShape) -> Iterator[str]:
    """Yields names that the link mirrors: its literal ones, and its patterns with a placeholder in place of ``.*``."""
    found = set()
    for pattern in (*link.topics, link.naming.match, *(old for old, _ in link.naming.names)):
        for filling in _FILLINGS:
            name = re.sub(r"[^a-zA-Z0-9._-]", "", _ANY_TEXT.sub(filling, pattern))
            if name and name not in found and link.filter.matches(name):
                found.add(name)
                yield name


_RENAME = (
    'rename the topics to names that `topics` do not match, as in topics: [".*_REPLICA"] with '
    'naming: {match: "(.*)_REPLICA", to: "$1"}'
)


def own_cluster_fault(link: LinkShape) -> tuple[str, str]:
    """Returns fault and fix of a link from a cluster to itself; empty texts if it is valid."""
    same = "source and target are the same cluster"
    if link.naming.kind in ("prefix", "identity"):
        return (
            f"{same}, where `naming: {link.naming.kind}` is of no use",
            f"name two different clusters; or, to copy topics within a cluster, {_RENAME}",
        )
    for topic in sample_topics(link):
        try:
            name = link.target_naming.target_topic(topic)
        except TopicError:
            continue  # never mirrored
        if name == topic or link.filter.accepts(name):
            return (
                f"{same}, and {topic} would be copied to {name}, which the link would mirror again",
                _RENAME,
            )
    return "", ""
