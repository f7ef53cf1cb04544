"""The files under deploy/ name commands, options, paths and exit codes that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from eomirror import errors
from eomirror.cli.app import cli

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "systemd" / "eomirror@.service").read_text()
PAGE_UNIT = (DEPLOY / "systemd" / "eomirror-serve@.service").read_text()
CONTAINER = (DEPLOY / "container" / "Containerfile").read_text()
SYSTEMD = shutil.which("systemd-analyze")


def command(name: str) -> click.Command:
    """A command of eomirror."""
    assert isinstance(cli, click.Group)
    found = cli.get_command(click.Context(cli), name)
    assert found is not None, name
    return found


def options_of(name: str) -> set[str]:
    """The options that a command takes."""
    return {option for parameter in command(name).params for option in parameter.opts}


def test_the_unit_runs_a_command_that_exists() -> None:
    """It is the main process alone: exit codes of ExecStartPre= do not count for RestartPreventExitStatus=."""
    started = re.findall(r"^(Exec\w+)=\S+/eomirror (\S+) \S+ (.*)$", UNIT, re.MULTILINE)
    assert started == [("ExecStart", "run", "$EOMIRROR_ARGS")]
    assert len(re.findall(r"^Exec", UNIT, re.MULTILINE)) == 1
    assert "config" in {parameter.name for parameter in command("run").params}
    given = re.findall(r"EOMIRROR_ARGS=(--[a-z-]+)", UNIT)
    assert given
    assert set(given) <= options_of("run")


def test_the_unit_of_the_page_runs_a_command_that_exists() -> None:
    """It stands beside the mirror's, of the same user and with the same hardening."""
    assert re.findall(r"^Exec\w+=\S+/eomirror (\S+) \S+ (.*)$", PAGE_UNIT, re.MULTILINE) == [
        ("serve", "$EOMIRROR_SERVE_ARGS")
    ]
    given = re.findall(r"EOMIRROR_SERVE_ARGS=(--[a-z-]+)", PAGE_UNIT)
    assert given
    assert set(given) <= options_of("serve")
    hardening = UNIT.partition("NoNewPrivileges")[2]
    assert PAGE_UNIT.partition("NoNewPrivileges")[2] == hardening
    kept = {int(code) for code in re.findall(r"RestartPreventExitStatus=(.*)", PAGE_UNIT)[0].split()}
    assert kept == {errors.UsageError.exit_code, errors.ConfigError.exit_code}


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not on PATH")
@pytest.mark.parametrize("name", ["eomirror", "eomirror-serve"])
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    """It warns of settings that it does not know."""
    path = tmp_path / f"{name}@.service"
    unit = (DEPLOY / "systemd" / path.name).read_text()
    path.write_text(unit.replace("/opt/eomirror/bin/eomirror", sys.executable))
    done = subprocess.run(
        [str(SYSTEMD), "verify", "--man=no", str(path.with_name(f"{name}@orders.service"))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_restarts_only_what_a_restart_can_mend() -> None:
    """None after usage, data loss, another owner, a promotion and a refused configuration; the page tells each code."""
    kept = {int(code) for code in re.findall(r"RestartPreventExitStatus=(.*)", UNIT)[0].split()}
    fatal = {
        errors.UsageError,
        errors.DataLossError,
        errors.SupersededError,
        errors.NotReadyError,
        errors.ConfigError,
    }
    assert {error.exit_code for error in fatal} == kept
    page = (ROOT / "docs" / "deploy.md").read_text()
    told = {
        int(code)
        for codes in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)
        for code in codes.split(",")
    }
    assert told == {0, errors.MirrorError.exit_code, *kept, 143}


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
    # without it the packages of Java do not install on Debian's slim images
    assert CONTAINER.index("mkdir -p /usr/share/man/man1") < CONTAINER.index("openjdk-17")
    assert "--no-deps" in CONTAINER


def test_a_build_gets_what_it_copies_and_no_products() -> None:
    """Without a file of exceptions, a build would send the environment and gigabytes of build products."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    kept = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINER, re.MULTILINE)
        for name in line.split()[:-1]
    }
    assert kept == copied


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
