"""The first screen of a new user, on real brokers: `run` on a terminal of 80 and of 140 columns."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

from support.judges.terminal import Terminal, eomirror
from support.links.mirrors import lane_workers
from support.traffic.records import create_topic, produce, read_committed, some_records

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

LONG = "with-a-very-long-name.that-was-given-to-it.because.it.was.possible"


def write_config(folder: Path, east: Any, west: Any, link: str, pattern: str) -> str:
    path = folder / "mirror.yaml"
    document = {
        "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
        "links": [{"name": link, "source": "east", "target": "west", "topics": [pattern]}],
    }
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return str(path)


def is_event(line: str) -> bool:
    """Whether a line of the screen begins with the time of day and a level."""
    return line[2:3] == line[5:6] == ":" and line[8:11] == "Z ["


@pytest.mark.parametrize("columns", [80, 140])
def test_a_run_shows_one_table_below_its_log(
    columns: int, east: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """From the first frame to the end after ^C: no markup, no second table, no line of the log inside of it."""
    link = f"first-{columns}"
    topics = [f"{topic_name}.short", f"{topic_name}.{LONG}"]
    for topic in topics:
        create_topic(east.client_properties, topic, 2)
    committed = produce(
        east.client_properties, topics[0], 2, some_records(7, 300), transactional_id=topic_name
    )
    config = write_config(tmp_path, east, west, link, f"{topic_name}\\..*")
    with Terminal(eomirror("run", config), columns) as terminal:

        def drawn(lines: list[str]) -> list[int]:
            return [number for number, line in enumerate(lines) if line.endswith(" ok")]

        for condition in (
            lambda lines: any("waiting for Spark" in line for line in lines) and len(drawn(lines)) == 2,
            lambda lines: any("plane_serves" in line for line in lines) and len(drawn(lines)) == 2,
            # a sentence wraps between words
            lambda lines: "lag 0 records" in " ".join(lines),
        ):
            lines = terminal.wait_for(condition, 90)
            text = "\n".join(lines)
            assert len(drawn(lines)) == 2, text
            assert sum("TOPIC" in line and "STATE" in line for line in lines) == 1, text
            assert "[bold]" not in text
            assert "[dim]" not in text
            head = next(n for n, line in enumerate(lines) if line.startswith(f"{link}  "))
            assert not any(is_event(line) for line in lines[head:]), text
            assert not any(line.startswith("{") for line in lines), text
        terminal.type("\x03")
        lines = terminal.wait_until_ended(30)
    text = "\n".join(lines)
    assert terminal.process.returncode == 0, text
    assert drawn(lines) == [], text
    assert "TOPIC" not in text
    assert lines[-1].startswith(f"{link}: stopped; "), text
    assert is_event(lines[-2]), text
    assert read_committed(west.client_properties, f"east.{topics[0]}") == committed


def test_a_log_in_a_file_holds_events_only(east: Any, west: Any, topic_name: str, tmp_path: Path) -> None:
    """`2>log`: driver, workers, Spark and JVM in one format; stdout, a terminal, gets the summary."""
    create_topic(east.client_properties, topic_name, 2)
    config = write_config(tmp_path, east, west, "in-a-file", topic_name)
    log = tmp_path / "log"
    with log.open("wb") as stream, Terminal(eomirror("run", config), 80, stderr=stream.fileno()) as terminal:
        terminal.wait_for(lambda _: log.read_bytes().count(b"plane_serves") == 2, 90)
        # workers that are killed make Spark, the JVM and Python's daemon say something
        for worker in lane_workers(psutil.Process(terminal.process.pid)):
            worker.kill()
        terminal.wait_for(lambda _: log.read_bytes().count(b"plane_serves") > 2, 90)
        terminal.process.send_signal(signal.SIGTERM)
        lines = terminal.wait_until_ended(30)
    assert terminal.process.returncode == 0
    assert [line.split(";")[0] for line in lines] == ["in-a-file: stopped"]
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert all({"event", "level", "timestamp"} <= event.keys() for event in events)


def test_a_watched_status_is_one_table(east: Any, west: Any, topic_name: str, tmp_path: Path) -> None:
    """`status --watch` redraws in place, and leaves its last picture."""
    create_topic(east.client_properties, topic_name, 2)
    config = write_config(tmp_path, east, west, "watched", topic_name)
    with Terminal(eomirror("status", config, "--watch"), 80) as terminal:
        terminal.wait_for(lambda _: terminal.raw.count(b"never ran") >= 3, 30)
        terminal.type("\x03")
        lines = terminal.wait_until_ended(30)
    assert sum(line.startswith("watched  DOWN  the link never ran") for line in lines) == 1, "\n".join(lines)
