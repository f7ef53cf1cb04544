"""
Tree of a configuration before it is parsed: nodes with their lines, and the faults found in them. Pure.

A `Place` is a node with its path.  Parsers of single settings take one (`eomirror.config.values`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Faults",
    "Map",
    "Node",
    "Place",
    "Scalar",
    "Sequence",
    "key_name",
    "kind_of",
    "quoted",
    "texts_of",
]

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_SHOWN = 60  # characters of a foreign text in a message


class Faults:
    """Collects faults and warnings, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []

    def add(self, path: str, message: str, fix: str = "", line: int = 0) -> None:
        """Adds a fault: the configuration is refused."""
        self.faults.append(Fault(path, message, fix, line))

    def warn(self, path: str, message: str, fix: str = "", line: int = 0) -> None:
        """Adds a warning: the configuration is accepted."""
        self.warnings.append(Fault(path, message, fix, line))


@dataclass(slots=True)
class Scalar:
    """
    A single value.

    Attributes:
        text: Text as written, without quotes.
        plain: True without quotes: the text may mean a number, a boolean or null.
        line: Line in the file, from 1; 0 without a file.
    """

    text: str
    plain: bool = False
    line: int = 0

    @property
    def is_null(self) -> bool:
        """True if the value is null."""
        return self.plain and self.text in _NULLS


@dataclass(slots=True)
class Sequence:
    """A list."""

    items: list[Node] = field(default_factory=list)
    line: int = 0


@dataclass(slots=True)
class Map:
    """A mapping; keys are text."""

    entries: dict[str, Node] = field(default_factory=dict)
    line: int = 0

    def line_of(self, key: str) -> int:
        """Returns the line of an entry; of the mapping if it has no such entry."""
        return self.entries.get(key, self).line


Node = Scalar | Sequence | Map


@dataclass(frozen=True, slots=True)
class Place:
    """A node with its path, and the collector of its faults."""

    node: Node
    path: str
    faults: Faults

    def refuse(self, message: str, fix: str = "") -> None:
        """Adds a fault at this node."""
        self.faults.add(self.path, message, fix, self.node.line)

    def below(self, node: Node, step: str) -> Place:
        """Returns the place of a child node."""
        return Place(node, f"{self.path}{step}", self.faults)

    def text(self, fix: str) -> str | None:
        """Returns the text of a single value; adds a fault for any other node."""
        if isinstance(self.node, Scalar) and not self.node.is_null:
            return self.node.text
        self.refuse(f"this is {kind_of(self.node)}", fix)
        return None

    def entries(self, fix: str) -> Map:
        """Returns the mapping; adds a fault for any other node and returns an empty mapping."""
        if isinstance(self.node, Map):
            return self.node
        self.refuse(f"this is {kind_of(self.node)}", fix)
        return Map(line=self.node.line)


def kind_of(node: Node) -> str:
    """Returns the kind of a node, for a message that must not show its value."""
    if isinstance(node, Map):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    return "nothing" if node.is_null else "a single value"


def texts_of(node: Node) -> Iterator[str]:
    """Yields the texts of all single values of a tree."""
    if isinstance(node, Scalar):
        yield node.text
        return
    for inner in node.items if isinstance(node, Sequence) else node.entries.values():
        yield from texts_of(inner)


def quoted(text: str) -> str:
    """Returns a value for messages: short, ASCII, control characters escaped."""
    return ascii(text if len(text) <= _SHOWN else f"{text[:50]}...")


def key_name(key: str) -> str:
    """Returns a key for paths: as it is, or quoted if a terminal could interpret it."""
    return key if key and key.isascii() and key.isprintable() else quoted(key)
