"""Links from a cluster to itself: which names meet, and which shorten until they end."""

from __future__ import annotations

import pytest

from eomirror.config import Link
from eomirror.topology.graph import topology
from eomirror.topology.naming import Naming, shortens
from eomirror.topology.warnings import own_cluster_fault

REPLICA = Naming("match", match="(.*)_REPLICA", to="$1")


def link(naming: Naming, *topics: str, way: str = "dc1>dc1") -> Link:
    """A link such as ``dc1>dc2``."""
    source, target = way.split(">")
    return Link(name=f"{source}->{target}", source=source, target=target, topics=topics, naming=naming)


@pytest.mark.parametrize(
    ("naming", "topics"),
    [
        (REPLICA, [".*_REPLICA"]),
        (REPLICA, ["orders_REPLICA", "pay.+_REPLICA"]),
        (Naming("pattern", pattern="{topic}_COPY"), ["orders"]),
        (Naming("map", names=(("a", "b"), ("c", "d"))), ["a", "c"]),
        # the copy of b is not mirrored, because b itself is not
        (Naming("map", names=(("a", "b"), ("b", "c"))), ["a"]),
    ],
)
def test_renamed_topics_may_be_copied_within_a_cluster(naming: Naming, topics: list[str]) -> None:
    """No copy has the name of a topic that the link reads."""
    assert own_cluster_fault(link(naming, *topics)) == ("", "")


@pytest.mark.parametrize(
    ("naming", "topics", "words"),
    [
        (Naming(), ["orders"], "naming: prefix"),
        (Naming("identity"), ["orders"], "naming: identity"),
        (REPLICA, [".*"], "TOPIC_REPLICA would be copied to TOPIC"),
        (Naming("pattern", pattern="{topic}_COPY"), ["orders.*"], "would be copied to"),
        (Naming("pattern", pattern="{topic}_COPY"), [".*"], "TOPIC would be copied to TOPIC_COPY"),
        (Naming("map", names=(("a", "b"), ("b", "c"))), ["a", "b"], "a would be copied to b"),
    ],
)
def test_names_that_meet_are_refused(naming: Naming, topics: list[str], words: str) -> None:
    """Such a link would mirror its own copies; the fault names a topic and its copy."""
    message, fix = own_cluster_fault(link(naming, *topics))
    assert words in message
    assert "(.*)_REPLICA" in fix


@pytest.mark.parametrize(
    ("match", "to", "expected"),
    [
        ("(.*)_REPLICA", "$1", True),
        ("(.+)_REPLICA", "${1}_R", True),
        (r"dc1\.(.*)", "$1", True),
        ("raw-([a-z]+)-v1", "$1", True),
        ("(.*)_R", "${1}_RR", False),
        ("(.*)_R", "${1}_S", False),
        ("(.*)", "$1", False),
        ("(.*)_.*", "$1", False),
        ("(a)(.*)", "$2", False),
        ("(?P<x>.*)_R", "${x}", False),
    ],
)
def test_only_a_policy_that_certainly_shortens_names_does(match: str, to: str, expected: bool) -> None:
    """An expression that is not understood shortens nothing, and its links are guarded."""
    assert shortens(Naming("match", match=match, to=to)) is expected


def test_names_that_shorten_need_no_header() -> None:
    """`T_REPLICA` becomes `T` everywhere: no record returns to its topic, so that none is marked or dropped."""
    ways = ("dc1>dc1", "dc1>dc2", "dc2>dc1", "dc2>dc2")
    found = topology([link(REPLICA, ".*_REPLICA", way=way) for way in ways])

    assert found.faults == ()
    assert [(rule.provenance_header, rule.guard, rule.origins) for rule in found.rules] == [
        (False, False, None)
    ] * 4


def test_a_prefix_that_is_taken_off_again_does_return() -> None:
    """One link adds what the other removes: the names come back, so the records are marked."""
    there = link(Naming("pattern", pattern="dc1_{topic}"), ".*", way="dc1>dc2")
    back = link(Naming("match", match="dc1_(.*)", to="$1"), "dc1_.*", way="dc2>dc1")

    assert [rule.provenance_header for rule in topology([there, back]).rules] == [True, True]
