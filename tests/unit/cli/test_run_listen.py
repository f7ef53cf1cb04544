"""`run --listen` and `serve`: a bad address or a port in use ends the command; a signal ends `serve` with code 0."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
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
        main(list(arguments))
    # the command has configured a log on a stderr that ends with this test
    structlog.reset_defaults()
    return int(ended.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_bad_address_is_a_usage_error(
    command: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with a good address."""
    code, error = run(capsys, command, config, "--listen", "localhost:http")
    assert code == 2
    assert "--listen localhost:http: the port is not a number" in error
    assert "127.0.0.1:9464" in error


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_port_in_use_ends_the_command_at_once(
    command: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1; neither Spark nor a cluster is contacted."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, error = run(capsys, command, config, "--listen", f"127.0.0.1:{port}")
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in error


def test_serve_answers_while_its_cluster_is_away_and_ends_with_a_signal(config: str) -> None:
    """The page and /livez answer; the link is unknown with the reason; SIGTERM ends the command with code 0."""
    command = [sys.executable, "-m", "eomirror", "--log-format", "json", "serve", config, "--listen", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = next(
                event["url"] for event in map(json.loads, process.stderr) if event["event"] == "listening"
            )
            port = int(url.rstrip("/").rpartition(":")[2])
            end = time.monotonic() + 60
            while not (links := json.loads(read(port, "/api/v1/links"))["links"]):
                assert time.monotonic() < end
                time.sleep(0.1)
            assert links[0]["verdict"] == "target away"
            assert "127.0.0.1:1" in links[0]["reason"]
            assert b"UTC" in read(port, "/")
            assert json.loads(read(port, "/livez"))["alive"]
        finally:
            process.terminate()
        assert process.wait(30) == 0


def read(port: int, path: str) -> bytes:
    """The body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()
