"""Random operations on a source while a link runs: topics, settings, rights, quotas, schemas; the target converges."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AclPermissionType, ConfigResource, NewPartitions, ResourceType

from support.clusters.guarded import acl, add_acls, delete_acls
from support.clusters.guarded_pair import guarded_pair
from support.clusters.quotas import client_quotas, set_quota
from support.clusters.schema_registry import Refusal, SchemaRegistry
from support.links.link import alter_topic
from support.links.mirrors import CommandMirror
from support.links.moving.java import java_gateway
from support.traffic.records import (
    create_topic,
    delete_topic,
    produce,
    read_committed,
    some_records,
    wait_for,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from support.clusters.guarded_pair import Guarded

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(7200)]

log = logging.getLogger(__name__)

STEPS = int(os.environ.get("EOMIRROR_OPERATIONS", "40"))
MOST = 12
APPS = ("User:app-1", "User:app-2", "User:app-3")
SUBJECTS = ("t-1-value", "t-2-value", "shared")
LEVELS = ("NONE", "FULL", "BACKWARD")
# kept in step, and the one that a copy never lowers
SETTINGS = ("retention.ms", "retention.bytes", "delete.retention.ms")
LIMIT = "max.message.bytes"
# never changed, and written at each step
STEADY = "t-steady"
CHECKED_EVERY = 10
OF_ANOTHER_TOPIC = ("the source topic was deleted and created again", "the source topic is gone")


class Operations:
    """
    Changes the source, and compares the target with it.

    Attributes:
        live: Partitions of the topics that exist.
        gone: Topics that were deleted; True if they had a copy then.
        again: Topics that were created again, perhaps before their copy was deleted, which then stays.
    """

    def __init__(
        self,
        pair: Guarded,
        gateway: Any,
        registries: tuple[SchemaRegistry, SchemaRegistry],
        rng: random.Random,
    ) -> None:
        self.live: dict[str, int] = {}
        self.gone: dict[str, bool] = {}
        self.again: set[str] = set()
        self._pair = pair
        self._gateway = gateway
        self._registries = registries
        self._rng = rng
        self._written = 0
        self._producer = Producer({**pair.all("east"), "enable.idempotence": True})
        create_topic(pair.all("east"), STEADY)

    def step(self) -> str:
        """One operation; returns what it did."""
        kinds = {
            self._create: 3, self._recreate: 1, self._delete: 2, self._grow: 2, self._configure: 3, self._rights: 4,
            self._quota: 2, self._schema: 3, self._write: 4,
        }  # fmt: skip
        self._producer.produce(STEADY, str(self._written).encode())
        assert self._producer.flush(30) == 0
        self._written += 1
        while True:
            (kind,) = self._rng.choices(list(kinds), list(kinds.values()))
            if (done := kind()) is not None:
                return f"{kind.__name__.strip('_')} {done}"

    def flows(self) -> bool:
        """True if all records of the topic that no operation is about are on the target."""
        if f"east.{STEADY}" not in self._pair.topics("west"):
            return False
        (found,) = read_committed(self._pair.all("west"), f"east.{STEADY}").values()
        return [value for _, value, _, _ in found] == [str(each).encode() for each in range(self._written)]

    def differences(self) -> list[str]:
        """What the target has not, or has otherwise."""
        try:
            return self._differences()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return [f"a copy was deleted while it was looked at: {error}"]

    def _differences(self) -> list[str]:
        found = [*self._of_rights(), *self._of_quotas(), *self._of_schemas()]
        stopped = self.stopped()
        copies = self._pair.topics("west")
        found += [
            f"{topic} is gone, and stopped: {stopped[topic]['reason']}"
            for topic in sorted(self.gone.keys() & stopped.keys())
            if f"east.{topic}" not in copies
        ]
        for topic in sorted({*self.live, STEADY}):
            if topic in stopped:
                # one that was created again while its copy was there is named, and its copy is left as it is
                reason = stopped[topic]["reason"]
                if topic not in self.again or not any(text in reason for text in OF_ANOTHER_TOPIC):
                    found.append(f"{topic} stopped: {reason}")
            elif f"east.{topic}" not in copies:
                found.append(f"{topic} has no copy")
            else:
                here, there = self._seen("east", topic), self._seen("west", f"east.{topic}")
                if here[0] != there[0] or here[1] > there[1]:
                    found.append(f"{topic} differs: {here[:2]}, {there[:2]}")
                elif here[2] != there[2]:
                    found.append(f"{topic} has other records")
        # one that was created and never begun stays: no position proves that it is the link's
        left = (topic for topic in sorted(self.gone) if f"east.{topic}" in copies)
        return [
            *found,
            *(
                f"{topic} has a copy"
                for topic in left
                if any(self._seen("west", f"east.{topic}")[2].values())
            ),
        ]

    # -- operations, each None where it cannot be done --------------------------------------------

    def _create(self) -> str | None:
        if len(self.live) == MOST:
            return None
        return self._made(f"t-{len(self.live) + len(self.gone)}")

    def _recreate(self) -> str | None:
        if not self.gone or len(self.live) == MOST:
            return None
        topic = self._rng.choice(sorted(self.gone))
        # its copy was there, and the policy has deleted it: from here on it is a new topic
        new = self.gone.pop(topic) and f"east.{topic}" not in self._pair.topics("west")
        (self.again.discard if new else self.again.add)(topic)
        return f"{self._made(topic)}{' as a new one' if new else ''}"

    def _made(self, topic: str) -> str:
        self.live[topic] = self._rng.randint(1, 3)
        create_topic(self._pair.all("east"), topic, self.live[topic])
        return f"{topic} with {self.live[topic]} partitions"

    def _delete(self) -> str | None:
        if (topic := self._one()) is None:
            return None
        self.gone[topic] = f"east.{topic}" in self._pair.topics("west")
        delete_topic(self._pair.all("east"), topic)
        del self.live[topic]
        return topic

    def _grow(self) -> str | None:
        if (topic := self._one()) is None or self.live[topic] == 6:
            return None
        self.live[topic] += 1
        grown = self._pair.admin("east").create_partitions([NewPartitions(topic, self.live[topic])])
        grown[topic].result(30)
        return f"{topic} to {self.live[topic]}"

    def _configure(self) -> str | None:
        if (topic := self._one()) is None:
            return None
        name = self._rng.choice((*SETTINGS, LIMIT))
        value = str(self._rng.randrange(10_000_000, 1_000_000_000))
        alter_topic(self._pair.all("east"), topic, **{name.replace(".", "_"): value})
        return f"{topic} {name}={value}"

    def _rights(self) -> str:
        entry = acl(
            self._rng.choice(sorted({*self.live, *self.gone, STEADY})),
            self._rng.choice(APPS),
            self._rng.choice((AclPermissionType.ALLOW, AclPermissionType.DENY)),
            operation=self._rng.choice((AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)),
        )
        there = (
            entry.principal,
            entry.operation.name,
            entry.permission_type.name,
            f"TOPIC LITERAL {entry.name}",
        )
        known = there in self._pair.entries("east", *APPS)
        (delete_acls if known else add_acls)(self._pair.admin("east"), [entry])
        return f"{'-' if known else '+'} {' '.join(there)}"

    def _quota(self) -> str:
        user, value = self._rng.choice(APPS).removeprefix("User:"), self._rng.choice((None, 1e6, 2e6, 3e6))
        key = self._rng.choice(("producer_byte_rate", "consumer_byte_rate"))
        set_quota(self._gateway, self._servers("east"), {"user": user}, key, value)
        return f"{user} {key}={value}"

    def _schema(self) -> str | None:
        """A new version, a level, or the deletion of the newest version; a version that is deleted goes for good."""
        source, _ = self._registries
        subject = self._rng.choice(SUBJECTS)
        versions = source.shown().get(subject, {})
        match self._rng.choice(("add", "add", "level", "delete")):
            case "add":
                return f"{subject} id {source.add(subject, f'schema {self._rng.randrange(40)}')}"
            case "level":
                level = self._rng.choice(LEVELS)
                source.call("PUT", f"/config/{subject}", {"compatibility": level})
                return f"{subject} {level}"
        if not versions:
            return None
        number = max(versions)
        for_good = "?permanent=true" if versions[number][1] else ""
        try:
            source.call("DELETE", f"/subjects/{subject}/versions/{number}{for_good}")
        except Refusal:
            return None
        return f"{subject} - {number} {for_good}"

    def _write(self) -> str | None:
        if (topic := self._one()) is None:
            return None
        # of now: brokers delete older ones at a time of their own once `retention.ms` is set
        now_ms = int(1000 * time.time())
        records = [
            (key, value, now_ms, headers)
            for key, value, _, headers in some_records(self._rng.randrange(1_000_000), 60)
        ]
        produce(self._pair.all("east"), topic, self.live[topic], records, transactional_id="operations")
        return topic

    def _one(self) -> str | None:
        return self._rng.choice(sorted(self.live)) if self.live else None

    # -- comparison -------------------------------------------------------------------------------

    def _servers(self, alias: str) -> str:
        return self._pair.clusters[alias].internal_servers

    def _seen(self, alias: str, topic: str) -> tuple[Any, ...]:
        """Settings of a topic, its limit, and its records."""
        asked = ConfigResource(ResourceType.TOPIC, topic)
        found = self._pair.admin(alias).describe_configs([asked])[asked].result(30)
        settings = {name: found[name].value for name in SETTINGS}
        return settings, int(found[LIMIT].value), read_committed(self._pair.all(alias), topic)

    def _of_rights(self) -> Iterator[str]:
        """As `acls: true` carries them: no right to write."""
        place = "TOPIC LITERAL"
        wanted = {
            (
                principal,
                operation,
                permission,
                where.replace(place, f"{place} east.", 1).replace(". ", ".", 1),
            )
            for principal, operation, permission, where in self._pair.entries("east", *APPS)
            if (operation, permission) != ("WRITE", "ALLOW")
        }
        for entry in sorted(wanted ^ self._pair.entries("west", *APPS)):
            yield f"right {entry} {'lacks' if entry in wanted else 'stays'}"

    def _of_quotas(self) -> Iterator[str]:
        here, there = (client_quotas(self._gateway, self._servers(alias)) for alias in ("east", "west"))
        if here != there:
            yield f"quotas {here}, {there}"

    def _of_schemas(self) -> Iterator[str]:
        source, target = self._registries
        here, there = source.shown(), target.shown(":.east:")
        if here != there:
            yield f"schemas {here}, {there}"
        for subject in here:
            levels = source.level_of(subject), target.level_of(f":.east:{subject}")
            if len(set(levels)) > 1:
                yield f"levels of {subject}: {levels}"

    def stopped(self) -> dict[str, dict[str, Any]]:
        """Topics that are shown as stopped, with reason and exit code."""
        code, out, said = self._pair.command("status", "-o", "json")
        assert code == 0, said
        (link,) = json.loads(out)["links"]
        return {stop["topic"]: stop for stop in link["stopped"]}


def test_a_target_converges_under_random_operations(tmp_path: Path, rng: random.Random) -> None:
    """Topics come, grow, change, go and come again; rights, quotas, schemas; another topic flows on."""
    with guarded_pair(tmp_path) as pair, java_gateway() as gateway, ExitStack() as closing:
        registries = SchemaRegistry(), SchemaRegistry()
        for one in registries:
            closing.callback(one.close)
        link = {
            "source": "east", "target": "west", "topics": ["t-.*"], "groups": [], "acls": True, "quotas": True,
            "deletions": "delete", "deletion_delay": "0s",
            "schemas": {
                "source": registries[0].url, "target": registries[1].url, "context": "east", "interval": "1s",
                "deletions": "delete",
            },
        }  # fmt: skip
        pair.configure(link, lanes=2)
        pair.grant(pair.printed())
        operations = Operations(pair, gateway, registries, rng)
        mirror = CommandMirror(json.loads((tmp_path / "mirror.yaml").read_text()), tmp_path / "mirror")
        try:
            mirror.start()
            for number in range(STEPS):
                log.warning("%s %s", number, operations.step())
                if number % CHECKED_EVERY == CHECKED_EVERY - 1:
                    mirror.check()
                    wait_for(operations.flows, 120)
            deadline = time.monotonic() + 120
            while (differences := operations.differences()) and time.monotonic() < deadline:
                mirror.check()
                time.sleep(1)
            assert differences == [], "\n".join([*differences, mirror.tree.last_lines()])
            assert operations.flows()
            # of those that `differences` accepts, some are stopped for data loss: a run that is ended says so
            lost = any(stop["exit_code"] == 4 for stop in operations.stopped().values())
            mirror.stop(aborted=True, code=4 if lost else 0)
        finally:
            mirror.close()
