"""Failover on real brokers: what was mirrored is promoted, and only that; a death of the command changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror import NotReadyError
from eomirror.crash import FAILOVER_CRASH_POINTS
from support.disaster import Disaster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# points that a failover passes, in their order
_OWNER = ("owner.initialized", "owner.published", "owner.fenced_some", "owner.fenced_all")
_FAILOVER = ("checked", "taken", "ended", "read", "group_moved", "groups_moved")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("equal_names", [False, True], ids=["prefixed", "equal"])
def test_a_lost_source_is_failed_over_at_the_cut(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, *, equal_names: bool
) -> None:
    """Killed between any two steps, a second call comes to the same end: records, groups, and the stated cut."""
    scene = Disaster(
        east.client_properties,
        west.client_properties,
        topic_name,
        tmp_path,
        spark_context,
        equal_names=equal_names,
    )
    mirrored = scene.write("east")
    reading = {number: scene.end("east", number) // 2 for number in range(2)}
    scene.commit("east", "half", reading)
    scene.commit("east", "whole", {number: scene.end("east", number) for number in range(2)})
    wanted = {number: scene.next_of("east", "half", number) for number in range(2)}
    scene.catch_up()
    scene.follow(4)
    scene.write("east")
    ends = {number: scene.end("west", number) for number in range(2)}
    gone = ("--source-gone", "--yes")

    code, found, _ = scene.command("readiness", "--source-gone", lost=True)
    assert (code, found["verdict"]) == (0, "READY WITH LOSS unknown")
    code, found, said = scene.command("failover", "--yes")
    assert code == 6, said
    assert "promote" in said
    for point in (*_OWNER, *(f"failover.{each}" for each in _FAILOVER)):
        code, _, said = scene.command("failover", *gone, lost=True, crash=point)
        assert (tmp_path / point).exists(), f"{point} was not passed: {said}"
        assert code == -9, said
        assert scene.command("history")[1]["state"] == "mirror"
    # a mirror in between heals what such a death leaves, and nothing else happens
    code, found, said = scene.command("failover", *gone, lost=True, crash="failover.recorded")
    assert code == -9, said

    code, found, said = scene.command("failover", *gone, lost=True)
    assert code == 6, said
    state = scene.command("history")[1]
    assert state["state"] == "promoted"
    (promotion,) = state["promotions"]
    assert promotion["kind"] == "failover"
    assert promotion["lost"] is None
    assert {cut["partition"]: cut["target_end"] for cut in promotion["cuts"]} == ends
    assert scene.read("west") == mirrored
    assert {number: scene.next_of("west", "half", number) for number in range(2)} == wanted
    assert [scene.next_of("west", "whole", number) for number in range(2)] == [None, None]
    with pytest.raises(NotReadyError, match="was promoted at"):
        scene.catch_up()
    assert scene.read("west") == mirrored


def test_every_crash_point_of_failover_is_known() -> None:
    """The points that these tests pass are those of the commands."""
    assert {f"failover.{each}" for each in _FAILOVER} <= set(FAILOVER_CRASH_POINTS)
