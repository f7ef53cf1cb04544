"""What `eomirror verify` says of what was not compared, of a round that was stopped, and of a log that stalls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.cli.verify import _settled
from eomirror.errors import UsageError
from eomirror.records.position import Position
from eomirror.verify.partition import stalled
from eomirror.verify.runner import LastVerdicts
from eomirror.verify.scope import RequestedRange, behind
from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, Range, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping


def verdict(partition: int = 0, *, whole: bool = True, **differences: int) -> PartitionVerdict:
    """About a partition."""
    one = Scope(source=Range("t", partition, 0, 10, 10), target=Range("e.t", partition, 0, 10, 10))
    return PartitionVerdict(scope=one, differences=differences, whole=whole)


def link(*partitions: PartitionVerdict) -> LinkVerdict:
    """About a link."""
    return LinkVerdict(link="l", plane="native", partitions=partitions)


@pytest.mark.parametrize(
    ("partitions", "words", "word"),
    [
        ((verdict(), verdict(1)), ["equal", "equal"], "equal"),
        ((verdict(), verdict(1, whole=False)), ["equal", "not compared"], "not compared"),
        ((verdict(missing=1), verdict(1, whole=False)), ["differs", "not compared"], "differs"),
        ((verdict(whole=False, missing=1),), ["differs"], "differs"),
    ],
)
def test_nothing_is_called_equal_that_was_not_compared(
    partitions: tuple[PartitionVerdict, ...], words: list[str], word: str
) -> None:
    """The JSON says the same as the table."""
    told: Mapping[str, Any] = link(*partitions).as_dict()
    assert told["verdict"] == link(*partitions).word == word
    assert [each["verdict"] for each in told["partitions"]] == words


def test_a_stopped_round_takes_back_no_difference_that_an_earlier_one_found() -> None:
    """Of a partition that it did not come to, what the last whole round said holds."""
    last = LastVerdicts()
    for each in (verdict(0, missing=2), verdict(1)):
        assert last.merge(each) is each
    assert last.merge(verdict(0, whole=False)).differences == {"missing": 2}
    assert last.merge(verdict(1, whole=False)).whole
    assert not last.merge(verdict(2, whole=False)).whole
    # it had come to this one, and found more
    assert last.merge(verdict(1, whole=False, foreign=1)).differences == {"foreign": 1}
    # a later whole round has the last word
    assert last.merge(verdict(0)).differences == {}


def test_following_that_never_came_through_has_found_nothing_out() -> None:
    """Then it ends with 128 and the signal, like every comparison that was interrupted; a difference is one anyway."""
    assert _settled([link(verdict(), verdict(1))])
    assert _settled([link(verdict(whole=False), verdict(1, missing=1))])
    assert not _settled([link(verdict(), verdict(1, whole=False))])
    assert not _settled([])


def position(target_offset: int | None) -> Position:
    """A position of t-0 with its last record there."""
    return Position(
        topic="t", partition=0, offset=5, source_cluster_id="s", topic_id="id", target_topic="e.t", target_partition=0,
        target_topic_id="target-id", target_offset=target_offset, generation=1, lane=0, run="r", epoch=1, attempt=1,
        producer_id=1, producer_epoch=0, txn=1, timestamp=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target_offset", "stable", "expected"),
    [(None, 0, False), (0, 0, True), (0, 1, False), (0, 2, False), (7, 7, True), (7, 8, False)],
)
def test_the_marker_of_a_first_record_is_waited_for_too(
    target_offset: int | None, stable: int, *, expected: bool
) -> None:
    """A record at offset 0 whose marker is on its way is no truncated copy."""
    assert bool(behind([position(target_offset)], {("e.t", 0): stable})) is expected


@pytest.mark.parametrize(
    ("reached", "end", "words"),
    [
        (100, 40, ""),
        (100, 100, ""),
        (40, 40, "t-3 ends at 40 now, before 100"),
        (0, 0, "recreated"),
        (40, 100, "t-3 was read to 40, and its brokers return no records before 100"),
    ],
)
def test_a_log_that_ends_before_what_was_there_is_not_waited_for(reached: int, end: int, words: str) -> None:
    """What is read to its end is not to blame, wherever the log ends now."""
    said = stalled(Range("t", 3, 0, 90, 100), reached, end)
    assert words in said
    assert bool(said) is bool(words)


def test_a_pattern_that_is_none_is_refused() -> None:
    """In words, not as a failure of a library."""
    with pytest.raises(UsageError, match="not a regular expression") as refused:
        RequestedRange(topics="*orders")
    assert refused.value.fix
