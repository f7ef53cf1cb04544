"""Secured clusters, and older Kafka on either side: every client that the program opens gets through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import Mirror, load_config
from eomirror.config import Cluster
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.kafka.session import ClusterSession
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.status.reader import StatusReader
from eomirror.topics.native_admin import delete_topics
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# the oldest that the native plane serves, and the last before Kafka 4; those in between belong to a full run
_OLD = ["2.8", *(pytest.param(line, marks=pytest.mark.slow) for line in ("3.3", "3.6")), "3.9"]


@pytest.fixture(scope="module", params=_OLD)
def old(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster before Kafka 4: transaction protocol V1, older request versions; before Kafka 3 with a ZooKeeper."""
    with LocalCluster.start(ClusterSpec("old", kafka_version=request.param)) as cluster:
        yield cluster


def mirror_once(
    source: Any, target: Any, topic: str, folder: Path, spark: Any
) -> tuple[dict[int, list[Any]], str]:
    """Write to ``source``, mirror to ``target``; what was committed per partition, and which planes served."""
    path = folder / "mirror.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": {"a": dict(source.client_properties), "b": dict(target.client_properties)},
                "links": [{"source": "a", "target": "b", "name": topic, "topics": [topic]}],
            }
        )
    )
    path.chmod(0o600)
    create_topic(source.client_properties, topic, 2)
    committed = produce(source.client_properties, topic, 2, some_records(20, 600), transactional_id=topic)
    config = load_config(path)
    with Mirror(config, spark=spark) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    reader = StatusReader(config.links[0], config.clusters["a"], config.clusters["b"])
    try:
        status = reader.read()
    finally:
        reader.close()
    assert status.lag_records == 0
    lanes = status.as_dict()["lanes"].values()
    # every lane alike
    ((plane, reason),) = {(lane["plane"], lane["plane_reason"]) for lane in lanes}
    return committed, f"{plane}: {reason}" if reason else plane


def test_sasl_ssl_with_scram(
    start_cluster: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """A source that asks for TLS and SCRAM: admin, planner, lanes, and status log in."""
    secured = start_cluster(ClusterSpec("secured", security="sasl_ssl"))

    committed, plane = mirror_once(secured, west, topic_name, tmp_path, spark_context)

    assert read_committed(west.client_properties, f"a.{topic_name}") == committed
    assert plane == "native"


def test_a_secured_target(
    start_cluster: Any, east: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """A target that asks for TLS and SCRAM: owner, transactional producers, and state readers log in."""
    secured = start_cluster(ClusterSpec("secured", security="sasl_ssl"))

    committed, plane = mirror_once(east, secured, topic_name, tmp_path, spark_context)

    assert read_committed(secured.client_properties, f"a.{topic_name}") == committed
    assert plane == "native"


def test_from_an_older_kafka(
    old: LocalCluster, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """An old source is read by the native plane."""
    committed, plane = mirror_once(old, west, topic_name, tmp_path, spark_context)

    assert read_committed(west.client_properties, f"a.{topic_name}") == committed
    assert plane == "native"


def test_to_an_older_kafka(
    old: LocalCluster, east: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """An old target has transactions of the first protocol: the native plane serves it as well."""
    committed, plane = mirror_once(east, old, topic_name, tmp_path, spark_context)

    assert read_committed(old.client_properties, f"a.{topic_name}") == committed
    assert plane == "native"


def test_a_topic_is_deleted_by_its_id(old: LocalCluster, topic_name: str) -> None:
    """Not the one that was created again since; what is deleted already is no error."""
    properties = old.client_properties
    session = ClusterSession(Cluster("old", dict(properties)), client_id="test")

    def topic_id() -> str:
        found = session.admin.describe_topics([topic_name])[topic_name]
        return "" if found is None else found.topic_id

    try:
        create_topic(properties, topic_name)
        wait_for(topic_id)
        first = topic_id()
        assert delete_topics(session, {topic_name: first}) == {}
        wait_for(lambda: not topic_id())
        # with a ZooKeeper the name is free a moment later
        wait_for(lambda: session.admin.create_topics([CreateTopic(topic_name, 1, 1, {})]) or topic_id())
        wait_for(topic_id)
        assert delete_topics(session, {topic_name: first}) == {}
        assert topic_id() not in {"", first}
        assert delete_topics(session, {topic_name: topic_id()}) == {}
        wait_for(lambda: not topic_id())
    finally:
        session.close()
