"""``eomirror check``: reports every fault of a configuration at once, without connecting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.render import (
    escape,
    human_things,
    print_structured,
    print_table,
    stdout_console,
    wants_table,
)
from eomirror.errors import ConfigError, Fault, MirrorError

if TYPE_CHECKING:
    from eomirror.config import Config, Link

__all__ = ["check"]

_EXAMPLES = 3


def _print_schema(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not context.resilient_parsing:
        from eomirror.config.schema import json_schema

        print_structured(json_schema(), "json")
        context.exit(0)


@click.command(epilog="Example: eomirror check mirror.yaml -s links[0].lanes=4")
@options.config
@options.overrides
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of the configuration and exit.",
)
@options.output()
def check(config: str, overrides: tuple[str, ...], output: str | None) -> int:
    """
    Report every fault of CONFIG, without connecting to a cluster.

    Exit codes: 0 no fault, 78 the configuration is refused.
    """
    from eomirror.config import inspect_config
    from eomirror.kafka.client_check import property_faults

    found = inspect_config(config, overrides=overrides)
    known = {fault.path for fault in found.faults}
    further = property_faults(found.clusters, found.lines)
    faults = [*found.faults, *(fault for fault in further if fault.path not in known)]
    drawn = wants_table(output)
    if found.config is not None and not faults:
        if drawn:
            _draw(found.config)
        else:
            print_structured(_summary(found.config), output)
        return 0
    refused = ConfigError(sorted(faults, key=lambda fault: fault.line), source=config)
    if drawn:
        raise refused
    print_structured({"valid": False, "faults": [_fault(fault) for fault in refused.faults]}, output)
    return refused.exit_code


def _fault(fault: Fault) -> dict[str, Any]:
    return {
        "path": fault.path,
        "line": fault.line or None,
        "message": fault.message,
        "fix": fault.fix or None,
    }


def _summary(config: Config) -> dict[str, Any]:
    from eomirror.config import masked

    return {
        "valid": True,
        "faults": [],
        "warnings": [_fault(warning) for warning in config.warnings],
        "links": [_verdict(link) for link in config.links],
        "unused_clusters": list(config.unused_clusters),
        "config": masked(config),
    }


def _verdict(link: Link) -> dict[str, Any]:
    return {
        "name": link.name,
        "state": link.state_name,
        "topics": list(link.topics),
        "names": _examples(link),
        "provenance": link.provenance_header,
        "why": link.loops.why,
        "partitions": link.partitions,
        "remark": link.remark or None,
        "origins": list(link.origins) if link.origins is not None else None,
    }


def _examples(link: Link) -> dict[str, str]:
    """Returns target names of example topics: literal ones of the configuration, else a placeholder."""
    from eomirror.topology.filters import is_literal
    from eomirror.topology.warnings import sample_topics

    topics = [pattern.replace("\\.", ".") for pattern in link.topics if is_literal(pattern)] or ["TOPIC"]
    if link.naming.kind == "map":
        topics = [old for old, _ in link.naming.names]
    if link.naming.kind == "match":
        topics = [topic for topic in sample_topics(link) if "topic" not in topic]
    found = {}
    for topic in topics[:_EXAMPLES]:
        try:
            found[topic] = link.target_topic(topic)
        except MirrorError:
            continue  # the placeholder need not match; `plan` checks real topics
    return found


def _draw(config: Config) -> None:
    console = stdout_console()
    clusters = [
        {"cluster": cluster.alias, "brokers": cluster.bootstrap_servers}
        for cluster in config.clusters.values()
    ]
    print_table(console, clusters, words=["brokers"])
    rows = []
    for link in config.links:
        verdict = _verdict(link)
        rows.append(
            {
                "link": link.name,
                "topics": ", ".join(link.topics),
                "names": "\n".join(f"{old} -> {new}" for old, new in verdict["names"].items()),
                "lanes": link.lanes,
                "origins": ", ".join(link.origins) if link.origins is not None else "all",
                "header": "on" if link.provenance_header else "off",
            }
        )
    print_table(console, rows, right=["lanes"], optional=["lanes", "header", "origins"])
    for link in config.links:
        header = "added" if link.provenance_header else "not needed"
        console.print(f"{escape(link.name)}: provenance header {header}: {escape(link.loops.why)}")
        if link.remark and link.remark != link.slow:
            console.print(f"{escape(link.name)}: {escape(link.remark)}")
    for alias in config.unused_clusters:
        console.print(f"note: no link uses cluster {escape(alias)}")
    for warning in config.warnings:
        console.print(f"[yellow]warning[/]: {escape(str(warning))}")
    console.print(
        f"[green]ok[/]: {human_things(len(config.clusters), 'cluster')}, "
        f"{human_things(len(config.links), 'link')}, no faults"
    )
