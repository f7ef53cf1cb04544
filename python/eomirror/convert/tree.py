"""
Parses JSON and YAML of other programs into a tree with line numbers, without constructing objects by tag. Pure.

Several documents and aliases are allowed, as Kubernetes allows them; `eomirror.config.document` parses our own files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import yaml

from eomirror.errors import ConfigError, Fault

__all__ = ["Tree", "parse_documents"]

_MAX_BYTES = 1 << 20
_MAX_NODES = 100_000
_MAX_DEPTH = 64
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Tree:
    """
    A value of a document.

    Attributes:
        text: Text of a single value; empty for others, and for null.
        entries: Values of a mapping.
        kind: ``text``, ``null``, ``map`` or ``list``.
        line: Line in the file, from 1; 0 if unknown.
    """

    text: str = ""
    entries: dict[str, Tree] = field(default_factory=dict)
    items: tuple[Tree, ...] = ()
    kind: str = "null"
    line: int = 0

    def get(self, *path: str) -> Tree:
        """Returns the value at a path of keys; a null value if there is none."""
        found = self
        for key in path:
            found = found.entries.get(key, Tree(line=found.line))
        return found

    def __bool__(self) -> bool:
        return self.kind != "null"


def parse_documents(data: bytes, name: str) -> list[Tree]:
    """
    Parses a JSON or YAML file.

    Args:
        data: Content of the file.
        name: Name of the file, for errors.

    Raises:
        ConfigError: The file is neither; the error does not quote it, because the text may be a password.
    """
    if len(data) > _MAX_BYTES:
        fault = Fault("file", f"{len(data)} bytes is too large for a configuration", "keep it below 1 MiB")
        raise ConfigError([fault], source=name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError([Fault("file", "it is not UTF-8", "save it as UTF-8")], source=name) from error
    try:
        return [_Builder().of_json(json.loads(text), 0)]
    except RecursionError as error:
        raise _too_deep(name) from error
    except ValueError:
        pass
    try:
        nodes: list[Any] = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        return [_Builder().of_node(node, 0) for node in nodes if node is not None]
    except RecursionError as error:
        raise _too_deep(name) from error
    except _TooLargeError as error:
        raise _too_deep(name) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(
            [Fault("file", "it is neither YAML nor JSON", _fix(text), mark.line + 1 if mark else 0)],
            source=name,
        ) from None


def _fix(text: str) -> str:
    if "{{" in text:
        return "it is a template: render it first, for example with `helm template`, and import the result"
    return "correct it; an editor for YAML or JSON shows the place"


def _too_deep(name: str) -> ConfigError:
    return ConfigError(
        [Fault("file", "it is nested too deeply, or its aliases multiply", "write it out")], source=name
    )


class _TooLargeError(Exception):
    """The tree is too deep or has too many nodes."""


class _Builder:
    """Builds trees; counts nodes, because aliases can multiply them."""

    def __init__(self) -> None:
        self._nodes = 0

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise _TooLargeError

    def of_json(self, value: Any, depth: int) -> Tree:
        """Returns the tree of a value that `json` returned."""
        self._count(depth)
        if value is None:
            return Tree()
        if isinstance(value, dict):
            entries = {str(key): self.of_json(inner, depth + 1) for key, inner in value.items()}
            return Tree(entries=entries, kind="map")
        if isinstance(value, list):
            return Tree(items=tuple(self.of_json(inner, depth + 1) for inner in value), kind="list")
        return Tree(str(value).lower() if isinstance(value, bool) else str(value), kind="text")

    def of_node(self, node: Any, depth: int) -> Tree:
        """Returns the tree of a YAML node."""
        self._count(depth)
        line = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            entries: dict[str, Tree] = {}
            for key, value in node.value:
                inner = self.of_node(value, depth + 1)
                if key.tag == "tag:yaml.org,2002:merge":
                    merged = inner.items if inner.kind == "list" else (inner,)
                    for each in merged:
                        entries = {**each.entries, **entries}
                elif isinstance(key, yaml.ScalarNode):
                    entries[key.value] = inner
            return Tree(entries=entries, kind="map", line=line)
        if isinstance(node, yaml.SequenceNode):
            items = tuple(self.of_node(inner, depth + 1) for inner in node.value)
            return Tree(items=items, kind="list", line=line)
        null = node.style is None and node.value in _NULLS
        return Tree("" if null else node.value, kind="null" if null else "text", line=line)
