"""``eomirror verify --transactions``: runs the transaction audit of each link and writes its findings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from eomirror.cli.render import (
    escape,
    human_bytes,
    human_count,
    print_message,
    print_result,
    print_table,
    stdout_console,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config import Config, Link
    from eomirror.verify.transactions import TransactionAudit

__all__ = ["audit_transactions"]

_PROGRESS_SECONDS = 2.0
# a killed lane's transaction stays open until its timeout (15 s by default), if no successor aborts it
_SETTLE_SECONDS = 25.0
_MOST_SHOWN = 20


def audit_transactions(config: Config, links: Sequence[Link], *, at_rest: bool, output: str | None) -> int:
    """
    Audits the transactions of links and writes the findings.

    Args:
        config: Configuration with the links' clusters.
        links: Links to audit; those that place records by key are named and left out where there are others.
        at_rest: True if no mirror writes to the targets, so that an open transaction is a fault.
        output: ``table``, ``json``, ``yaml``, or None for a table on a terminal and JSON elsewhere.

    Returns:
        The exit code: 3 if a fault was found, else 0, also if the audit cannot prove everything.

    Raises:
        DifferenceError: A link never ran.
        UsageError: All links place records by key.
        MirrorError: A target cannot be reached, or not with the native client.
    """
    from eomirror.config.model import require_mapped

    mapped = [link for link in links if not link.keyed]
    require_mapped(() if mapped else links)
    for link in links:
        if link.keyed:
            print_message(f"{link.name}: not audited, because it places records by key (partitions: keyed)")
    audits = [_audit(config, link, at_rest=at_rest) for link in mapped]
    print_result(output, {"links": [audit.to_json() for audit in audits]}, lambda: _draw(audits))
    return 0 if all(audit.clean for audit in audits) else 3


def _audit(config: Config, link: Link, *, at_rest: bool) -> TransactionAudit:
    from eomirror.screen import LiveOutput
    from eomirror.verify.transactions import audit_link

    with LiveOutput(line_seconds=_PROGRESS_SECONDS, draw_seconds=_PROGRESS_SECONDS, at_once=False) as output:
        return audit_link(
            link,
            config.clusters[link.target],
            at_rest=at_rest,
            # no time limit: the user can interrupt the audit, however large the log is
            seconds=math.inf,
            settle=_SETTLE_SECONDS,
            on_progress=lambda read, waiting: output.show_line(
                lambda: (
                    f"{link.name}: {human_bytes(read)} read, {waiting:,} parts of transactions not yet matched"
                )
            ),
        )


def _draw(audits: Sequence[TransactionAudit]) -> None:
    console = stdout_console()
    for audit in audits:
        colour, word = ("green", "clean") if audit.clean else ("red", "not clean")
        extent = "complete" if audit.complete else "not all of it proven"
        console.print(f"[bold]{escape(audit.link)}[/bold]  [{colour}]{word}[/{colour}]  {extent}")
        row = _row(audit)
        print_table(console, [row], right=tuple(row))
        for line in _remarks(audit):
            console.print(escape(line))
        counts = [{"FAULT": fault, "COUNT": human_count(count)} for fault, count in audit.counts.items()]
        print_table(console, counts, right=("COUNT",))
        for finding in audit.findings[:_MOST_SHOWN]:
            console.print(f"[red]{escape(str(finding))}[/red]")
        left = sum(audit.counts.values()) - _MOST_SHOWN
        if left > 0:
            console.print(f"and {left:,} more; -o json shows the first 1000")


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
    """Returns remarks about the limits of the audit."""
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
            f"unproven: {audit.unproven_positions:,} positions, whose records or offset-map chunks compaction or "
            "retention may have removed, or whose target topic was deleted"
        )
    if audit.unread:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in audit.unread[:_MOST_SHOWN])
        found.append(
            f"unread: positions name {names}, which did not exist on the target when the audit began"
        )
    if audit.under_way:
        found.append(
            f"under way: {audit.under_way:,} parts of open transactions are not judged without --at-rest"
        )
    return found
