"""Brokers' quotas on the native plane: who asks to be left alone is, and that is counted (KIP-13, KIP-219)."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror._native import NativeLane
from eomirror.config import load_config
from eomirror.kafka.admin import ClusterAdmin
from support.traffic.records import create_topic, produce, read_committed

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.integration

_ALTER_CLIENT_QUOTAS = 49


def set_quota(properties: Mapping[str, str], client_id: str, **rates: float | None) -> None:
    """
    Set or take away quotas of a client id, in bytes per second.

    AlterClientQuotas, version 0 (KIP-546), by hand: librdkafka has no call for it.
    """

    def text(word: str) -> bytes:
        return struct.pack(">h", len(word)) + word.encode()

    operations = b"".join(
        text(name) + struct.pack(">d?", rate or 0.0, rate is None) for name, rate in rates.items()
    )
    entity = struct.pack(">i", 1) + text("client-id") + text(client_id)
    body = struct.pack(">i", 1) + entity + struct.pack(">i", len(rates)) + operations + b"\0"
    request = struct.pack(">hhi", _ALTER_CLIENT_QUOTAS, 0, 1) + text("quotas") + body
    host, _, port = properties["bootstrap.servers"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(struct.pack(">i", len(request)) + request)
        answer = line.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        # correlation id, throttle time, number of entries, and the first one's code
        (code,) = struct.unpack_from(">12xh", answer.read(size))
    assert code == 0, f"AlterClientQuotas: {code}"


@pytest.fixture
def lane(east: Any, west: Any, topic_name: str) -> Iterator[NativeLane]:
    """A lane from a topic to its copy."""
    cluster_ids = []
    for name, cluster in (("east", east), ("west", west)):
        create_topic(cluster.client_properties, topic_name if name == "east" else f"copy-{topic_name}")
    config = load_config(
        {
            "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
            "links": [{"source": "east", "target": "west", "topics": ["t"]}],
        }
    )
    for alias in ("east", "west"):
        admin = ClusterAdmin(config.clusters[alias], client_id="test")
        cluster_ids.append(admin.describe_cluster().cluster_id)
        admin.close()
    made = NativeLane(
        {**east.client_properties, "client.id": f"source-{topic_name}"},
        {**west.client_properties, "client.id": f"target-{topic_name}"},
        transactional_id=topic_name,
        transaction_timeout=60.0,
        source_cluster_id=cluster_ids[0],
        target_cluster_id=cluster_ids[1],
    )
    made.route(topic_name, f"copy-{topic_name}", target_id=None, max_batch_bytes=1_000_000)
    yield made
    made.close()


def copy_all(lane: NativeLane, topic: str, records: int) -> float:
    """Copy so many records in small transactions; CPU seconds of this process meanwhile."""
    lane.open(30.0)
    lane.start([(topic, 0, 0, None, None, None)])
    began, copied, until = time.process_time(), 0, time.monotonic() + 120
    while copied < records:
        assert time.monotonic() < until, f"{copied} of {records} records within 120 s"
        if not lane.await_records(5.0):
            continue
        lane.begin(30.0)
        found, _, _, _ = lane.pump(1.0, 40_000)
        lane.settle(60.0)
        lane.commit(60.0)
        copied += found
    return time.process_time() - began


@pytest.mark.slow
def test_quotas_are_obeyed_and_counted(
    lane: NativeLane, east: Any, west: Any, topic_name: str, rng: random.Random
) -> None:
    """Fetch and Produce answers ask for pauses; the lane waits without work, and all records arrive."""
    written = produce(
        {**east.client_properties, "batch.size": "5000"},
        topic_name,
        1,
        [(b"%d" % number, rng.randbytes(100), 1_600_000_000_000, ()) for number in range(2000)],
        transactional_id=topic_name,
        abort_every=0,
        per_transaction=200,
    )
    # a broker allows what the rate gives in ten seconds, and then asks for pauses
    quotas = {
        "source": (east.client_properties, {"consumer_byte_rate": 15_000.0}),
        "target": (west.client_properties, {"producer_byte_rate": 15_000.0}),
    }
    for side, (properties, rates) in quotas.items():
        set_quota(properties, f"{side}-{topic_name}", **rates)
    try:
        busy = copy_all(lane, topic_name, 2000)
    finally:
        for side, (properties, rates) in quotas.items():
            set_quota(properties, f"{side}-{topic_name}", **dict.fromkeys(rates))

    assert read_committed(west.client_properties, f"copy-{topic_name}") == written
    throttled = lane.throttled()
    assert all(answers > 0 and seconds > 0 for answers, seconds in throttled), throttled
    # a lane that does not wait asks again and again, and burns what it waits
    assert busy < max(seconds for _, seconds in throttled) / 2
