"""``eomirror apply``: carries out what `plan` shows, without mirroring records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from eomirror.cli import options
from eomirror.cli.plan import Planned, change_row, draw_stands, planned, stands
from eomirror.cli.render import escape, print_result, stdout_console

if TYPE_CHECKING:
    from eomirror.config import Config, Link
    from eomirror.errors import MirrorError
    from eomirror.kafka.session import LinkSessions
    from eomirror.registry.mirror import SchemasSnapshot
    from eomirror.topics.discovery import Discovery
    from eomirror.topics.plan import Plan

__all__ = ["apply"]

_AWAY, _DIFFERS = 1, 3
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
    settings acls, quotas and deletions ACL entries, client quotas and copies whose topic is gone on the source; with
    schemas, those of both registries.  It may run beside a mirror.  What is refused for a missing right is named with
    the command that grants it, and everything else is done.  `eomirror events` shows each change.

    Exit codes: 0 all is done, 3 differences stand, 1 a link cannot run, or a registry does not answer, 6 a link is
    promoted, 78 the configuration is refused.
    """
    from eomirror.config import load_config
    from eomirror.errors import MirrorError

    loaded = load_config(config, overrides=overrides)
    chosen = loaded.chosen(links)
    done = [_applied(loaded, link) for link in chosen]

    def draw() -> None:
        for link, one in zip(chosen, done, strict=True):
            _draw(link, one, alone=len(done) == 1)

    print_result(output, {"links": [_structured(*each) for each in zip(chosen, done, strict=True)]}, draw)
    errors = [one.found for one in done if isinstance(one.found, MirrorError)]
    if errors and len(done) == 1:
        raise errors[0]
    if errors:
        return max(error.exit_code for error in errors)
    if any(one.schemas is not None and one.schemas.state == "away" for one in done):
        return _AWAY
    return _DIFFERS if any(one.differs or one.refused for one in done) else 0


class _Applied(NamedTuple):
    """
    Result of the command for a link.

    Attributes:
        changed: Sign and text of each change.
        found: What stands, or the error that keeps the link from running.
        schemas: State of the schemas; None if the link mirrors none.
    """

    changed: list[tuple[str, str]]
    found: Planned | MirrorError
    schemas: SchemasSnapshot | None

    @property
    def differs(self) -> bool:
        """True if differences stand, as far as they could be read."""
        schemas = self.schemas is not None and self.schemas.state != "mirrored"
        return schemas or (isinstance(self.found, Planned) and self.found.plan.pending)

    @property
    def refused(self) -> bool:
        """True if something was refused on the target."""
        return isinstance(self.found, Planned) and bool(self.found.plan.entries.problems)


def _applied(config: Config, link: Link) -> _Applied:
    from eomirror.link.state import refuse_ended
    from eomirror.registry.mirror import applied_schemas

    changed: list[tuple[str, str]] = []
    schemas: SchemasSnapshot | None = None

    def ask(discovery: Discovery, sessions: LinkSessions) -> Plan:
        nonlocal schemas
        refuse_ended(link, sessions.target)
        discovery.apply()
        changed.extend(discovery.entries.taken())
        schemas = applied_schemas(link, changed.append)
        discovery.entries.record(changed, discovery.entries.stands)
        return _seen(discovery)

    [(_, found)] = planned(config, [link], ask)
    return _Applied(changed, found, schemas)


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


def _draw(link: Link, done: _Applied, *, alone: bool) -> None:
    from eomirror.errors import MirrorError

    console = stdout_console()
    changed, found, schemas = done
    head = f"[bold]{escape(link.name)}[/]"
    if isinstance(found, MirrorError):
        if not alone:
            console.print(f"{head}: [red]cannot run[/]: {escape(str(found))}")
        return
    console.print(f"{head}: {len(changed)} changed" if changed else f"{head}: nothing to change")
    for sign, text in changed:
        console.print(escape(f"{sign} {text}"), highlight=False, soft_wrap=True)
    for change in found.plan.entries.diff.changes:
        text = f"{change.sign} {change.text}"
        console.print(f"stands: {escape(text)}", highlight=False, soft_wrap=True)
    draw_stands(found)
    if schemas is not None and schemas.problem:
        text = f"{schemas.state}: {schemas.problem}" + (f"\n  fix: {schemas.fix}" if schemas.fix else "")
        console.print(f"[yellow]schemas[/]: {escape(text)}", highlight=False, soft_wrap=True)


def _structured(link: Link, done: _Applied) -> dict[str, Any]:
    from dataclasses import asdict

    from eomirror.errors import MirrorError

    changed, found, schemas = done
    head: dict[str, Any] = {
        "name": link.name,
        "changed": [{"sign": sign, "text": text} for sign, text in changed],
    }
    if isinstance(found, MirrorError):
        return {**head, **found.as_dict()}
    return {
        **head,
        "differs": done.differs,
        "stands": [change_row(change) for change in found.plan.entries.diff.changes],
        **stands(found),
        **({} if schemas is None else {"schemas": asdict(schemas)}),
    }
