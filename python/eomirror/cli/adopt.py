"""``eomirror adopt``: go on where MirrorMaker 2 stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eomirror.cli.mm2_flow import flow_options, named_flow
from eomirror.cli.render import output_option, print_structured, say, stdout_console, table, wants_table

if TYPE_CHECKING:
    from eomirror.mm2.adopt import Adoption

__all__ = ["adopt"]


@click.command(epilog="Example: eomirror adopt mirror.yaml --dry-run")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--link", help="The link that goes on; needed where there are several.")
@click.option("--dry-run", is_flag=True, help="Only show where each partition would go on.")
@click.option(
    "--at",
    multiple=True,
    metavar="TOPIC-PARTITION=OFFSET",
    help="Go on at this source offset, for a partition that the logs do not tell of.",
)
@click.option(
    "--mm2-target", metavar="ALIAS", help="What MirrorMaker 2 calls the target; by default as we do."
)
@flow_options
@click.option(
    "--configs-topic", help="Connect's config.storage.topic; by default mm2-configs.ALIAS.internal."
)
@click.option("-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a setting.")
@output_option
def adopt(
    config: str,
    link: str | None,
    dry_run: bool,
    at: tuple[str, ...],
    mm2_source: str | None,
    mm2_target: str | None,
    group: str | None,
    connector: str | None,
    offsets_topic: str | None,
    configs_topic: str | None,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Take a link of CONFIG over from MirrorMaker 2, in place: `run` then goes on at its very next record.

    What the link mirrors already is left as it is.  Stop MirrorMaker 2 first, and the mirror; one that still runs is
    noticed and refused.  MirrorMaker 2's transactional ids are fenced.  What it committed is compared with the ends of
    both logs.  Where they do not tell one offset, the candidates are shown and nothing is committed.  Otherwise all
    positions are committed in one transaction.  Exit codes: 0 done, 1 failed, 3 MirrorMaker 2 runs or a partition is
    not certain, 5 a mirror runs the link, 78 the configuration is refused.
    """
    from eomirror.cli.run import parse_offsets
    from eomirror.config import load_config
    from eomirror.kafka.reachability import clusters_of, refuse_away
    from eomirror.mm2.adopt import adopt_mm2

    chosen = parse_offsets("--at", at)
    loaded = load_config(config, overrides=overrides)
    flow = named_flow(
        loaded, link, source=mm2_source, target=mm2_target, group=group, connector=connector,
        offsets_topic=offsets_topic, configs_topic=configs_topic,
    )  # fmt: skip
    told = [""]

    def progress(what: str) -> None:
        if what != told[0]:
            told[0] = what
            say(what)

    refuse_away(clusters_of(loaded, [loaded.only_link(link)]))
    found = adopt_mm2(loaded, link=link, flow=flow, at=chosen, dry_run=dry_run, on_event=progress)
    if wants_table(output):
        _draw(found, dry_run=dry_run)
    else:
        print_structured(found.as_dict(), output)
    return 3 if found.problems else 0


def _draw(found: Adoption, *, dry_run: bool) -> None:
    from rich.markup import escape

    console = stdout_console()
    rows = [
        {
            "TOPIC": each.source.topic,
            "P": each.source.partition,
            "COMMITTED": "-" if each.committed is None else each.committed,
            "GOES ON AT": "-" if each.resume is None else each.resume,
            "WHY": _why(each.evidence, each.problem, each.candidates),
        }
        for each in found.partitions
    ]
    if rows:
        console.print(table(list(rows[0]), rows, right=("P", "COMMITTED", "GOES ON AT"), words=("WHY",)))
    for source in found.left_out:
        console.print(f"not mirrored by the link: {escape(str(source))}")
    for what in found.passed_over:
        console.print(f"passed over: {escape(what)}")
    if found.problems:
        console.print(
            "[red]nothing was committed[/]: say where these partitions go on, with --at TOPIC-PARTITION=OFFSET"
        )
    elif dry_run:
        console.print("nothing was committed: --dry-run")
    else:
        console.print(
            f"committed as generation {found.generation} of {escape(found.link)}; `eomirror run` goes on"
        )


def _why(evidence: str, problem: str, candidates: tuple[int, ...]) -> str:
    if not problem:
        return evidence
    return f"{problem} (candidates: {', '.join(map(str, candidates))})" if candidates else problem
