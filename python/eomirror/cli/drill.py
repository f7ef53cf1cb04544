"""``eomirror drill``: a disaster and the return from it, on two throw-away clusters, with evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from eomirror.cli import options
from eomirror.cli.render import print_message, print_result, print_table, stdout_console

if TYPE_CHECKING:
    from eomirror.demo.drill import DrillReport

__all__ = ["drill"]


@click.command(epilog="Example: eomirror drill --report evidence.json")
@click.option(
    "--records", type=click.IntRange(100), default=2_000, show_default=True, help="Records of each stage."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the evidence to FILE as JSON, and as Markdown beside it.",
)
@options.output()
def drill(records: int, report: Path | None, output: str | None) -> int:
    """
    Lose a source, fail over, and return, on two local clusters that this command starts and removes.

    Each stage is timed.  Plain clients compare both clusters: the copies are what was mirrored, every record that the
    failover left behind is found and merged, and both sides hold the same records at the end.  The evidence names cut,
    hashes, RPO and RTO.

    Exit codes: 0 passed, 1 a stage failed, 3 the records differ.
    """
    from eomirror.demo.drill import Drill

    found = Drill(records=records, on_event=print_message).run()
    if report is not None:
        report.write_bytes(orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2) + b"\n")
        report.with_suffix(".md").write_text(found.markdown(), encoding="utf-8")
    print_result(output, found.as_dict(), lambda: _draw(found))
    return 0


def _draw(found: DrillReport) -> None:
    console = stdout_console()
    print_table(
        console,
        [
            {
                "STAGE": stage.name,
                "SECONDS": f"{stage.seconds:.1f}",
                "RESULT": stage.result,
                "RECORDS": ", ".join(f"{side} {count}" for side, count in stage.records.items()) or "-",
                "SHA-256": next(iter(stage.hashes.values()), "-")[:16],
            }
            for stage in found.stages
        ],
        right=("SECONDS",),
    )
    console.print(
        f"passed: {found.rpo_records} records were left behind and merged later; {found.rto_seconds:.1f} s from the "
        "loss to the promotion",
        style="green",
    )
