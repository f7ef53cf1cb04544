"""Equal names there and back, by links that know nothing of each other: in two processes, or one after the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import Mirror, load_config
from eomirror.errors import TopicError
from eomirror.types import SourcePartition
from support.links.mirrors import running
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_RECORDS = 200


class BothSides:
    """One topic of the same name on both clusters, and mirrors of links between them."""

    def __init__(self, east: Mapping[str, Any], west: Mapping[str, Any], topic: str, spark: Any) -> None:
        self.clusters = {"east": dict(east), "west": dict(west)}
        self.topic, self._spark = topic, spark
        for properties in self.clusters.values():
            create_topic(properties, topic)

    def link(self, way: str) -> str:
        return f"{self.topic}-{way.replace('>', '-')}"

    def mirror(self, *ways: str, run: str = "", **options: Any) -> Mirror:
        """Of a file with these links, such as ``east>west``; ``run`` is the one to run, of several."""
        settings = options.pop("settings", {})
        links = []
        for way in ways:
            source, target = way.split(">")
            links.append(
                {"name": self.link(way), "source": source, "target": target, "topics": [self.topic],
                 "naming": "identity", "lanes": 1, "plane": plane_under_test(), **settings}
            )  # fmt: skip
        config = load_config({"clusters": self.clusters, "links": links})
        chosen = [self.link(run)] if run else []
        return Mirror(config, spark=self._spark, links=chosen, **options)

    def write(self, side: str, seed: int) -> list[Any]:
        written = produce(
            self.clusters[side], self.topic, 1, some_records(seed, _RECORDS), transactional_id=f"{self.topic}-{side}"
        )  # fmt: skip
        return written[0]

    def records(self, side: str) -> list[Any]:
        return read_committed(self.clusters[side], self.topic).get(0, [])


@pytest.fixture
def both(east: Any, west: Any, topic_name: str, spark_context: Any) -> BothSides:
    return BothSides(east.client_properties, west.client_properties, topic_name, spark_context)


def in_order(*parts: list[Any]) -> list[Any]:
    return sorted((record for part in parts for record in part), key=repr)


def test_two_files_with_a_link_each_do_not_carry_records_round_for_ever(both: BothSides) -> None:
    """Neither would mark what it copies; the second to come finds the first at work, and says what to do."""
    east, west = both.write("east", 1), both.write("west", 2)

    # one way only, as far as this file tells: the records of west's applications are meant to stay beside the copies
    with running(both.mirror("east>west", into_filled=True)):
        wait_for(lambda: len(both.records("west")) >= 2 * _RECORDS, 90)
        with pytest.raises(TopicError, match="cycle for ever"):
            both.mirror("west>east").run(until=30.0)
        # a record that goes round comes back within a few commits
        time.sleep(2.0)

    assert in_order(both.records("east")) == in_order(east)
    assert in_order(both.records("west")) == in_order(east, west)


def test_a_way_back_that_is_added_later_does_not_bring_back_what_nothing_marks(both: BothSides) -> None:
    """What was copied one way has no header: the way back begins behind it, and then nothing comes twice."""
    east = both.write("east", 3)
    both.mirror("east>west").run(until="caught-up")
    west = both.write("west", 4)
    ways = ("east>west", "west>east")

    with pytest.raises(TopicError, match="nothing marks these copies") as refused:
        both.mirror(*ways, run="west>east").run(until="caught-up")
    behind = int(str(refused.value).split(f"--resume-at {both.topic}-0=")[1].split(",")[0])
    again = {SourcePartition(both.topic, 0): behind}
    both.mirror(*ways, run="west>east", adopt=again).run(until="caught-up")
    both.mirror(*ways).run(until="caught-up")

    for side in ("east", "west"):
        assert in_order(both.records(side)) == in_order(east, west)


@pytest.mark.slow
def test_a_way_back_may_begin_at_the_end(both: BothSides) -> None:
    """`start: latest` leaves out what was there, marked or not, and what comes then is marked."""
    east = both.write("east", 5)
    both.mirror("east>west").run(until="caught-up")
    ways = ("east>west", "west>east")

    with running(both.mirror(*ways, settings={"start": "latest"})):
        wait_for(lambda: f"eomirror.{both.link('west>east')}.control" in topics(both.clusters["east"]), 60)
        time.sleep(5.0)
        more, west = both.write("east", 6), both.write("west", 7)
        wait_for(lambda: len(both.records("east")) >= 3 * _RECORDS, 60)
        wait_for(lambda: len(both.records("west")) >= 3 * _RECORDS, 60)
        time.sleep(2.0)

    for side in ("east", "west"):
        assert in_order(both.records(side)) == in_order(east, more, west)


@pytest.mark.slow
def test_a_way_back_that_was_left_out_for_a_while_brings_nothing_back(both: BothSides) -> None:
    """Copies that were made meanwhile are marked like those before, although the file knew of no way back."""
    ways = ("east>west", "west>east")
    east = both.write("east", 8)
    both.mirror(*ways).run(until="caught-up")
    more = both.write("east", 9)
    both.mirror("east>west").run(until="caught-up")
    west = both.write("west", 10)
    both.mirror(*ways).run(until="caught-up")

    for side in ("east", "west"):
        assert in_order(both.records(side)) == in_order(east, more, west)


def topics(properties: Mapping[str, Any]) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient(dict(properties)).list_topics(timeout=10).topics)
