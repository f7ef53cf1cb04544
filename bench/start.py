"""
The time until the first record: after a start, after ``kill -9``, and with a standby.

A sender writes a record every 10 ms, and a consumer with ``read_committed`` reads the copy, from before the first start
until the end.  Each mirror has a link of its own in each round, and its turn on the same brokers:

* *first start*: nothing of the link exists, so its topics are created on the way;
* *start*: after a stop in good order;
* *start after kill -9*: all processes of the mirror are killed, and the next ones are started at once;
* *standby*: two are started; the one that mirrors is killed, and nothing is started.

A start counts from before the process is made to the first record that the consumer gets, and a kill from before the
first signal to the first record that was sent after it.  Figures count only if the copy is equal to its source.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from array import array
from bisect import bisect_right
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.topics import Topics
from bench.verify import check_copy, read_ledger
from bench.workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from bench.peers.eomirror import Mirror
    from bench.peers.mm2 import MirrorMaker
    from bench.peers.process import MirrorProcess, Site

__all__ = ["StartTimes", "measure_starts", "median_steps", "start_markdown", "steps_of"]

_PARTITIONS = 3
_EVERY_SECONDS = 0.01
_LOOK_SECONDS = 0.01
_STAMP = struct.Struct("<qq")
_VALUE_BYTES = 100
_NS = 1_000_000_000
# of one record: five minutes are MM2's delay of a rebalance, as shipped
_FIRST_SECONDS = 480.0
_COMPLETE_SECONDS = 120.0
# between two measurements of a mirror: its start is over, and the brokers have little to do
_SETTLE_SECONDS = 12.0
# a group of Connect's workers has then moved its tasks
_JOINED_SECONDS = 25.0

#: What is measured, with its goals: seconds, and how many times as long MM2 takes at least.
_GOALS = {
    "first start": (None, None),
    "start": (2.5, 4.0),
    "start after kill -9": (2.5, 4.0),
    "standby": (3.0, None),
}


class _Process(Protocol):
    """Part of a mirror's process that the measurement needs."""

    def check(self) -> None:
        """Raises if it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """
    Seconds until the first record, of each measurement.

    Attributes:
        titles: Of the mirrors by name; eomirror comes first.
        seconds: By measurement and mirror, in the order of the rounds.
        steps: Steps of eomirror's starts by measurement: seconds after the start of the process, in each round.
        verified: Records that were compared.
    """

    titles: dict[str, str]
    seconds: dict[str, dict[str, list[float]]]
    steps: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    verified: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "titles": self.titles,
            "seconds": self.seconds,
            "medians": {
                kind: {name: round(median(found), 2) for name, found in by_name.items() if found}
                for kind, by_name in self.seconds.items()
            },
            "steps": {kind: median_steps(rounds) for kind, rounds in self.steps.items()},
            "verified": self.verified,
        }


def start_markdown(found: StartTimes) -> str:
    """Tables for a report."""
    ours, theirs = found.titles
    lines = [
        f"| to the first record, s | {' | '.join(found.titles.values())} | ratio | goal |",
        "|---|---:|---:|---:|---|",
    ]
    for kind, by_name in found.seconds.items():
        figures = {name: median(rounds) for name, rounds in by_name.items() if rounds}
        times = figures[theirs] / figures[ours] if len(figures) == 2 else None
        cells = [
            f"{figures[name]:.2f} ({', '.join(f'{each:.1f}' for each in by_name[name])})"
            if name in figures
            else "-"
            for name in found.titles
        ]
        most, least = _GOALS[kind]
        goal = [*([f"under {most:g} s"] if most else []), *([f"{least:g} times"] if least else [])]
        lines.append(
            f"| {kind} | {' | '.join(cells)} | {'-' if times is None else f'{times:.1f}'} | {', '.join(goal)} |"
        )
    lines += ["", f"Medians, and each round in brackets.  {found.verified:,} records were compared."]
    if "standby" in found.seconds:
        lines.append(
            "Standby: MM2 with two workers of a group and one task, whose worker is killed.  As shipped, the other "
            "gets it after `session.timeout.ms` (10 s) if the killed one led the group, and after "
            "`scheduled.rebalance.max.delay.ms` (5 minutes) more if it did not."
        )
    kinds = {kind: median_steps(rounds) for kind, rounds in found.steps.items() if rounds}
    steps = dict.fromkeys(name for by_name in kinds.values() for name in by_name)
    if not steps:
        return "\n".join(lines)
    lines += [
        "",
        f"| eomirror, s after the start of the process | {' | '.join(kinds)} |",
        "|---|" + "---:|" * len(kinds),
    ]
    for step in sorted(steps, key=lambda name: max(by_name.get(name, 0.0) for by_name in kinds.values())):
        cells = [f"{by_name[step]:.2f}" if step in by_name else "-" for by_name in kinds.values()]
        lines.append(f"| {step} | {' | '.join(cells)} |")
    return "\n".join(lines)


#: Steps of a start by words of the log: the first line that has them.
_STEPS = {
    "program imported, log begins": '"event"',
    "link claimed": "publishing the next generation",
    "link taken": ": running",
    "lane starts (in a process of the driver)": '"lane_starts"',
    "plane serves": '"plane_serves"',
    "Spark's JVM is started": "starting spark",
    "SparkContext is up": "spark is up",
    "lanes move to Spark": "lanes move to spark",
}


def steps_of(log: str, began: float) -> dict[str, float]:
    """
    Returns the steps that a mirror's log tells.

    Args:
        log: Its JSON lines.
        began: Wall time before the process was made.
    """
    found: dict[str, float] = {}
    for line in log.splitlines():
        for step, words in _STEPS.items():
            if step in found or words not in line:
                continue
            try:
                at = datetime.fromisoformat(json.loads(line)["timestamp"])
            except (ValueError, KeyError, TypeError):
                continue
            found[step] = at.timestamp() - began
    return found


def median_steps(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns the median of each step, over the rounds that have it."""
    names = dict.fromkeys(name for each in rounds for name in each)
    return {name: round(median(each[name] for each in rounds if name in each), 2) for name in names}


def measure_starts(
    site: Site,
    ours: Mirror,
    theirs: MirrorMaker,
    *,
    rounds: int,
    standby_rounds: int,
    their_standby_rounds: int,
    say: Callable[[str], None],
) -> StartTimes:
    """
    Measure.

    Args:
        site: Where.
        ours: eomirror.
        theirs: MM2.
        rounds: How often each mirror is started.
        standby_rounds: How often eomirror with a standby is killed.
        their_standby_rounds: How often one of two workers of MM2 is killed; each may take five minutes.
        say: Tells progress.

    Raises:
        WrongCopyError: A copy differs from its source.
        MirrorEndedError: A mirror ended on its own.
        TimeoutError: No record arrived.
    """
    starts = [kind for kind in _GOALS if kind != "standby"] if rounds else []
    kinds = [*starts, *(["standby"] if standby_rounds or their_standby_rounds else [])]
    found = StartTimes(
        titles={peer.name: peer.title for peer in (ours, theirs)},
        seconds={kind: {ours.name: [], theirs.name: []} for kind in kinds},
        steps={kind: [] for kind in starts},
    )
    verified = 0
    for number in range(1, rounds + 1):
        for peer in (ours, theirs):
            with _Stage(site, peer, f"start-{number}") as stage:
                _starts(stage, found)
            verified += stage.verified
            told = ", ".join(f"{kind} {found.seconds[kind][peer.name][-1]:.2f} s" for kind in starts)
            say(f"round {number}, {peer.title}: {told}")
    for number in range(1, max(standby_rounds, their_standby_rounds) + 1):
        for peer, wanted in ((ours, standby_rounds), (theirs, their_standby_rounds)):
            if number > wanted:
                continue
            with _Stage(site, peer, f"standby-{number}") as stage:
                found.seconds["standby"][peer.name].append(_standby(stage))
            verified += stage.verified
            say(f"standby {number}, {peer.title}: {found.seconds['standby'][peer.name][-1]:.2f} s")
    return StartTimes(titles=found.titles, seconds=found.seconds, steps=found.steps, verified=verified)


def _starts(stage: _Stage, found: StartTimes) -> None:
    name = stage.peer.name
    for kind in ("first start", "start", "start after kill -9"):
        killed = kind == "start after kill -9"
        wall, began = time.time(), time.monotonic()
        if killed:
            # the last one is still there
            stage.processes[-1].kill()
        process = stage.start()
        arrived = stage.await_record(process, after=began, sent_after=began if killed else 0.0)
        found.seconds[kind][name].append(arrived - began)
        if stage.ours:
            _await_words(process, "lanes move to spark")
        time.sleep(_SETTLE_SECONDS)
        process.check()
        if stage.ours:
            steps = steps_of(process.log_path.read_text("utf-8"), wall)
            found.steps[kind].append({**steps, "first record at the reader": arrived - began})
        if kind == "first start":
            process.stop()
            time.sleep(1.0)


def _await_words(process: MirrorProcess, words: str) -> None:
    """Waits until the log of a mirror has these words."""
    until = time.monotonic() + _COMPLETE_SECONDS
    while words not in process.log_path.read_text("utf-8", errors="replace"):
        process.check()
        if time.monotonic() > until:
            raise TimeoutError(f"no {words!r} in {_COMPLETE_SECONDS:g} s:\n{process.log_tail()}")
        time.sleep(0.2)


def _standby(stage: _Stage) -> float:
    began = time.monotonic()
    first = stage.start(pair=True)
    stage.await_record(first, after=began)
    second = stage.start(pair=True, second=True)
    time.sleep(_JOINED_SECONDS)
    for process in (first, second):
        process.check()
    owner, other = (first, second) if stage.ours or stage.has_task(first, second) else (second, first)
    began = time.monotonic()
    owner.kill()
    arrived = stage.await_record(other, after=began, sent_after=began)
    time.sleep(_SETTLE_SECONDS)
    return arrived - began


class _Stage:
    """
    One mirror's turn: a topic of its own, its traffic, its reader; a context manager that compares at its end.

    Args:
        site: Where.
        peer: Whose turn.
        name: Of the turn; appears in the topic's name.
    """

    def __init__(self, site: Site, peer: Mirror | MirrorMaker, name: str) -> None:
        self.peer = peer
        self.processes: list[MirrorProcess] = []
        self.verified = 0
        self._site = site
        self._workload = Workload(
            name=name, title=name, value_bytes=_VALUE_BYTES, partitions=_PARTITIONS, rate=100
        )
        self._copy = peer.target_topic(self._workload)
        self._ended = ExitStack()

    @property
    def ours(self) -> bool:
        """True for eomirror."""
        return self.peer.name.startswith("eo")

    def __enter__(self) -> Self:
        Topics(self._site.source).create(self._workload.topic, _PARTITIONS)
        self._sender = self._ended.enter_context(_Sender(self._site.source, self._workload.topic))
        self._reader = self._ended.enter_context(_Reader(self._site.target, self._copy))
        time.sleep(2.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._ended:
            if kind is None:
                self._compare()
        for process in self.processes:
            process.stop()
        Topics(self._site.target).delete_all(but=())
        Topics(self._site.source).delete_all(but=())
        time.sleep(3.0)

    def start(self, *, pair: bool = False, second: bool = False) -> MirrorProcess:
        """Starts the mirror; with ``pair`` as one of two that stand in for each other."""
        self.processes.append(self.peer.start(self._site, self._workload, pair=pair, second=second))
        return self.processes[-1]

    def await_record(self, process: _Process, *, after: float, sent_after: float = 0.0) -> float:
        """Returns when the first record arrived after a moment, of those that were sent after one."""
        until = time.monotonic() + _FIRST_SECONDS
        while (arrived := self._reader.first(after, sent_after)) is None:
            process.check()
            if time.monotonic() > until:
                raise TimeoutError(f"{self.peer.title}: no record in {_FIRST_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)
        return arrived

    @staticmethod
    def has_task(one: MirrorProcess, other: MirrorProcess) -> bool:
        """Returns True if the source task of MM2 runs in the first of two workers, by their logs."""
        last = {}
        for process in (one, other):
            lines = process.log_path.read_text("utf-8", errors="replace").splitlines()
            # "2026-11-27 21:00:00,000 INFO  Worker Creating task MirrorSourceConnector-0"; equal length, so text order
            last[process] = max(
                (line for line in lines if "Creating task MirrorSourceConnector-0" in line), default=""
            )
        return last[one] > last[other]

    def _compare(self) -> None:
        self._sender.stop()
        until = time.monotonic() + _COMPLETE_SECONDS
        while self._reader.records < self._sender.records and time.monotonic() < until:
            time.sleep(0.1)
        for process in self.processes:
            process.stop()
        source = read_ledger(self._site.source, self._workload.topic, _PARTITIONS)
        target = read_ledger(self._site.target, self._copy, _PARTITIONS)
        check_copy(source, target, complete=True)
        self.verified = target.records


class _Worker(threading.Thread):
    """A thread that ends with its block."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._asked = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it."""
        self._asked.set()
        self.join()


class _Sender(_Worker):
    """Writes a record every 10 ms, to the partitions in turn."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__("sender")
        self.records = 0
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 3}
        )

    def run(self) -> None:
        padding = bytes(_VALUE_BYTES - _STAMP.size)
        due = time.monotonic()
        while not self._asked.wait(max(0.0, due - time.monotonic())):
            value = _STAMP.pack(time.monotonic_ns(), self.records) + padding
            self._producer.produce(self._topic, value, partition=self.records % _PARTITIONS)
            self._producer.poll(0)
            self.records += 1
            due += _EVERY_SECONDS
        if self._producer.flush(60):
            raise RuntimeError(f"records of {self._topic} were not acknowledged")


class _Reader(_Worker):
    """Reads a topic with read_committed from the moment on at which it exists."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__("reader")
        self._servers, self._topic = servers, topic
        self._arrived, self._sent = array("q"), array("q")

    @property
    def records(self) -> int:
        """How many arrived."""
        return len(self._arrived)

    def first(self, after: float, sent_after: float) -> float | None:
        """Returns when the first record arrived after a moment, of those that were sent after one; None if none has."""
        begin = bisect_right(self._arrived, int(after * _NS))
        for arrived, sent in zip(self._arrived[begin:], self._sent[begin:], strict=False):
            if sent > sent_after * _NS:
                return arrived / _NS
        return None

    def run(self) -> None:
        topics = Topics(self._servers)
        while not topics.partitions(self._topic):
            if self._asked.wait(0.05):
                return
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "bench-start",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 3,
            }
        )
        consumer.assign([TopicPartition(self._topic, number, 0) for number in range(_PARTITIONS)])
        while not self._asked.is_set():
            for message in consumer.consume(1000, 0.02):
                if (error := message.error()) is not None:
                    if error.fatal():
                        raise KafkaException(error)
                    continue
                sent, _ = _STAMP.unpack_from(message.value() or b"")
                # the record last: a reader of both looks at the shorter one
                self._sent.append(sent)
                self._arrived.append(time.monotonic_ns())
        consumer.close()
