"""Groups that a killed failover has moved, and that were rewound on the source before the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror import Mirror
from eomirror.kafka.session import ClusterSession
from eomirror.link.offset_map_reader import OffsetMapReader
from support.links.disaster import Disaster
from support.links.mirrors import running
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

_GROUPS = ("half", "beyond")


@pytest.mark.timeout(500)
def test_groups_that_a_killed_failover_moved_follow_a_rewind_before_the_next(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """
    The command dies between the groups and its decision; the link is a mirror still, and the groups go back.

    One stands at a record that was mirrored, the other beyond the cut.  Neither is taken for a group that consumers of
    the target have moved on, whether the mirror ran in between or not.
    """
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, partitions=1,
        back=False,
    )  # fmt: skip
    scene.write("east", 100)
    end = scene.end("east", 0)
    scene.commit("east", "half", {0: end // 2})
    scene.commit("east", "beyond", {0: end})
    scene.catch_up()
    scene.follow(2)
    scene.write("east", 20)
    scene.commit("east", "beyond", {0: scene.end("east", 0)})

    force = ("failover", "--force", "--yes")
    assert scene.command(*force, crash="failover.groups_moved")[0] == -9
    assert scene.command("history")[1]["state"] == "mirror"
    assert scene.next_of("west", "beyond", 0) is None
    for group in _GROUPS:
        scene.commit("east", group, {0: end // 4})
    wanted = scene.next_of("east", "half", 0)
    code, found, said = scene.command(*force, "--dry-run")
    assert code == 0, said
    assert {move["action"] for move in found["groups"]} == {"move"}, found["groups"]
    (tmp_path / "failover.groups_moved").unlink()
    assert scene.command(*force, crash="failover.groups_moved")[0] == -9
    assert [scene.next_of("west", group, 0) for group in _GROUPS] == [wanted, wanted]

    # once more, with a mirror in between and without the source
    for group in _GROUPS:
        scene.commit("east", group, {0: end // 8})
    wanted = scene.next_of("east", "half", 0)
    with running(Mirror(scene.config(), spark=spark_context, links=[scene.name])):
        wait_for(lambda: _checkpoints(scene) == {end // 8}, 90)
    code, found, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    assert {move["action"] for move in found["groups"]} <= {"move", "stay"}, found["groups"]
    assert [scene.next_of("west", group, 0) for group in _GROUPS] == [wanted, wanted]


def _checkpoints(scene: Disaster) -> set[int]:
    """Source offsets of the newest checkpoints of this test's groups."""
    session = ClusterSession(scene.config().clusters["west"], client_id="test")
    try:
        found = OffsetMapReader(scene.config().link(scene.name), session).checkpoints()
    finally:
        session.close()
    return {one.upstream for one in found if one.group.startswith(f"{scene.name}-")}
