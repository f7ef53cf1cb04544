"""`run --listen`: a bad address or a port in use ends the command before anything starts."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import structlog

from eomirror.cli.app import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration of clusters that do not exist: a mirror that started would wait for them."""
    path = tmp_path / "mirror.yaml"
    path.write_text(
        'clusters: {a: {bootstrap.servers: "127.0.0.1:1"}, b: {bootstrap.servers: "127.0.0.1:1"}}\n'
        "links: [{source: a, target: b, topics: [t]}]\n"
    )
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and stderr of the command."""
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    # the command has configured a log on a stderr that ends with this test
    structlog.reset_defaults()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_a_bad_address_is_a_usage_error(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with a good address."""
    code, error = run(capsys, config, "--listen", "localhost:http")
    assert code == 2
    assert "--listen localhost:http: the port is not a number" in error
    assert "127.0.0.1:9464" in error


def test_a_port_in_use_ends_the_command_at_once(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1; neither Spark nor a cluster is contacted."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, error = run(capsys, config, "--listen", f"127.0.0.1:{port}")
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in error
