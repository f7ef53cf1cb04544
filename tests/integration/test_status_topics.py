"""`eomirror status` when the topics are not what the positions speak of, and the lag of a running mirror."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from eomirror.metrics.collect import ProcessFacts, exposition
from eomirror.metrics.verdict import Window
from eomirror.status.live import LinkFacts, LinkView
from eomirror.status.reader import StatusReader
from support.judges.alert_rules import History, Scrape, firing
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, delete_topic, produce, some_records

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.status.snapshot import Snapshot

pytestmark = [pytest.mark.integration, pytest.mark.spark]


class Config:
    """A file with one link for some topics of a test."""

    def __init__(self, east: Any, west: Any, name: str, folder: Path) -> None:
        self.path = folder / "mirror.yaml"
        self.settings: dict[str, Any] = {
            "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
            "links": [{"name": name, "source": "east", "target": "west", "topics": [f"{name}\\..*"]}],
            "defaults": {"lanes": 1, "plane": plane_under_test()},
        }

    def load(self) -> Any:
        self.path.write_text(yaml.safe_dump(self.settings))
        self.path.chmod(0o600)
        return load_config(self.path)

    def catch_up(self, spark: Any) -> None:
        with Mirror(self.load(), spark=spark) as mirror:
            mirror.run(until="caught-up")

    def status(self, *arguments: str) -> str:
        """What the command writes on stdout; it must end with 0."""
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "status", str(self.path), *arguments],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def verify(self, *arguments: str) -> tuple[int, str]:
        """Exit code and stderr of a comparison."""
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "verify", str(self.path), *arguments],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr

    def topics(self) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """The link, and partition 0 of each topic by its last word."""
        (link,) = json.loads(self.status("-o", "json"))["links"]
        return link, {each["topic"].rsplit(".", 1)[1]: each["partitions"][0] for each in link["topics"]}


@pytest.fixture
def config(east: Any, west: Any, topic_name: str, tmp_path: Path) -> Config:
    """A link named after the test's unique topic name."""
    return Config(east, west, topic_name, tmp_path)


def test_each_topic_has_its_own_problem(
    config: Config, east: Any, west: Any, topic_name: str, spark_context: Any
) -> None:
    """Deleted, recreated shorter or longer, without its target: no lag but a named problem; others go on."""
    source, target = east.client_properties, west.client_properties
    for word in ("deleted", "shorter", "longer", "lost", "whole"):
        create_topic(source, f"{topic_name}.{word}")
        produce(source, f"{topic_name}.{word}", 1, some_records(1, 100), transactional_id=topic_name)
    config.catch_up(spark_context)
    link, topics = config.topics()
    assert (link["lag_records"], link["lag_seconds"]) == (0, 0.0)
    assert {each["problem"] for each in topics.values()} == {""}
    # of one topic, recorded on the target; a comparison that shall not be recorded is not
    assert config.verify("--topic", f"{topic_name}\\.whole")[0] == 0
    assert config.verify("--topic", f"{topic_name}\\.lost", "--no-record")[0] == 0

    for word in ("deleted", "shorter", "longer"):
        delete_topic(source, f"{topic_name}.{word}")
    delete_topic(target, f"east.{topic_name}.lost")
    for word, count in (("shorter", 10), ("longer", 300)):
        create_topic(source, f"{topic_name}.{word}")
        produce(source, f"{topic_name}.{word}", 1, some_records(2, count), transactional_id=topic_name)
    produce(source, f"{topic_name}.whole", 1, some_records(3, 5), transactional_id=topic_name)

    link, topics = config.topics()
    assert link["lag_records"] is None
    (compared,) = link["verifications"]
    assert (compared["topic"], compared["outcome"]) == (f"{topic_name}.whole", "equal")
    assert (compared["offsets"] > 0, compared["unverified"]) == (True, 0)
    whole = topics.pop("whole")
    assert whole["problem"] == ""
    assert whole["lag_records"] >= 5
    assert whole["lag_seconds"] > 0
    assert {each["lag_records"] for each in topics.values()} == {None}
    assert "source topic is gone" in topics["deleted"]["problem"]
    assert "created again" in topics["shorter"]["problem"]
    assert "created again" in topics["longer"]["problem"]
    assert "target topic" in topics["lost"]["problem"]
    table = " ".join(config.status("-o", "table").split())
    assert table.count("problem:") == 4
    assert "1 topic compared with the source" in table
    assert f"{topic_name}.deleted-0: the source topic is gone" in table


def test_a_topic_that_left_the_filter_is_parked(
    config: Config, east: Any, topic_name: str, spark_context: Any
) -> None:
    """What is written to it afterwards is no lag, and its deletion no problem."""
    source = east.client_properties
    for word in ("kept", "left"):
        create_topic(source, f"{topic_name}.{word}")
        produce(source, f"{topic_name}.{word}", 1, some_records(1, 100), transactional_id=topic_name)
    config.catch_up(spark_context)
    config.settings["links"][0]["exclude"] = [f"{topic_name}\\.left"]
    config.catch_up(spark_context)
    produce(source, f"{topic_name}.left", 1, some_records(2, 50), transactional_id=topic_name)

    link, topics = config.topics()
    assert (link["lag_records"], link["lag_seconds"]) == (0, 0.0)
    assert (topics["left"]["parked"], topics["left"]["lag_records"]) == (True, None)
    assert topics["kept"]["parked"] is False
    delete_topic(source, f"{topic_name}.left")
    link, topics = config.topics()
    assert (link["lag_records"], topics["left"]["problem"]) == (0, "")


def test_a_source_that_is_down_is_said_once(
    config: Config, topic_name: str, east: Any, spark_context: Any
) -> None:
    """Positions are shown, lag is not known, and the reason stands with the link."""
    create_topic(east.client_properties, f"{topic_name}.orders")
    produce(
        east.client_properties, f"{topic_name}.orders", 1, some_records(1, 50), transactional_id=topic_name
    )
    config.catch_up(spark_context)
    config.settings["clusters"]["east"]["bootstrap.servers"] = "127.0.0.1:1"
    config.load()

    link, topics = config.topics()
    assert link["lag_records"] is None
    assert "127.0.0.1:1" in link["problem"]
    assert topics["orders"]["position"] > 0
    assert topics["orders"]["problem"] == ""


def test_mostly_idle_partitions_do_not_hide_the_lag_of_a_running_mirror(
    config: Config, east: Any, topic_name: str, spark_context: Any
) -> None:
    """40 partitions, one of them busy: the link's lag is known while it runs, and old timestamps make no days."""
    create_topic(east.client_properties, f"{topic_name}.many", 40)
    first = some_records(1, 40)  # of the year 2020
    produce(
        east.client_properties, f"{topic_name}.many", 40, first, transactional_id=topic_name, abort_every=0
    )
    config.catch_up(spark_context)
    seen: list[tuple[int | None, float | None]] = []
    began = time.monotonic()
    written: list[bool] = []

    with Mirror(config.load(), spark=spark_context) as mirror:

        def watch(snapshot: Snapshot) -> None:
            seen.append((snapshot.lag_records, snapshot.lag_seconds))
            if (0, 0.0) in seen and not written:
                written.append(True)
                produce(
                    east.client_properties, f"{topic_name}.many", 1, some_records(2, 400),
                    transactional_id=topic_name, per_transaction=10, abort_every=0,
                )  # fmt: skip
            if (written and seen[-3:] == [(0, 0.0)] * 3) or time.monotonic() - began > 60:
                mirror.stop()

        mirror.run(on_progress=watch)

    assert (0, 0.0) in seen
    assert written
    assert max(seconds for _, seconds in seen[seen.index((0, 0.0)) :] if seconds is not None) < 60


def test_lag_in_seconds_is_of_the_moment_of_the_look(
    config: Config, east: Any, topic_name: str, spark_context: Any
) -> None:
    """How long it takes to find out how old a record is adds nothing to its age."""
    source, topic = east.client_properties, f"{topic_name}.late"
    create_topic(source, topic)
    produce(source, topic, 1, some_records(1, 10), transactional_id=topic_name)
    config.catch_up(spark_context)
    written = time.time()
    late = [(b"k", b"v", int(written * 1000), ())]
    produce(source, topic, 1, late, transactional_id=topic_name, abort_every=0)
    loaded = config.load()
    reader = StatusReader(loaded.links[0], loaded.clusters["east"], loaded.clusters["west"])
    look = reader._oldest

    def slowly(*arguments: Any) -> Any:
        found = look(*arguments)
        time.sleep(2.0)
        return found

    reader._oldest = slowly  # type: ignore[method-assign]
    try:
        found = reader.read()
    finally:
        reader.close()

    assert found.lag_records
    assert found.lag_seconds is not None
    assert 0 < found.lag_seconds <= time.time() - written - 2.0


def test_what_the_source_may_delete_while_no_mirror_runs_is_known(
    config: Config, east: Any, topic_name: str, spark_context: Any
) -> None:
    """By age and by size; of topics that wait only, and of those that the source deletes from."""
    source = east.client_properties
    hour = {"retention.ms": "3600000"}
    settings = {"old": hour, "fresh": hour, "kept": {}, "sized": {"retention.bytes": "1000000"}}

    def write(word: str, count: int, age_seconds: float) -> None:
        at = int((time.time() - age_seconds) * 1000)
        produce(
            source, f"{topic_name}.{word}", 1, [(b"k", b"v", at + number, ()) for number in range(count)],
            transactional_id=topic_name, abort_every=10**9,
        )  # fmt: skip

    for word, configs in settings.items():
        create_topic(source, f"{topic_name}.{word}", **configs)
        write(word, 50, 1.0)
    config.catch_up(spark_context)
    assert json.loads(config.status("-o", "json"))["links"][0]["retention"] == []

    for word, age_seconds in (("old", 3_300.0), ("fresh", 300.0), ("kept", 900_000.0), ("sized", 300.0)):
        write(word, 200, age_seconds)
    # what `retention.bytes` does to the records that are mirrored
    where = TopicPartition(f"{topic_name}.sized", 0, 45)
    admin = AdminClient(dict(source))
    for future in admin.delete_records([where]).values():
        future.result(30)

    (link,) = json.loads(config.status("-o", "json"))["links"]
    found = {row["topic"].rsplit(".", 1)[1]: row for row in link["retention"]}
    assert found.keys() == {"old", "fresh", "sized"}
    assert found["old"]["setting"] == "retention.ms"
    assert 3_300 / 3_600 <= found["old"]["used"] < 1
    assert 0 < found["old"]["left_seconds"] <= 300
    assert found["fresh"]["used"] < 0.5
    assert (found["sized"]["setting"], found["sized"]["left_seconds"]) == ("retention.bytes", None)
    assert 0.9 < found["sized"]["used"] < 1
    # the nearest one, with what to do
    assert "at risk" in config.status("-o", "table")
    (setup,) = config.load().links
    with closing(StatusReader(setup, *(config.load().clusters[each] for each in ("east", "west")))) as reader:
        view = LinkView(facts=LinkFacts.of(setup), status=reader.read(), read_seconds=0.1)
    process = ProcessFacts("test", 0.0, 0, 0.0, None)
    text = exposition([(view, Window().judge(view, 0.0))], process, now_ms=int(time.time() * 1000)).text()
    history = History()
    history.add(0.0, Scrape(text.decode(), topic_name))
    fired = firing(history, 0.0, only=["EomirrorRetention"])["EomirrorRetention"]
    assert {labels["topic"] for labels in fired} == {f"{topic_name}.old", f"{topic_name}.sized"}
