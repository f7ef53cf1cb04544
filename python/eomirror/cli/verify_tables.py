"""Progress and result tables of ``eomirror verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from eomirror.cli.render import escape, human_count, print_message, print_table, stdout_console
from eomirror.log import printable
from eomirror.screen import LiveOutput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from eomirror.failover import LeftOrphans
    from eomirror.verify.counts import PartitionCounts
    from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, Scope

__all__ = ["VerifyDisplay", "draw_verdicts"]

_LINES_EVERY_SECONDS = 10.0
_REDRAWN_EVERY_SECONDS = 0.25
_PERCENT = 100.0
_COLOURS = {"differs": "red", "equal": "green", "not compared": "yellow"}
_SHOWN_GONE = 20


class VerifyDisplay(LiveOutput):
    """Shows progress on stderr: on a terminal one line redrawn in place, elsewhere a line every 10 s."""

    def __init__(self) -> None:
        super().__init__(draw_seconds=_REDRAWN_EVERY_SECONDS, line_seconds=_LINES_EVERY_SECONDS)
        # a comparison that takes less time writes no line
        self._shown = self._clock.monotonic()

    def message(self, text: str) -> None:
        """Writes a line that stays on the screen; never cut, so that a log file can be searched."""
        print_message(text)

    def update(self, one: Scope, counts: PartitionCounts) -> None:
        """Shows the progress of a partition's comparison."""
        self._show(
            lambda: Text(printable(_line(one, counts)), no_wrap=True, overflow="ellipsis"),
            lambda: self.message(_line(one, counts)),
        )


def _line(one: Scope, counts: PartitionCounts) -> str:
    at = counts.source.get("position", one.source.start)
    offsets = one.source.end - one.source.start
    share = _PERCENT * (at - one.source.start) / offsets if offsets > 0 else _PERCENT
    text = f"{one.source.topic}-{one.source.partition}: at {at:,} of {one.source.end:,} ({share:.0f} %)"
    differences = sum(counts.differences.values())
    return f"{text}, {counts.matched:,} equal" + (f", {differences:,} differ" if differences else "")


def draw_verdicts(
    verdicts: Sequence[LinkVerdict], orphans: Mapping[str, Sequence[LeftOrphans]] | None = None
) -> None:
    """
    Writes the verdicts to stdout, as tables.

    Args:
        orphans: By link: source records that a promotion left without a copy.
    """
    console = stdout_console()
    for verdict in verdicts:
        colour = _COLOURS[verdict.word]
        rest = "" if verdict.whole else "  [yellow]not all of it was compared[/yellow]"
        console.print(f"[bold]{escape(verdict.link)}[/bold]  [{colour}]{verdict.word}[/{colour}]{rest}")
        rows = [_row(partition) for partition in verdict.partitions]
        print_table(
            console,
            rows,
            right=("P", "FROM", "EQUAL", "LAG"),
            optional=("FROM", "TARGET"),
            words=("DIFFER",),
        )
        for topic in verdict.waiting:
            console.print(f"not mirrored yet: {escape(topic)}")
        gone = [partition.scope for partition in verdict.partitions if partition.word == "gone"]
        for one in gone[:_SHOWN_GONE]:
            where = escape(f"{one.source.topic}-{one.source.partition}")
            console.print(f"{where}: gone on the source, not compared: {escape(one.gone)}")
        if len(gone) > _SHOWN_GONE:
            console.print(
                f"{len(gone) - _SHOWN_GONE} more partitions are gone on the source (-o json names them)"
            )
        for partition in verdict.partitions:
            _draw_differences(console, partition)
        for each in (orphans or {}).get(verdict.link, ()):
            decided = (
                f"{each.decided} {escape(each.place)}".strip() if each.decided else "nothing was decided yet"
            )
            console.print(
                f"[yellow]{escape(each.topic)}-{each.partition}[/yellow]: {human_count(each.records)} records in "
                f"\\[{each.start}, {each.end}) have no copy: orphans of promotion {each.number}, {decided}"
            )


def _draw_differences(console: Console, partition: PartitionVerdict) -> None:
    where = escape(f"{partition.scope.source.topic}-{partition.scope.source.partition}")
    if partition.scope.problem:
        console.print(f"[red]{where}[/red]: {escape(partition.scope.problem)}")
    if partition.changed:
        console.print(f"[red]{where}[/red]: {escape(partition.changed)}")
    for start, end in partition.holes:
        console.print(
            f"[yellow]{where}[/yellow]: the source has no batch for offsets \\[{start}, {end}), although the topic is "
            "not compacted: the source has lost a part of its log"
        )
    for shown in partition.shown:
        parts = f" ({', '.join(shown.parts)})" if shown.parts else ""
        console.print(f"[red]{where}[/red]: {shown.kind}{parts}")
        for side in ("source", "target"):
            offset, record = getattr(shown, f"{side}_offset"), getattr(shown, side)
            if offset is not None:
                where = (
                    f"-{shown.target_partition}"
                    if side == "target" and shown.target_partition is not None
                    else ""
                )
                console.print(f"  {side}{where} @{offset}: {escape(str(record))}")


def _row(partition: PartitionVerdict) -> dict[str, Any]:
    one = partition.scope
    return {
        "TOPIC": one.source.topic,
        "P": one.source.partition,
        "TARGET": one.target.topic,
        # earlier offsets are not compared: retention, `start`, or the options exclude them
        "FROM": human_count(one.not_comparable[0]),
        "EQUAL": human_count(partition.matched),
        "DIFFER": ", ".join(f"{n:,} {kind}" for kind, n in partition.differences.items() if n) or "0",
        "LAG": human_count(one.lag),
        "VERDICT": partition.word,
    }
