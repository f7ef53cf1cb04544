"""New partitions of a taken link: what control says of a topic while its revision is on its way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Link
from eomirror.driver.link_tools import Copies
from eomirror.driver.stopped_topics import StopRecords
from eomirror.driver.taken_link import TakenLink
from eomirror.errors import ClusterError, NotReadyError, QuotaError, StoppedError, TopicError
from eomirror.lane.spec import AssignedPartition, LaneSpec
from eomirror.link.assignment import Layout
from eomirror.link.start_checks import Refused
from eomirror.records.control import decode_control
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.plane.protocol import MetadataRecord

HELD = QuotaError("the quota holds us back: 6 of 12 topics created", seconds=5)
ORDERS = AssignedPartition(SourcePartition("orders", 0), "id-orders", "a.orders", "id-copy")


def unanswered(_: Sequence[AssignedPartition]) -> Any:
    """A publication that fails."""
    raise ClusterError("the target does not answer", fix="wait")


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
        self.copies = Copies()
        tools: Any = SimpleNamespace(wants_goals=False, copies=self.copies, clock=PlayedClock(0.0))
        self.found: tuple[AssignedPartition, ...] = ()
        self.refused: dict[str, Refused] = {}
        self.taken = TakenLink(self.spec, sessions, lambda _: self, lambda _: self, tools)  # type: ignore[arg-type, return-value]
        self.taken.take(bool, lambda _: None)

    # as discovery

    def prepare(self, **_: bool) -> tuple[AssignedPartition, ...]:
        return self.found

    def refresh(self) -> tuple[AssignedPartition, ...]:
        return (ORDERS,) if self.ready else ()

    def left_out(self) -> dict[str, QuotaError]:
        return {} if self.ready else {"orders": HELD}

    # as owner

    def acquire(self, _lanes: int, partitions: Sequence[AssignedPartition], **__: Any) -> Any:
        self.acquired = partitions
        return SimpleNamespace(lanes={})

    def extend(self, new: Sequence[AssignedPartition], _needs: Any, *, given_up: dict[str, str]) -> Any:
        # the keeper renews the claim meanwhile
        self.seen.append(self.shown())
        self.given_up = given_up
        return self.publish(new)

    def reconfigure(self, _: Link) -> None:
        pass

    def forget(self, topics: Any) -> None:
        # as owner, and as discovery
        self.seen.append(set(topics))

    def forgetting(self, new: Sequence[AssignedPartition]) -> Any:
        """Fails behind the first of the checks, which begin with no refusal."""
        self.refused = {}
        return unanswered(new)

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

    rig.publish = unanswered
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


def test_the_reason_of_the_owner_is_shown_with_what_to_do() -> None:
    """Not only in the log of a process that may be elsewhere."""
    rig = Rig()
    rig.ready, rig.publish = True, lambda _: {}
    rig.refused = {"orders": Refused(NotReadyError("orders is filled", fix="--resume-at orders-0=7"))}
    rig.look()
    (stop,) = decode_control(rig.log).stopped
    assert (stop.reason, stop.fix) == ("orders is filled", "--resume-at orders-0=7")


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


def mirroring(name: str, *topics: str) -> Link:
    """A link of these topics."""
    return Link(name=name, source="a", target="b", topics=topics)


def test_a_topic_that_another_link_has_waits_until_that_one_has_released_it() -> None:
    """Then this one goes on at its positions, once; a topic that nothing releases stays shown."""
    rig = Rig()
    rig.copies.configure([rig.spec.link, mirroring("c->b", "orders")])
    rig.copies.take("c->b", [ORDERS])
    rig.ready = True
    assert rig.look() == {"orders"}
    (stop,) = decode_control(rig.log).stopped
    assert "link c->b already mirrors to the same target topic" in stop.reason
    assert "exclude the topic" in stop.fix

    rig.copies.configure([rig.spec.link, mirroring("c->b", "other")])
    rig.look()
    (stop,) = decode_control(rig.log).stopped
    assert "waits until link c->b has released it" in stop.reason
    assert (rig.seen, rig.taken.known) == ([], set())

    rig.copies.release(mirroring("c->b", "other"), {"orders"}, proved=True)
    assert rig.look() == set()
    assert (rig.given_up, rig.taken.known, rig.taken.waiting) == ({"orders": "c->b"}, {ORDERS.source}, {})
    rig.taken.parked({"orders"})
    rig.taken.known.clear()
    rig.look()
    assert rig.given_up == {}, "its own positions are the newest"


def test_a_topic_is_new_where_the_link_before_has_not_proved_that_it_is_through() -> None:
    """Such as one that another mirror has taken: its positions may advance."""
    rig = Rig()
    other = mirroring("c->b", "orders")
    rig.copies.configure([rig.spec.link, other])
    rig.copies.take(other.name, [ORDERS])
    rig.copies.release(other)
    rig.ready = True
    rig.look()
    assert rig.given_up == {}


def test_an_extension_that_fails_goes_on_at_the_same_positions_in_the_next_round() -> None:
    """F2: what another link has given up is not lost with an answer."""
    rig = Rig()
    other = mirroring("c->b", "orders")
    rig.copies.take(other.name, [ORDERS])
    rig.copies.release(other, proved=True)
    rig.ready = True

    rig.publish, whole = unanswered, rig.publish
    with pytest.raises(ClusterError):
        rig.look()
    rig.given_up, rig.publish = {}, whole
    rig.look()
    assert rig.given_up == {"orders": other.state_name}


def test_a_topic_that_no_round_has_added_leaves_the_link_like_any_other() -> None:
    """Another link would wait for it for ever."""
    rig = Rig()
    rig.ready, rig.publish = True, unanswered
    with pytest.raises(ClusterError):
        rig.look()
    rig.taken.given = mirroring("a->b", "else")
    _, gone = rig.taken.reconfigure()
    rig.taken.parked(gone, proved=False)
    assert not rig.copies.take("c->b", [ORDERS]).others


def test_a_topic_that_was_given_up_and_is_refused_is_asked_of_the_link_that_is_further() -> None:
    """The one that had it last may have had no lane for it."""
    rig, last, further = Rig(), mirroring("c->b", "orders"), mirroring("d->b")
    rig.copies.configure([rig.spec.link, further])
    rig.copies.own(further)
    rig.copies.take(last.name, [ORDERS])
    rig.copies.release(last, proved=True)
    rig.ready, rig.publish = True, lambda _: {}
    rig.look()
    assert rig.given_up == {"orders": last.state_name}
    rig.refused = {"orders": Refused(NotReadyError("carried on", fix="-"), further.state_name)}
    rig.look()
    assert rig.given_up["orders"] == further.state_name


def test_a_partition_that_a_lane_has_is_not_added_again_where_another_one_of_its_topic_was_refused() -> None:
    """EO-3: it would get the position at which another link has left off."""
    rig, other = Rig(), mirroring("c->b")
    rig.copies.configure([rig.spec.link, other])
    rig.copies.own(other)
    rig.ready = True
    rig.refused = {"orders": Refused(NotReadyError("orders-1 is filled", fix="-"), other.state_name)}
    rig.look()
    rig.seen.clear()
    rig.look()
    assert rig.seen == []


def test_a_topic_stays_given_up_until_a_link_has_gone_on_with_it() -> None:
    """A link that ends before that has no position that counts."""
    copies, one, two = Copies(), mirroring("c->b", "orders"), mirroring("d->b", "orders")
    for link in (one, two):
        copies.take(link.name, [ORDERS])
        copies.release(link, proved=True)
    assert copies.take("a->b", [ORDERS]).given_up == {"orders": one.state_name}
    copies.carried_on("a->b", {"orders"})
    copies.release(mirroring("a->b", "orders"), proved=True)
    assert copies.take(one.name, [ORDERS]).given_up == {"orders": mirroring("a->b").state_name}


def test_a_link_that_has_a_topic_again_has_to_prove_again_that_it_is_through() -> None:
    """EO-2: a lane that was cut off may write, whatever the link has proved before."""
    copies, one = Copies(), mirroring("c->b", "orders")
    for proved in (True, False):
        assert copies.take(one.name, [ORDERS]).given_up == {}
        copies.release(one, proved=proved)
    assert copies.take("a->b", [ORDERS]).given_up == {}


def test_a_link_waits_for_another_one_until_that_is_taken_or_over() -> None:
    """A run that ends when it has caught up would not end well before that, and not at all behind one that failed."""
    copies, one, two = Copies(), mirroring("c->b"), mirroring("d->b", "orders")
    assert not copies.awaits(one.state_name, "orders")
    copies.configure([one, two])
    assert copies.awaits(one.state_name, "orders")
    assert not copies.awaits(two.state_name, "orders")
    copies.own(one)
    assert not copies.awaits(one.state_name, "orders")
    copies.release(one)
    copies.ended(one)
    assert not copies.awaits(one.state_name, "orders")


@pytest.mark.parametrize("other", ["taken", "failed"])
def test_a_run_that_is_to_catch_up_waits_for_topics_of_another_link(other: str) -> None:
    """It would end with an error although a run without an end goes on with them."""
    rig, theirs = Rig(), mirroring("c->b")
    rig.copies.configure([rig.spec.link, theirs])
    rig.found, rig.taken.owner = (ORDERS,), None
    rig.taken.take(bool, lambda _: None)
    rig.ready = True
    rig.refused = {"orders": Refused(NotReadyError("carried on", fix="-"), theirs.state_name)}

    def stopped() -> bool:
        (rig.copies.own if other == "taken" else rig.copies.ended)(theirs)
        return False

    before = Layout(7, "east", "west", {0: (), 1: ()})
    records: Any = SimpleNamespace(stops=rig.stops)
    with pytest.raises(StoppedError):
        rig.taken.completed(before, records, lambda: True)
    if other == "taken":
        rig.publish, whole = rig.forgetting, rig.publish
        with pytest.raises(ClusterError):
            rig.taken.completed(before, records, stopped)
        rig.publish = whole
    after = rig.taken.completed(before, records, stopped)
    assert after.lanes == {0: (ORDERS,) if other == "taken" else (), 1: ()}


@pytest.mark.parametrize("state", ["configured", "leaving", "given up"])
def test_a_link_that_begins_takes_what_another_one_has_later(state: str) -> None:
    """In the same change, that one is about to release it; two links that both want it are refused."""
    rig = Rig()
    other = mirroring("c->b", "orders")
    rig.copies.configure([rig.spec.link, other] if state == "configured" else [rig.spec.link])
    rig.copies.take(other.name, [ORDERS])
    if state == "given up":
        rig.copies.release(other, proved=True)
    rig.found, rig.taken.owner = (ORDERS,), None
    if state == "configured":
        with pytest.raises(TopicError, match="written twice"):
            rig.taken.take(bool, lambda _: None)
        return
    rig.taken.take(bool, lambda _: None)
    assert (rig.acquired, rig.taken.known) == ((), set())


def test_a_topic_that_was_refused_for_another_link_goes_on_when_that_one_is_taken() -> None:
    """As after a restart with a changed file: asked for once, and only of a link that has given the topic up."""
    rig = Rig()
    other = mirroring("c->b", "orders")
    rig.copies.configure([rig.spec.link, other])
    rig.ready, rig.publish = True, lambda _: {}
    rig.refused = {"orders": Refused(NotReadyError("filled", fix="-"), other.state_name)}
    rig.look()
    assert (rig.given_up, rig.taken.known) == ({}, {ORDERS.source})

    def looked() -> int:
        before = len(rig.seen)
        rig.look()
        return len(rig.seen) - before

    assert looked() == 0, "it is in no hand of this run"
    rig.copies.own(other)
    assert looked() == 0, "it still mirrors the topic"
    rig.copies.configure([rig.spec.link, mirroring("c->b", "else")])
    rig.publish, whole = rig.forgetting, rig.publish
    with pytest.raises(ClusterError):
        rig.look()
    rig.publish = whole
    assert looked() == 1, "the round before has failed"
    assert rig.given_up == {"orders": other.state_name}
    assert rig.shown() == {"orders"}
    assert looked() == 0, "refused again"
    rig.copies.release(other)
    assert not rig.copies.given_up(other.state_name, "orders"), "another mirror may have it"
