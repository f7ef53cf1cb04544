"""Three clusters for the examples of docs/examples, and one example on them: its traffic, its runs, what came of it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.links.example_scenarios import SCENARIOS, assert_keyed, assert_merged, example_settings
from support.links.mirrors import CommandMirror
from support.traffic.records import create_topic, produce, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from support.links.example_scenarios import Scenario
    from support.traffic.records import Record

__all__ = ["ExampleSite", "emptied", "three_clusters"]

_RECORDS = 300


@contextlib.contextmanager
def three_clusters() -> Iterator[list[dict[str, Any]]]:
    """Starts three clusters at the same time; yields their client properties."""
    specs = [ClusterSpec(f"example{number}", heap="320m") for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        started = list(pool.map(LocalCluster.start, specs))
    try:
        yield [dict(cluster.client_properties) for cluster in started]
    finally:
        for cluster in started:
            cluster.destroy()


def emptied(properties: Mapping[str, Any]) -> None:
    """Deletes the topics and groups of a cluster: no example sees those of another."""
    admin = AdminClient(dict(properties))
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
    for future in admin.delete_consumer_groups(groups).values() if groups else ():
        future.result(30)
    names = _topics(properties)
    for future in admin.delete_topics(names).values() if names else ():
        future.result(30)
    wait_for(lambda: not _topics(properties))


def _topics(properties: Mapping[str, Any]) -> list[str]:
    names = AdminClient(dict(properties)).list_topics(timeout=15).topics
    return [name for name in names if not name.startswith("__")]


class ExampleSite:
    """The clusters of one example, its traffic, and what came of it."""

    def __init__(self, name: str, clusters: Sequence[Mapping[str, Any]], folder: Path, *, plane: str) -> None:
        settings = example_settings(name, clusters, plane=plane)
        self.name = name
        self.scenario: Scenario = SCENARIOS[name]
        self.settings = settings
        self.path = folder / f"{name}.yaml"
        self.path.write_text(yaml.safe_dump(settings))
        self.path.chmod(0o600)
        self.written: dict[str, dict[int, list[Record]]] = {}
        self._clusters: dict[str, dict[str, Any]] = settings["clusters"]

    def at(self, where: str) -> tuple[dict[str, Any], str]:
        """Client properties and topic of ``ALIAS/TOPIC``."""
        alias, _, topic = where.partition("/")
        return self._clusters[alias], topic

    def write(self, seed: int) -> None:
        """Writes to every topic of the scenario in transactions, one in five aborted; no two records are equal."""
        for where, partitions in self.scenario.writes.items():
            properties, topic = self.at(where)
            if where not in self.written:
                create_topic(properties, topic, partitions)
                self.written[where] = {number: [] for number in range(partitions)}
            records = [
                (f"{where} {seed} {number}".encode(), *record[1:])
                for number, record in enumerate(self.scenario.records(seed, _RECORDS))
            ]
            done = produce(
                properties, topic, partitions, records, transactional_id=f"{topic}-writer", abort_every=5
            )
            for number, part in done.items():
                self.written[where][number] += part

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Writes without a pause while the block runs; `written` is complete after it."""
        over = threading.Event()
        failed: list[BaseException] = []

        def write() -> None:
            seed = 100
            try:
                while not over.is_set():
                    self.write(seed)
                    seed += 1
            except BaseException as error:  # noqa: BLE001  raised again below
                failed.append(error)

        thread = threading.Thread(target=write, name=f"write {self.name}")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failed:
            raise failed[0]

    def mirror(self, folder: Path) -> CommandMirror:
        """The real command, in processes of its own."""
        return CommandMirror(self.settings, folder)

    def commits(self) -> int:
        """Offsets in the positions topics of all links: a claim or a transaction of a lane adds some."""
        total = 0
        for properties in self._clusters.values():
            topics = [name for name in _topics(properties) if name.endswith(".positions")]
            consumer = Consumer({**properties, "group.id": "commits"})
            for name in topics:
                for number in consumer.list_topics(name, timeout=15).topics[name].partitions:
                    # a topic that was just created may have no leader yet
                    with contextlib.suppress(KafkaException):
                        total += consumer.get_watermark_offsets(TopicPartition(name, number), timeout=15)[1]
            consumer.close()
        return total

    def copied(self) -> int:
        """Records of all topics that links write to; 0 while one is missing."""
        total = 0
        for where in self.scenario.holds:
            properties, topic = self.at(where)
            if topic not in _topics(properties):
                return 0
            total += sum(map(len, read_committed(properties, topic).values()))
        return total

    def whole(self) -> bool:
        """True if all copies together hold as many records as they should."""
        wanted = sum(
            len(part)
            for sources in self.scenario.holds.values()
            for source in sources
            for part in self.due(source).values()
        )
        return self.copied() >= wanted

    def due(self, source: str) -> dict[int, list[Record]]:
        """What copies have of a written topic, by partition."""
        return {
            number: [due for record in part if (due := self.scenario.copied(record)) is not None]
            for number, part in self.written[source].items()
        }

    def read_half(self) -> None:
        """The scenario's group reads half of each partition of its topic."""
        if self.scenario.group is None:
            return
        group, where, _ = self.scenario.group
        properties, topic = self.at(where)
        consumer = Consumer({**properties, "group.id": group, "enable.auto.commit": False})
        consumer.commit(
            offsets=[
                TopicPartition(
                    topic, number, _offset_of(properties, topic, number, records[len(records) // 2])
                )
                for number, records in self.written[where].items()
            ],
            asynchronous=False,
        )
        consumer.close()

    def run(self, spark: Any) -> None:
        """Runs until caught up, once for each link that a record may have to pass."""
        for _ in range(self.scenario.hops):
            with Mirror(load_config(self.path), spark=spark) as mirror:
                assert mirror.run(until="caught-up").exit_code == 0

    def assert_copies(self) -> None:
        """Every topic holds what it should hold, and no other exists."""
        for where, sources in self.scenario.expected().items():
            properties, topic = self.at(where)
            written = [
                self.due(source) if where in self.scenario.holds else self.written[source]
                for source in sources
            ]
            found = read_committed(properties, topic)
            if count := self.scenario.keyed.get(where):
                assert_keyed(found, written, count)
            else:
                assert_merged(found, written)
        for where in self.scenario.absent:
            properties, topic = self.at(where)
            assert topic not in _topics(properties)

    def assert_equal(self) -> None:
        """`verify` finds every link equal, or refuses the one that has a query."""
        if self.scenario.compared:
            verdicts = [link["verdict"] for link in self.command("verify")["links"]]
            assert set(verdicts) == {"equal"}
            return
        with pytest.raises(AssertionError, match="verify does not run the query"):
            self.command("verify")

    def assert_reads(self) -> None:
        """A consumer that subscribes to the page's pattern gets each record once."""
        if self.scenario.reads is None:
            return
        alias, pattern, sources = self.scenario.reads
        wanted = sorted(
            record[0] or b""
            for source in sources
            for part in self.written[source].values()
            for record in part
        )
        consumer = Consumer(
            {**self._clusters[alias], "group.id": "wildcard", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([pattern])
        found: list[bytes] = []

        def all_read() -> bool:
            found.extend(each.key() for each in consumer.consume(1_000, 0.2) if each.error() is None)
            return len(found) >= len(wanted)

        try:
            wait_for(all_read, 60)
        finally:
            consumer.close()
        assert sorted(found) == wanted

    def assert_group(self) -> None:
        """The scenario's group resumes on the copy at the record that it would have read next."""
        if self.scenario.group is None:
            return
        group, source, copy = self.scenario.group
        properties, topic = self.at(copy)
        asked = [ConsumerGroupTopicPartitions(group)]
        admin = AdminClient(properties)
        (future,) = admin.list_consumer_group_offsets(asked).values()
        offsets = {each.partition: each.offset for each in future.result(30).topic_partitions}
        assert offsets == {
            number: _offset_of(properties, topic, number, records[len(records) // 2])
            for number, records in self.written[source].items()
        }

    def command(self, *words: str) -> Any:
        """What a command says in JSON; it ends with 0."""
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", words[0], str(self.path), *words[1:], "-o", "json"],
            capture_output=True, text=True, timeout=120, check=False, cwd=self.path.parent,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


def _offset_of(properties: Mapping[str, Any], topic: str, partition: int, record: Record) -> int:
    """The offset of a record, told by its key."""
    consumer = Consumer(
        {
            **properties,
            "group.id": "place",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        while True:
            message = consumer.poll(30.0)
            assert message is not None
            assert message.error() is None
            if message.key() == record[0]:
                offset: int = message.offset()
                return offset
    finally:
        consumer.close()
