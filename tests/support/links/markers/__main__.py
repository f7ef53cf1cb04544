"""
Lets producers commit while their only broker is stopped for longer than its session, and looks for torn transactions.

    just lost-markers --lanes 30 --rounds 6 --seed 1

A broker that stood still is fenced for a moment when it goes on: its partitions have no leader then, and Kafka 4.3
leaves the markers of transactions out that end in that moment (docs/adr/0012).  Each lane of the native plane writes
numbered transactions to a topic of its own, and begins anew when one fails, as a mirror does.  Exit code 1: a
transaction that was aborted can be read, or one that was committed cannot.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror._native import NativeLane
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.plane.native.errors import NativeFailureError
from support.traffic.records import create_topic, read_committed

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTITIONS = 3
_TIMEOUT = 5.0
# a broker is fenced when the controller has not heard of it for 9 s
_PAUSES = (7.0, 11.0, 14.0, 20.0)
# this machine's retention must not look at made-up times
_NOW_MS = time.time_ns() // 1_000_000


@dataclass(slots=True)
class Writer:
    """
    One lane, made anew after each failure.

    Attributes:
        outcomes: Of each transaction: ``committed``, ``aborted``, or ``unknown``.
    """

    properties: Mapping[str, str]
    topic: str
    rng: random.Random
    over: threading.Event
    outcomes: dict[int, str] = field(default_factory=dict)
    _lane: NativeLane | None = None

    def run(self) -> None:
        """Write until it is over."""
        number = 0
        while not self.over.is_set():
            number += 1
            try:
                self._write(number)
            except NativeFailureError:
                self._begin_anew(number)

    def _write(self, number: int) -> None:
        lane = self._lane = self._lane or self._opened()
        self.outcomes[number] = "aborted"
        lane.begin(20.0)
        count = self.rng.choice((1, 20, 300))
        for _ in range(self.rng.choice((1, 1, 3))):
            records = [
                (self.topic, self.rng.randrange(_PARTITIONS), b"k", b"%d-%d" % (number, one))
                for one in range(count)
            ]
            lane.write(records, _NOW_MS)
            if self.rng.random() < 0.3:
                # the broker shall be stopped, and go on, in the middle of transactions too
                time.sleep(self.rng.random() * 0.02)
        lane.settle(self.rng.choice((3.0, 5.0)))
        self.outcomes[number] = "unknown"
        lane.commit(self.rng.choice((3.0, 8.0)))
        self.outcomes[number] = "committed"

    def _opened(self) -> NativeLane:
        lane = NativeLane(
            self.properties,
            self.properties,
            transactional_id=self.topic,
            transaction_timeout=_TIMEOUT,
            source_cluster_id="A",
            target_cluster_id="B",
        )
        lane.open(120.0)
        return lane

    def _begin_anew(self, number: int) -> None:
        lane, self._lane = self._lane, None
        if lane is None:
            return
        try:
            if self.outcomes.get(number) == "aborted":
                lane.abort(self.rng.choice((0.5, 2.0, 5.0)))
        except NativeFailureError:
            pass  # the next one's InitProducerId does it
        finally:
            lane.close()

    def torn(self) -> list[str]:
        """Transactions that are not what they were said to be."""
        seen = collections.Counter(
            int(bytes(record[1]).split(b"-")[0])
            for records in read_committed(self.properties, self.topic).values()
            for record in records
        )
        return [
            f"{self.topic}: transaction {number} was {outcome}, and {seen[number]} of its records can be read"
            for number, outcome in self.outcomes.items()
            if (outcome == "aborted" and seen[number]) or (outcome == "committed" and not seen[number])
        ]


def main() -> int:
    """Stop and continue the broker so often, then judge; the exit code."""
    parser = argparse.ArgumentParser(prog="just lost-markers", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--lanes", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with LocalCluster.start(ClusterSpec("paused")) as cluster:
        properties = {name: str(value) for name, value in cluster.client_properties.items()}
        (broker,) = cluster.brokers
        over = threading.Event()
        writers = [
            Writer(properties, f"t{number}", random.Random(f"{asked.seed}/{number}"), over)
            for number in range(asked.lanes)
        ]
        for writer in writers:
            create_topic(properties, writer.topic, _PARTITIONS)
        threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
        for thread in threads:
            thread.start()
        for number in range(asked.rounds):
            time.sleep(rng.uniform(2, 5))
            pause = rng.choice(_PAUSES)
            broker.pause()
            time.sleep(pause)
            broker.resume()
            print(f"round {number + 1} of {asked.rounds}: stood still for {pause:g} s", flush=True)  # noqa: T201
            time.sleep(rng.uniform(4, 10))
        time.sleep(8)
        over.set()
        for thread in threads:
            thread.join(130)
        torn = [line for writer in writers for line in writer.torn()]
    outcomes = collections.Counter(outcome for writer in writers for outcome in writer.outcomes.values())
    print("\n".join(torn))  # noqa: T201  what the program is for
    print(f"seed {asked.seed}: {dict(outcomes)}, {len(torn)} torn")  # noqa: T201  as above
    return int(bool(torn))


if __name__ == "__main__":
    sys.exit(main())
