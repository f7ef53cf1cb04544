"""
Writes the file map, a page of docs, from the tree; the documentation site has it, git does not.

    python scripts/file_map.py

A Python module says itself what it does, in the first sentence of its docstring; its key types are its
public classes.  Packages stand in the order of the layers contract in pyproject.toml, highest first.  Other places
are described here, and appear once they hold a file.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "docs" / "file-map.md"
HEAD = """# File map

Every module, in the words of its own docstring.  Written by `just docs-site`.

"""
SHOWN = 4  # more types than these make a row unreadable
BEGIN = "| file | does | key types |\n|---|---|---|\n"
PLACES = {
    "python/eomirror/_core.pyi": "hand-written stub of the extension",
    "rust/core": "pure: batches, relay, transactions, headers, routing, offset map, audit; no I/O, no clock",
    "rust/kafka": "a Kafka client: connections, Fetch, transactional producer",
    "rust/plane": "the native plane: lanes",
    "rust/fuzz": "mutated bytes for every reader of the core, on stable Rust",
    "rust/py": "the binding `eomirror._core` and the librdkafka plugin, nothing else",
    "dev": "looks for Python, Java and Rust, then `scripts/bootstrap.py`",
    "justfile": "every task of the project; `ci` is what CI runs",
    "tests/unit": "decisions, without brokers; a folder for each package",
    "tests/support": "the rig, fakes and programs that several suites share",
    "tests/properties": "laws, against a plain oracle",
    "tests/sim": "seeds and faults against the model",
    "tests/integration": "the whole program on real brokers",
    "tests/spark": "the engine: epochs, stop, standalone cluster",
    "tests/faults": "kills, pauses and cuts, one for each rule",
    "tests/audit": "the tools that prove a copy: planted defects, and none",
    "tests/interop": "MirrorMaker 2's own classes, other broker versions",
    "bench": "workloads; this mirror and MirrorMaker 2 in one run",
}


def escape(text: str) -> str:
    """Text as it may stand in a table's cell."""
    return text.replace("``", "`").replace("|", "\\|").rstrip(".")


def module_row(path: Path) -> str:
    """Row of one Python module."""
    tree = ast.parse(path.read_text())
    first = re.split(r"(?<=[.:])\s|\n\n", ast.get_docstring(tree) or "(no docstring)")[0].rstrip(":")
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
    types = ", ".join(f"`{name}`" for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    does = escape(" ".join(first.split()))
    return f"| `{path.relative_to(ROOT).as_posix()}` | {does} | {types} |".replace("|  |", "| |")


def layers() -> list[str]:
    """Returns the folders of all packages, highest layer first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines = next(contract["layers"] for contract in contracts if contract["name"] == "packages")
    names = [name.strip().removeprefix("eomirror.") for line in lines for name in line.split("|")]
    plane = names.index("plane") + 1
    return [*names[:plane], "plane/client", "plane/native", *names[plane:]]


def rows() -> list[str]:
    """All rows, from what is in the tree."""
    source = ROOT / "python" / "eomirror"
    found: list[str] = []
    folders = {path.parent.relative_to(source).as_posix() for path in source.rglob("*.py")}
    known = [folder for folder in (*layers(), ".") if folder in folders]
    for folder in [*known, *sorted(folders - set(known))]:
        modules = sorted((source / folder).glob("*.py"))
        # a package's own file only marks the folder; the root's holds the public names
        found += [module_row(path) for path in modules if folder == "." or path.name != "__init__.py"]
    for place, does in PLACES.items():
        path = ROOT / place
        if path.is_file():
            found.append(f"| `{place}` | {does} | |")
        elif any(item.is_file() and "__pycache__" not in item.parts for item in path.rglob("*")):
            found.append(f"| `{place}/` | {does} | |")
    found += [module_row(path) for path in sorted((ROOT / "scripts").glob("*.py"))]
    return found


def main() -> int:
    """Write."""
    MAP.write_text(HEAD + BEGIN + "\n".join(rows()) + "\n")
    print(f"file map: {len(rows())} rows in {MAP.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
