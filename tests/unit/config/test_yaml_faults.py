"""A file that is no YAML: the fault names the mistake, its line, and what to change."""

from __future__ import annotations

import pytest

from eomirror.config.document import Faults, parse_yaml

CANARY = "canaryZq"


@pytest.mark.parametrize(
    ("text", "line", "message", "fix"),
    [
        ("clusters:\n\teast: 1\n", 2, "the line starts with a tab", "indent with spaces"),
        ("links:\n  - source: a\n  \ttarget: b\n", 3, "the line starts with a tab", "indent with spaces"),
        ("a:\tb\n", 1, "a tab between", "write a space"),
        ("a: [1, 2\nb: 3\n", 1, "the [ of line 1 is not closed", "close it with ]"),
        ("c: 1\na: {b: 1\nc: 2\n", 2, "the { of line 2 is not closed", "close it with }"),
        ("a: ['x' 'y']\n", 1, "a comma or the closing ] is missing", "[one, two]"),
        ('a: 1\nb: "x\nc: 2\n', 2, "a quote starts here", "close the quote"),
        ("a: 1\n  b: 2\n", 2, "a key is not allowed here", "indent the line like its neighbours"),
        ("a:b\nc: 1\n", 2, "a key is not allowed here", "a blank after each ':'"),
        ("a:\n  b: 1\n c: 2\n", 3, "not indented like the lines before", "same column"),
        ("a:\n  - x\n  y: 1\n", 3, "not indented like the lines before", "same column"),
        ("a: 1\na b\nc: 2\n", 2, "neither a key with a value nor an item", "KEY: VALUE"),
        ("a: }\n", 1, "a bracket or a comma", "remove it"),
        ("a: @x\n", 1, "found character '@'", "quote a value that starts with"),
        ("topics: [*]\n", 1, "while scanning an alias", "quote a value that starts with"),
    ],
)
def test_the_mistake_is_named(text: str, line: int, message: str, fix: str) -> None:
    """By its own line, which is not always where the parser gave up."""
    faults = Faults()
    parse_yaml(text.encode(), faults)
    (fault,) = faults.faults
    assert fault.line == line
    assert message in fault.message
    assert fix in fault.fix


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.password: {CANARY}: x\n", f"a: [{CANARY}\nb: 1\n", f"a: '{CANARY}\n", f"\t{CANARY}: 1\n",
        f"a: &{CANARY}!{CANARY} @\n", f"a: *{CANARY}%\nb: @\n", f"a: 1\n{CANARY} b\nc: 2\n",
    ],
)  # fmt: skip
def test_no_text_of_the_file_is_shown(text: str) -> None:
    """What stands at a broken place may be a password."""
    faults = Faults()
    parse_yaml(text.encode(), faults)
    assert faults.faults
    assert CANARY not in str(faults.faults)
