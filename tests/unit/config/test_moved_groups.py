"""Where groups may be moved on the target, and where they would skip records of another source."""

from __future__ import annotations

import pytest

from eomirror.config import Inspection, inspect_config

CLUSTERS = {alias: {"bootstrap.servers": f"{alias}:9092"} for alias in ("west", "north", "east")}


def inspected(first: dict[str, object], second: dict[str, object]) -> Inspection:
    """Two sources and one target; what is said of them."""
    links = [
        {"source": "west", "target": "east", "naming": "identity", **first},
        {"source": "north", "target": "east", "naming": "identity", **second},
    ]
    return inspect_config({"clusters": CLUSTERS, "links": links})


def places(found: Inspection) -> tuple[list[str], list[str]]:
    """Of faults, and of warnings about groups."""
    warnings = () if found.config is None else found.config.warnings
    warned = [each.path for each in warnings if "skip" in each.message]
    return [each.path for each in found.faults], warned


MOVED = {"sync_group_offsets": True}


@pytest.mark.parametrize(
    ("first", "second"),
    [(["orders"], ["orders"]), (["orders", "a"], ["orders", "b"]), (["orders"], [".*"]), ([".*"], [".*"])],
)
def test_copies_that_certainly_meet_refuse_moved_groups(first: list[str], second: list[str]) -> None:
    """A group that stands behind one source's records may not have read the other's, and would skip them."""
    found = inspected({"topics": first, **MOVED}, {"topics": second})

    assert places(found) == (["links[0].sync_group_offsets"], [])


def test_copies_that_may_meet_are_warned_of() -> None:
    """Patterns do not tell; the user does."""
    found = inspected({"topics": ["a.*"]}, {"topics": [".*b"], **MOVED})

    assert places(found) == ([], ["links[1].sync_group_offsets"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"topics": ["orders"]}, {"topics": ["orders"]}),
        ({"topics": ["orders"], **MOVED}, {"topics": ["payments"]}),
        ({"topics": ["orders"], **MOVED}, {"topics": ["orders"], "naming": "prefix"}),
    ],
)
def test_what_stays_apart_may_be_moved(first: dict[str, object], second: dict[str, object]) -> None:
    """Other names, or no groups that are moved."""
    assert places(inspected(first, second)) == ([], [])


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [
        ({"topics": ["orders"]}, {"topics": ["orders", "a"]}, True),
        ({"topics": [".*"]}, {"topics": [".*"]}, True),
        ({"topics": ["a.*"]}, {"topics": ["b.*"]}, False),
        ({"topics": ["orders"]}, {"topics": ["orders"], "naming": "prefix"}, False),
        ({"topics": ["orders"]}, {"topics": ["payments"]}, False),
    ],
)
def test_two_sources_that_are_mixed_in_one_copy_are_named(
    first: dict[str, object], second: dict[str, object], warned: bool
) -> None:
    """The copy belongs to a link; another that writes there too is outside of the promise, and should be meant."""
    config = inspected(first, second).config

    assert config is not None
    assert [each.path for each in config.warnings if "mixed" in each.message] == (
        ["links[1].naming"] if warned else []
    )


def test_a_mesh_is_meant_to_meet() -> None:
    """There the loop guard gives every record one way."""
    ways = [("west", "north"), ("north", "west"), ("west", "east"), ("north", "east")]
    links = [{"source": a, "target": b, "naming": "identity", "topics": ["t"]} for a, b in ways]

    config = inspect_config({"clusters": CLUSTERS, "links": links}).config

    assert config is not None
    assert config.warnings == ()


def test_a_link_that_would_move_groups_of_topics_that_go_both_ways_is_told() -> None:
    """The guard decides about records; the setting has no effect, and the reason and another way are named."""
    links = [
        {"source": a, "target": b, "naming": "identity", "topics": ["t"], **MOVED}
        for a, b in (("west", "east"), ("east", "west"))
    ]

    config = inspect_config({"clusters": CLUSTERS, "links": links}).config

    assert config is not None
    assert [each.path for each in config.warnings] == [f"links[{n}].sync_group_offsets" for n in (0, 1)]
    for warning in config.warnings:
        assert "moves no group: its records could return" in warning.message
        assert "`eomirror cutover` and `failback` move the groups" in warning.fix


def test_copies_that_meet_under_other_policies_refuse_moved_groups() -> None:
    """Two topics that a map makes one are as mixed as two of equal names."""
    to_all = [{"topics": [topic], "naming": {"map": {topic: "all"}}} for topic in ("a", "b")]

    assert places(inspected({**to_all[0], **MOVED}, to_all[1])) == (["links[0].sync_group_offsets"], [])


@pytest.mark.parametrize("naming", ["identity", {"map": {"a": "all"}}, {"pattern": "all_{topic}"}])
def test_sources_that_meet_without_being_asked_for_are_warned_of(naming: object) -> None:
    """`aggregate: true` on both links says that it is meant."""

    def warned(*aggregate: str) -> list[str]:
        links = [{"topics": ["a"], "naming": naming, "aggregate": each == "true"} for each in aggregate]
        found = inspected(*links).config
        assert found is not None
        return [each.path for each in found.warnings if "mixed" in each.message]

    assert warned("false", "false") == ["links[1].naming"]
    assert warned("true", "false") == ["links[1].naming"]
    assert warned("true", "true") == []


def test_a_group_is_not_deleted_because_it_is_gone_on_the_same_cluster() -> None:
    """Within one cluster the followed group and the one to delete are the same."""
    link = {
        "source": "west", "target": "west", "topics": ["a"], "naming": {"map": {"a": "b"}},
        "sync_group_offsets": True, "group_deletions": "delete",
    }  # fmt: skip

    found = inspect_config({"clusters": CLUSTERS, "links": [link]})
    assert [each.path for each in found.faults] == ["links[0].group_deletions"]
