"""``eomirror cluster``: starts and stops local Apache Kafka clusters."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.render import (
    human_bytes,
    human_things,
    print_message,
    print_structured,
    print_table,
    stdout_console,
    wants_table,
)
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.localkafka.registry import ClusterRecord
    from eomirror.localkafka.spec import ClusterSpec

__all__ = ["cluster"]


@click.group(epilog="Example: eomirror cluster up east west")
def cluster() -> None:
    """
    Start and stop local Apache Kafka clusters (KRaft, on 127.0.0.1).

    Requires Java 17 or newer.  The first start downloads Kafka's jars (45 MB); later starts work offline.
    EOMIRROR_CACHE sets the folder of the jars, EOMIRROR_STATE the folder of running clusters.
    KAFKA_JVM_PERFORMANCE_OPTS sets the JVM's collector and compiler, as in Kafka's own scripts.
    """


@cluster.command(epilog="Example: eomirror cluster up east west --port east=19092 -p num.partitions=6")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--brokers", type=click.IntRange(1, 9), default=1, show_default=True, help="Brokers per cluster."
)
@click.option(
    "--kafka-version", default="4.3", show_default=True, help="Version of Apache Kafka: 4.3, 3.9, 3.6 or 3.3."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Store data in DIR/NAME, and keep it after `down`.",
)
@click.option("--heap", default="512m", show_default=True, help="Java heap of each broker.")
@click.option(
    "--port",
    "ports",
    multiple=True,
    metavar="NAME=PORT",
    help="Port of a cluster's first broker; by default a free port.",
)
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Broker property; may be repeated.",
)
@options.output(
    "json or yaml: the running brokers with ports and pids; by default a configuration for these clusters."
)
def up(
    names: tuple[str, ...],
    brokers: int,
    kafka_version: str,
    data_dir: Path | None,
    heap: str,
    ports: tuple[str, ...],
    properties: tuple[str, ...],
    output: str | None,
) -> None:
    """
    Start clusters and print a configuration for them.

    `eomirror cluster up east west > mirror.yaml` writes a configuration for `eomirror run`.  The clusters run until
    `eomirror cluster down`.  A running cluster is left unchanged; a stopped one is restarted on its data.
    """
    from eomirror.localkafka.registry import ClusterRegistry, state_folder
    from eomirror.localkafka.spec import ClusterSpec

    port_of = _pairs(ports, "--port", "NAME=PORT")
    for name, port in port_of.items():
        if name not in names or not port.isdecimal():
            raise UsageError(
                f"--port {name}={port}", fix=f"use NAME=PORT, with one of {', '.join(names)} as NAME"
            )
    specs = [
        ClusterSpec(
            name,
            brokers=brokers,
            kafka_version=kafka_version,
            heap=heap,
            data_dir=data_dir / name if data_dir else None,
            port=int(port_of.get(name, "0")),
            properties=_pairs(properties, "-p", "KEY=VALUE"),
        )
        for name in dict.fromkeys(names)
    ]
    records = _start_all(ClusterRegistry(state_folder()), specs)
    if output in {None, "table"}:
        # the content of a file must not depend on whether stdout is a terminal
        click.echo(_configuration(records), nl=False)
        if len(records) > 1:
            # in the file itself it would ask to save what is saved
            first = "save it as mirror.yaml, then: " if sys.stdout.isatty() else "next: "
            print_message(f"{first}eomirror run {'mirror.yaml' if sys.stdout.isatty() else 'FILE'}")
    else:
        _print_json(records, output)


@cluster.command(
    short_help="Show local clusters, running or stopped.", epilog="Example: eomirror cluster status -o json"
)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@options.output()
def status(names: tuple[str, ...], output: str | None) -> None:
    """Show the local clusters NAME..., running or stopped; all of them without NAME."""
    from eomirror.localkafka.registry import ClusterRegistry, state_folder

    registry = ClusterRegistry(state_folder())
    records = [registry.get(name) for name in names or registry.names()]
    if not wants_table(output):
        _print_json(records, output)
        return
    if not records:
        print_message("no local clusters; start two with: eomirror cluster up east west")
        return
    rows = [
        {
            "cluster": record.name,
            "state": record.state,
            "bootstrap.servers": record.bootstrap_servers,
            "kafka": record.kafka_version,
            "pids": ",".join(str(broker["pid"] or "-") for broker in record.as_dict()["brokers"]),
            "data": record.data_dir,
        }
        for record in records
    ]
    print_table(stdout_console(), rows, whole=("bootstrap.servers", "pids"), optional=("kafka", "pids"))


@cluster.command(epilog="Example: eomirror cluster down --all")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--all", "everything", is_flag=True, help="Stop all local clusters.")
@click.option("--keep-data", is_flag=True, help="Keep the data for the next `up`.")
@click.option("--yes", is_flag=True, help="Do not ask before data is removed.")
@options.output()
def down(names: tuple[str, ...], everything: bool, keep_data: bool, yes: bool, output: str | None) -> None:
    """
    Stop clusters and remove their data.

    On a terminal, names the folders and asks first, unless --yes or --keep-data is given.
    Data in a folder chosen with `up --data-dir` is always kept.
    """
    from eomirror.localkafka.registry import ClusterRegistry, state_folder

    if bool(names) == everything:
        raise UsageError(
            "NAME... and --all were both given" if names else "no cluster was named",
            fix="name clusters, or use --all",
        )
    registry = ClusterRegistry(state_folder())
    chosen = list(dict.fromkeys(names)) or registry.names()
    found = [registry.get(name) for name in chosen]  # refuses an unknown name before any cluster is stopped
    if not (keep_data or yes):
        _confirm([record for record in found if record.ours])
    for name in chosen:
        record = registry.down(name, keep_data=keep_data)
        stays = keep_data or not record.ours
        print_message(f"{name}: stopped, data {f'kept in {record.data_dir}' if stays else 'removed'}")
    if not wants_table(output):
        print_structured({"stopped": chosen}, output)


def _confirm(removed: Sequence[ClusterRecord]) -> None:
    """
    Asks, on a terminal, before the data of these clusters is removed.

    Raises:
        UsageError: The answer was no.
    """
    # a script has decided already: these clusters are for trials and tests
    if not removed or not sys.stdin.isatty():
        return
    folders = [f"{record.name}: {record.data_dir}, {human_bytes(record.data_bytes())}" for record in removed]
    for folder in folders:
        print_message(folder)
    if not click.confirm(f"stop {human_things(len(removed), 'cluster')}, and remove this data?", err=True):
        raise UsageError(
            "nothing was stopped or removed", fix="--keep-data stops clusters and keeps their data"
        )


def _start_all(registry: Any, specs: Sequence[ClusterSpec]) -> list[ClusterRecord]:
    """Starts clusters concurrently; started ones keep running when another fails."""
    from concurrent.futures import ThreadPoolExecutor

    from eomirror.localkafka.jars import class_path
    from eomirror.localkafka.progress import show_progress

    with show_progress() as on_progress:
        class_path(specs[0].kafka_version, on_progress=on_progress)
        with ThreadPoolExecutor(len(specs), thread_name_prefix="cluster-up") as pool:
            started = [pool.submit(registry.up, spec, on_progress=on_progress) for spec in specs]
        return [future.result() for future in started]


def _pairs(values: tuple[str, ...], option: str, form: str) -> dict[str, str]:
    pairs = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not (key and equals):
            raise UsageError(f"{option} {value}", fix=f"write it as {option} {form}")
        pairs[key] = rest
    return pairs


def _print_json(records: Sequence[ClusterRecord], output: str | None) -> None:
    print_structured({"clusters": [record.as_dict() for record in records]}, output)


def _configuration(records: Sequence[ClusterRecord]) -> str:
    """Returns a configuration for these clusters, with the command that stops them as a comment."""
    lines = ["clusters:"]
    lines += [f'  {record.name}: {{bootstrap.servers: "{record.bootstrap_servers}"}}' for record in records]
    names = [record.name for record in records]
    if len(names) > 1:
        lines += ["links:", f'  - {{source: {names[0]}, target: {names[1]}, topics: [".*"]}}']
        lines += [""]
    lines += [f"# stop: eomirror cluster down {shlex.join(names)}"]
    return "\n".join(lines) + "\n"
