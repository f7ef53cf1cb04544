"""``eomirror offsets``: where offsets of one side of a link are on the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli.render import (
    human_count,
    human_seconds,
    output_option,
    print_structured,
    say,
    stdout_console,
    table,
    wants_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.groups import GroupPartition, ImportedGroup, Translation
    from eomirror.groups.from_checkpoints import Away

__all__ = ["offsets"]

_CONFIG = click.argument("config", type=click.Path(dir_okay=False))
_OVERRIDES = click.option(
    "-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a setting."
)


_SOURCE_GONE = click.option(
    "--source-gone",
    is_flag=True,
    help="Ask the groups' checkpoints on the target, and do not wait for a source that is lost.",
)


def _which_groups(*, link: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The arguments of a command that looks at groups of one direction; ``link`` is the help of that option."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        for option in (
            output_option,
            _OVERRIDES,
            click.option("--link", help=link),
            _SOURCE_GONE,
            click.option("--reverse", is_flag=True, help="From the target to the source, for the way back."),
            click.option("--groups", metavar="RE", help="Only groups that this pattern matches whole."),
            click.option("--group", help="Only this consumer group."),
            _CONFIG,
        ):
            command = option(command)
        return command

    return decorate


@click.group(epilog="Example: eomirror offsets translate mirror.yaml --group billing")
def offsets() -> None:
    """Say where offsets of the source are on the target, and back; move groups by file."""


@offsets.command(
    short_help="Where an offset, or a group, is on the other side.",
    epilog="Example: eomirror offsets translate mirror.yaml --topic orders --partition 0 --offset 1000",
)
@_CONFIG
@click.option("--group", help="All committed offsets of this consumer group.")
@click.option("--topic", help="One offset: its topic.")
@click.option("--partition", type=click.IntRange(min=0), help="One offset: its partition.")
@click.option("--offset", type=click.IntRange(min=0), help="One offset: the next one to read.")
@click.option("--reverse", is_flag=True, help="From the target to the source.")
@_SOURCE_GONE
@click.option("--link", help="Only this link.")
@_OVERRIDES
@output_option
def translate(
    config: str,
    group: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    reverse: bool,
    source_gone: bool,
    link: str | None,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Show where an offset, or all offsets of a consumer group, are on the other side.

    Reads the target's eomirror topics; needs no running mirror.  KIND: exact (that very record), next (nothing was
    mirrored from there, going on there skips and repeats nothing), earlier (of a group, where equal names are
    written on both sides: none is skipped, and some are read again), or unknown, with the reason.  Exit codes: 0
    all are known, 1 failed, 3 one is not known, or the group has no offset in the link's topics.
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
        reverse=reverse,
        source_gone=source_gone,
        link=link,
        # the place of a single record is asked on the target alone
        away=_away(loaded, sources=group is not None and not (source_gone or reverse)),
    )
    if wants_table(output):
        _draw(found)
    else:
        print_structured({"offsets": [each.as_dict() for each in found]}, output)
    return 0 if found and all(each.to_offset is not None for each in found) else 3


@offsets.command(
    short_help="Where groups stand on both sides.",
    epilog="Example: eomirror offsets groups mirror.yaml --groups 'billing.*'",
)
@_which_groups(link="Only this link.")
def groups(
    config: str,
    group: str | None,
    groups: str | None,
    reverse: bool,
    source_gone: bool,
    link: str | None,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Show where consumer groups stand on both sides, and where they would go on after a failover.

    DELTA: how far what a group has committed on the other side is behind where it would go on; a negative one would
    skip records.  AGE: of the next record that it would read.  Where the source does not answer, or with
    --source-gone, the checkpoints of a running mirror say where groups stood.  NOTE: which of the remarks below it is
    about: why an import would leave it out, how many records a group would read again where equal names are written
    on both sides, or that the group is gone on the source; what is left of it on the target is shown with its last
    checkpoints.  Exit codes: 0 done, 1 failed, 3 no group has an offset in the links' topics, or one is not known.
    """
    from eomirror.clock import SYSTEM_CLOCK
    from eomirror.config import load_config
    from eomirror.groups import group_offsets

    loaded = load_config(config, overrides=overrides)
    found = group_offsets(
        loaded,
        group=group,
        groups=groups,
        link=link,
        reverse=reverse,
        source_gone=source_gone,
        away=_away(loaded, sources=not (source_gone or reverse)),
        times=True,
        gone=True,
        now_ms=SYSTEM_CLOCK.wall_ms(),
    )
    if wants_table(output):
        _draw_groups(found)
    else:
        print_structured({"groups": [each.as_dict() for each in found]}, output)
    return 0 if found and all(each.to_offset is not None for each in found) else 3


@offsets.command(
    "export",
    short_help="Write where groups would go on, as a file.",
    epilog="Example: eomirror offsets export mirror.yaml > offsets.json",
)
@_which_groups(link="The link; needed where there are several.")
def export_(
    config: str,
    group: str | None,
    groups: str | None,
    reverse: bool,
    source_gone: bool,
    link: str | None,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Write where consumer groups go on on the other side to stdout, as a file for `offsets import`.

    A group of which one offset is not known is left out whole, and named on stderr; a table and YAML are for looking
    only, the file is JSON.  Where the source does not answer, or with --source-gone, groups stand where their
    checkpoints say.  Exit codes: 0 done, 1 failed, 3 one was left out, or there is none.
    """
    from eomirror.clock import SYSTEM_CLOCK
    from eomirror.config import load_config
    from eomirror.groups import export_offsets

    loaded = load_config(config, overrides=overrides)
    document, left_out = export_offsets(
        loaded,
        group=group,
        groups=groups,
        link=link,
        reverse=reverse,
        source_gone=source_gone,
        away=_away(loaded, sources=not (source_gone or reverse)),
        now_ms=SYSTEM_CLOCK.wall_ms(),
    )
    if wants_table(output):
        _draw_exported(document)
    else:
        print_structured(document, output)
    for name, reason in sorted(left_out.items()):
        say(f"left out: {name}: {reason}")
    return 0 if document["groups"] and not left_out else 3


@offsets.command(
    "import",
    short_help="Commit the offsets of a file for idle groups.",
    epilog="Example: eomirror offsets import mirror.yaml offsets.json --dry-run",
)
@_CONFIG
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--group", help="Only this consumer group of the file.")
@click.option("--dry-run", is_flag=True, help="Look at everything, commit nothing.")
@_OVERRIDES
@output_option
def import_(
    config: str,
    file: Path,
    group: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Commit the offsets of FILE for consumer groups that are idle; each group whole or not at all.

    A group that has members is refused, and so is an offset that its partition does not hold.  Exit codes: 0 all
    groups done, 1 failed, 2 the file is for another cluster or not readable, 3 a group was refused.
    """
    import orjson

    from eomirror.config import load_config
    from eomirror.errors import UsageError
    from eomirror.groups import import_offsets

    try:
        document = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise UsageError(
            f"{file} cannot be read: {reason}",
            fix="name a file that `eomirror offsets export CONFIG > FILE` has written, as JSON",
        ) from error
    done = import_offsets(load_config(config, overrides=overrides), document, group=group, dry_run=dry_run)
    if wants_table(output):
        _draw_imported(done, dry_run=dry_run)
    else:
        print_structured({"dry_run": dry_run, "groups": [each.as_dict() for each in done]}, output)
    return 0 if all(each.written for each in done) else 3


def _away(config: Config, *, sources: bool) -> Away:
    """Make what asks the clusters of links at the same time, before anything is asked of them one after the other."""
    from eomirror.errors import UnreachableError
    from eomirror.kafka.reachability import away

    def ask(links: Sequence[Link]) -> Mapping[str, UnreachableError]:
        targets = {link.target for link in links}
        asked = targets | ({link.source for link in links} if sources else set())
        found = away(config.clusters[alias] for alias in sorted(asked))
        gone: dict[str, UnreachableError] = {}
        for alias, error in found.items():
            if alias in targets or not isinstance(error, UnreachableError):
                raise error
            gone[alias] = error
        return gone

    return ask


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
    from rich.markup import escape

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
    # a sentence in a column would leave no room for the names
    for note, number in notes.items():
        console.print(f"{number}: {escape(printable(note))}", soft_wrap=True)


def _notes(each: GroupPartition) -> list[str]:
    return [note for note in (_told(each), each.skipped, _again(each.again)) if note]


def _told(each: GroupPartition) -> str:
    return (
        "told by its last checkpoint; it may have read further since"
        if each.from_checkpoint and each.to_offset is not None
        else ""
    )


def _again(count: int) -> str:
    return f"up to {count} records are read again: equal names are written on both sides" if count else ""


def _draw_imported(done: list[ImportedGroup], *, dry_run: bool) -> None:
    from rich.markup import escape

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
    if rows:
        console.print(table(list(rows[0]), rows, right=("P", "HAD", "OFFSET")))
    for each in done:
        if each.problem:
            console.print(f"[red]refused[/] {escape(printable(f'{each.group}: {each.problem}'))}")
    count = sum(each.written for each in done)
    verb = "would be committed" if dry_run else "committed"
    console.print(f"{verb}: {count} of {len(done)} groups")


def _draw(found: list[Translation]) -> None:
    from rich.markup import escape

    console = stdout_console()
    if not found:
        console.print("the group has no committed offset in topics of these links")
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
    console.print(table(list(rows[0]), rows, right=right, whole=("KIND",), optional=("LINK",)))
    for each in found:
        if each.reason:
            console.print(f"{each.topic}-{each.partition} at {each.offset}: {escape(each.reason)}")
