"""Position, control and offset-map records: what is written is read back, what is foreign is refused."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from eomirror.errors import StateError
from eomirror.records.control import Adopted, Claim, Gap, Generation, HandedOver, Stopped, decode_control
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import offset_map_key, offset_map_partition, read_offset_map_key
from eomirror.records.position import AttemptClaim, Position, decode_attempt, decode_key, decode_position
from eomirror.types import Assignment, SourcePartition

ORDERS = SourcePartition("orders", 3)
POSITION = Position(
    topic="orders",
    partition=3,
    offset=1234,
    prev=1200,
    source_cluster_id="S",
    topic_id="t1",
    leader_epoch=4,
    target_topic="east.orders",
    target_partition=3,
    target_topic_id="t2",
    target_offset=998,
    generation=7,
    lane=1,
    run="r",
    epoch=2,
    attempt=1,
    producer_id=4000,
    producer_epoch=12,
    txn=31,
    records=34,
    bytes=3400,
    dropped={"hop": 2},
    copied_headers=3,
    total_copied_headers=8,
    header=True,
    timestamp=1_700_000_000_000,
)
GENERATION = Generation(
    generation=7,
    revision=2,
    run="r",
    highest_lane=3,
    assignment=Assignment(
        2, {ORDERS: 1, SourcePartition("a", 0): 0}, frozenset({SourcePartition("gone", 1)})
    ),
    timestamp=5,
)
CLAIM = Claim(
    run="r", host="h", pid=1, boot="b", started="2", sequence=3, interval_ms=5000, released=False, timestamp=6
)
GAP = Gap(topic="orders", partition=3, start=5, end=9, reason="retention", run="r", timestamp=7)


def test_a_position_says_whether_the_record_before_it_was_committed() -> None:
    """Only a beginning says so: the positions of lanes are as long as before."""
    begun = replace(POSITION, batch_committed=True)
    assert decode_position(ORDERS, begun.value(), where="p-0@1") == begun
    assert b"batch_committed" not in POSITION.value()
    assert not begun.moved_to(5).batch_committed


def test_a_position_is_read_back() -> None:
    """Every field survives."""
    assert decode_key(POSITION.key(), where="") == ORDERS
    assert decode_position(ORDERS, POSITION.value(), where="") == POSITION


def test_the_fields_of_the_contract_are_all_there() -> None:
    """Users and tools rely on these names."""
    body = orjson.loads(POSITION.value())

    assert set(body) >= {
        "v", "offset", "prev", "source_cluster_id", "topic_id", "leader_epoch", "target_topic",
        "target_partition", "target_topic_id", "target_offset", "generation", "lane", "run", "epoch", "attempt",
        "producer_id", "producer_epoch", "txn", "records", "bytes", "dropped", "header", "timestamp",
    }  # fmt: skip
    assert body["v"] == 1


def test_an_unknown_field_is_kept() -> None:
    """A newer release's field survives a round trip through this one."""
    value = orjson.dumps({**orjson.loads(POSITION.value()), "future": [1]})

    assert orjson.loads(decode_position(ORDERS, value, where="").value())["future"] == [1]


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b"{}", b'{"v":2,"offset":1}', b'{"v":1,"offset":1}', b'{"v":1}'],
)
def test_a_position_that_is_not_one_is_refused(value: bytes) -> None:
    """Corrupt, of an unknown version, or incomplete: named by its place, never read as offset 0."""
    with pytest.raises(StateError, match="positions-1@9"):
        decode_position(ORDERS, value, where="positions-1@9")


@pytest.mark.parametrize("offset", [-1, "5", None, 1.5])
def test_a_position_with_a_wrong_offset_is_refused(offset: object) -> None:
    """An offset is a whole number from 0."""
    value = orjson.dumps({**orjson.loads(POSITION.value()), "offset": offset})

    with pytest.raises(StateError):
        decode_position(ORDERS, value, where="x")


@pytest.mark.parametrize(
    "key",
    [None, b"", b"{}", b"[1]", b'"lane"', b'{"topic":"a"}', b'{"lane":"1"}', b'{"topic":"a","partition":-1}'],
)
def test_a_foreign_key_is_refused(key: bytes | None) -> None:
    """Another program's record in our topic is named."""
    with pytest.raises(StateError):
        decode_key(key, where="x")


def test_an_attempt_is_read_back() -> None:
    """The claim of an attempt is keyed by its lane."""
    claim = AttemptClaim(
        lane=4, generation=7, run="r", epoch=1, attempt=2, producer_id=5, producer_epoch=6, host="h", pid=8,
        timestamp=9,
    )  # fmt: skip

    assert decode_key(claim.key(), where="") == 4
    assert decode_attempt(4, claim.value(), where="") == claim
    told = replace(claim, plane="client", plane_reason="the link says so", transaction_protocol="V1")
    assert decode_attempt(4, told.value(), where="") == told


def test_the_claim_of_an_older_release_says_nothing_of_its_plane() -> None:
    """Fields that came later may be missing; the others may not."""
    body = {
        "v": 1, "generation": 7, "run": "r", "epoch": 1, "attempt": 2, "producer_id": 5, "producer_epoch": 6,
        "host": "h", "pid": 8, "timestamp": 9,
    }  # fmt: skip
    assert decode_attempt(4, orjson.dumps(body), where="").plane == ""
    del body["run"]
    with pytest.raises(StateError):
        decode_attempt(4, orjson.dumps(body), where="")


def test_control_is_folded_to_what_it_says_last() -> None:
    """The newest generation and claim, and every gap."""
    older = Generation(
        generation=6, revision=0, run="q", highest_lane=0, assignment=Assignment(1, {}), timestamp=1
    )
    records = [(item.key(), item.value(), "c") for item in (older, CLAIM, GENERATION, GAP)]

    view = decode_control([*records, (b'{"kind":"later"}', b'{"v":1}', "c"), (CLAIM.key(), None, "c")])

    assert view.generation == GENERATION
    assert view.claim == CLAIM
    assert view.gaps == (GAP,)


def test_a_claim_without_a_command_is_that_of_a_mirror() -> None:
    """Releases before the field wrote none; those after it keep what they know of the claim."""
    failing_over = replace(CLAIM, command="failover")
    body = orjson.loads(failing_over.value())
    before = {name: value for name, value in body.items() if name != "command"}

    assert decode_control([(CLAIM.key(), failing_over.value(), "c")]).claim == failing_over
    assert decode_control([(CLAIM.key(), orjson.dumps(before), "c")]).claim == CLAIM


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"x", b"{}"), (GENERATION.key(), b"{}"), (GENERATION.key(), b'{"v":1}'), (None, b"{}")],
)
def test_unreadable_control_is_refused(key: bytes | None, value: bytes) -> None:
    """Ownership is never guessed."""
    with pytest.raises(StateError):
        decode_control([(key, value, "control-0@3")])


def test_a_link_that_was_handed_over_is_so_until_the_record_is_deleted() -> None:
    """Also before compaction has taken the record away."""
    told = HandedOver(replicator="mm2", place="mm2-offsets.east.internal", run="r", timestamp=8)
    records = [(item.key(), item.value(), "c") for item in (GENERATION, CLAIM, told)]

    assert decode_control(records).handed_over == told
    assert decode_control([*records, (told.key(), None, "c")]).handed_over is None


STOPPED = Stopped(
    topic="orders",
    reason="a record is refused",
    fix="raise the limit",
    exit_code=1,
    lane=None,
    run="r",
    timestamp=9,
)


def test_a_topic_is_stopped_until_its_record_is_deleted() -> None:
    """The last word on each topic holds; a record is passed over by a release that does not know the kind."""
    later, other = replace(STOPPED, reason="lost", exit_code=4, lane=3), replace(STOPPED, topic="pay")
    records = [(item.key(), item.value(), "c") for item in (GENERATION, STOPPED, other, later)]

    assert decode_control(records).stopped == (later, other)
    assert decode_control([*records, (Stopped.key_of("orders"), None, "c")]).stopped == (other,)
    unknown = (STOPPED.key().replace(b"stopped", b"unknown"), STOPPED.value(), "c")
    assert decode_control([*records, unknown]) == decode_control(records)


ADOPTED = Adopted(
    topic="orders", partition=3, offset=5, target_offset=None, replicator="mm2", place="p", committed=4,
    evidence="e", run="r", timestamp=9,
)  # fmt: skip


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (CLAIM, "interval_ms", "5000"),
        (CLAIM, "released", 0),
        (GAP, "to", None),
        (ADOPTED, "offset", 1.5),
        (ADOPTED, "committed", True),
        (STOPPED, "exit_code", "1"),
        (STOPPED, "lane", 1.0),
        (GENERATION, "assignment", "xy"),
        (GENERATION, "assignment", [{"orders": ["3"]}]),
        (GENERATION, "parked", []),
        (GENERATION, "lanes", -1),
    ],
)
def test_control_with_a_field_of_another_type_is_refused(record: Claim, field: str, value: object) -> None:
    """It would end code that calculates with it, far from here."""
    body = {**orjson.loads(record.value()), field: value}
    with pytest.raises(StateError, match="control-0@3"):
        decode_control([(record.key(), orjson.dumps(body), "control-0@3")])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_offset", "9"),
        ("leader_epoch", 1.5),
        ("txn", None),
        ("header", 1),
        ("dropped", {"hop": "2"}),
        ("run", 7),
    ],
)
def test_a_position_with_a_field_of_another_type_is_refused(field: str, value: object) -> None:
    """All of it is calculated with."""
    body = orjson.dumps({**orjson.loads(POSITION.value()), field: value})
    with pytest.raises(StateError, match="positions-1@9"):
        decode_position(ORDERS, body, where="positions-1@9")


def test_control_of_an_unknown_version_is_refused() -> None:
    """A newer release's layout must not be overwritten by an older one."""
    with pytest.raises(StateError, match="version 2"):
        decode_control([(GENERATION.key(), b'{"v":2}', "c")])


def test_offset_map_keys() -> None:
    """A chunk is found by its source partition's stable hash."""
    assert read_offset_map_key(offset_map_key(ORDERS, "id", 5), where="") == (ORDERS, "id", 5)
    assert offset_map_partition(ORDERS, 8) == 5
    with pytest.raises(StateError):
        read_offset_map_key(b"{}", where="x")


def test_names_of_the_contract() -> None:
    """Operators grant rights by these names."""
    names = LinkNames("east.west")

    assert names.control_topic == "eomirror.east.west.control"
    assert names.positions_topic == "eomirror.east.west.positions"
    assert names.offset_map_topic == "eomirror.east.west.offset-map"
    assert names.transactional_id(3) == "eomirror.east.west.3"
    assert names.control_transactional_id == "eomirror.east.west.control"
    assert names.client_id("lane-3") == "eomirror.east.west.lane-3"
