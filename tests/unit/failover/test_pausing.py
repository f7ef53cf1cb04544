"""A pause is one record: what it holds, and what the command refuses."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.errors import NotReadyError, UsageError
from eomirror.link.pause import _planned
from eomirror.records.control import ControlView, Generation, Pause, decode_control
from eomirror.records.promotion import Promotion, PromotionHistory
from eomirror.types import Assignment, SourcePartition

GENERATION = Generation(
    generation=1, revision=0, run="r", highest_lane=0, timestamp=1,
    assignment=Assignment(1, {SourcePartition("orders", 0): 0, SourcePartition("pay.in", 1): 0}, frozenset()),
)  # fmt: skip
PAUSE = Pause(topics="", host="h", timestamp=3)


def planned(topics: str = "", *, paused: bool = True, dry_run: bool = False, **control: Any) -> Any:
    return _planned(
        "l", ControlView(generation=GENERATION, **control), topics, paused=paused, dry_run=dry_run
    )


def test_a_pause_is_read_as_it_was_written_until_it_is_deleted() -> None:
    """The newest record counts."""
    some = Pause(topics="pay\\..*", host="h", timestamp=4)
    records: list[Any] = [(PAUSE.key(), PAUSE.value(), "c"), (some.key(), some.value(), "c")]

    assert decode_control(records).pause == some
    assert decode_control([*records, (Pause.key(), None, "c")]).pause is None
    assert [some.holds(topic) for topic in ("pay.in", "pay", "orders")] == [True, False, False]
    assert PAUSE.holds("anything")


def test_the_command_changes_only_what_differs() -> None:
    """A repeated call writes nothing, and a dry run neither."""
    found = planned()
    assert (found.committed, found.topics, found.matching) == (True, ".*", ("orders", "pay.in"))
    assert not planned(pause=PAUSE).committed
    assert not planned(dry_run=True).committed
    assert planned("pay.*", pause=PAUSE).matching == ("pay.in",)
    assert planned("pay.*", pause=PAUSE).committed
    assert planned(paused=False, pause=PAUSE).committed
    assert not planned(paused=False).committed


def test_what_cannot_be_held_is_refused() -> None:
    """A pattern with a typing error would hold nothing; a promoted link mirrors nothing."""
    promotion = Promotion(
        number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=(), started=0, timestamp=0,
    )  # fmt: skip
    with pytest.raises(UsageError, match="no topic that it mirrors matches ordres"):
        planned("ordres")
    with pytest.raises(NotReadyError, match="was promoted"):
        planned(history=PromotionHistory({1: promotion}))
    with pytest.raises(NotReadyError, match="never ran"):
        _planned("l", ControlView(), "", paused=True, dry_run=False)
