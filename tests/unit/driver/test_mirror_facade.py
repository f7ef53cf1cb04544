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
from eomirror.driver.lane import error_of
from eomirror.lane.spec import Ending, LaneReport


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


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, eomirror.MirrorError), (4, eomirror.DataLossError), (5, eomirror.SupersededError)],
)
def test_the_error_of_a_report_can_be_caught_by_type(code: int, kind: type[eomirror.MirrorError]) -> None:
    """A lane's error crosses processes as text and code, and becomes an exception again."""
    said = eomirror.MirrorError("orders-0 is broken", fix="mend it")
    report = LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.FAILED, error=str(said), exit_code=code)
    error = error_of(report)
    assert type(error) is kind
    assert (error.message, error.fix, error.exit_code) == ("orders-0 is broken", "mend it", code)
