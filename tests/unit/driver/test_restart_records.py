"""Restarts and protocols of lanes reach control with the next renewal: once, without secrets, again after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Link, Secret
from eomirror.driver.channel import AttemptId
from eomirror.driver.outage_records import LaneRecords
from eomirror.lane.spec import LaneSpec
from eomirror.records.events import link_events
from eomirror.records.reports import LaneRestarts, decode_reports
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.plane.protocol import MetadataRecord


class Control:
    """The control topic."""

    def __init__(self) -> None:
        self.log: list[MetadataRecord] = []
        self.fails = False

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        if self.fails:
            raise OSError("the target is away")
        self.log += records

    @property
    def restarts(self) -> dict[int, LaneRestarts]:
        found = decode_reports((record.key, record.value) for record in self.log)
        return {one.lane: one for one in found.restarts}


def records() -> LaneRecords:
    """Those of one run, whose source has a password."""
    spec: Any = LaneSpec(
        link=Link(name="a->b", source="a", target="b", topics=(".*",)),
        source=Cluster("a", {"sasl.password": Secret("hunter2")}), target=Cluster("b", {}),
        source_cluster_id="", target_cluster_id="", run="r7", generation=0, lane=0, epoch=0, attempt=0,
        seconds=1.0, partitions=(),
    )  # fmt: skip
    return LaneRecords(spec, PlayedClock(100.0))


def test_restarts_are_counted_by_kind_with_the_last_reason() -> None:
    """One record for each lane, however often it restarted since the last renewal."""
    made, control = records(), Control()
    made.ended(1, "rebuild", "first")
    made.ended(1, "worker died", "second")
    made.ended(0, "rebuild", "other lane")
    made.write(control.commit)
    assert len(control.log) == 2
    assert control.log[0].topic == "eomirror.a.b.control"
    assert control.restarts[1] == LaneRestarts(
        lane=1, count=2, endings={"rebuild": 1, "worker died": 1}, ending="worker died", reason="second", run="r7",
        timestamp=100_000,
    )  # fmt: skip


def test_it_is_written_once_and_again_when_that_failed() -> None:
    """What was not committed is due again; what was, is not."""
    made, control = records(), Control()
    made.ended(0, "rebuild", "why")
    control.fails = True
    with pytest.raises(OSError, match="away"):
        made.write(control.commit)
    control.fails = False
    made.write(control.commit)
    made.write(control.commit)
    assert len(control.log) == 1
    made.ended(0, "rebuild", "why")
    made.write(control.commit)
    assert control.restarts[0].count == 2


def test_a_reason_with_a_secret_is_hidden() -> None:
    """Control is read by everyone who may read the target."""
    made, control = records(), Control()
    made.ended(0, "failed", "no such user: hunter2")
    made.write(control.commit)
    assert b"hunter2" not in (control.log[0].value or b"")
    assert "secret" in control.restarts[0].reason


def events(control: Control) -> list[str]:
    """The timeline."""
    records = [(record.key, record.value, 100_000) for record in control.log]
    found = link_events(records, ())
    assert {event.kind for event in found} <= {"protocol"}
    return [event.text for event in found]


def test_a_change_of_the_transaction_protocol_is_an_event_and_none_is_lost() -> None:
    """The first one is no change; both lanes change in a millisecond; an earlier attempt may still report."""
    made, control = records(), Control()
    for lane in (0, 1):
        for epoch, protocol in ((1, ""), (1, "V1"), (1, "V1"), (2, "V2"), (1, "V1"), (2, "V2"), (2, "")):
            made.uses(AttemptId("a->b", lane, epoch, 1), protocol)
    control.fails = True
    with pytest.raises(OSError, match="away"):
        made.write(control.commit)
    control.fails = False
    made.write(control.commit)
    made.write(control.commit)
    assert events(control) == [
        f"lane {lane} uses transaction protocol V2 instead of V1: transaction.version of b has changed"
        for lane in (0, 1)
    ]
