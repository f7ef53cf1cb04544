"""`eomirror plan` on real brokers: what a changed file would no longer mirror, and what a run would copy."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Producer

from eomirror import Mirror, load_config
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, some_records, watermarks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def written(folder: Path, east: Any, west: Any, **link: Any) -> Path:
    """A configuration file with one link."""
    path = folder / "mirror.yaml"
    made = {"source": "east", "target": "west", "heartbeats": "off", "plane": plane_under_test(), **link}
    clusters = {"east": dict(east.client_properties), "west": dict(west.client_properties)}
    path.write_text(yaml.safe_dump({"clusters": clusters, "links": [made]}))
    path.chmod(0o600)
    return path


def planned(path: Path, *arguments: str) -> tuple[int, str]:
    """Run the command to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "plan", str(path), *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def in_json(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]], dict[str, Any]]:
    """What leaves by topic, what is copied by topic, and the total."""
    code, out = planned(path, "-o", "json")
    (link,) = json.loads(out)["links"]
    assert code == (3 if link["differs"] else 0)
    copied = {one["topic"]: one for one in link["copy"]["topics"]}
    return {one["topic"]: one for one in link["dropped"]}, copied, link["copy"]


@pytest.mark.timeout(240)
def test_a_plan_names_topics_that_leave_and_how_much_a_run_would_copy(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """After a change of patterns, `exclude` or names; offsets, records and bytes are those of the brokers."""
    clicks, orders, late = (f"{topic_name}.{each}" for each in ("clicks", "orders", "late"))
    for topic in (clicks, orders):
        create_topic(east.client_properties, topic, 2)
    records = some_records(7, 60)
    written_there = {
        topic: produce(
            east.client_properties, topic, 2, records, transactional_id=f"{topic}-w", per_transaction=10
        )
        for topic in (clicks, orders)
    }
    every = written(tmp_path, east, west, name=topic_name, topics=[f"{topic_name}\\..*"])

    # the first run copies all of it
    dropped, copied, total = in_json(every)
    assert dropped == {}
    for topic in (clicks, orders):
        assert copied[topic]["new"]
        for one in copied[topic]["partitions"]:
            low, high = watermarks(east.client_properties, topic, one["partition"])
            assert (one["from"], one["to"], one["at_most_records"]) == (low, high, high - low)
            # what was committed is less: markers and aborted records have offsets, too
            assert high - low > len(written_there[topic][one["partition"]])
            assert one["estimated_bytes"] > 0
    assert total["at_most_records"] == sum(one["at_most_records"] for one in copied.values())
    assert total["estimated_bytes"] == sum(one["estimated_bytes"] for one in copied.values())
    assert total["estimated_bytes"] > sum(len(value or b"") for _, value, _, _ in records)
    code, out = planned(every, "-o", "table")
    assert code == 3
    assert f"to copy: at most {total['at_most_records']:,} records, about " in out

    with Mirror(load_config(every), spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    code, out = planned(every, "-o", "table")
    assert code == 0
    assert "to copy: nothing more" in out

    plain = Producer(east.client_properties)
    for number in range(40):
        plain.produce(orders, b"%d" % number, partition=0)
    assert plain.flush(30) == 0
    create_topic(east.client_properties, late, 1)
    plain.produce(late, b"x")
    assert plain.flush(30) == 0
    so_far = sum(map(len, written_there[clicks].values()))

    # by the patterns, then by exclude
    for change, reason in (
        ({"topics": [orders, late]}, "no pattern of `topics` matches it"),
        ({"topics": [f"{topic_name}\\..*"], "exclude": [clicks]}, "`exclude` matches it"),
    ):
        path = written(tmp_path, east, west, name=topic_name, **change)
        dropped, copied, total = in_json(path)
        assert dropped == {
            clicks: {"topic": clicks, "target": f"east.{clicks}", "records": so_far, "reason": reason}
        }
        assert not copied[orders]["new"]
        first, second = copied[orders]["partitions"]
        high = watermarks(east.client_properties, orders, 0)[1]
        assert (first["from"], first["to"], first["at_most_records"]) == (high - 40, high, 40)
        assert second["at_most_records"] == 0
        assert (copied[late]["new"], copied[late]["at_most_records"]) == (True, 1)
        assert total["at_most_records"] == 41
        code, out = planned(path, "-o", "table")
        assert code == 3
        assert f"- {clicks}: would no longer be mirrored ({so_far:,} so far): {reason}" in out
        assert "to copy: at most 41 records, about " in out

    # other names of the copies: each topic leaves its copy
    path = written(
        tmp_path, east, west, name=topic_name, topics=[f"{topic_name}\\..*"],
        naming={"match": "(.*)", "to": "other.$1"},
    )  # fmt: skip
    dropped, copied, _ = in_json(path)
    assert {one["target"] for one in dropped.values()} == {f"east.{clicks}", f"east.{orders}"}
    assert f"other.{clicks}" in dropped[clicks]["reason"]
    assert copied.keys() == {late}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("start", ["latest", "2020-01-01T00:00:00Z"])
def test_a_first_run_begins_where_start_says(
    east: Any, west: Any, topic_name: str, tmp_path: Path, start: str
) -> None:
    """With `latest` nothing that is there is copied; a time finds the first record behind it."""
    create_topic(east.client_properties, topic_name, 1)
    plain = Producer(east.client_properties)
    for number in range(9):
        plain.produce(topic_name, b"%d" % number)
    assert plain.flush(30) == 0
    path = written(tmp_path, east, west, name=topic_name, topics=[topic_name], start=start)

    _, copied, _ = in_json(path)

    (one,) = copied[topic_name]["partitions"]
    assert (one["from"], one["at_most_records"]) == ((9, 0) if start == "latest" else (0, 9))


@pytest.mark.timeout(240)
def test_a_keyed_link_is_planned_by_its_source_partitions(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Its copy has another number of partitions."""
    orders, clicks = f"{topic_name}.orders", f"{topic_name}.clicks"
    for topic in (orders, clicks):
        create_topic(east.client_properties, topic, 2)
        produce(
            east.client_properties, topic, 2, some_records(8, 20), transactional_id=f"{topic}-w", abort_every=0
        )  # fmt: skip
    options = {
        "name": topic_name, "partitions": "keyed", "target_partitions": 3, "origin_header": True,
        "plane": plane_under_test(),
    }  # fmt: skip
    path = written(tmp_path, east, west, topics=[orders, clicks], **options)
    with Mirror(load_config(path), spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    path = written(tmp_path, east, west, topics=[orders], **options)

    dropped, copied, total = in_json(path)

    assert (dropped.keys(), dropped[clicks]["records"]) == ({clicks}, 20)
    assert [one["partition"] for one in copied[orders]["partitions"]] == [0, 1]
    assert total["at_most_records"] == 0
