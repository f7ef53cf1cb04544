"""`eomirror verify` after real mirror runs: exit 0 where the copy is right, 3 with the right words where it is not."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror.config import load_config
from eomirror.errors import TopicError
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.types import SourcePartition
from eomirror.verify import partition
from eomirror.verify.resume import ResumeFile
from eomirror.verify.runner import Verifier
from eomirror.verify.scope import RequestedRange
from support.links.link import TestLink, alter_topic
from support.traffic.records import (
    Record,
    create_topic,
    delete_topic,
    produce,
    read_committed,
    some_records,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eomirror.verify.verdict import LinkVerdict, PartitionVerdict

pytestmark = [pytest.mark.integration, pytest.mark.spark]

FOREIGN: Record = (b"foreign", b"foreign", 1_700_000_000_000, ())


def delete_before(properties: Mapping[str, Any], topic: str, offset: int) -> None:
    """Delete what lies before an offset, as retention does."""
    admin = AdminClient(dict(properties))
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


def write_plainly(properties: Mapping[str, Any], topic: str, records: list[Record], **settings: Any) -> None:
    """Write outside of transactions to partition 0."""
    producer = Producer({**properties, "linger.ms": 5, **settings})
    for key, value, timestamp, headers in records:
        producer.produce(topic, value, key, 0, timestamp=timestamp, headers=list(headers))
    assert producer.flush(30) == 0


def run_verify(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with JSON, when it has ended."""
    return subprocess.run(
        [sys.executable, "-m", "eomirror", "verify", str(path), "-o", "json", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def verify(path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code of the command, and the first link of its JSON."""
    done = run_verify(path, *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["links"][0]


def verifier(link: TestLink, **options: Any) -> Verifier:
    """For the link as it is configured now."""
    config = load_config(link.path)
    return Verifier(config.link(link.name), config.clusters["east"], config.clusters["west"], **options)


def compared(link: TestLink, *, bound: RequestedRange | None = None, **options: Any) -> LinkVerdict:
    """What the verifier says."""
    made = verifier(link, **options)
    try:
        return made.run(bound=bound)
    finally:
        made.close()


def of(verdict: LinkVerdict, link: TestLink, word: str, partition: int = 0) -> PartitionVerdict:
    """About one partition."""
    (found,) = [
        each
        for each in verdict.partitions
        if (each.scope.source.topic, each.scope.source.partition) == (link.topic(word), partition)
    ]
    assert not found.scope.problem
    return found


def kinds(found: PartitionVerdict) -> dict[str, int]:
    """Differences that there are."""
    return {kind: count for kind, count in found.differences.items() if count}


def test_what_a_mirror_leaves_out_for_a_reason_is_no_difference(link: TestLink) -> None:
    """Aborted data, dead letters, accepted gaps and retention on either side; and a planted record in each is found."""
    # the native plane would pass the compressed batch on, in which the large record fits
    link.settings |= {"on_gap": "accept", "on_refused": "dead-letter", "plane": "client"}
    words = ("aborted", "gap", "source", "target", "both", "poisoned")
    link.create(*words)
    for word in words[:-1]:
        link.write(word, 200, abort_every=4)
    small = [(b"k%d" % n, b"v%d" % n, 1_600_000_000_000 + n, ()) for n in range(60)]
    large: Record = (b"large", bytes(2_000_000), 1_600_000_000_000, (("h", None), ("h", b"1")))
    compressed = {"compression.type": "gzip", "message.max.bytes": 9_000_000, "batch.size": 10_000}
    write_plainly(link.east, link.topic("poisoned"), [*small[:30], large, *small[30:], large], **compressed)
    link.catch_up()
    link.write("gap", 200, abort_every=0)
    # the position is 204 (200 records, 4 markers); everything before 231 is lost
    delete_before(link.east, link.topic("gap"), 231)
    link.catch_up()
    delete_before(link.east, link.topic("source"), 77)
    delete_before(link.west, link.copy("target"), 33)
    delete_before(link.east, link.topic("both"), 120)
    delete_before(link.west, link.copy("both"), 60)

    code, told = verify(link.path)

    assert (code, told["verdict"]) == (0, "equal"), told
    verdict = compared(link)
    for word in words:
        found = of(verdict, link, word)
        assert kinds(found) == {}, word
        assert found.matched > 30, word
    assert of(verdict, link, "aborted").matched == len(link.written["aborted"][0])
    assert of(verdict, link, "aborted").source["aborted"] == 50
    assert of(verdict, link, "poisoned").matched == len(small)
    assert of(verdict, link, "poisoned").source["left_out"] == 2
    assert of(verdict, link, "source").scope.not_comparable[0] == 77
    assert of(verdict, link, "target").scope.not_comparable[1] == 33

    for word in words:
        write_plainly(link.west, link.copy(word), [FOREIGN])
    code, told = verify(link.path)
    assert (code, told["verdict"]) == (3, "differs")
    for each in told["partitions"]:
        found_kinds = {kind: count for kind, count in each["differences"].items() if count}
        assert (found_kinds, each["verdict"]) == ({"foreign": 1}, "differs"), each["scope"]


@pytest.mark.parametrize("start", ["latest", pytest.param("timestamp", marks=pytest.mark.slow)])
def test_a_link_that_starts_late_is_compared_from_there(link: TestLink, start: str) -> None:
    """What is older than the start is neither missing on the target nor compared; what is younger is."""
    link.create("late")
    # without transactions: markers have the brokers' time, which is later than that of any record here
    write_plainly(link.east, link.topic("late"), some_records(1, 200))
    records = [(b"k%d" % n, b"v%d" % n, 1_700_000_000_000 + n, ()) for n in range(100)]
    if start == "latest":
        link.settings["start"] = "latest"
        link.catch_up()
        write_plainly(link.east, link.topic("late"), records)
    else:
        write_plainly(link.east, link.topic("late"), records)
        link.settings["start"] = 1_700_000_000_000
    link.catch_up()
    code, told = verify(link.path)
    (partition,) = told["partitions"]
    assert (code, partition["matched"]) == (0, 100), partition
    assert partition["scope"]["not_comparable"][0] == 200
    write_plainly(link.west, link.copy("late"), records[-1:])
    code, told = verify(link.path)
    (partition,) = told["partitions"]
    assert (code, partition["differences"]["duplicate"]) == (3, 1)
    (shown,) = partition["shown"]
    assert (shown["kind"], shown["target"]["key"]) == ("duplicate", "k99")


def test_bounds_leave_out_what_is_older(link: TestLink) -> None:
    """--from-offset and --since compare what is behind them, and do not see a difference before."""
    link.create("bounded")
    records = [(b"k%d" % n, b"v%d" % n, 1_600_000_000_000 + n, ()) for n in range(100)]
    write_plainly(link.east, link.topic("bounded"), records)
    # an application wrote to the copy before the mirror did
    create_topic(link.west, link.copy("bounded"))
    write_plainly(link.west, link.copy("bounded"), [FOREIGN])
    link.catch_up(into_filled=True)
    whole = of(compared(link), link, "bounded")
    assert (kinds(whole), whole.matched) == ({"foreign": 1}, 100)
    late = of(compared(link, bound=RequestedRange(from_offset=40)), link, "bounded")
    assert (kinds(late), late.matched) == ({}, 60)
    young = of(compared(link, bound=RequestedRange(since_ms=1_600_000_000_090)), link, "bounded")
    assert (kinds(young), young.matched) == ({}, 10)
    none = of(compared(link, bound=RequestedRange(since_ms=1_900_000_000_000)), link, "bounded")
    assert (kinds(none), none.matched) == ({}, 0)
    nothing = run_verify(link.path, "--topic", "bounde")
    assert nothing.returncode == 2
    assert "mirrors no such topic" in nothing.stderr


def test_an_interrupted_comparison_goes_on_where_it_was(link: TestLink, tmp_path: Path) -> None:
    """--resume: each record is read once, counts add up, and a later run compares what is new only."""
    link.create("long")
    link.write("long", 12_000, per_transaction=3_000, abort_every=0)
    link.catch_up()
    path = tmp_path / "resume.json"

    def run(*, stop_after: int = 1_000_000) -> PartitionVerdict:
        # messages come in small portions from librdkafka, so that the stop falls into the middle
        made = verifier(link, native=False)
        file = ResumeFile(path, {})
        asked = iter(range(1_000_000))
        try:
            made.resume = file.link(link.name, made.ids)
            return of(made.run(stopped=lambda: next(asked) > stop_after), link, "long")
        finally:
            made.close()
            file.save()

    half = run(stop_after=1)
    assert not half.whole
    assert half.matched < 12_000
    # what was read ahead of the other side is read again
    assert half.source["records"] == half.target["records"] == half.matched
    whole = run()
    assert whole.whole
    assert (kinds(whole), whole.matched, whole.source["records"]) == ({}, 12_000, 12_000)
    write_plainly(link.west, link.copy("long"), [FOREIGN])
    again = run()
    assert (kinds(again), again.matched) == ({"foreign": 1}, 12_000)
    assert (again.source["records"], again.target["records"]) == (12_000, 12_001)
    # what was found stays found, also where retention has taken the record that would be shown
    assert kinds(run()) == {"foreign": 1}
    delete_before(link.west, link.copy("long"), -1)
    gone = run()
    assert kinds(gone) == {"foreign": 1}
    assert [each.target for each in gone.shown] == [None]


def test_following_goes_on_with_what_is_mirrored_meanwhile(link: TestLink) -> None:
    """Rounds count on; a duplicate of what an earlier round has matched is still one; no record is read twice."""
    link.create("followed")
    link.write("followed", 300)
    link.catch_up()
    made = verifier(link)
    try:
        first = of(made.run(follows=True), link, "followed")
        assert (kinds(first), first.matched) == ({}, len(link.written["followed"][0]))
        link.write("followed", 300)
        link.catch_up()
        second = of(made.run(follows=True), link, "followed")
        assert (kinds(second), second.matched) == ({}, len(link.written["followed"][0]))
        assert second.source["records"] == second.matched
        write_plainly(link.west, link.copy("followed"), [link.written["followed"][0][5]])
        assert kinds(of(made.run(follows=True), link, "followed")) == {"duplicate": 1}
        # a signal falls into the next round before it has compared anything
        stopped = of(made.run(follows=True, stopped=lambda: True), link, "followed")
        assert (kinds(stopped), stopped.whole) == ({"duplicate": 1}, True)
        # the source loses what was not mirrored yet, and the link goes on behind it
        link.settings["on_gap"] = "accept"
        link.write("followed", 50, abort_every=0)
        delete_before(link.east, link.topic("followed"), -1)
        write_plainly(link.east, link.topic("followed"), some_records(9, 20))
        link.catch_up()
        behind = of(made.run(follows=True), link, "followed")
        assert (kinds(behind), behind.matched - stopped.matched) == ({"duplicate": 1}, 20)
    finally:
        made.close()


def says(log: Path, words: str) -> bool:
    """Whether a log has these words."""
    return words in log.read_text()


@pytest.mark.slow
def test_a_signal_ends_following_with_what_was_found(link: TestLink, tmp_path: Path) -> None:
    """SIGTERM: 0 while all is equal; and 3, with the difference said when it was met, if not."""
    link.create("followed")
    link.write("followed", 100)
    link.catch_up()
    matched = len(link.written["followed"][0])
    for planted, code in ((False, 0), (True, 3)):
        log = tmp_path / f"log-{planted}"
        with (
            log.open("w") as errors,
            subprocess.Popen(
                [sys.executable, "-m", "eomirror", "verify", str(link.path), "--follow", "-o", "json"],
                stdout=subprocess.PIPE, stderr=errors, text=True,
            ) as process,
        ):  # fmt: skip
            try:
                # a signal that comes before it has compared everything once ends it with another code
                wait_for(functools.partial(says, log, f"(100 %), {matched} equal"), 120)
                if planted:
                    write_plainly(link.west, link.copy("followed"), [FOREIGN])
                    wait_for(functools.partial(says, log, "differs: 1 foreign"), 120)
                process.send_signal(signal.SIGTERM)
                told, _ = process.communicate(timeout=30)
            finally:
                process.kill()
        assert process.returncode == code, log.read_text()
        assert json.loads(told)["links"][0]["partitions"][0]["matched"] == matched


@pytest.mark.slow
def test_a_recreated_and_adopted_source_is_compared_behind_its_predecessor(
    link: TestLink, tmp_path: Path
) -> None:
    """What the copy has of the earlier topic of this name is not foreign; what an application adds behind it is."""
    link.create("again")
    link.write("again", 100, abort_every=0)
    link.catch_up()
    followed = verifier(link)
    assert of(followed.run(follows=True), link, "again").matched == 100
    delete_topic(link.east, link.topic("again"))
    link.create("again")
    write_plainly(link.east, link.topic("again"), some_records(5, 80))
    link.catch_up(adopt={SourcePartition(link.topic("again"), 0): 0})
    found = of(compared(link), link, "again")
    assert (kinds(found), found.matched) == ({}, 80)
    assert found.scope.not_comparable[1] > 100
    # so it is for those whose counts cannot be taken back: one that follows since before, and one with a file
    after = of(followed.run(follows=True), link, "again")
    followed.close()
    assert (kinds(after), after.matched) == ({}, 180)
    made = verifier(link)
    made.resume = ResumeFile(tmp_path / "resume.json", {}).link(link.name, made.ids)
    kept = of(made.run(), link, "again")
    made.close()
    assert (kinds(kept), kept.matched) == ({}, 80)
    write_plainly(link.west, link.copy("again"), [FOREIGN])
    assert kinds(of(compared(link), link, "again")) == {"foreign": 1}


@pytest.mark.slow
@pytest.mark.parametrize("native", [True, False])
def test_a_topic_that_is_created_anew_while_it_is_compared_is_not_waited_for(
    link: TestLink, monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    """Between the look at what there is and the reading: what was there does not come back."""
    monkeypatch.setattr(partition, "_PATIENCE_SECONDS", 1.0)
    link.create("gone")
    link.write("gone", 50, abort_every=0)
    link.catch_up()
    made = verifier(link, native=native)
    try:
        (one,) = made.find_scopes(RequestedRange()).scopes
        delete_topic(link.east, link.topic("gone"))
        link.create("gone")
        with pytest.raises(TopicError, match="recreated"):
            made._comparer.compare(one)
    finally:
        made.close()


@pytest.mark.slow
def test_both_ways_under_equal_names_each_link_answers_for_its_own(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """The loop guard: local records of either side are no differences, a lost or repeated mirrored one is."""
    both = TestLink(east.client_properties, west.client_properties, topic_name, tmp_path, spark_context)
    from eomirror import Mirror

    for properties in (both.east, both.west):
        create_topic(properties, topic_name)
    document = {
        "clusters": both.clusters,
        "links": [
            {"name": f"{topic_name}-{a}-{b}", "source": a, "target": b, "topics": [topic_name],
             "naming": "identity", "plane": "client", "lanes": 1}
            for a, b in (("east", "west"), ("west", "east"))
        ],
    }  # fmt: skip
    both.path.write_text(json.dumps(document))
    both.path.chmod(0o600)
    for number, properties in enumerate((both.east, both.west)):
        produce(
            properties, topic_name, 1, some_records(number, 100), transactional_id=topic_name, abort_every=0
        )
    with Mirror(load_config(both.path), spark=spark_context) as mirror:
        mirror.run(until="caught-up")
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "verify", str(both.path), "-o", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    links = json.loads(done.stdout)["links"]
    assert [each["partitions"][0]["matched"] for each in links] == [100, 100]
    # a mirrored record once more, its header with it
    (mirrored,) = raw_mirrored(both.west, topic_name)[:1]
    producer = Producer(both.west)
    producer.produce(topic_name, mirrored.value(), mirrored.key(), 0, timestamp=mirrored.timestamp()[1],
                     headers=mirrored.headers())  # fmt: skip
    assert producer.flush(30) == 0
    code, told = verify(both.path, "--link", f"{topic_name}-east-west")
    assert (code, told["partitions"][0]["differences"]["duplicate"]) == (3, 1)
    code, _ = verify(both.path, "--link", f"{topic_name}-west-east")
    assert code == 0


def raw_mirrored(properties: Mapping[str, Any], topic: str) -> list[Any]:
    """Messages of partition 0 that carry the provenance header."""
    from confluent_kafka import Consumer

    consumer = Consumer({**properties, "group.id": "raw", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    wait_for(lambda: found.extend(consumer.consume(1000, 0.5)) or len(found) >= 200, 30)
    consumer.close()
    return [each for each in found if any(name == "eomirror.hops" for name, _ in each.headers() or [])]


@pytest.fixture
def compacting() -> Iterator[LocalCluster]:
    """A cluster that compacts at once."""
    with LocalCluster.start(
        ClusterSpec("compacting", properties={"log.cleaner.backoff.ms": "200"})
    ) as cluster:
        yield cluster


COMPACT = {"cleanup_policy": "compact", "segment_ms": "200", "min_cleanable_dirty_ratio": "0.01"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("side", ["source", "target"])
def test_compaction_on_either_side_is_no_difference(
    side: str, compacting: LocalCluster, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """The last record of every key is compared; one that is lost or another's is found."""
    clusters = [compacting.client_properties, west.client_properties]
    link = TestLink(*(clusters if side == "source" else clusters[::-1]), topic_name, tmp_path, spark_context)
    link.create("compacted", **(COMPACT if side == "source" else {"cleanup_policy": "compact"}))
    for round_ in range(4):
        records = [
            (b"k%d" % (n % 20), b"v%d-%d" % (round_, n), 1_700_000_000_000 + n, ()) for n in range(200)
        ]
        write_plainly(link.east, link.topic("compacted"), records)
        link.catch_up()
    if side == "target":
        alter_topic(link.west, link.copy("compacted"), **COMPACT)
    cleaned, topic = (
        (link.west, link.copy("compacted")) if side == "target" else (link.east, link.topic("compacted"))
    )

    later = iter(range(1_700_000_010_000, 1_800_000_000_000, 10_000))

    def compacted() -> bool:
        # a segment is rolled by a record that is later than its first by more than segment.ms, by their own times
        write_plainly(link.east, link.topic("compacted"), [(b"roll", b"roll", next(later), ())])
        link.catch_up()
        return len(read_committed(cleaned, topic)[0]) < 400

    wait_for(compacted, 120)
    found = of(compared(link), link, "compacted")
    assert found.scope.by_key
    assert (kinds(found), found.matched) == ({}, 21)
    write_plainly(link.west, link.copy("compacted"), [(b"k3", b"other", 1_700_000_000_000, ()), FOREIGN])
    assert kinds(of(compared(link), link, "compacted")) == {"altered": 1, "foreign": 1}
