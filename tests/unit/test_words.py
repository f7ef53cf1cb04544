"""
The words of code, documents and help texts: plain technical English (CONTRIBUTING.md, "How we write").

A machine can check two rules.  Some words hide the actor of a sentence and are refused everywhere, also in names and in
tests.  And the first line of a docstring says what the thing does or is, so it does not begin with a question word.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
REFUSED = re.compile(
    r"(?<![a-z])(nobody|somebody|whoever|whom|likewise|in vain|by itself)(?![a-z])", re.IGNORECASE
)
QUESTION = re.compile(r"(What|Whether|Where|How|Which|Who|Why)\b")

# where the refused words stand as examples
EXAMPLES = {ROOT / "CONTRIBUTING.md", Path(__file__).resolve()}

# what is left to rewrite, by folder: refused words, first lines.  Counts may only shrink.
LEFT: dict[str, tuple[int, int]] = {}


def sources() -> Iterator[Path]:
    """Yields every file whose words a reader or user meets."""
    yield from (ROOT / "python").rglob("*.py")
    yield from (ROOT / "python").rglob("*.pyi")
    for crate in (ROOT / "rust").glob("*/src"):
        yield from crate.rglob("*.rs")
    yield from (page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reports")
    yield from ROOT.glob("*.md")
    yield ROOT / "bench" / "README.md"


def other_sources() -> Iterator[Path]:
    """Yields the files of tests, bench and scripts, in which a first line may be a question."""
    for place in ("tests", "bench", "scripts"):
        yield from (path for path in (ROOT / place).rglob("*.py") if path not in EXAMPLES)


def first_lines(path: Path) -> list[str]:
    """Returns the first line of every docstring or documentation comment of a source file."""
    text = path.read_text()
    if path.suffix in {".py", ".pyi"}:
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = (ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
        return [docstring for docstring in found if docstring]
    if path.suffix != ".rs":
        return []
    lines = [line.strip() for line in text.splitlines()]
    comment = re.compile(r"(?:///|//!) ?(.*)")
    return [
        match.group(1)
        for before, line in zip(["", *lines], lines, strict=False)
        if (match := comment.match(line)) and not comment.match(before)
    ]


def folder(path: Path) -> str:
    """Returns the package, crate or page that a file belongs to."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[: 3 if parts[0] == "python" else 2])


def test_plain_words() -> None:
    """No folder has more refused words, or first lines that begin with a question word, than are left to rewrite."""
    words: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path in sources():
        if path not in EXAMPLES:
            words[folder(path)] += len(REFUSED.findall(path.read_text()))
        lines[folder(path)] += sum(1 for line in first_lines(path) if QUESTION.match(line))
    found = {name: (words[name], lines[name]) for name in {*words, *lines} if words[name] or lines[name]}
    worse = {
        name: counts
        for name, counts in found.items()
        if counts[0] > LEFT.get(name, (0, 0))[0] or counts[1] > LEFT.get(name, (0, 0))[1]
    }
    assert worse == {}, "CONTRIBUTING.md, How we write"


def test_plain_words_in_tests() -> None:
    """Tests, bench and scripts name the actor, too."""
    found = {
        str(path.relative_to(ROOT)): words
        for path in other_sources()
        if (words := [match.group() for match in REFUSED.finditer(path.read_text())])
    }
    assert found == {}, "CONTRIBUTING.md, How we write"


def test_the_checks_find_what_they_look_for(tmp_path: Path) -> None:
    """A refused word and a first line with a question word are found in Python and in Rust."""
    module = tmp_path / "module.py"
    module.write_text('"""Whether it is."""\n\n\ndef f():\n    """Returns what is."""\n')
    assert [bool(QUESTION.match(line)) for line in first_lines(module)] == [True, False]
    crate = tmp_path / "lib.rs"
    crate.write_text("//! How it works.\n//! What follows.\n\n/// Returns a value.\nfn f() {}\n")
    assert [bool(QUESTION.match(line)) for line in first_lines(crate)] == [True, False]
    assert REFUSED.findall("Nobody waits in vain.") == ["Nobody", "in vain"]
    assert REFUSED.findall("def test_nobody_waits(): antibody") == ["nobody"]
