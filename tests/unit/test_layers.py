"""
Who may import what, name by name.

ruff's TID251 bans per file and import-linter compares layers; this closes what both leave open: an owner
of one banned name must not use another's, and no module may stand outside the layers.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "python" / "eomirror"
MODULES = sorted(SOURCE.rglob("*.py"))

# banned name -> owners, as paths under python/eomirror; a folder owns for all files in it
OWNERS: dict[str, tuple[str, ...]] = {
    "confluent_kafka": (
        "kafka/",
        "plane/client/",
        "demo/clients.py",
    ),
    "pyspark": ("spark/", "dataframe/"),
    "py4j": ("spark/",),
    "opentelemetry": ("metrics/otlp.py",),
    "eomirror._core": ("_native.py",),
    "time.time": ("clock.py",),
    "time.time_ns": ("clock.py",),
    "time.monotonic": ("clock.py",),
    "time.perf_counter": ("clock.py",),
    "time.sleep": ("clock.py",),
    "datetime.datetime.now": ("clock.py",),
    "datetime.datetime.utcnow": ("clock.py",),
    "random": ("clock.py",),
    "uuid": ("clock.py",),
    "secrets": ("clock.py",),
}

# packages and modules that only decide, whatever their docstrings say
ALWAYS_PURE = ("errors.py", "types.py", "topology/", "records/")
# a pure module imports none of these, directly or through other modules of the package
ACTS = {
    "asyncio",
    "confluent_kafka",
    "logging",
    "multiprocessing",
    "os",
    "py4j",
    "pyspark",
    "select",
    "socket",
    "structlog",
    "subprocess",
    "threading",
}


def owned(path: Path, owners: tuple[str, ...]) -> bool:
    """Whether a module stands under one of ``owners``."""
    place = path.relative_to(SOURCE).as_posix()
    return any(place.startswith(owner) if owner.endswith("/") else place == owner for owner in owners)


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of an attribute chain, or nothing."""
    if isinstance(node, ast.Attribute) and (head := dotted(node.value)):
        return f"{head}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def names_used(path: Path) -> dict[str, int]:
    """Every imported or qualified name in a module, with its line; local aliases are resolved."""
    tree = ast.parse(path.read_text())
    package = ["eomirror", *path.relative_to(SOURCE).with_suffix("").parts]
    alias: dict[str, str] = {}
    used: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                alias[item.asname or item.name.split(".")[0]] = (
                    item.name if item.asname else item.name.split(".")[0]
                )
                used[item.name] = node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: -node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            for item in node.names:
                alias[item.asname or item.name] = f"{module}.{item.name}"
                used[f"{module}.{item.name}"] = node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := dotted(node)):
            head, _, rest = name.partition(".")
            if head in alias:
                used[f"{alias[head]}.{rest}"] = node.lineno
    return used


def uses(path: Path, banned: str) -> list[int]:
    """Lines on which a module uses a banned name or something below it."""
    return [line for name, line in names_used(path).items() if f"{name}.".startswith(f"{banned}.")]


@pytest.mark.parametrize("banned", OWNERS)
def test_a_banned_name_is_used_by_its_owner_only(banned: str) -> None:
    """Clients, engine, extension, clocks and randomness each have one home."""
    found = [
        f"{path.relative_to(ROOT)}:{line} uses {banned}; its home is {' '.join(OWNERS[banned])}"
        for path in MODULES
        if not owned(path, OWNERS[banned])
        for line in uses(path, banned)
    ]
    assert found == []


def is_pure(path: Path) -> bool:
    """Returns true for a module whose docstring carries the mark: the word "pure" in its first paragraphs."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return path.name != "__init__.py" and re.search(r"\bpure\b", text, re.IGNORECASE) is not None


@functools.cache
def imported_at_runtime(path: Path) -> frozenset[str]:
    """Returns the full names of all modules that a module imports, late imports included, types excluded."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found.update(item.name for item in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                found.update((child.module, *(f"{child.module}.{item.name}" for item in child.names)))
            visit(child)

    visit(ast.parse(path.read_text()))
    return frozenset(found)


def way_to_an_actor(path: Path, seen: set[Path]) -> list[str]:
    """Returns the chain of modules from one to something that acts; empty without any."""
    seen.add(path)
    names = imported_at_runtime(path)
    if acting := sorted(name for name in names if name.split(".")[0] in ACTS):
        return [path.relative_to(SOURCE).as_posix(), acting[0]]
    for name in sorted(names):
        if name.startswith("eomirror."):
            module = SOURCE.joinpath(*name.split(".")[1:]).with_suffix(".py")
            if module.exists() and module not in seen and (chain := way_to_an_actor(module, seen)):
                return [path.relative_to(SOURCE).as_posix(), *chain]
    return []


def test_pure_modules_reach_nothing_that_acts() -> None:
    """A module marked as pure opens no socket, starts no thread and writes no log, not even through others."""
    pure = [path for path in MODULES if is_pure(path) or owned(path, ALWAYS_PURE)]
    assert len(pure) > 50, "the mark is the word 'pure' in a module's docstring"
    assert [chain for path in pure if (chain := way_to_an_actor(path, set()))] == []


def test_modules_that_only_decide_say_so() -> None:
    """A reader sees from the docstring that a module of these packages is pure."""
    assert [
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        if owned(path, ALWAYS_PURE) and path.name != "__init__.py" and not is_pure(path)
    ] == []


def test_no_module_imports_itself_through_others() -> None:
    """The packages' order is import-linter's; inside a package modules import each other without a cycle."""
    names = {
        ".".join(("eomirror", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in MODULES
    }
    edges = {name: imported_at_runtime(path) & names.keys() for name, path in names.items()}
    assert sum(map(len, edges.values())) > 1000
    TopologicalSorter(edges).prepare()


def test_importing_a_module_starts_nothing() -> None:
    """PySpark forks workers: a thread, client or process made at import would be copied broken."""
    starters = (
        "Thread",
        "Timer",
        "Popen",
        "Consumer",
        "Producer",
        "AdminClient",
        "SparkContext",
        "socket",
        "run",
    )
    found = []
    for path in MODULES:
        # module level only: definitions are not entered, and __main__ is no import
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.If):
                continue
            found += [
                f"{path.relative_to(ROOT)}:{node.lineno} calls {dotted(node.func)} at import"
                for node in ast.walk(statement)
                if isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in starters
            ]
    assert found == []


def test_every_package_stands_in_a_layer() -> None:
    """A package outside the layers in pyproject.toml could import anything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {
        name.strip() for contract in contracts for line in contract["layers"] for name in line.split("|")
    }
    tops = {f"eomirror.{path.relative_to(SOURCE).parts[0].removesuffix('.py')}" for path in MODULES}
    assert tops - layers - {"eomirror.__init__"} == set()


def test_ruff_bans_the_same_names() -> None:
    """The editor's quick answer and this test agree on what is banned."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert set(lint["flake8-tidy-imports"]["banned-api"]) == set(OWNERS)


def test_a_name_is_seen_through_an_alias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks above see through `import x as y` and `from x import y`; else they would prove nothing."""
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    module = tmp_path / "module.py"
    module.write_text(
        "import time as t\nfrom time import sleep as nap\nfrom . import _core\nt.time()\nnap(1)\n"
    )
    assert uses(module, "time.time") == [4]
    assert uses(module, "time.sleep") == [2]
    assert uses(module, "time.monotonic") == []
    assert uses(module, "eomirror._core") == [3]
