"""Events that only the process sees that serves the page: a mirror that was killed, a cluster that went away."""

from __future__ import annotations

from dataclasses import replace

from test_page import FACTS, STATUS

from eomirror.link.events import Event
from eomirror.link.status import LinkStatus, unread_status
from eomirror.metrics.view import LinkView
from eomirror.serve.seen_events import SeenEvents

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
    unread = unread_status(FACTS.name, away, problem="no way to west", fix="")
    assert told(seen, unread, 4_000, 2.0)[2:] == [(4_000, "cluster west does not answer")]
    assert told(seen, QUIET, 5_000)[3:] == [
        (5_000, "cluster west answers again"), (5_000, "cluster east answers again"),
    ]  # fmt: skip


def test_a_killed_mirror_is_an_event_of_its_last_claim() -> None:
    """Its next owner writes records of its own; a second death is another event."""
    owner = {"run": "r", "host": "east-1", "pid": 7, "claimed_at": 10_000}
    seen, dead = SeenEvents(), replace(QUIET, state="silent", owner=owner)
    text = (
        "the mirror, process 7 on host east-1, renewed its claim for the last time: "
        "it was killed, or its host is away"
    )
    assert told(seen, dead, 30_000)[1:] == [(10_000, text)]
    assert told(seen, dead, 31_000)[1:] == [(10_000, text)]
    assert len(told(seen, QUIET, 40_000)) == 2
    assert len(told(seen, dead, 90_000)) == 3
