"""``eomirror restore``: deals with the records of an old source that never reached the copies."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.completion import complete_topics
from eomirror.cli.failover import mirror_once
from eomirror.cli.render import escape, human_count, print_message, print_table, stdout_console
from eomirror.errors import DataLossError, MirrorError, UsageError

if TYPE_CHECKING:
    from eomirror.cli.options import LinkCommand
    from eomirror.failover import Recreated, RestorationReport

__all__ = ["restore"]

_WAYS = ("export", "merge", "keep", "recreate")


@click.command(epilog="Example: eomirror restore mirror.yaml --link 'east->west' --orphans merge")
@options.acting
@click.option(
    "--orphans",
    type=click.Choice(_WAYS),
    help="export: write them to --to FILE; merge: mirror each to the copies, once; keep: leave them where they are; "
    "recreate: after one of the first two, delete their topics on the old source and copy these back whole. "
    "--dry-run without it shows what each would do.",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File of exported records, JSON lines.",
)
@click.option(
    "--to-topic",
    is_flag=True,
    help="Export to the topic eomirror.LINK.orphans on the target: records as they were, with the header "
    "eomirror.orphan.",
)
@click.option(
    "--accept-lost",
    is_flag=True,
    help="Deal with the other orphans although retention has deleted some on the old source.",
)
@click.option(
    "--topics",
    default="",
    metavar="REGEX",
    shell_complete=complete_topics,
    help="Source topics to recreate; all that have orphans by default.",
)
def restore(
    action: LinkCommand,
    orphans: str | None,
    to: Path | None,
    to_topic: bool,
    accept_lost: bool,
    topics: str,
) -> int:
    """
    Deal with the orphans of a promoted link of CONFIG: records of the old source that never reached the copies.

    merge runs the link itself over them, so that each orphan reaches the copy exactly once, behind what applications
    have written there since: the order per key across the cut cannot be restored.  Orphans of compacted topics are
    exported instead, because an old value could overwrite a newer one.  Stop the link back while it merges only if the
    two clusters cannot carry both.  Once the link back is promoted nothing is merged any more.

    What was dealt with is recorded by offsets.  Records that applications write to the old source later need another
    call, which deals with them; until then `eomirror failback` refuses them by name.

    recreate deletes the topics of the old source that have orphans, and has the link back copy these topics whole, in
    the order of the copies; stop the link back first.  It refuses to delete a record that no copy and no restoration
    holds.  Offsets that groups have committed in a deleted topic are deleted with it; `eomirror failback` sets those of
    the groups that it moves.

    --dry-run without --orphans changes nothing and shows what each way would do, or why it is refused.

    A killed command is repeated: it goes on with the file, the merge or the topics.  If retention has deleted orphans
    on the old source, the command names their offsets and ends with 4, until --accept-lost records that they are lost.

    A transaction that the crash of the source left open hides what stands behind it.  The command names it at once and
    waits until its coordinator ends it, or is refused with the command that does; --dry-run counts up to there.

    Exit codes: 0 done, 1 failed, 2 a file or the link back is missing, 4 orphans are lost, 5 a mirror of the link runs,
    6 not promoted, a record would be lost, or a transaction hangs.
    """
    if to is not None and to_topic:
        raise UsageError("--to and --to-topic were both given", fix="choose one place")
    if orphans is None:
        return _looked(action, to, topics, to_topic=to_topic, accept_lost=accept_lost)
    if orphans == "recreate":
        return _recreated(action, topics, to=to is not None or to_topic)
    if topics:
        raise UsageError("--topics goes with --orphans recreate only", fix="leave it out")
    action.confirm("restore")
    found = _restored(action, orphans, to, to_topic=to_topic, accept_lost=accept_lost)
    action.show(found.as_dict(), lambda: _draw_restoration(found))
    return DataLossError.exit_code if found.lost and not accept_lost else 0


def _restored(
    action: LinkCommand, orphans: str, to: Path | None, *, to_topic: bool, accept_lost: bool
) -> RestorationReport:
    from eomirror.failover import restore as run

    return run(
        action.config,
        orphans,
        link=action.link,
        to=to,
        to_topic=to_topic,
        merge=lambda merging: mirror_once(action, merging, "not all orphans were mirrored"),
        accept_lost=accept_lost,
        dry_run=action.dry_run,
        on_event=print_message,
    )


def _looked(action: LinkCommand, to: Path | None, topics: str, *, to_topic: bool, accept_lost: bool) -> int:
    """Shows what each way would do, or why it is refused; returns the exit code."""
    from eomirror.failover import RestorationReport, recreate

    if not action.dry_run:
        raise UsageError(
            "how to deal with the orphans was not said",
            fix=f"add --orphans {'|'.join(_WAYS)}; --dry-run instead shows what each would do",
        )
    found: dict[str, RestorationReport | Recreated | MirrorError] = {}
    for way in _WAYS:
        try:
            if way == "recreate":
                found[way] = recreate(action.config, link=action.link, topics=topics, dry_run=True)
            else:
                found[way] = _restored(action, way, to, to_topic=to_topic, accept_lost=accept_lost)
        except MirrorError as error:
            found[way] = error
    errors = [each for each in found.values() if isinstance(each, MirrorError)]
    if len(errors) == len(_WAYS):
        raise errors[0]

    def draw() -> None:
        console = stdout_console()
        for way, one in found.items():
            console.print(f"[bold]--orphans {way}[/bold]")
            if isinstance(one, MirrorError):
                console.print(f"[yellow]refused[/yellow]: {escape(str(one))}", highlight=False)
            elif isinstance(one, RestorationReport):
                _draw_restoration(one)
            else:
                _draw_recreation(one, dry_run=True)

    action.show({"ways": [{"orphans": way, **_as_dict(one)} for way, one in found.items()]}, draw)
    lost = any(one.lost for one in found.values() if isinstance(one, RestorationReport))
    return DataLossError.exit_code if lost and not accept_lost else 0


def _recreated(action: LinkCommand, topics: str, *, to: bool) -> int:
    """Carries out ``--orphans recreate``; returns the exit code."""
    from eomirror.failover import recreate, unchecked_exports

    if to:
        raise UsageError(
            "recreate exports nothing", fix="`--orphans export` first, with --to or --to-topic; then recreate"
        )
    verb = "restore: deletes topics of the old source, and copies them back"
    if not action.dry_run and (files := unchecked_exports(action.config, link=action.link)):
        unchecked = (
            f"not checked, because written on another host: the exported records in {', '.join(files)}"
        )
        print_message(unchecked)
        verb = f"{verb} ({unchecked})"
    action.confirm(verb)
    found = recreate(
        action.config,
        link=action.link,
        topics=topics,
        mirror=lambda config: mirror_once(action, config, "not everything was copied back"),
        dry_run=action.dry_run,
        on_event=print_message,
    )
    action.show(asdict(found), lambda: _draw_recreation(found, dry_run=action.dry_run))
    return 0


def _as_dict(one: RestorationReport | Recreated | MirrorError) -> dict[str, Any]:
    return one.as_dict() if hasattr(one, "as_dict") else asdict(one)


def _draw_restoration(found: RestorationReport) -> None:
    console = stdout_console()
    print_table(
        console,
        [
            {
                "TOPIC": each.topic,
                "P": each.partition,
                "FROM": each.start,
                "TO": each.end,
                "RECORDS": human_count(each.records),
                "LOST": ", ".join(f"[{start}, {end})" for start, end in each.lost) or "-",
                "ACTION": each.action,
            }
            for each in found.partitions
        ],
        right=("P", "FROM", "TO", "RECORDS"),
    )
    if found.lost:
        console.print(
            f"up to {human_count(found.lost)} orphans were deleted on the old source before they were read "
            "(markers count)",
            style="red",
        )
    for one in found.open:
        console.print(f"not counted: {escape(one.described(found.at))}", style="yellow", soft_wrap=True)
    if found.unreadable_headers:
        console.print(
            f"{human_count(found.unreadable_headers)} records were exported without headers: a name is not UTF-8",
            style="yellow",
        )
    done = "nothing was changed: --dry-run" if not found.committed else f"done: {found.orphans}"
    where = f", exported to {escape(found.place)}" if found.place and found.committed else ""
    least = "at least " if found.open else ""
    console.print(f"{least}{human_count(found.records)} orphans; {done}{where}")
    unplaced = sum(each.records for each in found.partitions if each.action == "export")
    if unplaced and not found.place:
        console.print(f"{human_count(unplaced)} of them would be exported: add --to FILE, or --to-topic")


def _draw_recreation(found: Recreated, *, dry_run: bool) -> None:
    console = stdout_console()
    print_table(
        console,
        [
            {
                "TOPIC": each.topic,
                "COPIED BACK FROM": each.copy,
                "ORPHANS": human_count(each.orphans),
                "STATE": each.state,
            }
            for each in found.topics
        ],
        right=("ORPHANS",),
    )
    kept = "merged" if found.before == "merge" else f"exported to {escape(found.place)}"
    orphans = f"; their {human_count(found.records)} orphans were {kept}" if found.records else ""
    if found.unchecked:
        files = escape(", ".join(found.unchecked))
        console.print(
            f"not checked, because written on another host: the exported records in {files}", style="yellow"
        )
    if not found.topics:
        console.print("no topic has orphans: nothing to recreate")
    elif dry_run:
        console.print(f"would delete {len(found.topics)} topics and copy them back{orphans}: --dry-run")
    else:
        console.print(
            f"{len(found.topics)} topics were deleted and copied back whole{orphans}; go on with: eomirror run CONFIG "
            f"--link {escape(quote(found.back))}",
            style="green",
        )
