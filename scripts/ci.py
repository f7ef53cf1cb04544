"""
Runs the stages of CI in order, each within a budget of minutes, and the test suites they are made of.

    python scripts/ci.py                    every stage; what `just ci` calls
    python scripts/ci.py build tests        only these
    python scripts/ci.py --suite unit ARG.. pytest on the folders of one suite; what `just unit` calls

A stage fails when one of its recipes fails, when it takes longer than its budget, or when it ran no test
although it has test files: a suite that silently collects nothing looks green for ever.  A stage whose
test files do not exist yet is skipped and named.  A budget that is exceeded twice over ends the stage,
so that a hang costs minutes, not the whole run.  A failed stage does not keep later ones from running,
except that nothing can follow a failed build.

Tests on brokers wait, and five recipes share two cores: a host that stands still for seconds ends waits of brokers
and of Spark that no test can lengthen.  So a few failed tests are repeated once, alone, when all other recipes of
their stage have ended; the report names them and how they failed.  Tests in which a judge found wrong data are never
repeated, and neither are those of a recipe that is called by hand.

The last line sums up the stages in the form `N passed, N failed, N skipped`, alone on its line.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent

# suite -> folders under tests/; a folder that does not exist yet is left out
SUITES: dict[str, tuple[str, ...]] = {
    "unit": ("unit", "properties", "golden"),
    # on a core of its own: it takes as long as the others together
    "model": ("sim",),
    "integration": ("contract", "integration"),
    "faults": ("faults",),
    # processes of their own: each of these makes Spark contexts, and a process can have one
    "engine": ("spark",),
    "dataframe": ("dataframe",),
    "interop": ("interop", "topologies"),
    "audit": ("audit",),
}
#: Seed of all that CI draws.
_SEED = "974024374"
# exit code of a shell whose command SIGABRT ended
_ABORTED = 128 + signal.SIGABRT
# exit code of pytest whose tests failed, without a verdict of a judge (tests/conftest.py)
_TESTS_FAILED = 1
# so many failed tests of a stage are repeated; more of them are no accident
_MOST_REPEATED = 5
_LAST_LINES = 12
ANSI = re.compile(r"\x1b\[[0-9;]*m")
PYTEST_END = re.compile(r"^=* ?(?P<counts>(\d+ [a-z]+(, )?)+|no tests ran) in [0-9.]+s.*$")
CARGO_END = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
# how pytest's words count in the closing line; "deselected" and "warnings" are no tests
COUNTED = {
    "passed": "passed",
    "xfailed": "passed",
    "failed": "failed",
    "error": "failed",
    "errors": "failed",
    "xpassed": "failed",
    "skipped": "skipped",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """
    One stage of CI.

    Attributes:
        name: What people call it.
        minutes: Budget.
        recipes: Recipes of the justfile, run in this order, in sight; all of them, even after one failed.
        needs: Globs under the root; without any match there is nothing to run yet.
        tests: Whether at least one test has to be executed.
        beside: Recipes that run at the same time as the others, begun in this order.
        at_once: Number of recipes of ``beside`` that run at the same time.
    """

    name: str
    minutes: float
    recipes: tuple[str, ...]
    needs: tuple[str, ...] = ()
    tests: bool = True
    beside: tuple[str, ...] = ()
    at_once: int = 1


# what moves the bytes of the mirrors in tests (tests/support/links/plane.py): a run of CI has time for one
PLANE = "EOMIRROR_TEST_PLANE"
PLANES = ("client", "native")


STAGES = (
    Stage("build", 10, ("build",), tests=False),
    # one pool to the end: between stages the last recipe of each would have the machine to itself.  Tests on brokers
    # wait more than they work, so five share two cores.  The longest begin first
    Stage(
        "tests",
        50,
        ("unit", "faults-kills", "integration-clusters", "lint-stub", "docs-site"),
        beside=(
            "rust",
            "integration-returns",
            "engine",
            "integration-refusals",
            "integration-rest",
            # not beside the engine's: both start Spark over and over
            "dataframe",
            "faults-rest",
            "faults-disasters",
            "faults-losses",
            "interop-topologies",
            "interop-rest",
            "faults-rounds",
            "integration-mirrors",
            "faults-copies",
            "interop-native",
            "interop-older",
            "faults-crashes",
            "faults-cuts",
            "model",
            "interop-mm2",
            "interop-filled",
            "audit",
            "wheel",
            "lint-types",
            "lint-python",
            "lint-layers",
        ),
        at_once=4,
    ),
    Stage("bench", 4, ("bench-small",), ("bench/__main__.py",), tests=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """
    What came of one recipe.

    Attributes:
        name: Of the justfile.
        seconds: Wall time.
        cpu: CPU seconds of it and of all processes that it has waited for; those of killed process trees are missing.
        counts: Numbers of tests, by word.
        faults: What was wrong.
        code: Exit code.
        cache: Where pytest notes the tests that failed.
        last: Its last lines.
        first: Its first run, if this is a repetition; its times and counts are in those above.
    """

    name: str
    seconds: float
    cpu: float
    counts: dict[str, int]
    faults: tuple[str, ...]
    code: int
    cache: Path
    last: tuple[str, ...]
    first: Recipe | None = None

    @property
    def to_repeat(self) -> int:
        """Number of failed tests to repeat; 1 for an abort before any test runner had closed."""
        if self.first is not None or len(self.faults) > 1:
            return 0
        if self.code == _ABORTED:
            return 0 if any(self.counts.values()) else 1
        noted = (self.cache / "v" / "cache" / "lastfailed").is_file()
        return self.counts["failed"] if self.code == _TESTS_FAILED and noted else 0


@dataclass(slots=True)
class Result:
    """What came of one stage, or of one recipe while it runs."""

    stage: Stage
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: {"passed": 0, "failed": 0, "skipped": 0})
    faults: list[str] = field(default_factory=list)
    skipped: bool = False
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    recipes: list[Recipe] = field(default_factory=list)

    def add(self, recipe: Recipe) -> None:
        """Add up what came of a recipe; a repetition stands for its first run as well."""
        if recipe.first is not None:
            self.recipes.remove(recipe.first)
            for word, number in recipe.first.counts.items():
                self.counts[word] -= number
            for fault in recipe.first.faults:
                self.faults.remove(fault)
        for word, number in recipe.counts.items():
            self.counts[word] += number
        self.faults += recipe.faults
        self.recipes.append(recipe)

    def read(self, line: str) -> None:
        """Add up the closing line of a test runner; other lines mean nothing here."""
        text = ANSI.sub("", line).strip()
        if found := CARGO_END.match(text):
            for word, number in zip(("passed", "failed", "skipped"), found.groups(), strict=True):
                self.counts[word] += int(number)
        elif found := PYTEST_END.match(text):
            pairs = re.findall(r"(\d+) ([a-z]+)", found["counts"])
            numbers = {word: int(number) for number, word in pairs}
            for word, counted in COUNTED.items():
                self.counts[counted] += numbers.get(word, 0)
            if not any(numbers.get(word) for word, counted in COUNTED.items() if counted != "skipped"):
                self.faults.append(f"pytest executed no test: '{text.strip('= ')}'")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Stop a recipe and everything it started: ask, then insist."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
            return


def end_of(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """The exit code of a recipe as a shell tells it, and its CPU seconds; 0 of one that was ended."""
    if process.returncode is not None:
        return process.returncode, 0.0
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return code, usage.ru_utime + usage.ru_stime


class Output:
    """What a recipe says: seen as it comes, or in one piece when it has ended."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._held: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        """It has said this."""
        self._held.append(chunk)
        if self._shown:
            self.end()

    def end(self) -> None:
        """Write all that is held."""
        sys.stdout.buffer.write(b"".join(self._held))
        sys.stdout.flush()
        self._held.clear()


def follow(
    process: subprocess.Popen[bytes], recipe: str, result: Result, said: Output, until: float
) -> tuple[str, ...]:
    """Read a recipe's output until it ends, or the monotonic clock says ``until``; return its last lines."""
    assert process.stdout is not None  # noqa: S101  PIPE was asked for
    output = process.stdout.fileno()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    rest = b""
    try:
        while True:
            # raw reads, not lines: pytest's dots shall be seen while they come
            ready = bool(select.select([output], [], [], 1.0)[0])
            if ready:
                chunk = os.read(output, 65536)
                if not chunk:
                    break
                said.add(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    last.append(line.decode(errors="replace"))
                    result.read(last[-1])
            if time.monotonic() > until:
                result.faults.append(f"just {recipe} was ended: twice the stage's budget had passed")
                end_group(process)
                break
            if (
                not ready
                and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            ):
                # it has ended, but something that it started still holds its output
                result.faults.append(f"just {recipe} left processes behind; they were ended")
                end_group(process)
                break
    except BaseException:
        end_group(process)
        raise
    finally:
        process.stdout.close()
    last.append(rest.decode(errors="replace"))
    result.read(last[-1])
    return tuple(last)


def run_recipe(
    recipe: str, running: Result, until: float, *, shown: bool = True, first: Recipe | None = None
) -> Recipe:
    """
    Run one recipe until it ends or the monotonic clock says ``until``.

    Args:
        recipe: Of the justfile.
        running: Of the stage; takes the process.
        until: When it is ended.
        shown: Its output is in sight while it runs; otherwise it follows in one piece when it has ended.
        first: Its first run, of which this repeats what failed; all of it if it was aborted.
    """
    said = Output(shown=shown)
    said.add(f"--- just {recipe}\n".encode())
    # pytest clears the folders of earlier sessions away; two sessions that end at once would clear the same ones
    folder = Path(tempfile.mkdtemp(prefix=f"eomirror-{recipe}-"))
    cache = first.cache if first else folder / "cache"
    options = f"-o cache_dir={cache}"
    if first is not None and first.code == _TESTS_FAILED:
        options += " --last-failed --last-failed-no-failures=none"
    started = time.monotonic()
    result = Result(running.stage)
    if first is not None:
        result.counts |= first.counts | {"failed": 0}
    process = subprocess.Popen(
        ["just", "--justfile", str(ROOT / "justfile"), recipe],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTEST_DEBUG_TEMPROOT": str(folder), "PYTEST_ADDOPTS": options},
        start_new_session=True,  # its own group, so that a stage can be ended whole
    )
    running.running.append(process)
    last = follow(process, recipe, result, said, until)
    code, cpu = end_of(process)
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        said.add(f"the files of just {recipe} are kept in {folder}\n".encode())
    if code > 0:
        result.faults.append(f"just {recipe} ended with {code}")
    said.end()
    return Recipe(
        name=recipe,
        seconds=time.monotonic() - started + (first.seconds if first else 0.0),
        cpu=cpu + (first.cpu if first else 0.0),
        counts=result.counts,
        faults=tuple(result.faults),
        code=code,
        cache=cache,
        last=last,
        first=first,
    )


def repeat_failed(result: Result, until: float) -> None:
    """Run what failed in a few tests once more, one recipe after the other."""
    chosen = [recipe for recipe in result.recipes if recipe.to_repeat]
    if sum(recipe.to_repeat for recipe in chosen) > _MOST_REPEATED:
        return
    for first in chosen:
        print(f"just {first.name} failed beside others; what failed is repeated alone", flush=True)
        result.add(run_recipe(first.name, result, until, first=first))


class Beside:
    """The recipes that run beside the others of a stage, so many of them at once."""

    def __init__(self, result: Result, until: float) -> None:
        self.result = result
        self._until = until
        self._ended = False
        self._left = iter(result.stage.beside)
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(result.stage.at_once)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while (recipe := self._next()) is not None:
            try:
                ended = run_recipe(recipe, self.result, self._until, shown=False)
            except Exception as error:  # noqa: BLE001  nothing else would report it
                self.result.faults.append(f"just {recipe} could not be run: {error!r}")
                continue
            self.add(ended)

    def add(self, ended: Recipe) -> None:
        """Add up what came of a recipe, in any thread."""
        with self._lock:
            self.result.add(ended)

    def _next(self) -> str | None:
        with self._lock:
            return None if self._ended else next(self._left, None)

    def wait(self) -> None:
        """Until all have ended."""
        for thread in self._threads:
            thread.join()

    def end(self) -> None:
        """End them; they are in process groups of their own, which a Ctrl-C does not reach."""
        self._ended = True
        # a recipe that has just been started is not in the list yet; its thread ends when the recipe has
        while any(thread.is_alive() for thread in self._threads):
            for process in tuple(self.result.running):
                if process.poll() is None:
                    end_group(process)
            time.sleep(0.05)


def run_stage(stage: Stage) -> Result:
    """Run all recipes of a stage and judge it."""
    result = Result(stage)
    if stage.needs and not any(True for pattern in stage.needs for _ in ROOT.glob(pattern)):
        result.skipped = True
        print(f"\n=== {stage.name}: skipped, nothing matches {' or '.join(stage.needs)}", flush=True)
        return result
    print(f"\n=== {stage.name}: {stage.minutes:g} minutes allowed", flush=True)
    started = time.monotonic()
    until = started + 2 * 60 * stage.minutes
    beside = Beside(result, until)
    try:
        for recipe in stage.recipes:
            beside.add(run_recipe(recipe, result, until))
        beside.wait()
        repeat_failed(result, until)
    except BaseException:
        beside.end()
        raise
    result.seconds = time.monotonic() - started
    if result.seconds > 60 * stage.minutes:
        result.faults.append(
            f"over budget: {result.seconds / 60:.1f} minutes spent, {stage.minutes:g} allowed; "
            "make the stage cheaper or move a test to `just full` (marker slow)"
        )
    if stage.tests and not result.counts["passed"] + result.counts["failed"]:
        result.faults.append("no test was executed")
    return result


def clock(seconds: float) -> str:
    """Minutes and seconds, as in 12:05."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def report(results: list[Result]) -> int:
    """Print the table, the faults and the closing line; return the exit code."""
    print(f"\n{'stage':<14}{'result':<9}{'spent':>8}{'allowed':>9}{'passed':>8}{'failed':>8}{'skipped':>9}")
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for result in results:
        verdict = "skipped" if result.skipped else "FAILED" if result.faults else "ok"
        numbers = "".join(f"{result.counts[word]:>{8 + (word == 'skipped')}}" for word in total)
        print(
            f"{result.stage.name:<14}{verdict:<9}{clock(result.seconds):>8}{result.stage.minutes:>6g}:00{numbers}"
        )
        for word in total:
            total[word] += result.counts[word]
    # where the time goes: a recipe that is far longer than the others holds up the end, and CPU is what all share
    recipes = [recipe for result in results for recipe in result.recipes]
    for recipe in sorted(recipes, key=lambda recipe: -recipe.seconds):
        verdict = "FAILED" if recipe.faults else "ok"
        times = f"{clock(recipe.seconds):>8} {clock(recipe.cpu):>7} CPU"
        print(f"  {recipe.name:<22}{verdict:<7}{times}{recipe.counts['passed']:>7} passed")
    for recipe in recipes:
        if recipe.first is not None:
            again = "failed again" if recipe.faults else "passed"
            print(
                f"  what failed in just {recipe.name} was repeated alone and {again}; first, it ended with:"
            )
            print("\n".join(f"    | {line}" for line in recipe.first.last if line.strip()))
    print(f"  CPU of all: {sum(recipe.cpu for recipe in recipes) / 60:.0f} minutes")
    failed = [result for result in results if result.faults]
    for result in failed:
        for fault in result.faults:
            print(f"FAILED {result.stage.name}: {fault}")
    # a stage can fail without a failed test (lint, budget); the closing line must not look green then
    number = max(total["failed"], len(failed))
    print(f"\n{total['passed']} passed, {number} failed, {total['skipped']} skipped", flush=True)
    return 1 if failed else 0


def become_pytest(arguments: list[str]) -> NoReturn:
    """Replace this process by pytest, so that its exit code, 5 for no tests included, is ours."""
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])  # noqa: S606  no shell is wanted


def run_suite(suite: str, arguments: list[str]) -> int:
    """Become pytest on the folders of one suite."""
    folders = [
        f"tests/{folder}"
        for folder in SUITES[suite]
        if any(True for _ in (ROOT / "tests" / folder).glob("**/test_*.py"))
    ]
    if not folders:
        print(f"suite {suite}: no test file in tests/{{{','.join(SUITES[suite])}}} yet")
        return 0
    # the slowest are named: budgets are kept by looking at them
    become_pytest([*folders, "--durations=12", "--durations-min=8", *arguments])


def plane_of_commit() -> str:
    """The plane whose turn it is: they alternate by the number of commits; the client plane where that is not known."""
    try:
        counted = subprocess.run(
            ["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return PLANES[0]
    return PLANES[int(counted.stdout) % len(PLANES)]


def run_stages(names: list[str]) -> int:
    """Run the stages of these names, or all."""
    results: list[Result] = []
    plane = os.environ.setdefault(PLANE, plane_of_commit())
    print(f"plane under test: {plane} ({PLANE}=client or native to choose)", flush=True)
    # what CI draws is the same in every run: a failure is the change's; `just full` draws anew
    seed = os.environ.setdefault("EOMIRROR_SEED", _SEED)
    print(f"seed: {seed} (EOMIRROR_SEED=N to choose)", flush=True)
    for stage in STAGES:
        if names and stage.name not in names:
            continue
        results.append(run_stage(stage))
        if stage.name == "build" and results[-1].faults:
            print("\nnothing can follow a failed build")
            break
    return report(results)


def main(arguments: list[str]) -> int:
    """Run what the command line names."""
    match arguments:
        case ["--suite", suite, *rest] if suite in SUITES:
            return run_suite(suite, rest)
        case names if set(names) <= {stage.name for stage in STAGES}:
            return run_stages(names)
        case _:
            print(f"{__doc__}\nsuites: {', '.join(SUITES)}", file=sys.stderr)
            print(f"stages: {', '.join(stage.name for stage in STAGES)}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
