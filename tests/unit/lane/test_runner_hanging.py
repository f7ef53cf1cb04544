"""A pump that looks for what earlier transactions left open; what it decides is in test_mending."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eomirror.lane.spec import Ending
from eomirror.records.names import LinkNames
from eomirror.recovery.hanging import OpenRange
from eomirror.recovery.resolve_hanging import HangingResolver
from support.fakes.lane_fakes import ORDERS, PAYMENTS, FakeMailbox, position, spec
from support.fakes.runner_rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


class FakeLeftovers:
    """A target on which one transaction is open, until it is ended."""

    def __init__(self, found: OpenRange) -> None:
        self.found = found
        self.ended: list[tuple[int | None, list[tuple[str, int]], bool]] = []

    def open(self, partitions: Collection[tuple[str, int]]) -> list[OpenRange]:
        """It, where its partition is asked about."""
        return [] if self.ended or self.found.where not in partitions else [self.found]

    def record_states(self, _: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], Any]:
        """No coordinator can tell."""
        return {}

    def committed_behind(self, *_: Any) -> frozenset[tuple[str, int]]:
        """Nothing."""
        return frozenset()

    def lanes(self, _: int) -> dict[int, int]:
        """Of our lane alone."""
        return {self.found.producer_id: 0}

    def release(self) -> None:
        """As it is."""

    def end(
        self, lane: int | None, partitions: Collection[tuple[str, int]], *, commit: bool, **_: Any
    ) -> Any:
        """Note it."""
        self.ended.append((lane, list(partitions), commit))


def looking(rig: Rig, make: Callable[[int], OpenRange]) -> FakeLeftovers:
    """Have the pump look."""
    hanging_client = FakeLeftovers(make(7))
    start: Any = rig.pump._start
    start._hanging_client, start._resolver = hanging_client, HangingResolver(LinkNames("l"), hanging_client)
    return hanging_client


def test_what_is_open_in_the_copy_of_an_added_partition_is_ended_before_it_is_fetched() -> None:
    """Its topic was stopped while its copy had no leader, which is when markers are left out; now it is given back."""
    rig = Rig(spec(ORDERS, seconds=0.2))
    added = position(PAYMENTS, 7)
    hanging_client = looking(
        rig,
        lambda producer_id: OpenRange(
            topic=added.target_topic, partition=added.target_partition, producer_id=producer_id, epoch=3,
            start=1_000, end=1_005,
        ),
    )  # fmt: skip
    rig.mailbox.idle_looks = 10
    assert rig.run().ending is Ending.EPOCH
    assert not hanging_client.ended

    rig.plane.fetches = [{PAYMENTS: 2}]
    rig.state.positions[PAYMENTS] = added
    rig.pump.resume(replace(spec(ORDERS, PAYMENTS), epoch=2), FakeMailbox(rig.plane))
    report = rig.pump.run()

    assert report.ending is Ending.STOPPED
    assert hanging_client.ended == [(0, [(added.target_topic, added.target_partition)], False)]
    assert rig.plane.calls.count("open") == 2
