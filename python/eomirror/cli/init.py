"""``eomirror init``: writes a commented configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli.render import print_message
from eomirror.errors import MirrorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["init"]


def _cluster_option(name: str, default: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name}",
        metavar="ALIAS=HOST:PORT[,...]",
        default=default,
        show_default=True,
        help=f"Alias and bootstrap brokers of the {name} cluster.",
    )


@click.command(epilog="Example: eomirror init mirror.yaml --source east=k1:9092 --target west=k2:9092")
@click.argument("file", default="mirror.yaml", type=click.Path(dir_okay=False, allow_dash=True))
@_cluster_option("source", "east=127.0.0.1:19092")
@_cluster_option("target", "west=127.0.0.1:29092")
@click.option(
    "--topics",
    metavar="RE",
    multiple=True,
    default=(".*",),
    show_default=True,
    help="Source topics to mirror; may be repeated.",
)
@click.option(
    "--naming",
    type=click.Choice(["prefix", "identity"]),
    default="prefix",
    show_default=True,
    help="prefix: orders becomes ALIAS.orders on the target; identity: it keeps its name.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def init(*, file: str, source: str, target: str, topics: tuple[str, ...], naming: str, force: bool) -> int:
    """
    Write a configuration with one link, and every setting as a comment with its default, to FILE.

    FILE is mirror.yaml by default; - writes to standard output.

    Exit codes: 0 written, 1 FILE cannot be written, 2 FILE exists or an option is wrong, 78 a value is refused.
    """
    import yaml

    from eomirror.config import load_config
    from eomirror.config.template import Starter, starter_configuration

    starter = Starter(
        source=_cluster("--source", source),
        target=_cluster("--target", target),
        topics=topics,
        naming=naming,
        file="mirror.yaml" if file == "-" else file,
    )
    text = starter_configuration(starter)
    load_config(yaml.safe_load(text))
    if file == "-":
        click.echo(text, nl=False)
        return 0
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(f"{file} exists", fix="name another file, or overwrite it with --force") from None
    except OSError as error:
        raise MirrorError(
            f"{file} cannot be written: {error.strerror}", fix="name a file in a folder that you may write"
        ) from None
    print_message(f"{file} written; next: eomirror check {file}")
    return 0


def _cluster(option: str, value: str) -> tuple[str, str]:
    alias, equals, brokers = value.partition("=")
    if not (alias and equals and brokers):
        raise UsageError(
            f"{option} {value}: no alias and brokers", fix=f"write {option} east=kafka-east:9092"
        )
    return alias, brokers
