"""
An old source that comes back without its tail, or restored and written on, judged by plain clients on real brokers.

Its topic ids, and with them all that metadata tell, are the same.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.clusters.older_logs import Logs
from support.links.disaster import Disaster
from support.links.plane import kafka_of
from support.traffic.records import produce, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]


POINTS = ("failover.reversal_noted", "failover.reversed", "failover.copied_back")


@pytest.fixture(scope="module")
def fragile() -> Iterator[LocalCluster]:
    """A source whose logs are put back to what they were."""
    with LocalCluster.start(ClusterSpec("fragile-source", kafka_version=kafka_of("east"))) as cluster:
        yield cluster


def values(scene: Disaster, side: str) -> dict[int, list[bytes]]:
    """The values of each partition, sorted: two sides interleave them in their own orders."""
    return {number: sorted(one[1] for one in some) for number, some in scene.read(side).items()}


def end_of(scene: Disaster) -> int:
    """End of partition 0 of the source; its broker may have been started just now."""
    found: list[int] = []

    def seen() -> bool:
        try:
            found.append(scene.end("east", 0))
        except KafkaException:
            return False
        return True

    wait_for(seen)
    return found[-1]


def foreign(scene: Disaster, count: int, name: bytes = b"foreign") -> list[bytes]:
    """Write records into partition 0 of the source that no copy holds; their values."""
    records = [(b"foreign", b"%b-%d" % (name, each), 1_700_000_000_000, ()) for each in range(count)]
    written = produce(
        scene.east, scene.topic, 1, records, transactional_id=f"{scene.name}-foreign", per_transaction=10
    )
    return [one[1] for one in written[0]]


def returned(scene: Disaster) -> None:
    """Return to the source; both sides hold the same, also what is written then."""
    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    scene.write("east", 20)
    scene.catch_up()
    assert values(scene, "west") == values(scene, "east")
    codes = [scene.command("verify", link=link)[0] for link in (scene.name, scene.back)]
    assert codes == [0, 0]


def named_by_others(scene: Disaster, older: str, end: int, said: str) -> None:
    """By offsets some orphans of such a log would not be found: `restore` refuses as `reverse` did; `verify` tells."""
    file = scene.folder / "file"
    for orphans in ("merge", "keep", "export"):
        code, _, told = scene.command("restore", "--orphans", orphans, "--to", str(file), "--yes")
        assert (code, file.exists()) == (6, False), told
        assert told.splitlines()[-2:] == said.splitlines()[-2:]
    code, found, told = scene.command("verify")
    assert code == 3, told
    (changed,) = [one["changed"] for one in found["links"][0]["partitions"] if one["changed"]]
    assert (changed.startswith(f"{older} "), str(end) in changed) == (True, True), changed
    assert f"`eomirror reverse CONFIG --link {scene.name}` names the ways on" in changed


@pytest.mark.parametrize(
    ("equal_names", "written_on"),
    [
        pytest.param(True, 0, id="equal-shorter"),
        pytest.param(False, 0, id="prefixed-shorter", marks=pytest.mark.slow),
        pytest.param(True, 20, id="equal-written-on-and-shorter", marks=pytest.mark.slow),
        pytest.param(True, 200, id="equal-written-on", marks=pytest.mark.slow),
        pytest.param(False, 200, id="prefixed-written-on", marks=pytest.mark.slow),
    ],
)
def test_a_source_that_is_not_what_was_mirrored_is_refused_and_gets_back_what_it_lost(
    fragile: LocalCluster, west: Any, topic_name: str, tmp_path: Path, spark_context: Any,
    *, equal_names: bool, written_on: int,
) -> None:  # fmt: skip
    """Partition 0 is older than the cut, 1 is whole; `--from-common-end` ends with equal clusters."""
    scene = Disaster(
        fragile.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=equal_names,
    )  # fmt: skip
    logs, older = Logs(fragile, tmp_path), f"{scene.topic}-0"
    scene.write("east", 40)
    logs.save(scene.topic)
    common = end_of(scene)
    scene.write("east", 80)
    scene.catch_up()
    end = end_of(scene)
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    scene.write("west", 20)
    held = values(scene, "west")
    logs.restore(scene.topic)
    late = sorted(foreign(scene, written_on))

    for more in ((), ("--dry-run",)):
        code, _, said = scene.command("reverse", "--yes", *more)
        assert code == 6, said
        assert f"{older} " in said
        assert f"up to offset {common}" in said
        assert str(end) in said
        assert f"{scene.topic}-1" not in said
        assert f"eomirror reverse CONFIG --link {scene.name} --from-common-end" in said
    named_by_others(scene, older, end, said)
    for point in POINTS:
        code, _, said = scene.command("reverse", "--yes", "--from-common-end", crash=point, timeout=240)
        assert (code, (tmp_path / point).exists()) == (-9, True), said
        # the link back has no loop guard until it has copied back: it would return what a merge brings before that
        code, _, said = scene.command("restore", "--orphans", "merge", "--yes")
        assert (code, f"repeat `eomirror reverse CONFIG --link {scene.name}`" in said) == (6, True), said
        code, _, said = scene.command("run", "--until", "caught-up", link=scene.back)
        assert (code, f"eomirror reverse CONFIG --link {scene.name}" in said) == (6, True), said
    code, found, said = scene.command("reverse", "--yes", timeout=240)
    assert code == 0, said
    scene.catch_up(scene.back)
    assert values(scene, "west") == held
    here = values(scene, "east")
    assert here == {0: sorted(held[0] + late), 1: held[1]}
    if late:
        orphans = next(each for each in found["partitions"] if each["partition"] == 0)
        assert orphans["orphans_from"] == common
        code, _, said = scene.command("failback", "--yes")
        assert (code, "restore" in said) == (6, True), said
        code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
        assert (code, found["records"]) == (0, len(late)), said
        scene.catch_up(scene.back)
    assert values(scene, "west") == here
    assert values(scene, "east") == here
    code, _, said = scene.command("verify")
    assert code == 0, said

    returned(scene)


@pytest.mark.parametrize(
    ("equal_names", "written_on"),
    [
        pytest.param(False, 0, id="prefixed-shorter", marks=pytest.mark.slow),
        pytest.param(True, 200, id="equal-written-on", marks=pytest.mark.slow),
        pytest.param(False, 200, id="prefixed-written-on", marks=pytest.mark.slow),
    ],
)
def test_a_source_that_changes_behind_the_reversal_is_not_written_to(
    fragile: LocalCluster, west: Any, topic_name: str, tmp_path: Path, spark_context: Any,
    *, equal_names: bool, written_on: int,
) -> None:  # fmt: skip
    """The first start of the way back compares both logs with what the reversal has found; so does the return."""
    scene = Disaster(
        fragile.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=equal_names,
    )  # fmt: skip
    logs = Logs(fragile, tmp_path)
    scene.write("east", 40)
    logs.save(scene.topic)
    scene.write("east", 80)
    scene.catch_up()
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    logs.restore(scene.topic)
    foreign(scene, written_on)
    here = scene.read("east")

    code, _, said = scene.command("run", "--until", "caught-up", link=scene.back)
    assert code != 0, said
    assert f"{scene.topic}-0 on the target was truncated" in said
    code, _, said = scene.command("failback", "--yes")
    assert code == 6, said
    assert f"{scene.topic}-0" in said
    assert scene.read("east") == here


@pytest.mark.slow
@pytest.mark.parametrize("lost", [40, 90])
def test_a_source_that_loses_what_it_got_back_before_is_no_way_back(
    fragile: LocalCluster, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, *, lost: int
) -> None:
    """Older than the last return: what was brought back then comes again, or the command says that it cannot know."""
    scene = Disaster(
        fragile.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=True, partitions=1,
    )  # fmt: skip
    logs = Logs(fragile, tmp_path)
    scene.write("east", 40)
    if lost == 90:
        logs.save(scene.topic)
    scene.catch_up()
    assert scene.command("promote", "--yes")[0] == 0
    scene.write("west", 40)
    assert scene.command("reverse", "--yes")[0] == 0
    scene.catch_up(scene.back)
    if lost == 40:
        logs.save(scene.topic)
    scene.write("west", 10)
    scene.catch_up(scene.back)
    assert scene.command("failback", "--yes")[0] == 0
    scene.write("east", 40)
    scene.catch_up()
    held = values(scene, "west")
    assert scene.command("failover", "--source-gone", "--yes", lost=True)[0] == 0
    logs.restore(scene.topic)

    code, _, said = scene.command("reverse", "--yes", "--from-common-end", timeout=240)

    if lost == 40:
        assert (code, "no offset is known" in said) == (6, True), said
        return
    assert code == 0, said
    scene.catch_up(scene.back)
    assert values(scene, "east") == held
    assert values(scene, "west") == held


def exported(path: Path) -> list[bytes]:
    """The values in a file of exported records, sorted."""
    return sorted(base64.b64decode(json.loads(line)["value"]) for line in path.read_text().splitlines())


@pytest.mark.slow
def test_exported_records_that_the_source_has_lost_since_stay_in_their_file(
    fragile: LocalCluster, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Its log is cut and written on between two exports to one file: the second needs another file."""
    scene = Disaster(
        fragile.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=True,
    )  # fmt: skip
    logs, path = Logs(fragile, tmp_path), tmp_path / "orphans.jsonl"
    export = ("restore", "--orphans", "export", "--yes")
    scene.write("east", 20)
    scene.catch_up()
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    first = foreign(scene, 10, b"first")
    logs.save(scene.topic)
    start = end_of(scene)
    lost = foreign(scene, 10, b"lost")
    for place in (("--to", str(path)), ("--to-topic",)):
        code, found, said = scene.command(*export, *place)
        assert (code, found["records"]) == (0, len(first + lost)), said
    assert exported(path) == sorted(first + lost)
    assert path.stat().st_mode & 0o777 == 0o600
    logs.restore(scene.topic)
    late = foreign(scene, 20, b"late")

    before = path.read_bytes()
    for _ in range(2):
        code, _, said = scene.command(*export, "--to", str(path))
        assert (code, path.read_bytes()) == (2, before), said
        assert f"{path} holds {len(lost)} exported records that this export does not contain" in said
        assert f"{scene.topic}-0 [{start}, {start + len(lost)}): {len(lost)}" in said
    advice = said.partition("--to ")[2].split()[0]

    code, found, said = scene.command(*export, "--to", advice)
    assert (code, found["records"]) == (0, len(first + late)), said
    assert (path.read_bytes(), exported(Path(advice))) == (before, sorted(first + late))
    code, found, said = scene.command(*export, "--to-topic")
    assert (code, found["records"]) == (0, len(first + late)), said
    (held,) = read_committed(scene.west, found["place"]).values()
    assert sorted(one[1] for one in held) == sorted(first + lost + late)
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    # what is deleted then must be in the place of an export as it is
    Path(advice).unlink()
    scene.command("restore", "--orphans", "recreate", "--yes")
    assert values(scene, "east") == values(scene, "west")


@pytest.mark.parametrize(
    "equal_names",
    [pytest.param(True, id="equal"), pytest.param(False, id="prefixed", marks=pytest.mark.slow)],
)
def test_what_was_decided_about_orphans_holds_for_these_and_not_for_their_offsets(
    fragile: LocalCluster,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    *,
    equal_names: bool,
) -> None:
    """The source loses exported records, and others stand at the same offsets: they are undecided orphans."""
    scene = Disaster(
        fragile.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=equal_names, partitions=1,
    )  # fmt: skip
    logs, path = Logs(fragile, tmp_path), tmp_path / "orphans.jsonl"
    scene.write("east", 20)
    scene.catch_up()
    logs.save(scene.topic)
    start = end_of(scene)
    first = foreign(scene, 5, b"exported")
    # the last stable offset, which passes a transaction with its marker
    wait_for(lambda: end_of(scene) > start)
    end = end_of(scene)
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    code, found, said = scene.command("restore", "--orphans", "export", "--yes", "--to", str(path))
    assert (code, found["records"]) == (0, len(first)), said
    logs.restore(scene.topic)
    assert end_of(scene) == start
    late = foreign(scene, 5, b"in-place")
    wait_for(lambda: end_of(scene) == end)
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said

    code, _, said = scene.command("restore", "--orphans", "recreate", "--yes")
    assert (code, f"{scene.topic}-0 [" in said) == (6, True), said
    assert set(late) < set(values(scene, "east")[0])
    code, _, said = scene.command("failback", "--yes")
    assert (code, f"{len(late)} records of east never reached" in said) == (6, True), said
    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert (code, found["records"]) == (0, len(late)), said
    scene.catch_up(scene.back)
    returned(scene)
    assert set(late) < set(values(scene, "west")[0])


@pytest.mark.parametrize(
    ("equal_names", "written_on"),
    [
        pytest.param(True, 0, id="equal-shorter"),
        pytest.param(False, 0, id="prefixed-shorter", marks=pytest.mark.slow),
        pytest.param(True, 8, id="equal-written-on", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_merged_orphans_that_the_source_loses_refuse_the_return_and_come_back(
    fragile: LocalCluster, west: Any, topic_name: str, tmp_path: Path, spark_context: Any,
    *, equal_names: bool, written_on: int,
) -> None:  # fmt: skip
    """The copies alone hold them, and the link back drops them as its own; the topic is copied back whole."""
    scene = Disaster(
        fragile.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=equal_names, partitions=1,
    )  # fmt: skip
    logs, path = Logs(fragile, tmp_path), tmp_path / "orphans.jsonl"
    scene.write("east", 20)
    scene.catch_up()
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    scene.write("west", 10)
    assert scene.command("reverse", "--yes")[0] == 0
    scene.catch_up(scene.back)
    logs.save(scene.topic)
    start = end_of(scene)
    merged = foreign(scene, 5, b"merged")
    wait_for(lambda: end_of(scene) > start)
    end = end_of(scene)
    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert (code, found["records"]) == (0, len(merged)), said
    logs.restore(scene.topic)
    late = foreign(scene, written_on, b"in-place")
    held = values(scene, "west")
    assert set(merged) < set(held[0])

    for more in ((), ("--dry-run",)):
        code, found, said = scene.command("failback", "--yes", *more)
        assert (code, f"{scene.topic}-0" in said, str(end) in said) == (6, True, True), said + str(found)
    assert f"eomirror restore CONFIG --link {scene.name} --orphans recreate" in said
    if late:
        code, _, said = scene.command("restore", "--orphans", "recreate", "--yes")
        assert (code, "--orphans export" in said) == (6, True), said
        assert set(late) < set(values(scene, "east")[0])
        code, found, said = scene.command("restore", "--orphans", "export", "--yes", "--to", str(path))
        assert (code, found["records"]) == (0, len(late)), said
    code, found, said = scene.command("restore", "--orphans", "recreate", "--yes", timeout=240)
    assert code == 0, said
    assert values(scene, "east") == held
    scene.catch_up(scene.back)
    returned(scene)
    assert set(merged) < set(values(scene, "east")[0])
