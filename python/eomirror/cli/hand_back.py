"""``eomirror hand-back``: lets MirrorMaker 2 resume where a link stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eomirror.cli import options
from eomirror.cli.mm2_flow import named_flow
from eomirror.cli.render import escape, print_message, print_result, print_table, stdout_console

if TYPE_CHECKING:
    from eomirror.mm2.hand_back import HandBack

__all__ = ["hand_back"]


@click.command("hand-back", epilog="Example: eomirror hand-back mirror.yaml --dry-run")
@options.config
@options.link("Link to hand back; required if the configuration has several.")
@click.option("--dry-run", is_flag=True, help="Show MirrorMaker 2's resume offsets, commit nothing.")
@options.flow
@options.overrides
@options.output()
def hand_back(
    config: str,
    link: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
    output: str | None,
    **flow_options: str | None,
) -> int:
    """
    Hand a link of CONFIG back to MirrorMaker 2, which then resumes at the next record.

    Stop the mirror and MirrorMaker 2 first; hand-back detects and refuses one that still runs.  It fences all lanes of
    the link and commits the source offset of every partition to Kafka Connect's offsets topic, in one transaction.
    The link then refuses to run, because it would duplicate the records of MirrorMaker 2; `eomirror adopt` takes it
    back.

    Exit codes: 0 done, 1 failed, 3 MirrorMaker 2 runs, 5 the mirror runs, 78 the configuration is refused.
    """
    from eomirror.config import load_config
    from eomirror.kafka.reachability import clusters_of, require_reachable
    from eomirror.mm2.hand_back import hand_back_to_mm2

    loaded = load_config(config, overrides=overrides)
    flow = named_flow(loaded, link, **flow_options)
    require_reachable(clusters_of(loaded, [loaded.only_link(link)]))
    found = hand_back_to_mm2(loaded, link=link, flow=flow, dry_run=dry_run, on_event=print_message)
    print_result(output, found.as_dict(), lambda: _draw(found))
    return 0


def _draw(found: HandBack) -> None:
    console = stdout_console()
    rows = [
        {
            "TOPIC": each.topic,
            "P": each.partition,
            "MM2 HAD": "-" if each.had is None else each.had,
            "RESUMES AT": each.goes_on,
        }
        for each in found.partitions
    ]
    print_table(console, rows, right=("P", "MM2 HAD", "RESUMES AT"))
    if found.committed:
        console.print(
            f"committed to {escape(found.place)}; start MirrorMaker 2. The link does not run until `eomirror adopt`"
        )
    else:
        console.print("nothing was committed: --dry-run")
