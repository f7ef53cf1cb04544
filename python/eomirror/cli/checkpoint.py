"""``eomirror checkpoint``: moves streaming queries of Spark between the clusters of a link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eomirror.cli import options
from eomirror.cli.render import escape, print_result, print_table, stdout_console

if TYPE_CHECKING:
    from eomirror.dataframe.checkpoint import TranslatedCheckpoint

__all__ = ["checkpoint"]


@click.group(
    epilog="Example: eomirror checkpoint translate /data/orders-job --config mirror.yaml --link east->west"
)
def checkpoint() -> None:
    """Move streaming queries of Spark between the clusters of a link."""


@checkpoint.command(
    short_help="Rewrite the source offsets of a Spark checkpoint for the other cluster.",
    epilog="Example: eomirror checkpoint translate /data/orders-job --config mirror.yaml --link east->west",
)
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    default="mirror.yaml",
    show_default=True,
    help="Configuration of the mirror.",
)
@options.link(options.LINK)
@options.reverse
@click.option("--dry-run", is_flag=True, help="Translate and report; change no file.")
@options.overrides
@options.output()
def translate(
    folder: Path,
    config: str,
    link: str | None,
    reverse: bool,
    dry_run: bool,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Rewrite the source offsets in DIR, the checkpointLocation of a stopped query, for the other side of a link.

    Reads offsets of format("eomirror"), which tell the direction themselves, and of Spark's own Kafka connector; these
    move from source to target, or with --reverse back.  All offsets are translated, or no file is changed.  A command
    that was interrupted is repeated; Spark refuses to start the query before that.

    Exit codes: 0 translated, 1 failed, 2 not a checkpoint of a query that reads Kafka, 3 an offset cannot be
    translated.
    """
    from eomirror.config import load_config
    from eomirror.dataframe.checkpoint import translate_checkpoint

    loaded = load_config(config, overrides=overrides)
    found = translate_checkpoint(folder, loaded, loaded.mapped_link(link), reverse=reverse, dry_run=dry_run)
    print_result(output, found.as_dict(), lambda: _draw(found))
    return 0


def _draw(found: TranslatedCheckpoint) -> None:
    console = stdout_console()
    rows = [
        {
            "TOPIC": each.topic,
            "P": each.partition,
            "OFFSET": each.offset,
            "TO TOPIC": each.to_topic,
            "TO P": each.to_partition,
            "TO OFFSET": each.to_offset,
            "KIND": each.kind,
        }
        for each in found.offsets
    ]
    print_table(console, rows, right=("P", "OFFSET", "TO P", "TO OFFSET"), whole=("KIND",))
    for number in found.untouched:
        console.print(f"source {number} of the query reads no Kafka topics, and stays as it is")
    repeated = ", which the query repeats" if found.repeats else ""
    verb = "rewritten" if found.written else "would be rewritten"
    console.print(f"batch {found.batch}{repeated}; {verb}: {escape(', '.join(found.files))}")
