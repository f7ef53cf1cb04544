"""
A driver program with fake lanes, to be killed, signalled and submitted.

Usage: drive.py NOTES_FOLDER [own|submitted|early] [MASTER]; prints ``ready JVM_PID`` when both lanes run (``early``:
before Spark does), and the exit code of the run at its end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import fake_lanes
from engine import Run, notes, settings, wait_for, with_passwords, worker_settings


def say(line: str) -> None:
    """A line for the test that started us; os.write, because a signal handler says something too."""
    os.write(1, f"{line}\n".encode())


def main(folder: Path, kind: str, master: str) -> int:
    """Run until a signal."""
    extra = {"spark__master": master} if master else {}
    found = settings(folder, **extra)
    if kind == "submitted":
        found = {**worker_settings(folder), "spark.ui.enabled": "false"}
    run = Run(fake_lanes.steady, spark_settings=found, clusters=with_passwords(), local_lanes=kind == "early")
    signal.signal(signal.SIGTERM, lambda *_: run.driver.request_stop())
    signal.signal(signal.SIGINT, lambda *_: run.driver.request_stop())
    # a reload, as far as this test is concerned: it must reach neither the JVM nor the lanes
    signal.signal(signal.SIGHUP, lambda *_: say("hup"))

    def tell() -> None:
        from pyspark import SparkContext

        wait_for(lambda: len(notes(folder, "begin")) == 2, 120)
        process = None if kind == "early" else SparkContext._gateway.proc
        say(f"ready {process.pid if process else 0}")

    threading.Thread(target=tell, daemon=True).start()
    report = run.driver.run(None)
    say(f"exit {report.exit_code} {report.aborted}")
    return int(report.exit_code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *(sys.argv[2:] + ["own", ""][len(sys.argv) - 2 :])))
