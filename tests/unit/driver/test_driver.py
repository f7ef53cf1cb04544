"""The driver while Spark is not up yet, or never comes up."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from eomirror.config import Cluster, Link
from eomirror.config.changes import ConfigChanges
from eomirror.driver import driver as driver_module
from eomirror.driver import link as link_module
from eomirror.driver.channel import AttemptId
from eomirror.driver.driver import DriverOptions, MirrorDriver, more_stop_seconds
from eomirror.driver.link_tools import same_error
from eomirror.errors import MirrorError, StoppedError, SupersededError, UnreachableError, UsageError
from eomirror.kafka.session import LinkSessions
from eomirror.lane.spec import AssignedPartition, Ending, LaneProgress, PartitionProgress
from eomirror.serve.http import Request
from eomirror.serve.running import RunningEndpoints
from eomirror.topics.source_topics import SourceContact
from eomirror.types import RunOptions, SourcePartition
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable


class Side:
    """Discovery and owner of a link without partitions."""

    published = False
    listing = None
    refused: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.contact = SourceContact()

    def prepare(self, **_: bool) -> tuple[()]:
        return ()

    def left_out(self) -> dict[str, Any]:
        return {}

    def differs(self) -> bool:
        return False

    def keep(self) -> tuple[list[tuple[str, str]], None, dict[str, bytes]]:
        return [], None, {}

    def goals(self, **_: object) -> dict[Any, int]:
        return {}

    def acquire(self, lanes: int, _: Any, **__: Any) -> Any:
        self.calls.append("acquire")
        return SimpleNamespace(
            generation=1,
            source_cluster_id="s",
            target_cluster_id="t",
            lanes=dict.fromkeys(range(lanes), ()),
            provenance_header=False,
            stopped=(),
            pause=None,
        )

    def release(self, _: Any = (), **__: Any) -> bool:
        self.calls.append("release")
        return True

    def renew(self, _: Any = (), **__: Any) -> None:
        pass

    def close(self) -> None:
        self.calls.append("close")


def driver(
    side: Side, events: list[str] | None = None, ordered: RunOptions | None = None, **settings: str
) -> MirrorDriver:
    """A driver of one link."""
    link = Link(name="a->b", source="a", target="b", topics=(".*",))
    options = DriverOptions(
        version="1",
        ordered=ordered or RunOptions(),
        settings={name.replace("__", "."): value for name, value in settings.items()},
        discovery=lambda *_: side,
        owner=lambda *_, **__: side,
        heart=lambda *_: None,
        follower=lambda *_: None,
        on_event=None if events is None else events.append,
    )  # type: ignore[arg-type, return-value]
    return MirrorDriver([(link, Cluster("a", {}), Cluster("b", {}))], options)


def test_a_stop_before_spark_is_up_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is released, no error is made up, and the late context is closed by who opens it."""
    closed = threading.Event()
    began = threading.Event()

    class LateEngine:
        settings: dict[str, str] = {}  # noqa: RUF012  read only
        context = SimpleNamespace(master="local")

        def close(self) -> None:
            closed.set()

    def slow(*_: Any, **__: Any) -> LateEngine:
        began.set()
        time.sleep(1.5)
        return LateEngine()

    monkeypatch.setattr(driver_module, "open_engine", slow)
    monkeypatch.setattr(driver_module.LaneJobs, "warm_up", lambda *_: threading.Thread())
    side = Side()
    made = driver(side)
    threading.Thread(target=lambda: (began.wait(), time.sleep(0.3), made.request_stop())).start()
    before = time.monotonic()
    report = made.run()
    assert time.monotonic() - before < 1.4
    assert (report.exit_code, report.links[0].outcome, report.links[0].error) == (0, "stopped", "")
    assert side.calls == ["acquire", "release", "close"]
    assert closed.wait(10)


def test_a_spark_that_comes_up_within_a_stop_leaves_the_lanes_that_began_without_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may be in their last transaction; what they need is closed once the link has ended."""
    order: list[str] = []
    starting, stopping = threading.Event(), threading.Event()

    class LateEngine:
        settings: ClassVar[dict[str, str]] = {}
        context = SimpleNamespace(master="local[4]")

        def close(self) -> None:
            order.append("spark")

    class Finishing(Side):
        def release(self, _: Any = (), **__: Any) -> None:
            stopping.set()
            wait_for(lambda: "spark" in order, 10)
            order.append("released")

    def slow(*_: Any, **__: Any) -> LateEngine:
        starting.set()
        stopping.wait(10)
        return LateEngine()

    workers = SimpleNamespace(close=lambda: order.append("workers"), cancel=lambda *_: None)
    monkeypatch.setattr(driver_module, "open_engine", slow)
    monkeypatch.setattr(driver_module, "LocalWorkers", lambda *_: workers)
    monkeypatch.setattr(driver_module.LaneJobs, "warm_up", lambda *_: threading.Thread())
    made = driver(Finishing(), spark__master="local[4]")
    threading.Thread(target=lambda: (starting.wait(), time.sleep(0.3), made.request_stop())).start()
    report = made.run()
    assert (report.exit_code, report.links[0].outcome, report.links[0].error) == (0, "stopped", "")
    assert order == ["spark", "released", "workers"]


def test_a_spark_that_never_comes_up_ends_a_run_whose_lanes_have_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lanes that mirror hide it; the error says how long the run has waited."""
    hangs = threading.Event()
    workers = SimpleNamespace(close=lambda: None, cancel=lambda *_: None)
    monkeypatch.setattr(driver_module, "open_engine", lambda *_, **__: hangs.wait(30))
    monkeypatch.setattr(driver_module, "LocalWorkers", lambda *_: workers)
    monkeypatch.setattr(driver_module, "_SPARK_SECONDS", 0.5)
    side = Side()
    try:
        with pytest.raises(MirrorError, match="spark has not started within"):
            driver(side, spark__master="local[4]").run()
    finally:
        hangs.set()
    assert side.calls[-2:] == ["release", "close"]


def test_a_stop_while_the_link_is_being_taken_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that watches a claim is told, and what it raises then is no failure of the run."""

    class Watching(Side):
        def acquire(self, lanes: int, _: Any, *, stopped: Callable[[], bool]) -> Any:  # noqa: ARG002  as Side's
            self.calls.append("acquire")
            made.request_stop()
            while not stopped():
                time.sleep(0.01)
            raise StoppedError("told to stop")

    monkeypatch.setattr(driver_module, "open_engine", lambda *_, **__: time.sleep(5))
    side = Watching()
    made = driver(side)
    report = made.run()
    assert (report.exit_code, report.links[0].outcome, report.links[0].error) == (0, "stopped", "")
    assert side.calls == ["acquire", "release", "close"]


class Contested(Side):
    """A link that another mirror takes so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def acquire(self, lanes: int, _: Any, *, stood: Any = None, **__: Any) -> Any:
        self.calls.append(f"acquire {stood}")
        if self.times:
            self.times -= 1
            raise SupersededError("another mirror owns the link", fix="stop it")
        return super().acquire(lanes, _)


class Waits:
    """Stands by, and is told to take the link at once."""

    runs: ClassVar[list[str]] = []

    def __init__(self, *_: Any, run: str, **__: Any) -> None:
        self.runs.append(run)

    def wait(self, _: Any, on_wait: Callable[[], None]) -> str:
        on_wait()
        return "stood still"


def test_a_mirror_that_stands_by_does_so_again_for_another_that_has_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two that stand by, one takes the link, and the other has not failed; one without --standby has."""
    monkeypatch.setattr(driver_module, "open_engine", lambda *_, **__: time.sleep(5))
    monkeypatch.setattr(link_module, "Standby", Waits)
    monkeypatch.setattr(driver_module, "_PROGRESS_SECONDS", 0.02)
    side, events = Contested(2), []
    made = driver(side, events, ordered=RunOptions(standby=True))
    states: list[str] = []

    def look(snapshot: Any) -> None:
        states.append(snapshot.links[0].state)
        if states[-1] == "running":
            made.request_stop()

    report = made.run(on_progress=look)
    assert (report.exit_code, report.links[0].outcome, report.links[0].error) == (0, "stopped", "")
    taken = [call for call in side.calls if call.startswith("acquire")]
    assert taken == [*["acquire stood still"] * 3, "acquire"]
    assert events.count("a->b: standby") == 3
    # a run that took the link twice would write two transactions of one name
    assert len(Waits.runs) == len(set(Waits.runs)) == 3

    with pytest.raises(SupersededError):
        driver(Contested(1)).run()


def test_spark_that_does_not_start_is_the_runs_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link that was taken is released, and the one error that matters is raised."""

    def fail(*_: Any, **__: Any) -> Any:
        raise MirrorError("no java", fix="install it")

    monkeypatch.setattr(driver_module, "open_engine", fail)
    side = Side()
    with pytest.raises(MirrorError, match="no java"):
        driver(side).run()
    assert side.calls[-1:] == ["close"] or "acquire" not in side.calls


def test_a_time_limit_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds count from the call of run."""
    monkeypatch.setattr(driver_module, "open_engine", lambda *_, **__: time.sleep(5))
    before = time.monotonic()
    report = driver(Side()).run(until=0.4)
    assert 0.4 <= time.monotonic() - before < 3
    assert report.links[0].outcome == "time over"


@pytest.mark.parametrize(("lanes", "seconds"), [(1, 0.0), (16, 0.0), (26, 1.0), (50, 3.4), (500, 3.4)])
def test_a_stop_of_many_lanes_takes_longer_within_a_bound(lanes: int, seconds: float) -> None:
    """All lanes end at once on the same cores; a service manager and a person wait ten seconds, not a minute."""
    assert more_stop_seconds(lanes) == pytest.approx(seconds)


class Away(Side):
    """A link whose source is away for so many tries."""

    def __init__(self, tries: int) -> None:
        super().__init__()
        self.tries = tries

    def prepare(self, **_: bool) -> tuple[()]:
        self.calls.append("prepare")
        if self.tries > 0:
            self.tries -= 1
            raise UnreachableError("no way to cluster a (127.0.0.1:1)", fix="check bootstrap.servers")
        return ()


def test_a_link_whose_cluster_is_away_at_start_comes_up_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no failure: the snapshot names the cluster while it is away, and not afterwards."""
    monkeypatch.setattr(driver_module, "open_engine", lambda *_, **__: time.sleep(30))
    side = Away(3)
    monkeypatch.setattr(LinkSessions, "close", lambda _: side.calls.append("disconnect"))
    made = driver(side)
    seen: list[Any] = []

    def look(snapshot: Any) -> None:
        seen.append(snapshot.links[0])
        if seen[-1].state == "running":
            made.request_stop()

    monkeypatch.setattr(driver_module, "_PROGRESS_SECONDS", 0.05)
    report = made.run(on_progress=look)
    waiting = [link for link in seen if link.state == "waiting"]
    assert {(link.waiting, link.error) for link in waiting} == {("no way to cluster a (127.0.0.1:1)", "")}
    assert next(link.waiting for link in seen if link.state == "running") == ""
    assert (report.exit_code, report.links[0].error) == (0, "")
    # each try begins with clients of its own, as a restart would
    begins = ["disconnect", "prepare"]
    assert side.calls == [*begins * 4, "acquire", "release", "close", "disconnect"]


def test_a_run_whose_time_is_over_before_a_link_began_does_not_look_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It exits 1 and names what it waited for; one that was told to stop did its part."""
    monkeypatch.setattr(driver_module, "open_engine", lambda *_, **__: time.sleep(30))
    events: list[str] = []
    report = driver(Away(1_000), events).run(until=0.5)
    assert events[-1] == "a->b: not started"
    assert (report.exit_code, report.links[0].outcome) == (1, "time over")
    assert report.links[0].error == "no way to cluster a (127.0.0.1:1)"

    made = driver(Away(1_000))
    threading.Timer(0.5, made.request_stop).start()
    report = made.run()
    assert (report.exit_code, report.links[0].outcome) == (0, "stopped")


class Caught(Side):
    """A link with two partitions, whose source answers no look of the driver after the goals."""

    def __init__(self, target: str = "") -> None:
        super().__init__()
        self.target, self.listing = target, None

    def prepare(self, **_: bool) -> Any:
        return tuple(
            AssignedPartition(SourcePartition("orders", number), "s", f"{self.target}.orders", self.target)
            for number in range(2)
        )

    def goals(self, **_: bool) -> dict[Any, int]:
        return {SourcePartition("orders", number): 7 for number in range(2)}

    def acquire(self, lanes: int, partitions: Any, **more: Any) -> Any:
        layout = super().acquire(lanes, partitions, **more)
        layout.lanes = {0: tuple(partitions)}
        return layout


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_run_that_ends_as_caught_up_exports_the_lag_that_ended_it(
    monkeypatch: pytest.MonkeyPatch, *, cut_off: bool
) -> None:
    """Before the source has answered a look, and before a lane has read an end; also if a lane does not end in time."""
    stopped = threading.Event()

    class Jobs:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def warm_up(self, _: int) -> threading.Thread:
            return threading.Thread()

        def thread(self, target: Any, name: str) -> threading.Thread:
            return threading.Thread(target=target, name=name, daemon=True)

        def cancel(self, *_: Any) -> None: ...

        def run(self, spec: Any) -> Any:
            parts = tuple(
                PartitionProgress(topic=item.source.topic, partition=item.source.partition, position=7)
                for item in spec.partitions
            )
            attempt = AttemptId(spec.link.name, spec.lane, spec.epoch, spec.attempt)
            made._update_progress(attempt, LaneProgress(lane=0, epoch=1, state="idle", partitions=parts))
            if cut_off:
                stopped.wait(30)
            return spec.report(Ending.STOPPED, "")

    context = SimpleNamespace(master="local")
    engine = SimpleNamespace(settings={}, context=context, use=lambda: None, close=lambda: None)
    monkeypatch.setattr(driver_module, "open_engine", lambda *_, **__: engine)
    monkeypatch.setattr(driver_module, "LaneJobs", Jobs)
    monkeypatch.setattr(driver_module, "_PROGRESS_SECONDS", 0.05)
    links = [Link(name=name, source="a", target=name, topics=(".*",), lanes=1) for name in ("b", "c")]
    endpoints = RunningEndpoints(links, version="1", readers={})
    options = DriverOptions(
        version="1",
        discovery=lambda link, *_: Caught(link.target),
        owner=lambda *_, **__: Caught(),
        heart=lambda *_: None,
        follower=lambda *_: None,
    )  # type: ignore[arg-type, return-value]
    made = MirrorDriver([(link, Cluster("a", {}), Cluster(link.target, {})) for link in links], options)
    snapshots: list[Any] = []

    def show(snapshot: Any) -> None:
        snapshots.append(snapshot)
        endpoints.update(snapshot)
        # a scrape just before the end must not answer the last export
        endpoints.answer(Request(("metrics",)))

    report = made.run("caught-up", on_progress=show)
    stopped.set()
    last = snapshots[-1]
    assert report.exit_code == 0
    assert [(link.outcome, link.lag_records) for link in report.links] == [("caught up", 0)] * 2
    assert (last.lag_records, [link.state for link in last.links]) == (0, ["done", "done"])
    page = endpoints.answer(Request(("metrics",))).body.decode()
    for name in ("b", "c"):
        assert f'eomirror_lag_records{{link="{name}",topic="orders"}} 0\n' in page
        assert f'eomirror_lag_seconds{{link="{name}",topic="orders"}} 0.0\n' in page
    assert {link.lag_unknown for link in (*report.links, *last.links)} == {""}


def test_a_changed_configuration_right_after_the_start_is_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an order to write into filled copies is for the links of the start."""
    monkeypatch.setattr(driver_module, "open_engine", lambda *_, **__: time.sleep(5))
    side = Side()
    made = driver(side, ordered=RunOptions(into_filled=True, take_over=True))
    made.refuse_configuration("bad")
    report = made.run(0.3)
    assert report.links[0].outcome == "time over"


def test_a_run_that_ends_when_caught_up_takes_no_changed_configuration() -> None:
    """It would wait for topics that left it."""
    made = driver(Side())
    made._until = "caught-up"
    with pytest.raises(UsageError, match="caught up"):
        made.reconfigure([], ConfigChanges((), (), {}, {}, ()), clusters={}, all_missing=same_error)
