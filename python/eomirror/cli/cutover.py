"""``eomirror cutover``, ``failback``, ``fence`` and ``unfence``: planned promotions that stop producers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.failover import asked, draw_failback, dry_run_code, planned, promoted
from eomirror.cli.options import terminable
from eomirror.cli.render import escape, print_message, stdout_console
from eomirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.cli.options import LinkCommand
    from eomirror.config import Link
    from eomirror.failover import LinkWriterFence, PromotionOptions

__all__ = ["cutover", "failback", "fence", "unfence"]


_SHOWN = 5


_METHODS = click.Choice(["wait", "acl", "command"])

_fence_command = click.option(
    "--fence-command",
    default="",
    metavar="COMMAND",
    help="Called with EOMIRROR_ACTION=fence, or =unfence, and EOMIRROR_LINK; must return 0 when it is done.",
)


def _fencing(command: Any) -> Any:
    """Adds the options that choose how applications are stopped; a decorator."""
    method = click.option(
        "--method",
        type=_METHODS,
        default="wait",
        show_default=True,
        help="wait: you stop the producers; acl: an entry DENY Write for each source topic; super users pass it; "
        "command: --fence-command.",
    )
    return method(_fence_command(command))


_on_switch = click.option(
    "--on-switch",
    default="",
    metavar="COMMAND",
    help="Called after the promotion, with EOMIRROR_LINK: switches the clients, such as a DNS entry.",
)


def _switch(action: LinkCommand, command: str) -> Callable[[], bool] | None:
    """Returns the call of the command that switches clients; None without one."""
    from eomirror.failover import run_command

    return (lambda: run_command(command, {"EOMIRROR_LINK": action.link}) == 0) if command else None


@click.command(epilog="Example: eomirror cutover mirror.yaml --link 'east->west' --method acl --dry-run")
@options.acting
@_fencing
@planned
@_on_switch
def cutover(
    action: LinkCommand,
    _: Any,
    chosen: PromotionOptions,
    *,
    method: str,
    fence_command: str,
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
    from eomirror.failover import Verb

    fence = _fence(action, method, fence_command)
    chosen = replace(chosen, fence=fence, on_switch=_switch(action, on_switch))
    return promoted(action, Verb.CUTOVER, chosen)


@click.command(epilog="Example: eomirror failback mirror.yaml --link 'east->west' --method acl --dry-run")
@options.acting
@_fencing
@planned
@_on_switch
def failback(
    action: LinkCommand,
    compare: Callable[[Link], None] | None,
    chosen: PromotionOptions,
    *,
    method: str,
    fence_command: str,
    on_switch: str,
) -> int:
    """
    Return from a promoted and reversed link of CONFIG to its source, without loss.

    Keep the link back running.  Stops the producers on the target (--method), waits until everything is mirrored back,
    compares the tail, promotes the link back, calls --on-switch, lifts the fence, sets the positions of the link to
    that cut, and ends its promotion.  Run the link again afterwards.  A failure before the promotion undoes the fence;
    after it, repeat the command: it takes the steps that are left.

    Exit codes: 0 done, 1 failed, or --on-switch failed, 3 source and copies of the link back differ, 5 another mirror
    took a link, 6 not ready.
    """
    from eomirror.failover import FenceMethod
    from eomirror.failover import failback as run

    chosen = replace(
        chosen, verify=None, on_switch=_switch(action, on_switch), confirm=asked(action, "failback")
    )
    with terminable():
        found = run(
            action.config,
            link=action.link,
            method=FenceMethod(name=method, command=fence_command),
            verify=compare,
            options=chosen,
            on_event=print_message,
        )
        # inside: the comparison is recorded afterwards, and a signal meanwhile must not hide what was done
        action.show(found.as_dict(), lambda: draw_failback(found))
    made = found.promotion
    if made is None:
        return 0
    if action.dry_run:
        return dry_run_code(made.readiness)
    if made.error is not None and not made.promoted:
        raise made.error
    if found.reversal is None:
        reason = "" if made.error is None else f": {made.error.message}"
        raise MirrorError(
            f"link {found.back} is promoted, but the command of --on-switch failed{reason}; applications stay stopped",
            fix="switch the clients by hand, then repeat `eomirror failback` without --on-switch: it goes on from here",
        )
    return 0


@click.command(epilog="Example: eomirror fence mirror.yaml --link 'east->west' --method acl")
@options.acting
@_fencing
def fence(
    action: LinkCommand,
    method: str,
    fence_command: str,
) -> int:
    """
    Stop the applications that write to the source of a link of CONFIG, and record how.

    An ACL entry fails every record of a producer.  `eomirror unfence` removes exactly the entries that this
    command has added.  Refused, and --dry-run says so, where the first entry of a topic would shut out its readers.

    Exit codes: 0 done, 1 refused by a cluster, 6 refused, or fenced with another method.
    """
    made = _fence(action, method, fence_command)
    action.confirm("fence")
    if not action.dry_run:
        print_message(f"fencing the source of {action.link}: {method}")
        made.fence()
        result = {"link": action.link, "method": method, "fenced": True}
        action.show(result, lambda: _say(f"{action.link}: fenced with {method}"))
        return 0
    standing, topics = made.inspect()
    entries = f", {len(topics)} new entries: {', '.join(topics[:_SHOWN]) or '-'}" if method == "acl" else ""
    stands = "" if standing is None else f"; a fence stands: {standing.method}, by {standing.host}"
    result = {
        "link": action.link,
        "method": method,
        "fenced": False,
        "topics": list(topics),
        "standing": None if standing is None else standing.method,
    }
    action.show(result, lambda: _say(f"{action.link}: would fence with {method}{entries}{stands}"))
    return 0


@click.command(epilog="Example: eomirror unfence mirror.yaml --link 'east->west'")
@options.acting
@_fence_command
# chose nothing: the record of the fence names its method
@click.option("--method", type=_METHODS, hidden=True, expose_value=False)
def unfence(action: LinkCommand, fence_command: str) -> int:
    """
    Undo the fence of a link of CONFIG: applications may write to its source again.

    The record of the fence names its method; one with a command needs --fence-command.

    An entry that the standing fence of another link needs stays, and is named: the last fence that is lifted deletes
    it.
    """
    action.confirm("unfence")
    made = _fence(action, "wait", fence_command)
    found = made.standing() if action.dry_run else made.lift()
    doing = "would lift" if action.dry_run else "lifted"
    text = "no fence stands" if found is None else f"{doing}: {found.method}, {len(found.topics)} topics"
    for topic, other in sorted(made.kept.items()):
        text += f"\n  {topic} stays closed: the fence of link {other} needs its entry"
    result = {
        "link": action.link,
        "lifted": None if found is None or action.dry_run else found.method,
        "standing": found.method if found is not None and action.dry_run else None,
        "kept": dict(made.kept),
    }
    action.show(result, lambda: _say(f"{action.link}: {text}"))
    return 0


def _fence(action: LinkCommand, method: str, command: str) -> LinkWriterFence:
    from eomirror.failover import FenceMethod, LinkWriterFence

    return LinkWriterFence(
        action.config, action.config.link(action.link), FenceMethod(name=method, command=command)
    )


def _say(text: str) -> None:
    stdout_console().print(escape(text))
