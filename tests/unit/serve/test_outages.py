"""Events that only the process sees that serves the page: a mirror that was killed, a cluster that went away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from test_page import FACTS, STATUS

from eomirror.errors import AuthorizationError, UnreachableError
from eomirror.records.events import LinkEvent, Outage, link_events
from eomirror.status.derive import unread_status
from eomirror.status.live import LinkView
from eomirror.status.liveness import StandingEvents
from eomirror.status.model import OwnerStatus
from eomirror.status.snapshot import LinkSnapshot

if TYPE_CHECKING:
    from eomirror.status.model import LinkStatus

QUIET = replace(STATUS, events=(LinkEvent(5, "owner", "east-1 owns the link"),))


def told(
    seen: StandingEvents, status: LinkStatus, wall_ms: int, kept: float | None = None
) -> list[tuple[int, str]]:
    """Time and text of all events after a look."""
    view = seen.look(LinkView(facts=FACTS, status=status, kept_seconds=kept), wall_ms)
    return [(event.at, event.text) for event in view.status.events]


def test_a_cluster_that_is_away_is_an_event_until_it_is_back() -> None:
    """The mirror records the outage then; what the target does not tell stays as it was."""
    seen, away = StandingEvents(), replace(QUIET, problem="no way to east", away=("source",))
    east, west = (2_000, "cluster east does not answer"), (4_000, "cluster west does not answer")
    assert told(seen, QUIET, 1_000) == [(5, "east-1 owns the link")]
    assert told(seen, away, 2_000)[1:] == [east]
    assert told(seen, away, 3_000)[1:] == [east]
    unread = unread_status(FACTS.name, away, UnreachableError("no way to west"))
    assert told(seen, unread, 4_000, 2.0)[1:] == [east, west]
    assert told(seen, unread, 4_500, 2.5)[1:] == [east, west]
    assert told(seen, QUIET, 5_000) == [(5, "east-1 owns the link")]


def test_a_target_that_answers_is_not_told_as_away() -> None:
    """It may refuse, or hold a record that is not readable."""
    unread = unread_status(FACTS.name, QUIET, AuthorizationError("no right"))
    assert told(StandingEvents(), unread, 4_000, 2.0)[1:] == [
        (4_000, "the topics of the link on west cannot be read")
    ]


def test_a_source_that_fails_a_running_mirror_is_told_with_its_time() -> None:
    """Looks happen on requests only; one question that fails is no outage."""
    seen = StandingEvents()

    def after(failing: float, wall_ms: int) -> list[tuple[int, str]]:
        live = LinkSnapshot(link=FACTS.name, state="running", source_failing_seconds=failing)
        view = seen.look(LinkView(facts=FACTS, status=QUIET, live=live), wall_ms)
        return [(event.at, event.text) for event in view.status.events[1:]]

    assert after(4.0, 10_000) == []
    assert after(60.0, 100_000) == [(40_000, "cluster east does not answer")]
    assert after(0.0, 110_000) == []


def test_a_silent_mirror_is_an_event_of_its_last_claim() -> None:
    """Until it renews its claim, or another run records that it took the link."""
    owner = OwnerStatus(run="r", host="east-1", pid=7, claimed_at=10_000, released=False)
    seen, dead = StandingEvents(), replace(QUIET, state="silent", owner=owner)
    gone = (
        "the mirror, process 7 on host east-1, stopped renewing its claim: it was killed, or its host is away"
    )
    assert told(seen, dead, 30_000)[1:] == [(10_000, gone)]
    assert told(seen, dead, 31_000)[1:] == [(10_000, gone)]
    assert told(seen, replace(QUIET, owner=owner), 40_000)[1:] == []


def test_an_outage_that_ends_without_a_mirror_is_recorded_once() -> None:
    """A mirror that runs records it; an owner that was never seen has no control topic to write to."""
    away = {"problem": "no way to east", "away": ("source",)}
    owner = OwnerStatus(run="r", host="east-1", pid=7, claimed_at=10, released=True)
    for state, known, seconds, recorded in [
        ("stopped", owner, 20, 1),
        ("silent", owner, 20, 1),
        ("running", owner, 20, 0),
        ("stopped", None, 20, 0),
        ("stopped", owner, 2, 0),
    ]:
        seen, quiet = StandingEvents(), replace(QUIET, state=state, owner=known)
        told(seen, replace(quiet, **away), 1_000)
        assert seen.unrecorded == []
        told(seen, quiet, 1_000 + seconds * 1000)
        told(seen, quiet, 60_000)
        expected = [Outage(at=1_000, cluster="east", until=1_000 + seconds * 1000)] * recorded
        assert seen.unrecorded == expected, (state, known, seconds)


def test_an_outage_that_several_processes_saw_is_one_event() -> None:
    """Two that serve the page and a mirror that started meanwhile; another outage, and another cluster, stay."""
    rows = [(10, "east", 30), (12, "east", 31), (25, "east", 29), (40, "east", 50), (20, "west", 45)]
    records = [Outage(at=at * 1000, cluster=name, until=until * 1000) for at, name, until in rows]
    found = link_events([(one.key(), one.value(), 99_000) for one in records], ())
    assert [(event.at, event.kind, event.text.split(",")[0]) for event in found] == [
        (10_000, "outage", "cluster east did not answer for 21 s"),
        (20_000, "outage", "cluster west did not answer for 25 s"),
        (40_000, "outage", "cluster east did not answer for 10 s"),
    ]
