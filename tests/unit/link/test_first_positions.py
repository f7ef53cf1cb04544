"""Where a link begins that never ran, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import structlog

from eomirror.config import Link
from eomirror.lane.spec import AssignedPartition
from eomirror.link.first_positions import FirstPositions
from eomirror.link.start_checks import StartChecks, StartFacts
from eomirror.link.start_rules import ReverseLink
from eomirror.plane.protocol import ProducerIdentity
from eomirror.records.control import Generation, decode_control
from eomirror.records.names import LinkNames
from eomirror.records.position import decode_position
from eomirror.types import Assignment, SourcePartition
from support.fakes.lane_fakes import position

T0, T1 = SourcePartition("t", 0), SourcePartition("t", 1)


class Growing:
    """A source whose partition 0 gets its first record behind ``start`` after it was asked once."""

    def __init__(self) -> None:
        self.ends = {T0: 10, T1: 20}
        self.late = {T0: -1, T1: 7}

    def offsets(self, names: list[SourcePartition], *, at: str | int, **_: Any) -> dict[Any, int]:
        found = self.ends if at == "latest" else self.late
        answer = {tuple(name): found[name] for name in names}
        self.ends = {**self.ends, T0: 11}
        return answer


def starts(source: Any, start: str | int) -> dict[SourcePartition, int]:
    link = Link(name="one", source="east", target="west", topics=("t",))
    first = FirstPositions(
        link, LinkNames("one"), source=source, target=source, source_cluster_id="a", run="r",
        identity=ProducerIdentity(1, 0), now_ms=0,
    )  # fmt: skip
    return first._starts([T0, T1], start)


def test_a_record_that_arrives_while_the_source_is_asked_is_mirrored() -> None:
    """No record was as late as `start`; one that comes before the end is asked for may be, and must not be lost."""
    assert starts(Growing(), 1_700_000_000_000) == {T0: 10, T1: 7}


def test_the_end_is_asked_for_once() -> None:
    """`latest` is one moment."""
    assert starts(Growing(), "latest") == {T0: 10, T1: 20}


def test_what_another_link_has_given_up_goes_on_at_its_position() -> None:
    """EO-3: with what both logs tell of it, counted anew; older positions of this link are deleted elsewhere."""
    link = Link(name="two", source="east", target="west", topics=("t",))
    last = position(
        T0, 70, target_offset=55, records=3, total_records=60, digest="abc", batch_offset=68, batch_crc=9, header=True,
        leader_epoch=4, missing=2, total_dropped={"loop": 1}, producer_id=5, producer_epoch=6,
    )  # fmt: skip
    twin = ReverseLink("one", last)
    target: Any = SimpleNamespace(
        describe_topics=lambda names: {names[0]: SimpleNamespace(partitions=2)},
        offsets=lambda names, **_: dict.fromkeys(names, 99),
        existing_offsets=lambda names, **_: dict.fromkeys(names, 99),
    )
    first = FirstPositions(
        link, LinkNames("two"), source=target, target=target, source_cluster_id="S", run="r",
        identity=ProducerIdentity(1, 0), now_ms=8, given={T0: twin},
    )  # fmt: skip
    layout = Generation(
        generation=4, revision=1, run="r", highest_lane=0, assignment=Assignment(1, {T0: 0}), timestamp=0
    )
    item = AssignedPartition(T0, last.topic_id, last.target_topic, last.target_topic_id)
    with patch("eomirror.link.first_positions.existing_ends", lambda *_, **__: {}):
        made, deleted, adopted = first.records(layout, [item], frozenset({T0}), adopt={}, start="earliest")
    assert (made.partition, deleted.partition, deleted.value) == (0, 1, None)
    assert made.key == deleted.key
    got = decode_position(T0, made.value, where="here")
    kept = ("offset", "target_offset", "batch_offset", "batch_crc", "leader_epoch", "target_writer")
    assert [getattr(got, name) for name in kept] == [getattr(last, name) for name in kept]
    assert (got.generation, got.lane, got.run, got.epoch, got.txn) == (4, 0, "r", 0, 0)
    assert not got.header, "this link does not mark its copies"
    assert (got.records, got.total_records, got.total_dropped, got.digest, got.missing) == (0, 0, {}, "", 0)
    (note,) = decode_control([(adopted.key, adopted.value, "control-0")]).adopted
    assert (note.replicator, note.place, note.offset, note.target_offset) == (
        "link one", "eomirror.one.positions", 70, 55,
    )  # fmt: skip


class Filled:
    """A target on which MirrorMaker 2 has kept offsets; the copy of ``u`` has records."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self._seen = seen

    def visible_topics(self, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        assert names == ["mm2-offsets.east.internal"]
        return self._seen, {}

    def offsets(self, names: list[tuple[str, int]], **_: Any) -> dict[tuple[str, int], int]:
        return {name: 500 if name[0] == "east.u" else 0 for name in names}


KNOWN, NEW, EMPTY = (
    AssignedPartition(SourcePartition(topic, 0), "i", f"east.{topic}", "j") for topic in ("t", "u", "v")
)


@pytest.mark.parametrize(
    ("seen", "known", "left"),
    [
        ({"mm2-offsets.east.internal": object()}, {KNOWN.source}, [KNOWN, EMPTY]),
        # adopted by hand, or mirrored by the link itself
        ({"mm2-offsets.east.internal": object()}, {KNOWN.source, NEW.source}, [KNOWN, NEW, EMPTY]),
        # no MirrorMaker 2 was ever here, or no right to see what it left
        ({"mm2-offsets.east.internal": None}, {KNOWN.source}, [KNOWN, NEW, EMPTY]),
        ({}, {KNOWN.source}, [KNOWN, NEW, EMPTY]),
    ],
)
def test_a_new_topic_that_mm2_has_filled_is_left_out(
    seen: dict[str, Any], known: set[SourcePartition], left: list[AssignedPartition]
) -> None:
    """Topics of MM2 are taken over in groups: what it has mirrored of the next ones must not be mirrored again."""
    link = Link(name="one", source="east", target="west", topics=(".*",))
    target: Any = SimpleNamespace(admin=Filled(seen), clock=None)
    with patch("eomirror.link.start_checks.OtherLinks"), structlog.testing.capture_logs() as said:
        checks = StartChecks(link, target, target)
        asked = StartFacts(items=[KNOWN, NEW, EMPTY], known=known)
        assert checks.without_refused(["filled_by_mm2"], asked) == left
    assert [(line["event"], line["topic"]) for line in said] == (
        [] if NEW in left else [("topic_left_out", "u")]
    )
    assert all("--resume-at u-0=OFFSET" in line["fix"] for line in said)


class Copies:
    """A target with these topics and their ids; another name is hidden."""

    def __init__(self, topics: dict[str, str | None]) -> None:
        self.topics = topics
        self.asked = 0

    def visible_topics(self, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        self.asked += 1
        return {
            name: None if topic_id is None else SimpleNamespace(topic_id=topic_id)
            for name, topic_id in self.topics.items()
            if name in names
        }, {}


NO_ID = "A" * 22
BEFORE = {
    each: position(each, 11, topic_id="old", target_topic="east.t", target_topic_id="copy")
    for each in (T0, T1)
}


def begun_again(
    topics: dict[str, str | None],
    *,
    topic_id: str = "new",
    adopted: tuple[SourcePartition, ...] = (),
    deletions: str = "delete",
    aggregate: bool = False,
    of_one: str = "old",
    **changes: Any,
) -> set[SourcePartition]:
    """What of topic `t`, of which only partition 0 exists, begins again; ``changes`` are those of partition 1."""
    link = Link(
        name="one", source="east", target="west", topics=("t",), deletions=deletions, aggregate=aggregate
    )
    before = {**BEFORE, T1: replace(BEFORE[T1], topic_id=of_one, **changes)}
    first = FirstPositions(
        link, LinkNames("one"), source=None, target=Copies(topics), source_cluster_id="S", run="r",  # type: ignore[arg-type]
        identity=ProducerIdentity(1, 0), now_ms=0, before=before,
    )  # fmt: skip
    return first.begun_again([AssignedPartition(T0, topic_id, "east.t", "fresh")], adopted)


def test_a_topic_begins_again_after_its_copy_was_deleted() -> None:
    """With its copy absent, or made anew by a process that died; all of its partitions, also those that are gone."""
    assert begun_again({"east.t": None}) == {T0, T1}
    assert begun_again({"east.t": "fresh"}) == {T0, T1}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"deletions": "report"}, id="report"),
        pytest.param({"deletions": "ignore"}, id="ignore"),
        pytest.param({"topic_id": "old"}, id="same topic"),
        pytest.param({"topic_id": NO_ID}, id="source without ids"),
        pytest.param({"topics": {"east.t": "copy"}}, id="copy is there"),
        pytest.param({"topics": {"east.t": NO_ID}}, id="target without ids"),
        pytest.param({"topics": {}}, id="copy is hidden"),
        pytest.param({"adopted": (T0,)}, id="adopted"),
        pytest.param({"source_cluster_id": "other"}, id="another cluster"),
        pytest.param(
            {"topic_id": "new", "target_topic_id": "", "topics": {"east.t": "x"}}, id="no id of the copy"
        ),
    ],
)
def test_a_topic_does_not_begin_again_without_proof(case: dict[str, Any]) -> None:
    """It is decided as before: its lane stops it, or it is not created again."""
    assert begun_again(**{"topics": {"east.t": None}, **case}) == set()


def test_a_topic_of_several_sources_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy is never deleted by the policy."""
    assert begun_again({"east.t": None}, aggregate=True) == set()
    monkeypatch.setattr(Link, "guard", True)
    assert begun_again({"east.t": None}) == set()


def test_a_topic_whose_positions_are_of_two_topics_does_not_begin_again() -> None:
    """The user has adopted a part of it."""
    assert begun_again({"east.t": None}, topic_id="new", of_one="new") == set()
