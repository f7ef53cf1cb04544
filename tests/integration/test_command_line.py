"""`eomirror run` and `status` as a user types them: exit codes, one-screen errors, stop within seconds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror.localkafka.ports import free_ports
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ONE_SCREEN = 24


def eomirror(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "eomirror", *arguments],
        capture_output=True, text=True, timeout=120, check=False, **options,
    )  # fmt: skip


def write_config(folder: Path, east: Any, west: Any, **link: Any) -> str:
    """A configuration file with one link."""
    path = folder / "mirror.yaml"
    document = {
        "clusters": {"east": dict(east), "west": dict(west)},
        "links": [{"source": "east", "target": "west", **link}],
    }
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return str(path)


def events(output: str) -> list[dict[str, Any]]:
    """The log of a run without a terminal: each line is an event, the last one says why it failed."""
    found = [json.loads(line) for line in output.splitlines()]
    assert all({"event", "level", "timestamp"} <= event.keys() for event in found)
    return found


def failure(output: str) -> str:
    """Why a run failed, and what to do, as one text."""
    last = events(output)[-1]
    assert last["event"] == "run_failed"
    return f"{last['error']}\n  fix: {last['fix']}"


def test_run_status_and_sigterm(east: Any, west: Any, topic_name: str, tmp_path: Path) -> None:
    """A mirror in a process of its own: mirrors, answers status, finishes on SIGTERM with 0, gives up its claim."""
    create_topic(east.client_properties, topic_name, 2)
    committed = produce(
        east.client_properties, topic_name, 2, some_records(30, 400), transactional_id=topic_name
    )
    config = write_config(
        tmp_path, east.client_properties, west.client_properties, name=topic_name, topics=[topic_name]
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "eomirror", "run", config], stderr=log, start_new_session=True
        )
    try:
        wait_for(lambda: (tmp_path / "log").stat().st_size and status(config).get("lag_records") == 0, 90)
        assert status(config)["state"] == "running"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()

    assert status(config)["state"] == "stopped"
    assert read_committed(west.client_properties, f"east.{topic_name}") == committed


def status(config: str) -> dict[str, Any]:
    """The one link of ``eomirror status -o json``; empty while its topics are not there."""
    done = eomirror("status", config, "-o", "json")
    assert done.returncode == 0, done.stderr
    links = json.loads(done.stdout)["links"]
    return dict(links[0])


def test_a_wrong_key_is_refused_with_its_path(tmp_path: Path) -> None:
    """Exit 78, the path in the file, and what would be right."""
    config = write_config(
        tmp_path, {"bootstrap.servers": "127.0.0.1:1"}, {"bootstrap.servers": "127.0.0.1:2"}, topiks=["a"]
    )

    done = eomirror("run", config)

    assert done.returncode == 78
    assert "links[0].topiks" in failure(done.stderr)
    assert "did you mean topics?" in failure(done.stderr)
    assert len(failure(done.stderr).splitlines()) < ONE_SCREEN


def test_an_unreachable_broker_is_named(east: Any, tmp_path: Path) -> None:
    """The run keeps trying and says what it waits for; one that ends before the link has begun exits 1."""
    (port,) = free_ports(1)
    config = write_config(
        tmp_path, east.client_properties, {"bootstrap.servers": f"127.0.0.1:{port}"}, topics=["a.*"]
    )

    done = eomirror("run", config, "--until", "20s", "-o", "json")

    assert done.returncode == 1
    said = {each["event"]: each for each in events(done.stderr)}
    assert (said["waiting_for_cluster"]["cluster"], said["waiting_for_cluster"]["servers"]) == (
        "west",
        f"127.0.0.1:{port}",
    )
    assert f"west (127.0.0.1:{port})" in said["link_waits"]["reason"]
    assert said["link_waits"]["fix"]
    (link,) = json.loads(done.stdout)["links"]
    assert (link["outcome"], f"west (127.0.0.1:{port})" in link["error"]) == ("time over", True)
    assert "Traceback" not in done.stderr


def test_a_missing_topic_is_named(east: Any, west: Any, topic_name: str, tmp_path: Path) -> None:
    """It is waited for, as a pattern without a match is; a warning names it, and no copy is created."""
    config = write_config(
        tmp_path, east.client_properties, west.client_properties, name=topic_name, topics=[topic_name]
    )

    done = eomirror("run", config, "--until", "caught-up")

    assert done.returncode == 0
    warned = [line for line in done.stderr.splitlines() if '"level":"warning"' in line and topic_name in line]
    assert any("does not exist" in line and '"fix":' in line for line in warned), done.stderr


def test_usage_errors_are_exit_2(tmp_path: Path) -> None:
    """An unknown duration, an unknown link, an unknown command."""
    config = write_config(
        tmp_path, {"bootstrap.servers": "127.0.0.1:1"}, {"bootstrap.servers": "127.0.0.1:2"}, topics=["a"]
    )

    assert eomirror("run", config, "--until", "soon").returncode == 2
    assert eomirror("run", config, "--link", "unknown").returncode == 2
    assert eomirror("jog").returncode == 2
