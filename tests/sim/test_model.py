"""
The real lane on a simulated Kafka, schedule after schedule (issue 4, point 5).

EOMIRROR_SIM_SCHEDULES says how many; more than the default print their progress.  A failure prints its seed
and a shrunk trace.  What the model leaves out stands in `UNREACHABLE` and in the module docstrings.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from sim_rules import BrokenRuleError
from sim_shrink import broken_rule, report, shrink
from sim_world import Choices, World

from eomirror.lane.machine import TRANSITIONS, Event, LaneState

if TYPE_CHECKING:
    from collections.abc import Iterator

# 20,000 would take one core well over 75 s: about 5 ms of CPU each
# CI's share of the stage's six minutes; every arrow is asked for from `_COVERING` on
_DEFAULT = 5_000
_COVERING = 15_000
# in one schedule of so many, the target refuses some records
_POISONED = 4
_ACTIONS = 60
_MUTANT_ACTIONS = 120
# an end for a mutant that is never found; the slowest takes half a minute on a busy machine
_MUTANT_SECONDS = 200.0
_PROGRESS = 10_000

#: Arrows that no schedule can take, and why; every other arrow but those in `RARE` must be taken.
UNREACHABLE = {
    (LaneState.STARTING, Event.FENCED): "InitProducerId without a producer id is never fenced",
    (LaneState.CONTROL, Event.FENCED): "reading control asks the coordinator nothing",
    (LaneState.COMPARING, Event.FENCED): "comparing topics asks the coordinator nothing",
    (LaneState.IDLE, Event.FENCED): "waiting for source records asks the coordinator nothing",
    (LaneState.DISCARDING, Event.FENCED): "an abort never raises: what it could not abort its successor does",
    (LaneState.ABORTING, Event.FENCED): "an abort never raises: what it could not abort its successor does",
}

#: Seeds of schedules that found a defect.
FOUND = (
    # an accepted gap of one partition, while another partition stops the topic: the claim raised KeyError
    1988,
    2976,
    8388,
)

#: Arrows that are possible, but so rare that a run of the default size is not asked for them.
RARE = {
    (
        LaneState.ADOPTING,
        Event.FENCED,
    ): "a zombie must adopt a partition, from a letter of its old owner, between "
    "the first position of a newer generation and its own fencing's notice; none of 66,000 schedules did",
}

MUTATIONS = {
    "suspect taken for clean": {"EO-1"},
    "positions before fencing": {"EO-3"},
    "positions to the stable offset": {"EO-3"},
    "control not read": {"EO-2"},
    "account not checked": {"EO-7"},
    "unknown taken for committed": {"EO-1", "EO-3"},
    # it takes a new producer without reading control, so it may also act for a fenced generation
    "unknown taken for failed": {"EO-2", "EO-3"},
}


def _first_broken(mutation: str) -> tuple[int, list[int], BrokenRuleError] | None:
    deadline = time.monotonic() + _MUTANT_SECONDS
    for seed in _until(deadline):
        choices = Choices(seed)
        try:
            World(choices, mutation=mutation).run(_MUTANT_ACTIONS)
        except BrokenRuleError as error:
            return seed, choices.drawn, error
    return None


def _until(deadline: float) -> Iterator[int]:
    seed = 0
    while time.monotonic() < deadline:
        yield seed
        seed += 1


@pytest.mark.timeout(0)
def test_no_schedule_breaks_a_rule_and_every_reachable_arrow_is_taken() -> None:
    """Whatever order things happen in, the target holds every record once, in order, with its position."""
    schedules = int(os.environ.get("EOMIRROR_SIM_SCHEDULES", _DEFAULT))
    taken: set[tuple[LaneState, Event]] = set()
    for seed in range(schedules):
        choices = Choices(seed)
        poison = "poison" if seed % _POISONED == _POISONED - 1 else ""
        world = World(choices, mutation=poison)
        try:
            world.run(_ACTIONS)
        except BrokenRuleError as error:
            pytest.fail(report(seed, choices.drawn, _ACTIONS, poison, error.rule))
        except Exception as error:
            raise AssertionError(f"seed {seed}: the lane raised what it must not") from error
        taken |= world.taken
        if schedules > _DEFAULT and (seed + 1) % _PROGRESS == 0:
            print(f"{seed + 1} of {schedules} schedules", flush=True)  # noqa: T201  progress of a run of hours
    if schedules >= _COVERING:
        missed = TRANSITIONS.keys() - taken - UNREACHABLE.keys() - RARE.keys()
        assert not missed, f"no schedule took {sorted(missed)}"
    assert not taken & UNREACHABLE.keys()


@pytest.mark.parametrize("seed", FOUND)
def test_a_schedule_that_once_failed_holds(seed: int) -> None:
    """What a schedule found once stays mended."""
    World(Choices(seed)).run(_ACTIONS)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_model_finds_a_lane_that_breaks_a_rule(mutation: str) -> None:
    """A lane with one safeguard switched off is caught by the rule that the safeguard serves."""
    found = _first_broken(mutation)
    assert found is not None, f"{mutation}: not found in {_MUTANT_SECONDS:g} s"
    assert found[2].rule in MUTATIONS[mutation]


def test_a_suspect_commit_taken_for_clean_tears_a_transaction() -> None:
    """Without rule 9 a late EndTxn commits records whose position is not written yet."""
    found = _first_broken("suspect taken for clean")
    assert found is not None
    assert "torn transaction" in str(found[2])


def test_a_failing_schedule_shrinks_and_its_replay_fails_alike() -> None:
    """A shrunk schedule draws fewer faults, breaks the same rule each time, and says so in its trace."""
    found = _first_broken("account not checked")
    assert found is not None
    _, drawn, error = found
    small = shrink(drawn, _MUTANT_ACTIONS, "account not checked", error.rule)
    trace: list[str] = []
    assert len(small) <= len(drawn)
    assert sum(map(bool, small)) < sum(map(bool, drawn)) / 2
    assert broken_rule(small, _MUTANT_ACTIONS, "account not checked", trace) == error.rule
    assert trace[-1].startswith(error.rule)
