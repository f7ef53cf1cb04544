"""Files of offsets that cannot be imported, refused before any cluster is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import UsageError
from eomirror.errors import UnreachableError
from eomirror.groups import import_offsets, transfer
from eomirror.groups.translation import OtherRecords
from eomirror.kafka.cluster_metadata import ClusterFacts, TopicFacts
from eomirror.kafka.consumer_groups import Committed
from eomirror.kafka.consumer_groups_proxy import GroupState
from support.links.one_link import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterable

ROW = {"topic": "east.orders", "partition": 0, "offset": 7}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "is not an export"),
        ({"v": 2, "cluster": "west", "groups": {}}, "version 2"),
        ({"v": 1, "cluster": "west", "groups": []}, "is not an export"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{"topic": "t"}]}}, "is not an export"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{**ROW, "partition": -1}]}}, "is not an export"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{**ROW, "partition": True}]}}, "no partition True"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{**ROW, "offset": 7.9}]}}, "no offset 7.9"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{**ROW, "offset": "7"}]}}, "no offset '7'"),
        # 2 to the 70th, as JSON readers have it
        ({"v": 1, "cluster": "west", "groups": {"g": [{**ROW, "offset": 2.0**70}]}}, "no offset"),
        ({"v": 1, "cluster": "west", "groups": {"g": [ROW, {**ROW, "offset": 8}]}}, "appears twice"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{**ROW, "topic": ""}]}}, "is not a topic"),
        ({"v": 1, "cluster": "west", "groups": {"g": []}}, "no offset"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{**ROW, "metadata": 3}]}}, "no metadata 3"),
        ({"v": 1, "cluster": "west", "groups": {"": [ROW]}}, "no name"),
        ({"v": 1, "cluster": "north", "groups": {"g": [ROW]}}, "cluster north"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(document: dict[str, Any], why: str) -> None:
    """By what is wrong with it."""
    with pytest.raises(UsageError, match=why):
        import_offsets(CONFIG, document)


class _Cluster:
    """One topic of one partition, and coordinators of which one does not answer."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.written: list[str] = []

    def describe_cluster(self) -> ClusterFacts:
        return ClusterFacts("west-id", 1)

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, "id", 1, 1) for name in names}

    def offsets(self, names: list[tuple[str, int]], *, at: str, **_: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(names, 0 if at == "earliest" else 9)

    def topic_rights(self, names: list[str]) -> dict[str, frozenset[str]]:
        return dict.fromkeys(names, frozenset({"READ"}))

    def metadata_limit(self) -> int | None:
        return 4096

    def states(self, groups: Iterable[str]) -> dict[str, GroupState]:
        return {group: GroupState("EMPTY", 0, idle=True) for group in groups}

    def committed(self, groups: Iterable[str]) -> dict[str, Any]:
        return {group: {} for group in groups}

    def write(self, group: str, _: Any) -> str:
        if group == "b":
            raise UnreachableError("no coordinator of b")
        return ""

    def close(self) -> None:
        pass


def test_a_coordinator_that_is_away_hides_nothing_that_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group is told of: those before it are moved, and those behind it too."""
    monkeypatch.setattr(transfer, "ClusterAdmin", _Cluster)
    monkeypatch.setattr(transfer, "ClusterGroups", _Cluster)
    monkeypatch.setattr(transfer, "other_records", lambda *_, **__: {})
    document = {"v": 1, "cluster": "west", "cluster_id": "west-id", "groups": {name: [ROW] for name in "abc"}}
    done = import_offsets(CONFIG, document)

    assert [(each.group, each.written, each.problem) for each in done] == [
        ("a", True, ""),
        ("b", False, "no coordinator of b"),
        ("c", True, ""),
    ]


def test_what_a_group_wrote_beside_its_offsets_comes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumer may need it there, as Kafka Streams does; a file of an older release has none."""
    written: dict[str, Any] = {}
    monkeypatch.setattr(transfer, "ClusterAdmin", _Cluster)
    monkeypatch.setattr(transfer, "ClusterGroups", _Cluster)
    monkeypatch.setattr(transfer, "other_records", lambda *_, **__: {})
    monkeypatch.setattr(_Cluster, "write", lambda _, group, offsets: written.update({group: offsets}) or "")
    rows = {"new": [{**ROW, "metadata": "AQAA"}], "old": [ROW]}
    import_offsets(CONFIG, {"v": 1, "cluster": "west", "cluster_id": "west-id", "groups": rows})

    where = ROW["topic"], ROW["partition"]
    assert written == {"new": {where: Committed(7, "AQAA")}, "old": {where: Committed(7)}}


def test_a_group_that_the_file_does_not_have_is_refused() -> None:
    """Rather than importing nothing in silence."""
    document = {"v": 1, "cluster": "west", "groups": {"g": [ROW]}}
    with pytest.raises(UsageError, match="no group other"):
        import_offsets(CONFIG, document, group="other")


@pytest.mark.parametrize(
    ("noted", "problem"), [({}, ""), ({"east.orders": "id"}, ""), ({"east.orders": "old"}, "again")]
)
def test_offsets_in_a_topic_that_was_created_anew_since_are_refused(
    monkeypatch: pytest.MonkeyPatch, noted: dict[str, str], problem: str
) -> None:
    """They lie within the new one as well, and a group that went there would skip what it has not read."""
    monkeypatch.setattr(transfer, "ClusterAdmin", _Cluster)
    monkeypatch.setattr(transfer, "ClusterGroups", _Cluster)
    monkeypatch.setattr(transfer, "other_records", lambda *_, **__: {})
    document = {
        "v": 1, "cluster": "west", "cluster_id": "west-id", "topic_ids": noted, "groups": {"a": [ROW]},
    }  # fmt: skip
    (found,) = import_offsets(CONFIG, document)
    assert found.written == (not problem)
    assert problem in found.problem
    with pytest.raises(UsageError, match="is not an export"):
        import_offsets(CONFIG, {**document, "topic_ids": []})


@pytest.mark.parametrize("link", ["east->west", "of another file"])
def test_an_offset_past_records_of_another_link_is_refused(
    monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """The group would skip what it may not have read, and the others are imported."""
    monkeypatch.setattr(transfer, "ClusterAdmin", _Cluster)
    monkeypatch.setattr(transfer, "ClusterGroups", _Cluster)
    monkeypatch.setattr(transfer, "ClusterSession", _Cluster)
    monkeypatch.setattr(transfer, "OffsetMapReader", lambda *_: SimpleNamespace(positions=dict))
    others = {("east.orders", 0): OtherRecords("north.west", 5)}
    monkeypatch.setattr(transfer, "other_records", lambda *_, **__: others)
    document = {
        "v": 1, "cluster": "west", "cluster_id": "west-id", "link": link,
        "groups": {"a": [ROW], "c": [{**ROW, "offset": 5}]},
    }  # fmt: skip
    for dry_run in (True, False):
        past, before = import_offsets(CONFIG, document, dry_run=dry_run)
        assert (past.written, before.written) == (False, True)
        assert "records of link north.west from offset 5 on, before 7" in past.problem


@pytest.mark.parametrize("state", ["STABLE", "PREPARING_REBALANCE"])
def test_a_group_with_members_is_refused_by_the_rule_of_all(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """`eomirror.groups.offset_rule` words it as the mirror does, with the cluster of the file."""
    monkeypatch.setattr(transfer, "ClusterAdmin", _Cluster)
    monkeypatch.setattr(transfer, "ClusterGroups", _Cluster)
    monkeypatch.setattr(transfer, "other_records", lambda *_, **__: {})
    monkeypatch.setattr(
        _Cluster, "states", lambda _, groups: {group: GroupState(state, 1, idle=False) for group in groups}
    )
    document = {"v": 1, "cluster": "west", "cluster_id": "west-id", "groups": {"a": [ROW]}}
    (found,) = import_offsets(CONFIG, document)
    assert found.problem.startswith(f"it has members on west (state {state.lower()})")
