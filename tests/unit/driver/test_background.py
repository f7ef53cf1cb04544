"""What a link's background do about what they meet."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.clock import SYSTEM_CLOCK, Deadline
from eomirror.driver import background as module
from eomirror.driver.background import Background
from eomirror.errors import AuthorizationError, SupersededError, UnreachableError
from eomirror.topics.source_topics import SourceContact


class Link:
    """Remembers why it failed."""

    name = "west->east"

    def __init__(self, *, patient: bool = True) -> None:
        self.patient = patient
        self.errors: list[BaseException] = []

    def fail(self, error: BaseException, *, everything: bool = False) -> None:
        assert not everything
        self.errors.append(error)


def raising(error: Exception) -> Any:
    """An action that meets this."""

    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "patient", "fails"),
    [
        (SupersededError("taken"), True, True),
        (AuthorizationError("no right"), True, False),
        (AuthorizationError("no right"), False, True),
        (UnreachableError("away"), False, False),
        (ZeroDivisionError("a bug"), True, True),
    ],
)
def test_what_passes_fails_no_link(error: Exception, *, patient: bool, fails: bool) -> None:
    """Another owner and bugs do; a right does where no thread waits for it."""
    link = Link(patient=patient)
    Background(link, threading.Event()).guard("event", raising(error))

    assert link.errors == ([error] if fails else [])


def test_a_cluster_that_does_not_answer_is_told_until_it_does() -> None:
    """By the error of the last round of each kind of work."""
    background = Background(Link(), threading.Event())
    away, refused = UnreachableError("away", fix="look"), AuthorizationError("no right")
    background.guard("claim_not_renewed", raising(away))
    background.guard("refresh_failed", raising(refused))
    assert background.trouble is away
    background.guard("claim_not_renewed", lambda: None)
    assert background.trouble is refused
    background.guard("refresh_failed", lambda: None)
    assert background.trouble is None


def test_a_question_that_waits_counts_as_unanswered() -> None:
    """After some seconds; the time is that of the question, and an answer ends it."""
    contact = SourceContact()
    contact.asked(100.0)
    assert (contact.failing(104.0), contact.failing(106.0)) == (0.0, 6.0)
    contact.failed(100.0)
    contact.asked(131.0)
    assert contact.failing(132.0) == 32.0
    contact.answered(133.0)
    assert (contact.failing(190.0), contact.age(134.0)) == (0.0, 1.0)


def test_a_stop_that_closes_clients_is_no_failure() -> None:
    """The next user of one meets its error."""
    over, link = threading.Event(), Link()
    over.set()
    Background(link, over).guard("event", raising(ZeroDivisionError("closed")))

    assert link.errors == []


def test_what_a_helper_works_with_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is away for a moment does not end heartbeats or groups for as long as the mirror lives."""
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    answers = [UnreachableError("away"), UnreachableError("away"), "made"]

    def make() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    background = Background(Link(), threading.Event())
    assert background.obtained("event", make, until=threading.Event()) == "made"

    ended = SimpleNamespace(is_set=lambda: True)
    assert background.obtained("event", raising(UnreachableError("away")), until=ended) is None  # type: ignore[arg-type]  as much of it as is asked


def test_what_is_repeated_goes_on_after_a_failure_until_the_link_ends() -> None:
    """The first time at once, not after the pause."""
    over, rounds = threading.Event(), threading.Semaphore(0)
    background = Background(Link(), over)

    def action() -> None:
        rounds.release()
        raise UnreachableError("away")

    background.repeat("event", action, 600.0, "once")
    assert rounds.acquire(timeout=10)
    background.repeat("event", action, 0.01, "again")
    assert all(rounds.acquire(timeout=10) for _ in range(3))
    over.set()
    background.join(Deadline(10.0, SYSTEM_CLOCK))
    assert not any(thread.is_alive() for thread in background._threads)
