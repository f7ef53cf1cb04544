"""Facts that librdkafka tells only in its log lines."""

from __future__ import annotations

import pytest

from eomirror.kafka.client_factory import ClientLog

_ADD = "ADDPARTS [id#producer-1] [thrd:main]: TxnCoordinator/1: "


@pytest.mark.parametrize(
    ("lines", "denied"),
    [
        ([], ""),
        (
            [f'{_ADD}Failed to add partition "a.b" [0] to transaction: Broker: Topic authorization failed'],
            "a.b",
        ),
        ([f'{_ADD}Failed to add partition "a" [0] to transaction: Broker: Operation not attempted'], ""),
        (
            [
                f'{_ADD}Failed to add partition "a" [12] to transaction: Broker: Topic authorization failed',
                f'{_ADD}Failed to add partition "b" [0] to transaction: Broker: Operation not attempted',
            ],
            "a",
        ),
    ],
    ids=["none", "one", "neighbour", "one of two"],
)
def test_the_topic_that_a_coordinator_denies_is_known(lines: list[str], denied: str) -> None:
    """And not its neighbours in the request, which the coordinator leaves out for its sake."""
    found = ClientLog(role="test")
    for line in lines:
        found.log(10, "%s", line)
    assert found.denied == denied


def test_a_connection_that_is_closed_at_once_is_counted() -> None:
    """One that lived for longer is not."""
    found = ClientLog(role="test")
    found.log(10, "%s", "Disconnected (after 12ms in state UP)")
    found.log(10, "%s", "Disconnected (after 2800ms in state UP)")
    assert found.closed == 1
