"""
End-to-end latency at a fixed rate, and the stall at every epoch change.

One producer process sends every record twice: to the source, where both mirrors fetch it, and to a topic on the
target, which shows what producing and consuming alone take.  The records of 5 ms go together and to one partition,
as Kafka's own producers send them; or each goes on its own, as those of many producers do.  A record holds the moment
it was sent; readers in processes of their own, read_committed on the target, take the moment it arrives.  All processes
read the same monotonic clock, so no clocks are compared.

The stall is taken from the link's positions topic: at an epoch change, the time between the last commit of the
old epoch and the first of the new one, per lane.  Since every lane has records all the time, this is how long
its records had to wait.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bench.measure import Neighbours, TreeMeter, as_megabytes
from bench.peers.eomirror import Mirror
from bench.peers.mm2 import MirrorMaker
from bench.stamped import BURST_MS, PARTITIONS, SLICE_SECONDS, START_SECONDS, Reader, Sender, burst_of
from bench.topics import Topics
from bench.verify import WrongCopyError
from bench.workloads import Workload
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.peers.process import MirrorProcess, Peer, Site

__all__ = [
    "Latency",
    "LatencyPlan",
    "LatencyResult",
    "Stalls",
    "measure_latency",
    "percentile",
    "stalls_of",
    "summarize",
]

_DRAIN_SECONDS = 10.0
_DIRECT = "bench-latency-direct"
_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """
    Latencies of one path, in milliseconds.

    Attributes:
        path: A peer's name, or ``direct``.
        title: In reports.
        records: How many were sent and arrived in the measured time.
        p50: Median.
        p99: 99th percentile.
        p999: 99.9th percentile.
        maximum: The longest.
        cpu_cores: Mean cores in use by the mirror's processes; 0 for ``direct``.
        memory: Peaks of PSS in MiB.
    """

    path: str
    title: str
    records: int
    p50: float
    p99: float
    p999: float
    maximum: float
    cpu_cores: float = 0.0
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """
    Epoch changes of this mirror's lanes, in milliseconds between commits.

    Attributes:
        changes: How many there were.
        p50: Median gap at a change.
        maximum: Longest gap at a change.
        longest_elsewhere: Longest gap between two commits of a lane within an epoch.
    """

    changes: int = 0
    p50: float = 0.0
    maximum: float = 0.0
    longest_elsewhere: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyResult:
    """
    One run.

    Attributes:
        seconds: How long was measured.
        rate: Records/s.
        epoch: As configured; empty for the default.
        paths: Mirrors and the direct path.
        stalls: Of this mirror's lanes.
        failures: Why a path has no figure, by name.
        others_cores: Mean number of cores that processes outside the bench kept busy meanwhile.
        warm_up: Seconds before that, with the same load.
        turns: Whether mirrors were sent records in turns, and not all the same ones at the same time.
        burst: How many records went together, to one partition.
    """

    seconds: float
    rate: int
    epoch: str
    paths: Sequence[Latency]
    stalls: Stalls
    failures: dict[str, str] = field(default_factory=dict)
    others_cores: float = 0.0
    warm_up: float = 0.0
    turns: bool = False
    burst: int = 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def markdown(self) -> str:
        """A table and the stalls, for a report."""
        turns = f"mirrors in turns of {SLICE_SECONDS:g} s"
        together = f"{self.burst} together" if self.burst > 1 else "each on its own"
        lines = [
            (
                f"{self.rate:,} records/s, {together}, "
                f"for {self.seconds:g} s behind {self.warm_up:g} s of warming up, epoch "
                f"{self.epoch or 'as by default'}, {turns if self.turns else 'all at once'}."
            ),
            "",
            "| | records | p50 ms | p99 ms | p99.9 ms | max ms | cores | PSS MiB |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {one.title} | {one.records:,} | {one.p50:.1f} | {one.p99:.1f} | {one.p999:.1f} | {one.maximum:.1f} "
            f"| {one.cpu_cores:.2f} | {one.memory.get('total', '')} |"
            for one in self.paths
        ]
        lines += [f"\nNo figure for {name}: {why.splitlines()[0]}" for name, why in self.failures.items()]
        stalls = self.stalls
        if not self.turns:
            lines += [
                "",
                (
                    f"Epoch changes of a lane: {stalls.changes}; gap between commits p50 {stalls.p50:.0f} ms, "
                    f"max {stalls.maximum:.0f} ms; longest gap elsewhere {stalls.longest_elsewhere:.0f} ms."
                ),
            ]
        lines += ["", f"Others kept {self.others_cores:.2f} cores busy."]
        return "\n".join(lines)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values do not exceed; 0 of none."""
    if not ordered:
        return 0.0
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def summarize(path: str, title: str, pairs: Sequence[int], *, begin: float, end: float) -> Latency:
    """
    Latencies of records that were sent within a time.

    Args:
        path: A peer's name, or ``direct``.
        title: In reports.
        pairs: Sent and received in turn, monotonic nanoseconds.
        begin: Monotonic seconds.
        end: Monotonic seconds.
    """
    sent, received = pairs[::2], pairs[1::2]
    taken = sorted(
        (after - before) / 1e6
        for before, after in zip(sent, received, strict=True)
        if begin * 1e9 <= before < end * 1e9
    )
    return Latency(
        path=path,
        title=title,
        records=len(taken),
        p50=round(percentile(taken, 0.5), 2),
        p99=round(percentile(taken, 0.99), 2),
        p999=round(percentile(taken, 0.999), 2),
        maximum=round(taken[-1], 2) if taken else 0.0,
    )


def stalls_of(commits: Sequence[tuple[int, int, int]]) -> Stalls:
    """
    Gaps between commits.

    Args:
        commits: Lane, epoch and time in ms of every commit that moved records, in order of time per lane.
    """
    last: dict[int, tuple[int, int]] = {}
    at_changes, elsewhere = [], 0
    for lane, epoch, at in commits:
        if lane in last:
            before_epoch, before = last[lane]
            if epoch != before_epoch:
                at_changes.append(at - before)
            else:
                elsewhere = max(elsewhere, at - before)
        last[lane] = (epoch, at)
    at_changes.sort()
    return Stalls(
        changes=len(at_changes),
        p50=float(percentile(at_changes, 0.5)),
        maximum=float(at_changes[-1] if at_changes else 0),
        longest_elsewhere=float(elsewhere),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPlan:
    """
    What to measure.

    Attributes:
        seconds: How long, of each mirror.
        rate: Records/s.
        warm_up: Seconds from the moment all paths deliver; brokers and MM2 compile for a minute or two.
        epoch: Of this mirror; empty for the default.
        plane: Of this mirror.
        turns: One mirror after the other has a turn of some seconds, and not all at once.
        burst_ms: What so many ms bring goes together, to one partition; 0 sends each record on its own, to one
            partition after the other.
    """

    seconds: float
    rate: int
    warm_up: float
    epoch: str = ""
    plane: str = "native"
    turns: bool = False
    burst_ms: float = BURST_MS


def measure_latency(site: Site, plan: LatencyPlan) -> LatencyResult:
    """
    Run this mirror and MM2 with exactly-once beside the direct path.

    They get the same records at the same time; or, in turns, one of them does and then the other, so that neither
    has to share two cores with the other's work, and both meet the same hour of the machine.

    Args:
        site: Where.
        plan: What.

    Raises:
        WrongCopyError: A reader saw a record missing, twice or out of order.
    """
    mirror = Mirror(plane=plan.plane, epoch=plan.epoch)
    peers: list[Peer] = [mirror, MirrorMaker(exactly_once=True, tuned=False)]
    # a topic of its own for each, if they take turns
    names = [f"latency-{number}" for number in range(len(peers))] if plan.turns else ["latency"] * len(peers)
    workloads = {
        peer.name: Workload(name=name, title="latency", partitions=PARTITIONS, rate=plan.rate)
        for peer, name in zip(peers, names, strict=True)
    }
    topics = sorted({workload.topic for workload in workloads.values()})
    for topic in topics:
        Topics(site.source).create(topic, PARTITIONS)
    Topics(site.target).create(_DIRECT, PARTITIONS)
    rate, stop_reading = plan.rate, _PROCESSES.Event()
    burst = burst_of(rate, plan.burst_ms)
    with contextlib.ExitStack() as stack:
        running: dict[str, MirrorProcess] = {}
        meters: dict[str, TreeMeter] = {}
        for peer in peers:
            running[peer.name] = stack.enter_context(peer.start(site, workloads[peer.name]))
            meters[peer.name] = TreeMeter(running[peer.name].pid)
            meters[peer.name].start()
            stack.callback(meters[peer.name].stop)
        stack.callback(stop_reading.set)
        sender = stack.enter_context(Sender(site, topics, _DIRECT, rate=rate, burst=burst))
        readers = {"direct": Reader(site, "direct", _DIRECT, stop_reading, burst)}
        for peer in peers:
            topic = peer.target_topic(workloads[peer.name])
            _await_topic(site, topic, running[peer.name])
            readers[peer.name] = Reader(site, peer.name, topic, stop_reading, burst)
        # in turns most of a gap is the other's turn, and a reader of this mirror's state alone takes cores
        commits = None
        if not plan.turns:
            positions = LinkNames(mirror.link(workloads[mirror.name])).positions_topic
            commits = Reader(site, "commits", positions, stop_reading, burst)
        for name, reader in readers.items():
            reader.await_first(running.get(name))
        neighbours = Neighbours()
        begin = time.monotonic() + plan.warm_up
        end = begin + plan.seconds
        _pass_time(end, running)
        others = neighbours.cores()
        for meter in meters.values():
            meter.stop()
        sender.stop()
        time.sleep(_DRAIN_SECONDS)
        stop_reading.set()
        paths, failures = _judge(peers, readers, begin=begin, end=end, turns=plan.turns)
        paths = [_with_load(path, meters.get(path.path), begin, end) for path in paths]
        stalls = Stalls() if commits is None else stalls_of(commits.commits(begin, end))
    return LatencyResult(
        seconds=plan.seconds,
        rate=rate,
        epoch=plan.epoch,
        paths=paths,
        stalls=stalls,
        failures=failures,
        others_cores=round(others, 2),
        warm_up=plan.warm_up,
        turns=plan.turns,
        burst=burst,
    )


def _pass_time(end: float, running: Mapping[str, MirrorProcess]) -> None:
    """Wait; a mirror that ends in the meantime ends the run."""
    while (left := end - time.monotonic()) > 0:
        for process in running.values():
            process.check()
        time.sleep(min(1.0, left))


def _judge(
    peers: Sequence[Peer], readers: Mapping[str, Reader], *, begin: float, end: float, turns: bool
) -> tuple[list[Latency], dict[str, str]]:
    """Latencies of the paths that delivered everything once and in order, and what is wrong with the others."""
    titles = {peer.name: peer.title for peer in peers} | {"direct": "produce and consume"}
    paths: list[Latency] = []
    failures = {}
    wanted: int | None = None
    for name, reader in readers.items():  # the direct path is the first
        try:
            found = summarize(name, titles[name], reader.pairs(), begin=begin, end=end)
        except WrongCopyError as error:
            failures[name] = str(error)
            continue
        # every path got the same records at the same moments; where they take turns, order and numbers say all
        wanted = found.records if wanted is None else wanted
        if found.records == wanted or (turns and found.records):
            paths.append(found)
        else:
            failures[name] = f"{found.records} of {wanted} records arrived"
    mirrored = sum(path.records for path in paths if path.path != "direct")
    if turns and not failures and mirrored != wanted:
        failures["turns"] = f"{mirrored} of {wanted} records arrived"
    return paths, failures


def _with_load(path: Latency, meter: TreeMeter | None, begin: float, end: float) -> Latency:
    if meter is None:
        return path
    cores = round(meter.cpu_between(begin, end) / (end - begin), 4)
    return replace(path, cpu_cores=cores, memory=as_megabytes(meter.memory()))


def _await_topic(site: Site, topic: str, process: MirrorProcess) -> None:
    until = time.monotonic() + START_SECONDS
    topics = Topics(site.target)
    while topics.partitions(topic) == 0:
        process.check()
        if time.monotonic() > until:
            raise TimeoutError(f"{topic} was not created in {START_SECONDS:g} s:\n{process.log_tail()}")
        time.sleep(0.2)
