"""
Finds patterns of a list that the other list excludes as a whole, so that they match nothing. Pure.

Names decide if one regular expression covers another.  They are made from the pattern by filling in its wildcards, for
each alternative.  A name that the pattern does not match after all does not count, so that a pattern that is not
understood is never reported.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from eomirror.topology.filters import pattern_fault, topic_filter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MATCHES_NOTHING", "covered_patterns", "covered_text"]

#: Words of the warning of such a pattern.
MATCHES_NOTHING = "matches nothing"

# Letters, digits and each separator that names have.
_FILLINGS = ("", "a", "Zq", "7", "a-b", "a.b", "a_7")
_MOST = 200
_GROUP = re.compile(r"(?<!\\)\((?:\?:)?([^()]*)(?<!\\)\)")
_WILD = re.compile(r"(?:\.|\[[^\]]*\]|\\[dDwWsS])(?:[*+?]|\{[^}]*\})?\??|[*+?]|\{[^}]*\}")
_ESCAPED = re.compile(r"\\(.)")


def covered_patterns(include: Sequence[str], exclude: Sequence[str]) -> list[tuple[str, str]]:
    """Returns each included pattern that an excluded one covers, with that one."""
    found = []
    exclude = [each for each in exclude if not pattern_fault(each)]
    for pattern in include:
        if pattern_fault(pattern):
            continue
        names = list(itertools.islice(_names(pattern), _MOST))
        covers = (each for each in exclude if names and all(map(topic_filter((each,)).accepts, names)))
        if (other := next(covers, None)) is not None:
            found.append((pattern, other))
    return found


def covered_text(include: Sequence[str], exclude: Sequence[str], name: str) -> str:
    """Returns in one sentence which patterns match nothing; empty for none.  ``name`` is that of the other list."""
    return "; ".join(
        f"pattern {ascii(pattern)[1:-1]} {MATCHES_NOTHING}: {name} has {ascii(other)[1:-1]}, which excludes all of it"
        for pattern, other in covered_patterns(include, exclude)
    )


def _names(pattern: str) -> Iterator[str]:
    accepts = topic_filter((pattern,)).accepts
    for alternative in _alternatives(pattern):
        for filling in _FILLINGS:
            name = "".join(
                (filling if wild else _ESCAPED.sub(r"\1", text)) for wild, text in _pieces(alternative)
            )
            if name and accepts(name):
                yield name


def _alternatives(pattern: str) -> Iterator[str]:
    """Yields the pattern without groups and alternations, once for each of their branches."""
    found = _GROUP.search(pattern)
    if found is None:
        yield from re.split(r"(?<!\\)\|", pattern)
        return
    for branch in re.split(r"(?<!\\)\|", found.group(1)):
        yield from itertools.islice(
            _alternatives(pattern[: found.start()] + branch + pattern[found.end() :]), _MOST
        )


def _pieces(pattern: str) -> Iterator[tuple[bool, str]]:
    """Yields wildcards and literal texts in turn; True for a wildcard."""
    at = 0
    for found in _WILD.finditer(pattern):
        if found.start() > 0 and pattern[found.start() - 1] == "\\" and found.group()[0] != "\\":
            # an escaped letter, such as a dot
            continue
        yield False, pattern[at : found.start()]
        yield True, found.group()
        at = found.end()
    yield False, pattern[at:]
