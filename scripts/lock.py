"""
Writes requirements.txt: every package that pyproject.toml asks for, with pins and hashes.

From the same pins it writes deploy/container/requirements.txt: what the package and its extra otel need to run.

    python scripts/lock.py [--upgrade]   write the file (needs uv)
    python scripts/lock.py --check       exit 1 when it was made from other requirements; needs nothing

The first line carries a digest of the requirements in pyproject.toml, so that the check needs no network
and no resolver.  Hosts, folders and comments of the resolver are left out: the file is the same wherever
it is written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.txt"
#: the packages of an image that runs the mirror; no tools
RUN_LOCK = ROOT / "deploy" / "container" / "requirements.txt"
HEAD = "# made by `just lock` from requirements with digest "


def requirements_digest() -> str:
    """Digest of everything in pyproject.toml that decides which packages are locked."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    deciding = [
        project["project"]["requires-python"],
        sorted(project["project"]["dependencies"]),
        sorted(project["project"]["optional-dependencies"]["otel"]),
        sorted(project["dependency-groups"]["dev"]),
        sorted(project["build-system"]["requires"]),
    ]
    return hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:16]


def is_current() -> bool:
    """Whether both files were made from the requirements that stand in pyproject.toml now."""
    head = HEAD + requirements_digest() + "\n"
    return all(file.is_file() and file.read_text().startswith(head) for file in (LOCK, RUN_LOCK))


def write(arguments: list[str]) -> int:
    """Resolve, and replace the files when that worked."""
    uv = shutil.which("uv")
    if uv is None:
        print("lock: uv is not installed\n  fix: pip install uv", file=sys.stderr)
        return 1
    return compiled(uv, LOCK, ["--group", "dev", *arguments]) or compiled(
        uv, RUN_LOCK, ["--extra", "otel", "-c", LOCK.name]
    )


def compiled(uv: str, file: Path, arguments: list[str]) -> int:
    """Resolve into one file; returns the exit code of uv."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "requirements.txt"
        if file.is_file():
            shutil.copy(file, fresh)  # uv keeps the pins of the file it writes to
        command = [uv, "pip", "compile", "pyproject.toml", "--universal", "--generate-hashes"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
        done = subprocess.run([*command, "-o", str(fresh), *arguments], cwd=ROOT, check=False)
        if done.returncode != 0:
            return done.returncode
        lines = [line for line in fresh.read_text().splitlines() if not line.startswith(("#", "--"))]
    file.write_text("\n".join([HEAD + requirements_digest(), *lines, ""]))
    print(f"lock: {sum('==' in line for line in lines)} packages in {file.relative_to(ROOT)}")
    return 0


def main(arguments: list[str]) -> int:
    """Write or check."""
    if arguments == ["--check"]:
        if is_current():
            return 0
        print("lock: requirements.txt is older than pyproject.toml\n  fix: run `just lock`", file=sys.stderr)
        return 1
    return write(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
