"""
Explains errors of the YAML parser, with a fix.

The parser reports the unexpected token, which is seldom the mistake.  Faults of this module never quote the file,
because the text at the fault may be a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import yaml

__all__ = ["TOO_DEEP", "TOO_MANY", "YamlFault", "explain_yaml_error"]

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
