"""
The time that a failover and a cutover take, with many topics and many groups.

* *Failover*: the brokers of the source are killed.  Every group has an offset in every topic, and its checkpoints are
  on the target.  `eomirror readiness` and `eomirror failover` run as a user calls them, each in a process of its own,
  and the offsets of all groups are read again afterwards.
* *Cutover*: applications write to every topic until they are stopped.  The write pause is the time from that moment to
  the promotion record, and contains the comparison of the tail.

On a shared machine the wall time says what else ran, so CPU time stands beside it: of a command all its processes, of
the cutover the thread that takes its steps.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from bench.verify import WrongCopyError
from eomirror import Mirror, load_config
from eomirror.failover import PromotionOptions, Verb, promote, verify_copies
from eomirror.kafka.session import ClusterSession
from eomirror.link.offset_map_reader import OffsetMapReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.peers.process import Site
    from eomirror.config import Config

__all__ = ["FailoverTimes", "failover_markdown", "measure_failover"]

_RECORDS = 20
_SECONDS = 300.0
_AT_ONCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverTimes:
    """
    Seconds of each command, its start and its output included.

    Attributes:
        topics: Topics, of one partition each.
        groups: Groups; each has an offset in every topic.
        readiness_seconds: `readiness --source-gone`.
        readiness_cpu_seconds: CPU time of its processes.
        failover_seconds: `failover --source-gone`.
        failover_cpu_seconds: CPU time of its processes.
        failover_steps: Duration of each step, ms.
        groups_wrong: Groups that do not stand where their checkpoints say.
        cutover_seconds: `cutover`, its check included.
        cutover_cpu_seconds: CPU time of its thread.
        write_pause_seconds: Time in which no application could write.
        verify_seconds: Of it, the comparison of the tail.
        cutover_steps: Duration of each step, ms.
    """

    topics: int
    groups: int
    readiness_seconds: float
    readiness_cpu_seconds: float
    failover_seconds: float
    failover_cpu_seconds: float
    failover_steps: Mapping[str, int] = field(default_factory=dict)
    groups_wrong: int = 0
    cutover_seconds: float
    cutover_cpu_seconds: float
    write_pause_seconds: float
    verify_seconds: float
    cutover_steps: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def failover_markdown(found: FailoverTimes) -> str:
    """A table for a report."""
    pause = found.write_pause_seconds - found.verify_seconds
    rows = [
        ("readiness, source dead", found.readiness_seconds, "5", found.readiness_cpu_seconds),
        ("failover, source dead", found.failover_seconds, "30", found.failover_cpu_seconds),
        ("cutover under load: write pause, without the comparison of the tail", pause, "2", None),
        ("comparison of the tail", found.verify_seconds, "", None),
        ("cutover, check included", found.cutover_seconds, "", found.cutover_cpu_seconds),
    ]
    steps = [
        name
        for name in dict.fromkeys([*found.failover_steps, *found.cutover_steps])
        if max(found.failover_steps.get(name, 0), found.cutover_steps.get(name, 0)) > 0
    ]

    def took(ms: int | None) -> str:
        return "" if ms is None else f"{ms / 1000:.2f}"

    return "\n".join(
        [
            f"| {found.topics} topics, {found.groups:,} groups in each | seconds | wanted | CPU seconds |",
            "|---|---:|---:|---:|",
            *(
                f"| {name} | {seconds:.2f} | {wanted} | {'' if cpu is None else f'{cpu:.2f}'} |"
                for name, seconds, wanted, cpu in rows
            ),
            "",
            "| step | failover, s | cutover, s |",
            "|---|---:|---:|",
            *(
                f"| {name} | {took(found.failover_steps.get(name))} | {took(found.cutover_steps.get(name))} |"
                for name in steps
            ),
        ]
    )


def measure_failover(site: Site, *, topics: int, groups: int, say: Callable[[str], None]) -> FailoverTimes:
    """
    Measure; the source is dead afterwards.

    Raises:
        WrongCopyError: A group does not stand at its record, or the cutover lost one.
    """
    planned = _cutover(site, topics, say)
    names = [f"lost-{number}" for number in range(topics)]
    _create(site.source, names)
    say(f"writing to {topics} topics, committing {groups:,} groups in each")
    _write(site.source, names, _RECORDS)
    wanted = _commit(site.source, names, groups)
    config = _config(site, "lost", groups=True)
    path = site.folder / "lost.yaml"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    loaded = load_config(path)
    say("mirroring, and waiting for the checkpoints")
    with _running(loaded):
        _await_checkpoints(loaded, topics * groups)
    for pid in site.brokers["source"]:
        os.kill(pid, signal.SIGKILL)
    say("the brokers of the source are dead: readiness, failover")
    readiness, readiness_cpu, _ = _command("readiness", str(path), "--source-gone")
    failover, failover_cpu, result = _command("failover", str(path), "--source-gone", "--yes")
    wrong = _wrong(site.target, wanted)
    if wrong:
        raise WrongCopyError(f"{len(wrong)} groups do not stand at their record, such as {wrong[0]}")
    report = planned.as_dict()
    return FailoverTimes(
        topics=topics,
        groups=groups,
        readiness_seconds=readiness,
        readiness_cpu_seconds=readiness_cpu,
        failover_seconds=failover,
        failover_cpu_seconds=failover_cpu,
        failover_steps=result["milliseconds"],
        cutover_seconds=planned.seconds,
        cutover_cpu_seconds=planned.cpu_seconds,
        write_pause_seconds=report["write_pause_ms"] / 1000,
        verify_seconds=report["milliseconds"]["verify"] / 1000,
        cutover_steps=report["milliseconds"],
    )


# -- cutover ------------------------------------------------------------------------------------------


class _Planned:
    """Result of the cutover."""

    def __init__(self, report: Any, seconds: float, cpu_seconds: float) -> None:
        self._report, self.seconds, self.cpu_seconds = report, seconds, cpu_seconds

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self._report.as_dict()
        return found


class _Writers:
    """Applications that write to every topic in turn, and a fence that stops them."""

    def __init__(self, servers: str, names: Sequence[str]) -> None:
        self.written = 0
        self._servers, self._names = servers, names
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def stops(self) -> bool:
        """It does."""
        return True

    def fence(self) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """They stay stopped."""

    def described(self) -> str:
        """For a dry run."""
        return "stops the writers"

    def undo(self) -> None:
        """The measurement is over."""

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 1})
        while not self._stop.is_set():
            for name in self._names:
                producer.produce(name, b"%d" % self.written, partition=0)
                self.written += 1
            producer.flush(30)
            self._stop.wait(0.1)


def _cutover(site: Site, topics: int, say: Callable[[str], None]) -> _Planned:
    names = [f"moved-{number}" for number in range(topics)]
    _create(site.source, names)
    config = load_config(_config(site, "moved", groups=False))
    say(f"cutover of {topics} topics under load")
    with _running(config, ends=True):
        writers = _Writers(site.source, names)
        _await_copies(site.target, [f"source.{name}" for name in names])
        time.sleep(5)
        began, cpu = time.monotonic(), time.thread_time()
        report = promote(
            config,
            Verb.CUTOVER,
            options=PromotionOptions(
                fence=writers, verify=lambda: verify_copies(config, config.links[0]), patience=_SECONDS
            ),
        )
        seconds, cpu = time.monotonic() - began, time.thread_time() - cpu
        writers.fence()
    if report.error is not None:
        raise report.error
    there = sum(_ends(site.target, [f"source.{name}" for name in names]).values())
    assert report.promotion is not None
    mirrored = sum(cut.position for cut in report.promotion.cuts)
    if mirrored != writers.written or there < mirrored:
        raise WrongCopyError(f"{writers.written} records were written, the cut has {mirrored}")
    return _Planned(report, seconds, cpu)


# -- clusters -----------------------------------------------------------------------------------------


def _config(site: Site, prefix: str, *, groups: bool) -> dict[str, Any]:
    return {
        "clusters": {
            "source": {"bootstrap.servers": site.source},
            "target": {"bootstrap.servers": site.target},
        },
        "links": [
            {
                "name": prefix, "source": "source", "target": "target", "topics": [f"{prefix}-.*"],
                "groups": ["group-.*"] if groups else [], "sync_group_offsets": False, "heartbeats": "off",
            }
        ],
    }  # fmt: skip


@contextmanager
def _running(config: Config, *, ends: bool = False) -> Iterator[None]:
    """Mirrors in a thread; with ``ends`` it may be superseded."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with mirror:
                mirror.run()
        except BaseException as error:  # noqa: BLE001  raised again below
            failed.append(error)

    mirror = Mirror(config)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        mirror.stop()
        thread.join(60)
    if failed and not ends:
        raise failed[0]


def _create(servers: str, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(60)
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        there = admin.list_topics(timeout=30).topics
        if all(
            name in there and there[name].partitions and there[name].partitions[0].leader >= 0
            for name in names
        ):
            return
        time.sleep(0.2)
    raise TimeoutError("the topics have no leaders")


def _write(servers: str, names: Sequence[str], count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for name in names:
        for number in range(count):
            producer.produce(name, b"%d" % number, partition=0)
    if producer.flush(60):
        raise TimeoutError("records were not written")


def _commit(servers: str, names: Sequence[str], groups: int) -> dict[str, dict[str, int]]:
    """Commits an offset of every group in every topic; returns them."""
    numbers = random.Random(7)
    wanted = {
        f"group-{number}": {name: numbers.randrange(1, _RECORDS) for name in names}
        for number in range(groups)
    }
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    # the first group of a cluster makes the topic in which they are kept
    first = Consumer({"bootstrap.servers": servers, "group.id": "bench-first"})
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            first.committed([TopicPartition(names[0], 0)], 60)
            break
        except KafkaException:
            # its partitions have leaders, and no coordinator has loaded them
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    first.close()
    everything = list(wanted)
    for begin in range(0, len(everything), _AT_ONCE):
        asked = [
            admin.alter_consumer_group_offsets(
                [
                    ConsumerGroupTopicPartitions(
                        group, [TopicPartition(name, 0, offset) for name, offset in wanted[group].items()]
                    )
                ]
            )[group]
            for group in everything[begin : begin + _AT_ONCE]
        ]
        for future in asked:
            future.result(120)
    return wanted


def _await_checkpoints(config: Config, count: int) -> None:
    session = ClusterSession(config.clusters["target"], client_id="bench.failover")
    reader = OffsetMapReader(config.links[0], session)
    deadline = time.monotonic() + _SECONDS
    while len(reader.checkpoints()) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(reader.checkpoints())} of {count} checkpoints")
        time.sleep(1)
    session.close()


def _await_copies(servers: str, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        there = admin.list_topics(timeout=30).topics
        # a leader may be known before it leads
        with suppress(KafkaException):
            if all(name in there for name in names) and all(_ends(servers, names).values()):
                return
        time.sleep(1)
    raise TimeoutError("the copies have no records")


def _ends(servers: str, names: Sequence[str]) -> dict[str, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ends"})
    found = {name: consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=30)[1] for name in names}
    consumer.close()
    return found


def _wrong(servers: str, wanted: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Groups whose next record on the target is another one; the value of a record is its offset on the source."""
    names = sorted({name for offsets in wanted.values() for name in offsets})
    copies = {name: _read(servers, f"source.{name}") for name in names}
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    found = []
    groups = list(wanted)
    for begin in range(0, len(groups), _AT_ONCE):
        asked = {
            group: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
            for group in groups[begin : begin + _AT_ONCE]
        }
        for group, future in asked.items():
            there = {one.topic: one.offset for one in future.result(60).topic_partitions}
            following = {
                name: next(
                    (value for at, value in copies[name] if at >= there.get(f"source.{name}", -1)), None
                )
                for name in names
            }
            if len(there) != len(names) or following != wanted[group]:
                found.append(group)
    return found


def _read(servers: str, name: str) -> list[tuple[int, int]]:
    """Offset and value of every record of a copy."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reads", "enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.offset(), int(message.value())))
    consumer.close()
    return found


def _command(verb: str, *arguments: str) -> tuple[float, float, dict[str, Any]]:
    """Seconds and CPU seconds that a command takes, and its result."""
    began, before = time.monotonic(), _cpu_of_children()
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", verb, *arguments, "-o", "json"],
        capture_output=True, check=False, timeout=_SECONDS,
    )  # fmt: skip
    seconds = time.monotonic() - began
    if done.returncode != 0:
        raise RuntimeError(f"{verb}: exit {done.returncode}: {done.stderr.decode()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return seconds, _cpu_of_children() - before, found


def _cpu_of_children() -> float:
    """CPU seconds of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
