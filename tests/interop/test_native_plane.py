"""The native plane beside the client plane on real brokers: what both make of one source is the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from records import produce, read_committed, some_records
from rig.link import TestLink, alter_topic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def link(east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any) -> TestLink:
    """A link named after the test's unique topic name."""
    return TestLink(east.client_properties, west.client_properties, topic_name, tmp_path, spark_context)


def write_each_codec(link: TestLink, count: int) -> None:
    """Records of every shape in every codec, in batches of many sizes, one transaction in ten aborted."""
    for number, codec in enumerate(CODECS):
        link.create(codec, partitions=2)
        committed = produce(
            {**link.east, "compression.type": codec},
            link.topic(codec),
            2,
            some_records(100 + number, count),
            transactional_id=f"{link.name}.{codec}",
            per_transaction=7 + 60 * number,
        )
        for partition, records in committed.items():
            link.written[codec][partition] += records


def test_both_planes_make_the_same_copy(link: TestLink) -> None:
    """EO-11: every codec, small and large batches, aborted transactions, with and without a provenance header."""
    write_each_codec(link, 600)
    copies: dict[str, dict[str, Any]] = {}
    for name, settings in {
        "client": {"plane": "client"},
        "native": {"plane": "native"},
        "rewritten": {"plane": "native", "provenance": "on"},
    }.items():
        link.settings = {"lanes": 1, "naming": {"pattern": f"{name}-{{topic}}"}, **settings}
        link.settings["name"] = f"{link.name}-{name}"
        assert link.catch_up().exit_code == 0
        copies[name] = {codec: read_committed(link.west, f"{name}-{link.topic(codec)}") for codec in CODECS}

    # the reader leaves the provenance header out
    for copy in copies.values():
        assert copy == link.written


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
