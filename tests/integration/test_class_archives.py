"""Class archives of Kafka and Spark, made and used by real JVMs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from eomirror.demo.clients import create_topic
from eomirror.demo.mirror_process import ProcessTree, mirror_command
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


@pytest.mark.slow
def test_a_mirror_lets_the_archive_of_spark_be_made_beside_it(
    east: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """Once its lanes have run on Spark for a while; the mirror ends at once, and the next driver uses the archive."""
    create_topic(east.client_properties, topic_name, 1)
    config, cache = tmp_path / "mirror.yaml", tmp_path / "cache"
    link = {"name": topic_name, "source": "east", "target": "west", "topics": [topic_name]}
    clusters = {"east": east.client_properties, "west": west.client_properties}
    config.write_text(yaml.safe_dump({"clusters": clusters, "links": [link]}))
    environment = {"EOMIRROR_CACHE": str(cache), "EOMIRROR_CLASS_ARCHIVES": ""}
    tree = ProcessTree(mirror_command(config), log=tmp_path / "mirror.log", environment=environment)
    until = time.monotonic() + 240
    try:
        while not list(cache.glob("spark-*.jsa")):
            assert tree.exit_code is None, tree.last_lines()
            assert time.monotonic() < until, [path.name for path in cache.iterdir()]
            time.sleep(0.5)
        assert "error" not in tree.log.read_text("utf-8")
        assert tree.terminate(30.0) == 0, tree.last_lines()
    finally:
        tree.kill()
    loads = tmp_path / "driver-classes"
    subprocess.run([sys.executable, "-c", _DRIVER, str(loads)], check=True, env={**os.environ, **environment})
    assert f"org.apache.spark.SparkContext {_FROM_ARCHIVE}" in loads.read_text("utf-8")
    # the command of the first JVM was kept, too, and no folder of either start is in it
    (command,) = cache.glob("spark-*.json")
    assert "{folder}" in command.read_text("utf-8")
    assert not list(cache.glob(".archives-*"))
