"""``eomirror offsets``: where offsets of one side of a link are on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eomirror.cli.render import output_option, print_structured, table, wants_table

if TYPE_CHECKING:
    from eomirror.offsets import Translation

__all__ = ["offsets"]


@click.group(epilog="Example: eomirror offsets translate mirror.yaml --group billing")
def offsets() -> None:
    """Say where offsets of the source are on the target, and back."""


@offsets.command(
    epilog="Example: eomirror offsets translate mirror.yaml --topic orders --partition 0 --offset 1000"
)
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--group", help="All committed offsets of this consumer group.")
@click.option("--topic", help="One offset: its topic.")
@click.option("--partition", type=click.IntRange(min=0), help="One offset: its partition.")
@click.option("--offset", type=click.IntRange(min=0), help="One offset: the next one to read.")
@click.option("--reverse", is_flag=True, help="From the target to the source.")
@click.option("--link", help="Only this link.")
@click.option("-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a setting.")
@output_option
def translate(
    config: str,
    group: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    reverse: bool,
    link: str | None,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Show where an offset, or all offsets of a consumer group, are on the other side.

    Reads the target's eomirror topics; needs no running mirror.  KIND: exact (that very record), next (nothing was
    mirrored from there, going on there skips and repeats nothing), or unknown, with the reason.  Exit codes: 0 all
    are known, 1 failed, 3 one is not known, or the group has no offset in the link's topics.
    """
    from eomirror.config import load_config
    from eomirror.offsets import translate as translated

    found = translated(
        load_config(config, overrides=overrides),
        group=group,
        topic=topic,
        partition=partition,
        offset=offset,
        reverse=reverse,
        link=link,
    )
    if wants_table(output):
        _draw(found)
    else:
        print_structured({"offsets": [each.as_dict() for each in found]}, output)
    return 0 if found and all(each.to_offset is not None for each in found) else 3


def _draw(found: list[Translation]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    if not found:
        console.print("the group has no committed offset in topics of these links")
        return
    rows = [
        {
            "LINK": escape(each.link),
            "TOPIC": each.topic,
            "P": each.partition,
            "OFFSET": each.offset,
            "TO TOPIC": each.to_topic,
            "TO P": each.to_partition,
            "TO OFFSET": "-" if each.to_offset is None else each.to_offset,
            "KIND": f"{each.kind}: {each.reason}" if each.reason else each.kind,
        }
        for each in found
    ]
    console.print(table(list(rows[0]), rows, right=("P", "OFFSET", "TO P", "TO OFFSET")))
