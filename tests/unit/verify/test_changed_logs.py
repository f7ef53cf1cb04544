"""`verify` names a source or a copy whose log is not what the position says, whatever range it compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.records.control import ControlView
from eomirror.records.promotion import Promotion, PromotionHistory
from eomirror.types import SourcePartition
from eomirror.verify import runner
from eomirror.verify.runner import Verifier
from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, Range, Scope

T0, T1, T2 = (SourcePartition("t", number) for number in range(3))


def verdict(source: SourcePartition, **changes: Any) -> PartitionVerdict:
    there = Range(source.topic, source.partition, 0, 9, 9)
    return PartitionVerdict(scope=Scope(source=there, target=there, lag=0, **changes), matched=9)


@pytest.mark.parametrize(("promoted", "verb"), [(False, "run"), (True, "reverse")])
def test_a_log_that_is_not_what_was_mirrored_is_named_with_the_way_on(
    monkeypatch: pytest.MonkeyPatch, *, promoted: bool, verb: str
) -> None:
    """Although the records that were compared are equal: what the log has lost may be behind them."""
    sources = {
        T0: SimpleNamespace(parts=True, __str__=lambda: ""),
        T1: SimpleNamespace(parts=False),
    }
    sources[T0] = type("Changed", (), {"parts": True, "__str__": lambda _: "t-0 ends at offset 5"})()
    copies: dict[SourcePartition, str] = {}
    ends = SimpleNamespace(problems=lambda _: copies)
    promotion = Promotion(
        number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=(), started=0, timestamp=0,
    )  # fmt: skip
    view = ControlView(history=PromotionHistory({1: promotion} if promoted else {}))
    monkeypatch.setattr(runner, "changed_sources", lambda *_: sources)
    monkeypatch.setattr(runner, "CopyEnds", lambda *_: ends)
    monkeypatch.setattr(
        runner, "CompactedTopicReader", lambda _: SimpleNamespace(records=lambda *_, **__: view)
    )
    monkeypatch.setattr(runner, "control_view", lambda found: found)
    made: Any = Verifier.__new__(Verifier)
    made._link = SimpleNamespace(name="a link", state_name="l")
    made._sessions = SimpleNamespace(source=None, target=None)
    verdicts = [verdict(T0), verdict(T1), verdict(T2, gone="deleted")]

    found = made._with_changed(verdicts, {})

    assert [one.changed for one in found] == [
        f"t-0 ends at offset 5; `eomirror {verb} CONFIG --link 'a link'` names the ways on", "", "",
    ]  # fmt: skip
    assert [one.word for one in found] == ["differs", "equal", "gone"]
    assert LinkVerdict(link="l", plane="native", partitions=tuple(found)).differs

    # a copy as well; and nothing is read where nothing is wrong
    sources.clear()
    copies |= {T1: "east.t-1 ends at 3", T2: "any"}
    found = made._with_changed(verdicts, {})
    assert [bool(one.changed) for one in found] == [False, True, False]
    copies.clear()
    monkeypatch.setattr(runner, "CompactedTopicReader", None)
    assert made._with_changed(verdicts, {}) == verdicts
