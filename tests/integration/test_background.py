"""A mirror in the background of a program: the examples of docs/run-under-spark.md on real brokers, and its errors."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import Mirror, load_config
from eomirror.errors import SupersededError, UsageError
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from eomirror.status.snapshot import LinkSnapshot

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "run-under-spark.md"
PARTITIONS = 2
RECORDS = 50


def examples() -> list[str]:
    """The code of the page's section, in order."""
    section = PAGE.read_text("utf-8").split("### Beside other work\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def config(east: Any, west: Any, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A link with records to mirror, in a mirror.yaml of the working directory."""
    create_topic(east.client_properties, topic_name, PARTITIONS)
    records = some_records(7, RECORDS)
    produce(
        east.client_properties, topic_name, PARTITIONS, records, transactional_id=topic_name, abort_every=1000
    )
    link = {"name": topic_name, "source": "east", "target": "west", "topics": [topic_name]}
    clusters = {"east": east.client_properties, "west": west.client_properties}
    path = tmp_path / "mirror.yaml"
    document = {"clusters": clusters, "links": [{**link, "plane": plane_under_test()}]}
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return path


def link_of(mirror: Mirror) -> LinkSnapshot:
    """The state of a mirror's one link, once there is one."""
    snapshot = wait_for(mirror.snapshot)
    return snapshot.links[0]


def copied(west: Any, topic_name: str) -> int:
    """Records of the copy, as another reader sees them."""
    return sum(map(len, read_committed(west.client_properties, f"east.{topic_name}").values()))


def leave_failed(mirror: Mirror) -> None:
    """A block that does not wait for its mirror, which fails."""
    with mirror:
        mirror.start()
        wait_for(lambda: link_of(mirror).state == "failed", 60)


def test_the_examples_of_a_notebook_and_a_task_mirror(
    config: Path, west: Any, topic_name: str, spark_context: Any
) -> None:
    """On the active context of the process, as in a notebook; the next run of the task has nothing left to do."""
    del spark_context
    names: dict[str, Any] = {}
    begin, end, task = examples()

    exec(begin, names)  # noqa: S102  the page's own code
    mirror = names["mirror"]
    assert mirror.wait(0) is None
    with pytest.raises(UsageError, match="already running"):
        mirror.start()
    wait_for(lambda: link_of(mirror).counters.records == RECORDS)
    exec(end, names)  # noqa: S102  the page's own code
    assert mirror.wait() is names["report"]
    assert names["report"].links[0].outcome == "stopped"
    assert names["report"].links[0].counters.records == RECORDS
    assert copied(west, topic_name) == RECORDS

    exec(task, names)  # noqa: S102  the page's own code
    report = names["copy_until_caught_up"](str(config), 60.0)
    assert report["exit_code"] == 0
    with pytest.raises(TimeoutError, match="not caught up after 0 s"):
        names["copy_until_caught_up"](str(config), 0.0)
    assert copied(west, topic_name) == RECORDS


#: of a process that has no context: a block ends the mirror and waits for its end
_PROGRAM = """
import threading
from eomirror import Mirror, load_config

with Mirror(load_config("mirror.yaml")) as mirror:
    mirror.start()
    while mirror.snapshot() is None or mirror.snapshot().links[0].counters.records < {records}:
        assert mirror.wait(0.1) is None
assert mirror.wait(0).exit_code == 0
assert "mirror" not in [thread.name for thread in threading.enumerate()]
"""


def test_without_a_context_it_starts_one_and_a_block_ends_it(
    config: Path, west: Any, topic_name: str
) -> None:
    """In a process of its own; leaving the block stops the mirror and waits for its end."""
    program = _PROGRAM.format(records=RECORDS)
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=config.parent, timeout=120, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert copied(west, topic_name) == RECORDS


def test_an_error_is_raised_by_wait_or_at_the_end_of_the_block(config: Path, spark_context: Any) -> None:
    """What is wrong with the arguments is raised by `start`; a failed link by `wait`, and else by the block."""
    loaded = load_config(config)
    second = Mirror(loaded, spark=spark_context)
    with pytest.raises(UsageError, match="was not started"):
        second.wait()
    with pytest.raises(UsageError, match="until='soon'"):
        second.start("soon")
    with Mirror(loaded, spark=spark_context) as owner:
        owner.start()
        wait_for(lambda: link_of(owner).state == "running")
        second.start()
        with pytest.raises(SupersededError):
            second.wait(60)
        with pytest.raises(SupersededError):
            leave_failed(Mirror(loaded, spark=spark_context))
