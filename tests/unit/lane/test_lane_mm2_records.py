"""What goes with a transaction for MM2's readers, and where it goes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror._native import encode_offset_map
from eomirror.lane.mm2_records import TAIL_SECONDS, Mm2Records
from eomirror.lane.spec import GroupOffset
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.mm2 import Mm2Names, OffsetSync
from support.fakes.lane_fakes import ORDERS, account, position

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sink:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[OffsetSync] = []

    def send(self, syncs: Sequence[OffsetSync]) -> None:
        self.sent.extend(syncs)

    def close(self) -> None:
        pass


def companions(place: str, sink: Sink | None = None) -> Mm2Records:
    link: Any = SimpleNamespace(
        mm2_names=Mm2Names(), offset_syncs=place, source="east", target="west", groups=()
    )
    return Mm2Records(link, sink)


def permit(*ranges: tuple[int, int, int]) -> Any:
    first, _, _ = ranges[0]
    chunk = encode_offset_map("east.orders", ORDERS.partition, list(ranges))
    return SimpleNamespace(
        chunks=(replace(account(ORDERS, first, 1), offset_map=chunk, ranges=ranges),), positions=()
    )


IDS: Any = ({}, {})
EMPTY: Any = SimpleNamespace(chunks=(), positions=())


def test_a_sync_goes_into_the_transaction_of_its_record() -> None:
    """KIP-716's place on the target, partition 0, bytes as MM2 writes them."""
    sync = OffsetSync(ORDERS.topic, ORDERS.partition, 12, 41)

    assert companions("target").plan(permit((10, 39, 3)), {}, IDS, 0.0).records == [
        MetadataRecord("mm2-offset-syncs.east.internal", 0, sync.key(), sync.value())
    ]


def test_on_the_source_it_waits_for_the_commit() -> None:
    """Never ahead of the record that it names: an aborted transaction sends nothing."""
    sink = Sink()
    lane = companions("source", sink)
    plan = lane.plan(permit((10, 39, 3)), {}, IDS, 0.0)

    assert plan.records == []
    assert sink.sent == []
    lane.aborted()
    lane.committed(lane.plan(permit((10, 39, 3)), {}, IDS, 0.0))
    assert [(sync.upstream, sync.downstream) for sync in sink.sent] == [(12, 41)]


@pytest.mark.parametrize("place", ["target", "source"])
def test_a_quiet_lane_syncs_what_is_left_over_once(place: str) -> None:
    """The transaction for it is due a second after the last one, and only while something is left."""
    lane = companions(place, Sink())
    lane.committed(lane.plan(permit((0, 0, 1)), {}, IDS, 0.0))
    lane.committed(lane.plan(permit((1, 1, 1)), {}, IDS, 0.0))

    assert not lane.due(50.0)
    assert not lane.due(50.0 + TAIL_SECONDS / 2)
    assert lane.due(50.0 + TAIL_SECONDS)
    plan = lane.plan(EMPTY, {}, IDS, 0.0)
    assert [(sync.upstream, sync.downstream) for sync in plan.syncs] == [(1, 1)]
    lane.committed(plan)
    assert not lane.due(60.0)


def test_a_caught_up_lane_pays_for_syncs_once_a_second() -> None:
    """What is due in between is owed, and written with the next transaction that pays; a large one always does."""
    lane = companions("target")

    def commit(now: float, *ranges: tuple[int, int, int]) -> list[tuple[int, int]]:
        plan = lane.plan(permit(*ranges), {}, IDS, now)
        lane.committed(plan)
        return [(sync.upstream, sync.downstream) for sync in plan.syncs]

    assert commit(0.0, (0, 0, 1)) == [(0, 0)]
    assert commit(0.1, (5, 1, 1)) == []
    assert commit(0.2, (6, 2, 1)) == []
    assert commit(TAIL_SECONDS, (7, 3, 1)) == [(7, 3)]
    assert commit(TAIL_SECONDS + 0.1, (8, 4, 2_000)) == [(2_007, 2_003)]


@pytest.mark.parametrize("guard", [False, True])
def test_no_checkpoints_where_equal_names_are_written_on_both_sides(guard: bool) -> None:
    """One link's map cannot say there where a consumer goes on, and Java's client asks no other map."""
    link: Any = SimpleNamespace(
        mm2_names=Mm2Names(), offset_syncs="off", source="east", target="west", groups=(".*",), guard=guard
    )

    assert Mm2Records(link).follows is not guard


def test_a_checkpoint_that_cannot_be_written_is_tried_less_and_less() -> None:
    """The copy of an idle lane was replaced (EO-5): no transaction every 0.2 s, and news of a group begins anew."""
    link: Any = SimpleNamespace(
        mm2_names=Mm2Names(), offset_syncs="off", source="east", target="west", groups=(".*",), guard=False
    )
    lane, positions = Mm2Records(link), {ORDERS: position(ORDERS, 100, target_offset=50)}
    lane.update((GroupOffset("g", ORDERS, 100),), positions)

    def tries(start: float, seconds: float) -> int:
        count = 0
        for tenth in range(int(seconds * 10)):
            now = start + tenth / 10
            if tenth % 50 == 0:
                # the driver says again what is not confirmed
                lane.update((GroupOffset("g", ORDERS, 100),), positions)
            if lane.due(now):
                lane.committed(lane.plan(EMPTY, positions, IDS, now))
                count += 1
        return count

    assert tries(0.0, 60.0) <= 10
    assert tries(60.0, 300.0) <= 10
    lane.update((GroupOffset("h", ORDERS, 100),), positions)
    assert tries(400.0, 1.0) >= 1


def test_off_means_nothing_is_written() -> None:
    """Nor is there ever a transaction for it."""
    lane = companions("off")
    lane.committed(lane.plan(permit((0, 0, 1)), {}, IDS, 0.0))

    assert lane.plan(permit((9, 9, 1)), {}, IDS, 0.0).records == []
    assert not lane.due(1e9)
