"""CPU and memory of a real process tree."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.measure import TreeMeter

# a root whose child burns CPU and ends; then both the root and a second child stay for a while
_TREE = """
import subprocess, sys, time
burn = "import time\\nwhile time.process_time() < 0.6: pass"
stay = "import time; held = bytearray(40_000_000); time.sleep(60)"
print("ready", flush=True)
sys.stdin.readline()
subprocess.run([sys.executable, "-c", burn], check=True)
with subprocess.Popen([sys.executable, "-c", stay]) as child:
    time.sleep(1.5)
    print("done", flush=True)
    sys.stdin.readline()
    child.kill()
"""


def test_children_that_came_and_went_are_counted() -> None:
    """CPU of a child that ended is not lost, and memory is that of the whole tree, by kind."""
    with subprocess.Popen(
        [sys.executable, "-c", _TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as root:
        assert root.stdin is not None
        assert root.stdout is not None
        assert root.stdout.readline() == "ready\n"
        meter = TreeMeter(root.pid)
        meter.start()
        begin = time.monotonic()
        root.stdin.write("\n")
        root.stdin.flush()
        assert root.stdout.readline() == "done\n"
        end = time.monotonic()
        meter.stop()
        root.stdin.write("\n")
        root.stdin.flush()
    assert 0.55 < meter.cpu_between(begin, end) < 2.0
    memory = meter.memory()
    assert memory.jvm == 0
    assert memory.driver > 1_000_000
    assert memory.workers > 40_000_000
    assert memory.total >= memory.workers
