"""What a lane looks at, concludes and ends where its target left transactions open (docs/adr/0012)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from eomirror.errors import FencedError, TransactionFailedError, UnreachableError
from eomirror.plane.protocol import ProducerIdentity
from eomirror.records.mm2 import Checkpoint, OffsetSync
from eomirror.records.names import LinkNames, ReadersTopics
from eomirror.records.offset_map import offset_map_partition
from eomirror.recovery.hanging import OpenRange, RecordState
from eomirror.recovery.resolve_hanging import HangingResolver
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import ORDERS, PAYMENTS, FakeState, position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.errors import MirrorError
    from eomirror.records.position import Position

NAMES = LinkNames("east.west")
POSITIONS, CONTROL, COPY = (NAMES.positions_topic, 0), (NAMES.control_topic, 0), ("east.orders", 0)
OTHER_COPY = ("east.payments", 0)
TOPICS = FakeState({}).state_topics()
MINE, EPOCH, LANE = 7, 3, 0
OLD, OLD_LANE = 8, 2
MAP_NUMBER = offset_map_partition(ORDERS, TOPICS.offset_map_partitions)
CHECKPOINTS, SYNCS = ("east.checkpoints.internal", 0), ("mm2-offset-syncs.east.internal", 0)
FOREIGN = 99
LANES = {MINE: LANE, OLD: OLD_LANE}
HELD = ProducerIdentity(MINE, EPOCH + 1)


def left(where: tuple[str, int], start: int, end: int, *, producer_id: int = MINE) -> OpenRange:
    """Something open."""
    topic, number = where
    return OpenRange(
        topic=topic, partition=number, producer_id=producer_id, epoch=EPOCH, start=start, end=end
    )


def wrote(source: Any = ORDERS, offset: int = 100, **changes: Any) -> Position:
    """A position of the lane, of its first transaction."""
    values: dict[str, Any] = {
        "prev": offset - 10, "target_offset": offset + 100, "records": 10, "producer_id": MINE,
        "producer_epoch": EPOCH, "txn": 1, **changes,
    }  # fmt: skip
    return position(source, offset, **values)


@dataclass
class FakeLeftovers:
    """Says what a test wants it to say, and remembers what is ended."""

    found: list[OpenRange] = field(default_factory=list)
    held_there: dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]] = field(default_factory=dict)
    became: dict[tuple[tuple[str, int], int], RecordState] = field(default_factory=dict)
    # what is said at first instead, one after the other
    in_turn: list[RecordState] = field(default_factory=list)
    behind: frozenset[tuple[str, int]] = frozenset()
    # at which offsets something else stands than the lane's record
    others: frozenset[tuple[tuple[str, int], int]] = frozenset()
    ended: list[tuple[int | None, list[tuple[str, int]], bool, ProducerIdentity | None]] = field(
        default_factory=list
    )
    # copies of which the offset map knows more than the position
    mapped: frozenset[tuple[str, int]] = frozenset()
    refuses: Exception | None = None

    def open(self, partitions: Collection[tuple[str, int]]) -> Sequence[OpenRange]:
        return [one for one in self.found if one.where in partitions]

    def records(self, found: OpenRange) -> Sequence[tuple[bytes | None, bytes | None]]:
        return self.held_there.get(found.where, [])

    def record_states(self, records: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], RecordState]:
        if self.in_turn:
            return dict.fromkeys(records, self.in_turn.pop(0))
        return {
            where: self.became.get((where, offset), RecordState.DELETED) for where, offset in records.items()
        }

    def is_written_by(self, where: tuple[str, int], offset: int, writer: ProducerIdentity) -> bool:
        assert writer == ProducerIdentity(MINE, EPOCH)
        return (where, offset) not in self.others

    def overwritten(
        self, records: Mapping[tuple[str, int], tuple[int, ProducerIdentity]]
    ) -> AbstractSet[tuple[str, int]]:
        return {
            where
            for where, (offset, writer) in records.items()
            if writer != ProducerIdentity(MINE, EPOCH) or (where, offset) in self.others
        }

    def committed_behind(
        self, records: Mapping[tuple[str, int], int], producer_ids: Callable[[], AbstractSet[int]]
    ) -> AbstractSet[tuple[str, int]]:
        assert set(producer_ids()) == LANES.keys()
        return self.behind & records.keys()

    def mapped_behind(self, positions: Collection[Position]) -> AbstractSet[tuple[str, int]]:
        return self.mapped & {(one.target_topic, one.target_partition) for one in positions}

    def lanes(self, highest: int) -> Mapping[int, int]:
        return {producer_id: lane for producer_id, lane in LANES.items() if lane <= highest}

    def release(self) -> None:
        """Nothing is connected."""

    def end(
        self,
        lane: int | None,
        partitions: Collection[tuple[str, int]],
        *,
        commit: bool,
        held: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        if self.refuses is not None:
            raise self.refuses
        self.ended.append((lane, sorted(partitions), commit, held))
        before = held or ProducerIdentity(OLD, 0)
        return ProducerIdentity(before.producer_id, before.producer_epoch + 1)


class Look:
    """A `HangingResolver` on fakes."""

    def __init__(self, *found: OpenRange, **facts: Any) -> None:
        self.hanging_client = FakeLeftovers(list(found), **facts)
        readers = ReadersTopics(checkpoints=CHECKPOINTS[0], offset_syncs=SYNCS[0])
        self.mending = HangingResolver(NAMES, self.hanging_client, readers)
        self.stopped: dict[str, MirrorError] = {}

    def state(self, *valid: Position) -> bool:
        """Look at control and positions."""
        known = {one.source: one for one in valid}
        return self.mending.find_hanging_state({0}, lambda: LANES, lambda: known)

    def copies(self, *valid: Position, dead_letters: bool = False) -> bool:
        """Look at copies and what describes them."""
        return self.mending.find_hanging_copies(
            {one.source: one for one in valid},
            topics=TOPICS,
            dead_letters=dead_letters,
            mine={MINE: LANE},
            lanes=lambda: LANES,
            stop=self._stop,
        )

    def torn(self, *valid: Position, now: Sequence[Position] | None = None) -> None:
        """Look whether positions and copies belong together."""
        again = {one.source: one for one in (valid if now is None else now)}
        self.mending.stop_torn_topics(valid, lanes=lambda: LANES, again=lambda: again, stop=self._stop)

    def end(self) -> list[tuple[int | None, list[tuple[str, int]], bool]]:
        """End it; lane, partitions, whether to commit."""
        self.mending.end({LANE: HELD})
        return [(lane, partitions, commit) for lane, partitions, commit, _ in self.hanging_client.ended]

    def _stop(self, one: Position, error: MirrorError) -> None:
        self.stopped[one.topic] = error


def held(*positions: Position) -> dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]]:
    """These positions in the positions topic."""
    return {POSITIONS: [(one.key(), one.value()) for one in positions]}


def test_nothing_open_is_nothing_to_do() -> None:
    """The common case asks once, and ends nothing."""
    look = Look()

    assert not look.state(wrote())
    assert not look.copies(wrote())
    assert look.end() == []


@pytest.mark.parametrize(
    ("fate", "commit"),
    [(RecordState.COMMITTED, True), (RecordState.ABORTED, False), (RecordState.PENDING, False)],
)
def test_open_positions_end_like_the_records_that_they_name(fate: RecordState, commit: bool) -> None:
    """What is shown was committed; what is open as well, or aborted, comes again."""
    copy = [left(COPY, 190, 201)] if fate is RecordState.PENDING else []
    look = Look(left(POSITIONS, 5, 8), *copy, held_there=held(wrote()), became={(COPY, 200): fate})

    assert look.state()
    assert look.end() == [(LANE, [POSITIONS], commit)]


@pytest.mark.parametrize("lasts", [False, True])
def test_what_is_open_for_no_producer_is_asked_again(lasts: bool) -> None:
    """
    EO-8: its producer may have ended that between two answers, and a new leader shows what it has a bit later.

    What is committed would come twice.
    """
    look = Look(left(POSITIONS, 5, 8), held_there=held(wrote()))
    look.hanging_client.in_turn = [RecordState.PENDING] * (5 if lasts else 2)
    look.hanging_client.became = {(COPY, 200): RecordState.COMMITTED}

    if lasts:
        with pytest.raises(
            UnreachableError, match=r"east\.orders-0: the states of our records keep changing"
        ):
            look.state()
        assert look.end() == []
    else:
        assert look.state()
        assert look.end() == [(LANE, [POSITIONS], True)]


@pytest.mark.parametrize(
    ("other", "commit"),
    [
        (RecordState.COMMITTED, True),
        (RecordState.ABORTED, False),
        (RecordState.DELETED, None),
        (RecordState.PENDING, None),
    ],
)
def test_of_a_copy_that_may_not_be_read_nothing_is_concluded(other: RecordState, commit: bool | None) -> None:
    """EO-8: a transaction whose records may be shown is not aborted on the chance; another copy of it may tell."""
    look = Look(
        left(POSITIONS, 5, 8),
        left(OTHER_COPY, 190, 201),
        held_there=held(wrote(), wrote(PAYMENTS)),
        became={(COPY, 200): RecordState.UNREADABLE, (OTHER_COPY, 200): other},
    )

    if commit is None:
        with pytest.raises(UnreachableError, match="only the copies tell") as raised:
            look.state()
        assert "grant Read" in (raised.value.fix or "")
        assert look.end() == []
    else:
        assert look.state()
        assert look.end() == [(LANE, [POSITIONS], commit)]


def test_an_earlier_transaction_that_may_not_be_read_is_not_aborted_with_the_last() -> None:
    """The last one was aborted, and what of those before it?"""
    told = held(wrote(), wrote(PAYMENTS, offset=110, txn=2))
    became = {(COPY, 200): RecordState.UNREADABLE, (OTHER_COPY, 210): RecordState.ABORTED}
    look = Look(left(POSITIONS, 5, 8), held_there=told, became=became)

    with pytest.raises(UnreachableError, match="only the copies tell"):
        look.state()


def test_a_position_that_only_advanced_tells_nothing() -> None:
    """It names what an earlier transaction wrote, which is shown whatever became of its own."""
    advanced = wrote(PAYMENTS, records=0)
    look = Look(
        left(POSITIONS, 5, 8),
        left(COPY, 190, 201),
        held_there=held(wrote(), advanced),
        became={(COPY, 200): RecordState.PENDING, (OTHER_COPY, 200): RecordState.COMMITTED},
    )

    assert look.state()
    assert look.end() == [(LANE, [POSITIONS], False)]


def test_what_stands_where_a_record_was_foreseen_is_no_proof_of_it() -> None:
    """
    EO-8: positions are written beside the data, with offsets that the data has not got yet (0006).

    The marker that aborted the rest may stand there, or another producer's record; both are shown, and neither is ours.
    """
    told = held(wrote(), wrote(PAYMENTS))
    became = {(COPY, 200): RecordState.COMMITTED, (OTHER_COPY, 200): RecordState.ABORTED}
    look = Look(left(POSITIONS, 5, 8), held_there=told, became=became, others=frozenset({(COPY, 200)}))
    assert look.state()
    assert look.end() == [(LANE, [POSITIONS], False)]

    both = {(COPY, 200): RecordState.COMMITTED, (OTHER_COPY, 200): RecordState.COMMITTED}
    one_of_them = Look(left(POSITIONS, 5, 8), held_there=told, became=both, others=frozenset({(COPY, 200)}))
    assert one_of_them.state()
    assert one_of_them.end() == [(LANE, [POSITIONS], True)], "a record of ours that is shown is enough"


def test_of_several_transactions_the_last_tells() -> None:
    """What hides the record of the first is the last one's abort: nothing may be concluded from the last alone."""
    first, last = wrote(), wrote(offset=110, txn=2)
    shown = Look(
        left(POSITIONS, 5, 8), held_there=held(first, last), became={(COPY, 210): RecordState.COMMITTED}
    )
    assert shown.state()
    assert shown.end() == [(LANE, [POSITIONS], True)]

    became = {(COPY, 200): RecordState.COMMITTED, (COPY, 210): RecordState.ABORTED}
    mixed = Look(left(POSITIONS, 5, 8), held_there=held(first, last), became=became)
    with pytest.raises(UnreachableError, match="to several transactions"):
        mixed.state()
    assert mixed.end() == []


def test_a_record_behind_another_producers_open_transaction_tells_nothing_yet() -> None:
    """A committed record is not shown there either: to take it for open would bring it twice."""
    foreign = left(COPY, 150, 300, producer_id=FOREIGN)
    look = Look(
        left(POSITIONS, 5, 8), foreign, held_there=held(wrote()), became={(COPY, 200): RecordState.PENDING}
    )

    with pytest.raises(UnreachableError, match=r"east\.orders-0.*when other producers end their"):
        look.state()

    look.hanging_client.found.append(left(COPY, 190, 300))
    assert look.state(), "ours is open there too, and so is not committed"
    assert look.end() == [(LANE, [POSITIONS], False)]

    became = {(COPY, 200): RecordState.PENDING, (OTHER_COPY, 200): RecordState.COMMITTED}
    another = Look(left(POSITIONS, 5, 8), foreign, held_there=held(wrote(), wrote(PAYMENTS)), became=became)
    assert another.state(), "another record of the same transaction tells"
    assert another.end() == [(LANE, [POSITIONS], True)]


def test_what_others_have_open_in_our_topics_is_theirs() -> None:
    """Another lane that is at work, and the owner, are no leftovers of ours."""
    look = Look(left(POSITIONS, 5, 8, producer_id=FOREIGN), left(CONTROL, 1, 2, producer_id=FOREIGN))

    assert not look.state()
    assert not look.copies()


def test_records_of_others_in_an_open_range_are_not_asked() -> None:
    """A positions partition is shared, and the range of one lane holds what others wrote meanwhile."""
    other = wrote(PAYMENTS, producer_id=OLD)
    look = Look(
        left(POSITIONS, 5, 8),
        held_there=held(other, wrote()),
        became={(OTHER_COPY, 200): RecordState.COMMITTED},
    )

    assert look.state()
    assert look.end() == [(LANE, [POSITIONS], False)]


@pytest.mark.parametrize(("offset", "commit"), [(100, False), (101, True)])
def test_an_open_gap_ends_like_its_position(offset: int, commit: bool) -> None:
    """Control alone is open: the position that moved with the gap is behind it, or was aborted."""
    gap = orjson.dumps({"topic": "orders", "partition": 0, "from": 100})
    look = Look(left(CONTROL, 1, 2), held_there={CONTROL: [(gap, b"{}")]})

    assert look.state(wrote(offset=offset))
    assert look.end() == [(LANE, [CONTROL], commit)]


def test_a_gap_and_the_position_behind_it_end_together() -> None:
    """Both are open: positions tell, and control follows in the same transaction."""
    look = Look(left(CONTROL, 1, 2), left(POSITIONS, 5, 8), held_there=held(wrote(records=0)))

    assert look.state()
    assert look.end() == [(LANE, [CONTROL, POSITIONS], False)]


@pytest.mark.parametrize(("target_offset", "commit"), [(59, True), (49, False), (None, False)])
def test_an_open_copy_ends_like_its_position(target_offset: int | None, commit: bool) -> None:
    """The position names a record of it, or does not."""
    look = Look(left(COPY, 50, 60))

    assert look.copies(wrote(target_offset=target_offset))
    assert look.end() == [(LANE, [COPY], commit)]


def test_what_a_lane_of_an_older_layout_left_is_ended_under_its_id() -> None:
    """Whatever the position says of who wrote last: no other lane would ever end it."""
    look = Look(left(COPY, 50, 60, producer_id=OLD))

    assert look.copies(wrote(target_offset=None, producer_id=FOREIGN))
    assert look.end() == [(OLD_LANE, [COPY], False)]


@pytest.mark.parametrize(
    ("told", "commit"),
    [
        # of a group that has read everything
        (Checkpoint("g", *COPY, 100, 201), True),
        (Checkpoint("g", *COPY, 101, 202), False),
        (OffsetSync(*ORDERS, 99, 200), True),
        (OffsetSync(*ORDERS, 100, 201), False),
        # of another lane, or of none: nothing of it is known to be true
        (Checkpoint("g", "elsewhere", 0, 1, 1), False),
    ],
)
def test_what_tells_readers_where_to_go_on_is_shown_if_the_position_is_behind_it(
    told: Checkpoint | OffsetSync, commit: bool
) -> None:
    """EO-8: a checkpoint of an aborted transaction names offsets at which the records are not."""
    where = CHECKPOINTS if isinstance(told, Checkpoint) else SYNCS
    look = Look(left(where, 3, 5), held_there={where: [(told.key(), told.value()), (b"not ours", b"?")]})

    assert look.copies(wrote())
    assert look.end() == [(LANE, [where], commit)]


def test_checkpoints_of_several_transactions_of_which_one_was_aborted_are_written_again() -> None:
    """One too few is made up for by the next, one too many is wrong."""
    told = [Checkpoint("g", *COPY, upstream, 201) for upstream in (90, 101)]
    look = Look(left(CHECKPOINTS, 3, 6), held_there={CHECKPOINTS: [(one.key(), one.value()) for one in told]})

    assert look.copies(wrote())
    assert look.end() == [(LANE, [CHECKPOINTS], False)]


def test_a_copy_in_which_another_producer_writes_is_left_alone() -> None:
    """An application of the target may have a transaction open in the same topic."""
    look = Look(left(COPY, 50, 60, producer_id=FOREIGN))

    assert not look.copies(wrote())
    assert not look.stopped


@pytest.mark.parametrize("where", [SYNCS, (TOPICS.offset_map, MAP_NUMBER)])
def test_a_lane_at_work_beside_another_producers_transaction_is_left_alone(where: tuple[str, int]) -> None:
    """All lanes write there; a lane that ended what a living one has open would fence it, at each start of any lane."""
    look = Look(
        left(COPY, 50, 60, producer_id=FOREIGN),
        left(where, 3, 5, producer_id=OLD),
        held_there={where: [(orjson.dumps({"topic": "orders", "partition": 0, "first": 90}), b"")]},
    )

    assert not look.copies(wrote())
    assert look.end() == []

    look.hanging_client.found.append(left(OTHER_COPY, 50, 60, producer_id=OLD))
    assert look.copies(wrote(), wrote(PAYMENTS)), "it has left one of our copies open, so it is not at work"
    assert {lane for lane, _, _ in look.end()} == {OLD_LANE}


def test_what_other_lanes_write_to_the_map_asks_no_coordinator() -> None:
    """It is open at every look, and to ask costs round trips for each lane of the link."""
    look = Look(left((TOPICS.offset_map, MAP_NUMBER), 3, 5, producer_id=OLD))

    def lanes() -> dict[int, int]:
        raise AssertionError("asked")

    found = look.mending.find_hanging_copies(
        {ORDERS: wrote()}, topics=TOPICS, dead_letters=False, mine={MINE: LANE}, lanes=lanes, stop=look._stop
    )

    assert not found


def test_a_copy_that_is_open_by_an_id_that_no_lane_has_any_more_is_named() -> None:
    """A transactional.id gets another producer id when its epochs are used up; what hung under the old one stays."""
    gone = 4_711
    look = Look(left(COPY, 205, 209, producer_id=gone))

    assert not look.copies(wrote(producer_id=gone))

    (error,) = look.stopped.values()
    assert "--start-offset 205" in error.fix


def test_a_copy_that_was_committed_in_part_stops_its_topic_and_no_other() -> None:
    """The rest of what is open is ended all the same."""
    look = Look(left(COPY, 50, 70), left(OTHER_COPY, 50, 60))

    assert look.copies(wrote(target_offset=59), wrote(PAYMENTS, target_offset=59))
    assert look.end() == [(LANE, [OTHER_COPY], True)]
    assert list(look.stopped) == ["orders"]


def test_open_letters_and_chunks_end_like_the_positions_of_what_they_speak_of() -> None:
    """In doubt a letter is shown, which may come twice, and a chunk is not, which would lie."""
    keys = [orjson.dumps({"topic": "orders", "partition": 0, "offset": at}) for at in (90, 100)]
    dead_letters = (TOPICS.dead_letter, 0)
    look = Look(left(dead_letters, 0, 2), held_there={dead_letters: [(key, b"{}") for key in keys]})
    assert not look.copies(wrote(offset=100)), "there is no such topic"
    assert look.copies(wrote(offset=100), dead_letters=True)
    assert look.end() == [(LANE, [dead_letters], True)]

    chunks = [orjson.dumps({"topic": "orders", "partition": 0, "first": at}) for at in (90, 100)]
    for number in range(TOPICS.offset_map_partitions):
        where = TOPICS.offset_map, number
        in_map = Look(left(where, 0, 2), held_there={where: [(key, b"") for key in chunks]})
        if in_map.copies(wrote(offset=100)):
            assert in_map.end() == [(LANE, [where], False)]
            break
    else:
        pytest.fail("the partition's part of the map is not looked at")


def test_what_stays_open_after_it_was_ended_is_said_and_not_ended_for_ever() -> None:
    """The markers of that end may be left out as well: the attempt fails, and the next one tries again."""
    look = Look(left(COPY, 50, 60))
    assert look.copies(wrote(target_offset=59))
    look.end()

    with pytest.raises(UnreachableError, match="although it was ended"):
        look.copies(wrote(target_offset=59))

    look.hanging_client.found = [left(COPY, 70, 80)]
    assert look.copies(wrote(target_offset=59)), "that is another one"


def test_only_who_still_has_the_id_ends_what_it_has_open() -> None:
    """What an attempt that was overtaken has read is old; each end gives the identity for the next one."""
    look = Look(left(COPY, 50, 60), left(OTHER_COPY, 50, 60), left(OTHER_COPY, 40, 60, producer_id=OLD))
    assert look.copies(wrote(target_offset=59), wrote(PAYMENTS, target_offset=None))

    committed = look.mending.end({LANE: HELD})

    assert [(lane, commit, identity) for lane, _, commit, identity in look.hanging_client.ended] == [
        (LANE, True, HELD),
        (LANE, False, replace(HELD, producer_epoch=HELD.producer_epoch + 1)),
        (OLD_LANE, False, None),
    ]
    assert committed == {"east.orders-0": True, "east.payments-0": False}


def test_who_is_fenced_while_ending_says_so() -> None:
    """The lane's machine ends the attempt by it."""
    look = Look(left(COPY, 50, 60), refuses=FencedError("another producer has it"))
    assert look.copies(wrote(target_offset=59))

    with pytest.raises(FencedError):
        look.mending.end({LANE: HELD})


def test_a_position_whose_record_was_dropped_stops_its_topic() -> None:
    """The record is there and was aborted: no lane goes on as if nothing were missing."""
    became = {(COPY, 59): RecordState.ABORTED, (OTHER_COPY, 59): RecordState.COMMITTED}
    look = Look(became=became)

    look.torn(wrote(target_offset=59), wrote(PAYMENTS, target_offset=59))

    assert list(look.stopped) == ["orders"]
    assert "dropped committed records" in look.stopped["orders"].message


@pytest.mark.parametrize("fate", [RecordState.COMMITTED, RecordState.DELETED])
def test_what_others_wrote_where_a_position_names_a_record_stops_its_topic(fate: RecordState) -> None:
    """EO-5: the copy was cut back and has grown on; of a position that does not know its writer nothing is said."""
    became = {(COPY, 59): fate, (OTHER_COPY, 59): fate}
    look = Look(became=became, others=frozenset({(COPY, 59), (OTHER_COPY, 59)}))

    look.torn(wrote(target_offset=59), wrote(PAYMENTS, target_offset=59, records=0))

    assert list(look.stopped) == ["orders"]
    assert look.stopped["orders"].exit_code == 4
    assert "at offset 59 of" in look.stopped["orders"].message


def test_records_behind_what_a_position_names_stop_their_topic() -> None:
    """Their own position was dropped: a lane that went on would bring them twice."""
    look = Look(became={(COPY, 59): RecordState.COMMITTED}, behind=frozenset({COPY}))

    look.torn(wrote(target_offset=59))

    assert "dropped the position" in look.stopped["orders"].message


def test_records_behind_a_position_that_are_deleted_stop_their_topic_if_the_map_names_them() -> None:
    """EO-5: retention has deleted them; readers had them, and a lane that went on would bring them twice."""
    became = {(COPY, 59): RecordState.DELETED, (OTHER_COPY, 59): RecordState.DELETED}
    look = Look(became=became, mapped=frozenset({COPY}))

    look.torn(wrote(target_offset=59), wrote(PAYMENTS, target_offset=59))

    assert list(look.stopped) == ["orders"]
    assert "are or were in" in look.stopped["orders"].message


def test_a_topic_that_is_known_to_be_compacted_by_now_stops_as_others_do() -> None:
    """EO-5: the attempt knows it from the topic's settings; the position that was read does not say it yet."""
    look = Look(became={(COPY, 59): RecordState.COMMITTED}, behind=frozenset({COPY}))
    read = wrote(target_offset=59)

    look.torn(replace(read, compacted=True), now=[read])

    assert list(look.stopped) == ["orders"]


def test_a_position_that_has_moved_since_stops_nothing() -> None:
    """A newer attempt of the lane wrote those records: this one was overtaken, and all is well."""
    look = Look(became={(COPY, 59): RecordState.COMMITTED}, behind=frozenset({COPY}))
    read = wrote(target_offset=59)

    with pytest.raises(TransactionFailedError, match="has moved"):
        look.torn(read, now=[wrote(offset=110, target_offset=69, txn=2)])

    assert not look.stopped


def test_what_the_owner_set_is_not_compared_with_what_stands_behind_it() -> None:
    """An adopted position may go back behind what lanes wrote: the user wants it again."""
    look = Look(became={(COPY, 59): RecordState.COMMITTED}, behind=frozenset({COPY}))

    look.torn(wrote(target_offset=59, epoch=0))
    look.torn(wrote(target_offset=None))

    assert not look.stopped


def placed(source: SourcePartition, producer_id: int, **ends: int) -> Position:
    """A position of records placed by key, with the last record of it in each target partition."""
    keyed = {name.removeprefix("p"): end for name, end in ends.items()}
    number, last = max(keyed.items(), key=lambda each: each[1])
    return replace(
        wrote(), topic=source.topic, partition=source.partition, target_partition=int(number),
        target_offset=last, producer_id=producer_id, keyed=keyed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("producer", "ends", "ended"),
    [
        (MINE, {"p0": 150, "p1": 60}, [(LANE, [COPY], False)]),
        (MINE, {"p0": 200, "p1": 60}, [(LANE, [COPY], True)]),
        (OLD, {"p0": 200, "p1": 60}, []),
    ],
)
def test_in_a_shared_copy_only_the_lanes_own_transactions_are_ended(
    producer: int, ends: dict[str, int], ended: list[Any]
) -> None:
    """Other lanes have transactions open in a partition of records placed by key, and go on."""
    look = Look(left(COPY, 190, 201, producer_id=producer))
    known = placed(SourcePartition("orders", 0), MINE, **ends)
    other = placed(SourcePartition("orders", 1), OLD, p0=195, p1=2)

    assert look.copies(known, other) == bool(ended)
    assert look.end() == ended
    assert not look.stopped


def test_records_of_other_lanes_behind_a_placed_record_are_no_defect() -> None:
    """The furthest record of a shared partition is the one that is looked at."""
    look = Look(
        behind=frozenset({COPY}),
        became={(COPY, 200): RecordState.COMMITTED, (COPY, 150): RecordState.ABORTED},
    )

    look.torn(
        placed(SourcePartition("orders", 0), MINE, p0=150, p1=-1),
        placed(SourcePartition("orders", 1), MINE, p0=200, p1=-1),
    )
    assert not look.stopped
