"""Threads of the demo: the traffic, a reader that watches the target, and one that counts claims of lanes."""

from __future__ import annotations

import contextlib
import threading
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

import orjson

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.demo.clients import CommittedReader, Offsets, ReadRecord, TrafficProducer
from eomirror.demo.compare import SeenRecords
from eomirror.demo.traffic import Stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.demo.traffic import TrafficPlan

__all__ = ["ClaimWatcher", "TopicWatcher", "Traffic"]

_POLL_SECONDS = 0.05
_LOOK_SECONDS = 0.2
_US = 1_000_000


class _Worker(threading.Thread):
    """Thread that ends on request; `check` raises its failure in the waiting thread."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(name=name, daemon=True)
        self._clock = clock
        self.asked = threading.Event()
        self._failure: Exception | None = None

    def run(self) -> None:
        """Work until asked to stop; keeps what goes wrong."""
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  `check` raises it again in the waiting thread
            self._failure = error

    def _work(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Ask it to stop, wait until it has, and raise what went wrong."""
        self.asked.set()
        with contextlib.suppress(RuntimeError):  # it never began
            self.join()
        self.check()


class Traffic(_Worker):
    """
    Steady transactional traffic.

    Args:
        rate: Records per second, aborted ones included; 0 for as fast as it goes.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        plan: TrafficPlan,
        *,
        rate: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__("traffic", clock)
        self._properties = dict(properties)
        self._topic = topic
        self._plan = plan
        self._rate = rate
        self.ledger = plan.new_ledger()

    def _work(self) -> None:
        producer = TrafficProducer(
            self._properties, topic=self._topic, transactional_id=f"demo.traffic.{self._topic}"
        )
        pace = self._plan.per_transaction / self._rate if self._rate else 0.0
        due = self._clock.monotonic()
        number = 0
        while not self.asked.is_set():
            now = self._clock.monotonic()
            transaction = self._plan.transaction(
                number, self.ledger, sent_us=int(now * _US), wall_ms=self._clock.wall_ms()
            )
            producer.write(transaction)
            self.ledger.enter(transaction)
            number += 1
            # what a slow moment cost is not made up for by a burst
            due = max(due + pace, self._clock.monotonic() - pace)
            self.asked.wait(max(0.0, due - self._clock.monotonic()))


class _TopicReader(_Worker):
    """
    Reads all committed records of a topic, which need not exist yet, from its beginning.

    Args:
        partitions: Number of partitions to wait for and to read; 0 for all that the topic has.
    """

    def __init__(
        self, properties: Mapping[str, str], topic: str, partitions: int, *, verb: str, clock: Clock
    ) -> None:
        super().__init__(f"{verb} {topic}", clock)
        self._properties = dict(properties)
        self._topic = topic
        self._partitions = partitions
        self._ended: Mapping[int, int] = {}

    def _work(self) -> None:
        offsets = Offsets(self._properties)
        while (count := offsets.partitions(self._topic)) < max(1, self._partitions):
            if self.asked.wait(_LOOK_SECONDS):
                return
        reader = CommittedReader(
            self._properties, self._topic, dict.fromkeys(range(self._partitions or count), 0)
        )
        self._ended = reader.ended
        try:
            while not self.asked.is_set():
                records = reader.poll(_POLL_SECONDS)
                now = int(self._clock.monotonic() * _US)
                for record in records:
                    self._see(record, now)
        finally:
            reader.close()

    def _see(self, record: ReadRecord, now: int) -> None:
        raise NotImplementedError


class TopicWatcher(_TopicReader):
    """A read_committed reader that remembers everything it was ever shown, and when."""

    def __init__(
        self, properties: Mapping[str, str], topic: str, partitions: int, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(properties, topic, partitions, verb="watch", clock=clock)
        self.histories = {number: SeenRecords() for number in range(partitions)}
        #: of every record, in the order of arrival; microseconds of the monotonic clock
        self.arrived = array("Q")
        #: records whose own checksum or partition does not fit
        self.broken = 0
        #: records that were shown before
        self.duplicates = 0
        #: records that were not shown, although a later one of their partition was
        self.lost = 0
        #: monotonic second of the first record behind the offsets of `await_behind`
        self.back: float | None = None
        self._behind: Mapping[int, int] = {}
        self._shown: dict[int, set[int]] = {number: set() for number in range(partitions)}
        self._next = dict.fromkeys(range(partitions), 0)

    @property
    def records(self) -> int:
        """Records seen so far."""
        return len(self.arrived)

    @property
    def mirrored(self) -> int:
        """Different records seen so far."""
        return self.records - self.duplicates - self.broken

    def first_arrival(self, after: float) -> float | None:
        """When the first record arrived after that monotonic second; None if none has."""
        following = bisect_right(self.arrived, int(after * _US))
        return self.arrived[following] / _US if following < len(self.arrived) else None

    def await_behind(self, ends: Mapping[int, int]) -> None:
        """Sets `back` at the next record that lies at one of these offsets or behind it."""
        self.back, self._behind = None, ends

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Returns true once it has read every partition up to these offsets."""
        return all(self._ended.get(number, 0) >= end for number, end in ends.items())

    def _see(self, record: ReadRecord, now: int) -> None:
        stamp = Stamp.of(record.headers)
        if stamp is None or not stamp.fits(record.partition, record.key, record.value):
            self.broken += 1
        else:
            self._count(stamp)
        self.histories[record.partition].see(record)
        self.arrived.append(now)
        if self.back is None and record.offset >= self._behind.get(record.partition, 0):
            self.back = now / _US

    def _count(self, stamp: Stamp) -> None:
        shown, following = self._shown[stamp.partition], self._next[stamp.partition]
        if stamp.sequence in shown:
            self.duplicates += 1
            return
        shown.add(stamp.sequence)
        # one that comes behind later ones was counted as lost
        self.lost += max(stamp.sequence - following, -1)
        self._next[stamp.partition] = max(following, stamp.sequence + 1)


class ClaimWatcher(_TopicReader):
    """
    Counts the attempts of lanes that have begun, by their claims on the target.

    Args:
        topic: The link's positions topic; it need not exist yet.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(properties, topic, 0, verb="count", clock=clock)
        self.claims = 0

    def _see(self, record: ReadRecord, now: int) -> None:
        del now
        self.claims += "lane" in orjson.loads(record.key or b"{}")
