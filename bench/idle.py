"""
What a mirror costs when there is nothing to mirror, beside others and alone.

Alone it runs as shipped: its configuration has two clusters and one link.  With few partitions and with thousands of
them the measurement has the same steps::

    topics on the source, one record a partition
    start     until every record is on the target, or every copy exists
    settle    then CPU of all processes, and memory
    setting   changed on the source, until the copy has it, several times
    restart   one more record a partition while the mirror is down, then as `start`

Of a first start the brokers have a part of their own, so the target creates as many topics before, without a mirror.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bench.loading import load
from bench.measure import Neighbours, TreeMeter, as_megabytes
from bench.peers.process import MirrorProcess
from bench.topics import Topics
from bench.workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.peers.process import Peer, Site

__all__ = [
    "IDLE",
    "AloneCost",
    "IdleCost",
    "alone_markdown",
    "idle_markdown",
    "measure_alone",
    "measure_idle",
]

IDLE = Workload(name="idle", title="no traffic", partitions=6)

_START_SECONDS = 120.0
_RECORDS = 600
# lanes that began in processes of the driver have moved to Spark by then
_SETTLE_SECONDS = 90.0
_LOOK_SECONDS = 0.1
# partitions, of which each is an open file of a broker
_MANY_FILES = 5_000
# settings that are changed one after the other; the first topics have them
_SETTINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCost:
    """
    One mirror without traffic.

    Attributes:
        peer: Its short name.
        title: In reports.
        seconds: How long was measured.
        percent_of_core: CPU of all its processes, in percent of one core.
        percent_by_kind: The same for driver, JVM and workers.
        memory: Peaks of PSS in MiB.
    """

    peer: str
    title: str
    seconds: float
    percent_of_core: float
    percent_by_kind: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_idle(site: Site, peer: Peer, *, seconds: float, settle: float = 15.0) -> IdleCost:
    """
    Mirror a few records, to know that the mirror works, then let it be.

    Args:
        site: Where.
        peer: Who.
        seconds: How long to measure.
        settle: Seconds between the copy of the last record and the measurement.

    Raises:
        TimeoutError: The few records were not copied.
        MirrorEndedError: The mirror ended on its own.
    """
    source, target = Topics(site.source), Topics(site.target)
    source.delete(IDLE.topic)
    source.create(IDLE.topic, IDLE.partitions)
    produced = load(site.source, IDLE, _RECORDS)
    with peer.start(site, IDLE) as process:
        until = time.monotonic() + _START_SECONDS
        while sum(target.stable_offsets(peer.target_topic(IDLE)).values()) < produced:
            process.check()
            if time.monotonic() > until:
                raise TimeoutError(f"{peer.title}: not copied in {_START_SECONDS:g} s:\n{process.log_tail()}")
            time.sleep(0.5)
        time.sleep(settle)
        meter = TreeMeter(process.pid)
        meter.start()
        begin = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        meter.stop()
        process.check()
    share = 100 / (end - begin)
    return IdleCost(
        peer=peer.name,
        title=peer.title,
        seconds=round(end - begin, 1),
        percent_of_core=round(meter.cpu_between(begin, end) * share, 2),
        percent_by_kind={
            kind: round(used * share, 2) for kind, used in meter.cpu_by_kind(begin, end).items()
        },
        memory=as_megabytes(meter.memory()),
    )


def idle_markdown(costs: Sequence[IdleCost]) -> str:
    """A table for a report."""
    lines = [
        "## No traffic",
        "",
        "| | % of one core | by process | PSS MiB | s |",
        "|---|---:|---|---:|---:|",
    ]
    for cost in costs:
        kinds = ", ".join(f"{kind} {share:.1f}" for kind, share in cost.percent_by_kind.items())
        lines.append(
            f"| {cost.title} | {cost.percent_of_core:.1f} | {kinds} | {cost.memory['total']} | {cost.seconds:g} |"
        )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneCost:
    """
    This mirror with one link as shipped, without traffic.

    Attributes:
        topics: Mirrored topics.
        partitions: Partitions of all of them.
        brokers_create: Seconds in which the target alone creates as many topics.
        created: Seconds from the start of the mirror until every copy exists.
        first_start: Seconds from there until every record is on the target.
        restart: Seconds from a restart until the first new record is on the target.
        restart_all: Seconds from a restart until all new records are.
        settings: Seconds until a changed setting is on the copy, of each change.
        percent_of_core: CPU of all its processes without traffic, in percent of one core.
        percent_by_kind: The same for driver, JVM and workers.
        seconds: How long that was measured.
        memory: PSS without traffic in MiB.
        memory_at_start: Its peaks from the start on.
        others_cores: Mean number of cores that processes outside the bench kept busy meanwhile.
    """

    topics: int
    partitions: int
    brokers_create: float
    created: float
    first_start: float
    restart: float
    restart_all: float
    settings: Sequence[float]
    percent_of_core: float
    percent_by_kind: dict[str, float]
    seconds: float
    memory: dict[str, Any]
    memory_at_start: dict[str, Any]
    others_cores: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_alone(
    site: Site, *, topics: int, partitions: int, seconds: float, plane: str, say: Callable[[str], None]
) -> AloneCost:
    """
    Takes all figures of one number of topics.

    Args:
        site: Where.
        topics: Number of topics.
        partitions: Of each.
        seconds: How long CPU is measured.
        plane: ``auto``, ``native`` or ``client``.
        say: Told what is being done.

    Raises:
        TimeoutError: A record or a setting did not arrive.
        MirrorEndedError: The mirror ended on its own.
    """
    source, target = Topics(site.source), Topics(site.target)
    alias = f"idle{topics}x{partitions}"
    names = [f"idle-{topics}-{number:04}" for number in range(topics)]
    copies = [f"{alias}.{name}" for name in names]
    say(f"{topics} topics of {partitions} partitions")
    took = target.create_all([f"bare-{name}" for name in names], partitions)
    target.delete(*(f"bare-{name}" for name in names))
    if topics * partitions > _MANY_FILES:
        # brokers keep the files of a deleted topic open for a minute, and a process may have so many
        time.sleep(_SETTLE_SECONDS)
    source.create_all(names, partitions)
    _produce(site.source, names, partitions)
    path = _configure(site, alias, topics=topics, plane=plane)
    noise = Neighbours()

    def start() -> MirrorProcess:
        command = [sys.executable, "-m", "eomirror", "run", str(path)]
        return MirrorProcess(alias, command, folder=site.folder)

    with start() as process:
        begun = time.monotonic()
        meter = TreeMeter(process.pid)
        meter.start()
        _until(lambda: set(copies) <= target.names(), process)
        created = time.monotonic() - begun
        _until(lambda: _arrived(target, copies, partitions, 1) == topics * partitions, process)
        first_start = time.monotonic() - begun
        say(
            f"  first start: copies after {created:.1f} s, records after {first_start:.1f} s; brokers {took:.1f} s"
        )
        time.sleep(_SETTLE_SECONDS)
        begin = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        meter.stop()
        share = 100 / (end - begin)
        percent = meter.cpu_between(begin, end) * share
        kinds = {kind: round(used * share, 2) for kind, used in meter.cpu_by_kind(begin, end).items()}
        memory, at_start = as_megabytes(meter.memory(begin)), as_megabytes(meter.memory())
        say(f"  idle: {percent:.2f} % of one core, {kinds}, {memory['total']} MiB")
        settings = [_setting(source, target, name, f"{alias}.{name}", process) for name in names[:_SETTINGS]]
        say(f"  setting: {', '.join(f'{each:.1f}' for each in settings)} s")
    _produce(site.source, names, partitions)
    with start() as process:
        begun = time.monotonic()
        _until(lambda: _arrived(target, copies, partitions, 2) > 0, process)
        restart = time.monotonic() - begun
        _until(lambda: _arrived(target, copies, partitions, 2) == topics * partitions, process)
        restart_all = time.monotonic() - begun
        say(f"  restart: first record after {restart:.1f} s, all after {restart_all:.1f} s")
    return AloneCost(
        topics=topics,
        partitions=topics * partitions,
        brokers_create=round(took, 2),
        created=round(created, 2),
        first_start=round(first_start, 2),
        restart=round(restart, 2),
        restart_all=round(restart_all, 2),
        settings=[round(each, 2) for each in settings],
        percent_of_core=round(percent, 2),
        percent_by_kind=kinds,
        seconds=round(end - begin, 1),
        memory=memory,
        memory_at_start=at_start,
        others_cores=round(noise.cores(), 2),
    )


def alone_markdown(costs: Sequence[AloneCost]) -> str:
    """A table for a report."""
    rows: list[tuple[str, Callable[[AloneCost], str]]] = [
        ("brokers alone create the copies, s", lambda cost: f"{cost.brokers_create:.1f}"),
        ("first start: all copies exist, s", lambda cost: f"{cost.created:.1f}"),
        ("first start: all records, s", lambda cost: f"{cost.first_start:.1f}"),
        ("restart: first new record, s", lambda cost: f"{cost.restart:.1f}"),
        ("restart: all new records, s", lambda cost: f"{cost.restart_all:.1f}"),
        (
            "changed setting, median and longest, s",
            lambda cost: f"{median(cost.settings):.1f}, {max(cost.settings):.1f}",
        ),
        ("idle, % of one core", lambda cost: f"{cost.percent_of_core:.2f}"),
        (
            "by process",
            lambda cost: ", ".join(f"{kind} {share:.2f}" for kind, share in cost.percent_by_kind.items()),
        ),
        ("PSS idle, MiB", lambda cost: str(cost.memory["total"])),
        (
            "driver, JVM, workers",
            lambda cost: f"{cost.memory['driver']}, {cost.memory['jvm']}, {cost.memory['workers']}",
        ),
        ("PSS, peak of the start, MiB", lambda cost: str(cost.memory_at_start["total"])),
        ("others' cores", lambda cost: f"{cost.others_cores:.2f}"),
    ]
    lines = [
        "| | "
        + " | ".join(f"{cost.topics:,} topics, {cost.partitions:,} partitions" for cost in costs)
        + " |",
        "|---|" + "---:|" * len(costs),
    ]
    lines += [f"| {title} | " + " | ".join(map(value, costs)) + " |" for title, value in rows]
    return "\n".join(lines)


def _configure(site: Site, alias: str, *, topics: int, plane: str) -> Path:
    path = site.folder / f"{alias}.yaml"
    # JSON is YAML
    path.write_text(json.dumps({
        "clusters": {
            alias: {"bootstrap.servers": site.source},
            "target": {"bootstrap.servers": site.target},
        },
        "links": [{"source": alias, "target": "target", "topics": [f"idle-{topics}-.*"], "plane": plane}],
    }))  # fmt: skip
    return path


def _produce(servers: str, names: Sequence[str], partitions: int) -> None:
    """Writes a record to every partition."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 3})
    for name in names:
        for number in range(partitions):
            producer.produce(name, b"x" * 100, partition=number)
        producer.poll(0)
    if left := producer.flush(60):
        raise TimeoutError(f"{left} records were not acknowledged")


def _until(reached: Callable[[], bool], process: MirrorProcess) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        began = time.monotonic()
        if reached():
            return
        process.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not reached in {_START_SECONDS:g} s:\n{process.log_tail()}")
        # a look at thousands of partitions takes CPU that the mirror and its brokers need
        time.sleep(max(_LOOK_SECONDS, 3 * (time.monotonic() - began)))


def _arrived(target: Topics, copies: Sequence[str], partitions: int, records: int) -> int:
    """Returns how many partitions have so many records; a transaction has a marker behind them."""
    ends = target.stable_ends([(copy, number) for copy in copies for number in range(partitions)])
    return sum(end >= 2 * records - 1 for end in ends.values())


def _setting(source: Topics, target: Topics, topic: str, copy: str, process: MirrorProcess) -> float:
    """Returns the time until a changed setting of a topic is on its copy."""
    name, value = "retention.ms", "172800000"
    source.configure(topic, {name: value})
    begun = time.monotonic()
    _until(lambda: target.settings(copy)[name] == value, process)
    return time.monotonic() - begun
