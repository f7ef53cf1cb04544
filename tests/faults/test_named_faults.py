"""
Faults, each named within 15 s by the page, the metrics and an alert rule, with what to do.

The page and the metrics are those of `serve`, which reads only the target's topics and asks the source for offsets.
"""

from __future__ import annotations

import html
import re
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import load_config
from eomirror.link.hanging_scan import HangingTransactions
from eomirror.link.status_reader import StatusReader
from eomirror.metrics.view import LinkFacts
from eomirror.serve.http import Request
from eomirror.serve.polled import PolledEndpoints
from support.alert_rules import Scrape, firing
from support.mirrors import CommandMirror
from support.plane import plane_under_test
from support.records import create_topic, delete_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300),
]  # fmt: skip

#: A fault is named within this time.
SECONDS = 15.0
_USER, _PASSWORD = "watched", "correct horse"


class Watched:
    """A link that runs, and what `serve` says of it."""

    def __init__(self, source: LocalCluster, target: LocalCluster, name: str, folder: Path) -> None:
        self.source, self.target, self.name, self.folder = source, target, name, folder
        self.topic = f"{name}.orders"
        self.settings: dict[str, Any] = {
            "clusters": {"east": dict(source.client_properties), "west": dict(target.client_properties)},
            "links": [{"name": name, "source": "east", "target": "west", "topics": [f"{name}\\..*"]}],
            "defaults": {"lanes": 1, "plane": plane_under_test(), "groups": []},
        }
        self.mirror: CommandMirror | None = None
        self.stack = ExitStack()
        self._served: PolledEndpoints | None = None
        self._before = Scrape("")

    def write(self, count: int = 50) -> None:
        """Writes records to the source."""
        produce(self.source.client_properties, self.topic, 1, some_records(3, count), transactional_id=self.name,
                abort_every=0)  # fmt: skip

    def start(self, word: str = "run", *arguments: str) -> CommandMirror:
        """Starts the real command."""
        self.mirror = CommandMirror(self.settings, self.folder / word, *arguments)
        self.stack.callback(self.mirror.close)
        self.mirror.start()
        return self.mirror

    def serve(self, settings: dict[str, Any] | None = None) -> None:
        """Reads the link from now on; again, in place of the reader before."""
        if self._served is not None:
            self._served.close()
        config = load_config(settings or self.settings)
        link = config.links[0]

        def reader() -> StatusReader:
            return StatusReader(
                link, config.clusters["east"], config.clusters["west"], hanging=HangingTransactions
            )

        self._served = PolledEndpoints({LinkFacts.of(link): reader}, version="test")
        self._served.start()
        self.stack.callback(self._served.close)

    def answer(self, *path: str) -> str:
        """Text of an answer."""
        assert self._served is not None
        return self._served.answer(Request(path)).body.decode()

    def page(self) -> str:
        """Text of the link's page, without markup."""
        text = self.answer("links", self.name)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())

    def running(self) -> None:
        """Waits until the link runs, has caught up, and is seen; from here on a rule may count increases."""
        wait_for(lambda: " ✓ ok caught up " in self.page(), 120)
        self._before = Scrape(self.answer("metrics"))

    def named(self, alert: str, *words: str) -> None:
        """
        Waits until the fault is named.

        Args:
            alert: The rule.
            words: What the page says.
        """
        until = time.monotonic() + SECONDS
        while True:
            page, fired = self.page(), firing(self._before, Scrape(self.answer("metrics")))
            missing = [word for word in words if word not in page]
            if not missing and alert in fired:
                return
            assert time.monotonic() < until, f"missing: {missing}, fired: {fired}, page: {page[:3_000]}"
            time.sleep(0.3)


@pytest.fixture
def watched(east: Any, west: Any, topic_name: str, tmp_path: Path) -> Iterator[Watched]:
    """A link with one topic between two clusters that other tests share."""
    made = Watched(east, west, topic_name, tmp_path)
    create_topic(east.client_properties, made.topic)
    with made.stack:
        yield made


@pytest.fixture
def started(watched: Watched) -> Watched:
    """Such a link, running and caught up."""
    watched.write()
    watched.start()
    watched.serve()
    watched.running()
    return watched


@contextmanager
def stopped_broker(cluster: LocalCluster) -> Iterator[None]:
    """A cluster that is away while the block runs."""
    cluster.brokers[0].kill()
    try:
        yield
    finally:
        cluster.brokers[0].start()


def test_a_killed_mirror(started: Watched) -> None:
    """With the command that starts it."""
    assert started.mirror is not None
    started.mirror.kill()
    started.named(
        "EomirrorMirrorDown", "■ down", "it was killed", "What to do: start it: eomirror run CONFIG"
    )


def test_a_source_that_is_down(started: Watched) -> None:
    """What a failover would lose is unknown; the page says why."""
    with stopped_broker(started.source):
        started.named("EomirrorUnknown", "? unknown", "cluster east", "check bootstrap.servers")


def test_a_target_that_is_down(started: Watched) -> None:
    """Nothing can be read; the process of `serve` still answers."""
    with stopped_broker(started.target):
        started.named("EomirrorUnknown", "? unknown", "cluster west", "check bootstrap.servers")


def test_a_recreated_topic(started: Watched) -> None:
    """Its records must not be mixed with those of the topic before."""
    properties = started.source.client_properties
    delete_topic(properties, started.topic)
    create_topic(properties, started.topic)
    started.write(5)
    started.named("EomirrorTopicStopped", "■ stopped", "created again", "What to do:")
