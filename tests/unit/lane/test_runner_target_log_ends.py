"""What a lane does when copies have lost what the target had acknowledged (EO-5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.errors import DataLossError
from eomirror.lane.spec import Ending
from eomirror.recovery.resume import copy_cut_error
from support.fakes.lane_fakes import ORDERS, PAYMENTS
from support.fakes.runner_rig import Rig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.position import Position
    from eomirror.types import SourcePartition


class Watch:
    """Finds what a test says."""

    def __init__(self) -> None:
        self.found: list[DataLossError] = []
        self.looked: list[Mapping[SourcePartition, Position]] = []

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        self.looked.append(dict(positions))

    def take(self) -> list[DataLossError]:
        found, self.found = self.found, []
        return found


def knowing(rig: Rig, last: int) -> None:
    """All copies have a record at this offset."""
    rig.state.positions = {
        source: replace(one, target_offset=last, records=1) for source, one in rig.state.positions.items()
    }


def test_a_transaction_behind_a_cut_copy_is_aborted_and_its_topics_stop() -> None:
    """Nothing of it commits; each topic that lost records stops with exit code 4, and the others go on."""
    rig = Rig(orders=10, payments=3)
    knowing(rig, 40)
    rig.plane.fetches = [{ORDERS: 5, PAYMENTS: 2}]
    rig.plane.firsts = {ORDERS: 30, PAYMENTS: 42}

    report = rig.run()

    assert report.ending is Ending.REBUILD
    assert {topic: stop.exit_code for topic, stop in report.stopped_topics.items()} == {"orders": 4}
    assert "records [30, 40]" in report.stopped_topics["orders"].reason
    assert rig.plane.calls[-2:] == ["flush", "abort"]


def test_a_copy_that_is_cut_while_the_lane_rests_stops_its_topic() -> None:
    """Found by the watch; the lane ends its attempt, with nothing open."""
    watch = Watch()
    rig = Rig(copies=watch, orders=10, payments=3)
    knowing(rig, 40)
    watch.found = [copy_cut_error(rig.state.positions[ORDERS], 12)]

    report = rig.run()

    assert report.ending is Ending.REBUILD
    assert {topic: stop.exit_code for topic, stop in report.stopped_topics.items()} == {"orders": 4}
    assert rig.plane.calls == ["open", "begin", "commit"]


def test_what_is_found_of_a_topic_that_is_stopped_already_ends_no_attempt() -> None:
    """Its positions were dropped while the look was under way."""
    watch = Watch()
    rig = Rig(copies=watch, orders=10)
    error = copy_cut_error(replace(rig.state.positions[ORDERS], target_offset=40), 12)
    watch.found = [DataLossError(error.message, topic="another")]

    assert rig.run().ending is Ending.STOPPED
    assert watch.looked[0].keys() == {ORDERS}
