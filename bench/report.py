"""
Results as JSON and as Markdown, dated, under bench/results; and as a table on the terminal.

Pure but for `keep`.  A ratio is always this mirror's figure divided by the peer's: above 1 is better for
throughput, below 1 for all others.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.throughput import Figures

__all__ = ["RESULTS", "Comparison", "keep", "markdown", "ratio", "table", "without_results"]

_SMALL_SHARE = 0.1

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """
    All mirrors on one workload.

    Attributes:
        workload: Its name.
        title: In reports.
        paced: Whether a feeder set the pace, so that throughput compares nothing.
        figures: Of every mirror that copied correctly; this project's come first.
        failures: Why the others have none, by name.
    """

    workload: str
    title: str
    paced: bool = False
    figures: Sequence[Figures] = ()
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> Figures | None:
        """This mirror's."""
        return next((one for one in self.figures if one.peer.startswith("eo")), None)

    @property
    def ratios(self) -> dict[str, dict[str, float]]:
        """This mirror's figures by those of each peer: throughput, CPU per record, memory."""
        ours = self.ours
        if ours is None:
            return {}
        return {
            peer.peer: {
                "throughput": ratio(ours.records_per_second, peer.records_per_second),
                "cpu_per_record": ratio(
                    ours.cpu_microseconds_per_record, peer.cpu_microseconds_per_record, digits=4
                ),
                "memory": ratio(ours.memory["total"], peer.memory["total"]),
            }
            for peer in self.figures
            if peer is not ours
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        # a log's end belongs on the terminal: it holds paths of this machine
        reasons = {name: why.splitlines()[0] for name, why in self.failures.items()}
        return asdict(self) | {"failures": reasons, "ratios": self.ratios}


def ratio(ours: float, theirs: float, *, digits: int = 2) -> float:
    """Ours by theirs, so many digits after the point; 0 when theirs is 0."""
    return round(ours / theirs, digits) if theirs else 0.0


def without_results(arguments: Sequence[str]) -> list[str]:
    """A command line without ``--results FOLDER``: results name no place."""
    kept = []
    skip = False
    for argument in arguments:
        if not skip and not argument.startswith("--results"):
            kept.append(argument)
        skip = argument == "--results"
    return kept


_COLUMNS = (
    "records/s",
    "MB/s",
    "CPU us/record",
    "cores",
    "brokers us/record",
    "PSS MiB (JVM, driver, workers, one of them)",
    "steady s",
    "verified",
    "others' cores",
)


def _rows(comparison: Comparison) -> list[list[str]]:
    rows = []
    for one in comparison.figures:
        memory = one.memory
        rows.append(
            [
                one.title,
                f"{one.records_per_second:,.0f}",
                f"{one.megabytes_per_second:,.1f}",
                f"{one.cpu_microseconds_per_record:,.2f}",
                f"{one.cpu_cores:.2f}",
                # source, target
                " + ".join(f"{used:,.2f}" for used in one.brokers_microseconds_per_record.values()) or "-",
                f"{memory['total']} ({memory['jvm']}, {memory['driver']}, {memory['workers']}, {memory['worker']})",
                # a bulk copy that was completed ran out of records, so its steady state may be short
                f"{one.seconds:.1f}{'*' if one.complete and not comparison.paced else ''}",
                f"{one.verified:,}",
                f"{one.others_cores:.2f}",
            ]
        )
    return rows


def _ratio_lines(comparison: Comparison) -> list[str]:
    titles = {one.peer: one.title for one in comparison.figures}
    lines = []
    for peer, ratios in comparison.ratios.items():
        pace = "" if comparison.paced else f"throughput {ratios['throughput']:.2f}x, "
        cpu = ratios["cpu_per_record"]
        # a tenth and less reads better as a part
        share = f" (1/{1 / cpu:.0f})" if 0 < cpu <= _SMALL_SHARE else ""
        lines.append(
            f"eomirror / {titles[peer]}: {pace}CPU per record {cpu:.3g}x{share}, memory {ratios['memory']:.2f}x"
        )
    return lines


def table(comparison: Comparison) -> str:
    """One workload, for a terminal."""
    head = ["", *_COLUMNS]
    rows = [head, *_rows(comparison)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [comparison.title]
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    lines += [f"  {line}" for line in _ratio_lines(comparison)]
    lines += [f"  {name}: NO FIGURE: {why}" for name, why in comparison.failures.items()]
    return "\n".join(lines)


def markdown(document: dict[str, Any], comparisons: Sequence[Comparison], extra: Sequence[str] = ()) -> str:
    """
    A run as a page.

    Args:
        document: What `keep` writes as JSON; ``date``, ``command`` and ``machine`` are shown.
        comparisons: Its workloads.
        extra: Paragraphs after them.
    """
    machine = document["machine"]
    lines = [
        f"# {document['kind']}, {document['date']}",
        "",
        f"`{document['command']}` at {machine['commit'] or 'no commit'}",
        "",
        (
            f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']}; "
            f"Python {machine['python']}, Java {machine['java']}, Kafka {machine['kafka']}, "
            f"PySpark {machine['pyspark']}, confluent-kafka {machine['confluent_kafka']}, "
            f"librdkafka {machine['librdkafka']}. "
            f"Load average when it began: {document['load_average']}."
        ),
    ]
    for comparison in comparisons:
        lines += ["", f"## {comparison.title}", ""]
        lines += ["| | " + " | ".join(_COLUMNS) + " |", "|---|" + "---:|" * len(_COLUMNS)]
        lines += ["| " + " | ".join(row) + " |" for row in _rows(comparison)]
        lines += [""] + [f"- {line}" for line in _ratio_lines(comparison)]
        lines += [f"- {name}: no figure: {why.splitlines()[0]}" for name, why in comparison.failures.items()]
    for paragraph in extra:
        lines += ["", paragraph]
    return "\n".join(lines).rstrip() + "\n"


def keep(folder: Path, document: dict[str, Any], page: str) -> Path:
    """
    Write both forms, named by kind and date.

    Returns:
        The Markdown file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{document['date'].replace(':', '').replace(' ', 'T')}-{document['kind']}"
    (folder / f"{stem}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    path = folder / f"{stem}.md"
    path.write_text(page, encoding="utf-8")
    return path
