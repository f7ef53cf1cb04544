"""Names of topics that a link mirrors, as far as its configuration suggests them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.topology.flow import LinkShape

__all__ = ["sample_topics"]

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
