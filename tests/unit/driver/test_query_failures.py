"""What a text of Spark means for the query of a link; and what of it is told, for a text may quote a record."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.config import load_config
from eomirror.driver.query_lanes import failed_here, failed_query
from eomirror.lane.spec import Ending

CLUSTERS = {alias: {"bootstrap.servers": f"{alias}:9092"} for alias in ("east", "west")}
SQL = {"sql": "SELECT value FROM records"}
PYTHON = {"python": "masking:mask"}
TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/venv/pyspark/worker.py", line 1900, in main
    process()
  File "/app/masking.py", line 7, in mask
    raise ValueError(f"no number: {{text}}")
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


def outcome(transform: dict[str, str], text: str) -> Any:
    link = {"source": "east", "target": "west", "topics": ["orders"], "transform": transform}
    return failed_query(load_config({"clusters": CLUSTERS, "links": [link]}).links[0], text)


@pytest.mark.parametrize(
    ("transform", "text", "told"),
    [
        (PYTHON, TRACEBACK.format("ValueError: no number: canary"), "ValueError in masking.py, line 7"),
        (PYTHON, TRACEBACK.format("ValueError: [CANARY] is no number"), "ValueError in masking.py, line 7"),
        (
            PYTHON,
            TRACEBACK.format("pyspark.errors.exceptions.base.PySparkRuntimeError: [RESULT_TYPE] a canary"),
            "RESULT_TYPE in masking.py, line 7",
        ),
        (
            PYTHON,
            TRACEBACK.format("ValueError: see eomirror.errors.RowError: canary"),
            "ValueError in masking.py",
        ),
        (
            SQL,
            "Job aborted: [CAST_INVALID_INPUT] The value 'canary' of the type STRING",
            "CAST_INVALID_INPUT",
        ),
        (SQL, "Wrong: canary", "Wrong"),
    ],
)
def test_type_and_place_of_an_exception_are_told_and_its_message_is_not(
    transform: dict[str, str], text: str, told: str
) -> None:
    found = outcome(transform, text)

    assert found.ending is Ending.TASK_RAISED
    assert told in found.reason
    for shown in (found.reason, str(found.error)):
        assert "canary" not in shown.lower()
    assert "link east->west: transform" in found.error.message


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        ("eomirror.errors.UnreachableError: cluster east does not answer", Ending.REBUILD),
        ("eomirror.errors.TransactionFailedError: a task was repeated", Ending.REBUILD),
        ("eomirror.errors.RowError: masking:mask returns no column topic", Ending.TASK_RAISED),
    ],
)
def test_an_error_of_ours_keeps_its_message_and_meaning(line: str, ending: Ending) -> None:
    """An unreachable source is retried for as long as it takes; a wrong row fails the link after some attempts."""
    found = outcome(PYTHON, TRACEBACK.format(line))

    assert (found.ending, found.reason) == (ending, line.partition(": ")[2])


def test_an_error_of_ours_keeps_what_to_do() -> None:
    found = outcome(
        PYTHON, TRACEBACK.format("eomirror.errors.MirrorError: no module masking\n  fix: install it")
    )

    assert found.error is not None
    assert (found.error.message, found.error.fix) == ("no module masking", "install it")


def test_a_bug_in_this_process_is_not_the_fault_of_the_query() -> None:
    """Type and place find it; its text may quote a record."""
    link = {"source": "east", "target": "west", "topics": ["orders"], "transform": PYTHON}
    try:
        int("a canary")
    except ValueError as error:
        found = failed_here(load_config({"clusters": CLUSTERS, "links": [link]}).links[0], error)

    assert found.ending is Ending.TASK_RAISED
    assert "ValueError in test_query_failures.py, line " in found.reason
    assert found.error is not None
    assert "canary" not in found.reason + str(found.error)
    assert "report this as a bug" in found.error.fix


def test_a_worker_that_died_is_no_fault_of_the_query() -> None:
    found = outcome(PYTHON, "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)")

    assert found.ending is Ending.WORKER_DIED
