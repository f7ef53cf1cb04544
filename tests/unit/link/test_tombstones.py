"""Rule 6: when a compacted topic may have forgotten deletions that the mirror never saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eomirror.link.start_rules import MissedTombstones, missed_tombstones
from eomirror.records.position import Position

HOUR = 3_600_000
NOW = 100 * HOUR
POSITION = Position(
    topic="accounts",
    partition=0,
    offset=500,
    source_cluster_id="s",
    topic_id="t",
    target_topic="east.accounts",
    target_partition=0,
    target_topic_id="u",
    generation=1,
    lane=0,
    run="r",
    epoch=1,
    attempt=1,
    producer_id=1,
    producer_epoch=0,
    txn=1,
    timestamp=NOW - 30 * HOUR,
)
SOURCE = POSITION.source


def look(
    position: Position = POSITION, *, kept: int = 24, end: int = 900, young: int = 700
) -> list[MissedTombstones]:
    return missed_tombstones(
        [position],
        kept_ms={"accounts": kept * HOUR},
        ends={SOURCE: end},
        young_from={SOURCE: young},
        now_ms=NOW,
    )


def test_a_position_older_than_tombstones_live_is_told() -> None:
    """Between the position and the first young record there was something, or is."""
    assert look() == [MissedTombstones("accounts", 30 * 3600.0, 24 * 3600.0)]
    # nothing on the log is young
    assert look(young=-1) == look()


@pytest.mark.parametrize(
    "sound",
    [
        {"kept": 48},
        {"end": 500},
        # an idle topic whose first new record came a moment ago
        {"young": 500},
        {"position": replace(POSITION, timestamp=NOW - HOUR)},
    ],
    ids=["younger than tombstones", "nothing new", "all that is new is young", "just written"],
)
def test_a_sound_position_is_not_told(sound: dict[str, object]) -> None:
    """A warning that comes with every restart would be read by no operator."""
    assert look(**sound) == []  # type: ignore[arg-type]


def test_a_topic_that_is_not_compacted_and_several_partitions() -> None:
    """Only compacted topics, each once, with the age of its oldest position."""
    other = replace(POSITION, topic="orders")
    older = replace(POSITION, partition=1, timestamp=NOW - 40 * HOUR)
    found = missed_tombstones(
        [POSITION, other, older],
        kept_ms={"accounts": 24 * HOUR},
        ends={item.source: 900 for item in (POSITION, other, older)},
        young_from={},
        now_ms=NOW,
    )

    assert found == [MissedTombstones("accounts", 40 * 3600.0, 24 * 3600.0)]
