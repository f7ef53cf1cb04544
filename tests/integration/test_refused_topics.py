"""Topics that the target's brokers refuse, in part or as a whole: a link runs without them, by the command (N4, O5)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from eomirror.localkafka.cluster import ClusterSpec
from support.clusters.policies import POLICY, compile_policy
from support.judges.java_judge import JavaJudge, java_judge
from support.links.link import alter_topic
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

LONGEST = 249


class Run(NamedTuple):
    """A running command, its configuration and its log."""

    process: subprocess.Popen[bytes]
    config: str
    log: Path

    def status(self) -> dict[str, Any]:
        """The link, as ``eomirror status -o json`` shows it."""
        done = eomirror("status", self.config, "-o", "json")
        return dict(json.loads(done.stdout)["links"][0]) if done.returncode == 0 else {}

    def stopped(self) -> dict[str, dict[str, Any]]:
        """Its stopped topics."""
        return {stop["topic"]: stop for stop in self.status().get("stopped", ())}

    def events(self, name: str) -> list[dict[str, Any]]:
        """Events of one name in the log so far."""
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [each for each in found if each["event"] == name]


def eomirror(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eomirror", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def judge() -> Iterator[JavaJudge]:
    """Java's own consumer."""
    with java_judge() as made:
        yield made


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts ``eomirror run`` with one link."""
    running: list[subprocess.Popen[bytes]] = []

    def start(east: Any, west: Any, **link: Any) -> Run:
        path, log = tmp_path / "mirror.yaml", tmp_path / "log"
        document = {
            "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
            "links": [{"source": "east", "target": "west", **link}],
        }
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "eomirror", "run", str(path)], stderr=out, start_new_session=True
            )
        running.append(process)
        return Run(process, str(path), log)

    yield start
    for process in running:
        process.kill()
        process.wait()


def fill(east: Any, topic: str, partitions: int = 1, **settings: str) -> dict[int, int]:
    """Creates and fills a source topic; returns the number of records of each partition."""
    create_topic(east.client_properties, topic, partitions, **{"retention.ms": "600000000", **settings})
    # of today: a copy without the retention of its source drops what is older than the target's
    now = int(time.time() * 1000)
    records = [(key, value, now, headers) for key, value, _, headers in some_records(3, 30)]
    committed = produce(
        east.client_properties, topic, partitions, records, transactional_id=f"w-{topic}"[-200:]
    )
    return {number: len(records) for number, records in committed.items()}


def counts(judge: JavaJudge, west: Any, topic: str) -> dict[int, int]:
    """Number of records of each partition of a copy."""
    read = judge.read(west.client_properties, topic)
    return {number: len(records) for number, records in read.items()}


def configs(west: Any, topic: str) -> dict[str, str]:
    """Settings of a copy."""
    admin = AdminClient(west.client_properties)
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(10).items()}


@pytest.mark.slow
def test_a_policy_refuses_one_topic_or_one_setting(
    east: Any,
    topic_name: str,
    tmp_path: Path,
    start_cluster: Callable[[ClusterSpec], Any],
    run: Callable[..., Run],
    judge: JavaJudge,
) -> None:
    """What is refused as a whole is left out by name; a setting that the policy names is, and its topic flows."""
    west = start_cluster(ClusterSpec("west", properties=POLICY, classes=(compile_policy(tmp_path),)))
    spec: dict[str, tuple[int, dict[str, str]]] = {
        "plain": (2, {}),
        "forbidden": (1, {}),
        "five": (5, {}),
        "kept": (1, {"retention.ms": "800000000"}),
        "large": (1, {"max.message.bytes": "21000000"}),
    }
    expected = {
        word: fill(east, f"{topic_name}-{word}", partitions, **settings)
        for word, (partitions, settings) in spec.items()
    }

    def topics(*words: str) -> set[str]:
        return {f"{topic_name}-{word}" for word in words}

    link = run(east, west, name=topic_name, topics=[f"{topic_name}-.*"])
    wait_for(lambda: link.status().get("lag_records") == 0 and len(link.stopped()) == 3, 120)

    assert link.stopped().keys() == topics("forbidden", "five", "large")
    for word, reason in (
        ("forbidden", "names like this one"),
        ("five", "five partitions"),
        ("large", "messages of that size"),
    ):
        stop = link.stopped()[f"{topic_name}-{word}"]
        assert reason in stop["reason"]
        assert "exclude" in stop["fix"]
    for word in ("plain", "kept"):
        assert counts(judge, west, f"east.{topic_name}-{word}") == expected[word]
    (told,) = link.events("topic_setting_refused")
    assert (told["topic"], told["setting"], told["wanted"]) == (
        f"east.{topic_name}-kept",
        "retention.ms",
        "800000000",
    )
    assert "exclude_configs" in told["fix"]
    assert configs(west, f"east.{topic_name}-kept")["retention.ms"] == "604800000"
    assert {event["topic"] for event in link.events("topic_left_out")} == topics("forbidden", "five", "large")

    # under the running link: one more of each kind, and a setting of a copy that the policy refuses
    more = {word: fill(east, f"{topic_name}-{word}", **settings) for word, settings in {
        "later": {},
        "later-forbidden": {},
        "later-kept": {"retention.ms": "-1"},
    }.items()}  # fmt: skip
    wait_for(lambda: f"{topic_name}-later-forbidden" in link.stopped(), 60)
    for word in ("later", "later-kept"):
        wait_for(lambda word=word: counts(judge, west, f"east.{topic_name}-{word}") == more[word], 60)
    assert link.stopped().keys() == topics("forbidden", "five", "large", "later-forbidden")
    assert {event["topic"] for event in link.events("topic_setting_refused")} == {
        f"east.{topic_name}-{word}" for word in ("kept", "later-kept")
    }

    # what the fix says leads on: the setting is left to the target, the topic gets its copy
    alter_topic(east.client_properties, f"{topic_name}-large", max_message_bytes="1048588")
    wait_for(lambda: f"{topic_name}-large" not in link.stopped(), 90)
    assert counts(judge, west, f"east.{topic_name}-large") == expected["large"]
    assert link.process.poll() is None


@pytest.mark.parametrize(
    "naming", ["prefix", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("identity", "pattern"))]
)
def test_a_name_that_is_too_long_is_left_out(
    east: Any, west: Any, topic_name: str, run: Callable[..., Run], judge: JavaJudge, naming: str
) -> None:
    """Of 249 letters, or by the prefix of its copy; at the first start, the others flow."""
    longest = topic_name + "-" + "x" * (LONGEST - len(topic_name) - 1)
    fits = longest[:-5]
    names = {"short": f"{topic_name}-short", "fits": fits, "longest": longest}
    expected = {word: fill(east, name) for word, name in names.items()}
    kind: Any = {"prefix": "prefix", "identity": "identity", "pattern": {"pattern": "{source}.{topic}"}}[
        naming
    ]
    left = set() if naming == "identity" else {longest}

    link = run(east, west, name=topic_name, topics=[f"{topic_name}-.*"], naming=kind)
    wait_for(lambda: link.status().get("lag_records") == 0 and link.stopped().keys() == left, 120)

    for word, name in names.items():
        if name not in left:
            copy = name if naming == "identity" else f"east.{name}"
            assert counts(judge, west, copy) == expected[word]
    for topic in left:
        stop = link.stopped()[topic]
        assert "249" in stop["reason"]
        assert "exclude" in stop["fix"]
        plan = eomirror("plan", link.config)
        assert topic in plan.stdout
        assert "249" in plan.stdout
    assert link.process.poll() is None
