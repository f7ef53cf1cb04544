"""
Two clusters of which one is lost: traffic, consumer groups, the commands of failover, and the judge of what they did.

The judge reads both clusters with plain clients: records by value, and groups by the record that they would read next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from eomirror.kafka.session import ClusterSession
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.link.state import control_of
from support.links.mirrors import running
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, wait_for, watermarks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eomirror.config import Config
    from support.traffic.records import Record

__all__ = ["Disaster"]

# nothing listens there
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


class Disaster:
    """
    A link from east to west, and one back, for topics of one test.

    Args:
        east: Client properties of the source.
        west: Client properties of the target.
        name: Of the link, and prefix of its topics.
        folder: For configurations and logs.
        spark: Context to run on.
        equal_names: ``naming: identity`` instead of prefixed names.
        back: Configure the link back as well.
    """

    def __init__(
        self, east: Mapping[str, Any], west: Mapping[str, Any], name: str, folder: Path, spark: Any,
        *, equal_names: bool = False, partitions: int = 2, back: bool = True,
    ) -> None:  # fmt: skip
        self.east, self.west = dict(east), dict(west)
        self.name, self.folder, self.spark = name, folder, spark
        self.back = f"{name}-back"
        self.equal_names, self.partitions = equal_names, partitions
        self.topic = f"{name}.orders"
        self.copy = self.topic if equal_names else f"east.{self.topic}"
        self.with_back = back
        self._numbers = 0
        create_topic(self.east, self.topic, partitions)

    # -- configuration -----------------------------------------------------------------------------

    def settings(self, *, lost: bool = False) -> dict[str, Any]:
        """The configuration as a file holds it; with ``lost`` east does not answer."""
        naming: dict[str, Any] = {"naming": "identity"} if self.equal_names else {}
        there = {"name": self.name, "source": "east", "target": "west", "topics": [self.topic], **naming}
        if not self.equal_names:
            naming = {"naming": {"match": r"east\.(.*)", "to": "$1"}}
        back = {
            "name": self.back, "source": "west", "target": "east",
            "topics": [self.copy.replace(".", "\\.")], **naming,
        }  # fmt: skip
        return {
            "clusters": {"east": NOWHERE if lost else self.east, "west": self.west},
            "links": [there, back] if self.with_back else [there],
            "defaults": {
                "lanes": 2, "plane": plane_under_test(), "groups": [f"{self.name}.*"],
                "group_interval": "200ms", "heartbeats": "off",
            },
        }  # fmt: skip

    def path(self, *, lost: bool = False) -> Path:
        """The file of the configuration."""
        path = self.folder / ("lost.yaml" if lost else "mirror.yaml")
        path.write_text(yaml.safe_dump(self.settings(lost=lost)))
        path.chmod(0o600)
        return path

    def config(self, *, lost: bool = False) -> Config:
        """The same, loaded."""
        return load_config(self.path(lost=lost))

    # -- traffic -----------------------------------------------------------------------------------

    def write(self, side: str, count: int = 120, *, topic: str = "") -> dict[int, list[Record]]:
        """Write records with distinct values in transactions, one in ten aborted; what was committed."""
        records: list[Record] = []
        for _ in range(count):
            self._numbers += 1
            value = b"%s-%d" % (side.encode(), self._numbers)
            records.append((b"k%d" % (self._numbers % 7), value, 1_600_000_000_000 + self._numbers, ()))
        properties = self.east if side == "east" else self.west
        topic = topic or (self.topic if side == "east" else self.copy)
        return produce(
            properties,
            topic,
            self.partitions,
            records,
            transactional_id=f"{self.name}-{side}",
            per_transaction=10,
        )

    def catch_up(self, link: str = "") -> None:
        """Mirror until caught up."""
        with Mirror(self.config(), spark=self.spark, links=[link or self.name]) as mirror:
            report = mirror.run(until="caught-up")
        assert report.exit_code == 0, report

    def follow(self, offsets: int) -> None:
        """Mirror until the groups of this test have so many checkpoints, and no longer."""
        with running(Mirror(self.config(), spark=self.spark, links=[self.name])):
            self.await_checkpoints(offsets)

    def await_checkpoints(self, offsets: int, seconds: float = 90) -> None:
        """Wait until a mirror has written so many checkpoints of this test's groups."""
        wait_for(lambda: len(self.checkpoints()) >= offsets, seconds)

    def checkpoints(self) -> dict[tuple[str, str, int], int]:
        """Target offset of each checkpoint of this test's groups, by group, copy and partition."""
        session = ClusterSession(self.config().clusters["west"], client_id="test")
        try:
            found = OffsetMapReader(self.config().link(self.name), session).checkpoints()
        finally:
            session.close()
        name = f"{self.name}-"
        return {
            (one.group.removeprefix(name), one.topic, one.partition): one.downstream
            for one in found
            if one.group.startswith(name)
        }

    def await_copies(self, seconds: float = 90) -> None:
        """Wait until a mirror has copied all that is committed on east."""
        wait_for(lambda: self.count("west") == self.count("east"), seconds)

    def await_ends(self, seconds: float = 90) -> None:
        """Wait until the mirror has written where the source ends: before that, a failover states no bound."""
        session = ClusterSession(self.config().clusters["west"], client_id="test")
        link = self.config().link(self.name)

        def seen() -> bool:
            view = control_of(link, session)
            known = {source for source in view.ends if source.topic == self.topic}
            return view.seen is not None and len(known) == self.partitions

        wait_for(seen, seconds)
        session.close()

    def read(self, side: str) -> dict[int, list[Record]]:
        """What a read_committed reader sees of the topic on that side."""
        return read_committed(*((self.east, self.topic) if side == "east" else (self.west, self.copy)))

    def count(self, side: str) -> int:
        """Committed records on that side; 0 while the topic does not exist."""
        properties, topic = (self.east, self.topic) if side == "east" else (self.west, self.copy)
        if topic not in AdminClient(properties).list_topics(timeout=10).topics:
            return 0
        return sum(map(len, self.read(side).values()))

    # -- groups ------------------------------------------------------------------------------------

    def commit(self, side: str, group: str, offsets: Mapping[int, int], *, topic: str = "") -> None:
        """Commit offsets of a group without members."""
        properties, usual = (self.east, self.topic) if side == "east" else (self.west, self.copy)
        wanted = [TopicPartition(topic or usual, number, offset) for number, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(f"{self.name}-{group}", wanted)]
        admin = AdminClient(properties)

        def taken() -> bool:
            """The coordinator of a fresh cluster is not ready at once."""
            (future,) = admin.alter_consumer_group_offsets(request).values()
            return not any(one.error for one in future.result(60).topic_partitions)

        wait_for(taken)

    def end(self, side: str, number: int) -> int:
        """High watermark of a partition."""
        properties, topic = (self.east, self.topic) if side == "east" else (self.west, self.copy)
        return watermarks(properties, topic, number)[1]

    def next_of(self, side: str, group: str, number: int) -> bytes | None:
        """Value of the record that a consumer of the group would read next; None at the end."""
        properties, topic = (self.east, self.topic) if side == "east" else (self.west, self.copy)
        consumer = Consumer(
            {
                **properties, "group.id": f"{self.name}-{group}", "isolation.level": "read_committed",
                "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error",
            }
        )  # fmt: skip
        try:
            (found,) = consumer.committed([TopicPartition(topic, number)], timeout=15)
            assert found.error is None, found.error
            assert found.offset >= 0, f"{group} has no offset in {topic}-{number} on {side}: {found}"
            consumer.assign([TopicPartition(topic, number, found.offset)])
            message = consumer.poll(20)
            assert message is not None, f"{group}: nothing from {topic}-{number}"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return None
            return message.value()
        finally:
            consumer.close()

    # -- commands ----------------------------------------------------------------------------------

    def command(
        self,
        verb: str,
        *arguments: str,
        link: str = "",
        lost: bool = False,
        crash: str = "",
        timeout: float = 120,
    ) -> tuple[int, dict[str, Any], str]:
        """
        Run a command in a process of its own.

        Returns:
            Exit code, the result, and what it wrote to stderr.
        """
        environment = dict(os.environ)
        if crash:
            environment["EOMIRROR_CRASH_POINT"] = f"{crash}@{self.folder / crash}"
        done = subprocess.run(
            [
                sys.executable, "-m", "eomirror", verb, str(self.path(lost=lost)), "--link", link or self.name,
                "-o", "json", *arguments,
            ],
            capture_output=True, text=True, timeout=timeout, check=False, env=environment,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr
