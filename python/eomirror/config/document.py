"""
Parses YAML into a tree of nodes with line numbers, without constructing objects by tag.

Tags are refused, and nesting and size are bounded.  An alias gives a copy of its anchor's value, so that an override
changes one place only; all copies count, so that aliases cannot multiply without end.  ``<<`` merges as in PyYAML.
Plain scalars keep their text, so that the key decides the meaning of ``on``, ``0755`` and ``1e3``, not YAML 1.1.

Faults of this module never quote the file, because the text at the fault may be a password.

The parser reports the unexpected token, which is seldom the mistake.  Faults of this module never quote the file,
because the text at the fault may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as AbstractMapping
from typing import Any, NamedTuple

import yaml
from yaml.composer import ComposerError

from eomirror.config.nodes import Faults, Map, Node, Scalar, Sequence
from eomirror.config.token_function import OAUTH_CB, name_of

__all__ = ["parse_python", "parse_yaml"]

#: Problems that `eomirror.config.document` adds to those of the parser.
TOO_DEEP = "nested too deep"
TOO_MANY = "too many values"

_QUOTE = "quote a value that starts with one of & * ! % @ ` or contains ': ' or ' #'"
_FLOWS = {"while parsing a flow sequence": ("[", "]"), "while parsing a flow mapping": ("{", "}")}
_TAB = "found character '\\t' that cannot start any token"


class YamlFault(NamedTuple):
    """
    A YAML syntax error.

    Attributes:
        line: Line in the file, from 1; 0 if unknown.
    """

    message: str
    fix: str
    line: int


def explain_yaml_error(error: yaml.MarkedYAMLError, text: str) -> YamlFault:
    """Returns the probable mistake behind an error of the parser."""
    context, problem = error.context or "", error.problem or ""
    at = error.problem_mark or error.context_mark
    line = at.line + 1 if at else 0
    begun = error.context_mark.line + 1 if error.context_mark else line
    if problem == _TAB and at is not None:
        if not text.splitlines()[at.line][: at.column].strip():
            return YamlFault(
                "the line starts with a tab", "indent with spaces; YAML allows no tabs there", line
            )
        return YamlFault("there is a tab between two values", "write a space instead", line)
    if context in _FLOWS:
        opened, closed = _FLOWS[context]
        if line != begun:
            return YamlFault(
                f"the {opened} of line {begun} is not closed before line {line}",
                f"close it with {closed}",
                begun,
            )
        return YamlFault(
            f"a comma or the closing {closed} is missing", f"write {opened}one, two{closed}", line
        )
    if context == "while scanning a quoted scalar":
        return YamlFault("a quote starts here and is not closed", "close the quote", begun)
    for words, message, fix in _BY_PROBLEM:
        if problem.startswith(words):
            return YamlFault(message, fix, begun if words == _NO_COLON else line)
    return YamlFault(f"not YAML: {_harmless(context, problem)}", _QUOTE, line)


_NO_COLON = "could not find expected ':'"
_BY_PROBLEM = (
    (
        "mapping values are not allowed here",
        "a key is not allowed here",
        "indent the line like its neighbours, write a blank after each ':', and quote a value that contains ': '",
    ),
    (
        "expected <block end>",
        "the line is not indented like the lines before it",
        "start the keys of a mapping, and the '-' of a list, in the same column",
    ),
    (
        _NO_COLON,
        "the line is neither a key with a value nor an item of a list",
        "write KEY: VALUE, or - ITEM",
    ),
    (
        "expected the node content, but found '<stream end>'",
        "the file ends where a value is expected",
        "write the value, and close each [ and {",
    ),
    (
        "expected the node content, but found",
        "there is a bracket or a comma where a value is expected",
        "remove it, or write the value",
    ),
    (
        "found undefined alias",
        "no anchor (&) before this alias (*) has its name",
        "define the anchor first, or quote a value that starts with *",
    ),
    ("but found another document", "the file has more than one document", "remove everything after ---"),
    ("second occurrence", "two anchors (&) have the same name", "rename one of them"),
    (
        TOO_DEEP,
        "nested deeper than 16 levels",
        "flatten it; the value of an anchor (&) cannot contain its own alias",
    ),
    (TOO_MANY, "more than 200,000 values, with those that aliases (*) repeat", "use fewer aliases"),
)


def _harmless(context: str, problem: str) -> str:
    """Returns the parser's error without quoted texts: names of tags and aliases may be parts of a password."""
    text = ", ".join(part for part in (context, problem) if part)
    return re.sub(r"'[^']{2,}'|\"[^\"]{2,}\"", "'...'", " ".join(text.split()))


_MAX_BYTES = 1 << 20
_MAX_DEPTH = 16
_MAX_VALUES = 200_000
_NOTHING = Scalar("", plain=True)


def parse_yaml(data: bytes, faults: Faults) -> Node:
    """Parses a YAML (or JSON) file; a file that is not YAML adds a fault and gives a null scalar."""
    text = _decode(data, faults)
    if text is None:
        return _NOTHING
    try:
        loader = _Loader(text, faults)
        root = loader.get_single_node()
        for line in loader.unused.values():
            fix = "remove it, or quote a value that starts with &"
            faults.warn("file", "no alias (*) uses this anchor (&)", fix, line)
        return _Tree(faults).node(root) if root is not None else Map()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        faults.add("file", f"character U+{ord(text[error.position]):04X} is not allowed", "remove it", line)
    except yaml.MarkedYAMLError as error:
        faults.add("file", *explain_yaml_error(error, text))
    return _NOTHING


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


class _Loader(yaml.SafeLoader):
    """Composes nodes and refuses tags; ``unused`` has the lines of the anchors without an alias."""

    def __init__(self, text: str, faults: Faults) -> None:
        super().__init__(text)
        self._faults = faults
        self._depth = 0
        self.unused: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Composes the next node; bounds the nesting, because composing is recursive."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML types no events
        mark, anchor = event.start_mark, event.anchor
        if isinstance(event, yaml.AliasEvent):
            self.unused.pop(anchor, None)
        elif anchor is not None:
            self.unused[anchor] = mark.line + 1
        if getattr(event, "tag", None) not in (None, "!"):
            fix = "remove it, or quote the value"
            self._faults.add("file", "tags (!) are not supported", fix, mark.line + 1)
        if isinstance(event, yaml.CollectionStartEvent) and self._depth >= _MAX_DEPTH:
            raise ComposerError(None, None, TOO_DEEP, mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Tree:
    """Builds our nodes from those of the parser."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._values = 0

    def node(self, given: Any, depth: int = 0) -> Node:
        """Returns a node and all below it."""
        self._values += 1
        if self._values > _MAX_VALUES:
            raise ComposerError(None, None, TOO_MANY, given.start_mark)
        line = given.start_mark.line + 1
        if isinstance(given, yaml.ScalarNode):
            return Scalar(given.value, plain=given.style is None, line=line)
        if depth >= _MAX_DEPTH:  # through aliases
            raise ComposerError(None, None, TOO_DEEP, given.start_mark)
        if isinstance(given, yaml.SequenceNode):
            return Sequence([self.node(item, depth + 1) for item in given.value], line)
        return Map(self._entries(given, depth + 1), line)

    def _entries(self, given: Any, depth: int) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] | None = None
        for key, value in given.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                fix = "quote it, or check the indentation"
                self._faults.add("file", "a key must be a single value", fix, line)
                continue
            merges = key.value == "<<" and key.style is None
            if key.value in own or (merges and merged is not None):
                self._faults.add("file", f"duplicate key {key.value[:60]!a}", "remove one of them", line)
            elif merges:
                merged = self._merged(value, depth)
            else:
                own[key.value] = self.node(value, depth)
        return {**(merged or {}), **own}

    def _merged(self, given: Any, depth: int) -> dict[str, Node]:
        merged: dict[str, Node] = {}
        # of several mappings, the first one wins
        for each in reversed(given.value if isinstance(given, yaml.SequenceNode) else [given]):
            source = self.node(each, depth)
            if isinstance(source, Map):
                merged.update(source.entries)
            else:
                fix = "write <<: *ANCHOR, or <<: [*FIRST, *SECOND]"
                self._faults.add("file", "<< merges mappings only", fix, source.line)
        return merged


def parse_python(
    value: Any,
    faults: Faults,
    path: str = "",
    *,
    lines: AbstractMapping[str, int] | None = None,
    line: int = 0,
) -> Node:
    """
    Returns the tree of plain Python values: dicts, lists, texts, numbers, booleans, None; and `OAUTH_CB`.

    Args:
        value: The values.
        faults: Receives what is no plain value.
        path: Path of ``value``.
        lines: Lines of paths in the file that the values come from; what is below a path has its line.
        line: Line of ``value``, if ``lines`` has none.
    """
    known = lines or {}
    line = known.get(path, line)
    if isinstance(value, AbstractMapping):
        entries = {}
        for key, item in value.items():
            if isinstance(key, str):
                where = f"{path}.{key}".lstrip(".")
                entries[key] = parse_python(item, faults, where, lines=known, line=line)
            else:
                faults.add(path or "configuration", f"a key is a {type(key).__name__}", "use texts as keys")
        return Map(entries, line)
    if isinstance(value, list | tuple):
        items = enumerate(value)
        return Sequence(
            [parse_python(item, faults, f"{path}[{n}]", lines=known, line=line) for n, item in items], line
        )
    scalar = _python_scalar(value, faults, path)
    scalar.line = line
    return scalar


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
