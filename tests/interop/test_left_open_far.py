"""What stands behind a position in a copy that others write to as well, over a way that is too slow for all of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from eomirror._native import HangingTransactionClient
from support.clusters.frames import Api
from support.clusters.rules import Hold, Match
from support.traffic.records import create_topic, produce

if TYPE_CHECKING:
    from support.clusters.rig import Rig

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

NO_PRODUCER = {-7}
MOST = 1_000_000_000


def test_what_others_wrote_behind_a_position_keeps_no_lane_from_starting(rig: Rig, topic_name: str) -> None:
    """What was looked at in time is the answer: an error would come again with every attempt."""
    side = rig.target
    create_topic(side.direct, topic_name)
    # more than one answer holds
    records = [(None, b"v" * 100_000, 1_700_000_000_000, ())] * 60
    produce(side.direct, topic_name, 1, records, transactional_id=topic_name, abort_every=0)
    properties = {name: str(value) for name, value in side.proxied.items()}
    client = HangingTransactionClient(properties)
    side.proxy.arm("slow", Hold(match=Match(api_key=Api.FETCH), nth=2, cut=False))
    started = time.monotonic()
    try:
        assert not client.has_committed_behind((topic_name, 0, 0), NO_PRODUCER, MOST, 2.0)
    finally:
        side.proxy.disarm("slow")

    assert side.proxy.events("held", "slow")
    assert time.monotonic() - started < 10
