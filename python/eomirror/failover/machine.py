"""
The states of a command that promotes a link. Pure.

A promotion lets applications write to the copies of a link.  It is decided by one record in the control topic
(`eomirror.records.promotion`), so the states are in two halves::

    before the record    the link is a mirror.  A failure, or a death of the command, changes nothing that a restart of
                         the mirror does not heal; a second call takes all steps again.
    after the record     the link is promoted.  Nothing undoes it but a recorded return.

Each step is safe to repeat, and its place is fixed by what it needs:

1. ``CHECKING`` reads only.  It refuses a command whose preconditions do not hold, before anything is touched.
2. ``FENCING`` stops the applications that write to the source (`cutover` only).  Every later failure before the record
   lifts the fence again.
3. ``DRAINING`` waits until the running mirror has reached the source's last stable offset, and that offset stands
   still.  The mirror must still own the link here: it does the work.
4. ``VERIFYING`` compares what was mirrored last with its source, while both answer and nothing writes.
5. ``TAKING`` takes the claim with the next generation, fences all lanes with InitProducerId, and ends what hangs in
   the state topics: from here no lane can commit.  The order inside is the owner's (EO-2).
6. ``ENDING`` ends hanging transactions in the copies, as a starting lane would have done.
7. ``READING`` reads positions and ends of copies: the cut.  A planned command compares them with the source again: a
   record that arrived since ``DRAINING`` would be lost.
8. ``MOVING`` commits the translated offsets of the consumer groups.  It needs the final positions, because a group
   that has read further than the cut resumes at the cut.  An offset of a group on the target does no harm while the
   link is a mirror.
9. ``RECORDING`` commits the promotion and releases the claim, in one transaction.
10. ``SWITCHING`` calls the user's command.  Its failure is reported, and changes nothing.

A failure before the record leads through ``UNDOING``, which lifts the fence and releases the claim.
"""

from __future__ import annotations

import enum
import itertools
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FINAL", "TRANSITIONS", "State", "StepOutcome", "Verb", "checked", "following"]


class Verb(enum.Enum):
    """A command that promotes a link."""

    FAILOVER = "failover"
    PROMOTE = "promote"
    CUTOVER = "cutover"


class State(enum.Enum):
    """A state of the command; its value is the step's name in reports."""

    CHECKING = "check"
    FENCING = "fence"
    DRAINING = "drain"
    VERIFYING = "verify"
    TAKING = "take"
    ENDING = "end"
    READING = "read"
    MOVING = "groups"
    RECORDING = "record"
    SWITCHING = "switch"
    UNDOING = "undo"
    PROMOTED = "promoted"
    REFUSED = "refused"
    FAILED = "failed"


class StepOutcome(enum.Enum):
    """Outcome of a step."""

    FENCE_WANTED = "fence wanted"
    DRAIN_WANTED = "drain wanted"
    TAKE_WANTED = "take wanted"
    REFUSED = "refused"
    DONE = "done"
    FAILED = "failed"


#: States in which the command has ended.
FINAL: Final = frozenset({State.PROMOTED, State.REFUSED, State.FAILED})

_ORDER = (
    State.FENCING,
    State.DRAINING,
    State.VERIFYING,
    State.TAKING,
    State.ENDING,
    State.READING,
    State.MOVING,
    State.RECORDING,
)

#: (state, event) -> next state; every other pair is a defect.
TRANSITIONS: Final[Mapping[tuple[State, StepOutcome], State]] = {
    (State.CHECKING, StepOutcome.REFUSED): State.REFUSED,
    (State.CHECKING, StepOutcome.FAILED): State.FAILED,
    (State.CHECKING, StepOutcome.FENCE_WANTED): State.FENCING,
    (State.CHECKING, StepOutcome.DRAIN_WANTED): State.DRAINING,
    (State.CHECKING, StepOutcome.TAKE_WANTED): State.TAKING,
    **{(before, StepOutcome.DONE): after for before, after in itertools.pairwise(_ORDER)},
    **{(state, StepOutcome.FAILED): State.UNDOING for state in _ORDER},
    (State.RECORDING, StepOutcome.DONE): State.SWITCHING,
    (State.SWITCHING, StepOutcome.DONE): State.PROMOTED,
    (State.SWITCHING, StepOutcome.FAILED): State.PROMOTED,
    (State.UNDOING, StepOutcome.DONE): State.FAILED,
    (State.UNDOING, StepOutcome.FAILED): State.FAILED,
}


def checked(verb: Verb, *, ready: bool) -> StepOutcome:
    """Returns the outcome of the check: which step the command takes first."""
    if not ready:
        return StepOutcome.REFUSED
    return {
        Verb.CUTOVER: StepOutcome.FENCE_WANTED,
        Verb.PROMOTE: StepOutcome.DRAIN_WANTED,
        Verb.FAILOVER: StepOutcome.TAKE_WANTED,
    }[verb]


def following(state: State, event: StepOutcome) -> State:
    """
    Returns the next state.

    Raises:
        ValueError: The table has no such transition.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"a promotion in state {state.name} knows no event {event.name}") from None
