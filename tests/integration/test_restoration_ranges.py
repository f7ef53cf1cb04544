"""
`restore` on real brokers, called again and again: what it has dealt with is a range of offsets, and the rest stays.

Judged by plain clients: no record is lost that was not exported or kept on request, and none comes twice.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.links.disaster import Disaster
from support.traffic.records import read_committed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_RESTORE = ("restore", "--yes", "--orphans")


def values(*written: dict[int, list[Any]]) -> list[bytes]:
    """The values of all records, sorted: no two that a test writes are equal."""
    return sorted(record[1] for some in written for records in some.values() for record in records)


def exported(path: Path) -> list[bytes]:
    """The values in a file of exported records, sorted."""
    return sorted(base64.b64decode(json.loads(line)["value"]) for line in path.read_text().splitlines())


def fails_over(scene: Disaster, orphans: int) -> tuple[dict[int, list[Any]], dict[int, list[Any]]]:
    """Mirror some records, write orphans, lose the source; returns both."""
    first = scene.write("east", 60)
    scene.catch_up()
    late = scene.write("east", orphans)
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    return first, late


def succeeds(scene: Disaster, verb: str, *arguments: str, **options: Any) -> dict[str, Any]:
    """Run a command that must end with 0; returns its result."""
    code, found, said = scene.command(verb, *arguments, timeout=300, **options)
    assert code == 0, said
    return found


def undecided(scene: Disaster) -> int:
    """Records that `verify` lists as orphans about which nothing was decided."""
    (link,) = succeeds(scene, "verify")["links"]
    return sum(each["records"] for each in link["orphans"] if not each["decided"])


def emit_again(scene: Disaster, begins: bytes) -> bytes:
    """An application writes a record of partition 0 on east whose value begins so once more, headers and all."""
    consumer = Consumer({**scene.east, "group.id": "again", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(scene.topic, 0, 0)])
    found: Any = None
    while found is None or found.error() or not found.value().startswith(begins):
        found = consumer.poll(20)
        assert found is not None
    consumer.close()
    assert "eomirror.hops" in dict(found.headers())
    producer = Producer(scene.east)
    producer.produce(
        scene.topic, found.value(), found.key(), 0, timestamp=found.timestamp()[1], headers=found.headers()
    )
    assert producer.flush(30) == 0
    return bytes(found.value())


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["equal", "prefixed"])
def scene(
    request: pytest.FixtureRequest, east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> Disaster:
    """Two clusters, with equal names and with prefixed ones."""
    return Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=request.param,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_recreate_deletes_nothing_that_arrived_after_the_export(scene: Disaster, tmp_path: Path) -> None:
    """An application wrote on between the export and the reversal: neither the other side nor the file has that."""
    _, orphans = fails_over(scene, 20)
    path = tmp_path / "orphans.jsonl"
    succeeds(scene, *_RESTORE, "export", "--to", str(path))
    late = scene.write("east", 30)
    succeeds(scene, "reverse", "--yes")
    before = values(scene.read("east"))

    code, _, said = scene.command(*_RESTORE, "recreate")
    assert (code, "--orphans export" in said, f"{scene.topic}-0 [" in said) == (6, True, True), said
    assert values(scene.read("east")) == before
    # what is kept stands on the old source alone
    succeeds(scene, *_RESTORE, "keep")
    assert scene.command(*_RESTORE, "recreate")[0] == 6

    # the ways on: export once more, and the file must be there
    found = succeeds(scene, *_RESTORE, "export", "--to", str(path))
    assert found["records"] == len(values(orphans, late))
    assert exported(path) == values(orphans, late)
    torn = path.read_text()
    path.write_text("".join(torn.splitlines(keepends=True)[:-1]))
    code, _, said = scene.command(*_RESTORE, "recreate")
    assert (code, str(path) in said) == (6, True), said
    assert values(scene.read("east")) == before
    path.write_text(torn)
    succeeds(scene, *_RESTORE, "recreate")
    assert values(scene.read("east")) == values(scene.read("west"))
    assert sorted(exported(path) + values(scene.read("west"))) == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_restoration_before_the_reversal_does_not_count_for_later_orphans(scene: Disaster) -> None:
    """They refuse the return, `verify` lists them, and the next merge brings them alone."""
    first, orphans = fails_over(scene, 20)
    found = succeeds(scene, *_RESTORE, "merge")
    assert found["records"] == len(values(orphans))
    late = scene.write("east", 30)
    succeeds(scene, "reverse", "--yes")
    there = scene.write("west", 20)
    scene.catch_up(scene.back)
    assert undecided(scene) == len(values(late))

    code, _, said = scene.command("failback", "--yes")
    assert (code, f"{len(values(late))} records of east" in said) == (6, True), said
    found = succeeds(scene, *_RESTORE, "merge")
    assert found["records"] == len(values(late))
    assert undecided(scene) == 0
    assert succeeds(scene, *_RESTORE, "merge")["records"] == 0
    scene.catch_up(scene.back)
    succeeds(scene, "failback", "--yes")
    again = scene.write("east", 10)
    scene.catch_up()
    everything = values(first, orphans, late, there, again)
    assert values(scene.read("west")) == everything
    assert values(scene.read("east")) == everything


@pytest.mark.timeout(300)
def test_nothing_is_merged_once_the_link_back_is_promoted(scene: Disaster) -> None:
    """Applications write to the old source again, and the link that returns mirrors that: a merge would do so first."""
    first = scene.write("east", 60)
    scene.catch_up()
    succeeds(scene, "failover", "--source-gone", "--yes", lost=True)
    succeeds(scene, "reverse", "--yes")
    there = scene.write("west", 20)
    scene.catch_up(scene.back)
    assert scene.command("failback", "--yes", crash="failover.recorded")[0] == -9
    again = scene.write("east", 25)

    code, _, said = scene.command(*_RESTORE, "merge", timeout=300)
    assert (code, "failback" in said) == (6, True), said
    succeeds(scene, "failback", "--yes")
    scene.catch_up()
    everything = values(first, there, again)
    assert values(scene.read("west")) == everything
    assert values(scene.read("east")) == everything


@pytest.mark.timeout(300)
def test_a_record_that_an_application_emitted_again_is_an_orphan(scene: Disaster) -> None:
    """It has the header of the record that it copied; the producer of its batch tells that no link wrote it."""
    first, _ = fails_over(scene, 0)
    succeeds(scene, "reverse", "--yes")
    there = scene.write("west", 20)
    scene.catch_up(scene.back)
    returned = emit_again(scene, b"west")

    assert succeeds(scene, *_RESTORE, "merge")["records"] == 1
    everything = sorted([*values(first, there), returned])
    scene.catch_up(scene.back)
    assert values(scene.read("east")) == everything
    assert values(scene.read("west")) == everything


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_record_that_was_emitted_again_before_the_loss_refuses_the_return(
    scene: Disaster, tmp_path: Path
) -> None:
    """The source has records of the link back from an earlier round, and an application copies one with its header."""
    first, _ = fails_over(scene, 0)
    there = scene.write("west", 20)
    succeeds(scene, "reverse", "--yes")
    scene.catch_up(scene.back)
    succeeds(scene, "failback", "--yes")
    scene.catch_up()
    again = emit_again(scene, b"west")
    succeeds(scene, "failover", "--source-gone", "--yes", lost=True)
    # dealt with before the reversal, and killed on the way
    path = tmp_path / "orphans.jsonl"
    export = (*_RESTORE, "export", "--to", str(path))
    assert scene.command(*export, crash="failover.orphans_written")[0] == -9
    assert exported(path) == [again]
    succeeds(scene, "reverse", "--yes")
    scene.catch_up(scene.back)
    assert undecided(scene) == 1
    code, _, said = scene.command("failback", "--yes")
    assert (code, "1 records of east" in said, f"{scene.topic}-0 [" in said) == (6, True, True), said
    assert succeeds(scene, *export)["records"] == 1
    assert undecided(scene) == 0
    (tmp_path / "failover.orphans_written").unlink()
    assert scene.command(*_RESTORE, "merge", crash="failover.orphans_written", timeout=300)[0] == -9
    assert succeeds(scene, *_RESTORE, "merge")["records"] == 1
    scene.catch_up(scene.back)
    succeeds(scene, "failback", "--yes")
    scene.catch_up()
    everything = sorted([*values(first, there), again])
    assert values(scene.read("east")) == everything
    assert values(scene.read("west")) == everything


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_an_application_writes_beside_the_link_back_is_dealt_with(scene: Disaster) -> None:
    """It writes to the old source after the reversal: kept, exported, and merged; nothing comes twice."""
    first, orphans = fails_over(scene, 20)
    succeeds(scene, "reverse", "--yes")
    succeeds(scene, *_RESTORE, "keep")
    there = scene.write("west", 20)
    scene.catch_up(scene.back)
    late = scene.write("east", 30)
    found = succeeds(scene, *_RESTORE, "export", "--to-topic")
    assert found["records"] == len(values(orphans, late))
    later = scene.write("east", 10)
    found = succeeds(scene, *_RESTORE, "export", "--to-topic")
    assert found["records"] == len(values(orphans, late, later))
    (topic,) = read_committed(scene.west, found["place"]).values()
    assert sorted(record[1] for record in topic) == values(orphans, late, later)
    found = succeeds(scene, *_RESTORE, "merge")
    assert found["records"] == len(values(orphans, late, later))
    scene.catch_up(scene.back)
    everything = values(first, orphans, there, late, later)
    assert values(scene.read("west")) == everything
    assert values(scene.read("east")) == everything
    succeeds(scene, "failback", "--yes")
    scene.catch_up()
    assert values(scene.read("west")) == everything
