"""The library's surface, as far as it can be seen without Spark and Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eomirror
from eomirror import Mirror, SourcePartition, UsageError
from eomirror.config import Cluster, Config, Link


def config() -> Config:
    """Two links between two clusters."""
    links = [Link(name=name, source="a", target="b", topics=(".*",)) for name in ("one", "two")]
    return Config({alias: Cluster(alias, {}) for alias in "ab"}, tuple(links))


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import eomirror` is free: Spark, Kafka client and core wait until a name needs them."""
    program = (
        "import sys, json, eomirror, eomirror.mirror;"
        "print(json.dumps([n for n in ('pyspark','confluent_kafka','eomirror._core','rich') if n in sys.modules]))"
    )
    python = str(Path(eomirror.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env={"PYTHONPATH": python}
    )
    assert json.loads(done.stdout) == []


def test_every_exported_name_exists() -> None:
    """What __all__ promises can be imported."""
    assert all(getattr(eomirror, name) is not None for name in eomirror.__all__)
    with pytest.raises(AttributeError):
        eomirror.no_such_name  # noqa: B018  the access is the test


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"links": ["three"]}, "three"),
        ({"adopt": {SourcePartition("t", 0): 5}}, "adopted"),
        ({"spark": object(), "master": "local[2]"}, "given Spark context"),
        ({"spark": object(), "spark_conf": {"a": "b"}}, "given Spark context"),
    ],
)
def test_contradicting_options_are_refused(options: dict[str, Any], word: str) -> None:
    """Before anything is touched, with what to do."""
    with pytest.raises(UsageError, match=word) as caught:
        Mirror(config(), **options)
    assert caught.value.fix


def test_an_unknown_end_is_refused() -> None:
    """A typo in ``until`` must not run for ever."""
    with Mirror(config()) as mirror, pytest.raises(UsageError, match="caughtup"):
        mirror.run(until="caughtup")
