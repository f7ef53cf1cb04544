"""
Breaks things for hours: runs all fault tests over and over, each time with another seed, and writes a report.

    python scripts/faults_long.py --hours 8               everything, 20,000 records a test
    python scripts/faults_long.py --hours 1 --faults F3,F5  only these faults
    python scripts/faults_long.py --plane native ...      the native plane; the client plane by default
    python scripts/faults_long.py --rounds 1 --files test_paused,test_clocks   these files once, in this order
    python scripts/faults_long.py --seed N --skip 7 ...   goes on with the eighth file that the run of this seed has
    python scripts/faults_long.py --report FILE.jsonl     the report of what was measured before
    python scripts/faults_long.py --ledger FILE.jsonl ...  adds to what was measured before

Every test adds its line to docs/reports/DATE-faults-PLANE.jsonl as it ends, and docs/reports/DATE-faults-PLANE.md is
written anew after each file of tests, so that a run that is broken off still reports.  Runs add up: each begins with a
line of its own, which names command, plane, commit and machine, and the report is about all of them.  Order and seeds
of all files follow from --seed, so a run that was broken off goes on with --skip.  A failed test does not end a run;
its output is kept in target/faults-long, and its line has the seed that repeats it.  Standard library only.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import random
import re
import secrets
import shlex
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "docs" / "reports"
TESTS = ROOT / "tests" / "faults"
LOGS = ROOT / "target" / "faults-long"
TABLE = ROOT / "docs" / "faults.md"

# a file of tests that takes longer hangs; its tests have timeouts of their own
_MOST_SECONDS = 3 * 3600
_ROW = re.compile(r"^\| (?P<id>F\d+) \| (?P<title>[^|]+?) \|")
_SEEDS_SHOWN = 6
# of pytest: no test of a file injects what was asked for
_NO_TESTS = 5
# the key of a line that begins a run
_RUN = "command"
# what moves the bytes of the mirrors (tests/support/links/plane.py)
_PLANE = "EOMIRROR_TEST_PLANE"
PLANES = ("client", "native")
_COUNTS = ("missing", "duplicate", "reordered", "altered", "foreign", "retracted")


@dataclass(slots=True)
class Row:
    """All runs of the tests of one fault."""

    runs: int = 0
    failed: int = 0
    injections: int = 0
    records: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    recoveries: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def enter(self, line: dict[str, Any]) -> None:
        """Count one run of one test."""
        self.runs += 1
        self.failed += line["outcome"] not in {"passed", "xfailed"}
        self.injections += line["injections"]
        self.records += line["records"]
        for name in _COUNTS:
            self.counts[name] += line[name]
        self.recoveries += line["recoveries"]
        if line["seed"] not in self.seeds:
            self.seeds.append(line["seed"])


def rows_of(lines: list[dict[str, Any]]) -> dict[str, Row]:
    """By fault; a test that injects two faults counts for both, one that was skipped for none."""
    rows: dict[str, Row] = defaultdict(Row)
    for line in lines:
        if line["outcome"] != "skipped":
            for name in line["faults"]:
                rows[name].enter(line)
    return dict(sorted(rows.items(), key=lambda item: int(item[0][1:])))


def titles() -> dict[str, str]:
    """What each fault is, from the table in docs/faults.md."""
    found = (_ROW.match(line) for line in TABLE.read_text("utf-8").splitlines())
    return {row["id"]: row["title"] for row in found if row is not None}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What was measured; a last line that was cut off is left out."""
    lines = []
    for text in path.read_text("utf-8").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:
            print(f"left out, not JSON: {text[:80]}", file=sys.stderr)
    return lines


def run_line(command: str, plane: str) -> dict[str, Any]:
    """What a run begins with: who could repeat it, and where."""
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    at = dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
    return {_RUN: command, "plane": plane, "commit": commit or "no commit", "machine": machine, "at": at}


def report(found_lines: list[dict[str, Any]], *, date: str) -> str:
    """The report's text, on all runs whose lines these are."""
    runs = [line for line in found_lines if _RUN in line]
    lines = [line for line in found_lines if _RUN not in line]
    minutes = sum(line["seconds"] for line in lines) / 60
    rows, names = rows_of(lines), titles()
    # a run that names no plane is older than the second one
    planes = sorted({run.get("plane", PLANES[0]) for run in runs})
    injections = sum(line["injections"] for line in lines)
    records = sum(line["records"] for line in lines)
    totals = {name: sum(line[name] for line in lines) for name in _COUNTS}
    failed = [line for line in lines if line["outcome"] not in {"passed", "xfailed", "skipped"}]
    found = f"{records:,} records compared: {', '.join(f'{count} {name}' for name, count in totals.items())}"
    heads = [
        "fault",
        "what",
        "runs",
        "failed",
        "injections",
        "records",
        "lost",
        "duplicate",
        "disorder",
        "altered",
        "foreign",
        "retracted",
    ]
    heads += ["recovery p50 s", "max s", "seeds"]
    text = [
        f"# faults, {date}",
        "",
        *(f"- `{run[_RUN]}` at {run['commit']}, {run['at']}; {run['machine']}" for run in runs),
        "",
        f"{minutes:.0f} minutes of tests. Plane: {', '.join(planes)}.",
        "",
        f"**{len(lines)} runs of tests, {len(failed)} failed; {injections:,} injections; {found}.**",
        "",
        "Records are committed records of the source whose copies were read again and compared; retracted are those",
        "that a concurrent reader saw and that were not there in the end. A fault that a failed test names is counted",
        "with what that test had compared until then. Recovery is the time from the end of a fault",
        "until a reader had seen all that was committed by then (F12 for long: anything), where a test measures it.",
        "",
        f"| {' | '.join(heads)} |",
        f"|---|---|{'---:|' * 12}---|",
    ]
    for name, row in rows.items():
        counts = " | ".join(str(row.counts[kind]) for kind in _COUNTS)
        middle = f"{statistics.median(row.recoveries):.1f}" if row.recoveries else ""
        longest = f"{max(row.recoveries):.1f}" if row.recoveries else ""
        seeds = ", ".join(map(str, row.seeds[:_SEEDS_SHOWN]))
        if len(row.seeds) > _SEEDS_SHOWN:
            seeds += f" and {len(row.seeds) - _SEEDS_SHOWN} more"
        text.append(
            f"| {name} | {names.get(name, '')} | {row.runs} | {row.failed} | {row.injections:,} | {row.records:,} "
            f"| {counts} | {middle} | {longest} | {seeds} |"
        )
    if failed:
        text += ["", "## What failed", ""]
        text += [f"- `EOMIRROR_SEED={line['seed']} just faults-replay '{line['test']}'`" for line in failed]
    expected = sorted({line["test"] for line in lines if line["outcome"] == "xfailed"})
    if expected:
        text += ["", "## Known defects, each with its test", "", *(f"- `{name}`" for name in expected)]
    skipped = sorted({line["test"] for line in lines if line["outcome"] == "skipped"})
    if skipped:
        text += ["", "## Skipped on this machine", "", *(f"- `{name}`" for name in skipped)]
    return "\n".join(text) + "\n"


def schedule(
    groups: list[list[Path]], *, seed: int, rounds: int, shuffled: bool, skip: int = 0
) -> Iterator[tuple[int, list[Path], int]]:
    """
    Which files of tests run when, and with which seed.

    Args:
        groups: Of one round; the files of a group share a process, its brokers and its Spark context.
        seed: Everything follows from it.
        rounds: How many; 0 for ever.
        shuffled: Each round in another order.
        skip: So many groups have run already.
    """
    rng = random.Random(seed)  # noqa: S311  seeded on purpose
    number = 0
    while not rounds or number < rounds * len(groups):
        for group in rng.sample(groups, len(groups)) if shuffled else groups:
            number += 1
            drawn = rng.getrandbits(32)
            if number > skip:
                yield number, group, drawn


def run_files(paths: list[Path], *, seed: int, ledger: Path, options: argparse.Namespace, number: int) -> int:
    """All fault tests of some files, slow ones included; pytest's exit code."""
    environment = {
        **os.environ,
        "EOMIRROR_SEED": str(seed),
        "EOMIRROR_FAULT_LEDGER": str(ledger),
        "EOMIRROR_FAULT_RECORDS": str(options.records),
        "EOMIRROR_FAULT_RATE": str(options.rate),
        "EOMIRROR_FAULT_SECONDS": str(options.seconds),
        "EOMIRROR_FAULT_ABORTED": str(options.aborted),
        "EOMIRROR_REPEATS": str(options.repeats),
        "EOMIRROR_FAULT_ONLY": options.faults,
        _PLANE: options.plane,
    }
    chosen = ["-k", options.tests] if options.tests else []
    names = [str(path.relative_to(ROOT)) for path in paths]
    command = [sys.executable, "-m", "pytest", "-q", *chosen, *names]
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{number:04}-{paths[0].stem}-{seed}.log"
    with log.open("wb") as output:
        try:
            code = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_MOST_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    if code in {0, _NO_TESTS}:
        log.unlink()
    return code


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="just faults-long", description=(__doc__ or "").strip().splitlines()[0]
    )
    parser.add_argument("--hours", type=float, default=1.0, help="no file of tests begins later [1]")
    parser.add_argument("--records", type=int, default=20_000, help="at least so many in a test [20000]")
    parser.add_argument("--rate", type=float, default=500.0, help="records a second, where it is free [500]")
    parser.add_argument("--repeats", type=int, default=5, help="of each seeded fault in a test [5]")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long links stay cut [60]")
    parser.add_argument("--aborted", type=int, default=1_800_000, help="aborted records in a row [1800000]")
    parser.add_argument(
        "--plane", choices=PLANES, default=os.environ.get(_PLANE, PLANES[0]), help="of the mirrors [client]"
    )
    parser.add_argument("--faults", default="", help="only these, as in F3,F5")
    parser.add_argument(
        "--files", default="", help="only these, in this order, as in test_paused,test_clocks"
    )
    parser.add_argument("--tests", default="", help="only these, as pytest's -k")
    parser.add_argument(
        "--together",
        action="store_true",
        help="all of --files in one process: quicker, but none survives a crash",
    )
    parser.add_argument("--rounds", type=int, default=0, help="end after so many rounds of all files [0: no]")
    parser.add_argument("--skip", type=int, default=0, help="so many files have run already [0]")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbits(32), help="repeats the order and all seeds"
    )
    parser.add_argument(
        "--ledger", type=Path, help="file that takes the lines [docs/reports/DATE-faults-PLANE.jsonl]"
    )
    parser.add_argument("--report", type=Path, help="only write the report of this file")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run until the time is over; 1 if anything failed."""
    options = parse(arguments)
    REPORTS.mkdir(parents=True, exist_ok=True)
    date = f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}"
    ledger = (options.report or options.ledger or REPORTS / f"{date}-faults-{options.plane}.jsonl").resolve()
    seeded = [] if "--seed" in arguments else ["--seed", str(options.seed)]
    command = f"just faults-long {shlex.join([*arguments, *seeded])}"
    began = time.monotonic()

    def write() -> None:
        ledger.with_suffix(".md").write_text(report(read_lines(ledger), date=date), encoding="utf-8")

    if options.report:
        write()
        return 0
    files = [TESTS / f"{name}.py" for name in filter(None, options.files.split(","))]
    if missing := [path.name for path in files if not path.is_file()]:
        print(f"no such files in {TESTS}: {', '.join(missing)}", file=sys.stderr)
        return 2
    single = [[path] for path in files or sorted(TESTS.glob("test_*.py"))]
    plan = schedule(
        [files] if options.together and files else single,
        seed=options.seed,
        rounds=options.rounds,
        shuffled=not files,
        skip=options.skip,
    )
    worst = 0
    print(f"seed {options.seed}; lines go to {ledger}", flush=True)
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run_line(command, options.plane), separators=(",", ":")) + "\n")
    for number, paths, seed in plan:
        if time.monotonic() - began > options.hours * 3600:
            break
        code = run_files(paths, seed=seed, ledger=ledger, options=options, number=number)
        worst = worst or (code if code != _NO_TESTS else 0)
        write()
        spent = (time.monotonic() - began) / 60
        names = ", ".join(path.stem for path in paths)
        print(f"{spent:6.1f} min  {number}: {names}  seed {seed}  exit {code}", flush=True)
    write()
    return int(worst != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
