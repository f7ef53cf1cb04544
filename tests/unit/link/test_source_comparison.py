"""Whether the logs of a source are what positions say, asked without a lane."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.link import source_comparison as module
from eomirror.link.source_comparison import (
    SourceState,
    changed_ends,
    changed_sources,
    end_marks,
    states_before,
)
from eomirror.plane.protocol import BatchMark
from eomirror.records.position import Position
from eomirror.recovery.hanging import RecordState
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Mapping

T0 = SourcePartition("t", 0)
BATCH = {"batch_offset": 95, "batch_crc": 7, "batch_timestamp": 3}
RECORD = {"record_offset": 98, "record_digest": "aabb"}


def position(**changes: Any) -> Position:
    """A position at offset 100."""
    values: dict[str, Any] = {
        "topic": "t", "partition": 0, "offset": 100, "source_cluster_id": "east", "topic_id": "id",
        "target_topic": "t", "target_partition": 0, "target_topic_id": "u", "target_offset": 6,
        "generation": 1, "lane": 0, "run": "r", "epoch": 1, "attempt": 1, "producer_id": 1, "producer_epoch": 0,
        "txn": 4, "total_records": 4, "timestamp": 0, **changes,
    }  # fmt: skip
    return Position(**values)


class Source:
    """A source of one partition."""

    def __init__(self, **facts: Any) -> None:
        self.facts = {
            "id": "id", "start": 0, "end": 120, "policy": "delete", "batch": (95, 7, 3), "record": None,
            "state": RecordState.ABORTED, "leaderless": frozenset(), **facts,
        }  # fmt: skip
        self.admin, self.clock, self.cluster = self, SYSTEM_CLOCK, SimpleNamespace(alias="east")

    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        facts = self.facts
        there = SimpleNamespace(topic_id=facts["id"], partitions=1, leaderless=facts["leaderless"])
        return dict.fromkeys(names, there if facts["id"] else None)

    def offsets(self, asked: list[SourcePartition], *, at: str, read_committed: bool) -> dict[Any, int]:
        assert not read_committed
        return dict.fromkeys(asked, self.facts["start" if at == "earliest" else "end"])

    def topic_configs(self, names: list[str]) -> dict[str, Any]:
        return {name: {"cleanup.policy": SimpleNamespace(value=self.facts["policy"])} for name in names}

    def reader(self) -> Any:
        facts = self.facts

        class Reader:
            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def connect(self, _: object) -> None:
                pass

            def first(self, asked: dict[Any, int], **_: object) -> dict[Any, Any]:
                return {} if facts["record"] is None else dict.fromkeys(asked, facts["record"])

        return Reader()


def state(monkeypatch: pytest.MonkeyPatch, source: Source, at: Position, **known: Any) -> SourceState | None:
    """How the source differs."""
    client = SimpleNamespace(
        batches=lambda asked: (
            None if source.facts["batch"] == "" else dict.fromkeys(asked, source.facts["batch"])
        ),
        record_states=lambda asked: dict.fromkeys(asked, source.facts["state"]),
        release=lambda: None,
    )
    monkeypatch.setattr(module, "target_hanging_client", lambda *_: client)
    monkeypatch.setattr(
        module, "digest_behind", lambda before, message: message.digest if before == "aa" else ""
    )
    session: Any = source
    link: Any = SimpleNamespace(name="there")
    found = changed_sources(link, session, [at], **known)
    assert found.keys() <= {T0}
    assert all("t-0" in str(one) for one in found.values())
    return found[T0].state if found else None


def record(offset: int, digest: str) -> Any:
    """A message of a consumer."""
    return SimpleNamespace(offset=lambda: offset, digest=digest)


@pytest.mark.parametrize(
    ("facts", "changes", "wanted"),
    [
        pytest.param({}, BATCH, None, id="whole"),
        pytest.param({"end": 100}, BATCH, None, id="nothing behind"),
        pytest.param({"id": None}, BATCH, SourceState.GONE, id="gone"),
        pytest.param({"id": "other"}, BATCH, SourceState.RECREATED, id="recreated"),
        pytest.param({"end": 99}, BATCH, SourceState.SHORTER, id="shorter"),
        pytest.param({"start": 101}, BATCH, SourceState.GAP, id="gap"),
        pytest.param({"batch": (95, 8, 3)}, BATCH, SourceState.REPLACED, id="another batch"),
        pytest.param({"batch": (90, 7, 3)}, BATCH, SourceState.REPLACED, id="another base offset"),
        pytest.param({"batch": None}, BATCH, SourceState.REPLACED, id="no batch"),
        pytest.param({"batch": ""}, BATCH, None, id="a cluster that the extension cannot ask"),
        pytest.param({"batch": None, "start": 96}, BATCH, None, id="the batch is deleted"),
        pytest.param({"batch": None, "policy": "compact"}, BATCH, None, id="compacted"),
        pytest.param({"batch": None}, {**BATCH, "compacted": True}, None, id="was compacted"),
        pytest.param({"batch": None, "leaderless": frozenset({0})}, BATCH, None, id="no leader"),
        pytest.param({"record": record(98, "bb")}, RECORD, None, id="the record"),
        pytest.param({"record": record(98, "cc")}, RECORD, SourceState.REPLACED, id="another record"),
        pytest.param({"record": record(99, "bb")}, RECORD, SourceState.REPLACED, id="no record there"),
        pytest.param({}, RECORD, SourceState.REPLACED, id="no record at all"),
        pytest.param({}, {}, None, id="nothing is known of it"),
    ],
)
def test_a_log_is_what_the_position_says_or_differs_by_name(
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    changes: dict[str, Any],
    wanted: SourceState | None,
) -> None:
    """As a lane decides at its start; what a mark does not prove is no difference."""
    assert state(monkeypatch, Source(**facts), position(**changes)) is wanted


@pytest.mark.parametrize("found", RecordState)
@pytest.mark.parametrize("noted", [False, True])
def test_a_record_that_was_committed_before_a_beginning_must_still_be(
    monkeypatch: pytest.MonkeyPatch, found: RecordState, *, noted: bool
) -> None:
    """Its batch is the same when its marker is lost; what is deleted or may not be read tells nothing."""
    at = position(**BATCH, batch_committed=noted)
    undone = noted and found in {RecordState.ABORTED, RecordState.PENDING}
    assert state(monkeypatch, Source(state=found), at) is (SourceState.REPLACED if undone else None)


def test_the_record_before_an_offset_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """None stands before the beginning of a log."""
    client = SimpleNamespace(
        record_states=lambda asked: {where: (RecordState.COMMITTED, at) for where, at in asked.items()},
        release=lambda: None,
    )
    monkeypatch.setattr(module, "target_hanging_client", lambda *_: client)
    none: Any = None
    assert states_before(none, none, {T0: 7, SourcePartition("t", 1): 0}) == {T0: (RecordState.COMMITTED, 6)}
    assert states_before(none, none, {SourcePartition("t", 1): 0}) == {}


def test_no_positions_ask_nothing() -> None:
    """A promotion without cuts."""
    source: Any = None
    assert changed_sources(source, source, []) == {}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"run": "failover"}, SourceState.UNPROVEN),
        ({"run": "another"}, None),
        ({"run": "failover", "epoch": 1}, None),
        ({"run": "failover", "target_offset": None}, None),
    ],
)
def test_a_position_that_a_promotion_has_moved_is_unproven(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], wanted: SourceState | None
) -> None:
    """Its copy proves it, and no batch of the source; `verify` looks there."""
    at = position(**{"epoch": 0, "target_offset": 8, **changes})

    assert state(monkeypatch, Source(), at) is None
    found = state(monkeypatch, Source(), at, moved_by="failover")
    assert found is wanted
    short = state(monkeypatch, Source(end=99), at, moved_by="failover")
    assert short is SourceState.SHORTER
    assert state(monkeypatch, Source(leaderless=frozenset({0})), at, moved_by="failover") is None


def test_a_position_that_a_reversal_has_set_is_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands where both logs parted, and names no batch of the source."""
    at = position(epoch=0, target_offset=None)

    assert state(monkeypatch, Source(), at, unproven={T0}) is SourceState.UNPROVEN
    assert state(monkeypatch, Source(end=99), at, unproven={T0}) is SourceState.SHORTER
    assert state(monkeypatch, Source(leaderless=frozenset({0})), at, unproven={T0}) is None


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        pytest.param({}, SourceState.COPY, id="whole"),
        pytest.param({"start": 101}, SourceState.COPY, id="gap"),
        pytest.param({"end": 99}, SourceState.SHORTER, id="shorter"),
        pytest.param({"id": "other"}, SourceState.RECREATED, id="recreated"),
        pytest.param({"leaderless": frozenset({0})}, None, id="no leader"),
    ],
)
def test_a_copy_that_is_not_what_was_mirrored_is_told_where_the_source_is(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], wanted: SourceState | None
) -> None:
    """A difference of the source itself goes before, because the records of both sides are compared for either."""
    found = state(monkeypatch, Source(**facts), position(), copies={T0: "it ends at offset 3"}, unproven={T0})
    assert found is wanted
    if not facts:
        assert state(monkeypatch, Source(), position(**BATCH), copies={T0: ""}) is None


def test_a_log_that_was_cut_at_an_offset_or_behind_it_since_is_told_by_the_batch_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What retention has deleted, and what no batch is known of, is not told."""
    there: dict[int, tuple[int, int, int]] = {25: (22, 8, 9), 39: (38, 1, 1)}
    asked: list[int] = []

    def batches(wanted: Mapping[Any, int]) -> dict[Any, Any]:
        asked.extend(wanted.values())
        return {
            where: next((b for last, b in there.items() if b[0] <= at <= last), None)
            for where, at in wanted.items()
        }

    client = SimpleNamespace(batches=batches, release=lambda: None)
    monkeypatch.setattr(module, "target_hanging_client", lambda *_: client)
    link: Any = SimpleNamespace(name="there")
    session: Any = Source()
    first, second = {T0: (26, BatchMark(22, 8, 9))}, {T0: (40, BatchMark(38, 7, 7))}

    assert changed_ends(link, session, first) == set()
    assert changed_ends(link, session, second) == {T0}
    assert asked == [22, 38]
    assert changed_ends(link, session, {T0: (41, None)}) == set()
    assert changed_ends(link, Source(end=40), {T0: (41, None)}) == {T0}
    assert changed_ends(link, Source(start=39), second) == set()
    assert changed_ends(link, session, {}) == set()
    there[39] = (38, 7, 7)
    assert changed_ends(link, session, second) == set()
    there.clear()
    assert changed_ends(link, session, first) == {T0}

    assert end_marks(link, session, {T0: 26}) == {T0: None}
    there[25] = (22, 8, 9)
    assert end_marks(link, session, {T0: 26}) == {T0: BatchMark(22, 8, 9)}
    assert end_marks(link, Source(policy="compact"), {T0: 26}) == {}
    assert end_marks(link, Source(start=26), {T0: 26}) == {}
