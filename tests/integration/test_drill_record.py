"""`eomirror drill --record` as a user types it: its result stands in events, status, the page, metrics and an alert."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import load_config
from eomirror.serve.http import Request
from eomirror.serve.polled import PolledEndpoints
from eomirror.status.live import LinkFacts
from eomirror.status.reader import StatusReader
from support.judges.alert_rules import History, Scrape, firing
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(480)]


def eomirror(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "eomirror", *arguments],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def interrupted(*arguments: str, stage: str) -> int:
    """Exit code of a drill that gets Ctrl-C in a stage."""
    with subprocess.Popen(
        [sys.executable, "-m", "eomirror", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip() == stage:
                # as a terminal does: to all processes of the foreground
                os.killpg(process.pid, signal.SIGINT)
                break
        process.communicate(timeout=120)
        return process.returncode


def drills(config: str) -> list[str]:
    """Drills of the timeline, oldest first."""
    done = eomirror("events", config, "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    events = found["events"] if isinstance(found, dict) else found
    return [event["text"] for event in events if event["kind"] == "drill"]


def served(config: str, condition: Callable[[dict[str, Any]], bool]) -> tuple[dict[str, Any], str, set[str]]:
    """What `serve` tells of the only link, once it tells this: data, page and alerts."""
    loaded = load_config(config)
    (link,) = loaded.links
    made = PolledEndpoints(
        {
            LinkFacts.of(link): lambda: StatusReader(
                link, loaded.clusters[link.source], loaded.clusters[link.target]
            )
        },
        version="test",
    )
    made.start()
    try:

        def data() -> dict[str, Any]:
            answer = made.answer(Request(("api", "v1", "links", link.name)))
            found: dict[str, Any] = json.loads(answer.body) if answer.status == 200 else {}
            return found if found and condition(found) else {}

        found = wait_for(data, 60)
        page = made.answer(Request(("links", link.name))).body.decode()
        history = History()
        history.add(time.monotonic(), Scrape(made.answer(Request(("metrics",))).body.decode(), link.name))
        return found, page, set(firing(history, time.monotonic(), only=["EomirrorDrillFailed"]))
    finally:
        made.close()


def test_the_record_of_a_drill_is_seen_everywhere(
    east: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """First of one that failed, then of one that passed; a link that never ran is told, and keeps no record."""
    topic = f"{topic_name}.orders"
    create_topic(east.client_properties, topic)
    produce(east.client_properties, topic, 1, some_records(1, 100), transactional_id=topic_name)
    path = tmp_path / "mirror.yaml"
    document = {
        "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
        "links": [{"name": topic_name, "source": "east", "target": "west", "topics": [topic]}],
        "defaults": {"lanes": 1, "plane": plane_under_test(), "groups": []},
    }
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    config = str(path)
    # without Java the drill's clusters do not start: a drill that failed
    early = eomirror("drill", "--record", config, JAVA_HOME=str(tmp_path))
    assert early.returncode == 1, early.stderr
    assert f"{topic_name}: the drill is not recorded: the link never ran" in early.stderr

    ran = eomirror("run", config, "--until", "caught-up")
    assert ran.returncode == 0, ran.stderr
    assert drills(config) == []

    failed = eomirror("drill", "--record", config, JAVA_HOME=str(tmp_path))
    assert failed.returncode == 1
    assert f"{topic_name}: the drill is recorded on the target" in failed.stderr
    (told,) = drills(config)
    assert told.startswith("a drill failed at the stage 'start': ")
    body, page, alerts = served(config, lambda found: found["drill"] is not None)
    assert (body["drill"]["passed"], body["drill"]["stage"]) == (False, "start")
    assert "failed at start: " in page
    assert "repeat it, and see its stage" in page
    assert alerts == {"EomirrorDrillFailed"}

    assert interrupted("drill", "--records", "200", "--record", config, stage="write and mirror") == 130
    assert drills(config)[-1].startswith("a drill failed at the stage 'write and mirror': ended by a signal")

    done = eomirror("drill", "--records", "200", "--record", config, "-o", "json")
    assert done.returncode == 0, done.stderr
    evidence = json.loads(done.stdout)
    assert drills(config)[-1].startswith(f"a drill passed: {evidence['rpo_records']} records left behind")
    body, page, alerts = served(config, lambda found: found["drill"]["passed"])
    assert body["drill"]["rpo_records"] == evidence["rpo_records"]
    assert abs(body["drill"]["rto_seconds"] - evidence["rto_seconds"]) < 0.001
    assert body["events"][0]["kind"] == "drill"
    assert "passed, " in page
    assert alerts == set()
    (link,) = json.loads(eomirror("status", config, "-o", "json").stdout)["links"]
    assert link["drill"]["passed"] is True
