"""
What the commit witness costs: CPU of a clean transaction with and without it, and of a record.

Both sides produce the same records in the same transactions to the same topic, in turns; the one through
`TransactionalProducer` (interceptors, acknowledged offsets, verdict), the other through a plain producer with the
same settings.  CPU is that of this process with all of librdkafka's threads, so it is an upper bound: our Python
around the producer is in it as well.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bench.topics import Topics
from eomirror.config import Cluster
from eomirror.config.clients import producer_properties
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import CommitOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.process import Site

__all__ = ["WitnessCost", "measure_witness", "witness_markdown"]

_TOPIC = "bench-witness"
_VALUE = bytes(100)
_ROUNDS = 7
_TIMEOUT = 15.0
# a pause lets the markers be written, so that neither side is sent away by the coordinator
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessCost:
    """
    Medians over the rounds, in microseconds of CPU.

    Attributes:
        small: Per transaction of 10 records, with the witness.
        small_plain: The same without.
        large: Per record in transactions of 20,000 records, with the witness.
        large_plain: The same without.
        suspects: Transactions that were not clean; on an undisturbed broker there are none.
    """

    small: float
    small_plain: float
    large: float
    large_plain: float
    suspects: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def witness_markdown(cost: WitnessCost) -> str:
    """A table for a report."""
    small = f"{cost.small_plain:.0f} | {cost.small:.0f} | {cost.small - cost.small_plain:+.0f}"
    large = f"{cost.large_plain:.2f} | {cost.large:.2f} | {cost.large - cost.large_plain:+.2f}"
    return "\n".join(
        [
            "| CPU, us | plain | with the witness | difference |",
            "|---|---:|---:|---:|",
            f"| a transaction of 10 records | {small} |",
            f"| a record of a large transaction | {large} |",
            "",
            f"Transactions that were not clean: {cost.suspects}.",
        ]
    )


def measure_witness(site: Site) -> WitnessCost:
    """Measure; takes about a minute."""
    Topics(site.target).delete(_TOPIC)
    Topics(site.target).create(_TOPIC, 1)
    cluster = Cluster("target", {"bootstrap.servers": site.target})
    watched = TransactionalProducer(
        cluster,
        client_id="bench",
        transactional_id="bench-witness",
        transaction_timeout=_TIMEOUT,
        known_topic=_TOPIC,
    )
    watched.init()
    plain = Producer(
        {
            **producer_properties(
                cluster,
                client_id="bench",
                transactional_id="bench-plain",
                transaction_timeout_ms=int(_TIMEOUT * 1000),
            ),
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 500_000,
            "linger.ms": 0,
        }
    )
    plain.init_transactions(30)
    suspects = 0

    def with_witness(count: int) -> None:
        nonlocal suspects
        watched.begin()
        watched.produce_all([(_TOPIC, _VALUE, None, 0)] * count)
        watched.flush(_TIMEOUT)
        watched.take_acks()
        suspects += watched.commit() is not CommitOutcome.CLEAN

    def without(count: int) -> None:
        plain.begin_transaction()
        for _ in range(count):
            plain.produce(_TOPIC, _VALUE, None, 0)
        plain.flush(_TIMEOUT)
        plain.commit_transaction(-1)

    def medians(transactions: int, count: int) -> tuple[float, float]:
        taken: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(_ROUNDS):
            taken["with"].append(_cpu(lambda: with_witness(count), transactions))
            taken["without"].append(_cpu(lambda: without(count), transactions))
        return statistics.median(taken["with"]), statistics.median(taken["without"])

    medians(50, 10)  # warm-up
    small, small_plain = medians(200, 10)
    large, large_plain = medians(3, 20_000)
    watched.close()
    return WitnessCost(
        small=small,
        small_plain=small_plain,
        large=large / 20_000,
        large_plain=large_plain / 20_000,
        suspects=suspects,
    )


def _cpu(transaction: Callable[[], None], times: int) -> float:
    """Microseconds of this process's CPU per transaction."""
    before = time.process_time()
    for _ in range(times):
        transaction()
        time.sleep(_PAUSE_SECONDS)
    return (time.process_time() - before) / times * 1e6
