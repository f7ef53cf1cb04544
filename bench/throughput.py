"""One mirror on one workload: run it, verify what it copied, and only then say how fast it was."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bench.loading import Feeder, load
from bench.measure import (
    Memory,
    Neighbours,
    Progress,
    TreeMeter,
    Window,
    as_megabytes,
    steady_window,
    whole_window,
)
from bench.topics import Topics
from bench.verify import Ledger, WrongCopyError, check_copy, read_ledger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.peers.process import MirrorProcess, Peer, Site
    from bench.workloads import Workload

__all__ = ["Figures", "RanOutError", "Timing", "measure", "prepare"]

_START_SECONDS = 120.0
_LOOK_SECONDS = 0.25
_PACED_LOOK_SECONDS = 1.0
# a copy that has not grown for so long is complete
_STILL_SECONDS = 4.0
_CATCH_UP_SECONDS = 60.0
_WARM_SECONDS = 8.0


class RanOutError(TimeoutError):
    """A mirror had copied everything before its steady state began; more has to be loaded to measure it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """
    How long a run is.

    Attributes:
        warm_up: Seconds from the first record on the target to the steady state.
        seconds: Seconds of steady state.
        spare: Seconds' worth of records that are loaded beyond both.
        whole: Take the whole copy, begin and end included, in place of a steady state, and let the mirror
            finish it.  For a run that asks whether copies are right, not how fast they come.
    """

    warm_up: float = 8.0
    seconds: float = 15.0
    spare: float = 3.0
    whole: bool = False

    @property
    def loaded_seconds(self) -> float:
        """For how many seconds' worth of records are loaded."""
        return self.warm_up + self.seconds + self.spare


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """
    What one mirror did on one workload, after its copy was found right.

    Attributes:
        peer: Its short name.
        title: Its name in reports.
        seconds: Length of the steady state.
        complete: Whether it copied everything before it was stopped.
        verified: Records compared with the source, all equal.
        records: Of them, in the steady state.
        records_per_second: In the steady state.
        megabytes_per_second: Of values, in 10^6 bytes.
        cpu_cores: Mean number of cores in use by the mirror's processes.
        cpu_microseconds_per_record: CPU time by records.
        cpu_cores_by_kind: The same for driver, JVM and workers.
        brokers_microseconds_per_record: CPU time of the brokers of each cluster, by records: what a mirror makes of
            them counts on a machine that they share.
        memory: Peaks of PSS from the start on, in MiB.
        markers: Offsets on the target that hold no record.
        first_record_seconds: From the start of its process to the first record on the target.
        others_cores: Mean number of cores that processes outside the bench kept busy meanwhile.
    """

    peer: str
    title: str
    seconds: float
    complete: bool
    verified: int
    records: int
    records_per_second: float
    megabytes_per_second: float
    cpu_cores: float
    cpu_microseconds_per_record: float
    cpu_cores_by_kind: dict[str, float] = field(default_factory=dict)
    brokers_microseconds_per_record: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    markers: int = 0
    first_record_seconds: float = 0.0
    others_cores: float = 0.0


def prepare(site: Site, workload: Workload, timing: Timing, share: float = 1.0) -> Ledger | None:
    """
    Create the source topic; for a bulk workload, also fill it and read it once.

    Args:
        site: Where.
        workload: What.
        timing: Says how much a bulk workload needs.
        share: Of the records that full speed would need; less for a quick look.

    Returns:
        What the source holds; None for a paced workload, whose records come while mirrors run.
    """
    topics = Topics(site.source)
    topics.delete(workload.topic)
    topics.create(workload.topic, workload.partitions, {"retention.ms": "-1"})
    if workload.paced:
        return None
    _warm_up(site.target, workload, int(workload.records_for(_WARM_SECONDS) * share))
    produced = load(site.source, workload, int(workload.records_for(timing.loaded_seconds) * share))
    ledger = read_ledger(site.source, workload.topic, workload.partitions)
    if ledger.records != produced:
        raise WrongCopyError(f"{workload.topic}: {produced} records loaded, {ledger.records} found")
    return ledger


def _warm_up(servers: str, workload: Workload, records: int) -> None:
    """
    Let a fresh broker compile the way of a Produce request before anybody is measured.

    Of the first half minute under load a broker's compiler takes up to half a core, on this machine's two: the mirror
    measured first would pay for it, and the next one would find a broker that does with half the CPU.
    """
    scratch = replace(workload, name=f"warm-{workload.name}")
    topics = Topics(servers)
    topics.create(scratch.topic, scratch.partitions)
    load(servers, scratch, records)
    topics.delete(scratch.topic)


def measure(site: Site, workload: Workload, peer: Peer, source: Ledger | None, timing: Timing) -> Figures:
    """
    Run a mirror on a prepared workload.

    Args:
        site: Where.
        workload: What.
        peer: Who.
        source: What `prepare` returned.
        timing: How long.

    Raises:
        WrongCopyError: The copy is wrong, or holds no markers although it should, or the other way round.
        MirrorEndedError: The mirror ended on its own.
        RanOutError: It had copied everything before the warm-up was over.
        TimeoutError: It copied nothing, or did not reach the end of a paced workload.
    """
    feeder = Feeder(site.source, workload) if workload.paced else contextlib.nullcontext()
    started = time.monotonic()
    neighbours = Neighbours()
    brokers = {name: [TreeMeter(pid) for pid in pids] for name, pids in site.brokers.items()}
    with peer.start(site, workload) as process:
        meter = TreeMeter(process.pid)
        meters = [meter, *itertools.chain.from_iterable(brokers.values())]
        for each in meters:
            each.start()
        try:
            with feeder:
                if timing.whole and source is not None:
                    looks = _await_copy(Topics(site.target), peer.target_topic(workload), source, process)
                else:
                    looks = _watch(Topics(site.target), workload, peer, process, timing)
            others = neighbours.cores()
            if workload.paced:
                source = read_ledger(site.source, workload.topic, workload.partitions)
                _await_copy(Topics(site.target), peer.target_topic(workload), source, process)
        finally:
            for each in meters:
                each.stop()
    assert source is not None
    if (make := peer.changes(workload)) is not None:
        source = read_ledger(site.source, workload.topic, workload.partitions, make)
    target = read_ledger(site.target, peer.target_topic(workload), workload.partitions)
    check_copy(source, target, complete=workload.paced or timing.whole)
    if peer.transactional != (target.unused_offsets > 0):
        raise WrongCopyError(
            f"{peer.title}: {target.unused_offsets} markers found, so it did not run as it should"
        )
    if timing.whole:
        window = whole_window(looks)
    else:
        full = looks[-1].total if _is_still(looks) else None
        window = steady_window(looks, warm_up=timing.warm_up, seconds=timing.seconds, full=full)
    if window is None:
        raise RanOutError(
            f"{peer.title} had copied all {source.records:,} records of {workload.name} before its warm-up was over; "
            "raise expected_rate in bench/workloads.py"
        )
    first = next(look.at for look in looks if look.total > 0) - started
    figures = _figures(
        workload,
        peer,
        target,
        window=window,
        meter=meter,
        brokers=brokers,
        complete=target.records == source.records,
        first=first,
    )
    return replace(figures, others_cores=round(others, 2))


def _watch(
    topics: Topics, workload: Workload, peer: Peer, process: MirrorProcess, timing: Timing
) -> list[Progress]:
    """Look at the target until the steady state has been long enough, or nothing moves any more."""
    topic = peer.target_topic(workload)
    until = time.monotonic() + _START_SECONDS
    looks = []
    while True:
        process.check()
        at = time.monotonic()
        looks.append(Progress(at, topics.stable_offsets(topic)))
        window = steady_window(looks, warm_up=timing.warm_up, seconds=timing.seconds)
        if window is not None and window.seconds >= timing.seconds:
            return looks
        if looks[-1].total and _is_still(looks):
            return looks
        if not looks[-1].total and at > until:
            raise TimeoutError(
                f"{peer.title}: nothing arrived in {_START_SECONDS:g} s:\n{process.log_tail()}"
            )
        pause = _PACED_LOOK_SECONDS if workload.paced else _LOOK_SECONDS
        time.sleep(max(0.0, at + pause - time.monotonic()))


def _is_still(looks: list[Progress]) -> bool:
    last = looks[-1]
    since = next((look.at for look in looks if look.total == last.total), last.at)
    return last.at - since >= _STILL_SECONDS


def _await_copy(topics: Topics, topic: str, source: Ledger, process: MirrorProcess) -> list[Progress]:
    """Wait until the target has stopped growing with at least as many offsets as the source has records."""
    until = time.monotonic() + _START_SECONDS + _CATCH_UP_SECONDS
    looks: list[Progress] = []
    while time.monotonic() < until:
        process.check()
        looks.append(Progress(time.monotonic(), topics.stable_offsets(topic)))
        if looks[-1].total >= source.records and _is_still(looks):
            return looks
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError(
        f"{topic} was not complete after {_START_SECONDS + _CATCH_UP_SECONDS:g} s:\n{process.log_tail()}"
    )


def _figures(
    workload: Workload,
    peer: Peer,
    target: Ledger,
    *,
    window: Window,
    meter: TreeMeter,
    brokers: Mapping[str, Sequence[TreeMeter]],
    complete: bool,
    first: float,
) -> Figures:
    begin, end = window.begin, window.end
    records = target.records_before(end.offsets) - target.records_before(begin.offsets)
    cpu = meter.cpu_between(begin.at, end.at)
    by_kind = meter.cpu_by_kind(begin.at, end.at)
    memory: Memory = meter.memory()
    seconds = window.seconds
    return Figures(
        peer=peer.name,
        title=peer.title,
        seconds=round(seconds, 2),
        complete=complete,
        verified=target.records,
        records=records,
        records_per_second=round(records / seconds, 1),
        megabytes_per_second=round(records * workload.value_bytes / seconds / 1e6, 3),
        cpu_cores=round(cpu / seconds, 4),
        cpu_microseconds_per_record=round(cpu / max(1, records) * 1e6, 3),
        cpu_cores_by_kind={kind: round(used / seconds, 4) for kind, used in by_kind.items()},
        brokers_microseconds_per_record={
            name: round(sum(each.cpu_between(begin.at, end.at) for each in meters) / max(1, records) * 1e6, 3)
            for name, meters in brokers.items()
        },
        memory=as_megabytes(memory),
        markers=target.unused_offsets,
        first_record_seconds=round(first, 2),
    )
