"""
CPU and memory of a process tree, and the window over which they are taken.

CPU is user plus system time from /proc, of every process of the tree and, through ``cutime`` and ``cstime``, of
every child that it has waited for: a worker that came and went between two samples is counted.  Memory is PSS
(proportional set size: shared pages are divided among those that share them, so forked workers are not counted
several times), from ``smaps_rollup``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CpuSample",
    "Kind",
    "Memory",
    "Neighbours",
    "Progress",
    "TreeMeter",
    "Window",
    "as_megabytes",
    "kind_of",
    "parse_pss",
    "steady_window",
    "whole_window",
]

Kind = Literal["driver", "jvm", "workers"]

_CPU_SECONDS = 0.25
_MEMORY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CpuSample:
    """
    CPU that a tree has used up to a moment.

    Attributes:
        at: Monotonic seconds.
        total: CPU seconds of all processes.
        by_kind: The same for living processes of each kind, with the children that they have waited for.
    """

    at: float
    total: float
    by_kind: dict[Kind, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Memory:
    """
    Peaks of PSS, in bytes.

    Attributes:
        total: Of the whole tree at one moment.
        driver: Of the process that was started, unless it is a JVM.
        jvm: Of Java processes.
        workers: Of all others.
        worker: Of the largest of them: one lane.
    """

    total: int = 0
    driver: int = 0
    jvm: int = 0
    workers: int = 0
    worker: int = 0

    def peak(self, now: Memory) -> Memory:
        """The larger of both, each for itself."""
        return Memory(
            max(self.total, now.total),
            max(self.driver, now.driver),
            max(self.jvm, now.jvm),
            max(self.workers, now.workers),
            max(self.worker, now.worker),
        )


def kind_of(name: str, *, is_root: bool) -> Kind:
    """What a process is, by the name of its program."""
    if name == "java":
        return "jvm"
    return "driver" if is_root else "workers"


def parse_pss(smaps_rollup: str) -> int:
    """PSS in bytes; 0 when there is none, as for a process that has just ended."""
    for line in smaps_rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


class TreeMeter:
    """
    Samples a process tree from a thread until `stop`.

    A process that leaves the tree because its parent ended before it is followed all the same, by its id and
    start time; one that ends outside the tree counts with what it had used when last seen.

    Args:
        pid: Root of the tree.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._lock = threading.Lock()
        self._known: dict[tuple[int, float], psutil.Process] = {}
        self._orphans: dict[tuple[int, float], float] = {}
        self._samples: list[CpuSample] = []
        self._memory: list[tuple[float, Memory]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._take_cpu()
        self._thread.start()

    def stop(self) -> None:
        """Sample no more; a second call does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join()
        self._take_cpu()

    def cpu_between(self, begin: float, end: float) -> float:
        """
        CPU seconds used between two moments, interpolated between the samples around them.

        Raises:
            ValueError: There are no samples around them.
        """
        with self._lock:
            samples = list(self._samples)
        return _at(samples, end, lambda one: one.total) - _at(samples, begin, lambda one: one.total)

    def used(self) -> float:
        """CPU seconds from the first sample to the last one."""
        with self._lock:
            return self._samples[-1].total - self._samples[0].total

    def cpu_by_kind(self, begin: float, end: float) -> dict[str, float]:
        """The same for each kind of process."""
        with self._lock:
            samples = list(self._samples)
        kinds = sorted({kind for sample in samples for kind in sample.by_kind})
        found = {}
        for kind in kinds:
            read = functools.partial(_of_kind, kind)
            found[kind] = _at(samples, end, read) - _at(samples, begin, read)
        return {str(kind): used for kind, used in found.items()}

    def memory(self, begin: float = 0.0) -> Memory:
        """Peaks from a moment on."""
        peak = Memory()
        with self._lock:
            for at, now in self._memory:
                if at >= begin:
                    peak = peak.peak(now)
        return peak

    def _run(self) -> None:
        next_memory = 0.0
        while not self._stopping.wait(_CPU_SECONDS):
            self._take_cpu()
            if time.monotonic() >= next_memory:
                self._take_memory()
                next_memory = time.monotonic() + _MEMORY_SECONDS

    def _take_cpu(self) -> None:
        tree = self._tree()
        total = 0.0
        by_kind: dict[Kind, float] = {}
        for key, process in tree.items():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used = times.user + times.system + times.children_user + times.children_system
                kind = kind_of(process.name(), is_root=key[0] == self._root.pid)
                by_kind[kind] = by_kind.get(kind, 0.0) + used
                total += used
        for key, process in self._known.items():
            if key not in tree:
                self._see_orphan(key, process)
        self._known |= tree
        total += sum(self._orphans.values())
        with self._lock:
            # a process that ended between two looks may be missing for one of them; time never runs back
            before = self._samples[-1].total if self._samples else 0.0
            self._samples.append(CpuSample(time.monotonic(), max(before, total), by_kind))

    def _see_orphan(self, key: tuple[int, float], process: psutil.Process) -> None:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                times = process.cpu_times()
                self._orphans[key] = times.user + times.system + times.children_user + times.children_system

    def _tree(self) -> dict[tuple[int, float], psutil.Process]:
        with contextlib.suppress(psutil.Error):
            members = [self._root, *self._root.children(recursive=True)]
            return {(member.pid, member.create_time()): member for member in members}
        return {}

    def _take_memory(self) -> None:
        sizes: dict[Kind, int] = {"driver": 0, "jvm": 0, "workers": 0}
        worker = 0
        for key, process in self._tree().items():
            with contextlib.suppress(psutil.Error, OSError):
                kind = kind_of(process.name(), is_root=key[0] == self._root.pid)
                size = parse_pss(Path(f"/proc/{process.pid}/smaps_rollup").read_text("ascii"))
                sizes[kind] += size
                if kind == "workers":
                    worker = max(worker, size)
        now = Memory(sum(sizes.values()), sizes["driver"], sizes["jvm"], sizes["workers"], worker)
        with self._lock:
            self._memory.append((time.monotonic(), now))


def _of_kind(kind: Kind, sample: CpuSample) -> float:
    return sample.by_kind.get(kind, 0.0)


def _at(samples: list[CpuSample], moment: float, read: Callable[[CpuSample], float]) -> float:
    for before, after in itertools.pairwise(samples):
        if before.at <= moment <= after.at:
            share = (moment - before.at) / (after.at - before.at) if after.at > before.at else 0.0
            return read(before) + share * (read(after) - read(before))
    raise ValueError("no sample around this moment")


class Neighbours:
    """
    How busy others keep the machine: everything but this program and what it started (brokers and mirrors).

    Figures are comparable only as far as this is small.  A hypervisor that takes time away counts too.
    """

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), self._foreign_seconds()

    def cores(self) -> float:
        """Mean number of cores since this was made."""
        seconds = time.monotonic() - self._at
        return max(0.0, self._foreign_seconds() - self._used) / seconds if seconds else 0.0

    @staticmethod
    def _foreign_seconds() -> float:
        times = psutil.cpu_times()
        busy = times.user + times.system + times.nice + times.irq + times.softirq + times.steal
        own = 0.0
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used = process.cpu_times()
                own += used.user + used.system + used.children_user + used.children_system
        return float(busy - own)


@dataclass(frozen=True, slots=True)
class Progress:
    """Last stable offsets of the target's partitions at a moment."""

    at: float
    offsets: dict[int, int]

    @property
    def total(self) -> int:
        """Sum over partitions."""
        return sum(self.offsets.values())


@dataclass(frozen=True, slots=True)
class Window:
    """
    The steady state: from one look at the target to another.

    Attributes:
        begin: First look.
        end: Last look.
    """

    begin: Progress
    end: Progress

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end.at - self.begin.at


def steady_window(
    looks: list[Progress], *, warm_up: float, seconds: float, full: int | None = None
) -> Window | None:
    """
    The steady state in what was seen of the target.

    It begins with the first look at least ``warm_up`` seconds after the target was first seen to grow, and ends
    with the first look at least ``seconds`` later, or with the last one at which the copy was not complete yet.

    Args:
        looks: In order of time.
        warm_up: Seconds.
        seconds: Seconds.
        full: Sum of offsets from which on the copy is complete; None when it never is.

    Returns:
        None while there is none: nothing moved, or it was complete before the warm-up was over.
    """
    moving = next((later.at for early, later in itertools.pairwise(looks) if later.total > early.total), None)
    if moving is None:
        return None
    within = [look for look in looks if look.at >= moving + warm_up and (full is None or look.total < full)]
    if len(within) < 2:
        return None
    begin = within[0]
    end = next((look for look in within if look.at >= begin.at + seconds), within[-1])
    return Window(begin, end)


def whole_window(looks: list[Progress]) -> Window | None:
    """From the last look at an empty target to the first at a complete one; None while nothing moved."""
    moving = next((index for index, look in enumerate(looks) if look.total > looks[0].total), None)
    if moving is None:
        return None
    end = next(look for look in looks if look.total == looks[-1].total)
    return Window(looks[moving - 1], end)


def as_megabytes(memory: Memory) -> dict[str, Any]:
    """For reports: MiB, whole."""
    return {
        "total": round(memory.total / 2**20),
        "driver": round(memory.driver / 2**20),
        "jvm": round(memory.jvm / 2**20),
        "workers": round(memory.workers / 2**20),
        "worker": round(memory.worker / 2**20),
    }
