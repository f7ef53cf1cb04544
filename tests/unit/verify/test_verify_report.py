"""What `eomirror verify` records on the target: each topic that it compared wholly, or found to differ."""

from __future__ import annotations

from eomirror.records.reports import Verification
from eomirror.verify.report import verifications
from eomirror.verify.scope import Bound
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


def recorded(*partitions: PartitionVerdict, bound: Bound | None = None) -> list[Verification]:
    """The records of a comparison."""
    found = LinkVerdict(link="l", plane="native", partitions=partitions)
    return verifications(found, bound or Bound(), host="h", now_ms=9)


def test_a_topic_has_one_record_with_the_ends_of_its_partitions() -> None:
    """Differences are summed over partitions, without kinds that did not occur."""
    found = recorded(
        verdict("b", 0, missing=0), verdict("a", 0, missing=2, altered=0), verdict("a", 1, missing=1, foreign=4),
        bound=Bound(from_offset=5, since_ms=7),
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
