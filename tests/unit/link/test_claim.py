"""Whether the process behind a claim is dead (rule 10)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from eomirror.link.claim import is_dead, own_claim

if TYPE_CHECKING:
    from eomirror.records.control import Claim


def is_dead_where(claim: Claim, *, refused: bool) -> bool:
    """Whether it is called dead where a signal to it is refused, or where no process takes it."""

    def kill(pid: int, number: int) -> None:
        assert (pid, number) == (claim.pid, 0)
        raise PermissionError if refused else ProcessLookupError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.kill", kill)
        return is_dead(claim)


def test_our_own_process_is_alive() -> None:
    """The claim that we make names a living process."""
    assert not is_dead(own_claim("r", 1, 5.0, released=False, now_ms=0))


def test_a_killed_process_is_dead_before_and_after_it_is_reaped() -> None:
    """A zombie does not mirror."""
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    from eomirror.link.claim import _started

    claim = replace(
        own_claim("r", 1, 5.0, released=False, now_ms=0), pid=child.pid, started=_started(child.pid)
    )
    assert not is_dead(claim)

    child.kill()
    while _started(child.pid) is not None:
        pass
    assert is_dead(claim)
    child.wait()
    child.stdin.close()
    assert is_dead(claim)


def test_a_process_id_that_is_used_again_is_another_process() -> None:
    """The start time tells."""
    claim = own_claim("r", 1, 5.0, released=False, now_ms=0)

    assert is_dead(replace(claim, started="1"))


def test_a_process_that_the_system_hides_is_not_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 10: with hidepid, /proc does not show the living mirror of another user; its link is not taken from it."""
    claim = own_claim("r", 1, 5.0, released=False, now_ms=0)
    monkeypatch.setattr("eomirror.link.claim._started", lambda _: None)
    assert not is_dead_where(claim, refused=True)
    assert is_dead_where(claim, refused=False)


def test_another_machine_or_boot_is_never_called_dead() -> None:
    """A process elsewhere cannot be looked for: the claim is watched instead."""
    claim = own_claim("r", 1, 5.0, released=False, now_ms=0)

    assert not is_dead(replace(claim, pid=2**22 - 1, boot="elsewhere"))
    assert not is_dead(replace(claim, pid=2**22 - 1, boot=""))
