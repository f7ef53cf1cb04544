"""A real MirrorMaker 2 with any separator is replaced from its own file: names, cycles and topics of readers agree."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from eomirror.config.mm2_properties import import_mm2
from support.clusters.mm2 import MirrorMaker
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("separator", ["_", "."])
def test_the_imported_file_of_a_separator_resumes_every_topic_that_mm2_mirrored(
    east: Any, west: Any, topic_name: str, tmp_path: Path, separator: str
) -> None:
    """`adopt`, `plan` and `run` accept what MM2 left; a topic with the source's alias in its name is an original."""
    source, target = dict(east.client_properties), dict(west.client_properties)
    alias = topic_name.replace("_", "").replace(".", "")
    topics = [f"orders-{alias}", f"{alias}{separator}stock"]
    expected = {}
    for seed, topic in enumerate(topics):
        create_topic(source, topic, 1)
        expected[topic] = produce(source, topic, 1, some_records(seed, 40), transactional_id=topic)
    copies = {topic: f"{alias}{separator}{topic}" for topic in topics}

    def copied(topic: str) -> int:
        if copies[topic] not in AdminClient(target).list_topics(timeout=10).topics:
            return -1
        return sum(map(len, read_committed(target, copies[topic]).values()))

    patterns = ", ".join(topic.replace(".", "\\\\.") for topic in topics)
    maker = MirrorMaker(
        source["bootstrap.servers"], target["bootstrap.servers"], alias, patterns, tmp_path,
        exactly_once=False,
        settings={
            "replication.policy.separator": separator, f"{alias}->west.emit.checkpoints.interval.seconds": "1",
        },
    )  # fmt: skip
    with maker:
        wait_for(lambda: maker.check() and all(copied(topic) == 40 for topic in topics), 120)
        maker.stop()
    for seed, topic in enumerate(topics):
        more = produce(source, topic, 1, some_records(seed + 7, 20), transactional_id=topic)
        expected[topic] = {0: [*expected[topic][0], *more[0]]}
    found = import_mm2((tmp_path / "mm2.properties").read_text(), keep_secrets=True)
    settings = {**found.settings, "defaults": {"lanes": 1, "commit_interval": "20ms"}}
    path = tmp_path / "mirror.yaml"
    path.write_text(yaml.safe_dump(settings))

    for command in (["adopt"], ["plan"], ["run", "--until", "caught-up"]):
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", command[0], str(path), *command[1:], "-o", "json"],
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        if command[0] == "plan":
            (link,) = json.loads(done.stdout)["links"]
            assert link["topics"] == copies
            assert done.returncode == (3 if link["differs"] else 0), done.stderr + done.stdout
        else:
            assert done.returncode == 0, done.stderr + done.stdout

    for topic in topics:
        assert read_committed(target, copies[topic]) == expected[topic]
    names = set(AdminClient(target).list_topics(timeout=10).topics)
    assert f"{alias}{separator}checkpoints{separator}internal" in names
    assert separator == "." or f"{alias}.checkpoints.internal" not in names


_HEAD = (
    "clusters = source, target\nsource.bootstrap.servers = {}\ntarget.bootstrap.servers = {}\n"
    "source->target.enabled = true\n"
)
_FACTORS = "replication.factor = 1\nsource->target.emit.heartbeats.enabled = false\n"


@pytest.mark.parametrize(
    ("given", "follow", "copy"),
    [
        ("source.cluster.alias =\ntarget.cluster.alias =\nreplication.policy.separator =\n", False, "{}"),
        ("source.cluster.alias = {alias}\n", True, "{alias}.{}"),
    ],
    ids=["names-are-kept", "an-alias-for-all"],
)
def test_clusters_called_source_and_target_give_the_copies_that_mm2_made(
    east: Any, west: Any, topic_name: str, tmp_path: Path, given: str, follow: bool, copy: str
) -> None:
    """Empty aliases keep names; another alias is refused, and the lines that the refusal prints run."""
    source, target = dict(east.client_properties), dict(west.client_properties)
    topic, alias = f"stock-{topic_name}", topic_name.replace("_", "-").replace(".", "-")
    create_topic(source, topic, 1)
    committed = produce(source, topic, 1, some_records(3, 40), transactional_id=topic)
    path = tmp_path / "mm2.properties"
    text = _HEAD.format(source["bootstrap.servers"], target["bootstrap.servers"]) + _FACTORS
    text += f"topics = {topic}\n{given.format(alias=alias)}"
    path.write_text(text)
    if follow:
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "import", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 78
        assert f"clusters = {alias}, target" in done.stderr
        followed = text.replace("source.cluster.alias", "#").replace(
            "clusters = source", f"clusters = {alias}"
        )
        path.write_text(followed.replace("source.", f"{alias}.", 1).replace("source->", f"{alias}->"))

    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "run", str(path), "--until", "caught-up", "-o", "json"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr + done.stdout
    assert read_committed(target, copy.format(topic, alias=alias)) == committed
