"""
Filling source topics: all at once for bulk workloads, at a fixed rate for paced ones.

A bulk load runs in as many processes as there are cores, each with partitions of its own, so that the order
within a partition, and with it the whole topic, is a function of the seed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Producer

from bench.workloads import values

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event
    from types import TracebackType

    from bench.workloads import Workload

__all__ = ["Feeder", "load"]

_CHUNK = 5_000
_BATCH_BYTES = 256 * 1024
# never fork: the parent holds clients with threads
_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class _Share:
    """What one loading process produces."""

    servers: str
    workload: Workload
    partitions: tuple[int, ...]
    first: int
    records_per_partition: int


def load(servers: str, workload: Workload, records: int, first: int = 0) -> int:
    """
    Produce about so many records, the same number to every partition, no two of one partition equal.

    Args:
        servers: Of the source.
        workload: A bulk one.
        records: How many, over all partitions.
        first: Number of the first record of each partition: how many it holds already.

    Returns:
        How many were produced.

    Raises:
        RuntimeError: A process failed, or a record was not acknowledged.
    """
    each = max(1, records // workload.partitions)
    workers = min(os.cpu_count() or 1, workload.partitions)
    shares = [
        _Share(servers, workload, tuple(range(worker, workload.partitions, workers)), first, each)
        for worker in range(workers)
    ]
    processes = [_PROCESSES.Process(target=_produce_share, args=(share,)) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"loading {workload.topic} failed; see above")
    return each * workload.partitions


def _producer(servers: str, workload: Workload) -> Producer:
    return Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "bench-loader",
            "log_level": 3,  # a fresh broker's coordinator takes a moment; retrying is no news
            "enable.idempotence": True,
            "compression.type": workload.codec,
            "linger.ms": 50,
            "batch.size": _BATCH_BYTES,
            "batch.num.messages": workload.batch_records or 100_000,
            "queue.buffering.max.messages": 400_000,
            "queue.buffering.max.kbytes": 512 * 1024,
        }
    )


def _orphaned() -> bool:
    """Whether the bench has gone, killed perhaps: nothing else would end this process."""
    bench = multiprocessing.parent_process()
    return bench is not None and not bench.is_alive()


def _produce_share(share: _Share) -> None:
    producer = _producer(share.servers, share.workload)
    topic = share.workload.topic
    streams = {
        number: itertools.islice(
            values(share.workload, seed=number, first=share.first), share.records_per_partition
        )
        for number in share.partitions
    }
    while streams:
        for number, stream in list(streams.items()):
            chunk: list[dict[str, Any]] = [{"value": value} for value in itertools.islice(stream, _CHUNK)]
            if not chunk:
                del streams[number]
                continue
            left = chunk
            while left:
                # a full queue refuses the rest of a batch in order; offer exactly that again
                producer.produce_batch(topic, left, partition=number)
                left = [message for message in left if message.pop("_error", None) is not None]
                if left:
                    producer.poll(0.05)
                if _orphaned():
                    return
            producer.poll(0)
    refused = producer.flush(120)
    if refused:
        raise RuntimeError(f"{refused} records of {topic} were not acknowledged")


class Feeder:
    """
    Produces a paced workload from a process of its own until it is left; a context manager.

    Records go to all partitions in turn, evenly spread over each second.

    Args:
        servers: Of the source.
        workload: A paced one.
    """

    def __init__(self, servers: str, workload: Workload) -> None:
        self._stop = _PROCESSES.Event()
        self._process = _PROCESSES.Process(target=_feed, args=(servers, workload, self._stop), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._process.join(30)
        if self._process.exitcode and kind is None:
            raise RuntimeError("the feeder failed; see above")


def _feed(servers: str, workload: Workload, stop: Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "bench-feeder",
            "enable.idempotence": True,
            "linger.ms": 5,
        }
    )
    streams = [values(workload, seed=number) for number in range(workload.partitions)]
    started = time.monotonic()
    count = 0
    while not stop.is_set() and not _orphaned():
        due = int((time.monotonic() - started) * workload.rate)
        while count < due:
            number = count % workload.partitions
            producer.produce(workload.topic, value=next(streams[number]), partition=number)
            count += 1
        producer.poll(0)
        time.sleep(0.01)
    if producer.flush(30):
        raise RuntimeError(f"records of {workload.topic} were not acknowledged")
