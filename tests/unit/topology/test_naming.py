"""Names on the target, and topics that would meet there."""

from __future__ import annotations

import pytest

from eomirror.errors import TopicError
from eomirror.topology.naming import Collision, Naming, TargetNaming, collisions, illegal_name


def named(topic: str, naming: Naming) -> str:
    """Name of a topic of east on west."""
    return TargetNaming(naming, "east", "west").target_topic(topic)


@pytest.mark.parametrize(
    ("naming", "topic", "target"),
    [
        (Naming(), "orders", "east.orders"),
        (Naming("identity"), "orders", "orders"),
        (Naming("pattern", pattern="{source}_{topic}"), "orders", "east_orders"),
        (Naming("pattern", pattern="{topic}_REPLICA"), "orders", "orders_REPLICA"),
        (Naming("pattern", pattern="{target}-{source}-{topic}"), "a", "west-east-a"),
        (Naming("match", match="(.*)_REPLICA", to="$1"), "orders_REPLICA", "orders"),
        (Naming("match", match="(?P<team>[a-z]+)\\.(.*)", to="${team}_$2"), "pay.in.out", "pay_in.out"),
        (Naming("match", match="a(b)?", to="x$1"), "a", "x"),
        (Naming("map", names=(("a", "b"), ("c", "d"))), "c", "d"),
    ],
)
def test_each_policy_names_topics(naming: Naming, topic: str, target: str) -> None:
    """The examples of the documentation, and their corners."""
    assert named(topic, naming) == target


@pytest.mark.parametrize(
    ("naming", "topic", "text"),
    [
        (Naming(), "o" * 245, "250 characters"),
        (Naming("pattern", pattern="{topic}_REPLICA"), "o" * 242, "250 characters"),
        (Naming("match", match="(.*)_REPLICA", to="$1"), "orders", "does not match"),
        (Naming("match", match="(.*)_REPLICA", to="$1"), "_REPLICA", "cannot be empty"),
        (Naming("match", match="(\\.*)x", to="$1"), "..x", "would be named"),
        (Naming("map", names=(("a", "b"),)), "c", "not in the map"),
    ],
)
def test_a_topic_without_a_legal_name_is_refused_with_a_fix(naming: Naming, topic: str, text: str) -> None:
    """Nothing is cut, replaced or guessed."""
    with pytest.raises(TopicError, match=text) as caught:
        named(topic, naming)
    assert caught.value.fix
    assert len(str(caught.value)) < 500


def test_the_longest_name_is_allowed() -> None:
    """249 characters are what Kafka allows."""
    assert len(named("o" * 244, Naming())) == 249


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\n", "\u0430", "a" * 250, "a:b"])
def test_kafkas_rule_for_names(name: str) -> None:
    """Letters, digits, dot, underscore and dash; 1 to 249 of them; neither . nor .."""
    assert illegal_name(name)
    assert not illegal_name("aZ09._-")


def test_an_expression_that_backtracks_for_ever_does_not() -> None:
    """A near miss of a nested repetition is decided by the linear-time engine."""
    naming = Naming("match", match="((a+)+)+b", to="$1")
    with pytest.raises(TopicError):
        named("a" * 200, naming)


def test_topics_that_would_meet_are_found() -> None:
    """Two sources for one name, and names that Kafka's metrics cannot tell apart."""
    naming = TargetNaming(Naming("match", match="(.*?)(_v[0-9]+)?", to="$1"), "east", "west")
    assert collisions(["a", "a_v1", "b.c", "b_c", "d"], naming) == [
        Collision(("a", "a_v1"), ("a", "a"), same_name=True),
        Collision(("b.c", "b_c"), ("b.c", "b_c"), same_name=False),
    ]
    assert collisions(["a", "b"], TargetNaming(Naming(), "east", "west")) == []


def test_topics_without_a_name_do_not_collide() -> None:
    """They are refused one by one elsewhere."""
    assert collisions(["x", "y"], TargetNaming(Naming("map", names=(("a", "b"),)), "e", "w")) == []
