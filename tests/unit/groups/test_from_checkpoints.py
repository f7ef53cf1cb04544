"""Where groups go on when the source is gone: what their checkpoints say, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import UsageError, load_config
from eomirror.errors import UnreachableError
from eomirror.groups import group_offsets, offset_queries, offset_translator, translate
from eomirror.groups.offset_translator import NO_OFFSET, from_checkpoints
from eomirror.groups.translation import OtherRecords
from eomirror.kafka.consumer_groups_proxy import GroupState
from eomirror.records.mm2 import Checkpoint
from eomirror.records.position import Position

if TYPE_CHECKING:
    from eomirror.kafka.consumer_groups import Committed
    from eomirror.types import SourcePartition

CLUSTERS = {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}}
THERE = {"source": "east", "target": "west", "topics": ["t"], "groups": ["bill.*"]}
BACK = {"source": "west", "target": "east", "topics": ["t"], "naming": "identity"}

FIRST = Position(
    topic="t", partition=0, offset=100, source_cluster_id="c", topic_id="i", target_topic="east.t",
    target_partition=0, target_topic_id="j", target_offset=109, generation=1, lane=0, run="r", epoch=1,
    attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
)  # fmt: skip
SECOND = replace(FIRST, partition=1, target_partition=1)
EMPTY = replace(FIRST, partition=2, target_partition=2, offset=0, target_offset=None)


def test_a_checkpoint_is_where_a_group_goes_on() -> None:
    """With both of its offsets; of its topics' other partitions only an empty copy has a place."""
    found = from_checkpoints("l", [Checkpoint("billing", "east.t", 0, 50, 60)], [FIRST, SECOND, EMPTY])
    assert [(one.partition, one.offset, one.to_offset, one.kind) for one in found] == [
        (0, 50, 60, "exact"),
        (1, NO_OFFSET, None, "unknown"),
        (2, NO_OFFSET, 0, "next"),
    ]
    assert "earliest" in found[1].reason
    assert {(one.topic, one.to_topic) for one in found} == {("t", "east.t")}


def test_topics_without_any_checkpoint_of_a_group_are_no_business_of_it() -> None:
    """Else every group would stand in every topic."""
    other = replace(FIRST, topic="u", target_topic="east.u")
    found = from_checkpoints("l", [Checkpoint("billing", "east.t", 0, 50, 60)], [FIRST, other])
    assert [one.topic for one in found] == ["t"]


class Reader:
    """A target with two partitions and checkpoints of two groups."""

    checkpoint = Checkpoint("billing", "east.t", 0, 50, 60, "beside")

    def __init__(self, *_: Any) -> None:
        pass

    def positions(self) -> dict[SourcePartition, Position]:
        return {each.source: each for each in (FIRST, EMPTY)}

    def checkpoints(self) -> list[Checkpoint]:
        return [
            self.checkpoint,
            Checkpoint("others", "east.t", 0, 7, 9),
            Checkpoint("billing", "far.t", 0, 1, 2),
        ]

    def close(self) -> None:
        pass


class Groups:
    """Of a source that does not answer; on the target, where nothing is committed yet."""

    asked: list[str]

    def __init__(self, cluster: Any, **_: Any) -> None:
        self._alias = cluster.alias

    def committed(self, names: list[str]) -> dict[str, dict[tuple[str, int], Committed]]:
        self.asked.append(self._alias)
        if self._alias == "east":
            raise UnreachableError("east does not answer", fix="check")
        return {name: {} for name in names}

    def names(self, *, strict: bool) -> tuple[list[str], bool]:
        self.asked.append(self._alias)
        raise UnreachableError(f"east does not answer, {strict}", fix="check")

    def states(self, names: list[str]) -> dict[str, GroupState]:
        return {name: GroupState("DEAD", 0, idle=True) for name in names}

    def close(self) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which clusters were asked for groups."""
    asked: list[str] = []
    monkeypatch.setattr(Groups, "asked", asked, raising=False)
    monkeypatch.setattr(offset_translator, "OffsetMapReader", Reader)
    monkeypatch.setattr(offset_translator, "replaced", lambda *_, **__: {})
    monkeypatch.setattr(offset_translator, "other_records", lambda *_, **__: {})
    monkeypatch.setattr(offset_translator, "from_log_start", lambda found, *_, **__: list(found))
    for module in (offset_queries, offset_translator):
        monkeypatch.setattr(module, "ClusterGroups", Groups)
    return asked


@pytest.mark.parametrize("source_unavailable", [False, True])
@pytest.mark.parametrize(
    "chosen", [{"group": "billing"}, {"groups": "bill.*"}, {}], ids=["one", "some", "all"]
)
def test_a_source_that_does_not_answer_is_not_needed(
    asked: list[str], chosen: dict[str, str], source_unavailable: bool
) -> None:
    """The groups that are asked for go on by their checkpoints, and that is said."""
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})
    found = group_offsets(config, **chosen, source_unavailable=source_unavailable)  # type: ignore[arg-type]
    assert [(one.group, one.partition, one.to_offset, one.metadata) for one in found] == [
        ("billing", 0, 60, "beside"),
        ("billing", 2, 0, ""),
    ]
    assert all(one.from_checkpoint for one in found)
    assert ("east" in asked) is not source_unavailable


def test_one_group_is_translated_without_its_source(asked: list[str]) -> None:
    """`translate` says the same."""
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})
    assert [one.to_offset for one in translate(config, group="billing")] == [60, 0]
    assert asked == ["east"]


def test_without_checkpoints_the_source_is_missed(asked: list[str]) -> None:
    """By name, and with what else may help; links that are written on both sides write none."""
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})
    with pytest.raises(
        UnreachableError, match="east does not answer; and there are no checkpoints"
    ) as missed:
        group_offsets(config, group="unheard")
    assert "earliest" in missed.value.fix
    both = load_config({"clusters": CLUSTERS, "links": [{**THERE, "naming": "identity"}, BACK]})
    with pytest.raises(UnreachableError, match="no checkpoints"):
        group_offsets(both, group="billing", link="east->west")
    assert asked


def test_a_checkpoint_of_a_recreated_topic_is_no_offset(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets belong to the old topic; the other partitions are not concerned."""
    monkeypatch.setattr(
        offset_translator,
        "replaced",
        lambda positions, *, source, **_: {
            each.source: f"again, {source}" for each in positions if each == FIRST
        },
    )
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})
    found = translate(config, group="billing", source_unavailable=True)
    assert [(one.partition, one.to_offset, one.kind, one.reason) for one in found] == [
        (0, None, "unknown", "again, None"),
        (2, 0, "next", ""),
    ]
    assert not asked


def test_a_checkpoint_past_records_of_another_link_is_no_offset(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is exact for its own link alone; the start of a partition passes nothing."""
    others = {(name, number): OtherRecords("south.west", 20) for name in ("east.t",) for number in (0, 2)}
    monkeypatch.setattr(offset_translator, "other_records", lambda *_, **__: others)
    config = load_config({"clusters": CLUSTERS, "links": [{**THERE, "naming": "identity"}]})
    found = translate(config, group="billing", source_unavailable=True)
    assert [(one.partition, one.to_offset, one.kind) for one in found] == [
        (0, None, "unknown"),
        (2, 0, "next"),
    ]
    assert "from offset 20 on, before 60" in found[0].reason
    assert not asked


def test_the_way_back_needs_its_source(asked: list[str]) -> None:
    """Groups of the target go there; the two together mean nothing."""
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})
    with pytest.raises(UsageError, match="way back"):
        group_offsets(config, group="billing", reverse=True, source_unavailable=True)
    with pytest.raises(UsageError, match="way back"):
        translate(config, group="billing", reverse=True, source_unavailable=True)
    assert not asked
