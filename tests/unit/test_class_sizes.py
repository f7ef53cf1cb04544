"""A large class has parts with names, or its docstring gives the reason; and a name is declared by one class."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import eomirror

_MODULES = sorted(Path(eomirror.__file__).parent.rglob("*.py"))
_CLASSES = [
    (path, node)
    for path in _MODULES
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.ClassDef)
]
_MOST_FIELDS = 15
_MOST_METHODS = 25
# classes that are divided next
_NOT_YET = {"StatusReader"}


def fields(declared: ast.ClassDef) -> set[str]:
    """Returns the names of the attributes that a class declares, or that its methods set."""
    found = {
        node.target.id
        for node in declared.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and "ClassVar" not in ast.dump(node.annotation)
    }
    return found | {
        node.attr
        for node in ast.walk(declared)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def test_a_large_class_gives_its_reason() -> None:
    """Its docstring says why it has no parts: `Reason for its size: ...`."""
    large = {
        declared.name: (len(fields(declared)), methods)
        for _, declared in _CLASSES
        for methods in [sum(isinstance(node, ast.FunctionDef) for node in declared.body)]
        if len(fields(declared)) > _MOST_FIELDS or methods > _MOST_METHODS
        if not re.search(r"^Reason for its size: \S", ast.get_docstring(declared) or "", re.MULTILINE)
    }
    assert {name: size for name, size in large.items() if name not in _NOT_YET} == {}


def test_a_name_is_declared_by_one_class() -> None:
    """One word has one meaning in the whole package."""
    names = Counter(declared.name for _, declared in _CLASSES)
    assert [name for name, count in names.items() if count > 1] == []
