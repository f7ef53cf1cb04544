"""Topics that a real MirrorMaker 2 mirrors, and a link for the same: one takes over from the other."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import yaml
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from eomirror.status.reader import StatusReader
from support.clusters.mm2 import MirrorMaker
from support.traffic.records import create_topic, read_committed

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.config import Config

__all__ = ["Mm2Link"]


class Mm2Link:
    """
    A link that may go on where MM2 stops, and the other way round.

    Args:
        east: The source.
        west: The target, which is MM2's ``west`` too.
        name: Alias of the source, unlike any other's, and of the link.
        folder: For the files of both.
        spark: Context to run on.
        exactly_once: Of MM2.
        topics: What is mirrored, as a regular expression; by default the one topic `topic`.
    """

    def __init__(
        self, east: Any, west: Any, name: str, folder: Path, spark: Any, *, exactly_once: bool,
        partitions: int = 2, topics: str = "",
    ) -> None:  # fmt: skip
        self.alias, self.spark, self.path = name, spark, folder / "mirror.yaml"
        self.topic, self.partitions = f"orders-{name}", partitions
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        self._topics = topics.format(topic=self.topic) if topics else self.topic
        create_topic(self.east, self.topic, partitions)
        self.maker = MirrorMaker(
            self.east["bootstrap.servers"], self.west["bootstrap.servers"], name, self._topics, folder,
            exactly_once=exactly_once,
        )  # fmt: skip

    @property
    def config(self) -> Config:
        """The link's configuration, in `path` too."""
        settings = {
            "clusters": {self.alias: self.east, "west": self.west},
            "links": [{"name": self.alias, "source": self.alias, "target": "west", "topics": [self._topics]}],
            "defaults": {"lanes": 1, "commit_interval": "20ms"},
        }
        self.path.write_text(yaml.safe_dump(settings))
        self.path.chmod(0o600)
        return load_config(self.path)

    def take_too(self, topic: str) -> None:
        """Another topic, which the link mirrors from its next start on."""
        self._topics = f"{self._topics}|{topic}"

    def copy(self, topic: str = "") -> str:
        """Name of a topic's copy."""
        return f"{self.alias}.{topic or self.topic}"

    def mirrored(self, topic: str = "") -> int:
        """Committed records of a copy; -1 while there is none."""
        if self.copy(topic) not in AdminClient(self.west).list_topics(timeout=10).topics:
            return -1
        return sum(map(len, read_committed(self.west, self.copy(topic)).values()))

    def catch_up(self) -> None:
        """The link runs until it has caught up."""
        with Mirror(self.config, spark=self.spark) as mirror:
            assert mirror.run(until="caught-up").exit_code == 0

    def state(self) -> str:
        """What `eomirror status` calls the link's state."""
        reader = StatusReader(self.config.links[0], *map(self.config.clusters.get, (self.alias, "west")))
        try:
            return reader.read().state
        finally:
            reader.close()

    def command(self, name: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit code and JSON of a command of ours on this link."""
        assert self.config
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", name, str(self.path), "-o", "json", *arguments],
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)
