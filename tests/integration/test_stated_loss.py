"""What a failover would lose, as readiness, failover and history state it, judged by the orphans found afterwards."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eomirror import Mirror
from eomirror.kafka.session import ClusterSession
from eomirror.link.state import control_of
from eomirror.localkafka.cluster import ClusterSpec
from support.judges.views import Views
from support.links.disaster import Disaster
from support.links.mirrors import running
from support.traffic.records import create_topic, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eomirror.records.control import ControlView

pytestmark = [pytest.mark.integration, pytest.mark.spark]

BEHIND, NEVER, FILLED = 500, 70, 30


class Wide(Disaster):
    """A link of all topics whose names begin with that of the test."""

    def settings(self, *, lost: bool = False) -> dict[str, Any]:
        found = super().settings(lost=lost)
        found["links"][0]["topics"] = [f"{self.name}\\..*"]
        return found

    def control(self) -> ControlView:
        """The control topic of the link."""
        session = ClusterSession(self.config().clusters["west"], client_id="test")
        try:
            return control_of(self.config().link(self.name), session)
        finally:
            session.close()


def plain(properties: dict[str, Any], topic: str, count: int) -> None:
    """Acknowledged records of an idempotent producer without transactions, in partition 0."""
    producer = Producer({**properties, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"plain-%d" % number, partition=0)
    assert producer.flush(60) == 0


def check_of(checks: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """One check of a verdict."""
    (found,) = (each for each in checks if each["name"] == name)
    return found


@pytest.mark.timeout(300)
def test_records_behind_an_open_transaction_are_part_of_every_stated_loss(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """The transaction of one producer hides what others wrote and Kafka acknowledged."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, partitions=1,
        equal_names=True,
    )  # fmt: skip
    scene.write("east", 20)
    opened = Producer(
        {**scene.east, "transactional.id": f"{topic_name}-open", "transaction.timeout.ms": 900_000}
    )
    opened.init_transactions(30)
    opened.begin_transaction()
    opened.produce(scene.topic, b"open", partition=0)
    assert opened.flush(30) == 0
    plain(scene.east, scene.topic, BEHIND)

    with Mirror(scene.config(), spark=spark_context, links=[scene.name]) as mirror:
        report = mirror.run(until="caught-up")
    assert report.exit_code == 0
    (link,) = report.as_dict()["links"]
    assert link["behind_open"] == {f"{scene.topic}-0": BEHIND + 1}

    code, found, said = scene.command("readiness")
    assert (code, found["lost"], found["verdict"]) == (0, BEHIND + 1, f"READY WITH LOSS {BEHIND + 1}"), said
    assert f"{BEHIND + 1} offsets" in check_of(found["checks"], "open transactions")["text"]
    for verb in (("promote",), ("cutover", "--method", "wait")):
        code, found, said = scene.command(*verb, "--dry-run", "--verify", "skip")
        assert code == 6, said
        assert check_of(found["readiness"]["checks"], "open transactions")["level"] == "no"
    # the mirror is dead, and so is the source from here on
    code, found, said = scene.command("readiness", "--source-gone", lost=True)
    assert (code, found["lost"]) == (0, BEHIND + 1), said
    assert found["verdict"].startswith(f"READY, LOSS NOT KNOWN: {BEHIND + 1} known + "), said
    (link,) = scene.command("status", lost=True)[1]["links"]
    assert link["known_lost"] == BEHIND + 1
    code, found, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    (promotion,) = scene.command("history", lost=True)[1]["promotions"]
    assert promotion["lost"] == BEHIND + 1
    # it commits after the last look, so its records are lost as well
    opened.commit_transaction(30)

    code, found, said = scene.command("restore", "--orphans", "keep", "--dry-run")
    assert code == 0, said
    assert found["records"] == BEHIND + 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_topics_without_a_position_are_part_of_every_stated_loss(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Those that the mirror never found, and those that it leaves out; more may be lost of the latter than is known."""
    scene = Wide(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, partitions=1, back=False
    )  # fmt: skip
    scene.write("east", 20)
    scene.catch_up()
    never, filled = f"{topic_name}.never", f"{topic_name}.filled"
    create_topic(scene.east, never, 1)
    plain(scene.east, never, NEVER)
    code, found, said = scene.command("readiness")
    assert (code, found["lost"], found["verdict"]) == (0, NEVER, f"READY WITH LOSS {NEVER}"), said
    assert f"{never}-0" in check_of(found["checks"], "new partitions")["text"]
    scene.catch_up()
    code, found, said = scene.command("readiness")
    assert (code, found["lost"], found["verdict"]) == (0, 0, "READY"), said

    for properties, topic in ((scene.east, filled), (scene.west, f"east.{filled}")):
        create_topic(properties, topic, 1)
    plain(scene.west, f"east.{filled}", 1)
    plain(scene.east, filled, FILLED)
    with running(Mirror(scene.config(), spark=spark_context, links=[scene.name])):
        wait_for(lambda: any(source.topic == filled for source in scene.control().ends), 90)
        wait_for(lambda: any(stop.topic == filled for stop in scene.control().stopped), 90)
    late = f"{topic_name}.late"
    create_topic(scene.east, late, 1)
    plain(scene.east, late, NEVER)
    code, found, said = scene.command("readiness")
    assert (code, found["verdict"]) == (0, f"READY WITH LOSS at least {FILLED + NEVER}"), said
    assert (found["lost"], found["at_least"]) == (FILLED + NEVER, True)
    # without the source, a topic that the mirror never found is not known
    code, found, said = scene.command("readiness", "--source-gone", lost=True)
    assert found["verdict"].startswith(f"READY, LOSS NOT KNOWN: at least {FILLED} known + "), said
    assert f"{filled}-0" in check_of(found["checks"], "new partitions")["text"]
    (link,) = scene.command("status", lost=True)[1]["links"]
    assert link["known_lost"] == FILLED
    code, found, said = scene.command("failover", "--force", "--yes")
    assert code == 0, said
    (promotion,) = scene.command("history")[1]["promotions"]
    assert (promotion["lost"], promotion["at_least"]) == (FILLED + NEVER, True)

    code, found, said = scene.command("restore", "--orphans", "keep", "--dry-run")
    assert code == 0, said
    assert found["records"] == FILLED + NEVER


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_operator_sees_the_orphans_and_each_way_before_one_is_chosen(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """`status` counts what the promotion left; `restore --dry-run` shows each way and changes nothing."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, partitions=1
    )  # fmt: skip
    code, _, said = scene.command("restore", "--dry-run")
    assert code == 6, said
    scene.write("east", 20)
    scene.catch_up()
    plain(scene.east, scene.topic, BEHIND)
    code, _, said = scene.command("failover", "--force", "--yes")
    assert code == 0, said

    (link,) = scene.command("status")[1]["links"]
    assert (link["state"], link["orphans"]["offsets"], link["orphans"]["decided"]) == ("promoted", BEHIND, {})
    (one,) = link["orphans"]["ranges"]
    assert (one["topic"], one["partition"], one["to"] - one["from"]) == (scene.topic, 0, BEHIND)
    shown = subprocess.run(
        [sys.executable, "-m", "eomirror", "status", str(scene.path()), "--link", scene.name, "-o", "table"],
        capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "COLUMNS": "400"},
    ).stdout  # fmt: skip
    assert (
        f"{BEHIND} offsets beyond the cut have no copy: {scene.topic}-0 [{one['from']}, {one['to']})" in shown
    )
    assert f"eomirror restore CONFIG --link {scene.name} --dry-run" in shown

    code, found, said = scene.command("restore", "--dry-run")
    assert code == 0, said
    ways = {each["orphans"]: each for each in found["ways"]}
    assert list(ways) == ["export", "merge", "keep", "recreate"]
    assert {way: each["records"] for way, each in ways.items() if "records" in each}.items() >= {
        ("export", BEHIND), ("merge", BEHIND), ("keep", BEHIND),
    }  # fmt: skip
    assert "not reversed" in ways["recreate"]["problem"]
    assert f"eomirror reverse CONFIG --link {scene.name}" in ways["recreate"]["fix"]
    code, _, said = scene.command("restore", "--yes")
    assert (code, "--dry-run instead shows what each would do" in said) == (2, True)
    assert scene.command("history")[1]["promotions"][0].get("restoration") is None

    assert scene.command("restore", "--orphans", "keep", "--yes")[0] == 0
    (link,) = scene.command("status")[1]["links"]
    assert (link["orphans"]["offsets"], link["orphans"]["decided"]) == (0, {"keep": BEHIND})


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_orphans_of_a_dead_source_never_exceed_what_any_view_has_said(
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    start_cluster: Callable[[ClusterSpec], Any],
) -> None:
    """An idempotent producer goes on beside the open transaction of another one; then the source is killed."""
    source = start_cluster(ClusterSpec("source"))
    scene = Disaster(
        source.client_properties, west.client_properties, topic_name, tmp_path, spark_context, partitions=1,
        equal_names=True, back=False,
    )  # fmt: skip
    scene.write("east", 20)
    lost = BEHIND + 1
    mirror = Mirror(scene.config(), spark=spark_context, links=[scene.name])
    with closing(Views(scene.config(), scene.name)) as views, running(mirror, views.run.update):
        wait_for(lambda: views.loss() == ["yes: nothing would be lost"] * 2, 90)
        opened = Producer(
            {**scene.east, "transactional.id": f"{topic_name}-open", "transaction.timeout.ms": 900_000}
        )
        opened.init_transactions(30)
        opened.begin_transaction()
        opened.produce(scene.topic, b"open", partition=0)
        assert opened.flush(30) == 0
        plain(scene.east, scene.topic, BEHIND)

        wait_for(lambda: all(each.startswith(f"loses at most {lost} records") for each in views.loss()), 60)
        assert views.exported() == [lost, lost]
        assert all(f"loses at most {lost} records" in page for page in views.pages())
        (link,) = scene.command("status")[1]["links"]
        assert (link["lag_records"], link["topics"][0]["partitions"][0]["open_records"]) == (0, lost)
        assert link["failover"].startswith(f"loses at most {lost} records")
        (link,) = scene.command("top")[1]["links"]
        assert link["failover"].startswith(f"loses at most {lost} records")
        (row,) = scene.command("lag")[1]["lag"]
        assert (row["lag_records"], row["open_records"]) == (0, lost)
        code, found, said = scene.command("readiness")
        assert (code, found["verdict"]) == (0, f"READY WITH LOSS {lost}"), said
        # the mirror records the ends every few seconds, also those that no reader may see
        wait_for(lambda: scene.command("readiness", "--source-gone")[1]["lost"] == lost, 60)
        source.brokers[0].kill()

        least = f"loses at least {lost} records, and what was written since the source was last read"
        wait_for(lambda: all(each.startswith(least) for each in views.loss()), 90)
        assert all(least in page for page in views.pages())
        assert all(math.isnan(each) for each in views.exported()), "a part would look like the whole"
        (link,) = scene.command("status")[1]["links"]
        assert (link["known_lost"], link["verdict"]) == (lost, "source away")
        code, found, said = scene.command("readiness", "--source-gone")
        assert code == 0, said
        known = (
            rf"READY, LOSS NOT KNOWN: {lost} known \+ about [\d.,]+ written in the last \d+ s \([\d.,]+/s\)"
        )
        assert re.fullmatch(known, found["verdict"]), found["verdict"]
    code, found, said = scene.command("failover", "--source-gone", "--yes")
    assert code == 0, said
    (promotion,) = scene.command("history")[1]["promotions"]
    assert promotion["lost"] == lost
    source.brokers[0].start()
    opened.commit_transaction(60)
    code, found, said = scene.command("restore", "--orphans", "keep", "--dry-run")
    assert code == 0, said
    assert found["records"] == lost
