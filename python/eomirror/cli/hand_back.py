"""``eomirror hand-back``: let MirrorMaker 2 go on where a link stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eomirror.cli.mm2_flow import flow_options, named_flow
from eomirror.cli.render import output_option, print_structured, say, stdout_console, table, wants_table

if TYPE_CHECKING:
    from eomirror.mm2.hand_back import HandBack

__all__ = ["hand_back"]


@click.command("hand-back", epilog="Example: eomirror hand-back mirror.yaml --dry-run")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--link", help="The link that ends; needed where there are several.")
@click.option("--dry-run", is_flag=True, help="Only show where MirrorMaker 2 would go on.")
@flow_options
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
    then a source offset for every partition is committed for Kafka Connect, in one transaction.  The link refuses to
    run from then on, because it would copy what MirrorMaker 2 copies; `eomirror adopt` takes it back.  Exit codes: 0
    done, 1 failed, 3 MirrorMaker 2 runs, 5 the mirror runs, 78 the configuration is refused.
    """
    from eomirror.config import load_config
    from eomirror.kafka.reachability import clusters_of, refuse_away
    from eomirror.mm2.hand_back import hand_back_to_mm2

    loaded = load_config(config, overrides=overrides)
    flow = named_flow(
        loaded, link, source=mm2_source, group=group, connector=connector, offsets_topic=offsets_topic
    )
    refuse_away(clusters_of(loaded, [loaded.only_link(link)]))
    found = hand_back_to_mm2(loaded, link=link, flow=flow, dry_run=dry_run, on_event=say)
    if wants_table(output):
        _draw(found)
    else:
        print_structured(found.as_dict(), output)
    return 0


def _draw(found: HandBack) -> None:
    from rich.markup import escape

    console = stdout_console()
    rows = [
        {
            "TOPIC": each.topic,
            "P": each.partition,
            "MM2 HAD": "-" if each.had is None else each.had,
            "GOES ON AT": each.goes_on,
        }
        for each in found.partitions
    ]
    console.print(table(list(rows[0]), rows, right=("P", "MM2 HAD", "GOES ON AT")))
    if found.committed:
        console.print(
            f"committed to {escape(found.place)}; start MirrorMaker 2. The link is refused until `eomirror adopt`"
        )
    else:
        console.print("nothing was committed: --dry-run")
