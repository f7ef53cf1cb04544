"""``eomirror readiness``, ``failover``, ``reverse`` and their kin: failover of one link (`eomirror.failover`)."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.options import terminable
from eomirror.cli.render import (
    escape,
    human_count,
    human_seconds,
    print_message,
    print_result,
    print_table,
    stdout_console,
)
from eomirror.clock import utc
from eomirror.errors import DifferenceError, MirrorError, NotReadyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from eomirror.cli.options import LinkCommand
    from eomirror.config import Config, Link
    from eomirror.failover import (
        FailbackReport,
        LinkHistory,
        PromotionOptions,
        PromotionReport,
        Readiness,
        ReversalReport,
        Verb,
    )
    from eomirror.failover.group_moves import GroupMove
    from eomirror.failover.readiness import Check
    from eomirror.failover.verification import CopyComparison
    from eomirror.records.promotion import Promotion
    from eomirror.topics.plan import ChangedSetting

__all__ = [
    "asked",
    "comparison",
    "draw_failback",
    "dry_run_code",
    "failover",
    "history",
    "mirror_once",
    "planned",
    "promote",
    "promoted",
    "readiness",
    "reverse",
]

_COLOURS = {"ok": "green", "warn": "yellow", "no": "red"}
_GROUPS_SHOWN = 20
_REFUSED_SHOWN = 10
_TAIL_OFFSETS = 10_000

_source_gone = click.option("--source-gone", is_flag=True, help="Do not connect to the source.")


_tail = click.option(
    "--tail",
    type=click.IntRange(1),
    default=_TAIL_OFFSETS,
    show_default=True,
    help="Source offsets of each partition that --verify tail compares.",
)


@click.command(epilog="Example: eomirror readiness mirror.yaml --link 'east->west'")
@options.config
@options.link(options.LINK)
@_source_gone
@click.option(
    "--runbook",
    is_flag=True,
    help="Print the commands of failover and return for this link; connects to nothing.",
)
@click.option(
    "--verify",
    type=click.Choice(["tail", "full", "skip"]),
    default="skip",
    show_default=True,
    help="Also compare source and copies: the last --tail offsets of each partition, or all.",
)
@_tail
@options.report
@options.overrides
@options.output()
def readiness(
    config: str,
    link: str | None,
    source_gone: bool,
    runbook: bool,
    verify: str,
    tail: int,
    report: Path | None,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Show what a failover of a link of CONFIG would find and lose at this moment.

    Reads both clusters, or the target alone if the source does not answer.  Writes nothing.  The verdict is READY,
    READY WITH LOSS n (n source offsets that are not mirrored, up to the ends of the logs; markers and what stands
    behind open transactions count) or NOT READY.  It is "at least n" while topics are stopped or left out.  Without the
    source, n is as of the time at which the mirror saw its ends last.

    Exit codes: 0 ready, 6 not ready.
    """
    from eomirror.config import load_config
    from eomirror.failover import readiness as read
    from eomirror.failover.report import runbook as written

    loaded = load_config(config, overrides=overrides)
    if runbook:
        click.echo(written(loaded, loaded.only_link(link), config), nl=False)
        return 0
    compared = {"tail": tail, "full": None, "skip": 0}[verify]
    found = read(loaded, link=link, source_gone=source_gone, tail=compared)
    _settled()
    options.write_report(report, found.as_dict())
    print_result(output, found.as_dict(), lambda: _draw_readiness(found, "readiness"))
    return 0 if found.ready else NotReadyError.exit_code


@click.command(epilog="Example: eomirror failover mirror.yaml --link 'east->west' --dry-run")
@options.acting
@click.option("--force", is_flag=True, help="Fail over although the source answers.")
@_source_gone
def failover(
    action: LinkCommand,
    force: bool,
    source_gone: bool,
) -> int:
    """
    Promote the copies of a link of CONFIG whose source is gone, so that applications may write to them.

    Fences every lane of the link, aborts or ends what it left open, moves the consumer groups, and commits one
    promotion record with the cut of each partition.  Source records beyond the cut are not on the target; `eomirror
    restore` finds them when the source is back.  Until the record is committed the link stays a mirror, and the command
    can be repeated.  Afterwards `eomirror run` refuses the link.

    Exit codes: 0 promoted, 1 failed before the record, or groups named by the error were not moved before it, 5 another
    mirror took the link, 6 not ready.
    """
    from eomirror.failover import PromotionOptions, Verb

    chosen = PromotionOptions(dry_run=action.dry_run, force=force, source_gone=source_gone)
    return promoted(action, Verb.FAILOVER, chosen)


@contextmanager
def comparison(
    action: LinkCommand, command: str, verify: str, tail: int
) -> Iterator[Callable[[Link], None] | None]:
    """Gives the function that compares source and copies of a link, None to skip it; records its result at the end."""
    from eomirror.failover import CopyComparison

    if verify == "skip":
        yield None
        return
    made = CopyComparison(action.config, tail=None if verify == "full" else tail)
    try:
        yield made.compare
    finally:
        if not action.dry_run and (failed := _recorded(made, command)):
            print_message(f"the comparison is not recorded on the target: {failed}")


def _recorded(made: CopyComparison, command: str) -> str:
    """Records a comparison; returns the reason if that fails, which is no failure of the command."""
    try:
        return made.record(command)
    except Exception as error:  # noqa: BLE001  a promotion that is done stays done
        return type(error).__name__


def planned(command: Any) -> Any:
    """
    Adds the options of a planned promotion; a decorator.

    The command gets the function that compares source and copies of a link, None to skip it, and `PromotionOptions`.
    """

    @wraps(command)
    def run(action: LinkCommand, *, verify: str, tail: int, patience: float, **others: Any) -> Any:
        from eomirror.failover import PromotionOptions

        with comparison(action, command.__name__, verify, tail) as compare:
            chosen = PromotionOptions(
                dry_run=action.dry_run,
                patience=patience,
                verify=None if compare is None else lambda: compare(action.config.link(action.link)),
            )
            return command(action, compare, chosen, **others)

    verify = click.option(
        "--verify",
        type=click.Choice(["tail", "full", "skip"]),
        default="tail",
        show_default=True,
        help="Compare source and copies before the promotion: the last --tail offsets of each partition, all, or none.",
    )
    patience = click.option(
        "--patience",
        type=click.FloatRange(0),
        default=60.0,
        show_default=True,
        help="Seconds to wait for the mirror.",
    )
    return verify(_tail(patience(run)))


@click.command(epilog="Example: eomirror promote mirror.yaml --link 'east->west' --dry-run")
@options.acting
@planned
def promote(action: LinkCommand, _: Any, chosen: PromotionOptions) -> int:
    """
    Promote the copies of a link of CONFIG whose producers were stopped; nothing is lost, nothing comes twice.

    The mirror should run: it mirrors what is left.  The command waits until everything is mirrored and the source
    stands still, then takes the same steps as `eomirror failover`, and compares the source with the cut once more
    before it commits the promotion record.

    Exit codes: 0 promoted, 1 failed before the record, 3 source and copies differ, 5 another mirror
    took the link, 6 not ready.
    """
    from eomirror.failover import Verb

    return promoted(action, Verb.PROMOTE, chosen)


@click.command(epilog="Example: eomirror reverse mirror.yaml --link 'east->west'")
@options.acting
@click.option(
    "--from-common-end",
    is_flag=True,
    help="Where the old source has lost records since, or was restored and written on: begin where both sides still "
    "hold the same records, and copy what follows back.",
)
def reverse(
    action: LinkCommand,
    from_common_end: bool,
) -> int:
    """
    Start the link back of a promoted link of CONFIG at the cut, so that nothing is copied twice.

    The configuration must have the link back; the error of the command shows its entry.  Records the ends of the old
    source first: what lies between the cut and these ends never reached the copies (`eomirror restore`).  Then run the
    link back: `eomirror run CONFIG --link BACK`.

    An old source that is not what was mirrored is refused by name, with the offset up to which it is.  With
    --from-common-end the link back brings what it lacks back, and what it holds beyond that offset counts as orphans.

    Exit codes: 0 done, 1 failed, 2 no link back is configured, 5 a mirror of one of the links runs, 6 not ready.
    """
    from eomirror.failover import reverse as run

    action.confirm("reverse")
    found = run(
        action.config,
        link=action.link,
        from_common_end=from_common_end,
        mirror=lambda config: mirror_once(action, config, "not everything was copied back"),
        dry_run=action.dry_run,
        on_event=print_message,
    )
    action.show(found.as_dict(), lambda: _draw_reversal(found))
    return 0


@click.command(epilog="Example: eomirror history mirror.yaml --link 'east->west'")
@options.config
@options.link(options.LINK)
@options.report
@options.overrides
@options.output()
def history(
    config: str, link: str | None, report: Path | None, overrides: tuple[str, ...], output: str | None
) -> int:
    """
    Show the promotions of a link of CONFIG: time, kind, cut, bound on the loss, durations; and a fence that stands.

    Reads the target only.
    """
    from eomirror.config import load_config
    from eomirror.failover import link_history

    found = link_history(load_config(config, overrides=overrides), link=link)
    options.write_report(report, found.as_dict())
    print_result(output, found.as_dict(), lambda: _draw_history(found))
    return 0


def mirror_once(action: LinkCommand, config: Config, failure: str) -> None:
    """Runs the link of ``config`` until it has caught up."""
    from eomirror.mirror import Mirror

    with Mirror(config, although_promoted=True) as mirror:
        ended = mirror.run(until="caught-up")
    if ended.exit_code:
        (link,) = config.links
        raise NotReadyError(
            f"link {action.link}: {failure}: a topic is stopped",
            fix=f"`eomirror status CONFIG --link {quote(link.name)}` has the reason; then repeat this",
        )


def asked(action: LinkCommand, verb: str) -> Callable[[Readiness | None], None] | None:
    """
    Returns a function that asks for the name of the link, below a verdict if there is one; None to ask nothing.

    Raises:
        UsageError: stdin is no terminal.
    """
    if action.yes or action.dry_run:
        return None
    if not sys.stdin.isatty():
        action.confirm(verb)

    def confirm(found: Readiness | None) -> None:
        for check in () if found is None else found.checks:
            if check.level.value != "ok":
                print_message(f"{check.level.value}: {check.name}: {check.text}")
        if found is not None:
            print_message(_conclusion(found))
        action.confirm(verb)

    return confirm


def promoted(action: LinkCommand, verb: Verb, chosen: PromotionOptions) -> int:
    """
    Promotes a link, and shows and saves the result; returns the exit code.

    Raises:
        UsageError: The name of the link was not confirmed.
        MirrorError: The link is not promoted.
    """
    from eomirror.failover import promote as run

    chosen = replace(chosen, confirm=asked(action, verb.value))
    with terminable():
        found = run(action.config, verb, link=action.link, options=chosen, on_event=print_message)
    _settled()
    action.show(found.as_dict(), lambda: _draw_promotion(found))
    if chosen.dry_run:
        return dry_run_code(found.readiness)
    if found.error is not None and not found.promoted:
        raise found.error
    if found.error is not None or found.switched is False:
        reason = f": {found.error.message}" if found.error is not None else ""
        raise MirrorError(
            f"link {action.link} is promoted, but the command of --on-switch failed{reason}",
            fix="switch the clients by hand, or run the command of --on-switch yourself; the promotion need not be "
            "repeated",
        )
    if found.refused_groups:
        raise _not_moved(action, found)
    return 0


def dry_run_code(readiness: Readiness) -> int:
    """Returns the exit code that the command would have at this moment: 3 if nothing but a difference is in its way."""
    if readiness.ready:
        return 0
    differs = [check.name for check in readiness.refusals] == ["verified"]
    return DifferenceError.exit_code if differs else NotReadyError.exit_code


def _not_moved(action: LinkCommand, found: PromotionReport) -> MirrorError:
    refused = dict(sorted(found.refused_groups.items()))
    if "*" in refused:
        names = f"no group was moved: {refused['*']}"
    else:
        some = "; ".join(f"{group}: {reason}" for group, reason in list(refused.items())[:_REFUSED_SHOWN])
        more = len(refused) - _REFUSED_SHOWN
        names = f"{len(refused)} groups were not moved: {some}" + (f"; and {more} more" if more > 0 else "")
    return MirrorError(
        f"link {action.link} is promoted, but {names}",
        fix="set their offsets before their consumers start, as `RESUMES` of the table, or "
        "`eomirror.failover.where_to_start(config, group)`, names them; this command need not be repeated",
    )


def _settled() -> None:
    """Hides what was read from the garbage collector: it may be 100,000 rows, which stay until the process ends."""
    gc.freeze()


# -- tables --------------------------------------------------------------------------------------


def _draw_readiness(found: Readiness, title: str) -> None:
    console = stdout_console()
    console.print(f"{title} {escape(found.link)}")
    _draw_checks(console, found.checks)
    print_table(
        console,
        [
            {
                "TOPIC": topic.topic,
                "COPY": topic.target,
                "P": topic.partitions,
                "LAG": human_count(topic.lag_records),
                "AGE": human_seconds(topic.lag_seconds),
                "STATE": topic.state,
                "PROBLEM": topic.problem or "-",
            }
            for topic in found.topics
        ],
        right=("P", "LAG", "AGE"),
        words=("PROBLEM",),
    )
    _draw_groups(console, found.groups)
    console.print(_conclusion(found), style="green" if found.ready else "red")


def _conclusion(found: Readiness) -> str:
    """Returns the verdict in one sentence."""
    if not found.ready:
        return f"{found.verdict}: " + "; ".join(
            f"{check.name}: {escape(check.text)}" for check in found.refusals
        )
    lost = "an unknown number of" if found.lost is None else _many(found)
    if found.verb != "failover":
        return f"{found.verdict}: {lost} source offsets are left to mirror before the promotion"
    text = f"{found.verdict}: a failover would leave behind {lost} source offsets"
    if found.lost_age_seconds is not None:
        return f"{text}, and what was written in the {human_seconds(found.lost_age_seconds)} since the source answered"
    known = found.lost and found.lost_seconds is not None
    return f"{text}, the oldest {human_seconds(found.lost_seconds)} old" if known else text


def _many(found: Readiness | Promotion) -> str:
    """Returns the number of source offsets that are left behind; a dash if it is unknown."""
    return ("at least " if found.at_least and found.lost is not None else "") + human_count(found.lost)


def _draw_checks(console: Console, checks: Iterable[Check]) -> None:
    for check in checks:
        colour = _COLOURS[check.level.value]
        console.print(
            f" [{colour}]{check.level.value:<4}[/{colour}] {check.name:<21} {escape(check.text)}"
            + (f"  [dim]{escape(check.fix)}[/dim]" if check.fix and check.level.value != "ok" else "")
        )


def _draw_groups(console: Console, moves: Iterable[GroupMove]) -> None:
    rows = [
        {
            "GROUP": move.group,
            "COPY": f"{move.to_topic}-{move.partition}",
            "FROM": "-" if move.offset < 0 else move.offset,
            "RESUMES": "-" if move.to_offset is None else move.to_offset,
            "KIND": move.kind,
            "AGAIN": "unknown"
            if move.again is None and move.to_offset is not None
            else human_count(move.again),
            "ACTION": move.action,
            "REASON": move.reason or "-",
        }
        for move in moves
    ]
    print_table(console, rows[:_GROUPS_SHOWN], right=("FROM", "RESUMES", "AGAIN"), words=("REASON",))
    if len(rows) > _GROUPS_SHOWN:
        console.print(f"... {len(rows) - _GROUPS_SHOWN} more rows: -o json")


def _draw_promotion(found: PromotionReport) -> None:
    console = stdout_console()
    title = f"{found.verb}{' (dry run)' if found.dry_run else ''}"
    _draw_readiness(found.readiness, title)
    if found.dry_run:
        return
    for group, reason in sorted(found.refused_groups.items()):
        what = "groups were" if group == "*" else f"group {escape(group)} was"
        console.print(f"{what} not moved: {escape(reason)}", style="yellow")
    if found.promotion is None:
        kept = "nothing was changed" if found.state == "refused" else "the link stays a mirror"
        console.print(f"{found.state}: {kept}", style="red")
        return
    _draw_cuts(console, found)
    lost = "unknown" if found.promotion.lost is None else _many(found.promotion)
    if found.promotion.lost is not None and found.promotion.ends_at is not None:
        age = max(0.0, (found.promotion.timestamp - found.promotion.ends_at) / 1000)
        lost += f", and what was written in the {human_seconds(age)} since the source answered"
    took = sum(found.milliseconds.values()) / 1000
    pause = found.write_pause_ms
    stood = "" if pause is None else f"; applications could not write for {pause / 1000:.1f} s"
    console.print(
        f"promoted (number {found.promotion.number}) in {took:.1f} s; source offsets beyond the cut: {lost}{stood}. "
        "Applications may write to the copies",
        style="green",
    )


def _draw_cuts(console: Console, found: PromotionReport) -> None:
    if found.promotion is None:
        return
    # Without the source its end is the one that lanes have seen; what they mirrored later is behind it.
    end = "SOURCE END" if found.promotion.ends_at is None else "SEEN END"
    print_table(
        console,
        [
            {
                "TOPIC": cut.topic,
                "P": cut.partition,
                "MIRRORED TO": cut.position,
                end: "-" if cut.source_end is None else max(cut.source_end, cut.position),
                "BEYOND": human_count(cut.lost),
                "COPY": cut.target_topic,
                "STARTS AT": cut.target_end,
            }
            for cut in found.promotion.cuts
        ],
        right=("P", "MIRRORED TO", end, "BEYOND", "STARTS AT"),
    )


def _draw_reversal(found: ReversalReport) -> None:
    console = stdout_console()
    print_table(
        console,
        [
            {
                "TOPIC": each.topic,
                "P": each.partition,
                "BEGINS AT": each.begins,
                "WRITES TO": each.to_topic,
                "ORPHANS FROM": each.orphans_from,
                "TO": each.orphans_to,
            }
            for each in found.partitions
        ],
        right=("P", "BEGINS AT", "ORPHANS FROM", "TO"),
    )
    _draw_settings(console, found.settings, dry_run=not found.committed)
    if not found.committed:
        console.print("nothing was committed: --dry-run")
        return
    console.print(
        f"{escape(found.back)} begins at the cut of {escape(found.link)} (number {found.number}); run it: eomirror run "
        f"CONFIG --link {escape(quote(found.back))}",
        style="green",
    )
    for each in found.moved:
        console.print(escape(each), style="yellow")
    for each in found.foreign:
        console.print(
            f"other producers have written between the copies, and their records stay there: {escape(each)} records",
            style="yellow",
        )
    if found.orphans:
        console.print(
            f"up to {human_count(found.orphans)} source offsets never reached the copies: eomirror restore CONFIG "
            f"--link {escape(quote(found.link))} --orphans export|merge|keep",
            style="yellow",
        )


def _draw_settings(console: Console, settings: Sequence[ChangedSetting], *, dry_run: bool) -> None:
    """Draws the settings of existing topics that a command changes: they are the applications' own topics."""
    if settings:
        verb = "would change" if dry_run else "changed"
        console.print(
            f"{verb} settings of topics that exist, for what is mirrored into them:", style="yellow"
        )
    for each in settings:
        console.print(f"  {escape(str(each))}", highlight=False, soft_wrap=True)


def draw_failback(found: FailbackReport) -> None:
    """Draws both halves of a failback."""
    if found.promotion is not None:
        _draw_promotion(found.promotion)
    _draw_settings(stdout_console(), found.settings, dry_run=True)
    if found.reversal is not None:
        _draw_reversal(found.reversal)


def _draw_history(found: LinkHistory) -> None:
    from eomirror.records.promotion import standing_fence

    console = stdout_console()
    console.print(f"{escape(found.link)}: {found.state}")
    history = found.history
    if history.fence is not None:
        text, fix = standing_fence(found.link, history.fence)
        console.print(f"[yellow]fenced[/yellow]: {escape(text)}\n  fix: {escape(fix)}")
    print_table(
        console,
        [
            {
                "N": number,
                "AT": utc(promotion.timestamp),
                "KIND": promotion.kind,
                "BY": promotion.host,
                "BEYOND": _many(promotion),
                "SECONDS": f"{(promotion.timestamp - promotion.started) / 1000:.1f}",
                "REVERSED": _at(history.reversals.get(number)),
                "ORPHANS": restoration.orphans
                if (restoration := history.restorations.get(number)) is not None
                else "-",
                "RESUMED": _at(history.resumptions.get(number)),
            }
            for number, promotion in sorted(history.promotions.items())
        ],
        right=("N", "BEYOND", "SECONDS"),
    )


def _at(record: Any) -> str:
    return "-" if record is None else utc(record.timestamp)
