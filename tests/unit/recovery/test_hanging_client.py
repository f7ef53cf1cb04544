"""What is asked of a target whose client is played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import Cluster, Link
from eomirror.errors import AuthorizationError, ClusterError, UnreachableError
from eomirror.plane.protocol import ProducerIdentity
from eomirror.recovery.copy_end import CommittedBatch
from eomirror.recovery.hanging import RecordState
from eomirror.recovery.hanging_client import TargetHangingClient

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

READABLE, HIDDEN, STATE = ("east.a", 0), ("east.b", 0), ("eomirror.l.positions", 0)


class BusyAdmin:
    """Something is open everywhere."""

    def __init__(self) -> None:
        self.asked = 0

    def offsets(self, partitions: Collection[tuple[str, int]], *, read_committed: bool, **_: Any) -> Any:
        """The ends."""
        return dict.fromkeys(partitions, 5 if read_committed else 10)

    def visible_topics(self, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Exception]]:
        """One was deleted, one has fewer partitions, one may not be seen, and one is not known yet at first."""
        self.asked += 1
        unknown = {"east.deleted", *(["east.late"] if self.asked == 1 else [])}
        found = {
            name: None if name in unknown else SimpleNamespace(partitions=1 if name == "east.small" else 8)
            for name in names
            if name != "east.secret"
        }
        return found, {name: AuthorizationError("no", fix="grant") for name in names if name == "east.secret"}


class SlowClock:
    """Goes on while a partition is read."""

    now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """They pass."""
        self.now += seconds


def asking(client: Any, **options: Any) -> Any:
    """What asks this client."""
    cluster = Cluster("west", {"bootstrap.servers": "127.0.0.1:1"})
    target: Any = SimpleNamespace(
        cluster=cluster, admin=BusyAdmin(), client_id="c", clock=options.get("clock", SYSTEM_CLOCK)
    )
    link = Link(name="l", source="east", target="west", topics=("t",))
    made: Any = TargetHangingClient(link, target, offset_map=Mock())
    made._made = client
    return made


class Guarded:
    """A client that may not read one topic."""

    def open(self, partitions: Sequence[tuple[str, int]], _: float) -> list[tuple[str, int, int, int, int]]:
        """All or nothing, as the answer is read."""
        if HIDDEN in partitions:
            raise AuthorizationError(
                "DescribeProducers of east.b-0: TOPIC_AUTHORIZATION_FAILED", fix="grant it"
            )
        return [(*where, 7, 0, 5) for where in partitions]

    def record_states(
        self, records: Sequence[tuple[str, int, int]], _: float
    ) -> list[tuple[str, int, str, int]]:
        """Of each what may be told."""
        return [
            (topic, number, "unreadable" if (topic, number) == HIDDEN else "committed", 5)
            for topic, number, _ in records
        ]


def test_a_copy_that_may_not_be_read_hides_no_other() -> None:
    """An operator who grants Read on some copies has what is open there ended."""
    hanging_client = asking(Guarded())

    with capture_logs() as logs:
        found = hanging_client.open([READABLE, HIDDEN, STATE])

    assert {one.where for one in found} == {READABLE, STATE}
    (told,) = logs
    assert "lacks Read on topic east.b of cluster west" in told["reason"]
    assert told["fix"].startswith("kafka-acls.sh --bootstrap-server 127.0.0.1:1 ")
    assert told["fix"].endswith("--operation Read --topic 'east.b'")


class Leaderless:
    """A client of a cluster in which most partitions have no leader."""

    def record_states(
        self, records: Sequence[tuple[str, int, int]], _: float
    ) -> list[tuple[str, int, str, int]]:
        """One has."""
        if any(topic != "east.a" for topic, *_ in records):
            raise UnreachableError("Fetch: no answer in 30 s: no leader", fix="wait")
        return [(topic, number, "committed", 5) for topic, number, _ in records]


@pytest.mark.parametrize(
    ("where", "state"),
    [
        (("east.deleted", 0), RecordState.DELETED),
        (("east.small", 1), RecordState.DELETED),
        (("east.secret", 0), RecordState.UNREADABLE),
        (("east.small", 0), None),
        (("east.late", 0), None),
    ],
)
def test_a_copy_that_no_broker_will_ever_lead_holds_up_no_other(
    where: tuple[str, int], state: RecordState | None
) -> None:
    """EO-5: what was open there is gone with it.  One that is there has a leader sooner or later, and is waited for."""
    hanging_client = asking(Leaderless(), clock=SlowClock())
    records = {("east.a", 0): 4, where: 7}

    if state is None:
        with pytest.raises(UnreachableError, match="no leader"):
            hanging_client.record_states(records)
    else:
        assert hanging_client.record_states(records) == {("east.a", 0): RecordState.COMMITTED, where: state}


def test_what_may_not_be_read_is_told_apart_from_what_is_gone() -> None:
    """EO-8: a person can grant it."""
    with capture_logs() as logs:
        assert asking(Guarded()).record_states({READABLE: 4, HIDDEN: 4}) == {
            READABLE: RecordState.COMMITTED,
            HIDDEN: RecordState.UNREADABLE,
        }
    assert "lacks Read on topic east.b" in logs[0]["reason"]
    assert "kafka-acls.sh" in logs[0]["fix"]


class Denied:
    """A client whose every request is refused with this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, _: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise AuthorizationError(self._text, fix="grant the right to this user")

        return refuse


@pytest.mark.parametrize(
    ("ask", "text", "right"),
    [
        (
            lambda it: it.end(0, [READABLE], commit=True),
            "InitProducerId of eomirror.l.0: TRANSACTIONAL_ID_",
            "Write on transactional-id eomirror.l.0",
        ),
        (
            lambda it: it.end(0, [READABLE], commit=True),
            "AddPartitionsToTxn of east.a-0: TOPIC_",
            "Write on topic east.a",
        ),
        (lambda it: it.writers([READABLE]), "DescribeProducers: TOPIC_", "Read on topic east.a"),
        (
            lambda it: it.is_written_by(READABLE, 5, ProducerIdentity(7, 0)),
            "Fetch of east.a-0@5: TOPIC_",
            "Read on topic east.a",
        ),
        (lambda it: it.batch_at((*READABLE, 5)), "Fetch: TOPIC_", "Read on topic east.a"),
        (lambda it: it.committed(READABLE, (0, 5)), "Fetch: TOPIC_", "Read on topic east.a"),
        (lambda it: it.batches({READABLE: 5}), "Fetch: TOPIC_", "Read on topic east.a"),
        (
            lambda it: it.lanes(1),
            "DescribeTransactions: TRANSACTIONAL_ID_",
            "Write on transactional-id eomirror.l.*",
        ),
    ],
)
def test_a_refused_search_names_the_right_and_its_command(ask: Any, text: str, right: str) -> None:
    """Principal, operation, resource and cluster, and the line that grants it."""
    with pytest.raises(AuthorizationError) as raised:
        ask(asking(Denied(f"{text}AUTHORIZATION_FAILED")))

    assert f"lacks {right} of cluster west" in raised.value.message
    assert raised.value.fix.startswith("kafka-acls.sh --bootstrap-server 127.0.0.1:1 ")
    (missing,) = raised.value.missing_rights
    assert missing["command"] == raised.value.fix


def test_a_topic_that_may_not_be_described_has_no_leader_and_names_the_right() -> None:
    """The class stays: it is waited for like any other, and a person can grant it."""
    text = (
        "Fetch took longer than 30 s; last: no leader is known for east.a-0: TOPIC_AUTHORIZATION_FAILED (29)"
    )
    client = Mock()
    client.batch_at.side_effect = UnreachableError(text, fix="check the brokers")
    with pytest.raises(UnreachableError, match=r"lacks Read on topic east\.a of cluster west") as raised:
        asking(client).batch_at((*READABLE, 5))
    assert raised.value.fix.endswith("--operation Read --topic 'east.a'")


class Confused:
    """A client whose coordinator is in another state."""

    def end(self, *_: Any, **__: Any) -> Any:
        """It says so."""
        raise ClusterError("EndTxn of eomirror.l.0: INVALID_TXN_STATE", fix="look into the broker's log")


def test_what_a_coordinator_refuses_is_looked_at_again() -> None:
    """The attempt ends, and the next one sees in which state it is; the link does not fail."""
    hanging_client = asking(Confused())

    with pytest.raises(UnreachableError, match="INVALID_TXN_STATE"):
        hanging_client.end(0, [READABLE], commit=False)


class Speechless:
    """A client that cannot read what a broker answers."""

    def is_written_by(self, *_: Any) -> bool:
        """It says so."""
        raise ClusterError("Fetch: record batch: it cannot be read", fix="look into the broker's log")


def test_who_wrote_a_record_is_not_guessed() -> None:
    """Taken for ours it may lose records, for another producer's bring them twice: the link waits."""
    with pytest.raises(UnreachableError, match=r"east\.a-0: the producer of offset 5"):
        asking(Speechless()).is_written_by(READABLE, 5, ProducerIdentity(7, 0))


class FarAway:
    """A client of copies that others have written much to."""

    def __init__(self, clock: SlowClock) -> None:
        self._clock = clock
        self.looks = 0

    def record_states(
        self, records: Sequence[tuple[str, int, int]], _: float
    ) -> list[tuple[str, int, str, int]]:
        """They all go on behind the record."""
        return [(topic, number, "committed", 1_000_000) for topic, number, _ in records]

    def has_committed_behind(self, *_: Any) -> bool:
        """Nothing of ours, after a while."""
        self._clock.now += 20
        self.looks += 1
        return False


def test_many_copies_that_others_write_to_are_looked_at_for_a_while() -> None:
    """Fifty partitions, each of which takes its time: the lane is to start all the same."""
    clock: Any = SlowClock()
    client = FarAway(clock)
    hanging_client = asking(client, clock=clock)

    records = {("t", number): 5 for number in range(50)}
    hanging_client.record_states(records)

    assert not hanging_client.committed_behind(records, lambda: {7})
    assert 1 <= client.looks <= 3


class Told:
    """A client that says who wrote what, and how far partitions are stable."""

    def __init__(self, stable: int, writer: tuple[int, int] | None = None, state: str = "committed") -> None:
        self._stable, self._writer, self._state = stable, writer, state
        self.asked: list[tuple[str, int, int]] = []
        self.looked: list[tuple[str, int, int]] = []

    def record_states(
        self, records: Sequence[tuple[str, int, int]], _: float
    ) -> list[tuple[str, int, str, int]]:
        return [(topic, number, self._state, self._stable) for topic, number, _ in records]

    def writer_of(self, record: tuple[str, int, int], _: float) -> tuple[int, int] | None:
        self.asked.append(record)
        return self._writer

    def has_committed_behind(self, record: tuple[str, int, int], *_: Any) -> bool:
        self.looked.append(record)
        return False


@pytest.mark.parametrize(
    ("stable", "writer", "asked", "overwritten"),
    [
        pytest.param(7, (9, 9), False, False, id="the marker stands behind it, and nothing else"),
        pytest.param(8, (7, 3), True, False, id="others have written behind it"),
        pytest.param(8, (7, 2), True, True, id="an earlier transaction of the producer stands there"),
        pytest.param(8, (-1, -1), True, True, id="a marker, or a record without producer, stands there"),
        pytest.param(6, (-1, -1), True, True, id="a marker stands there, and nothing behind it"),
        pytest.param(8, None, True, False, id="it was compacted away"),
    ],
)
def test_who_wrote_the_last_record_is_asked_where_more_stands_behind_it(
    stable: int, writer: tuple[int, int] | None, *, asked: bool, overwritten: bool
) -> None:
    """EO-5: a copy that was cut and has grown on; a healthy one costs nothing."""
    client = Told(stable, writer)
    hanging_client = asking(client)
    hanging_client.record_states({READABLE: 5})

    found = hanging_client.overwritten({READABLE: (5, ProducerIdentity(7, 3))})

    assert bool(client.asked) is asked
    assert (READABLE in found) is overwritten


def test_the_look_behind_a_deleted_record_begins_where_the_log_does() -> None:
    """EO-5: a leader that says out of range tells no stable offset, and is asked for what it has."""

    class Admin(BusyAdmin):
        def offsets(
            self, partitions: Collection[tuple[str, int]], *, read_committed: bool, **how: Any
        ) -> Any:
            return dict.fromkeys(partitions, 300 if how["at"] == "latest" and read_committed else 200)

    client = Told(-1, state="deleted")
    hanging_client = asking(client)
    hanging_client._admin = Admin()
    hanging_client.record_states({READABLE: 5})

    assert not hanging_client.committed_behind({READABLE: 5}, lambda: {7})
    assert client.looked == [(*READABLE, 199)]


class Batches:
    """A client of partitions with one batch each, from offset 4 to 6; of every second one the log begins behind it."""

    def __init__(self) -> None:
        self.calls = 0

    def batches_at(self, records: Sequence[tuple[str, int, int]], _: float) -> list[Any]:
        """Asked with one offset of each partition."""
        self.calls += 1
        assert len({(topic, number) for topic, number, _ in records}) == len(records)
        return [(topic, number, (4, 9, 8, 6, number, 1)) for topic, number, _ in records if number % 2]


def test_the_batches_of_many_partitions_are_asked_for_at_once() -> None:
    """A promotion looks at every copy: one request for each would make it as slow as they are many."""
    client = Batches()
    made = asking(client)
    wanted = {("east.a", number): 5 for number in range(500)}

    told = made.batches(wanted)
    assert told == {where: (4, 9, 8) if where[1] % 2 else None for where in wanted}
    found = made.batches_at(wanted)
    assert found == {where: CommittedBatch(4, 6, where[1], 1) for where in wanted if where[1] % 2}
    assert client.calls == 2
    assert made.batches_at({}) == {}
    assert client.calls == 2
