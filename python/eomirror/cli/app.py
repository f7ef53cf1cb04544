"""
The ``eomirror`` command: finds its subcommands lazily, and turns errors into one screen and an exit code.

A subcommand's module is imported when it is called, so that ``--help`` is quick and ``check`` needs no Java.
``--log-level`` and ``--log-format`` stand before or after the command: every command gets them when it is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import os
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
    "offsets": ("eomirror.cli.offsets:offsets", "Say where offsets are on the other side of a link."),
    "import": (
        "eomirror.cli.import_mm2:import_properties",
        "Write MirrorMaker 2's property file as a configuration.",
    ),
    "adopt": ("eomirror.cli.adopt:adopt", "Go on where MirrorMaker 2 stopped, at its next record."),
    "hand-back": ("eomirror.cli.hand_back:hand_back", "Let MirrorMaker 2 go on where a link stopped."),
    "verify": ("eomirror.cli.verify:verify", "Compare what is mirrored with its source."),
    "demo": ("eomirror.cli.demo:demo", "Two clusters, traffic, kill -9 of the mirror, and the proof."),
    "cluster": ("eomirror.cli.cluster:cluster", "Start and stop local Apache Kafka clusters."),
}


#: What a shell reports for a program that a closed pipe ended: 128 + SIGPIPE.
_BROKEN_PIPE = 141


#: What was chosen for the log so far: before the command, then behind it.
_LOG: dict[str, str] = {}


def _set_log(_: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from eomirror.log import configure_logging, forward_logging

        _LOG[str(parameter.name)] = value
        form = _LOG.get("log_format", "auto")
        configure_logging(_LOG.get("log_level", "info"), None if form == "auto" else form)
        forward_logging()


def _log_options(**defaults: str) -> list[click.Option]:
    """The options of the log; ``defaults`` for those that stand before the command."""
    choices = {
        "log_level": (["debug", "info", "warning", "error"], "Lowest level of the log on stderr."),
        "log_format": (
            ["auto", "text", "json"],
            "Form of the log on stderr; auto is text on a terminal, else json.",
        ),
    }
    return [
        click.Option(
            [f"--{name.replace('_', '-')}"],
            type=click.Choice(values),
            help=text,
            expose_value=False,
            callback=_set_log,
            default=defaults.get(name),
            envvar=f"EOMIRROR_{name.upper()}" if defaults else None,
            show_default=bool(defaults),
        )
        for name, (values, text) in choices.items()
    ]


def _accept_log_options(command: click.Command) -> None:
    """Let the log's options stand behind the command too; without one, what stands before the command holds."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _accept_log_options(each)
    elif not any(parameter.name == "log_level" for parameter in command.params):
        command.params += _log_options()


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
        _accept_log_options(command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; the reader of our output may have seen enough, as in ``eomirror status | head -1``."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, SystemExit) as leaving:
            # rich answers a closed pipe with SystemExit(1), raised while it handles the error
            if not isinstance(leaving, BrokenPipeError) and not isinstance(
                leaving.__context__, BrokenPipeError
            ):
                raise
            # what is still in the buffer would be complained about at the interpreter's end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(_BROKEN_PIPE) from None

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
def cli() -> None:
    """Mirror topics between Kafka clusters, transactionally and exactly once."""


cli.params += _log_options(log_level="info", log_format="auto")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; never returns."""
    _stand_in_for_stderr()
    code = _run(arguments)
    try:
        sys.stderr.flush()
    except OSError:
        from eomirror.log import end_stream

        end_stream(sys.stderr)
    sys.exit(code)


def _stand_in_for_stderr() -> None:
    """With ``2>&-`` there is no stderr, and the first file that is opened gets its number, a broker's socket too."""
    if sys.stderr is None:
        number = os.open(os.devnull, os.O_WRONLY)
        os.dup2(number, 2)
        sys.stderr = os.fdopen(2, "w")
        if number != 2:  # noqa: PLR2004  the number of stderr
            os.close(number)


def _run(arguments: list[str] | None) -> int:
    try:
        result: Any = cli.main(args=arguments, standalone_mode=False)
    except MirrorError as error:
        from eomirror.log import printable, wants_colour

        head = click.style("error", fg="red", bold=True) if wants_colour(sys.stderr) else "error"
        # an error that nobody can read is still told by the exit code
        with contextlib.suppress(OSError):
            click.echo(f"{head}: {printable(str(error))}", err=True)
        return error.exit_code
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0
