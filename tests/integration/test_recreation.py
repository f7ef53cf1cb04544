"""`restore --orphans recreate` on real brokers: a topic of the old source is deleted, and copied back whole, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from eomirror import NotReadyError
from support.links.disaster import Disaster
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

_POINTS = (
    "recreation_noted", "copy_back_noted", "topics_deleted", "copy_back_begun", "copied_back", "recreation_done",
)  # fmt: skip


def data(records: dict[int, list[Any]]) -> dict[int, list[tuple[Any, ...]]]:
    """Key, value and timestamp of each record, in order; headers name the way that it took."""
    return {number: [tuple(record[:3]) for record in some] for number, some in records.items()}


def killed_at_each_step(scene: Disaster, recreate: tuple[str, ...]) -> None:
    """Kill the command behind each of its steps; the link back runs for it alone as long as that matters."""
    for point in _POINTS:
        code, _, said = scene.command(*recreate, crash=f"failover.{point}", timeout=300)
        assert (scene.folder / f"failover.{point}").exists(), f"{point} was not passed: {said}"
        assert code == -9, said
        if point in {"copy_back_noted", "topics_deleted", "copied_back"}:
            with pytest.raises(NotReadyError, match="copies topics back whole"):
                scene.catch_up(scene.back)
            code, _, said = scene.command("failback", "--yes")
            assert (code, "being deleted and copied back" in said) == (6, True), said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kept", ["merge", "export"])
@pytest.mark.parametrize("equal_names", [False, True], ids=["prefixed", "equal"])
def test_a_topic_is_copied_back_whole_with_what_the_old_source_once_wrote(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, *, equal_names: bool, kept: str
) -> None:
    """
    Killed between any two steps, a repeated call ends with both sides equal, record by record and in order.

    The loop guard of the link back would drop what the old source once wrote, so no other run may copy meanwhile.
    """
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=equal_names,
    )  # fmt: skip
    scene.write("east")
    scene.commit("east", "half", {number: scene.end("east", number) // 2 for number in range(2)})
    scene.catch_up()
    orphans = sum(map(len, scene.write("east", 40).values()))
    assert scene.command("failover", "--source-gone", "--yes", lost=True)[0] == 0
    scene.write("west", 60)
    recreate = ("restore", "--orphans", "recreate", "--yes")
    code, _, said = scene.command(*recreate)
    assert (code, "not reversed" in said) == (6, True), said
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    scene.catch_up(scene.back)

    # orphans that exist nowhere else are not deleted, whatever was asked for before
    code, _, said = scene.command(*recreate)
    assert (code, f"{orphans} records of east" in said) == (6, True), said
    assert scene.command("restore", "--orphans", "keep", "--yes")[0] == 0
    assert scene.command(*recreate)[0] == 6
    place = ("--to", str(tmp_path / "orphans.jsonl")) if kept == "export" else ()
    code, _, said = scene.command("restore", "--orphans", kept, *place, "--yes")
    assert code == 0, said
    wanted = data(scene.read("west"))
    half = {number: scene.end("west", number) // 2 for number in range(2)}
    scene.commit("west", "mid", half)
    mid = {number: scene.next_of("west", "mid", number) for number in range(2)}

    code, found, said = scene.command(*recreate[:-1], "--dry-run")
    assert code == 0, said
    (topic,) = found["topics"]
    assert (topic["topic"], topic["orphans"], topic["state"]) == (scene.topic, orphans, "to delete")
    killed_at_each_step(scene, recreate)
    code, found, said = scene.command(*recreate, timeout=300)
    assert code == 0, said
    assert [each["state"] for each in found["topics"]] == ["copied back"]
    assert data(scene.read("east")) == wanted
    assert data(scene.read("west")) == wanted
    code, found, said = scene.command("verify")
    assert (code, found["links"][0]["orphans"]) == (0, []), said
    code, _, said = scene.command("restore", "--orphans", "keep", "--yes")
    assert (code, "there are no orphans any more" in said) == (6, True), said

    # the way back goes on, and so does the link: nothing comes twice, groups stand at their records
    scene.write("west", 30)
    scene.catch_up(scene.back)
    assert scene.command("verify", link=scene.back)[0] == 0
    code, _, said = scene.command("failback", "--yes", "--verify", "full")
    assert code == 0, said
    assert {number: scene.next_of("east", "mid", number) for number in range(2)} == mid
    scene.write("east", 30)
    scene.catch_up()
    both = {number: sorted(some) for number, some in data(scene.read("east")).items()}
    assert {number: sorted(some) for number, some in data(scene.read("west")).items()} == both
    assert scene.command("verify")[0] == 0


@pytest.mark.timeout(300)
def test_a_record_that_only_the_old_source_has_is_not_deleted(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Records that retention has taken from the copy, and what applications wrote there later, refuse it by name."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=True,
    )  # fmt: skip
    scene.write("east", 60)
    scene.catch_up()
    scene.write("east", 20)
    assert scene.command("failover", "--source-gone", "--yes", lost=True)[0] == 0
    assert scene.command("reverse", "--yes")[0] == 0
    assert scene.command("restore", "--orphans", "merge", "--yes")[0] == 0
    recreate = ("restore", "--orphans", "recreate", "--yes")
    before = data(scene.read("east"))

    late = scene.write("east", 10)
    code, _, said = scene.command(*recreate)
    assert (code, "has not written, or not marked" in said) == (6, True), said
    assert scene.command("run", "--until", "caught-up", link=scene.back)[0] == 0
    other = f"{scene.topic}-other"
    create_topic(scene.east, other, 1)
    code, found, said = scene.command(*recreate, "--topics", ".*-other")
    assert (code, found["topics"]) == (0, []), said
    assert scene.read("east").keys() == before.keys()
    assert sum(map(len, scene.read("east").values())) == sum(map(len, before.values())) + sum(
        map(len, late.values())
    )


@pytest.mark.timeout(300)
def test_what_retention_took_from_the_copy_is_not_deleted_on_the_old_source(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """The copy begins later than the topic: its first records would be lost with the topic."""
    from confluent_kafka import TopicPartition

    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=True,
    )  # fmt: skip
    scene.write("east", 60)
    scene.catch_up()
    scene.write("east", 20)
    assert scene.command("failover", "--source-gone", "--yes", lost=True)[0] == 0
    assert scene.command("reverse", "--yes")[0] == 0
    assert scene.command("restore", "--orphans", "merge", "--yes")[0] == 0
    # its futures die with it
    admin = AdminClient(scene.west)
    (future,) = admin.delete_records([TopicPartition(scene.copy, 0, 5)]).values()
    future.result(30)

    code, _, said = scene.command("restore", "--orphans", "recreate", "--yes")
    assert (code, "that the copy does not hold" in said) == (6, True), said
    assert scene.count("east") > 0
