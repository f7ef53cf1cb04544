"""What a mirror costs when there is nothing to mirror."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.loading import load
from bench.measure import TreeMeter, as_megabytes
from bench.topics import Topics
from bench.workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers.process import Peer, Site

__all__ = ["IDLE", "IdleCost", "idle_markdown", "measure_idle"]

IDLE = Workload(name="idle", title="no traffic", partitions=6)

_START_SECONDS = 120.0
_RECORDS = 600


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
