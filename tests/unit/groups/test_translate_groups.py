"""`translate` of a group asks everybody who knows where the group must not go; what it asks is played."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import UsageError, load_config
from eomirror.groups import (
    corrections,
    export_offsets,
    group_offsets,
    offset_queries,
    offset_translator,
    translate,
)
from eomirror.groups.translation import OtherRecords
from eomirror.kafka.consumer_groups import Committed
from eomirror.kafka.consumer_groups_proxy import GroupState
from eomirror.records.position import Position

if TYPE_CHECKING:
    from eomirror.groups import Translation
    from eomirror.types import SourcePartition

CLUSTERS = {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}}
THERE = {"source": "east", "target": "west", "topics": ["t"], "naming": "identity"}
BACK = {**THERE, "source": "west", "target": "east"}


@pytest.fixture(autouse=True)
def _clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """All logs begin at 0, and all topics are the ones of the positions."""
    monkeypatch.setattr(corrections, "_log_starts", lambda *_: {})
    monkeypatch.setattr(offset_translator, "replaced", lambda *_, **__: {})
    monkeypatch.setattr(offset_translator, "OffsetMapReader", Reader)
    monkeypatch.setattr(offset_translator, "BidirectionalPair", BidirectionalPair)
    monkeypatch.setattr(offset_translator, "other_records", lambda *_, **__: {})
    for module in (offset_queries, offset_translator):
        monkeypatch.setattr(module, "ClusterGroups", Groups)


class Reader:
    """The map of one link: everything is ten records further."""

    def __init__(self, *_: Any) -> None:
        pass

    def positions(self) -> dict[SourcePartition, Position]:
        position = Position(
            topic="t", partition=0, offset=100, source_cluster_id="c", topic_id="i", target_topic="t",
            target_partition=0, target_topic_id="j", target_offset=109, generation=1, lane=0, run="r", epoch=1,
            attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
        )  # fmt: skip
        return {position.source: position}

    def answers(self, questions: list[Any], **_: Any) -> list[tuple[str, int]]:
        return [("exact", question.offset + 10) for question in questions]

    def close(self) -> None:
        pass


class Groups:
    """One group, which stands in two partitions, of which the link has mirrored one; and in a topic of others."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def committed(self, groups: list[str]) -> dict[str, dict[tuple[str, int], Committed]]:
        return {
            group: {("t", 0): Committed(50, "beside"), ("t", 1): Committed(7), ("u", 0): Committed(9)}
            for group in groups
        }

    def states(self, groups: list[str]) -> dict[str, GroupState]:
        return {group: GroupState("EMPTY", 0, idle=True) for group in groups}

    def close(self) -> None:
        pass


class BidirectionalPair:
    """Records of west lie before what east's group has read; it has not read them."""

    def __init__(self, *_: Any, reverse: bool) -> None:
        assert not reverse

    def settle(self, asked: list[Translation]) -> list[Translation]:
        return [replace(each, to_offset=3, kind="earlier", again=47) for each in asked]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("links", "expected"),
    [([THERE], (60, "exact", 0)), ([THERE, BACK], (3, "earlier", 47))],
    ids=["one way", "both"],
)
def test_a_group_skips_nothing_that_was_written_on_the_other_side(
    links: list[dict[str, Any]], expected: tuple[int, str, int]
) -> None:
    """One link's map knows no record of the other side, so that its answer alone would lead past them."""
    config = load_config({"clusters": CLUSTERS, "links": links})

    found, never = translate(config, group="billing", link="east->west")
    assert (found.to_offset, found.kind, found.again) == expected
    assert "again" not in found.as_dict()
    assert (never.partition, never.to_topic, never.to_offset, never.kind) == (1, "t", None, "unknown")
    of_group, _ = group_offsets(config, group="billing", link="east->west")
    assert (of_group.to_offset, of_group.kind, of_group.again) == expected
    (record,) = translate(config, topic="t", partition=0, offset=50, link="east->west")
    assert (record.to_offset, record.kind) == (60, "exact")


@pytest.mark.parametrize(
    ("reverse", "expected"),
    [
        (False, ["committed", "positions", "recreated", "answers", "both sides", "log start", "other links"]),
        (True, ["committed", "positions", "recreated", "ends", "answers", "both sides", "log start"]),
    ],
)
def test_the_order_of_reads_is_kept(
    reverse: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another one, what is mirrored or deleted meanwhile would be skipped (`offset_translator`)."""
    reads: list[str] = []

    def noted(owner: Any, method: str, name: str) -> None:
        then = getattr(owner, method)

        def read(*arguments: Any, **named: Any) -> Any:
            reads.append(name)
            return then(*arguments, **named)

        monkeypatch.setattr(owner, method, read)

    monkeypatch.setattr(Reader, "stable_ends", lambda _, names: dict.fromkeys(names, 3), raising=False)
    monkeypatch.setattr(BidirectionalPair, "__init__", lambda *_, **__: None)
    noted(offset_translator.ClusterGroups, "committed", "committed")
    noted(Reader, "positions", "positions")
    noted(offset_translator, "replaced", "recreated")
    noted(Reader, "stable_ends", "ends")
    noted(Reader, "answers", "answers")
    noted(BidirectionalPair, "settle", "both sides")
    noted(offset_translator, "from_log_start", "log start")
    noted(offset_translator, "other_records", "other links")
    config = load_config({"clusters": CLUSTERS, "links": [THERE, BACK]})

    group_offsets(config, group="billing", link="east->west", reverse=reverse)
    # the last one: what the group has on the other side
    assert reads == [*expected, "committed"]
    if reverse:
        reads.clear()
        translate(config, group="billing", link="east->west", reverse=True)
        assert reads == expected[:-1], "the source is not asked"


def test_a_recreated_topic_does_not_reach_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its map belongs to the old topic, whose offsets have the same numbers."""
    monkeypatch.setattr(
        offset_translator, "replaced", lambda positions, **_: {each.source: "again" for each in positions}
    )
    monkeypatch.setattr(Reader, "answers", None)
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})

    void, _ = translate(config, group="billing")
    assert (void.offset, void.to_topic, void.to_offset, void.kind, void.reason) == (
        50,
        "t",
        None,
        "unknown",
        "again",
    )
    of_group, _ = group_offsets(config, group="billing")
    assert (of_group.to_offset, of_group.skipped) == (None, "again")
    (record,) = translate(config, topic="t", partition=0, offset=50)
    assert (record.to_offset, record.reason) == (None, "again")


@pytest.mark.parametrize(("first", "expected"), [(60, 60), (59, None), (0, None)])
def test_an_offset_past_records_of_another_link_is_unknown(
    monkeypatch: pytest.MonkeyPatch, first: int, expected: int | None
) -> None:
    """One map knows nothing of the other's records; the topic that the way back leads to holds none of them."""
    monkeypatch.setattr(
        offset_translator, "other_records", lambda *_, **__: {("t", 0): OtherRecords("south.west", first)}
    )
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})

    for ask in (translate, group_offsets):
        found, _ = ask(config, group="billing")
        assert (found.to_offset, found.kind) == (expected, "unknown" if expected is None else "exact")
        assert ("records of link south.west" in found.reason) is (expected is None)
        assert "others" not in found.as_dict()
    monkeypatch.setattr(Reader, "stable_ends", lambda _, names: dict.fromkeys(names, 3), raising=False)
    (back,) = translate(config, group="billing", reverse=True)
    assert back.to_offset == 60


def test_a_partition_that_was_never_mirrored_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who moves a consumer by what it is told would never read it; so that is said, and its group left out whole."""
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})

    known, never = group_offsets(config, group="billing")
    assert (known.partition, known.to_offset, known.has_offset) == (0, 60, 50)
    assert (never.partition, never.offset, never.to_topic, never.to_offset) == (1, 7, "t", None)
    assert never.skipped == "the link has no position of this partition: it was never mirrored"

    monkeypatch.setattr(
        "eomirror.groups.transfer.ClusterAdmin",
        lambda *_, **__: SimpleNamespace(
            describe_cluster=lambda: SimpleNamespace(cluster_id="W"),
            visible_topics=lambda names: (dict.fromkeys(names), {}),
            close=lambda: None,
        ),
    )
    document, left_out = export_offsets(config, group="billing", now_ms=1)
    assert document["groups"] == {}
    assert list(left_out) == ["billing"]

    monkeypatch.setattr(offset_translator.OffsetTranslator, "_never_mirrored", lambda *_: [])
    document, left_out = export_offsets(config, group="billing", now_ms=1)
    assert [(row["offset"], row["metadata"]) for row in document["groups"]["billing"]] == [(60, "beside")]
    assert left_out == {}


def test_a_link_that_never_ran_knows_no_offset_of_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than to say that they have none in its topics; the way back has nothing to go by."""
    monkeypatch.setattr(Reader, "positions", lambda _: {})
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})

    found = translate(config, group="billing")
    assert [(each.partition, each.to_offset) for each in found] == [(0, None), (1, None)]
    assert translate(config, group="billing", reverse=True) == []


def test_a_group_without_a_name_is_refused() -> None:
    """As a usage error: librdkafka cannot ask for its offsets."""
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})
    for ask in (translate, group_offsets):
        with pytest.raises(UsageError, match="name of a group is empty"):
            ask(config, group="")


def test_a_group_at_the_end_of_an_empty_partition_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers of Java commit 0 there; without a place its group could not move as long as no producer writes."""
    (position,) = Reader().positions().values()
    position = replace(position, offset=50, target_offset=None)
    monkeypatch.setattr(Reader, "positions", lambda _: {position.source: position})
    monkeypatch.setattr(Reader, "answers", lambda *_, **__: [("nothing", -1)])
    monkeypatch.setattr(Reader, "stable_ends", lambda _, names: dict.fromkeys(names, 3), raising=False)
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})

    for ask in (translate, group_offsets):
        empty, _ = ask(config, group="billing")
        assert (empty.to_offset, empty.kind) == (3, "next")


def test_a_list_of_offsets_is_translated_at_once_and_what_no_link_has_is_named() -> None:
    """In one reading of the map; nothing is left out."""
    config = load_config({"clusters": CLUSTERS, "links": [THERE]})
    found = translate(config, offsets=[("t", 0, 50), ("gone", 3, 7)])
    known = {(each.topic, each.partition): (each.to_offset, each.kind, each.reason) for each in found}
    assert known == {
        ("t", 0): (60, "exact", ""),
        ("gone", 3): (None, "unknown", "no link has mirrored this partition"),
    }
    with pytest.raises(UsageError, match="name either a group"):
        translate(config, group="g", offsets=[("t", 0, 50)])
