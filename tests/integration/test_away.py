"""
Clusters that are away: a closed port, a socket that never answers, a broker that is stopped or stands still.

Every command says within seconds what it waits for and ends; a mirror keeps trying and comes up on its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import Mirror, load_config
from support.links.link import RunningLink
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

# a command ends within 10 s where the machine is not busy with other tests; one link after the other took a minute
_SECONDS = 45.0


@pytest.fixture
def silent() -> Iterator[str]:
    """Address of a socket that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        host, port = listening.getsockname()[:2]
        yield f"{host}:{port}"


class Config:
    """A file whose clusters `closed` and `silent` are away; the link `NAME` between east and west has run."""

    def __init__(self, east: Any, west: Any, silent: str, name: str, folder: Path) -> None:
        self.path, self.name, self.silent = folder / "mirror.yaml", name, silent
        self.closed = "127.0.0.1:1"
        self.settings: dict[str, Any] = {
            "clusters": {
                "east": dict(east.client_properties),
                "west": dict(west.client_properties),
                "again": dict(west.client_properties),
                "closed": {"bootstrap.servers": self.closed},
                "silent": {"bootstrap.servers": silent},
            },
            "links": [self.link(name, "east", "west")],
            "defaults": {"lanes": 1, "plane": plane_under_test(), "groups": []},
        }

    def link(self, name: str, source: str, target: str) -> dict[str, Any]:
        return {"name": name, "source": source, "target": target, "topics": [f"{self.name}\\..*"]}

    def load(self) -> Any:
        self.path.write_text(yaml.safe_dump(self.settings))
        self.path.chmod(0o600)
        return load_config(self.path)

    def run(self, *arguments: str) -> tuple[int, str, list[dict[str, Any]], str, float]:
        """Exit code, stdout, events on stderr, the rest of stderr, and seconds."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", *arguments],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - began
        lines = done.stderr.splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        rest = "\n".join(line for line in lines if not line.startswith("{"))
        return done.returncode, done.stdout, events, rest, seconds


@pytest.fixture
def config(east: Any, west: Any, silent: str, topic_name: str, tmp_path: Path) -> Config:
    """Links named after the test's unique topic name."""
    return Config(east, west, silent, topic_name, tmp_path)


def waited_for(events: list[dict[str, Any]]) -> dict[str, str]:
    """Clusters that a command said it waits for, and their addresses."""
    return {each["cluster"]: each["servers"] for each in events if each["event"] == "waiting_for_cluster"}


def test_status_shows_what_it_can_of_the_others(
    config: Config, east: Any, topic_name: str, spark_context: Any
) -> None:
    """All links are asked at the same time; one is unknown, one has no lag, each with the address of what is away."""
    create_topic(east.client_properties, f"{topic_name}.orders")
    produce(
        east.client_properties, f"{topic_name}.orders", 1, some_records(1, 20), transactional_id=topic_name
    )
    with Mirror(config.load(), spark=spark_context) as mirror:
        mirror.run(until="caught-up")
    config.settings["links"] += [
        config.link(f"{topic_name}-{target}-{number}", "east", target)
        for target in ("closed", "silent")
        for number in range(3)
    ]
    config.load()

    code, out, events, _, seconds = config.run("status", str(config.path), "-o", "json")

    links = {each["link"]: each for each in json.loads(out)["links"]}
    assert code == 1
    assert links[topic_name]["lag_records"] == 0
    for target, address in (("closed", config.closed), ("silent", config.silent)):
        for number in range(3):
            away = links[f"{topic_name}-{target}-{number}"]
            assert away["state"] == "unknown"
            assert f"{target} ({address})" in away["problem"]
    assert waited_for(events) == {"closed": config.closed, "silent": config.silent}
    assert seconds < _SECONDS

    # the source of a link is away: what its target tells is shown
    for away, address in (("closed", config.closed), ("silent", config.silent)):
        config.settings["links"] = [{**config.link(topic_name, away, "west")}]
        config.load()
        code, out, events, _, seconds = config.run("status", str(config.path), "-o", "json")
        (link,) = json.loads(out)["links"]
        assert code == 0
        assert f"{away} ({address})" in link["problem"]
        assert link["topics"][0]["partitions"][0]["position"] > 0
        # a busy machine tells late of what the first command had waited for
        assert waited_for(events)[away] == address
        assert seconds < _SECONDS


@pytest.mark.parametrize("away", ["closed", "silent"])
@pytest.mark.parametrize(
    "command",
    [
        ("plan",),
        ("adopt", "--dry-run"),
        ("hand-back", "--dry-run"),
        ("verify",),
        ("verify", "--transactions"),
        ("offsets", "groups"),
        ("offsets", "translate", "--topic", "a", "--partition", "0", "--offset", "1"),
    ],
    ids=" ".join,
)
def test_a_command_names_what_it_waits_for_and_ends(
    config: Config, away: str, command: tuple[str, ...]
) -> None:
    """With the cluster's alias, its address, and what to check."""
    config.settings["links"] = [config.link(config.name, "east", away)]
    config.load()
    address = config.settings["clusters"][away]["bootstrap.servers"]
    words = 2 if command[0] == "offsets" else 1

    code, _, events, rest, seconds = config.run(*command[:words], str(config.path), *command[words:])

    assert code == 1, rest
    assert f"{away} ({address})" in rest
    assert "fix: " in rest
    assert waited_for(events) == {away: address}
    assert seconds < _SECONDS


@pytest.mark.parametrize("how", ["stopped", "paused"])
def test_a_link_whose_cluster_is_away_at_start_comes_up_by_itself(
    config: Config, east: Any, west: Any, topic_name: str, spark_context: Any, how: str
) -> None:
    """It is named in progress, no failure, and the other link mirrors meanwhile."""
    for cluster, word in ((east, "here"), (west, "there")):
        create_topic(cluster.client_properties, f"{topic_name}.{word}")
        produce(
            cluster.client_properties,
            f"{topic_name}.{word}",
            1,
            some_records(1, 20),
            transactional_id=topic_name,
        )
    within = {**config.link(f"{topic_name}-within", "again", "west"), "naming": "prefix"}
    within |= {"topics": [f"{topic_name}\\.there"], "heartbeats": "off", "offset_syncs": "off"}
    config.settings["links"].append(within)
    broker = east.brokers[0]
    broker.stop() if how == "stopped" else broker.pause()
    try:
        with Mirror(config.load(), spark=spark_context) as mirror:
            run = RunningLink(mirror)
            try:
                snapshot = run.wait(
                    lambda: run._snapshot and run._snapshot.links[0].waiting and run._snapshot
                )
                address = config.settings["clusters"]["east"]["bootstrap.servers"]
                assert f"east ({address})" in snapshot.links[0].waiting
                assert (snapshot.links[0].state, snapshot.links[0].error) == ("waiting", "")
                copy = f"again.{topic_name}.there"
                run.wait(lambda: read_committed(west.client_properties, copy).get(0))
                broker.start() if how == "stopped" else broker.resume()
                run.wait(
                    lambda: run._snapshot.links[0].state == "running" and not run._snapshot.links[0].waiting
                )
                run.wait(lambda: run._snapshot.links[0].lag_records == 0)
            finally:
                run.end()
    finally:
        broker.resume() if how == "paused" else broker.start()
    assert run.report.exit_code == 0
    written = read_committed(east.client_properties, f"{topic_name}.here")
    assert read_committed(west.client_properties, f"east.{topic_name}.here") == written
