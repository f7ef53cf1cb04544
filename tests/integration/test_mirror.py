"""The mirror end to end on real brokers: what is committed on the source is on the target, once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewPartitions

from eomirror import Mirror, load_config
from eomirror.errors import MirrorError, SupersededError
from eomirror.status.reader import StatusReader
from eomirror.types import SourcePartition
from support.links.plane import plane_under_test
from support.traffic.records import (
    create_topic,
    delete_topic,
    produce,
    read_committed,
    some_records,
    wait_for,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]


class Link:
    """One link between the session's clusters, with topics of its own."""

    def __init__(self, east: Any, west: Any, name: str, folder: Path, spark: Any) -> None:
        self.east = east.client_properties
        self.west = west.client_properties
        self.name = name
        self.spark = spark
        self.path = folder / "mirror.yaml"
        self.settings: dict[str, Any] = {
            "clusters": {"east": self.east, "west": self.west},
            "links": [{"name": name, "source": "east", "target": "west", "topics": [f"{name}\\..*"]}],
            "defaults": {"lanes": 2, "plane": plane_under_test()},
        }

    @property
    def topic(self) -> str:
        return f"{self.name}.orders"

    @property
    def target(self) -> str:
        return f"east.{self.name}.orders"

    def mirror(self, **options: Any) -> Mirror:
        self.path.write_text(yaml.safe_dump(self.settings))
        self.path.chmod(0o600)
        return Mirror(load_config(self.path), spark=self.spark, **options)

    def catch_up(self, **options: Any) -> Any:
        with self.mirror(**options) as mirror:
            return mirror.run(until="caught-up")

    def status(self) -> dict[str, Any]:
        config = load_config(self.path)
        reader = StatusReader(config.links[0], config.clusters["east"], config.clusters["west"])
        try:
            return reader.read().as_dict()
        finally:
            reader.close()


@pytest.fixture
def link(east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any) -> Link:
    """A link named after the test's unique topic name."""
    return Link(east, west, topic_name, tmp_path, spark_context)


def test_every_shape_of_record_arrives_unchanged(link: Link) -> None:
    """EO-11: keys, values, headers, timestamps and order, with one transaction in ten aborted."""
    create_topic(link.east, link.topic, 6)
    committed = produce(link.east, link.topic, 6, some_records(1, 5_000), transactional_id=link.name)

    report = link.catch_up()

    assert report.exit_code == 0
    assert read_committed(link.west, link.target) == committed


def test_identity_names(link: Link) -> None:
    """`naming: identity` keeps the topic's name."""
    link.settings["links"][0]["naming"] = "identity"
    create_topic(link.east, link.topic, 2)
    committed = produce(link.east, link.topic, 2, some_records(2, 500), transactional_id=link.name)

    link.catch_up()

    assert read_committed(link.west, link.topic) == committed


def test_a_restart_goes_on_where_the_last_run_stopped(link: Link) -> None:
    """EO-1: a second run mirrors only what is new, whatever happened to the first's memory."""
    create_topic(link.east, link.topic, 3)
    first = produce(link.east, link.topic, 3, some_records(3, 900), transactional_id=link.name)
    link.catch_up()
    second = produce(link.east, link.topic, 3, some_records(4, 900), transactional_id=link.name)
    link.catch_up()

    both = {number: first[number] + second[number] for number in first}
    assert read_committed(link.west, link.target) == both


def test_a_tail_of_markers_and_aborted_data_is_caught_up(link: Link) -> None:
    """EO-4: positions move past what holds no records; lag reaches 0, and lost tail is no loss."""
    create_topic(link.east, link.topic, 1)
    produce(link.east, link.topic, 1, some_records(5, 500), transactional_id=link.name, abort_every=2)
    link.catch_up()
    produce(link.east, link.topic, 1, some_records(6, 500), transactional_id=link.name, abort_every=1)

    report = link.catch_up()

    status = link.status()
    assert report.exit_code == 0
    assert (status["lag_records"], status["lag_seconds"], status["state"]) == (0, 0.0, "stopped")


def test_new_topics_and_partitions_are_taken_up_under_way(link: Link) -> None:
    """EO-2: without a restart of the lanes that they do not concern."""
    create_topic(link.east, link.topic, 1)
    produce(link.east, link.topic, 1, some_records(7, 100), transactional_id=link.name)
    other = f"{link.name}.later"

    import threading

    with link.mirror() as mirror:
        snapshots: list[Any] = []
        runner = threading.Thread(target=lambda: mirror.run(on_progress=snapshots.append))
        runner.start()
        try:
            wait_for(lambda: snapshots and link.status()["lag_records"] == 0, 60)
            create_topic(link.east, other, 2)
            admin = AdminClient(dict(link.east))
            admin.create_partitions([NewPartitions(link.topic, 2)])[link.topic].result(30)
            wait_for(lambda: sum(len(item["partitions"]) for item in link.status()["topics"]) == 4, 30)
            later = produce(link.east, other, 2, some_records(8, 100), transactional_id=link.name)
            grown = produce(link.east, link.topic, 2, some_records(9, 100), transactional_id=link.name)
            wait_for(lambda: read_committed(link.west, f"east.{other}") == later, 30)
            wait_for(lambda: read_committed(link.west, link.target)[1] == grown[1], 30)
            epochs = {lane: attempt["epoch"] for lane, attempt in link.status()["lanes"].items()}
        finally:
            mirror.stop()
            runner.join(60)

    assert set(epochs.values()) == {1}


def test_a_recreated_source_topic_is_noticed(link: Link) -> None:
    """EO-5: nothing of the new topic is mirrored behind the old one's records; exit code 4."""
    create_topic(link.east, link.topic, 1)
    before = produce(link.east, link.topic, 1, some_records(10, 100), transactional_id=link.name)
    link.catch_up()
    delete_topic(link.east, link.topic)
    create_topic(link.east, link.topic, 1)
    produce(link.east, link.topic, 1, some_records(11, 400), transactional_id=link.name)

    report = link.catch_up()

    assert report.exit_code == 4
    assert "deleted and created again" in report.links[0].stopped_topics[link.topic]
    assert read_committed(link.west, link.target) == before


def test_a_copy_that_was_deleted_at_rest_is_not_created_empty(link: Link) -> None:
    """EO-5: an idle topic, too, stops by name; the others run, and the printed options fill a new copy."""
    kept, written = f"{link.name}.kept", {}
    for number, topic in enumerate((link.topic, kept)):
        create_topic(link.east, topic, 2)
        written[topic] = produce(
            link.east, topic, 2, some_records(30 + number, 100), transactional_id=link.name
        )
    assert link.catch_up().exit_code == 0
    delete_topic(link.west, link.target)
    later = produce(link.east, kept, 2, some_records(32, 100), transactional_id=link.name)

    for _ in range(2):
        report = link.catch_up()
        assert report.exit_code == 1
        ((topic, stop),) = report.links[0].stopped_topics.items()
        assert topic == link.topic
        assert f"the target topic {link.target} was deleted" in stop
        assert link.target not in AdminClient(dict(link.west)).list_topics(timeout=10).topics
        assert [one["topic"] for one in link.status()["stopped"]] == [topic]
    both = {number: written[kept][number] + later[number] for number in later}
    assert read_committed(link.west, f"east.{kept}") == both

    adopted = {SourcePartition(*found): 0 for found in ((link.topic, 0), (link.topic, 1))}
    assert all(f"--resume-at {where}=0" in stop for where in adopted)
    assert link.catch_up(adopt=adopted).exit_code == 0
    assert link.catch_up().exit_code == 0
    assert read_committed(link.west, link.target) == written[link.topic]
    assert read_committed(link.west, f"east.{kept}") == both


def test_a_gap_is_named_with_its_range_and_can_be_accepted(link: Link) -> None:
    """EO-6: records deleted before they were mirrored stop the topic, until the user accepts the range."""
    from confluent_kafka import TopicPartition

    create_topic(link.east, link.topic, 1)
    first = produce(link.east, link.topic, 1, some_records(12, 10), transactional_id=link.name, abort_every=0)
    link.catch_up()
    second = produce(
        link.east, link.topic, 1, some_records(13, 100), transactional_id=link.name, abort_every=0
    )
    admin = AdminClient(dict(link.east))
    for future in admin.delete_records([TopicPartition(link.topic, 0, 31)]).values():
        future.result(30)

    report = link.catch_up()
    assert report.exit_code == 4
    assert "[11, 31)" in report.links[0].stopped_topics[link.topic]
    link.settings["defaults"]["on_gap"] = "accept"
    link.catch_up()

    # offsets: 10 records and a marker, then 50, a marker, 50, a marker: the first 20 of the second are gone
    assert read_committed(link.west, link.target)[0] == first[0] + second[0][20:]
    assert [(gap["from"], gap["to"]) for gap in link.status()["gaps"]] == [(11, 31)]


def test_a_second_mirror_of_the_link_leaves(link: Link) -> None:
    """EO-10: the newcomer sees the claim advance, names the owner, and changes nothing."""
    import threading

    create_topic(link.east, link.topic, 1)
    with link.mirror() as owner:
        runner = threading.Thread(target=owner.run)
        runner.start()
        try:
            wait_for(lambda: link.path.exists() and link.status()["state"] == "running", 60)
            with link.mirror() as newcomer, pytest.raises(SupersededError, match="owned by run"):
                newcomer.run(until="caught-up")
            assert runner.is_alive()
        finally:
            owner.stop()
            runner.join(60)


def test_two_links_of_one_file_do_not_make_the_same_copy(link: Link) -> None:
    """Every record would be there twice: the second link is refused by name, the first goes on."""
    create_topic(link.east, link.topic, 1)
    committed = produce(link.east, link.topic, 1, some_records(15, 100), transactional_id=link.name)
    twin = {**link.settings["links"][0], "name": f"{link.name}-twin", "topics": [link.topic]}
    link.settings["links"].append(twin)

    with pytest.raises(MirrorError, match="written twice"):
        link.catch_up()

    assert read_committed(link.west, link.target) == committed


def test_positions_lost_with_control_kept_are_refused(link: Link) -> None:
    """A deleted positions topic never means offset 0."""
    create_topic(link.east, link.topic, 1)
    committed = produce(link.east, link.topic, 1, some_records(14, 100), transactional_id=link.name)
    link.catch_up()
    delete_topic(link.west, f"eomirror.{link.name}.positions")

    with pytest.raises(MirrorError, match="--resume-at"):
        link.catch_up()

    assert read_committed(link.west, link.target) == committed
