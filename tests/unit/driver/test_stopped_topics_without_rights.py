"""When topics that lack a right are tried again."""

from __future__ import annotations

from eomirror.driver.stopped_topics import UnauthorizedTopics


def test_a_topic_is_tried_again_later_and_later() -> None:
    """The right stays away: 5 s, then twice as long each time, but never more than a minute."""
    topics, now, waits = UnauthorizedTopics(), 100.0, []
    for _ in range(7):
        assert topics.stopped(["orders"], now) == ["orders"]
        began = now
        while not topics.due(now):
            now += 1.0
        waits.append(now - began)
        now += 0.5
    assert waits == [5, 10, 20, 40, 60, 60, 60]


def test_a_right_that_was_granted_and_revoked_again_begins_anew() -> None:
    """After more than a minute of mirroring, the next loss is another one."""
    topics = UnauthorizedTopics()
    topics.stopped(["orders"], 0.0)
    assert topics.due(5.0) == ["orders"]
    topics.stopped(["orders"], 5.0 + 61.0)
    assert topics.due(5.0 + 61.0 + 4.9) == []
    assert topics.due(5.0 + 61.0 + 5.0) == ["orders"]


def test_several_lanes_say_the_same_once() -> None:
    """A topic waits from the first word of it, and only while it waits the link has something to wait for."""
    topics = UnauthorizedTopics()
    assert not topics
    assert topics.stopped(["orders", "pay"], 0.0) == ["orders", "pay"]
    assert topics.stopped(["orders"], 3.0) == []
    assert topics.waits("orders")
    assert topics.due(5.0) == ["orders", "pay"]
    assert not topics.waits("orders")
    assert not topics
