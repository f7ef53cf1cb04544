"""
What is foreign, broken or of another version in the topics that the mirror reads: skipped or refused by name.

Never a crash, and never an offset of 0 because a record could not be read.  The records that are right are written as
a lane writes them, so that no mirror has to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from structlog.testing import capture_logs

from eomirror import StateError, load_config
from eomirror._native import encode_offset_map
from eomirror.clock import new_run_id
from eomirror.groups import translate
from eomirror.kafka.session import ClusterSession, link_sessions
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.link.owner import LinkOwner
from eomirror.mm2.state import Mm2State
from eomirror.records.connect_offsets import Mm2Flow, encode_source_offset
from eomirror.records.control import Generation
from eomirror.records.mm2 import Checkpoint, Mm2Names, OffsetSync
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import offset_map_key
from eomirror.records.position import Position
from eomirror.status.reader import StatusReader
from eomirror.types import Assignment, SourcePartition
from support.fakes.claims import claim

if TYPE_CHECKING:
    from eomirror.config import Config, Link

pytestmark = pytest.mark.integration

ORDERS = SourcePartition("orders", 0)
COPY = "foreign.orders"
KINDS = ("garbage", "unknown version", "foreign key", "null value", "truncated")
STATE = ("control", "positions", "offset-map")

Planted = tuple[bytes, bytes | None]


def _position(link: str, copy_id: str) -> Position:
    return Position(
        topic="orders", partition=0, offset=100, source_cluster_id="s", topic_id="id", target_topic=COPY,
        target_partition=0, target_topic_id=copy_id, target_offset=109, generation=1, lane=0, run=link, epoch=1,
        attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=1,
    )  # fmt: skip


def right(link: str, copy_id: str = "t") -> dict[str, list[tuple[bytes, bytes]]]:
    """What a link holds that has mirrored source offsets 0 to 99 to 10 to 109."""
    generation = Generation(
        generation=1, revision=0, run=link, highest_lane=0, assignment=Assignment(1, {ORDERS: 0}), timestamp=1
    )
    owner = claim(link, 1, released=True, timestamp=1)
    position = _position(link, copy_id)
    return {
        "control": [(one.key(), one.value()) for one in (generation, owner)],
        "positions": [(position.key(), position.value())],
        "offset-map": [(offset_map_key(ORDERS, "id", 0), encode_offset_map(COPY, 0, [(0, 10, 100)]))],
    }


def planted(kind: str, key: bytes, value: bytes, version: tuple[bytes, bytes]) -> Planted:
    """
    A record that should not be there, made of one that is right.

    Args:
        kind: One of `KINDS`.
        key: Of the right record.
        value: Of the right record.
        version: How it begins, and how it would begin if it were of version 9.
    """
    return {
        "garbage": (key, b"\xff\x00garbage"),
        "unknown version": (key, value.replace(*version, 1)),
        "foreign key": (b"\x00foreign", value),
        "null value": (key, None),
        "truncated": (key, value[:-3]),
    }[kind]


@dataclass
class Place:
    """
    Links named ``TOPIC-KIND``, each with state of its own and one record in it that should not be there.

    Attributes:
        config: All of them.
        where: Topic-partition@offset of that record, by link.
    """

    config: Config
    where: dict[str, str]

    def link(self, topic: str, kind: str) -> Link:
        return self.config.link(_name(topic, kind))


def _name(topic: str, kind: str) -> str:
    return f"foreign-{topic}-{kind}".replace(" ", "-")


def _create(properties: dict[str, Any], *names: str) -> None:
    admin = AdminClient(properties)
    settings = {"cleanup.policy": "compact"}
    for future in admin.create_topics([NewTopic(name, 1, 1, config=settings) for name in names]).values():
        future.result(60)


def _write(properties: dict[str, Any], records: list[tuple[str, bytes, bytes | None]]) -> list[int]:
    """Commit records in one transaction; the offset of each."""
    producer = Producer({**properties, "transactional.id": "foreign", "linger.ms": 5})
    producer.init_transactions(60)
    producer.begin_transaction()
    offsets = [0] * len(records)
    for index, (topic, key, value) in enumerate(records):

        def acknowledged(error: Any, message: Any, index: int = index) -> None:
            assert error is None, error
            offsets[index] = message.offset()

        producer.produce(topic, value, key, 0, on_delivery=acknowledged)
    producer.commit_transaction(60)
    return offsets


@pytest.fixture(scope="module")
def place(east: Any, west: Any) -> Place:
    """State topics for every case, made at once."""
    sides = {"east": dict(east.client_properties), "west": dict(west.client_properties)}
    cases = [(topic, kind) for topic in STATE for kind in KINDS]
    config = load_config(
        {
            "clusters": sides,
            "links": [
                {"name": _name(*case), "source": "east", "target": "west", "topics": ["orders"]}
                for case in cases
            ],
        }
    )
    _create(sides["west"], COPY)
    admin = AdminClient(sides["west"])
    copy_id = str(admin.describe_topics(TopicCollection([COPY]))[COPY].result(60).topic_id)
    records: list[tuple[str, bytes, bytes | None]] = []
    last: dict[str, int] = {}
    topics = []
    for topic, kind in cases:
        link = _name(topic, kind)
        names = LinkNames(link)
        topic_of = dict(
            zip(STATE, (names.control_topic, names.positions_topic, names.offset_map_topic), strict=True)
        )
        topics += topic_of.values()
        state = right(link, copy_id)
        records += [(topic_of[part], *record) for part in STATE for record in state[part]]
        version = (b"\x01", b"\x09") if topic == "offset-map" else (b'"v":1', b'"v":9')
        last[link] = len(records)
        records.append((topic_of[topic], *planted(kind, *state[topic][-1], version)))
    _create(sides["west"], *topics)
    offsets = _write(sides["west"], records)
    return Place(config, {link: f"{records[at][0]}-0@{offsets[at]}" for link, at in last.items()})


def take(place: Place, link: Link) -> None:
    """Take the link as a mirror does that starts."""
    clusters = place.config.clusters
    sessions = link_sessions(link, clusters["east"], clusters["west"], "test")
    owner = LinkOwner(link, *sessions, run=new_run_id())
    try:
        owner.acquire(1, ())
        owner.release()
    finally:
        owner.close()
        sessions.close()


@pytest.mark.parametrize("kind", KINDS)
def test_control(place: Place, kind: str) -> None:
    """Ownership is not guessed: what is not readable is named by its place, and a deleted claim owns nothing."""
    link = place.link("control", kind)
    if kind == "null value":
        take(place, link)
        return

    with pytest.raises(StateError) as refused:
        take(place, link)

    assert place.where[link.name] in refused.value.message
    assert ("version 9" in refused.value.message) == (kind == "unknown version")


@pytest.mark.parametrize("kind", KINDS)
def test_positions(place: Place, kind: str) -> None:
    """A position is read whole or refused; one that was deleted is unknown, and nowhere taken for 0."""
    link = place.link("positions", kind)
    clusters = place.config.clusters
    session = ClusterSession(clusters["west"], client_id="test")
    reader = OffsetMapReader(link, session)
    try:
        if kind == "null value":
            assert reader.positions() == {}
            return
        with pytest.raises(StateError) as refused:
            reader.positions()
    finally:
        session.close()

    assert place.where[link.name] in refused.value.message
    with pytest.raises(StateError) as started:
        take(place, link)
    assert place.where[link.name] in started.value.message


@pytest.mark.parametrize("kind", KINDS)
def test_the_offset_map(place: Place, kind: str) -> None:
    """A foreign key is passed over by name; an unreadable chunk is refused; a deleted one is true until it is gone."""
    link = place.link("offset-map", kind)

    def asked() -> tuple[str, int | None]:
        (answer,) = translate(place.config, link=link.name, topic="orders", partition=0, offset=7)
        return answer.kind, answer.to_offset

    if kind in {"foreign key", "null value"}:
        with capture_logs() as logs:
            found = asked()
        named = [entry["reason"] for entry in logs if entry["event"] == "record_passed_over"]
        assert found == ("exact", 17)
        assert [place.where[link.name] in reason for reason in named] == [True] * (kind == "foreign key")
        return
    with pytest.raises(StateError) as refused:
        asked()
    assert place.where[link.name] in refused.value.message
    assert ("version 9" in refused.value.message) == (kind == "unknown version")


@pytest.fixture
def mm2(east: Any, west: Any, topic_name: str) -> tuple[Config, dict[str, Any], str]:
    """A link whose source has an alias of this test's own, so that MM2's topics are its own too."""
    alias = topic_name.replace(".", "-")
    sides = {alias: dict(east.client_properties), "west": dict(west.client_properties)}
    link = {"source": alias, "target": "west", "topics": ["orders"], "groups": [".*"]}
    return load_config({"clusters": sides, "links": [link]}), sides["west"], alias


def test_checkpoints(mm2: tuple[Config, dict[str, Any], str]) -> None:
    """Other tools write there too: what is no checkpoint is passed over by name, and one that was deleted is gone."""
    config, west, alias = mm2
    (link,) = config.links
    good = Checkpoint("billing", COPY, 0, 7, 17)
    other = Checkpoint("other", COPY, 0, 8, 18)
    topic = Mm2Names().checkpoints(alias)
    state = [LinkNames(link.state_name).control_topic, LinkNames(link.state_name).positions_topic]
    _create(west, topic, *state)
    records = [planted(kind, other.key(), other.value(), (b"\0\0", b"\0\x09")) for kind in KINDS]
    wrong = [record for record in records if record[1] is not None]
    offsets = _write(
        west,
        [
            (state[0], *right(link.name)["control"][0]),
            (topic, good.key(), good.value()),
            (topic, other.key(), other.value()),
            *((topic, *record) for record in records),
        ],
    )
    places = [
        f"{topic}-0@{at}" for at, (_, value) in zip(offsets[3:], records, strict=True) if value is not None
    ]
    session = ClusterSession(config.clusters["west"], client_id="test")
    reader = OffsetMapReader(link, session)
    status = StatusReader(link, config.clusters[alias], config.clusters["west"])
    try:
        with capture_logs() as logs:
            found = reader.checkpoints()
        groups = status.read().groups
    finally:
        session.close()
        status.close()

    named = [entry["reason"] for entry in logs if entry["event"] == "checkpoint_not_readable"]
    assert found == [good]
    assert [place in reason for place, reason in zip(places, named, strict=True)] == [True] * len(wrong)
    assert groups is not None
    # status keeps the newest record of each key
    newest = {key: place for (key, _), place in zip(wrong, places, strict=True)}
    assert groups.unreadable == len(newest)
    assert any(place in groups.first_unreadable for place in newest.values())


def test_what_mm2_left(mm2: tuple[Config, dict[str, Any], str]) -> None:
    """Offset syncs and keys of other connectors are passed over by name; an own offset that is broken is refused."""
    config, west, alias = mm2
    flow = Mm2Flow.dedicated(alias, "west")
    sync = OffsetSync("orders", 0, 41, 51)
    syncs = Mm2Names().offset_syncs(alias)
    key, value = encode_source_offset(ORDERS, 41, flow)
    _create(west, syncs, flow.offsets_topic)
    # a sync has no version; and what stands under the key of a sync must be one
    kinds = [kind for kind in KINDS if kind != "unknown version"]
    offsets = _write(
        west,
        [
            (syncs, sync.key(), sync.value()),
            *((syncs, *planted(kind, sync.key(), sync.value(), (b"", b""))) for kind in kinds),
            (flow.offsets_topic, key, value),
            (flow.offsets_topic, b"\x00foreign", b"else"),
            (flow.offsets_topic, key[:-5], value),
            (flow.offsets_topic, b'["OtherConnector",{"file":"x"}]', b"what it likes"),
        ],
    )
    clusters = config.clusters[alias], config.clusters["west"]
    sessions = link_sessions(config.links[0], *clusters, "test")
    state = Mm2State(config.links[0], flow, *sessions)
    try:
        assert state.synced() == {ORDERS: (sync,)}
        assert state.committed().offsets == {ORDERS: 41}
        places = [f"{syncs}-0@{at}" for at in offsets[1:5]]
        places += [f"{flow.offsets_topic}-0@{at}" for at in offsets[6:8]]
        assert [place in told for place, told in zip(places, state.passed_over, strict=True)] == [True] * 6
        (at,) = _write(west, [(flow.offsets_topic, key, value[:-3])])
        with pytest.raises(StateError, match=f"{flow.offsets_topic}-0@{at}"):
            state.committed()
    finally:
        sessions.close()
