"""
The ``eomirror`` command: finds its subcommands lazily, and turns errors into one screen and an exit code.

A subcommand's module is imported when it is called, so that ``--help`` is quick and ``check`` needs no Java.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from eomirror.errors import MirrorError

__all__ = ["cli", "main"]

#: name -> (module:attribute, one line for the overview)
_COMMANDS = {
    "run": ("eomirror.cli.run:run", "Mirror until stopped, caught up, or a time has passed."),
    "check": ("eomirror.cli.check:check", "Report every fault of a configuration; connects to nothing."),
    "plan": ("eomirror.cli.plan:plan", "Connect and show what would be created or changed."),
    "status": ("eomirror.cli.status:status", "Show where every link stands, from the target's topics alone."),
    "demo": ("eomirror.cli.demo:demo", "Two clusters, traffic, kill -9 of the mirror, and the proof."),
    "cluster": ("eomirror.cli.cluster:cluster", "Start and stop local Apache Kafka clusters."),
}


class _LazyGroup(click.Group):
    """A group whose commands are modules that are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which a newcomer needs them."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: eomirror demo",
)
@click.version_option(package_name="eomirror")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    envvar="EOMIRROR_LOG_LEVEL",
    show_default=True,
    help="Lowest level of the log on stderr.",
)
def cli(log_level: str) -> None:
    """Mirror topics between Kafka clusters, transactionally and exactly once."""
    from eomirror.log import configure_logging

    configure_logging(log_level)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; never returns."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        result: Any = cli.main(args=arguments, standalone_mode=False)
    except MirrorError as error:
        click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
        return error.exit_code
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader of our output has seen enough, as in `eomirror status | head -1`
        sys.stderr.close()
        return 141
    return result if isinstance(result, int) else 0
