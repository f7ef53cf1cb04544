"""
What a topic is called on the target. Pure.

Five policies, as in contract.md: ``prefix``, ``identity``, ``{pattern: ...}``, ``{match: ..., to: ...}`` and
``{map: ...}``.  A policy that says nothing of a topic is an error for that topic, never a silent guess.
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
]

MAX_TOPIC_LENGTH = 249

_SHOWN = 60

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN_PLACEHOLDERS = ("source", "target", "topic")
_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\d+)|([A-Za-z_]\w*))")


@dataclass(frozen=True, slots=True)
class Naming:
    """
    A naming policy as configured.

    Attributes:
        kind: ``prefix``, ``identity``, ``pattern``, ``match`` or ``map``.
        pattern: For ``pattern``: a text with ``{topic}``, and ``{source}`` or ``{target}`` where wanted.
        match: For ``match``: full-match regular expression of the source topic.
        to: For ``match``: the target topic, with ``$1`` or ``${name}`` for groups.
        names: For ``map``: pairs of source and target topic.
    """

    kind: str = "prefix"
    pattern: str = ""
    match: str = ""
    to: str = ""
    names: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
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
    Source topics that cannot live side by side on the target.

    Attributes:
        sources: The source topics, sorted.
        targets: What they would be called, in the same order.
        same_name: True: they would be mixed in one topic.  False: the names differ only in ``.`` and ``_``,
            which Kafka's metric names do not tell apart; brokers refuse to create the second.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    same_name: bool

    def error(self, where: str, target: str) -> TopicError:
        """The error for the user, about the first of the source topics; ``target`` is the alias of the cluster."""
        sources, names = " and ".join(self.sources), " and ".join(sorted(set(self.targets)))
        what = (
            f"would both become {names}"
            if self.same_name
            else f"would become {names}, whose names differ only in '.' and '_', which brokers do not allow"
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
        naming: The policy.
        source: Alias of the source.
        target: Alias of the target.
        heartbeats: Name of a topic that is prefixed whatever the policy, as MirrorMaker 2 does with its heartbeats;
            empty for none.
    """

    naming: Naming
    source: str
    target: str
    heartbeats: str = ""

    def target_topic(self, topic: str) -> str:
        """
        Name on the target of a source topic.

        Raises:
            TopicError: The policy says nothing of this topic, or gives a name that Kafka does not allow.
        """
        name = self._name(topic)
        if problem := illegal_name(name):
            raise TopicError(
                f"topic {topic} would be called {_shorten(name)} on {self.target}: {problem}",
                fix="choose another `naming` for the link, or put the topic under its `exclude`",
            )
        return name

    def _name(self, topic: str) -> str:
        naming = self.naming
        if topic == self.heartbeats:
            return f"{self.source}.{topic}"
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
            # The linear-time engine decides; only a topic that does match is matched again for its
            # groups, so that no pattern can make the backtracking engine run for ever on a near miss.
            if topic_filter((naming.match,), ()).accepts(topic) and (
                found := _expression(naming.match).fullmatch(topic)
            ):
                return _REFERENCE.sub(lambda reference: _group(found, reference), naming.to)
            raise TopicError(
                f"topic {topic} does not match {naming.match!r} of `naming`",
                fix="widen the expression, or put the topic under `exclude`",
            )
        return f"{self.source}.{topic}"


def illegal_name(name: str) -> str:
    """Why Kafka does not allow a topic name; empty when it does."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return "a topic cannot be called . or .."
    if len(name) > MAX_TOPIC_LENGTH:
        return f"that is {len(name)} characters, and Kafka allows {MAX_TOPIC_LENGTH}"
    if found := re.search(r"[^a-zA-Z0-9._-]", name):
        return f"character {found[0]!a} is not allowed; letters, digits, '.', '_' and '-' are"
    return ""


def naming_fault(naming: Naming) -> tuple[str, str]:
    """What is wrong with a policy whatever the topic, and what would be right; empty texts when nothing is."""
    if naming.kind == "pattern":
        return _pattern_fault(naming.pattern)
    if naming.kind == "match":
        return _match_fault(naming)
    if naming.kind == "map":
        for old, new in naming.names:
            for name in (old, new):
                if problem := illegal_name(name):
                    return (
                        f"{_shorten(name)!a} is no topic name: {problem}",
                        "map topic names to topic names",
                    )
        news = [new for _, new in naming.names]
        if twice := sorted({new for new in news if news.count(new) > 1}):
            return f"two topics would become {twice[0]}", "give each topic a name of its own"
    return "", ""


def _pattern_fault(pattern: str) -> tuple[str, str]:
    example = 'write it like "{source}_{topic}"; {source}, {target} and {topic} are known'
    for name in _PLACEHOLDER.findall(pattern):
        if name not in _KNOWN_PLACEHOLDERS:
            return f"placeholder {'{' + name + '}'!a} is not known", example
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
                f"`to` names group {name}, which `match` does not have",
                "name a group that `match` has, like $1",
            )
    rest = _REFERENCE.sub("", naming.to)
    if (problem := illegal_name("x" + rest)) and rest:
        return f"`to`: {problem}", "write a topic name with $1 for the first group"
    if "$" not in naming.to and not _is_single(naming.match):
        return (
            "`to` names no group, so that all topics would become one",
            "name a group of `match` in `to`, like $1",
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
    Source topics that would meet on the target.

    Topics without a target name are left out; `TargetNaming.target_topic` says what is wrong with them.
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
