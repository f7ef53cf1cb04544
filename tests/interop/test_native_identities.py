"""
A native lane that has used up the epochs of its producer id, against real brokers.

Under protocol V2 each transaction has an epoch of its own, and a producer id has 32,767 of them: a lane that is behind
goes through all in an hour, one that has caught up in minutes.  The end of the last transaction then gives another
producer id (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror._native import NativeLane
from support.clusters.frames import Api
from support.clusters.rules import CutAfter, Match
from support.traffic.records import create_topic, read_committed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.clusters.rig import Rig

pytestmark = pytest.mark.integration

LAST_EPOCH = 32_766
SECONDS = 30.0


def lane_of(properties: Mapping[str, object], transactional_id: str) -> NativeLane:
    """A lane that only writes."""
    text = {name: str(value) for name, value in properties.items()}
    return NativeLane(
        text,
        text,
        transactional_id=transactional_id,
        transaction_timeout=15.0,
        source_cluster_id="A",
        target_cluster_id="B",
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_commit_that_uses_up_the_epochs_is_found_out_like_any_other(rig: Rig, topic_name: str) -> None:
    """EO-8: every commit's answer is lost, that of the last epoch too, and each record is there once."""
    side = rig.target
    create_topic(side.direct, topic_name)
    lane = lane_of(side.direct, topic_name)
    _, epoch = lane.open(SECONDS)
    while epoch < LAST_EPOCH - 10:
        _, epoch = lane.begin(SECONDS)
        # an empty transaction takes an epoch as well, and one round trip
        assert lane.abort(SECONDS)
    lane.close()

    lane = lane_of({**side.proxied, "socket.timeout.ms": "5000"}, topic_name)
    first, _ = lane.open(SECONDS)
    identities = []
    for number in range(20):
        identities.append(lane.begin(SECONDS))
        lane.write([(topic_name, 0, b"k", b"%d" % number)], 1_700_000_000_000 + number)
        lane.settle(SECONDS)
        side.proxy.arm("cut", CutAfter(match=Match(api_key=Api.END_TXN)))
        lane.commit(SECONDS)
    lane.close()

    assert (first, LAST_EPOCH) in identities
    # it goes on under another producer id, from epoch 0
    later = [identity for identity in identities if identity[0] != first]
    assert [epoch for _, epoch in later] == list(range(len(later)))
    assert later
    assert len({producer_id for producer_id, _ in identities}) == 2
    values = [value for _, value, _, _ in read_committed(side.direct, topic_name)[0]]
    assert values == [b"%d" % number for number in range(20)]
