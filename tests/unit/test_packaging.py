"""What a user installs and what a stranger clones: complete, locked, and free of this machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "eomirror"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.txt").read_text()
# folders that are made, not written
MADE = {".git", ".venv", "target", "build", "__pycache__", ".ruff_cache", ".mypy_cache", ".pytest_cache"}
MADE |= {".hypothesis", ".eomirror", "spark-warehouse", "metastore_db", ".import_linter_cache", "egg-info"}


def project_files() -> list[Path]:
    """Files that belong to the project: what git tracks or would track; without git, what is no product."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard"]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = [ROOT / line for line in answer.stdout.splitlines()]
    else:
        paths = [path for path in ROOT.rglob("*") if not MADE & set(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file() and path.suffix not in {".so", ".png", ".gz"}]


def lines_with(pattern: str, *, skip: tuple[str, ...] = ()) -> list[str]:
    """``file:line`` of every match in the project's files."""
    wanted = re.compile(pattern)
    found = []
    for path in project_files():
        name = path.relative_to(ROOT).as_posix()
        if name in skip:
            continue
        text = path.read_bytes().decode(errors="replace")
        found += [
            f"{name}:{number}: {line.strip()[:80]}"
            for number, line in enumerate(text.splitlines(), 1)
            if wanted.search(line)
        ]
    return found


def test_requirements_name_every_direct_dependency_in_a_version_that_fits() -> None:
    """What pyproject.toml asks for is locked, in a version that it allows."""
    pins = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", LOCK, flags=re.MULTILINE))
    asked = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    unmet = [
        text
        for text in asked
        if not (need := Requirement(text)).specifier.contains(pins.get(need.name.lower(), "0"))
    ]
    assert unmet == []


def test_requirements_are_newer_than_pyproject() -> None:
    """A developer who changes a requirement runs `just lock` in the same commit."""
    check = subprocess.run(
        [sys.executable, "scripts/lock.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr


def test_every_requirement_has_a_hash() -> None:
    """`pip install --require-hashes` accepts the file, and nothing is taken by name alone."""
    entries = re.split(r"\n(?=[a-z0-9])", LOCK)
    assert [entry.split()[0] for entry in entries if "==" in entry and "--hash=sha256:" not in entry] == []


def test_requirements_name_no_host_and_no_folder() -> None:
    """The same lock serves every index and every machine."""
    assert [
        line for line in LOCK.splitlines() if re.search(r"https?:|//|index-url|find-links| @ |file:", line)
    ] == []


def test_no_file_names_a_machine_path() -> None:
    """No other machine has our home folder."""
    homes = "root|home/[a-z]+|Users/[A-Za-z]+|work"
    assert lines_with(rf"(?<![\w.~}}/-])/(?:{homes})/(?!\.\.\.)") == []


def test_no_file_names_a_registry_host() -> None:
    """Registries are reached through their clients' own settings, so that a mirror of them works too."""
    hosts = ("pypi", "pythonhosted", "crates"), ("org", "org", "io")
    names = [rf"{host}\.{top}" for host, top in zip(*hosts, strict=True)]
    names += [r"repo1?\.maven", r"maven\.apache", r"registry\.npmjs", r"proxy\.golang"]
    # cargo writes the name of its default registry, whichever mirror serves it, into its lock
    assert lines_with("|".join(names), skip=("Cargo.lock", "tests/unit/test_packaging.py")) == []


def test_the_command_is_declared_and_can_be_imported() -> None:
    """`eomirror` starts the function that pyproject.toml names."""
    module, _, function = PROJECT["project"]["scripts"]["eomirror"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_type_information_is_shipped() -> None:
    """Users' type checkers see our annotations, the extension's included."""
    assert (PACKAGE / "py.typed").is_file()
    assert (PACKAGE / "_core.pyi").is_file()


def test_public_names_exist_and_are_sorted_out() -> None:
    """Everything in `eomirror.__all__` can be imported, and the names of the library contract are there."""
    package = importlib.import_module("eomirror")
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert {"Mirror", "load_config"} <= set(package.__all__)


def test_importing_the_package_loads_neither_client_nor_engine() -> None:
    """`import eomirror` is cheap and safe before a fork."""
    heavy = {"confluent_kafka", "pyspark", "py4j"}
    probe = f"import sys, eomirror; print(*({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_the_version_is_the_same_everywhere() -> None:
    """One version in pyproject.toml, Cargo.toml and the installed package."""
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert cargo["workspace"]["package"]["version"] == PROJECT["project"]["version"]
    assert importlib.metadata.version("eomirror") == PROJECT["project"]["version"]


def test_the_bootstrap_asks_for_the_declared_versions() -> None:
    """./dev, pyproject.toml and Cargo.toml agree on the oldest Python and Rust."""
    script = (ROOT / "dev").read_text()
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    for version in (rust, python):
        assert f"at_least {version.replace('.', ' ')} " in script


def fake_tool(folder: Path, name: str, answer: str) -> None:
    """Put a program into ``folder`` that prints ``answer`` whatever it is asked."""
    tool = folder / name
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    tool.chmod(0o755)


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with what every system has, and none of the three that we need."""
    for tool in ("sh", "sed", "head", "grep", "dirname", "cat"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path


def dev(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ./dev with nothing but ``path`` on the PATH."""
    return subprocess.run(
        [str(path / "sh"), str(ROOT / "dev"), "--help"],
        env={"PATH": str(path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_missing_tools_are_named_at_once(bare_path: Path) -> None:
    """A bare machine hears of all three in one screen, each with the way to get it."""
    answer = dev(bare_path)
    assert answer.returncode == 1
    for text in ("Python: need 3.11", "Java: need 17", "Rust: need 1.85", "apt-get install", "rustup"):
        assert text in answer.stderr
    assert len(answer.stderr.splitlines()) < 20


def test_tools_that_are_too_old_are_named_with_what_was_found(bare_path: Path) -> None:
    """Old versions count as missing, and the answer says which one was found where."""
    fake_tool(bare_path, "python3", "Python 3.10.12")
    fake_tool(bare_path, "java", 'openjdk version "1.8.0_392"')
    fake_tool(bare_path, "cargo", "cargo 1.84.1 (66221abde 2024-11-19)")
    answer = dev(bare_path)
    assert answer.returncode == 1
    for text in ("found Python 3.10.12 at", 'found openjdk version "1.8.0_392" at', "found cargo 1.84.1"):
        assert text in answer.stderr


def test_only_what_is_missing_is_named(bare_path: Path) -> None:
    """Tools that are there and new enough are not mentioned; early-access Java counts."""
    fake_tool(bare_path, "python3", "Python 3.14.0")
    fake_tool(bare_path, "java", 'openjdk version "26-ea" 2026-03-17')
    answer = dev(bare_path)
    assert answer.returncode == 1
    assert "Rust: need 1.85" in answer.stderr
    assert "Python" not in answer.stderr
    assert "Java" not in answer.stderr
