"""A lane that is behind, and whose transactions may stay open for long: it is asked to leave within one of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from eomirror.lane.spec import Ending, LaneSpec, StopReason
from eomirror.plane.protocol import Pumped
from eomirror.spark.handover import HAND_OVER_SECONDS
from support.fakes.lane_fakes import ORDERS, FakePlane, served_by, spec
from support.fakes.runner_rig import Rig

if TYPE_CHECKING:
    import pytest

    from eomirror.clock import Clock

_INTERVAL = 60.0


class Behind(FakePlane):
    """As the native plane does: it takes what comes for as long as it may, and there is always more."""

    def pump(self, seconds: float) -> Pumped:
        """All of the time that it is given."""
        self.clock.sleep(seconds)
        first, count = self._open.get(ORDERS, (self.next[ORDERS], 0))
        self._open[ORDERS] = (first, count + 1)
        self.next[ORDERS] += 1
        return Pumped(1, 10, drained=False)


class Asked:
    """Asks the lane to leave when it is time."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def stop(self) -> StopReason | None:
        """Not before."""
        return StopReason.SHUTDOWN if self.passed else None

    @property
    def passed(self) -> bool:
        """The same, for the task that goes on behind an epoch."""
        return self.since >= 0

    @property
    def since(self) -> float:
        """How long ago it asked."""
        return self._clock.monotonic() - self._at


def behind(seconds: float) -> Rig:
    """A lane that is behind, in epochs of so many seconds."""
    lane: LaneSpec = spec(ORDERS, seconds=seconds)
    link = SimpleNamespace(**{**vars(lane.link), "commit_interval": _INTERVAL, "transaction_timeout": 300.0})
    rig = Rig(replace(lane, link=link))  # type: ignore[arg-type]
    plane = Behind(rig.clock, fetches=[{ORDERS: 1}])
    rig.plane = rig.pump._transaction.plane = plane
    rig.pump._transaction._planes = served_by(plane)
    return rig


def test_a_stop_does_not_wait_for_the_end_of_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-8: a supervisor that stops a mirror waits for five seconds, and cuts off what has not ended by then."""
    rig = behind(seconds=1_000.0)
    asked = Asked(rig.clock, 5.0)
    monkeypatch.setattr(rig.mailbox, "stop", asked.stop)

    report = rig.pump.run()

    assert (report.ending, report.transactions) == (Ending.STOPPED, 1)
    assert asked.since < 1.0


def test_a_successor_does_not_wait_for_the_end_of_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-2: it waits for two seconds; then it fences the lane, and what is open is sent again by clients made anew."""
    rig = behind(seconds=1.0)
    monkeypatch.setattr(rig.mailbox, "stop", lambda: None)
    assert rig.pump.run().ending is Ending.EPOCH
    asked = Asked(rig.clock, 0.5)

    rig.pump.extend(asked)
    report = rig.pump.run()

    assert report.ending is Ending.EPOCH
    assert rig.plane.calls[-3:] == ["begin", "flush", "commit"]
    assert asked.since < HAND_OVER_SECONDS / 2
