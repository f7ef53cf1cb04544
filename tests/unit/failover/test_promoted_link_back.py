"""The link back: found in the configuration, or told as the entry to add, which then is found."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from eomirror import UsageError, load_config
from eomirror.failover.orphans import orphan_ranges
from eomirror.failover.promoted_link import back_link, begins, merged, returns
from eomirror.records.promotion import Cut, Promotion
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import position

CLUSTERS = {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:2"}}


def promotion(**copies: str) -> Promotion:
    """A promotion of one partition of each topic, whose name has a dot for each ``__``."""
    cuts = tuple(
        Cut(
            topic=topic.replace("__", "."), partition=0, topic_id="t", position=100,
            target_topic=copy, target_topic_id="u", target_end=90, timestamp=1,
        )
        for topic, copy in copies.items()
    )  # fmt: skip
    return Promotion(
        number=1, planned=False, run="r", host="h", generation=4, source_cluster_id="a", target_cluster_id="b",
        cuts=cuts, started=1, timestamp=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "copies"),
    [
        ({"topics": ["orders", "pay.*"]}, {"orders": "east.orders", "pay__eu": "east.pay.eu"}),
        ({"topics": ["orders", "pay.*"], "naming": "identity"}, {"orders": "orders", "pay__eu": "pay.eu"}),
        ({"topics": ["orders"], "naming": {"map": {"orders": "orders-copy"}}}, {"orders": "orders-copy"}),
        ({"topics": ["o.*"], "naming": {"pattern": "{source}_{topic}"}}, {"o__a": "east_o.a"}),
    ],
)
def test_the_entry_of_the_error_is_a_link_back(settings: dict[str, Any], copies: dict[str, str]) -> None:
    """For every naming; the user pastes it, and the command goes on."""
    there = {"source": "east", "target": "west", **settings}
    config = load_config({"clusters": CLUSTERS, "links": [there]})
    with pytest.raises(UsageError) as raised:
        back_link(config, config.links[0], promotion(**copies))
    entry = yaml.safe_load(raised.value.fix.partition("repeat the command: ")[2])

    both = load_config({"clusters": CLUSTERS, "links": [there, entry]})

    found = back_link(both, both.links[0], promotion(**copies))
    assert (found.source, found.target) == ("west", "east")
    # both mark what they copy, so that merged orphans do not return
    assert all(link.guard and link.provenance_header for link in both.links)


def test_a_link_back_for_some_of_the_topics_is_none() -> None:
    """A topic that it leaves out would silently stay behind."""
    there = {"source": "east", "target": "west", "topics": ["orders", "pay"], "naming": "identity"}
    back = {"source": "west", "target": "east", "topics": ["orders"], "naming": "identity"}
    config = load_config({"clusters": CLUSTERS, "links": [there, back]})

    assert back_link(config, config.links[0], promotion(orders="orders")) is config.links[1]
    with pytest.raises(UsageError, match="mirrors pay from west back to east"):
        back_link(config, config.links[0], promotion(orders="orders", pay="pay"))


def test_the_link_back_begins_at_the_cut_and_orphans_are_beyond_it() -> None:
    """Ends of the copies on one side, ends of the source on the other."""
    made = promotion(orders="east.orders")

    assert begins(made) == {SourcePartition("east.orders", 0): 90}
    assert orphan_ranges(made, {SourcePartition("orders", 0): 100}) == []
    (found,) = orphan_ranges(made, {SourcePartition("orders", 0): 130})
    assert (found.start, found.end) == (100, 130)


@pytest.mark.parametrize(("reached", "start"), [({}, 90), ({"orders": 95}, 95), ({"orders": 70}, 90)])
def test_a_link_returns_behind_what_a_merge_has_mirrored(reached: dict[str, int], start: int) -> None:
    """Else it would mirror that once more: the end of the copy at the cut is before it."""
    back = promotion(east__orders="orders")

    found = returns(back, {SourcePartition(topic, 0): offset for topic, offset in reached.items()})

    assert found == {SourcePartition("orders", 0): start}


def test_a_merge_is_known_by_the_generation_of_its_positions() -> None:
    """Only a merge writes positions of a promoted link."""
    orders = SourcePartition("orders", 0)
    ended = promotion(orders="east.orders")

    assert merged(ended, {orders: position(orders, 95, generation=5)}) == {orders: 95}
    assert merged(ended, {orders: position(orders, 95, generation=4)}) == {}
