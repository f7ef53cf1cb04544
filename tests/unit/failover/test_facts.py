"""Partitions that have a cut."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror import load_config
from eomirror.failover.facts import mirrored
from eomirror.records.control import ControlView, Generation
from eomirror.types import Assignment, SourcePartition
from support.lane_fakes import position

ORDERS, PARKED, BEATS = (SourcePartition(topic, 0) for topic in ("orders", "parked", "heartbeats"))


@pytest.mark.parametrize(
    ("settings", "expected"), [({"heartbeats": "source"}, {ORDERS}), ({"topics": [".*"]}, {ORDERS, BEATS})]
)
def test_a_topic_that_left_the_filter_and_our_own_heartbeats_have_no_cut(
    settings: dict[str, Any], expected: set[SourcePartition]
) -> None:
    """The mirror writes heartbeats to the source while it runs, so that topic never stands still."""
    link = {"source": "east", "target": "west", "topics": ["orders"], **settings}
    clusters = {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:2"}}
    (chosen,) = load_config({"clusters": clusters, "links": [link]}).links
    generation = Generation(
        generation=3, revision=0, run="r", highest_lane=0,
        assignment=Assignment(1, {ORDERS: 0, BEATS: 0}, frozenset({PARKED})), timestamp=1,
    )  # fmt: skip
    positions = {source: position(source, 9) for source in (ORDERS, PARKED, BEATS)}

    assert set(mirrored(chosen, positions, ControlView(generation))) == expected
    assert mirrored(chosen, positions, ControlView()) == {}
