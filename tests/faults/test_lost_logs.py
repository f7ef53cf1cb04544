"""
Source logs that are no longer what was mirrored, or have lost a part, without a sign in metadata.

A cluster that is restored as a whole gives out topic ids and leader epochs again, so only the log itself tells.  A
segment file that is lost from the middle of a log leaves a hole, which the broker does not mention.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import orjson
import pytest
from confluent_kafka import Producer

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.links.plane import kafka_of, plane_under_test
from support.traffic.records import Record, produce, read_committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.links.link import TestLink


pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def fragile() -> Iterator[LocalCluster]:
    """A cluster of one broker that is put back to what it was, or loses files."""
    with LocalCluster.start(
        ClusterSpec("fragile", kafka_version=kafka_of("east"), properties={"log.cleaner.backoff.ms": "100"})
    ) as cluster:
        yield cluster


@pytest.fixture
def link_source(fragile: LocalCluster) -> LocalCluster:
    """Links read that cluster."""
    return fragile


class Disk:
    """Everything that the one broker of a cluster keeps, metadata included."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        (self._broker,) = cluster.brokers
        self.data = self._broker.folder / "data"
        self._saved = folder / "saved"

    def save(self) -> None:
        """Stop the broker, copy all, start it again."""
        self._broker.stop()
        shutil.copytree(self.data, self._saved)
        self._broker.start()

    def restore(self) -> None:
        """Stop the broker, put all back, start it again."""
        self._broker.stop()
        shutil.rmtree(self.data)
        shutil.copytree(self._saved, self.data)
        self._broker.start()

    def lose_segment(self, topic: str, base: int) -> None:
        """Stop the broker, delete the files of one segment, start it again."""
        self._broker.stop()
        files = list((self.data / f"{topic}-0").glob(f"{base:020d}.*"))
        assert any(file.suffix == ".log" for file in files), f"no segment begins at {base}"
        for file in files:
            file.unlink()
        self._broker.start()

    def segments(self, topic: str) -> list[int]:
        """Base offsets of a partition's segments."""
        return sorted(int(file.stem) for file in (self.data / f"{topic}-0").glob("*.log"))


def foreign(count: int) -> list[Record]:
    """Records that were never in the log that was mirrored."""
    return [(b"foreign", b"%d" % number, 1_700_000_000_000, ()) for number in range(count)]


# how many records are written behind the restored state, which ends 200 records before the position
AFTER = {"regrown": 230, "overgrown": 900}


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    "running",
    [pytest.param(False, id="stopped", marks=pytest.mark.slow), pytest.param(True, id="running")],
)
def test_a_cluster_that_is_restored_as_a_whole(
    running: bool, fragile: LocalCluster, link: TestLink, tmp_path: Path
) -> None:
    """EO-5: topic ids and epochs are given out twice; exit code 4, named by topic, no foreign record; others go on."""
    disk = Disk(fragile, tmp_path)
    link.create(*AFTER, "healthy")
    for word in (*AFTER, "healthy"):
        link.write(word)
    disk.save()
    for word in AFTER:
        link.write(word)

    def lose() -> None:
        disk.restore()
        link.entry.injected(len(AFTER))
        for word, count in AFTER.items():
            produce(link.east, link.topic(word), 1, foreign(count), transactional_id=f"{link.name}-{word}")
        link.write("healthy")

    stopped: dict[str, str] = {}
    if running:
        with link.running() as run:
            run.wait(lambda: link.whole(*AFTER, "healthy"))
            lose()
            if plane_under_test() == "native":
                run.wait(lambda: link.whole("healthy"), 120)
                run.wait(lambda: set(run.stopped) >= {link.topic(word) for word in AFTER}, 90)
                stopped = {word: run.stopped[link.topic(word)] for word in AFTER}
            else:
                # librdkafka takes no leader whose epoch is older than one that it has seen, and there is one that the
                # restored metadata does not know: the lane stands still, or stops the topics, until it is restarted
                time.sleep(10)
    else:
        link.catch_up()
        lose()
    if not stopped:
        code, stopped = link.stopped()
        assert code == 4

    assert set(stopped) == set(AFTER)
    for word, text in stopped.items():
        # a running mirror may look before as many records are written again as were lost, and the broker may tell it
        # that an epoch has ended before its position
        found = [
            "the source's log diverges from the mirrored records",
            *["the source was truncated or restored", "the source's log diverges from what was mirrored"]
            * running,
        ]
        assert any(f"{link.topic(word)}-0: {words}" in text for words in found), text
        assert "--resume-at" in text
    link.check(*AFTER, "healthy")


PART = 100
# markers have the time at which they are written, and a record that is older than its segment closes none
_FROM = int(time.time() * 1000) + 600_000


def parts(numbers: range) -> list[Record]:
    """Parts of 100 records, a minute apart, so that each begins a segment of a topic that closes one each second."""
    return [
        (b"k%d" % (nth % 7), b"%d" % (number * PART + nth), _FROM + number * 60_000 + nth, ())
        for number in numbers
        for nth in range(PART)
    ]


def write_parts(link: TestLink, word: str, numbers: range, *, transactional: bool) -> None:
    """Write parts, each in a transaction of its own or in none."""
    records = parts(numbers)
    if transactional:
        link.write_these(word, records, per_transaction=PART, abort_every=0)
        return
    for begin in range(0, len(records), PART):
        plain = Producer({**link.east, "enable.idempotence": True, "acks": "all", "linger.ms": 5})
        for key, value, timestamp, _ in records[begin : begin + PART]:
            plain.produce(link.topic(word), value, key, 0, timestamp=timestamp)
        assert plain.flush(30) == 0
    link.written[word][0] += records


def gaps(link: TestLink, topic: str) -> list[tuple[int, int]]:
    """Ranges of a topic's accepted gaps that the control topic records."""
    (records,) = read_committed(link.west, f"eomirror.{link.name}.control").values()
    bodies = [{**orjson.loads(key or b"{}"), **orjson.loads(value or b"{}")} for key, value, _, _ in records]
    return [(body["from"], body["to"]) for body in bodies if "from" in body and body["topic"] == topic]


@pytest.mark.fault("F18")
@pytest.mark.parametrize("on_gap", ["stop", "accept"])
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactions"])
def test_a_hole_in_the_middle_of_a_log(
    on_gap: str, transactional: bool, fragile: LocalCluster, link: TestLink, tmp_path: Path
) -> None:
    """EO-6: a segment is lost before it was mirrored; exit code 4 with the range, or recorded; others go on."""
    link.settings["on_gap"] = on_gap
    disk = Disk(fragile, tmp_path)
    link.create("lost", "edge", "healthy", segment_ms="1000")
    for word in ("lost", "edge", "healthy"):
        write_parts(link, word, range(1), transactional=transactional)
    link.catch_up()
    for word in ("lost", "edge", "healthy"):
        write_parts(link, word, range(1, 5), transactional=transactional)
    step = PART + transactional
    lost, edge = disk.segments(link.topic("lost")), disk.segments(link.topic("edge"))
    begin, end = next((one, two) for one, two in itertools.pairwise(lost[1:]) if one >= 2 * step - 1)
    disk.lose_segment(link.topic("lost"), begin)
    # right at the position
    edge_begin, edge_end = next((one, two) for one, two in itertools.pairwise(edge) if one >= step)
    disk.lose_segment(link.topic("edge"), edge_begin)
    link.entry.injected(2)

    code, stopped = link.stopped()

    link.check("healthy")
    kept = {word: link.written[word][0] for word in ("lost", "edge")}
    before = {
        "lost": (begin - begin // step * transactional),
        "edge": (edge_begin - edge_begin // step * transactional),
    }
    if on_gap == "stop":
        assert code == 4
        assert set(stopped) == {"lost", "edge"}
        assert f"offsets [{begin}, {end}) are missing" in stopped["lost"]
        assert f"offsets [{edge_begin}, {edge_end}) are missing" in stopped["edge"]
        for word, records in kept.items():
            found = link.found(word)[0]
            assert found == records[: len(found)]
            # the client plane stops with the transaction that would go past the hole
            assert len(found) == before[word] or (
                plane_under_test() == "client" and len(found) < before[word]
            )
    else:
        assert code == 0
        assert gaps(link, link.topic("lost")) == [(begin, end)]
        assert gaps(link, link.topic("edge")) == [(edge_begin, edge_end)]
        for word in kept:
            assert link.found(word) == read_committed(link.east, link.topic(word))
        assert verified(link) == {
            link.topic("lost"): [[begin, end]],
            link.topic("edge"): [[edge_begin, edge_end]],
            link.topic("healthy"): [],
        }


def verified(link: TestLink) -> dict[str, list[list[int]]]:
    """Holes of each source topic as ``eomirror verify`` names them; every copy equals what is left of its source."""
    command = [sys.executable, "-m", "eomirror", "verify", str(link.path), "-o", "json"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (told,) = orjson.loads(done.stdout)["links"]
    return {one["scope"]["source"]["topic"]: one["holes"] for one in told["partitions"]}
