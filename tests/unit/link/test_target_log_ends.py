"""Which copies are taken for cut: those that two looks more, with new clients, show like the first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Link
from eomirror.errors import TopicError, UnreachableError
from eomirror.link.background_looks import TargetLogEnds
from eomirror.records.position import Position
from support.fakes.clocks import PlayedClock
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

NOWHERE = Cluster("west", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
LINK = Link(name="one", source="east", target="west", topics=("t",))
A, B = ("east.a", 0), ("east.b", 0)


class Admins:
    """All clients of a target; each look takes the next answer of a partition, the last one again and again."""

    def __init__(self, **answers: list[tuple[int, int]]) -> None:
        self.answers = {(f"east.{name}", 0): list(each) for name, each in answers.items()}
        self.ids = {name: f"id-{name}" for name in ("east.a", "east.b")}
        self.made = self.closed = 0
        self.error: Exception | None = None

    def __call__(self, *_: Any, **__: Any) -> Admins:
        self.made += 1
        return self

    def log_ends(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        if self.error is not None:
            raise self.error
        gone = next((where for where in partitions if where not in self.answers), None)
        if gone is not None:
            raise TopicError("gone", topic=gone[0])
        return {
            where: answers.pop(0) if len(answers := self.answers[where]) > 1 else answers[0]
            for where in partitions
        }

    def visible_topics(self, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Exception]]:
        return {name: SimpleNamespace(topic_id=self.ids[name]) for name in names}, {}

    def close(self) -> None:
        self.closed += 1


def position(topic: str, last: int | None) -> Position:
    """Of a partition whose copy has this last record."""
    return Position(
        topic=topic, partition=0, offset=1000, source_cluster_id="S", topic_id="A", target_topic=f"east.{topic}",
        target_partition=0, target_topic_id=f"id-east.{topic}", target_offset=last, generation=2, lane=0, run="r",
        epoch=1, attempt=0, producer_id=1, producer_epoch=0, txn=1, timestamp=1,
    )  # fmt: skip


def watching(admins: Admins, monkeypatch: pytest.MonkeyPatch) -> tuple[TargetLogEnds, PlayedClock]:
    """A watch over these clients."""
    clock = PlayedClock()
    monkeypatch.setattr("eomirror.kafka.admin.ClusterAdmin", admins)
    target: Any = SimpleNamespace(cluster=NOWHERE, client_id="c", admin=admins)
    return TargetLogEnds(LINK, target, clock=clock), clock


def test_a_copy_that_ends_before_its_last_record_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-5: with the range that it lost; whole copies, and those without records, are not."""
    admins = Admins(a=[(30, 5)], b=[(41, 5)])
    watch, clock = watching(admins, monkeypatch)

    (error,) = watch.look([position("a", 40), position("b", 40), position("c", None)])

    assert error.topic == "a"
    assert error.exit_code == 4
    assert "records [30, 40] of east.a-0" in error.message
    assert (admins.made, admins.closed) == (2, 2)
    assert clock.now > 9


def test_whole_copies_cost_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane's client serves all looks, and no thread waits."""
    admins = Admins(a=[(41, 5)])
    watch, clock = watching(admins, monkeypatch)

    assert watch.look([position("a", 40)]) == ()
    assert watch.look([position("a", 40)]) == ()
    assert (admins.made, clock.now) == (0, 0.0)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([(30, 5), (41, 6)], id="another broker leads by then"),
        pytest.param([(30, 5), (30, 5), (41, 6)], id="which takes a while to be known"),
        pytest.param([(30, 5), (41, 6), (30, 5)], id="the first look was at the one that stood still"),
    ],
)
def test_a_broker_that_stood_still_is_not_believed(
    answers: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells what it had when it last led."""
    watch, _ = watching(Admins(a=answers), monkeypatch)

    assert watch.look([position("a", 40)]) == ()


@pytest.mark.parametrize("epoch", [5, 6])
def test_an_answer_from_no_newer_leader_epoch_than_a_whole_copy_is_not_believed(
    epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log does not shrink under one leader; however often the answer is given."""
    admins = Admins(a=[(41, 6), (30, epoch)])
    watch, _ = watching(admins, monkeypatch)

    assert watch.look([position("a", 40)]) == ()
    assert watch.look([position("a", 40)]) == ()
    admins.answers[A] = [(30, 7)]
    assert watch.look([position("a", 40)])


def test_a_copy_that_was_created_anew_is_another_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not lose its end; what is written next tells (EO-5)."""
    admins = Admins(a=[(0, 0)])
    admins.ids["east.a"] = "another"
    watch, _ = watching(admins, monkeypatch)

    assert watch.look([position("a", 40)]) == ()


def test_a_copy_that_is_gone_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be asked is left out."""
    watch, _ = watching(Admins(b=[(30, 5)]), monkeypatch)

    (error,) = watch.look([position("a", 40), position("b", 40)])

    assert error.topic == "b"


def test_it_looks_once_a_minute_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that begins has compared everything; a target that does not answer is asked again in a minute."""
    admins = Admins(a=[(30, 5)])
    watch, clock = watching(admins, monkeypatch)
    positions = {position("a", 40).source: position("a", 40)}

    def found() -> bool:
        nonlocal taken
        taken = watch.take()
        return bool(taken)

    taken: Any = ()
    watch.begin(positions)
    assert watch._thread is None
    assert admins.made == 0
    clock.sleep(61)
    admins.error = UnreachableError("away")
    watch.begin(positions)
    wait_for(lambda: watch._thread is not None and not watch._thread.is_alive(), 10)
    assert watch.take() == ()
    admins.error = None
    watch.begin(positions)
    assert watch.take() == ()
    clock.sleep(61)
    watch.begin(positions)
    wait_for(found, 10)
    assert [error.topic for error in taken] == ["a"]
