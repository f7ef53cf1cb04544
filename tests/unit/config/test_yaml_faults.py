"""A file that is no YAML: the fault names the mistake, its line, and what to change."""

from __future__ import annotations

import pytest
import yaml

from eomirror.config.document import parse_yaml
from eomirror.config.nodes import Faults, Map, Node, Scalar

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
        ("a: 1\nb: *x\n", 2, "no anchor (&) before this alias", "define the anchor first"),
        ("a: &x 1\nb: &x 2\n", 2, "two anchors (&) have the same name", "rename one of them"),
        ("a: &x [*x]\n", 1, "nested deeper than 16 levels", "cannot contain its own alias"),
        ("a: &x {<<: *x}\n", 1, "nested deeper than 16 levels", "cannot contain its own alias"),
        ("a: 1\n<<: b\n", 2, "<< merges mappings only", "write <<: *ANCHOR"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  <<: *x\n", 4, "duplicate key '<<'", "remove one of them"),
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
        f"a: &{CANARY}!{CANARY} @\n", f"a: *{CANARY}\n", f"a: &{CANARY} 1\nb: &{CANARY} *{CANARY}\n",
        f"a: &{CANARY} 1\nb: &{CANARY} 2\n", f"a: 1\n<<: {CANARY}\n",
        f"a: *{CANARY}%\nb: @\n", f"a: 1\n{CANARY} b\nc: 2\n",
    ],
)  # fmt: skip
def test_no_text_of_the_file_is_shown(text: str) -> None:
    """What stands at a broken place may be a password."""
    faults = Faults()
    parse_yaml(text.encode(), faults)
    assert faults.faults
    assert CANARY not in str(faults.faults)


def plain(node: Node) -> object:
    """Returns a tree as plain values."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Map):
        return {key: plain(value) for key, value in node.entries.items()}
    return [plain(item) for item in node.items]


@pytest.mark.parametrize(
    "text",
    [
        "a: &x one\nb: [*x, *x]\n? *x\n: c\n",
        "a: &x [one, two]\nb: *x\n",
        "a: &x {p: one}\nb: {<<: *x, q: two}\nc: {<<: *x, p: three}\n",
        "a: &x {p: one, q: one}\nb: &y {p: two}\nc: {<<: [*y, *x]}\nd: {r: three, <<: *x, q: four}\n",
        "a: &x {p: one}\nb: &y {<<: *x, q: two}\nc: {<<: *y, r: three}\n",
        "a: {'<<': one}\n",
        "a: [&x {p: one}, *x]\nb: {<<: {p: one}}\n",
    ],
)
def test_aliases_and_merge_keys_mean_what_pyyaml_makes_of_them(text: str) -> None:
    """A file that other YAML tools read gives the same values here."""
    faults = Faults()
    assert plain(parse_yaml(text.encode(), faults)) == yaml.safe_load(text)
    assert not faults.faults
    assert not faults.warnings


def test_aliases_cannot_multiply_without_end() -> None:
    """The "billion laughs" of YAML end in a fault, in less than the time and memory of a large file."""
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    faults = Faults()
    parse_yaml(bomb.encode(), faults)
    (fault,) = faults.faults
    assert "more than 200,000 values" in fault.message


def test_a_copy_of_an_anchor_keeps_the_lines_of_its_text() -> None:
    """A fault in it is corrected where it is written."""
    faults = Faults()
    root = parse_yaml(b"a: &x\n  p: 1\nb: *x\nc:\n  <<: *x\n  q: 2\n", faults)
    assert isinstance(root, Map)
    copies = [root.entries[key] for key in ("b", "c")]
    assert [copy.line_of("p") for copy in copies if isinstance(copy, Map)] == [2, 2]
    assert copies[0] is not root.entries["a"]


def test_an_anchor_without_an_alias_is_a_warning() -> None:
    """A value that starts with & may be an unquoted password, of which only the rest would count."""
    faults = Faults()
    parse_yaml(f"a: 1\nb: &{CANARY} x\n".encode(), faults)
    assert not faults.faults
    assert [(warning.line, CANARY in str(warning)) for warning in faults.warnings] == [(2, False)]
