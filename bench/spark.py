"""
A Structured Streaming job from Kafka to Kafka with a filter: with Spark's own connector, and with ours.

The variants take turns on the same brokers and on the same topic: source and sink of Spark, our source, our sink, both.
Each runs in a JVM of its own under ``local[2]``, as batches of `Trigger.AvailableNow`.  The first micro-batch starts
workers and compiles, so figures are those of the batches behind it; the time and CPU of the whole process stand beside.
CPU is that of the driver, its JVM and all Python workers, without brokers.

Spark's connector is tuned for throughput within what is safe, as MirrorMaker 2 is elsewhere; ``as shipped`` shows what
most run.  Its sink is at-least-once; ours commits each micro-batch as one transaction.

The oracle generates what the loader wrote and applies the filter.  A record that is missing or altered is an error in
each variant, and one that is there twice in those with our sink; of Spark's sink duplicates are counted.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute

from bench.loading import load
from bench.measure import Neighbours, TreeMeter, as_megabytes
from bench.peers.process import MirrorEndedError, MirrorProcess
from bench.peers.spark_connector import connector_jars
from bench.topics import Topics
from bench.verify import WrongCopyError, content_hash, read_ledger
from bench.workloads import Workload, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.peers.process import Site

__all__ = ["SETTINGS", "VARIANTS", "Job", "Run", "Variant", "check_output", "measure_job", "spark_markdown"]

_JOB = Path(__file__).with_name("spark_job.py")
_MOST_SECONDS = 3600.0
_PARTITIONS = 6
_BATCHES = 10
# of a value, the last digit of its number: 15 of 16 remain
_WHERE = "substring(value, 16, 1) <> X'30'"
#: Settings of Spark.
SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
_TUNED_SOURCE = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
_TUNED_SINK = {
    "kafka.batch.size": str(256 << 10),
    "kafka.linger.ms": "5",
    "kafka.buffer.memory": str(128 << 20),
    "kafka.max.request.size": str(4 << 20),
    "kafka.send.buffer.bytes": str(1 << 20),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """
    Connectors of a job.

    Attributes:
        name: On the command line.
        title: In reports.
        source: Format of the source.
        sink: Format of the sink; ``eomirror`` is the atomic one.
        tuned: False leaves Spark's connector as shipped.
    """

    name: str
    title: str
    source: str
    sink: str
    tuned: bool = True


VARIANTS = {
    one.name: one
    for one in (
        Variant("spark", "Spark's source and sink", "kafka", "kafka"),
        Variant("source", "our source, Spark's sink", "eomirror", "kafka"),
        Variant("sink", "Spark's source, our sink", "kafka", "eomirror"),
        Variant("both", "our source and sink", "eomirror", "eomirror"),
        Variant("spark-default", "Spark's source and sink, as shipped", "kafka", "kafka", tuned=False),
    )
}


@dataclass(frozen=True, slots=True)
class Job:
    """
    Rows to read.

    Attributes:
        value_bytes: Size of a value.
        rows: Their number, a multiple of the partitions.
    """

    value_bytes: int
    rows: int

    @property
    def workload(self) -> Workload:
        """As the loader takes it."""
        size = f"{self.value_bytes} B" if self.value_bytes < 1000 else f"{self.value_bytes // 1000} kB"
        title = f"{self.rows:,} rows of {size}"
        return Workload(
            name=f"spark-{self.value_bytes}",
            title=title,
            value_bytes=self.value_bytes,
            partitions=_PARTITIONS,
        )

    @property
    def batch_rows(self) -> int:
        """Rows of a micro-batch."""
        return max(_PARTITIONS, self.rows // _BATCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """
    One turn of a variant.

    Attributes:
        variant: Its name.
        rows: Rows of the batches that count.
        seconds: Time of these.
        cpu_us: CPU of a row in them, in microseconds.
        cpu_us_by_kind: The same for driver, JVM and Python workers.
        batches: Their number.
        whole_seconds: From the start of the process to its end.
        whole_cpu_us: CPU of a row over that time.
        memory: Peaks of PSS in MiB.
        duplicates: Records that were there once more.
        others_cores: Cores that were busy with neither brokers nor the job.
    """

    variant: str
    rows: int
    seconds: float
    cpu_us: float
    cpu_us_by_kind: dict[str, float]
    batches: int
    whole_seconds: float
    whole_cpu_us: float
    memory: dict[str, Any]
    duplicates: int
    others_cores: float

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"rate": round(self.rate)}


def spark_markdown(job: Job, runs: Sequence[Run]) -> str:
    """A table for a report."""
    lines = [
        f"## {job.workload.title}, in batches of {job.batch_rows:,}",
        "",
        "| | rows/s | CPU us/row | by process | whole run, s | its CPU us/row | PSS MiB | duplicates | others' cores |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    by_variant: dict[str, list[Run]] = {}
    for run in runs:
        by_variant.setdefault(run.variant, []).append(run)
        kinds = ", ".join(f"{kind} {used:.2f}" for kind, used in run.cpu_us_by_kind.items())
        lines.append(
            f"| {VARIANTS[run.variant].title} | {run.rate:,.0f} | {run.cpu_us:.2f} | {kinds} | "
            f"{run.whole_seconds:.1f} | {run.whole_cpu_us:.2f} | {run.memory['total']} | {run.duplicates} | "
            f"{run.others_cores:.2f} |"
        )
    if "spark" in by_variant:
        theirs = by_variant.pop("spark")
        lines.append("")
        for name, ours in by_variant.items():
            rate = median(one.rate for one in ours) / median(one.rate for one in theirs)
            cpu = median(one.cpu_us for one in ours) / median(one.cpu_us for one in theirs)
            lines.append(
                f"- {VARIANTS[name].title}: {rate:.2f} times the rows/s of Spark's, {cpu:.2f} times the CPU"
            )
    return "\n".join(lines)


def measure_job(
    site: Site, job: Job, names: Sequence[str], *, rounds: int, say: Callable[[str], None]
) -> list[Run]:
    """
    Runs a job with each variant in turn.

    Raises:
        WrongCopyError: The output is not what the filter leaves of the input.
        MirrorEndedError: A job failed.
        TimeoutError: A job took an hour.
    """
    workload = job.workload
    source, target = Topics(site.source), Topics(site.target)
    source.delete(workload.topic)
    source.create(workload.topic, _PARTITIONS)
    say(f"{workload.title}: loading")
    loaded = load(site.source, workload, job.rows)
    each = loaded // _PARTITIONS
    expected = array("Q")
    for number in range(_PARTITIONS):
        kept = _kept(itertools.islice(values(workload, seed=number), each))
        expected.extend(content_hash(value) for value in kept)
    runs = []
    for number in range(1, rounds + 1):
        for name in names:
            target.delete_all(but=())
            topic = f"{workload.topic}-{name}"
            target.create(topic, _PARTITIONS)
            run = _run(site, job, VARIANTS[name], name=f"{topic}-{number}", topic=topic, expected=expected)
            say(
                f"round {number}, {VARIANTS[name].title}: {run.rate:,.0f} rows/s, {run.cpu_us:.2f} us/row, "
                f"{run.duplicates} duplicates"
            )
            runs.append(run)
    source.delete(workload.topic)
    target.delete_all(but=())
    return runs


def check_output(expected: array[int], found: Iterable[array[int]], *, once: bool) -> int:
    """
    Returns the number of duplicates.

    Args:
        expected: Hashes of all rows that the job must write; no two are equal.
        found: Hashes of what was written.
        once: Duplicates are a fault.

    Raises:
        WrongCopyError: A row is missing, foreign, or there twice although it must not be.
    """

    def column(hashes: array[int]) -> Any:
        return pa.Array.from_buffers(pa.uint64(), len(hashes), [None, pa.py_buffer(hashes)])

    everything = array("Q")
    for hashes in found:
        everything.extend(hashes)
    wanted, written = column(expected), column(everything)
    distinct = compute.unique(written)
    missing = len(wanted) - (compute.sum(compute.is_in(wanted, value_set=distinct)).as_py() or 0)
    foreign = len(distinct) - (compute.sum(compute.is_in(distinct, value_set=wanted)).as_py() or 0)
    duplicates = len(written) - len(distinct)
    if missing or foreign or (duplicates and once):
        raise WrongCopyError(
            f"{missing} of {len(wanted)} rows are missing, {foreign} are altered or not the job's, "
            f"{duplicates} are there twice"
        )
    return duplicates


def _kept(every: Iterable[bytes]) -> Iterable[bytes]:
    """Applies the filter of the job."""
    return (value for value in every if value[15:16] != b"0")


def _run(site: Site, job: Job, variant: Variant, *, name: str, topic: str, expected: array[int]) -> Run:
    command = [sys.executable, "-P", str(_JOB), json.dumps(_given(site, job, variant, topic, name))]
    neighbours = Neighbours()
    began = time.monotonic()
    with MirrorProcess(name, command, folder=site.folder) as process:
        meter = TreeMeter(process.pid)
        meter.start()
        try:
            _wait(process, began)
        finally:
            meter.stop()
    ended = time.monotonic()
    others = neighbours.cores()
    log = process.log_path.read_text("utf-8", errors="replace")
    told = next((line for line in reversed(log.splitlines()) if line.startswith("found ")), None)
    if told is None:
        raise MirrorEndedError(f"{variant.title}: the job failed:\n{process.log_tail()}")
    batches = [one for one in json.loads(told.partition(" ")[2]) if one["offset"]]
    # a query without news reports as well
    batches = [
        batches[0],
        *(late for early, late in itertools.pairwise(batches) if late["offset"] > early["offset"]),
    ]
    first, *counted = batches
    begin, end = counted[0]["begin"], counted[-1]["end"]
    rows = counted[-1]["offset"] - first["offset"]
    ledger = read_ledger(site.target, topic, _PARTITIONS, timestamps=False)
    return Run(
        variant=variant.name,
        rows=rows,
        seconds=round(end - begin, 3),
        cpu_us=round(meter.cpu_between(begin, end) * 1e6 / rows, 3),
        cpu_us_by_kind={
            kind: round(used * 1e6 / rows, 3) for kind, used in meter.cpu_by_kind(begin, end).items()
        },
        batches=len(counted),
        whole_seconds=round(ended - began, 1),
        whole_cpu_us=round(meter.used() * 1e6 / job.rows, 3),
        memory=as_megabytes(meter.memory()),
        duplicates=check_output(expected, ledger.hashes.values(), once=variant.sink == "eomirror"),
        others_cores=round(others, 2),
    )


def _wait(process: MirrorProcess, began: float) -> None:
    """Waits until the job has ended; one that failed has told nothing."""
    while True:
        try:
            process.check()
        except MirrorEndedError:
            return
        if time.monotonic() > began + _MOST_SECONDS:
            raise TimeoutError(f"{process.name}: not ready after {_MOST_SECONDS:g} s:\n{process.log_tail()}")
        time.sleep(0.1)


def _given(site: Site, job: Job, variant: Variant, topic: str, name: str) -> dict[str, Any]:
    read = {
        "kafka.bootstrap.servers": site.source,
        "subscribe": job.workload.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(job.batch_rows),
    }
    write = {"kafka.bootstrap.servers": site.target, "topic": topic}
    if variant.source == "kafka":
        # as ours, which reads nothing else
        read["kafka.isolation.level"] = "read_committed"
        read |= _TUNED_SOURCE if variant.tuned else {}
    if variant.sink == "kafka":
        write |= _TUNED_SINK if variant.tuned else {}
    else:
        write["kafka.transaction.timeout.ms"] = "300000"
    return {
        "name": name,
        "source": variant.source,
        "sink": variant.sink,
        "read": read,
        "write": write,
        "where": _WHERE,
        "checkpoint": str(site.folder / f"{name}-checkpoint"),
        "spark": {**SETTINGS, "spark.jars": connector_jars()},
    }
