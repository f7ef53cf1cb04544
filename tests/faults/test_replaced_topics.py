"""
Topics that are not what a position speaks of (faults F17, F19, F20): noticed before a wrong record commits.

Recreated, truncated, restored from an older log, deleted; on either side, while the mirror runs and while it does not.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.links.link import TestLink
from support.links.plane import kafka_of
from support.traffic.records import create_topic, delete_topic, produce, read_committed, some_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from support.judges.ledger import Entry

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark]

# how many records the new topic has, against 200 of the old one (which has markers and aborted ranges besides)
LENGTHS = {"longer": 900, "equal": 200, "shorter": 20, "empty": 0}


def recreate(link: TestLink, lengths: dict[str, int]) -> None:
    """Delete source topics and create them again, with so many foreign records."""
    link.entry.injected(len(lengths))
    for word, count in lengths.items():
        delete_topic(link.east, link.topic(word))
        create_topic(link.east, link.topic(word))
        if count:
            foreign = [(b"foreign", b"%d" % number, 1_700_000_000_000, ()) for number in range(count)]
            produce(link.east, link.topic(word), 1, foreign, transactional_id=f"{link.name}-foreign")


def nothing_foreign(link: TestLink, words: Sequence[str]) -> None:
    """The copies hold what was committed to the old topics, and nothing else."""
    link.check(*words)


@pytest.mark.fault("F17")
def test_recreated_sources_are_noticed_at_the_next_start(link: TestLink) -> None:
    """EO-5: longer, equal, shorter or empty; exit code 4, each topic named, no foreign record; others go on."""
    link.create(*LENGTHS, "healthy")
    for word in (*LENGTHS, "healthy"):
        link.write(word)
    link.catch_up()
    recreate(link, LENGTHS)
    link.write("healthy")

    code, stopped = link.stopped()

    assert code == 4
    assert set(stopped) == set(LENGTHS)
    for word, text in stopped.items():
        assert "deleted and created again" in text, word
        assert f"{link.topic(word)}-0" in text
    nothing_foreign(link, [*LENGTHS, "healthy"])


@pytest.mark.fault("F17")
def test_recreated_sources_are_noticed_while_it_runs(link: TestLink) -> None:
    """
    EO-5: a fetch that goes on in the new topic is not committed; other topics go on meanwhile.

    A lane that begins anew for one of them may look at another just while it is deleted and not there yet again:
    then that it is gone is the truth, and it stops for that.
    """
    lengths = {word: count for word, count in LENGTHS.items() if count}
    link.create(*lengths, "healthy")
    for word in (*lengths, "healthy"):
        link.write(word)
    with link.running() as run:
        run.wait(lambda: link.whole(*lengths, "healthy"))
        recreate(link, lengths)
        run.wait(lambda: set(run.stopped) == {link.topic(word) for word in lengths})
        for word in lengths:
            stopped = run.stopped[link.topic(word)]
            assert "deleted and created again" in stopped or "the source topic is gone" in stopped, word
        link.write("healthy")
        run.wait(lambda: link.whole("healthy"))
    nothing_foreign(link, [*lengths, "healthy"])


@pytest.mark.fault("F20")
@pytest.mark.slow
def test_replaced_targets_are_noticed_at_the_next_start(link: TestLink) -> None:
    """EO-5: a target topic that was deleted, or recreated with foreign records, is not silently filled again."""
    words = ("deleted", "recreated")
    link.create(*words, "healthy")
    for word in (*words, "healthy"):
        link.write(word)
    link.catch_up()
    for word in words:
        delete_topic(link.west, link.copy(word))
        link.entry.injected()
    create_topic(link.west, link.copy("recreated"))
    foreign = produce(link.west, link.copy("recreated"), 1, some_records(1, 300), transactional_id=link.name)
    for word in (*words, "healthy"):
        link.write(word)

    code, stopped = link.stopped()

    assert code == 1
    assert set(stopped) == set(words)
    for text in stopped.values():
        assert "target topic" in text
        assert "--resume-at" in text
    assert link.found("recreated") == foreign
    # not created again, empty: a person decides what goes into it
    assert link.copy("deleted") not in AdminClient(dict(link.west)).list_topics(timeout=10).topics
    link.check("healthy")


@pytest.mark.fault("F20")
@pytest.mark.slow
def test_replaced_targets_are_noticed_while_it_runs(link: TestLink) -> None:
    """EO-5: deleted, or deleted and created again, under the mirror's transactions; other topics go on."""
    words = ("deleted", "recreated")
    link.create(*words, "healthy")
    for word in (*words, "healthy"):
        link.write(word)
    with link.running() as run:
        run.wait(lambda: link.whole(*words, "healthy"))
        for word in words:
            delete_topic(link.west, link.copy(word))
            link.entry.injected()
        create_topic(link.west, link.copy("recreated"))
        for word in (*words, "healthy"):
            link.write(word)
        run.wait(lambda: set(run.stopped) == {link.topic(word) for word in words}, 90)
        link.write("healthy")
        run.wait(lambda: link.whole("healthy"))
    link.check("healthy")
    assert link.found("recreated") == {0: []}


class Logs:
    """The log directories of some topics of a single broker, as they are at a moment."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        (self._broker,) = cluster.brokers
        self._data = self._broker.folder / "data"

    def save(self, topics: Sequence[str]) -> None:
        """Stop the broker, copy, start it again."""
        self._broker.stop()
        for topic in topics:
            shutil.copytree(self._data / f"{topic}-0", self._folder / f"{topic}-0")
        self._broker.start()

    def restore(self, topics: Sequence[str]) -> None:
        """Stop the broker, put the older logs back, start it again."""
        self._broker.stop()
        for topic in topics:
            shutil.rmtree(self._data / f"{topic}-0")
            shutil.copytree(self._folder / f"{topic}-0", self._data / f"{topic}-0")
        self._broker.start()


@pytest.fixture(scope="module")
def fragile() -> Iterator[LocalCluster]:
    """A cluster whose logs are put back to what they were."""
    with LocalCluster.start(ClusterSpec("fragile", kafka_version=kafka_of("west"))) as cluster:
        yield cluster


# how many records are written behind the older log, whose own end is 200 records before the position
AFTER = {"truncated": 0, "regrown": 20, "overgrown": 900}


@pytest.mark.fault("F19")
@pytest.mark.parametrize(
    "running", [pytest.param(False, id="stopped"), pytest.param(True, id="running", marks=pytest.mark.slow)]
)
@pytest.mark.timeout(400)
def test_a_source_that_is_restored_from_an_older_log(
    running: bool,
    fragile: LocalCluster,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    entry: Entry,
) -> None:
    """EO-5, EO-6: shorter than the position, or longer again with other records: exit code 4, nothing foreign."""
    source, target = fragile.client_properties, west.client_properties
    link = TestLink(source, target, topic_name, tmp_path, spark_context, entry)
    logs = Logs(fragile, tmp_path)
    topics = [link.topic(word) for word in AFTER]
    link.create(*AFTER, "healthy")
    for word in (*AFTER, "healthy"):
        link.write(word)
    logs.save(topics)
    for word in (*AFTER, "healthy"):
        link.write(word)

    def lose() -> None:
        logs.restore(topics)
        entry.injected(len(topics))
        for word, count in AFTER.items():
            if count:
                foreign = [(b"foreign", b"%d" % number, 1_700_000_000_000, ()) for number in range(count)]
                produce(link.east, link.topic(word), 1, foreign, transactional_id=f"{link.name}-foreign")
        link.write("healthy")

    if running:
        with link.running() as run:
            run.wait(lambda: link.whole(*AFTER, "healthy"))
            lose()
            run.wait(lambda: link.whole("healthy"), 120)
            run.wait(lambda: set(run.stopped) >= set(topics), 90)
            stopped = {word: run.stopped[link.topic(word)] for word in AFTER}
    else:
        link.catch_up()
        lose()
        code, stopped = link.stopped()
        assert code == 4

    assert set(stopped) == set(AFTER)
    for word, text in stopped.items():
        assert "truncat" in text or "diverges" in text, word
        assert f"{link.topic(word)}-0" in text
    nothing_foreign(link, [*AFTER, "healthy"])


@pytest.mark.fault("F20")
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_target_that_is_restored_from_an_older_log(
    east: Any, fragile: LocalCluster, topic_name: str, tmp_path: Path, spark_context: Any, entry: Entry
) -> None:
    """EO-5: the copy ends before the last record that was committed to it; it is not silently filled again."""
    source, target = east.client_properties, fragile.client_properties
    link = TestLink(source, target, topic_name, tmp_path, spark_context, entry)
    logs = Logs(fragile, tmp_path)
    link.create("lost", "healthy")
    for word in ("lost", "healthy"):
        link.write(word)
    link.catch_up()
    older = link.found("lost")
    logs.save([link.copy("lost")])
    for word in ("lost", "healthy"):
        link.write(word)
    link.catch_up()
    logs.restore([link.copy("lost")])
    entry.injected()
    for word in ("lost", "healthy"):
        link.write(word)

    code, stopped = link.stopped()

    assert code == 4
    assert set(stopped) == {"lost"}
    assert "truncated or restored from an older state" in stopped["lost"]
    assert read_committed(link.west, link.copy("lost")) == older
    link.check("healthy")
