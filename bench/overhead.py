"""
What a link writes on the target besides the records: bytes of the log, for each transaction and partition.

Everything counts that the brokers keep for it, batch headers and transaction markers included, because it is the size
of the log that is looked at.  Records come at a steady rate and are mirrored in transactions of one commit interval.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson
import yaml
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.topics import Topics
from eomirror.demo.mirror_process import ProcessTree, mirror_command
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

__all__ = ["Overhead", "measure_overhead", "overhead_markdown"]

_TOPIC = "bench-overhead"
_LINK = "bench"
_RECORD_BYTES = 1_000
_PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """
    What was measured.

    Attributes:
        plane: That mirrored.
        partitions: Of the topic.
        rate: Bytes per second and partition of the source, records only.
        commit_interval_ms: Of the link.
        transactions: How many held records, once for each partition that had some.
        copied: Bytes of the copy's log.
        written: Bytes of the log of each topic of the link.
    """

    plane: str
    partitions: int
    rate: int
    commit_interval_ms: int
    transactions: int
    copied: int
    written: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def overhead_markdown(cost: Overhead) -> str:
    """A table for a report."""
    rows = [
        f"| {name} | {size:,} | {size / cost.transactions:.0f} | {100 * size / cost.copied:.2f} % |"
        for name, size in [*cost.written.items(), ("all of them", sum(cost.written.values()))]
    ]
    each = cost.copied / cost.transactions
    head = (
        f"{cost.plane} plane, {cost.partitions} partitions of {cost.rate / 1e6:g} MB/s, a commit every "
        f"{cost.commit_interval_ms} ms: {cost.copied:,} bytes of copy in {cost.transactions:,} transactions, once for "
        f"each partition, {each:,.0f} bytes each."
    )
    return "\n".join(
        [
            head,
            "",
            "| log of | bytes | for a transaction and partition | of the copy |",
            "|---|---:|---:|---:|",
            *rows,
        ]
    )


def measure_overhead(
    source: LocalCluster,
    target: LocalCluster,
    folder: Path,
    *,
    plane: str,
    partitions: int,
    seconds: float,
    rate: int,
    commit_interval_ms: int,
    say: Callable[[str], None],
) -> Overhead:
    """
    Measure.

    Raises:
        RuntimeError: The mirror ended, or did not catch up.
    """
    Topics(source.bootstrap_servers).create(_TOPIC, partitions)
    path = folder / "mirror.yaml"
    settings = {
        "clusters": {"source": source.client_properties, "target": target.client_properties},
        "links": [{"name": _LINK, "source": "source", "target": "target", "topics": [_TOPIC], "lanes": 1}],
        "defaults": {
            "plane": plane,
            "commit_interval": f"{commit_interval_ms}ms",
            "commit_interval_min": f"{commit_interval_ms}ms",
        },
    }
    path.write_text(yaml.safe_dump(settings))
    path.chmod(0o600)
    tree = ProcessTree(mirror_command(path), log=folder / "mirror.log")
    try:
        _until(tree, lambda: f"source.{_TOPIC}" in _sizes(target), "the mirror does not start")
        say(f"{seconds:g} s of records")
        producer = Producer({**source.client_properties, "linger.ms": 20, "enable.idempotence": True})
        expected = _feed(producer, partitions, seconds, rate)
        _until(tree, lambda: _mirrored(target)[1] >= expected, "the mirror does not catch up")
        tree.terminate(30)
    finally:
        tree.kill()
    sizes = _sizes(target)
    return Overhead(
        plane=plane,
        partitions=partitions,
        rate=rate,
        commit_interval_ms=commit_interval_ms,
        transactions=_mirrored(target)[0],
        copied=sizes[f"source.{_TOPIC}"],
        written={
            name: size
            for name, size in sorted(sizes.items())
            if name.startswith(f"eomirror.{_LINK}.") or name.endswith(".internal")
        },
    )


def _until(tree: ProcessTree, condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if tree.exit_code is not None or time.monotonic() > until:
            raise RuntimeError(f"{what}:\n{tree.last_lines()}")
        time.sleep(0.5)


def _sizes(cluster: LocalCluster) -> dict[str, int]:
    """Bytes of the logs of every topic, of all brokers."""
    sizes: dict[str, int] = {}
    for log in cluster.folder.glob("broker-*/data/*/*.log"):
        topic = log.parent.name.rpartition("-")[0]
        sizes[topic] = sizes.get(topic, 0) + log.stat().st_size
    return sizes


def _mirrored(target: LocalCluster) -> tuple[int, int]:
    """Transactions with records, once for each partition, and records, as the positions say."""
    topic = LinkNames(_LINK).positions_topic
    consumer = Consumer(
        {
            **target.client_properties,
            "group.id": "bench-overhead",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    held: dict[tuple[Any, ...], int] = {}
    try:
        parts = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in parts])
        left = set(parts)
        while left:
            for message in consumer.consume(1_000, 0.5):
                if message.error() is not None:
                    if message.error().code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  documented, without another name
                        raise RuntimeError(str(message.error()))
                    left.discard(message.partition())
                    continue
                body = orjson.loads(message.value() or b"{}")
                if body.get("records"):
                    # written as foreseen, and perhaps again as acknowledged: one transaction
                    held[message.key(), body["attempt"], body["epoch"], body["txn"]] = body["records"]
    finally:
        consumer.close()
    return len(held), sum(held.values())


def _feed(producer: Producer, partitions: int, seconds: float, rate: int) -> int:
    """Write at a steady rate; how many records."""
    numbers = random.Random(7)
    body = [numbers.randbytes(_RECORD_BYTES) for _ in range(64)]
    began = time.monotonic()
    count = 0
    goal = int(seconds * rate / _RECORD_BYTES) * partitions
    while count < goal:
        due = min(goal, int((time.monotonic() - began) * rate / _RECORD_BYTES) * partitions)
        for number in range(count, due):
            producer.produce(_TOPIC, body[number % 64], partition=number % partitions)
        count = max(count, due)
        producer.poll(0)
        time.sleep(0.005)
    if producer.flush(60):
        raise RuntimeError("records were not acknowledged")
    return count
