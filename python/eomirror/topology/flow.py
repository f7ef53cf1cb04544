"""
Decides whether topics can flow from one link into another. Pure.

Whether link M can read a topic that link L writes is a question about two regular languages.  The answer is yes or no
if L lists literal names, yes if L and M have the same patterns, and maybe otherwise.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eomirror.errors import TopicError
from eomirror.topology.filters import TopicFilter, is_literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.topology.naming import Naming, TargetNaming

__all__ = [
    "Flow",
    "GraphFault",
    "LinkShape",
    "LoopRules",
    "UpstreamTopic",
    "covers",
    "flow",
    "literal_targets",
    "overlap",
]


class LinkShape(Protocol):
    """The parts of `eomirror.config.Link` that the topology uses."""

    @property
    def name(self) -> str:
        """Unique name."""

    @property
    def source(self) -> str:
        """Alias of the cluster that is read."""

    @property
    def target(self) -> str:
        """Alias of the cluster that is written."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Patterns of topics."""

    @property
    def exclude(self) -> tuple[str, ...]:
        """Patterns of topics that are not mirrored."""

    @property
    def naming(self) -> Naming:
        """Naming policy."""

    @property
    def forward(self) -> str | tuple[str, ...]:
        """``auto``, ``local`` or aliases."""

    @property
    def provenance(self) -> str:
        """``auto``, ``on`` or ``off``."""

    @property
    def filter(self) -> TopicFilter:
        """Filter of mirrored topics."""

    @property
    def target_naming(self) -> TargetNaming:
        """Naming of target topics."""


@dataclass(frozen=True, slots=True)
class UpstreamTopic:
    """
    A topic that a link lists by its name and that another link can create on its source.

    Attributes:
        topic: Its name on the link's source.
        link: The first link that can create it there.
        places: Cluster alias and name of each topic that it may be a copy of, through one link or several.
    """

    topic: str
    link: str
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LoopRules:
    """
    Rules that the topology sets for one link.

    Attributes:
        provenance_header: Add the provenance header to every record.
        guard: Read the origin of records, and drop those that have passed the target or have another origin.
        origins: Aliases of the clusters whose records are forwarded, sorted; None for all.
        why: Reason in one line, for users.
        onward: Filters of the links that mirror its target topics onward, on a path that leads back to it.
        upstream: Topics of the link that other links can create on its source.
        whole: Forward every record for now, whatever it has passed: topics of an old source are copied back whole.  No
            configuration says so, only `eomirror restore --orphans recreate`.
    """

    provenance_header: bool = False
    guard: bool = False
    origins: tuple[str, ...] | None = None
    why: str = "no links make equal names meet"
    onward: tuple[TopicFilter, ...] = ()
    upstream: tuple[UpstreamTopic, ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class GraphFault:
    """
    A link with cycles or duplicates that no rule prevents.

    Attributes:
        link: Index of the link.
        key: Setting of the link at fault.
        message: Description of the fault.
        fix: Setting that would be valid.
    """

    link: int
    key: str
    message: str
    fix: str


class Flow(enum.IntEnum):
    """Answer to the question if one link reads topics that another writes."""

    NO = 0
    MAYBE = 1
    YES = 2


def flow(first: LinkShape, then: LinkShape) -> Flow:
    """Returns whether ``then`` can mirror a topic that ``first`` writes."""
    if first.target != then.source:
        return Flow.NO
    if all(is_literal(pattern) for pattern in first.topics):
        return Flow.YES if any(then.filter.matches(name) for name in literal_targets(first)) else Flow.NO
    alike = first.naming.shows(then.target) and then.naming.shows(then.target)
    if alike and first.naming.separator == then.naming.separator and then.target == first.source:
        return Flow.NO  # the prefix shows that it came from there
    if first.naming.kind == "map":
        return Flow.YES if any(then.filter.matches(new) for _, new in first.naming.names) else Flow.NO
    if first.naming.kind == "identity":
        if covers(then, first):
            return Flow.YES
        if all(is_literal(pattern) for pattern in then.topics):
            names = (_unescaped(pattern) for pattern in then.topics)
            return (
                Flow.YES
                if any(first.filter.matches(n) and then.filter.matches(n) for n in names)
                else Flow.NO
            )
    return Flow.MAYBE


def _unescaped(pattern: str) -> str:
    return pattern.replace("\\.", ".")


def literal_targets(link: LinkShape) -> Iterable[str]:
    """Yields the target names of topics that a link lists by their literal names."""
    for pattern in link.topics:
        topic = _unescaped(pattern)
        if link.filter.matches(topic):
            try:
                yield link.target_naming.target_topic(topic)
            except TopicError:
                continue  # never created, so never read


def covers(wide: LinkShape, narrow: LinkShape) -> bool:
    """Returns True if ``wide`` certainly mirrors every topic that ``narrow`` mirrors."""
    if all(is_literal(pattern) for pattern in narrow.topics):
        names = [_unescaped(pattern) for pattern in narrow.topics]
        return all(wide.filter.matches(name) for name in names if narrow.filter.matches(name))
    includes_all = ".*" in wide.topics or set(narrow.topics) <= set(wide.topics)
    return includes_all and set(wide.exclude) <= set(narrow.exclude)


def overlap(one: LinkShape, other: LinkShape) -> bool:
    """Returns True if two links may mirror the same source topic; also if their patterns do not determine it."""
    for names, reader in ((one, other), (other, one)):
        if all(is_literal(pattern) for pattern in names.topics):
            topics = [_unescaped(pattern) for pattern in names.topics]
            return any(names.filter.matches(topic) and reader.filter.matches(topic) for topic in topics)
    return True
