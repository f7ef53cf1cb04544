"""`eomirror verify --transactions`: what the log audit of each link found, drawn or as data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from eomirror.cli.render import (
    human_bytes,
    human_count,
    print_structured,
    say,
    stdout_console,
    table,
    wants_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config import Config, Link
    from eomirror.verify.transactions import TransactionAudit

__all__ = ["audit_transactions"]

_PROGRESS_SECONDS = 2.0
# a killed lane's transaction is open until its timeout (15 s by default), if no successor ends it
_SETTLE_SECONDS = 25.0
_MOST_SHOWN = 20


def audit_transactions(config: Config, links: Sequence[Link], *, at_rest: bool, output: str | None) -> int:
    """
    Audit the transactions of links, and write what was found.

    Args:
        config: Where their clusters stand.
        links: The links.
        at_rest: Whether nobody writes to them.
        output: ``table``, ``json``, ``yaml``, or None for what fits stdout.

    Returns:
        The exit code: 3 if anything is wrong, else 0, also where something is not proven.

    Raises:
        DifferenceError: A link never ran.
        MirrorError: A target cannot be reached, or not with the native client.
    """
    audits = [_audit(config, link, at_rest=at_rest) for link in links]
    if wants_table(output):
        _draw(audits)
    else:
        print_structured({"links": [audit.to_json() for audit in audits]}, output)
    return 0 if all(audit.clean for audit in audits) else 3


def _audit(config: Config, link: Link, *, at_rest: bool) -> TransactionAudit:
    from eomirror.clock import SYSTEM_CLOCK, Deadline
    from eomirror.verify.transactions import audit_link

    due = Deadline(_PROGRESS_SECONDS, SYSTEM_CLOCK)

    def progress(read: int, waiting: int) -> None:
        nonlocal due
        if due.passed:
            due = Deadline(_PROGRESS_SECONDS, SYSTEM_CLOCK)
            say(
                f"{link.name}: {human_bytes(read)} read, {waiting:,} parts of transactions not yet put together"
            )

    return audit_link(
        link,
        config.clusters[link.target],
        at_rest=at_rest,
        # whoever waits at a terminal can end it; a size of the log that is too large for it is none
        seconds=math.inf,
        settle=_SETTLE_SECONDS,
        on_progress=progress,
    )


def _draw(audits: Sequence[TransactionAudit]) -> None:
    from rich.markup import escape

    console = stdout_console()
    for audit in audits:
        colour, word = ("green", "clean") if audit.clean else ("red", "not clean")
        extent = "complete" if audit.complete else "not all of it proven"
        console.print(f"[bold]{escape(audit.link)}[/bold]  [{colour}]{word}[/{colour}]  {extent}")
        row = _row(audit)
        console.print(table(list(row), [row], right=tuple(row)))
        for line in _remarks(audit):
            console.print(escape(line))
        if audit.counts:
            counts = [{"FAULT": fault, "COUNT": human_count(count)} for fault, count in audit.counts.items()]
            console.print(table(["FAULT", "COUNT"], counts, right=("COUNT",)))
        for finding in audit.findings[:_MOST_SHOWN]:
            console.print(f"[red]{escape(str(finding))}[/red]")
        left = sum(audit.counts.values()) - _MOST_SHOWN
        if left > 0:
            console.print(f"and {left:,} more; the first 1000 are told with -o json")


def _row(audit: TransactionAudit) -> dict[str, Any]:
    return {
        "TRANSACTIONS": human_count(audit.transactions),
        "RECORDS": human_count(audit.records),
        "POSITIONS": human_count(audit.positions),
        "ADVANCES": human_count(audit.advances),
        "CLAIMS": human_count(audit.claims),
        "ABORTED": human_count(audit.aborted),
        "FOREIGN": human_count(audit.foreign_records),
        "READ": human_bytes(audit.bytes_read),
    }


def _remarks(audit: TransactionAudit) -> list[str]:
    """What the audit cannot say, in words."""
    found = []
    for item in audit.since[:_MOST_SHOWN]:
        name = item.transaction
        found.append(
            f"since: {item.topic}-{item.partition} is audited from source offset {item.offset} on (run {name.run}, "
            f"lane {name.lane}, transaction {name.txn}); compaction has removed older positions"
        )
    if len(audit.since) > _MOST_SHOWN:
        found.append(f"since: and {len(audit.since) - _MOST_SHOWN:,} more partitions")
    if audit.unproven_records:
        found.append(
            f"unproven: {audit.unproven_records:,} records, whose positions compaction may have removed"
        )
    if audit.unproven_positions:
        found.append(
            f"unproven: {audit.unproven_positions:,} positions, whose records or chunks compaction or retention may "
            "have removed, or whose target topic was deleted"
        )
    if audit.unread:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in audit.unread[:_MOST_SHOWN])
        found.append(f"unread: positions name {names}, which the target did not have when the audit began")
    if audit.under_way:
        found.append(
            f"under way: {audit.under_way:,} parts of transactions are not judged, as nobody said --at-rest"
        )
    return found
