"""What `eomirror verify` records on the target: each topic that it compared wholly, or found to differ."""

from __future__ import annotations

from eomirror.records.reports import TailComparison, Verification
from eomirror.types import SourcePartition
from eomirror.verify.report import tail_records, verifications
from eomirror.verify.scope import RequestedRange
from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, Range, Scope


def verdict(
    topic: str, partition: int, *, whole: bool = True, problem: str = "", **differences: int
) -> PartitionVerdict:
    """About offsets 5 to 20 of a partition."""
    one = Scope(
        source=Range(topic, partition, 5, 20, 30),
        target=Range(f"e.{topic}", partition, 0, 10, 10),
        problem=problem,
    )
    return PartitionVerdict(scope=one, differences=differences, whole=whole)


def recorded(*partitions: PartitionVerdict, bound: RequestedRange | None = None) -> list[Verification]:
    """The records of a comparison."""
    found = LinkVerdict(link="l", plane="native", partitions=partitions)
    return verifications(found, bound or RequestedRange(), host="h", now_ms=9)


def test_a_topic_has_one_record_with_the_ends_of_its_partitions() -> None:
    """Differences are summed over partitions, without kinds that did not occur."""
    found = recorded(
        verdict("b", 0, missing=0), verdict("a", 0, missing=2, altered=0), verdict("a", 1, missing=1, foreign=4),
        bound=RequestedRange(from_offset=5, since_ms=7),
    )  # fmt: skip
    assert found == [
        Verification(
            topic="a", outcome="differs", partitions=2, offsets=30, up_to={"0": 20, "1": 20},
            differences={"foreign": 4, "missing": 3}, from_offset=5, since=7, host="h", timestamp=9,
        ),
        Verification(
            topic="b", outcome="equal", partitions=1, offsets=15, up_to={"0": 20}, from_offset=5, since=7, host="h",
            timestamp=9,
        ),
    ]  # fmt: skip


def test_a_comparison_that_was_stopped_replaces_no_result() -> None:
    """Unless it has found a difference; what it did not come to is not called compared."""
    assert recorded(verdict("a", 0), verdict("a", 1, whole=False)) == []
    (found,) = recorded(verdict("a", 0), verdict("a", 1, whole=False, missing=1))
    assert (found.outcome, found.up_to) == ("differs", {"0": 20})


def test_a_partition_that_cannot_be_compared_differs_and_says_why() -> None:
    """A recreated copy is no equal copy."""
    (found,) = recorded(verdict("a", 3, problem="target topic e.a was recreated"))
    assert (found.outcome, found.problem) == ("differs", "a-3: target topic e.a was recreated")


def tail(*partitions: PartitionVerdict) -> list[Verification | TailComparison]:
    """The records of a comparison of the last 10 offsets."""
    found = LinkVerdict(link="l", plane="native", partitions=partitions)
    bound = RequestedRange(from_offsets={SourcePartition("a", 0): 10, SourcePartition("a", 1): 7})
    return tail_records(found, bound, tail=10, command="cutover", host="h", now_ms=9)


def test_an_equal_end_replaces_no_result_of_a_topic() -> None:
    """What stands before it was not compared."""
    (found,) = tail(verdict("a", 0), verdict("a", 1), verdict("b", 0))
    assert found == TailComparison(
        outcome="equal", tail=10, topics=2, partitions=3, offsets=45, command="cutover", host="h", timestamp=9
    )  # fmt: skip


def test_a_difference_at_the_end_is_one_of_the_topic() -> None:
    """It is alerted on until `verify` has compared the topic again."""
    topic, found = tail(verdict("a", 0, missing=1), verdict("a", 1), verdict("b", 0))
    assert isinstance(topic, Verification)
    assert (topic.topic, topic.outcome, topic.from_offset) == ("a", "differs", 7)
    assert isinstance(found, TailComparison)
    assert (found.outcome, found.problem) == ("differs", "a-0: differs")


def test_a_part_that_was_not_compared_is_not_called_equal() -> None:
    """Nor are its offsets counted."""
    (found,) = tail(verdict("a", 0, whole=False), verdict("b", 0))
    assert isinstance(found, TailComparison)
    assert (found.outcome, found.problem, found.offsets) == ("not compared", "a-0: not compared", 15)
    assert tail() == []
