"""Blocking calls for many items at once."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from eomirror.kafka.parallel import in_thread, run_all


def test_every_item_is_called_and_waited_for() -> None:
    """More items than threads; all are done when it returns."""
    seen: list[int] = []
    run_all(seen.append, range(50), threads=4, name="test")
    assert sorted(seen) == list(range(50))


def test_the_first_failure_is_raised_and_the_rest_is_left_out() -> None:
    """What failed is what the caller hears; what had not begun does not begin."""
    begun: list[int] = []
    gate = threading.Lock()

    def call(item: int) -> None:
        with gate:
            begun.append(item)
        if item == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        run_all(call, range(1000), threads=1, name="test")
    assert begun == [0, 1, 2, 3]


def test_a_call_that_hangs_does_not_keep_the_process_alive() -> None:
    """The interpreter ends although a thread of it waits for a cluster that stands still."""
    program = (
        "import threading, time\n"
        "from eomirror.kafka.parallel import in_thread, run_all\n"
        "hang = lambda item: time.sleep(60)\n"
        "threading.Thread(target=run_all, args=(hang, [1]), kwargs={'threads': 1, 'name': 't'}, daemon=True).start()\n"
        "time.sleep(0.2)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=20).returncode == 0


def test_a_call_in_a_thread_gives_its_result_or_its_error_to_the_caller() -> None:
    """Whatever the error is: a caller that waits must not wait for ever."""

    def ends() -> None:
        raise SystemExit(3)

    assert in_thread(lambda: threading.current_thread().name, name="beside").result(10) == "beside"
    with pytest.raises(SystemExit):
        in_thread(ends, name="beside").result(10)
