"""Discovery between real clusters: what it creates, keeps in step, and leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from structlog.testing import capture_logs

from eomirror.config import Cluster, Link, load_config
from eomirror.errors import StateError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.kafka.session import LinkSessions, link_sessions
from eomirror.topics.discovery import Discovery
from eomirror.types import SourcePartition
from support.links.link import alter_topic
from support.traffic.records import create_topic, delete_topic, produce, some_records, wait_for

pytestmark = pytest.mark.integration

Make = Callable[..., Discovery]


class StandingClock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        import time

        time.sleep(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def discover(east: Any, west: Any, topic_name: str, clock: StandingClock) -> Iterator[Make]:
    """Makes a discovery of one link that mirrors the test's own topics."""
    made: list[LinkSessions] = []

    def make(**settings: Any) -> Discovery:
        link = Link(name=topic_name, source="east", target="west", topics=(f"{topic_name}.*",))
        source, target = Cluster("east", east.client_properties), Cluster("west", west.client_properties)
        made.append(link_sessions(link, source, target, "test", clock=clock))
        return Discovery(replace(link, **settings), *made[-1], clock=clock)

    yield make
    for sessions in made:
        sessions.close()


@pytest.fixture
def target(west: Any) -> Iterator[ClusterAdmin]:
    """Looks at the target from outside."""
    admin = ClusterAdmin(Cluster("west", west.client_properties), client_id="test")
    yield admin
    admin.close()


def own_configs(admin: ClusterAdmin, name: str) -> dict[str, str | None]:
    return {key: one.value for key, one in admin.topic_configs([name])[name].items() if not one.is_default}


def test_a_first_run_creates_copies_and_state(
    discover: Make, target: ClusterAdmin, east: Any, west: Any, topic_name: str
) -> None:
    """Partitions and settings come from the source; the second start changes nothing."""
    create_topic(
        east.client_properties,
        f"{topic_name}.a",
        3,
        **{
            "retention.ms": "987654321",
            "max.message.bytes": "3000000",
            "message.timestamp.type": "LogAppendTime",
        },
    )
    create_topic(east.client_properties, f"{topic_name}.b", 1, **{"cleanup.policy": "compact"})
    discovery = discover()

    partitions = discovery.prepare()

    assert discovery.cluster_ids == (east.cluster_id, west.cluster_id)
    assert [item.source for item in partitions] == [
        *(SourcePartition(f"{topic_name}.a", number) for number in range(3)),
        SourcePartition(f"{topic_name}.b", 0),
    ]
    for item in partitions:
        copy = target.describe_topics([item.target_topic])[item.target_topic]
        assert copy is not None
        assert (item.target_topic, item.target_topic_id) == (f"east.{item.source.topic}", copy.topic_id)
    settings = own_configs(target, f"east.{topic_name}.a")
    assert settings["retention.ms"] == "987654321"
    assert settings["max.message.bytes"] == "3000000"
    assert settings["message.timestamp.type"] == "CreateTime"
    assert settings["message.timestamp.after.max.ms"] == "9223372036854775807"
    assert own_configs(target, f"east.{topic_name}.b")["cleanup.policy"] == "compact"
    state = {name for name in target.topic_names() if name.startswith(f"eomirror.{topic_name}.")}
    assert state == {f"eomirror.{topic_name}.{kind}" for kind in ("control", "positions", "offset-map")}

    plan = discover().plan()
    assert (plan.state, plan.drifts, plan.first_run) == ((), (), False)
    assert set(plan.changes.values()) == {()}


def test_a_plan_creates_nothing(discover: Make, target: ClusterAdmin, east: Any, topic_name: str) -> None:
    """`eomirror plan` may be run by anybody at any time."""
    create_topic(east.client_properties, topic_name, 2)
    before = target.topic_names()

    plan = discover().plan()

    assert target.topic_names() == before
    assert plan.first_run
    assert plan.targets == {topic_name: f"east.{topic_name}"}
    (change,) = plan.changes[topic_name]
    assert isinstance(change, CreateTopic)
    assert (change.name, change.partitions) == (f"east.{topic_name}", 2)
    assert len(plan.state) == 3


def test_new_topics_and_partitions_are_found(
    discover: Make, target: ClusterAdmin, east: Any, topic_name: str
) -> None:
    """A refresh prepares what appeared; what is gone is no longer listed."""
    create_topic(east.client_properties, f"{topic_name}.a", 2)
    discovery = discover()
    first = discovery.prepare()
    assert discovery.refresh() == first

    create_topic(east.client_properties, f"{topic_name}.b", 1)
    admin = AdminClient(east.client_properties)
    admin.create_partitions([NewPartitions(f"{topic_name}.a", 4)])[f"{topic_name}.a"].result(30)
    found = wait_for(lambda: seen if len(seen := discovery.refresh()) == 5 else None)

    assert set(first) <= set(found)
    copies = target.describe_topics([f"east.{topic_name}.a", f"east.{topic_name}.b"])
    assert [facts.partitions if facts else 0 for facts in copies.values()] == [4, 1]

    delete_topic(east.client_properties, f"{topic_name}.b")
    assert {item.source.topic for item in discovery.refresh()} == {f"{topic_name}.a"}
    assert target.describe_topics([f"east.{topic_name}.b"])[f"east.{topic_name}.b"] is not None


def test_a_recreated_source_topic_shows_its_new_id(discover: Make, east: Any, topic_name: str) -> None:
    """Rule 5 is the lane's to enforce; discovery tells what is there."""
    create_topic(east.client_properties, topic_name, 1)
    discovery = discover()
    (before,) = discovery.prepare()
    delete_topic(east.client_properties, topic_name)
    create_topic(east.client_properties, topic_name, 1)

    (after,) = discovery.refresh()

    assert after.topic_id != before.topic_id
    assert after.target_topic_id == before.target_topic_id


def test_loss_relevant_settings_follow_the_source(
    discover: Make, target: ClusterAdmin, east: Any, topic_name: str, clock: StandingClock
) -> None:
    """A longer retention reaches the copy within a minute; a hand's change of the copy is mended."""
    create_topic(east.client_properties, topic_name, 1, **{"retention.ms": "1000000"})
    discovery = discover()
    discovery.prepare()
    source = ClusterAdmin(Cluster("east", east.client_properties), client_id="test")
    source.alter_configs(topic_name, {"retention.ms": "2000000"})
    target.alter_configs(f"east.{topic_name}", {"message.timestamp.after.max.ms": "1"})

    clock.now += 61

    def followed() -> bool:
        clock.now += 61
        discovery.refresh()
        found = own_configs(target, f"east.{topic_name}")
        return (found["retention.ms"], found["message.timestamp.after.max.ms"]) == (
            "2000000",
            "9223372036854775807",
        )

    wait_for(followed)
    source.close()


def test_one_bad_topic_does_not_stop_the_others(discover: Make, east: Any, topic_name: str) -> None:
    """A topic whose target name is too long is left out and named once, with what to do."""
    create_topic(east.client_properties, f"{topic_name}.a", 1)
    discovery = discover()
    discovery.prepare()
    bad = f"{topic_name}.".ljust(247, "x")
    create_topic(east.client_properties, bad, 1)
    create_topic(east.client_properties, f"{topic_name}.b", 1)

    with capture_logs() as logs:
        for _ in range(2):
            found = discovery.refresh()

    assert {item.source.topic for item in found} == {f"{topic_name}.a", f"{topic_name}.b"}
    told = [entry for entry in logs if entry["event"] == "topic_left_out"]
    assert [(entry["topic"], bool(entry["fix"])) for entry in told] == [(bad, True)]
    assert {topic: bool(error.fix) for topic, error in discovery.left_out().items()} == {bad: True}

    delete_topic(east.client_properties, bad)
    discovery.refresh()
    assert discovery.left_out() == {}


def test_a_copy_with_more_partitions_is_used_as_it_is(
    discover: Make, target: ClusterAdmin, east: Any, topic_name: str
) -> None:
    """Records keep their partition; that the others stay empty is said."""
    create_topic(east.client_properties, topic_name, 2)
    target.create_topics([CreateTopic(f"east.{topic_name}", 5, 1, {})])

    with capture_logs() as logs:
        found = discover().prepare()

    assert len(found) == 2
    assert [entry["partitions"] for entry in logs if entry["event"] == "target_has_more_partitions"] == [5]


@pytest.mark.parametrize("changed", ["east", "west"])
@pytest.mark.parametrize("first", ["east", "west"])
def test_a_setting_of_a_topic_that_is_mirrored_both_ways_may_be_changed_on_either_side(
    east: Any, west: Any, topic_name: str, clock: StandingClock, changed: str, first: str
) -> None:
    """Whichever link compares first: the change reaches the other side, and is not taken back."""
    ways = [("east", "west"), ("west", "east")]
    sides = {"east": dict(east.client_properties), "west": dict(west.client_properties)}
    config = load_config(
        {
            "clusters": sides,
            "links": [
                {"name": f"{topic_name}-{source}", "source": source, "target": target, "topics": [topic_name],
                 "naming": "identity"}
                for source, target in ways
            ],
        }
    )  # fmt: skip
    create_topic(sides["east"], topic_name, **{"retention.ms": "604800000"})
    links = sorted(config.links, key=lambda link: link.source != first)
    sessions = [
        link_sessions(link, config.clusters[link.source], config.clusters[link.target], "test")
        for link in links
    ]
    made = [Discovery(link, *ends, clock=clock) for link, ends in zip(links, sessions, strict=True)]
    admins = [ClusterAdmin(config.clusters[side], client_id="test") for side in sides]
    try:
        for discovery in sorted(made, key=lambda one: one._link.source):
            discovery.prepare()
            clock.sleep(1.0)
        alter_topic(sides[changed], topic_name, retention_ms="86400000")
        for _ in range(2):
            clock.now += 61.0
            for discovery in made:
                # a broker tells of a change a moment after the controller has taken it
                clock.sleep(0.5)
                discovery.refresh()
        clock.sleep(0.5)
        assert [own_configs(admin, topic_name)["retention.ms"] for admin in admins] == ["86400000"] * 2
    finally:
        for each in (*sessions, *admins):
            each.close()


@pytest.mark.parametrize("exists", [True, False])
def test_a_topic_that_another_link_brings_is_awaited_if_some_cluster_has_it(
    east: Any, west: Any, topic_name: str, exists: bool
) -> None:
    """Equal names both ways, and the topic is on one side only; a name that no cluster knows waits, too."""
    clusters = {"east": dict(east.client_properties), "west": dict(west.client_properties)}
    links = [
        {"name": f"{topic_name}-{source}", "source": source, "target": target, "topics": [topic_name],
         "naming": "identity", "heartbeats": "off"}
        for source, target in (("east", "west"), ("west", "east"))
    ]  # fmt: skip
    config = load_config({"clusters": clusters, "links": links})
    if exists:
        create_topic(clusters["east"], topic_name, 2)
    sessions = [
        link_sessions(link, config.clusters[link.source], config.clusters[link.target], "test")
        for link in config.links
    ]
    there, back = (
        Discovery(link, *ends, clusters=config.clusters)
        for link, ends in zip(config.links, sessions, strict=True)
    )
    try:
        with capture_logs() as logs:
            assert back.prepare() == ()
        (told,) = [entry for entry in logs if entry["event"] == "topic_awaited"]
        assert (told["topic"], told["log_level"]) == (topic_name, "warning")
        assert (f"link {topic_name}-east runs: it brings the topic from east" in told["fix"]) is exists
        if not exists:
            assert f"until topic {topic_name} is created on west" in told["fix"]
            create_topic(clusters["east"], topic_name, 2)
        assert back.refresh() == ()

        assert len(there.prepare()) == 2

        assert len(wait_for(back.refresh)) == 2
    finally:
        for each in sessions:
            each.close()


def test_goals_are_last_stable_offsets(discover: Make, east: Any, topic_name: str) -> None:
    """What `--until caught-up` aims at: markers and aborted data included, for every partition."""
    create_topic(east.client_properties, f"{topic_name}.a", 2)
    create_topic(east.client_properties, f"{topic_name}.b", 1)
    produce(east.client_properties, f"{topic_name}.a", 2, some_records(3, 500), transactional_id=topic_name)
    discovery = discover()
    discovery.prepare()

    goals = discovery.goals()

    assert goals.keys() == {
        SourcePartition(f"{topic_name}.a", 0),
        SourcePartition(f"{topic_name}.a", 1),
        SourcePartition(f"{topic_name}.b", 0),
    }
    assert sum(goals.values()) > 500
    delete_topic(east.client_properties, f"{topic_name}.b")
    assert {source.topic for source in discovery.goals()} == {f"{topic_name}.a"}


def test_positions_grow_with_the_lanes(
    discover: Make, target: ClusterAdmin, east: Any, topic_name: str
) -> None:
    """Each lane keeps a partition of positions to itself."""
    create_topic(east.client_properties, topic_name, 1)
    discover().prepare()
    discover(lanes=11).prepare()

    facts = target.describe_topics([f"eomirror.{topic_name}.positions"])[f"eomirror.{topic_name}.positions"]
    assert facts is not None
    assert facts.partitions == 11


def test_drifted_state_is_named_and_a_deleting_policy_refused(
    discover: Make, target: ClusterAdmin, east: Any, topic_name: str
) -> None:
    """A changed segment size is a warning; retention on positions would make the mirror forget."""
    create_topic(east.client_properties, topic_name, 1)
    discover().prepare()
    positions = f"eomirror.{topic_name}.positions"
    target.alter_configs(positions, {"segment.ms": "3600000"})
    with capture_logs() as logs:
        discover().prepare()
    assert [(one["topic"], one["setting"]) for one in logs if one["event"] == "state_topic_drifted"] == [
        (positions, "segment.ms")
    ]

    target.alter_configs(positions, {"cleanup.policy": "compact,delete"})
    with pytest.raises(StateError, match=positions):
        discover().prepare()


def test_settings_that_belong_to_the_target_are_not_changed(
    discover: Make, target: ClusterAdmin, east: Any, topic_name: str, clock: StandingClock
) -> None:
    """With excluded settings the others follow the source; without synchronization none does."""
    copy = f"east.{topic_name}"
    create_topic(
        east.client_properties, topic_name, **{"retention.ms": "86400000", "max.message.bytes": "2000000"}
    )
    chosen = discover(exclude_configs=(r"retention\..*",))
    chosen.prepare()
    created = own_configs(target, copy)
    assert "retention.ms" not in created
    assert created["max.message.bytes"] == "2000000"

    target.alter_configs(copy, {"retention.ms": "172800000"})
    alter_topic(east.client_properties, topic_name, retention_ms="3600000", cleanup_policy="compact")
    clock.now += 61
    wait_for(lambda: chosen.refresh() and own_configs(target, copy).get("cleanup.policy") == "compact")
    assert own_configs(target, copy)["retention.ms"] == "172800000"

    kept = discover(sync_topic_configs=False)
    alter_topic(east.client_properties, topic_name, max_message_bytes="3000000")
    before = own_configs(target, copy)
    with capture_logs() as logs:
        kept.prepare()
        clock.now += 61
        kept.refresh()
    assert own_configs(target, copy) == before
    told = [entry for entry in logs if entry["event"] == "topic_settings_left"]
    assert [entry["settings"]["retention.ms"] for entry in told] == ["172800000"]
