"""A link that has no position for a copy never writes a second time what stands there, whatever it is called."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from structlog.testing import capture_logs

from eomirror import Mirror, load_config
from eomirror.errors import MirrorError, NotReadyError, TopicError
from eomirror.types import SourcePartition
from support.links.mirrors import running
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
    from collections.abc import Mapping

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_RECORDS = 200


class Site:
    """A topic on "east" with records, and links that mirror it to "west" under equal names."""

    def __init__(self, east: Mapping[str, Any], west: Mapping[str, Any], topic: str, spark: Any) -> None:
        self.east, self.west = dict(east), dict(west)
        self.topic, self._spark = topic, spark
        self.written: list[Any] = []
        self._seed = 0
        create_topic(self.east, topic)

    def write(self, count: int = _RECORDS) -> None:
        self._seed += 1
        more = produce(self.east, self.topic, 1, some_records(self._seed, count), transactional_id=self.topic)
        self.written += more[0]

    def mirror(
        self,
        name: str,
        *,
        aliases: tuple[str, str] = ("east", "west"),
        back: bool = False,
        options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Mirror:
        source, target = aliases
        link = {
            "name": name, "source": source, "target": target, "topics": [f"{self.topic}.*"], "naming": "identity",
            "lanes": 1, "plane": plane_under_test(), **settings,
        }  # fmt: skip
        links = [link]
        if back:
            links.append({**link, "name": f"{name}-back", "source": target, "target": source})
        config = load_config({"clusters": {source: self.east, target: self.west}, "links": links})
        return Mirror(config, spark=self._spark, links=[name], **(options or {}))

    def catch_up(self, name: str, **settings: Any) -> Any:
        return self.mirror(name, **settings).run(until="caught-up")

    def refused(self, name: str, **settings: Any) -> MirrorError:
        """The error of a run that must be refused; the copy is as it was."""
        before = self.copy()
        with pytest.raises(MirrorError) as refused:
            self.catch_up(name, **settings)
        assert self.copy() == before
        return refused.value

    def copy(self, topic: str = "") -> list[Any]:
        return read_committed(self.west, topic or self.topic).get(0, [])

    def delete_state(self, name: str) -> None:
        for kind in ("control", "positions", "offset-map"):
            delete_topic(self.west, f"eomirror.{name}.{kind}")


@pytest.fixture
def site(east: Any, west: Any, topic_name: str, spark_context: Any) -> Site:
    made = Site(east.client_properties, west.client_properties, topic_name, spark_context)
    made.write()
    return made


def test_a_link_of_another_name_is_refused_and_goes_on_where_the_other_stands(site: Site) -> None:
    """The other link, the count and the offset to go on at are named; with that offset no record comes twice."""
    first, second = f"{site.topic}-a", f"{site.topic}-b"
    site.catch_up(first)

    error = site.refused(second)
    assert isinstance(error, NotReadyError)
    assert error.exit_code == 6
    assert f"copy {site.topic}-0 holds up to " in error.message
    assert f"link {first} has written them" in error.message
    assert "--into-filled" in error.fix
    assert "start: latest" in error.fix

    site.write()
    offset = int(error.fix.split(f"--resume-at {site.topic}-0=")[1].split(";")[0])
    site.catch_up(second, options={"adopt": {SourcePartition(site.topic, 0): offset}})
    assert site.copy() == site.written


@pytest.mark.parametrize("aliases", [("ost", "west"), ("ost", "hinten")], ids=["source", "both"])
def test_other_aliases_for_the_same_clusters_are_refused(site: Site, aliases: tuple[str, str]) -> None:
    """A renamed alias, and a second file with names of its own, make a link that never ran."""
    site.catch_up(f"{site.topic}-a")

    # without a name the link is called by its aliases, and so are its topics
    error = site.refused(f"{aliases[0]}-{site.topic}", aliases=aliases)

    assert f"link {site.topic}-a has written them" in error.message


def test_a_link_whose_state_topics_were_deleted_is_refused(site: Site) -> None:
    """The brokers still know that its own lanes have written the copy."""
    site.catch_up(site.topic)
    site.delete_state(site.topic)

    error = site.refused(site.topic)

    assert f"copy {site.topic}-0 holds up to " in error.message
    assert "this very link" in error.message


def test_deleted_state_is_noticed_where_applications_write_the_copy_too(site: Site) -> None:
    """Equal names both ways: records of applications are no reason, those that came from the source are."""
    create_topic(site.west, site.topic)
    local = produce(site.west, site.topic, 1, some_records(77, 50), transactional_id=f"{site.topic}-west")[0]

    site.catch_up(site.topic, back=True)
    assert site.copy() == [*local, *site.written]

    site.delete_state(site.topic)
    error = site.refused(site.topic, back=True)
    assert "some of them copied from this link's source" in error.message


def test_the_ways_on_are_taken_as_they_are_named(site: Site) -> None:
    """`start: latest` mirrors what comes; --into-filled begins at `start` behind what is there, and says so."""
    site.catch_up(f"{site.topic}-a")
    site.catch_up(f"{site.topic}-b", start="latest")
    site.write(50)
    site.catch_up(f"{site.topic}-b", start="latest")
    assert site.copy() == site.written

    with capture_logs() as logged:
        site.catch_up(f"{site.topic}-c", options={"into_filled": True})
    assert site.copy() == [*site.written, *site.written]
    (said,) = [line for line in logged if line["event"] == "copies_hold_records"]
    assert said["most_records"] >= len(site.written)


def test_a_start_in_time_is_refused_where_it_goes_back(site: Site) -> None:
    """What lies behind that time may be in the copy; where nothing does, nothing comes twice."""
    site.catch_up(f"{site.topic}-a")
    times = [timestamp for _, _, timestamp, _ in site.written]

    error = site.refused(f"{site.topic}-b", start=max(times))
    assert f"copy {site.topic}-0" in error.message
    site.catch_up(f"{site.topic}-b", start=int(time.time() * 1000) + 3_600_000)
    assert site.copy() == site.written


def test_a_second_mirror_beside_a_running_one_is_refused_whatever_it_is_told(site: Site) -> None:
    """Two links that make one copy write every record twice: --into-filled and `start: latest` are no way on."""
    with running(site.mirror(f"{site.topic}-a")):
        wait_for(lambda: len(site.copy()) == len(site.written), 90)
        for told in ({"start": "latest"}, {"options": {"into_filled": True}}):
            error = site.refused(f"{site.topic}-b", **told)
            assert f"link {site.topic}-a runs" in error.message
        site.write()
        wait_for(lambda: len(site.copy()) == len(site.written), 60)

    assert site.copy() == site.written


def test_of_two_that_start_together_one_at_most_runs(site: Site) -> None:
    """Both find an empty copy; each looks again when its layout is published, and one at least sees the other."""
    errors: list[BaseException] = []
    mirrors = [site.mirror(f"{site.topic}-{name}") for name in "ab"]

    def run(mirror: Mirror) -> None:
        try:
            mirror.run(until="caught-up")
        except MirrorError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(mirror,)) for mirror in mirrors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert errors
    assert all("runs, and mirrors" in str(error) or "holds up to" in str(error) for error in errors)
    assert site.copy() in ([], site.written)


def test_a_new_topic_whose_copy_is_filled_is_left_out_by_name(site: Site) -> None:
    """The link goes on with the others; a run that waits until it has caught up is told."""
    site.catch_up(site.topic)
    new = f"{site.topic}-new"
    for properties in (site.east, site.west):
        create_topic(properties, new)
        produce(properties, new, 1, some_records(5, 50), transactional_id=new)
    before = site.copy(new)
    site.write()

    with capture_logs() as logged, pytest.raises(TopicError, match="is skipped"):
        site.catch_up(site.topic)
    (left,) = [line for line in logged if line["event"] == "topic_left_out"]
    assert left["topic"] == new
    assert f"copy {new}-0 holds up to " in left["reason"]
    assert f"--resume-at {new}-0=OFFSET" in left["fix"]

    with running(site.mirror(site.topic)):
        wait_for(lambda: len(site.copy()) == len(site.written), 60)
    assert site.copy() == site.written
    assert site.copy(new) == before
    more = {"adopt": {SourcePartition(new, 0): 0}}
    site.catch_up(site.topic, options=more)
    assert len(site.copy(new)) > len(before)


def test_copies_without_records_are_begun(site: Site) -> None:
    """Made before by an operator; only aborted data; all records deleted: nothing would come twice."""
    admin = AdminClient(site.west)
    create_topic(site.west, site.topic)
    producer = Producer({**site.west, "transactional.id": f"{site.topic}-aborts"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(site.topic, b"never", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    gone = f"{site.topic}-gone"
    for properties in (site.east, site.west):
        create_topic(properties, gone)
    written = produce(site.east, gone, 1, some_records(5, 50), transactional_id=gone)[0]
    produce(site.west, gone, 1, some_records(6, 50), transactional_id=gone)
    for future in admin.delete_records([TopicPartition(gone, 0, -1)]).values():
        future.result(30)

    site.catch_up(site.topic)

    assert site.copy() == site.written
    assert site.copy(gone) == written
    # and a partition that is added later
    for properties in (site.east,):
        later = AdminClient(properties)
        for future in later.create_partitions([NewPartitions(gone, 2)]).values():
            future.result(30)
    site.catch_up(site.topic)


@pytest.mark.slow  # two more mirrors; the unit tests of copies of several links cover the decision
def test_two_sources_that_flow_into_one_topic_are_no_twins(
    site: Site, east: Any, west: Any, start_cluster: Any
) -> None:
    """Aggregation: the second link finds the records of the first there, by right, now and after a restart."""
    from eomirror.localkafka.cluster import ClusterSpec

    del east, west
    far = start_cluster(ClusterSpec("far")).client_properties
    create_topic(far, site.topic)
    other = produce(far, site.topic, 1, some_records(9, 80), transactional_id=site.topic)[0]
    clusters = {"east": site.east, "far": dict(far), "west": site.west}
    links = [
        {"name": f"{site.topic}-{source}", "source": source, "target": "west", "topics": [site.topic],
         "naming": {"map": {site.topic: f"{site.topic}-all"}}, "lanes": 1, "plane": plane_under_test()}
        for source in ("east", "far")
    ]  # fmt: skip
    config = load_config({"clusters": clusters, "links": links})

    for _ in range(2):
        Mirror(config, spark=site._spark).run(until="caught-up")

    found = site.copy(f"{site.topic}-all")
    assert sorted(found, key=repr) == sorted([*site.written, *other], key=repr)
