"""A topic that is followed on a real broker: only new records are read, and another log under the name is noticed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror.config import Cluster
from eomirror.errors import ClusterError, MirrorError
from eomirror.kafka.session import ClusterSession
from eomirror.kafka.topic_follower import News, TopicFollower
from support.traffic.records import create_topic, delete_topic, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration


class Followed:
    """A topic, its writer, and two followers of it."""

    def __init__(self, properties: dict[str, Any], name: str) -> None:
        self.properties, self.name = properties, name
        self.session = ClusterSession(Cluster("west", properties), client_id="test")
        self.follower = TopicFollower(self.session)

    def write(self, *keys: str, commit: bool = True) -> None:
        """Writes records with these keys to both partitions in one transaction."""
        producer = Producer({**self.properties, "transactional.id": self.name})
        producer.init_transactions(30)
        producer.begin_transaction()
        for key in keys:
            for number in range(2):
                producer.produce(self.name, b"value", key.encode(), number)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
        # returns once all markers are written
        Producer({**self.properties, "transactional.id": self.name}).init_transactions(30)

    def read(self) -> News:
        return self.follower.read(self.name, seconds=10)

    def keys(self) -> tuple[bool, list[bytes | None]]:
        """Keys of the next read, of partition 0."""
        news = self.read()
        assert {record.topic for record in news.records} <= {self.name}
        return news.restarted, [record.key for record in news.records if record.partition == 0]

    def recreate(self) -> None:
        """Deletes the topic and creates it again."""
        delete_topic(self.properties, self.name)
        create_topic(self.properties, self.name, 2)


@pytest.fixture
def followed(west: Any, topic_name: str) -> Iterator[Followed]:
    """A topic of two partitions, with one transaction."""
    create_topic(west.client_properties, topic_name, 2)
    made = Followed(west.client_properties, topic_name)
    made.write("a", "b")
    yield made
    made.session.close()


def test_each_read_gives_what_was_committed_since(followed: Followed) -> None:
    """Nothing twice, nothing that was aborted; several followers do not disturb each other."""
    assert followed.keys() == (True, [b"a", b"b"])
    assert followed.read() == News(restarted=False, records=[])
    followed.write("lost", commit=False)
    followed.write("c")
    other = TopicFollower(followed.session)
    assert followed.keys() == (False, [b"c"])
    assert [record.key for record in other.read(followed.name, seconds=10).records].count(b"c") == 2
    assert followed.read() == News(restarted=False, records=[])
    followed.follower.forget(followed.name)
    assert followed.keys() == (True, [b"a", b"b", b"c"])


def test_an_open_transaction_hides_no_record_from_a_follower_that_waits(followed: Followed) -> None:
    """EO-3: by default the read ends before it; what decides something waits, and reads what another one committed."""
    waits = TopicFollower(followed.session, wait_for_open=True)
    assert len(waits.read(followed.name, seconds=10).records) == 4
    followed.keys()
    open_one = Producer({**followed.properties, "transactional.id": f"{followed.name}-open"})
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce(followed.name, b"value", b"open", 0)
    open_one.flush(30)
    followed.write("c")
    assert followed.keys() == (False, [])
    ending = threading.Timer(1.0, open_one.abort_transaction, (30,))
    ending.start()
    news = waits.read(followed.name, seconds=20)
    ending.join()
    assert [(record.partition, record.key) for record in news.records if record.partition == 0] == [(0, b"c")]
    assert not news.restarted


def test_a_topic_that_does_not_exist_has_no_records_where_that_is_no_error(followed: Followed) -> None:
    """Elsewhere its name is in the error."""
    missing = f"{followed.name}-missing"
    assert followed.follower.read(missing, seconds=10, missing=True) == News(restarted=True, records=[])
    with pytest.raises(ClusterError, match=missing):
        followed.follower.read(missing, seconds=10)


def test_a_recreated_topic_is_read_anew(followed: Followed) -> None:
    """Even when it is longer than the old one, so that no offset tells."""
    assert followed.keys() == (True, [b"a", b"b"])
    followed.recreate()
    followed.write("c", "d", "e", "f")
    assert followed.keys() == (True, [b"c", b"d", b"e", b"f"])


def test_deleted_records_that_were_not_read_start_it_again(followed: Followed) -> None:
    """What was deleted is unknown; what was read before must not stand beside it."""
    followed.keys()
    followed.write("c")
    admin = AdminClient(followed.properties)
    deleted = admin.delete_records(
        [TopicPartition(followed.name, 0, -1), TopicPartition(followed.name, 1, 2)]
    )
    for future in deleted.values():
        future.result(30)
    followed.write("d")
    assert followed.keys() == (True, [b"d"])


def test_an_election_starts_it_again(west: Any, followed: Followed) -> None:
    """An unclean one may have replaced the end of the log, and offsets do not tell."""
    followed.keys()
    west.brokers[0].kill()
    # it holds the topics of a whole session: a busy machine takes more than a minute to load them
    west.brokers[0].start(timeout=180)
    news = wait_for(lambda: _read(followed))
    assert news.restarted
    assert [record.key for record in news.records if record.partition == 0] == [b"a", b"b"]


def _read(followed: Followed) -> News | None:
    """The next read; None while the broker is not back."""
    try:
        return followed.read()
    except MirrorError:
        return None
