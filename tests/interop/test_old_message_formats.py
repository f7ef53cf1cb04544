"""
Message format 1, of Kafka before 0.11, in the log of a broker that runs today.

No broker of Kafka 4 writes it, and each of them reads and sends it as it lies in the log.  So these tests write a
segment while the broker is stopped, without indexes, which the broker rebuilds when it starts.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import load_config
from eomirror.localkafka.cluster import ClusterSpec
from eomirror.status.reader import StatusReader
from support.links.link import TestLink
from support.traffic.records import Record, read_committed

if TYPE_CHECKING:
    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_COUNT = 60


def _field(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def _message(offset: int, record: Record) -> bytes:
    """Returns one message of format 1, uncompressed (https://kafka.apache.org/documentation/#messageset)."""
    key, value, timestamp, _ = record
    checked = struct.pack(">bbq", 1, 0, timestamp) + _field(key) + _field(value)
    body = struct.pack(">I", zlib.crc32(checked)) + checked
    return struct.pack(">qi", offset, len(body)) + body


def _old_records() -> list[Record]:
    keys, values = (None, b"", b"k%d"), (None, b"", b"v%d")
    return [
        (
            key % number if (key := keys[number % 3]) else key,
            value % number if (value := values[number // 3 % 3]) else value,
            1_450_000_000_000 + number,
            (),
        )
        for number in range(_COUNT)
    ]


def _age(cluster: LocalCluster, topic: str, records: list[Record]) -> None:
    """Put records of an old format into the empty log of partition 0."""
    (broker,) = cluster.brokers
    broker.stop()
    (log,) = Path(cluster.folder).glob(f"broker-*/data/{topic}-0/*.log")
    assert log.stat().st_size == 0, "the log is empty"
    for index in log.parent.glob("*.*index"):
        index.unlink()
    log.write_bytes(b"".join(_message(offset, record) for offset, record in enumerate(records)))
    broker.start(timeout=60)


def _planes(link: TestLink) -> set[tuple[str, str]]:
    """Which plane serves each lane, and why, as `status` tells."""
    config = load_config(link.path)
    reader = StatusReader(config.links[0], config.clusters["east"], config.clusters["west"])
    try:
        lanes = reader.read().lanes.values()
    finally:
        reader.close()
    return {(lane.serving.plane, lane.serving.reason) for lane in lanes}


def test_a_topic_of_an_old_message_format_is_mirrored_by_the_client_plane(
    start_cluster: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """``plane: auto`` switches behind what the native plane has mirrored, in one attempt, and mirrors everything."""
    aged = start_cluster(ClusterSpec("aged"))
    properties = aged.client_properties, west.client_properties
    link = TestLink(*properties, topic_name, tmp_path, spark_context, lanes=1, plane="auto")
    link.create("old", "modern")
    link.write("modern")
    link.catch_up()
    assert _planes(link) == {("native", "")}
    old = _old_records()
    _age(aged, link.topic("old"), old)
    link.written["old"][0] += old
    link.write("old")
    link.write("modern")
    assert read_committed(aged.client_properties, link.topic("old")) == link.written["old"]

    report = link.catch_up()

    assert report.exit_code == 0, report
    assert not report.links[0].stopped_topics
    link.check("old", "modern")
    ((plane, reason),) = _planes(link)
    assert plane == "client"
    assert f"{link.topic('old')}-0" in reason
    assert "message format 1 of Kafka before 0.11" in reason


def test_a_link_that_asks_for_the_native_plane_stops_a_topic_of_an_old_format_by_name(
    start_cluster: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """``plane: native`` is no choice of ours: the error names format and fix, and the other topic goes on."""
    aged = start_cluster(ClusterSpec("aged"))
    properties = aged.client_properties, west.client_properties
    link = TestLink(*properties, topic_name, tmp_path, spark_context, lanes=1, plane="native")
    link.create("old", "modern")
    _age(aged, link.topic("old"), _old_records())
    link.write("modern")

    code, stopped = link.stopped()

    assert (code, set(stopped)) == (1, {"old"})
    assert f"{link.topic('old')}-0: batch at offset 0: message format 1" in stopped["old"]
    assert "plane: auto" in stopped["old"]
    link.check("modern")
