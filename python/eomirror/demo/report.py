"""Results of the demo and their rendering."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from eomirror.demo.compare import Comparison, Revision

__all__ = [
    "DemoReport",
    "JudgedCopy",
    "Kill",
    "KillOutage",
    "Latency",
    "latency_outside",
    "percentile",
    "render",
]

DIFFERS = 3
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Kill:
    """
    One kill -9 of the whole process tree.

    Attributes:
        at: Seconds since the traffic began.
        open_partitions: Partitions of the target in which a transaction was open, before and after the kill.
        held_back: Seconds from the kill until read_committed readers saw something new.
        recovery: Seconds from the restart until then: the next committed transaction.
    """

    at: float
    processes: int
    open_partitions: tuple[int, ...]
    held_back: float
    recovery: float


@dataclass(frozen=True, slots=True)
class KillOutage:
    """From a kill until the backlog that it caused was read, in monotonic seconds."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Latency:
    """From the producer's send to a read_committed reader on the target, in milliseconds."""

    records: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCopy:
    """
    One copy of the topic and its judgement.

    Attributes:
        revision: What a concurrent read_committed reader saw, compared with what lies there after the end.
        broken: Records whose own checksum did not fit when that reader saw them.
        latency: Of records that no outage touched.
    """

    topic: str
    comparison: Comparison
    revision: Revision
    broken: int = 0
    latency: Latency = field(default_factory=Latency)
    latency_all: Latency = field(default_factory=Latency)

    @property
    def perfect(self) -> bool:
        """Returns true if the copy equals the original and no record was retracted."""
        return self.comparison.perfect and self.revision.stable and not self.broken


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """
    The whole demo.

    Attributes:
        seed: Repeats the traffic and the moments of the kills.
        produced: Records that the producer knows to be committed.
        aborted: Records in transactions aborted on purpose.
        transactions: Transactions that the mirror committed, counted from its position records.
        throughput: Records per second, mean over the time that the mirror was up.
        peak: Records in the best second: catching up after a kill.
        at_least_once: The other copier's, which was killed at the same moments.
    """

    seed: int
    partitions: int
    seconds: float
    produced: int
    source_transactions: int
    aborted: int
    aborted_transactions: int
    transactions: int
    throughput: float
    peak: int
    kills: tuple[Kill, ...]
    exactly_once: JudgedCopy
    at_least_once: JudgedCopy
    phases: tuple[tuple[str, float], ...]
    folder: str

    @property
    def perfect(self) -> bool:
        """Returns true if the mirror's copy equals the original, and the source holds all produced records."""
        return self.exactly_once.perfect and self.exactly_once.comparison.source == self.produced

    @property
    def exit_code(self) -> int:
        """0, or 3 when something differs."""
        return 0 if self.perfect else DIFFERS

    @property
    def recovery_p50(self) -> float:
        """Median time to recover, in seconds."""
        return percentile([kill.recovery for kill in self.kills], 0.5)

    @property
    def recovery_max(self) -> float:
        """Longest time to recover, in seconds."""
        return max((kill.recovery for kill in self.kills), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "perfect": self.perfect,
            "verdict": self.exactly_once.comparison.line,
            "recovery_seconds": {"p50": self.recovery_p50, "max": self.recovery_max},
            **asdict(self),
            "phases": [{"phase": name, "seconds": seconds} for name, seconds in self.phases],
        }


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def latency_outside(
    outages: Sequence[KillOutage], sent: Sequence[int], arrived: Sequence[int]
) -> tuple[Latency, Latency]:
    """
    Latency of the records that no outage touched, and of all.

    Args:
        outages: A record is touched when the time from its sending to its arrival overlaps one.
        sent: When each record was sent, in microseconds.
    """
    steady: list[float] = []
    everything: list[float] = []
    spans = [(outage.begin * _US, outage.end * _US) for outage in outages]
    for begin, end in zip(sent, arrived, strict=True):
        took = (end - begin) / 1000
        everything.append(took)
        if not any(begin <= last and end >= first for first, last in spans):
            steady.append(took)
    return _latency(steady), _latency(everything)


def peak_rate(arrived: Sequence[int]) -> int:
    """Most arrivals within one second of the clock."""
    counts: dict[int, int] = {}
    for moment in arrived:
        counts[moment // _US] = counts.get(moment // _US, 0) + 1
    return max(counts.values(), default=0)


def _latency(values: list[float]) -> Latency:
    return Latency(len(values), percentile(values, 0.5), percentile(values, 0.99), max(values, default=0.0))


def render(report: DemoReport) -> RenderableType:
    """For a terminal: facts, both copies side by side, kills, and the verdict."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    once, least = report.exactly_once, report.at_least_once
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    for name, value in _facts(report):
        facts.add_row(name, value)

    copies = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    copies.add_column("")
    copies.add_column("eomirror", justify="right")
    copies.add_column("naive copier", justify="right")
    for name, left, right in _rows(once, least):
        copies.add_row(name, _marked(left, good=name in _COUNTS), _marked(right, good=name in _COUNTS))

    kills = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("kill -9", "at", "processes", "open in", "readers held", "recovered in"):
        kills.add_column(column, justify="right")
    for number, kill in enumerate(report.kills, start=1):
        kills.add_row(
            str(number),
            f"{kill.at:.1f} s",
            str(kill.processes),
            f"{len(kill.open_partitions)} partitions",
            f"{kill.held_back:.1f} s",
            f"{kill.recovery:.1f} s",
        )
    verdict = Text(once.comparison.line, style="bold green" if report.perfect else "bold red")
    lines: list[RenderableType] = [facts, copies, kills, verdict]
    lines += [Text(problem, style="red") for problem in problems(report)]
    return Group(*lines)


_COUNTS = frozenset({"missing", "duplicate", "reordered", "altered", "foreign", "retracted"})


def _facts(report: DemoReport) -> list[tuple[str, str]]:
    produced = (
        f"{report.produced:,} records in {report.source_transactions:,} transactions over "
        f"{report.partitions} partitions, {report.seconds:.0f} s"
    )
    aborted = f"{report.aborted:,} records in {report.aborted_transactions:,} transactions, on purpose"
    mirrored = (
        f"{report.exactly_once.comparison.target:,} records in {report.transactions:,} transactions "
        "(counted from position records)"
    )
    recovery = (
        f"p50 {report.recovery_p50:.1f} s, max {report.recovery_max:.1f} s from restart to the next "
        "committed transaction"
    )
    return [
        ("produced", produced),
        ("aborted", aborted),
        ("mirrored", mirrored),
        ("throughput", f"{report.throughput:,.0f} records/s, {report.peak:,} in the best second"),
        ("recovery", recovery),
        ("seed", f"{report.seed} (repeat with --seed {report.seed})"),
        ("folder", report.folder),
    ]


def _rows(once: JudgedCopy, least: JudgedCopy) -> list[tuple[str, str, str]]:
    def row(name: str, attribute: str) -> tuple[str, str, str]:
        return (
            name,
            f"{getattr(once.comparison, attribute):,}",
            f"{getattr(least.comparison, attribute):,}",
        )

    def taken_back(copy: JudgedCopy) -> str:
        revision = copy.revision
        return f"{revision.retracted + revision.changed + revision.inserted:,}"

    def latency(latency: Latency) -> str:
        return f"{latency.p50:.0f} / {latency.p99:.0f} / {latency.max:.0f}"

    return [
        row("records", "target"),
        *(row(name, name) for name in ("missing", "duplicate", "reordered", "altered", "foreign")),
        ("retracted", taken_back(once), taken_back(least)),
        ("latency ms, p50 / p99 / max", latency(once.latency), latency(least.latency)),
        ("with outages", latency(once.latency_all), latency(least.latency_all)),
    ]


def _marked(text: str, *, good: bool) -> str:
    if not good:
        return text
    return f"[green]{text}[/green]" if text == "0" else f"[bold red]{text}[/bold red]"


def problems(report: DemoReport) -> list[str]:
    """Returns the differences in words; empty without any."""
    found = []
    copy = report.exactly_once
    if copy.comparison.source != report.produced:
        found.append(
            f"the source holds {copy.comparison.source:,} records, the producer committed {report.produced:,}"
        )
    if not copy.revision.stable:
        revision = copy.revision
        found.append(
            f"a read_committed reader saw records that changed later: {revision.retracted} retracted, "
            f"{revision.changed} changed, {revision.inserted} inserted behind it"
        )
    if copy.broken:
        found.append(f"{copy.broken:,} records did not match their own checksum when they were read")
    for difference in copy.comparison.differences:
        parts = f" ({', '.join(difference.what)})" if difference.what else ""
        found.append(
            f"{difference.kind}{parts}: partition {difference.partition}, source offset "
            f"{difference.source_offset}, target offset {difference.target_offset}"
        )
    return found
