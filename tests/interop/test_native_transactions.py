"""
The native plane's transactional producer against real brokers, read back by librdkafka.

A program of the crate writes what it is told, line by line, so that a test decides what happens to the network
between two lines.  What read_committed consumers see afterwards is the only judge.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import ElectionType, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.clusters.frames import Api
from support.clusters.rules import CutAfter, DropAnswers, Hold, Lifetimes, Match
from support.links.plane import kafka_of
from support.traffic.records import create_topic, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.clusters.rig import Rig

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
COMMAND = ("run", "--quiet", "--package", "eomirror-kafka", "--example", "transact")
VOID = {0, 47, 48, 51, 90}
"""What a coordinator says to an EndTxn that it has carried out already, or that is too old."""

_ACKNOWLEDGED = re.compile(r"(\S+)-(\d+):(\d+)\.\.(\d+)@(-?\d+)")


class Acknowledged(NamedTuple):
    """A batch in the target's log: which records that were sent to the partition, and at which offset."""

    partition: int
    first: int
    last: int
    offset: int


class Native:
    """The program: `ask` sends a line and waits for the answer, `tell` and `hear` do one of both."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, line: str) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Wait for an answer."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        assert answer, "the program has ended"
        return answer

    def ask(self, line: str) -> str:
        """Send a command and wait for its answer."""
        self.tell(line)
        return self.hear()

    def do(self, *lines: str) -> list[Acknowledged]:
        """Send commands that must succeed; what was acknowledged."""
        found = []
        for line in lines:
            answer = self.ask(line)
            assert answer.split()[0] == "ok", f"{line}: {answer}"
            for _, *numbers in _ACKNOWLEDGED.findall(answer):
                found.append(Acknowledged(*map(int, numbers)))
        return found


@pytest.fixture
def native() -> Iterator[Callable[[Mapping[str, str]], Native]]:
    """Start the program; it ends with the test."""
    with contextlib.ExitStack() as running:

        def start(properties: Mapping[str, str]) -> Native:
            process = subprocess.Popen(
                [shutil.which("cargo") or "cargo", *COMMAND],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.enter_context(process)
            running.callback(process.kill)
            program = Native(process)
            for name, value in properties.items():
                program.tell(f"{name}={value}")
            program.tell("")
            return program

        yield start


def values(properties: Mapping[str, str], topic: str) -> dict[int, list[str]]:
    """What read_committed consumers see of a topic."""
    found = read_committed(properties, topic)
    return {number: [(record[1] or b"").decode() for record in records] for number, records in found.items()}


def numbered(prefix: str, count: int) -> list[str]:
    """The values of one batch."""
    return [f"{prefix}-{number}" for number in range(count)]


def identity(program: Native) -> tuple[int, int]:
    """Producer id and epoch of the open transaction."""
    _, producer_id, epoch = program.ask("identity").split()
    return int(producer_id), int(epoch)


def test_committed_batches_are_seen_and_aborted_ones_are_not(
    west: LocalCluster, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """Acknowledged offsets are those of the records, each transaction has its own epoch, and order holds."""
    create_topic(west.client_properties, topic_name, 2)
    program = native(west.client_properties)
    program.do(f"open {topic_name} 15000", "begin")
    first = identity(program)
    for batch in range(20):
        program.do(f"send {topic_name} {batch % 2} 3 a{batch}")
    acknowledged = program.do("commit 20000")
    program.do("begin")
    assert identity(program) == (first[0], first[1] + 1)
    program.do(f"send {topic_name} 0 3 gone", "pump 20000", "abort 20000")
    program.do("begin", "commit 1000")  # empty
    program.do("begin", "abort 20000")  # empty
    program.do("begin", f"send {topic_name} 0 2 z")
    (last,) = program.do("commit 20000")

    seen = values(west.client_properties, topic_name)

    expected = {
        number: [f"a{batch}-{index}" for batch in range(number, 20, 2) for index in range(3)]
        for number in (0, 1)
    }
    expected[0] += numbered("z", 2)
    assert seen == expected
    for number in (0, 1):
        mine = sorted(one for one in acknowledged if one.partition == number)
        assert mine == [Acknowledged(number, at, at + 2, at) for at in range(0, 30, 3)]
    # 30 records, a marker, 3 aborted ones, a marker
    assert last == Acknowledged(0, 0, 1, 35)


def test_a_second_producer_fences_the_first(
    west: LocalCluster, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """What the first one had open is void, and it is told so, for good."""
    create_topic(west.client_properties, topic_name)
    first, second = native(west.client_properties), native(west.client_properties)
    first.do(f"open {topic_name} 15000", "begin", f"send {topic_name} 0 2 old", "pump 20000")
    second.do(f"open {topic_name} 15000", "begin", f"send {topic_name} 0 2 new")

    answer = first.ask("commit 20000")
    assert answer.startswith(f"error Superseded transactional.id {topic_name} is used by another producer"), (
        answer
    )
    second.do("commit 20000")

    assert first.ask("begin").startswith("error Superseded")
    assert values(west.client_properties, topic_name) == {0: numbered("new", 2)}


def test_a_late_end_of_an_old_transaction_ends_no_later_one(
    rig: Rig, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """A commit that was held in the network and repeated arrives while the next transaction is open: it is void."""
    side = rig.target
    create_topic(side.direct, topic_name)
    program = native(side.proxied)
    program.do(f"open {topic_name} 15000", "begin", f"send {topic_name} 0 2 one")
    side.proxy.arm("late", Hold(match=Match(api_key=Api.END_TXN, transactional_id=topic_name)))
    program.do("commit 30000")
    side.proxy.await_event("held", "late")
    program.do("begin", f"send {topic_name} 0 2 two", "pump 20000")

    side.proxy.release("late")
    assert side.proxy.await_event("late answer", "late").error in VOID

    assert values(side.direct, topic_name) == {0: numbered("one", 2)}
    program.do("abort 20000", "begin", f"send {topic_name} 0 2 three", "commit 20000")
    assert values(side.direct, topic_name) == {0: numbered("one", 2) + numbered("three", 2)}


def test_a_late_batch_of_an_old_transaction_is_void(
    rig: Rig, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """A batch that was held and written again by its retry does not come in with the next transaction."""
    side = rig.target
    create_topic(side.direct, topic_name)
    program = native(side.proxied)
    program.do(f"open {topic_name} 15000", "begin")
    side.proxy.arm("late", Hold(match=Match(api_key=Api.PRODUCE, transactional_id=topic_name)))
    program.do(
        f"send {topic_name} 0 2 one", "pump 30000", "abort 20000", "begin", f"send {topic_name} 0 2 two"
    )
    program.do("pump 20000")

    side.proxy.release("late")
    side.proxy.await_event("late answer", "late")
    program.do("commit 20000")

    assert values(side.direct, topic_name) == {0: numbered("two", 2)}


@pytest.mark.parametrize(
    "api", [Api.PRODUCE, Api.END_TXN, Api.INIT_PRODUCER_ID], ids=lambda api: api.name.lower()
)
def test_answers_that_are_lost_with_their_connection_change_nothing(
    rig: Rig, topic_name: str, native: Callable[[Mapping[str, str]], Native], api: Api
) -> None:
    """The broker has carried it out; the same again finds that out, and writes nothing twice."""
    side = rig.target
    create_topic(side.direct, topic_name)
    program = native(side.proxied)
    side.proxy.arm("cut", CutAfter(match=Match(api_key=api), times=2))
    program.do(f"open {topic_name} 15000", "begin")
    for batch in range(12):
        program.do(f"send {topic_name} 0 2 b{batch}")
    program.do("commit 30000")
    side.proxy.await_event("lost answer", nth=2)

    assert values(side.direct, topic_name) == {
        0: [f"b{batch}-{index}" for batch in range(12) for index in range(2)]
    }


def test_connections_that_die_all_the_time_cost_nothing(
    rig: Rig, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """No batch is lost, doubled or out of order over many transactions, every third of them aborted."""
    side = rig.target
    create_topic(side.direct, topic_name, 2)
    program = native(side.proxied)
    side.proxy.arm("short", Lifetimes(shortest=0.02, longest=0.2))
    program.do(f"open {topic_name} 15000")
    expected: dict[int, list[str]] = {0: [], 1: []}
    for number in range(60):
        program.do("begin")
        for batch in range(6):
            program.do(f"send {topic_name} {batch % 2} 2 t{number}.{batch}")
            if number % 3 != 2:
                expected[batch % 2] += numbered(f"t{number}.{batch}", 2)
        if number % 3 == 2:
            program.do("pump 30000", "abort 30000")
        else:
            program.do("commit 30000")
    assert len(side.proxy.events("connected")) >= 5, "connections have to die"

    assert values(side.direct, topic_name) == expected


def test_an_outcome_that_is_not_known_in_time_is_known_later(
    rig: Rig, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """A commit whose answer is lost times out, cannot be aborted, and goes on when it is called again."""
    side = rig.target
    create_topic(side.direct, topic_name)
    program = native({**side.proxied, "socket.timeout.ms": "2000"})
    program.do(f"open {topic_name} 15000", "begin", f"send {topic_name} 0 2 one", "pump 20000")
    side.proxy.arm("deaf", DropAnswers(match=Match(api_key=Api.END_TXN), times=1))

    assert program.ask("commit 300").startswith("error Unreachable committing a transaction took longer")
    assert (
        program.ask("abort 300")
        == "error Bug abort is not possible: a commit is in progress and must be finished"
    )
    program.do("commit 30000")

    assert values(side.direct, topic_name) == {0: numbered("one", 2)}


def test_a_transaction_that_the_coordinator_gave_up_is_not_committed(
    west: LocalCluster, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """The commit says so; the producer goes on with a new identity, under protocol V1 a new producer does."""
    create_topic(west.client_properties, topic_name)
    program = native(west.client_properties)
    program.do(f"open {topic_name} 1000", "begin", f"send {topic_name} 0 2 slow", "pump 20000")
    admin = AdminClient(west.client_properties)
    at = TopicPartition(topic_name, 0)

    def ended() -> bool:
        # the last stable offset passes the records and the marker when the transaction is no longer open
        request = {at: OffsetSpec.latest()}
        listed = admin.list_offsets(request, isolation_level=IsolationLevel.READ_COMMITTED)
        return bool(listed[at].result(30).offset >= 3)

    wait_for(ended, 60)
    answer = program.ask("commit 20000")
    if kafka_of("west").startswith(("2.", "3.")):
        # the coordinator fences whose transaction it gives up
        assert answer.startswith("error Superseded "), answer
        program = native(west.client_properties)
        program.do(f"open {topic_name} 15000")
    else:
        assert answer == "error Abortable the transaction was not committed: INVALID_TXN_STATE (48)"
        program.do("abort 20000")
    program.do("begin", f"send {topic_name} 0 2 next", "commit 20000")

    assert values(west.client_properties, topic_name) == {0: numbered("next", 2)}


def test_a_batch_that_the_topic_refuses_is_named(
    west: LocalCluster, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """The caller learns which source records they are, aborts, and goes on."""
    create_topic(west.client_properties, topic_name, 1, **{"max.message.bytes": "1000"})
    program = native(west.client_properties)
    program.do(
        f"open {topic_name} 15000", "begin", f"send {topic_name} 0 2 ok", f"send {topic_name} 0 500 huge"
    )

    answer = program.ask("commit 20000")
    assert answer == (
        f"error Abortable the transaction must be aborted: {topic_name}-0 refuses source offsets 2 to 501: "
        "MESSAGE_TOO_LARGE (10)"
    )
    program.do("abort 20000", "begin", f"send {topic_name} 0 2 fine", "commit 20000")
    assert values(west.client_properties, topic_name) == {0: numbered("fine", 2)}


def test_a_bit_that_changes_in_memory_does_not_reach_a_log(
    west: LocalCluster, topic_name: str, native: Callable[[Mapping[str, str]], Native]
) -> None:
    """The checksum on the wire is the producer's, so the broker finds the damage (ADR 0016)."""
    create_topic(west.client_properties, topic_name, 1)
    program = native(west.client_properties)
    program.do(
        f"open {topic_name} 15000", "begin", f"send {topic_name} 0 2 ok", f"damage {topic_name} 0 3 bad"
    )

    answer = program.ask("commit 20000")
    assert answer == (
        f"error Abortable the transaction must be aborted: {topic_name}-0 refuses source offsets 2 to 4: "
        "CORRUPT_MESSAGE (2)"
    )
    program.do("abort 20000", "begin", f"send {topic_name} 0 2 fine", "commit 20000")
    assert values(west.client_properties, topic_name) == {0: numbered("fine", 2)}


@pytest.mark.slow
def test_leaders_that_move_in_a_transaction_are_followed(
    start_cluster: Callable[[ClusterSpec], LocalCluster],
    topic_name: str,
    native: Callable[[Mapping[str, str]], Native],
) -> None:
    """Brokers of three leave and come back between and under the batches of transactions; nothing is lost."""
    cluster = start_cluster(ClusterSpec("trio", brokers=3, kafka_version=kafka_of("west")))
    admin = AdminClient(cluster.client_properties)
    new = NewTopic(
        topic_name,
        3,
        replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]],
        # its records are years old, and on a slow machine retention looks before the test ends
        config={"min.insync.replicas": "2", "retention.ms": "-1"},
    )
    admin.create_topics([new])[topic_name].result(30)

    def leaders() -> list[int]:
        known = admin.list_topics(topic_name, timeout=10).topics[topic_name].partitions
        return [known[number].leader for number in sorted(known)]

    wait_for(lambda: leaders() == [1, 2, 3])
    program = native(cluster.client_properties)
    program.do(f"open {topic_name} 60000")
    expected: dict[int, list[str]] = {0: [], 1: [], 2: []}

    def write(name: str) -> None:
        for batch in range(9):
            program.do(f"send {topic_name} {batch % 3} 2 {name}.{batch}")
            expected[batch % 3] += numbered(f"{name}.{batch}", 2)

    program.do("begin")
    write("a")
    program.do("pump 30000")
    write("b")
    cluster.brokers[1].kill()
    program.do("pump 60000")
    assert 2 not in leaders()
    write("c")
    cluster.brokers[1].start()
    program.do("commit 60000", "begin")
    write("d")

    def restored() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED).result(30)
        return leaders() == [1, 2, 3]

    wait_for(restored, 60)
    write("e")
    program.do("commit 60000")

    assert values(cluster.client_properties, topic_name) == expected
