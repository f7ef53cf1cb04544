"""The way back on real brokers: it begins at the cut, and nothing that only one side holds is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from support.links.disaster import Disaster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(400)]


def values(scene: Disaster, side: str) -> dict[int, list[bytes]]:
    """The values of each partition, sorted: two sides interleave them in their own orders."""
    return {number: sorted(one[1] for one in some) for number, some in scene.read(side).items()}


def equal(scene: Disaster, count: int) -> None:
    """Both sides hold the same records, each once, and so many."""
    east, west = values(scene, "east"), values(scene, "west")
    assert east == west
    found = [one for some in east.values() for one in some]
    assert (len(found), len(set(found))) == (count, count)


def made(
    east: Any, west: Any, name: str, folder: Path, spark: Any, *, equal_names: bool, partitions: int = 2
) -> Disaster:
    """A scene of which 40 records are mirrored."""
    clusters = east.client_properties, west.client_properties
    scene = Disaster(*clusters, name, folder, spark, equal_names=equal_names, partitions=partitions)
    scene.write("east", 40)
    scene.catch_up()
    return scene


def forgotten(scene: Disaster, side: str, count: int, word: str = "forgotten", number: int = 0) -> None:
    """An application that was not stopped writes there, without transactions."""
    properties, topic = (scene.east, scene.topic) if side == "east" else (scene.west, scene.copy)
    producer = Producer(properties)
    for each in range(count):
        producer.produce(topic, b"%s-%d" % (word.encode(), each), key=b"forgotten", partition=number)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    "equal_names",
    [pytest.param(False, marks=pytest.mark.slow, id="prefixed"), pytest.param(True, id="equal")],
)
@pytest.mark.parametrize("start", ["latest", pytest.param("earliest", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_way_back_begins_with_the_reversal_and_not_where_its_start_says(
    east: Any,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    *,
    equal_names: bool,
    start: str,
) -> None:
    """Its first run is refused as long as the link is promoted and not reversed; then it begins at the cut."""
    scene = made(east, west, topic_name, tmp_path, spark_context, equal_names=equal_names)
    ordinary = scene.settings

    def settings(*, lost: bool = False) -> dict[str, Any]:
        found = ordinary(lost=lost)
        found["links"][-1]["start"] = start
        return found

    scene.settings = settings  # type: ignore[method-assign]
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    scene.write("west", 40)

    code, _, said = scene.command("run", "--until", "caught-up", link=scene.back)
    assert code == 6, said
    assert f"eomirror reverse CONFIG --link {scene.name}" in said
    assert f"{scene.copy}-0" in said
    # a reversal that died half way is none
    assert scene.command("reverse", "--yes", crash="failover.reversal_noted")[0] == -9
    code, _, said = scene.command("run", "--until", "caught-up", link=scene.back)
    assert code == 6, said
    for _ in range(2):
        code, _, said = scene.command("reverse", "--yes")
        assert code == 0, said
    scene.catch_up(scene.back)
    equal(scene, scene.count("west"))
    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    scene.write("east", 20)
    scene.catch_up()
    equal(scene, scene.count("east"))


@pytest.mark.slow
@pytest.mark.parametrize("went_on", [False, True])
def test_a_link_back_that_began_behind_the_cut_on_its_own_is_not_taken_for_the_way_back(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, *, went_on: bool
) -> None:
    """A position behind the cut proves nothing; what it passed over is mirrored, or named if that cannot be."""
    scene = made(east, west, topic_name, tmp_path, spark_context, equal_names=True)
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    scene.write("west", 40)
    # as `start: latest` did before the first run of a way back was refused
    ends = [f"--resume-at={scene.copy}-{number}={scene.end('west', number)}" for number in range(2)]
    code, _, said = scene.command("run", "--until", "caught-up", *ends, link=scene.back)
    assert code == 0, said
    if went_on:
        scene.write("west", 20)
        scene.catch_up(scene.back)

    code, _, said = scene.command("reverse", "--yes")

    if went_on:
        assert code == 6, said
        assert "has begun behind the cut" in said
        assert f"of {scene.copy}-0" in said
        return
    assert code == 0, said
    scene.catch_up(scene.back)
    equal(scene, scene.count("west"))
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    scene.catch_up(scene.back)
    equal(scene, scene.count("west"))


@pytest.mark.parametrize(
    ("equal_names", "verb"),
    [
        pytest.param(True, "failover", id="equal-failover"),
        pytest.param(False, "failover", id="prefixed-failover", marks=pytest.mark.slow),
        pytest.param(True, "promote", id="equal-promote", marks=pytest.mark.slow),
    ],
)
def test_records_that_reach_the_old_source_behind_the_reversal_are_orphans(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, *, equal_names: bool, verb: str
) -> None:
    """Between records of the link back, and behind its last: the return is refused by name until they are merged."""
    scene = made(east, west, topic_name, tmp_path, spark_context, equal_names=equal_names)
    if verb == "failover":
        scene.write("east", 20)
        code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    else:
        code, _, said = scene.command("promote", "--yes")
    assert code == 0, said
    scene.write("west", 20)
    assert scene.command("reverse", "--yes")[0] == 0
    scene.catch_up(scene.back)
    if verb == "failover":
        # what was decided then is not decided for what comes later
        code, _, said = scene.command("restore", "--orphans", "merge", "--yes")
        assert code == 0, said
    start = scene.end("east", 0)
    forgotten(scene, "east", 3, "between")
    scene.write("west", 20)
    scene.catch_up(scene.back)
    behind = scene.end("east", 1)
    forgotten(scene, "east", 1, "behind", number=1)

    for more in ((), ("--dry-run",), ("--method", "wait")):
        code, _, said = scene.command("failback", "--yes", *more)
        assert code == 6, said
        assert f"{scene.topic}-0 [{start}, " in said
        assert f"{scene.topic}-1 [{behind}, {behind + 1})" in said
        assert f"eomirror restore CONFIG --link {scene.name} --orphans" in said
    assert scene.command("history", link=scene.back)[1]["state"] == "mirror"

    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert (code, found["records"]) == (0, 4), said
    scene.catch_up(scene.back)
    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    scene.write("east", 20)
    scene.catch_up()
    everything = [one for some in values(scene, "west").values() for one in some]
    assert sum(one.startswith((b"between", b"behind")) for one in everything) == 4
    equal(scene, len(everything))


@pytest.mark.slow
def test_a_return_that_could_not_be_finished_is_not_begun(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """The second half is checked before the clients are switched: here the first link would not start from it."""
    scene = made(east, west, topic_name, tmp_path, spark_context, equal_names=True)
    code, _, said = scene.command("promote", "--yes")
    assert code == 0, said
    assert scene.command("reverse", "--yes")[0] == 0
    scene.catch_up(scene.back)
    ordinary = scene.settings

    def settings(*, lost: bool = False) -> dict[str, Any]:
        found = ordinary(lost=lost)
        other = {**found["links"][0], "name": f"{scene.name}-other"}
        found["links"].insert(0, other)
        return found

    scene.settings = settings  # type: ignore[method-assign]
    switched = tmp_path / "switched"
    for more in ((), ("--dry-run",)):
        code, found, said = scene.command("failback", "--yes", "--on-switch", f"touch {switched}", *more)
        assert code == 6, said
        # a dry run shows it among the checks
        assert f"{scene.name}-other" in said + str(found.get("promotion"))
    assert not switched.exists()
    assert scene.command("history", link=scene.back)[1]["state"] == "mirror"
    scene.settings = ordinary  # type: ignore[method-assign]
    code, _, said = scene.command("failback", "--yes", "--on-switch", f"touch {switched}")
    assert (code, switched.exists()) == (0, True), said


@pytest.mark.parametrize(
    ("equal_names", "verb", "with_back"),
    [
        pytest.param(True, "promote", True, id="equal-promote"),
        pytest.param(True, "cutover", False, id="equal-cutover", marks=pytest.mark.slow),
        pytest.param(False, "failover", False, id="prefixed-failover", marks=pytest.mark.slow),
    ],
)
def test_records_that_others_write_into_a_copy_are_named_and_come_over(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any,
    *, equal_names: bool, verb: str, with_back: bool,
) -> None:  # fmt: skip
    """Written too early into the copy, and by a forgotten producer into the old side: on both sides at the end."""
    scene = made(east, west, topic_name, tmp_path, spark_context, equal_names=equal_names)
    assert named(scene, scene.name) == []
    start = scene.end("west", 0)
    forgotten(scene, "west", 1, "too-early")
    assert named(scene, scene.name) == [(scene.copy, 0, start, start + 1)]
    if with_back:
        # it stands between records of the link then, whose marks tell them apart
        scene.write("east", 20)
        scene.catch_up()
    scene.with_back = with_back
    more = {
        "promote": ("--verify", "skip"),
        "cutover": ("--verify", "skip", "--method", "wait"),
        "failover": ("--force",),
    }[verb]
    code, _, said = scene.command(verb, "--yes", *more)
    assert code == 0, said
    scene.with_back = True
    scene.write("west", 20)
    # a killed one is repeated
    for _ in range(2):
        code, _, said = scene.command("reverse", "--yes")
        assert code == 0, said
    scene.catch_up(scene.back)
    equal(scene, scene.count("west"))
    assert b"too-early-0" in values(scene, "east")[0]

    assert named(scene, scene.back) == []
    behind = scene.end("east", 1)
    forgotten(scene, "east", 1, number=1)
    assert named(scene, scene.back) == [(scene.topic, 1, behind, behind + 1)]
    code, _, said = scene.command("failback", "--yes")
    assert code == 6, said
    assert f"{scene.topic}-1 [{behind}, {behind + 1})" in said
    assert scene.command("restore", "--orphans", "merge", "--yes")[0] == 0
    scene.catch_up(scene.back)
    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    scene.catch_up()
    equal(scene, scene.count("east"))
    assert b"forgotten-0" in values(scene, "west")[1]
    assert named(scene, scene.name) == []


@pytest.mark.parametrize(
    ("equal_names", "follows"),
    [
        pytest.param(True, True, id="equal-between", marks=pytest.mark.slow),
        pytest.param(True, False, id="equal-alone", marks=pytest.mark.slow),
        pytest.param(False, True, id="prefixed-between", marks=pytest.mark.slow),
        pytest.param(False, False, id="prefixed-alone", marks=pytest.mark.slow),
    ],
)
def test_records_of_others_before_the_first_of_a_link_come_over(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any,
    *, equal_names: bool, follows: bool,
) -> None:  # fmt: skip
    """In a copy of which the link has written nothing, since it began or since it returned."""
    clusters = east.client_properties, west.client_properties
    scene = Disaster(*clusters, topic_name, tmp_path, spark_context, equal_names=equal_names, partitions=2)
    forgotten(scene, "east", 10, "old", number=0)
    scene.catch_up()
    forgotten(scene, "west", 2, "too-early", number=1)
    assert named(scene, scene.name) == [(scene.copy, 1, 0, 2)]
    if follows:
        forgotten(scene, "east", 3, "behind", number=1)
        scene.catch_up()
    for round_ in range(2):
        code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
        assert code == 0, said
        code, _, said = scene.command("reverse", "--yes")
        assert code == 0, said
        scene.catch_up(scene.back)
        assert b"too-early-0" in values(scene, "east")[1]
        equal(scene, scene.count("west"))
        code, _, said = scene.command("failback", "--yes")
        assert code == 0, said
        scene.catch_up()
        if not round_:
            forgotten(scene, "west", 2, "returned", number=1)
    assert b"returned-1" in values(scene, "east")[1]
    equal(scene, scene.count("west"))


def named(scene: Disaster, link: str) -> list[tuple[str, int, int, int]]:
    """Foreign records that `status` names, as `readiness` does."""
    (status,) = scene.command("status", link=link)[1]["links"]
    found = status["foreign"]
    (check,) = (
        one for one in scene.command("readiness", link=link)[1]["checks"] if one["name"] == "foreign records"
    )
    assert check["level"] == ("warn" if found else "ok")
    for one in found:
        assert f"{one['target_topic']}-{one['partition']} [{one['from']}, {one['to']})" in check["text"]
    return [(one["target_topic"], one["partition"], one["from"], one["to"]) for one in found]
