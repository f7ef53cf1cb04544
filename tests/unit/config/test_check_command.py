"""`eomirror check`, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
clusters:
  east: {bootstrap.servers: "127.0.0.1:19092", sasl.password: "canary-Zq", security.protocol: SASL_SSL}
  west: {bootstrap.servers: "127.0.0.1:29092"}
links:
  - {source: east, target: west, topics: ["orders", "pay.*"]}
  - {source: west, target: east, topics: ["orders"], naming: {pattern: "{topic}_REPLICA"}}
"""


def check(tmp_path: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a file with this text."""
    path = tmp_path / "mirror.yaml"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "eomirror", "check", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("form", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_good_file_is_summed_up(tmp_path: Path, form: str, parse: object) -> None:
    """Links, names, provenance and the whole configuration, without its secrets."""
    done = check(tmp_path, GOOD, "-o", form)
    assert done.returncode == 0, done.stderr
    answer = parse(done.stdout)  # type: ignore[operator]
    assert answer["valid"] is True
    assert answer["links"][0]["names"] == {"orders": "east.orders"}
    assert answer["links"][1]["names"] == {"orders": "orders_REPLICA"}
    assert answer["links"][0]["provenance"] is False
    assert answer["config"]["clusters"]["east"]["sasl.password"] == "***"
    assert "canary-Zq" not in done.stdout + done.stderr


def test_a_good_file_is_drawn(tmp_path: Path) -> None:
    """The table names every link and ends with ok."""
    done = check(tmp_path, GOOD, "-o", "table")
    assert done.returncode == 0, done.stderr
    assert "east->west" in done.stdout
    assert "ok: 2 clusters, 2 links" in done.stdout


def test_faults_for_programs_are_json_on_stdout(tmp_path: Path) -> None:
    """Ours and librdkafka's together, exit 78."""
    done = check(tmp_path, GOOD, "-o", "json", "-s", "links[0].lanes=0", "-s", "clusters.west.no.such=1")
    assert done.returncode == 78
    answer = json.loads(done.stdout)
    assert answer["valid"] is False
    assert {fault["path"] for fault in answer["faults"]} == {"links[0].lanes", "clusters.west.no.such"}


def test_faults_for_people_are_on_stderr(tmp_path: Path) -> None:
    """Every fault with its fix, one screen, exit 78, nothing on stdout."""
    done = check(tmp_path, GOOD.replace("topics", "topcs"), "-o", "table")
    assert done.returncode == 78
    assert done.stdout == ""
    assert "did you mean topics?" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_schema_is_printed(tmp_path: Path) -> None:
    """`--schema` needs no file that is right."""
    done = check(tmp_path, "", "--schema")
    assert done.returncode == 0
    assert json.loads(done.stdout)["title"] == "eomirror configuration"


def test_a_property_file_under_the_wrong_name_is_recognised(tmp_path: Path) -> None:
    """MirrorMaker 2's file with the ending .yaml: the fix names what takes it."""
    done = check(tmp_path, "clusters = a, b\na.bootstrap.servers = x:1\n", "-o", "table")
    assert done.returncode == 78
    assert "eomirror import" in done.stderr


def test_a_property_in_pythons_spelling_is_recognised(tmp_path: Path) -> None:
    """`bootstrap_servers` and the like: underscores for dots."""
    text = GOOD.replace("security.protocol", "linger_ms: 5, security.protocol")
    done = check(tmp_path, text, "-o", "table")
    assert done.returncode == 78
    assert "did you mean linger.ms?" in done.stderr
