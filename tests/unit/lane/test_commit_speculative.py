"""What a transaction has said of itself, and what it still has to say."""

from __future__ import annotations

from eomirror.lane.commit import SpeculativeState
from eomirror.plane.protocol import MetadataRecord


def _record(
    key: bytes, value: bytes | None, *, topic: str = "positions", partition: int = 0
) -> MetadataRecord:
    return MetadataRecord(topic, partition, key, value)


def test_only_what_is_new_or_changed_is_said_again() -> None:
    """The later record of a key counts, so one that is as it was need not be repeated."""
    foresight = SpeculativeState()
    first, second = _record(b"a", b"1"), _record(b"b", b"1")
    changed = _record(b"a", b"2")

    assert foresight.changed([first]) == [first]
    assert foresight.changed([first, second]) == [second]
    assert foresight.changed([changed, second]) == [changed]
    assert foresight.changed([changed, second]) == []
    assert foresight.changed([first, second]) == [first]


def test_keys_belong_to_their_partition() -> None:
    """Equal keys of other topics and partitions are other records."""
    foresight = SpeculativeState()
    records = [_record(b"a", b"1"), _record(b"a", b"1", topic="map"), _record(b"a", b"1", partition=1)]

    assert foresight.changed(records) == records


def test_the_next_transaction_says_everything_anew() -> None:
    """What an earlier one said was of that one."""
    foresight = SpeculativeState()
    foresight.changed([_record(b"a", b"1")])

    foresight.forget()

    assert foresight.changed([_record(b"a", b"1")]) == [_record(b"a", b"1")]
