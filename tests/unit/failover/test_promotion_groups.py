"""A failover reads the consumer groups again if a broker of the target restarts: no later call may move them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.errors import AuthorizationError, ClusterError, UnreachableError
from eomirror.failover import promotion as module
from eomirror.failover.machine import Verb
from eomirror.failover.promotion import PromotionOptions, _Run
from eomirror.failover.readiness import Facts
from eomirror.records.promotion import PromotionHistory
from eomirror.status.model import LinkStatus
from support.fakes.clocks import PlayedClock
from support.fakes.status_records import fence as standing
from support.links.one_link import CONFIG

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
        CONFIG, None, verb, PromotionOptions(), on_event=lambda _: None, clock=PlayedClock()
    )  # fmt: skip
    run._groups.close()
    run._groups.reader = reader  # type: ignore[assignment]
    runs.append(run)
    return run


def planned(run: _Run) -> list[Any]:
    """Where the groups resume."""
    return run._groups.planned({}, PromotionHistory(), answers=True)


def test_a_failover_waits_for_a_broker_that_restarts(runs: list[_Run]) -> None:
    """The first answer counts."""
    assert planned(promotion(runs, Verb.FAILOVER, Reader(AWAY, failures=3))) == ["moved"]


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
        planned(promotion(runs, verb, reader))
    assert reader.asked == 1


def test_a_failover_does_not_wait_for_ever(runs: list[_Run]) -> None:
    """The records are there, and groups can be set by hand."""
    with pytest.raises(UnreachableError):
        planned(promotion(runs, Verb.FAILOVER, Reader(AWAY, failures=1_000)))


@pytest.mark.parametrize("verb", [Verb.FAILOVER, Verb.PROMOTE])
@pytest.mark.parametrize(("stands", "own", "told"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_fence_that_stands_is_named_by_a_promotion_that_sets_none(
    monkeypatch: pytest.MonkeyPatch, *, verb: Verb, stands: bool, own: bool, told: int
) -> None:
    """An earlier command set it, and applications stay stopped on the source until it is lifted."""
    fence = standing(timestamp=0) if stands else None
    status: Any = replace(LinkStatus(link="east-to-west", state="never ran", lag_records=0), fence=fence)
    found = Facts(status=status, promotion=None, source_answers=True, now_ms=1)
    monkeypatch.setattr(module, "read_facts", lambda *_, **__: found)
    monkeypatch.setattr(module, "source_answers", lambda *_: True)
    said: list[str] = []
    setting: Any = object() if own else None
    options = PromotionOptions(fence=setting, dry_run=True)
    run = _Run(
        CONFIG, None, verb, options, on_event=said.append, clock=PlayedClock()
    )  # fmt: skip

    run._check()
    run.close()

    named = [text for text in said if "writes to orders are stopped" in text]
    assert [("eomirror unfence CONFIG --link" in text, "by h" in text) for text in named] == [
        (True, True)
    ] * told
