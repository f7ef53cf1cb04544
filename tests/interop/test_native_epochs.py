"""Epoch changes on the native plane: the lane goes on with its producer."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from support.links.link import TestLink
from support.traffic.records import read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# more than other tests leave idle
_WORKERS = 16


def committed(link: TestLink) -> list[dict[str, Any]]:
    """Claims and positions of the link's one lane, in the order in which they were committed."""
    found = read_committed(link.west, f"eomirror.{link.name}.positions")
    # a lane writes to its own partition
    (records,) = [records for records in found.values() if records]
    return [{**orjson.loads(key or b"{}"), **orjson.loads(value or b"{}")} for key, value, _, _ in records]


def mirror_some_epochs(link: TestLink, take_idle_workers: Callable[[], None]) -> None:
    """Mirrors records in two epochs at least after ``take_idle_workers`` has left the lane its own worker."""

    def epochs() -> int:
        return max((item["epoch"] for item in committed(link)), default=0)

    with link.running() as run:
        link.write("orders", 50)
        run.wait(lambda: link.whole("orders"))
        take_idle_workers()
        # the running epoch may have begun before, on a worker that was idle
        for number in range(epochs() + 1, epochs() + 3):
            run.wait(lambda number=number: epochs() >= number)
            link.write("orders", 50)
            run.wait(lambda: link.whole("orders"))


def keep_busy(spark_context: Any, folder: Path) -> None:
    """Takes the workers that are idle, until the file ``done`` appears in the folder; each leaves a file ``busy-N``."""

    def wait(number: int) -> None:
        (folder / f"busy-{number}").touch()
        deadline = time.monotonic() + 240
        while not (folder / "done").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    spark_context.parallelize(range(_WORKERS), _WORKERS).foreach(wait)


def test_a_native_lane_keeps_its_producer_through_epoch_changes(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """
    EO-1, EO-2: from one epoch to the next no lane runs InitProducerId, as long as Spark keeps the worker.

    Every InitProducerId takes a producer epoch of its own, and so does every transaction (KIP-890): so the epochs of
    the transactions of one producer follow each other without a hole, claims included.
    """
    link = TestLink(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, lanes=1, plane="native",
        epoch="5s",
    )  # fmt: skip
    link.create("orders", partitions=2)
    # Spark gives a task the worker that has been idle for longest: a second idle one would take turns with the lane's
    busy = threading.Thread(target=keep_busy, args=(spark_context, tmp_path))

    def take_idle_workers() -> None:
        busy.start()
        wait_for(lambda: len(list(tmp_path.glob("busy-*"))) == _WORKERS, 120)

    try:
        mirror_some_epochs(link, take_idle_workers)
    finally:
        (tmp_path / "done").touch()
        if busy.ident:
            busy.join(60)
    link.check("orders")

    history = committed(link)
    claims = [item for item in history if "lane" in item and "host" in item]
    assert {claim["attempt"] for claim in claims} == {1}
    assert {claim["plane"] for claim in claims} == {"native"}
    # transactions by producer epoch: which epoch of the lane, and which worker
    worker = {claim["epoch"]: claim["pid"] for claim in claims}
    by_transaction: dict[tuple[int, int], int] = {}
    for item in history:
        # a first position is the control producer's
        if item.get("txn") == 0:
            continue
        by_transaction[item["producer_id"], item["producer_epoch"]] = item["epoch"]
    ordered = sorted(by_transaction.items(), key=lambda pair: (pair[1], pair[0]))
    kept = 0
    for ((before_id, before), one), ((after_id, after), other) in itertools.pairwise(ordered):
        if worker[one] == worker[other]:
            assert (after_id, after) == (before_id, before + 1), (one, other)
            kept += one != other
    assert kept > 0, f"no worker was kept: {worker}"
