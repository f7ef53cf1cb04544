"""A real MirrorMaker 2 in its dedicated mode, from the embedded Kafka jars, and an application that writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import psutil
from confluent_kafka import Producer

from eomirror.demo.mirror_process import ProcessTree
from eomirror.jvm import archive_arguments, find_java
from eomirror.localkafka.cluster import ClusterSpec
from eomirror.localkafka.jars import DEFAULT_KAFKA, class_path, kafka_archive
from eomirror.localkafka.ports import free_ports
from eomirror.localkafka.settings import logging_argument, logging_file
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["MirrorMaker", "SteadyWriter"]


class MirrorMaker:
    """
    One flow in a JVM of its own; a context manager that ends it.

    Its workers leave their group after the shortest session timeout that brokers take, so that tests wait less.

    Args:
        source: Bootstrap servers.
        target: Bootstrap servers.
        alias: Of the source, unlike any other's; the target is ``west``.
        topics: Of the flow.
        folder: For its files.
        exactly_once: KIP-618.
        settings: Further properties.
    """

    def __init__(
        self, source: str, target: str, alias: str, topics: str, folder: Path, *,
        exactly_once: bool, settings: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        factors = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.", "offset.storage.",
                   "status.storage.", "config.storage.")  # fmt: skip
        lines = {
            "clusters": f"{alias},west",
            f"{alias}.bootstrap.servers": source,
            "west.bootstrap.servers": target,
            f"{alias}->west.enabled": "true",
            f"{alias}->west.topics": topics,
            f"west->{alias}.enabled": "false",
            "emit.heartbeats.enabled": "false",
            "tasks.max": "2",
            **{f"{name}replication.factor": "1" for name in factors},
            f"{alias}.consumer.isolation.level": "read_committed",
            "west.session.timeout.ms": "6000",
            "west.heartbeat.interval.ms": "1500",
            "west.exactly.once.source.support": "enabled" if exactly_once else "disabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
            **(settings or {}),
        }
        properties = folder / "mm2.properties"
        properties.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()), encoding="ascii")
        logging = folder / "mm2-logging.properties"
        program = ClusterSpec("mm2")
        logging.write_text(logging_file(program), encoding="ascii")
        self._log = folder / "mm2.log"
        self._command = [
            str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
            *archive_arguments(*kafka_archive(DEFAULT_KAFKA, class_path())),
            logging_argument(program, logging), "-cp", class_path(),
            "org.apache.kafka.connect.mirror.MirrorMaker", str(properties),
        ]  # fmt: skip
        self._tree: ProcessTree | None = None

    def start(self) -> None:
        """Mirror from now on."""
        self._tree = ProcessTree(self._command, log=self._log)

    def check(self) -> bool:
        """Raise AssertionError if it has ended on its own."""
        assert self._tree is not None, "not started"
        assert self._tree.exit_code is None, self._tree.last_lines()
        return True

    def kill(self) -> None:
        """SIGKILL."""
        if self._tree is not None:
            self._tree.kill()

    def stop(self) -> None:
        """SIGTERM, and its end: it commits what it has mirrored."""
        assert self._tree is not None, "not started"
        process = psutil.Process(self._tree.pid)
        process.terminate()
        self._tree.wait(60)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class SteadyWriter(WorkerThread):
    """
    Transactions of records that are unlike each other, one in ten aborted, until the block ends.

    Args:
        properties: Client properties of the source.
        topic: Where to write.
        partitions: How many it has.
        per_second: Transactions per second.
    """

    def __init__(self, properties: Mapping[str, Any], topic: str, partitions: int, per_second: float) -> None:
        super().__init__(f"write {topic}")
        self._topic, self._partitions, self._pause = topic, partitions, 1 / per_second
        self._producer = Producer({**properties, "transactional.id": topic, "linger.ms": 1})
        self.transactions = 0

    def __enter__(self) -> Self:
        self._producer.init_transactions(30)
        return super().__enter__()

    def work(self) -> None:
        """Write until the block ends."""
        while not self.asked.wait(self._pause):
            self._transaction()

    def _transaction(self) -> None:
        self._producer.begin_transaction()
        for each in range(7):
            self._producer.produce(
                self._topic, b"%d-%d" % (self.transactions, each), b"k%d" % each,
                partition=(self.transactions + each) % self._partitions,
            )  # fmt: skip
        self.transactions += 1
        if self.transactions % 10 == 0:
            self._producer.flush(30)
            self._producer.abort_transaction(30)
        else:
            self._producer.commit_transaction(30)
