"""Which topics are mirrored, and why others are not."""

from __future__ import annotations

import pytest

from eomirror.topology.filters import TopicFilter, is_literal, pattern_fault, topic_filter, upstream_aliases


@pytest.mark.parametrize(
    "topic",
    [
        "__consumer_offsets",
        "__transaction_state",
        "__x",
        "eomirror.east.west.control",
        "eomirror.x",
        ".hidden",
        "mm2-offset-syncs.west.internal",
        "mm2-configs.east.internal",
        "mm2.internal",
        "east.checkpoints.internal",
    ],
)
def test_internal_topics_are_never_mirrored(topic: str) -> None:
    """Whatever a pattern says."""
    assert not topic_filter((".*", topic)).matches(topic)


@pytest.mark.parametrize(
    "topic", ["heartbeats", "orders.internal", "eomirror", "_schemas", "mm2", "checkpoints.internal.x"]
)
def test_topics_that_only_look_internal_are_mirrored(topic: str) -> None:
    """The rule is MirrorMaker 2's since KIP-1074, not a wider one."""
    assert topic_filter((".*",)).matches(topic)


def test_patterns_match_whole_names_and_exclude_wins() -> None:
    """`pay` is not `pay.in`; what is excluded stays out."""
    chosen = TopicFilter(("orders", "pay\\..*"), ("pay\\.secret",))
    assert [t for t in ("orders", "orders2", "pay", "pay.in", "pay.secret") if chosen.matches(t)] == [
        "orders",
        "pay.in",
    ]
    assert not TopicFilter(()).matches("orders")


def test_a_prefixed_topic_does_not_go_round() -> None:
    """A name that has passed source or target is refused (KAFKA-9914), with the reason."""
    chosen = TopicFilter((".*",), (), ("east", "west"))
    assert not chosen.matches("west.orders")
    assert not chosen.matches("north.west.orders")
    assert not chosen.matches("east.orders")
    assert "west" in chosen.reason("west.orders")
    assert chosen.matches("north.orders")
    assert chosen.matches("orders.west")
    assert list(upstream_aliases("a.b.c")) == ["a", "b"]


def test_faults_of_patterns_and_literals() -> None:
    """What is no expression says so; what matches one text only is known."""
    assert pattern_fault("(") != ""
    assert pattern_fault("a.*") == ""
    assert is_literal("a-b_c")
    assert is_literal("a\\.b")
    assert not is_literal("a.b")
