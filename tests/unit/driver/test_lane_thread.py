"""A lane as the driver sees it, with a host and attempts made of plain Python."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import Cluster, Link
from eomirror.driver.channel import AttemptId
from eomirror.driver.lane import LaneThread
from eomirror.errors import AuthorizationError
from eomirror.lane.spec import AssignedPartition, Ending, LaneReport, LaneSpec, StoppedTopic
from eomirror.recovery.corrupt_batches import Damage
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SECONDS = 10.0


def assigned(topic: str, partition: int) -> AssignedPartition:
    """A partition that keeps its name."""
    return AssignedPartition(SourcePartition(topic, partition), "id-s", topic, "id-t")


class Host:
    """Runs attempts that the test ends by hand."""

    def __init__(self) -> None:
        self.begun: queue.Queue[LaneSpec] = queue.Queue()
        self.endings: queue.Queue[Ending | dict[str, Any]] = queue.Queue()
        self.patient = True
        self.told: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self.failures: list[str | BaseException] = []
        self.silent = threading.Event()
        self.silent.set()

    def run_attempt(self, spec: LaneSpec) -> LaneReport:
        self.begun.put(spec)
        ending = self.endings.get(timeout=_SECONDS)
        facts = ending if isinstance(ending, dict) else {"ending": ending}
        return LaneReport(lane=spec.lane, epoch=spec.epoch, attempt=spec.attempt, **facts)

    def send(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            self.told.put({"lane": lane, **message})

    def send_to_all(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            self.told.put({"lane": lane, **message, "to": "all"})

    def wait_disconnected(self, _lane: int) -> None:
        self.silent.wait(_SECONDS)

    def attempt_ended(self, _spec: LaneSpec, _report: LaneReport, failure: str) -> None:
        if failure:
            self.failures.append(failure)

    def check_owner(self) -> None: ...
    def attempt_begun(self, spec: LaneSpec) -> None: ...
    def rests(self, lane: int, state: str) -> None: ...
    def fail(self, error: BaseException, **_: bool) -> None:
        self.failures.append(error)

    def committed(self, _lane: int) -> bool:
        return False


def start(thread_of: Any, name: str) -> threading.Thread:
    """What Spark's inheritable threads are elsewhere."""
    return threading.Thread(target=thread_of, name=name, daemon=True)


@pytest.fixture
def host() -> Host:
    """A fresh host."""
    return Host()


@pytest.fixture
def lane(host: Host) -> Iterator[LaneThread]:
    """A lane with two topics that runs its first attempt."""
    link = Link(name="a->b", source="a", target="b", topics=(".*",))
    spec = LaneSpec(
        link=link,
        source=Cluster("a", {}),
        target=Cluster("b", {}),
        source_cluster_id="s",
        target_cluster_id="t",
        run="r",
        generation=1,
        lane=1,
        epoch=0,
        attempt=0,
        seconds=300.0,
        partitions=(assigned("good", 1), assigned("bad", 1)),
    )
    made = LaneThread(spec, host=host, clock=SYSTEM_CLOCK)
    made.start(start)
    yield made
    made.stop()
    host.endings.put(Ending.STOPPED)
    assert made.join(_SECONDS)


def test_a_topic_that_another_lane_stopped_is_left_at_once(lane: LaneThread, host: Host) -> None:
    """The attempt is asked to hand back between two transactions, and the next one does without the topic."""
    first = host.begun.get(timeout=_SECONDS)
    lane.drop({"bad"})
    assert host.told.get(timeout=_SECONDS) == {"lane": 1, "type": "stop", "reason": "reconfigure"}
    host.endings.put(Ending.STOPPED)
    second = host.begun.get(timeout=_SECONDS)
    assert [item.source.topic for item in second.partitions] == ["good"]
    assert (second.epoch, second.attempt) == (first.epoch + 1, 1)
    assert host.failures == []


def test_an_attempt_that_was_not_connected_yet_hears_of_it_when_it_is(lane: LaneThread, host: Host) -> None:
    """What was told while no task listened is told again in the greeting."""
    spec = host.begun.get(timeout=_SECONDS)
    lane.drop({"bad"})
    greeting = lane.greeting(AttemptId("a->b", 1, spec.epoch, spec.attempt))
    assert greeting == [{"type": "stop", "reason": "reconfigure"}]


def test_dropping_what_the_lane_does_not_have_changes_nothing(lane: LaneThread, host: Host) -> None:
    """A lane without partitions of the topic goes on as it is, and never takes any."""
    spec = host.begun.get(timeout=_SECONDS)
    lane.drop({"elsewhere"})
    lane.add([assigned("elsewhere", 3), assigned("good", 2)])
    told = host.told.get(timeout=_SECONDS)
    assert told["type"] == "added"
    assert [item[0] for item in told["partitions"]] == ["good"]
    assert lane.greeting(AttemptId("a->b", 1, spec.epoch, spec.attempt))[0]["type"] == "added"


def test_a_lane_that_goes_on_is_told_what_it_gives(lane: LaneThread, host: Host) -> None:
    """The attempt keeps running; one that has not connected ends, and the next is of the new generation without it."""
    spec = host.begun.get(timeout=_SECONDS)
    (taken,) = lane.take([SourcePartition("bad", 1)], moved_by=2)
    assert taken.source.topic == "bad"
    told = {"type": "released", "partitions": [["bad", 1]], "generation": 2}
    assert host.told.get(timeout=_SECONDS) == {"lane": 1, **told, "to": "all"}
    greeting = lane.greeting(AttemptId("a->b", 1, spec.epoch, spec.attempt))
    assert greeting == [{"type": "stop", "reason": "reconfigure"}]
    host.endings.put(Ending.EPOCH)
    following = host.begun.get(timeout=_SECONDS)
    assert ([item.source.topic for item in following.partitions], following.generation) == (["good"], 2)


@pytest.mark.parametrize("patient", [True, False])
def test_a_lane_without_a_right_tries_again_unless_a_run_waits_for_it(
    lane: LaneThread, host: Host, *, patient: bool
) -> None:
    """F30: after a backoff, in the same epoch; where the run is to end caught up, the link fails instead."""
    host.patient = patient
    first = host.begun.get(timeout=_SECONDS)
    error = AuthorizationError("lacks Write", fix="grant it")
    host.endings.put({"ending": Ending.UNAUTHORIZED, "error": error})
    if patient:
        second = host.begun.get(timeout=_SECONDS)
        assert (second.epoch, second.attempt) == (first.epoch, 2)
        assert second.partitions == first.partitions
    else:
        assert lane.join(_SECONDS)
        assert host.failures[-1] is error


def test_a_topic_is_mirrored_again_when_it_is_retaken(lane: LaneThread, host: Host) -> None:
    """F30: the attempt hands back, its old word that the topic is stopped does not count, the next one has it."""
    host.begun.get(timeout=_SECONDS)
    stopped = {"stopped_topics": {"bad": StoppedTopic("lacks Read", retried=True)}}
    host.endings.put({"ending": Ending.REBUILD, **stopped})
    second = host.begun.get(timeout=_SECONDS)
    assert [item.source.topic for item in second.partitions] == ["good"]

    lane.retake({"bad", "elsewhere"})
    assert host.told.get(timeout=_SECONDS) == {"lane": 1, "type": "stop", "reason": "reconfigure"}
    said = AttemptId("a->b", 1, second.epoch, second.attempt)
    assert lane.has_stopped(said, {"bad", "good", "elsewhere"}) == {"good"}
    host.endings.put({"ending": Ending.STOPPED, **stopped})

    third = host.begun.get(timeout=_SECONDS)
    assert [item.source.topic for item in third.partitions] == ["good", "bad"]
    assert (third.epoch, third.attempt) == (second.epoch + 1, 1)
    assert lane.has_stopped(said, {"bad"}) == set()
    assert lane.has_stopped(AttemptId("a->b", 1, third.epoch, third.attempt), {"bad"}) == {"bad"}


def test_the_next_attempt_knows_how_often_a_transaction_was_too_much(lane: LaneThread, host: Host) -> None:
    """F15: counted over attempts that committed nothing; one that did begins anew."""
    seen = []
    for progressed, overdue in ((False, True), (False, True), (False, False), (True, True), (True, False)):
        seen.append(host.begun.get(timeout=_SECONDS).overdue)
        host.endings.put({"ending": Ending.REBUILD, "overdue": overdue, "progressed": progressed})
    assert [*seen, host.begun.get(timeout=_SECONDS).overdue] == [0, 1, 2, 2, 1, 0]
    assert lane.lane == 1


def test_the_next_attempt_knows_what_could_not_be_read(lane: LaneThread, host: Host) -> None:
    """F16: carried from attempt to attempt, over those that crashed, and forgotten with the epoch."""
    damage = Damage(source=SourcePartition("good", 0), position=5, times=1)
    seen = []
    for ending, damaged in (
        (Ending.REBUILD, (damage,)),
        (Ending.REBUILD, (damage,)),
        (Ending.EPOCH, (damage,)),
    ):
        seen.append(host.begun.get(timeout=_SECONDS).damaged)
        host.endings.put({"ending": ending, "damaged": damaged})
    assert [*seen, host.begun.get(timeout=_SECONDS).damaged] == [(), (damage,), (damage,), ()]
    assert lane.lane == 1


def test_a_lane_ends_when_no_task_mirrors_for_it_any_more(lane: LaneThread, host: Host) -> None:
    """EO-10: told to stop between two epochs: the task that goes on is told too, and the link is released after it."""
    host.begun.get(timeout=_SECONDS)
    host.endings.put({"ending": Ending.EPOCH, "continues": True})
    host.begun.get(timeout=_SECONDS)
    host.silent.clear()
    lane.stop()
    assert host.told.get(timeout=_SECONDS) == {"lane": 1, "type": "stop", "reason": "shutdown", "to": "all"}
    host.endings.put({"ending": Ending.EPOCH, "continues": True})

    assert not lane.join(0.2)
    host.silent.set()
    assert lane.join(_SECONDS)
    assert host.begun.empty()
    assert host.failures == []


def test_a_paused_lane_holds_until_it_is_resumed(lane: LaneThread, host: Host) -> None:
    """The attempt ends between two transactions, and no other follows."""
    first = host.begun.get(timeout=_SECONDS)
    lane.hold(lambda _: True)
    assert host.told.get(timeout=_SECONDS) == {
        "lane": 1,
        "type": "stop",
        "reason": "reconfigure",
        "to": "all",
    }
    host.endings.put(Ending.STOPPED)
    with pytest.raises(queue.Empty):
        host.begun.get(timeout=0.3)
    # partitions that are found meanwhile are held as well
    lane.add([assigned("good", 2)])
    with pytest.raises(queue.Empty):
        host.begun.get(timeout=0.2)

    lane.hold(lambda _: False)

    second = host.begun.get(timeout=_SECONDS)
    assert [item.source.partition for item in second.partitions] == [1, 1, 2]
    assert (second.epoch, second.attempt) == (first.epoch + 1, 1)
    assert host.failures == []


def test_a_lane_mirrors_the_topics_that_are_not_held(lane: LaneThread, host: Host) -> None:
    """And an attempt that connects late is told."""
    spec = host.begun.get(timeout=_SECONDS)
    lane.hold(lambda topic: topic == "bad")
    greeting = lane.greeting(AttemptId("a->b", 1, spec.epoch, spec.attempt))
    assert greeting == [{"type": "stop", "reason": "reconfigure"}]
    host.endings.put(Ending.STOPPED)
    second = host.begun.get(timeout=_SECONDS)
    assert [item.source.topic for item in second.partitions] == ["good"]
    while not host.told.empty():
        host.told.get()

    lane.hold(lambda topic: topic == "bad")
    assert host.told.empty(), "nothing changes"


def test_a_partition_that_comes_back_brings_the_generation_of_its_lane(lane: LaneThread, host: Host) -> None:
    """EO-2: the owner has published it for this lane; an attempt of the one before would leave."""
    first = host.begun.get(timeout=_SECONDS)
    lane.add([replace(assigned("back", 1), generation=first.generation + 3)])
    assert host.told.get(timeout=_SECONDS)["type"] == "added"
    lane.add([assigned("new", 1)])
    host.endings.put(Ending.EPOCH)
    second = host.begun.get(timeout=_SECONDS)
    assert second.generation == first.generation + 3
    assert [item.source.topic for item in second.partitions] == ["good", "bad", "back", "new"]


def test_settings_that_no_lane_reads_begin_no_attempt(lane: LaneThread, host: Host) -> None:
    """Later attempts have them, with what a lane reads of its own link."""
    first = host.begun.get(timeout=_SECONDS)
    lane.reconfigure(Link(name="a->b", source="a", target="b", topics=("x", "y"), lanes=7))
    assert host.told.empty()
    host.endings.put(Ending.EPOCH)
    second = host.begun.get(timeout=_SECONDS)
    assert (second.link.topics, second.link.lanes) == (("x", "y"), first.link.lanes)


def test_a_lane_that_gives_partitions_runs_again_only_when_they_are_moved(
    lane: LaneThread, host: Host
) -> None:
    """EO-2: between publication and fence no attempt begins; the next one is of the new generation."""
    first = host.begun.get(timeout=_SECONDS)
    taken = lane.take({SourcePartition("bad", 1)})
    assert [item.source.topic for item in taken] == ["bad"]
    assert host.told.get(timeout=_SECONDS) == {
        "lane": 1,
        "type": "stop",
        "reason": "reconfigure",
        "to": "all",
    }
    assert not lane.wait_at_rest(0.0)
    host.endings.put(Ending.STOPPED)
    assert lane.wait_at_rest(_SECONDS)
    with pytest.raises(queue.Empty):
        host.begun.get(timeout=0.2)

    lane.moved(2, ())

    second = host.begun.get(timeout=_SECONDS)
    assert [item.source.topic for item in second.partitions] == ["good"]
    assert (first.generation, second.generation) == (1, 2)


def test_an_attempt_that_connects_while_its_partitions_move_leaves(lane: LaneThread, host: Host) -> None:
    """It was submitted with what the lane has given away since."""
    first = host.begun.get(timeout=_SECONDS)
    attempt = AttemptId(first.link.name, first.lane, first.epoch, first.attempt)
    assert lane.greeting(attempt) == []
    lane.take({SourcePartition("bad", 1)})
    assert [one["type"] for one in lane.greeting(attempt)] == ["stop"]
    lane.moved(2, ())
    assert [one["type"] for one in lane.greeting(attempt)] == ["stop"]


def test_a_lane_that_gets_partitions_goes_on(lane: LaneThread, host: Host) -> None:
    """The running attempt is told of them, with the generation that moved them."""
    host.begun.get(timeout=_SECONDS)
    lane.moved(2, [replace(assigned("more", 0), generation=2)])
    told = host.told.get(timeout=_SECONDS)
    assert (told["type"], told["partitions"]) == ("added", [["more", 0, "id-s", "more", "id-t", 2]])
    host.endings.put(Ending.REBUILD)
    again = host.begun.get(timeout=_SECONDS)
    assert again.generation == 2
    assert [item.source.topic for item in again.partitions] == ["good", "bad", "more"]


def test_a_lane_without_a_slot_waits_for_partitions(lane: LaneThread, host: Host) -> None:
    """It gave all that it had, and its next attempt begins when they return."""
    host.begun.get(timeout=_SECONDS)
    taken = lane.take(lane.partitions)
    host.endings.put(Ending.CANCELLED)
    assert lane.wait_at_rest(_SECONDS)
    lane.moved(2, (), lent=True)
    assert lane.partitions == []
    with pytest.raises(queue.Empty):
        host.begun.get(timeout=0.5)
    lane.moved(3, [replace(item, generation=3) for item in taken])
    again = host.begun.get(timeout=_SECONDS)
    assert (again.generation, len(again.partitions)) == (3, 2)


def test_a_topic_that_was_stopped_and_left_the_link_is_mirrored_once_it_is_back(
    lane: LaneThread, host: Host
) -> None:
    """The attempt that ends reports its stop once more; and a lane that had no partition of it may get one."""
    host.begun.get(timeout=_SECONDS)
    lane.drop({"bad", "late"})
    host.endings.put(Ending.STOPPED)
    host.begun.get(timeout=_SECONDS)
    lane.release({"late"})
    lane.add([assigned("late", 0)])
    messages = [host.told.get(timeout=_SECONDS) for _ in range(2)]
    assert [each["type"] for each in messages] == ["stop", "added"]

    lane.take({SourcePartition("good", 1)})
    host.endings.put({"ending": Ending.STOPPED, "stopped_topics": {"good": StoppedTopic("refused")}})
    assert lane.wait_at_rest(_SECONDS)
    lane.release({"good"})
    lane.moved(None, ())
    host.begun.get(timeout=_SECONDS)
    lane.add([assigned("good", 1)])
    host.endings.put(Ending.STOPPED)
    last = host.begun.get(timeout=_SECONDS)
    assert {item.source.topic for item in last.partitions} == {"good", "late"}
