"""The lane machine's table: reachable, closed, and safe to leave from anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eomirror.lane.machine import (
    TRANSITIONS,
    Command,
    Event,
    IllegalTransitionError,
    LaneMachine,
    LaneState,
)
from eomirror.lane.transaction import CommitFacts, CommitTrigger

HOLDS_TRANSACTION = {LaneState.CLAIMING, LaneState.OPEN, LaneState.FLUSHING, LaneState.COMMITTING}


def test_every_state_is_reachable() -> None:
    """No state of the table is an island."""
    reached = {LaneState.STARTING}
    while True:
        more = {target for (state, _), (target, _) in TRANSITIONS.items() if state in reached} - reached
        if not more:
            break
        reached |= more

    assert reached == set(LaneState)


def test_every_arrow_can_be_taken() -> None:
    """Each entry of the table is taken by the machine as written, and recorded for coverage."""
    taken = set()
    for (state, event), (target, command) in TRANSITIONS.items():
        machine = LaneMachine()
        machine.state = state

        assert machine.step(event) is command
        assert machine.state is target
        taken |= machine.taken

    assert taken == set(TRANSITIONS)


def test_an_unknown_arrow_is_a_bug_and_changes_nothing() -> None:
    """An event without an entry raises and leaves the state alone."""
    machine = LaneMachine()

    with pytest.raises(IllegalTransitionError, match="starting"):
        machine.step(Event.FLUSHED)

    assert machine.state is LaneState.STARTING


def test_commit_is_only_reached_from_sealing() -> None:
    """EO-1: nothing is committed that was not sealed."""
    sources = {state for (state, _), (_, command) in TRANSITIONS.items() if command is Command.COMMIT}

    assert sources == {LaneState.FLUSHING}


def test_data_flows_only_behind_control_positions_comparison_and_claim() -> None:
    """EO-2: the only way from the start to IDLE passes every check, in order."""
    machine = LaneMachine()
    ways = {}
    for (state, event), (target, _) in TRANSITIONS.items():
        ways.setdefault(target, set()).add((state, event))
    del machine

    assert {state for state, _ in ways[LaneState.OPEN]} == {
        LaneState.IDLE,
        LaneState.OPEN,
        LaneState.FLUSHING,
    }
    assert {state for state, _ in ways[LaneState.IDLE]} == {
        LaneState.CLAIMING,
        LaneState.IDLE,
        LaneState.ADOPTING,
        LaneState.COMMITTING,
    }
    # from IDLE the lane claims a move again that took partitions from it
    assert {state for state, _ in ways[LaneState.CLAIMING]} == {
        LaneState.COMPARING,
        LaneState.ADOPTING,
        LaneState.IDLE,
    }
    assert {state for state, _ in ways[LaneState.COMPARING]} == {LaneState.POSITIONS}
    assert {state for state, _ in ways[LaneState.POSITIONS]} == {LaneState.CONTROL}
    assert {state for state, _ in ways[LaneState.CONTROL]} == {LaneState.STARTING}


def test_a_failure_in_an_open_transaction_aborts_it() -> None:
    """Readers of the target wait for our marker: no way out of an open transaction but through ABORTING."""
    for state in HOLDS_TRANSACTION:
        for event in (Event.FAILED, Event.REFUSED):
            assert TRANSITIONS[state, event] == (LaneState.ABORTING, Command.ABORT)


def test_a_suspect_commit_replaces_the_producer() -> None:
    """EO-9: no second transaction on a producer whose EndTxn may still travel."""
    for state in (LaneState.CLAIMING, LaneState.COMMITTING):
        assert TRANSITIONS[state, Event.COMMIT_SUSPECT] == (LaneState.STARTING, Command.INIT_PRODUCER)


def test_fencing_ends_every_state() -> None:
    """Whatever a lane does, a newer producer ends it at once."""
    for state in set(LaneState) - {LaneState.CLOSED}:
        assert TRANSITIONS[state, Event.FENCED] == (LaneState.CLOSED, Command.END)


RULE = CommitTrigger(interval=0.1, interval_min=0.01, max_records=100, max_bytes=1000)


@pytest.mark.parametrize(
    ("seconds", "since_last", "records", "size", "drained", "leaving", "due"),
    [
        (0.000, 9.999, 1, 1, True, False, True),
        (0.005, 0.009, 1, 1, True, False, False),
        (0.005, 0.010, 1, 1, True, False, True),
        (0.050, 9.999, 1, 1, False, False, False),
        (0.100, 0.100, 1, 1, False, False, True),
        (0.001, 0.001, 100, 1, False, False, True),
        (0.001, 0.001, 1, 1000, False, False, True),
        (0.001, 0.001, 1, 1, True, True, True),
    ],
)
def test_cut(
    seconds: float, since_last: float, records: int, size: int, drained: bool, leaving: bool, due: bool
) -> None:
    """Early when drained, late when behind, at once when large, leaving, or after a pause."""
    transaction = CommitFacts(
        seconds=seconds, since_last=since_last, records=records, bytes=size, drained=drained, leaving=leaving
    )

    assert RULE.due(transaction) is due


KEEPS_UP = CommitFacts(
    seconds=0.01, since_last=0.02, records=1, bytes=1, drained=True, leaving=False, enough=False, rounds=0
)


@pytest.mark.parametrize(
    ("changes", "takes"),
    [
        ({}, True),
        ({"rounds": 1}, False),
        ({"leaving": True}, False),
        ({"enough": True}, False),
        ({"drained": False}, False),
        ({"records": 100}, False),
        ({"bytes": 1000}, False),
        ({"seconds": 0.049}, True),
        ({"seconds": 0.050}, False),
        ({"rested": 0.010}, True),
        ({"rested": 0.009}, False),
    ],
)
def test_what_is_acknowledged_takes_more(changes: dict[str, Any], takes: bool) -> None:
    """Once, of a lane that keeps up and had a pause before it, while the transaction is young and small."""
    assert RULE.takes_more(replace(KEEPS_UP, **changes)) is takes


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"records": 0, "seconds": 0.03}, 0.07),
        ({"drained": False, "seconds": 0.03}, 0.07),
        ({"seconds": 0.001, "since_last": 0.004}, 0.006),
        ({"seconds": 0.001, "since_last": 0.011}, 0.0),
        ({"drained": False, "seconds": 0.2}, 0.0),
    ],
)
def test_no_lane_waits_beyond_the_cut(changes: dict[str, Any], seconds: float) -> None:
    """Until the shortest interval has passed for what is drained, else until the longest."""
    assert RULE.max_wait(replace(KEEPS_UP, **changes)) == pytest.approx(seconds)


def test_a_second_round_is_one_pump() -> None:
    """What is acknowledged does not wait for more than was there."""
    assert not RULE.due(replace(KEEPS_UP, drained=False))
    assert RULE.due(replace(KEEPS_UP, drained=False, rounds=1))
