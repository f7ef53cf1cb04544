"""
Records that the target refuses for what they are (fault F16): named, the policy applied, everything else goes on.

Sources compress and the mirror does not, so a record of zeros is the everyday case: it fits its own topic's limit
and not the copy's.
"""

from __future__ import annotations

import base64
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka import Producer

from support.links.link import TestLink, alter_topic
from support.traffic.records import Record, delete_topic, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = [
    pytest.mark.faults, pytest.mark.link(injected=True), pytest.mark.fault("F16"), pytest.mark.integration,
    pytest.mark.spark,
]  # fmt: skip

LARGE = 2_000_000

_OPENED = pytest.mark.client_plane("the native plane passes a compressed batch on as it is, and then it fits")


def write_compressed(
    link: TestLink, word: str, records: list[Record], partition: int = 0, codec: str = "gzip"
) -> None:
    """Write without transactions, compressed; remembered as written."""
    producer = Producer(
        {
            **link.east,
            "compression.type": codec,
            "linger.ms": 50,
            "message.max.bytes": 50_000_000,
            "batch.size": 10_000,
        }
    )
    refused: list[Any] = []

    def note(error: Any, _: Any) -> None:
        if error is not None:
            refused.append(error)

    for key, value, timestamp, headers in records:
        producer.produce(
            link.topic(word),
            value,
            key,
            partition,
            timestamp=timestamp,
            headers=list(headers),
            on_delivery=note,
        )
    assert producer.flush(30) == 0
    assert not refused
    link.written[word][partition] += records


def plain(first: int, count: int) -> list[Record]:
    """Small records without anything special."""
    return [
        (b"key-%d" % number, b"value-%d" % number, 1_600_000_000_000 + number, ())
        for number in range(first, first + count)
    ]


def large(number: int, size: int = LARGE) -> Record:
    """A record that is small only while it is compressed."""
    return (b"large-%d" % number, bytes(size), 1_600_000_000_000, (("h", None), ("h", b"1")))


def refuse_the_future(link: TestLink, word: str) -> int:
    """The copy takes no record from more than an hour ahead from now on; milliseconds of one that it refuses."""
    alter_topic(link.west, link.copy(word), message_timestamp_after_max_ms="3600000")
    time.sleep(1.0)
    return int(time.time() * 1000) + 7_200_000


@contextmanager
def never_at_rest(link: TestLink, word: str) -> Iterator[None]:
    """While the block runs, a record is written every few milliseconds, without transactions; remembered as written."""
    over = threading.Event()

    def write() -> None:
        producer = Producer({**link.east, "linger.ms": 1})
        while not over.wait(0.003):
            (record,) = plain(len(link.written[word][0]), 1)
            producer.produce(link.topic(word), record[1], record[0], 0, timestamp=record[2])
            producer.poll(0)
            link.written[word][0].append(record)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def positions(link: TestLink) -> dict[tuple[str, int], dict[str, Any]]:
    """The last position of every source partition, and what was dropped from it in all transactions."""
    last: dict[tuple[str, int], dict[str, Any]] = {}
    dropped: dict[tuple[str, int], int] = {}
    for records in read_committed(link.west, f"eomirror.{link.name}.positions").values():
        for key, value, _, _ in records:
            names = orjson.loads(key or b"{}")
            if "topic" in names:
                where = names["topic"], names["partition"]
                last[where] = orjson.loads(value or b"{}")
                dropped[where] = dropped.get(where, 0) + last[where]["dropped"].get("dead-letter", 0)
    return {where: {**value, "dead_letters": dropped[where]} for where, value in last.items()}


def letters(link: TestLink) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Keys and values of the dead letters."""
    (found,) = read_committed(link.west, f"eomirror.{link.name}.dead-letter").values()
    return [(orjson.loads(key or b""), orjson.loads(value or b"")) for key, value, _, _ in found]


@_OPENED
def test_a_record_that_is_too_large_stops_its_topic_by_name(link: TestLink) -> None:
    """Topic, partition, offset, size and limit are named; what lies before is there, other topics are whole."""
    link.create("poisoned", partitions=2)
    link.create("healthy")
    link.write("healthy", 500)
    write_compressed(link, "poisoned", [*plain(0, 700), large(1), *plain(700, 50)])
    write_compressed(link, "poisoned", plain(1_000, 300), partition=1)

    code, stopped = link.stopped()

    assert code == 1
    assert set(stopped) == {"poisoned"}
    text = stopped["poisoned"]
    for words in (f"{link.topic('poisoned')}-0@700", "max.message.bytes=1048588", "compression.type"):
        assert words in text
    link.check("healthy")
    found = link.found("poisoned")
    assert found[0] == link.written["poisoned"][0][: len(found[0])]
    assert len(found[0]) <= 700


@_OPENED
def test_records_that_are_too_large_become_dead_letters(link: TestLink) -> None:
    """Each is left out with a pointer to it in the transaction that moves past it; the books say so."""
    link.settings["on_refused"] = "dead-letter"
    link.create("poisoned", partitions=2)
    link.create("healthy")
    link.write("healthy", 500)
    poison = {300: large(1), 301: large(2), 900: large(3, 9_000_000)}
    records = plain(0, 1_000)
    for offset, record in poison.items():
        records[offset] = record
    write_compressed(link, "poisoned", records)
    write_compressed(link, "poisoned", plain(5_000, 300), partition=1)

    assert link.stopped() == (0, {})

    link.check("healthy")
    kept = [record for offset, record in enumerate(records) if offset not in poison]
    assert link.found("poisoned") == {0: kept, 1: link.written["poisoned"][1]}
    found = letters(link)
    where = {"topic": link.topic("poisoned"), "partition": 0}
    assert [key for key, _ in found] == [{**where, "offset": offset} for offset in poison]
    position = positions(link)[link.topic("poisoned"), 0]
    assert (position["offset"], position["dead_letters"], position["total_records"]) == (1_000, 3, 997)
    for (_, letter), (key, value, timestamp, _) in zip(found, poison.values(), strict=True):
        assert (letter["reason"], letter["limit"]) == ("size", "max.message.bytes=1048588")
        assert (letter["value_bytes"], letter["record_timestamp"]) == (len(value or b""), timestamp)
        assert letter["topic_id"] == position["topic_id"]
        assert len(letter["digest"]) == 16
        if len(value or b"") > LARGE:
            # larger than the letters' own topic takes: only the pointer
            assert letter["record"] is None
        else:
            assert base64.b64decode(letter["record"]["key"]) == key
            assert base64.b64decode(letter["record"]["value"]) == value
            assert letter["record"]["headers"] == [["h", None], ["h", "MQ=="]]
    # nothing of it is done again
    assert link.stopped() == (0, {})
    assert len(letters(link)) == 3


@pytest.mark.slow
@_OPENED
@pytest.mark.parametrize("bound", [3_000_000, 1_500_000])
def test_the_limit_is_raised_as_far_as_it_may_be(link: TestLink, bound: int) -> None:
    """Up to `raise_limit_to` the record is mirrored; beyond, the topic stops and the bound is named."""
    link.settings.update({"on_refused": "raise-limit", "raise_limit_to": bound})
    link.create("poisoned")
    write_compressed(link, "poisoned", [*plain(0, 100), large(1), *plain(100, 100)])

    code, stopped = link.stopped()

    if bound > LARGE:
        assert (code, stopped) == (0, {})
        link.check("poisoned")
    else:
        assert code == 1
        assert "may go up to 1500000" in stopped["poisoned"]


@pytest.mark.slow
def test_a_topic_limit_below_the_client_s_batch_refuses_nothing(link: TestLink) -> None:
    """Records that fit one by one are mirrored, with batches that fit as well, and without a stop."""
    link.create("narrow", partitions=2, max_message_bytes="20000")
    for number in range(2):
        write_compressed(link, "narrow", plain(number * 20_000, 20_000), partition=number, codec="none")

    began = time.monotonic()
    assert link.stopped() == (0, {})

    link.check("narrow")
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("policy", [pytest.param("stop", marks=pytest.mark.slow), "dead-letter"])
def test_a_timestamp_that_the_target_does_not_take(link: TestLink, policy: str) -> None:
    """While the mirror runs: the record is named or left out; another partition's records are there in time."""
    link.settings["on_refused"] = policy
    link.create("poisoned", message_timestamp_after_max_ms=str(2**63 - 1))
    link.create("healthy")
    link.write("poisoned", 100)
    with link.running() as run:
        run.wait(lambda: link.whole("poisoned"))
        before = len(link.written["poisoned"][0])
        future = refuse_the_future(link, "poisoned")
        records = plain(0, 90)
        records[70] = (b"future", b"v", future, ())
        link.write_these("poisoned", records, abort_every=0)
        if policy == "stop":
            text = run.wait(lambda: run.stopped.get(link.topic("poisoned")))
            assert str(future) in text
            assert "message.timestamp.after.max.ms=3600000" in text
            link.write("healthy")
            run.wait(lambda: link.whole("healthy"))
        else:
            del link.written["poisoned"][0][before + 70]
            run.wait(lambda: link.whole("poisoned"))
            link.write("healthy")
            run.wait(lambda: link.whole("healthy"))
            ((key, letter),) = letters(link)
            assert (letter["reason"], letter["record_timestamp"]) == ("timestamp", future)
            assert key["partition"] == 0
    link.check("healthy")
    found = link.found("poisoned")[0]
    assert found == link.written["poisoned"][0][: len(found)]
    if policy != "stop":
        link.check("poisoned")


@pytest.mark.slow
def test_many_refused_timestamps_in_a_row(link: TestLink) -> None:
    """On either plane: each is left out with a letter, and what surrounds them is whole and in order."""
    link.settings["on_refused"] = "dead-letter"
    link.create("poisoned", message_timestamp_after_max_ms=str(2**63 - 1))
    link.create("healthy")
    link.write("poisoned", 100)
    with link.running() as run:
        run.wait(lambda: link.whole("poisoned"))
        before = len(link.written["poisoned"][0])
        future = refuse_the_future(link, "poisoned")
        poison = range(80, 100)
        records = plain(0, 200)
        for number in poison:
            records[number] = (b"future-%d" % number, b"v", future, ())
        link.write_these("poisoned", records, abort_every=0)
        del link.written["poisoned"][0][before + poison.start : before + poison.stop]
        link.write("healthy")
        run.wait(lambda: link.whole("poisoned"))
        run.wait(lambda: link.whole("healthy"))
        assert [letter["record_timestamp"] for _, letter in letters(link)] == [future] * len(poison)
    link.check("poisoned")
    link.check("healthy")


def test_a_search_ends_beside_a_topic_that_never_rests(link: TestLink) -> None:
    """Records of another topic are in each of its transactions: it goes on where it was, and they arrive meanwhile."""
    link.settings.update({"on_refused": "dead-letter", "lanes": 1})
    link.create("poisoned", message_timestamp_after_max_ms=str(2**63 - 1))
    link.create("restless")
    link.write("poisoned", 100)
    with link.running() as run:
        run.wait(lambda: link.whole("poisoned"))
        before = len(link.written["poisoned"][0])
        future = refuse_the_future(link, "poisoned")
        records = plain(0, 6_000)
        records[5_900] = (b"future", b"v", future, ())
        with never_at_rest(link, "restless"):
            link.write_these("poisoned", records, abort_every=0, per_transaction=6_000)
            del link.written["poisoned"][0][before + 5_900]
            run.wait(lambda: link.whole("poisoned"))
        run.wait(lambda: link.whole("restless"))
        assert [letter["record_timestamp"] for _, letter in letters(link)] == [future]
    link.check("poisoned", "restless")


@pytest.mark.slow
def test_a_compacted_copy_does_not_take_a_record_without_a_key(link: TestLink) -> None:
    """The target's topic was changed by hand: the record is named with its reason."""
    link.create("poisoned")
    write_compressed(link, "poisoned", plain(0, 100), codec="none")
    with link.running() as run:
        run.wait(lambda: link.whole("poisoned"))
        alter_topic(link.west, link.copy("poisoned"), cleanup_policy="compact")
        time.sleep(1.0)
        write_compressed(
            link, "poisoned", [*plain(100, 20), (None, b"v", 5, ()), *plain(200, 20)], codec="none"
        )
        text = run.wait(lambda: run.stopped.get(link.topic("poisoned")))

    assert f"{link.topic('poisoned')}-0@120" in text
    assert "it has no key" in text


@pytest.mark.slow
@_OPENED
def test_a_record_beyond_the_client_s_own_limit(link: TestLink) -> None:
    """Librdkafka refuses it before anything is sent, and would commit without it: it is named all the same."""
    link.clusters["west"]["producer"] = {"message.max.bytes": 100_000}
    link.create("poisoned")
    write_compressed(link, "poisoned", [*plain(0, 50), large(1, 200_000), *plain(50, 50)])

    code, stopped = link.stopped()

    assert code == 1
    assert f"{link.topic('poisoned')}-0@50" in stopped["poisoned"]
    assert "message.max.bytes" in stopped["poisoned"]


@pytest.mark.slow
@_OPENED
def test_a_letter_that_does_not_fit_its_topic_goes_as_a_pointer(link: TestLink) -> None:
    """An operator lowered the limit of the dead-letter topic: the record is left out of the letter, nothing stops."""
    link.settings["on_refused"] = "dead-letter"
    link.create("poisoned")
    link.catch_up()
    alter_topic(link.west, f"eomirror.{link.name}.dead-letter", max_message_bytes="100000")
    write_compressed(link, "poisoned", [*plain(0, 50), large(1), *plain(50, 50)])

    assert link.stopped() == (0, {})

    ((key, letter),) = letters(link)
    assert (key["offset"], letter["record"]) == (50, None)
    del link.written["poisoned"][0][50]
    link.check("poisoned")


@pytest.mark.slow
@pytest.mark.timeout(600)
@_OPENED
def test_hundred_refused_records_in_a_row(link: TestLink) -> None:
    """Many of them take their time, and none of the others is lost, twice or out of order."""
    link.settings["on_refused"] = "dead-letter"
    link.create("poisoned", "healthy")
    records = plain(0, 400)
    poison = range(200, 300)
    for offset in poison:
        records[offset] = large(offset)
    write_compressed(link, "poisoned", records)
    link.write("healthy", 500)

    assert link.stopped() == (0, {})

    link.check("healthy")
    assert link.found("poisoned")[0] == [
        record for offset, record in enumerate(records) if offset not in poison
    ]
    assert [key["offset"] for key, _ in letters(link)] == list(poison)


@pytest.mark.slow
@_OPENED
def test_a_dead_letter_topic_that_is_deleted_stops_nothing_silently(link: TestLink) -> None:
    """It is created again with the next start, and the letters of what is refused then are in it."""
    link.settings["on_refused"] = "dead-letter"
    link.create("poisoned")
    write_compressed(link, "poisoned", [*plain(0, 5), large(1)])
    link.catch_up()
    delete_topic(link.west, f"eomirror.{link.name}.dead-letter")
    write_compressed(link, "poisoned", [*plain(5, 5), large(2)])

    assert link.stopped() == (0, {})

    wait_for(lambda: [key["offset"] for key, _ in letters(link)] == [11])
