"""Promotion records: written and read again, folded to the state of the link."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from eomirror.errors import NotReadyError, StateError
from eomirror.link.ownership import refuse_promoted
from eomirror.records.control import ControlView, decode_control
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.promotion import Cut, Fence, Promotion, Restoration, Resumption, Reversal, encoded
from eomirror.types import SourcePartition


def cut(partition: int = 0, **changes: object) -> Cut:
    values: dict[str, object] = {
        "topic": "orders", "partition": partition, "topic_id": "t", "position": 100, "target_topic": "east.orders",
        "target_topic_id": "u", "target_end": 90, "timestamp": 7, "source_end": None, **changes,
    }  # fmt: skip
    return Cut(**values)  # type: ignore[arg-type]  fields by name


def promotion(number: int = 1, *cuts: Cut) -> Promotion:
    return Promotion(
        number=number, planned=number % 2 == 0, run="r", host="h", generation=4, source_cluster_id="a",
        target_cluster_id="b", cuts=cuts or (cut(0), cut(1)), groups={"moved": 3}, started=1, timestamp=2,
        milliseconds={"take": 12},
    )  # fmt: skip


REVERSAL = Reversal(number=1, link="back", ends={SourcePartition("orders", 0): 105}, run="r", timestamp=8)
RESTORATION = Restoration(
    number=1, orphans="merge", records=5, place="", run="r", timestamp=9,
    lost={SourcePartition("orders", 1): ((100, 104), (110, 111))},
)  # fmt: skip
RANGED = replace(
    RESTORATION,
    ranges={
        SourcePartition("orders", 0): (
            DealtRange(100, 105, "export", "/orphans", 4, "h"), DealtRange(100, 103, "keep"),
        ),
        SourcePartition("orders", 1): (DealtRange(100, 120, "merge", records=9),),
    },
)  # fmt: skip
RESUMPTION = Resumption(
    number=1, link="back", starts={SourcePartition("orders", 0): 130}, run="r", timestamp=10
)


FENCE = Fence(number=1, method="acl", topics=("orders",), lifted=False, host="h", timestamp=1)


def folded(*records: Fence | Promotion | Reversal | Restoration | Resumption) -> ControlView:
    return decode_control([(record.key(), record.value(), "c") for record in records])


def test_every_record_is_read_as_it_was_written() -> None:
    """All fields, of all kinds."""
    history = folded(promotion(), REVERSAL, RESTORATION, RESUMPTION).history

    assert history.promotions == {1: promotion()}
    assert history.reversals == {1: REVERSAL}
    assert history.restorations == {1: RESTORATION}
    assert history.resumptions == {1: RESUMPTION}


def test_a_restoration_records_the_ranges_that_it_has_dealt_with() -> None:
    """A later one stands in place of an earlier one; that of an earlier release has none, and stays readable."""
    assert folded(RESTORATION, RANGED).history.restorations == {1: RANGED}
    assert RESTORATION.ranges is None
    assert folded(replace(RANGED, ranges={})).history.restorations[1].ranges == {}
    # a field that a later release adds to a range
    body = orjson.loads(RANGED.value())
    body["ranges"]["orders"]["1"][0].append("more")
    found = decode_control([(RANGED.key(), orjson.dumps(body), "c")])
    assert found.history.restorations == {1: RANGED}


def test_an_earlier_release_has_dealt_with_all_orphans_if_their_end_was_known() -> None:
    """Before the reversal nothing tells how far it went, unless the link has returned since."""
    orders = SourcePartition("orders", 0)
    everything = {orders: (DealtRange(0, 105, "merge"),)}
    early = replace(RESTORATION, timestamp=REVERSAL.timestamp - 1)

    assert folded(promotion(), REVERSAL, RESTORATION).history.dealt(1) == everything
    assert folded(promotion(), REVERSAL, early).history.dealt(1) == {}
    assert folded(promotion(), early).history.dealt(1) == {}
    assert folded(promotion(), REVERSAL, early, RESUMPTION).history.dealt(1) == everything
    assert folded(promotion(), REVERSAL, RANGED).history.dealt(1) == RANGED.ranges
    assert folded(promotion(), REVERSAL).history.dealt(1) == {}


def test_a_link_is_promoted_until_it_resumes() -> None:
    """The newest promotion counts, and its own resumption."""
    assert folded().history.current is None
    assert folded(promotion()).history.current == promotion()
    assert folded(promotion(), REVERSAL, RESTORATION).history.current == promotion()
    assert folded(promotion(), RESUMPTION).history.current is None
    assert folded(promotion(), RESUMPTION, promotion(2)).history.current == promotion(2)
    # a second call after a lost answer writes the same number again
    assert folded(promotion(), promotion()).history.last == promotion()


def test_a_fence_stands_until_it_is_lifted() -> None:
    """So that a later call undoes exactly what was done."""
    assert folded().history.fence is None
    assert folded(FENCE).history.fence == FENCE
    assert folded(FENCE, replace(FENCE, lifted=True)).history.fence is None


def test_a_fence_of_an_older_release_is_read() -> None:
    """It names no cluster, and does not know of lifting."""
    old = b'{"v":1,"method":"acl","topics":["orders"],"lifted":false,"host":"h","timestamp":1}'
    assert decode_control([(FENCE.key(), old, "c")]).history.fence == FENCE
    there = replace(FENCE, source_cluster_id="east", lifting=True)
    assert folded(there).history.fence == there


def test_the_loss_is_the_sum_over_partitions_or_unknown() -> None:
    """One partition whose end is not known makes the sum unknown."""
    assert promotion(1, cut(0, source_end=104), cut(1, source_end=100)).lost == 4
    assert promotion(1, cut(0, source_end=104), cut(1)).lost is None


def test_partitions_without_a_cut_are_part_of_the_loss_and_older_records_have_none() -> None:
    """Their names are those of the readiness; the record has the sum, and that more may be lost."""
    made = replace(promotion(1, cut(0, source_end=104)), uncut=500, at_least=True)

    found = folded(made).history.promotions[1]

    assert (found, found.lost, found.at_least) == (made, 504, True)
    # of a topic that was made again, no end is known
    assert replace(made, cuts=(*made.cuts, cut(1))).lost == 504
    body = orjson.loads(made.value())
    del body["uncut"], body["at_least"]
    (old,) = decode_control([(made.key(), orjson.dumps(body), "c")]).history.promotions.values()
    assert (old.lost, old.at_least) == (4, False)
    assert {"uncut", "at_least"} & orjson.loads(promotion().value()).keys() == set()


@pytest.mark.parametrize(
    "change",
    [
        {"planned": 1},
        {"run": None},
        {"topics": {"orders": {}}},
        {"generation": "4"},
        {"generation": -1},
        {"v": 2},
        {"v": 3},
    ],
)
def test_an_unreadable_promotion_is_refused(change: dict[str, object]) -> None:
    """Otherwise a promoted link would look like a mirror."""
    value = orjson.dumps({**orjson.loads(promotion().value()), **change})

    with pytest.raises(StateError):
        decode_control([(promotion().key(), value, "c")])
    with pytest.raises(StateError):
        decode_control([(b'{"kind":"promotion"}', promotion().value(), "c")])


def test_a_promoted_link_refuses_to_mirror_and_says_what_to_do() -> None:
    """Before and after the reversal; exit code 6."""
    refuse_promoted("l", folded(promotion(), RESUMPTION))
    with pytest.raises(NotReadyError, match="was promoted at") as raised:
        refuse_promoted("l", folded(promotion()))
    assert "eomirror reverse CONFIG --link l" in raised.value.fix
    with pytest.raises(NotReadyError) as raised:
        refuse_promoted("l", folded(promotion(), REVERSAL))
    assert "failback" in raised.value.fix
    assert raised.value.exit_code == 6


def test_thousands_of_partitions_fit_into_one_record() -> None:
    """Brokers take 1 MiB by default."""
    many = promotion(
        1, *(cut(number, position=10**9, target_end=10**9, source_end=10**9) for number in range(10_000))
    )

    assert len(many.value()) < 700_000


# default of a broker's max.message.bytes; records of a batch share it
_BROKER_BYTES = 1_048_588
_MANY = tuple(
    cut(n % 400, topic=f"a-topic-with-a-long-name-{n // 400}", position=10**12 + n) for n in range(40_000)
)
_OFFSETS = {SourcePartition("one-topic", n): 10**12 + n for n in range(100_000)}


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (promotion(1, *sorted(_MANY, key=lambda each: each.source)), "promotions"),
        (replace(REVERSAL, ends=_OFFSETS), "reversals"),
        (replace(RESUMPTION, starts=_OFFSETS), "resumptions"),
        (
            replace(
                RANGED,
                ranges={
                    each: (DealtRange(1, end, "export", "/a/file", 9, "h"),) for each, end in _OFFSETS.items()
                },
            ),
            "restorations",
        ),
    ],
)
def test_a_link_of_very_many_partitions_fits_into_records(record: Promotion, kind: str) -> None:
    """A record that the broker refuses would fail after the groups were moved."""
    records = encoded(record)

    assert len(record.value()) > _BROKER_BYTES
    assert max(len(value) for _, value in records) < _BROKER_BYTES / 2
    found = decode_control([(key, value, "c") for key, value in records]).history
    assert getattr(found, kind) == {1: record}
    assert orjson.loads(records[-1][0])["kind"] == kind.removesuffix("s")


def test_a_record_with_a_missing_part_is_not_readable() -> None:
    """A cut that is not known would be mirrored over."""
    records = encoded(promotion(1, *_MANY))[1:]

    with pytest.raises(StateError, match="parts of a promotion"):
        decode_control([(key, value, "c") for key, value in records])


def test_a_small_promotion_is_one_record_of_the_first_version() -> None:
    """Earlier releases read it; they refuse one that has parts."""
    assert encoded(promotion()) == [(promotion().key(), promotion().value())]
    assert orjson.loads(encoded(promotion())[0][1])["v"] == 1
    assert orjson.loads(encoded(promotion(1, *_MANY))[-1][1])["v"] == 2


def test_the_cuts_of_a_reversal_are_those_in_force() -> None:
    """Every reader of the promotion gets them; a reversal of an older release has none."""
    moved = replace(REVERSAL, cuts={SourcePartition("orders", 0): (80, 70)})

    view = folded(promotion(), moved)

    assert view.history.reversals[1] == moved
    assert view.history.current is not None
    assert [(one.position, one.target_end) for one in view.history.current.cuts] == [(80, 70), (100, 90)]
    assert b'"cuts"' not in REVERSAL.value()
    assert folded(promotion(), REVERSAL).history.current == promotion()
    # the position of a reversal whose promotion is not in the log yet
    assert folded(moved).history.reversals[1] == moved
