"""GroupThread groups: rounds without a pause while a run waits for them, and an end of that."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.driver.background import Background
from eomirror.driver.group_thread import GroupThread
from eomirror.groups.followed_groups import GroupsSnapshot
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


class Link:
    """A link that nothing happens to."""

    name = "east->west"
    patient = True

    def fail(self, error: BaseException, *, everything: bool = False) -> None:
        raise AssertionError(f"{error} {everything}")


class Rounds:
    """A follower whose offsets wait for the mirror in so many rounds."""

    def __init__(self, waiting: int, pause: float = 3600.0, followed: int = 1) -> None:
        self.waiting, self.pause, self.followed = waiting, pause, followed
        self.rounds = 0
        self.closed = False

    def round(self, mirrored: object) -> float:
        del mirrored
        self.rounds += 1
        return self.pause

    def waits(self) -> bool:
        self.waiting -= 1
        return self.waiting >= 0

    def snapshot(self) -> GroupsSnapshot:
        return GroupsSnapshot(followed=self.followed)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Ends what a test began."""
    made = threading.Event()
    yield made
    made.set()


def following(follower: Any, over: threading.Event) -> GroupThread:
    """It, in a thread of its own."""
    made = GroupThread(Background(Link(), over), lambda: follower, object, over=over, clock=SYSTEM_CLOCK)  # type: ignore[arg-type,return-value]
    threading.Thread(target=made.run, daemon=True).start()
    return made


def test_groups_are_settled_when_a_later_round_finds_nothing_that_waits(over: threading.Event) -> None:
    """The first round was before anybody asked; the next ones do not wait for the interval."""
    # of the round before anybody asks, and two more
    rounds = Rounds(waiting=3)
    made = following(rounds, over)
    wait_for(lambda: rounds.rounds == 1)

    assert not made.settled()
    wait_for(made.settled)

    assert rounds.rounds == 4


def test_what_never_settles_is_not_waited_for_forever(over: threading.Event) -> None:
    """A group that commits all the time always stands further on."""
    rounds = Rounds(waiting=10_000)
    made = following(rounds, over)

    wait_for(made.settled)

    assert rounds.rounds <= 22


def test_no_run_waits_for_groups_that_do_not_exist(over: threading.Event) -> None:
    """The last round found none."""
    rounds = Rounds(waiting=0, followed=0)
    made = following(rounds, over)

    wait_for(made.settled)

    assert rounds.rounds <= 2


def test_no_run_waits_where_groups_are_not_followed(over: threading.Event) -> None:
    """The link has no groups."""
    wait_for(following(None, over).settled)


def test_the_end_of_the_link_ends_the_rounds(over: threading.Event) -> None:
    """Also in the middle of a long pause."""
    rounds = Rounds(waiting=0)
    following(rounds, over)
    wait_for(lambda: rounds.rounds == 1)

    over.set()

    wait_for(lambda: rounds.closed)
