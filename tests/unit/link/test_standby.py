"""A process that stands by: when it takes the link, and what the owner does for it (EO-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.errors import UnreachableError
from eomirror.link import control_watch, standby
from eomirror.link.control_watch import ControlWatch
from eomirror.link.standby import Standby, StoodStill
from eomirror.records.control import Claim, Pause
from eomirror.records.reports import StandbyProcess
from support.fakes import claims
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PAUSE = Pause(topics="", host="h", timestamp=3)
LINK: Any = type("Link", (), {"state_name": "l", "name": "l"})()


class Record:
    """A record of the control topic."""

    where = "c"

    def __init__(self, key: bytes, value: bytes | None) -> None:
        self.key, self.value = key, value


class Target:
    """
    A target whose control topic a test writes.

    Attributes:
        open: Records at the end that an open transaction hides.
        at: Time -> what happens there, before the look that comes then.
    """

    def __init__(self) -> None:
        self.admin = self
        self.cluster: Any = None
        self.clock = PlayedClock()
        self.records: list[Any] = []
        self.open = 0
        self.reads: list[tuple[int, int]] = []
        self.exists = True
        self.at: dict[float, Callable[[], None]] = {}

    def write(self, *records: Any) -> None:
        self.records += [Record(one.key(), one.value()) for one in records]

    def describe_topics(self, topics: list[str]) -> Mapping[str, object]:
        return dict.fromkeys(topics, object() if self.exists else None)

    def offsets(self, wanted: list[Any], *, at: str, read_committed: bool) -> Mapping[Any, int]:
        for due in [moment for moment in self.at if moment <= self.clock.now]:
            self.at.pop(due)()
        end = len(self.records) - (self.open if read_committed else 0)
        return dict.fromkeys(wanted, 0 if at == "earliest" else end)

    def range(self, _: str, __: int, low: int, high: int, **___: Any) -> list[Any]:
        self.reads.append((low, high))
        return self.records[low:high]


class Announced:
    """Records of processes that stand by, as they are sent."""

    sent: list[tuple[bytes, bytes | None]]

    def __init__(self, *_: Any, **__: Any) -> None:
        Announced.sent = []

    def send(self, key: bytes, value: bytes | None) -> None:
        self.sent.append((key, value))

    def close(self) -> None:
        pass


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Target()
    monkeypatch.setattr(control_watch, "CompactedTopicReader", lambda _: found)
    monkeypatch.setattr(standby, "PlainProducer", Announced)
    monkeypatch.setattr(standby, "is_dead", lambda claim: claim.boot == "dead")
    return found


def claim(sequence: int, seconds: float = 1.0, **changes: Any) -> Claim:
    """A renewal of another's claim, which the next follows after ``seconds``."""
    return claims.claim("theirs", sequence, **{"interval_ms": int(seconds * 1000), **changes})


def wait(target: Target, until: float = 100.0, waits: list[str] | None = None) -> StoodStill | None:
    """What a process that stands by takes, and the time then is that of the clock."""
    process = Standby(LINK, target, run="ours", clock=target.clock)  # type: ignore[arg-type]
    told = [] if waits is None else waits
    return process.wait(lambda: target.clock.now >= until, lambda: told.append("standby"))


def renewed(target: Target, *, seconds: float, until: float) -> None:
    """The owner renews its claim so often, until then."""
    for number in range(int(until / seconds)):
        target.at[number * seconds] = lambda number=number: target.write(claim(number, seconds))  # type: ignore[misc]


def test_the_owner_reads_only_what_is_new(target: Target) -> None:
    """It looks every two seconds."""
    watch = ControlWatch(LINK, target)  # type: ignore[arg-type]
    target.write(claim(1), PAUSE)

    def look() -> Pause | None:
        watch.look()
        return watch.pause

    assert look() == PAUSE
    assert look() == PAUSE
    target.write(claim(2))
    assert look() == PAUSE
    assert watch.claim == claim(2)
    target.records += [Record(PAUSE.key(), None)]
    assert look() is None
    assert target.reads == [(0, 2), (2, 3), (3, 4)]


def test_the_owner_counts_those_that_stand_by_and_forgets_the_killed(target: Target) -> None:
    """A process that ends deletes its record; the owner deletes that of one that was killed, after a minute."""
    watch = ControlWatch(LINK, target)  # type: ignore[arg-type]
    one, other = (
        StandbyProcess(run=run, host="h", pid=1, since=0, interval_ms=10_000, timestamp=0) for run in "ab"
    )
    target.write(one, other)
    watch.look()
    assert watch.standbys == 2
    target.records.append(Record(other.key(), None))
    watch.look()
    assert watch.standbys == 1
    target.records.append(Record(other.key(), b"torn"))
    watch.look()
    target.clock.now = 29
    assert watch.standbys == 1
    target.clock.now = 31
    assert watch.standbys == 0
    deleted: list[Any] = []
    watch.write(deleted.extend)
    assert deleted == []
    target.clock.now = 61
    watch.write(deleted.extend)
    assert [(record.key, record.value) for record in deleted] == [(one.key(), None)]


def test_it_takes_a_claim_that_stands_still(target: Target) -> None:
    """Two seconds after the last renewal, if these come every second; it has announced itself until then."""
    renewed(target, seconds=1.0, until=5.0)
    waits: list[str] = []
    found = wait(target, waits=waits)
    assert found == StoodStill(claim(4), 4.0)
    assert target.clock.now == 6.0
    assert waits == ["standby"]
    (key, value), *_ = Announced.sent
    assert (StandbyProcess.key_of("ours"), None) == Announced.sent[-1]
    assert value is not None
    assert key == StandbyProcess.key_of("ours")


def test_an_owner_with_long_intervals_is_watched_for_long(target: Target) -> None:
    """It may not know yet that a process stands by."""
    renewed(target, seconds=5.0, until=10.0)
    assert wait(target) == StoodStill(claim(1, 5.0), 5.0)
    assert target.clock.now == 12.0


@pytest.mark.parametrize("last", [claim(9, released=True), claim(9, boot="dead"), None])
def test_it_takes_at_once_what_has_no_owner(target: Target, last: Claim | None) -> None:
    """A link that never ran, was released, or whose owner was killed on this machine; nothing is announced for it."""
    waits: list[str] = []
    if last is None:
        target.exists = False
    else:
        target.write(last)
    assert wait(target, waits=waits) == StoodStill(last, 0.0)
    assert (target.clock.now, waits) == (0.0, [])


def test_a_release_ends_the_watch(target: Target) -> None:
    """A mirror that is restarted hands its links to the one that stands by."""
    renewed(target, seconds=1.0, until=5.0)
    target.at[4.5] = lambda: target.write(claim(5, released=True))
    assert wait(target) is not None
    assert target.clock.now == 4.5


def test_a_renewal_that_an_open_transaction_hides_is_a_sign_of_life(target: Target) -> None:
    """A command that was killed while it wrote to control hides the claims of a living owner for a minute."""
    renewed(target, seconds=1.0, until=60.0)

    def hide() -> None:
        target.open += 1
        target.at[target.clock.now + 0.5] = hide

    target.at[3.25] = hide
    assert wait(target, until=30.0) is None


def test_a_slow_target_gives_the_owner_time(target: Target) -> None:
    """It keeps both waiting: the watch begins anew behind a look that took long."""
    renewed(target, seconds=1.0, until=5.0)

    def slow() -> None:
        target.clock.now += 3.0

    target.at[4.25] = slow
    target.at[8.5] = lambda: target.write(claim(5))
    found = wait(target)
    assert found is not None
    assert found.claim == claim(5)


def test_a_target_that_does_not_answer_ends_the_watch(target: Target) -> None:
    """The link waits for the target then, and a new watch begins."""
    renewed(target, seconds=1.0, until=5.0)

    def away() -> None:
        raise UnreachableError("b: away", fix="")

    target.at[4.5] = away
    with pytest.raises(UnreachableError):
        wait(target)
    assert Announced.sent[-1][1] is None


def test_it_leaves_a_living_command_alone(target: Target) -> None:
    """A failover owns the link for as long as it renews its claim."""
    for number in range(8):
        target.at[number * 5.0] = lambda number=number: target.write(  # type: ignore[misc]
            claim(number, 5.0, command="failover")
        )
    assert wait(target, until=40.0) is None


def test_a_stop_ends_the_wait(target: Target) -> None:
    """Nothing is taken then."""
    renewed(target, seconds=1.0, until=90.0)
    assert wait(target, until=20.0) is None
    assert Announced.sent[-1][1] is None
