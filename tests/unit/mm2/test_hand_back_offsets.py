"""Which source offsets MirrorMaker 2 gets when a link is handed back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.errors import NotReadyError
from eomirror.kafka.cluster_metadata import TopicFacts
from eomirror.mm2.hand_back import _Return, goes_on, source_offsets
from eomirror.records.connect_offsets import Mm2Flow, decode_source_offset
from eomirror.records.control import ControlView
from eomirror.records.position import Position
from eomirror.records.promotion import Promotion, PromotionHistory
from eomirror.types import SourcePartition

FLOW = Mm2Flow.dedicated("east", "west")
SAME, NEW, AT_0, GONE = (SourcePartition(topic, 0) for topic in ("same", "new", "at-0", "gone"))


def position(source: SourcePartition, offset: int) -> Position:
    return Position(
        topic=source.topic, partition=source.partition, offset=offset, source_cluster_id="c", topic_id="first",
        target_topic=source.topic, target_partition=0, target_topic_id="t", generation=1, lane=0, run="r", epoch=1,
        attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
    )  # fmt: skip


def test_mm2_begins_a_topic_that_was_created_anew_at_its_beginning() -> None:
    """The link's position is of the topic before; behind it MM2 would pass over records that were not mirrored."""
    positions = {source: position(source, 500) for source in (SAME, NEW, GONE)}
    sources = {
        "same": TopicFacts("same", "first", 1, 1),
        "new": TopicFacts("new", "second", 1, 1),
        "gone": None,
    }

    assert goes_on(positions, sources) == {SAME: 500, NEW: 0, GONE: 500}


def test_an_offset_that_mm2_had_is_taken_away_where_it_begins_at_the_beginning() -> None:
    """It goes on behind what it knows, so that what it knows has to go; what it does not know needs no record."""
    records = source_offsets({SAME: 500, NEW: 0, AT_0: 0}, {SAME: 7, NEW: 499, AT_0: None}, FLOW, 25)

    found = [decode_source_offset(each.key, each.value, FLOW, where="here") for each in records]
    assert [(each.source, each.offset) for each in found if each is not None] == [(SAME, 499), (NEW, None)]
    assert records[1].value is None


def test_a_dry_run_refuses_a_promoted_link_like_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say that MirrorMaker 2 may go on, into copies that applications write to."""
    promotion = Promotion(
        number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=(), started=0, timestamp=0,
    )  # fmt: skip
    made: Any = object.__new__(_Return)
    made._link = SimpleNamespace(name="there")
    made._names = SimpleNamespace(control_topic="control")
    made._state = SimpleNamespace(group=lambda: SimpleNamespace(members=[]))
    made._reader = SimpleNamespace(records=lambda *_, **__: [])
    view = ControlView(history=PromotionHistory({1: promotion}))
    monkeypatch.setattr("eomirror.mm2.hand_back.control_view", lambda _: view)

    with pytest.raises(NotReadyError, match="link there was promoted"):
        made.run(dry_run=True)
