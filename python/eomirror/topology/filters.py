"""
Filters the source topics of a link. Pure.

Patterns are full-match regular expressions of the Rust ``regex`` crate: linear time for every pattern, no look-around
(use `exclude` instead).  Internal topics are never mirrored, whatever the patterns.  The rule for MirrorMaker 2's
internal topics is its own (DefaultReplicationPolicy.isMM2InternalTopic, KIP-1074), and so is the cycle rule for
prefixed names (MirrorSourceConnector.isCycle, KAFKA-9914).  `TopicFilter.reason` is the one place that decides which
names pass, and why the others do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eomirror._native import PatternSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = [
    "TopicFilter",
    "internal_reason",
    "is_literal",
    "missing_names",
    "pattern_fault",
    "topic_filter",
    "unmatched",
    "upstream_aliases",
]

# A dot matches a line feed, too: a group id may hold any letter.
_ANY = "(?s)"
# A topic name that Kafka allows; other text is a pattern, or never matches.
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_META = frozenset(".^$*+?{}[]\\|()")


def internal_reason(topic: str, separator: str = ".") -> str:
    """
    Returns why a topic is internal and never mirrored; empty for all others.

    Args:
        topic: Name of a topic.
        separator: Separator in the names of MirrorMaker 2's internal topics, beside the dot.
    """
    if topic.startswith("eomirror."):
        return "a topic of eomirror itself"
    if topic.startswith("__"):
        return "an internal topic of Kafka"
    if topic.startswith("."):
        return "its name starts with a dot, which marks internal topics"
    if any(_is_of_mm2(topic, each) for each in {".", separator}):
        return "an internal topic of MirrorMaker 2"
    return ""


def _is_of_mm2(topic: str, separator: str) -> bool:
    end = f"{separator}internal"
    return topic.endswith(f"{separator}checkpoints{end}") or (topic.startswith("mm2") and topic.endswith(end))


def upstream_aliases(topic: str, separator: str = ".") -> Iterator[str]:
    """
    Yields the aliases in a prefixed topic name, newest hop first.

    Any text before a separator counts as an alias, as in MirrorMaker 2; so an alias that contains it is never seen.
    """
    rest = topic
    while separator in rest:
        alias, rest = rest.split(separator, 1)
        yield alias


def pattern_fault(pattern: str) -> str:
    """Returns the error of a regular expression; empty if it is valid."""
    try:
        # Without the flag first: the error shows the pattern.
        PatternSet([pattern], [])
        PatternSet([_ANY + pattern], [])
    except ValueError as error:
        # the regex crate draws the pattern with a caret; the last line is the message
        message = " ".join(str(error).rpartition("error:")[2].split())
        return ascii(message)[1:-1][:200] or "it cannot be compiled"
    return ""


def is_literal(pattern: str) -> bool:
    """Returns True if a pattern matches exactly one text: itself, with any dots escaped."""
    return _META.isdisjoint(pattern.replace(r"\.", ""))


def _named(pattern: str) -> str:
    """Returns the topic that a pattern gives by name; empty for a pattern.  A dot is taken as a part of the name."""
    name = pattern.replace(r"\.", ".")
    return name if _LEGAL.fullmatch(name) and name not in {".", ".."} else ""


def missing_names(patterns: Iterable[str], topics: Collection[str]) -> list[str]:
    """Returns the topics that patterns give by name and that are not among ``topics``."""
    return sorted({name for pattern in patterns if (name := _named(pattern))}.difference(topics))


def unmatched(patterns: Iterable[str], topics: Collection[str]) -> list[str]:
    """Returns the patterns, other than names, that match none of the topics."""
    return [
        pattern
        for pattern in patterns
        if not _named(pattern) and not any(map(topic_filter((pattern,)).accepts, topics))
    ]


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """
    Filter: included topics without excluded and internal ones, and without those whose name shows a cycle.

    Attributes:
        include: Patterns of topics to mirror; an empty tuple matches no topic.
        exclude: Patterns of topics that are not mirrored; wins over ``include``.
        hops: Aliases that a prefixed name must not contain: the target of a prefix link.
        separator: Text between alias and topic in prefixed names, and in those of MirrorMaker 2's internal topics.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    hops: tuple[str, ...] = ()
    separator: str = "."

    def matches(self, topic: str) -> bool:
        """Returns True if the topic is mirrored."""
        return not self.reason(topic)

    def accepts(self, text: str) -> bool:
        """Returns True if the patterns alone match; also used for other names, such as groups."""
        return _compiled(self.include, self.exclude).matches(text)

    def reason(self, topic: str) -> str:
        """Returns why the topic is not mirrored; empty if it is."""
        if internal := internal_reason(topic, self.separator):
            return f"it is {internal}" if internal.startswith("a") else internal
        if not self.wants(topic):
            return "no pattern of `topics` matches it"
        if not self.accepts(topic):
            return "`exclude` matches it"
        if alias := self._passed(topic):
            return f"its name shows that it has passed {alias} already, so mirroring it would be a cycle"
        return ""

    def wants(self, topic: str) -> bool:
        """Returns True if a pattern of ``include`` matches, whatever else keeps the topic from being mirrored."""
        return _compiled(self.include, ()).matches(topic)

    def left_out(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """Returns the topics that ``include`` matches and that are not mirrored nevertheless, by the reason."""
        found: dict[str, list[str]] = {}
        for topic in topics:
            if self.wants(topic) and (why := self.reason(topic)):
                found.setdefault(why, []).append(topic)
        return found

    def _passed(self, topic: str) -> str:
        return next((alias for alias in upstream_aliases(topic, self.separator) if alias in self.hops), "")


@lru_cache(maxsize=256)
def _compiled(include: tuple[str, ...], exclude: tuple[str, ...]) -> PatternSet:
    return PatternSet([_ANY + each for each in include], [_ANY + each for each in exclude])


def topic_filter(
    include: tuple[str, ...], exclude: tuple[str, ...] = (), hops: tuple[str, ...] = (), separator: str = "."
) -> TopicFilter:
    """Returns a filter; compiled patterns are cached, so this is cheap."""
    return TopicFilter(include, exclude, hops, separator)
