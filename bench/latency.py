"""
End-to-end latency at a fixed rate, and the stall at every epoch change.

One producer process sends every record twice: to the source, where both mirrors fetch it, and to a topic on the
target, which shows what producing and consuming alone take.  A record holds the moment it was sent; readers in
processes of their own, read_committed on the target, take the moment it arrives.  All processes read the same
monotonic clock, so no clocks are compared.

The stall is taken from the link's positions topic: at an epoch change, the time between the last commit of the
old epoch and the first of the new one, per lane.  Since every lane has records all the time, this is how long
its records had to wait.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import struct
import time
from array import array
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.measure import Neighbours, TreeMeter, as_megabytes
from bench.peers.eomirror import Mirror
from bench.peers.mm2 import MirrorMaker
from bench.topics import Topics
from bench.verify import WrongCopyError
from bench.workloads import Workload
from eomirror.formats.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.synchronize import Event
    from types import TracebackType

    from bench.peers.process import MirrorProcess, Peer, Site

__all__ = ["Latency", "LatencyResult", "Stalls", "measure_latency", "percentile", "stalls_of", "summarize"]

_STAMP = struct.Struct("<qq")
_VALUE_BYTES = 100
_PARTITIONS = 6
_DIRECT_TOPIC = "bench-latency-direct"
_START_SECONDS = 120.0
_DRAIN_SECONDS = 10.0
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
    """

    seconds: float
    rate: int
    epoch: str
    paths: Sequence[Latency]
    stalls: Stalls
    failures: dict[str, str] = field(default_factory=dict)
    others_cores: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def markdown(self) -> str:
        """A table and the stalls, for a report."""
        lines = [
            f"{self.rate:,} records/s for {self.seconds:g} s, epoch {self.epoch or 'as by default'}.",
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
        lines += [
            "",
            (
                f"Epoch changes of a lane: {stalls.changes}; gap between commits p50 {stalls.p50:.0f} ms, "
                f"max {stalls.maximum:.0f} ms; longest gap elsewhere {stalls.longest_elsewhere:.0f} ms."
            ),
            f"Others kept {self.others_cores:.2f} cores busy.",
        ]
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


def measure_latency(
    site: Site, *, seconds: float, rate: int, epoch: str, plane: str, warm_up: float = 15.0
) -> LatencyResult:
    """
    Run this mirror and MM2 with exactly-once beside each other and beside the direct path.

    Args:
        site: Where.
        seconds: How long to measure.
        rate: Records/s.
        epoch: Of this mirror; empty for the default.
        plane: Of this mirror.
        warm_up: Seconds from the moment all paths deliver.

    Raises:
        WrongCopyError: A reader saw a record missing, twice or out of order.
    """
    workload = Workload(name="latency", title="latency", partitions=_PARTITIONS, rate=rate)
    mirror = Mirror(plane=plane, epoch=epoch)
    peers: list[Peer] = [mirror, MirrorMaker(exactly_once=True, tuned=False)]
    Topics(site.source).create(workload.topic, _PARTITIONS)
    Topics(site.target).create(_DIRECT_TOPIC, _PARTITIONS)
    with contextlib.ExitStack() as stack:
        running: dict[str, MirrorProcess] = {}
        meters: dict[str, TreeMeter] = {}
        for peer in peers:
            running[peer.name] = stack.enter_context(peer.start(site, workload))
            meters[peer.name] = TreeMeter(running[peer.name].pid)
            meters[peer.name].start()
            stack.callback(meters[peer.name].stop)
        stop_reading = _PROCESSES.Event()
        stack.callback(stop_reading.set)
        sender = stack.enter_context(_Sender(site, workload.topic, rate))
        readers = {"direct": _Reader(site, "direct", _DIRECT_TOPIC, stop_reading)}
        for peer in peers:
            topic = peer.target_topic(workload)
            _await_topic(site, topic, running[peer.name])
            readers[peer.name] = _Reader(site, peer.name, topic, stop_reading)
        positions = LinkNames(mirror.link(workload)).positions_topic
        commits = _Reader(site, "commits", positions, stop_reading)
        for name, reader in readers.items():
            reader.await_first(running.get(name))
        neighbours = Neighbours()
        begin = time.monotonic() + warm_up
        end = begin + seconds
        _pass_time(end, running)
        others = neighbours.cores()
        for meter in meters.values():
            meter.stop()
        sender.stop()
        time.sleep(_DRAIN_SECONDS)
        stop_reading.set()
        paths, failures = _judge(peers, readers, begin=begin, end=end)
        paths = [_with_load(path, meters.get(path.path), begin, end) for path in paths]
        stalls = stalls_of(commits.commits(begin, end))
    return LatencyResult(
        seconds=seconds,
        rate=rate,
        epoch=epoch,
        paths=paths,
        stalls=stalls,
        failures=failures,
        others_cores=round(others, 2),
    )


def _pass_time(end: float, running: Mapping[str, MirrorProcess]) -> None:
    """Wait; a mirror that ends in the meantime ends the run."""
    while (left := end - time.monotonic()) > 0:
        for process in running.values():
            process.check()
        time.sleep(min(1.0, left))


def _judge(
    peers: Sequence[Peer], readers: Mapping[str, _Reader], *, begin: float, end: float
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
        # every path got the same records at the same moments
        wanted = found.records if wanted is None else wanted
        if found.records == wanted:
            paths.append(found)
        else:
            failures[name] = f"{found.records} of {wanted} records arrived"
    return paths, failures


def _with_load(path: Latency, meter: TreeMeter | None, begin: float, end: float) -> Latency:
    if meter is None:
        return path
    cores = round(meter.cpu_between(begin, end) / (end - begin), 4)
    return replace(path, cpu_cores=cores, memory=as_megabytes(meter.memory()))


def _await_topic(site: Site, topic: str, process: MirrorProcess) -> None:
    until = time.monotonic() + _START_SECONDS
    topics = Topics(site.target)
    while topics.partitions(topic) == 0:
        process.check()
        if time.monotonic() > until:
            raise TimeoutError(f"{topic} was not created in {_START_SECONDS:g} s:\n{process.log_tail()}")
        time.sleep(0.2)


class _Sender:
    """Produces from a process of its own until it is stopped; a context manager."""

    def __init__(self, site: Site, topic: str, rate: int) -> None:
        self._stop = _PROCESSES.Event()
        self._process = _PROCESSES.Process(target=_send, args=(site, topic, rate, self._stop), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more, and wait for acknowledgements."""
        self._stop.set()
        self._process.join(60)


def _send(site: Site, topic: str, rate: int, stop: Event) -> None:
    common = {"linger.ms": 0, "enable.idempotence": True, "client.id": "bench-latency", "log_level": 3}
    paths = [
        (Producer({**common, "bootstrap.servers": site.source}), topic),
        (Producer({**common, "bootstrap.servers": site.target}), _DIRECT_TOPIC),
    ]
    padding = bytes(_VALUE_BYTES - _STAMP.size)
    started = time.monotonic()
    count = 0
    while not stop.is_set():
        due = int((time.monotonic() - started) * rate)
        while count < due:
            value = _STAMP.pack(time.monotonic_ns(), count) + padding
            for producer, name in paths:
                producer.produce(name, value=value, partition=count % _PARTITIONS)
            count += 1
        for producer, _ in paths:
            producer.poll(0)
        time.sleep(0.0005)
    for producer, name in paths:
        if producer.flush(30):
            raise RuntimeError(f"records of {name} were not acknowledged")


class _Reader:
    """Reads a topic from a process of its own and leaves what it saw in a file."""

    def __init__(self, site: Site, name: str, topic: str, stop: Event) -> None:
        self._path = site.folder / f"latency-{name}.bin"
        self._name = name
        self._first = _PROCESSES.Event()
        what = _read_commits if name == "commits" else _read_stamps
        self._process = _PROCESSES.Process(
            target=what, args=(site.target, topic, str(self._path), self._first, stop), daemon=True
        )
        self._process.start()

    def await_first(self, process: MirrorProcess | None) -> None:
        """Wait until something has arrived."""
        until = time.monotonic() + _START_SECONDS
        while not self._first.wait(0.5):
            if process is not None:
                process.check()
            if time.monotonic() > until:
                tail = process.log_tail() if process is not None else ""
                raise TimeoutError(f"{self._name}: nothing arrived in {_START_SECONDS:g} s\n{tail}")

    def pairs(self) -> array[int]:
        """Sent and received in turn; ends the process."""
        if self._finish():
            raise WrongCopyError(f"{self._name}: a record is missing, twice or out of order")
        found = array("q")
        with self._path.open("rb") as file:
            found.frombytes(file.read())
        return found

    def commits(self, begin: float, end: float) -> list[tuple[int, int, int]]:
        """Lane, epoch and wall-clock ms of commits within a time of the monotonic clock; ends the process."""
        self._finish()
        offset_ms = time.time() * 1000 - time.monotonic() * 1000
        lines = self._path.read_text("ascii").splitlines()
        rows = [json.loads(line) for line in lines]
        return [(lane, epoch, at) for lane, epoch, at in rows if begin * 1000 <= at - offset_ms <= end * 1000]

    def _finish(self) -> int:
        self._process.join(60)
        return self._process.exitcode or 0


def _consumer(servers: str, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": "bench-latency",
            "group.id": "bench-latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return consumer


def _read_stamps(servers: str, topic: str, path: str, first: Event, stop: Event) -> None:
    consumer = _consumer(servers, topic, _PARTITIONS)
    pairs = array("q")
    following: dict[int, int] = {}
    wrong = 0
    while not stop.is_set():
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        now = time.monotonic_ns()
        sent, count = _STAMP.unpack_from(message.value())
        number = message.partition()
        wrong += count != following.get(number, number)
        following[number] = count + _PARTITIONS
        pairs.append(sent)
        pairs.append(now)
        first.set()
    consumer.close()
    Path(path).write_bytes(pairs.tobytes())
    raise SystemExit(1 if wrong else 0)


def _read_commits(servers: str, topic: str, path: str, first: Event, stop: Event) -> None:
    partitions = 0
    while not partitions and not stop.is_set():
        partitions = Topics(servers).partitions(topic)
        time.sleep(0.2)
    consumer = _consumer(servers, topic, partitions)
    seen: list[tuple[int, int, int]] = []
    latest: dict[int, tuple[int, int]] = {}
    while not stop.is_set():
        for message in consumer.consume(500, 0.2):
            if message.error() is not None or message.value() is None:
                continue
            body = json.loads(message.value())
            if not body.get("records"):
                continue
            first.set()
            # a transaction holds one position per partition; one of them is enough
            txn = (body["epoch"], body["txn"])
            if latest.get(body["lane"]) != txn:
                latest[body["lane"]] = txn
                seen.append((body["lane"], body["epoch"], message.timestamp()[1]))
    consumer.close()
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in seen), encoding="ascii")
