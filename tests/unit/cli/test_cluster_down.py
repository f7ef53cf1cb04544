"""`eomirror cluster`: down asks on a terminal before it removes data, up prints a configuration; no broker."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import orjson
import pytest

from eomirror.cli import cluster
from eomirror.cli.app import main

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("east", "west")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with two stopped clusters, one of which has its data elsewhere."""
    folder = tmp_path / "state" / "clusters"
    for name, data in zip(NAMES, (folder / "east", tmp_path / "own"), strict=True):
        data.mkdir(parents=True)
        (data / "00.log").write_bytes(bytes(300_000))
        record = {
            "format": 1, "name": name, "kafka_version": "4.3.1", "cluster_id": "c", "data_dir": str(data),
            "ours": name == "east", "brokers": [],
        }  # fmt: skip
        (folder / f"{name}.json").write_bytes(orjson.dumps(record))
    return tmp_path / "state"


def down(state: Path, *arguments: str, answer: str | None = None) -> tuple[int, str]:
    """Exit code and stderr; stdin is a terminal if there is an answer."""
    command = [sys.executable, "-m", "eomirror", "cluster", "down", *arguments]
    settings = os.environ | {"EOMIRROR_STATE": str(state)}
    master, slave = pty.openpty()
    try:
        if answer is not None:
            os.write(master, answer.encode())
        stdin = subprocess.DEVNULL if answer is None else slave
        ended = subprocess.run(
            command, env=settings, stdin=stdin, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        os.close(master)
        os.close(slave)
    return ended.returncode, ended.stderr


def left(state: Path) -> list[str]:
    """The clusters that are still recorded, and folders with data."""
    return sorted(path.name for path in (state / "clusters").glob("*") if path.suffix != ".lock")


EVERYTHING = ["east", "east.json", "west.json"]


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_it_names_the_folder_and_its_size_and_a_no_removes_nothing(state: Path, answer: str) -> None:
    """Only the folder that would be removed is named."""
    code, said = down(state, "--all", answer=answer)
    assert code == 2
    assert f"east: {state / 'clusters' / 'east'}, 30" in said
    assert "kB" in said
    assert "own" not in said
    assert "nothing was stopped or removed" in said
    assert left(state) == EVERYTHING


def test_a_yes_removes_what_was_named(state: Path, tmp_path: Path) -> None:
    """Data in a folder of the user stays."""
    assert down(state, "--all", answer="y\n")[0] == 0
    assert left(state) == []
    assert (tmp_path / "own" / "00.log").exists()


def test_without_a_terminal_it_does_not_ask(state: Path) -> None:
    """A script has decided already, and these clusters are for trials."""
    code, said = down(state, "east")
    assert code == 0, said
    assert left(state) == ["west.json"]


def test_yes_does_not_ask_on_a_terminal(state: Path) -> None:
    """For people who know what they remove."""
    assert down(state, "east", "--yes", answer="n\n")[0] == 0
    assert left(state) == ["west.json"]


@pytest.mark.parametrize("arguments", [["east", "--keep-data"], ["west"]])
def test_it_does_not_ask_if_it_removes_no_data(state: Path, arguments: list[str]) -> None:
    """Data that is kept, and data in a folder of the user."""
    code, said = down(state, *arguments)
    assert code == 0, said
    assert (state / "clusters" / "east").exists()


def test_the_configuration_of_clusters_is_a_file_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What to do next is for people, on stderr: in the file it would ask to save what is saved."""
    records = [SimpleNamespace(name=name, bootstrap_servers="127.0.0.1:1") for name in NAMES]
    monkeypatch.setattr(cluster, "_start_all", lambda *_: records)
    with pytest.raises(SystemExit):
        main(["cluster", "up", *NAMES])
    captured = capsys.readouterr()

    assert "save" not in captured.out
    assert captured.out.endswith("# stop: eomirror cluster down east west\n")
    assert captured.err == "next: eomirror run FILE\n"
