"""The files under deploy/ name commands, options, paths and exit codes that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click

from eomirror import errors
from eomirror.cli.app import cli

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "systemd" / "eomirror@.service").read_text()
CONTAINER = (DEPLOY / "container" / "Containerfile").read_text()


def command(name: str) -> click.Command:
    """A command of eomirror."""
    assert isinstance(cli, click.Group)
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, name
    return found


def options_of(name: str) -> set[str]:
    """The options that a command takes."""
    return {option for parameter in command(name).params for option in parameter.opts}


def test_the_unit_runs_commands_that_exist() -> None:
    """Each eomirror command of the unit exists, and takes a file."""
    called = re.findall(r"^Exec\w+=\S+/eomirror (\S+) \S+$", UNIT, re.MULTILINE)
    assert called == ["check", "run"]
    assert all("config" in {parameter.name for parameter in command(name).params} for name in called)


def test_the_unit_restarts_only_what_a_restart_can_mend() -> None:
    """No restart after the exit codes of usage, data loss, another owner and a refused configuration; one after 1."""
    kept = {int(code) for code in re.findall(r"RestartPreventExitStatus=(.*)", UNIT)[0].split()}
    fatal = {errors.UsageError, errors.DataLossError, errors.SupersededError, errors.ConfigError}
    assert {error.exit_code for error in fatal} <= kept
    assert errors.MirrorError.exit_code not in kept
    assert kept - {error.exit_code for error in fatal} <= {6}, "6 is the failover verbs' code of contract.md"


def test_the_image_copies_files_that_exist_and_installs_by_hash() -> None:
    """Every COPY from the checkout has its source; nothing is installed that the lock does not name."""
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINER, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert "deploy/container/requirements.txt" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert "--require-hashes" in CONTAINER
    assert "--no-deps" in CONTAINER


def test_the_locks_agree() -> None:
    """The image runs the releases that the tests run with."""
    pins = {
        name: dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.txt", "deploy/container/requirements.txt")
    }
    every, run = pins.values()
    assert {"confluent-kafka", "pyspark", "orjson", "structlog"} <= set(run)
    assert {name: every.get(name) for name in run} == run
    assert not {"mypy", "ruff", "pytest"} & set(run)
