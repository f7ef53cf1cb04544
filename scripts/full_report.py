"""
Runs everything on both planes, and natively on a target of Kafka 3.9, slow tests included, without budgets.

It writes a dated report.

    python scripts/full_report.py             all suites, Rust's tests, and the small benchmark
    python scripts/full_report.py faults      only these suites
    EOMIRROR_TEST_PLANE=native python scripts/full_report.py    only this plane

The report goes to docs/reports/DATE-full.md, or to DATE-full-PLANE.md where one plane was asked for: the machine, the
commit, the seed that repeats the run, and a row per test file, plane by plane.  It is written after each suite, so that
a run that is ended early leaves what it had.  An existing report of the day is replaced.  The fault tests also fill
DATE-full-faults-PLANE.jsonl, and the table by fault of `just faults-long` is made of it.  Standard library only.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import faults_long
from ci import PLANE, PLANES, ROOT, SUITES

REPORTS = ROOT / "docs" / "reports"
# what suites are run on: a plane, and a target of another release than the newest (tests/support/links/plane.py)
_OLDER = "native on 3.9"
_RUNS = (*PLANES, _OLDER)
_TARGET = "EOMIRROR_TEST_TARGET_KAFKA"
# the other suites move records; these know no plane
_PLANELESS = ("unit", "model")
# CI has little time for faults and schedules that are drawn anew with each repeat
_SIZES = {
    "EOMIRROR_REPEATS": "20",
    "EOMIRROR_SIM_SCHEDULES": "100000",
    "EOMIRROR_FAULT_RECORDS": "20000",
    "EOMIRROR_FAULT_RATE": "500",
}
_RUST = ["cargo", "test", "--workspace", "--exclude", "eomirror-py", "--locked"]
_BENCH = [sys.executable, "-m", "bench", "--small"]


@dataclass(slots=True)
class Row:
    """
    One line of the report.

    Attributes:
        name: A test file, or a command.
        passed: Tests that passed.
        failed: Tests that failed, errors included.
        skipped: Tests that were skipped.
        seconds: What they took together.
    """

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


def run_suite(suite: str, run: str = "") -> list[Row]:
    """Run pytest on a suite, on one of `_RUNS` if it knows planes; a row for each of its files."""
    folders = [f"tests/{name}" for name in SUITES[suite] if any((ROOT / "tests" / name).glob("**/test_*.py"))]
    return run_pytest(folders, run) if folders else []


def chosen(run: str) -> dict[str, str]:
    """Variables that choose plane and target of a run; none for tests that know no plane."""
    plane, _, target = run.partition(" on ")
    return ({PLANE: plane} if plane else {}) | ({_TARGET: target} if target else {})


def run_pytest(names: list[str], run: str = "", ledger: Path | None = None) -> list[Row]:
    """Run pytest on files or folders; a row for each file, faults told to the ledger."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "junit.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            *names,
            f"--junitxml={found}",
            "-o",
            "junit_family=xunit1",
        ]
        environment = os.environ | chosen(run)
        if ledger is not None:
            environment["EOMIRROR_FAULT_LEDGER"] = str(ledger)
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        rows = read_junit(found) if found.exists() else []
    if code and not any(row.failed for row in rows):
        rows.append(Row(f"{' '.join(names)}: pytest ended with {code}", failed=1))
    return rows


def run_faults(run: str, *, command: str, date: str) -> list[Row]:
    """Run the fault tests, file by file: none takes another with it; and make the table by fault of what they told."""
    ledger = REPORTS / f"{date}-full-faults-{run.replace(' ', '-')}.jsonl"
    head = faults_long.run_line(command, run)
    ledger.write_text(json.dumps(head, separators=(",", ":")) + "\n", encoding="utf-8")
    rows = []
    for path in sorted((ROOT / "tests" / "faults").glob("test_*.py")):
        rows += run_pytest([str(path.relative_to(ROOT))], run, ledger)
        table = faults_long.report(faults_long.read_lines(ledger), date=date)
        ledger.with_suffix(".md").write_text(table, encoding="utf-8")
    return rows


def read_junit(path: Path) -> list[Row]:
    """Rows of a JUnit file, by test file; a closed format that only pytest writes here."""
    rows: dict[str, Row] = {}
    for case in ET.parse(path).iter("testcase"):  # noqa: S314  our own pytest wrote it a moment ago
        row = rows.setdefault(case.get("file", "?"), Row(case.get("file", "?")))
        row.seconds += float(case.get("time", "0"))
        if case.find("failure") is not None or case.find("error") is not None:
            row.failed += 1
        elif case.find("skipped") is not None:
            row.skipped += 1
        else:
            row.passed += 1
    return sorted(rows.values(), key=lambda row: row.name)


def run_command(name: str, command: list[str]) -> Row:
    """Run something that passes or fails as a whole."""
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return Row(name, passed=int(code == 0), failed=int(code != 0), seconds=time.monotonic() - began)


def report(sections: dict[str, list[Row]], *, seed: str, minutes: float, command: str) -> str:
    """The report's text."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    sizes = " ".join(f"{name}={os.environ.get(name, size)}" for name, size in _SIZES.items())
    rows = [row for section in sections.values() for row in section]
    total = (
        sum(row.passed for row in rows),
        sum(row.failed for row in rows),
        sum(row.skipped for row in rows),
    )
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    lines = [
        f"# full run, {dt.datetime.now(tz=dt.UTC):%Y-%m-%d}",
        "",
        f"`{command}` at {commit or 'no commit'}; {machine}; {minutes:.0f} minutes.",
        "",
        f"Seed {seed}: `{sizes} EOMIRROR_SEED={seed} {command}` repeats it.",
        "",
        f"**{total[0]} passed, {total[1]} failed, {total[2]} skipped.**",
    ]
    for name, section in sections.items():
        lines += [
            "",
            f"## {name}",
            "",
            "| file | passed | failed | skipped | s |",
            "|---|---:|---:|---:|---:|",
        ]
        lines += [
            f"| `{row.name}` | {row.passed} | {row.failed} | {row.skipped} | {row.seconds:.0f} |"
            for row in section
        ]
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> int:
    """Run the suites of these names, or everything."""
    unknown = set(names) - set(SUITES)
    if unknown:
        print(f"{__doc__}\nsuites: {', '.join(SUITES)}", file=sys.stderr)
        return 2
    seed = os.environ.setdefault("EOMIRROR_SEED", str(secrets.randbits(32)))
    for name, size in _SIZES.items():
        os.environ.setdefault(name, size)
    began = time.monotonic()
    sections: dict[str, list[Row]] = {}
    date = f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}"
    only = os.environ.get(PLANE, "")
    path = REPORTS / (f"{date}-full-{only}.md" if only else f"{date}-full.md")
    command = " ".join([*([f"{PLANE}={only}"] if only else []), "just full", *names])

    def done(name: str, rows: list[Row]) -> None:
        sections[name] = rows
        minutes = (time.monotonic() - began) / 60
        path.write_text(report(sections, seed=seed, minutes=minutes, command=command), encoding="utf-8")

    REPORTS.mkdir(parents=True, exist_ok=True)
    runs = (only,) if only else _RUNS
    for suite in names or SUITES:
        if suite in _PLANELESS:
            done(suite, run_suite(suite))
            continue
        for run in runs:
            faulty = suite == "faults"
            rows = run_faults(run, command=command, date=date) if faulty else run_suite(suite, run)
            done(f"{suite}, plane {run}", rows)
    if not names:
        done("Rust", [run_command("cargo test", _RUST)])
        done("bench", [run_command("python -m bench --small", _BENCH)])
    print(f"written: {path.relative_to(ROOT)}")
    return int(any(row.failed for section in sections.values() for row in section))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
