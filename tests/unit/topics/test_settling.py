"""How long is waited for topics that were just created."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.errors import MirrorError, TopicError, UnreachableError
from eomirror.kafka.cluster_metadata import CreateTopic, TopicFacts
from eomirror.topics.apply import TargetTopics
from eomirror.topics.diff import TIMESTAMPS
from support.fakes.clocks import PlayedClock


class Admin:
    """A cluster that gets one topic ready every ``pace`` seconds."""

    name = "west"

    def __init__(self, clock: PlayedClock, pace: float) -> None:
        self.clock, self.pace = clock, pace
        self.most = 0

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        self.clock.now += 5
        self.most = len(names)
        done = self.clock.now / self.pace
        silent = frozenset({0})
        return {
            name: TopicFacts(name, "id", 1, 1, frozenset() if int(name) < done else silent) for name in names
        }


def settled(pace: float) -> tuple[Admin, dict[str, TopicFacts]]:
    clock = PlayedClock()
    admin: Any = Admin(clock, pace)
    clock_: Any = clock
    return admin, TargetTopics(admin, link="one", clock=clock_).settle({f"{n:03}": 1 for n in range(20)})


def test_very_many_topics_are_waited_for_as_long_as_some_get_ready() -> None:
    """A thousand took 28 s on a machine that had other things to do; those that are ready are not asked for again."""
    admin, ready = settled(pace=20)
    assert len(ready) == 20
    assert admin.clock.now > 300
    assert admin.most == 1


def test_a_cluster_on_which_nothing_gets_ready_is_not_waited_for() -> None:
    """It says which ones, and for how long nothing came; a link that starts retries, as for a cluster that is down."""
    with pytest.raises(UnreachableError, match=r"topics 001, 002, 003 and 16 more .* after 30 s"):
        settled(pace=1e6)


class Shared:
    """A cluster on which another link has just created the copy, with two partitions."""

    name = "west"

    def __init__(self) -> None:
        self.partitions = 2
        self.grown: list[tuple[str, int]] = []

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, "id", self.partitions, 1, frozenset()) for name in names}

    def create_partitions(self, name: str, total: int) -> None:
        self.grown.append((name, total))
        self.partitions = total


def test_a_copy_that_another_link_created_at_the_same_moment_is_grown() -> None:
    """Two links of an aggregate, with two and four partitions: the broker answered that the topic exists."""
    admin: Any = Shared()
    clock: Any = PlayedClock()
    ready = TargetTopics(admin, link="one", clock=clock).settle({"clicks": 4})
    assert admin.grown == [("clicks", 4)]
    assert ready["clicks"].partitions == 4


class Older:
    """A cluster whose brokers have one limit for timestamps, which it does not show before it has a topic."""

    name = "west"

    def __init__(self) -> None:
        self.made: dict[str, dict[str, str]] = {}

    def create_topics(
        self, topics: list[CreateTopic], *, validate_only: bool, refused: list[MirrorError]
    ) -> None:
        assert not validate_only
        for topic in topics:
            unknown = [name for name in topic.configs if name.startswith("message.timestamp.before")]
            if unknown:
                refused.append(
                    TopicError(f"Unknown topic config name: {unknown[0]}", fix="", topic=topic.name)
                )
            else:
                self.made[topic.name] = dict(topic.configs)

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, "id", 1, 1, frozenset()) for name in names}


def test_a_setting_that_brokers_do_not_have_yet_is_replaced_by_its_older_name() -> None:
    """The topic is created at once, with every other setting."""
    admin: Any = Older()
    wanted = {"cleanup.policy": "compact", **TIMESTAMPS}

    TargetTopics(admin, link="one").apply([CreateTopic("one", 1, 1, wanted), CreateTopic("two", 1, 1, {})])

    forever = TIMESTAMPS["message.timestamp.before.max.ms"]
    assert admin.made == {
        "one": {
            "cleanup.policy": "compact",
            "message.timestamp.type": "CreateTime",
            "message.timestamp.difference.max.ms": forever,
        },
        "two": {},
    }
