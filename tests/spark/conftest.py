"""Fixtures of the engine's tests: a folder for notes, and a Spark context of "the user"."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from engine import worker_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def notes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where fake lanes leave their notes."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture
def folder(notes_folder: Path) -> Path:
    """The folder, empty."""
    for note in notes_folder.iterdir():
        note.unlink()
    return notes_folder


@pytest.fixture(scope="module")
def user_context(notes_folder: Path) -> Iterator[Any]:
    """A context that the user built, with nothing of ours in it but the way to the fake lanes."""
    from pyspark import SparkConf, SparkContext

    # a user whose Python is not `python3` on the PATH says so, as for any PySpark program
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster("local[8]").setAppName("the user's own").set("spark.ui.enabled", "false")
    context = SparkContext(conf=conf.setAll(list(worker_settings(notes_folder).items())))
    yield context
    gateway = SparkContext._gateway
    context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(10)
    SparkContext._gateway = SparkContext._jvm = None
