"""Orphans: every partition counts, and none is left behind unseen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.errors import NotReadyError
from eomirror.failover import orphans
from eomirror.failover.orphans import OrphanRange, orphan_ranges, refuse_forgotten
from eomirror.failover.reversal import _Reverse
from eomirror.records.promotion import Cut, Promotion, PromotionHistory, Restoration, Reversal
from eomirror.types import SourcePartition

OLD, NEW = SourcePartition("orders", 0), SourcePartition("orders", 1)


def cut(*, topic: str = "orders", position: int = 20, target: str = "east.orders", end: int = 18) -> Cut:
    return Cut(
        topic=topic, partition=0, topic_id="t", position=position, target_topic=target, target_topic_id="u",
        target_end=end, timestamp=0,
    )  # fmt: skip


def promotion(*cuts: Cut) -> Promotion:
    return Promotion(
        number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=cuts, started=0, timestamp=0,
    )  # fmt: skip


REVERSAL = Reversal(number=1, link="back", ends={OLD: 25}, run="r", timestamp=0)
RESTORATION = Restoration(number=1, orphans="keep", records=5, place="", run="r", timestamp=0)


def test_a_partition_without_a_cut_is_an_orphan_as_a_whole() -> None:
    """The mirror had not found it; and one that ends at its cut has no orphans."""
    assert orphan_ranges(promotion(cut()), {OLD: 20, NEW: 9}, {NEW: 2}) == [
        OrphanRange(source=NEW, start=2, end=9, target="b")
    ]


@pytest.mark.parametrize(("copied_from", "count"), [("b", 0), ("c", 1), (None, 1)])
def test_a_record_that_a_link_back_has_brought_is_no_orphan(
    monkeypatch: pytest.MonkeyPatch, copied_from: str | None, count: int
) -> None:
    """A link back that ran before the reversal has written among the orphans."""

    class Reader:
        """One record."""

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def connect(self, _: Any) -> None: ...

        def read(self, _: Any, take: Any, **__: Any) -> None:
            headers = [("eomirror.hops", b"x")] if copied_from else None
            take(None, SimpleNamespace(headers=lambda: headers, topic=str, key=bytes, value=bytes))

        def close(self) -> None: ...

    monkeypatch.setattr(orphans, "PartitionReader", Reader)
    monkeypatch.setattr(orphans, "last_hop", lambda *_: copied_from)
    ranges = [OrphanRange(source=OLD, start=0, end=1, target="b")]

    found = orphans.count_orphans(SimpleNamespace(), ranges, client_id="c", clock=SYSTEM_CLOCK)  # type: ignore[arg-type]

    assert found == {OLD: count}


@pytest.mark.parametrize(
    ("found", "records", "refused"),
    [
        (PromotionHistory({1: promotion(cut())}, {1: REVERSAL}), 5, True),
        (PromotionHistory({1: promotion(cut())}, {1: REVERSAL}), 0, False),
        (PromotionHistory({1: promotion(cut())}, {1: REVERSAL}, {1: RESTORATION}), 5, False),
        (PromotionHistory({1: promotion(cut(position=25))}, {1: REVERSAL}), 5, False),
        (PromotionHistory(), 5, False),
    ],
    ids=["undecided", "markers only", "decided", "none", "mirrors"],
)
def test_a_link_does_not_return_before_its_orphans_are_decided_about(
    monkeypatch: pytest.MonkeyPatch, found: PromotionHistory, records: int, *, refused: bool
) -> None:
    """From then on it would begin behind them."""
    monkeypatch.setattr(
        orphans, "count_orphans", lambda _, ranges, **__: {each.source: records for each in ranges}
    )
    link: Any = SimpleNamespace(name="there", source="east")

    def ask() -> None:
        refuse_forgotten(link, link, found, client_id="c", clock=SYSTEM_CLOCK)

    if refused:
        with pytest.raises(NotReadyError, match="5 records of east never reached"):
            ask()
    else:
        ask()


@pytest.mark.parametrize(("position", "refused"), [(17, True), (18, False), (30, False)])
def test_a_link_does_not_resume_at_the_cut_of_an_older_promotion(position: int, *, refused: bool) -> None:
    """It has mirrored since: it would write those records again."""
    made = object.__new__(_Reverse)
    link: Any = SimpleNamespace(name="back")
    made._link = link
    back: Any = SimpleNamespace(name="there")
    older = promotion(cut(topic="east.orders", target="orders", position=position))
    before = PromotionHistory({1: promotion(cut())})

    if refused:
        with pytest.raises(NotReadyError, match="has not mirrored since"):
            made._refuse_stale(back, older, before)
    else:
        made._refuse_stale(back, older, before)
