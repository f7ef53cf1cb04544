"""
The ``eomirror`` command: imports subcommands lazily and turns errors into a message and an exit code.

A subcommand's module is imported when it is called, so that ``--help`` is quick and ``check`` needs no Java.
``--log-level`` and ``--log-format`` are accepted before or after the command: each command gets them at its import.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import sys
from typing import Any

import click

from eomirror.errors import MirrorError

__all__ = ["cli", "main"]

#: heading of the overview -> name -> (module:attribute, one line)
_GROUPS = {
    "Mirror": {
        "init": ("eomirror.cli.init:init", "Write a commented configuration."),
        "check": ("eomirror.cli.check:check", "Report every fault of a configuration, without connecting."),
        "plan": ("eomirror.cli.plan:plan", "Show what `run` would create, change and delete on the target."),
        "apply": ("eomirror.cli.apply:apply", "Carry out what `plan` shows, without mirroring records."),
        "run": ("eomirror.cli.run:run", "Mirror until stopped, until caught up, or for a given time."),
        "backfill": (
            "eomirror.cli.backfill:backfill",
            "Copy the past of links with many lanes, then leave them to `run`.",
        ),
        "pause": ("eomirror.cli.pause:pause", "Have the lanes of a link hold at their positions."),
        "resume": ("eomirror.cli.pause:resume", "Have the lanes of a paused link go on."),
    },
    "Look": {
        "status": (
            "eomirror.cli.status:status",
            "Show lag, rate and problems of links from the target's topics.",
        ),
        "lag": ("eomirror.cli.lag:lag", "Show the lag of topics or partitions, the largest first."),
        "top": ("eomirror.cli.lag:top", "Watch links, their verdicts, and the topics that lag most."),
        "events": ("eomirror.cli.events:events", "Show what happened to links, from the target's topics."),
        "serve": ("eomirror.cli.serve:serve", "Serve a page and metrics of links, from the target's topics."),
        "verify": ("eomirror.cli.verify:verify", "Compare mirrored records with their source."),
    },
    "Move consumers": {
        "offsets": ("eomirror.cli.offsets:offsets", "Translate consumer group offsets between clusters."),
        "checkpoint": (
            "eomirror.cli.checkpoint:checkpoint",
            "Move streaming queries of Spark between clusters.",
        ),
    },
    "Disaster recovery": {
        "readiness": (
            "eomirror.cli.failover:readiness",
            "Show what a failover would find and lose now.",
        ),
        "failover": ("eomirror.cli.failover:failover", "Promote the copies of a link whose source is gone."),
        "cutover": (
            "eomirror.cli.cutover:cutover",
            "Stop the producers, drain, verify, and promote; nothing is lost.",
        ),
        "promote": (
            "eomirror.cli.failover:promote",
            "Promote copies whose source is silent; nothing is lost.",
        ),
        "reverse": ("eomirror.cli.failover:reverse", "Start the link back of a promoted link at the cut."),
        "restore": (
            "eomirror.cli.restore:restore",
            "Deal with records of the old source that have no copy.",
        ),
        "failback": ("eomirror.cli.cutover:failback", "Return to the old source, without loss."),
        "history": ("eomirror.cli.failover:history", "Show the promotions of a link."),
        "fence": ("eomirror.cli.cutover:fence", "Stop the applications that write to the source of a link."),
        "unfence": ("eomirror.cli.cutover:unfence", "Undo the fence of a link."),
        "drill": ("eomirror.cli.drill:drill", "Lose a local cluster, fail over and return, with evidence."),
    },
    "Migrate": {
        "import": ("eomirror.cli.import_mm2:import_files", "Convert the configuration of another mirror."),
        "adopt": ("eomirror.cli.mm2:adopt", "Take over from MirrorMaker 2, at its next record."),
        "hand-back": ("eomirror.cli.mm2:hand_back", "Return a link to MirrorMaker 2, at its next record."),
    },
    "Try": {
        "demo": ("eomirror.cli.demo:demo", "Mirror between two local clusters, kill -9 the mirror, compare."),
        "cluster": ("eomirror.cli.cluster:cluster", "Start and stop local Apache Kafka clusters."),
        "completion": ("eomirror.cli.completion:completion", "Print the completion script of a shell."),
    },
}
_COMMANDS = {name: command for group in _GROUPS.values() for name, command in group.items()}


#: The exit code that shells report for a program killed by a closed pipe: 128 + SIGPIPE.
_BROKEN_PIPE = 141


#: Log options given so far: before the command, then after it.
_LOG: dict[str, str] = {}


def _set_log(_: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from eomirror.log import configure_logging, forward_logging

        _LOG[str(parameter.name)] = value
        form = _LOG.get("log_format", "auto")
        configure_logging(_LOG.get("log_level", "info"), None if form == "auto" else form)
        forward_logging()


def _log_options(**defaults: str) -> list[click.Option]:
    """Returns the log options, with ``defaults`` for those before the command."""
    choices = {
        "log_level": (["debug", "info", "warning", "error"], "Lowest level of the log on stderr."),
        "log_format": (
            ["auto", "text", "json"],
            "Format of the log on stderr; auto is text on a terminal, else json.",
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
    """Adds the log options to a command; without one, the option before the command applies."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _accept_log_options(each)
    elif not any(parameter.name == "log_level" for parameter in command.params):
        command.params += _log_options()


class _LazyGroup(click.Group):
    """A command group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names, in the order in which a new user needs them."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a command")
        _accept_log_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds a command; the error for a misspelled one names those that it may have meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # click suggests commands that it has imported, and of these there are none
            near = difflib.get_close_matches(args[0], _COMMANDS)
            if not near or "Did you mean" in error.format_message():
                raise
            meant = f"Did you mean {' or '.join(map(repr, near))}?"
            raise click.UsageError(f"{error.format_message()} {meant}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; exits with 141 if the reader closes the pipe, as in ``eomirror status | head -1``."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, SystemExit) as leaving:
            # rich raises SystemExit(1) while it handles the error of a closed pipe
            if not isinstance(leaving, BrokenPipeError) and not isinstance(
                leaving.__context__, BrokenPipeError
            ):
                raise
            # the interpreter would report the unwritten buffer at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(_BROKEN_PIPE) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        del ctx
        for heading, group in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (_, line) in group.items()])


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
    """Runs the command line; never returns."""
    _replace_closed_stderr()
    if "_EOMIRROR_COMPLETE" in os.environ:
        importlib.import_module("eomirror.cli.completion").quote_names_in_bash()
    code = _run(arguments)
    try:
        sys.stderr.flush()
    except OSError:
        from eomirror.log import end_stream

        end_stream(sys.stderr)
    sys.exit(code)


def _replace_closed_stderr() -> None:
    """Opens /dev/null as stderr after ``2>&-``: else the next opened file, even a socket, would get number 2."""
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
        # the exit code reports the error even if stderr cannot be written
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
