"""``eomirror apply``: carries out what `plan` shows, without mirroring records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.plan import Planned, change_row, draw_stands, planned, stands
from eomirror.cli.render import escape, print_result, stdout_console

if TYPE_CHECKING:
    from eomirror.config import Config, Link
    from eomirror.errors import MirrorError
    from eomirror.kafka.session import LinkSessions
    from eomirror.topics.discovery import Discovery
    from eomirror.topics.plan import Plan

__all__ = ["apply"]

_DIFFERS = 3
_SEEN_SECONDS = 5.0
_PAUSE_SECONDS = 0.2


@click.command(epilog="Example: eomirror apply mirror.yaml")
@options.config
@options.links
@options.overrides
@options.output()
def apply(config: str, links: tuple[str, ...], overrides: tuple[str, ...], output: str | None) -> int:
    """
    Create, change and delete on the targets of CONFIG what `plan` shows, and mirror no records.

    It does what a run does before its lanes start, and while it runs: topics, partitions, settings, and with the
    settings acls, quotas and deletions ACL entries, client quotas and copies whose topic is gone on the source.  It may
    run beside a mirror.  What is refused for a missing right is named with the command that grants it, and everything
    else is done.  `eomirror events` shows each change.

    Exit codes: 0 all is done, 3 differences stand, 1 a link cannot run, 6 a link is promoted, 78 the configuration is
    refused.
    """
    from eomirror.config import load_config
    from eomirror.errors import MirrorError

    loaded = load_config(config, overrides=overrides)
    chosen = [loaded.link(name) for name in links] if links else list(loaded.links)
    done = [_applied(loaded, link) for link in chosen]

    def draw() -> None:
        console = stdout_console()
        for link, (changed, found) in zip(chosen, done, strict=True):
            head = f"[bold]{escape(link.name)}[/]"
            if isinstance(found, MirrorError):
                if len(done) > 1:
                    console.print(f"{head}: [red]cannot run[/]: {escape(str(found))}")
                continue
            console.print(f"{head}: {len(changed)} changed" if changed else f"{head}: nothing to change")
            for sign, text in changed:
                console.print(escape(f"{sign} {text}"), highlight=False, soft_wrap=True)
            for change in found.plan.entries.diff.changes:
                text = f"{change.sign} {change.text}"
                console.print(f"stands: {escape(text)}", highlight=False, soft_wrap=True)
            draw_stands(found)

    print_result(output, {"links": [_structured(*each) for each in zip(chosen, done, strict=True)]}, draw)
    errors = [found for _, found in done if isinstance(found, MirrorError)]
    if errors and len(done) == 1:
        raise errors[0]
    if errors:
        return max(error.exit_code for error in errors)
    refused = (found for _, found in done if isinstance(found, Planned))
    return _DIFFERS if any(found.plan.pending or found.plan.entries.problems for found in refused) else 0


def _applied(config: Config, link: Link) -> tuple[list[tuple[str, str]], Planned | MirrorError]:
    """Returns sign and text of what was changed, and what stands; or the error that keeps the link from running."""
    from eomirror.link.state import refuse_ended

    changed: list[tuple[str, str]] = []

    def ask(discovery: Discovery, sessions: LinkSessions) -> Plan:
        refuse_ended(link, sessions.target)
        discovery.apply()
        changed.extend(discovery.entries.taken())
        discovery.entries.record(changed, discovery.entries.stands)
        return _seen(discovery)

    [(_, found)] = planned(config, [link], ask)
    return changed, found


def _seen(discovery: Discovery) -> Plan:
    """Returns what stands; brokers take a change up a moment after it was made."""
    from eomirror.clock import SYSTEM_CLOCK, Deadline

    deadline = Deadline(_SEEN_SECONDS)
    plan = discovery.plan()
    kept = discovery.entries.stands
    while plan.pending and not deadline.passed and not (kept and kept.problems):
        SYSTEM_CLOCK.sleep(_PAUSE_SECONDS)
        plan = discovery.plan()
    return plan


def _structured(link: Link, done: tuple[list[tuple[str, str]], Planned | MirrorError]) -> dict[str, Any]:
    from eomirror.errors import MirrorError

    changed, found = done
    head: dict[str, Any] = {
        "name": link.name,
        "changed": [{"sign": sign, "text": text} for sign, text in changed],
    }
    if isinstance(found, MirrorError):
        return {**head, **found.as_dict()}
    return {
        **head,
        "differs": found.plan.pending,
        "stands": [change_row(change) for change in found.plan.entries.diff.changes],
        **stands(found),
    }
