"""
Names topics on the target. Pure.

Five policies, as in contract.md: ``prefix``, ``identity``, ``{pattern: ...}``, ``{match: ..., to: ...}`` and
``{map: ...}``.  A topic that the policy does not cover is an error of that topic, never a silent guess.
Legal names are Kafka's own (org.apache.kafka.common.internals.Topic): 1 to 249 of ``[a-zA-Z0-9._-]``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eomirror.errors import TopicError
from eomirror.topology.filters import topic_filter

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MAX_TOPIC_LENGTH",
    "Collision",
    "Naming",
    "TargetNaming",
    "collisions",
    "illegal_name",
    "naming_fault",
    "shortens",
]

MAX_TOPIC_LENGTH = 249

_SHOWN = 60

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN_PLACEHOLDERS = ("source", "target", "topic")
_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\d+)|([A-Za-z_]\w*))")
_LITERAL = r"(?:[A-Za-z0-9_-]|\\\.)*"
_ONE_GROUP = re.compile(rf"(?P<before>{_LITERAL})\((?:\.|\[[^\[\]]+\])[*+]\)(?P<after>{_LITERAL})")
_FIRST_GROUP = re.compile(r"(?P<before>[^$]*)\$(?:\{1\}|1)(?P<after>[^$]*)")


@dataclass(frozen=True, slots=True)
class Naming:
    """
    A naming policy as configured.

    Attributes:
        kind: ``prefix``, ``identity``, ``pattern``, ``match`` or ``map``.
        pattern: For ``pattern``: a text with ``{topic}``, and optionally ``{source}`` and ``{target}``.
        match: For ``match``: full-match regular expression of the source topic.
        to: For ``match``: the target topic, with ``$1`` or ``${name}`` for groups.
        names: For ``map``: pairs of source and target topic.
        separator: For ``prefix``: text between alias and topic.  For it and ``identity``: text between the parts of the
            names of topics for MirrorMaker 2's readers.
        separator_for_internal: False if offset syncs and checkpoints keep the dot nevertheless.
    """

    kind: str = "prefix"
    pattern: str = ""
    match: str = ""
    to: str = ""
    names: tuple[tuple[str, str], ...] = ()
    separator: str = "."
    separator_for_internal: bool = True

    def shows(self, alias: str) -> bool:
        """Returns True if the name of a copy shows that its record has passed a cluster, so that it does not return."""
        return self.kind == "prefix" and self.separator not in alias

    def __str__(self) -> str:
        if self.kind == "prefix" and self.separator != ".":
            return f"{{source}}{self.separator}{{topic}}"
        if self.kind == "pattern":
            return self.pattern
        if self.kind == "match":
            return f"{self.match} to {self.to}"
        if self.kind == "map":
            return f"map of {len(self.names)}"
        return self.kind


@dataclass(frozen=True, slots=True)
class Collision:
    """
    Source topics whose target names conflict.

    Attributes:
        sources: Source topics, sorted.
        targets: Their target names, in the same order.
        same_name: True: the target names are equal.  False: they differ only in ``.`` and ``_``, which Kafka's metric
            names do not distinguish; brokers refuse to create the second.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    same_name: bool

    def error(self, where: str, target: str) -> TopicError:
        """Returns the error of the first source topic; ``target`` is the alias of the target cluster."""
        sources, names = " and ".join(self.sources), " and ".join(sorted(set(self.targets)))
        what = (
            f"would both become {names}"
            if self.same_name
            else f"would become {names}, which differ only in '.' and '_'; brokers do not allow that"
        )
        return TopicError(
            f"{where}: {sources} {what} on {target}",
            fix="put one of them under the link's `exclude`, or choose another `naming`",
            topic=self.sources[0],
        )


@dataclass(frozen=True, slots=True)
class TargetNaming:
    """
    A naming policy between two clusters.

    Attributes:
        source: Alias of the source.
        target: Alias of the target.
        heartbeats: Name of a topic that is prefixed under every policy, like MirrorMaker 2's heartbeats; empty for
            none.
    """

    naming: Naming
    source: str
    target: str
    heartbeats: str = ""

    def target_topic(self, topic: str) -> str:
        """
        Returns the target name of a source topic.

        Raises:
            TopicError: The policy does not cover this topic, or gives a name that Kafka does not allow.
        """
        name = self._name(topic)
        if problem := illegal_name(name):
            raise TopicError(
                f"topic {topic} would be named {_shorten(name)} on {self.target}: {problem}",
                fix="choose another `naming` for the link, or put the topic under its `exclude`",
            )
        return name

    def beginning(self, start: str) -> str:
        """Returns the text with which the names begin of all topics that begin with ``start``; empty if unknown."""
        naming = self.naming
        if naming.kind == "match":
            return naming.to.partition("$")[0]
        if naming.kind == "pattern":
            before = naming.pattern.partition("{topic}")[0] + "{topic}"
            values = {"source": self.source, "target": self.target, "topic": start}
            return _PLACEHOLDER.sub(lambda found: values[found[1]], before)
        return start if naming.kind == "identity" else f"{self.source}{naming.separator}{start}"

    def _name(self, topic: str) -> str:
        naming = self.naming
        if topic == self.heartbeats:
            return f"{self.source}{naming.separator}{topic}"
        if naming.kind == "identity":
            return topic
        if naming.kind == "pattern":
            values = {"source": self.source, "target": self.target, "topic": topic}
            return _PLACEHOLDER.sub(lambda found: values[found[1]], naming.pattern)
        if naming.kind == "map":
            for old, new in naming.names:
                if old == topic:
                    return new
            raise TopicError(
                f"topic {topic} is not in the map of `naming`",
                fix=f"add `{topic}: NEW_NAME` to the map, or put the topic under `exclude`",
            )
        if naming.kind == "match":
            # The linear-time engine decides; only a matching topic is matched again for its groups, so that no
            # pattern can make the backtracking engine run without end on a near miss.
            if topic_filter((naming.match,), ()).accepts(topic) and (
                found := _expression(naming.match).fullmatch(topic)
            ):
                return _REFERENCE.sub(lambda reference: _group(found, reference), naming.to)
            raise TopicError(
                f"topic {topic} does not match {naming.match!r} of `naming`",
                fix="extend the expression, or put the topic under `exclude`",
            )
        return f"{self.source}{naming.separator}{topic}"


def illegal_name(name: str) -> str:
    """Returns why Kafka does not allow a topic name; empty if it does."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return "a topic cannot be named . or .."
    if len(name) > MAX_TOPIC_LENGTH:
        return f"it has {len(name)} characters, Kafka allows {MAX_TOPIC_LENGTH}"
    if found := re.search(r"[^a-zA-Z0-9._-]", name):
        return f"character {found[0]!a} is not allowed; use letters, digits, '.', '_' and '-'"
    return ""


def shortens(naming: Naming) -> bool:
    """
    Returns True if every name that a policy gives is shorter than its topic's, so that no name ever returns.

    Recognizes ``match`` with one group between literal texts, such as ``(.*)_REPLICA`` to ``$1``.
    """
    if naming.kind != "match":
        return False
    match, to = _ONE_GROUP.fullmatch(naming.match), _FIRST_GROUP.fullmatch(naming.to)
    if match is None or to is None:
        return False
    taken = (match["before"] + match["after"]).replace("\\.", ".")
    return len(to["before"] + to["after"]) < len(taken)


def naming_fault(naming: Naming) -> tuple[str, str]:
    """Returns fault and fix of a policy, independent of topics; empty texts if it is valid."""
    if naming.kind == "pattern":
        return _pattern_fault(naming.pattern)
    if naming.kind == "match":
        return _match_fault(naming)
    if illegal_name(naming.separator) not in ("", "a topic cannot be named . or .."):
        return f"separator {_shorten(naming.separator)!a} is no part of a topic's name", 'write it like "_"'
    if naming.kind == "map":
        for old, new in naming.names:
            for name in (old, new):
                if problem := illegal_name(name):
                    return (
                        f"{_shorten(name)!a} is not a topic name: {problem}",
                        "map topic names to topic names",
                    )
        news = [new for _, new in naming.names]
        if twice := sorted({new for new in news if news.count(new) > 1}):
            return f"two topics would become {twice[0]}", "map each topic to another name"
    return "", ""


def _pattern_fault(pattern: str) -> tuple[str, str]:
    example = 'write it like "{source}_{topic}"; the placeholders are {source}, {target} and {topic}'
    for name in _PLACEHOLDER.findall(pattern):
        if name not in _KNOWN_PLACEHOLDERS:
            return f"unknown placeholder {'{' + name + '}'!a}", example
    if "{topic}" not in pattern:
        return "without {topic} all topics would become one", example
    rest = _PLACEHOLDER.sub("", pattern)
    if rest and (problem := illegal_name("x" + rest)):
        return problem, example
    return "", ""


def _match_fault(naming: Naming) -> tuple[str, str]:
    try:
        expression = _expression(naming.match)
    except re.error as error:
        return f"regular expression {_shorten(naming.match)!a}: {error.msg}", "correct the expression"
    for found in _REFERENCE.finditer(naming.to):
        name = found[1] or found[2] or found[3]
        if not (int(name) <= expression.groups if name.isdigit() else name in expression.groupindex):
            return (
                f"`to` refers to group {name}, which `match` does not have",
                "refer to a group of `match`, such as $1",
            )
    rest = _REFERENCE.sub("", naming.to)
    if (problem := illegal_name("x" + rest)) and rest:
        return f"`to`: {problem}", "write a topic name with $1 for the first group"
    if "$" not in naming.to and not _is_single(naming.match):
        return (
            "`to` refers to no group, so all topics would become one",
            "refer to a group of `match` in `to`, such as $1",
        )
    return "", ""


def _is_single(pattern: str) -> bool:
    return re.fullmatch(r"(?:[A-Za-z0-9_-]|\\\.)+", pattern) is not None


def _group(found: re.Match[str], reference: re.Match[str]) -> str:
    name = reference[1] or reference[2] or reference[3]
    return found[int(name) if name.isdigit() else name] or ""


@lru_cache(maxsize=64)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _shorten(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:40]}...{name[-10:]}"


def collisions(topics: Iterable[str], naming: TargetNaming) -> list[Collision]:
    """
    Returns source topics whose target names conflict.

    Topics without a target name are skipped; `TargetNaming.target_topic` raises their error.
    """
    by_name: dict[str, set[str]] = {}
    for topic in topics:
        try:
            by_name.setdefault(naming.target_topic(topic), set()).add(topic)
        except TopicError:
            continue
    found = [
        Collision(tuple(sorted(sources)), (name,) * len(sources), same_name=True)
        for name, sources in sorted(by_name.items())
        if len(sources) > 1
    ]
    by_metric: dict[str, list[str]] = {}
    for name in sorted(by_name):
        by_metric.setdefault(name.replace(".", "_"), []).append(name)
    for names in by_metric.values():
        if len(names) > 1:
            pairs = sorted((min(by_name[name]), name) for name in names)
            found.append(Collision(tuple(s for s, _ in pairs), tuple(t for _, t in pairs), same_name=False))
    return found
