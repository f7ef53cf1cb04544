"""``eomirror hand-back``: let MirrorMaker 2 go on where a link stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eomirror.cli.render import output_option, print_structured, say, table, wants_table

if TYPE_CHECKING:
    from eomirror.adopt.hand_back import HandBack

__all__ = ["hand_back"]


@click.command("hand-back", epilog="Example: eomirror hand-back mirror.yaml --dry-run")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--link", help="The link that ends; needed where there are several.")
@click.option("--dry-run", is_flag=True, help="Only show where MirrorMaker 2 would go on.")
@click.option(
    "--mm2-source", metavar="ALIAS", help="What MirrorMaker 2 calls the source; by default as we do."
)
@click.option("--group", help="Group of its Connect workers; by default ALIAS-mm2.")
@click.option("--connector", help="Its source connector; by default MirrorSourceConnector.")
@click.option(
    "--offsets-topic", help="Connect's offset.storage.topic; by default mm2-offsets.ALIAS.internal."
)
@click.option("-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a setting.")
@output_option
def hand_back(
    config: str,
    link: str | None,
    dry_run: bool,
    mm2_source: str | None,
    group: str | None,
    connector: str | None,
    offsets_topic: str | None,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Tell MirrorMaker 2 where a link of CONFIG stands: started next, it goes on at the very next record.

    Stop the mirror and MirrorMaker 2 first; one that runs is noticed and refused.  All lanes of the link are fenced,
    then a source offset for every partition is committed for Kafka Connect, in one transaction.  Do not run the link
    again afterwards: it would copy what MirrorMaker 2 copies.  Exit codes: 0 done, 1 failed, 3 MirrorMaker 2 runs, 5
    the mirror runs, 78 the configuration is refused.
    """
    from dataclasses import replace

    from eomirror.adopt.hand_back import hand_back_to_mm2
    from eomirror.config import load_config
    from eomirror.formats.connect import Mm2Flow

    loaded = load_config(config, overrides=overrides)
    one = loaded.link(link) if link is not None else loaded.links[0]
    flow = Mm2Flow.dedicated(mm2_source or one.source, one.target)
    flow = replace(
        flow,
        group=group or flow.group,
        connector=connector or flow.connector,
        offsets_topic=offsets_topic or flow.offsets_topic,
    )
    found = hand_back_to_mm2(loaded, link=link, flow=flow, dry_run=dry_run, on_event=say)
    if wants_table(output):
        _draw(found)
    else:
        print_structured(found.as_dict(), output)
    return 0


def _draw(found: HandBack) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    rows = [
        {
            "TOPIC": escape(each.topic),
            "P": each.partition,
            "MM2 HAD": "-" if each.had is None else each.had,
            "GOES ON AT": each.goes_on,
        }
        for each in found.partitions
    ]
    console.print(table(list(rows[0]), rows, right=("P", "MM2 HAD", "GOES ON AT")))
    if found.committed:
        console.print(
            f"committed to {escape(found.place)}; start MirrorMaker 2, and do not run the link again"
        )
    else:
        console.print("nothing was committed: --dry-run")
