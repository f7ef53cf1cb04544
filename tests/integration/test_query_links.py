"""Links whose records a query of Spark writes, on real brokers: exact after kills, and shown like any link."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eomirror import Mirror, load_config
from eomirror.errors import UsageError
from eomirror.status.reader import StatusReader
from support.links.mirrors import CommandMirror, running
from support.traffic.records import create_topic, read_committed, wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(400)]

_PARTITIONS = 2
_SQL = (
    "SELECT key, regexp_replace(string(value), 'email-[0-9]+', '***') AS value, headers, timestamp FROM records "
    "WHERE get_json_object(string(value), '$.region') = 'eu'"
)


def settings(east: LocalCluster, west: LocalCluster, name: str, **link: Any) -> dict[str, Any]:
    """A link of one topic with a statement."""
    return {
        "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
        "links": [
            {
                "name": name, "source": "east", "target": "west", "topics": [name], "transform": {"sql": _SQL},
                "lanes": 2, **link,
            }
        ],
    }  # fmt: skip


class Written:
    """Writes records, and knows what the statement makes of them; ``left_out`` is the number of the others."""

    def __init__(self, properties: Mapping[str, Any], topic: str, rng: random.Random) -> None:
        self._producer = Producer({**properties, "enable.idempotence": True, "linger.ms": 5})
        self._topic, self._rng = topic, rng
        self.expected: dict[int, list[Any]] = {number: [] for number in range(_PARTITIONS)}
        self.left_out = 0

    def write(self, count: int) -> None:
        """Write records, each with a number of its own."""
        for _ in range(count):
            number = sum(map(len, self.expected.values())) + self.left_out
            partition = self._rng.randrange(_PARTITIONS)
            region = self._rng.choice(("eu", "us"))
            key = f"key-{number}".encode()
            value = json.dumps({"n": number, "region": region, "email": f"email-{number}"})
            headers = [("number", b"%d" % number)]
            self._producer.produce(
                self._topic, value, key, partition, timestamp=1_700_000_000_000 + number, headers=headers
            )
            if region == "us":
                self.left_out += 1
                continue
            masked = value.replace(f"email-{number}", "***").encode()
            self.expected[partition].append((key, masked, 1_700_000_000_000 + number, tuple(headers)))
        assert self._producer.flush(30) == 0


def copied(west: LocalCluster, topic: str) -> dict[int, list[Any]]:
    """Records of the copy by partition."""
    found = read_committed(west.client_properties, topic)
    return {number: [tuple(record) for record in found.get(number, [])] for number in range(_PARTITIONS)}


def status(config: Config) -> Any:
    """The status from the topics alone."""
    (link,) = config.links
    reader = StatusReader(link, config.clusters["east"], config.clusters["west"])
    try:
        return reader.read()
    finally:
        reader.close()


def test_a_statement_writes_what_it_selects_and_the_status_counts_the_rest(
    east: LocalCluster, west: LocalCluster, topic_name: str, rng: random.Random, spark_context: Any
) -> None:
    """The copy has the rows in the order and partition of their records, and positions count the records left out."""
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    written.write(200)
    config = load_config(settings(east, west, topic_name))

    with Mirror(config, spark=spark_context) as mirror:
        report = mirror.run(until="caught-up")

    assert report.exit_code == 0
    assert copied(west, f"east.{topic_name}") == written.expected
    found = status(config)
    assert sum(item.dropped.get("query", 0) for item in found.partitions) == written.left_out
    assert sum(item.records for item in found.partitions) == sum(map(len, written.expected.values()))
    assert found.lag_records == 0
    assert found.state == "stopped"


def test_a_running_query_follows_new_records_and_is_paused(
    east: LocalCluster, west: LocalCluster, topic_name: str, rng: random.Random, spark_context: Any
) -> None:
    """Records that come while it runs are copied; a stop leaves positions from which the next run goes on."""
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    config = load_config(settings(east, west, topic_name))
    for _ in range(2):
        with running(Mirror(config, spark=spark_context)):
            written.write(50)
            wait_for(lambda: copied(west, f"east.{topic_name}") == written.expected, 90)
    assert copied(west, f"east.{topic_name}") == written.expected


def test_a_statement_that_looks_at_several_records_fails_the_link(
    east: LocalCluster, west: LocalCluster, topic_name: str, rng: random.Random, spark_context: Any
) -> None:
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    Written(east.client_properties, topic_name, rng).write(10)
    sql = {"sql": "SELECT DISTINCT value FROM records"}
    config = load_config(settings(east, west, topic_name, transform=sql))

    with pytest.raises(UsageError, match="Distinct"), Mirror(config, spark=spark_context) as mirror:
        mirror.run(until=60)
    assert copied(west, f"east.{topic_name}") == {0: [], 1: []}


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["lane.claimed", "lane.flushed", "lane.state_written", "lane.state_written:2", "lane.committed"]
)
def test_a_killed_query_goes_on_from_its_positions_without_a_checkpoint(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random, point: str
) -> None:
    """EO-1: the driver dies in the middle of a batch; the next run has no checkpoint of it, and the copy is exact."""
    raw = settings(east, west, topic_name)
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    written.write(100)
    flag = tmp_path / "killed"
    mirror = CommandMirror(raw, tmp_path / "first", environment={"EOMIRROR_CRASH_POINT": f"{point}@{flag}"})
    try:
        mirror.start()
        if ":" in point:
            wait_for(lambda: any(copied(west, f"east.{topic_name}").values()), 120)
        written.write(50)
        wait_for(flag.exists, 120)
    finally:
        mirror.close()
    mirror = CommandMirror(raw, tmp_path / "second", "--until", "caught-up")
    try:
        mirror.start()
        assert mirror.await_exit(180) == 0
    finally:
        mirror.close()
    assert copied(west, f"east.{topic_name}") == written.expected
    found = status(load_config(raw))
    assert sum(item.dropped.get("query", 0) for item in found.partitions) == written.left_out
