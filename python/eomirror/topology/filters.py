"""
Which source topics a link mirrors. Pure.

Patterns are full-match regular expressions of the Rust ``regex`` crate: linear time whatever the pattern, no
look-around (`exclude` serves instead).  Internal topics are never mirrored, whatever a pattern says; for
those of MirrorMaker 2 this is its own rule (DefaultReplicationPolicy.isMM2InternalTopic, KIP-1074), as is the
cycle rule for prefixed names (MirrorSourceConnector.isCycle, KAFKA-9914).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eomirror._native import PatternSet

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "TopicFilter",
    "internal_reason",
    "is_literal",
    "pattern_fault",
    "topic_filter",
    "upstream_aliases",
]

_META = frozenset(".^$*+?{}[]\\|()")


def internal_reason(topic: str) -> str:
    """Why a topic is internal and therefore never mirrored; empty for all others."""
    if topic.startswith("eomirror."):
        return "a topic of eomirror itself"
    if topic.startswith("__"):
        return "an internal topic of Kafka"
    if topic.startswith("."):
        return "its name starts with a dot, which marks internal topics"
    if topic.endswith(".checkpoints.internal") or (topic.startswith("mm2") and topic.endswith(".internal")):
        return "an internal topic of MirrorMaker 2"
    return ""


def upstream_aliases(topic: str) -> Iterator[str]:
    """
    What prefix naming says about the way of a topic, newest hop first.

    Any text before a dot looks like an alias, as in MirrorMaker 2.
    """
    rest = topic
    while "." in rest:
        alias, rest = rest.split(".", 1)
        yield alias


def pattern_fault(pattern: str) -> str:
    """What is wrong with a regular expression; empty when nothing is."""
    try:
        PatternSet([pattern], [])
    except ValueError as error:
        # the regex crate draws the pattern with a caret; its last line says what is wrong
        told = " ".join(str(error).rpartition("error:")[2].split())
        return ascii(told)[1:-1][:200] or "it cannot be compiled"
    return ""


def is_literal(pattern: str) -> bool:
    """Whether a pattern matches exactly one text: itself, its dots (if any) escaped."""
    return _META.isdisjoint(pattern.replace(r"\.", ""))


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """
    Include minus exclude minus internal minus what would go round by its name.

    Attributes:
        include: Patterns of topics to mirror; none matches nothing.
        exclude: Patterns of topics to leave out; wins over ``include``.
        hops: Aliases that must not be in a prefixed name's way: source and target of a prefix link.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    hops: tuple[str, ...] = ()

    def matches(self, topic: str) -> bool:
        """Whether the topic is mirrored."""
        return not self.reason(topic)

    def accepts(self, text: str) -> bool:
        """Whether the patterns alone match; also serves names that are no topics, such as groups."""
        return _compiled(self.include, self.exclude).matches(text)

    def reason(self, topic: str) -> str:
        """Why the topic is not mirrored; empty when it is."""
        if internal := internal_reason(topic):
            return internal
        if not self.accepts(topic):
            return "no pattern of `topics` matches, or one of `exclude` does"
        if alias := self._passed(topic):
            return f"by its name it has passed {alias} already, so that mirroring it would go round"
        return ""

    def has_passed(self, topic: str) -> bool:
        """Whether nothing but the way that its name tells of keeps the topic from being mirrored."""
        return bool(self._passed(topic)) and not internal_reason(topic) and self.accepts(topic)

    def _passed(self, topic: str) -> str:
        return next((alias for alias in upstream_aliases(topic) if alias in self.hops), "")


@lru_cache(maxsize=256)
def _compiled(include: tuple[str, ...], exclude: tuple[str, ...]) -> PatternSet:
    return PatternSet(list(include), list(exclude))


def topic_filter(
    include: tuple[str, ...], exclude: tuple[str, ...] = (), hops: tuple[str, ...] = ()
) -> TopicFilter:
    """A filter; compiled patterns are kept, so that asking a link for its filter is cheap."""
    return TopicFilter(include, exclude, hops)
