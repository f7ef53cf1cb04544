"""
Runs the trials of docs/move-consumers.md, and writes what came of them.

    just moving-consumers --trials 100 --seed 4711
    just moving-consumers --trials 100 --seed 4711 --mm2 100 --out docs/reports/DATE-moving-consumers.json
    just moving-consumers --trials 0 --open 100 --seed 4711
    just moving-consumers --trials 0 --busy 100 --seed 4711

A trial is one consumer that moves once, in both partitions of one topic of a one-way link.  Exit code 1: one of ours
skipped a record, or read one twice that it was not told of.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.clusters.rig import Side
from support.links.moving import busy
from support.links.moving.interrupted import BACK, RESET, InterruptedTrials
from support.links.moving.java import java_client
from support.links.moving.mm2 import Mm2Trials
from support.links.moving.ours import CONSUMERS, OurTrials

if TYPE_CHECKING:
    from support.links.moving.ours import Run

_ROOT = Path(__file__).resolve().parents[4]
# consumers of four, and of two, one-way flows
_OURS_A_ROUND = 4 * CONSUMERS
_MM2_A_ROUND = 2 * CONSUMERS
# as the fault tests do: by default the cleaner looks every 15 s
_BROKER = {"log.cleaner.backoff.ms": "500"}


def main(arguments: list[str]) -> int:
    """Run what was asked for; the exit code."""
    asked = _asked(arguments)
    began = time.monotonic()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],  # noqa: S607  whatever git there is
        cwd=_ROOT, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    document: dict[str, Any] = {
        "command": "just moving-consumers " + " ".join(arguments),
        "seed": asked.seed,
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "runs": [],
    }
    bad = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        java_client() as java,
        LocalCluster.start(ClusterSpec("east", properties=_BROKER)) as east,
        contextlib.closing(Side("west", properties=_BROKER)) as west,
    ):
        sides = {"east": east.client_properties, "west": west.direct}
        for plane, share in (("auto", 1 - asked.client), ("client", asked.client)):
            rounds = -(-int(asked.trials * share) // _OURS_A_ROUND)
            if rounds:
                tag = f"ours-{plane}"
                trials = OurTrials(
                    sides, Path(folder) / tag, seed=asked.seed, plane=plane, tag=tag, java=java
                )
                run = trials.run(rounds, back=rounds, on_round=_say)
                bad += _enter(document, asked.out, tag, run)
        for plane in ("native", "client") if asked.open else ():
            tag = f"open-{plane}"
            interrupted = InterruptedTrials(
                sides["east"], west, Path(folder) / tag, seed=asked.seed, plane=plane, tag=tag, java=java
            )
            rounds = -(-asked.open // (2 * _OURS_A_ROUND))
            bad += _enter(
                document,
                asked.out,
                f"{tag}, killed in open transactions",
                interrupted.run(rounds, on_round=_say),
            )
        for plane in ("native", "client") if asked.busy else ():
            tag = f"busy-{plane}"
            trials = busy.BusyTrials(
                sides, Path(folder) / tag, seed=asked.seed, plane=plane, tag=tag, java=java
            )
            run = trials.run(-(-asked.busy // (2 * _OURS_A_ROUND)), on_round=_say)
            bad += _enter(document, asked.out, f"{tag}, groups that commit all the time", run)
        for lag in asked.lags:
            rounds = -(-asked.mm2 // _MM2_A_ROUND)
            if rounds:
                tag = f"mm{lag}"
                (Path(folder) / tag).mkdir()
                theirs = Mm2Trials(sides, Path(folder) / tag, seed=asked.seed, tag=tag, lag=lag, java=java)
                _enter(document, asked.out, f"mm2, offset.lag.max={lag}", theirs.run(rounds, on_round=_say))
    _say(f"{time.monotonic() - began:.0f} s")
    return 1 if bad else 0


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="just moving-consumers")
    parser.add_argument(
        "--trials", type=int, default=100, help="moves of ours on one-way links; as many come back"
    )
    parser.add_argument("--client", type=float, default=0.25, help="share of them on the client plane")
    parser.add_argument(
        "--open", type=int, default=0, help="moves while the mirror is dead, killed in open transactions"
    )
    parser.add_argument(
        "--busy", type=int, default=0, help="moves of groups that commit all the time, and are moved"
    )
    parser.add_argument("--mm2", type=int, default=0, help="moves with MirrorMaker 2, for each --lags")
    parser.add_argument("--lags", type=int, nargs="*", default=[100, 0], help="its offset.lag.max")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--out", type=Path, help="write the counts as JSON, after each run")
    return parser.parse_args(arguments)


def _enter(document: dict[str, Any], out: Path | None, name: str, run: Run) -> int:
    """Keep what came of a run; how much of ours was wrong."""
    bad = 0
    _tell(f"{name}: {run.records} records, {run.aborted} aborted transactions, {run.kills} kills")
    for (by, kind), count in sorted(run.counts.items()):
        _tell(f"  {by}; {kind}: {asdict(count)}")
        if by == "library":
            # with equal names on both sides what is read twice was announced
            told = "both sides" in kind
            bad += count.skipped + count.beyond + count.unanswered + (0 if told else count.again)
        elif by.startswith(("java", "synced")):
            # what is read twice is only counted, but with the mirror back its answers are exact
            bad += count.skipped + (count.again if by in {BACK, RESET, busy.BACK} else 0)
    for line in run.wrong[:60]:
        _tell(f"  {line}")
    bad += sum(not line.startswith(("java", "mm2", "library", "synced")) for line in run.wrong)
    document["runs"].append(
        {
            "name": name, "records": run.records, "aborted": run.aborted, "kills": run.kills,
            "waited": run.unsure,
            "counts": [{"by": by, "kind": kind, **asdict(count)} for (by, kind), count in sorted(run.counts.items())],
        }
    )  # fmt: skip
    if out is not None:
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="ascii")
    return bad


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
