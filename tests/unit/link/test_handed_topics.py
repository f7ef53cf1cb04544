"""What an owner publishes of topics that another link had, also if an answer was lost."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror._native import PartitionMap, encode_offset_map
from eomirror.config import Cluster, Link
from eomirror.errors import ClusterError
from eomirror.lane.spec import AssignedPartition
from eomirror.link.owner import LinkOwner
from eomirror.link.start_rules import ReverseLink
from eomirror.plane.protocol import ProducerIdentity
from eomirror.records.control import Generation
from eomirror.records.names import LinkNames
from eomirror.records.position import decode_key, decode_position
from eomirror.types import Assignment, SourcePartition
from support.fakes.clocks import PlayedClock
from support.fakes.lane_fakes import position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.records.position import Position

THEIRS = [(0, 100, 60), (64, 163, 26)]
GIVEN, NEW = SourcePartition("given", 0), SourcePartition("new", 0)


def item(source: SourcePartition) -> AssignedPartition:
    """The partition as discovery finds it."""
    at = position(source, 0)
    return AssignedPartition(source, at.topic_id, at.target_topic, at.target_topic_id)


class Rig:
    """An owner of an empty layout, which publishes into `control`; another link is at `theirs`."""

    def __init__(self, theirs: Position) -> None:
        self.theirs = theirs
        self.layout_ = Generation(
            generation=4, revision=0, run="r", highest_lane=0, assignment=Assignment(1, {}), timestamp=0
        )
        self.names, self.run = LinkNames("two"), "r"
        self.producer = SimpleNamespace(identity=lambda: ProducerIdentity(1, 0))
        self.state, self.closed, self.answers = self, False, True
        self.stored: dict[SourcePartition, Position] = {}
        self.map = PartitionMap()
        self.others: list[ReverseLink] = []
        session: Any = SimpleNamespace(admin=self, cluster=Cluster("west", {}), clock=PlayedClock(0.0))
        link = Link(name="two", source="east", target="west", topics=(".*",))
        self.owner = LinkOwner(link, session, session, run="r", clock=PlayedClock(0.0))
        self.owner._control = self.target_admin = self  # type: ignore[assignment]
        self.owner._cluster_ids = self.owner._checks.cluster_ids = (theirs.source_cluster_id, "west")
        self.owner._checks._beside = self.owner._checks._upstream = self  # type: ignore[assignment]

    # as control

    def layout(self) -> Generation:
        return self.layout_

    def positions(self, **_: Any) -> Mapping[SourcePartition, Position]:
        return self.stored

    def revise(self, after: Generation, records: Any) -> None:
        for record in records():
            if record.topic == self.names.offset_map_topic:
                self.map.take_in(record.value, self.theirs.target_topic, 0)
            if record.topic == self.names.positions_topic and record.value is not None:
                source = decode_key(record.key, where="here")
                assert isinstance(source, SourcePartition)
                self.stored[source] = decode_position(source, record.value, where="here")
        self.layout_ = after
        if not self.answers:
            raise ClusterError("the answer is lost", fix="wait")

    # as the other link, and as both clusters

    def of(self, _: str) -> list[ReverseLink]:
        return [ReverseLink("one", self.theirs)]

    def written(self, **_: Any) -> list[ReverseLink]:
        return [*self.of("one"), *self.others]

    def visible_topics(self, names: Sequence[str]) -> Any:
        return dict.fromkeys(names), {}

    def describe_topics(self, names: Sequence[str]) -> Any:
        return {name: SimpleNamespace(partitions=1) for name in names}

    def offsets(self, names: Sequence[Any], **_: Any) -> dict[Any, int]:
        return dict.fromkeys(names, 0)

    existing_offsets = offsets


@pytest.fixture(autouse=True)
def maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset map of the other link has [0, 60) as one range, and [64, 90) as another."""

    class Reader:
        def __init__(self, *_: object) -> None:
            pass

        def maps(self, positions: Sequence[Position]) -> dict[SourcePartition, PartitionMap]:
            found = {}
            for one in positions:
                made = found[one.source] = PartitionMap()
                made.take_in(encode_offset_map(one.target_topic, 0, THEIRS), one.target_topic, 0)
            return found

    monkeypatch.setattr("eomirror.link.start_checks.OffsetMapReader", Reader)


@pytest.mark.parametrize("most", [1, 10_000])
def test_a_group_passes_no_record_that_another_link_has_mirrored_in_the_meantime(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the map of the link that has the topic again these records would be a hole."""
    monkeypatch.setattr("eomirror.link.first_positions._MOST_RANGES", most)
    last = position(GIVEN, 90, target_offset=188)
    rig = Rig(last)
    rig.stored = {GIVEN: position(GIVEN, 50)}
    rig.layout_ = replace(rig.layout_, assignment=Assignment(1, {}, frozenset({GIVEN})))
    rig.map.take_in(encode_offset_map(last.target_topic, 0, [(0, 100, 50)]), last.target_topic, 0)
    rig.owner.extend([item(GIVEN)], given_up={"given": "one"})
    rig.map.take_in(encode_offset_map(last.target_topic, 0, [(90, 190, 5)]), last.target_topic, 0)
    assert rig.map.listed() == [(0, 100, 60), (64, 163, 26), (90, 190, 5)]
    assert rig.map.to_target(70, 95) == ("exact", 169)


def test_a_topic_is_not_taken_from_a_link_where_another_one_is_further() -> None:
    """EO-1: that one was refused the topic as well."""
    rig = Rig(position(GIVEN, 70))
    rig.others = [ReverseLink("three", position(GIVEN, 90))]
    assert rig.owner.extend([item(GIVEN)], given_up={"given": "one"}) == {}
    assert (rig.stored, rig.owner.refused["given"].twin) == ({}, "three")


def test_an_addition_whose_answer_was_lost_stands_beside_the_next_one() -> None:
    """EO-3, F2: what it has handed over is not handed over with another topic, and nothing is refused."""
    rig = Rig(position(GIVEN, 70))
    rig.answers = False
    with pytest.raises(ClusterError):
        rig.owner.extend([item(GIVEN)], given_up={"given": "one"})
    rig.answers = True
    added = rig.owner.extend([item(GIVEN), item(NEW)], given_up={"given": "one"})
    assert {each.source for each in added[0]} == {GIVEN, NEW}
    assert {source: each.offset for source, each in rig.stored.items()} == {GIVEN: 70, NEW: 0}


@pytest.mark.parametrize("given_up", [{"given": "one"}, {}], ids=["given up", "not proved"])
def test_an_addition_whose_answer_was_lost_is_not_older_than_what_another_link_did_since(
    given_up: dict[str, str],
) -> None:
    """EO-1: no lane has received it, and the topic has left the link before it came back."""
    rig = Rig(position(GIVEN, 70))
    rig.answers = False
    with pytest.raises(ClusterError):
        rig.owner.extend([item(GIVEN)], given_up={"given": "one"})
    rig.answers, rig.theirs = True, position(GIVEN, 90)
    added = rig.owner.extend([item(GIVEN)], given_up=given_up)
    assert bool(added) == bool(given_up)
    assert rig.stored[GIVEN].offset == (90 if given_up else 70)
