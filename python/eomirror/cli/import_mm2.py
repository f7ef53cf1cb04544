"""``eomirror import``: converts the configuration of another mirror to YAML."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options as shared
from eomirror.cli.render import print_message, print_structured
from eomirror.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.config.mm2_properties import Imported
    from eomirror.convert.mirrormaker1 import MirrorMakerOptions

__all__ = ["import_files"]

_REFUSED = 78
_FILE = click.Path(dir_okay=False, path_type=Path)
# options of MirrorMaker 1 and Go MirrorMaker beside the files and the filter, with their help; by their names there
_OPTIONS = {
    "num.streams": "Not used: lanes read.",
    "num.producers": "Becomes `lanes`.",
    "preserve.partitions": "Always so, unless false: placed by key.",
    "preserve.order": "Always so.",
    "prefix": "Go's prefix of topics on the target; becomes `naming`.",
    "queue.size": "Not used: memory bounds what is read.",
    "max.procs": "Not used.",
    "schema.registry.url": "Refused: records are copied byte by byte.",
    "abort.on.send.failure": "Always so; false is refused.",
    "message.handler": "Refused: records are mirrored unchanged.",
    "message.handler.args": "Refused with --message.handler.",
    "consumer.rebalance.listener": "Not used: there is no consumer group.",
    "rebalance.listener.args": "Not used: there is no consumer group.",
    "offset.commit.interval.ms": "Not used: positions are committed with the records.",
    "new.consumer": "Not used.",
}
_SWITCHES = ("preserve.partitions", "preserve.order", "new.consumer")


def _mirrormaker_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options of MirrorMaker 1 and Go MirrorMaker, in the order of ``_OPTIONS``."""
    for name, text in reversed(_OPTIONS.items()):
        switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if name in _SWITCHES else {}
        metavar = "[true|false]" if name in _SWITCHES else "VALUE"
        command = click.option(f"--{name}", name.replace(".", "_"), metavar=metavar, help=text, **switch)(
            command
        )
    return command


@click.command(
    "import",
    epilog="Example: eomirror import mm2.properties > mirror.yaml; "
    "eomirror import --consumer.config source.properties --producer.config target.properties --whitelist 'orders.*'",
)
@click.argument("files", nargs=-1, type=_FILE)
@click.option(
    "--consumer.config", "consumer_config", multiple=True, type=_FILE, help="A source; may be repeated."
)
@click.option("--producer.config", "producer_config", type=_FILE, help="The target.")
@click.option("--whitelist", help="Expression of topics to mirror.")
@click.option("--include", help="The same, by its later name in Kafka.")
@click.option("--blacklist", help="Expression of topics to leave out.")
@click.option(
    "--from",
    "program",
    type=click.Choice(["mirrormaker1", "go-mirrormaker"]),
    help="The program whose options these are, if they do not show it.",
)
@_mirrormaker_options
@shared.output()
def import_files(
    files: tuple[Path, ...],
    consumer_config: tuple[Path, ...],
    producer_config: Path | None,
    whitelist: str | None,
    include: str | None,
    blacklist: str | None,
    program: str | None,
    output: str | None,
    **others: str | None,
) -> int:
    """
    Convert FILES to a configuration for `run`, written to stdout as YAML.

    FILES is MirrorMaker 2's property file, one or more connectors of MirrorMaker 2 (JSON of Connect's REST interface,
    or .properties), or Strimzi's resource KafkaMirrorMaker2.  In place of FILES, the options of Kafka's MirrorMaker 1
    or of Go MirrorMaker can be given.

    Settings without a counterpart are listed with the reason, on stderr and as comments.  Secrets are not written: the
    configuration refers to environment variables instead.

    Exit codes: 0 done, 2 usage, 78 refused: a file is none of these, or a setting without a counterpart decides
    which records are mirrored or how a cluster is reached.  Nothing is written then.
    """
    given = {name.replace("_", "."): value for name, value in others.items() if value is not None}
    options = (consumer_config, producer_config, whitelist, include, blacklist, program, given)
    if files and any(options):
        raise UsageError(
            "FILES and options of MirrorMaker 1 exclude each other",
            fix="name the client files with --consumer.config and --producer.config only",
        )
    if files:
        names = ", ".join(each.name for each in files)
        found = _of_files(files)
    else:
        from eomirror.convert.mirrormaker1 import MirrorMakerOptions

        if not any(options):
            raise UsageError(
                "no file is named", fix="eomirror import mm2.properties, or see eomirror import --help"
            )
        names = ", ".join(each.name for each in (*consumer_config, *filter(None, [producer_config])))
        found = _of_options(
            MirrorMakerOptions(
                program=program or "",
                consumers=tuple(map(_client_file, consumer_config)),
                producer=_client_file(producer_config) if producer_config else None,
                whitelist=whitelist,
                blacklist=blacklist,
                include=include,
                others=given,
            )
        )
    return _show(names, found, output)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", fix="name the other mirror's configuration file"
        ) from error


def _client_file(path: Path) -> Any:
    from eomirror.convert.mirrormaker1 import ClientFile

    return ClientFile(path.name, _read(path))


def _of_files(files: tuple[Path, ...]) -> Imported:
    from eomirror.convert.recognize import ForeignFile, convert_files

    return convert_files([ForeignFile(path.name, _read(path)) for path in files])


def _of_options(options: MirrorMakerOptions) -> Imported:
    from eomirror.convert.mirrormaker1 import convert_mirrormaker

    return convert_mirrormaker(options)


def _show(names: str, found: Imported, output: str | None) -> int:
    """Writes the result; returns the exit code."""
    refused = any(item.grave for item in found.not_honoured)
    lines = [f"# from {names}"]
    if not refused:
        _check(names, found)
        lines += [f"# set {name}: {_secret(key)}" for name, key in found.variables.items()]
    for item in found.not_honoured:
        mark = "REFUSED" if item.grave else "not honoured"
        where = f" (line {item.line})" if item.line else ""
        lines.append(f"# {mark}: {item.key}{where}: {item.reason}")
    for line in lines[1:]:
        print_message(_printable(line.removeprefix("# ")))
    if output == "json":
        not_honoured = [{**asdict(item), "grave": item.grave} for item in found.not_honoured]
        config = None if refused else found.settings
        print_structured(
            {"config": config, "not_honoured": not_honoured, "variables": found.variables}, output
        )
    elif not refused:
        _write(lines, found.settings)
    if refused:
        print_message(
            "nothing is written: without what is refused, other records would be mirrored, or a cluster not reached"
        )
    return _REFUSED if refused else 0


def _secret(key: str) -> str:
    return key if key.startswith("key ") else f"the secret of {key}"


def _check(names: str, found: Imported) -> None:
    """Raises the faults of the configuration, if it has any: a file that `check` refuses is not worth writing."""
    import json

    from eomirror.config import load_config

    # the references are checked where the configuration runs: variables and files may not exist here
    text = re.sub(r"\$\{(env|file):[^}]*\}", "secret", json.dumps(found.settings))
    try:
        load_config(json.loads(text))
    except ConfigError as error:
        raise ConfigError(error.faults, source=names) from None


def _write(lines: list[str], settings: dict[str, Any]) -> None:
    import yaml

    click.echo("\n".join(map(_printable, lines)))
    click.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), nl=False)


def _printable(line: str) -> str:
    """Replaces characters of a foreign file that a terminal could interpret."""
    return "".join(c if c.isprintable() else "?" for c in line)
