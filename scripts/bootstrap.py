"""
Sets up the checkout for `./dev`, then becomes the command that was asked for.

Standard library only: it runs before anything is installed.  Three steps, each with a stamp in
``.venv`` that holds a digest of what the step was made from, so that a step whose inputs did not change
costs a few milliseconds:

1. ``.venv``              made again when the Python that made it is gone or another version
2. ``requirements.txt``   installed by hash, never by name alone
3. the Rust extension     ``maturin develop --release``; inputs: ``rust/``, Cargo files, pyproject.toml
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements.txt"
USAGE = """\
usage: ./dev [--no-build] [demo | test | just RECIPE | eomirror COMMAND] [ARGUMENT ...]
  ./dev              set up this checkout
  ./dev demo         set up, then two Kafka clusters, a mirror that is killed, and a report
  ./dev test         set up, then everything that CI runs
  ./dev just         set up, then list the recipes of the justfile
  ./dev eomirror     set up, then the command line's own help
"""


class SetupError(Exception):
    """A step failed; the text says what to do."""


def say(text: str) -> None:
    """Print one line of progress; standard output belongs to the command that follows."""
    print(f"dev: {text}", file=sys.stderr, flush=True)


def digest(paths: list[Path], *extra: str) -> str:
    """Digest of the names and contents of ``paths``, and of ``extra``."""
    total = hashlib.sha256()
    for item in extra:
        total.update(item.encode() + b"\0")
    for path in sorted(paths):
        total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def run(command: list[str], *, advice: str) -> None:
    """Run one step with its output in sight; raise SetupError with ``advice`` when it fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # like say(): what the user pipes is the command's output alone
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(command)}` ended with {done.returncode}\n  fix: {advice}")


def environment() -> dict[str, str]:
    """Environment in which the virtual environment is active, and Python keeps the modules that it has compiled."""
    # container images often forbid the latter: each command would compile 190 modules for half a second of CPU
    left_out = ("PYTHONHOME", "PYTHONPATH", "CONDA_PREFIX", "PYTHONDONTWRITEBYTECODE")
    env = {k: v for k, v in os.environ.items() if k not in left_out}
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = f"{VENV / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
    return env


def step(name: str, stamp: Path, wanted: str, act: list[tuple[list[str], str]]) -> None:
    """Do ``act`` unless ``stamp`` says that it was done for ``wanted``; say how long it took."""
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    say(f"{name} ...")
    started = time.monotonic()
    stamp.unlink(missing_ok=True)
    for command, advice in act:
        run(command, advice=advice)
    stamp.write_text(wanted)
    say(f"{name}: done in {time.monotonic() - started:.0f} s")


def make_venv() -> None:
    """Make ``.venv`` with this interpreter, unless a working one of the same version is there."""
    version = ".".join(map(str, sys.version_info[:2]))
    if PYTHON.exists():
        probe = "import sys; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run([str(PYTHON), "-c", probe], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return
        say(f".venv is not Python {version} or does not start: making it again")
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    advice = "install the venv module of this Python (Debian, Ubuntu: apt-get install python3-venv)"
    say(f"making .venv with Python {version} ...")
    run(command, advice=advice)


def install_requirements() -> None:
    """Install the locked requirements, with uv where it is at hand and pip otherwise."""
    options = ["--require-hashes", "-r", str(REQUIREMENTS)]
    uv = shutil.which("uv")
    if uv and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0:
        # pip compiles what it installs, uv only when it is told to; else the first start of everything does it
        install = [uv, "pip", "install", "--compile-bytecode", "--python", str(PYTHON), *options]
    else:
        install = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *options]
    advice = (
        "read the lines above; a network or mirror problem: run the same command again; "
        "a hash that does not match: the package index does not serve what requirements.txt locks"
    )
    step(
        "installing the locked requirements (PySpark is large; the first time takes minutes)",
        VENV / ".requirements-stamp",
        digest([REQUIREMENTS], sys.version),
        [(install, advice)],
    )


def build_extension() -> None:
    """Build the Rust extension in release mode and make the package importable in ``.venv``."""
    sources = [path for path in (ROOT / "rust").rglob("*") if path.suffix in (".rs", ".toml", ".pyi")]
    sources += [path for name in ("Cargo.toml", "Cargo.lock") if (path := ROOT / name).is_file()]
    command = [str(VENV / "bin" / "maturin"), "develop", "--release"]
    if (ROOT / "Cargo.lock").is_file():
        command.append("--locked")
    stamp = VENV / ".extension-stamp"
    if not any((ROOT / "python" / "eomirror").glob("_core*.so")):
        stamp.unlink(missing_ok=True)
    advice = (
        "read the compiler's lines above; 'linker `cc` not found': install a C compiler "
        "(Debian, Ubuntu: apt-get install gcc libc6-dev; macOS: xcode-select --install)"
    )
    step(
        "building the Rust extension in release mode",
        stamp,
        digest([*sources, ROOT / "pyproject.toml"], sys.version),
        [(command, advice)],
    )


def set_up(*, build: bool) -> None:
    """Bring the checkout up to date; one process at a time."""
    make_venv()
    with (VENV / ".dev-lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another ./dev sets up this checkout; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        install_requirements()
        if build:
            build_extension()


def command_for(arguments: list[str]) -> list[str]:
    """Return the command line that ``arguments`` of `./dev` stand for; empty for set-up only."""
    # named, so that it is found from any folder; eomirror's arguments are relative to the caller's
    just = ["just", "--justfile", str(ROOT / "justfile")]
    match arguments:
        case []:
            return []
        case ["test"]:
            return [*just, "ci"]
        case ["demo", *rest]:
            return ["eomirror", "demo", *rest]
        case ["just", *rest]:
            return [*just, *(rest or ["--list"])]
        case ["eomirror", *rest]:
            return ["eomirror", *(rest or ["--help"])]
        case _:
            raise SetupError(f"no such command: {arguments[0]}\n{USAGE}")


def become(program: Path, command: list[str]) -> NoReturn:
    """Replace this process by ``command``."""
    os.execve(program, command, environment())  # noqa: S606  no shell is wanted


def main(arguments: list[str]) -> int:
    """Set up, then replace this process by the command, so that signals and the exit code are its own."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    build = arguments[:1] != ["--no-build"]
    if not build:
        arguments = arguments[1:]
    if arguments == ["test"]:
        build = False  # the first stage of CI builds, within its budget
    try:
        command = command_for(arguments)
    except SetupError as error:
        say(str(error))
        return 2
    try:
        set_up(build=build)
    except SetupError as error:
        say(str(error))
        return 1
    if not command:
        say("ready; try: ./dev demo, ./dev test, ./dev eomirror --help")
        return 0
    program = VENV / "bin" / command[0]
    if not program.exists():
        say(f"{command[0]} is not installed in .venv\n  fix: run ./dev without --no-build")
        return 1
    become(program, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
