"""Groups on the side that they move to: what is asked, and in which order."""

from __future__ import annotations

from typing import Any

from eomirror.groups.offset_queries import groups_there
from eomirror.kafka.consumer_groups import Committed, GroupState


class Groups:
    """A group with members, one without, and names that no group has."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def states(self, names: list[str]) -> dict[str, GroupState]:
        self.asked.append(("states", names))
        known = {"busy": GroupState("STABLE", 2, idle=False), "idle": GroupState("EMPTY", 0, idle=True)}
        return {name: known.get(name, GroupState("DEAD", 0, idle=True)) for name in names}

    def committed(self, names: list[str]) -> dict[str, dict[tuple[str, int], Committed]]:
        self.asked.append(("committed", names))
        return {name: {("t", 0): Committed(7)} for name in names}


def test_only_groups_that_exist_are_asked_for_offsets() -> None:
    """States first: what a consumer commits that starts in between is seen."""
    groups: Any = Groups()
    found = groups_there(groups, ["busy", "idle", "none"])

    assert groups.asked == [("states", ["busy", "idle", "none"]), ("committed", ["busy", "idle"])]
    assert {name: found.offset(name, ("t", 0)) for name in ("busy", "idle", "none")} == {
        "busy": 7,
        "idle": 7,
        "none": None,
    }
    assert found.offset("busy", ("t", 1)) is None
    assert not found.states["busy"].idle


def test_without_groups_no_offset_is_read() -> None:
    """A target on which no group exists yet costs one request a group."""
    groups: Any = Groups()
    assert groups_there(groups, ["none"]).offsets == {}
    assert groups.asked == [("states", ["none"])]
