"""Bad input against real brokers: one screen with the fix, and nothing created on the target."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eomirror.config import Cluster, Link, Secret
from eomirror.errors import AuthorizationError, ClusterError, ConfigError, MirrorError, TopicError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.session import link_sessions
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.topics.discovery import Discovery
from eomirror.topology.naming import Naming
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

_PASSWORD = "a-password-that-must-not-show"  # noqa: S105  of a cluster that lives for one test


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    """A target that asks who we are and what we may."""
    spec = ClusterSpec(
        "west", security="sasl_plaintext", authorizer=True, users={"mirror": _PASSWORD}, heap="384m"
    )
    with LocalCluster.start(spec) as cluster:
        yield cluster


def cluster(alias: str, properties: dict[str, str]) -> Cluster:
    return Cluster(
        alias, {key: Secret(value) if "password" in key else value for key, value in properties.items()}
    )


# without topics for MM2's readers, which need rights of their own
_QUIET: dict[str, Any] = {"offset_syncs": "off", "heartbeats": "off", "groups": ()}


def refused(source: Cluster, target: Cluster, **settings: Any) -> MirrorError:
    """What `prepare` raises, after the checks that hold for every error of a user."""
    link = Link(name="east->west", source="east", target="west", topics=("orders",), **_QUIET)
    with (
        closing(link_sessions(link, source, target, "test")) as sessions,
        pytest.raises(MirrorError) as raised,
    ):
        Discovery(replace(link, **settings), *sessions).prepare()
    text = str(raised.value)
    assert "fix: " in text
    assert len(text.splitlines()) < 20
    assert len(text) < 1200
    assert _PASSWORD not in text
    return raised.value


def topics_of(properties: dict[str, str]) -> list[str]:
    return sorted(AdminClient(properties).list_topics(timeout=10).topics)


@pytest.fixture
def unchanged(west: Any) -> Iterator[None]:
    """Fails the test when the target has more topics after it than before."""
    before = topics_of(west.client_properties)
    yield
    assert topics_of(west.client_properties) == before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("away", ["east", "west"])
def test_an_unreachable_broker(east: Any, west: Any, topic_name: str, away: str) -> None:
    """A closed port is named with its address, within seconds."""
    create_topic(east.client_properties, topic_name)
    clusters = {
        "east": cluster("east", east.client_properties),
        "west": cluster("west", west.client_properties),
    }
    clusters[away] = Cluster(away, {"bootstrap.servers": "127.0.0.1:1"})

    error = refused(clusters["east"], clusters["west"], topics=(topic_name,))

    assert isinstance(error, ClusterError)
    assert error.exit_code == 1
    assert f"{away} (127.0.0.1:1)" in error.message
    assert "Connection refused" in error.message
    assert "bootstrap.servers" in error.fix


@pytest.mark.usefixtures("unchanged")
def test_a_missing_topic(east: Any, west: Any, topic_name: str) -> None:
    """A name is waited for like a pattern that matches nothing; `plan` names it."""
    clusters = cluster("east", east.client_properties), cluster("west", west.client_properties)
    names = (topic_name, f"{topic_name}.with.dots", f"{topic_name}\\.escaped")
    link = Link(name="east->west", source="east", target="west", topics=names, **_QUIET)
    with closing(link_sessions(link, *clusters, "test")) as sessions:
        plan = Discovery(link, *sessions).plan()

    assert plan.targets == {}
    assert list(plan.awaited) == sorted(name.replace("\\", "") for name in names)
    assert "created on east" in plan.awaited[topic_name]


@pytest.mark.usefixtures("unchanged")
def test_a_name_that_the_prefix_makes_too_long(east: Any, west: Any, topic_name: str) -> None:
    """249 characters are Kafka's limit; the fix names the settings that change it."""
    long = f"{topic_name}-".ljust(247, "x")
    create_topic(east.client_properties, long)

    error = refused(
        cluster("east", east.client_properties), cluster("west", west.client_properties), topics=(long,)
    )

    assert isinstance(error, TopicError)
    assert "249" in error.message
    assert "naming" in error.fix


@pytest.mark.parametrize(
    ("naming", "topics"),
    [
        (Naming("identity"), "{name}"),
        (Naming(), ".*{name}.*"),
        (Naming("pattern", pattern="{topic}.copy"), "{name}.*"),
    ],
)
def test_source_and_target_are_the_same_cluster(
    east: Any, topic_name: str, naming: Naming, topics: str
) -> None:
    """Two addresses of one cluster are told by the cluster's id; a copy that matches again is refused."""
    create_topic(east.client_properties, topic_name)
    before = topics_of(east.client_properties)
    source, target = cluster("east", east.client_properties), cluster("west", east.client_properties)

    error = refused(source, target, naming=naming, topics=(topics.format(name=topic_name),))

    assert isinstance(error, ConfigError)
    assert error.exit_code == 78
    assert east.cluster_id in error.message
    assert topics_of(east.client_properties) == before


def test_copies_within_a_cluster_may_be_made(east: Any, topic_name: str) -> None:
    """Every topic is renamed, and no new name matches: that is a use, not a mistake."""
    create_topic(east.client_properties, topic_name)
    link = Link(name=topic_name, source="east", target="west", topics=(topic_name,))
    clusters = cluster("east", east.client_properties), cluster("west", east.client_properties)
    with closing(link_sessions(link, *clusters, "test")) as sessions:
        prepared = Discovery(link, *sessions).prepare()

    assert [item.target_topic for item in prepared] == [f"east.{topic_name}"]


def test_two_topics_with_one_name_on_the_target(east: Any, west: Any, topic_name: str) -> None:
    """Records of two topics must not be mixed."""
    for name in ("a", "b"):
        create_topic(east.client_properties, f"{topic_name}-{name}")

    error = refused(
        cluster("east", east.client_properties),
        cluster("west", west.client_properties),
        topics=(f"{topic_name}-.*",),
        naming=Naming("match", match=f"({topic_name})-.", to="$1"),
    )

    assert isinstance(error, TopicError)
    assert "would both become" in error.message


def test_every_missing_right_is_named_before_anything_is_created(
    east: Any, guarded: LocalCluster, topic_name: str
) -> None:
    """
    From no right to all of them, one ACL at a time.

    Each refusal names operation, resource and principal, and grants exactly what it asked for with its fix;
    until the last check has passed there is no topic on the target, not even ours.
    """
    create_topic(east.client_properties, topic_name, 2)
    link = Link(name="east->west", source="east", target="west", topics=(topic_name,), **_QUIET)
    source = cluster("east", east.client_properties)
    target = cluster("west", guarded.client_properties_of("mirror"))
    everything = AdminClient(guarded.client_properties)

    def grant(resource: ResourceType, prefix: str, *operations: AclOperation) -> None:
        bindings = [
            AclBinding(
                resource,
                prefix,
                ResourcePatternType.PREFIXED,
                "User:mirror",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in everything.create_acls(bindings).values():
            future.result(30)

    def missing(right: str) -> None:
        error = refused(source, target, topics=(topic_name,))
        assert isinstance(error, AuthorizationError), error
        assert error.exit_code == 1
        assert f"User:mirror lacks {right}" in error.message
        assert "kafka-acls.sh" in error.fix
        assert "User:mirror" in error.fix
        assert [name for name in topics_of(guarded.client_properties) if not name.startswith("__")] == []

    state = "eomirror.east.west."
    missing(f"Describe on topic {state}control")
    grant(ResourceType.TOPIC, state, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
    missing(f"Describe on topic east.{topic_name}")
    grant(ResourceType.TOPIC, "east.", AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    missing(f"Create on topic {state}control")
    grant(ResourceType.TOPIC, state, AclOperation.CREATE)
    missing(f"Create on topic east.{topic_name}")
    grant(ResourceType.TOPIC, "east.", AclOperation.CREATE)
    missing(f"Write on transactional-id {state}control")
    grant(ResourceType.TRANSACTIONAL_ID, state, AclOperation.WRITE)

    with closing(link_sessions(link, source, target, "test")) as sessions:
        assert len(Discovery(link, *sessions).prepare()) == 2

    # what exists can be asked about: the right to write the copy shows at the next start, not in a lane
    error = refused(source, target, topics=(topic_name,))
    assert f"User:mirror lacks Write on topic east.{topic_name}" in error.message
    grant(ResourceType.TOPIC, "east.", AclOperation.WRITE)
    with closing(link_sessions(link, source, target, "test")) as sessions:
        assert len(Discovery(link, *sessions).prepare()) == 2


def test_a_wrong_password(guarded: LocalCluster) -> None:
    """It is told from an unreachable broker, soon, and the password does not show."""
    properties = {**guarded.client_properties_of("mirror"), "sasl.password": f"{_PASSWORD}x"}
    admin = ClusterAdmin(cluster("west", properties), client_id="test")

    with pytest.raises(AuthorizationError) as raised:
        admin.describe_cluster()
    admin.close()

    assert "credentials" in raised.value.fix
    assert _PASSWORD not in str(raised.value)
