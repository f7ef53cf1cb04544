"""
The demo's story: two clusters, traffic, kills in open transactions, restarts, and an independent judgement.

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
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import yaml

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.demo.at_least_once import CopierSpec
from eomirror.demo.clients import Offsets, create_topic, read_partition
from eomirror.demo.compare import Comparison, Revision, compare_partition
from eomirror.demo.mirror_process import ProcessTree, mirror_command
from eomirror.demo.report import DemoReport, JudgedCopy, Kill, KillOutage, latency_outside, peak_rate
from eomirror.demo.traffic import TrafficPlan, mix
from eomirror.demo.watch import TopicWatcher, Traffic, TransactionCounter
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

_START_SECONDS = 90.0  # of a mirror: Spark, recovery and the first transaction, on a busy machine
_HUNT_SECONDS = 60.0
_CATCH_UP_SECONDS = 120.0
_STOP_SECONDS = 30.0
_DRAIN_SECONDS = 60.0
_SETTLE_SECONDS = 0.1  # what was on its way to the broker when the tree was frozen arrives within this
_DOWN_SECONDS = 1.0  # how long the mirror stays dead, so that one sees the readers wait
_CALM_SECONDS = (3.0, 6.0)  # from catching up to the next hunt; the seed decides
_TAIL_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_FRESH_SECONDS = 0.5  # a reader that sees records this young is not behind
_TREE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """
    Options of a demo run.

    Attributes:
        seed: Of the traffic and of the moments of the kills.
        seconds: How long the traffic runs at least.
        keep: Leave clusters and folder behind.
    """

    seed: int
    kills: int = 3
    seconds: float = 45.0
    rate: float = 2000.0
    partitions: int = 6
    keep: bool = False


class DemoListener(Protocol):
    """Receives the progress of the demo."""

    def phase(self, name: str) -> None:
        """Something new begins."""

    def live(self, numbers: dict[str, str]) -> None:
        """Present numbers, some times a second."""

    def note(self, text: str) -> None:
        """Something worth a line has happened."""


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
        self._phases: list[tuple[str, float]] = []
        self._phase_began = clock.monotonic()
        self._finished = False

    def run(self) -> DemoReport:
        """
        Play it from the beginning to the report.

        Raises:
            MirrorError: A part of it could not do its work; differences are no error, they are reported.
        """
        self._phase("starting two clusters")
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
        plan = TrafficPlan(options.seed, options.partitions)
        traffic = self._start(Traffic(east, TOPIC, plan, rate=options.rate))
        once = self._start(TopicWatcher(west, MIRRORED, options.partitions))
        least = self._start(TopicWatcher(west, COPIED, options.partitions))
        counter = self._start(TransactionCounter(west, LinkNames("east.west").positions_topic))
        began = self._clock.monotonic()

        self._phase("starting the mirror")
        mirror, copier = self._mirror(), self._copier()
        self._await_fresh(mirror, traffic, once, began)
        outages = [KillOutage(began, self._clock.monotonic())]
        kills = []
        for number in range(1, options.kills + 1):
            self._phase(f"kill -9 number {number}, in an open transaction")
            mirror, copier, kill, outage = self._kill_once(number, (mirror, copier), traffic, once, began)
            kills.append(kill)
            outages.append(outage)

        self._phase("going on without kills")
        self._pass_time(max(_TAIL_SECONDS, options.seconds - (self._clock.monotonic() - began)), mirror)
        traffic.finish()
        seconds = self._clock.monotonic() - began
        self._phase("finishing: eomirror run --until caught-up")
        outages.append(KillOutage(began + seconds, float("inf")))
        self._expect_0(mirror.terminate(_STOP_SECONDS), "the mirror, told to end by SIGTERM,", mirror)
        finishing = self._mirror("--until", "caught-up")
        self._expect_0(finishing.wait(_CATCH_UP_SECONDS), "eomirror run --until caught-up", finishing)
        self._check_copier(copier)
        self._drain(least, traffic.ledger.records)
        copier.terminate()
        self._await_end(once)

        self._phase("comparing both clusters, byte for byte")
        for worker in (once, least, counter):
            worker.finish()
        verdicts = judge(
            east,
            west,
            TOPIC,
            {MIRRORED: once, COPIED: least},
            options.partitions,
            on_partition=lambda done: self._listener.live({"compared": f"{done} of {options.partitions}"}),
        )
        copies = []
        for watcher, topic in ((once, MIRRORED), (least, COPIED)):
            comparison, revision = verdicts[topic]
            calm, everything = latency_outside(outages, watcher.sent, watcher.arrived)
            copies.append(
                JudgedCopy(
                    topic=topic,
                    comparison=comparison,
                    revision=revision,
                    broken=watcher.broken,
                    latency=calm,
                    latency_all=everything,
                )
            )
        self._phase("")
        ledger = traffic.ledger
        down = sum(kill.held_back for kill in kills)
        return DemoReport(
            seed=options.seed,
            partitions=options.partitions,
            seconds=seconds,
            produced=ledger.records,
            source_transactions=ledger.transactions,
            aborted=ledger.aborted_records,
            aborted_transactions=ledger.aborted_transactions,
            transactions=counter.transactions,
            throughput=once.records / max(1.0, seconds - (once.arrived[0] / 1e6 - began) - down),
            peak=peak_rate(once.arrived),
            kills=tuple(kills),
            exactly_once=copies[0],
            at_least_once=copies[1],
            phases=tuple(self._phases),
            folder=str(self.folder),
        )

    def _kill_once(
        self,
        number: int,
        trees: tuple[ProcessTree, ProcessTree],
        traffic: Traffic,
        watcher: TopicWatcher,
        began: float,
    ) -> tuple[ProcessTree, ProcessTree, Kill, KillOutage]:
        """Wait a while, kill both copiers, start both again, and wait until readers are up to date."""
        mirror, copier = trees
        low, high = _CALM_SECONDS
        self._pass_time(low + (high - low) * mix(self.options.seed, number, 7) / (1 << 64), mirror)
        opened, processes = self._hunt(mirror)
        killed = self._clock.monotonic()
        self._check_copier(copier)
        copier.kill()
        self._listener.note(
            f"kill -9: {processes} processes, a transaction was open in {len(opened)} partitions of {MIRRORED}"
        )
        self._pass_time(_DOWN_SECONDS)
        restarted = self._clock.monotonic()
        mirror, copier = self._mirror(), self._copier()
        back = self._await_news(mirror, watcher, restarted)
        self._listener.note(
            f"restarted: next committed transaction after {back - restarted:.1f} s; "
            f"readers waited {back - killed:.1f} s"
        )
        self._await_fresh(mirror, traffic, watcher, back)
        kill = Kill(
            at=killed - began,
            processes=processes,
            open_partitions=tuple(opened),
            held_back=back - killed,
            recovery=back - restarted,
        )
        return mirror, copier, kill, KillOutage(killed, self._clock.monotonic())

    def _hunt(self, mirror: ProcessTree) -> tuple[list[int], int]:
        """Kill the mirror while a transaction of it is open; partitions of that one, and killed processes."""
        offsets = Offsets(self.clusters[1].client_properties)
        count = self.options.partitions
        deadline = Deadline(_HUNT_SECONDS, self._clock)
        tree: list[psutil.Process] = []
        known = float("-inf")
        while not deadline.passed:
            self._check(mirror)
            if self._clock.monotonic() - known > _TREE_SECONDS:
                tree, known = mirror.processes(), self._clock.monotonic()
            if not offsets.open_transactions(MIRRORED, count):
                continue
            mirror.freeze(tree)
            self._clock.sleep(_SETTLE_SECONDS)
            before = offsets.open_transactions(MIRRORED, count)
            if not before:
                mirror.thaw(tree)
                continue
            killed = mirror.kill(tree)
            after = offsets.open_transactions(MIRRORED, count)
            # the same last stable offset before and after: it is the same transaction
            hit = [number for number in before if number in after and before[number][0] == after[number][0]]
            if hit:
                return hit, killed
            raise MirrorError(
                "the transaction that was open when the mirror was frozen ended before it was killed",
                fix="start the demo again; if it happens twice, the machine is too busy for it",
            )
        raise MirrorError(
            f"no open transaction was seen on {MIRRORED} within {_HUNT_SECONDS:.0f} s",
            fix=f"see in {mirror.log} whether the mirror works; a higher --rate keeps more transactions open",
        )

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
        return self._tree(ProcessTree(command, log=self.folder / "mirror.log", environment=environment))

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

    @staticmethod
    def _expect_0(code: int, who: str, tree: ProcessTree) -> None:
        if code:
            raise tree.failed(f"{who} ended with exit code {code}")

    # -- waiting ---------------------------------------------------------------------------------

    def _check(self, mirror: ProcessTree | None) -> None:
        for worker in self._workers:
            worker.check()
        if mirror is not None and (code := mirror.exit_code) is not None:
            raise mirror.failed(f"the mirror ended without a kill, with exit code {code}")
        self._show()

    def _check_copier(self, copier: ProcessTree) -> None:
        """A comparison with a copier that was already dead would be unfair."""
        if (code := copier.exit_code) is not None:
            raise copier.failed(f"the at-least-once copier ended without a kill, with exit code {code}")

    def _pass_time(
        self, seconds: float, mirror: ProcessTree | None = None, ended: Callable[[], bool] = lambda: False
    ) -> None:
        """Waits for so long at most, until ``ended`` returns True; raises a failure of the mirror or a thread."""
        deadline = Deadline(seconds, self._clock)
        while not (deadline.passed or ended()):
            self._check(mirror)
            self._clock.sleep(min(_LOOK_SECONDS, deadline.remaining()))

    def _await_news(self, mirror: ProcessTree, watcher: TopicWatcher, after: float) -> float:
        """Returns when readers saw the first record after that moment."""
        self._pass_time(_START_SECONDS, mirror, lambda: watcher.first_arrival(after) is not None)
        if (back := watcher.first_arrival(after)) is None:
            raise mirror.failed(f"nothing reached {MIRRORED} for {_START_SECONDS:.0f} s after a start")
        return back

    def _await_fresh(
        self, mirror: ProcessTree, traffic: Traffic, watcher: TopicWatcher, after: float
    ) -> None:
        """Until readers are shown everything within a moment after it was committed on the source."""
        self._await_news(mirror, watcher, after)
        deadline = Deadline(_CATCH_UP_SECONDS, self._clock)
        moment, goal = self._clock.monotonic(), traffic.ledger.records
        while not deadline.passed:
            now = self._clock.monotonic()
            if watcher.records >= goal:
                if now - moment <= _FRESH_SECONDS:
                    return
                moment, goal = now, traffic.ledger.records
            self._check(mirror)
            self._clock.sleep(_LOOK_SECONDS)
        # a mirror that is too slow shows in the latency, one that loses records in the comparison
        self._listener.note(f"not caught up within {_CATCH_UP_SECONDS:.0f} s; going on")

    def _drain(self, watcher: TopicWatcher, records: int) -> None:
        """Waits until the at-least-once copier, which is not killed, has copied all records."""
        deadline = Deadline(_DRAIN_SECONDS, self._clock)
        calm, before = 0, -1
        while calm < round(2.0 / _LOOK_SECONDS) and not deadline.passed:
            self._check(None)
            self._clock.sleep(_LOOK_SECONDS)
            moved, before = watcher.records != before, watcher.records
            calm = 0 if moved or watcher.records < records else calm + 1

    def _await_end(self, watcher: TopicWatcher) -> None:
        """Waits until the watching reader has read everything that is committed."""
        west = self.clusters[1].client_properties
        ends = Offsets(west).settled_ends(MIRRORED, self.options.partitions)
        self._pass_time(_DRAIN_SECONDS, ended=lambda: watcher.has_reached(ends))

    # -- telling ---------------------------------------------------------------------------------

    def _phase(self, name: str) -> None:
        now = self._clock.monotonic()
        if self._phases:
            self._phases[-1] = (self._phases[-1][0], now - self._phase_began)
        self._phase_began = now
        if name:
            self._phases.append((name, 0.0))
            self._listener.phase(name)

    def _show(self) -> None:
        if len(self._workers) < 3:  # noqa: PLR2004  traffic and both watchers
            return
        traffic, once, least = self._workers[:3]
        self._listener.live(
            {
                "produced": f"{traffic.ledger.records:,}",
                "aborted": f"{traffic.ledger.aborted_records:,}",
                "mirrored": f"{once.records:,}",
                "naive copier": f"{least.records:,}",
                "behind": f"{max(0, traffic.ledger.records - once.records):,}",
            }
        )
