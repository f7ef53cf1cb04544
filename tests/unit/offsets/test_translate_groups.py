"""`translate` of a group asks everybody who knows where the group must not go; what it asks is played."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import load_config
from eomirror.formats.position import Position
from eomirror.offsets import query, translate

if TYPE_CHECKING:
    from eomirror.offsets import Translation
    from eomirror.types import SourcePartition

CLUSTERS = {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}}
THERE = {"source": "east", "target": "west", "topics": ["t"], "naming": "identity"}
BACK = {**THERE, "source": "west", "target": "east"}


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


class Meeting:
    """Records of west lie before what east's group has read; it has not read them."""

    def __init__(self, *_: Any, reverse: bool) -> None:
        assert not reverse

    def settle(self, asked: list[Translation]) -> list[tuple[Translation, int]]:
        return [(replace(each, to_offset=3, kind="earlier"), 47) for each in asked]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("links", "expected"),
    [([THERE], (60, "exact")), ([THERE, BACK], (3, "earlier"))],
    ids=["one way", "both"],
)
def test_a_group_skips_nothing_that_was_written_on_the_other_side(
    links: list[dict[str, Any]], expected: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One link's map knows no record of the other side, so that its answer alone would lead past them."""
    monkeypatch.setattr(query, "OffsetMapReader", Reader)
    monkeypatch.setattr(query, "Meeting", Meeting)
    monkeypatch.setattr(query, "committed_offsets", lambda *_, **__: {("t", 0): 50})
    config = load_config({"clusters": CLUSTERS, "links": links})

    (found,) = translate(config, group="billing", link="east->west")
    assert (found.to_offset, found.kind) == expected
    (record,) = translate(config, topic="t", partition=0, offset=50, link="east->west")
    assert (record.to_offset, record.kind) == (60, "exact")
