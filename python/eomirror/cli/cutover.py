"""``eomirror cutover``, ``fence`` and ``unfence``: a planned promotion that stops the producers itself."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli.failover import (
    acting,
    confirm,
    promoted,
    verification,
    verification_option,
    write_report,
)
from eomirror.cli.render import escape, print_message, print_result, stdout_console

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.failover import LinkWriterFence

__all__ = ["cutover", "fence", "unfence"]


def _fencing(command: Any) -> Any:
    """Adds the options that choose how applications are stopped; a decorator."""
    decorators = (
        click.option(
            "--method",
            type=click.Choice(["wait", "acl", "command"]),
            default="wait",
            show_default=True,
            help="wait: you stop the producers; acl: an entry DENY Write for each source topic; super users pass it; "
            "command: --fence-command.",
        ),
        click.option(
            "--fence-command",
            default="",
            metavar="COMMAND",
            help="Called with EOMIRROR_ACTION=fence, or =unfence, and EOMIRROR_LINK; must return 0 when it is done.",
        ),
    )
    return reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), command)


@click.command(epilog="Example: eomirror cutover mirror.yaml --link 'east->west' --method acl --dry-run")
@acting
@_fencing
@verification_option
@click.option(
    "--patience",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the mirror, after the fence.",
)
@click.option(
    "--on-switch",
    default="",
    metavar="COMMAND",
    help="Called after the promotion, with EOMIRROR_LINK: switches the clients, such as a DNS entry.",
)
def cutover(
    config: str,
    link: str | None,
    dry_run: bool,
    yes: bool,
    report: Path | None,
    overrides: tuple[str, ...],
    output: str | None,
    method: str,
    fence_command: str,
    verify: str,
    patience: float,
    on_switch: str,
) -> int:
    """
    Stop the producers on the source of a link of CONFIG, drain, verify, and promote; nothing is lost or comes twice.

    The mirror must run.  Fences the source (--method), waits until everything is mirrored and the source stands still,
    compares the tail, takes the link, moves the consumer groups and commits the promotion record.  A failure before the
    record undoes the fence.  The fence stays afterwards: `eomirror unfence` lifts it, before `eomirror reverse`.

    Exit codes: 0 promoted, 1 failed before the record, or --on-switch failed after it, 3 source and copies differ,
    5 another mirror took the link, 6 not ready.
    """
    from eomirror.config import load_config
    from eomirror.failover import PromotionOptions, Verb, run_command

    loaded = load_config(config, overrides=overrides)
    name = loaded.only_link(link).name
    chosen = PromotionOptions(
        dry_run=dry_run,
        patience=patience,
        fence=_fence(loaded, name, method, fence_command),
        verify=verification(loaded, name, verify),
        on_switch=(lambda: run_command(on_switch, {"EOMIRROR_LINK": name}) == 0) if on_switch else None,
    )
    return promoted(loaded, Verb.CUTOVER, name, chosen, yes=yes, report=report, output=output)


@click.command(epilog="Example: eomirror fence mirror.yaml --link 'east->west' --method acl")
@acting
@_fencing
def fence(
    config: str,
    link: str | None,
    dry_run: bool,
    yes: bool,
    report: Path | None,
    overrides: tuple[str, ...],
    output: str | None,
    method: str,
    fence_command: str,
) -> int:
    """
    Stop the applications that write to the source of a link of CONFIG, and record how.

    A producer that an ACL entry stops gets a fatal error.  `eomirror unfence` removes exactly the entries that this
    command has added.
    """
    from eomirror.config import load_config

    loaded = load_config(config, overrides=overrides)
    name = loaded.only_link(link).name
    made = _fence(loaded, name, method, fence_command)
    if not dry_run:
        confirm("fence", name, yes=yes)
        print_message(f"fencing the source of {name}: {method}")
        made.fence()
    result = {"link": name, "method": method, "fenced": not dry_run}
    write_report(report, result)
    print_result(
        output, result, lambda: _say(f"{name}: {'would fence' if dry_run else 'fenced'} with {method}")
    )
    return 0


@click.command(epilog="Example: eomirror unfence mirror.yaml --link 'east->west'")
@acting
@_fencing
def unfence(
    config: str,
    link: str | None,
    dry_run: bool,
    yes: bool,
    report: Path | None,
    overrides: tuple[str, ...],
    output: str | None,
    method: str,
    fence_command: str,
) -> int:
    """Undo the fence of a link of CONFIG: applications may write to its source again."""
    from eomirror.config import load_config

    loaded = load_config(config, overrides=overrides)
    name = loaded.only_link(link).name
    if not dry_run:
        confirm("unfence", name, yes=yes)
    lifted = None if dry_run else _fence(loaded, name, method, fence_command).lift()
    result = {"link": name, "lifted": None if lifted is None else lifted.method}
    write_report(report, result)
    text = "no fence stands" if lifted is None else f"lifted: {lifted.method}, {len(lifted.topics)} topics"
    print_result(
        output, result, lambda: _say(f"{name}: {'nothing was changed: --dry-run' if dry_run else text}")
    )
    return 0


def _fence(config: Config, name: str, method: str, command: str) -> LinkWriterFence:
    from eomirror.failover import FenceMethod, LinkWriterFence

    return LinkWriterFence(config, config.link(name), FenceMethod(name=method, command=command))


def _say(text: str) -> None:
    stdout_console().print(escape(text))
