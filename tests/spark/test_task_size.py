"""Lanes of very many partitions on a context of the user's own: their tasks never become files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import fake_lanes
import pytest
from engine import FakeLink, Run, assigned, link, notes

from eomirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def files(user_context: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Every broadcast variable that PySpark makes, which is a file in its temporary folder."""
    from pyspark import SparkContext

    made: list[Path] = []
    broadcast = SparkContext.broadcast

    def noted(self: SparkContext, value: Any) -> Any:
        variable = broadcast(self, value)
        made.append(Path(variable._path))
        return variable

    monkeypatch.setattr(SparkContext, "broadcast", noted)
    # the fixture itself can see one
    user_context.broadcast(b"x" * 10)
    assert [path.exists() for path in made] == [True]
    made.clear()
    yield made
    assert made == []


@pytest.mark.usefixtures("files")
def test_ten_thousand_topics_run_in_memory(user_context: Any, folder: Path) -> None:
    """The task stays below PySpark's limit of 1 MiB, and its lane begins."""
    fake = FakeLink(partitions=[assigned(f"team.topic-{number}", 0) for number in range(10_000)])
    with Run(fake_lanes.steady, {"east->west": fake}, links=[link(lanes=1)], spark=user_context) as run:
        run.wait_for(lambda: notes(folder, "begin"))
    assert run.error is None


@pytest.mark.usefixtures("files", "folder")
def test_a_task_that_would_become_a_file_is_refused(
    user_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link fails with what to set; Spark never sees the task."""
    monkeypatch.setattr("eomirror.spark.jobs._AROUND_BYTES", 1 << 20)
    with Run(fake_lanes.steady, links=[link(lanes=1)], spark=user_context) as run:
        run.wait(60)
    assert isinstance(run.error, MirrorError)
    assert "would be written to a file" in run.error.message
    assert "spark.broadcast.UDFCompressionThreshold=" in run.error.fix
