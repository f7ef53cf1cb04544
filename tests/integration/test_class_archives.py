"""Class archives of Kafka and Spark, made and used by real JVMs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eomirror.jvm import class_archive
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.jars import DEFAULT_KAFKA, cache_folder, class_path, kafka_archive

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_FROM_ARCHIVE = "source: shared objects file (top)"
_DRIVER = """
import sys
from eomirror.spark.context import engine_settings, open_engine
given = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={sys.argv[1]}"}
open_engine(None, engine_settings(master=None, configured={}, given=given, version="1"), lanes=1).close()
"""


def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder with the jars of the usual one, and without archives."""
    class_path()
    folder = tmp_path / "cache"
    folder.mkdir()
    for jars in cache_folder().glob("kafka-*[0-9a-f]"):
        (folder / jars.name).symlink_to(jars)
    monkeypatch.setenv("EOMIRROR_CACHE", str(folder))


@pytest.mark.slow
def test_brokers_and_drivers_take_their_classes_from_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made in one go; a broker and a Spark driver that start afterwards load from them."""
    own_cache(tmp_path, monkeypatch)
    forgotten = tmp_path / "cache" / "kafka-0.8-00.jsa"
    forgotten.touch()
    os.utime(forgotten, (0, 0))
    made = subprocess.run(
        [sys.executable, "-m", "eomirror.demo.class_archives"], capture_output=True, text=True, check=True
    )
    archives = [Path(line) for line in made.stdout.split()]
    assert not forgotten.exists()
    assert [path.name.partition("-")[0] for path in archives] == ["kafka", "spark"]
    loads = tmp_path / "broker-classes"
    before = os.environ["KAFKA_JVM_PERFORMANCE_OPTS"]
    monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", f"{before} -Xlog:class+load:file={loads}")
    with LocalCluster.start(ClusterSpec("archived")):
        assert f"kafka.server.KafkaConfig {_FROM_ARCHIVE}" in loads.read_text("utf-8")
    loads = tmp_path / "driver-classes"
    # a process has one driver, and another test may have started this one's
    subprocess.run([sys.executable, "-c", _DRIVER, str(loads)], check=True)
    assert f"org.apache.spark.SparkContext {_FROM_ARCHIVE}" in loads.read_text("utf-8")


@pytest.mark.slow
def test_a_broker_does_without_an_archive_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something else under its name: a broker starts, only later."""
    own_cache(tmp_path, monkeypatch)
    class_archive(*kafka_archive(DEFAULT_KAFKA, class_path())).write_text("no archive\n", "ascii")
    with LocalCluster.start(ClusterSpec("unarchived")) as cluster:
        assert cluster.brokers[0].running
