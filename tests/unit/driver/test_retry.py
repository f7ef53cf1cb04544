"""The table of what follows an attempt, row by row."""

from __future__ import annotations

import pytest

from eomirror.driver.retry import AFTER, MAX_RAISES, Backoff, NextAction, epoch_seconds, next_action
from eomirror.lane.spec import Ending
from eomirror.spark.jobs import ending_of_job

ROWS = [
    (Ending.EPOCH, NextAction.NEXT_EPOCH, NextAction.END),
    (Ending.STOPPED, NextAction.RETRY, NextAction.END),
    (Ending.REBUILD, NextAction.RETRY, NextAction.END),
    (Ending.UNAUTHORIZED, NextAction.RETRY, NextAction.END),
    (Ending.SUPERSEDED, NextAction.CHECK_OWNER, NextAction.END),
    (Ending.FAILED, NextAction.FAIL_LINK, NextAction.FAIL_LINK),
    (Ending.WORKER_DIED, NextAction.RETRY, NextAction.END),
    (Ending.TASK_RAISED, NextAction.RETRY, NextAction.END),
    (Ending.CANCELLED, NextAction.RETRY, NextAction.END),
    (Ending.ENGINE_GONE, NextAction.FAIL_MIRROR, NextAction.END),
]


@pytest.mark.parametrize(("ended", "running", "stopping"), ROWS)
def test_each_ending_has_its_consequence(ended: Ending, running: NextAction, stopping: NextAction) -> None:
    """One row of the table, while the mirror runs and while it stops."""
    assert next_action(ended, stopping=False, raises=1) is running
    assert next_action(ended, stopping=True, raises=1) is stopping


def test_the_table_is_complete() -> None:
    """Every ending and every crash has a row here and in the code."""
    assert set(AFTER) == {ended for ended, _, _ in ROWS} == set(Ending)


def test_a_lane_that_raises_again_and_again_fails_its_link() -> None:
    """A bug that repeats is told to a person instead of being repeated for ever."""
    assert next_action(Ending.TASK_RAISED, stopping=False, raises=MAX_RAISES - 1) is NextAction.RETRY
    assert next_action(Ending.TASK_RAISED, stopping=False, raises=MAX_RAISES) is NextAction.FAIL_LINK
    assert next_action(Ending.REBUILD, stopping=False, raises=0) is NextAction.RETRY


@pytest.mark.parametrize("ended", [Ending.REBUILD, Ending.FAILED, Ending.STOPPED])
def test_stopping_a_topic_is_no_reason_to_wait_or_to_fail(ended: Ending) -> None:
    """The next attempt goes on without the stopped topic, at once."""
    assert next_action(ended, stopping=False, topics_changed=True) is NextAction.NEXT_EPOCH
    assert next_action(ended, stopping=True, topics_changed=True) is NextAction.END


def test_a_run_that_catches_up_does_not_wait_for_rights() -> None:
    """A run that waits for its end would never end; an endless run goes on when the right is granted."""
    assert next_action(Ending.UNAUTHORIZED, stopping=False, patient=True) is NextAction.RETRY
    assert next_action(Ending.UNAUTHORIZED, stopping=False, patient=False) is NextAction.FAIL_LINK
    assert next_action(Ending.REBUILD, stopping=False, patient=False) is NextAction.RETRY


def test_backoff_doubles_to_a_limit_and_starts_anew_after_a_commit() -> None:
    """Retries are quick at first, never more than 10 s apart, and quick again after progress."""
    backoff, waits = Backoff(), []
    assert backoff.seconds == 0
    for _ in range(8):
        backoff = backoff.failed(progressed=False)
        waits.append(backoff.seconds)
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert backoff.failed(progressed=True).seconds == 0.2


def test_first_epochs_end_at_different_times() -> None:
    """Lanes do not roll over together; all later epochs have the configured length."""
    first = [epoch_seconds(300, lane=lane, lanes=4, number=1) for lane in range(4)]
    assert first == [187.5, 225, 262.5, 300]
    assert {epoch_seconds(300, lane=lane, lanes=4, number=2) for lane in range(4)} == {300}
    assert epoch_seconds(300, lane=0, lanes=1, number=1) == 300


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", Ending.WORKER_DIED),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", Ending.WORKER_DIED),
        ("Job 3 cancelled part of cancelled job group eomirror/x/lane-0", Ending.CANCELLED),
        ("Job 3 cancelled because SparkContext was shut down", Ending.ENGINE_GONE),
        ("Traceback (most recent call last):\nZeroDivisionError: a bug", Ending.TASK_RAISED),
    ],
)
def test_a_failed_job_is_told_by_its_text(text: str, ending: Ending) -> None:
    """Spark gives nothing but text; the words that matter are these."""
    assert ending_of_job(text) is ending
    assert ending.crashed
