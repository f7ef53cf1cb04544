"""The native plane beside the client plane on real brokers: what both make of one source is the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror.localkafka.cluster import ClusterSpec
from support.links.link import TestLink, alter_topic
from support.traffic.records import produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    import random
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write_generated(link: TestLink, word: str, rng: random.Random) -> None:
    """
    A random log: batch sizes, transactions committed or aborted or none, codecs (first that of its name).

    In the end it may have lost its beginning, within a batch: what is left is what a reader of the source sees.
    """
    for number, codec in enumerate([word, *rng.choices(CODECS, k=6)]):
        properties = {
            **link.east,
            "compression.type": codec,
            "batch.size": rng.choice((200, 3_000, 200_000)),
            "linger.ms": rng.choice((0, 5)),
        }
        records = some_records(rng.randrange(10**6), rng.randrange(1, 250))
        if rng.random() < 0.4:
            plain = Producer({**properties, "enable.idempotence": rng.random() < 0.5, "acks": "all"})
            for key, value, timestamp, headers in records:
                plain.produce(link.topic(word), value, key, 0, timestamp=timestamp, headers=list(headers))
            assert plain.flush(30) == 0
            continue
        produce(
            properties, link.topic(word), 1, records, transactional_id=f"{link.topic(word)}.{number}",
            per_transaction=rng.randrange(1, 120), abort_every=rng.choice((0, 1, 2, 5)),
        )  # fmt: skip
    if rng.random() < 0.7:
        offset = len(read_committed(link.east, link.topic(word))[0]) // rng.randrange(2, 6)
        admin = AdminClient(dict(link.east))
        for future in admin.delete_records([TopicPartition(link.topic(word), 0, offset)]).values():
            future.result(30)


def equal_copies(link: TestLink, *words: str) -> None:
    """Both planes, and the native one with headers of ours, make of the source what its readers see."""
    expected = {word: read_committed(link.east, link.topic(word)) for word in words}
    for name, settings in {
        "client": {"plane": "client"},
        "native": {"plane": "native"},
        "rewritten": {"plane": "native", "provenance": "on"},
    }.items():
        link.settings = {"lanes": 1, "naming": {"pattern": f"{name}-{{topic}}"}, **settings}
        link.settings["name"] = f"{link.name}-{name}"
        assert link.catch_up().exit_code == 0
        for word in words:
            assert read_committed(link.west, f"{name}-{link.topic(word)}") == expected[word], (name, word)


def test_both_planes_make_the_same_copy(link: TestLink, rng: random.Random) -> None:
    """EO-11: whatever the source's log is made of; repeat with the seed in the header of the run."""
    for word in CODECS:
        link.create(word)
        write_generated(link, word, rng)
    equal_copies(link, *CODECS)


@pytest.mark.slow
def test_both_planes_make_the_same_copy_of_a_compacted_log(
    start_cluster: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, rng: random.Random
) -> None:
    """EO-11: batches with holes, batches that are empty, tombstones, and markers whose transactions are gone."""
    cleaner = {"log.cleaner.backoff.ms": "100"}
    source = start_cluster(ClusterSpec("compacting", properties=cleaner)).client_properties
    link = TestLink(source, west.client_properties, topic_name, tmp_path, spark_context)
    link.create("state", cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.01")
    topic = link.topic("state")
    written = 0
    for number, codec in enumerate(CODECS * 2):
        records = [
            (
                b"key-%d" % rng.randrange(300),
                None if rng.random() < 0.1 else rng.randbytes(rng.randrange(2_000)),
                1_600_000_000_000 + index,
                (),
            )
            for index in range(400)
        ]
        committed = produce(
            {**source, "compression.type": codec}, topic, 1, records, transactional_id=f"{topic}.{number}",
            per_transaction=rng.randrange(1, 90), abort_every=3,
        )  # fmt: skip
        written += len(committed[0])
    # the cleaner is quick: much may be gone by now
    wait_for(lambda: len(read_committed(source, topic)[0]) < 0.8 * written, 120)
    # what the cleaner takes away between two copies would be a difference of the source
    alter_topic(source, topic, cleanup_policy="delete", retention_ms="-1")
    wait_for(lambda: len(read_committed(source, topic)[0]) == len(read_committed(source, topic)[0]), 30)
    equal_copies(link, "state")


def test_a_link_may_change_its_plane_between_two_runs(link: TestLink) -> None:
    """EO-1: positions mean the same on both planes."""
    link.create("orders", partitions=2)
    for plane in ("client", "native", "client", "native"):
        link.settings["plane"] = plane
        link.write("orders", 150)
        assert link.catch_up().exit_code == 0
        link.check("orders")


def test_a_refused_record_is_left_out_and_the_native_plane_goes_on(link: TestLink) -> None:
    """The client plane seeks the record while the lane runs, and gives the lane back."""
    link.settings.update(plane="native", lanes=1, on_refused="dead-letter")
    link.create("orders", message_timestamp_after_max_ms=str(2**63 - 1))
    link.write("orders", 50)
    with link.running() as run:
        run.wait(lambda: link.whole("orders"))
        alter_topic(link.west, link.copy("orders"), message_timestamp_after_max_ms="3600000")
        time.sleep(1.0)
        future = int(time.time() * 1000) + 7_200_000
        records = [(b"%d" % number, b"value", 1_600_000_000_000, ()) for number in range(60)]
        records[30] = (b"future", b"value", future, ())
        link.write_these("orders", records, abort_every=0)
        del link.written["orders"][0][-30]
        run.wait(lambda: link.whole("orders"))
        for _ in range(2):
            link.write("orders", 50)
            run.wait(lambda: link.whole("orders"))
    link.check("orders")
