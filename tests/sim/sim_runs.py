"""
Many schedules on all cores, each batch of seeds in a process of its own; a seed means the same wherever it runs.

Memory is collected in large steps: a world is garbage in cycles, and there is a new one every few milliseconds.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim_damage import CUTS, ROLLED_BACK
from sim_forgotten import STATE_DELETED
from sim_rules import STUCK, BrokenRuleError
from sim_world import Choices, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.lane.machine import Event, LaneState

__all__ = [
    "ACTIONS", "MUTANT_ACTIONS", "Found", "Outcome", "first_broken", "mutation_of", "pool", "run_schedules",
    "run_seeds",
]  # fmt: skip

ACTIONS = 60
MUTANT_ACTIONS = 120

# in one schedule of so many, the target refuses some records
_POISONED = 4
# of so many, what is taken from the target, or deleted of the mirror's state
_ODD = 8
_DAMAGED = {1: CUTS, 2: STATE_DELETED, 5: ROLLED_BACK}
# of a process at a time: few enough that both cores end together, many enough that sending costs nothing
_BATCH = 250
_GARBAGE = 50_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What came of some schedules.

    Attributes:
        schedules: How many ran to their end or to a failure.
        taken: Arrows of the lane's state machine that at least one of them took.
        failed: Seeds of those that failed, each with the rule that it broke; empty when the lane raised what it must
            not.
        unsolved: Seeds of those that ended at what is known and not solved, each with what that is.
    """

    schedules: int = 0
    taken: frozenset[tuple[LaneState, Event]] = frozenset()
    failed: tuple[tuple[int, str], ...] = ()
    unsolved: tuple[tuple[int, str], ...] = ()

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.schedules + other.schedules,
            self.taken | other.taken,
            (*self.failed, *other.failed),
            (*self.unsolved, *other.unsolved),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """
    The first schedule that breaks a rule.

    Attributes:
        seed: Of the schedule.
        drawn: Its draws.
        rule: Id of the rule.
        text: What was broken.
        seconds: Of CPU that the search took.
    """

    seed: int
    drawn: list[int]
    rule: str
    text: str
    seconds: float


def pool() -> ProcessPoolExecutor:
    """A process for each core; not forked, since the caller may have threads."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        os.cpu_count() or 1, mp_context=context, initializer=gc.set_threshold, initargs=(_GARBAGE,)
    )


def mutation_of(seed: int) -> str:
    """What is special about the schedule of a seed when no safeguard is off."""
    if seed % _POISONED == _POISONED - 1:
        return "poison"
    return _DAMAGED.get(seed % _ODD, "")


def run_seeds(first: int, count: int, actions: int = ACTIONS) -> Outcome:
    """The schedules of these seeds, in this process."""
    taken: set[tuple[LaneState, Event]] = set()
    failed: list[tuple[int, str]] = []
    unsolved: list[tuple[int, str]] = []
    for seed in range(first, first + count):
        world = World(Choices(seed), mutation=mutation_of(seed))
        try:
            world.run(actions)
        except BrokenRuleError as error:
            failed.append((seed, error.rule))
        except Exception:  # noqa: BLE001  the caller runs this seed again, and is shown where it was raised
            failed.append((seed, ""))
        taken |= world.taken
        if world.unsolved:
            unsolved.append((seed, world.unsolved))
    return Outcome(count, frozenset(taken), tuple(failed), tuple(unsolved))


def run_schedules(
    processes: ProcessPoolExecutor, first: int, count: int, on_progress: Callable[[Outcome], None]
) -> Outcome:
    """
    The schedules of ``count`` seeds from ``first`` on; stops soon after one failed.

    Args:
        processes: Of `pool`.
        first: Seed of the first.
        count: How many.
        on_progress: Called after each batch with what came of all until then.
    """
    end = first + count
    batches = [
        processes.submit(run_seeds, start, min(_BATCH, end - start)) for start in range(first, end, _BATCH)
    ]
    total = Outcome()
    for batch in as_completed(batches):
        total += batch.result()
        on_progress(total)
        if total.failed:
            for waiting in batches:
                waiting.cancel()
            break
    return total


def first_broken(mutation: str, seconds: float, first: int = 0) -> Found | None:
    """
    Returns the first seed whose schedule breaks a rule while this safeguard is switched off; to be stuck is not enough.

    Args:
        mutation: The safeguard.
        seconds: Of CPU, after which the search is given up.
        first: Seed of the first schedule.
    """
    began = time.process_time()
    seed = first
    while (spent := time.process_time() - began) < seconds:
        choices = Choices(seed)
        try:
            World(choices, mutation=mutation).run(MUTANT_ACTIONS)
        except BrokenRuleError as error:
            if error.rule != STUCK:
                return Found(seed, choices.drawn, error.rule, str(error), spent)
        seed += 1
    return None
