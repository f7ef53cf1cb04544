"""``eomirror pause`` and ``resume``: lanes of a link hold at their positions, and go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eomirror.cli import options
from eomirror.cli.completion import complete_topics
from eomirror.cli.render import escape, stdout_console

if TYPE_CHECKING:
    from eomirror.cli.options import LinkCommand
    from eomirror.failover import PauseReport

__all__ = ["pause", "resume"]


@click.command(epilog="Example: eomirror pause mirror.yaml --link 'east->west' --topics 'pay.*' --dry-run")
@options.acting
@click.option(
    "--topics",
    default="",
    metavar="REGEX",
    shell_complete=complete_topics,
    help="Hold only the source topics that this regular expression matches whole; all by default.",
)
def pause(action: LinkCommand, topics: str) -> int:
    """
    Have the lanes of a link of CONFIG hold at the end of a transaction, until `eomirror resume`.

    Works from any host: the request is a record in the control topic of the link.  A mirror that runs obeys within
    seconds and keeps the link; one that starts later finds the request.  `status`, metrics and page show PAUSED.  The
    source must retain what is not mirrored meanwhile.

    Exit codes: 0 done, 1 failed, 2 no topic matches, 6 the link never ran or is promoted.
    """
    from eomirror.failover import pause as run

    action.confirm("pause")
    found = run(action.config, link=action.link, topics=topics, dry_run=action.dry_run)
    action.show(found.as_dict(), lambda: _draw(found))
    return 0


@click.command(epilog="Example: eomirror resume mirror.yaml --link 'east->west'")
@options.acting
def resume(action: LinkCommand) -> int:
    """
    Have the lanes of a paused link of CONFIG go on at their positions.

    Exit codes: 0 done, also if the link is not paused; 1 failed, 6 the link never ran or is promoted.
    """
    from eomirror.failover import resume as run

    action.confirm("resume")
    found = run(action.config, link=action.link, dry_run=action.dry_run)
    action.show(found.as_dict(), lambda: _draw(found))
    return 0


def _draw(found: PauseReport) -> None:
    console = stdout_console()
    some = ", ".join(found.matching[:5]) + (
        f" and {len(found.matching) - 5} more" if len(found.matching) > 5 else ""  # noqa: PLR2004  as shown
    )
    if found.paused:
        text = f"{found.link}: lanes hold {found.topics} ({some})"
    elif found.before:
        text = f"{found.link}: lanes go on with {found.before} ({some})"
    else:
        text = f"{found.link}: it is not paused"
    console.print(escape(text) + ("" if found.committed else ": nothing was changed"))
