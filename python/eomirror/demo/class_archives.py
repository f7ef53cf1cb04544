"""
Makes the class archives of `eomirror.jvm`: ``python -m eomirror.demo.class_archives``.

A JVM writes the archive when it ends, of the classes that it has used by then.  So one broker and one Spark driver
are started, a small mirror runs on both of them, and they are ended in good order.  That takes about half a minute,
once for each JVM and list of jars.  An archive is about 60 MB; those older than a month are removed.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import yaml

from eomirror import Mirror, __version__, load_config
from eomirror.clock import SYSTEM_CLOCK
from eomirror.demo.clients import TrafficProducer, create_topic
from eomirror.demo.traffic import TrafficPlan
from eomirror.errors import MirrorError
from eomirror.jvm import class_archive
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.jars import DEFAULT_KAFKA, class_path, kafka_archive
from eomirror.localkafka.progress import Step, show_progress
from eomirror.localkafka.settings import USUAL_PERFORMANCE
from eomirror.log import configure_logging
from eomirror.spark.context import engine_settings, open_engine
from eomirror.spark.launch import spark_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.localkafka.progress import OnProgress

__all__ = ["make_archives"]

_TOPIC = "rehearsal"
_PARTITIONS = 2
_TRANSACTIONS = 20
_END_SECONDS = 60.0
_KEPT_SECONDS = 30 * 24 * 3600.0


def make_archives(on_progress: OnProgress) -> list[Path]:
    """
    Make both archives, unless they are there.

    Returns:
        Where they are.

    Raises:
        MirrorError: A part did not start, or wrote no archive.
    """
    kafka = class_archive(*kafka_archive(DEFAULT_KAFKA, class_path(DEFAULT_KAFKA, on_progress=on_progress)))
    spark = class_archive(*spark_archive())
    _forget_old(kafka.parent)
    if kafka.is_file() and spark.is_file():
        return [kafka, spark]
    step = "making class archives of Kafka and Spark"
    on_progress(Step(step, 0, 2))
    with TemporaryDirectory(prefix=f".archives-{os.getpid()}-", dir=kafka.parent) as name:
        folder = Path(name)
        # what is there would be used, and archives do not stand on each other
        kafka.unlink(missing_ok=True)
        spark.unlink(missing_ok=True)
        with _broker_that_writes(folder / kafka.name) as cluster:
            _mirror_once(cluster, folder, folder / spark.name)
            _keep(folder / spark.name, spark)
            on_progress(Step(step, 1, 2))
            cluster.stop(timeout=_END_SECONDS)
        _keep(folder / kafka.name, kafka)
    on_progress(Step(step, 2, 2))
    return [kafka, spark]


@contextmanager
def _broker_that_writes(archive: Path) -> Iterator[LocalCluster]:
    """A cluster whose broker writes an archive when it is stopped."""
    before = os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS")
    chosen = " ".join(USUAL_PERFORMANCE) if before is None else before
    os.environ["KAFKA_JVM_PERFORMANCE_OPTS"] = f"{chosen} -XX:ArchiveClassesAtExit={archive}"
    try:
        cluster = LocalCluster.start(ClusterSpec("archives"))
    finally:
        if before is None:
            del os.environ["KAFKA_JVM_PERFORMANCE_OPTS"]
        else:
            os.environ["KAFKA_JVM_PERFORMANCE_OPTS"] = before
    with cluster:
        yield cluster


def _mirror_once(cluster: LocalCluster, folder: Path, archive: Path) -> None:
    """A topic mirrored within the cluster, by a Spark driver that writes an archive when it ends."""
    create_topic(cluster.client_properties, _TOPIC, _PARTITIONS, retention_ms="-1")
    plan = TrafficPlan(seed=1, partitions=_PARTITIONS)
    traffic = TrafficProducer(cluster.client_properties, topic=_TOPIC, transactional_id=_TOPIC)
    for number in range(_TRANSACTIONS):
        now = SYSTEM_CLOCK.wall_ms()
        traffic.write(plan.transaction(number, plan.new_ledger(), sent_us=now * 1000, wall_ms=now))
    document = {
        "clusters": {"here": cluster.client_properties, "there": cluster.client_properties},
        "links": [{"source": "here", "target": "there", "topics": [_TOPIC]}],
    }
    config = folder / "mirror.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    given = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"}
    settings = engine_settings(master=None, configured={}, given=given, version=__version__)
    engine = open_engine(None, settings, lanes=1)
    try:
        Mirror(load_config(config), spark=engine.context).run("caught-up")
    finally:
        engine.close(patience=_END_SECONDS)


def _forget_old(folder: Path) -> None:
    """Remove archives that were made long ago: each new list of jars leaves those of the one before behind."""
    for archive in folder.glob("*.jsa"):
        if SYSTEM_CLOCK.wall_ms() / 1000 - archive.stat().st_mtime > _KEPT_SECONDS:
            archive.unlink(missing_ok=True)


def _keep(made: Path, archive: Path) -> None:
    """Whole, on the disk and in one rename: one that is cut short would end each JVM that is given it."""
    if not made.is_file():
        raise MirrorError(
            f"the JVM wrote no class archive {archive.name}",
            fix="nothing is lost without it; to have one, use a Java runtime that can share classes",
        )
    with made.open("rb") as file:
        os.fsync(file.fileno())
    made.replace(archive)


def _main() -> None:
    # the mirror in it is a means; what it would tell is of no interest
    configure_logging("error")
    try:
        with show_progress() as on_progress:
            made = make_archives(on_progress)
    except MirrorError as error:
        raise SystemExit(f"{error}") from None
    for archive in made:
        sys.stdout.write(f"{archive}\n")


if __name__ == "__main__":
    _main()
