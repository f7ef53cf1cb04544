"""Events that only the process sees that serves the page: a mirror that was killed, a cluster that went away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from test_page import FACTS, STATUS

from eomirror.errors import AuthorizationError, UnreachableError
from eomirror.status.derive import unread_status
from eomirror.status.events import Event
from eomirror.status.live import LinkView
from eomirror.status.outages import SeenEvents
from eomirror.status.snapshot import LinkSnapshot

if TYPE_CHECKING:
    from eomirror.status.model import LinkStatus

QUIET = replace(STATUS, events=(Event(5, "owner", "east-1 owns the link"),))


def told(
    seen: SeenEvents, status: LinkStatus, wall_ms: int, kept: float | None = None
) -> list[tuple[int, str]]:
    """Time and text of all events after a look."""
    view = seen.look(LinkView(facts=FACTS, status=status, kept_seconds=kept), wall_ms)
    return [(event.at, event.text) for event in view.status.events]


def test_clusters_that_go_and_come_back_are_events_of_that_moment() -> None:
    """Once each; what the target does not tell stays as it was."""
    seen, away = SeenEvents(), replace(QUIET, problem="no way to east")
    assert told(seen, QUIET, 1_000) == [(5, "east-1 owns the link")]
    assert told(seen, away, 2_000)[1:] == [(2_000, "cluster east does not answer")]
    assert told(seen, away, 3_000)[1:] == [(2_000, "cluster east does not answer")]
    unread = unread_status(FACTS.name, away, UnreachableError("no way to west"))
    assert told(seen, unread, 4_000, 2.0)[2:] == [(4_000, "cluster west does not answer")]
    assert told(seen, QUIET, 5_000)[3:] == [
        (5_000, "the topics of the link on west are read again"), (5_000, "cluster east answers again"),
    ]  # fmt: skip


def test_a_target_that_answers_is_not_told_as_away() -> None:
    """It may refuse, or hold a record that is not readable."""
    unread = unread_status(FACTS.name, QUIET, AuthorizationError("no right"))
    assert told(SeenEvents(), unread, 4_000, 2.0)[1:] == [
        (4_000, "the topics of the link on west cannot be read")
    ]


def test_a_source_that_fails_a_running_mirror_is_told_with_its_time() -> None:
    """Looks happen on requests only; one question that fails is no outage."""
    seen = SeenEvents()

    def after(failing: float, wall_ms: int) -> list[tuple[int, str]]:
        live = LinkSnapshot(link=FACTS.name, state="running", source_failing_seconds=failing)
        view = seen.look(LinkView(facts=FACTS, status=QUIET, live=live), wall_ms)
        return [(event.at, event.text) for event in view.status.events[1:]]

    assert after(4.0, 10_000) == []
    assert after(60.0, 100_000) == [(40_000, "cluster east does not answer")]
    assert after(0.0, 110_000)[1:] == [(110_000, "cluster east answers again")]


def test_a_silent_mirror_is_an_event_of_its_last_claim() -> None:
    """One that was only frozen comes back as the same run; another run writes records of its own."""
    owner = {"run": "r", "host": "east-1", "pid": 7, "claimed_at": 10_000, "released": False}
    seen, dead = SeenEvents(), replace(QUIET, state="silent", owner=owner)
    gone = (
        "the mirror, process 7 on host east-1, stopped renewing its claim: it was killed, or its host is away"
    )
    assert told(seen, dead, 30_000)[1:] == [(10_000, gone)]
    assert told(seen, dead, 31_000)[1:] == [(10_000, gone)]
    assert told(seen, replace(QUIET, owner=owner), 40_000)[2:] == [
        (40_000, "the mirror, process 7 on host east-1, renews its claim again")
    ]
    assert told(seen, dead, 50_000)[1:3] == [(10_000, gone), (10_000, gone)]
    assert len(told(seen, replace(QUIET, owner={**owner, "run": "other"}), 60_000)) == 4
