"""The application of a fault test: writes in transactions, some of them aborted, and can be told to hold still."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.demo.clients import TrafficProducer
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eomirror.demo.traffic import TrafficPlan

__all__ = ["Writer"]

# a new leader on a busy machine takes its time
_SECONDS = 120.0


class Writer(WorkerThread):
    """
    Steady traffic from a thread, and bursts from callers.

    Args:
        properties: Of the source cluster.
        topic: Where to write.
        plan: What to write.
        rate: Records per second of the thread, aborted ones included.

    Attributes:
        ledger: What was committed.
        rate: As above.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, plan: TrafficPlan, *, rate: float) -> None:
        super().__init__(f"write {topic}")
        self.ledger = plan.new_ledger()
        self._plan = plan
        self.rate = rate
        # reentrant: a test may write while it holds the thread still
        self._turn = threading.RLock()
        self._number = 0
        self._make = lambda: TrafficProducer(
            dict(properties), topic=topic, transactional_id=f"fault.traffic.{topic}", seconds=_SECONDS
        )
        self._producer = self._make()

    def work(self) -> None:
        """Write until asked to stop; what goes wrong is raised in `check`."""
        pace = self._plan.per_transaction / self.rate
        due = time.monotonic()
        while not self.asked.is_set():
            self._transaction()
            # what a slow moment cost is not made up for by a burst
            due = max(due + pace, time.monotonic() - pace)
            self.asked.wait(max(0.0, due - time.monotonic()))

    def write(self, records: int) -> None:
        """Commit so many more records now, as fast as it goes."""
        goal = self.ledger.records + records
        while self.ledger.records < goal:
            self._transaction()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is written by the thread, and no transaction is open, while the block runs."""
        with self._turn:
            yield

    def widen(self, partitions: int) -> None:
        """From now on write to so many partitions."""
        with self._turn:
            self.ledger.sequences.extend([0] * (partitions - len(self.ledger.sequences)))
            self._plan = replace(self._plan, partitions=partitions)
            # the old one would learn of new partitions with its next refresh, in minutes
            self._producer = self._make()

    def _transaction(self) -> None:
        with self._turn:
            transaction = self._plan.transaction(
                self._number,
                self.ledger,
                sent_us=int(time.monotonic() * 1_000_000),
                wall_ms=time.time_ns() // 1_000_000,
            )
            self._producer.write(transaction)
            self.ledger.enter(transaction)
            self._number += 1
