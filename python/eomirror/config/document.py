"""
Parses YAML into a tree of nodes with line numbers, without constructing objects by tag.

Only the parser's events are used: tags create no Python values, aliases cannot multiply, nesting and size are bounded.
Plain scalars keep their text, so that the key decides the meaning of ``on``, ``0755`` and ``1e3``, not YAML 1.1.

Faults of this module never quote the file, because the text at the fault may be a password.
"""

from __future__ import annotations

from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from eomirror.config.token_function import OAUTH_CB, name_of
from eomirror.config.yaml_faults import explain_yaml_error
from eomirror.errors import Fault

__all__ = ["Faults", "Map", "Node", "Scalar", "Sequence", "kind_of", "parse_python", "parse_yaml"]

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 16
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


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


Node = Scalar | Sequence | Map

_NOTHING = Scalar("", plain=True)


def kind_of(node: Node) -> str:
    """Returns the kind of a node, for a message that must not show its value."""
    if isinstance(node, Map):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    return "nothing" if node.is_null else "a single value"


def parse_yaml(data: bytes, faults: Faults) -> Node:
    """
    Parses a YAML (or JSON) file; a file that is not YAML adds a fault and gives a null scalar.

    Args:
        data: Content of the file.
        faults: Collects faults.
    """
    text = _decode(data, faults)
    if text is None:
        return _NOTHING
    builder = _Builder(faults)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if not builder.take(event):
                break
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        faults.add("file", f"character U+{ord(text[error.position]):04X} is not allowed", "remove it", line)
        return _NOTHING
    except yaml.MarkedYAMLError as error:
        faults.add("file", *explain_yaml_error(error, text))
        return _NOTHING
    return builder.root if builder.root is not None else Map()


def _decode(data: bytes, faults: Faults) -> str | None:
    if len(data) > _MAX_BYTES:
        faults.add("file", f"{len(data)} bytes is too large for a configuration", "keep it below 1 MiB")
        return None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        faults.add("file", "the file is UTF-16", "save it as UTF-8")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        faults.add("file", f"byte 0x{data[error.start]:02x} is not UTF-8", "save it as UTF-8", line)
        return None


class _Builder:
    """Builds nodes from parser events with an explicit stack, so that deep nesting cannot exhaust Python's."""

    def __init__(self, faults: Faults) -> None:
        self.root: Node | None = None
        self._faults = faults
        self._stack: list[tuple[Map | Sequence, list[tuple[str, int]]]] = []

    def take(self, event: Any) -> bool:
        """Processes an event; returns False if the following events do not matter."""
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            self._faults.add(
                "file", "the file has more than one document", "remove everything after ---", line
            )
            return False
        if isinstance(event, yaml.AliasEvent):
            self._faults.add(
                "file",
                "aliases (*) are not supported",
                "write the value out, or put it under `defaults`",
                line,
            )
            self._place(Scalar("", plain=True, line=line), line)
        elif isinstance(event, yaml.ScalarEvent):
            self._refuse_marks(event, line)
            self._place(Scalar(event.value, plain=event.style is None, line=line), line)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._refuse_marks(event, line)
            return self._open(event, line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._stack.pop()
        return True

    def _refuse_marks(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            self._faults.add(
                "file",
                "anchors (&) are not supported",
                "write the value out, or put it under `defaults`",
                line,
            )
        if event.tag is not None and event.tag != "!":
            self._faults.add("file", "tags (!) are not supported", "remove it, or quote the value", line)

    def _open(self, event: Any, line: int) -> bool:
        if len(self._stack) >= _MAX_DEPTH:
            self._faults.add("file", f"nested deeper than {_MAX_DEPTH} levels", "flatten it", line)
            return False
        node: Map | Sequence = (
            Map(line=line) if isinstance(event, yaml.MappingStartEvent) else Sequence(line=line)
        )
        self._place(node, line)
        self._stack.append((node, []))
        return True

    def _place(self, node: Node, line: int) -> None:
        if not self._stack:
            self.root = node
            return
        parent, waiting = self._stack[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif not waiting:
            if not isinstance(node, Scalar):
                self._faults.add(
                    "file", "a key must be a single value", "quote it, or check the indentation", line
                )
            waiting.append((node.text if isinstance(node, Scalar) else "", line))
        else:
            key, key_line = waiting.pop()
            if key in parent.entries:
                self._faults.add("file", f"duplicate key {key[:60]!a}", "remove one of them", key_line)
            else:
                parent.entries[key] = node


def parse_python(value: Any, faults: Faults, path: str = "") -> Node:
    """Returns the tree of plain Python values: dicts, lists, texts, numbers, booleans, None; and `OAUTH_CB`."""
    if isinstance(value, AbstractMapping):
        entries = {}
        for key, item in value.items():
            if isinstance(key, str):
                entries[key] = parse_python(item, faults, f"{path}.{key}".lstrip("."))
            else:
                faults.add(path or "configuration", f"a key is a {type(key).__name__}", "use texts as keys")
        return Map(entries)
    if isinstance(value, list | tuple):
        return Sequence([parse_python(item, faults, f"{path}[{n}]") for n, item in enumerate(value)])
    return _python_scalar(value, faults, path)


def _python_scalar(value: Any, faults: Faults, path: str) -> Scalar:
    if value is None:
        return Scalar("", plain=True)
    if isinstance(value, bool):
        return Scalar(str(value).lower(), plain=True)
    if isinstance(value, int | float):
        return Scalar(str(value), plain=True)
    if isinstance(value, str):
        return Scalar(value)
    if callable(value) and path.rpartition(".")[2] == OAUTH_CB:
        if name := name_of(value):
            return Scalar(name)
        faults.add(
            path,
            "other processes cannot import this function",
            "define it at the top level of an importable module",
        )
        return Scalar("", plain=True)
    faults.add(path or "configuration", f"a {type(value).__name__} is not a plain value", "use plain values")
    return Scalar("", plain=True)
