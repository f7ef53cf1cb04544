"""A status has types from the records to its views: no dict of anything is handed on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import eomirror

SOURCE = Path(eomirror.__file__).parent
PACKAGES = ("status", "serve", "metrics", "cli")
ANYTHING = re.compile(r"(dict|Mapping)\[str, Any\]")

#: Where such a dict may be handed on: it is the JSON of an answer, or no status.
ALLOWED = {
    "cli/events.py: rows": "the JSON of the command",
    "cli/import_mm2.py: settings": "the YAML that the command writes",
    "cli/offsets.py: document": "the JSON that the command writes",
    "cli/render.py: rows": "cells of a table by its heads",
    # answers to questions come from the clusters, masked as a whole: they are no status
    "serve/answer_pages.py: answer": "the JSON of an answer",
    "serve/answer_pages.py: failover": "readiness in an answer",
    "serve/answer_pages.py: moves": "moves of groups in an answer",
    "serve/answer_pages.py: planned": "readiness in an answer",
    "serve/answer_pages.py: readiness": "readiness in an answer",
    "serve/endpoints.py: facts": "the JSON of /livez and /readyz",
    "serve/queries.py: _answers": "the JSON of answers, kept for some seconds",
    "serve/queries.py: find": "returns the JSON of an answer",
    "serve/queries.py: future": "holds the JSON of an answer",
}


def untyped(path: Path) -> set[str]:
    """Returns the parameters and fields of a module whose type has a dict of anything."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.arg):
            name, kind = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            name, kind = node.target.attr, node.annotation
        elif isinstance(node, ast.ClassDef):
            found |= {
                ast.unparse(item.target)
                for item in node.body
                if isinstance(item, ast.AnnAssign) and ANYTHING.search(ast.unparse(item.annotation))
            }
            continue
        else:
            continue
        if kind is not None and ANYTHING.search(ast.unparse(kind)):
            found.add(name)
    return found


def test_no_view_is_handed_a_dict_of_anything() -> None:
    """A field is declared once, with its unit and the meaning of None; its JSON is made at the end."""
    found = {
        f"{path.relative_to(SOURCE).as_posix()}: {name}"
        for package in PACKAGES
        for path in (SOURCE / package).glob("*.py")
        for name in untyped(path)
    }
    assert found == ALLOWED.keys()
