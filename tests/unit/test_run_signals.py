"""`eomirror run` and a signal in its first moments, in a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import eomirror

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIG = b"""
clusters:
  west: {bootstrap.servers: "127.0.0.1:1"}
  east: {bootstrap.servers: "127.0.0.1:1"}
links:
  - {source: west, target: east, topics: [orders]}
"""
# far more than anything here takes: it only ends a test that would never end
_AT_MOST = 240.0


class _Slow:
    """
    The command, with a configuration that comes when the test gives it.

    It is read from a pipe, so that the process stands still in front of it for as long as the test likes.
    """

    def __init__(self, folder: Path) -> None:
        self._pipe = folder / "mirror.yaml"
        os.mkfifo(self._pipe)
        python = str(Path(eomirror.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "eomirror", "run", str(self._pipe), "-o", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": python},
        )

    def await_handler(self, number: int) -> None:
        """Wait until the process catches the signal (proc(5): SigCgt)."""
        end = time.monotonic() + _AT_MOST
        while time.monotonic() < end and self.process.poll() is None:
            lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
            caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
            if caught >> (number - 1) & 1:
                return
            time.sleep(0.01)
        raise AssertionError(f"signal {number} is not caught while the configuration is awaited")

    def give_config(self) -> None:
        """Write the configuration, once the process has come to read it."""
        end = time.monotonic() + _AT_MOST
        while time.monotonic() < end and self.process.poll() is None:
            try:
                pipe = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                # no reader yet
                time.sleep(0.01)
                continue
            os.write(pipe, _CONFIG)
            os.close(pipe)
            return

    def close(self) -> None:
        """End it, if it has not ended."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[_Slow]:
    """A command that waits for its configuration."""
    made = _Slow(tmp_path)
    yield made
    made.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells which signals are caught")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_before_the_mirror_exists_ends_the_run_as_any_other(slow: _Slow, number: int) -> None:
    """The handlers are there before the configuration is read: exit 0, and no cluster was asked for anything."""
    # Python itself catches SIGINT from its start on, and then raises: SIGTERM tells that ours are in place
    slow.await_handler(signal.SIGTERM)
    slow.process.send_signal(number)
    slow.give_config()
    told, errors = slow.process.communicate(timeout=_AT_MOST)

    assert slow.process.returncode == 0, errors.decode()
    report = json.loads(told)
    assert [link["outcome"] for link in report["links"]] == ["stopped"]
