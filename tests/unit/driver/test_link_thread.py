"""What the lanes of a link make of what its lanes leave behind, without Spark."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.clock import SYSTEM_CLOCK, Deadline
from eomirror.driver.channel import AttemptId
from eomirror.driver.link import LinkThread
from eomirror.driver.link_lanes import LinkLanes
from eomirror.driver.outage_records import ConfigurationRecords
from eomirror.errors import QuotaError
from eomirror.lane.spec import Ending
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import ORDERS, spec


def lanes(*, silent: bool, forgotten: list[tuple[str, int]] | None = None) -> LinkLanes:
    """Those of a link whose channel falls silent in time, or does not."""
    unused: Any = SimpleNamespace(patient=True, clock=SYSTEM_CLOCK, set_lane_state=lambda *_: None)
    made = LinkLanes("a->b", unused, unused, unused, check_owner=lambda: None, fail=lambda *_: None)
    forget = [] if forgotten is None else forgotten
    channel: Any = SimpleNamespace(
        wait_disconnected=lambda *_: silent, forget=lambda *lane: forget.append(lane)
    )
    made._engine = SimpleNamespace(channel=channel)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("silent", [True, False])
def test_a_lane_that_does_not_rest_is_told_like_one_that_is_cut_off(*, silent: bool) -> None:
    """EO-10: a run that says that it ended well has nothing left that may still commit."""
    forgotten: list[tuple[str, int]] = []
    made = lanes(silent=silent, forgotten=forgotten)

    made.wait_disconnected(0)

    assert forgotten == ([] if silent else [("a->b", 0)])

    assert made.aborted is not silent


@pytest.mark.parametrize("last", ["connects", "parts", "is lost", "ends"])
def test_a_lane_that_is_cut_off_may_have_a_transaction_until_it_takes_its_leave(last: str) -> None:
    """On a busy machine Spark brings a report later than a stop waits; a connection that breaks says nothing."""
    made = lanes(silent=True)
    cut: list[Any] = []
    late: Any = SimpleNamespace(lane=0, stop=lambda: None, join=lambda _: False, greeting=lambda _: [])
    made._lanes[0] = late
    engine: Any = made._engine
    engine.jobs = SimpleNamespace(
        cancel=lambda *lane: cut.append(lane), run=lambda spec: spec.report(Ending.EPOCH, "")
    )
    made._tools.engine = SimpleNamespace(result=lambda: engine)  # type: ignore[misc]
    began = spec(ORDERS)
    attempt = AttemptId("a->b", began.lane, began.epoch, began.attempt)
    made.running.add(attempt[1:])
    made.greeting(attempt)
    if last in {"parts", "is lost"}:
        made.disconnected(attempt, parted=last == "parts")
    elif last == "ends":
        made.run_attempt(began)

    made.stop(Deadline(0, SYSTEM_CLOCK))

    assert cut == [("a->b", 0)]
    assert made.aborted is (last in {"connects", "is lost"})


def test_an_attempt_that_was_cancelled_gives_its_lane_no_slot() -> None:
    """Spark began it nevertheless, and it is told to leave; the lane waits on."""
    made = lanes(silent=True)
    made.running.add((0, 1, 2))

    made.greeting(AttemptId("a->b", 0, 1, 1))
    assert made.moves.slots.running() == []

    made.greeting(AttemptId("a->b", 0, 1, 2))
    assert made.moves.slots.running() == [0]


def test_a_lane_whose_topics_are_paused_does_not_wait_for_a_slot() -> None:
    made = lanes(silent=True)
    slots = made.moves.slots
    slots.begun(0, 0.0)
    slots.begun(1, 0.0)
    slots.connected(1, 0.0)
    assert slots.due(1_000.0) == 0
    made.rests(0, "waiting")
    assert slots.due(1_000.0) == 0
    made.rests(0, "paused")
    assert slots.due(1_000.0) is None


def test_offsets_of_groups_are_sent_to_the_lane_that_got_the_partition() -> None:
    """It remembers nothing of them, as one that was started again; and the run tells the new generation."""
    source, gone = SourcePartition("orders", 0), SourcePartition("gone", 0)
    moved: list[Any] = [(3, {source: 1, gone: None}), None]
    told: list[Any] = []
    parked: list[Any] = []
    link: Any = SimpleNamespace(
        generation=2,
        name="a->b",
        _records=SimpleNamespace(stops=SimpleNamespace(tried_again=lambda *_: None)),
        lanes=SimpleNamespace(
            release=parked.append,
            moves=SimpleNamespace(look=lambda publish, *, elastic: elastic and publish() and moved.pop(0)),
        ),
        _taken=SimpleNamespace(move=lambda: True, parked=parked.append),
        group_thread=SimpleNamespace(lane_restarted=told.append),
    )
    for _ in range(2):
        LinkThread._look_at_lanes(link, elastic=True)
    assert (link.generation, told, parked) == (3, [{source, gone}], [{"gone"}, {"gone"}])


def changed_link(outcomes: list[Any]) -> Any:
    """A link whose changed settings are taken or not, as the outcomes say."""

    def reconfigure() -> Any:
        found = outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    plain: Any = SimpleNamespace()
    common = replace(spec(), source=plain, target=plain)
    lanes = SimpleNamespace(
        moves=SimpleNamespace(whole=nullcontext(), pending=False, park=lambda _: set()),
        reconfigure=lambda _: None,
        release=lambda _: None,
    )
    return SimpleNamespace(
        name="a->b", _spec=common, lanes=lanes, configuration=ConfigurationRecords(common, SYSTEM_CLOCK),
        _taken=SimpleNamespace(reconfigure=reconfigure, parked=lambda *_, **__: None), _refresh_topics=lambda: None,
        _look_at_lanes=lambda: None, _records=SimpleNamespace(stops=SimpleNamespace(tried_again=lambda *_: None)),
    )  # fmt: skip


def test_a_change_that_cannot_be_made_ready_is_shown_until_it_is_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a refused file is; a file that is refused meanwhile stays so."""
    monkeypatch.setattr("eomirror.driver.link.with_live", lambda link, _: link)
    monkeypatch.setattr("eomirror.driver.outage_records.holds_secret", lambda *_: False)
    held = QuotaError("too many topics", fix="wait", seconds=1.0)
    link = changed_link([held, (None, set()), held, (None, set())])
    with pytest.raises(QuotaError):
        LinkThread._take_settings(link)
    assert link.configuration.refused.reason == "not in force yet, tried again: too many topics\n  fix: wait"
    LinkThread._take_settings(link)
    assert link.configuration.refused is None

    with pytest.raises(QuotaError):
        LinkThread._take_settings(link)
    link.configuration.refuse("line 3: no such setting")
    LinkThread._take_settings(link)
    assert link.configuration.refused.reason == "line 3: no such setting"
    link.configuration.refuse("")
    assert link.configuration.refused is None
