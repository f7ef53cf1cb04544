"""
Failovers to copies that lack acknowledged records (fault F20): what is missing is counted, and comes back once.

The logs of the target are put back to an older state while the source is gone.  Plain clients judge both clusters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror import Mirror
from eomirror._native import HangingTransactionClient
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.records.names import LinkNames
from support.clusters.older_logs import Logs, cut_marker
from support.links.disaster import Disaster
from support.links.mirrors import running
from support.links.plane import kafka_of
from support.traffic.records import produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.faults, pytest.mark.fault("F20"), pytest.mark.integration, pytest.mark.spark,
    pytest.mark.timeout(600),
]  # fmt: skip


@pytest.fixture(scope="module")
def fragile() -> Iterator[LocalCluster]:
    """A target whose logs are put back to what they were."""
    with LocalCluster.start(ClusterSpec("frail", kafka_version=kafka_of("west"))) as cluster:
        yield cluster


def values(scene: Disaster, side: str) -> dict[int, list[bytes | None]]:
    """Values of the records on one side, sorted."""
    return {
        number: sorted((one[1] for one in some), key=lambda value: value or b"")
        for number, some in scene.read(side).items()
    }


def cut_scene(
    east: Any, fragile: LocalCluster, name: str, folder: Path, spark: Any, *, equal_names: bool
) -> tuple[Disaster, Logs, int]:
    """A link whose copy of partition 0 will lose the second half of its records; and their number."""
    scene = Disaster(
        east.client_properties, fragile.client_properties, name, folder, spark, equal_names=equal_names
    )
    scene.write("east", 60)
    scene.catch_up()
    logs = Logs(fragile, folder)
    logs.save(scene.copy)
    later = scene.write("east", 60)
    with running(Mirror(scene.config(), spark=spark, links=[scene.name])):
        scene.await_ends()
        scene.await_copies()
    return scene, logs, len(later[0])


@pytest.mark.parametrize(
    ("equal_names", "refilled"),
    [
        pytest.param(True, 5, id="filled-equal"),
        *(
            pytest.param(equal, count, id=f"{word}-{name}", marks=pytest.mark.slow)
            for equal, name in ((False, "prefixed"), (True, "equal"))
            for count, word in ((0, "short"), (5, "filled"), (300, "longer"))
            if (equal, count) != (True, 5)
        ),
    ],
)
def test_a_copy_that_lost_acknowledged_records_is_not_promoted_as_whole(
    east: Any, fragile: LocalCluster, topic_name: str, tmp_path: Path, spark_context: Any,
    equal_names: bool, refilled: int,
) -> None:  # fmt: skip
    """Readiness and failover count what the copy lacks, merge brings it once, and both sides are equal."""
    scene, logs, missing = cut_scene(
        east, fragile, topic_name, tmp_path, spark_context, equal_names=equal_names
    )
    logs.restore(scene.copy)
    if refilled:
        early = some_records(1, refilled)
        produce(scene.west, scene.copy, 1, early, transactional_id=f"{topic_name}-early")
    before = values(scene, "west")

    code, found, said = scene.command("verify")
    assert code == 3, said
    (changed,) = [one["changed"] for one in found["links"][0]["partitions"] if one["changed"]]
    assert (f"{scene.copy}-0" in changed, f"eomirror run CONFIG --link {scene.name}" in changed) == (
        True,
        True,
    )
    _, found, said = scene.command("readiness", "--source-gone", lost=True)
    assert found["lost"] >= missing, said
    (check,) = [one for one in found["checks"] if one["name"] == "copies"]
    assert (check["level"], f"{scene.topic}-0" in check["text"]) == ("warn", True), said

    code, found, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    cuts = {cut["partition"]: cut for cut in found["promotion"]["cuts"]}
    assert cuts[0]["lost"] >= missing
    assert cuts[1]["lost"] == 0
    assert values(scene, "west") == before

    scene.write("west", 30)
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    scene.catch_up(scene.back)
    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert code == 0, said
    assert found["records"] == missing
    scene.catch_up(scene.back)
    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    scene.catch_up()
    assert values(scene, "east") == values(scene, "west")


@pytest.mark.parametrize(
    ("equal_names", "promoted"),
    [
        pytest.param(True, True, id="equal-promoted"),
        pytest.param(False, False, id="prefixed-mirroring", marks=pytest.mark.slow),
    ],
)
def test_a_transaction_that_lost_its_marker_and_is_aborted_is_missing_in_its_copy(
    east: Any, fragile: LocalCluster, topic_name: str, tmp_path: Path, spark_context: Any,
    equal_names: bool, promoted: bool,
) -> None:  # fmt: skip
    """The batch is there as before: no way back begins behind an open one, and an aborted one is lost, and merged."""
    scene = Disaster(
        east.client_properties, fragile.client_properties, topic_name, tmp_path, spark_context,
        equal_names=equal_names,
    )  # fmt: skip
    scene.write("east", 60)
    scene.catch_up()
    failover = ("failover", "--source-gone", "--yes")
    if promoted:
        assert scene.command(*failover, lost=True)[0] == 0
    whole = values(scene, "west")
    fragile.brokers[0].stop()
    cut_marker(fragile, scene.copy, 0)
    fragile.brokers[0].start()
    client = HangingTransactionClient({name: str(value) for name, value in scene.west.items()})
    where = (scene.copy, 0)
    wait_for(lambda: client.open([where], 15.0))
    if promoted:
        code, _, said = scene.command("reverse", "--yes")
        assert (code, "a transaction is open on west before offset" in said) == (6, True), said
        assert f"{scene.copy}-0" in said
    # as an operator ends it: each lane's producer is tried
    for lane in range(2):
        transactional_id = LinkNames(scene.config().link(scene.name).state_name).transactional_id(lane)
        found = client.producer_identity(transactional_id, 15.0)
        if found and found[0] in {one[2] for one in client.open([where], 15.0)}:
            client.end(transactional_id, [where], commit=False, transaction_timeout=15.0, seconds=15.0)
    wait_for(lambda: not client.open([where], 15.0))
    held = values(scene, "west")
    lost = set(whole[0]) - set(held[0])
    assert lost

    if promoted:
        code, _, said = scene.command("reverse", "--yes")
        assert (code, f"--link {scene.name} --from-common-end" in said) == (6, True), said
        assert "and the record there is aborted" in said
        code, _, said = scene.command("reverse", "--yes", "--from-common-end", timeout=240)
    else:
        code, found, said = scene.command(*failover, lost=True)
        assert code == 0, said
        assert sum(cut["lost"] for cut in found["promotion"]["cuts"]) >= len(lost)
        scene.write("west", 20)
        code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    scene.catch_up(scene.back)
    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert (code, found["records"]) == (0, len(lost)), said
    scene.catch_up(scene.back)
    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    scene.catch_up()
    assert values(scene, "east") == values(scene, "west")
