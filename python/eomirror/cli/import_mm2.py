"""``eomirror import``: converts a MirrorMaker 2 property file to YAML."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from eomirror.cli import options
from eomirror.cli.render import print_message, print_structured
from eomirror.errors import UsageError

__all__ = ["import_properties"]

_REFUSED = 78


@click.command("import", epilog="Example: eomirror import mm2.properties > mirror.yaml")
@click.argument("properties", type=click.Path(dir_okay=False, path_type=Path))
@options.output()
def import_properties(properties: Path, output: str | None) -> int:
    """
    Convert MirrorMaker 2's PROPERTIES to a configuration for `run`, written to stdout as YAML.

    Properties without a counterpart are listed with the reason, on stderr and as comments.  Secrets are not written:
    the configuration refers to environment variables instead.

    Exit codes: 0 done, 78 a property without a counterpart decides which records are mirrored or how a cluster is
    reached; the YAML is written nevertheless.
    """
    from eomirror.config.java_properties import decode_properties
    from eomirror.config.mm2_properties import import_mm2

    try:
        data = properties.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{properties} cannot be read: {error.strerror}", fix="name MirrorMaker 2's property file"
        ) from error
    found = import_mm2(decode_properties(data), keep_secrets=False)
    lines = [f"# from {properties.name}"]
    lines += [f"# set {name}: the secret of {key}" for name, key in found.variables.items()]
    for item in found.not_honoured:
        mark = "NOT HONOURED" if item.grave else "not honoured"
        where = f"line {item.line}" if item.line else "by default"
        lines.append(f"# {mark}: {item.key} ({where}): {item.reason}")
    for line in lines[1:]:
        print_message(_printable(line.removeprefix("# ")))
    if output == "json":
        not_honoured = [asdict(item) for item in found.not_honoured]
        print_structured(
            {"config": found.settings, "not_honoured": not_honoured, "variables": found.variables}, output
        )
    else:
        _write(lines, found.settings)
    return _REFUSED if any(item.grave for item in found.not_honoured) else 0


def _write(lines: list[str], settings: dict[str, Any]) -> None:
    import yaml

    click.echo("\n".join(map(_printable, lines)))
    click.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), nl=False)


def _printable(line: str) -> str:
    """Replaces characters of a foreign file that a terminal could interpret."""
    return "".join(c if c.isprintable() else "?" for c in line)
