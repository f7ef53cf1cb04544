"""
No two modules of a Rust crate import each other, directly or through others.

The compiler allows such circles. Modules are compared with their siblings: a module and its own parts may
use each other, as they are one subject. Re-exports are followed, tests are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

RUST = Path(__file__).resolve().parents[2] / "rust"
CRATES = ("audit", "batch", "core", "fuzz", "kafka", "plane", "py", "witness")

Name = tuple[str, ...]

USE = re.compile(r"^\s*(?P<public>pub(?:\([^)]*\))?\s+)?use\s+(?P<tree>[^;]+);", re.MULTILINE)
INLINE = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
TEST_MODULE = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*mod \w+ \{\n.*?^\}", re.MULTILINE | re.DOTALL)
TEST_FILE = re.compile(r"#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*(?:pub(?:\([^)]*\))? )?mod (\w+);")
COMMENT = re.compile(r"//[^\n]*")


@dataclass
class Module:
    """What one module imports and passes on."""

    imports: set[Name] = field(default_factory=set)
    exports: dict[str, Name] = field(default_factory=dict)


def leaves(tree: str) -> list[list[str]]:
    """Paths of a `use` tree, one for each name in braces."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    prefix = [part.strip() for part in head.split("::") if part.strip()]
    if not brace:
        return [prefix]
    paths: list[list[str]] = []
    depth, item = 0, ""
    for sign in rest[: rest.rindex("}")] + ",":
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            paths += [prefix + leaf for leaf in leaves(item)] if item.strip() else []
            item = ""
        else:
            item += sign
    return paths


def absolute(path: list[str], module: Name, names: set[Name]) -> Name | None:
    """A path from the root of the crate; None when it leads to another crate."""
    base = list(module)
    first, *rest = path
    if first == "crate":
        base = []
    elif first == "super":
        base.pop()
        while rest and rest[0] == "super":
            base.pop()
            rest.pop(0)
    elif first != "self":
        if (*module, first) not in names:
            return None
        rest = path
    return (*base, *(part.split(" as ")[0] for part in rest if part not in ("self", "*")))


def read(crate: Path) -> dict[Name, Module]:
    """All modules of a crate, without its tests."""
    texts: dict[Name, str] = {}
    tests: set[Name] = set()
    for path in crate.rglob("*.rs"):
        parts = path.relative_to(crate).with_suffix("").parts
        name = () if parts in (("lib",), ("main",)) else parts
        text = COMMENT.sub("", path.read_text())
        tests |= {(*name, test) for test in TEST_FILE.findall(text)}
        texts[name] = TEST_MODULE.sub("", text)
    texts = {
        name: text for name, text in texts.items() if not any(name[: len(test)] == test for test in tests)
    }
    names = set(texts)
    modules: dict[Name, Module] = {}
    for name, text in texts.items():
        module = modules[name] = Module()
        for use in USE.finditer(text):
            for leaf in leaves(" ".join(use["tree"].split())):
                found = absolute(leaf, name, names)
                if found is None:
                    continue
                module.imports.add(found)
                if use["public"]:
                    module.exports[leaf[-1].split(" as ")[-1]] = found
        for inline in INLINE.findall(USE.sub("", text)):
            found = absolute(inline.split("::"), name, names)
            if found is not None:
                module.imports.add(found)
    return modules


def home(path: Name, modules: dict[Name, Module]) -> Name:
    """The module that defines what a path names, behind all re-exports."""
    for _ in modules:
        at = max((name for name in modules if path[: len(name)] == name), key=len)
        rest = path[len(at) :]
        if not rest or rest[0] not in modules[at].exports:
            return at
        path = (*modules[at].exports[rest[0]], *rest[1:])
    return at


def circles(modules: dict[Name, Module]) -> list[str]:
    """A circle for each group of siblings that has one."""
    edges: dict[Name, set[Name]] = {}
    for name, module in modules.items():
        for path in module.imports:
            there = home(path, modules)
            shared = 0
            while name[: shared + 1] == there[: shared + 1] and shared < min(len(name), len(there)):
                shared += 1
            if len(name) > shared < len(there):
                edges.setdefault(name[: shared + 1], set()).add(there[: shared + 1])
    found = []
    for parent in sorted({name[:-1] for name in edges}):
        siblings = {name: to for name, to in edges.items() if name[:-1] == parent}
        try:
            TopologicalSorter(siblings).prepare()
        except CycleError as error:
            found.append(" <- ".join("::".join(name) for name in error.args[1]))
    return found


@pytest.mark.parametrize("crate", CRATES)
def test_modules_of_a_crate_import_each_other_in_one_direction(crate: str) -> None:
    """A reader can begin with the module that needs no other."""
    modules = read(RUST / crate / "src")
    assert len(modules) > 1
    assert circles(modules) == []


def test_a_circle_through_a_re_export_is_found(tmp_path: Path) -> None:
    """The check itself: `a` uses `B` by the root, and `b` uses `a`; the tests of `b` do not count."""
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\npub use b::{B, Other as Same};\n")
    (tmp_path / "a.rs").write_text("use crate::Same;\npub struct A;\n")
    (tmp_path / "b.rs").write_text("pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n")
    assert circles(read(tmp_path)) == []
    (tmp_path / "b.rs").write_text("fn b() -> crate::a::A {}\n")
    assert len(circles(read(tmp_path))) == 1
