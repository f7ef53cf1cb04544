"""
The demo's story: two clusters, a mirror, traffic, kills in open transactions, and an independent judgement.

In the first act the same command is started again after each kill, in the second one a standby takes the link.  Beside
the mirror a naive copier gets the same records, and is killed and started at the same moments.

A kill counts only when it hit an open transaction.  Looking from outside and killing then would often be too
late, since a transaction lives for some ten milliseconds; so the whole process tree is frozen first (SIGSTOP),
the target is asked again, and only a tree that stands still with a transaction open is killed (SIGKILL).  For
the brokers that is the same as a kill at the moment of the freeze.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson
import yaml

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.demo.at_least_once import CopierSpec
from eomirror.demo.clients import Offsets, create_topic, read_partition
from eomirror.demo.compare import Comparison, Revision, compare_partition
from eomirror.demo.mirror_process import ProcessTree, mirror_command
from eomirror.demo.report import MIRROR, NAIVE, CopyNow, DemoReport, JudgedCopy, Kill, Picture
from eomirror.demo.traffic import TrafficPlan, mix
from eomirror.demo.watch import ClaimWatcher, TopicWatcher, Traffic
from eomirror.errors import MirrorError
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.jars import DEFAULT_KAFKA, class_path
from eomirror.localkafka.progress import OnProgress, quiet
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import psutil

__all__ = ["Demo", "DemoListener", "DemoOptions", "judge"]

_Found = TypeVar("_Found")


def judge(
    source: dict[str, str],
    target: dict[str, str],
    topic: str,
    copies: dict[str, TopicWatcher],
    partitions: int,
    *,
    on_partition: Callable[[int], None] = lambda _: None,
) -> dict[str, tuple[Comparison, Revision]]:
    """
    Read source and copies again with read_committed consumers and compare, one partition after the other.

    Args:
        copies: By topic on the target, the watcher that read along.
        on_partition: Told how many partitions are done.

    Returns:
        By topic: how the copy differs, and how what the watcher saw differs from what lies there now.
    """
    found = {copy: (Comparison(), Revision()) for copy in copies}
    source_ends = Offsets(source).settled_ends(topic, partitions)
    target_ends = {copy: Offsets(target).settled_ends(copy, partitions) for copy in copies}
    for number in range(partitions):
        original = list(read_partition(source, topic, number, source_ends[number]))
        for copy, watcher in copies.items():
            records = list(read_partition(target, copy, number, target_ends[copy][number]))
            comparison, revision = found[copy]
            found[copy] = (
                comparison.plus(compare_partition(number, original, records)),
                revision.plus(watcher.histories[number].revised(records)),
            )
        on_partition(number + 1)
    return found


TOPIC = "orders"
MIRRORED = f"east.{TOPIC}"
COPIED = f"at-least-once.{TOPIC}"

_START_SECONDS = 90.0  # of a mirror: recovery and the first transaction, on a busy machine
_HUNT_SECONDS = 60.0
_CATCH_UP_SECONDS = 60.0
_STOP_SECONDS = 30.0
_SETTLE_SECONDS = 0.1  # what was on its way to the broker when the tree was frozen arrives within this
_CALM_SECONDS = (1.5, 3.0)  # from catching up to the next hunt; the seed decides
_TAIL_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_FRESH_SECONDS = 0.5  # of traffic: a reader that waits for less has caught up
_TREE_SECONDS = 1.0
_STANDS_BY = b': standby"'  # of an event in a mirror's log


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """
    Options of a demo run.

    Attributes:
        seed: Of the traffic and of the moments of the kills.
        kills: Number of kills; a standby takes the link after the last one.
        seconds: Minimum duration of the traffic.
        keep: Leave clusters and folder behind.
    """

    seed: int
    kills: int = 3
    seconds: float = 25.0
    rate: float = 2000.0
    partitions: int = 6
    keep: bool = False


class DemoListener(Protocol):
    """Receives the progress of the demo."""

    def phase(self, name: str) -> None:
        """Something new begins."""

    def live(self, picture: Picture) -> None:
        """Both sides at this moment, some times a second."""

    def note(self, text: str) -> None:
        """Something worth a line has happened."""


@dataclass(slots=True)
class _Cast:
    """
    Threads and processes of the story.

    Attributes:
        mirror: Process tree that mirrors, or is to mirror next.
        killed: Monotonic second of the last kill.
        then: What follows it.
        told: State of a mirror that was not killed.
    """

    traffic: Traffic
    once: TopicWatcher
    least: TopicWatcher
    lanes: ClaimWatcher
    mirror: ProcessTree
    copier: ProcessTree
    killed: float | None = None
    then: str = ""
    told: str = "running"


class Demo:
    """
    One demo; `close` ends everything that it started.

    Args:
        steps: Opens a display for jars and brokers while clusters start.
    """

    def __init__(
        self,
        options: DemoOptions,
        listener: DemoListener,
        *,
        steps: Callable[[], AbstractContextManager[OnProgress]] = lambda: nullcontext(quiet),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = options
        self.folder = Path(tempfile.mkdtemp(prefix="eomirror-demo-"))
        self.config = self.folder / "mirror.yaml"
        self.clusters: list[LocalCluster] = []
        self.kept: list[int] = []  # ids of the brokers that were left behind
        self._listener = listener
        self._steps = steps
        self._clock = clock
        self._trees: list[ProcessTree] = []
        self._workers: list[Any] = []
        self._cast: _Cast
        self._finished = False

    def run(self) -> DemoReport:
        """
        Play it from the beginning to the report.

        Raises:
            MirrorError: A part of it could not do its work; differences are no error, they are reported.
        """
        self._listener.phase("two clusters start")
        with self._steps() as on_progress:
            self._start_clusters(on_progress)
        self._prepare()
        report = self._play()
        (self.folder / "report.json").write_bytes(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2))
        self._finished = True
        return report

    def close(self) -> None:
        """End the mirror, the traffic and, unless they are to be kept, the clusters; logs and report stay."""
        for tree in self._trees:
            tree.kill()
        for worker in self._workers:
            with contextlib.suppress(Exception):  # what went wrong was raised while it mattered
                worker.finish()
        for cluster in self.clusters:
            if self.options.keep and self._finished:
                self.kept += [broker.pid for broker in cluster.brokers]
                cluster.detach()
            else:
                cluster.destroy()
        for name in ("tmp", "spark"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    # -- the story -------------------------------------------------------------------------------

    def _play(self) -> DemoReport:
        options = self.options
        east, west = (cluster.client_properties for cluster in self.clusters)
        self._listener.phase("the mirror starts, and a naive copier beside it")
        plan = TrafficPlan(options.seed, options.partitions)
        cast = self._cast = _Cast(
            traffic=Traffic(east, TOPIC, plan, rate=options.rate),
            once=self._start(TopicWatcher(west, MIRRORED, options.partitions)),
            least=self._start(TopicWatcher(west, COPIED, options.partitions)),
            lanes=self._start(ClaimWatcher(west, LinkNames("east.west").positions_topic)),
            mirror=self._mirror(),
            copier=self._copier(),
        )
        self._await(lambda: cast.lanes.claims > 0, "no lane of the mirror has begun")
        began = self._clock.monotonic()
        self._listener.note(f"up after {began - cast.mirror.started:.1f} s; the traffic starts")
        self._start(cast.traffic)
        self._await(lambda: cast.once.back, f"nothing reached {MIRRORED}")
        kills = []
        restarts = max(0, options.kills - 1)
        if restarts:
            self._listener.phase("act 1: kill -9, then the same command is started again")
            kills = [self._kill(number, began) for number in range(1, restarts + 1)]
        if options.kills:
            self._listener.phase("act 2: kill -9 beside a standby")
            kills.append(self._kill(options.kills, began, self._standby()))
        self._listener.phase("the traffic ends, and both copies come to rest")
        left = options.seconds - (self._clock.monotonic() - began)
        self._pass_time(max(_TAIL_SECONDS, left), cast.mirror)
        cast.traffic.finish()
        seconds = self._clock.monotonic() - began
        self._come_to_rest(cast)
        self._listener.phase("both clusters are compared, byte for byte")
        copies = self._judge(cast)
        ledger = cast.traffic.ledger
        return DemoReport(
            seed=options.seed,
            partitions=options.partitions,
            seconds=seconds,
            produced=ledger.records,
            source_transactions=ledger.transactions,
            aborted=ledger.aborted_records,
            aborted_transactions=ledger.aborted_transactions,
            kills=tuple(kills),
            exactly_once=copies[0],
            at_least_once=copies[1],
            folder=str(self.folder),
        )

    def _kill(self, number: int, began: float, standby: ProcessTree | None = None) -> Kill:
        """Waits a while, kills both copiers, starts them again, and waits until readers are up to date."""
        cast = self._cast
        low, high = _CALM_SECONDS
        self._pass_time(low + (high - low) * mix(self.options.seed, number, 7) / (1 << 64), cast.mirror)
        opened, processes, killed = self._hunt(cast)
        cast.killed = killed
        cast.then = "standby takes over" if standby else "restarted"
        self._listener.note(
            f"kill {number}: {processes} processes; a transaction was open in "
            f"{len(opened)} of {self.options.partitions} partitions"
        )
        cast.mirror = standby or self._mirror()
        cast.copier = self._copier()
        back, naive_back = (
            self._await(lambda: cast.once.back, f"nothing reached {MIRRORED} after a kill"),
            self._await(lambda: cast.least.back, f"nothing reached {COPIED} after a kill"),
        )
        kill = Kill(
            at=killed - began,
            processes=processes,
            open_partitions=tuple(opened),
            standby=standby is not None,
            recovery=back - killed,
            naive_recovery=naive_back - killed,
        )
        self._listener.note(
            f"next record: {MIRROR} after {kill.recovery:.1f} s, {NAIVE} after {kill.naive_recovery:.1f} s"
        )
        cast.told = "running"
        self._catch_up(cast.once, most=self.options.rate * _FRESH_SECONDS)
        return kill

    def _standby(self) -> ProcessTree:
        """Starts a second mirror of the link, which waits for the end of the first one; returns it once it is warm."""
        tree = self._mirror("--standby")
        self._await(lambda: _STANDS_BY in tree.log.read_bytes(), "the second mirror does not stand by")
        self._check(tree)
        self._cast.told = "running, a standby beside it"
        self._listener.note(f"a second process stands by: eomirror run --standby {self.config.name}")
        return tree

    def _hunt(self, cast: _Cast) -> tuple[list[int], int, float]:
        """Kills both copiers in an open transaction of the mirror; returns its partitions, its processes, and when."""
        offsets = Offsets(self.clusters[1].client_properties)
        count = self.options.partitions
        deadline = Deadline(_HUNT_SECONDS, self._clock)
        tree: list[psutil.Process] = []
        known = float("-inf")
        while not deadline.passed:
            self._check(cast.mirror)
            if (code := cast.copier.exit_code) is not None:
                # a comparison with a copier that was already dead would be unfair
                raise cast.copier.failed(f"the {NAIVE} ended without a kill, with exit code {code}")
            if self._clock.monotonic() - known > _TREE_SECONDS:
                tree, known = cast.mirror.processes(), self._clock.monotonic()
            if not offsets.open_transactions(MIRRORED, count):
                continue
            naive = cast.copier.processes()
            cast.mirror.freeze(tree)
            cast.copier.freeze(naive)
            self._clock.sleep(_SETTLE_SECONDS)
            before = offsets.open_transactions(MIRRORED, count)
            if not before:
                cast.mirror.thaw(tree)
                cast.copier.thaw(naive)
                continue
            killed = self._clock.monotonic()
            processes = cast.mirror.kill(tree)
            cast.copier.kill(naive)
            # what a reader has not read yet, but could, does not end its wait
            for watcher, topic in ((cast.once, MIRRORED), (cast.least, COPIED)):
                watcher.await_behind(offsets.ends(topic, count, committed=True))
            after = offsets.open_transactions(MIRRORED, count)
            # the same last stable offset before and after: it is the same transaction
            hit = [number for number in before if number in after and before[number][0] == after[number][0]]
            if hit:
                return hit, processes, killed
            raise MirrorError(
                "the transaction that was open when the mirror was frozen ended before it was killed",
                fix="start the demo again; if it happens twice, the machine is too busy for it",
            )
        raise MirrorError(
            f"no open transaction was seen on {MIRRORED} within {_HUNT_SECONDS:.0f} s",
            fix=f"see in {cast.mirror.log} whether the mirror works; a higher --rate keeps more transactions open",
        )

    def _come_to_rest(self, cast: _Cast) -> None:
        """Waits until both copies hold what was produced, ends both copiers, and all threads."""
        self._catch_up(cast.once, cast.least, most=0)
        code = cast.mirror.terminate(_STOP_SECONDS)
        if code:
            raise cast.mirror.failed(f"the mirror, told to end by SIGTERM, ended with exit code {code}")
        cast.copier.terminate()
        ends = Offsets(self.clusters[1].client_properties).settled_ends(MIRRORED, self.options.partitions)
        self._pass_time(_CATCH_UP_SECONDS, ended=lambda: cast.once.has_reached(ends))
        for worker in self._workers:
            worker.finish()

    def _judge(self, cast: _Cast) -> list[JudgedCopy]:
        """Compares both copies with the source."""

        def tell(done: int) -> None:
            cast.told = f"{done} of {self.options.partitions} partitions compared"
            self._show()

        east, west = (cluster.client_properties for cluster in self.clusters)
        watchers = {MIRRORED: cast.once, COPIED: cast.least}
        found = judge(east, west, TOPIC, watchers, self.options.partitions, on_partition=tell)
        return [
            JudgedCopy(
                topic=topic, comparison=found[topic][0], revision=found[topic][1], broken=watcher.broken
            )
            for topic, watcher in watchers.items()
        ]

    # -- parts -----------------------------------------------------------------------------------

    def _start_clusters(self, on_progress: OnProgress) -> None:
        class_path(DEFAULT_KAFKA, on_progress=on_progress)
        with ThreadPoolExecutor(2, thread_name_prefix="demo-cluster") as pool:
            futures = [
                pool.submit(LocalCluster.start, ClusterSpec(name), on_progress=on_progress)
                for name in ("east", "west")
            ]
            failure: BaseException | None = None
            for future in futures:
                try:
                    self.clusters.append(future.result())
                except MirrorError as error:
                    failure = error
        if failure is not None:
            raise failure

    def _prepare(self) -> None:
        east, west = (cluster.client_properties for cluster in self.clusters)
        for properties, topic in ((east, TOPIC), (west, COPIED)):
            create_topic(properties, topic, self.options.partitions, retention_ms="-1")
        document = {
            "clusters": {"east": east, "west": west},
            "links": [{"source": "east", "target": "west", "topics": [TOPIC]}],
        }
        self.config.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        self.config.chmod(0o600)
        for name in ("tmp", "spark"):
            (self.folder / name).mkdir()
        CopierSpec(
            source=east,
            target=west,
            topic=TOPIC,
            target_topic=COPIED,
            partitions=self.options.partitions,
            positions=str(self.folder / "at-least-once.positions"),
        ).write(self.folder / "at-least-once.json")

    def _mirror(self, *arguments: str) -> ProcessTree:
        # a killed JVM leaves its folders behind; ours take them along
        environment = {
            "TMPDIR": str(self.folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(self.folder / "spark"),
            "NO_COLOR": "1",
        }
        command = mirror_command(self.config, *arguments)
        log = self.folder / ("standby.log" if "--standby" in arguments else "mirror.log")
        return self._tree(ProcessTree(command, log=log, environment=environment))

    def _copier(self) -> ProcessTree:
        spec = str(self.folder / "at-least-once.json")
        command = [sys.executable, "-m", "eomirror.demo.at_least_once", spec]
        return self._tree(ProcessTree(command, log=self.folder / "at-least-once.log"))

    def _tree(self, tree: ProcessTree) -> ProcessTree:
        self._trees = [known for known in self._trees if known.exit_code is None] + [tree]
        return tree

    def _start(self, worker: Any) -> Any:
        self._workers.append(worker)
        worker.start()
        return worker

    # -- waiting ---------------------------------------------------------------------------------

    def _check(self, mirror: ProcessTree | None) -> None:
        for worker in self._workers:
            worker.check()
        if mirror is not None and (code := mirror.exit_code) is not None:
            raise mirror.failed(f"the mirror ended without a kill, with exit code {code}")
        self._show()

    def _pass_time(
        self, seconds: float, mirror: ProcessTree | None = None, ended: Callable[[], bool] = lambda: False
    ) -> None:
        """Waits for so long at most, until ``ended`` returns True; raises a failure of the mirror or a thread."""
        deadline = Deadline(seconds, self._clock)
        while not (deadline.passed or ended()):
            self._check(mirror)
            self._clock.sleep(min(_LOOK_SECONDS, deadline.remaining()))

    def _await(self, found: Callable[[], _Found | None], problem: str) -> _Found:
        """Returns what is found, once it is true; raises an error with the mirror's log if that takes too long."""
        mirror = self._cast.mirror
        self._pass_time(_START_SECONDS, mirror, lambda: bool(found()))
        if not (value := found()):
            raise mirror.failed(f"{problem} within {_START_SECONDS:.0f} s")
        return value

    def _catch_up(self, *watchers: TopicWatcher, most: float) -> None:
        """Waits until readers of the copies are so many records behind at most; a loss is found by the comparison."""
        self._pass_time(
            _CATCH_UP_SECONDS,
            self._cast.mirror,
            lambda: all(self._behind(watcher) <= most for watcher in watchers),
        )

    def _behind(self, watcher: TopicWatcher) -> int:
        return max(0, self._cast.traffic.ledger.records - watcher.mirrored - watcher.lost)

    # -- telling ---------------------------------------------------------------------------------

    def _show(self) -> None:
        cast = self._cast
        ledger = cast.traffic.ledger
        produced, moment = ledger.records, self._clock.monotonic()

        def now(name: str, watcher: TopicWatcher, then: str, told: str) -> CopyNow:
            state = told if watcher.records else "starting"
            if cast.killed is not None and watcher.back is None:
                state = f"down {moment - cast.killed:.1f} s, {then}"
            return CopyNow(
                name=name,
                mirrored=watcher.mirrored,
                behind=self._behind(watcher),
                duplicates=watcher.duplicates,
                lost=watcher.lost,
                state=state,
            )

        copies = (
            now(MIRROR, cast.once, cast.then, cast.told),
            now(NAIVE, cast.least, "restarted", "running" if cast.copier.exit_code is None else "ended"),
        )
        self._listener.live(Picture(produced=produced, aborted=ledger.aborted_records, copies=copies))
