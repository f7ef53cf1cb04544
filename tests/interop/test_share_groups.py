"""Share groups (KIP-932) on a failover: named and not moved; their start offset moves by hand, to the very record."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from eomirror.jvm import find_java
from eomirror.localkafka.jars import class_path
from support.links.disaster import Disaster
from support.links.moving.java import java_gateway
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(400)
def test_a_share_group_is_named_and_its_start_offset_moves_by_hand(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Readiness, dry run and report of a promotion name it; what docs/disaster-recovery.md advises skips no record."""
    scene = _scene(east, west, topic_name, tmp_path, spark_context)
    group = f"{scene.name}-sharing"
    scene.commit("east", "plain", {0: 10})
    with java_gateway() as gateway:
        groups = _ShareGroups(gateway)
        first, values = _half_read(scene, groups, group)

        for verb, arguments in (("readiness", ()), ("promote", ("--dry-run",)), ("promote", ("--yes",))):
            code, found, said = scene.command(verb, *arguments)
            assert code == 0, said
            checks = found["checks"] if verb == "readiness" else found["readiness"]["checks"]
            (check,) = (each for each in checks if each["name"] == "share groups")
            assert (check["level"], group in check["text"]) == ("warn", True), check
        assert group not in {move["group"] for move in found["groups"]}

        # the way by hand
        start = groups.start_offset(scene.east, group, scene.topic)
        done = subprocess.run(
            [
                sys.executable, "-m", "eomirror", "offsets", "translate", str(scene.path()), "--link", scene.name,
                "--topic", scene.topic, "--partition", "0", "--offset", str(start), "-o", "json",
            ],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        (answer,) = json.loads(done.stdout)["offsets"]
        groups.set_start(scene.west, group, scene.copy, answer["to_offset"])
        rest = groups.read(scene.west, group, scene.copy, len(values) - len(first))
    # brokers move the start offset of a share group late: what it acknowledged beyond it is delivered again
    assert rest == values[-len(rest) :]
    assert len(rest) >= len(values) - len(first)


@pytest.mark.timeout(400)
def test_kafkas_own_tool_moves_it_by_the_time_of_its_next_record(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Copies keep timestamps: the first record that is not older than the next one of the group skips nothing."""
    scene = _scene(east, west, topic_name, tmp_path, spark_context)
    group = f"{scene.name}-sharing"
    with java_gateway() as gateway:
        groups = _ShareGroups(gateway)
        first, values = _half_read(scene, groups, group)
        assert scene.command("promote", "--yes")[0] == 0

        described = _tool(scene.east, "--describe", "--offsets", "--group", group)
        titles, row = (line.split() for line in described.splitlines() if line.strip())
        start = int(row[titles.index("START-OFFSET")])
        (time,) = (each.timestamp()[1] for each in _records(scene.east, scene.topic, start))
        moment = datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")[:23]
        groups.configure(scene.west, group)
        _tool(
            scene.west, "--reset-offsets", "--group", group, "--topic", f"{scene.copy}:0", "--to-datetime", moment,
            "--execute",
        )  # fmt: skip
        rest = groups.read(scene.west, group, scene.copy, len(values) - len(first))
    assert rest == values[-len(rest) :]
    assert len(values) - len(first) <= len(rest) < len(values)


def _scene(east: Any, west: Any, topic_name: str, folder: Path, spark_context: Any) -> Disaster:
    """A link of one partition with 50 records on the source."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, folder, spark_context, partitions=1,
        back=False,
    )  # fmt: skip
    scene.write("east", 50)
    return scene


def _half_read(scene: Disaster, groups: _ShareGroups, group: str) -> tuple[list[str], list[str]]:
    """Records that the group has read, and all of them: as many again are written behind, and mirrored."""
    first = _values(scene)
    assert groups.read(scene.east, group, scene.topic, len(first)) == first
    scene.write("east", 50)
    values = _values(scene)
    scene.catch_up()
    return first, values


def _tool(properties: Mapping[str, Any], *arguments: str) -> str:
    """What kafka-share-groups.sh writes."""
    command = [
        str(find_java()),
        "-cp",
        class_path(),
        "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    ]
    done = subprocess.run(
        [*command, "--bootstrap-server", properties["bootstrap.servers"], *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _records(properties: Mapping[str, Any], topic: str, offset: int) -> list[Any]:
    """The record at an offset."""
    reader = Consumer({**properties, "group.id": "one", "enable.auto.commit": False})
    try:
        reader.assign([TopicPartition(topic, 0, offset)])
        return reader.consume(1, 30)
    finally:
        reader.close()


def _values(scene: Disaster) -> list[str]:
    return [(record[1] or b"").decode() for record in scene.read("east")[0]]


class _ShareGroups:
    """Java's KafkaShareConsumer and Admin, which know share groups; librdkafka does not."""

    def __init__(self, gateway: Any) -> None:
        self._jvm = gateway.jvm

    def read(self, properties: Mapping[str, Any], group: str, topic: str, wanted: int) -> list[str]:
        """Reads and acknowledges at least so many committed records, from the beginning for a new group."""
        self.configure(properties, group)
        text = "org.apache.kafka.common.serialization.StringDeserializer"
        settings = self._settings(
            properties, {"group.id": group, "key.deserializer": text, "value.deserializer": text}
        )
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaShareConsumer(settings)
        found: list[str] = []

        def enough() -> bool:
            records = consumer.poll(self._jvm.java.time.Duration.ofMillis(300)).iterator()
            while records.hasNext():
                found.append(str(records.next().value()))
            return len(found) >= wanted

        try:
            consumer.subscribe(self._jvm.java.util.Collections.singletonList(topic))
            wait_for(enough, 60)
            consumer.commitSync()
        finally:
            consumer.close()
        return found

    def start_offset(self, properties: Mapping[str, Any], group: str, topic: str) -> int:
        """Offset before which the group has acknowledged everything."""
        admin = self._admin(properties)
        try:
            asked = {group: self._jvm.org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec()}
            found = admin.listShareGroupOffsets(asked).partitionsToOffsetInfo(group).get()
            return int(found[self._where(topic)].startOffset())
        finally:
            admin.close()

    def set_start(self, properties: Mapping[str, Any], group: str, topic: str, offset: int) -> None:
        """Sets it, for a group without members."""
        admin = self._admin(properties)
        try:
            admin.alterShareGroupOffsets(group, self._longs(self._where(topic), offset)).all().get()
        finally:
            admin.close()

    def _longs(self, where: Any, offset: int) -> Any:
        """A map of one entry whose value is a Long: py4j makes an Integer of every small number that passes it."""
        numbers = self._jvm.java.util.stream.LongStream.range(offset, offset + 1).boxed().toList()
        entry = self._jvm.java.util.ArrayList()
        entry.add(where)
        entry.addAll(numbers)
        found = self._jvm.java.util.HashMap()
        (put,) = (each for each in found.getClass().getMethods() if each.getName() == "put")
        put.invoke(found, entry.toArray())
        return found

    def configure(self, properties: Mapping[str, Any], group: str) -> None:
        """Lets the group see committed records only, from the beginning: both are settings of the group."""
        admin = self._admin(properties)
        try:
            package = self._jvm.org.apache.kafka
            kind = package.common.config.ConfigResource.Type.GROUP
            resource = package.common.config.ConfigResource(kind, group)
            operation = package.clients.admin.AlterConfigOp.OpType.SET
            changes = [
                package.clients.admin.AlterConfigOp(package.clients.admin.ConfigEntry(name, value), operation)
                for name, value in (
                    ("share.auto.offset.reset", "earliest"), ("share.isolation.level", "read_committed"),
                )
            ]  # fmt: skip
            admin.incrementalAlterConfigs({resource: changes}).all().get()
        finally:
            admin.close()

    def _admin(self, properties: Mapping[str, Any]) -> Any:
        return self._jvm.org.apache.kafka.clients.admin.Admin.create(self._settings(properties, {}))

    def _settings(self, properties: Mapping[str, Any], more: Mapping[str, str]) -> Any:
        found = self._jvm.java.util.Properties()
        for name, value in {"bootstrap.servers": properties["bootstrap.servers"], **more}.items():
            found.setProperty(name, str(value))
        return found

    def _where(self, topic: str) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, 0)
