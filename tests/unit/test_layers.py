"""
Who may import what, name by name.

ruff's TID251 bans per file and import-linter compares layers; this closes what both leave open: an owner
of one banned name must not use another's, and no module may stand outside the layers.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "python" / "eomirror"
MODULES = sorted(SOURCE.rglob("*.py"))

# banned name -> owners, as paths under python/eomirror; a folder owns for all files in it
OWNERS: dict[str, tuple[str, ...]] = {
    "confluent_kafka": ("kafka/",),
    "pyspark": ("spark/",),
    "py4j": ("spark/",),
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

# modules that decide: facts and time come in, decisions go out
PURE = (
    "errors.py",
    "types.py",
    "topology/",
    "formats/",
    "sync/diff.py",
    "sync/both_ways.py",
    "config/model.py",
)
PURE_LANE = (
    "commit", "machine", "events", "commands", "spec", "recover", "ownership", "opposite", "refusal", "partitions",
    "endings", "transaction_watch", "foresight",
)  # fmt: skip
ACTS = {
    "asyncio",
    "logging",
    "multiprocessing",
    "os",
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


def test_modules_that_decide_import_nothing_that_acts() -> None:
    """Pure code cannot open a socket, start a thread or write a log, because it does not import one."""
    pure = (*PURE, *(f"lane/{name}.py" for name in PURE_LANE))
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in MODULES
        if owned(path, pure)
        for name, line in names_used(path).items()
        if name.split(".")[0] in ACTS
    ]
    assert found == []


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


def test_every_module_stands_in_a_layer() -> None:
    """A module outside the layers in pyproject.toml could import anything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    layers = {name.strip(" ()") for line in lines for name in line.split(":")}
    outside = []
    for path in MODULES:
        name = ".".join(("eomirror", *path.relative_to(SOURCE).with_suffix("").parts))
        if name.endswith("__init__"):
            continue  # a package's own file: import-linter counts it with the package
        if not any(f"{name}.".startswith(f"{layer}.") for layer in layers):
            outside.append(name)
    assert outside == []


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
