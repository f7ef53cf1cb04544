"""The cost of a scrape: the clock of another process, and the share of a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.scrape import ScrapeCost, cpu_seconds, scrape_markdown


def test_the_clock_of_a_process_counts_threads_that_have_ended() -> None:
    """A thread that serves one request is gone when the clock is read."""
    program = (
        "import threading, time\n"
        "def burn():\n"
        "    while time.thread_time() < 0.2: pass\n"
        "thread = threading.Thread(target=burn); thread.start(); thread.join()\n"
        "print(time.process_time(), flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = float(process.stdout.readline())
        counted = cpu_seconds(process.pid)
        process.communicate("\n")
    assert 0.2 < told <= counted < told + 0.1
    before = time.process_time()
    assert before <= cpu_seconds(os.getpid()) <= time.process_time()


def test_the_share_is_that_of_one_scrape_in_five_seconds() -> None:
    """10 ms of 5 s."""
    found = ScrapeCost(
        partitions=1_000, topics=100, plane="native", scrapes=120, cpu_ms=10.0, most_cpu_ms=20.0, answer_ms=12.0,
        text_bytes=100_000, sent_bytes=9_000, driver_percent=5.0,
    )  # fmt: skip
    assert found.percent == 0.2
    assert found.as_dict()["percent_every_5_s"] == 0.2
    assert "| one scrape every 5 s, of one core | 0.20 % |" in scrape_markdown(found)
