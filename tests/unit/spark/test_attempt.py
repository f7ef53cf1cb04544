"""Attempt after attempt of a lane in one process."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import eomirror.spark.attempt
from eomirror.lane.spec import Ending, LaneReport
from eomirror.spark.attempt import run_lane
from eomirror.spark.handover import ParkedLane, Parking
from support.fakes.lane_fakes import ORDERS, spec

if TYPE_CHECKING:
    import pytest

# Python's own limit of calls within calls is 1,000
EPOCHS = 1_200


class FakePump:
    """Each epoch ends as it should, but for the last."""

    def __init__(self, mirrored: Any) -> None:
        self.mirrored = mirrored
        self.generation = 2
        self.endings = [Ending.EPOCH] * EPOCHS + [Ending.STOPPED]
        self.resumed = 0

    def resume(self, *_: Any) -> None:
        self.resumed += 1

    def extend(self, *_: Any) -> None:
        self.endings.insert(0, Ending.EPOCH)

    def run(self) -> LaneReport:
        return LaneReport(lane=0, epoch=1, attempt=1, ending=self.endings.pop(0))


def test_a_lane_that_went_on_for_very_many_epochs_is_closed_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, at its end; with epochs of five minutes these are four days."""
    closed: list[str] = []
    mailbox: Any = SimpleNamespace(close=lambda: None)
    first = spec(ORDERS)
    pump: Any = FakePump(first.partitions)

    def build(lane: Any, _mailbox: Any, _clock: Any, clients: Any) -> ParkedLane:
        clients.callback(closed.append, "closed")
        return ParkedLane(lane, pump, mailbox, clients.close)

    monkeypatch.setattr(eomirror.spark.attempt, "_build", build)
    monkeypatch.setattr(eomirror.spark.attempt, "_PARKING", Parking())

    reports = [run_lane(replace(first, epoch=1 + number), mailbox) for number in range(EPOCHS + 1)]

    assert reports[-1].ending is Ending.STOPPED
    assert [report.continues for report in reports] == [True] * EPOCHS + [False]
    assert pump.resumed == EPOCHS
    assert closed == ["closed"]
