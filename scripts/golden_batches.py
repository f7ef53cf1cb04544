"""
Writes rust/core/tests/golden: segments of a real broker, and what another client reads from them.

    python scripts/golden_batches.py

Starts one embedded broker, produces with librdkafka, stops the broker and copies the log segments out of
its data folder.  Producer ids, leader epochs and append times differ from run to run; the tests know none.

    python scripts/golden_batches.py --read-back

Goes the other way: relays every segment in every mode with rust/core/examples/relay_segment.rs, lets Kafka's
own DumpLogSegments read the result, and compares it with what librdkafka read from the source.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eomirror.jvm import find_java
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.jars import class_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GOLDEN = Path(__file__).resolve().parent.parent / "rust/core/tests/golden"
SEGMENT = "00000000000000000000"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME = 1_700_000_000_000  # any fixed time in the past; a broker refuses the future
TIMEOUT = 60.0
Record = tuple["bytes | None", "bytes | None", "list[tuple[str, bytes | None]]"]
RECORDS: tuple[Record, ...] = (
    (b"key", b"value", []),
    (None, b"null key", []),
    (b"", b"empty key", []),
    (b"tombstone", None, []),
    (b"empty value", b"", []),
    (None, None, []),
    (b"headers", b"v", [("a", b"1"), ("b", None), ("a", b"2"), ("", b"empty name"), ("c", b"")]),
    (b"name", b"v", [("gr\u00f6\u00dfe", b"\x00\xff")]),
    (b"\x00\xff\xfe", bytes(range(256)), []),
    (b"repeats", b"all work and no play " * 40, []),
    *((f"k{number}".encode(), f"value {number}".encode() * 5, []) for number in range(20)),
)


MODES = ("pass", "merge", "split", "header")
PROVENANCE = "eomirror.hops"
BATCH = re.compile(r"baseOffset: .* compresscodec: (\w+) crc: \d+ isvalid: (\w+)")
RECORD = re.compile(
    r"\| offset: (\d+) CreateTime: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: \d+ headerKeys: \[(.*?)\]"
    r"(?: key: .*?)?(?: payload: (.*))?"
)


def main() -> int:
    """Make all files anew, or let Java read what the relay makes of them."""
    parser = argparse.ArgumentParser(description="segments of a real broker")
    parser.add_argument("--read-back", action="store_true", help="let Kafka read relayed segments")
    if parser.parse_args().read_back:
        return read_back()
    return make()


def read_back() -> int:
    """Relay every segment, and compare what Kafka's own classes read with what librdkafka read before."""
    folder_of_cargo = Path(os.environ.get("CARGO_TARGET_DIR", GOLDEN.parents[3] / "target"))
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--example", "relay_segment"], check=True)
    program = folder_of_cargo / "debug/examples/relay_segment"
    read = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted(GOLDEN.glob("*.log")):
            for mode in MODES:
                # the tool takes the first offset from the file's name
                target = Path(folder, source.stem, mode, f"{SEGMENT}.log")
                target.parent.mkdir(parents=True)
                command = [str(program), str(source), str(target), mode]
                lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                offsets = [int(line.split()[0]) for line in lines.splitlines()]
                read += compare(source, mode, offsets, dump(target))
    print(f"{read} records of {len(MODES)} modes read back by Kafka's own classes, all equal")
    return 0


def dump(segment: Path) -> list[str]:
    """What DumpLogSegments prints about a segment."""
    command = [str(find_java()), "-cp", class_path(), "org.apache.kafka.tools.DumpLogSegments"]
    command += ["--deep-iteration", "--print-data-log", "--files", str(segment)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    return answer.stdout.splitlines()


def compare(source: Path, mode: str, offsets: list[int], lines: list[str]) -> int:
    """Compare a relayed segment with its source, record by record; how many they are."""
    where = f"{source.stem}, {mode}"
    wanted = {}
    for line in source.with_suffix(".records").read_text("ascii").splitlines():
        place, *fields = line.split(" ")
        wanted[int(place)] = fields
    batches = [found for line in lines if (found := BATCH.search(line))]
    expect(where, bool(batches) and all(found[2] == "true" for found in batches), "a batch is not valid")
    codec = source.stem.rpartition("-")[2]
    if codec in CODECS:
        expect(where, codec in {found[1] for found in batches}, f"{codec} was not kept")
    records = [found for line in lines if (found := RECORD.fullmatch(line))]
    expect(where, len(records) == len(offsets), f"{len(records)} records of {len(offsets)}")
    for number, (found, offset) in enumerate(zip(records, offsets, strict=True)):
        timestamp, key, value, headers = wanted[offset]
        names = [] if headers == "none" else [plain(pair.split("=")[0]) or b"" for pair in headers.split(",")]
        if mode == "header":
            names.append(PROVENANCE.encode())
        at = f"{where}, source offset {offset}"
        expect(at, int(found[1]) == number, f"offset {found[1]}")
        expect(at, found[2] == timestamp, f"timestamp {found[2]}, not {timestamp}")
        expect(at, int(found[3]) == size(key), f"a key of {found[3]} bytes")
        expect(at, int(found[4]) == size(value), f"a value of {found[4]} bytes")
        expect(at, found[5] == ",".join(name.decode() for name in names), f"headers {found[5]}")
        payload = plain(value)
        if payload and payload.isascii() and payload.decode().isprintable():
            expect(at, found[6] == payload.decode(), f"value {found[6]}")
    return len(records)


def expect(where: str, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - it is what is asserted
    """End the program where something does not hold."""
    if not holds:
        raise SystemExit(f"{where}: {otherwise}")


def plain(field: str) -> bytes | None:
    """The field that `shown` has written."""
    return None if field == "null" else bytes.fromhex(field[1:])


def size(field: str) -> int:
    """Its length as the wire has it: -1 for null."""
    content = plain(field)
    return -1 if content is None else len(content)


def make() -> int:
    """Make all files anew."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        spec = ClusterSpec("golden", data_dir=data, properties={"log.cleaner.backoff.ms": "100"})
        with LocalCluster.start(spec) as cluster:
            topics = fill(cluster.bootstrap_servers)
            for topic in topics:
                text = "".join(read(cluster.bootstrap_servers, topic))
                (GOLDEN / f"{topic}.records").write_text(text, encoding="ascii")
            cluster.stop()
            for topic in topics:
                keep(data, topic)
    return 0


def keep(data: Path, topic: str) -> None:
    """Copy a topic's first segment, and its aborted transactions."""
    (partition,) = data.glob(f"**/{topic}-0")
    shutil.copyfile(partition / f"{SEGMENT}.log", GOLDEN / f"{topic}.log")
    aborted = partition / f"{SEGMENT}.txnindex"
    if aborted.exists() and aborted.stat().st_size:
        shutil.copyfile(aborted, GOLDEN / f"{topic}.txnindex")


def fill(servers: str) -> list[str]:
    """Produce everything; names of the topics."""
    topics = []
    for codec in CODECS:
        topics.append(f"librdkafka-{codec}")
        create(servers, topics[-1], {})
        produce(producer(servers, {"compression.type": codec}), topics[-1], RECORDS)
    for codec in CODECS[1:]:
        # the broker compresses anew, with the codecs of Kafka's own Java clients
        topics.append(f"broker-{codec}")
        create(servers, topics[-1], {"compression.type": codec})
        produce(producer(servers), topics[-1], RECORDS)
    topics.append("append-time")
    create(servers, topics[-1], {"message.timestamp.type": "LogAppendTime"})
    produce(producer(servers), topics[-1], RECORDS)
    return [*topics, transactions(servers), compacted(servers)]


def transactions(servers: str) -> str:
    """Two producers whose transactions overlap, and one without transactions."""
    topic = "transactions"
    # a marker's time is years after the records', which would close the segment
    create(servers, topic, {"segment.ms": str(2**63 - 1)})
    first, second = (producer(servers, {"transactional.id": name}) for name in ("first", "second"))
    plain = producer(servers)
    for client in (first, second):
        client.init_transactions(TIMEOUT)
    end = 0
    for commits in (True, False, True, False):
        first.begin_transaction()
        second.begin_transaction()
        for client in (first, second, plain, first):
            produce(client, topic, RECORDS[:3])
            end += 3
        for client, commit in ((first, commits), (second, not commits)):
            if commit:
                client.commit_transaction(TIMEOUT)
            else:
                client.abort_transaction(TIMEOUT)
            end += 1  # the marker
            wait_for_end(servers, topic, end)
    return topic


def compacted(servers: str) -> str:
    """Batches with holes, tombstones with a delete horizon, and one that lost its last record."""
    topic = "compacted"
    create(
        servers,
        topic,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.0",
            "segment.ms": "300",
            "delete.retention.ms": "86400000",
        },
    )
    keyed = [record for record in RECORDS if record[0] is not None]
    produce(producer(servers, {"enable.idempotence": True}), topic, keyed)
    again = keyed[:2] + keyed[5:7] + keyed[-3:]
    produce(producer(servers), topic, [(key, b"second", []) for key, _, _ in again])
    # all of this producer's records are written anew: what stays is its last batch, without records
    produce(
        producer(servers, {"enable.idempotence": True}), topic, [(b"once", b"1", []), (b"twice", b"1", [])]
    )
    produce(producer(servers), topic, [(b"once", b"2", []), (b"twice", b"2", []), (b"tombstone", None, [])])
    before = len(keyed) + len(again)
    deadline = time.monotonic() + TIMEOUT
    start = TIME
    while len(list(read(servers, topic))) >= before:
        if time.monotonic() > deadline:
            raise SystemExit("the log cleaner did not run")
        time.sleep(1)
        # only closed segments are cleaned, and the times of records, not clocks, decide when one is closed
        start += 10_000
        produce(producer(servers), topic, [(b"roll", b"over", [])], start)
    return topic


def create(servers: str, topic: str, config: Mapping[str, str]) -> None:
    """Create a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=dict(config))]).values():
        future.result(TIMEOUT)


def producer(servers: str, properties: Mapping[str, Any] | None = None) -> Any:
    """A producer that sends what it has when it is flushed, as one batch."""
    return Producer({"bootstrap.servers": servers, "linger.ms": 5_000, "acks": "all", **(properties or {})})


def produce(client: Any, topic: str, records: Iterable[Record], start: int = TIME) -> None:
    """Produce records in one batch, with times from ``start`` on that do not only grow."""

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            raise SystemExit(f"{topic}: {error}")

    for number, (key, value, headers) in enumerate(records):
        timestamp = start + 7 * number - 100 * (number % 3)
        client.produce(
            topic, value, key, partition=0, on_delivery=delivered, timestamp=timestamp, headers=headers
        )
    client.flush(TIMEOUT)


def wait_for_end(servers: str, topic: str, end: int) -> None:
    """Wait until the partition has grown to ``end``: a marker comes a moment after its transaction's answer."""
    # of another isolation level, the end would be the last stable offset
    client = Consumer(
        {"bootstrap.servers": servers, "group.id": "golden", "isolation.level": "read_uncommitted"}
    )
    deadline = time.monotonic() + TIMEOUT
    while client.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT)[1] < end:
        if time.monotonic() > deadline:
            raise SystemExit(f"{topic} does not reach offset {end}")
        time.sleep(0.05)
    client.close()


def read(servers: str, topic: str) -> Iterable[str]:
    """One line for each committed record: offset, timestamp, key, value, headers."""
    client = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "golden",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    client.assign([TopicPartition(topic, 0, 0)])
    while True:
        message = client.poll(TIMEOUT)
        if message is None:
            raise SystemExit(f"nothing comes from {topic}")
        if message.error() is not None:
            if message.error().code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client has no other name
                raise SystemExit(f"{topic}: {message.error()}")
            break
        headers = message.headers() or []
        pairs = ",".join(f"{shown(name.encode())}={shown(value)}" for name, value in headers) or "none"
        key, value = shown(message.key()), shown(message.value())
        yield f"{message.offset()} {message.timestamp()[1]} {key} {value} {pairs}\n"
    client.close()


def shown(field: bytes | None) -> str:
    """A field as text that tells null from empty."""
    return "null" if field is None else f"x{field.hex()}"


if __name__ == "__main__":
    sys.exit(main())
