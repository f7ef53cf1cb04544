"""``eomirror adopt`` and ``hand-back``: resume where MirrorMaker 2 stopped, and let it resume where a link stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from eomirror.cli import options
from eomirror.cli.render import escape, print_message, print_result, print_table, stdout_console

if TYPE_CHECKING:
    from eomirror.config import Config
    from eomirror.mm2.adopt import Adoption
    from eomirror.mm2.hand_back import HandBack
    from eomirror.records.connect_offsets import Mm2Flow

__all__ = ["adopt", "hand_back", "named_flow"]


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
    print_result(output, found.as_dict(), lambda: _draw_back(found))
    return 0


def _draw_back(found: HandBack) -> None:
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


def named_flow(
    config: Config,
    link: str | None,
    *,
    mm2_source: str | None,
    mm2_target: str | None = None,
    **given: str | None,
) -> Mm2Flow:
    """
    Returns the MM2 flow of a link: the defaults of MM2's dedicated mode, overridden by options.

    Args:
        link: Name of the link; None for the only one.
        mm2_source: MM2's alias of the source; None for the link's.
        mm2_target: MM2's alias of the target; None for the link's.
        given: Attributes of `eomirror.records.connect_offsets.Mm2Flow`; None for the default of dedicated mode.

    Raises:
        UsageError: The configuration has several links and ``link`` is None.
    """
    from eomirror.records.connect_offsets import Mm2Flow

    chosen = config.only_link(link)
    flow = Mm2Flow.dedicated(mm2_source or chosen.source, mm2_target or chosen.target)
    return replace(flow, **{name: value for name, value in given.items() if value})


@click.command(epilog="Example: eomirror adopt mirror.yaml --dry-run")
@options.config
@options.link("Link to adopt into; required if the configuration has several.")
@click.option("--dry-run", is_flag=True, help="Show the resume offset of each partition, commit nothing.")
@click.option(
    "--at",
    multiple=True,
    metavar="TOPIC-PARTITION=OFFSET",
    help="Resume this partition at a source offset of your choice, if the logs do not determine one.",
)
@click.option(
    "--mm2-target", metavar="ALIAS", help="MirrorMaker 2's alias of the target; by default the link's."
)
@options.flow
@click.option(
    "--configs-topic", help="Kafka Connect's config.storage.topic; by default mm2-configs.ALIAS.internal."
)
@options.overrides
@options.output()
def adopt(
    config: str,
    link: str | None,
    dry_run: bool,
    at: tuple[str, ...],
    overrides: tuple[str, ...],
    output: str | None,
    **flow_options: str | None,
) -> int:
    """
    Take a link of CONFIG over from MirrorMaker 2, in place: `run` then resumes at the next record.

    Stop MirrorMaker 2 and the mirror first; adopt detects and refuses one that still runs.  It fences MirrorMaker 2's
    transactional ids and compares MirrorMaker 2's committed offsets with the ends of both logs.  If they determine an
    offset for every partition, all positions are committed in one transaction.  Otherwise the candidates are shown
    and nothing is committed.  Partitions that the link already mirrors are not changed.

    Exit codes: 0 done, 1 failed, 3 MirrorMaker 2 runs or a partition is not certain, 5 a mirror runs the link, 78 the
    configuration is refused.
    """
    from eomirror.cli.run import parse_offsets
    from eomirror.config import load_config
    from eomirror.kafka.reachability import clusters_of, require_reachable
    from eomirror.mm2.adopt import adopt_mm2

    chosen = parse_offsets("--at", at)
    loaded = load_config(config, overrides=overrides)
    flow = named_flow(loaded, link, **flow_options)
    last = [""]

    def progress(text: str) -> None:
        if text != last[0]:
            last[0] = text
            print_message(text)

    require_reachable(clusters_of(loaded, [loaded.only_link(link)]))
    found = adopt_mm2(loaded, link=link, flow=flow, at=chosen, dry_run=dry_run, on_event=progress)
    print_result(output, found.as_dict(), lambda: _draw(found, dry_run=dry_run))
    return 3 if found.problems else 0


def _draw(found: Adoption, *, dry_run: bool) -> None:
    console = stdout_console()
    rows = [
        {
            "TOPIC": each.source.topic,
            "P": each.source.partition,
            "COMMITTED": "-" if each.committed is None else each.committed,
            "RESUMES AT": "-" if each.resume is None else each.resume,
            "WHY": _why(each.evidence, each.problem, each.candidates),
        }
        for each in found.partitions
    ]
    print_table(console, rows, right=("P", "COMMITTED", "RESUMES AT"), words=("WHY",))
    for source in found.left_out:
        console.print(f"not mirrored by the link: {escape(str(source))}")
    for what in found.passed_over:
        console.print(f"skipped: {escape(what)}")
    if found.problems:
        console.print(
            "[red]nothing was committed[/]: choose resume offsets for these partitions, with "
            "--at TOPIC-PARTITION=OFFSET"
        )
    elif dry_run:
        console.print("nothing was committed: --dry-run")
    else:
        console.print(
            f"committed as generation {found.generation} of {escape(found.link)}; resume with `eomirror run`"
        )


def _why(evidence: str, problem: str, candidates: tuple[int, ...]) -> str:
    if not problem:
        return evidence
    return f"{problem} (candidates: {', '.join(map(str, candidates))})" if candidates else problem
