"""
What a test of one transactional producer behind the proxy needs: a topic, an id, writers, and what is visible.

Everything that is read is read past the proxy.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from eomirror.config import Cluster
from eomirror.demo.clients import Offsets, ReadRecord, read_partition
from eomirror.errors import LaneError
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import CommitOutcome
from support.clusters.frames import Api
from support.clusters.rules import Match
from support.traffic.records import create_topic, wait_for
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    import random

    from support.clusters.decider import Event
    from support.clusters.rig import Rig

__all__ = ["FOREIGN", "Committing", "ForeignWriter", "Stage"]

FOREIGN = b"foreign"
"""Value of every record of a `ForeignWriter`."""


class Stage:
    """One topic of one partition on the target, one transactional.id, and what should be visible."""

    def __init__(self, rig: Rig, topic: str, rng: random.Random) -> None:
        self.topic = topic
        self.proxy = rig.target.proxy
        self.direct = rig.target.direct
        self.proxied = rig.target.proxied
        self.rng = rng
        self.committed: list[bytes] = []
        self._written = 0
        self._producers: list[TransactionalProducer] = []
        create_topic(self.direct, topic)

    def producer(self, *, timeout: float = 15.0, **properties: str) -> TransactionalProducer:
        """A producer through the proxy that has taken the id."""
        settings = {key.replace("_", "."): value for key, value in properties.items()}
        made = TransactionalProducer(
            Cluster("west", {**self.proxied, **settings}),
            client_id=self.topic,
            transactional_id=self.topic,
            transaction_timeout=timeout,
            known_topic=self.topic,
        )
        self._producers.append(made)
        made.init()
        return made

    def spent(self, producer: TransactionalProducer) -> None:
        """What a lane does with a producer whose commit was not clean."""
        self._producers.remove(producer)
        producer.close()

    def close(self) -> None:
        for producer in self._producers:
            producer.close()

    def write(self, producer: TransactionalProducer, *, most: int = 20) -> list[bytes]:
        """Produce some records and see them acknowledged; their values."""
        values = self.values(most)
        producer.produce_all([(self.topic, value, None, 0) for value in values])
        producer.flush(30)
        return values

    def values(self, most: int = 20) -> list[bytes]:
        """Values that no other record has."""
        begin = self._written
        self._written += self.rng.randint(1, most)
        return [b"%06d" % number for number in range(begin, self._written)]

    def transaction(self, producer: TransactionalProducer) -> None:
        """One clean transaction."""
        producer.begin()
        values = self.write(producer)
        assert producer.commit() is CommitOutcome.CLEAN
        self.committed += values

    def some_clean_transactions(self, producer: TransactionalProducer) -> None:
        for _ in range(self.rng.randrange(3)):
            self.transaction(producer)

    def ends(self, *, commit: bool) -> Match:
        """Requests that end a transaction of ours."""
        return Match(api_key=Api.END_TXN, transactional_id=self.topic, commit=commit)

    def of(self, api_key: Api) -> Match:
        """Requests of our transactions."""
        return Match(api_key=api_key, transactional_id=self.topic)

    def deliver_late(self, rule: str) -> Event:
        """Let the straggler go, and wait for what the broker says to it."""
        self.proxy.await_event("held", rule)
        self.proxy.release(rule)
        return self.proxy.await_event("late answer", rule)

    def shows(self, values: list[bytes]) -> None:
        """A read_committed reader sees these and no others, once the markers of what was committed are written."""
        with suppress(AssertionError):
            wait_for(lambda: self.visible() == values)
        assert self.visible() == values

    def visible(self) -> list[bytes | None]:
        """What a read_committed reader sees now, past the proxy."""
        return [record.value for record in self.records()]

    def records(self) -> list[ReadRecord]:
        end = Offsets(self.direct).ends(self.topic, 1, committed=True)[0]
        return list(read_partition(self.direct, self.topic, 0, end))

    def nothing_is_open(self) -> bool:
        return not Offsets(self.direct).open_transactions(self.topic, 1)


class Committing(threading.Thread):
    """A commit that may take longer than a test can wait."""

    def __init__(self, producer: TransactionalProducer) -> None:
        super().__init__(daemon=True)
        self.producer = producer
        self.result: CommitOutcome | LaneError | None = None
        self.seconds = 0.0
        self.start()

    def run(self) -> None:
        began = time.monotonic()
        try:
            self.result = self.producer.commit()
        except LaneError as error:
            self.result = error
        self.seconds = time.monotonic() - began

    def wait(self, seconds: float) -> bool:
        """Whether it is over, after so many seconds at most."""
        self.join(seconds)
        return not self.is_alive()


class ForeignWriter(WorkerThread):
    """Another application that writes into the same partition, past the proxy, while its block runs."""

    def __init__(self, stage: Stage) -> None:
        super().__init__("foreign writer")
        self._topic = stage.topic
        self._producer = Producer({**stage.direct, "linger.ms": 0})

    def work(self) -> None:
        while not self.asked.wait(0.005):
            self.write()
        self._producer.flush(30)

    def write(self) -> None:
        """One record, and wait until it is there."""
        self._producer.produce(self._topic, FOREIGN, partition=0)
        self._producer.flush(30)
