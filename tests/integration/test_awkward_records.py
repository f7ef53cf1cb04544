"""EO-11 on real brokers: records at the limits of what Kafka takes arrive byte for byte."""

from __future__ import annotations

import ctypes
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    Producer,
    TopicPartition,
)
from test_mirror import Link

from support.links.link import alter_topic
from support.traffic.records import (
    create_topic,
    is_within,
    lost_beyond_compaction,
    produce,
    read_committed,
    some_records,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from support.traffic.records import Record

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_T0 = 1_600_000_000_000
# of a topic without settings, for a whole record batch
_MAX_MESSAGE_BYTES = 1_048_588
_CODECS = ("gzip", "snappy", "lz4", "zstd")

Shape = dict[int, list["Record"]]


@pytest.fixture
def link(east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any) -> Link:
    """A link named after the test's unique topic name."""
    return Link(east, west, topic_name, tmp_path, spark_context)


def write(
    properties: Mapping[str, Any], topic: str, records: Iterable[Record], **settings: Any
) -> list[Record]:
    """Write records to partition 0 without a transaction; gives what was written."""
    producer = Producer(
        {
            **properties,
            "enable.idempotence": True,
            "message.max.bytes": 2_000_000,
            "linger.ms": 50,
            **settings,
        }
    )
    written = list(records)
    refused: list[Any] = []
    for key, value, timestamp, headers in written:
        producer.produce(
            topic,
            value,
            key,
            0,
            timestamp=timestamp,
            headers=list(headers),
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not refused
    return written


# -- shapes that one run of the mirror carries over together ---------------------------------------------------------


def thousand_headers() -> list[Record]:
    """Names that repeat, some without a value."""
    headers = tuple(
        (f"h{number % 300}", None if number % 7 == 0 else b"%d" % number) for number in range(1_000)
    )
    return [(b"k", b"v", _T0, headers), (b"k", b"v", _T0 + 1, ())]


def large(size: int) -> list[Record]:
    """As large as the source's topic takes, twice, with a small one between them."""
    value = random.Random(size).randbytes(size)
    return [(None, value, _T0, ()), (b"k", b"small", _T0 + 1, ()), (None, value[::-1], _T0 + 2, ())]


def odd_headers() -> list[Record]:
    """Empty names, empty values, null values, the same name twice in either order, and names beyond ASCII."""
    return [
        (b"k", b"v", _T0 + number, headers)
        for number, headers in enumerate(
            [
                (("", b""),),
                (("", None), ("", b"x"), ("", b"")),
                (("h", b"2"), ("h", b"1")),
                (("h", b"1"), ("h", b"2")),
                (("h", b"1"), ("h", b"1")),
                (("\u00e9\u4e16\U0001f600", b"\x00\xff"),),
                (("a" * 30_000, b"b" * 30_000),),
            ]
        )
    ]


def nothing_in_them() -> list[Record]:
    """Every mixture of null and empty keys and values; none of them is another."""
    return [
        (key, value, _T0 + number, ())
        for number, (key, value) in enumerate((k, v) for k in (None, b"", b"\0") for v in (None, b"", b"\0"))
    ]


def compressible(codec: str) -> list[Record]:
    """Enough for several batches that a codec makes smaller, and records of every shape between them."""
    text = f"{codec} " * 40
    return [
        (b"%d" % number, text.encode() + b"%d" % number, _T0 + number, (("codec", codec.encode()),))
        for number in range(2_000)
    ] + some_records(len(codec), 200)


# a batch's header, and what the record needs besides its value
_LARGEST = _MAX_MESSAGE_BYTES - 61 - 16

SHAPES: dict[str, tuple[list[Record], dict[str, Any]]] = {
    "a thousand headers": (thousand_headers(), {}),
    "the largest record": (large(_LARGEST), {}),
    "odd headers": (odd_headers(), {}),
    "nothing in them": (nothing_in_them(), {}),
    **{codec: (compressible(codec), {"compression.type": codec}) for codec in _CODECS},
}


@pytest.fixture(scope="module")
def copies(
    east: Any, west: Any, tmp_path_factory: pytest.TempPathFactory, spark_context: Any
) -> dict[str, tuple[list[Record], Shape, Shape]]:
    """Each shape as it was written, as a reader of the source sees it, and as one of the target does."""
    link = Link(east, west, "awkward", tmp_path_factory.mktemp("awkward"), spark_context)
    written = {}
    for shape, (records, settings) in SHAPES.items():
        topic = f"awkward.{shape.replace(' ', '-')}"
        create_topic(link.east, topic)
        written[shape] = topic, write(link.east, topic, records, **settings)
    assert link.catch_up().exit_code == 0
    return {
        shape: (records, read_committed(link.east, topic), read_committed(link.west, f"east.{topic}"))
        for shape, (topic, records) in written.items()
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_an_awkward_record_arrives_as_it_was_written(
    copies: dict[str, tuple[list[Record], Shape, Shape]], shape: str
) -> None:
    """Written, read from the source, read from the target: three times the same bytes."""
    written, source, target = copies[shape]

    assert source == {0: written}
    assert target == source


# -- shapes that need a topic or a run of their own ------------------------------------------------------------------


def timestamps(properties: Mapping[str, Any], topic: str) -> list[tuple[int, int]]:
    """Type and milliseconds of each record of partition 0."""
    consumer = Consumer({**properties, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while not (message := consumer.poll(10)) or message.error() is None:
        assert message is not None, f"{topic}: no end of partition within 10 s"
        found.append(message.timestamp())
    consumer.close()
    return found


def test_a_log_append_time_is_kept_as_the_records_own(link: Link) -> None:
    """
    What readers of the source see is the time of the source's broker, and that is what arrives.

    On the target it is a CreateTime: with LogAppendTime there the time of the copy would replace it.
    """
    create_topic(link.east, link.topic, **{"message.timestamp.type": "LogAppendTime"})
    before = time.time_ns() // 1_000_000
    produce(link.east, link.topic, 1, some_records(50, 300), transactional_id=link.name)
    after = time.time_ns() // 1_000_000

    assert link.catch_up().exit_code == 0

    source, target = timestamps(link.east, link.topic), timestamps(link.west, link.target)
    assert {kind for kind, _ in source} == {TIMESTAMP_LOG_APPEND_TIME}
    assert {kind for kind, _ in target} == {TIMESTAMP_CREATE_TIME}
    assert [at for _, at in target] == [at for _, at in source]
    assert all(before <= at <= after for _, at in target)
    assert read_committed(link.west, link.target) == read_committed(link.east, link.topic)


#: Compaction that leaves the newest segment alone and nothing else.
_EAGER = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}


def test_batches_with_holes_are_no_gap(link: Link) -> None:
    """EO-6: the first batches of a compacted topic have lost most of their records; nothing else is lost."""
    written = compacted_source(link)
    final = read_committed(link.east, link.topic)[0]
    assert final[0][1] != written[0][1]

    report = link.catch_up()

    assert report.exit_code == 0
    copied, left = read_committed(link.west, link.target)[0], read_committed(link.east, link.topic)[0]
    check_compacted(final, left, copied, report.links[0].counters.records)


def test_a_copy_that_compacts_further_than_its_source_has_lost_nothing(link: Link) -> None:
    """EO-6, EO-11: the cleaners of two clusters run at times of their own; a lost record is still told apart."""
    compacted_source(link)
    final = read_committed(link.east, link.topic)[0]
    report = link.catch_up()
    assert report.exit_code == 0
    # the source compacts no further: all that comes stays in its newest segment
    alter_topic(link.east, link.topic, segment_ms="604800000", min_cleanable_dirty_ratio="1")
    later = iter(range(_T0 + 2_000_000, _T0 + 9_000_000, 1_000))
    keys = [record[0] for record in final]
    write(link.east, link.topic, [(key, b"again", next(later), ()) for key in keys for _ in range(3)])

    def is_further() -> bool:
        # a record whose time is later by more than segment.ms begins another segment of the copy
        write(link.east, link.topic, [(b"roll", b"roll", next(later), ())])
        assert link.catch_up().exit_code == 0
        time.sleep(1)
        found = read_committed(link.west, link.target)[0]
        return len(found) < len(read_committed(link.east, link.topic)[0]) / 2

    wait_for(is_further, 90)
    original, copied = read_committed(link.east, link.topic)[0], read_committed(link.west, link.target)[0]
    assert not is_within(original, copied)
    assert is_within(copied, original)
    assert not lost_beyond_compaction(original, copied)
    for lost in list({record[0]: record for record in copied}.values())[::40]:
        found = lost_beyond_compaction(original, [record for record in copied if record != lost])
        assert found[-1] == lost


def compacted_source(link: Link) -> list[Record]:
    """Writes a topic of which compaction has left less than half; gives what was written first."""
    create_topic(link.east, link.topic, **_EAGER)
    # every third key is written once, the others again and again: holes of every length, the first offset gone
    keys = [b"once-%d" % n if n % 3 == 2 else b"again-%d" % (n % 5) for n in range(900)]
    records: list[Record] = [(key, b"%d" % n, _T0 + n, ()) for n, key in enumerate(keys)]
    write(link.east, link.topic, records)
    later = iter(range(_T0 + 1_000, _T0 + 1_000_000, 1_000))

    def is_compacted() -> bool:
        # the cleaner leaves the newest segment alone: a record begins another one
        write(link.east, link.topic, [(b"again-0", b"later", next(later), ())])
        time.sleep(1)
        return len(read_committed(link.east, link.topic)[0]) < len(records) / 2

    wait_for(is_compacted, 90)
    return records


def check_compacted(before: list[Record], after: list[Record], copied: list[Record], mirrored: int) -> None:
    """
    Asserts that a copy has all that its source had, but for what compaction of the copy explains.

    Args:
        before: The source before it was mirrored.
        after: The source afterwards; its cleaner may have removed more.
        copied: The copy.
        mirrored: Records that the link has committed, which the copy's cleaner cannot change.
    """
    assert is_within(after, before)
    assert is_within(copied, before)
    assert not lost_beyond_compaction(before, copied)
    assert {record[0]: record for record in copied} == {record[0]: record for record in before}
    assert len(after) <= mirrored <= len(before)


@pytest.mark.client_plane("a batch that is passed on is not opened, and the header arrives as it is")
def test_a_header_name_that_is_no_text_stops_its_topic_by_name(link: Link) -> None:
    """The client plane cannot read such a name; the topic stops with the record's place, another one goes on."""
    other = f"{link.name}.other"
    for topic in (link.topic, other):
        create_topic(link.east, topic)
    write_raw_headers(link.east, link.topic, [(b"h\xff\xfe", b"v"), (b"h\xff\xfe", b"w")])
    committed = write(link.east, other, some_records(51, 100))

    report = link.catch_up()

    assert report.exit_code == 1
    assert list(report.links[0].stopped_topics) == [link.topic]
    assert f"{link.topic}-0@0" in report.links[0].stopped_topics[link.topic]
    assert "not UTF-8" in report.links[0].stopped_topics[link.topic]
    assert read_committed(link.west, f"east.{other}") == {0: committed}
    assert read_committed(link.west, link.target) == {0: []}


def write_raw_headers(properties: Mapping[str, Any], topic: str, headers: list[tuple[bytes, bytes]]) -> None:
    """
    Write one record whose header names are any bytes, as a client in C can.

    Through librdkafka itself (rd_kafka_producev): every other client at hand takes names as text only.
    """
    path = next(
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "librdkafka" in line
    )
    library = ctypes.CDLL(path)
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, name).restype = ctypes.c_void_p
    said = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    for key, value in properties.items():
        assert library.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), said, len(said)) == 0, (
            said.value
        )
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, said, ctypes.c_size_t(len(said))))
    assert client.value, said.value
    carried = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
    for name, value in headers:
        error = library.rd_kafka_header_add(
            carried, name, ctypes.c_ssize_t(len(name)), value, ctypes.c_ssize_t(len(value))
        )
        assert error == 0
    copied, end = 2, 0
    in_topic, in_partition, with_value, with_flags, with_headers = 1, 3, 4, 7, 10
    error = library.rd_kafka_producev(
        client,
        in_topic, topic.encode(),
        in_partition, ctypes.c_int32(0),
        with_value, b"v", ctypes.c_size_t(1),
        with_flags, copied,
        with_headers, carried,
        end,
    )  # fmt: skip
    assert error == 0
    assert library.rd_kafka_flush(client, 10_000) == 0
    library.rd_kafka_destroy(client)
