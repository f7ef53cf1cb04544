"""A link is handed back to a real MirrorMaker 2: it goes on at the very next record."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from eomirror import DifferenceError, Mirror, StateError, load_config
from eomirror.adopt.hand_back import hand_back_to_mm2
from eomirror.adopt.mm2 import adopt_mm2
from records import create_topic, produce, read_committed, wait_for
from rig.mm2 import MirrorMaker

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.config import Config
    from records import Record

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PARTITIONS = 2


class Flow:
    """Two topics, a link, and an MM2 for the same; what was written, and what should be in the copies."""

    def __init__(
        self, east: Any, west: Any, name: str, folder: Path, spark: Any, *, exactly_once: bool
    ) -> None:
        self.source, self.target = dict(east.client_properties), dict(west.client_properties)
        self.name, self.spark, self.path = name, spark, folder / "mirror.yaml"
        self.first, self.late = f"orders-{name}", f"orders-{name}-late"
        self.copies = {topic: f"{name}.{topic}" for topic in (self.first, self.late)}
        self.written: dict[str, dict[int, list[Record]]] = {
            topic: {number: [] for number in range(PARTITIONS)} for topic in self.copies
        }
        self.maker = MirrorMaker(
            self.source["bootstrap.servers"], self.target["bootstrap.servers"], name, f"{self.first}.*", folder,
            exactly_once=exactly_once,
        )  # fmt: skip
        self._numbers = itertools.count()
        create_topic(self.source, self.first, PARTITIONS)

    def config(self, link: str) -> Config:
        """The same link under this name."""
        settings = {
            "clusters": {self.name: self.source, "west": self.target},
            "links": [
                {
                    "name": link,
                    "source": self.name,
                    "target": "west",
                    "topics": [f"{self.first}.*"],
                    "lanes": 1,
                }
            ],
        }
        self.path.write_text(yaml.safe_dump(settings))
        self.path.chmod(0o600)
        return load_config(self.path)

    def write(self, *topics: str) -> None:
        """Transactions, one in ten aborted: the last marker of each lies behind what was mirrored."""
        for topic in topics:
            more = produce(
                self.source, topic, PARTITIONS, self._records(300), transactional_id=topic,
                per_transaction=20,
            )  # fmt: skip
            for number, records in more.items():
                self.written[topic][number] += records

    def _records(self, count: int) -> list[Record]:
        """No two alike: MM2's last record is found by what it holds."""
        return [
            (None, b"%d" % number, 1_600_000_000_000 + number, ())
            for number in itertools.islice(self._numbers, count)
        ]

    def arrived(self, *topics: str) -> bool:
        """Whether as many records are in the copies as were written."""
        known = AdminClient(self.target).list_topics(timeout=10).topics
        return all(
            self.copies[topic] in known
            and sum(map(len, read_committed(self.target, self.copies[topic]).values()))
            >= sum(map(len, self.written[topic].values()))
            for topic in topics
        )

    def check(self) -> None:
        """0 lost, 0 twice, all in order."""
        found = {topic: read_committed(self.target, copy) for topic, copy in self.copies.items()}
        assert found == self.written

    def catch_up(self, config: Config) -> None:
        with Mirror(config, spark=self.spark) as mirror:
            assert mirror.run(until="caught-up").exit_code == 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_mm2_goes_on_where_the_link_stopped(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, exactly_once: bool
) -> None:
    """From MM2 to a link, back to MM2, and to a link again: 0 lost, 0 twice, also of a topic that MM2 never saw."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context, exactly_once=exactly_once)
    config = flow.config(topic_name)
    flow.write(flow.first)
    with pytest.raises(StateError, match="nothing that could be handed back"):
        hand_back_to_mm2(config)
    with flow.maker as maker:
        wait_for(lambda: maker.check() and flow.arrived(flow.first), 400)
        maker.stop()
    adopt_mm2(config)
    create_topic(flow.source, flow.late, PARTITIONS)
    flow.write(flow.first, flow.late)
    flow.catch_up(config)
    looked = hand_back_to_mm2(config, dry_run=True)

    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "hand-back", str(flow.path), "-o", "json"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["committed"]
    assert found["partitions"] == looked.as_dict()["partitions"]
    assert [(each["topic"], each["had"] is None) for each in found["partitions"]] == [
        (name, name == flow.late) for name in sorted(flow.copies) for _ in range(PARTITIONS)
    ]
    flow.write(flow.first, flow.late)
    with flow.maker as maker:
        wait_for(lambda: maker.check() and flow.arrived(flow.first, flow.late), 400)
        with pytest.raises(DifferenceError, match="MirrorMaker 2 runs"):
            hand_back_to_mm2(config)
        maker.stop()
    flow.check()
    # the link has positions of its own; under another name it adopts what MM2 left
    again = flow.config(f"{topic_name}-again")
    assert not adopt_mm2(again).problems
    flow.write(flow.late)
    flow.catch_up(again)
    flow.check()
