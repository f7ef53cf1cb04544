"""Calls that may end the process end another one (issue 6, point 3: groups are followed while coordinators move)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn

import psutil
import pytest
import structlog

from eomirror.errors import AuthorizationError
from eomirror.kafka import isolated_process
from eomirror.kafka.isolated_process import DiedError, IsolatedObject
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


class Fragile:
    """What is asked; it is imported and made in the other process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls = 0

    def where(self) -> tuple[str, int, int]:
        """Its name, the process, and how many times it was asked."""
        self._calls += 1
        return self._name, os.getpid(), self._calls

    def die(self, how: int) -> None:
        """End the process as librdkafka does."""
        os.kill(os.getpid(), how)
        time.sleep(60.0)

    def complain_and_die(self) -> None:
        """As an assertion of C does."""
        os.write(2, b"before\nrdkafka_queue.h:1052: Assertion failed.\n")
        os.abort()

    def refuse(self) -> NoReturn:
        """Raise what users meet."""
        raise AuthorizationError("no right to read group g", fix="grant it")

    def raise_what_cannot_travel(self) -> NoReturn:
        """Raise something that cannot be pickled."""
        raise OddError(lambda: None)

    def give_what_cannot_travel(self) -> object:
        """Give something that cannot be pickled."""
        return lambda: None

    def echo(self, value: object, *, after: float = 0.0) -> object:
        """Give it back, after so many seconds."""
        time.sleep(after)
        return value

    def tell(self) -> None:
        """Log something."""
        structlog.get_logger("x").bind(cluster="east").info("seen", count=3)


class OddError(Exception):
    """Holds what cannot be pickled."""


@pytest.fixture
def fragile() -> Iterator[IsolatedObject]:
    made = IsolatedObject(Fragile, "one")
    yield made
    made.close()


def test_it_lives_in_another_process_and_keeps_what_it_knows(fragile: IsolatedObject) -> None:
    """The object is made once, elsewhere, and is asked again and again."""
    name, process, calls = fragile.call("where")

    assert (name, calls) == ("one", 1)
    assert process != os.getpid()
    assert fragile.call("where") == ("one", process, 2)


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_process_that_dies_is_told_and_the_next_call_has_a_new_one(
    fragile: IsolatedObject, how: signal.Signals
) -> None:
    """The caller that waits gets its end as an error; no other caller is hurt, and the object is made anew."""
    _, before, _ = fragile.call("where")

    with pytest.raises(DiedError, match=f"signal {how.name}"):
        fragile.call("die", how)

    name, after, calls = fragile.call("where")
    assert (name, calls) == ("one", 1)
    assert after != before


def test_the_last_words_are_told(fragile: IsolatedObject) -> None:
    """What the process wrote to stderr in the end says why it died."""
    with pytest.raises(DiedError, match=r"signal SIGABRT: rdkafka_queue\.h:1052: Assertion failed\."):
        fragile.call("complain_and_die")


def test_everybody_that_waits_hears_of_the_death(fragile: IsolatedObject) -> None:
    """Calls of other threads end as well, rather than wait for ever."""
    ended: list[str] = []

    def wait() -> None:
        try:
            fragile.call("echo", 1, after=60.0)
        except DiedError as death:
            ended.append(str(death))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    fragile.call("where")
    for thread in threads:
        thread.start()
    wait_for(lambda: len(isolated_process._CHILDREN[-1]._waiting) == len(threads), seconds=30.0)
    with pytest.raises(DiedError):
        fragile.call("die", signal.SIGSEGV)
    for thread in threads:
        thread.join(30.0)

    assert ended == ["signal SIGSEGV"] * 3


def test_a_slow_call_holds_up_no_other(fragile: IsolatedObject) -> None:
    """Links share the process, and one slow cluster is not theirs."""

    def wait() -> None:
        with pytest.raises(DiedError):
            fragile.call("echo", 1, after=600.0)

    slow = threading.Thread(target=wait)
    fragile.call("where")
    slow.start()
    wait_for(lambda: bool(isolated_process._CHILDREN[-1]._waiting), seconds=30.0)

    assert fragile.call("echo", 2) == 2

    with pytest.raises(DiedError):
        fragile.call("die", signal.SIGKILL)
    slow.join(30.0)
    assert not slow.is_alive()


def test_errors_arrive_as_they_were_raised(fragile: IsolatedObject) -> None:
    """A user's error keeps its type, its text and its fix."""
    with pytest.raises(AuthorizationError) as raised:
        fragile.call("refuse")

    assert raised.value.fix == "grant it"


def test_what_cannot_travel_is_an_error_and_not_silence(fragile: IsolatedObject) -> None:
    """An error, an answer or an argument that cannot be pickled ends the call, and only the call."""
    with pytest.raises(RuntimeError, match="OddError"):
        fragile.call("raise_what_cannot_travel")
    with pytest.raises(AttributeError, match="pickle"):
        fragile.call("give_what_cannot_travel")
    with pytest.raises(Exception, match="pickle"):
        fragile.call("echo", lambda: None)

    assert fragile.call("echo", 5) == 5


def test_what_it_logs_is_logged_here(fragile: IsolatedObject) -> None:
    """One process writes the log, so that lines do not mix and levels are those of the mirror."""
    with structlog.testing.capture_logs() as lines:
        fragile.call("tell")

    assert {"event": "seen", "count": 3, "cluster": "east", "log_level": "info"} in lines


def test_one_process_serves_all_and_ends_with_the_last() -> None:
    """Ten links do not start ten interpreters, and nothing stays behind."""
    one, two = IsolatedObject(Fragile, "one"), IsolatedObject(Fragile, "two")
    (_, process, _), (name, other, _) = one.call("where"), two.call("where")

    one.close()

    assert (name, other) == ("two", process)
    assert two.call("where")[1] == process
    two.close()
    two.close()
    assert not psutil.pid_exists(process)


def test_it_ends_when_the_program_is_killed() -> None:
    """Kill -9 of the program leaves no process behind that could still write to a cluster."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from test_isolated_process import Fragile; "
        "from eomirror.kafka.isolated_process import IsolatedObject; one = IsolatedObject(Fragile, 'x'); "
        "print(one.call('where')[1], flush=True); one.call('echo', 1, after=600.0)"
    )
    started = subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    with started.stdout as told:
        process = psutil.Process(int(told.readline()))
        started.kill()
        started.wait()

        wait_for(lambda: not process.is_running(), seconds=30.0)


def test_a_forked_program_has_a_process_of_its_own(fragile: IsolatedObject) -> None:
    """A fork knows its parent's process, but neither ends it nor talks in between."""
    _, parents, _ = fragile.call("where")
    reading, writing = os.pipe()
    forked = os.fork()
    if not forked:
        try:
            os.write(writing, str(fragile.call("where")[1]).encode())
            fragile.close()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        theirs = int(told.read())
    os.waitpid(forked, 0)

    assert theirs != parents
    assert fragile.call("where")[:2] == ("one", parents)
