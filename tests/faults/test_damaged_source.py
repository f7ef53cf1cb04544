"""
A batch that is damaged where the source keeps it (fault F16): its topic is stopped by name, the others go on.

Brokers send batches as they lie on the disk, without looking at their checksums, so every fetch gives the same.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eomirror.types import SourcePartition
from support.clusters.log_files import HEADER_BYTES, batches
from support.traffic.records import some_records

if TYPE_CHECKING:
    from support.clusters.log_files import LogBatch
    from support.links.link import TestLink
    from support.traffic.records import Record

pytestmark = [
    pytest.mark.faults, pytest.mark.link(injected=True), pytest.mark.fault("F16"), pytest.mark.integration,
    pytest.mark.spark,
]  # fmt: skip

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


def log_of(cluster: Any, topic: str) -> Path:
    """The one segment of partition 0."""
    (log,) = Path(cluster.folder).glob(f"broker-*/data/{topic}-0/*.log")
    return log


def damage(log: Path, batch: LogBatch) -> None:
    """Turn one bit over in the records of a batch."""
    with log.open("r+b") as file:
        file.seek(batch.at + 3)
        (byte,) = file.read(1)
        file.seek(batch.at + 3)
        file.write(bytes([byte ^ 0x10]))


def hollow(log: Path, batch: LogBatch) -> None:
    """Take the length of a batch away: its leader cannot find what begins there, and says CORRUPT_MESSAGE."""
    with log.open("r+b") as file:
        file.seek(batch.at - HEADER_BYTES + _LENGTH_AT)
        file.write(_LENGTH.pack(0))


def write_batch(link: TestLink, word: str, records: list[Record]) -> None:
    """Write without transactions, as one batch; remembered as written."""
    producer = Producer({**link.east, "linger.ms": 200, "batch.num.messages": 10_000})
    for key, value, timestamp, headers in records:
        producer.produce(link.topic(word), value, key, 0, timestamp=timestamp, headers=list(headers))
    assert producer.flush(30) == 0
    link.written[word][0] += records


def ends_in_front(link: TestLink, word: str, text: str) -> None:
    """The topic was stopped with these words in front of its record 60, and what lies before it is mirrored."""
    where = f"{link.topic(word)}-0"
    assert f"{where}: the batch at offset 60 is damaged on the source" in text
    assert f"--resume-at {where}=OFFSET" in text
    assert link.found(word) == {0: link.written[word][0][:60]}


def test_a_batch_that_is_damaged_for_good_stops_its_topic_only(link: TestLink, east: Any) -> None:
    """What lies before it is mirrored, to the last record; what lies behind it is after ``--resume-at``."""
    link.create("damaged", "healthy")
    for seed in range(3):
        write_batch(link, "damaged", some_records(seed, 60))
    log = log_of(east, link.topic("damaged"))
    middle = next(batch for batch in batches(log) if batch.offset == 60)
    behind = middle.offset + middle.count
    damage(log, middle)

    with link.running() as run:
        text = run.wait(lambda: run.stopped.get(link.topic("damaged")))
        link.write("healthy")
        run.wait(lambda: link.whole("healthy"))

    ends_in_front(link, "damaged", text)
    link.check("healthy")

    del link.written["damaged"][0][60:behind]
    assert link.stopped(adopt={SourcePartition(link.topic("damaged"), 0): behind}) == (0, {})
    link.check("damaged")


@pytest.mark.slow
def test_a_log_that_its_leader_cannot_read_stops_its_topic_only(link: TestLink, east: Any) -> None:
    """It is asked for again a few times, for the log may only be changing; other topics go on meanwhile."""
    link.create("hollow", "healthy")
    for seed in range(3):
        write_batch(link, "hollow", some_records(seed, 60))
    log = log_of(east, link.topic("hollow"))
    hollow(log, next(batch for batch in batches(log) if batch.offset == 60))

    with link.running() as run:
        run.wait(lambda: len(link.found("hollow").get(0, ())) == 60)
        link.write("healthy")
        run.wait(lambda: link.whole("healthy"))
        text = run.wait(lambda: run.stopped.get(link.topic("hollow")), 180)
        link.write("healthy")
        run.wait(lambda: link.whole("healthy"))

    ends_in_front(link, "hollow", text)
    link.check("healthy")


@pytest.mark.slow
def test_a_batch_that_is_whole_again_is_no_loss(link: TestLink, east: Any) -> None:
    """Damaged on the way, or on a replica that leads no more: the lane fetches it again, and no operator is called."""
    link.create("damaged")
    for seed in range(2):
        write_batch(link, "damaged", some_records(seed, 60))
    log = log_of(east, link.topic("damaged"))
    last = next(batch for batch in batches(log) if batch.offset == 60)
    damage(log, last)

    with link.running() as run:
        run.wait(lambda: len(link.found("damaged").get(0, ())) == last.offset)
        damage(log, last)
        run.wait(lambda: link.whole("damaged") or run.stopped)
        assert not run.stopped

    link.check("damaged")
