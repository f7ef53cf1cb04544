"""The timeline of a link: renewals are no events, resumptions are, and what a newer release writes does no harm."""

from __future__ import annotations

from typing import Any

import orjson

from eomirror.records.control import Gap, Generation, HandedOver, Stopped, decode_control
from eomirror.records.events import KEPT_MS, MOST_EVENTS, TAKE_OVER, Outage, lasting_events, link_events
from eomirror.records.position import AttemptClaim
from eomirror.types import Assignment, SourcePartition
from support.fakes.claims import claim


def attempt(at: int, **changes: Any) -> AttemptClaim:
    """A claim of lane 0."""
    facts: dict[str, Any] = {
        "lane": 0, "generation": 1, "run": "r", "epoch": 2, "attempt": 3, "producer_id": 1, "producer_epoch": 0,
        "host": "h", "pid": 7, "timestamp": at, "plane": "native",
    }  # fmt: skip
    return AttemptClaim(**facts | changes)


def test_what_happened_is_told_in_order() -> None:
    """Owners by run, not by renewal; a deleted stop is a resumption; lanes stand between."""
    layout = Assignment(2, {SourcePartition("t", 0): 0})
    generation = Generation(
        generation=4, revision=0, run="r", highest_lane=1, assignment=layout, timestamp=10
    )
    gap = Gap(topic="t", partition=0, start=3, end=9, reason="", run="r", timestamp=1)
    stop = Stopped(topic="bad", reason="it is <gone>", fix="", exit_code=4, lane=0, run="r", timestamp=1)
    handed = HandedOver(replicator="mm2", place="p", run="r", timestamp=1)
    records = [
        (generation.key(), generation.value(), 10),
        *(
            (claim(run="r").key(), claim(run="r", sequence=number).value(), 10 + number)
            for number in range(5)
        ),
        (gap.key(), gap.value(), 20),
        (stop.key(), stop.value(), 30),
        (stop.key(), None, 40),
        (claim().key(), claim(run="r", released=True).value(), 50),
        (claim().key(), claim(run="s").value(), 60),
        (handed.key(), handed.value(), 70),
        (handed.key(), None, 80),
    ]
    found = link_events(records, [attempt(25)])
    assert [(event.at, event.kind) for event in found] == [
        (10, "generation"),
        (10, "owner"),
        (20, "gap"),
        (25, "lane"),
        (30, "stopped"),
        (40, "resumed"),
        (50, "released"),
        (60, "owner"),
        (70, "hand-back"),
        (80, "taken-back"),
    ]
    assert found[3].text == "lane 0 starts epoch 2, attempt 3, on h/7, native plane"
    assert found[4].text == "topic bad is stopped: it is <gone>"
    assert found[4].topic == "bad"
    assert "[3, 9)" in found[2].text


def test_a_kind_of_a_newer_release_is_named_and_nonsense_is_skipped() -> None:
    """The timeline decides nothing, so it must not fail."""
    promotion = orjson.dumps({"kind": "promotion", "topic": "t", "partition": 1})
    records = [
        (promotion, b"{}", 5),
        (b"\xff", b"x", 6),
        (None, None, 7),
        (b"[]", b"[]", 8),
        (promotion, b"7", 9),
    ]
    assert [(event.kind, event.text) for event in link_events(records, [])] == [
        ("promotion", "promotion t-1"),
        ("promotion", "promotion t-1"),
    ]


def test_only_the_newest_events_are_kept() -> None:
    """A lane that restarts all day does not fill the page."""
    found = link_events([], [attempt(number) for number in range(MOST_EVENTS + 50)])
    assert len(found) == MOST_EVENTS
    assert found[0].at == 50


def test_a_lane_whose_task_is_replaced_as_planned_is_no_event() -> None:
    """Epochs follow each other every few minutes; within a day their rows would push out everything else."""
    planned = [attempt(number, epoch=number, attempt=1) for number in range(1, 50)]
    assert [event.at for event in link_events([], [*planned, attempt(70)])] == [1, 70]


def test_an_owner_that_found_the_link_claimed_took_it() -> None:
    """The one before was killed, or is superseded; after a release a new owner is nothing to look into."""
    claims = [claim(run="a"), claim(run="b"), claim(run="b", released=True), claim(run="c")]
    found = link_events([(one.key(), one.value(), at) for at, one in enumerate(claims)], [])
    assert [event.kind for event in found] == ["owner", "take-over", "released", "owner"]
    assert "took the link from run a" in found[1].text


def test_an_owner_that_is_a_command_is_named() -> None:
    """A failover takes the link like another mirror does; it is no second mirror to look for."""
    claims = [claim(run="a"), claim(run="b", command="failover")]
    found = link_events([(one.key(), one.value(), at) for at, one in enumerate(claims)], [])
    assert "run b (eomirror failover) took the link from run a" in found[1].text


def test_what_a_compacted_log_forgets_has_an_event_of_its_own() -> None:
    """Kill, take-over, stop and resumption of last night, from a control topic that keeps the newest of each key."""
    log: dict[bytes, tuple[bytes | None, int]] = {}
    owner = None

    def write(now_ms: int, *records: tuple[bytes, bytes | None]) -> None:
        nonlocal owner
        events, owner = lasting_events(records, owner=owner, now_ms=now_ms)
        for key, value in (*records, *((event.key(), event.value()) for event in events)):
            log.pop(key, None)
            log[key] = value, now_ms + 3

    stop = Stopped(topic="bad", reason="gone", fix="", exit_code=4, lane=0, run="a", timestamp=1)
    for at in range(0, 60_000, 5_000):
        one = claim(run="a", pid=1, sequence=at, timestamp=at)
        write(at, (one.key(), one.value()))
    write(70_000, (stop.key(), stop.value()))
    write(80_000, (stop.key(), None))
    for at in range(200_000, 900_000, 5_000):
        one = claim(run="b", pid=2, sequence=at, timestamp=at)
        write(at, (one.key(), one.value()))
    outage = Outage(at=300_000, cluster="east", until=354_000)
    write(354_000, (outage.key(), outage.value()))

    found = link_events([(key, value, at) for key, (value, at) in log.items()], [])
    assert [(event.at, event.kind) for event in found] == [
        (0, "owner"), (70_000, "stopped"), (80_000, "resumed"), (200_000, TAKE_OVER), (300_000, "outage"),
    ]  # fmt: skip
    assert "whose claim was last renewed at 1970-01-01T00:00:55Z: it was killed" in found[3].text
    assert found[4].text == "cluster east did not answer for 54 s, until 1970-01-01T00:05:54Z"

    view = decode_control((key, value, "control-0@0") for key, (value, _) in log.items())
    assert sorted(view.dated.values()) == [0, 70_000, 80_000, 200_000, 300_000]
    assert KEPT_MS >= 7 * 24 * 3600 * 1000


def test_events_of_a_release_without_them_are_those_of_its_records() -> None:
    """They are told until the first event of their own."""
    old, new = claim(run="a", released=True, timestamp=5), claim(run="b", timestamp=900_000)
    events, _ = lasting_events([(new.key(), new.value())], owner=old, now_ms=900_000)
    records = [(old.key(), old.value(), 5), (new.key(), new.value(), 900_002)]
    records += [(event.key(), event.value(), 900_002) for event in events]
    assert [(event.at, event.kind) for event in link_events(records, [])] == [
        (5, "released"),
        (900_000, "owner"),
    ]
