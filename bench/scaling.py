"""
How this mirror's throughput, CPU and memory grow with lanes and with partitions.

One workload (1 kB, uncompressed), with 1 to 4 lanes over 12 partitions, and with 2 lanes over 1 to 1,000 partitions.
Each topic is loaded once; every copy is verified before its point counts.  On two cores, brokers included, more lanes
cannot bring more records for long: what the picture says is where it stops, and that nothing falls over.

With ``--workers`` the lanes run on a standalone Spark cluster of 1 to 3 workers of one core, each with one lane.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from bench.peers.eomirror import Mirror
from bench.throughput import Timing, measure, prepare
from bench.topics import Topics
from bench.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.peers.process import Site
    from bench.verify import Ledger
    from bench.workloads import Workload

__all__ = ["Point", "Scaling", "measure_scaling", "measure_workers", "scaling_markdown"]

_LANES = (1, 2, 3, 4)
# so that every number of lanes gets equal shares
_PARTITIONS_OF_LANES = 12
_PARTITIONS = (1, 10, 100, 1000)
_LANES_OF_PARTITIONS = 2
_WORKERS = (1, 2, 3)
# executors of a cluster come one after another
_WORKERS_WARM_UP = 12.0
_WARM_UP = 4.0
_SPARE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """
    One measurement.

    Attributes:
        lanes: Of the mirror.
        partitions: Of the topic.
        records_per_second: In the steady state.
        cpu_microseconds_per_record: CPU time of the mirror's processes by records.
        worker: PSS of the largest lane worker at its peak, MiB.
        seconds: Length of the steady state; shorter than asked for where the records ran out.
        verified: Records compared with the source, all equal.
        others_cores: Mean number of cores that processes outside the bench kept busy meanwhile.
    """

    lanes: int
    partitions: int
    records_per_second: float
    cpu_microseconds_per_record: float
    worker: int
    seconds: float
    verified: int
    others_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """
    Rows of points.

    Attributes:
        plane: What moved the bytes.
        by_lanes: More and more lanes, the same topic.
        by_partitions: Two lanes, more and more partitions.
        by_workers: More and more workers of a cluster, with a lane each, the same topic.
    """

    plane: str
    by_lanes: Sequence[Point] = ()
    by_partitions: Sequence[Point] = ()
    by_workers: Sequence[Point] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_scaling(site: Site, *, plane: str, seconds: float, say: Callable[[str], None]) -> Scaling:
    """
    Take all points.

    Args:
        site: Where.
        plane: ``native`` or ``client``.
        seconds: Of steady state at each point.
        say: Told what is being done.

    Raises:
        WrongCopyError: A copy is wrong.
        MirrorEndedError: A mirror ended on its own.
        TimeoutError: A mirror copied nothing, or all of it before the steady state.
    """
    timing = Timing(warm_up=_WARM_UP, seconds=seconds, spare=_SPARE)
    workload = _workload(_PARTITIONS_OF_LANES)
    source = _prepare(site, workload, timing, say)
    by_lanes = [
        _point(site, workload, source, timing=timing, mirror=Mirror(plane, lanes=lanes), say=say)
        for lanes in _LANES
    ]
    by_partitions = []
    for partitions in _PARTITIONS:
        workload = _workload(partitions)
        source = _prepare(site, workload, timing, say)
        mirror = Mirror(plane, lanes=_LANES_OF_PARTITIONS)
        by_partitions.append(_point(site, workload, source, timing=timing, mirror=mirror, say=say))
    return Scaling(plane=plane, by_lanes=by_lanes, by_partitions=by_partitions)


def measure_workers(site: Site, *, plane: str, seconds: float, say: Callable[[str], None]) -> Scaling:
    """Take a point for each number of workers of a standalone Spark cluster; arguments as `measure_scaling`."""
    timing = Timing(warm_up=_WORKERS_WARM_UP, seconds=seconds, spare=_SPARE)
    workload = _workload(_PARTITIONS_OF_LANES)
    source = _prepare(site, workload, timing, say)
    points = [
        _point(
            site,
            workload,
            source,
            timing=timing,
            mirror=Mirror(plane, lanes=workers, workers=workers),
            say=say,
        )
        for workers in _WORKERS
    ]
    return Scaling(plane=plane, by_workers=points)


def _workload(partitions: int) -> Workload:
    name = f"1kb-{partitions}"
    return replace(WORKLOADS["1kb"], name=name, title=f"1 kB, {partitions} partitions", partitions=partitions)


def _prepare(site: Site, workload: Workload, timing: Timing, say: Callable[[str], None]) -> Ledger | None:
    Topics(site.source).delete_all(but=())
    say(f"{workload.title}: loading")
    return prepare(site, workload, timing)


def _point(
    site: Site,
    workload: Workload,
    source: Ledger | None,
    *,
    timing: Timing,
    mirror: Mirror,
    say: Callable[[str], None],
) -> Point:
    figures = measure(site, workload, mirror, source, timing)
    Topics(site.target).delete_all(but=())
    Topics(site.source).delete_all(but=(workload.topic,))
    say(f"{workload.title}, {mirror.lanes} lanes: {figures.records_per_second:,.0f} records/s")
    return Point(
        lanes=mirror.lanes,
        partitions=workload.partitions,
        records_per_second=figures.records_per_second,
        cpu_microseconds_per_record=figures.cpu_microseconds_per_record,
        worker=figures.memory["worker"],
        seconds=figures.seconds,
        verified=figures.verified,
        others_cores=figures.others_cores,
    )


def scaling_markdown(scaling: Scaling) -> str:
    """A plot of each row, in Mermaid's notation, and the table of their points."""
    points = [*scaling.by_lanes, *scaling.by_partitions, *scaling.by_workers]
    highest = max(point.records_per_second for point in points) / 1000
    by_lanes = f"1,000 records/s by lanes, {_PARTITIONS_OF_LANES} partitions"
    by_partitions = f"1,000 records/s by partitions, {_LANES_OF_PARTITIONS} lanes"
    by_workers = f"1,000 records/s by workers of a cluster, a lane each, {_PARTITIONS_OF_LANES} partitions"
    lines = [f"1 kB, uncompressed, plane {scaling.plane}.", ""]
    for title, row, names in (
        (by_lanes, scaling.by_lanes, [str(point.lanes) for point in scaling.by_lanes]),
        (
            by_partitions,
            scaling.by_partitions,
            [f"{point.partitions:,}".replace(",", " ") for point in scaling.by_partitions],
        ),
        (by_workers, scaling.by_workers, [str(point.lanes) for point in scaling.by_workers]),
    ):
        lines += [*_plot(title, names, row, highest), ""] if row else []
    lines += [
        "| lanes | partitions | records/s | CPU us/record | MiB a worker | steady s | verified | others' cores |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {point.lanes} | {point.partitions:,} | {point.records_per_second:,.0f} "
        f"| {point.cpu_microseconds_per_record:.2f} | {point.worker} | {point.seconds:.1f} "
        f"| {point.verified:,} | {point.others_cores:.2f} |"
        for point in points
    ]
    return "\n".join(lines)


def _plot(title: str, names: Sequence[str], points: Sequence[Point], highest: float) -> list[str]:
    values = ", ".join(f"{point.records_per_second / 1000:.0f}" for point in points)
    labels = ", ".join(f'"{name}"' for name in names)
    return [
        "```mermaid",
        "xychart-beta",
        f'    title "{title}"',
        f"    x-axis [{labels}]",
        f"    y-axis 0 --> {highest * 1.1:.0f}",
        f"    bar [{values}]",
        "```",
    ]
