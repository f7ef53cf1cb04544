"""Processes that send and read for a bench."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

_BENCH = """
import multiprocessing, os, time
from bench.stamped import end_with_bench

def child(ready):
    end_with_bench()
    ready.set()
    time.sleep(120)

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    process = spawn.Process(target=child, args=(ready,), daemon=True)
    process.start()
    ready.wait()
    print(process.pid, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_nothing_goes_on_for_a_bench_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed_bench.py"
    script.write_text(_BENCH, encoding="utf-8")
    root = Path(__file__).resolve().parents[3]
    bench = subprocess.run(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    child = Path("/proc", bench.stdout.decode().strip())
    until = time.monotonic() + 30
    while child.exists():
        assert time.monotonic() < until, "it goes on"
        time.sleep(0.05)
