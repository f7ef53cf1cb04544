"""A drain says what it waits for: records that still arrive, or the mirror; and nothing if it ends at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.failover import promotion
from eomirror.failover.drain import DrainLook, DrainProgress
from eomirror.failover.machine import StepOutcome, Verb
from eomirror.failover.promotion import PromotionOptions, _Run
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock
from support.links.one_link import CONFIG

ONE, TWO, THREE = (SourcePartition("orders", number) for number in range(3))


def look(*ends: int, behind: int = 0) -> DrainLook:
    there = dict(zip((ONE, TWO, THREE), ends, strict=False))
    cuts: Any = (SimpleNamespace(source=ONE, position=ends[0] - behind),) if behind else ()
    return DrainLook(there, cuts, ())


def test_records_that_arrive_are_named_at_once_and_then_every_few_seconds() -> None:
    """With the rate, the partitions and the time that is left."""
    progress = DrainProgress(by_user=True)

    assert progress.told(look(10, 20, 30), 0.0, 60) == ""
    assert progress.told(look(20, 30, 40), 0.1, 60) == (
        "stop the producers now: records still arrive in orders-0, orders-1 and 1 more (300/s), 60 s left"
    )
    assert progress.told(look(30, 40, 50), 1.0, 59) == ""
    assert "(20/s), 55 s left" in progress.told(look(120, 30, 40), 5.2, 55)


def test_a_source_that_stands_still_waits_for_the_mirror() -> None:
    """That is said after some seconds, with the offsets to go; and not that producers were to be stopped."""
    progress = DrainProgress(by_user=True)

    assert progress.told(look(10, behind=4), 0.0, 60) == ""
    assert progress.told(look(10, behind=4), 1.0, 59) == ""
    assert progress.told(look(10, behind=4), 6.0, 54) == (
        "the source stands still, and the mirror has 4 offsets to go, 54 s left"
    )
    assert progress.told(look(10), 12.0, 48) == ""


def test_a_fence_stops_the_producers_itself() -> None:
    """What arrives then was in flight."""
    progress = DrainProgress(by_user=False)
    progress.told(look(10), 0.0, 60)

    assert progress.told(look(12), 0.1, 60) == "records still arrive in orders-0 (20/s), 60 s left"


@pytest.mark.parametrize(("stops", "pause"), [(False, 0.7), (True, 3.0)])
def test_the_pause_of_a_cutover_that_waits_begins_with_the_last_record(
    monkeypatch: pytest.MonkeyPatch, *, stops: bool, pause: float
) -> None:
    """A fence begins it: applications cannot write from there on."""
    clock, said = PlayedClock(), list[str]()
    fence: Any = SimpleNamespace(stops=stops, fence=lambda: None)
    run = _Run(
        CONFIG, None, Verb.CUTOVER, PromotionOptions(fence=fence), on_event=said.append,
        clock=clock,
    )  # fmt: skip
    looks = iter([*(look(each) for each in range(10, 34)), *[look(34)] * 99])
    monkeypatch.setattr(run._source, "look", lambda: next(looks))
    monkeypatch.setattr(promotion, "crash_point", lambda _: None)

    assert run._fence() is StepOutcome.DONE
    assert run._drain() is StepOutcome.DONE
    run.close()

    assert run._times.silent_at is not None
    assert clock.now - run._times.silent_at == pytest.approx(pause, abs=0.11)
    asks = any(each.startswith("stop the applications that write to east now") for each in said)
    assert asks is not stops
    assert ("stopping the applications that write to the source" in said) is stops
