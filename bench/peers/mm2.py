"""
MirrorMaker 2 in dedicated mode, with exactly-once on or off, tuned for throughput within what is safe.

What is not its default, and why:

* ``tasks.max=2``: as many tasks as this mirror has lanes;
* ``max.poll.records=10000`` and larger fetches: with exactly-once and Connect's boundary ``poll``, one poll is one
  transaction, and 500 records (the default) would make commits the bottleneck;
* ``batch.size=256 KiB``: the default of 16 KiB holds 16 records of 1 kB;
* ``max.in.flight=5`` with idempotence: Connect's default is 1, and without idempotence when exactly-once is off;
* heartbeats and checkpoints off or quiet: they are not what is measured.

``isolation.level=read_committed`` in both forms: a mirror that copies aborted records does less work, and wrong
work.  See KIP-618, KIP-710 and https://kafka.apache.org/documentation/#georeplication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.peers.process import MirrorProcess
from eomirror.jvm import find_java
from eomirror.localkafka.cluster import ClusterSpec
from eomirror.localkafka.jars import DEFAULT_KAFKA, class_path
from eomirror.localkafka.ports import free_ports
from eomirror.localkafka.settings import logging_argument, logging_file

if TYPE_CHECKING:
    from bench.peers.process import Site
    from bench.workloads import Workload

__all__ = ["MirrorMaker", "mm2_release"]

_HEAP = "1g"

# which of two workers has a task; both are of Kafka 4
_TASKS = """\
logger.worker.name = org.apache.kafka.connect.runtime.Worker
logger.worker.level = INFO
"""


def mm2_release(kafka: str) -> str:
    """Returns the release of MirrorMaker 2 for a target of this Kafka: the same, where the pinned jars hold it."""
    return kafka if "connect-mirror-" in class_path(kafka) else DEFAULT_KAFKA


@dataclass(frozen=True, slots=True)
class MirrorMaker:
    """
    One form of MirrorMaker 2.

    Attributes:
        exactly_once: Exactly-once source support (KIP-618) on.
        tuned: False leaves batches, fetches and polls at their defaults: for latency, and to show what most run.
    """

    exactly_once: bool
    tuned: bool = True

    @property
    def name(self) -> str:
        """Short."""
        return ("mm2eos" if self.exactly_once else "mm2alo") + ("" if self.tuned else "default")

    @property
    def title(self) -> str:
        """In reports."""
        guarantee = "MM2 exactly-once" if self.exactly_once else "MM2 at-least-once"
        return guarantee if self.tuned else f"{guarantee}, as shipped"

    @property
    def transactional(self) -> bool:
        """Whether its copies have to hold transaction markers."""
        return self.exactly_once

    def target_topic(self, workload: Workload) -> str:
        """Where it copies a workload's topic to."""
        return f"{self._alias(workload)}.{workload.topic}"

    def changes(self, workload: Workload) -> None:
        """Returns what it makes of a value: it copies."""
        del workload

    def start(
        self, site: Site, workload: Workload, *, pair: bool = False, second: bool = False
    ) -> MirrorProcess:
        """Start it in a JVM of its own; a pair of workers shares a group and has one task, as shipped."""
        label = f"{self.name}{'-second' * second}"
        properties = site.folder / f"{label}.properties"
        text = self._properties(site, workload, rest_port=free_ports(1)[0], tasks=1 if pair else 2)
        properties.write_text(text, encoding="ascii")
        release = mm2_release(site.target_kafka)
        program = ClusterSpec("mm2", kafka_version=release)
        logging = site.folder / f"{label}-logging.properties"
        logging.write_text(logging_file(program) + (_TASKS if pair else ""), encoding="ascii")
        command = [
            str(find_java()),
            f"-Xmx{_HEAP}",
            # what Kafka's own start scripts choose
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent",
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            logging_argument(program, logging),
            "-cp",
            class_path(release),
            "org.apache.kafka.connect.mirror.MirrorMaker",
            str(properties),
        ]
        return MirrorProcess(label, command, folder=site.folder)

    def _alias(self, workload: Workload) -> str:
        return self.name + workload.name.replace("-", "")

    def _properties(self, site: Site, workload: Workload, *, rest_port: int, tasks: int) -> str:
        source = self._alias(workload)
        link = f"{source}->target"
        lines = {
            "clusters": f"{source},target",
            f"{source}.bootstrap.servers": site.source,
            "target.bootstrap.servers": site.target,
            f"{link}.enabled": "true",
            f"{link}.topics": workload.topic,
            f"target->{source}.enabled": "false",
            "emit.heartbeats.enabled": "false",
            "sync.group.offsets.enabled": "false",
            "groups": "bench-no-such-group",
            "tasks.max": str(tasks),
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "config.storage.replication.factor": "1",
            f"{source}.consumer.isolation.level": "read_committed",
            "target.producer.acks": "all",
            "target.producer.enable.idempotence": "true",
            "target.producer.max.in.flight.requests.per.connection": "5",
            "target.producer.compression.type": workload.codec,
            "target.offset.flush.interval.ms": "10000",
            "target.exactly.once.source.support": "enabled" if self.exactly_once else "disabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{rest_port}",
        }
        if workload.masked:
            # each record goes through it, and no byte changes: transformations of fields fail on bytes
            smt = "org.apache.kafka.connect.transforms.DropHeaders"
            lines |= {f"{link}.transforms": "drop", f"{link}.transforms.drop.type": smt}
            lines[f"{link}.transforms.drop.headers"] = "no-such-header"
        if self.tuned:
            lines |= {
                f"{source}.consumer.max.poll.records": "10000",
                f"{source}.consumer.max.partition.fetch.bytes": str(4 << 20),
                f"{source}.consumer.fetch.max.bytes": str(50 << 20),
                f"{source}.consumer.receive.buffer.bytes": str(1 << 20),
                "target.producer.batch.size": str(256 << 10),
                "target.producer.linger.ms": "5",
                "target.producer.buffer.memory": str(128 << 20),
                "target.producer.max.request.size": str(4 << 20),
                "target.producer.send.buffer.bytes": str(1 << 20),
            }
        return "".join(f"{key} = {value}\n" for key, value in lines.items())
