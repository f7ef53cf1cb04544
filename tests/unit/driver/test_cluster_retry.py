"""A link that starts while a cluster is away: tried again for ever, said once, and what does not pass fails at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import structlog

from eomirror.driver.background import ClusterRetry
from eomirror.errors import (
    AuthorizationError,
    BrokerFailedError,
    ClusterError,
    HandshakeError,
    MirrorError,
    QuotaError,
    StoppedError,
    TopicGoneError,
    UnreachableError,
)
from support.fakes.clocks import PlayedClock


class PlayedEvent(threading.Event):
    """One whose waiting passes the clock's time."""

    def __init__(self, clock: PlayedClock) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self._clock.sleep(timeout or 0.0)
        return self.is_set()


class Rig:
    """One link."""

    def __init__(self) -> None:
        self.clock = PlayedClock()
        self.over = PlayedEvent(self.clock)
        self.said: list[str] = []
        self.fixes: list[str] = []
        self.reaching = ClusterRetry("a->b", self.over, clock=self.clock, on_wait=self.wait)

    def wait(self, reason: str, fix: str) -> None:
        """Takes what the link tells of its wait."""
        self.said.append(reason)
        self.fixes.append(fix)

    def do(self, *errors: MirrorError) -> Any:
        """The answer after these failures."""
        left = list(errors)

        def action() -> str:
            if left:
                raise left.pop(0)
            return "done"

        return self.reaching.do(action)


AWAY = UnreachableError("no way to cluster east (127.0.0.1:1)", fix="check bootstrap.servers")


def test_a_cluster_that_is_away_is_tried_again_until_it_answers() -> None:
    """With pauses that double up to 10 s, spread; whatever the number of tries."""
    rig = Rig()
    assert rig.do(*[AWAY] * 200, BrokerFailedError("UNKNOWN_SERVER_ERROR")) == "done"
    assert rig.over.waits[0] < 0.3
    assert 7.9 < rig.over.waits[150] < 12.1
    assert len({round(each, 6) for each in rig.over.waits[20:200]}) > 100


def test_it_is_named_at_first_and_once_a_minute_and_when_the_reason_changes() -> None:
    """Not with each try; and it is said that it is over."""
    rig = Rig()
    other = UnreachableError("no way to cluster west (127.0.0.1:2)")
    with structlog.testing.capture_logs() as logs:
        rig.do(*[AWAY] * 40, other)
    waits = [each for each in logs if each["event"] == "link_waits"]
    assert 4 <= len(waits) <= 8
    assert (waits[0]["reason"], waits[0]["fix"]) == (AWAY.message, AWAY.fix)
    assert (rig.said[0], rig.fixes[0]) == (AWAY.message, AWAY.fix)
    assert rig.said[-2:] == [other.message, ""]
    assert logs[-1]["event"] == "link_reached_its_clusters"


def test_an_answer_at_once_is_nothing_to_speak_of() -> None:
    """No log, no state."""
    rig = Rig()
    with structlog.testing.capture_logs() as logs:
        assert rig.do() == "done"
    assert (rig.said, rig.over.waits, logs) == ([], [], [])


@pytest.mark.parametrize(
    "error",
    [
        AuthorizationError("the credentials are refused"),
        ClusterError("the broker refuses a setting"),
        HandshakeError("certificate verify failed"),
    ],
)
def test_what_does_not_pass_by_itself_is_raised_at_once(error: MirrorError) -> None:
    """Only a person can mend it."""
    rig = Rig()
    with pytest.raises(type(error)):
        rig.do(AWAY, error)
    assert len(rig.over.waits) == 1


def test_a_topic_that_was_deleted_since_it_was_listed_ends_no_link() -> None:
    """The next try lists the topics anew, and goes without it."""
    rig = Rig()
    assert rig.do(TopicGoneError("could not read the offsets of orders-0"), AWAY) == "done"
    assert rig.said == ["could not read the offsets of orders-0", AWAY.message, ""]


def test_a_stop_ends_the_waiting() -> None:
    """The caller hears that nothing was done."""
    rig = Rig()
    rig.over.set()
    with pytest.raises(StoppedError):
        rig.do(AWAY)


def test_a_quota_is_waited_for_as_long_as_the_cluster_told() -> None:
    """Neither shorter, which spends it, nor longer, as the backoff of a cluster that is away grows."""
    rig = Rig()
    counts = [QuotaError(f"{number} of 30 topics created", seconds=7.5) for number in range(0, 30, 6)]
    assert rig.do(*counts) == "done"
    assert rig.over.waits == [7.5] * 5
    assert rig.said == [*(each.message for each in counts), ""]
