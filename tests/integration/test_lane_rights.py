"""A right that is taken away under a running mirror stops the topic that it was for, and no other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from structlog.testing import capture_logs

from eomirror.clock import new_run_id
from eomirror.config import load_config
from eomirror.config.rights import told
from eomirror.errors import AuthorizationError
from eomirror.groups.offset_queries import unreadable_topics
from eomirror.kafka.consumer_groups import Committed, GroupCoordinators
from eomirror.kafka.plain_producer import PlainProducer, write_records
from eomirror.kafka.session import link_sessions
from eomirror.lane.spec import Ending, LaneProgress, LaneSpec, StopReason
from eomirror.link.lane_state import LaneTopics
from eomirror.link.owner import LinkOwner
from eomirror.localkafka.cluster import LocalCluster
from eomirror.plane.protocol import ProducerIdentity
from eomirror.recovery.hanging_client import TargetHangingClient
from eomirror.spark.attempt import run_lane
from eomirror.topics.discovery import Discovery
from support.clusters.guarded import acl, add_acls, delete_acls, guarded_spec
from support.fakes.quiet_mailbox import QuietMailbox
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


class Guarded:
    """A cluster that asks who we are, mirrored into itself; every topic has rights of its own."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.everything = cluster.client_properties
        self.ours = cluster.client_properties_of("mirror")
        self._admin = AdminClient(dict(self.everything))

    def grant(
        self,
        kind: ResourceType,
        name: str,
        pattern: ResourcePatternType,
        operation: AclOperation = AclOperation.ALL,
    ) -> None:
        """All rights on it, or one."""
        add_acls(self._admin, [acl(name, kind=kind, pattern=pattern, operation=operation)])

    def revoke(self, topic: str) -> None:
        """All rights on one topic."""
        delete_acls(self._admin, [acl(topic)])

    def deny_write(self, topic: str) -> AclBinding:
        """Take away the right to write a topic, whatever else grants it."""
        return self.deny(AclOperation.WRITE, topic)

    def deny(self, operation: AclOperation, topic: str) -> AclBinding:
        """Take away one right on a topic."""
        binding = acl(topic, permission=AclPermissionType.DENY, operation=operation)
        add_acls(self._admin, [binding])
        return binding

    def lift(self, binding: AclBinding) -> None:
        """Delete a rule."""
        delete_acls(self._admin, [binding])

    def config(self, topics: list[str]) -> Any:
        """Of a link that copies these within the cluster."""
        clusters = {"east": dict(self.ours), "west": dict(self.ours)}
        link = {"name": "within", "source": "east", "target": "west", "topics": topics, "lanes": 1}
        # whose topics are not among those that it was granted
        link |= {"offset_syncs": "off", "heartbeats": "off", "groups": []}
        return load_config({"clusters": clusters, "links": [link]})


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    """The cluster, where the mirror may write its own topics."""
    with LocalCluster.start(guarded_spec()) as cluster:
        made = Guarded(cluster)
        # no right to any group: the mirror is in none, though librdkafka looks for a coordinator and is refused
        for kind in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID):
            made.grant(kind, "eomirror.", ResourcePatternType.PREFIXED)
        yield made


class UntilReached(QuietMailbox):
    """A mailbox that stops the lane once the topic's position is at the goal."""

    def __init__(self, topic: str, goal: int) -> None:
        self._topic, self._goal = topic, goal
        self._reached = False
        self._end = time.monotonic() + 60

    def report(self, progress: LaneProgress) -> None:
        self._reached |= any(
            item.topic == self._topic and item.position >= self._goal for item in progress.partitions
        )

    def stop(self) -> StopReason | None:
        return StopReason.SHUTDOWN if self._reached or time.monotonic() > self._end else None


def test_a_topic_without_rights_stops_alone(guarded: Guarded) -> None:
    """On the source or on the target: the topic's reason names right, topic and principal; others are mirrored."""
    topics = ["kept", "hidden", "walled"]
    committed = {}
    for number, topic in enumerate(topics):
        create_topic(guarded.everything, topic)
        for name in (topic, f"east.{topic}"):
            guarded.grant(ResourceType.TOPIC, name, ResourcePatternType.LITERAL)
        committed[topic] = produce(
            guarded.everything, topic, 1, some_records(70 + number, 100), transactional_id=topic
        )
    config = guarded.config(topics)
    link, source, target = config.links[0], config.clusters["east"], config.clusters["west"]
    sessions, run = link_sessions(link, source, target, "test"), new_run_id()
    discovery, owner = Discovery(link, *sessions), LinkOwner(link, *sessions, run=run)
    try:
        layout = owner.acquire(1, discovery.prepare())
        goals = {item.topic: goal for item, goal in discovery.goals().items()}
        spec = LaneSpec(
            link=link, source=source, target=target, source_cluster_id=layout.source_cluster_id,
            target_cluster_id=layout.target_cluster_id, run=run, generation=layout.generation, lane=0,
            epoch=1, attempt=1, seconds=60, partitions=layout.lanes[0],
        )  # fmt: skip
        guarded.revoke("hidden")
        guarded.revoke("east.walled")

        report = run_lane(spec, UntilReached("kept", goals["kept"]))
    finally:
        owner.release()
        owner.close()

    assert (report.ending, report.error) == (Ending.STOPPED, None), report
    assert set(report.stopped_topics) == {"hidden", "walled"}
    for topic, name in (("hidden", "hidden"), ("walled", "east.walled")):
        stop = report.stopped_topics[topic]
        assert stop.exit_code == 1
        assert f"User:mirror lacks Describe on topic {name}" in stop.reason
        assert "kafka-acls.sh" in str(stop)
    assert read_committed(guarded.everything, "east.kept") == committed["kept"]
    assert read_committed(guarded.everything, "east.walled") == {0: []}

    lane_topics = LaneTopics(spec, *(session.admin for session in sessions))
    try:
        # asked in mid-transaction (rule 5), the answer names the source topic, which is what a lane stops
        for asked in ((["hidden", "kept"], ["east.kept"]), (["kept"], ["east.kept", "east.walled"])):
            with pytest.raises(AuthorizationError, match="lacks Describe") as raised:
                lane_topics.request_ids(*asked).result()
            assert raised.value.topic in {"hidden", "walled"}
    finally:
        sessions.close()


@pytest.mark.parametrize("state", ["control", "positions"])
def test_a_missing_right_to_write_the_links_own_topics_is_named(guarded: Guarded, state: str) -> None:
    """At a first run, and under one that has the link: topic and grant are named, and not the coordinator."""
    create_topic(guarded.everything, "kept")
    for name in ("kept", "east.kept"):
        guarded.grant(ResourceType.TOPIC, name, ResourcePatternType.LITERAL)
    config = guarded.config(["kept"])
    link, source, target = config.links[0], config.clusters["east"], config.clusters["west"]
    topic = f"eomirror.within.{state}"
    denied = guarded.deny_write(topic)
    sessions = link_sessions(link, source, target, "test")
    discovery, owner = Discovery(link, *sessions), LinkOwner(link, *sessions, run=new_run_id())
    try:
        partitions = discovery.prepare()
        with pytest.raises(AuthorizationError, match="Write on topic") as raised:
            owner.acquire(1, partitions)
        assert f"User:mirror lacks Write on topic {topic} of cluster west" in raised.value.message
        assert f"--operation Write --topic '{topic}'" in raised.value.fix
        guarded.lift(denied)
        owner.acquire(1, partitions)
        owner.renew()
        if state == "control":
            guarded.deny_write(topic)
            with pytest.raises(AuthorizationError, match="Write on topic") as raised:
                wait_for(owner.renew)
            assert f"--operation Write --topic '{topic}'" in raised.value.fix
    finally:
        owner.close()
        sessions.close()


def test_every_refusal_names_user_operation_resource_and_command(guarded: Guarded) -> None:
    """Heartbeats and reports, commits of groups, and the search for hanging transactions, each as brokers refuse it."""
    for topic in ("kept", "hidden", "seen"):
        create_topic(guarded.everything, topic)
    guarded.grant(ResourceType.TOPIC, "kept", ResourcePatternType.LITERAL)
    guarded.grant(ResourceType.TOPIC, "seen", ResourcePatternType.LITERAL, AclOperation.DESCRIBE)
    guarded.grant(ResourceType.GROUP, "app", ResourcePatternType.LITERAL)
    config = guarded.config(["kept"])
    link, cluster = config.links[0], config.clusters["west"]
    sessions = link_sessions(link, config.clusters["east"], cluster, "test")
    said: list[tuple[str, str]] = []

    producer = PlainProducer(cluster, client_id="test", topic="hidden")
    with capture_logs() as logs:
        producer.send(b"k", b"v")
        wait_for(lambda: producer._producer.poll(0.1) and logs)
    producer.close()
    said.append(("Write on topic hidden", logs[0]["reason"]))
    problem = write_records(cluster, "hidden", [(b"k", b"v")], client_id="test", seconds=30)
    said.append(("Write on topic hidden", problem))

    groups = GroupCoordinators(cluster, "test")
    offsets = {("kept", 0): Committed(0), ("hidden", 0): Committed(0)}
    said.append(("Read on topic hidden", groups.write("app", offsets)))
    said.append(("Describe on group other", str(groups.describe(["other"])["other"])))
    with pytest.raises(AuthorizationError) as refused:
        groups.write("other", {("kept", 0): Committed(0)})
    said.append(("Read on group other", told(refused.value)))
    groups.close()
    rule = guarded.deny(AclOperation.READ, "kept")
    wait_for(lambda: unreadable_topics(sessions.target.admin, ["kept"]))
    said.append(("Read on topic kept", unreadable_topics(sessions.target.admin, ["kept"])["kept"]))
    guarded.lift(rule)

    hanging = TargetHangingClient(link, sessions.target, offset_map=Mock())
    try:
        for ask in (
            lambda: hanging.batch_at(("seen", 0, 0)),
            lambda: hanging.batches({("seen", 0): 0}),
            lambda: hanging.committed(("seen", 0), (0, 1)),
            lambda: hanging.writers([("seen", 0)]),
            lambda: hanging.is_written_by(("seen", 0), 0, ProducerIdentity(1, 0)),
        ):
            with pytest.raises(AuthorizationError) as raised:
                ask()
            said.append(("Read on topic seen", told(raised.value)))
        with pytest.raises(AuthorizationError) as raised:
            hanging.end(0, [("seen", 0)], commit=False)
        said.append(("Write on topic seen", told(raised.value)))
        with capture_logs() as logs:
            hanging.record_states({("seen", 0): 0})
        said.append(("Read on topic seen", f"{logs[0]['reason']}: {logs[0]['fix']}"))
    finally:
        sessions.close()
    for right, text in said:
        operation, _, resource = right.partition(" on ")
        kind, name = resource.split()
        assert f"User:mirror lacks {right} of cluster west" in text, (right, text)
        assert "--allow-principal 'User:mirror'" in text, (right, text)
        assert f"--operation {operation} --{kind} '{name}'" in text, (right, text)
