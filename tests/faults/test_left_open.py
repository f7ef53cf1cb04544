"""
Transactions that are over and stay open in some partitions of the target (fault F11; docs/adr/0012).

Kafka 4.3 leaves the markers of a transaction out where a partition has no leader at that moment.  That moment is too
short to be met on purpose, so these tests leave transactions open themselves (`support.traffic.left_open`), in every
combination of partitions, and end some of them; the stress tool is `just lost-markers`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from eomirror._native import HangingTransactionClient
from eomirror.errors import UnreachableError
from eomirror.lane.spec import Ending
from eomirror.records.control import Gap
from eomirror.records.mm2 import Checkpoint, Mm2Names
from eomirror.records.position import AttemptClaim
from support.clusters.frames import Api
from support.clusters.rig import Side
from support.clusters.rules import DropAnswers, Match
from support.judges.audited import assert_audited
from support.links.left_open_flow import TIMEOUT, Flow, UntilTold
from support.links.plane import plane_under_test
from support.traffic.left_open import UNVERIFIED, Forgetful
from support.traffic.records import create_topic, produce, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.fault("F11"), pytest.mark.timeout(180)]

# some seconds each; one of each kind is enough for every run
SLOW = pytest.mark.slow


class KilledError(Exception):
    """Ends a lane where it stands."""


def killed_at(point: str) -> Callable[[str], None]:
    """A crash point that ends the lane."""

    def reached(name: str) -> None:
        if name == point:
            raise KilledError

    return reached


@pytest.fixture(scope="module")
def careless_side() -> Iterator[Side]:
    """A target that does not verify what is written in transactions, and may be entered through a proxy."""
    side = Side("careless", properties=UNVERIFIED)
    try:
        yield side
    finally:
        side.close()


@pytest.fixture(scope="module")
def careless(careless_side: Side) -> LocalCluster:
    """The same without the proxy."""
    return careless_side.cluster


@pytest.fixture
def flow(east: LocalCluster, careless: LocalCluster, topic_name: str) -> Flow:
    """A link that has mirrored 30 records, and 20 more on its source."""
    made = Flow(east, careless, topic_name)
    made.write(30)
    assert made.run(lanes=2).ending is Ending.STOPPED
    made.write(20)
    return made


@pytest.mark.parametrize(
    "ended",
    [
        # all markers are left out: what was decided does not matter
        pytest.param({}, id="nothing"),
        pytest.param({"copy": True}, id="copy-committed", marks=SLOW),
        pytest.param({"copy": False}, id="copy-aborted", marks=SLOW),
        pytest.param({"positions": True}, id="positions-committed", marks=SLOW),
        pytest.param({"positions": False}, id="positions-aborted", marks=SLOW),
    ],
)
def test_a_transaction_that_is_half_over_is_ended_alike_everywhere(
    flow: Flow, ended: dict[str, bool]
) -> None:
    """The copy is the original, whichever partitions have their markers; and so it is after more records."""
    flow.leave_open(position=True)
    for which, commit in ended.items():
        flow.end(flow.copy if which == "copy" else flow.names.positions_topic, commit=commit)

    assert flow.run().ending is Ending.STOPPED
    assert flow.found() == [key for key, *_ in flow.written]
    flow.write(10)
    assert flow.run().ending is Ending.STOPPED
    assert flow.found() == [key for key, *_ in flow.written]


def test_a_position_names_who_wrote_its_record(flow: Flow) -> None:
    """What is left open is ended by it: producer id and epoch are those of the batch, on either plane and protocol."""
    client = HangingTransactionClient({name: str(value) for name, value in flow.west.items()})
    for _ in range(3):
        assert flow.run().ending is Ending.STOPPED
        said = flow.position()
        assert said.target_offset is not None
        record = said.target_topic, said.target_partition, said.target_offset
        assert client.is_written_by(record, (said.producer_id, said.producer_epoch), TIMEOUT)
        flow.write(50)


def test_a_marker_where_a_record_was_foreseen_does_not_show_the_position(flow: Flow) -> None:
    """EO-8: a transaction that was aborted before its last record was there, with its position left open."""
    flow.leave_open(position=True, lacking=1)
    where = flow.end_of_copy()
    flow.end(flow.copy, commit=False)
    assert flow.end_of_copy() == where + 1, (
        "the marker stands where the position says that its last record is"
    )

    assert flow.run().ending is Ending.STOPPED

    assert flow.found() == [key for key, *_ in flow.written]


def test_a_record_of_others_where_ours_was_foreseen_does_not_show_the_position(flow: Flow) -> None:
    """EO-8: nothing of the transaction was written but its position, and another producer wrote to the copy."""
    flow.leave_open(position=True, lacking=20)
    strangers = [(b"stranger", b"%d" % number, 1_700_000_000_000, ()) for number in range(20)]
    produce(flow.west, flow.copy, 1, strangers, transactional_id=f"{flow.name}.stranger", abort_every=0)

    assert flow.run().ending is Ending.STOPPED

    keys = [key for key, *_ in flow.written]
    assert flow.found() == [*keys[:30], *[b"stranger"] * 20, *keys[30:]]


@SLOW
def test_a_copy_that_is_deleted_with_its_positions_left_open_stops_by_itself(flow: Flow) -> None:
    """EO-5: what was open there is gone with it, and the link runs; the topic says what has become of its copy."""
    flow.leave_open(position=True)
    admin = AdminClient(dict(flow.west))
    admin.delete_topics([flow.copy])[flow.copy].result(TIMEOUT)

    report = flow.run()

    ((topic, stop),) = report.stopped_topics.items()
    assert (topic, stop.exit_code) == (flow.topic, 1)
    assert f"the target topic {flow.copy} was deleted" in str(stop)
    assert "--resume-at" in str(stop)


def test_data_without_a_position_is_never_shown(flow: Flow) -> None:
    """F11 as it was found: aborted records that stay open are shown with the lane's next transaction."""
    flow.leave_open(position=False)

    assert flow.run().ending is Ending.STOPPED

    assert flow.found() == [key for key, *_ in flow.written]
    assert_audited(flow.config)


@pytest.mark.parametrize("committed", [False, pytest.param(True, marks=SLOW)])
def test_a_checkpoint_is_shown_with_the_records_that_it_speaks_of_or_never(
    flow: Flow, *, committed: bool
) -> None:
    """EO-8: where they are aborted they come again at other offsets, and consumers that go on there read them twice."""
    before = flow.position()
    lane = flow.leave_open(position=True)
    # of a group that has read all of it: the lane has not moved when it says so
    said = Checkpoint(f"{flow.name}.group", flow.copy, 0, before.offset + 21, len(flow.written) + 1)
    where = (Mm2Names().checkpoints("east"), 0)
    lane.write(*where, [(said.key(), said.value())])
    if committed:
        flow.end(flow.copy, commit=True)

    assert flow.run().ending is Ending.STOPPED

    client = HangingTransactionClient({name: str(value) for name, value in flow.west.items()})
    wait_for(lambda: not client.open([where], TIMEOUT))
    shown = [key for key, *_ in read_committed(flow.west, where[0])[0]]
    assert (said.key() in shown) is committed
    assert flow.found() == [key for key, *_ in flow.written]


@SLOW
@pytest.mark.skipif(plane_under_test() == "client", reason="the client plane is not told of leader epochs")
def test_what_a_broker_that_died_left_open_is_ended_by_the_lane_that_goes_on(
    east: LocalCluster, careless: LocalCluster, topic_name: str
) -> None:
    """EO-8: in a copy without new records, too; no other lane would ever look there."""
    flow = Flow(east, careless, topic_name, partitions=2)
    mailbox = UntilTold()
    client = HangingTransactionClient({name: str(value) for name, value in flow.west.items()})
    quiet = (flow.copy, 1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(flow.run, mailbox=mailbox)
        try:
            flow.write(30)
            wait_for(lambda: mailbox.positions.get(0, 0) > len(flow.written) - 1)
            lane = flow.position()
            assert lane.producer_id is not None
            assert lane.producer_epoch is not None
            whose = flow.names.transactional_id(0)
            posing = Forgetful.posing(
                flow.west["bootstrap.servers"], whose, lane.producer_id, lane.producer_epoch
            )
            posing.write(*quiet, [(b"k", b"left open")])
            assert client.open([quiet], TIMEOUT)
            (broker,) = careless.brokers
            broker.kill()
            broker.start(timeout=60)
            # the lane hears of the new leaders with its next transaction
            flow.write(20)
            wait_for(lambda: not client.open([quiet], TIMEOUT), 60)
            flow.write(20)
            wait_for(lambda: len(flow.found()) == len(flow.written), 60)
        finally:
            mailbox.told.set()
        assert running.result(60).ending is Ending.STOPPED
    assert flow.found() == [key for key, *_ in flow.written]
    assert not read_committed(flow.west, flow.copy)[1]


@SLOW
def test_a_lane_that_is_killed_behind_what_it_ended_begins_again(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended is ended: the next attempt finds nothing any more."""
    flow.leave_open(position=True)
    with monkeypatch.context() as patched:
        patched.setattr("eomirror.lane.start.crash_point", killed_at("lane.hanging_resolved"))
        with pytest.raises(KilledError):
            flow.run()

    assert flow.run().ending is Ending.STOPPED

    assert flow.found() == [key for key, *_ in flow.written]


def test_records_that_the_target_dropped_stop_their_topic(flow: Flow) -> None:
    """Committed, half marked, and aborted by the transaction behind it: no lane goes on as if nothing were missing."""
    flow.leave_open(position=True)
    flow.end(flow.names.positions_topic, commit=True)
    flow.end(flow.copy, commit=False)

    report = flow.run()

    assert report.ending is Ending.FAILED
    ((topic, stop),) = report.stopped_topics.items()
    assert (topic, stop.exit_code) == (flow.topic, 4)
    assert "the target dropped committed records" in str(stop)
    assert f"--resume-at {flow.topic}-0={flow.position().prev}" in str(stop)


def test_records_whose_position_the_target_dropped_stop_their_topic(flow: Flow) -> None:
    """The other way round: the records are shown, and a lane that believes the position writes them again."""
    flow.leave_open(position=True)
    flow.end(flow.copy, commit=True)
    flow.end(flow.names.positions_topic, commit=False)

    report = flow.run()

    assert report.ending is Ending.FAILED
    ((topic, stop),) = report.stopped_topics.items()
    assert (topic, stop.exit_code) == (flow.topic, 4)
    assert "the target dropped the position of committed records" in str(stop)


def test_who_dies_before_anything_is_answered_has_ended_all_the_same(
    careless_side: Side, topic_name: str
) -> None:
    """EO-8: partitions that are added and not ended are aborted by the next InitProducerId, and what hangs there."""
    create_topic(careless_side.direct, topic_name, 2)
    lane = Forgetful(careless_side.direct["bootstrap.servers"], topic_name)
    numbers = [(topic_name, number) for number in range(2)]
    for where in numbers:
        lane.write(*where, [(b"k", b"v")])
    proxy, entered = careless_side.proxy, careless_side.proxied
    proxy.arm("unanswered", DropAnswers(match=Match(api_key=Api.ADD_PARTITIONS_TO_TXN)))
    proxy.arm("nor this", DropAnswers(match=Match(api_key=Api.END_TXN)))
    try:
        client = HangingTransactionClient({name: str(value) for name, value in entered.items()})
        with pytest.raises(UnreachableError):
            client.end(topic_name, numbers, commit=True, transaction_timeout=TIMEOUT, seconds=3.0)
    finally:
        proxy.reset()

    Forgetful(careless_side.direct["bootstrap.servers"], topic_name)
    found = read_committed(careless_side.direct, topic_name)
    assert [[key for key, *_ in found[number]] for number in range(2)] == [[b"k"], [b"k"]]


def test_what_became_of_records_is_told_without_reading_them(careless: LocalCluster, topic_name: str) -> None:
    """Of every partition, and not only of the first one in the broker's answer, which alone has room for a batch."""
    properties = {name: str(value) for name, value in careless.client_properties.items()}
    create_topic(properties, topic_name, 4)
    client = HangingTransactionClient(properties)
    with_value = [(b"k", b"v" * 1000)] * 20
    writers = []
    for commit in (True, False, True):
        lane = Forgetful(properties["bootstrap.servers"], topic_name)
        writers.append((lane.producer_id, lane.epoch))
        for number in range(4):
            lane.write(topic_name, number, with_value)
        numbers = [(topic_name, number) for number in range(4)]
        client.end(topic_name, numbers, commit=commit, transaction_timeout=TIMEOUT, seconds=TIMEOUT)
        wait_for(lambda: not client.open(numbers, TIMEOUT))  # noqa: B023  called before the next turn
    Forgetful(properties["bootstrap.servers"], topic_name).write(topic_name, 3, with_value)

    # three transactions of 20 records and a marker each, the second of them aborted
    expected = {5: "committed", 25: "unknown", 45: "committed", 63: "pending", 99: "deleted"}
    for offset, fate in expected.items():
        last = {3: fate} if fate in {"pending", "deleted"} else dict.fromkeys(range(4), fate)
        asked = [(topic_name, number, offset) for number in last]
        assert {number: told for _, number, told, _ in client.record_states(asked, TIMEOUT)} == last
    # of a marker too, which no producer has written as a record
    assert client.record_states([(topic_name, 0, 41)], TIMEOUT)[0][2] == "committed"
    wrote = {
        offset: [client.is_written_by((topic_name, 0, offset), writer, TIMEOUT) for writer in writers]
        for offset in (0, 19, 20, 41, 42, 99)
    }
    assert wrote == {
        0: [True, False, False], 19: [True, False, False], 42: [False, False, True],
        **dict.fromkeys((20, 41, 99), [False] * 3),
    }  # fmt: skip
    assert not client.is_written_by((topic_name, 0, 0), (writers[0][0] + 1, writers[0][1]), TIMEOUT)
    told = {offset: client.writer_of((topic_name, 0, offset), TIMEOUT) for offset in (0, 19, 20, 41, 42, 99)}
    assert told == {0: writers[0], 19: writers[0], 20: (-1, -1), 41: (-1, -1), 42: writers[2], 99: None}
    ours = {lane.producer_id}
    behind = {
        offset: client.has_committed_behind((topic_name, 0, offset), ours, 1_000_000, TIMEOUT)
        for offset in (-1, 19, 61)
    }
    assert behind == {-1: True, 19: True, 61: False}
    assert not client.has_committed_behind((topic_name, 0, -1), {lane.producer_id + 1}, 1_000_000, TIMEOUT)
    # aborted records of ours alone stand behind it
    assert not client.has_committed_behind((topic_name, 3, 61), ours, 1_000_000, TIMEOUT)


def test_an_aborted_record_that_the_index_knows_is_told_from_a_committed_one(
    careless: LocalCluster, topic_name: str
) -> None:
    """Data of one record, where the offset index has an entry: a broker tells no transaction that begins there."""
    properties = {name: str(value) for name, value in careless.client_properties.items()}
    create_topic(properties, topic_name, 3)
    client = HangingTransactionClient(properties, TIMEOUT)
    numbers = [(topic_name, number) for number in range(3)]
    # with the marker before it, each is the first beyond the 4,096 bytes that lie between two entries
    records = [(b"k", b"v" * 3980)]
    outcomes = (True, False, True, False)
    for commit in outcomes:
        lane = Forgetful(properties["bootstrap.servers"], topic_name)
        for number in range(3):
            lane.write(topic_name, number, records)
        client.end(topic_name, numbers, commit=commit, transaction_timeout=TIMEOUT, seconds=TIMEOUT)
        wait_for(lambda: not client.open(numbers, TIMEOUT))

    for turn, commit in enumerate(outcomes):
        # a record and a marker each
        told = client.record_states([(*where, 2 * turn) for where in numbers], TIMEOUT)
        assert {fate for _, _, fate, _ in told} == {"committed" if commit else "unknown"}, turn


@pytest.mark.parametrize("with_control", [True, False], ids=["layout-and-positions", "positions-only"])
def test_what_the_owner_left_open_does_not_hide_the_layout(flow: Flow, with_control: bool) -> None:
    """A layout and its first positions are shown together; positions of unknown partitions, never."""
    owner = Forgetful(flow.west["bootstrap.servers"], flow.names.control_transactional_id)
    stray = replace(flow.position(), topic=f"{flow.name}.stray", epoch=0, attempt=0, txn=0)
    if with_control:
        # of a partition that does not exist, so that nothing follows from it
        gap = Gap(topic="stray", partition=0, start=1, end=2, reason="r", run="r", timestamp=1)
        owner.write(flow.names.control_topic, 0, [(gap.key(), gap.value())])
    owner.write(flow.names.positions_topic, 3, [(stray.key(), stray.value())])

    assert flow.run().ending is Ending.STOPPED

    assert flow.found() == [key for key, *_ in flow.written]
    assert (stray.source in flow.positions()) is with_control


@SLOW
def test_first_positions_whose_layout_was_never_shown_keep_no_run_from_starting(flow: Flow) -> None:
    """A publication that was committed in positions and aborted in control: it is taken up, and published anew."""
    whose = flow.names.control_transactional_id
    owner = Forgetful(flow.west["bootstrap.servers"], whose)
    before = flow.position()
    stray = replace(
        before, topic=f"{flow.name}.stray", generation=before.generation + 1, epoch=0, attempt=0, txn=0
    )
    owner.write(flow.names.positions_topic, 3, [(stray.key(), stray.value())])
    client = HangingTransactionClient({name: str(value) for name, value in flow.west.items()})
    client.end(
        whose, [(flow.names.positions_topic, 3)], commit=True, transaction_timeout=TIMEOUT, seconds=TIMEOUT
    )

    assert flow.run().ending is Ending.STOPPED

    assert flow.found() == [key for key, *_ in flow.written]
    published = flow.control().generation
    assert published is not None
    assert published.generation == stray.generation + 1


@SLOW
def test_what_a_lane_of_an_older_layout_left_open_hides_no_positions(flow: Flow) -> None:
    """The link had two lanes and has one: no other lane would ever write with the id of the second."""
    former = Forgetful(flow.west["bootstrap.servers"], flow.names.transactional_id(1))
    claim = AttemptClaim(
        lane=1, generation=1, run="r", epoch=1, attempt=1, producer_id=former.producer_id,
        producer_epoch=former.epoch, host="h", pid=1, timestamp=1,
    )  # fmt: skip
    former.write(flow.names.positions_topic, 1, [(claim.key(), claim.value())])

    assert flow.run().ending is Ending.STOPPED

    assert flow.found() == [key for key, *_ in flow.written]


@SLOW
@pytest.mark.parametrize("had_it_last", [True, False], ids=["its-position", "our-position"])
def test_what_a_lane_of_an_older_layout_left_open_in_a_copy_is_ended(
    flow: Flow, *, had_it_last: bool
) -> None:
    """The partition was the second lane's, whose aborted records are open in its copy."""
    if had_it_last:
        before = flow.position()
        former = Forgetful(flow.west["bootstrap.servers"], flow.names.transactional_id(1))
        theirs = replace(
            before,
            lane=1,
            producer_id=former.producer_id,
            producer_epoch=former.epoch,
            txn=before.txn + 1,
            prev=None,
            # an advance without records: the record at the target offset is the first lane's
            records=0,
            bytes=0,
            target_producer_id=before.producer_id,
            target_producer_epoch=before.producer_epoch,
        )
        former.write(flow.names.positions_topic, 1, [(theirs.key(), theirs.value())])
        flow.end(flow.names.positions_topic, commit=True, lane=1)
    former = Forgetful(flow.west["bootstrap.servers"], flow.names.transactional_id(1))
    former.write(flow.copy, 0, [(b"never", b"shown")])

    assert flow.run().ending is Ending.STOPPED

    assert flow.found() == [key for key, *_ in flow.written]


@SLOW
@pytest.mark.parametrize("committed", [True, False])
def test_a_gap_that_a_lane_left_open_in_control_keeps_no_run_from_starting(
    flow: Flow, *, committed: bool
) -> None:
    """Its position says whether it was committed."""
    start = flow.position().offset - (5 if committed else 0)
    gap = Gap(topic=flow.topic, partition=0, start=start, end=start + 5, reason="r", run="r", timestamp=1)
    lane = Forgetful(flow.west["bootstrap.servers"], flow.names.transactional_id(0))
    lane.write(flow.names.control_topic, 0, [(gap.key(), gap.value())])

    assert flow.run().ending is Ending.STOPPED

    assert flow.found() == [key for key, *_ in flow.written]
    assert (gap in flow.control().gaps) is committed
