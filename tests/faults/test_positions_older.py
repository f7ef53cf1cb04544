"""
Positions that are older than the copy, whose retention has deleted the records behind them (fault F21).

Readers had those records.  Who believes the positions mirrors them a second time.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror.demo.clients import Offsets
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.records.names import LinkNames
from support.links.plane import kafka_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.links.link import TestLink


pytestmark = [
    pytest.mark.faults, pytest.mark.link(injected=True, lanes=1), pytest.mark.fault("F21"),
    pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(400),
]  # fmt: skip


@pytest.fixture(scope="module")
def fragile() -> Iterator[LocalCluster]:
    """A target whose state topics are put back to what they were."""
    with LocalCluster.start(ClusterSpec("forgetful", kafka_version=kafka_of("west"))) as cluster:
        yield cluster


@pytest.fixture
def link_target(fragile: LocalCluster) -> LocalCluster:
    """Links write to that cluster."""
    return fragile


def delete_records(link: TestLink, word: str, before: int) -> None:
    """Deletes the records of a copy up to an offset, as retention does; -1: all."""
    admin, wanted = AdminClient(link.west), TopicPartition(link.copy(word), 0, before)
    admin.delete_records([wanted])[wanted].result(30)


@pytest.mark.parametrize(
    "left",
    [pytest.param(0, id="all of them", marks=pytest.mark.slow), pytest.param(40, id="the first of them")],
)
def test_records_behind_an_older_position_that_are_deleted_are_not_mirrored_again(
    link: TestLink, fragile: LocalCluster, tmp_path: Path, left: int
) -> None:
    """EO-5: the positions were restored alone; the topic stops by name, exit code 4, and others go on."""
    link.create("old", "new")
    for word in ("old", "new"):
        link.write(word)
    link.catch_up()
    (broker,) = fragile.brokers
    data = broker.folder / "data"
    logs = [each.name for each in data.glob(f"eomirror.{link.name}.positions-*")]
    assert logs
    broker.stop()
    for name in logs:
        shutil.copytree(data / name, tmp_path / name)
    broker.start()
    link.write("old", 500)
    link.catch_up()
    link.check("old", "new")
    end = Offsets(link.west).ends(link.copy("old"), 1, committed=False)[0]
    delete_records(link, "old", end - left)
    broker.stop()
    for name in logs:
        shutil.rmtree(data / name)
        shutil.copytree(tmp_path / name, data / name)
    broker.start()
    link.write("new")
    before = link.found("old")

    code, stopped = link.stopped()

    assert code == 4
    assert set(stopped) == {"old"}
    assert "the positions were truncated or restored from an older state" in stopped["old"]
    assert link.found("old") == before
    link.check("new")


def test_aborted_attempts_behind_a_position_that_are_deleted_are_no_alarm(link: TestLink) -> None:
    """EO-5: the lane died in a transaction, and retention has deleted all of the copy since; it goes on."""
    link.create("orders")
    link.write("orders")
    link.catch_up()
    # a lane that dies in a transaction: the next InitProducerId of its id aborts what it wrote
    for _ in range(2):
        lane = Producer({**link.west, "transactional.id": LinkNames(link.name).transactional_id(0)})
        lane.init_transactions(30)
        lane.begin_transaction()
        for number in range(300):
            lane.produce(link.copy("orders"), b"%d" % number, b"k", partition=0)
        assert lane.flush(30) == 0
        lane.abort_transaction(30)
    delete_records(link, "orders", -1)
    mirrored = len(link.written["orders"][0])
    link.write("orders")

    assert link.stopped() == (0, {})

    assert link.found("orders")[0] == link.written["orders"][0][mirrored:]
    delete_records(link, "orders", -1)
    assert link.stopped() == (0, {})
