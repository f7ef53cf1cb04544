"""The runner behind `just ci`: a stage that is late, empty or broken cannot look green."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from support.traffic.records import wait_for

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/ci.py in an empty project, with a `just` that runs the shell file of the recipe's name."""
    spec = importlib.util.spec_from_file_location("ci_stages", ROOT / "scripts" / "ci.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ci_stages", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    just = tmp_path / "just"
    just.write_text(f'#!/bin/sh\n. "{tmp_path}/$3.sh"\n')
    just.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    return module


def recipe(ci: ModuleType, name: str, script: str) -> None:
    """Define what `just NAME` does."""
    (ci.ROOT / f"{name}.sh").write_text(script)


def test_counts_of_all_runners_are_added_up(ci: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    """Closing lines of pytest and cargo are summed, and the sum is the last line, alone."""
    recipe(
        ci,
        "unit",
        "echo '===== 5 passed, 2 skipped, 1 xfailed, 3 warnings in 1.25s (0:00:01) ====='\n"
        "echo 'test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'\n",
    )
    assert ci.report([ci.run_stage(ci.Stage("unit", 1, ("unit",)))]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "13 passed, 0 failed, 3 skipped"


def test_each_recipe_has_its_own_folder_for_temporary_files(
    ci: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """Sessions of pytest that end at once do not clear each other's folders; a failed one's files are kept."""
    write = 'touch "$PYTEST_DEBUG_TEMPROOT/log"; echo "1 passed in 0.1s"'
    recipe(ci, "good", write)
    recipe(ci, "bad", f"{write}; exit 1")
    ci.run_stage(ci.Stage("both", 1, ("good",), beside=("bad",)))
    kept = list(ci.ROOT.glob("eomirror-*/log"))
    assert [path.parent.name.rsplit("-", 1)[0] for path in kept] == ["eomirror-bad"]
    assert f"the files of just bad are kept in {kept[0].parent}" in capfd.readouterr().out


def test_a_stage_over_its_budget_fails_and_says_by_how_much(
    ci: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spent and allowed time stand beside the stage's name."""
    recipe(ci, "slow", "sleep 0.3; echo '1 passed in 0.3s'\n")
    assert ci.report([ci.run_stage(ci.Stage("slow", 0.2 / 60, ("slow",)))]) == 1
    out = capfd.readouterr().out
    assert re.search(r"^FAILED slow: over budget: \S+ minutes spent, \S+ allowed", out, flags=re.MULTILINE)
    assert out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_a_hanging_stage_is_ended(ci: ModuleType) -> None:
    """Twice the budget ends the recipe and what it started."""
    recipe(ci, "hang", "sleep 60 & sleep 60\n")
    result = ci.run_stage(ci.Stage("hang", 0.5 / 60, ("hang",)))
    assert any("was ended" in fault for fault in result.faults)
    assert result.seconds < 20


def test_a_recipe_that_leaves_a_process_behind_fails(ci: ModuleType) -> None:
    """A leaked broker is a fault of the test, not a reason to wait for the budget."""
    recipe(ci, "leak", "echo '1 passed in 0.1s'; sleep 60 &\n")
    result = ci.run_stage(ci.Stage("leak", 1, ("leak",)))
    assert any("left processes behind" in fault for fault in result.faults)
    assert result.seconds < 20


@pytest.mark.parametrize("closing", ["no tests ran in 0.01s", "3 skipped in 0.20s", "12 deselected in 0.20s"])
def test_a_stage_that_executes_no_test_fails(ci: ModuleType, closing: str) -> None:
    """Collecting nothing and skipping everything are failures, whatever the exit code and cargo say."""
    recipe(ci, "empty", f"echo '{closing}'; echo 'test result: ok. 4 passed; 0 failed; 0 ignored;'\n")
    assert ci.run_stage(ci.Stage("empty", 1, ("empty",))).faults


def test_a_failing_recipe_does_not_hide_the_next(ci: ModuleType) -> None:
    """Lint fails, the tests still run, the stage fails."""
    recipe(ci, "lint", "exit 3\n")
    recipe(ci, "unit", "echo '4 passed in 0.1s'\n")
    result = ci.run_stage(ci.Stage("unit", 1, ("lint", "unit")))
    assert result.faults == ["just lint ended with 3"]
    assert result.counts["passed"] == 4


def fails_once(ci: ModuleType, failure: str, success: str) -> str:
    """A recipe that fails in its first run only."""
    return f"if [ -e {ci.ROOT}/once ]; then {success}; else touch {ci.ROOT}/once; {failure}; fi\n"


# pytest notes what failed in the cache folder that it is told
NOTED = "d=${PYTEST_ADDOPTS##*cache_dir=}; mkdir -p $d/v/cache; touch $d/v/cache/lastfailed"


def test_a_recipe_that_aborted_is_repeated_and_named(
    ci: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """An assertion of a C library ends the whole process of tests, of which none has failed."""
    script = fails_once(ci, "echo 'Fatal Python error: Aborted'; kill -ABRT $$", "echo '4 passed in 0.1s'")
    recipe(ci, "clusters", script)
    result = ci.run_stage(ci.Stage("clusters", 1, ("clusters",)))
    assert (result.faults, result.counts["passed"]) == ([], 4)
    assert ci.report([result]) == 0
    out = capfd.readouterr().out
    assert "what failed in just clusters was repeated alone and passed" in out
    assert "first, it ended with:\n    | Fatal Python error: Aborted\n" in out


def test_a_few_failed_tests_are_repeated_when_all_others_have_ended(
    ci: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """The closing line counts each test once, and the report says how it failed."""
    failure = (
        f"{NOTED}; echo 'FAILED a.py::late - did not come true'; echo '1 failed, 7 passed in 0.1s'; exit 1"
    )
    alone = f"[ -e {ci.ROOT}/ended ] && echo told $PYTEST_ADDOPTS; echo '1 passed, 7 deselected in 0.1s'"
    recipe(ci, "clusters", fails_once(ci, failure, alone))
    recipe(ci, "other", f"sleep 0.5; echo '5 passed in 0.1s'; touch {ci.ROOT}/ended\n")
    result = ci.run_stage(ci.Stage("clusters", 1, ("other",), beside=("clusters",)))
    assert ci.report([result]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^told .*--last-failed", out, flags=re.MULTILINE)
    assert "    | FAILED a.py::late - did not come true\n" in out
    # the files of the first run tell what happened
    assert [path.name.rsplit("-", 1)[0] for path in ci.ROOT.glob("eomirror-*")] == ["eomirror-clusters"]
    assert out.splitlines()[-1] == "13 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    "script",
    [
        "kill -ABRT $$",
        f"{NOTED}; echo '1 failed in 0.1s'; exit 1",
        "echo '4 passed in 0.1s'; kill -ABRT $$",
        "kill -SEGV $$",
    ],
    ids=["aborted twice", "failed twice", "behind the last test", "another signal"],
)
def test_a_recipe_that_fails_for_good_fails_the_stage(ci: ModuleType, script: str) -> None:
    """A repetition forgives nothing that happens again."""
    recipe(ci, "clusters", f"{script}\n")
    result = ci.run_stage(ci.Stage("clusters", 1, ("clusters",)))
    assert [fault for fault in result.faults if fault != "no test was executed"] == [
        f"just clusters ended with {result.recipes[0].code}"
    ]
    assert result.counts["failed"] == ("failed" in script)
    assert all(recipe.faults for recipe in result.recipes)


@pytest.mark.parametrize(
    "failure",
    [
        f"{NOTED}; echo '1 failed in 0.1s'; exit 9",
        f"{NOTED}; echo '6 failed in 0.1s'; exit 1",
        "echo 'test result: FAILED. 7 passed; 1 failed; 0 ignored;'; exit 101",
    ],
    ids=["judged", "too many", "cargo"],
)
def test_a_failure_that_is_no_accident_is_not_repeated(ci: ModuleType, failure: str) -> None:
    """Wrong data stays a failure, although the next run may be right."""
    recipe(ci, "clusters", fails_once(ci, failure, "echo '1 passed in 0.1s'"))
    result = ci.run_stage(ci.Stage("clusters", 1, ("clusters",)))
    assert len(result.faults) == 1
    assert result.counts["failed"] > 0


@pytest.mark.parametrize(
    ("failing", "code"),
    [
        ("assert False", 1),
        ("wait_for(lambda: False, 0.1)", 1),
        ("judge(False)", 9),
        ("judge(True)", 1),
        ("assert_audited(None)", 9),
    ],
    ids=["assertion", "wait", "judge", "judge that waits", "module of judges"],
)
def test_wrong_data_has_an_exit_code_of_its_own(tmp_path: Path, failing: str, code: int) -> None:
    """CI tells by it that nothing may be repeated, also when a test behind it passes."""
    (tmp_path / "test_made.py").write_text(
        "from support.judges.audited import assert_audited\n"
        "from support.traffic.records import wait_for\n\n\n"
        "def judge(late):\n    assert late\n    wait_for(lambda: False, 0.1)\n\n\n"
        f"def test_made():\n    {failing}\n\n\n"
        "def test_good():\n    pass\n"
    )
    arguments = ["-p", "conftest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == code


def test_recipes_beside_run_at_the_same_time_and_count_as_well(
    ci: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two columns share the machine: each waits for the other here, and the second one's output is in one piece."""
    wait = "n=0; until [ -e {}.here ]; do sleep 0.1; n=$((n+1)); [ $n -lt 300 ] || exit 9; done"
    here = f"cd {ci.ROOT}; touch"
    recipe(ci, "faults", f"{here} faults.here; {wait.format('engine')}; echo '2 passed in 0.1s'\n")
    engine = f"echo begins; {here} engine.here; {wait.format('faults')}; echo ends; echo '3 passed in 0.1s'\n"
    recipe(ci, "engine", engine)
    recipe(ci, "audit", "echo '1 failed in 0.1s'; exit 1\n")

    result = ci.run_stage(ci.Stage("faults", 1, ("faults",), beside=("engine", "audit")))

    assert result.faults == ["just audit ended with 1"]
    assert result.counts == {"passed": 5, "failed": 1, "skipped": 0}
    assert "--- just engine\nbegins\nends\n3 passed in 0.1s\n" in capfd.readouterr().out


def test_an_interruption_ends_what_runs_beside(ci: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C does not reach their process groups, and must not leave them behind."""
    recipe(ci, "engine", f"echo $$ > {ci.ROOT}/engine.pid; sleep 600\n")
    recipe(ci, "audit", f"touch {ci.ROOT}/audit.ran\n")
    run_recipe = ci.run_recipe
    started = ci.ROOT / "engine.pid"

    def interrupted(name: str, *rest: object, **named: object) -> object:
        if name != "faults":
            return run_recipe(name, *rest, **named)
        wait_for(lambda: started.exists() and started.read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr(ci, "run_recipe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ci.run_stage(ci.Stage("faults", 1, ("faults",), beside=("engine", "audit")))

    assert not psutil.pid_exists(int(started.read_text()))
    assert not (ci.ROOT / "audit.ran").exists()


def test_a_stage_without_files_is_skipped_by_name(ci: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    """What does not exist yet is said, and is no failure."""
    result = ci.run_stage(ci.Stage("faults", 12, ("faults",), ("tests/faults/**/test_*.py",)))
    assert result.skipped
    assert ci.report([result]) == 0
    assert "faults: skipped" in capfd.readouterr().out


def test_the_budgets_are_the_agreed_ones(ci: ModuleType) -> None:
    """
    At most so many minutes each, in this order; together they take less than 40 on a quiet machine.

    A budget has room for a machine whose host is busy.
    """
    budgets = [(stage.name, stage.minutes) for stage in ci.STAGES]
    assert budgets == [("build", 10), ("tests", 50), ("bench", 4)]


def test_every_test_folder_belongs_to_a_suite(ci: ModuleType) -> None:
    """A folder of tests outside the suites would never run in CI."""
    suites = {folder for folders in ci.SUITES.values() for folder in folders}
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert folders - suites == set()


@pytest.mark.parametrize(("commits", "plane"), [("412", "client"), ("413", "native"), ("", "client")])
def test_planes_take_turns_by_commit(
    ci: ModuleType, monkeypatch: pytest.MonkeyPatch, commits: str, plane: str
) -> None:
    """Both are tested all the time, one a run; a tree without history is tested on the client plane."""
    git = ci.ROOT / "git"
    git.write_text(f"#!/bin/sh\n[ -n '{commits}' ] && echo '{commits}'\n")
    git.chmod(0o755)
    monkeypatch.delenv(ci.PLANE, raising=False)
    assert ci.plane_of_commit() == plane


def test_a_plane_that_is_asked_for_is_tested(
    ci: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The environment decides, and recipes inherit it."""
    monkeypatch.setenv(ci.PLANE, "native")
    recipe(ci, "integration", f"echo told ${ci.PLANE}; echo '1 passed in 0.1s'")
    monkeypatch.setattr(ci, "STAGES", (ci.Stage("integration", 1, ("integration",)),))
    assert ci.run_stages([]) == 0
    assert "told native" in capfd.readouterr().out
