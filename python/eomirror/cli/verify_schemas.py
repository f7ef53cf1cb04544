"""``eomirror verify --schemas``: compares the schemas that copied records name at both registries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.cli.render import escape, human_count, print_result, print_table, stdout_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config import Config, Link
    from eomirror.verify.schemas import SchemaVerdicts

__all__ = ["verify_schemas"]

_PROGRESS_SECONDS = 2.0
_MOST_SHOWN = 20


def verify_schemas(config: Config, links: Sequence[Link], *, topics: str | None, output: str | None) -> int:
    """
    Compares the schema ids of all copied records, and writes the result.

    Args:
        config: Configuration with the links' clusters.
        links: Links to compare.
        topics: Only source topics that this regular expression matches whole.
        output: ``table``, ``json``, ``yaml``, or None for a table on a terminal and JSON elsewhere.

    Returns:
        The exit code: 3 if an id does not resolve to the same schema, else 0.

    Raises:
        UsageError: A link names no registries.
        MirrorError: A cluster or a registry cannot be reached.
    """
    from eomirror.screen import LiveOutput
    from eomirror.verify.schemas import verify_schema_ids

    found: list[SchemaVerdicts] = []
    with LiveOutput(line_seconds=_PROGRESS_SECONDS, draw_seconds=_PROGRESS_SECONDS, at_once=False) as live:
        for link in links:
            found.append(  # noqa: PERF401  each is shown while it is read
                verify_schema_ids(
                    config,
                    link,
                    topics=topics,
                    on_progress=lambda read, name=link.name: live.show_line(  # type: ignore[misc]
                        lambda: f"{name}: {read:,} records read"
                    ),
                )
            )
    print_result(output, {"links": [one.as_dict() for one in found]}, lambda: _draw(found))
    return 3 if any(one.differs for one in found) else 0


def _draw(found: Sequence[SchemaVerdicts]) -> None:
    console = stdout_console()
    for verdict in found:
        colour, word = ("red", "differs") if verdict.differs else ("green", "equal")
        console.print(
            f"[bold]{escape(verdict.link)}[/bold]  [{colour}]{word}[/{colour}]  "
            f"{len(verdict.ids)} schema ids in {human_count(verdict.records)} records"
        )
        # what differs first
        rows = sorted(verdict.ids, key=lambda one: (one.outcome == "equal", one.outcome == "unknown"))
        print_table(
            console,
            [
                {
                    "ID": one.schema_id,
                    "OUTCOME": one.outcome,
                    "RECORDS": human_count(one.records),
                    "TOPICS": ", ".join(one.topics[:3]) + (" ..." if len(one.topics) > 3 else ""),  # noqa: PLR2004  shown
                }
                for one in rows[:_MOST_SHOWN]
            ],
            right=("ID", "RECORDS"),
        )
        if (more := len(rows) - _MOST_SHOWN) > 0:
            console.print(f"and {more:,} more; -o json shows all")
        if any(one.outcome == "unknown" for one in rows):
            console.print(
                "unknown: the source's registry does not know the id: the record may have no schema, or its schema was "
                "deleted permanently"
            )
