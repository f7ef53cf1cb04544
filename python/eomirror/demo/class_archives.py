"""
Makes the class archives of `eomirror.jvm`: ``python -m eomirror.demo.class_archives``.

A JVM writes the archive when it ends, of the classes that it has used by then.  So one broker is started, serves some
transactions, and is ended in good order; Spark's driver alike (`eomirror.spark.class_archive`).  That takes about half
a minute, once for each JVM and list of jars.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK
from eomirror.demo.clients import CommittedReader, TrafficProducer, create_topic
from eomirror.demo.traffic import TrafficPlan
from eomirror.errors import MirrorError
from eomirror.jvm import class_archive
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.jars import DEFAULT_KAFKA, class_path, kafka_archive
from eomirror.localkafka.progress import Step, show_progress
from eomirror.localkafka.settings import USUAL_PERFORMANCE
from eomirror.log import configure_logging
from eomirror.spark.class_archive import forget_old, keep_archive, make_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.localkafka.progress import OnProgress

__all__ = ["make_archives"]

_TOPIC = "rehearsal"
_PARTITIONS = 2
_TRANSACTIONS = 20
_END_SECONDS = 60.0


def make_archives(on_progress: OnProgress) -> list[Path]:
    """
    Make both archives, unless they are there.

    Returns:
        Where they are.

    Raises:
        MirrorError: A part did not start, or wrote no archive.
    """
    step = "making class archives of Kafka and Spark"
    kafka = class_archive(*kafka_archive(DEFAULT_KAFKA, class_path(DEFAULT_KAFKA, on_progress=on_progress)))
    forget_old(kafka.parent)
    on_progress(Step(step, 0, 2))
    spark = make_archive()
    on_progress(Step(step, 1, 2))
    if not kafka.is_file():
        with TemporaryDirectory(prefix=f".archives-{os.getpid()}-", dir=kafka.parent) as name:
            made = Path(name, kafka.name)
            with _broker_that_writes(made) as cluster:
                _write_and_read(cluster)
                cluster.stop(timeout=_END_SECONDS)
            keep_archive(made, kafka)
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


def _write_and_read(cluster: LocalCluster) -> None:
    """Transactions of one client, read by another."""
    create_topic(cluster.client_properties, _TOPIC, _PARTITIONS, retention_ms="-1")
    plan = TrafficPlan(seed=1, partitions=_PARTITIONS)
    ledger = plan.new_ledger()
    traffic = TrafficProducer(cluster.client_properties, topic=_TOPIC, transactional_id=_TOPIC)
    for number in range(_TRANSACTIONS):
        now = SYSTEM_CLOCK.wall_ms()
        traffic.write(plan.transaction(number, ledger, sent_us=now * 1000, wall_ms=now))
    reader = CommittedReader(cluster.client_properties, _TOPIC, dict.fromkeys(range(_PARTITIONS), 0))
    while not reader.poll(_END_SECONDS):
        pass
    reader.close()


def _main() -> None:
    # Spark in it is a means; what it would tell is of no interest
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
