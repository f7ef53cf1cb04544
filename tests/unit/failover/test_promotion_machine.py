"""The states of a promotion: every step has its place, and a failure before the record always leads back."""

from __future__ import annotations

import pytest

from eomirror.failover.machine import FINAL, TRANSITIONS, State, StepOutcome, Verb, checked, following


def path(verb: Verb, *, failing: State | None = None) -> list[State]:
    """The states of a call in which one step fails."""
    state, taken = State.CHECKING, [State.CHECKING]
    while state not in FINAL:
        if state is failing:
            event = StepOutcome.FAILED
        else:
            event = checked(verb, ready=True) if state is State.CHECKING else StepOutcome.DONE
        state = following(state, event)
        taken.append(state)
    return taken


@pytest.mark.parametrize(
    ("verb", "first"),
    [(Verb.FAILOVER, State.TAKING), (Verb.PROMOTE, State.DRAINING), (Verb.CUTOVER, State.FENCING)],
)
def test_each_command_takes_its_steps_in_order(verb: Verb, first: State) -> None:
    """The record comes behind everything that it states, and the user's command behind the record."""
    taken = path(verb)

    assert taken[1] is first
    assert taken[-7:] == [
        State.TAKING, State.ENDING, State.READING, State.MOVING, State.RECORDING, State.SWITCHING, State.PROMOTED,
    ]  # fmt: skip


@pytest.mark.parametrize("verb", Verb)
def test_a_failure_before_the_record_undoes_and_never_promotes(verb: Verb) -> None:
    """Whatever step fails."""
    for failing in path(verb)[1:]:
        if failing in FINAL or failing is State.SWITCHING:
            continue
        assert path(verb, failing=failing)[-2:] == [State.UNDOING, State.FAILED]


def test_a_failure_behind_the_record_leaves_it_promoted() -> None:
    """The user's command is not part of the decision."""
    assert path(Verb.CUTOVER, failing=State.SWITCHING)[-1] is State.PROMOTED


@pytest.mark.parametrize("verb", Verb)
def test_a_command_that_is_not_ready_touches_nothing(verb: Verb) -> None:
    """The check is the first step."""
    assert following(State.CHECKING, checked(verb, ready=False)) is State.REFUSED


def test_every_arrow_of_the_table_is_taken() -> None:
    """Arrows that no command takes would be dead code."""
    taken = {(State.CHECKING, StepOutcome.REFUSED), (State.CHECKING, StepOutcome.FAILED)}
    for verb in Verb:
        states = path(verb)
        taken.add((State.CHECKING, checked(verb, ready=True)))
        taken |= {(state, StepOutcome.DONE) for state in states[1:] if state not in FINAL}
        taken |= {(state, StepOutcome.FAILED) for state in states[1:] if state not in FINAL}
    taken |= {(State.UNDOING, StepOutcome.DONE), (State.UNDOING, StepOutcome.FAILED)}

    assert taken == set(TRANSITIONS)
    with pytest.raises(ValueError, match="no event DONE"):
        following(State.PROMOTED, StepOutcome.DONE)
