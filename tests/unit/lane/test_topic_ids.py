"""Which topics a transaction asks both clusters about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.lane.transaction import TopicIdRequest
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import FakeClock, FakePlane, position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TARGETS = {"orders": "east.orders", "bills": "east.bills"}
_POSITIONS = {
    source: position(source, 10) for source in (SourcePartition("orders", 0), SourcePartition("bills", 0))
}


@dataclass
class _Clusters:
    """Says of each topic that it was created again; remembers what was asked."""

    asked: list[tuple[list[str], list[str]]] = field(default_factory=list)

    def request_ids(self, source_topics: Sequence[str], target_topics: Sequence[str]) -> _Answer:
        self.asked.append((list(source_topics), list(target_topics)))
        return _Answer(*self.asked[-1])


@dataclass
class _Answer:
    sources: list[str]
    targets: list[str]

    def result(self) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
        return dict.fromkeys(self.sources, "new"), dict.fromkeys(self.targets, "new")


def _asked(plane: FakePlane, clusters: _Clusters) -> TopicIdRequest:
    return TopicIdRequest(
        {"orders", "bills"},
        targets=_TARGETS,
        plane=plane,
        topics=clusters,  # type: ignore[arg-type]
    )


def test_what_is_not_pinned_is_asked_of_both_sides() -> None:
    """Only topics that go by name are asked about; a pinned one has the ids of its position."""
    plane, clusters = FakePlane(FakeClock(), pins={"orders"}), _Clusters()
    source_ids, target_ids = _asked(plane, clusters).result(_POSITIONS)
    assert clusters.asked == [(["bills"], ["east.bills"])]
    assert source_ids == {"orders": "id-orders", "bills": "new"}
    assert target_ids == {"east.orders": "id-east.orders", "east.bills": "new"}


def test_no_broker_is_asked_when_everything_is_pinned() -> None:
    """A transaction whose topics all go by id asks nothing."""
    plane, clusters = FakePlane(FakeClock(), pins={"orders", "bills"}), _Clusters()
    source_ids, _ = _asked(plane, clusters).result(_POSITIONS)
    assert clusters.asked == []
    assert source_ids == {"orders": "id-orders", "bills": "id-bills"}


def test_a_topic_that_went_by_name_after_all_is_asked_about() -> None:
    """A broker that is too old for ids shows when it answers: its topic is asked about behind the seal."""
    plane, clusters = FakePlane(FakeClock(), pins={"orders", "bills"}), _Clusters()
    asked = _asked(plane, clusters)
    plane.pins = {"bills"}
    source_ids, target_ids = asked.result(_POSITIONS)
    assert clusters.asked == [(["orders"], ["east.orders"])]
    assert source_ids == {"orders": "new", "bills": "id-bills"}
    assert target_ids == {"east.orders": "new", "east.bills": "id-east.bills"}
