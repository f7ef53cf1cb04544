"""A failover reads the consumer groups again if a broker of the target restarts: no later call may move them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.errors import AuthorizationError, ClusterError, UnreachableError
from eomirror.failover.machine import Verb
from eomirror.failover.promotion import PromotionOptions, _Run
from eomirror.records.control import ControlView
from support.clocks import PlayedClock
from support.one_link import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator

AWAY = UnreachableError("could not describe group g on cluster west")


class Reader:
    """Fails with ``error`` as often as is told."""

    def __init__(self, error: ClusterError, failures: int) -> None:
        self.asked = 0
        self._error, self._failures = error, failures

    def moves(self, *_: Any, **__: Any) -> list[Any]:
        self.asked += 1
        if self.asked <= self._failures:
            raise self._error
        return ["moved"]

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def runs() -> Iterator[list[_Run]]:
    """Runs that are closed at the end."""
    made: list[_Run] = []
    yield made
    for run in made:
        run.close()


def promotion(runs: list[_Run], verb: Verb, reader: Reader) -> _Run:
    run = _Run(
        CONFIG, CONFIG.links[0], verb, options=PromotionOptions(), on_event=lambda _: None, clock=PlayedClock()
    )  # fmt: skip
    run._groups.close()
    run._groups, run._view = reader, ControlView()  # type: ignore[assignment]
    runs.append(run)
    return run


def test_a_failover_waits_for_a_broker_that_restarts(runs: list[_Run]) -> None:
    """The first answer counts."""
    assert promotion(runs, Verb.FAILOVER, Reader(AWAY, failures=3))._planned_moves() == ["moved"]


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        # nothing has happened yet: the command is undone, and can be repeated
        (Verb.CUTOVER, AWAY),
        (Verb.PROMOTE, AWAY),
        # waiting grants no right
        (Verb.FAILOVER, AuthorizationError("may not describe group g")),
    ],
)
def test_other_failures_are_not_waited_for(runs: list[_Run], verb: Verb, error: ClusterError) -> None:
    """The first failure is the result."""
    reader = Reader(error, failures=1)
    with pytest.raises(type(error)):
        promotion(runs, verb, reader)._planned_moves()
    assert reader.asked == 1


def test_a_failover_does_not_wait_for_ever(runs: list[_Run]) -> None:
    """The records are there, and groups can be set by hand."""
    with pytest.raises(UnreachableError):
        promotion(runs, Verb.FAILOVER, Reader(AWAY, failures=1_000))._planned_moves()
