"""
The commands that promote a link, in a simulated world, schedule after schedule (`sim_promotion`).

Mirrors that run on, lanes that come back, two operators at once, and a death between any two calls.  The rules are
those of docs/adr/0019: one decision, an exact cut, silence behind it, nothing left behind by a planned promotion,
groups that skip nothing, and a fence that is undone or stands.  EOMIRROR_PROMOTION_SCHEDULES sets the number of
schedules.
"""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from sim_promotion import STEPS, BrokenPromotionError, installed
from sim_world import Choices

from eomirror.failover import machine, writer_fence
from eomirror.failover.drain import SourceDrain
from eomirror.failover.machine import State, StepOutcome
from eomirror.failover.promotion import _Run
from eomirror.failover.writer_fence import LinkWriterFence
from eomirror.link import owner as owner_module
from eomirror.link import ownership
from eomirror.link.owned_control import OwnedControl
from eomirror.link.owner import LinkOwner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SCHEDULES = int(os.environ.get("EOMIRROR_PROMOTION_SCHEDULES", "60"))
_ACTIONS = 160
# of CPU, for one mutant: most need less than a second
_MUTANT_SECONDS = 30.0
# of lifting a fence; and steps of the cutover in between, of which 0 stands for all
_LIFTING_STEPS, _PAUSES = 11, (0, 1, 8)


def broken(
    seed: int, mutant: Mapping[tuple[Any, str], Any] | None = None, trace: list[str] | None = None
) -> str:
    """The rule that a schedule breaks, with what was found; empty for none."""
    with installed(mutant) as make:
        try:
            make(Choices(seed), trace).run(_ACTIONS)
        except BrokenPromotionError as error:
            return str(error)
    return ""


def test_no_schedule_breaks_a_rule() -> None:
    """Whatever order things happen in; `docs/adr/0019` has the rules."""
    for seed in range(_SCHEDULES):
        if found := broken(seed):
            trace: list[str] = []
            broken(seed, trace=trace)
            pytest.fail("\n".join([f"seed {seed}: {found}", *trace]))


def retake_before_fencing(self: LinkOwner) -> Any:
    """Final positions are read before the lanes are fenced."""
    early = self._control.state.positions(wait_for_open=True, overruled=())
    view, _ = RETAKE(self)
    return view, early


def same_generation(view: Any, **named: Any) -> Any:
    """The layout is published without a new generation."""
    found = NEXT(view, **named)
    before = view.generation
    if before is None or not named["run"].startswith("command"):
        return found
    return type(found)(
        generation=before.generation, revision=before.revision, run=found.run, highest_lane=found.highest_lane,
        assignment=found.assignment, timestamp=found.timestamp,
    )  # fmt: skip


def without(*states: State) -> dict[tuple[State, StepOutcome], State]:
    """The table without some steps: the command passes them by."""
    table = dict(machine.TRANSITIONS)
    for state in states:
        after = table[state, StepOutcome.DONE]
        table = {arrow: after if to is state else to for arrow, to in table.items()}
    return table


def moved_last() -> dict[tuple[State, StepOutcome], State]:
    """The table with the groups behind the record."""
    table = without(State.MOVING)
    table[State.RECORDING, StepOutcome.DONE] = State.MOVING
    table[State.MOVING, StepOutcome.DONE] = State.SWITCHING
    return table


def set_without_proof(self: LinkWriterFence, record: Any) -> None:
    """A fence that does not look if another call lifts it at the same time."""
    calls = iter(range(10))
    SET(self, lambda fence: record(fence) if next(calls) == 0 else None)


RETAKE, NEXT, SET = LinkOwner.retake, owner_module.next_generation, LinkWriterFence._set

#: Name -> the code without the safeguard, the rules that it breaks, and the seed at which the search begins.
MUTANTS: dict[str, tuple[dict[tuple[Any, str], Any], set[str], int]] = {
    "positions are read before the lanes are fenced": (
        {(LinkOwner, "retake"): retake_before_fencing}, {"cut", "silence", "planned"}, 0,
    ),
    # a lane that was fenced starts again, and finds its own generation
    "the generation stays": ({(owner_module, "next_generation"): same_generation}, {"cut", "silence"}, 0),
    "the lanes are not fenced": ({(OwnedControl, "fence_lanes"): lambda *_: None}, {"cut", "silence"}, 80),
    "a promoted link is not refused": (
        {(ownership, "refuse_promoted"): lambda *_: None}, {"one decision", "silence", "cut", "truth"}, 0,
    ),
    # two that fence each other for ever are one more thing that may come of it
    "a command that was overtaken goes on": (
        {(OwnedControl, "refuse_superseded"): lambda _: None},
        {"one decision", "silence", "cut", "planned", "resumes"}, 0,
    ),
    "later records are not looked for": ({(_Run, "_refuse_later_records"): lambda _: None}, {"planned"}, 1590),
    "partitions that are new are not looked for": ({(SourceDrain, "uncut"): lambda *_: []}, {"planned"}, 40),
    "groups are moved behind the record": ({(machine, "TRANSITIONS"): moved_last()}, {"groups"}, 80),
    "groups are not moved": ({(machine, "TRANSITIONS"): without(State.MOVING)}, {"groups"}, 0),
    "a mirror that starts meanwhile keeps the link": (
        {(ownership, "_takes_over"): lambda first, latest, **_: first is not None and first.run == latest.run},
        {"rank"}, 0,
    ),
    "a failure leaves the fence": ({(LinkWriterFence, "undo"): lambda _: None}, {"undone"}, 20),
    "two operators fence without looking": ({(LinkWriterFence, "_set"): set_without_proof}, {"undone"}, 50),
}  # fmt: skip

#: The same for a fence that is lifted while a cutover is about to be recorded: `swept` finds them.
LIFTED: dict[str, tuple[dict[tuple[Any, str], Any], set[str]]] = {
    "the fence is not looked at again": ({(LinkWriterFence, "check"): lambda _: None}, {"planned"}),
    "who lifts a fence does not fence the promotion": (
        {(writer_fence, "fence"): lambda *_, **__: None}, {"planned"},
    ),
    "an answer that was lost is not looked up": ({(_Run, "_is_recorded"): lambda _: False}, {"truth"}),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_model_finds_a_command_without_a_safeguard(mutant: str) -> None:
    """Each safeguard is there for a rule: without it, a schedule breaks that rule."""
    patched, rules, seed = MUTANTS[mutant]
    began = time.process_time()
    while time.process_time() - began < _MUTANT_SECONDS:
        if found := broken(seed, patched):
            assert found.partition(":")[0] in rules, f"seed {seed}: {found}"
            return
        seed += 1
    pytest.fail(f"not found up to seed {seed}")


def swept(mutant: Mapping[tuple[Any, str], Any] | None = None) -> Iterator[str]:
    """
    The rules that are broken by an operator who lifts the fence of a cutover at each of its last steps.

    Applications write as soon as they may; the answer to the record is lost in every second schedule.
    """
    steps = itertools.product(range(STEPS), range(1, _LIFTING_STEPS), _PAUSES)
    for before_end, lifting, pause in steps:
        for answered in (True, False) if pause == 0 else (True,):
            with installed(mutant) as make:
                world = make(Choices(script=()), None)
                if not answered:
                    world.lose_the_next_decision()
                try:
                    world.lift_while_cut_over(before_end, lifting, pause)
                except BrokenPromotionError as error:
                    yield f"{error} (step {before_end}, {lifting} of lifting, pause {pause})"


def test_a_fence_that_is_lifted_at_any_step_of_a_cutover_leaves_nothing_behind() -> None:
    """Either the promotion is recorded first, or it fails: applications wrote."""
    assert not list(swept())


@pytest.mark.parametrize("mutant", LIFTED)
def test_the_sweep_finds_a_cutover_without_a_safeguard(mutant: str) -> None:
    """As above."""
    patched, rules = LIFTED[mutant]
    found = next(swept(patched), "")
    assert found.partition(":")[0] in rules, found or "not found"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Log lines of the commands say what is drawn."""
    import structlog

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)
