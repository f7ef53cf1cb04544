"""The reads behind a plan's copy: a few requests for any number of partitions, and what is refused is not known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.errors import AuthorizationError, StateError
from eomirror.link import planned_copy as module
from eomirror.link.planned_copy import planned_copy
from eomirror.topics.plan import Plan
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import position
from support.links.one_link import CONFIG

if TYPE_CHECKING:
    from eomirror.topics.expected_copy import ExpectedCopy

PARTITIONS = frozenset(SourcePartition("orders", number) for number in range(3_000))
LEFT = SourcePartition("clicks", 0)


class Clusters:
    """Both clusters of a link that has mirrored orders to 40, and clicks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[str] = []
        self.promoted: Any = None
        self.refused: dict[str, Exception] = {}
        self.admin = self.cluster = self
        self.client_id = self.alias = "c"
        self.source = self.target = self
        monkeypatch.setattr(module, "extension_client", lambda *_: self)
        monkeypatch.setattr(module, "LinkState", lambda *_: self)

    def _asked(self, what: str) -> None:
        self.requests.append(what)
        if what in self.refused:
            raise self.refused[what]

    def control(self, **_: Any) -> Any:
        self._asked("control")
        generation = SimpleNamespace(
            assignment=SimpleNamespace(partitions=dict.fromkeys([*PARTITIONS, LEFT], 0))
        )
        return SimpleNamespace(generation=generation, history=SimpleNamespace(current=self.promoted))

    def positions(self, **_: Any) -> Any:
        self._asked("positions")
        return {each: position(each, 40, total_records=7) for each in [*PARTITIONS, LEFT]}

    def answered_offsets(self, asked: Any, *, at: str, **_: Any) -> tuple[dict[Any, int], set[Any]]:
        self._asked(at)
        return dict.fromkeys(asked, 0 if at == "earliest" else 100), set()

    def visible_topics(self, names: list[str]) -> tuple[dict[str, Any], set[str]]:
        self._asked("topics")
        return dict.fromkeys(names), set()

    def log_sizes(self, asked: Any, _: float) -> list[tuple[str, int, int]]:
        self._asked("sizes")
        return [(*where, 1_000) for where in asked]


def planned(clusters: Any, *, first_run: bool = False, listed: bool = True) -> ExpectedCopy | None:
    partitions = PARTITIONS if listed else None
    plan = Plan(
        ("a", "b"), {"orders": "east.orders"}, (), (), (), (), {}, first_run=first_run, partitions=partitions
    )  # fmt: skip
    return planned_copy(CONFIG.links[0], plan, clusters)


def test_the_number_of_partitions_costs_no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each kind, of which the clients make one to each broker."""
    clusters = Clusters(monkeypatch)

    found = planned(clusters)

    assert found is not None
    assert sorted(clusters.requests) == ["control", "earliest", "latest", "positions", "sizes", "topics"]
    assert (found.records, found.bytes) == (3_000 * 60, 3_000 * 600)
    (one,) = found.dropped
    assert (one.topic, one.records, one.reason) == ("clicks", 7, "no pattern of `topics` matches it")


def test_a_first_run_reads_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topics do not exist yet."""
    clusters = Clusters(monkeypatch)

    found = planned(clusters, first_run=True)

    assert found is not None
    assert found.records == 3_000 * 100
    assert sorted(clusters.requests) == ["earliest", "latest", "sizes"]


def test_sizes_that_are_refused_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror does not need that right: the plan says which it is, and all else."""
    clusters = Clusters(monkeypatch)
    clusters.refused["sizes"] = AuthorizationError("DescribeLogDirs was refused")

    found = planned(clusters)

    assert found is not None
    assert (found.records, found.bytes) == (3_000 * 60, None)
    assert found.bytes_problem == "DescribeLogDirs was refused; it takes Describe on the cluster"


@pytest.mark.parametrize("what", ["control", "positions", "latest"])
def test_what_cannot_be_read_is_no_error_of_the_plan(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The plan itself stands."""
    clusters = Clusters(monkeypatch)
    clusters.refused[what] = StateError(f"{what} is not readable")

    found = planned(clusters)

    assert found is not None
    assert (found.problem, found.records, found.topics) == (f"{what} is not readable", None, ())


def test_a_promoted_link_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is refused."""
    clusters = Clusters(monkeypatch)
    clusters.promoted = object()

    found = planned(clusters)

    assert found is not None
    assert "promoted" in found.problem
    assert planned(clusters, listed=False) is None
