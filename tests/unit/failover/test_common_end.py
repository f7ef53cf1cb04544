"""Where an old source and its copy part: by their records alone, whatever ids and ends say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.failover import common_end as module
from eomirror.failover.common_end import common_ends, first_difference
from eomirror.kafka.record_digests import RecordDigest
from eomirror.link.source_comparison import ChangedSource, SourceState
from eomirror.records.position import Position
from eomirror.records.promotion import Cut, Promotion, PromotionHistory, Resumption
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WHERE = SourcePartition("orders", 0)


@pytest.mark.parametrize(
    ("source", "pairs", "first"),
    [
        pytest.param({0: b"a", 1: b"b"}, [(0, 5), (1, 6)], None, id="equal"),
        pytest.param({0: b"a", 1: b"x"}, [(0, 5), (1, 6)], 1, id="another record"),
        pytest.param({0: b"a"}, [(0, 5), (1, 6)], 1, id="a record less"),
        pytest.param({0: b"a", 1: b"x", 2: b"b"}, [(0, 5), (2, 6)], None, id="a dropped record between"),
        pytest.param({0: b"a", 1: b"x", 2: b"y"}, [(0, 5), (2, 6)], 1, id="a foreign record before another"),
        pytest.param({0: b"a", 1: b"b", 2: b"x"}, [(0, 5), (1, 6)], 2, id="a foreign record behind"),
        pytest.param({}, [], None, id="nothing"),
    ],
)
def test_the_first_difference(
    source: Mapping[int, bytes], pairs: Sequence[tuple[int, int]], first: int | None
) -> None:
    """A record that the link had dropped is none, as long as a mirrored one follows it."""
    assert first_difference(source, {5: b"a", 6: b"b"}, pairs) == first


class _Reader:
    """Digests of both logs."""

    def __init__(self, log: Mapping[int, bytes]) -> None:
        self._log = log

    def read(self, _: str, __: int, low: int, high: int, *, timestamps: bool) -> list[RecordDigest]:
        assert timestamps
        return [RecordDigest(at, found) for at, found in sorted(self._log.items()) if low <= at < high]


class _Admin:
    def __init__(self, at: int, start: int) -> None:
        self._at, self._start = at, start

    def offsets(self, asked: Sequence[Any], *, at: str, read_committed: bool) -> dict[Any, int]:
        del read_committed
        return dict.fromkeys(asked, self._at if at == "latest" else self._start)

    def topic_configs(self, _: Sequence[str]) -> dict[str, Any]:
        return {}


class _Session:
    def __init__(self, admin: _Admin, log: Mapping[int, bytes]) -> None:
        self.admin, self.log = admin, log


class _Map:
    def __init__(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        self._ranges = list(ranges)

    def listed(self) -> list[tuple[int, int, int]]:
        return self._ranges


def cut(position: int, target_end: int) -> Cut:
    """The cut of a promotion."""
    return Cut(
        topic="orders", partition=0, topic_id="s", position=position, target_topic="orders", target_topic_id="t",
        target_end=target_end, timestamp=1,
    )  # fmt: skip


def found(
    monkeypatch: pytest.MonkeyPatch,
    source: Mapping[int, bytes],
    *,
    ranges: Sequence[tuple[int, int, int]],
    target_start: int = 0,
    history: PromotionHistory | None = None,
    copy_end: int | None = None,
    begin: int | None = None,
) -> tuple[int, int] | None:
    """Position and target end of the cut at 5000, moved back; the copy is whole, or ends earlier."""
    at, end = 5_000, max(source, default=-1) + 1
    copy = {target + n: b"%d" % (first + n) for first, target, count in ranges for n in range(count)}
    sessions: Any = _Sessions(_Session(_Admin(end, 0), source), _Session(_Admin(0, target_start), copy))
    whole = max(copy, default=-1) + 1
    sessions.target.admin = _Admin(whole if copy_end is None else copy_end, target_start)
    if copy_end is not None:
        sessions.target.log = {at: found for at, found in copy.items() if at < copy_end}
    monkeypatch.setattr(module, "RecordDigestReader", lambda session: _Reader(session.log))
    monkeypatch.setattr(
        module, "OffsetMapReader", lambda *_: type("_", (), {"maps": lambda *_: {WHERE: _Map(ranges)}})()
    )
    position: Any = Position(
        topic="orders", partition=0, offset=at, source_cluster_id="", topic_id="s", target_topic="orders",
        target_partition=0, target_topic_id="t", generation=1, lane=0, run="", epoch=1, attempt=1, producer_id=1,
        producer_epoch=0, txn=1, timestamp=1, target_begin=begin,
    )  # fmt: skip
    changed = {WHERE: ChangedSource(position=position, state=SourceState.SHORTER, end=end)}
    link: Any = None
    there = common_ends(link, sessions, changed, [cut(at, 7_000)], history or PromotionHistory())
    if not there:
        return at, 7_000
    (one,) = there
    return None if one.cut is None else (one.cut.position, one.cut.target_end)


def test_a_copy_that_was_cut_moves_the_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind its last record, and to the offset from which on the link writes if it holds none."""
    ranges = [(0, 1_000, 5_000)]
    assert found(monkeypatch, log(5_000), ranges=ranges, copy_end=5_900) == (4_900, 5_900)
    assert found(monkeypatch, {}, ranges=ranges, begin=990) == (0, 990)
    assert found(monkeypatch, log(10), ranges=ranges, begin=990) == (10, 1_010)


class _Sessions:
    def __init__(self, source: _Session, target: _Session) -> None:
        self.source, self.target = source, target


def log(end: int) -> dict[int, bytes]:
    """A log as it was mirrored."""
    return {at: b"%d" % at for at in range(end)}


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        pytest.param(log(5_000), (5_000, 7_000), id="the same records in other batches"),
        pytest.param(log(4_990), (4_990, 5_990), id="shorter"),
        pytest.param(log(300) | dict.fromkeys(range(300, 350), b"x"), (300, 1_300), id="written on, shorter"),
        pytest.param(log(4_000) | dict.fromkeys(range(4000, 9000), b"x"), (4_000, 5_000), id="written on"),
        pytest.param(dict.fromkeys(range(9000), b"x"), (0, 1_000), id="another log"),
        pytest.param({}, (0, 1_000), id="empty"),
    ],
)
def test_the_cut_moves_back_to_where_the_logs_part(
    monkeypatch: pytest.MonkeyPatch, source: Mapping[int, bytes], wanted: tuple[int, int]
) -> None:
    """To the first offset that is not as mirrored, and to the copy of the first record that the source lacks."""
    assert found(monkeypatch, source, ranges=[(0, 1_000, 5_000)]) == wanted


def test_a_copy_that_begins_later_may_leave_the_offset_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """What retention has deleted there cannot be compared."""
    ranges = [(0, 1_000, 5_000)]
    assert found(monkeypatch, log(300), ranges=ranges, target_start=1_100) == (300, 1_300)
    assert found(monkeypatch, log(300), ranges=ranges, target_start=1_400) is None


def test_records_of_others_before_the_first_that_is_lost_come_back_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They stand in the copy between the last record that the source holds and the first that it lacks."""
    ranges = [(0, 1_000, 100), (100, 1_107, 4_900)]
    assert found(monkeypatch, log(100), ranges=ranges) == (100, 1_100)
    assert found(monkeypatch, log(101), ranges=ranges) == (101, 1_108)


def test_what_was_brought_back_before_is_in_no_map_of_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets 100 to 150 are what the link back had written: behind its beginning nothing tells what is lost."""
    promotion = Promotion(
        number=1, planned=True, run="", host="", generation=1, source_cluster_id="", target_cluster_id="",
        cuts=(cut(100, 1_100),), started=0, timestamp=0,
    )  # fmt: skip
    resumption = Resumption(number=1, link="back", starts={WHERE: 150}, run="", timestamp=0)
    history = PromotionHistory({1: promotion}, resumptions={1: resumption})
    ranges = [(0, 1_000, 100), (150, 1_200, 4_850)]

    assert found(monkeypatch, log(120), ranges=ranges, history=history) is None
    assert found(monkeypatch, log(100), ranges=ranges, history=history) == (100, 1_100)
    assert found(monkeypatch, log(90), ranges=ranges, history=history) == (90, 1_090)
    assert found(monkeypatch, log(200), ranges=ranges, history=history) == (200, 1_250)
