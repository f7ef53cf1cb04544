"""A right that is taken away under a running mirror stops the topic that it was for, and no other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eomirror.clock import new_run_id
from eomirror.config import load_config
from eomirror.errors import AuthorizationError
from eomirror.kafka.session import link_sessions
from eomirror.lane.spec import Ending, LaneProgress, LaneSpec, StopReason
from eomirror.link.lane_state import LaneTopics
from eomirror.link.owner import LinkOwner
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.spark.attempt import run_lane
from eomirror.topics.discovery import Discovery
from support.quiet_mailbox import QuietMailbox
from support.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

_WHO = "User:mirror"


class Guarded:
    """A cluster that asks who we are, mirrored into itself; every topic has rights of its own."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.everything = cluster.client_properties
        self.ours = cluster.client_properties_of("mirror")
        self._admin = AdminClient(dict(self.everything))

    def grant(self, kind: ResourceType, name: str, pattern: ResourcePatternType) -> None:
        """All rights on it."""
        binding = AclBinding(kind, name, pattern, _WHO, "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for future in self._admin.create_acls([binding]).values():
            future.result(30)

    def revoke(self, topic: str) -> None:
        """All rights on one topic."""
        one = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            _WHO,
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self._admin.delete_acls([one]).values():
            assert future.result(30)

    def deny_write(self, topic: str) -> AclBinding:
        """Take away the right to write a topic, whatever else grants it."""
        binding = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            _WHO,
            "*",
            AclOperation.WRITE,
            AclPermissionType.DENY,
        )
        for future in self._admin.create_acls([binding]).values():
            future.result(30)
        return binding

    def lift(self, binding: AclBinding) -> None:
        """Delete a rule."""
        one = AclBindingFilter(
            binding.restype,
            binding.name,
            binding.resource_pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission_type,
        )
        for future in self._admin.delete_acls([one]).values():
            assert future.result(30)

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
    spec = ClusterSpec(
        "guarded", security="sasl_plaintext", authorizer=True, users={"mirror": "secret"}, heap="384m"
    )
    with LocalCluster.start(spec) as cluster:
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
                lane_topics.ask_ids(*asked).result()
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
