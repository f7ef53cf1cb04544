"""
How long a restart takes to read what the mirror must remember, after very many transactions.

A link with 200 partitions is mirrored for real until it has caught up.  Then its positions and control topics are
given the history of N transactions: each is a real transaction on the broker that writes the positions of a few
partitions again, as a lane does, with its markers; every 500th renews the claim.  The broker's own cleaner works
on them meanwhile, with the settings that the mirror gave the topics.  At last a fresh process reads both to
their ends the way a restart does, and the mirror itself is run again until it has caught up.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.loading import load
from bench.peers.eomirror import Mirror
from bench.topics import Topics
from bench.workloads import Workload
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.process import Site

__all__ = ["Restart", "measure_restart", "restart_markdown"]

_PROCESSES = multiprocessing.get_context("spawn")
_WRITERS = 4
_THREADS = 6
_PER_TRANSACTION = 3
_CLAIM_EVERY = 500
# EndTxn is answered before the markers are written; a client that goes on at once is sent away for 20 ms
_PAUSE_SECONDS = 0.004

_READER = """
import json, sys, time
from eomirror.config import load_config
from eomirror.records.control import decode_control
from eomirror.records.names import LinkNames
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.kafka.session import ClusterSession
from eomirror.link.valid_positions import valid_positions

config = load_config(sys.argv[1])
link = config.links[0]
names = LinkNames(link.state_name)
target = config.clusters[link.target]
before = time.monotonic()
reader = CompactedTopicReader(ClusterSession(target, client_id="bench.restart"))
_, control = reader.read(names.control_topic)
view = decode_control([(record.key, record.value, record.where) for record in control])
between = time.monotonic()
_, records = reader.read(names.positions_topic)
positions = valid_positions(records)
after = time.monotonic()
print(json.dumps({
    "control_seconds": between - before, "control_records": len(control),
    "positions_seconds": after - between, "positions_records": len(records), "partitions": len(positions),
    "generation": view.generation.generation,
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """
    What a restart had to read.

    Attributes:
        transactions: Written before it.
        partitions: Source partitions of the link.
        written_per_second: How fast the history came to be.
        control_seconds: Connect, and read the control topic to its end.
        control_records: Records that were still in it.
        positions_seconds: Read the positions topic to its end.
        positions_records: Records that were still in it.
        restart_seconds: Of ``eomirror run --until caught-up``, Spark's start included, with nothing to copy.
    """

    transactions: int
    partitions: int
    written_per_second: float
    control_seconds: float
    control_records: int
    positions_seconds: float
    positions_records: int
    restart_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def restart_markdown(restart: Restart) -> str:
    """A table for a report."""
    read = restart.control_seconds + restart.positions_seconds
    history = f"After {restart.transactions:,} transactions on {restart.partitions} partitions"
    return "\n".join(
        [
            f"{history} (written at {restart.written_per_second:,.0f}/s):",
            "",
            "| | s | records still there |",
            "|---|---:|---:|",
            f"| connect, read control | {restart.control_seconds:.2f} | {restart.control_records:,} |",
            f"| read positions | {restart.positions_seconds:.2f} | {restart.positions_records:,} |",
            f"| both | {read:.2f} | |",
            f"| `eomirror run --until caught-up`, nothing to copy | {restart.restart_seconds:.1f} | |",
        ]
    )


def measure_restart(site: Site, *, transactions: int, partitions: int, say: Callable[[str], None]) -> Restart:
    """
    Make the history, then read it.

    Args:
        site: Where.
        transactions: How many.
        partitions: Of the mirrored topic.
        say: Told how far it is.

    Raises:
        RuntimeError: The mirror, or the reading process, failed.
    """
    workload = Workload(name="restart", title="restart", partitions=partitions)
    mirror = Mirror()
    topics = Topics(site.source)
    topics.delete(workload.topic)
    topics.create(workload.topic, partitions)
    load(site.source, workload, 10 * partitions)
    config = mirror.configure(site, workload)
    _run_once(config)
    names = LinkNames(mirror.link(workload))
    began = time.monotonic()
    done = _PROCESSES.Value("q", 0)
    writers = [
        _PROCESSES.Process(
            target=_write_history,
            args=(site.target, (names.positions_topic, names.control_topic), number, transactions, done),
        )
        for number in range(_WRITERS)
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        for _ in range(300):
            time.sleep(0.1)
            if not any(writer.is_alive() for writer in writers):
                break
        say(f"restart: {done.value:,} of {transactions:,} transactions")
    if any(writer.exitcode for writer in writers):
        raise RuntimeError("a writer of the history failed; see above")
    seconds = time.monotonic() - began
    read = subprocess.run(
        [sys.executable, "-c", _READER, str(config)], capture_output=True, text=True, check=False
    )
    if read.returncode:
        raise RuntimeError(f"the state could not be read:\n{read.stderr[-2000:]}")
    found = json.loads(read.stdout)
    if found.pop("partitions") != partitions:
        raise RuntimeError(f"not every partition has a position: {found}")
    found.pop("generation")
    before = time.monotonic()
    _run_once(config)
    return Restart(
        transactions=done.value,
        partitions=partitions,
        written_per_second=done.value / seconds,
        restart_seconds=time.monotonic() - before,
        **found,
    )


def _run_once(config: Any) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "eomirror", "run", str(config), "--until", "caught-up"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"eomirror run failed with {ran.returncode}:\n{ran.stderr[-2000:]}")


def _newest(bootstrap: str, topic: str) -> list[tuple[int, bytes, bytes]]:
    """Partition, key and value of the last record of each key."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.partition.eof": True})
    numbers = sorted(consumer.list_topics(topic, timeout=15).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    found: dict[tuple[int, bytes], bytes] = {}
    waiting = set(numbers)
    while waiting:
        for message in consumer.consume(5_000, 0.1):
            if message.error() is not None:
                waiting.discard(message.partition())
            else:
                found[message.partition(), message.key()] = message.value()
    consumer.close()
    return [(partition, key, value) for (partition, key), value in found.items()]


def _write_history(bootstrap: str, names: tuple[str, str], number: int, transactions: int, done: Any) -> None:
    """One of several writers: the same records of positions and control again, transaction after transaction."""
    positions, control = names
    known = [entry for entry in _newest(bootstrap, positions) if b'"topic"' in entry[1]]
    (claim,) = [entry for entry in _newest(bootstrap, control) if b"claim" in entry[1]]

    def write(thread: int) -> None:
        rng = random.Random(number * _THREADS + thread)
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"bench-history-{number}-{thread}",
                "linger.ms": 0,
            }
        )
        producer.init_transactions(60)
        while True:
            with done.get_lock():
                if done.value >= transactions:
                    return
                done.value += 1
                mine = done.value
            producer.begin_transaction()
            for partition, key, value in rng.sample(known, _PER_TRANSACTION):
                producer.produce(positions, value, key, partition)
            if mine % _CLAIM_EVERY == 0:
                producer.produce(control, claim[2], claim[1], 0)
            try:
                producer.commit_transaction(60)
            except KafkaException as error:
                raise RuntimeError(f"transaction {mine}: {error}") from error
            time.sleep(_PAUSE_SECONDS)

    threads = [threading.Thread(target=write, args=[thread]) for thread in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
