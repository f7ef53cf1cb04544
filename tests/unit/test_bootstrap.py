"""The set-up of a checkout: a demo gets little and soon, anything else adds the rest, and what is there stays."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


class Checkout:
    """A small project, and the commands that its set-up ran."""

    def __init__(self, module: ModuleType, root: Path) -> None:
        self.module, self.root = module, root
        self.real_beside = module.beside
        self.commands: list[str] = []
        (root / ".venv" / "bin").mkdir(parents=True)
        (root / "rust" / "py" / "src").mkdir(parents=True)
        (root / "python" / "eomirror").mkdir(parents=True)
        (root / "deploy" / "container").mkdir(parents=True)
        locks = ("requirements.txt", "deploy/container/requirements.txt")
        for name in (*locks, "Cargo.toml", "Cargo.lock", "pyproject.toml", "rust/py/src/lib.rs"):
            (root / name).write_text("click==8 \\\n    --hash=1\nmaturin==1 \\\n    --hash=2\nmypy==2\n")

    def run(self, command: list[str], *, advice: str) -> None:
        """Remembers a command, and does what matters of it."""
        assert advice
        words = [Path(word).relative_to(self.root).as_posix() if "/" in word else word for word in command]
        self.commands.append(" ".join(words))
        if "develop" in command:
            (self.root / "python" / "eomirror" / "_core.abi3.so").touch()

    @contextmanager
    def beside(self, command: list[str], *, advice: str) -> Iterator[None]:
        """Remembers a command that runs beside others."""
        self.run(command, advice=advice)
        yield

    def set_up(self, *, demo: bool, build: bool = True) -> list[str]:
        """Returns the commands of one set-up: files that were installed, and arguments of maturin."""
        self.commands.clear()
        self.module.set_up_parts(build=build, demo=demo)
        return [
            command.rpartition("-r ")[2] if "-r " in command else command.partition(" develop ")[2]
            for command in self.commands
        ]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """scripts/bootstrap.py in a small project, without uv."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bootstrap", module)
    spec.loader.exec_module(module)
    venv = tmp_path / ".venv"
    run_lock = tmp_path / "deploy" / "container" / "requirements.txt"
    places = {
        "ROOT": tmp_path, "VENV": venv, "PYTHON": venv / "bin" / "python",
        "REQUIREMENTS": tmp_path / "requirements.txt", "RUN_REQUIREMENTS": run_lock,
    }  # fmt: skip
    for name, place in places.items():
        monkeypatch.setattr(module, name, place)
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    found = Checkout(module, tmp_path)
    monkeypatch.setattr(module, "run", found.run)
    monkeypatch.setattr(module, "beside", found.beside)
    return found


QUICK = "--locked --profile quick --skip-install"
RELEASE = ["--locked --profile release --skip-install", "--locked --profile release"]
MATURIN = ".venv/maturin.txt --quiet"
RUN_LOCK = "deploy/container/requirements.txt"


def test_a_demo_in_a_new_checkout_gets_what_a_run_needs(checkout: Checkout) -> None:
    """Maturin alone, then the packages of a run beside a quick build; a second demo does nothing."""
    assert checkout.set_up(demo=True) == [MATURIN, RUN_LOCK, QUICK]
    assert (checkout.root / ".venv" / "maturin.txt").read_text() == "maturin==1 \\\n    --hash=2\n"
    assert checkout.set_up(demo=True) == []


def test_what_follows_a_demo_adds_the_rest(checkout: Checkout) -> None:
    """Tests and benchmarks get all packages and an extension of the release profile; a demo takes both as they are."""
    checkout.set_up(demo=True)
    (checkout.root / ".venv" / "bin" / "maturin").touch()
    assert checkout.set_up(demo=False) == ["requirements.txt", *RELEASE]
    assert checkout.set_up(demo=False) == []
    assert checkout.set_up(demo=True) == []


def test_a_demo_of_a_developer_keeps_the_release_profile(checkout: Checkout) -> None:
    """A changed source is built as before: another profile would compile all crates again, twice."""
    checkout.set_up(demo=False)
    (checkout.root / "rust" / "py" / "src" / "lib.rs").write_text("changed")
    (checkout.root / ".venv" / "bin" / "maturin").touch()
    assert checkout.set_up(demo=True) == RELEASE[:1]
    assert checkout.set_up(demo=False) == []


def test_an_extension_that_is_gone_is_built_again(checkout: Checkout) -> None:
    """The stamp alone is no proof; packages stay."""
    checkout.set_up(demo=True)
    (checkout.root / ".venv" / "bin" / "maturin").touch()
    (checkout.root / "python" / "eomirror" / "_core.abi3.so").unlink()
    assert checkout.set_up(demo=True) == [QUICK]


def test_without_a_build_only_packages_are_installed(checkout: Checkout) -> None:
    """`./dev test` builds in its first stage."""
    assert checkout.set_up(demo=False, build=False) == ["requirements.txt"]


def test_packages_that_cannot_be_installed_end_the_set_up(checkout: Checkout) -> None:
    """With the last lines of the installer, and how to proceed; the next set-up tries again."""
    failing = "print('no such hash'); raise SystemExit(2)"
    with (
        pytest.raises(checkout.module.SetupError, match=r"no such hash(.|\n)*ended with 2\n  fix: try again"),
        checkout.real_beside([sys.executable, "-c", failing], advice="try again"),
    ):
        pass


def test_a_failed_build_ends_the_installation_beside_it(checkout: Checkout) -> None:
    """The compiler's error is told at once."""
    waiting = "import time; time.sleep(60)"
    with (
        pytest.raises(ValueError, match="compiler"),
        checkout.real_beside([sys.executable, "-c", waiting], advice=""),
    ):
        raise ValueError("compiler")
