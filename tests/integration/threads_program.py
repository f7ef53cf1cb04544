"""
Threads that ask one client for offsets of topics that it has not seen, 3,000 times.

Arguments: the cluster's properties as JSON, and a name for topics.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time

from eomirror.config import Cluster
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.cluster_metadata import CreateTopic

_TOPICS = 500
_CLIENTS = 6
_THREADS = 4


def main() -> None:
    """Ask, and compare the answers."""
    cluster = Cluster("west", json.loads(sys.argv[1]))
    names = [f"{sys.argv[2]}-{number}" for number in range(_TOPICS)]
    first = ClusterAdmin(cluster, client_id="first")
    first.create_topics([CreateTopic(name, 1, 1, {}) for name in names])
    while not all(first.describe_topics(names).values()):
        time.sleep(0.1)
    first.offsets([(name, 0) for name in names], at="latest", read_committed=False)
    first.close()

    rng = random.Random(0)
    for _ in range(_CLIENTS):
        # what a client has seen, it does not look for
        admin = ClusterAdmin(cluster, client_id="threads")
        rng.shuffle(names)
        for name in names:
            _ask(admin, name, [0.0, *(rng.uniform(0, 0.002) for _ in range(_THREADS - 1))])
        admin.close()


def _ask(admin: ClusterAdmin, name: str, delays: list[float]) -> None:
    """One question in each thread, so many seconds later."""
    together = threading.Barrier(len(delays))
    found: list[int] = []

    def ask(delay: float) -> None:
        together.wait()
        until = time.perf_counter() + delay
        while time.perf_counter() < until:
            time.sleep(0)
        found.extend(admin.offsets([(name, 0)], at="latest", read_committed=delay > 0).values())

    threads = [threading.Thread(target=ask, args=(delay,)) for delay in delays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if found != [0] * len(delays):
        raise AssertionError(name, found)


if __name__ == "__main__":
    main()
