"""
Records that carry the moment they were sent: who sends them, and who reads them.

Both are processes of their own, so that neither's clock waits for the other's work.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import struct
import threading
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.topics import Topics
from bench.verify import WrongCopyError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.synchronize import Event
    from pathlib import Path
    from types import TracebackType

    from bench.peers.process import MirrorProcess, Site

__all__ = [
    "BURST_MS",
    "PARTITIONS",
    "SLICE_SECONDS",
    "START_SECONDS",
    "Reader",
    "Sender",
    "burst_of",
    "end_with_bench",
    "next_in_partition",
]

PARTITIONS = 6
START_SECONDS = 120.0
_STAMP = struct.Struct("<qq")
_VALUE_BYTES = 100
#: How long one mirror after the other has its turn.
SLICE_SECONDS = 20.0
#: What producers of Kafka send together goes to one partition (KIP-480): as the bench has it, what so many ms bring.
BURST_MS = 5.0
_PROCESSES = multiprocessing.get_context("spawn")


def end_with_bench() -> None:
    """End this process when the bench has gone, killed perhaps: nothing else would, and no broker would answer it."""

    def wait() -> None:
        if (bench := multiprocessing.parent_process()) is not None:
            bench.join()
            os._exit(1)

    threading.Thread(target=wait, name="bench", daemon=True).start()


class Sender:
    """Produces from a process of its own until it is stopped; a context manager."""

    def __init__(self, site: Site, topics: Sequence[str], direct: str, *, rate: int, burst: int) -> None:
        self._stop = _PROCESSES.Event()
        given, pace = (site, topics, direct, self._stop), {"rate": rate, "burst": burst}
        self._process = _PROCESSES.Process(target=_send, args=given, kwargs=pace, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more, and wait for acknowledgements."""
        self._stop.set()
        self._process.join(60)


def _send(site: Site, topics: Sequence[str], direct: str, stop: Event, *, rate: int, burst: int) -> None:
    end_with_bench()
    common = {"linger.ms": 0, "enable.idempotence": True, "client.id": "bench-latency", "log_level": 3}
    source = Producer({**common, "bootstrap.servers": site.source})
    target = Producer({**common, "bootstrap.servers": site.target})
    padding = bytes(_VALUE_BYTES - _STAMP.size)
    started = time.monotonic()
    counts = dict.fromkeys((*topics, direct), 0)
    while not stop.is_set():
        # whose turn it is, is decided for a whole burst: within a partition numbers follow each other
        topic = topics[int((time.monotonic() - started) / SLICE_SECONDS) % len(topics)]
        while counts[direct] + burst <= (time.monotonic() - started) * rate:
            for _ in range(burst):
                sent = time.monotonic_ns()
                for producer, name in ((source, topic), (target, direct)):
                    count = counts[name]
                    partition = count // burst % PARTITIONS
                    producer.produce(name, value=_STAMP.pack(sent, count) + padding, partition=partition)
                    counts[name] = count + 1
        source.poll(0)
        target.poll(0)
        time.sleep(0.0005)
    for producer in (source, target):
        if producer.flush(30):
            raise RuntimeError(f"records of {topics} were not acknowledged")


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a reading process reads, where it leaves what it saw, and how many records come together."""

    servers: str
    topic: str
    path: Path
    burst: int


class Reader:
    """Reads a topic from a process of its own and leaves what it saw in a file."""

    def __init__(self, site: Site, name: str, topic: str, stop: Event, burst: int) -> None:
        self._path = site.folder / f"latency-{name}.bin"
        self._name = name
        reading = _Reading(site.target, topic, self._path, burst)
        self._first = _PROCESSES.Event()
        what = _read_commits if name == "commits" else _read_stamps
        self._process = _PROCESSES.Process(target=what, args=(reading, self._first, stop), daemon=True)
        self._process.start()

    def await_first(self, process: MirrorProcess | None) -> None:
        """Wait until something has arrived."""
        until = time.monotonic() + START_SECONDS
        while not self._first.wait(0.5):
            if process is not None:
                process.check()
            if time.monotonic() > until:
                tail = process.log_tail() if process is not None else ""
                raise TimeoutError(f"{self._name}: nothing arrived in {START_SECONDS:g} s\n{tail}")

    def pairs(self) -> array[int]:
        """Sent and received in turn; ends the process."""
        if self._finish():
            raise WrongCopyError(f"{self._name}: a record is missing, twice or out of order")
        found = array("q")
        with self._path.open("rb") as file:
            found.frombytes(file.read())
        return found

    def commits(self, begin: float, end: float) -> list[tuple[int, int, int]]:
        """Lane, epoch and wall-clock ms of commits within a time of the monotonic clock; ends the process."""
        self._finish()
        offset_ms = time.time() * 1000 - time.monotonic() * 1000
        lines = self._path.read_text("ascii").splitlines()
        rows = [json.loads(line) for line in lines]
        return [(lane, epoch, at) for lane, epoch, at in rows if begin * 1000 <= at - offset_ms <= end * 1000]

    def _finish(self) -> int:
        self._process.join(60)
        return self._process.exitcode or 0


def _consumer(servers: str, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": "bench-latency",
            "group.id": "bench-latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return consumer


def burst_of(rate: int, burst_ms: float = BURST_MS) -> int:
    """How many records go to one partition together: at so many records/s, what so many ms bring; at least one."""
    return max(1, int(rate * burst_ms / 1000))


def next_in_partition(count: int, burst: int) -> int:
    """The number of the record that follows this one in its partition."""
    last_of_burst = count % burst == burst - 1
    return count + 1 + (burst * (PARTITIONS - 1) if last_of_burst else 0)


def _read_stamps(what: _Reading, first: Event, stop: Event) -> None:
    end_with_bench()
    consumer = _consumer(what.servers, what.topic, PARTITIONS)
    pairs = array("q")
    following: dict[int, int] = {}
    wrong = 0
    while not stop.is_set():
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        now = time.monotonic_ns()
        sent, count = _STAMP.unpack_from(message.value())
        number = message.partition()
        wrong += count != following.get(number, number * what.burst)
        following[number] = next_in_partition(count, what.burst)
        pairs.append(sent)
        pairs.append(now)
        first.set()
    consumer.close()
    what.path.write_bytes(pairs.tobytes())
    raise SystemExit(1 if wrong else 0)


def _read_commits(what: _Reading, first: Event, stop: Event) -> None:
    end_with_bench()
    partitions = 0
    while not partitions and not stop.is_set():
        partitions = Topics(what.servers).partitions(what.topic)
        time.sleep(0.2)
    consumer = _consumer(what.servers, what.topic, partitions)
    seen: list[tuple[int, int, int]] = []
    latest: dict[int, tuple[int, int]] = {}
    while not stop.is_set():
        for message in consumer.consume(500, 0.2):
            if message.error() is not None or message.value() is None:
                continue
            body = json.loads(message.value())
            if not body.get("records"):
                continue
            first.set()
            # a transaction holds one position per partition; one of them is enough
            txn = (body["epoch"], body["txn"])
            if latest.get(body["lane"]) != txn:
                latest[body["lane"]] = txn
                seen.append((body["lane"], body["epoch"], message.timestamp()[1]))
    consumer.close()
    what.path.write_text("".join(f"{json.dumps(row)}\n" for row in seen), encoding="ascii")
