"""Partitions that have a cut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror import load_config
from eomirror.failover import facts as module
from eomirror.failover.facts import _known_loss, beside_cuts, mirrored, read_facts
from eomirror.records.control import ControlView, Generation, Stopped
from eomirror.records.promotion import Cut
from eomirror.status.model import LinkStatus
from eomirror.types import Assignment, SourcePartition
from support.fakes.clocks import PlayedClock
from support.fakes.lane_fakes import position

ORDERS, PARKED, BEATS = (SourcePartition(topic, 0) for topic in ("orders", "parked", "heartbeats"))


@pytest.mark.parametrize(
    ("settings", "expected"), [({"heartbeats": "source"}, {ORDERS}), ({"topics": [".*"]}, {ORDERS, BEATS})]
)
def test_a_topic_that_left_the_filter_and_our_own_heartbeats_have_no_cut(
    settings: dict[str, Any], expected: set[SourcePartition]
) -> None:
    """The mirror writes heartbeats to the source while it runs, so that topic never stands still."""
    link = {"source": "east", "target": "west", "topics": ["orders"], **settings}
    clusters = {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:2"}}
    (chosen,) = load_config({"clusters": clusters, "links": [link]}).links
    generation = Generation(
        generation=3, revision=0, run="r", highest_lane=0,
        assignment=Assignment(1, {ORDERS: 0, BEATS: 0}, frozenset({PARKED})), timestamp=1,
    )  # fmt: skip
    positions = {source: position(source, 9) for source in (ORDERS, PARKED, BEATS)}

    assert set(mirrored(chosen, positions, ControlView(generation))) == expected
    assert mirrored(chosen, positions, ControlView()) == {}


def generation(*assigned: SourcePartition) -> Generation:
    """One lane with these partitions."""
    layout = Assignment(1, dict.fromkeys(assigned, 0))
    return Generation(generation=3, revision=0, run="r", highest_lane=0, assignment=layout, timestamp=1)


def loaded(**settings: Any) -> Any:
    """A configuration with one link."""
    link = {
        "name": "l",
        "source": "east",
        "target": "west",
        "topics": [".*"],
        "exclude": ["parked"],
        **settings,
    }
    return load_config(
        {
            "clusters": {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:2"}},
            "links": [link],
        }
    )


class Source:
    """A source whose topics have one partition, from offset 0 to an end."""

    def __init__(self, **ends: int) -> None:
        self.ends = ends

    def topic_names(self) -> list[str]:
        return list(self.ends)

    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        return {
            name: SimpleNamespace(partitions=1, topic_id="t", leaderless={0} if self.ends[name] < 0 else ())
            for name in names
        }

    def visible_topics(self, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.describe_topics(names), {}

    def offsets(self, asked: Any, *, at: str, read_committed: bool) -> dict[Any, int]:
        assert not read_committed
        assert all(self.ends[where[0]] >= 0 for where in asked)
        return {where: self.ends[where[0]] if at == "latest" else 0 for where in asked}


@pytest.mark.parametrize("answers", [True, False])
def test_a_topic_without_a_lane_is_beside_the_cuts_from_its_position_on(answers: bool) -> None:
    """One that left the filter is not, with the source or without it; heartbeats of the mirror are no loss."""
    new, out = SourcePartition("new", 0), SourcePartition("out", 0)
    ends = {"orders": 9, "parked": 50, "heartbeats": 99, "out": 30, "new": 7}
    link = loaded(heartbeats="source").links[0]
    stops = tuple(
        Stopped(topic=topic, reason="r", fix="", exit_code=1, lane=None, run="r", timestamp=1)
        for topic in ("new", "out")
    )
    view = ControlView(
        generation(ORDERS, BEATS),
        stopped=stops,
        ends={SourcePartition(topic, 0): end for topic, end in ends.items()},
    )
    positions = {source: position(source, 9) for source in (ORDERS, PARKED, BEATS, out)}
    source: Any = Source(**ends) if answers else None

    assert beside_cuts(link, positions, view, source) == {new: (0, 7), out: (9, 30)}


def test_a_partition_that_never_began_and_has_no_leader_is_beside_the_cuts() -> None:
    """Its records cannot be counted, and none of them has a copy."""
    new = SourcePartition("new", 0)
    source: Any = Source(orders=9, new=-1, empty=0)
    view, positions = ControlView(generation(ORDERS)), {ORDERS: position(ORDERS, 9)}

    assert beside_cuts(loaded().links[0], positions, view, source) == {new: None}
    assert _known_loss([], {new: None, ORDERS: (3, 9)}, answers=True) == 6


def test_ages_are_those_of_the_mirrors_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's clock that is an hour behind would make a bound of last night look fresh."""
    clock: Any = PlayedClock(10_000)
    status = LinkStatus(
        link="l", state="silent", problem="away", clock_offset_seconds=3_600.0, source_seen_seconds=29.0
    )
    nothing: Any = SimpleNamespace(close=lambda: None, admin=None)
    at = (10_000 + 3_600 - 41) * 1000
    written = {ORDERS: position(ORDERS, 9, timestamp=at)}
    groups: Any = SimpleNamespace(positions=lambda: written, moves=lambda *_, **__: ())
    view = ControlView(generation(ORDERS), ends={ORDERS: 30}, seen=at)
    for name, made in {
        "StatusReader": lambda *_, **__: SimpleNamespace(read=lambda: status, close=lambda: None),
        "ClusterSession": lambda *_, **__: nothing, "ClusterAdmin": lambda *_, **__: nothing,
        "control_of": lambda *_: view, "_replicas": lambda _, __, facts: ((), facts),
        "CopyEnds": lambda *_: SimpleNamespace(read=lambda *_, **__: {}),
        "cuts_of": lambda *_: {ORDERS: SimpleNamespace(lost=21, source_end=30)},
    }.items():  # fmt: skip
        monkeypatch.setattr(module, name, made)
    config = loaded()

    found = read_facts(config, config.links[0], answers=False, groups=groups, clock=clock)

    assert (found.known_lost, found.seen_seconds, found.silent_seconds) == (21, 29.0, 41.0)


@pytest.mark.parametrize("runs_on", [True, False])
def test_a_mirror_that_runs_on_while_it_is_read_is_not_taken_for_a_torn_copy(
    monkeypatch: pytest.MonkeyPatch, *, runs_on: bool
) -> None:
    """Its copy holds what it has committed behind the positions that were read; one that stands still has lost it."""
    nothing: Any = SimpleNamespace(close=lambda: None, admin=None)
    before, after = {ORDERS: position(ORDERS, 9)}, {ORDERS: position(ORDERS, 12)}
    reads = iter([before, after if runs_on else before])
    groups: Any = SimpleNamespace(positions=lambda: next(reads), moves=lambda *_, **__: ())
    torn, whole = (SimpleNamespace(problem=text) for text in ("records of the link stand behind it", ""))
    status = LinkStatus(link="l", state="running")
    for name, made in {
        "StatusReader": lambda *_, **__: SimpleNamespace(read=lambda: status, close=lambda: None),
        "ClusterSession": lambda *_, **__: nothing, "ClusterAdmin": lambda *_, **__: nothing,
        "control_of": lambda *_: ControlView(generation(ORDERS)), "_replicas": lambda _, __, facts: ((), facts),
        "CopyEnds": lambda *_: SimpleNamespace(
            read=lambda _, *, later, **__: {ORDERS: torn if later() == before else whole}
        ),
        "cuts_of": lambda *_: {},
    }.items():  # fmt: skip
        monkeypatch.setattr(module, name, made)
    config = loaded()

    found = read_facts(config, config.links[0], answers=False, groups=groups, clock=PlayedClock(1))  # type: ignore[arg-type]

    assert bool(found.torn_copies) is not runs_on


@pytest.mark.parametrize(
    ("state", "answers", "lost"), [("running", True, 2), ("running", False, 21), ("silent", True, 21)]
)
def test_what_arrives_while_a_running_mirror_is_read_is_no_loss(
    monkeypatch: pytest.MonkeyPatch, state: str, lost: int, *, answers: bool
) -> None:
    """The read takes seconds: rate by time would stand as lost, though the mirror has committed it since."""
    nothing: Any = SimpleNamespace(close=lambda: None, admin=None)
    reads = iter([{ORDERS: position(ORDERS, 9)}, {ORDERS: position(ORDERS, 28)}])
    groups: Any = SimpleNamespace(positions=lambda: next(reads), moves=lambda *_, **__: ())
    cut = Cut(
        topic="orders", partition=0, topic_id="id-orders", position=9, target_topic="east.orders",
        target_topic_id="t", target_end=9, timestamp=1, source_end=30,
    )  # fmt: skip
    for name, made in {
        "StatusReader": lambda *_, **__: SimpleNamespace(
            read=lambda: LinkStatus(link="l", state=state), close=lambda: None
        ),
        "ClusterSession": lambda *_, **__: nothing, "ClusterAdmin": lambda *_, **__: nothing,
        "control_of": lambda *_: ControlView(generation(ORDERS)), "_replicas": lambda _, __, facts: ((), facts),
        "CopyEnds": lambda *_: SimpleNamespace(read=lambda *_, **__: {}), "cuts_of": lambda *_: {ORDERS: cut},
        "mirrored": lambda _, every, *__: every, "beside_cuts": lambda *_: {}, "_open": lambda *_: (),
        "_drifts": lambda *_: (), "_unfollowed": lambda *_: (),
    }.items():  # fmt: skip
        monkeypatch.setattr(module, name, made)
    config = loaded()

    found = read_facts(config, config.links[0], answers=answers, groups=groups, clock=PlayedClock(1))  # type: ignore[arg-type]

    assert found.known_lost == lost
