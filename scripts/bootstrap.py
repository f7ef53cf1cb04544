"""
Sets up the checkout for `./dev`, then becomes the command that was asked for.

Standard library only: it runs before anything is installed.  Three steps, each with a stamp in
``.venv`` that says what the step was made from, so that a step whose inputs did not change costs a few
milliseconds:

1. ``.venv``              made again when the Python that made it is gone or another version
2. ``requirements.txt``   installed by hash, never by name alone
3. the Rust extension     ``maturin develop``; inputs: ``rust/``, Cargo files, pyproject.toml, and the profile

The second and the third run at the same time.  A demo in a new checkout needs no tools and no link-time
optimization: it gets the packages of the container image and an extension of the profile ``quick``.  Any other
command adds the remaining packages and builds in release mode.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements.txt"
RUN_REQUIREMENTS = ROOT / "deploy" / "container" / "requirements.txt"
RELEASE, QUICK = "release", "quick"
LAST_LINES = 15
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


@contextmanager
def beside(command: list[str], *, advice: str) -> Iterator[None]:
    """Run an installer during the block, its output in a file; raise SetupError with ``advice`` when it fails."""
    log = VENV / "packages.log"
    # PySpark comes as sources of 400 MB: pip would compress them into a wheel, and take that apart again
    stored = VENV / "stored.cfg"
    stored.write_text("[bdist_wheel]\ncompression=stored\n")
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment() | {"DIST_EXTRA_CONFIG": str(stored)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    if code != 0:
        lines = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        raise SetupError(f"{lines}\n`{' '.join(command)}` ended with {code}\n  fix: {advice}")


def is_done(stamp: Path, *wanted: str) -> bool:
    """Return True if ``stamp`` says that its step was done for one of ``wanted``."""
    return stamp.is_file() and stamp.read_text() in wanted


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


def installer(file: Path) -> list[str]:
    """Return the command that installs locked requirements, with uv where it is at hand and pip otherwise."""
    options = ["--require-hashes", "-r", str(file)]
    uv = shutil.which("uv")
    if uv and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0:
        # pip compiles what it installs, uv only when it is told to; else the first start of everything does it
        return [uv, "pip", "install", "--compile-bytecode", "--python", str(PYTHON), *options]
    return [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *options]


INSTALL_ADVICE = (
    "read the lines above; a network or mirror problem: run the same command again; "
    "a hash that does not match: the package index does not serve what requirements.txt locks"
)
BUILD_ADVICE = (
    "read the compiler's lines above; 'linker `cc` not found': install a C compiler "
    "(Debian, Ubuntu: apt-get install gcc libc6-dev; macOS: xcode-select --install)"
)


def install_maturin() -> None:
    """Install the one tool that a build needs, in the locked version, unless it is there."""
    if (VENV / "bin" / "maturin").exists():
        return
    entry = re.search(r"^maturin==.*?(?=^\S|\Z)", REQUIREMENTS.read_text(), flags=re.MULTILINE | re.DOTALL)
    if entry is None:
        raise SetupError("requirements.txt does not lock maturin\n  fix: run `just lock`")
    alone = VENV / "maturin.txt"
    alone.write_text(entry.group())
    run([*installer(alone), "--quiet"], advice=INSTALL_ADVICE)


def extension_inputs() -> str:
    """Return a digest of what the extension is built from."""
    sources = [path for path in (ROOT / "rust").rglob("*") if path.suffix in (".rs", ".toml", ".pyi")]
    sources += [ROOT / name for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml")]
    return digest(sources, sys.version)


def set_up_parts(*, build: bool, demo: bool) -> None:
    """Install packages and build the extension, at the same time, as far as they are not up to date."""
    everything, inputs = digest([REQUIREMENTS], sys.version), extension_inputs()
    of_a_run = digest([REQUIREMENTS, RUN_REQUIREMENTS], sys.version)
    packages_stamp, stamp = VENV / ".requirements-stamp", VENV / ".extension-stamp"
    before = stamp.read_text() if stamp.is_file() else ""
    if not any((ROOT / "python" / "eomirror").glob("_core*.so")):
        stamp.unlink(missing_ok=True)
    # who develops keeps one profile: a change would compile all crates twice
    profile = QUICK if demo and not before.startswith(RELEASE) else RELEASE
    accepted = [f"{name} {inputs}" for name in ((QUICK, RELEASE) if demo else (RELEASE,))]
    build = build and not is_done(stamp, *accepted)
    install = not is_done(packages_stamp, *([everything, of_a_run] if demo else [everything]))
    parts = [text for text, wanted in ((PACKAGES[demo], install), (EXTENSION[profile], build)) if wanted]
    if not parts:
        return
    started = time.monotonic()
    say("\ndev:   ".join(["setting up ...", *parts]))
    packages: AbstractContextManager[None] = nullcontext()
    if install:
        packages_stamp.unlink(missing_ok=True)
        packages = beside(installer(RUN_REQUIREMENTS if demo else REQUIREMENTS), advice=INSTALL_ADVICE)
    if build:
        stamp.unlink(missing_ok=True)
        build_extension(profile, packages, whole=not demo)
        stamp.write_text(f"{profile} {inputs}")
    else:
        with packages:
            pass
    if install:
        packages_stamp.write_text(of_a_run if demo else everything)
    say(f"set up after {time.monotonic() - started:.0f} s")


def build_extension(profile: str, packages: AbstractContextManager[None], *, whole: bool) -> None:
    """Build the extension beside the installation of packages, then install this package if it is ``whole``."""
    install_maturin()
    command = [str(VENV / "bin" / "maturin"), "develop", "--locked", "--profile", profile]
    started = time.monotonic()
    with packages:
        run([*command, "--skip-install"], advice=BUILD_ADVICE)
        say(f"  the extension is built after {time.monotonic() - started:.0f} s")
    if whole:
        run(command, advice=BUILD_ADVICE)


#: By ``demo``; on two idle cores.
PACKAGES = {
    True: "the locked packages of a run, mostly PySpark: about 40 s",
    False: "all locked packages, mostly PySpark: about 60 s",
}
EXTENSION = {
    QUICK: "the Rust extension, built quickly: about 50 s",
    RELEASE: "the Rust extension, built in release mode: about 200 s",
}


def set_up(*, build: bool, demo: bool) -> None:
    """Bring the checkout up to date; one process at a time."""
    make_venv()
    with (VENV / ".dev-lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another ./dev sets up this checkout; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        set_up_parts(build=build, demo=demo)


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
            return ["python", "-P", "-m", "eomirror", "demo", *rest]
        case ["just", *rest]:
            return [*just, *(rest or ["--list"])]
        case ["eomirror", *rest]:
            return ["eomirror", *(rest or ["--help"])]
        case _:
            raise SetupError(f"no such command: {arguments[0]}\n{USAGE}")


def become(program: Path, command: list[str]) -> NoReturn:
    """Replace this process by ``command``."""
    env = environment()
    if program == PYTHON:
        # a demo's set-up does not install the package
        env["PYTHONPATH"] = str(ROOT / "python")
    os.execve(program, command, env)  # noqa: S606  no shell is wanted


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
        set_up(build=build, demo=arguments[:1] == ["demo"])
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
