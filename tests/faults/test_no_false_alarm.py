"""
A healthy link under everything that clusters do by themselves: nothing may be called a loss.

Transactions, aborted ones among them, compaction, retention, deleted records that were mirrored, leaders that move,
brokers and mirrors that restart and are killed.  Each check of rules EO-5 and EO-6 meets its harmless look-alike here.
``EOMIRROR_SOAK_SECONDS`` sets the time under traffic; `just soak` runs half an hour.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror.demo.clients import create_topic
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.links.mirrors import CommandMirror
from support.links.plane import kafka_of, plane_under_test
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.judges.ledger import Entry

SECONDS = float(os.environ.get("EOMIRROR_SOAK_SECONDS", "120"))
"""Time under traffic."""

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(SECONDS + 1500),
]  # fmt: skip

PARTITIONS = 2
_RATE = 60.0
_PER_TRANSACTION = 15
_START_SECONDS = 240.0
_HEAL_SECONDS = 120.0
_SMALL = {"segment.bytes": "1048576", "segment.ms": "5000", "min.insync.replicas": "2"}
TOPICS = {
    # compaction and retention leave holes and move the log start; neither is a gap
    "plain": {"retention.ms": "-1"},
    "expiring": {"retention.ms": "120000"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "both": {
        "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01", "retention.ms": "180000",
    },
    "idle": {"retention.ms": "-1"},
}  # fmt: skip
_BROKER = {"log.cleaner.backoff.ms": "2000", "log.retention.check.interval.ms": "5000"}
# a lane that loses a broker says so; that is news, and no alarm
_ALARMS = ("topic_stopped", "link_failed", "gap_accepted", "record_left_out", "records_may_be_missing")


class Application(threading.Thread):
    """Writes to one topic until asked to stop: transactions, one in five aborted, or none."""

    def __init__(self, properties: dict[str, Any], topic: str, *, transactional: bool, seed: int) -> None:
        super().__init__(name=f"write {topic}", daemon=True)
        self.asked = threading.Event()
        self.failure: Exception | None = None
        self.records = 0
        self._topic = topic
        self._transactional = transactional
        self._rng = random.Random(seed)
        self._properties = {**properties, "linger.ms": "5", "enable.idempotence": "true", "log_level": 0}

    def run(self) -> None:
        """Write; a failure is kept for `check`."""
        try:
            self._write()
        except Exception as error:  # noqa: BLE001  raised again by `check`
            self.failure = error

    def check(self) -> None:
        """Raise what ended the thread."""
        if self.failure is not None:
            raise self.failure

    def _write(self) -> None:
        producer = self._new()
        while not self.asked.is_set():
            began = time.monotonic()
            try:
                self._once(producer)
            except KafkaException as error:
                if not self._transactional or not (
                    error.args[0].txn_requires_abort() or error.args[0].fatal() or error.args[0].retriable()
                ):
                    raise
                # a coordinator that moved for too long: what an application does then
                producer = self._new()
            self.asked.wait(max(0.0, _PER_TRANSACTION / _RATE - (time.monotonic() - began)))
        producer.flush(60)

    def _new(self) -> Producer:
        if not self._transactional:
            return Producer(self._properties)
        made = Producer({**self._properties, "transactional.id": f"soak.{self._topic}"})
        made.init_transactions(120)
        return made

    def _once(self, producer: Producer) -> None:
        if self._transactional:
            producer.begin_transaction()
        for _ in range(_PER_TRANSACTION):
            gone = self._rng.random() < 0.05
            value = None if gone else self._rng.randbytes(self._rng.randrange(400, 900))
            key = b"key %d" % self._rng.randrange(200)
            producer.produce(self._topic, value, key, self._rng.randrange(PARTITIONS))
            producer.poll(0)
        if not self._transactional:
            producer.flush(120)
            self.records += _PER_TRANSACTION
        elif self._rng.random() < 0.2:
            producer.flush(120)
            producer.abort_transaction(120)
        else:
            producer.commit_transaction(120)
            self.records += _PER_TRANSACTION


@dataclass(slots=True)
class Soak:
    """Two clusters of three brokers, applications, and a mirror that comes and goes."""

    clusters: dict[str, LocalCluster]
    admins: dict[str, AdminClient]
    folder: Path
    rng: random.Random
    entry: Entry
    name: str
    done: Counter[str] = field(default_factory=Counter)
    mirror: CommandMirror | None = None

    def settings(self) -> dict[str, Any]:
        """The configuration."""
        sides = {side: one.client_properties for side, one in self.clusters.items()}
        link = {"name": self.name, "source": "source", "target": "target", "topics": [".*"], "lanes": 2}
        return {"clusters": sides, "links": [link], "defaults": {"plane": plane_under_test()}}

    def start_mirror(self) -> None:
        """Start it, and wait until its lanes have begun: a program that does not listen yet dies of SIGTERM."""
        assert self.mirror is not None
        begun = self.mirror.said("lane_starts") if self.mirror.log.exists() else 0
        self.mirror.start()
        wait_for(lambda: self.mirror is None or self.mirror.said("lane_starts") > begun, _START_SECONDS)

    # -- what clusters and operators do ------------------------------------------------------------

    def restart_broker(self) -> None:
        """In order: its leaders move first."""
        broker = self._broker()
        broker.stop(timeout=60.0)
        broker.start(timeout=_START_SECONDS)

    def kill_broker(self) -> None:
        """Another replica leads."""
        broker = self._broker()
        broker.kill()
        time.sleep(self.rng.uniform(0.0, 12.0))
        broker.start(timeout=_START_SECONDS)

    def move_leaders(self) -> None:
        """To the preferred replicas."""
        self._elect(self.rng.choice(list(self.clusters)))

    def restart_mirror(self) -> None:
        """In order."""
        assert self.mirror is not None
        self.mirror.stop(aborted=True)
        self.start_mirror()

    def kill_mirror(self) -> None:
        """All of it; transactions stay open."""
        assert self.mirror is not None
        self.mirror.kill()
        self.start_mirror()

    def delete_mirrored(self) -> None:
        """Records that the copy has, as a user does to save room."""
        asked = [
            TopicPartition("plain", int(one["partition"]), int(one["position"]))
            for one in self._partitions()
            if one["topic"] == "plain" and one["position"]
        ]
        if asked:
            wait_for(lambda: self._delete(asked), _HEAL_SECONDS)

    def rest(self) -> None:
        """Nothing happens."""
        time.sleep(self.rng.uniform(2.0, 8.0))

    def happen(self) -> None:
        """One of these."""
        events = (
            (self.restart_broker, 3), (self.kill_broker, 2), (self.move_leaders, 3), (self.restart_mirror, 2),
            (self.kill_mirror, 1), (self.delete_mirrored, 2), (self.rest, 4),
        )  # fmt: skip
        (event,) = self.rng.choices([one for one, _ in events], [weight for _, weight in events])
        event()
        self.done[event.__name__] += 1
        self.entry.injected()
        for side in self.clusters:
            wait_for(lambda side=side: self._whole(side), _HEAL_SECONDS)

    # -- judging -----------------------------------------------------------------------------------

    def alarms(self) -> list[str]:
        """Lines of the mirror's log that call something lost or stopped."""
        assert self.mirror is not None
        lines = self.mirror.log.read_text("utf-8", errors="replace").splitlines()
        return [
            line for line in lines if any(f'"event":"{word}"' in line.replace(" ", "") for word in _ALARMS)
        ]

    def status(self) -> dict[str, Any]:
        """What `eomirror status` says."""
        return self._ask("status")

    def problems(self) -> list[str]:
        """Everything that `eomirror status` calls a problem."""
        return [str(one) for one in self._partitions() if one["problem"]]

    def caught_up(self) -> bool:
        """Whether nothing is left to mirror."""
        return all(one["lag_records"] == 0 for one in self._partitions())

    def verify(self) -> dict[str, Any]:
        """What `eomirror verify` finds."""
        return self._ask("verify")

    def _partitions(self) -> list[dict[str, Any]]:
        return [
            {"topic": topic["topic"], **one}
            for link in self.status()["links"]
            for topic in link["topics"]
            for one in topic["partitions"]
        ]

    def _ask(self, *words: str) -> dict[str, Any]:
        assert self.mirror is not None
        command = [
            sys.executable,
            "-m",
            "eomirror",
            *words,
            str(self.mirror.folder / "mirror.yaml"),
            "-o",
            "json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _broker(self) -> Any:
        return self.rng.choice(self.clusters[self.rng.choice(list(self.clusters))].brokers)

    def _delete(self, asked: list[TopicPartition]) -> bool:
        """Delete records before these offsets; False while leaders move."""
        try:
            for future in self.admins["source"].delete_records(asked).values():
                future.result(60)
        except KafkaException as error:
            # librdkafka does not call a moved leader retriable in an answer to DeleteRecords
            if not error.args[0].retriable() and error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            self.admins["source"].list_topics(timeout=10)
            return False
        return True

    def _elect(self, side: str) -> None:
        try:
            self.admins[side].elect_leaders(ElectionType.PREFERRED).result(60)
        except KafkaException:
            # none had to move
            return

    def _whole(self, side: str) -> bool:
        try:
            topics = self.admins[side].list_topics(timeout=10).topics
        except KafkaException:
            return False
        partitions = [one for found in topics.values() for one in found.partitions.values()]
        return all(len(one.isrs) == len(one.replicas) and one.leader >= 0 for one in partitions)


@pytest.fixture
def soak(tmp_path: Path, rng: random.Random, entry: Entry, topic_name: str) -> Iterator[Soak]:
    """Clusters with topics; no traffic yet."""
    clusters: dict[str, LocalCluster] = {}
    made = Soak(clusters, {}, tmp_path, rng, entry, "soak")
    try:
        for side in ("source", "target"):
            kafka = kafka_of("east" if side == "source" else "west")
            spec = ClusterSpec(
                f"{topic_name[:12]}-{side}", brokers=3, heap="320m", properties=_BROKER, kafka_version=kafka
            )
            clusters[side] = LocalCluster.start(spec, timeout=_START_SECONDS)
            made.admins[side] = AdminClient({**clusters[side].client_properties, "log_level": 0})
        for topic, configs in TOPICS.items():
            settings = {key.replace(".", "_"): value for key, value in {**_SMALL, **configs}.items()}
            create_topic(clusters["source"].client_properties, topic, PARTITIONS, replicas=3, **settings)
        yield made
    finally:
        if made.mirror is not None:
            made.mirror.close()
        for cluster in clusters.values():
            cluster.destroy()


@pytest.mark.fault("F37")
def test_a_healthy_link_raises_no_alarm(soak: Soak) -> None:
    """EO-5, EO-6: leader moves, restarts, retention, compaction and aborted data are no loss; the copies are equal."""
    properties = soak.clusters["source"].client_properties
    writers = [
        Application(properties, topic, transactional=number % 2 == 0, seed=soak.rng.getrandbits(32))
        for number, topic in enumerate(topic for topic in TOPICS if topic != "idle")
    ]
    producer = Producer(properties)
    for number in range(50):
        producer.produce("idle", b"value %d" % number, b"key", number % PARTITIONS)
    producer.flush(60)
    soak.mirror = CommandMirror(soak.settings(), soak.folder / "mirror")
    soak.start_mirror()
    for writer in writers:
        writer.start()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        soak.happen()
        for writer in writers:
            writer.check()
        soak.mirror.check()
        assert not soak.alarms(), soak.alarms()

    for writer in writers:
        writer.asked.set()
    for writer in writers:
        writer.join(180)
        writer.check()
    wait_for(soak.caught_up, _HEAL_SECONDS)
    assert not soak.problems(), soak.problems()
    soak.mirror.stop()
    soak.verify()

    assert not soak.alarms(), soak.alarms()
    soak.entry.records += sum(writer.records for writer in writers)
    soak.entry.notes.update({name: float(count) for name, count in soak.done.items()})
