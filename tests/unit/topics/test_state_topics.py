"""The link's own topics: as contract.md says, and refused where they would forget."""

from __future__ import annotations

import pytest

from eomirror.config import load_config
from eomirror.errors import StateError
from eomirror.kafka.cluster_metadata import TopicFacts
from eomirror.records.names import LinkNames
from eomirror.topics.diff import AddPartitions
from eomirror.topics.mm2_topics import mm2_source_topics, mm2_target_topics
from eomirror.topics.state_topics import Drift, state_changes, state_drift, state_topics

NAMES = LinkNames("east.west")


def facts(name: str, partitions: int) -> TopicFacts:
    return TopicFacts(name, "id", partitions, 1)


def test_they_are_as_the_contract_says() -> None:
    """Names, partitions, policies and segment settings of contract.md."""
    control, positions, offset_map = state_topics(NAMES, lanes=2, brokers=1)

    assert [topic.name for topic in (control, positions, offset_map)] == [
        "eomirror.east.west.control",
        "eomirror.east.west.positions",
        "eomirror.east.west.offset-map",
    ]
    assert (control.partitions, positions.partitions, offset_map.partitions) == (1, 8, 8)
    assert {topic.configs["cleanup.policy"] for topic in (control, positions, offset_map)} == {"compact"}
    for topic in (control, positions, offset_map):
        assert topic.configs["segment.bytes"] == "16777216"
        assert topic.configs["segment.ms"] == "600000"
        assert topic.configs["min.cleanable.dirty.ratio"] == "0.1"
    assert control.configs["max.message.bytes"] == "8388608"


def test_dead_letters_have_a_topic_where_they_are_written() -> None:
    """Compact, one partition, and room for records that are too large for their copy."""
    *_, letters = state_topics(NAMES, lanes=2, brokers=1, dead_letters=True)

    assert (letters.name, letters.partitions) == ("eomirror.east.west.dead-letter", 1)
    assert letters.configs["cleanup.policy"] == "compact"
    assert letters.configs["max.message.bytes"] == "8388608"


def test_a_clock_that_is_wrong_is_no_reason_to_refuse_a_record() -> None:
    """F34: brokers refuse what is from more than an hour ahead by default, and a mirror that cannot commit ends."""
    clusters = {name: {"bootstrap.servers": f"{name}:1"} for name in ("east", "west")}
    for side in ("source", "target"):
        link = {"source": "east", "target": "west", "topics": ["a"], "offset_syncs": side}
        link["heartbeats"] = "source" if side == "source" else "link"
        (loaded,) = load_config({"clusters": clusters, "links": [link]}).links
        topics = (
            *state_topics(NAMES, lanes=2, brokers=1, dead_letters=True),
            *mm2_source_topics(loaded, brokers=1),
            *mm2_target_topics(loaded, brokers=1),
        )
        assert len(topics) == 4 + 3
        for topic in topics:
            assert topic.configs["message.timestamp.after.max.ms"] == str(2**63 - 1)
            assert topic.configs["message.timestamp.before.max.ms"] == str(2**63 - 1)


@pytest.mark.parametrize(
    ("brokers", "factor", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (9, 3, "2")]
)
def test_replicas_match_the_cluster(brokers: int, factor: int, in_sync: str) -> None:
    """Three replicas with two in sync where the cluster can; a single broker works too."""
    for topic in state_topics(NAMES, lanes=2, brokers=brokers):
        assert topic.replication_factor == factor
        assert topic.configs["min.insync.replicas"] == in_sync


def test_what_is_missing_is_created_and_positions_grow_with_the_lanes() -> None:
    """Each lane has a partition of positions to itself; the offset map keeps its count, or it could not be found."""
    wanted = state_topics(NAMES, lanes=12, brokers=1)
    control, positions, offset_map = wanted
    found = {
        control.name: None,
        positions.name: facts(positions.name, 8),
        offset_map.name: facts(offset_map.name, 4),
    }

    assert state_changes(wanted, found) == (control, AddPartitions(positions.name, 12, 8))


def test_fewer_lanes_shrink_nothing() -> None:
    """Partitions with positions of old lanes stay."""
    wanted = state_topics(NAMES, lanes=2, brokers=1)

    assert (
        state_changes(wanted, {topic.name: facts(topic.name, topic.partitions + 0) for topic in wanted}) == ()
    )


def test_a_control_topic_with_two_partitions_is_refused() -> None:
    """It would have no last record."""
    wanted = state_topics(NAMES, lanes=2, brokers=1)

    with pytest.raises(StateError, match="2 partitions"):
        state_changes(wanted, {topic.name: facts(topic.name, 2) for topic in wanted})


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact", None])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_policy_that_deletes_is_refused(which: int, policy: str | None) -> None:
    """Retention would delete positions, and the mirror would begin again from nothing."""
    topic = state_topics(NAMES, lanes=2, brokers=1)[which]

    with pytest.raises(StateError, match=r"cleanup\.policy") as raised:
        state_drift(topic, {**topic.configs, "cleanup.policy": policy})
    assert topic.name in raised.value.fix


def test_harmless_drift_is_named() -> None:
    """A changed segment size costs time at the next start, no data: it is told, not refused."""
    topic = state_topics(NAMES, lanes=2, brokers=1)[1]

    assert state_drift(topic, {**topic.configs, "segment.bytes": "1073741824"}) == (
        Drift(topic.name, "segment.bytes", "16777216", "1073741824"),
    )
    assert state_drift(topic, topic.configs) == ()
