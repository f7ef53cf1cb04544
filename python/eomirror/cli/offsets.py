"""``eomirror offsets``: translates consumer group offsets between the clusters of a link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.completion import complete_groups, complete_topics
from eomirror.cli.render import (
    escape,
    human_count,
    human_seconds,
    print_message,
    print_result,
    print_table,
    stdout_console,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.groups import GroupPartition, ImportedGroup, Translation
    from eomirror.groups.offset_queries import FindUnreachable

__all__ = ["offsets"]


@click.group(epilog="Example: eomirror offsets translate mirror.yaml --group billing")
def offsets() -> None:
    """Translate consumer group offsets between clusters; move groups by file."""


@offsets.command(
    short_help="Translate one offset, or the offsets of a group.",
    epilog="Example: eomirror offsets translate mirror.yaml --topic orders --partition 0 --offset 1000",
)
@options.config
@click.option(
    "--group",
    shell_complete=complete_groups,
    help="Translate all committed offsets of this consumer group.",
)
@click.option("--topic", shell_complete=complete_topics, help="One offset: its topic.")
@click.option("--partition", type=click.IntRange(min=0), help="One offset: its partition.")
@click.option("--offset", type=click.IntRange(min=0), help="One offset: the next offset to read.")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Many offsets, as JSON of topic, partition and offset, or as Spark keeps them.",
)
@options.reverse
@options.source_gone
@options.link("Only this link.")
@options.overrides
@options.output()
def translate(
    config: str,
    group: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    file: Path | None,
    reverse: bool,
    source_gone: bool,
    link: str | None,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Translate an offset, a file of offsets, or all offsets of a consumer group, to the other cluster.

    Reads the target's eomirror topics; needs no running mirror.

    KIND is exact (the same record), next (that record was not mirrored: the next mirrored one; resuming there skips
    and repeats no record), earlier (groups of topics that both clusters write: no record is skipped, some are read
    again) or unknown, with the reason.

    Exit codes: 0 all offsets are translated, 1 failed, 3 an offset is unknown, or the group has no offset in the link's
    topics.
    """
    from eomirror.config import load_config
    from eomirror.groups import translate as translated

    loaded = load_config(config, overrides=overrides)
    found = translated(
        loaded,
        group=group,
        topic=topic,
        partition=partition,
        offset=offset,
        offsets=() if file is None else _listed(file),
        reverse=reverse,
        source_unavailable=source_gone,
        link=link,
        # translating a single offset needs the target only
        away=_away(loaded, sources=group is not None and not (source_gone or reverse)),
    )
    print_result(output, {"offsets": [each.as_dict() for each in found]}, lambda: _draw(found))
    return 0 if found and all(each.to_offset is not None for each in found) else 3


@offsets.command(
    short_help="Show the offsets of groups on both clusters.",
    epilog="Example: eomirror offsets groups mirror.yaml --groups 'billing.*'",
)
@options.groups("Only this link.")
def groups(config: str, overrides: tuple[str, ...], output: str | None, **choice: Any) -> int:
    """
    Show the offsets of consumer groups on both clusters, and their resume offsets after a failover.

    TO OFFSET is the translated offset, HAS the offset that the group has committed on the other cluster.  DELTA is
    TO OFFSET minus HAS; if it is negative, a group that resumes at HAS skips records.  AGE is the age of the next
    record to read.  NOTE refers to a remark below the table: why an import would skip the group, how many records it
    would read again, or that the group was deleted on the source; its last checkpoints are shown then.

    If the source does not answer, or with --source-gone, the offsets come from the checkpoints of the mirror.

    Exit codes: 0 done, 1 failed, 3 an offset is unknown, or no group has an offset in the links' topics.
    """
    from eomirror.clock import SYSTEM_CLOCK
    from eomirror.config import load_config
    from eomirror.groups import group_offsets

    loaded = load_config(config, overrides=overrides)
    found = group_offsets(
        loaded,
        **_chosen(loaded, **choice),
        times=True,
        include_deleted=True,
        now_ms=SYSTEM_CLOCK.wall_ms(),
    )
    print_result(output, {"groups": [each.as_dict() for each in found]}, lambda: _draw_groups(found))
    return 0 if found and all(each.to_offset is not None for each in found) else 3


@offsets.command(
    "export",
    short_help="Write translated group offsets to a file.",
    epilog="Example: eomirror offsets export mirror.yaml > offsets.json",
)
@options.groups("Link to export; required if the configuration has several.")
def export_(config: str, overrides: tuple[str, ...], output: str | None, **choice: Any) -> int:
    """
    Write the translated offsets of consumer groups to stdout, as a file for `offsets import`.

    The file is JSON; table and YAML are for reading only.  A group with an unknown offset is left out whole and named
    on stderr.  If the source does not answer, or with --source-gone, the offsets come from the groups' checkpoints.

    Exit codes: 0 done, 1 failed, 3 a group was left out, or there is none.
    """
    from eomirror.clock import SYSTEM_CLOCK
    from eomirror.config import load_config
    from eomirror.groups import export_offsets

    loaded = load_config(config, overrides=overrides)
    document, left_out = export_offsets(
        loaded,
        **_chosen(loaded, **choice),
        now_ms=SYSTEM_CLOCK.wall_ms(),
    )
    print_result(output, document, lambda: _draw_exported(document))
    for name, reason in sorted(left_out.items()):
        print_message(f"left out: {name}: {reason}")
    return 0 if document["groups"] and not left_out else 3


@offsets.command(
    "import",
    short_help="Commit the offsets of a file for idle groups.",
    epilog="Example: eomirror offsets import mirror.yaml offsets.json --dry-run",
)
@options.config
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--group", shell_complete=complete_groups, help="Only this consumer group of the file.")
@click.option("--dry-run", is_flag=True, help="Check every group, commit nothing.")
@options.overrides
@options.output()
def import_(
    config: str,
    file: Path,
    group: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Commit the offsets of FILE for idle consumer groups, each group in one request.

    Refuses a group that has members, an offset outside its partition's log, and a topic that may not be read; metadata
    that is larger than the target takes is left out.  Exit codes: 0 all groups committed,
    1 failed, 2 the file is for another cluster or not readable, 3 a group was refused.
    """
    import orjson

    from eomirror.config import load_config
    from eomirror.errors import UsageError
    from eomirror.groups import import_offsets

    try:
        document = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON"
        raise UsageError(
            f"{file} cannot be read: {reason}",
            fix="name a JSON file written by `eomirror offsets export CONFIG > FILE`",
        ) from error
    done = import_offsets(load_config(config, overrides=overrides), document, group=group, dry_run=dry_run)
    print_result(
        output,
        {"dry_run": dry_run, "groups": [each.as_dict() for each in done]},
        lambda: _draw_imported(done, dry_run=dry_run),
    )
    return 0 if all(each.written for each in done) else 3


def _listed(file: Path) -> list[tuple[str, int, int]]:
    """Returns the offsets of a file."""
    from eomirror.errors import UsageError
    from eomirror.groups.transfer import OFFSET_LIST_FIX, read_offset_list

    try:
        return read_offset_list(file.read_bytes(), str(file))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", fix=OFFSET_LIST_FIX) from error


def _chosen(config: Config, *, reverse: bool, source_gone: bool, **names: str | None) -> dict[str, Any]:
    """Returns the arguments for which `options.groups` stands."""
    away = _away(config, sources=not (source_gone or reverse))
    return {"reverse": reverse, "source_unavailable": source_gone, "away": away, **names}


def _away(config: Config, *, sources: bool) -> FindUnreachable:
    """Returns a function that finds unreachable clusters of links, all at the same time."""
    from eomirror.errors import UnreachableError
    from eomirror.kafka.reachability import unreachable_clusters

    def check(links: Sequence[Link]) -> Mapping[str, UnreachableError]:
        targets = {link.target for link in links}
        aliases = targets | ({link.source for link in links} if sources else set())
        found = unreachable_clusters(config.clusters[alias] for alias in sorted(aliases))
        unreachable: dict[str, UnreachableError] = {}
        for alias, error in found.items():
            if alias in targets or not isinstance(error, UnreachableError):
                raise error
            unreachable[alias] = error
        return unreachable

    return check


def _draw_exported(document: Mapping[str, Any]) -> None:
    console = stdout_console()
    columns = ("GROUP", "TOPIC", "P", "OFFSET", "TO TOPIC", "TO OFFSET")
    rows = [
        {
            "GROUP": group,
            "TOPIC": each["from_topic"],
            "P": each["from_partition"],
            "OFFSET": each["from_offset"],
            "TO TOPIC": each["topic"],
            "TO OFFSET": each["offset"],
        }
        for group, offsets in document["groups"].items()
        for each in offsets
    ]
    console.print(table(columns, rows, right=("P", "OFFSET", "TO OFFSET")))


def _draw_groups(found: list[GroupPartition]) -> None:
    from eomirror.log import printable

    console = stdout_console()
    if not found:
        console.print("no group has a committed offset in topics of these links")
        return
    distinct = dict.fromkeys(note for each in found for note in _notes(each))
    notes = {note: number for number, note in enumerate(distinct, 1)}
    rows = [
        {
            "LINK": each.link,
            "GROUP": each.group,
            "TOPIC": each.topic,
            "P": each.partition,
            "OFFSET": "-" if each.offset < 0 else each.offset,
            "TO TOPIC": each.to_topic,
            "TO OFFSET": "-" if each.to_offset is None else each.to_offset,
            "HAS": "-" if each.has_offset is None else each.has_offset,
            "DELTA": human_count(each.delta),
            "TIME": "-" if each.delta_seconds is None else f"{each.delta_seconds:.1f} s",
            "AGE": human_seconds(each.age_seconds),
            "NOTE": ",".join(str(notes[note]) for note in _notes(each)),
        }
        for each in found
    ]
    columns = [name for name in rows[0] if name != "LINK" or len({each.link for each in found}) > 1]
    right = ("P", "OFFSET", "TO OFFSET", "HAS", "DELTA", "TIME", "AGE", "NOTE")
    console.print(table(columns, rows, right=right, optional=("AGE", "TIME", "LINK")))
    # sentences stand below the table: a column of them would leave no room for names
    for note, number in notes.items():
        console.print(f"{number}: {escape(printable(note))}", soft_wrap=True)


def _notes(each: GroupPartition) -> list[str]:
    return [note for note in (_from_checkpoint(each), each.skipped, _again(each.again)) if note]


def _from_checkpoint(each: GroupPartition) -> str:
    return (
        "from its last checkpoint; the group may have read further since"
        if each.from_checkpoint and each.to_offset is not None
        else ""
    )


def _again(count: int) -> str:
    return f"up to {count} records are read again: both clusters write this topic" if count else ""


def _draw_imported(done: list[ImportedGroup], *, dry_run: bool) -> None:
    from eomirror.log import printable

    console = stdout_console()
    rows = [
        {
            "GROUP": each.group,
            "TOPIC": topic,
            "P": partition,
            "HAD": "-" if had is None else had,
            "OFFSET": offset,
        }
        for each in done
        for topic, partition, had, offset in each.offsets
        if each.written
    ]
    print_table(console, rows, right=("P", "HAD", "OFFSET"))
    for each in done:
        if each.problem:
            console.print(f"[red]refused[/] {escape(printable(f'{each.group}: {each.problem}'))}")
        for note in each.notes if each.written else ():
            console.print(escape(printable(f"{each.group}: {note}")))
    count = sum(each.written for each in done)
    verb = "would be committed" if dry_run else "committed"
    console.print(f"{verb}: {count} of {len(done)} groups")


def _draw(found: list[Translation]) -> None:
    console = stdout_console()
    if not found:
        console.print(
            "the group has no committed offset in topics of these links\n"
            "  fix: eomirror offsets groups CONFIG lists the groups that have one"
        )
        return
    rows = [
        {
            "LINK": each.link,
            "TOPIC": each.topic,
            "P": each.partition,
            "OFFSET": each.offset,
            "TO TOPIC": each.to_topic,
            "TO P": each.to_partition,
            "TO OFFSET": "-" if each.to_offset is None else each.to_offset,
            "KIND": each.kind,
        }
        for each in found
    ]
    right = ("P", "OFFSET", "TO P", "TO OFFSET")
    print_table(console, rows, right=right, whole=("KIND",), optional=("LINK",))
    for each in found:
        if each.reason:
            console.print(f"{each.topic}-{each.partition} at {each.offset}: {escape(each.reason)}")
