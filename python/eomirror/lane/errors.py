"""Decides what an error means for a lane's attempt: its event for the machine and its ending. Pure."""

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

__all__ = ["Consequence", "Outcome", "judge"]

# before the transaction holds a record
_CHANGES_PLANE = (Command.INIT_PRODUCER, Command.AWAIT_RECORDS, Command.BEGIN, Command.PUMP)


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    Result of an attempt.

    Attributes:
        ending: Looked up in the driver's table.
        reason: One line for the log.
        error: What the user must fix; None if nothing.
    """

    ending: Ending = Ending.REBUILD
    reason: str = ""
    error: MirrorError | None = None


@dataclass(frozen=True, slots=True)
class Consequence:
    """
    Consequence of an error.

    Attributes:
        event: For the lane's machine.
        outcome: How the attempt ends.
        topic: The one topic that the error stops; empty if none.
    """

    event: Event
    outcome: Outcome
    topic: str = ""


def judge(error: LaneError | MirrorError, command: Command) -> Consequence:
    """
    Returns the consequence of an error.

    Args:
        command: The command that failed.
    """
    match error:
        case FencedError():
            return Consequence(Event.FENCED, Outcome(Ending.SUPERSEDED, f"fenced: {error}"))
        case TopicsChangedError():
            event = Event.TOPICS_CHANGED if command is Command.FLUSH else Event.FAILED
            return Consequence(event, Outcome(Ending.REBUILD, str(error)))
        case PlaneChangedError() if command in _CHANGES_PLANE:
            # the attempt continues: a new one would start with the plane that cannot serve
            return Consequence(Event.PLANE_CHANGED, Outcome(Ending.REBUILD, f"the plane changes: {error}"))
        case OutcomeUnknownError():
            # never guessed (EO-8): the next attempt reads the outcome
            return Consequence(Event.FAILED, Outcome(Ending.REBUILD, f"outcome of a commit unknown: {error}"))
        case LaneError() | UnreachableError():
            return Consequence(Event.FAILED, Outcome(Ending.REBUILD, str(error)))
        case BrokerFailedError() if not error.topic:
            return Consequence(Event.FAILED, Outcome(Ending.REBUILD, error.message))
    if error.topic:
        # only this topic is broken: the next attempt mirrors the others
        reason = f"topic {error.topic} is stopped: {error.message}"
        return Consequence(Event.FAILED, Outcome(Ending.REBUILD, reason), error.topic)
    ending = Ending.UNAUTHORIZED if isinstance(error, AuthorizationError) else Ending.FAILED
    return Consequence(Event.REFUSED, Outcome(ending, error.message, error))
