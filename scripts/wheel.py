"""
Builds the wheel, installs it into an empty environment, and runs the command there.

    python scripts/wheel.py [FOLDER]   leaves the wheel in FOLDER, by default target/wheels

The environment gets the releases of deploy/container/requirements.txt by hash, then the wheel without looking for
other packages: an import that only the tools of the checkout satisfy fails here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "deploy" / "container" / "requirements.txt"

#: what a user does first, with the words that must appear
FIRST_COMMANDS = (
    (("eomirror", "--version"), "eomirror, version "),
    (("eomirror", "init", "mirror.yaml"), ""),
    (("eomirror", "check", "mirror.yaml", "-o", "table"), "no faults"),
    (("eomirror", "verify", "--help"), "Example: eomirror verify"),
    (("python", "-c", "import eomirror._core, pyspark; print(eomirror.__file__)"), "site-packages"),
)


def build(folder: Path) -> Path:
    """Builds the wheel; returns its path."""
    for old in folder.glob("eomirror-*.whl"):
        old.unlink()
    subprocess.run(
        ["maturin", "build", "--release", "--locked", "--quiet", "-o", str(folder)], cwd=ROOT, check=True
    )
    (wheel,) = folder.glob("eomirror-*.whl")
    if "-abi3-" not in wheel.name:
        raise SystemExit(f"wheel: {wheel.name} serves one version of Python only")
    if "-linux_" in wheel.name:
        raise SystemExit(f"wheel: {wheel.name} serves this distribution only")
    return wheel


def try_out(wheel: Path) -> None:
    """Installs the wheel into an empty environment and runs the first commands of a user there."""
    with tempfile.TemporaryDirectory(prefix="eomirror-wheel-") as folder:
        venv.create(Path(folder) / "venv", with_pip=True)
        programs = Path(folder) / "venv" / "bin"
        environ = {
            name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}
        }
        environ["PATH"] = f"{programs}:{environ['PATH']}"
        pip = [str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], env=environ, cwd=folder, check=True)
        subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], env=environ, cwd=folder, check=True)
        for command, expected in FIRST_COMMANDS:
            done = subprocess.run(
                [str(programs / command[0]), *command[1:]],
                env=environ,
                cwd=folder,
                check=False,
                capture_output=True,
                text=True,
                timeout=120,
            )
            if done.returncode != 0 or expected not in done.stdout:
                raise SystemExit(f"wheel: {' '.join(command)}: {done.stdout}{done.stderr}")


def main(arguments: list[str]) -> int:
    """Builds and tries out."""
    folder = Path(arguments[0]) if arguments else ROOT / "target" / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = build(folder)
    try_out(wheel)
    print(f"wheel: {wheel.name} runs in an empty environment")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
