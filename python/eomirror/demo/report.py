"""The demo's picture while it runs, its report, and the words of its verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median_high
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eomirror.demo.compare import Comparison, Revision

__all__ = ["CopyNow", "DemoReport", "JudgedCopy", "Kill", "Picture", "render", "verdict"]

DIFFERS = 3
#: Names of both copies.
MIRROR, NAIVE = "eomirror", "naive copier"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyNow:
    """
    One copy, as a read_committed reader of the target has seen it so far.

    Attributes:
        mirrored: Different records.
        behind: Records that are committed on the source and were not seen yet.
        lost: Records that were not seen, although a later one of their partition was.
        state: State of the process that copies.
    """

    name: str
    mirrored: int
    behind: int
    duplicates: int
    lost: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Both sides at one moment."""

    produced: int
    aborted: int
    copies: tuple[CopyNow, ...]

    def draw(self) -> RenderableType:
        """Returns a table of at most 80 columns: a row for the source, and one for each copy."""
        from eomirror.screen import FittedTable

        rows: list[dict[str, str]] = [
            {
                "": "source",
                "RECORDS": f"{self.produced:,}",
                "STATE": f"{self.aborted:,} more were aborted",
            }
        ]
        rows += [
            {
                "": copy.name,
                "RECORDS": f"{copy.mirrored:,}",
                "BEHIND": f"{copy.behind:,}",
                "DUPLICATE": f"{copy.duplicates:,}",
                "LOST": f"{copy.lost:,}",
                "STATE": copy.state,
            }
            for copy in self.copies
        ]
        columns = ("", "RECORDS", "BEHIND", "DUPLICATE", "LOST", "STATE")
        return FittedTable(columns, rows, right=columns[1:5], whole=("",))


@dataclass(frozen=True, slots=True)
class Kill:
    """
    One kill -9 of the mirror, and of the naive copier at the same moment.

    Attributes:
        at: Seconds since the traffic began.
        processes: Processes of the mirror.
        open_partitions: Partitions of the target in which a transaction was open, before and after the kill.
        standby: A standby took the link; otherwise the same command was started again at once.
        recovery: Seconds from the kill until a read_committed reader of the mirror's copy saw the next record.
        naive_recovery: The same of the naive copier, which was started again at once.
    """

    at: float
    processes: int
    open_partitions: tuple[int, ...]
    standby: bool
    recovery: float
    naive_recovery: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCopy:
    """
    One copy of the topic and its judgement.

    Attributes:
        revision: What a concurrent read_committed reader saw, compared with what lies there after the end.
        broken: Records whose own checksum did not fit when that reader saw them.
    """

    topic: str
    comparison: Comparison
    revision: Revision
    broken: int = 0

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
        seconds: Duration of the traffic.
        produced: Records that the producer knows to be committed.
        aborted: Records in transactions aborted on purpose.
        at_least_once: The other copier's, which was killed at the same moments.
    """

    seed: int
    partitions: int
    seconds: float
    produced: int
    source_transactions: int
    aborted: int
    aborted_transactions: int
    kills: tuple[Kill, ...]
    exactly_once: JudgedCopy
    at_least_once: JudgedCopy
    folder: str

    @property
    def perfect(self) -> bool:
        """Returns true if the mirror's copy equals the original, and the source holds all produced records."""
        return self.exactly_once.perfect and self.exactly_once.comparison.source == self.produced

    @property
    def exit_code(self) -> int:
        """0, or 3 when something differs."""
        return 0 if self.perfect else DIFFERS

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        waits = [kill.recovery for kill in self.kills]
        return {
            "perfect": self.perfect,
            "verdict": self.exactly_once.comparison.line,
            "recovery_seconds": {"p50": median_high(waits or [0.0]), "max": max(waits, default=0.0)},
            **asdict(self),
        }


def render(report: DemoReport) -> RenderableType:
    """Returns both copies side by side, the kills, the verdict in words, and how to repeat it."""
    from rich.console import Group
    from rich.text import Text

    from eomirror.screen import FittedTable

    once, least = report.exactly_once, report.at_least_once
    columns = ("", MIRROR, NAIVE)
    copies = [
        dict(zip(columns, (name, f"{left:,}", f"{right:,}"), strict=True))
        for (name, left), (_, right) in zip(_counts(once), _counts(least), strict=True)
    ]
    lines: list[RenderableType] = [FittedTable(columns, copies, right=columns[1:], whole=("",))]
    if report.kills:
        kills = [
            _kill_row(number, kill, report.partitions) for number, kill in enumerate(report.kills, start=1)
        ]
        lines += [
            Text("seconds from kill -9 to the next record at a reader", style="bold"),
            FittedTable(list(kills[0]), kills, right=("KILL", "AT", MIRROR, NAIVE), whole=tuple(kills[0])),
        ]
    good, *others = verdict(report)
    lines.append(Text(good, style="bold green" if report.perfect else "bold red"))
    lines += [Text(text, style="bold" if text == once.comparison.line else "") for text in others]
    lines += [Text(problem, style="red") for problem in problems(report)]
    lines.append(Text(f"repeat it with --seed {report.seed}; logs and report: {report.folder}", style="dim"))
    return Group(*lines)


def _counts(copy: JudgedCopy) -> list[tuple[str, int]]:
    found, revision = copy.comparison, copy.revision
    taken_back = revision.retracted + revision.changed + revision.inserted
    names = ("missing", "duplicate", "reordered", "altered", "foreign")
    return [
        ("records", found.target),
        *((name, getattr(found, name)) for name in names),
        ("retracted", taken_back),
    ]


def _kill_row(number: int, kill: Kill, partitions: int) -> dict[str, str]:
    return {
        "KILL": str(number),
        "AT": f"{kill.at:.1f} s",
        "TRANSACTION OPEN IN": f"{len(kill.open_partitions)} of {partitions} partitions",
        "THEN": "standby" if kill.standby else "start again",
        MIRROR: f"{kill.recovery:.1f} s",
        NAIVE: f"{kill.naive_recovery:.1f} s",
    }


def verdict(report: DemoReport) -> list[str]:
    """Returns the verdict in sentences, of which one is the line of counts."""
    once, least = report.exactly_once, report.at_least_once
    number = len(report.kills)
    killed = {0: "never killed", 1: "killed once, in an open transaction"}
    told = (
        f"{report.produced:,} records were committed on the source, and {report.aborted:,} more were aborted. "
        f"The mirror was {killed.get(number, f'killed {number} times, each time in an open transaction')}. "
        f"Independent consumers compared its copy with the source, byte for byte:"
    )
    lines = [
        f"verdict: {'exactly once' if report.perfect else 'NOT exactly once, the copy differs'}",
        told,
        once.comparison.line,
    ]
    waits = [
        f"{max(found):.1f} s {how}"
        for standby, how in ((False, "when it was started again"), (True, "with a standby"))
        if (found := [kill.recovery for kill in report.kills if kill.standby is standby])
    ]
    if waits:
        lines.append(f"After a kill a reader waited at most {' and '.join(waits)}.")
    lines.append(
        f"The naive copier had the same records and the same kills: it wrote {least.comparison.duplicate:,} records "
        f"twice and lost {least.comparison.missing:,}."
    )
    return lines


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
