"""
Explains to a person why a file is no YAML, and what to change.

The parser tells which token it did not expect, which seldom names the mistake.  Texts of the file never reach a fault
from here: what stands at a broken place may be a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import yaml

__all__ = ["YamlFault", "explain_yaml_error"]

_QUOTE = "quote a value that starts with one of & * ! % @ ` or that holds ': ' or ' #'"
_FLOWS = {"while parsing a flow sequence": ("[", "]"), "while parsing a flow mapping": ("{", "}")}
_TAB = "found character '\\t' that cannot start any token"


class YamlFault(NamedTuple):
    """
    Why a file is no YAML.

    Attributes:
        message: What is wrong.
        fix: What would be right.
        line: Where, from 1; 0 when the parser does not tell.
    """

    message: str
    fix: str
    line: int


def explain_yaml_error(error: yaml.MarkedYAMLError, text: str) -> YamlFault:
    """
    Returns the mistake behind an error of the parser.

    Args:
        error: What the parser said.
        text: The file.
    """
    context, problem = error.context or "", error.problem or ""
    at = error.problem_mark or error.context_mark
    line = at.line + 1 if at else 0
    begun = error.context_mark.line + 1 if error.context_mark else line
    if problem == _TAB and at is not None:
        if not text.splitlines()[at.line][: at.column].strip():
            return YamlFault(
                "the line begins with a tab", "indent with spaces; YAML allows no tabs there", line
            )
        return YamlFault("a tab stands between two values", "write a space instead", line)
    if context in _FLOWS:
        opened, closed = _FLOWS[context]
        if line != begun:
            return YamlFault(
                f"the {opened} of line {begun} is not closed where line {line} begins",
                f"close it with {closed}",
                begun,
            )
        return YamlFault(
            f"a comma or the closing {closed} is missing", f"write {opened}one, two{closed}", line
        )
    if context == "while scanning a quoted scalar":
        return YamlFault("a quote begins here and is never closed", "close the quote", begun)
    for words, message, fix in _BY_PROBLEM:
        if problem.startswith(words):
            return YamlFault(message, fix, begun if words == _NO_COLON else line)
    return YamlFault(f"not YAML: {_harmless(context, problem)}", _QUOTE, line)


_NO_COLON = "could not find expected ':'"
_BY_PROBLEM = (
    (
        "mapping values are not allowed here",
        "a key cannot stand here",
        "indent the line as its neighbours, write a blank behind each ':', and quote a value that holds ': '",
    ),
    (
        "expected <block end>",
        "the line is not indented as those before it",
        "begin keys of one mapping, and the '-' of one list, in the same column",
    ),
    (
        _NO_COLON,
        "the line is neither a key with a value nor an item of a list",
        "write KEY: VALUE, or - ITEM",
    ),
    (
        "expected the node content, but found '<stream end>'",
        "the file ends where a value belongs",
        "write the value, and close each [ and {",
    ),
    (
        "expected the node content, but found",
        "a bracket or a comma stands where a value belongs",
        "remove it, or write the value",
    ),
)


def _harmless(context: str, problem: str) -> str:
    """The parser's complaint without what it found: names of tags and aliases may be pieces of a password."""
    text = ", ".join(part for part in (context, problem) if part)
    return re.sub(r"'[^']{2,}'|\"[^\"]{2,}\"", "'...'", " ".join(text.split()))
