"""The binding: a batch of messages in, ready arguments and named rejections out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from eomirror._native import Acks, Planner, Policy
from eomirror.errors import TopicError, TransactionFailedError, UnrepresentableRecordError
from support.judges.java_partitioner import java_partition


@dataclass
class FakeMessage:
    """Answers what a consumed message answers."""

    topic_: str = "orders"
    offset_: int = 0
    partition_: int = 0
    key_: bytes | None = b"k"
    value_: bytes | None = b"v"
    timestamp_: int = 5
    headers_: list[tuple[str, bytes | None]] | None = None
    error_: Any = None

    def error(self) -> Any:
        return self.error_

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def timestamp(self) -> tuple[int, int]:
        return (1, self.timestamp_)

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.headers_

    def leader_epoch(self) -> int | None:
        return 3


@dataclass
class FakeError:
    number: int

    def code(self) -> int:
        return self.number


def planner(**changes: Any) -> Planner:
    routes = {"orders": "east.orders", "payments": "east.payments"}
    return Planner(Policy(routes, source_cluster_id="S", target_cluster_id="T", **changes))


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize("headers", [None, [("h", b"1"), ("h", None), ("", b"")]])
def test_a_record_is_handed_over_unchanged(key: Any, value: Any, headers: Any) -> None:
    """EO-11: null and empty stay apart, and the very same objects come back."""
    plan = planner().plan([FakeMessage(key_=key, value_=value, headers_=headers)])

    (record,) = plan.records
    assert record == ("east.orders", value, key, 0, None, None, 5, headers)
    assert record[1] is value
    assert (plan.fetched, plan.kept, plan.dropped) == (1, 1, 0)


def test_an_end_of_a_partition_is_a_fact_and_nothing_is_planned_behind_another_error() -> None:
    """EO-1: what follows an error may lie behind a batch that could not be read."""
    end, broken = FakeMessage(offset_=9, error_=FakeError(-191)), FakeMessage(error_=FakeError(7))
    plan = planner().plan([FakeMessage(), end, broken, FakeMessage(offset_=8), end])

    assert plan.ends == [("orders", 0, 9)]
    assert plan.error_at == 2
    assert (plan.fetched, plan.kept) == (1, 1)


def test_timestamp_0_is_refused_by_the_topic_it_stands_in() -> None:
    """The client library would write the present time; only this topic is to be stopped."""
    with pytest.raises(UnrepresentableRecordError, match="payments-0@4") as raised:
        planner().plan([FakeMessage(), FakeMessage(topic_="payments", offset_=4, timestamp_=0)])

    assert raised.value.topic == "payments"
    assert raised.value.fix


def test_a_topic_without_a_route_is_named() -> None:
    """A fetch that was not asked for is never written somewhere."""
    with pytest.raises(TopicError, match="other-0@0") as raised:
        planner().plan([FakeMessage(topic_="other")])

    assert raised.value.topic == "other"


def test_a_refused_batch_leaves_the_books_as_they_were() -> None:
    """EO-7: all or nothing."""
    books = planner()
    with pytest.raises(UnrepresentableRecordError):
        books.plan([FakeMessage(), FakeMessage(offset_=1, timestamp_=0)])

    assert books.settle(Acks()) == []


def test_what_was_fetched_was_acknowledged() -> None:
    """EO-7: the account of each partition, with its target offsets and an offset-map chunk."""
    books = planner()
    books.plan([FakeMessage(offset_=10), FakeMessage(offset_=11), FakeMessage(offset_=14)])

    (account,) = books.settle(Acks([("east.orders", 0, [(100, 2), (105, 1)])]))

    assert (account.fetched, account.acked) == (3, 3)
    assert (account.first_source_offset, account.last_source_offset) == (10, 14)
    assert (account.first_target_offset, account.last_target_offset) == (100, 105)
    assert account.leader_epoch == 3


@pytest.mark.parametrize("runs", [[], [(100, 1)], [(100, 3)]])
def test_an_uneven_account_is_a_failed_transaction(runs: list[tuple[int, int]]) -> None:
    """EO-7: one acknowledgement too few or too many."""
    books = planner()
    books.plan([FakeMessage(offset_=10), FakeMessage(offset_=11)])

    with pytest.raises(TransactionFailedError, match="orders-0"):
        books.settle(Acks([("east.orders", 0, runs)] if runs else []))


def test_the_policy_changes_only_between_transactions() -> None:
    """Routes of an open transaction stay as they are."""
    books = planner()
    books.plan([FakeMessage()])
    policy = Policy({"orders": "x"}, source_cluster_id="S", target_cluster_id="T")

    with pytest.raises(RuntimeError):
        books.set_policy(policy)
    books.clear()
    books.set_policy(policy)


def test_a_record_that_comes_back_is_dropped_and_counted() -> None:
    """Loops: what has passed the target does not go there again."""
    there = Planner(
        Policy({"orders": "orders"}, source_cluster_id="T", target_cluster_id="S", header=True, guard=True)
    )
    (sent,) = there.plan([FakeMessage()]).records
    back = Planner(
        Policy({"orders": "orders"}, source_cluster_id="S", target_cluster_id="T", header=True, guard=True)
    )

    plan = back.plan([FakeMessage(headers_=sent[7])])

    assert (plan.kept, plan.dropped) == (0, 1)
    assert back.settle(Acks())[0].dropped == {"hop": 1}


def test_the_place_on_the_source_is_the_last_header_and_replaces_an_earlier_one() -> None:
    """Alias, topic, partition and offset as text; other headers keep their order."""
    earlier = [("eomirror.origin", b"copied"), ("x", None)]
    messages = [FakeMessage(offset_=7, partition_=2, headers_=earlier), FakeMessage(offset_=8, partition_=2)]

    plain = planner(origin="shop1").plan(messages).records
    marked = planner(origin="shop1", header=True).plan(messages).records

    assert [args[7] for args in plain] == [
        [("x", None), ("eomirror.origin", b"shop1/orders/2/7")],
        [("eomirror.origin", b"shop1/orders/2/8")],
    ]
    assert [[name for name, _ in args[7]] for args in marked] == [
        ["x", "eomirror.hops", "eomirror.origin"],
        ["eomirror.hops", "eomirror.origin"],
    ]


def test_records_are_placed_by_key_like_javas_producers_do() -> None:
    """Each account names all target partitions, in the order of their acknowledgements, and has no offset map."""
    policy = Policy({"orders": "all"}, source_cluster_id="S", target_cluster_id="T", keyed={"all": 7})
    planner = Planner(policy)
    keys = [b"k%d" % number for number in range(200)] + [b"", None, bytes(range(256))]
    messages = [FakeMessage(offset_=at, partition_=9, key_=key) for at, key in enumerate(keys)]

    plan = planner.plan(messages)

    partitions = [record[3] for record in plan.records]
    assert partitions == [9 % 7 if key is None else java_partition(key, 7) for key in keys]
    assert set(partitions) == set(range(7))
    counts = {number: partitions.count(number) for number in range(7)}
    assert sorted(planner.planned()) == [("all", number, count) for number, count in counts.items()]
    (account,) = planner.settle(
        Acks([("all", number, [(100 * number, count)]) for number, count in counts.items()])
    )
    assert account.placed == [
        (number, 100 * number, 100 * number + count - 1) for number, count in counts.items()
    ]
    assert account.target_partition == partitions[-1]
    assert account.offset_map == b""
    assert account.acked == len(keys)


def test_a_topic_without_partitions_places_nothing() -> None:
    """The number comes from the target's metadata."""
    with pytest.raises(ValueError, match="has no partitions"):
        Policy({"orders": "all"}, source_cluster_id="S", target_cluster_id="T", keyed={"all": 0})
