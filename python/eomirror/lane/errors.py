"""What an error means for an attempt of a lane: the event it is for the machine, and how the attempt ends (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from eomirror.errors import (
    AuthorizationError,
    BrokerFailedError,
    FencedError,
    LaneError,
    MirrorError,
    OutcomeUnknownError,
    PlaneChangedError,
    UnreachableError,
)
from eomirror.lane.commit import TopicsChangedError
from eomirror.lane.machine import Command, Event
from eomirror.lane.spec import Ending

__all__ = ["Outcome", "Verdict", "judge"]

# both fetch records, in the same state
_FETCHES = (Command.BEGIN, Command.PUMP)


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    How an attempt ended, or will.

    Attributes:
        ending: The kind, for the driver's table.
        reason: One line for the log.
        error: What a person has to mend; None for nothing.
    """

    ending: Ending = Ending.REBUILD
    reason: str = ""
    error: MirrorError | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What follows from an error.

    Attributes:
        event: For the lane's machine.
        outcome: How the attempt ends.
        topic: The topic that is stopped by it, and only that; empty for none.
    """

    event: Event
    outcome: Outcome
    topic: str = ""


def judge(error: LaneError | MirrorError, command: Command) -> Verdict:
    """
    Say what follows from an error that a command met.

    Args:
        error: The error.
        command: What was carried out.
    """
    match error:
        case FencedError():
            return Verdict(Event.FENCED, Outcome(Ending.SUPERSEDED, f"fenced: {error}"))
        case TopicsChangedError():
            event = Event.TOPICS_CHANGED if command is Command.FLUSH else Event.FAILED
            return Verdict(event, Outcome(Ending.REBUILD, str(error)))
        case PlaneChangedError() if command in _FETCHES:
            # the attempt goes on: a new one would begin with the plane that cannot read what comes next
            return Verdict(Event.PLANE_CHANGED, Outcome(Ending.REBUILD, f"the plane changes: {error}"))
        case OutcomeUnknownError():
            # never guessed (rule 8): the next attempt reads what is true
            return Verdict(Event.FAILED, Outcome(Ending.REBUILD, f"outcome of a commit unknown: {error}"))
        case LaneError() | UnreachableError():
            return Verdict(Event.FAILED, Outcome(Ending.REBUILD, str(error)))
        case BrokerFailedError() if not error.topic:
            return Verdict(Event.FAILED, Outcome(Ending.REBUILD, error.message))
    if error.topic:
        # only this topic is broken: the next attempt goes on without it
        reason = f"topic {error.topic} is stopped: {error.message}"
        return Verdict(Event.FAILED, Outcome(Ending.REBUILD, reason), error.topic)
    ending = Ending.UNAUTHORIZED if isinstance(error, AuthorizationError) else Ending.FAILED
    return Verdict(Event.REFUSED, Outcome(ending, error.message, error))
