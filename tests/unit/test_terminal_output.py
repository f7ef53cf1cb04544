"""Colour, closed pipes, full disks and options, as a shell meets them; no broker."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

from eomirror.cli.app import cli
from eomirror.log import LossyStream, configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BAD = "clusters: {a: {bootstrap.servers: 'x:1'}}\nlinks: [{source: a, target: b, topics: [t]}]\n"
GOOD = """\
clusters: {a: {bootstrap.servers: 'x:1'}, b: {bootstrap.servers: 'x:2'}}
links: [{source: a, target: b, topics: [t]}]
"""
LOG_A_LINE = (
    "import structlog; from eomirror.log import configure_logging; configure_logging();"
    "structlog.get_logger().error('x', n=1); structlog.get_logger().error('y', n=2)"
)


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration without a fault."""
    path = tmp_path / "mirror.yaml"
    path.write_text(GOOD)
    return str(path)


def environment(**changes: str) -> dict[str, str]:
    """Ours, without what other terminals left in it."""
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM"}}
    return {**kept, "TERM": "xterm", **changes}


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The command line."""
    return subprocess.run([sys.executable, "-m", "eomirror", *arguments], timeout=60, check=False, **options)


def on_terminal(program: list[str], **changes: str) -> str:
    """What a program writes on a stderr that is a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *program], stderr=slave, stdout=subprocess.DEVNULL, env=environment(**changes)
    )
    os.close(slave)
    written = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # Linux says so when the last writer has closed
            break
        if not data:
            break
        written += data
    process.wait(60)
    os.close(master)
    return written.decode()


@pytest.mark.parametrize("changes", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("program", [["-m", "eomirror", "status", "/nowhere"], ["-c", LOG_A_LINE]])
def test_colour_can_be_switched_off(program: list[str], changes: dict[str, str]) -> None:
    """NO_COLOR and TERM=dumb hold for errors and for the log; without them a terminal gets colour."""
    assert "\x1b[" in on_terminal(program)
    plain = on_terminal(program, **changes)
    assert plain.strip()
    assert "\x1b" not in plain


def test_a_name_in_the_log_tells_the_terminal_nothing() -> None:
    """A client that may commit for a group chooses its name."""
    program = LOG_A_LINE.replace("n=1", r"group='bill\x1b]0;x\x07ing'")
    text = on_terminal(["-c", program], NO_COLOR="1")
    assert "bill?]0;x?ing" in text
    assert "\x1b" not in text


def test_a_log_on_a_full_disk_ends_nothing() -> None:
    """`2>/dev/full`: every write fails with ENOSPC; the program goes on and ends as it would."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 -- a device, not a file
        done = subprocess.run([sys.executable, "-c", LOG_A_LINE], stderr=full, timeout=60, check=False)
    assert done.returncode == 0


def test_a_log_into_a_closed_pipe_ends_nothing() -> None:
    """`2> >(head -1)`: every write fails with EPIPE."""
    with closed_pipe() as pipe:
        done = subprocess.run([sys.executable, "-c", LOG_A_LINE], stderr=pipe, timeout=60, check=False)
    assert done.returncode == 0


def test_an_error_that_cannot_be_written_keeps_its_exit_code(tmp_path: Path) -> None:
    """The reason is lost, what it was for a script is not."""
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    with open("/dev/full", "w") as full:  # noqa: PTH123 -- a device, not a file
        assert run("check", str(path), "-o", "table", stderr=full).returncode == 78
        assert run("jog", stderr=full).returncode == 2


def test_a_remark_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    """`eomirror cluster down` must not stop at the first cluster because it cannot say that it did."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 -- a device, not a file
        done = run(
            "cluster", "status", "-o", "table", stderr=full, env=environment(EOMIRROR_STATE=str(tmp_path))
        )
    assert done.returncode == 0


SHOW_A_DEMO = """
from types import SimpleNamespace
from contextlib import closing
from eomirror.cli.demo import DemoDisplay, _print_next
from eomirror.demo.report import Picture
from eomirror.localkafka.progress import Step, show_progress
with closing(DemoDisplay()) as display, show_progress() as on_step:
    display.phase("starting"); display.note("seed 7"); display.live(Picture(produced=7, aborted=0, copies=()))
    on_step(Step("fetching", 0, 1)); on_step(Step("fetching", 1, 1))
_print_next(SimpleNamespace(kept=[1], clusters=[], config="mirror.yaml"))
"""


def test_a_demo_that_cannot_say_how_it_goes_goes_on() -> None:
    """`eomirror demo 2>/dev/full`, or into a closed pipe: brokers and mirror must not be left behind half-way."""
    with open("/dev/full", "w") as full, closed_pipe() as pipe:  # noqa: PTH123 -- a device, not a file
        for stream in (full, pipe):
            done = subprocess.run(
                [sys.executable, "-c", SHOW_A_DEMO],
                stdout=subprocess.PIPE,
                stderr=stream,
                timeout=60,
                check=False,
            )
            assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["check", "/nowhere"], 78), (["cluster", "status", "-o", "json"], 0), (["jog"], 2)],
)
def test_a_stderr_that_is_closed_ends_nothing(arguments: list[str], code: int, tmp_path: Path) -> None:
    """`eomirror status 2>&-`: there is no such stream at all, and no other file may take its number."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m eomirror "$@" 2>&-', sys.executable, *arguments],
        stdout=subprocess.PIPE,
        env=environment(EOMIRROR_STATE=str(tmp_path)),
        timeout=60,
        check=False,
    )
    assert done.returncode == code


def test_only_what_cannot_be_written_is_dropped() -> None:
    """A bug in what is written, or a closed stream, is still seen."""
    stream = io.StringIO()
    lossy = LossyStream(stream)
    assert lossy.write("kept") == 4
    assert stream.getvalue() == "kept"
    with pytest.raises(TypeError):
        lossy.write(7)  # type: ignore[arg-type]


def closed_pipe() -> Any:
    """The writing end of a pipe without a reader."""
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "wb")


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_a_closed_pipe_ends_quietly(config: str, form: str) -> None:
    """`eomirror check mirror.yaml | true`: 128 + SIGPIPE as of any program, and not a word."""
    with closed_pipe() as pipe:
        done = run("check", config, "-o", form, stdout=pipe, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_pipe_gets_json_and_stdout_gets_nothing_else(config: str) -> None:
    """The documented default; YAML holds the same values; logs are on stderr."""
    plain = run("check", config, capture_output=True)
    asked = run("check", config, "-o", "yaml", "--log-level", "debug", capture_output=True)
    assert json.loads(plain.stdout) == yaml.safe_load(asked.stdout)
    assert plain.stdout.startswith(b"{")


@pytest.mark.parametrize("place", ["before", "behind"])
def test_the_log_level_stands_before_or_behind_the_command(config: str, place: str) -> None:
    """Both are what people type; a level that does not exist is a usage error in both places."""
    for level, code in (("debug", 0), ("loud", 2)):
        option = ["--log-level", level]
        arguments = [*option, "check", config] if place == "before" else ["check", config, *option]
        assert run(*arguments, capture_output=True).returncode == code


def commands(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, and how it is called."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, *names, name)
    else:
        yield names, command


#: they write a file, answer over HTTP, or print a program
NO_RESULT = {"init", "serve", "completion"}


@pytest.mark.parametrize(("names", "command"), list(commands(cli)))
def test_every_command_has_an_example_and_the_common_options(
    names: tuple[str, ...], command: click.Command
) -> None:
    """`--help` shows one with the command; `--log-level` works everywhere, and `-o` where a result is printed."""
    # a shell evaluates what completion prints
    call = 'eval "$(eomirror completion' if names == ("completion",) else f"eomirror {' '.join(names)}"
    assert f"Example: {call}" in (command.epilog or "")
    parameters = {parameter.name: parameter for parameter in command.params}
    if names[0] in NO_RESULT:
        assert "log_level" in parameters
        return
    assert isinstance(parameters["output"].type, click.Choice)
    assert list(parameters["output"].type.choices) == ["table", "json", "yaml"]
    assert "log_level" in parameters


@pytest.mark.parametrize("group", ["cluster", "offsets"])
def test_an_overview_of_commands_is_not_cut_off(group: str) -> None:
    """Each says in a line what it does."""
    overview = run(group, "--help", stdout=subprocess.PIPE).stdout.decode().partition("Commands:")[2]
    assert overview.strip()
    assert "..." not in overview


def test_the_level_behind_the_command_wins() -> None:
    """It is nearer to what is done."""
    import structlog

    context = cli.make_context(
        "eomirror", ["--log-level", "error", "cluster", "status", "--log-level", "debug"]
    )
    try:
        cli.invoke(context)
        assert structlog.get_logger().bind().get_effective_level() == 10
    finally:
        configure_logging("info")
