"""New partitions of a taken link: what control says of a topic while its revision is on its way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Link
from eomirror.driver.link_tools import Copies
from eomirror.driver.stopped_topics import StopRecords
from eomirror.driver.taken_link import TakenLink
from eomirror.errors import ClusterError, QuotaError
from eomirror.lane.spec import AssignedPartition, LaneSpec
from eomirror.records.control import decode_control
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.plane.protocol import MetadataRecord

HELD = QuotaError("the quota holds us back: 6 of 12 topics created", seconds=5)
ORDERS = AssignedPartition(SourcePartition("orders", 0), "id-orders", "a.orders", "id-copy")


class Rig:
    """A taken link, of which discovery holds `orders` back until `ready`."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes | None, bytes | None, str]] = []
        self.ready = False
        self.seen: list[set[str]] = []
        self.publish: Callable[[Sequence[AssignedPartition]], Any] = lambda new: {0: tuple(new)}
        link = Link(name="a->b", source="a", target="b", topics=(".*",))
        self.spec = LaneSpec(
            link=link, source=Cluster("a", {}), target=Cluster("b", {}),
            source_cluster_id="", target_cluster_id="", run="r7", generation=0, lane=0, epoch=0, attempt=0,
            seconds=1.0, partitions=(),
        )  # fmt: skip
        self.stops = StopRecords(self.spec, PlayedClock(100.0))
        sessions: Any = SimpleNamespace(close=lambda: None)
        tools: Any = SimpleNamespace(wants_goals=False, copies=Copies(), clock=PlayedClock(0.0))
        self.taken = TakenLink(self.spec, sessions, lambda _: self, lambda _: self, tools)  # type: ignore[arg-type, return-value]
        self.taken.take(bool, lambda _: None)

    # as discovery

    def prepare(self, **_: bool) -> tuple[()]:
        return ()

    def refresh(self) -> tuple[AssignedPartition, ...]:
        return (ORDERS,) if self.ready else ()

    def left_out(self) -> dict[str, QuotaError]:
        return {} if self.ready else {"orders": HELD}

    # as owner

    def acquire(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace()

    def extend(self, new: Sequence[AssignedPartition], _needs: Any) -> Any:
        # the keeper renews the claim meanwhile
        self.seen.append(self.shown())
        return self.publish(new)

    def forget(self, topics: Any) -> None:
        # as owner, and as discovery
        self.seen.append(set(topics))

    # as the test

    def look(self, *, stopped: bool = False) -> set[str]:
        records: Any = SimpleNamespace(stops=self.stops)
        self.taken.extend(records, lambda: stopped, {})
        return self.shown()

    def shown(self) -> set[str]:
        """Returns the topics that control shows as stopped, after a renewal."""
        self.stops.write(self._commit)
        return {stop.topic for stop in decode_control(self.log).stopped}

    def _commit(self, records: Sequence[MetadataRecord]) -> None:
        self.log += [(record.key, record.value, "control-0") for record in records]


def test_a_topic_that_was_held_back_is_shown_until_the_layout_has_it() -> None:
    """Its copy exists, its lane does not: no position says yet that its records are missing."""
    rig = Rig()
    assert rig.look() == {"orders"}
    rig.ready = True
    assert rig.look() == set()
    assert rig.seen == [{"orders"}]


def test_a_topic_stays_shown_when_its_revision_is_refused_or_the_run_stops() -> None:
    """The next look, or the next run, publishes it."""
    rig = Rig()
    rig.look()
    rig.ready = True

    def refuse(_: Sequence[AssignedPartition]) -> Any:
        raise ClusterError("the source does not answer", fix="wait")

    rig.publish = refuse
    with pytest.raises(ClusterError):
        rig.look()
    assert rig.shown() == {"orders"}
    assert rig.look(stopped=True) == {"orders"}


def test_a_topic_that_the_owner_gives_to_no_lane_is_shown_as_skipped() -> None:
    """It would form a cycle, for one: the reason of the wait makes way for that one."""
    rig = Rig()
    rig.look()
    rig.ready, rig.publish = True, lambda _: {}
    rig.look()
    rig.stops.write(rig._commit)
    (stop,) = decode_control(rig.log).stopped
    assert "is skipped" in stop.reason


def test_a_topic_that_was_forgotten_is_new_when_it_comes_again() -> None:
    """By the owner first: if that fails, nothing else forgets it."""
    rig = Rig()
    rig.ready = True
    rig.look()
    assert rig.taken.known == {ORDERS.source}
    rig.seen.clear()
    rig.taken.forget({"orders": b"key"})
    assert (rig.seen, rig.taken.known) == ([{"orders"}, {"orders"}], set())
    rig.look()
    assert rig.taken.known == {ORDERS.source}
