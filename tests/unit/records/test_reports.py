"""Informative records of control: read as written, ignored by the readers that decide, skipped where unreadable."""

from __future__ import annotations

import orjson
import pytest

from eomirror.records.control import ControlView, decode_control
from eomirror.records.reports import (
    DrillResult,
    LaneRestarts,
    Reports,
    TailComparison,
    Verification,
    decode_reports,
)

RESTARTS = LaneRestarts(
    lane=3,
    count=2,
    endings={"rebuild": 1, "worker died": 1},
    ending="rebuild",
    reason="why",
    run="r",
    timestamp=9,
)
VERIFIED = Verification(
    topic="orders", outcome="differs", partitions=2, offsets=40, up_to={"0": 30, "1": 10},
    differences={"missing": 1}, problem="", from_offset=5, since=0, host="h", timestamp=8,
)  # fmt: skip
DRILL = DrillResult(passed=True, rpo_records=7, rto_ms=1234, host="h", timestamp=7)
TAIL = TailComparison(
    outcome="equal", tail=10_000, topics=2, partitions=3, offsets=500, command="cutover", host="h", timestamp=6
)  # fmt: skip
RECORDS = [(one.key(), one.value()) for one in (RESTARTS, VERIFIED, DRILL, TAIL)]


def test_every_record_is_read_as_it_was_written() -> None:
    """The last one of a key counts."""
    older = (VERIFIED.key(), Verification(topic="orders", outcome="equal", partitions=1, offsets=1, up_to={},
                                          timestamp=1).value())  # fmt: skip
    assert decode_reports([older, *RECORDS]) == Reports((RESTARTS,), (VERIFIED,), DRILL, TAIL)


def test_the_readers_that_decide_ignore_them() -> None:
    """An older release, too, takes a kind that it does not know for nothing."""
    assert decode_control([(key, value, "control-0@1") for key, value in RECORDS]) == ControlView()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (RESTARTS.key(), b"no json"),
        (RESTARTS.key(), b"[]"),
        (RESTARTS.key(), None),
        (RESTARTS.key(), orjson.dumps({"v": 2, "count": 1})),
        (RESTARTS.key(), orjson.dumps({"v": 1, "count": "many"})),
        (orjson.dumps({"kind": "restarts", "lane": -1}), RESTARTS.value()),
        (orjson.dumps({"kind": "verification"}), VERIFIED.value()),
        (VERIFIED.key(), orjson.dumps(orjson.loads(VERIFIED.value()) | {"up_to": {"0": "x"}})),
        (DRILL.key(), orjson.dumps({"v": 1, "passed": True})),
        (TAIL.key(), orjson.dumps(orjson.loads(TAIL.value()) | {"tail": "all"})),
        (None, b"{}"),
        (b"[]", b"{}"),
    ],
)
def test_an_unreadable_record_is_skipped(key: bytes | None, value: bytes | None) -> None:
    """It informs only: a link that shows nothing of it still shows the rest."""
    assert decode_reports([(key, value), (DRILL.key(), DRILL.value())]) == Reports(drill=DRILL)


def test_a_text_of_any_length_fits() -> None:
    """Every starting lane reads control."""
    long = LaneRestarts(lane=0, count=1, endings={}, ending="x", reason="y" * 100_000, run="r", timestamp=1)
    assert len(long.value()) < 2_000
