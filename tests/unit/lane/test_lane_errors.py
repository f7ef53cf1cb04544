"""What each kind of error means for an attempt of a lane."""

from __future__ import annotations

import pytest

from eomirror.errors import (
    AuthorizationError,
    BrokerFailedError,
    ClusterError,
    DataLossError,
    FencedError,
    LaneError,
    MirrorError,
    OutcomeUnknownError,
    PlaneChangedError,
    TransactionFailedError,
    UnreachableError,
)
from eomirror.lane.commit import TopicsChangedError
from eomirror.lane.errors import judge
from eomirror.lane.machine import TRANSITIONS, Command, Event, LaneState
from eomirror.lane.spec import Ending


@pytest.mark.parametrize(
    ("error", "event", "ending"),
    [
        (FencedError("newer"), Event.FENCED, Ending.SUPERSEDED),
        (TopicsChangedError("EO-5"), Event.TOPICS_CHANGED, Ending.REBUILD),
        (OutcomeUnknownError("?"), Event.FAILED, Ending.REBUILD),
        (TransactionFailedError("!"), Event.FAILED, Ending.REBUILD),
        (UnreachableError("no way"), Event.FAILED, Ending.REBUILD),
        (BrokerFailedError("unknown"), Event.FAILED, Ending.REBUILD),
        (AuthorizationError("lacks Write", fix="grant it"), Event.REFUSED, Ending.UNAUTHORIZED),
        (ClusterError("no such mechanism"), Event.REFUSED, Ending.FAILED),
    ],
)
def test_each_kind_of_error_has_its_event_and_its_ending(
    error: LaneError | MirrorError, event: Event, ending: Ending
) -> None:
    """What heals on its own is rebuilt, what a person must do is told, and the machine knows the event."""
    verdict = judge(error, Command.FLUSH)

    assert (verdict.event, verdict.outcome.ending, verdict.topic) == (event, ending, "")
    assert (verdict.outcome.error is error) == (event is Event.REFUSED)
    assert (LaneState.FLUSHING, event) in TRANSITIONS


@pytest.mark.parametrize("kind", [DataLossError, BrokerFailedError])
def test_an_error_of_one_topic_stops_that_topic_and_the_lane_is_rebuilt(kind: type[MirrorError]) -> None:
    """The others go on without it."""
    verdict = judge(kind("gone", topic="orders"), Command.AWAIT_RECORDS)

    assert (verdict.event, verdict.outcome.ending, verdict.topic) == (Event.FAILED, Ending.REBUILD, "orders")
    assert verdict.outcome.error is None
    assert verdict.outcome.reason == "topic orders is stopped: gone"


def test_topics_that_changed_are_an_event_of_the_seal_only() -> None:
    """Elsewhere the machine has no such arrow, and a failure says the same."""
    assert judge(TopicsChangedError("EO-5"), Command.COMMIT).event is Event.FAILED


@pytest.mark.parametrize(
    ("command", "state", "follows"),
    [
        (Command.INIT_PRODUCER, LaneState.STARTING, (LaneState.STARTING, Command.INIT_PRODUCER)),
        (Command.AWAIT_RECORDS, LaneState.IDLE, (LaneState.STARTING, Command.INIT_PRODUCER)),
        (Command.BEGIN, LaneState.OPEN, (LaneState.DISCARDING, Command.ABORT)),
        (Command.PUMP, LaneState.OPEN, (LaneState.DISCARDING, Command.ABORT)),
    ],
)
def test_a_changed_plane_goes_on_in_the_same_attempt(
    command: Command, state: LaneState, follows: tuple[LaneState, Command]
) -> None:
    """A new attempt would begin with the native plane, and meet the same target or batch again."""
    verdict = judge(PlaneChangedError("message format 1"), command)

    assert verdict.event is Event.PLANE_CHANGED
    assert TRANSITIONS[state, verdict.event] == follows
    assert judge(PlaneChangedError("message format 1"), Command.COMMIT).event is Event.FAILED
