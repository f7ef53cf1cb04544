"""Transactions that no coordinator will end: which are told, and which are not."""

from __future__ import annotations

from typing import Any

from eomirror.recovery.hanging import OpenRange
from eomirror.status.hanging import candidates, hanging, with_hanging
from eomirror.status.model import Hanging, LinkStatus, PartitionStatus
from support.fakes.lane_fakes import ORDERS, position

COPY = "east.orders"
NOW, LONGEST = 10_000_000, 900_000


def open_range(start: int = 100, producer_id: int = 7, **changes: Any) -> OpenRange:
    values = {
        "topic": COPY,
        "partition": 0,
        "producer_id": producer_id,
        "epoch": 0,
        "start": start,
        "end": 150,
    }
    return OpenRange(**(values | changes))


def committed(target_offset: int, producer_id: int, age_ms: int = 0) -> Any:
    """A position that the link committed, so long ago."""
    return position(
        ORDERS,
        target_offset + 1,
        target_offset=target_offset,
        producer_id=producer_id,
        timestamp=NOW - age_ms,
    )


def told(
    before: list[OpenRange],
    history: list[Any],
    *,
    after: list[OpenRange] | None = None,
    living: set[int] = frozenset(),  # type: ignore[assignment]  # as good as an empty one
) -> list[Hanging]:
    """Both decisions in a row, as `eomirror.status.hanging` takes them."""
    found = candidates(before, history, now_ms=NOW, longest_ms=LONGEST)
    return hanging(
        found,
        before if after is None else after,
        living=living,
        positions=history[-1:],
        history=history,
        servers="west:9092",
    )


def test_a_transaction_of_the_link_that_no_coordinator_knows_is_told_at_once() -> None:
    """Its producer id is in the positions, and no transactional.id has it: the coordinator's log was lost."""
    (found,) = told([open_range()], [committed(99, 7)], living={8})

    assert (found.topic, found.partition, found.producer_id, found.start, found.end) == (COPY, 0, 7, 100, 150)
    assert found.since is None
    assert "east.orders-0 of the target is closed to read_committed readers from offset 100" in found.problem
    assert "(50 offsets)" in found.problem
    assert "producer id 7" in found.problem
    assert found.fix == (
        "kafka-transactions.sh --bootstrap-server west:9092 abort --topic east.orders --partition 0 --start-offset 100"
    )


def test_a_transaction_whose_producer_lives_is_none() -> None:
    """The coordinator ends it after its timeout, or the lane does, or it is simply under way."""
    assert not told([open_range()], [committed(99, 7)], living={7})


def test_a_transaction_that_ends_while_we_ask_is_none() -> None:
    """Its producer id may be another's by then; one that begins anew is not the same."""
    assert not told([open_range()], [committed(99, 7)], after=[])
    assert not told([open_range()], [committed(99, 7)], after=[open_range(start=120)])


def test_a_transaction_of_others_is_told_once_the_link_has_written_behind_it_for_too_long() -> None:
    """The link's positions tell since when it is open; timestamps of records would not."""
    mirrored = [committed(90, 8, 2 * LONGEST), committed(110, 8, LONGEST + 1), committed(120, 8)]
    (found,) = told([open_range()], mirrored)
    assert found.since == NOW - LONGEST - 1
    assert "does not belong to this link" in found.problem
    assert "1970-01-01T02:31:39Z" in found.problem

    assert not told([open_range()], [committed(90, 8, 2 * LONGEST), committed(110, 8, LONGEST)])
    # nothing was mirrored behind it: since when it is open is unknown
    assert not told([open_range()], [committed(90, 8, 2 * LONGEST)])


def test_records_of_another_partition_tell_nothing() -> None:
    """Offsets of one partition mean nothing in another."""
    assert not told([open_range(partition=1)], [committed(110, 8, 2 * LONGEST)])


def test_an_abort_that_would_drop_what_was_committed_says_so() -> None:
    """EO-8: a position of the same producer counts records of the transaction as mirrored."""
    (found,) = told([open_range()], [committed(130, 7)])
    assert "offsets up to 130 are committed" in found.problem
    assert "--resume-at orders-0=OFFSET" in found.fix
    assert "eomirror verify" in found.fix


def test_a_closed_copy_is_the_problem_of_its_partition_unless_it_has_another() -> None:
    """What stops a partition comes first; both are in the JSON."""

    def shown(problem: str) -> LinkStatus:
        partition = PartitionStatus(
            topic="orders", partition=0, target_topic=COPY, lane=0, position=1, source_lso=1, lag_records=0,
            lag_seconds=0.0, records=1, rate=0.0, last_commit=1, problem=problem, fix=problem,
        )  # fmt: skip
        return LinkStatus(link="l", state="running", partitions=(partition,))

    found = told([open_range()], [committed(99, 7)])
    marked = with_hanging(shown(""), found)
    assert (marked.partitions[0].problem, marked.partitions[0].fix) == (found[0].problem, found[0].fix)
    assert marked.as_dict()["hanging"][0]["start"] == 100
    stopped = with_hanging(shown("the source topic is gone"), found)
    assert stopped.partitions[0].problem == "the source topic is gone"
    assert stopped.hanging == marked.hanging
    assert with_hanging(shown(""), []) == shown("")
