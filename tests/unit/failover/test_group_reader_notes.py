"""Checkpoints that a promotion writes before it moves groups: of what no checkpoint has."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror import load_config
from eomirror.failover import group_reader as move_notes
from eomirror.failover.group_moves import GroupMove
from eomirror.records.mm2 import decode_checkpoint

CONFIG = load_config(
    {
        "clusters": {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:2"}},
        "links": [{"source": "east", "target": "west", "topics": ["orders"]}],
    }
)
LINK = CONFIG.links[0]
MOVE = GroupMove(
    group="billing", topic="orders", partition=0, offset=120, to_topic="east.orders", to_offset=100, kind="cut",
    again=0, has=None, action="move",
)  # fmt: skip


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Offsets on both sides of each checkpoint that was written."""
    found: list[tuple[int, int]] = []

    def write(_: Any, topic: str, records: list[tuple[bytes, bytes]], **__: Any) -> str:
        assert topic == "east.checkpoints.internal"
        decoded = [decode_checkpoint(key, value, where="c-0@1") for key, value in records]
        found.extend((one.upstream, one.downstream) for one in decoded)
        return ""

    monkeypatch.setattr(move_notes, "write_records", write)
    return found


def target(*, exists: bool = True) -> Any:
    admin = SimpleNamespace(describe_topics=lambda names: dict.fromkeys(names, "facts" if exists else None))
    return SimpleNamespace(admin=admin, cluster=CONFIG.clusters["west"])


def test_offsets_that_no_checkpoint_has_are_noted(written: list[tuple[int, int]]) -> None:
    """One that was taken from a checkpoint is known, and a group without an offset cannot go back."""
    moves = [
        MOVE,
        MOVE._replace(offset=40, to_offset=38, kind="exact"),
        MOVE._replace(from_checkpoint=True),
        MOVE._replace(offset=-1, to_offset=0, kind="start"),
    ]

    assert move_notes.note_moves(LINK, target(), moves) == ""

    assert written == [(120, 100), (40, 38)]


def test_without_a_topic_of_checkpoints_nothing_is_written(written: list[tuple[int, int]]) -> None:
    """A link with the loop guard has none, whatever is there of another link."""
    guarded = replace(LINK, loops=replace(LINK.loops, guard=True))

    assert move_notes.note_moves(LINK, target(exists=False), [MOVE]) == ""
    assert move_notes.note_moves(guarded, target(), [MOVE]) == ""

    assert written == []
