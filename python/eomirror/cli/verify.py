"""``eomirror verify``: whether the copy is the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from eomirror.cli.render import human_count, output_option, print_structured, say, table, wants_table
from eomirror.cli.verify_transactions import audit_transactions
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.audit.verify import LinkVerdict, PartitionVerdict, Scope

__all__ = ["verify"]

_PROGRESS_SECONDS = 2.0


@click.command(epilog="Example: eomirror verify mirror.yaml --topic 'orders.*' -o json")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--link", "links", multiple=True, help="Only this link; may be repeated.")
@click.option("--topic", "topics", metavar="RE", help="Only source topics that this pattern matches whole.")
@click.option("--show", type=click.IntRange(0, 1000), default=10, help="Differences shown per partition.")
@click.option(
    "--plane", type=click.Choice(["auto", "client"]), default="auto", help="client: read through librdkafka."
)
@click.option(
    "--transactions", is_flag=True, help="Audit the link's transactions on the target instead of comparing."
)
@click.option("--at-rest", is_flag=True, help="With --transactions: no mirror runs, so nothing may be open.")
@click.option("-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a setting.")
@output_option
def verify(
    config: str,
    links: tuple[str, ...],
    topics: str | None,
    show: int,
    plane: str,
    transactions: bool,
    at_rest: bool,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Compare what is mirrored with its source: missing, duplicate, reordered, altered, foreign.

    Compares up to the positions that are committed when it starts; what lies behind them is lag.  Reads keys, values,
    headers and timestamps of every record on both sides, and needs no running mirror.  Compacted topics are
    compared by the last record of every key.  Ends with 3 if anything differs.

    With --transactions it reads the target alone, uncommitted and with markers, and shows transaction by
    transaction that records, positions and offset map were decided together, that the positions form one chain, and
    (--at-rest) that nothing is left open.  Ends with 3 if it is not clean.
    """
    from eomirror.audit.verifier import Verifier
    from eomirror.clock import SYSTEM_CLOCK, Deadline
    from eomirror.config import load_config

    if at_rest and not transactions:
        raise UsageError("--at-rest is about transactions", fix="give --transactions with it")
    if transactions and (topics is not None or plane != "auto"):
        raise UsageError(
            "--transactions looks at a whole link, with the native client",
            fix="leave out --topic and --plane",
        )
    loaded = load_config(config, overrides=overrides)
    chosen = [loaded.link(name) for name in links] if links else list(loaded.links)
    if transactions:
        return audit_transactions(loaded, chosen, at_rest=at_rest, output=output)
    due = Deadline(_PROGRESS_SECONDS, SYSTEM_CLOCK)

    def progress(one: Scope, counts: Mapping[str, Any]) -> None:
        nonlocal due
        if due.passed:
            due = Deadline(_PROGRESS_SECONDS, SYSTEM_CLOCK)
            at = counts["source"]["position"]
            say(f"{one.source.topic}-{one.source.partition}: at {at:,} of {one.source.end:,}")

    verdicts = []
    for link in chosen:
        verifier = Verifier(
            link,
            loaded.clusters[link.source],
            loaded.clusters[link.target],
            show=show,
            native=plane == "auto",
        )
        try:
            if verifier.plane == "client":
                say(f"{link.name}: reading through librdkafka, which is slower: {verifier.reason}")
            verdicts.append(verifier.run(topics=topics, progress=progress))
        finally:
            verifier.close()
    if wants_table(output):
        _draw(verdicts)
    else:
        print_structured({"links": [verdict.as_dict() for verdict in verdicts]}, output)
    return 3 if any(verdict.differs for verdict in verdicts) else 0


def _draw(verdicts: list[LinkVerdict]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    for verdict in verdicts:
        colour = "red" if verdict.differs else "green"
        word = "differs" if verdict.differs else "equal"
        console.print(f"[bold]{escape(verdict.link)}[/bold]  [{colour}]{word}[/{colour}]")
        rows = [_row(partition) for partition in verdict.partitions]
        if rows:
            right = tuple(name for name in rows[0] if name not in {"TOPIC", "TARGET", "VERDICT"})
            console.print(table(list(rows[0]), rows, right=right))
        for topic in verdict.waiting:
            console.print(f"not mirrored yet: {escape(topic)}")
        for partition in verdict.partitions:
            where = escape(f"{partition.scope.source.topic}-{partition.scope.source.partition}")
            if partition.scope.problem:
                console.print(f"[red]{where}[/red]: {escape(partition.scope.problem)}")
            for shown in partition.shown:
                parts = f" ({', '.join(shown.parts)})" if shown.parts else ""
                console.print(f"[red]{where}[/red]: {shown.kind}{parts}")
                for side in ("source", "target"):
                    offset, record = getattr(shown, f"{side}_offset"), getattr(shown, side)
                    if offset is not None:
                        console.print(f"  {side} @{offset}: {escape(str(record))}")


def _row(partition: PartitionVerdict) -> dict[str, object]:
    one = partition.scope
    return {
        "TOPIC": one.source.topic,
        "P": one.source.partition,
        "TARGET": one.target.topic,
        "EQUAL": human_count(partition.matched),
        **{kind.upper(): human_count(partition.differences.get(kind)) for kind in
           ("missing", "duplicate", "reordered", "altered", "foreign")},
        "LAG": human_count(one.lag),
        "VERDICT": "differs" if partition.differs else "equal",
    }  # fmt: skip
