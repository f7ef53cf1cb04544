"""
What the topology knows of a link, and whether topics can flow from one link into another. Pure.

"Can a topic that link L writes be read by link M" is a question about two regular languages.  We answer yes
where L and M have the same patterns or L names its topics literally, no where literal names tell, and maybe
otherwise.
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

__all__ = ["Flow", "GraphFault", "LinkShape", "LoopRules", "covers", "flow", "overlap"]


class LinkShape(Protocol):
    """What the topology needs to know of a link; `eomirror.config.Link` has it."""

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
        """Patterns of topics that are left out."""

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
        """Which topics are mirrored."""

    @property
    def target_naming(self) -> TargetNaming:
        """How they are called on the target."""


@dataclass(frozen=True, slots=True)
class LoopRules:
    """
    What the topology asks of one link.

    Attributes:
        provenance_header: Write the provenance header into every record.
        guard: Look at where records come from, and drop those that passed the target or another origin.
        origins: Aliases of the clusters whose records are forwarded, sorted; None: of all.
        why: One line for people.
        onward: What the links mirror that carry its copies on, on a way that leads back to it.
    """

    provenance_header: bool = False
    guard: bool = False
    origins: tuple[str, ...] | None = None
    why: str = "no links make equal names meet"
    onward: tuple[TopicFilter, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphFault:
    """
    A link that cannot be kept from loops or twins.

    Attributes:
        link: Index of the link.
        key: Setting of the link that is wrong.
        message: What is wrong.
        fix: What would be right.
    """

    link: int
    key: str
    message: str
    fix: str


class Flow(enum.IntEnum):
    """Whether topics that one link writes are read by another."""

    NO = 0
    MAYBE = 1
    YES = 2


def flow(first: LinkShape, then: LinkShape) -> Flow:
    """Whether a topic that ``first`` writes on its target can be mirrored on by ``then``."""
    if first.target != then.source:
        return Flow.NO
    if all(is_literal(pattern) for pattern in first.topics):
        return Flow.YES if any(then.filter.matches(name) for name in _literal_targets(first)) else Flow.NO
    if first.naming.kind == "prefix" and then.naming.kind == "prefix" and then.target == first.source:
        return Flow.NO  # the name says that it came from there
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


def _literal_targets(link: LinkShape) -> Iterable[str]:
    for pattern in link.topics:
        topic = _unescaped(pattern)
        if link.filter.matches(topic):
            try:
                yield link.target_naming.target_topic(topic)
            except TopicError:
                continue  # never created, so never read


def covers(wide: LinkShape, narrow: LinkShape) -> bool:
    """Whether ``wide`` certainly carries every topic that ``narrow`` carries."""
    if all(is_literal(pattern) for pattern in narrow.topics):
        names = [_unescaped(pattern) for pattern in narrow.topics]
        return all(wide.filter.matches(name) for name in names if narrow.filter.matches(name))
    includes_all = ".*" in wide.topics or set(narrow.topics) <= set(wide.topics)
    return includes_all and set(wide.exclude) <= set(narrow.exclude)


def overlap(one: LinkShape, other: LinkShape) -> bool:
    """Whether two links may carry the same source topic; True when their patterns do not tell."""
    for names, reader in ((one, other), (other, one)):
        if all(is_literal(pattern) for pattern in names.topics):
            topics = [_unescaped(pattern) for pattern in names.topics]
            return any(names.filter.matches(topic) and reader.filter.matches(topic) for topic in topics)
    return True
