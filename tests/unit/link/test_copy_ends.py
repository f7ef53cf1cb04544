"""The ends of many copies: what a running lane has moved since is not searched, and the offset map is read once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.link import copy_ends
from eomirror.link.copy_ends import CopyEnds
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.records.position import Position

PARTITIONS = 50


class Target:
    """A target whose copies all end before the record that the position names."""

    cluster = SimpleNamespace(alias="west")

    def __init__(self, positions: list[Position]) -> None:
        self.admin = self
        self.clock = None
        self.reads: list[str] = []
        self.ids = {one.target_topic: one.target_topic_id for one in positions}

    def describe_topics(self, topics: list[str]) -> Mapping[str, Any]:
        return {name: SimpleNamespace(topic_id=self.ids.get(name, "x"), partitions=4) for name in topics}

    def offsets(self, wanted: list[Any], **_: Any) -> Mapping[Any, int]:
        return dict.fromkeys(wanted, 0)

    def each(self, topic: str, _: Callable[[Any], None], **__: Any) -> None:
        self.reads.append(topic)


@pytest.fixture
def positions() -> list[Position]:
    return [position(SourcePartition(f"t-{number}", 0), 50, target_offset=40) for number in range(PARTITIONS)]


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, positions: list[Position]) -> Target:
    found = Target(positions)
    monkeypatch.setattr(copy_ends, "target_hanging_client", lambda *_: SimpleNamespace())
    monkeypatch.setattr(copy_ends, "CompactedTopicReader", lambda _: found)
    monkeypatch.setattr(copy_ends, "existing_ends", lambda _, copies, **__: dict.fromkeys(copies, 30))
    monkeypatch.setattr(CopyEnds, "_first_behind", lambda *_: {})
    monkeypatch.setattr(CopyEnds, "_last_record", lambda *_: copy_ends.LastRecord(None))
    return found


def read(target: Target, positions: list[Position], **options: Any) -> Mapping[SourcePartition, Any]:
    link: Any = SimpleNamespace(state_name="l", aggregate=False, name="l")
    return CopyEnds(link, target).read(positions, highest_lane=0, **options)  # type: ignore[arg-type]


def test_the_map_is_read_once_for_all_copies(target: Target, positions: list[Position]) -> None:
    """A failover of a thousand cut copies takes no thousand reads of it."""
    found = read(target, positions)
    assert all(one.problem for one in found.values())
    assert len(target.reads) == 1


def test_what_a_lane_has_moved_since_is_not_searched(target: Target, positions: list[Position]) -> None:
    """A check of a running link under load finds records behind positions that it has read a moment ago."""
    later = {one.source: replace(one, offset=one.offset + 1) for one in positions}
    found = read(target, positions, later=lambda: later)
    assert not any(one.problem for one in found.values())
    assert target.reads == []

    still = {**later, positions[7].source: positions[7]}
    found = read(target, positions, later=lambda: still)
    assert [source for source, one in found.items() if one.problem] == [positions[7].source]
    assert len(target.reads) == 1
