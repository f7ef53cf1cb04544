"""Consumers that are alive while their link is promoted: what they read again is not known, and every verb says so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import Consumer

from eomirror import Mirror
from support.links.disaster import Disaster
from support.links.link import RunningLink
from support.traffic.records import wait_for
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

_PAUSE_SECONDS = 0.1


class LiveConsumer(WorkerThread):
    """
    A member of a group that reads on slowly and commits every tenth record, until the block ends.

    Attributes:
        values: What it has read, in order.
    """

    def __init__(self, properties: Mapping[str, Any], topic: str, group: str) -> None:
        super().__init__(f"consumer of {group}")
        self.values: list[bytes] = []
        self._topic = topic
        self._consumer = Consumer(
            {
                **properties, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                "isolation.level": "read_committed", "log_level": 0,
            }
        )  # fmt: skip

    def __enter__(self) -> Self:
        self.start()
        wait_for(lambda: len(self.values) > 10, 60)
        return self

    def work(self) -> None:
        """Reads, and leaves the group at the end with all committed."""
        self._consumer.subscribe([self._topic])
        while not self.asked.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            self.values.append(message.value() or b"")
            if len(self.values) % 10 == 0:
                self._consumer.commit(message, asynchronous=False)
            time.sleep(_PAUSE_SECONDS)
        self._consumer.close()


def checked(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The check of groups in the result of a verb."""
    (check,) = [one for one in found.get("readiness", found)["checks"] if one["name"] == "groups"]
    return check  # type: ignore[no-any-return]


def moves(found: Mapping[str, Any], group: str) -> list[Mapping[str, Any]]:
    """What the result says of one group."""
    return [one for one in found["groups"] if one["group"].endswith(f"-{group}")]


def assert_named(found: Mapping[str, Any], said: str) -> None:
    """The live group is named and not called exact; the idle one is exact and reads nothing again."""
    check = checked(found)
    assert check["level"] == "warn", said
    assert "1 with members on the source read again an unknown number" in check["text"], said
    live, idle = moves(found, "live"), moves(found, "idle")
    assert live, said
    for one in live:
        assert (one["again"], one["active_on_source"]) == (None, True), one
        assert one["kind"] not in {"exact", "next"}, one
        assert "it has members on the source (state stable)" in one["reason"], one
    assert idle, said
    assert {(one["again"], one["active_on_source"]) for one in idle} == {(0, False)}, idle


@pytest.mark.timeout(500)
def test_groups_with_members_on_the_source_are_named_and_never_exact(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """
    A consumer reads on during `cutover`, and one on the promoted side during `failback`.

    It reads on the other side again what it has read since: a plain client counts that.  Without it nothing warns.
    """
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, equal_names=True
    )
    scene.write("east", 1200)
    scene.commit("east", "idle", {number: scene.end("east", number) // 2 for number in range(2)})
    mirror = RunningLink(Mirror(scene.config(), spark=spark_context, links=[scene.name]))
    group = f"{scene.name}-live"
    try:
        mirror.wait(lambda: scene.count("west") == scene.count("east"), 120)
        code, found, said = scene.command("readiness")
        assert code == 0, said
        assert "members on the source" not in checked(found)["text"], said
        with LiveConsumer(scene.east, scene.topic, group) as consumer:
            for verb, *words in (
                ("readiness",),
                ("promote", "--dry-run", "--verify", "skip"),
                ("cutover", "--dry-run", "--verify", "skip", "--method", "wait"),
                ("failover", "--dry-run", "--force"),
            ):
                code, found, said = scene.command(verb, *words)
                assert code == 0, said
                assert_named(found, said)
            code, found, said = scene.command("cutover", "--yes", "--verify", "skip", "--method", "wait")
            assert (code, found["promoted"]) == (0, True), said
            assert_named(found, said)
            read = len(consumer.values)
            wait_for(lambda: len(consumer.values) > read + 20, 60)
        before = set(consumer.values)
    finally:
        mirror.end()
    with LiveConsumer(scene.west, scene.copy, group) as moved:
        assert before & set(moved.values), "it reads again what it read behind the look"

        code, _, said = scene.command("reverse", "--yes")
        assert code == 0, said
        scene.catch_up(scene.back)
        back = RunningLink(Mirror(scene.config(), spark=spark_context, links=[scene.back]))
        try:
            for words in (("--dry-run",), ("--yes",)):
                code, found, said = scene.command(
                    "failback", "--verify", "skip", "--method", "wait", "--patience", "60", *words
                )
                assert code == 0, said
                assert_named(found["promotion"], said)
        finally:
            back.end()
