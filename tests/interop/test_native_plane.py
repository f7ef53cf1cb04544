"""The native plane beside the client plane on real brokers: what both make of one source is the same."""

from __future__ import annotations

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
        "rewritten": {"plane": "native", "provenance_header": True},
    }.items():
        link.settings = {"lanes": 1, "naming": {"pattern": f"{name}-{{topic}}"}, **settings}
        link.settings["name"] = f"{link.name}-{name}"
        assert link.catch_up().exit_code == 0
        copies[name] = {codec: read_committed(link.west, f"{name}-{link.topic(codec)}") for codec in CODECS}

    assert copies["client"] == link.written
    assert copies["native"] == link.written
    for codec in CODECS:
        for partition, records in copies["rewritten"][codec].items():
            bare = [
                (key, value, timestamp, tuple(header for header in headers if header[0] != "eomirror.hops"))
                for key, value, timestamp, headers in records
            ]
            assert bare == link.written[codec][partition]
            assert all(headers[-1][0] == "eomirror.hops" for *_, headers in records)


def test_a_link_may_change_its_plane_between_two_runs(link: TestLink) -> None:
    """EO-1: positions mean the same on both planes."""
    link.create("orders", partitions=2)
    for plane in ("client", "native", "client", "native"):
        link.settings["plane"] = plane
        link.write("orders", 150)
        assert link.catch_up().exit_code == 0
        link.check("orders")


def test_a_refused_record_is_left_out_and_the_native_plane_goes_on(link: TestLink) -> None:
    """A record that is too large for the target is found by the client plane, and stops nothing else."""
    link.settings.update(plane="native", lanes=1, on_refused="dead-letter")
    link.create("orders")
    link.write("orders", 50)
    assert link.catch_up().exit_code == 0
    alter_topic(link.west, link.copy("orders"), max_message_bytes="20000")
    before, large, after = (
        some_records(7, 40),
        (b"large", b"x" * 60_000, 1_600_000_000_000, ()),
        some_records(8, 40),
    )
    link.write_these("orders", [*before, large, *after], abort_every=0)
    link.write("orders", 50)

    assert link.catch_up().exit_code == 0

    expected = [record for record in link.written["orders"][0] if record != large]
    assert link.found("orders")[0] == expected
