"""Settings of equal names that are mirrored both ways: a change is carried over, and never taken back or swapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror.kafka.cluster_metadata import ConfigValue, CreateTopic, TopicFacts
from eomirror.topics.bidirectional_configs import BidirectionalConfigs
from eomirror.topics.diff import AlterConfig, TopicPair, topic_changes
from eomirror.topology.filters import TopicFilter

if TYPE_CHECKING:
    from collections.abc import Callable

FOR_EVER = "9223372036854775807"
DAY, WEEK = "86400000", "604800000"
BACK_AGAIN = (TopicFilter(("t",)),)


class World:
    """A topic on two clusters, and a link each way between them."""

    def __init__(self, **retention: str) -> None:
        self.sides = {
            side: {
                "retention.ms": retention.get(side, WEEK),
                "max.message.bytes": "1048588",
                "message.timestamp.type": "CreateTime",
                "message.timestamp.before.max.ms": FOR_EVER,
                "message.timestamp.after.max.ms": FOR_EVER,
            }
            for side in ("east", "west")
        }
        self.links = {
            ("east", "west"): BidirectionalConfigs(BACK_AGAIN, goes_first=True),
            ("west", "east"): BidirectionalConfigs(BACK_AGAIN, goes_first=False),
        }

    def looked(self, source: str, target: str) -> Callable[[], None]:
        """A link compares both sides now, and carries out what it wants when that is called."""
        link = self.links[source, target]
        found = {
            side: {name: ConfigValue(value, is_default=False) for name, value in settings.items()}
            for side, settings in self.sides.items()
        }
        facts = TopicFacts("t", "id", 1, 1)
        pair = TopicPair(facts, found[source], "t", facts, found[target])
        changes = link.carried(pair, topic_changes(pair, brokers=1, added_header=True, guard=True))

        def apply() -> None:
            for change in changes:
                assert isinstance(change, AlterConfig)
                self.sides[target].update(change.values)
            link.record(pair, changes)

        return apply

    def compare(self, *ways: tuple[str, str]) -> None:
        """These links compare at the same moment; then each carries out what it wants."""
        for apply in [self.looked(*way) for way in ways]:
            apply()

    def retention(self) -> set[str]:
        return {settings["retention.ms"] for settings in self.sides.values()}


THERE, BACK = ("east", "west"), ("west", "east")


@pytest.mark.parametrize("order", [[(THERE, BACK)], [(THERE,), (BACK,)], [(BACK,), (THERE,)]])
@pytest.mark.parametrize("side", ["east", "west"])
def test_a_change_on_either_side_reaches_the_other(
    side: str, order: list[tuple[tuple[str, str], ...]]
) -> None:
    """Whichever link compares first, and also if both do at once: nobody takes the change back."""
    world = World()
    world.compare(THERE, BACK)
    world.sides[side]["retention.ms"] = DAY

    for ways in order * 3:
        world.compare(*ways)

    assert world.retention() == {DAY}


@pytest.mark.parametrize("order", [[(THERE, BACK)], [(THERE,), (BACK,)], [(BACK,), (THERE,)]])
def test_two_sides_that_differ_from_the_start_become_one(order: list[tuple[tuple[str, str], ...]]) -> None:
    """They must not swap for ever; nobody can say whose setting is newer, so the first alias has its way."""
    world = World(east=DAY)

    for ways in order * 3:
        world.compare(*ways)

    assert world.retention() == {DAY}


def test_two_changes_within_a_minute_become_one() -> None:
    """Likewise."""
    world = World()
    world.compare(THERE, BACK)
    world.sides["east"]["retention.ms"], world.sides["west"]["retention.ms"] = DAY, "1"

    for _ in range(3):
        world.compare(THERE, BACK)

    assert world.retention() == {DAY}


def test_a_limit_of_size_is_raised_whoever_looks_first() -> None:
    """It is never lowered, and a record that the source takes must fit."""
    world = World()
    world.sides["west"]["max.message.bytes"] = "2000000"

    for _ in range(3):
        world.compare(THERE, BACK)

    assert int(world.sides["east"]["max.message.bytes"]) >= 2_000_000


def test_what_a_new_copy_was_created_with_is_known() -> None:
    """A change of the source soon after is carried, although nobody has compared before."""
    link = BidirectionalConfigs(BACK_AGAIN, goes_first=False)
    facts = TopicFacts("t", "id", 1, 1)

    def pair(source: str, target: str | None) -> TopicPair:
        found = {"retention.ms": ConfigValue(source, is_default=False)}
        if target is None:
            return TopicPair(facts, found, "t")
        return TopicPair(facts, found, "t", facts, {"retention.ms": ConfigValue(target, is_default=False)})

    link.record(pair(WEEK, None), [CreateTopic("t", 1, 1, {"retention.ms": WEEK})])

    now = pair(DAY, WEEK)
    assert link.carried(now, topic_changes(now, brokers=1)) == (
        AlterConfig("t", {"retention.ms": DAY}, {"retention.ms": WEEK}),
    )


def test_a_copy_that_nothing_brings_back_is_kept_in_step() -> None:
    """Of two links with other topics each way, each has its way: a retention that was cut by hand loses records."""
    link = BidirectionalConfigs((TopicFilter(("u",)),), goes_first=False)
    facts = TopicFacts("t", "id", 1, 1)
    week, day = ({"retention.ms": ConfigValue(value, is_default=False)} for value in (WEEK, DAY))
    pair = TopicPair(facts, week, "t", facts, day)
    changes = topic_changes(pair, brokers=1)

    assert len(changes) == 1
    assert link.carried(pair, changes) == changes
