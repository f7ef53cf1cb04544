"""The fence by ACL on a cluster with an authorizer: it stops an application, and is removed exactly."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eomirror.localkafka.cluster import ClusterSpec
from support.disaster import Disaster
from support.moving.java import java_gateway
from support.records import create_topic
from support.switched_clients import JavaApplication

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

_EVERYTHING = AclBindingFilter(
    ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def entries(admin: AdminClient) -> set[tuple[str, str, str]]:
    """Topic, principal and permission of every ACL entry on topics."""
    found = admin.describe_acls(_EVERYTHING).result(30)
    return {(one.name, one.principal, one.permission_type.name) for one in found}


def add(admin: AdminClient, topic: str, principal: str, permission: AclPermissionType) -> None:
    """Add an entry for writes."""
    binding = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, "*", AclOperation.WRITE, permission
    )
    for future in admin.create_acls([binding]).values():
        future.result(30)


def refused(properties: Mapping[str, Any], topic: str) -> bool:
    """Whether an application may not write; raises for any other failure."""
    failed: list[KafkaError] = []
    producer = Producer({**properties, "message.timeout.ms": 15_000})
    producer.produce(topic, b"more", on_delivery=lambda error, _: failed.append(error) if error else None)
    try:
        producer.flush(30)
    except KafkaException as raised:
        failed.append(raised.args[0])
    if failed:
        assert failed[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, failed[0]
    return bool(failed)


def java_application(gateway: Any, properties: Mapping[str, Any], topic: str) -> JavaApplication:
    """Java's clients with the same login."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    name, password = properties["sasl.username"], properties["sasl.password"]
    settings = {
        "security.protocol": str(properties["security.protocol"]).upper(), "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{login} required username="{name}" password="{password}";',
    }  # fmt: skip
    servers = properties["bootstrap.servers"]
    return JavaApplication(gateway, "Java 4.3", servers, topic, "java", settings=settings)


@pytest.mark.timeout(400)
def test_an_acl_fence_stops_applications_and_is_removed_exactly(
    start_cluster: Callable[[ClusterSpec], Any],
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
) -> None:
    """
    An entry that was there before stays; a second call, and one on a cluster without authorizer, say so.

    Java's producer fails every record while the fence stands, and goes on without a restart when it is lifted.
    """
    guarded = start_cluster(
        ClusterSpec(
            "guarded",
            security="sasl_plaintext",
            authorizer=True,
            users={"application": "secret"},
            heap="384m",
        )
    )
    everything = dict(guarded.client_properties)
    scene = Disaster(everything, west.client_properties, topic_name, tmp_path, spark_context, back=False)
    other = f"{topic_name}.other"
    create_topic(everything, other)
    admin, application = AdminClient(everything), guarded.client_properties_of("application")
    add(admin, scene.topic, "User:application", AclPermissionType.ALLOW)
    add(admin, other, "User:*", AclPermissionType.DENY)
    before = entries(admin)
    scene.write("east")
    scene.catch_up()
    assert not refused(application, scene.topic)
    stack = ExitStack()
    java = java_application(stack.enter_context(java_gateway()), application, scene.topic)
    stack.callback(java.close)
    assert java.send("before") == ""
    _, found, said = scene.command("cutover", "--method", "acl", "--dry-run", "--verify", "skip")
    (check,) = (each for each in found["readiness"]["checks"] if each["name"] == "fence")
    assert (check["level"], check["text"].split(": ", 1)[1]) == (
        "ok",
        f"adds 1 entries DENY Write for User:*: {scene.topic}",
    ), said
    assert entries(admin) == before

    for _ in range(2):
        code, _, said = scene.command("fence", "--method", "acl", "--yes")
        assert code == 0, said
    assert refused(application, scene.topic)
    assert all("TopicAuthorizationException" in java.send(f"fenced {n}") for n in range(2))
    assert entries(admin) == before | {(scene.topic, "User:*", "DENY")}
    code, found, said = scene.command("unfence", "--yes")
    assert (code, found["lifted"]) == (0, "acl"), said
    assert entries(admin) == before
    assert not refused(application, scene.topic)
    with stack:
        assert java.send("after") == ""
    written = [(record[1] or b"").decode() for records in scene.read("east").values() for record in records]
    assert [written.count(value) for value in ("before", "fenced 0", "fenced 1", "after")] == [1, 0, 0, 1]
    assert scene.command("unfence", "--yes")[1]["lifted"] is None

    # the application has written since, and no mirror runs: refused before anything is touched
    code, _, said = scene.command("cutover", "--method", "acl", "--yes", "--patience", "1")
    assert code == 6, said
    assert entries(admin) == before


@pytest.mark.timeout(200)
def test_a_fence_by_acl_needs_an_authorizer(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """The error names the other methods, and nothing is left to undo."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, back=False
    )
    scene.write("east")
    scene.catch_up()

    code, _, said = scene.command("fence", "--method", "acl", "--yes")

    assert code == 1
    assert "no authorizer" in said
    assert "--method" in said
    assert scene.command("unfence", "--yes")[1]["lifted"] is None
