"""A first run with `topics: [".*"]` where MirrorMaker 2 was: nothing that it left keeps the link from starting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from structlog.testing import capture_logs

from eomirror import Mirror, load_config
from eomirror.errors import TopicError
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.records.mm2 import Heartbeat, decode_heartbeat
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_COMPACT = {"cleanup.policy": "compact"}
# the flows of MirrorMaker 2 that used the cluster "a": b->a, c->a, and a->b with its offset syncs on the source
_LEFT = (
    "heartbeats",
    "b.heartbeats",
    "c.heartbeats",
    "b.checkpoints.internal",
    "c.checkpoints.internal",
    "mm2-offset-syncs.b.internal",
    "mm2-configs.b.internal",
    "mm2-offsets.b.internal",
    "mm2-status.b.internal",
    "mm2-configs.c.internal",
    "mm2-offsets.c.internal",
    "mm2-status.c.internal",
)


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, dict[str, str]]]:
    """Clusters of this module's own: `.*` means all of their topics."""
    with LocalCluster.start(ClusterSpec("a")) as a, LocalCluster.start(ClusterSpec("b")) as b:
        yield {"a": dict(a.client_properties), "b": dict(b.client_properties)}


@pytest.fixture(scope="module")
def written(clusters: Mapping[str, Mapping[str, str]]) -> dict[int, list[Any]]:
    """What MirrorMaker 2 left on the source, and a topic of an application; what is committed of that."""
    source = clusters["a"]
    producer = Producer(dict(source))
    for topic in _LEFT:
        create_topic(source, topic, **_COMPACT)
        beat = Heartbeat("c", "a", 1_700_000_000_000)
        producer.produce(topic, beat.value(), beat.key(), partition=0)
    # a group of consumers brings __consumer_offsets
    create_topic(source, "orders")
    committed = produce(source, "orders", 1, some_records(1, 200), transactional_id="orders")
    consumer = Consumer({**source, "group.id": "app", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    consumer.poll(20)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert producer.flush(30) == 0
    # as MirrorMaker 2 leaves the target of a->b
    for topic in ("heartbeats", "mm2-configs.a.internal", "mm2-status.a.internal"):
        create_topic(clusters["b"], topic, **_COMPACT)
    return committed


def mirror(clusters: Mapping[str, Any], spark: Any, name: str, **settings: Any) -> Mirror:
    link = {
        "name": name, "source": "a", "target": "b", "topics": [".*"], "lanes": 1, "plane": plane_under_test(),
        **settings,
    }  # fmt: skip
    return Mirror(load_config({"clusters": dict(clusters), "links": [link]}), spark=spark)


def heard(cluster: Mapping[str, str], topic: str) -> set[tuple[str, str]]:
    found = read_committed(cluster, topic)[0]
    beats = [decode_heartbeat(key, value, where=topic) for key, value, _, _ in found]
    return {(beat.source, beat.target) for beat in beats}


def test_a_prefixed_link_leaves_the_old_heartbeats_out_by_name(
    clusters: Any, written: Any, spark_context: Any
) -> None:
    """The link's own heartbeats have the name that the copy would have; all other topics are mirrored."""
    with capture_logs() as logged:
        report = mirror(clusters, spark_context, "prefixed").run(until="caught-up")

    assert report.exit_code == 0
    assert read_committed(clusters["b"], "a.orders") == written
    # written by the link itself, and by it alone
    assert heard(clusters["b"], "a.heartbeats") == {("a", "b")}
    (left,) = [line for line in logged if line["event"] == "topic_left_out"]
    assert left["topic"] == "heartbeats"
    assert "heartbeats: source" in left["fix"]
    assert heard(clusters["b"], "a.c.heartbeats") == {("c", "a")}


def test_equal_names_meet_nothing_that_mm2_left(clusters: Any, written: Any, spark_context: Any) -> None:
    """Under equal names no copy has the name of the link's own heartbeats; internal topics stay where they are."""
    report = mirror(clusters, spark_context, "equal", naming="identity").run(until="caught-up")

    assert report.exit_code == 0
    assert read_committed(clusters["b"], "orders") == written
    assert heard(clusters["b"], "a.heartbeats") == {("a", "b")}


@pytest.mark.parametrize("choice", ["source", "off"])
def test_who_wants_the_old_heartbeats_gets_them(
    clusters: Any, written: Any, spark_context: Any, choice: str
) -> None:
    """With `heartbeats: source` or `off` the copy has the name to itself."""
    del written
    alias = f"a{choice}"
    named = {alias: clusters["a"], "b": clusters["b"]}

    mirror(named, spark_context, f"wants-{choice}", source=alias, heartbeats=choice).run(until="caught-up")

    assert ("c", "a") in heard(clusters["b"], f"{alias}.heartbeats")


def test_a_topic_that_the_configuration_names_is_mirrored(
    clusters: Any, written: Any, spark_context: Any
) -> None:
    """A literal name is an application's topic: the link's own heartbeats give way to its copy."""
    del written
    named = {"app": clusters["a"], "b": clusters["b"]}
    settings = {"source": "app", "topics": ["heartbeats"]}

    mirror(named, spark_context, "literal", **settings).run(until="caught-up")

    found = heard(clusters["b"], "app.heartbeats")
    assert ("c", "a") in found
    assert ("app", "b") not in found


def test_an_applications_heartbeats_are_not_left_out_in_silence(
    clusters: Any, written: Any, spark_context: Any
) -> None:
    """A topic of three partitions is none of MirrorMaker 2's: the run is refused with what to write instead."""
    del written
    named = {"a": clusters["b"], "b": clusters["a"]}
    admin = AdminClient(dict(clusters["b"]))
    for future in admin.create_partitions([NewPartitions("heartbeats", 3)]).values():
        future.result(30)

    with pytest.raises(TopicError, match="own heartbeats") as refused:
        mirror(named, spark_context, "app").run(until="caught-up")

    assert "name it in the link's `topics`" in str(refused.value.fix)
