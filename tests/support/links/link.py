"""One link between two clusters for a test: written past the mirror, run in this process, judged from outside."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from eomirror import Mirror, load_config
from support.judges.ledger import Entry
from support.links.plane import plane_under_test
from support.traffic.records import Record, create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["RunningLink", "TestLink", "alter_topic"]

_START_SECONDS = 90.0


def alter_topic(properties: Mapping[str, Any], topic: str, **settings: str) -> None:
    """Set settings of a topic by hand; ``_`` stands for each dot."""
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    admin = AdminClient(dict(properties))
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


class RunningLink:
    """A mirror that runs in a thread of this process."""

    def __init__(self, mirror: Mirror) -> None:
        self.report: Any = None
        self.error: BaseException | None = None
        self._mirror = mirror
        self._snapshot: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> dict[str, str]:
        """Topics that it has stopped, and why."""
        if self._snapshot is None:
            return {}
        return {topic.topic: str(topic.stopped) for topic in self._snapshot.links[0].topics if topic.stopped}

    def wait(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait for something while the mirror lives; its failure is the test's."""

        def alive_and_true() -> Any:
            if self.error is not None:
                raise AssertionError(f"the mirror ended: {self.error}") from self.error
            return condition()

        return wait_for(alive_and_true, seconds)

    def end(self) -> Any:
        """Stop it; its report."""
        self._mirror.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the mirror does not stop"
        return self.report

    def _run(self) -> None:
        try:
            self.report = self._mirror.run(on_progress=self._look)
        except BaseException as error:  # noqa: BLE001  handed to the test's thread
            self.error = error

    def _look(self, snapshot: Any) -> None:
        self._snapshot = snapshot


class TestLink:
    """
    One link, named after its test; its topics are ``NAME.WORD``.

    Args:
        east: Client properties of the source.
        west: Client properties of the target.
        name: Of the link, and prefix of its topics.
        folder: For its configuration file.
        spark: Context to run on.
        entry: Where figures go.
        settings: Further settings of the link.
    """

    __test__ = False  # no class of tests, whatever pytest thinks of its name

    def __init__(
        self, east: Mapping[str, Any], west: Mapping[str, Any], name: str, folder: Path, spark: Any,
        entry: Entry | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self.entry = entry if entry is not None else Entry(faults=(), test=name, seed=0)
        self.east, self.west, self.name, self.spark = dict(east), dict(west), name, spark
        self.path = folder / "mirror.yaml"
        self.clusters: dict[str, dict[str, Any]] = {"east": dict(east), "west": dict(west)}
        self.settings: dict[str, Any] = {"lanes": 2, "plane": plane_under_test(), **settings}
        self.written: dict[str, dict[int, list[Record]]] = {}
        self._seeds = iter(range(1, 10_000))

    def topic(self, word: str) -> str:
        return f"{self.name}.{word}"

    def copy(self, word: str) -> str:
        return f"east.{self.name}.{word}"

    def create(self, *words: str, partitions: int = 1, **configs: str) -> None:
        """Create source topics; ``_`` stands for each dot of a setting's name."""
        for word in words:
            create_topic(
                self.east, self.topic(word), partitions,
                **{key.replace("_", "."): value for key, value in configs.items()},
            )  # fmt: skip
            self.written[word] = {number: [] for number in range(partitions)}

    def write(self, word: str, count: int = 200, **options: Any) -> None:
        """Write records of every shape in transactions, one in ten aborted; remembers what was committed."""
        self.write_these(word, some_records(next(self._seeds), count), **options)

    def write_these(self, word: str, records: list[Record], **options: Any) -> None:
        """Write these records in transactions; remembers what was committed."""
        partitions = len(self.written[word])
        more = produce(
            self.east, self.topic(word), partitions, records, transactional_id=self.topic(word), **options
        )
        for number, committed in more.items():
            self.written[word][number] += committed

    def found(self, word: str) -> dict[int, list[Record]]:
        """What a read_committed reader of the copy sees."""
        return read_committed(self.west, self.copy(word))

    def whole(self, *words: str) -> bool:
        """Whether as many records are in the copies as were written."""
        return all(
            sum(map(len, self.found(word).values())) >= sum(map(len, self.written[word].values()))
            for word in words
        )

    def check(self, *words: str) -> None:
        """The copies are what was written, byte for byte."""
        for word in words:
            self.entry.records += sum(map(len, self.written[word].values()))
            assert self.found(word) == self.written[word], word

    def mirror(self, **options: Any) -> Mirror:
        link = {
            "name": self.name, "source": "east", "target": "west", "topics": [f"{self.name}\\..*"],
            **self.settings,
        }  # fmt: skip
        self.path.write_text(yaml.safe_dump({"clusters": self.clusters, "links": [link]}))
        self.path.chmod(0o600)
        return Mirror(load_config(self.path), spark=self.spark, **options)

    def catch_up(self, **options: Any) -> Any:
        """Run until caught up; the report."""
        with self.mirror(**options) as mirror:
            return mirror.run(until="caught-up")

    def stopped(self, **options: Any) -> tuple[int, dict[str, str]]:
        """Run until caught up; exit code, and the words of the stopped topics with why."""
        report = self.catch_up(**options)
        prefix = f"{self.name}."
        return report.exit_code, {
            topic.removeprefix(prefix): why for topic, why in report.links[0].stopped_topics.items()
        }

    @contextmanager
    def running(self, **options: Any) -> Iterator[RunningLink]:
        """Run it while the block runs."""
        with self.mirror(**options) as mirror:
            run = RunningLink(mirror)
            try:
                yield run
            finally:
                run.end()
