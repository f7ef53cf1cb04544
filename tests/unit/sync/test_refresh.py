"""What a link finds while it runs, from clusters that are played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Link
from eomirror.errors import AuthorizationError
from eomirror.kafka.facts import ClusterFacts, TopicFacts
from eomirror.sync.discovery import Discovery
from eomirror.sync.topics import TargetTopics

if TYPE_CHECKING:
    from collections.abc import Iterable

NOWHERE = Cluster("east", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
LINK = Link(name="one", source="east", target="west", topics=(".*",))


class Admin:
    """A cluster on which every topic exists; some may not be looked at closely."""

    def __init__(self, names: Iterable[str] = (), *, hidden: str = "", leaderless: int | None = None) -> None:
        self.names = list(names)
        self.hidden = hidden
        self.leaderless = leaderless
        self.asked = 0

    def topic_names(self) -> list[str]:
        return self.names

    def describe_cluster(self) -> ClusterFacts:
        self.asked += 1
        return ClusterFacts("id", 1)

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        self.asked += 1
        silent = frozenset() if self.leaderless is None else frozenset({self.leaderless})
        return {name: TopicFacts(name, f"id-of-{name}", 3, 1, silent) for name in names}

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        self.asked += 1
        asked = list(names)
        if self.hidden in asked:
            raise AuthorizationError(f"lacks DescribeConfigs on topic {self.hidden}", topic=self.hidden)
        return {name: {} for name in asked}

    def create_topics(self, topics: list[Any], **_: Any) -> None:
        assert topics == []

    def close(self) -> None:
        pass


def discovery(source: Admin, target: Admin) -> Discovery:
    made = Discovery(LINK, NOWHERE, NOWHERE)
    made.close()
    made._source, made._target = source, target  # type: ignore[assignment]  as much of them as is asked
    made._ids = ("a", "b")
    made._topics = TargetTopics(target, link="one")  # type: ignore[arg-type]
    return made


def test_one_bad_topic_of_a_thousand_costs_few_questions() -> None:
    """Over a slow link a thousand questions take minutes, in which nothing new is seen."""
    names = [f"t{number:03}" for number in range(1000)]
    source, target = Admin(names, hidden="t500"), Admin()

    found = discovery(source, target).refresh()

    assert {item.source.topic for item in found} == set(names) - {"t500"}
    assert source.asked + target.asked < 150


@pytest.mark.parametrize(("leaderless", "expected"), [(None, [0, 1, 2]), (1, [0, 2])])
def test_a_partition_without_a_leader_waits_by_itself(leaderless: int | None, expected: list[int]) -> None:
    """Where it begins cannot be asked for, and nothing new would be taken up as long as it is among the others."""
    found = discovery(Admin(["t"], leaderless=leaderless), Admin()).refresh()
    assert [item.source.partition for item in found] == expected
