"""Schemas of copied records: the registry's topic by an ordinary link, and registries through their API."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from support.clusters.schema_registry import SchemaRegistry
from support.traffic.records import create_topic, delete_topic, produce, read_committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.links.link import TestLink

pytestmark = pytest.mark.integration

TOPIC = "_schemas"
NOOP = b'{"keytype":"NOOP","magic":0}'


def registered(number: int) -> tuple[bytes, bytes | None]:
    """A record as Confluent's registry writes it; each fifth is a deletion for good."""
    key = {"keytype": "SCHEMA", "subject": f"s{number}", "version": 1, "magic": 1}
    value = {"subject": f"s{number}", "version": 1, "id": number, "schema": '"int"', "deleted": False}
    return json.dumps(key).encode(), None if number % 5 == 0 else json.dumps(value).encode()


@pytest.fixture
def schemas_topic(east: Any, west: Any) -> Iterator[str]:
    """The topic of a registry on the source."""
    create_topic(east.client_properties, TOPIC, 1, **{"cleanup.policy": "compact"})
    yield TOPIC
    for cluster in (east, west):
        delete_topic(cluster.client_properties, TOPIC)


def send(properties: Any, records: list[tuple[bytes, bytes | None]]) -> None:
    """Writes without transactions, as a registry does."""
    producer = Producer(dict(properties))
    for key, value in records:
        producer.produce(TOPIC, key=key, value=value, partition=0)
    assert producer.flush(30) == 0


def pairs(properties: Any) -> list[tuple[bytes | None, bytes | None]]:
    return [(one[0], one[1]) for one in read_committed(properties, TOPIC)[0]]


def test_the_topic_of_a_registry_is_mirrored_like_any_other(
    make_link: Callable[..., TestLink], east: Any, west: Any, schemas_topic: str
) -> None:
    """
    One partition, compacted, under its own name, byte for byte and in order.

    A registry that starts on the copy writes a NOOP record there, also if it must not lead: the link goes on behind it.
    """
    link = make_link(topics=[schemas_topic], naming="identity")
    first = [registered(number) for number in range(1, 40)]
    send(east.client_properties, first)
    assert link.catch_up().exit_code == 0
    assert pairs(west.client_properties) == first

    admin = AdminClient(dict(west.client_properties))
    assert len(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions) == 1
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    (settings,) = (future.result(10) for future in admin.describe_configs([resource]).values())
    assert settings["cleanup.policy"].value == "compact"

    send(west.client_properties, [(NOOP, None)])
    more = [registered(number) for number in range(40, 50)]
    send(east.client_properties, more)
    assert link.catch_up().exit_code == 0
    assert pairs(west.client_properties) == [*first, (NOOP, None), *more]


@pytest.fixture
def registries() -> Iterator[tuple[SchemaRegistry, SchemaRegistry]]:
    """Registries of both ends."""
    made = SchemaRegistry(), SchemaRegistry()
    yield made
    for one in made:
        one.close()


def command(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and result of a command for the link's file."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", *arguments, "-o", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    # sinks of other tests on the same target stand behind it
    found, *_ = json.loads(done.stdout)["links"]
    return done.returncode, found


def test_registries_are_mirrored_while_records_are(
    make_link: Callable[..., TestLink], registries: tuple[SchemaRegistry, SchemaRegistry]
) -> None:
    """
    `plan` shows the changes, a run makes them, or `apply` without one; `status` tells its state from the topics.

    `verify --schemas` proves that each id in copied records stands for the same schema.
    """
    source, target = registries
    ids = [
        source.add("orders-value", '"int"'),
        source.add("orders-value", '"long"'),
        source.add("other", '"bytes"'),
    ]
    link = make_link(schemas={"source": source.url, "target": target.url, "context": "east"})
    link.create("orders")
    link.write("orders", 20)
    body = [b"\0" + one.to_bytes(4, "big") + b"data" for one in ids] + [b"\0\0\0\x03\xe7x"]
    records = [(None, value, 1_700_000_000_000, []) for value in body]
    produce(link.east, link.topic("orders"), 1, records, transactional_id=link.name)
    with link.mirror():
        pass  # its file is written

    code, planned = command("plan", str(link.path))
    assert code == 3
    assert [one["sign"] for one in planned["schemas"]["operations"]] == ["~", "+", "+", "+"]

    assert link.catch_up().exit_code == 0
    assert target.shown(":.east:") == source.shown()
    code, planned = command("plan", str(link.path))
    assert (code, planned["differs"]) == (0, False), planned
    assert planned["schemas"] == {"operations": [], "conflicts": [], "kept": []}

    source.add("late", '"float"')
    code, planned = command("plan", str(link.path))
    assert (code, planned["differs"], planned["changes"]) == (3, True, []), planned
    code, applied = command("apply", str(link.path))
    assert (code, applied["differs"], applied["schemas"]["state"]) == (0, False, "mirrored"), applied
    assert applied["changed"] == [{"sign": "+", "text": "schema :.east:late version 1, id 4"}]
    assert target.shown(":.east:") == source.shown()

    _, status = command("status", str(link.path))
    assert (status["schemas"]["state"], status["schemas"]["subjects"], status["schemas"]["versions"]) == (
        "mirrored", 2, 3,
    )  # fmt: skip
    assert status["schemas"]["age_seconds"] < 600

    code, verdict = command("verify", str(link.path), "--schemas")
    assert code == 0
    outcomes = {one["id"]: one["outcome"] for one in verdict["ids"]}
    assert {one: outcomes[one] for one in (*ids, 999)} == {**dict.fromkeys(ids, "equal"), 999: "unknown"}

    target.call("DELETE", "/subjects/:.east:other/versions/1")
    target.call("DELETE", "/subjects/:.east:other/versions/1?permanent=true")
    code, verdict = command("verify", str(link.path), "--schemas")
    assert code == 3
    assert {one["id"]: one["outcome"] for one in verdict["ids"]}[ids[2]] == "missing"
