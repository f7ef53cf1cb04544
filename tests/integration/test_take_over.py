"""EO-10 on real brokers: several mirrors that are told to take a link over, and the one that has it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.clock import new_run_id
from eomirror.config import load_config
from eomirror.errors import FencedError, MirrorError, StoppedError, SupersededError, UnreachableError
from eomirror.kafka.session import link_sessions
from eomirror.link.owned_control import OwnedControl
from eomirror.link.owner import Layout, LinkOwner
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.topics.discovery import Discovery
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.lane.spec import AssignedPartition

pytestmark = pytest.mark.integration

NEWCOMERS = 3


class Mirrors:
    """Owners of one link, each on behalf of a run of its own."""

    def __init__(self, east: Any, west: Any, name: str) -> None:
        create_topic(east.client_properties, name, 2)
        config = load_config(
            {
                "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
                "links": [{"name": name, "source": "east", "target": "west", "topics": [name]}],
            }
        )
        self._link = config.links[0]
        clusters = config.clusters["east"], config.clusters["west"]
        self._sessions = link_sessions(self._link, *clusters, "test")
        discovery = Discovery(self._link, *self._sessions)
        self.partitions: tuple[AssignedPartition, ...] = discovery.prepare()
        self._owners: list[LinkOwner] = []
        self._clusters, self._writers = clusters, list[TransactionalProducer]()
        self._other = f"{name}.other"
        create_topic(west.client_properties, self._other)

    def owner(self, run: str = "", **options: Any) -> LinkOwner:
        """Another one."""
        made = LinkOwner(self._link, *self._sessions, run=run or new_run_id(), **options)
        self._owners.append(made)
        return made

    def lane(self, number: int) -> TransactionalProducer:
        """A lane's producer with an open transaction."""
        names = LinkNames(self._link.state_name)
        made = TransactionalProducer(
            self._clusters[1],
            client_id=names.client_id(f"lane-{number}"),
            transactional_id=names.transactional_id(number),
            transaction_timeout=self._link.transaction_timeout,
            known_topic=self._other,
        )
        self._writers.append(made)
        made.init()
        made.begin()
        made.write([MetadataRecord(self._other, 0, b"key", b"value")])
        made.flush(30.0)
        return made

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        for owner in self._owners:
            owner.close()
        self._sessions.close()


@pytest.fixture
def mirrors(east: Any, west: Any, topic_name: str) -> Iterator[Mirrors]:
    """Mirrors of a link of this test's own."""
    made = Mirrors(east, west, topic_name)
    yield made
    made.close()


@pytest.fixture
def inits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """When a newcomer initialized the link's control producer, which fences the one before it."""
    told: list[tuple[float, str]] = []
    init = TransactionalProducer.init

    def noted(self: TransactionalProducer, *arguments: Any) -> None:
        init(self, *arguments)
        if threading.current_thread().name.startswith("newcomer"):
            told.append((time.monotonic(), threading.current_thread().name))

    monkeypatch.setattr(TransactionalProducer, "init", noted)
    return told


def take_all(mirrors: Mirrors, runs: list[str]) -> dict[str, Layout | MirrorError]:
    """Newcomers take the link over at the same time; how it ended for each run."""
    ended: dict[str, Layout | MirrorError] = {}

    def take(owner: LinkOwner, run: str) -> None:
        try:
            ended[run] = owner.acquire(1, mirrors.partitions)
        except MirrorError as error:
            ended[run] = error

    threads = [
        threading.Thread(
            target=take,
            args=(mirrors.owner(run, take_over=True), run),
            name=f"newcomer-{number}",
            daemon=True,
        )
        for number, run in enumerate(runs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return ended


@pytest.mark.parametrize("owned", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.timeout(120)
def test_of_several_newcomers_one_takes_the_link(
    mirrors: Mirrors, inits: list[tuple[float, str]], monkeypatch: pytest.MonkeyPatch, *, owned: bool
) -> None:
    """All have looked, and all fence each other before any has published: one goes on, the others leave by name."""
    before = mirrors.owner()
    if owned:
        before.acquire(1, mirrors.partitions)
    looked = threading.Barrier(NEWCOMERS, timeout=60)
    initialized = threading.Barrier(NEWCOMERS, timeout=60)
    one_by_one = threading.Lock()
    first = threading.local()
    initialize = OwnedControl.initialize

    def together(self: OwnedControl) -> TransactionalProducer:
        # each has made up its mind, and each is fenced by the next before it writes; the first time only
        again, first.done = getattr(first, "done", False), True
        if not again:
            looked.wait()
        with one_by_one:
            made = initialize(self)
        if not again:
            initialized.wait()
        return made

    monkeypatch.setattr(OwnedControl, "initialize", together)
    ended = take_all(mirrors, [new_run_id() for _ in range(NEWCOMERS)])

    (winner,) = [run for run, end in ended.items() if isinstance(end, Layout)]
    losers = [end for run, end in ended.items() if run != winner]
    assert len(losers) == NEWCOMERS - 1
    for error in losers:
        assert isinstance(error, SupersededError), error
        assert f"owned by run {winner}" in error.message
    # no run fences back: each newcomer initialized the control producer once
    assert len(inits) == NEWCOMERS, inits
    if owned:
        with pytest.raises(SupersededError, match=winner):
            before.renew()


@pytest.mark.timeout(120)
def test_a_link_that_was_taken_meanwhile_is_left_alone(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer that was slow between its look and its InitProducerId finds another's claim, and leaves."""
    before, quick, slow_run = mirrors.owner(), mirrors.owner(take_over=True), new_run_id()
    before.acquire(1, mirrors.partitions)
    slow = mirrors.owner(slow_run, take_over=True)
    initialize = OwnedControl.initialize

    def late(self: OwnedControl) -> TransactionalProducer:
        if self is slow._control:
            monkeypatch.setattr(OwnedControl, "initialize", initialize)
            quick.acquire(1, mirrors.partitions)
        return initialize(self)

    monkeypatch.setattr(OwnedControl, "initialize", late)

    with pytest.raises(SupersededError):
        slow.acquire(1, mirrors.partitions)
    # the slow one fenced the quick one's control producer on its way, which is rebuilt: its own run is in control
    quick.renew()
    quick.check()
    with pytest.raises(SupersededError):
        before.check()


@pytest.mark.timeout(120)
def test_a_mirror_that_starts_meanwhile_does_not_keep_the_link_from_a_failover(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor restarts the mirror between two steps of the command, which takes the link again."""
    before, restarted = mirrors.owner(), mirrors.owner()
    before.acquire(1, mirrors.partitions)
    before.release()
    failover = mirrors.owner("failover", take_over=True, command="failover")
    initialize = OwnedControl.initialize

    def overtaken(self: OwnedControl) -> None:
        initialize(self)
        if self is failover._control:
            monkeypatch.setattr(OwnedControl, "initialize", initialize)
            restarted.acquire(1, mirrors.partitions)

    monkeypatch.setattr(OwnedControl, "initialize", overtaken)

    view, _ = failover.retake()

    assert view.generation is not None
    assert (view.generation.generation, view.generation.run) == (3, "failover")
    with pytest.raises(SupersededError, match="`eomirror failover`"):
        restarted.renew()


@pytest.mark.timeout(120)
def test_a_mirror_does_not_take_a_link_from_a_command(mirrors: Mirrors) -> None:
    """Also with --take-over, which may stand in the unit file of the mirror that a supervisor starts again."""
    mirrors.owner().acquire(1, mirrors.partitions)
    failover = mirrors.owner("failover", take_over=True, command="failover")
    failover.retake()
    renewing = threading.Event()

    def renew() -> None:
        while not renewing.wait(1):
            failover.renew()

    renewer = threading.Thread(target=renew, name="renewer", daemon=True)
    renewer.start()
    try:
        with pytest.raises(SupersededError, match="`eomirror failover`"):
            mirrors.owner(take_over=True).acquire(1, mirrors.partitions)
    finally:
        renewing.set()
        renewer.join()
    failover.check()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("asked", [1, 2])
def test_who_is_told_to_stop_takes_no_link(mirrors: Mirrors, asked: int) -> None:
    """Neither from a claim that it watches, nor when it has fenced the owner already, which defends itself."""
    before = mirrors.owner()
    layout = before.acquire(1, mirrors.partitions)
    answers = iter([*[False] * (asked - 1), True])

    with pytest.raises(StoppedError):
        mirrors.owner(take_over=True).acquire(1, mirrors.partitions, stopped=lambda: next(answers))

    before.renew()
    before.check()
    again = mirrors.owner(take_over=True).acquire(1, mirrors.partitions)
    assert again.generation == layout.generation + 1, "who was told to stop has published nothing"


@pytest.mark.timeout(120)
def test_an_owner_that_defends_itself_is_taken_over_all_the_same(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner was fenced, found its own run in control and came back: it is the one that the user meant."""
    before = mirrors.owner()
    before.acquire(1, mirrors.partitions)
    newcomer = mirrors.owner(take_over=True)
    publish = OwnedControl.publish_layout

    def after_the_owner(self: OwnedControl, *arguments: Any, **options: Any) -> None:
        if self is newcomer._control:
            monkeypatch.setattr(OwnedControl, "publish_layout", publish)
            before.renew()
        publish(self, *arguments, **options)

    monkeypatch.setattr(OwnedControl, "publish_layout", after_the_owner)

    layout = newcomer.acquire(1, mirrors.partitions)

    assert layout.generation == 2
    with pytest.raises(SupersededError):
        before.renew()


def away(*_: Any, **__: Any) -> None:
    """Fences nothing."""
    raise UnreachableError("the coordinator is away")


@pytest.mark.timeout(120)
def test_a_move_that_is_published_and_not_fenced_is_only_fenced_when_it_is_repeated(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EO-2: of a move, the lane that gives is fenced behind the publication, and the one that gets goes on."""
    owner = mirrors.owner()
    layout = owner.acquire(2, mirrors.partitions)
    gives, gets = mirrors.lane(0), mirrors.lane(1)
    to = {item.source: 1 for item in layout.lanes[0]}
    assert len(to) == 1
    with monkeypatch.context() as patch:
        patch.setattr(OwnedControl, "fence_lanes", away)
        with pytest.raises(UnreachableError):
            owner.move(to, [0])
    published = owner._control.state.control().generation
    assert published is not None
    number = layout.generation + 1
    assert (published.generation, published.since) == (number, (number, number))
    assert set(published.assignment.partitions.values()) == {1}

    assert owner.move(to, [0]) == published

    assert owner._control.state.control().generation == published, "it is published once"
    with pytest.raises(FencedError):
        gives.commit()
    gets.commit()
    owner.close()
    with pytest.raises(StoppedError):
        owner.move(dict.fromkeys(to, 0), [1])


@pytest.mark.timeout(120)
def test_an_owner_that_dies_within_a_move_is_followed_by_one_that_fences_all(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EO-2: the lane that gave its partitions may still write; and each lane of the next run has its share."""
    dies, newcomer = mirrors.owner(), mirrors.owner(take_over=True)
    layout = dies.acquire(2, mirrors.partitions)
    gives, gets = mirrors.lane(0), mirrors.lane(1)
    to = {item.source: 1 for item in layout.lanes[0]}
    with monkeypatch.context() as patch:
        patch.setattr(OwnedControl, "fence_lanes", away)
        with pytest.raises(UnreachableError):
            dies.move(to, [0])

    after = newcomer.acquire(2, mirrors.partitions)

    assert after.generation == layout.generation + 2
    assert [len(after.lanes[lane]) for lane in range(2)] == [1, 1]
    for lane in (gives, gets):
        with pytest.raises(FencedError):
            lane.commit()
    with pytest.raises(SupersededError):
        dies.move(to, [0])


@pytest.mark.parametrize("step", ["fence_lanes", "forgotten"])
@pytest.mark.timeout(120)
def test_an_owner_that_is_overtaken_while_it_forgets_a_topic_writes_nothing(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """EO-2: when the topic is parked and not fenced, or just before it is forgotten; the newcomer forgets it itself."""
    slow, newcomer = mirrors.owner(), mirrors.owner(take_over=True)
    slow.acquire(1, mirrors.partitions)
    state = newcomer._control.state
    topics = {item.source.topic: b'{"kind":"own"}' for item in mirrors.partitions}
    parked = {item.source: None for item in mirrors.partitions}
    done = getattr(OwnedControl, step)

    def overtaken(self: OwnedControl, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(OwnedControl, step, done)
        newcomer.acquire(1, mirrors.partitions)
        return done(self, *arguments, **options)

    monkeypatch.setattr(OwnedControl, step, overtaken)

    def leave(owner: LinkOwner) -> None:
        owner.move(parked, [0])
        owner.forget(topics)

    with pytest.raises(SupersededError):
        leave(slow)

    view, positions = state.control(), state.positions(wait_for_open=True, overruled=())
    assert view.generation == newcomer._control.generation
    assert positions.keys() == parked.keys()
    leave(newcomer)
    assert not state.positions(wait_for_open=True, overruled=())
    # the topic comes again: of that name, with first positions
    added = newcomer.extend(mirrors.partitions)
    assert {item.source for items in added.values() for item in items} == positions.keys()
    found = state.positions(wait_for_open=True, overruled=())
    assert {source: (one.offset, one.txn) for source, one in found.items()} == dict.fromkeys(
        positions, (0, 0)
    )
