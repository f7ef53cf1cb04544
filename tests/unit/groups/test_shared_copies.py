"""Which copies hold records of another link, and from which offset on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import load_config
from eomirror.groups import shared_copies
from eomirror.groups.shared_copies import WrittenTopic, copies_of, may_be_shared, other_records
from eomirror.groups.translation import OtherRecords
from eomirror.link.start_rules import ReverseLink
from eomirror.records.position import Position
from support.links.one_link import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.groups.translation import Name
    from eomirror.link.offset_map_reader import Question

OWN = Position(
    topic="orders", partition=0, offset=100, source_cluster_id="E", topic_id="i", target_topic="orders",
    target_partition=0, target_topic_id="j", target_offset=90, generation=1, lane=0, run="r", epoch=1,
    attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
)  # fmt: skip
OTHER = replace(OWN, source_cluster_id="N", topic_id="n", target_offset=60)
COPY = ("orders", 0)


class Reader:
    """Maps of links, and the copy, whose log begins at 10."""

    answered: Mapping[bool, tuple[str, int]]
    asked: list[str]

    def __init__(self, link: Link, _: Any) -> None:
        self.link = link

    def log_starts(self, names: list[Name]) -> dict[Name, int]:
        return dict.fromkeys(names, 10)

    def stable_ends(self, names: list[Name]) -> dict[Name, int]:
        return dict.fromkeys(names, 91)

    def answers(self, questions: list[Question], *, reverse: bool = False) -> list[tuple[str, int]]:
        self.asked.append(self.link.state_name)
        return [self.answered[reverse] for _ in questions]


class Links:
    """Positions of all links of the target."""

    held: Sequence[ReverseLink]

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def written(self, *, but: str) -> Iterator[ReverseLink]:
        return (each for each in self.held if each.link != but)


def looked(
    monkeypatch: pytest.MonkeyPatch,
    held: Sequence[ReverseLink],
    answered: Mapping[bool, tuple[str, int]] | None = None,
    copies: Mapping[Name, WrittenTopic] | None = None,
    own: str = "east.west",
) -> tuple[dict[Name, OtherRecords], list[str]]:
    """What is found, and the links whose maps were asked."""
    asked: list[str] = []
    for owner, name, value in (
        (Links, "held", held),
        (Reader, "asked", asked),
        (Reader, "answered", answered or {True: ("before", 30)}),
        (shared_copies, "OffsetMapReader", Reader),
        (shared_copies, "OtherLinks", Links),
    ):
        monkeypatch.setattr(owner, name, value, raising=False)
    target: Any = None
    copies = copies_of([OWN]) if copies is None else copies
    return other_records(CONFIG.links[0], target, copies, own=own), asked


@pytest.mark.parametrize(
    ("other", "answered", "first"),
    [
        (OTHER, {True: ("before", 30)}, 30),
        # its map knows the record at the log start, or only a later one
        (OTHER, {True: ("exact", 7)}, 10),
        (OTHER, {True: ("next", 8), False: ("exact", 44)}, 44),
        (OTHER, {True: ("next", 8), False: ("beyond", 8)}, 10),
        (replace(OTHER, target_offset=10), {True: ("exact", 7)}, 10),
        # retention has removed what it wrote, or it has written nothing
        (replace(OTHER, target_offset=9), {}, None),
        (replace(OTHER, target_offset=None), {}, None),
        # an earlier topic of the copy's name, another partition, and another topic
        (replace(OTHER, target_topic_id="gone"), {}, None),
        (replace(OTHER, target_partition=1), {}, None),
        (replace(OTHER, target_topic="payments"), {}, None),
        # another topic of our own source cluster is another source; the same topic is none
        (replace(OTHER, source_cluster_id="E", topic="bills"), {True: ("before", 30)}, 30),
        (replace(OTHER, source_cluster_id="E"), {}, None),
    ],
)
def test_another_source_is_told_by_the_positions_of_its_link(
    monkeypatch: pytest.MonkeyPatch, other: Position, answered: dict[bool, tuple[str, int]], first: int | None
) -> None:
    """They are on the target, whichever file has the link; neither source is asked."""
    found, asked = looked(monkeypatch, [ReverseLink("east.west", OWN), ReverseLink("north", other)], answered)

    assert found == ({} if first is None else {COPY: OtherRecords("north", first)})
    assert set(asked) <= {"north"}


def test_records_from_before_a_position_was_set_by_hand_count_from_the_log_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The map belongs to the copy behind; an earlier replicator may have written them."""
    for other in (OTHER, replace(OTHER, target_offset=None)):
        found, _ = looked(monkeypatch, [ReverseLink("north", other, adopted=20)])
        assert found == {COPY: OtherRecords("north", 10)}
    found, _ = looked(monkeypatch, [ReverseLink("north", replace(OTHER, target_offset=None), adopted=9)])
    assert found == {}


def test_the_first_of_several_links_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that stops there passes records of none."""
    south = replace(OTHER, source_cluster_id="S")
    written = [ReverseLink("north", OTHER), ReverseLink("south", south, adopted=15)]
    found, asked = looked(monkeypatch, written)
    assert (found, asked) == ({COPY: OtherRecords("south", 10)}, ["north"])


def test_without_the_link_of_a_file_every_link_but_a_single_one_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whose offsets a handwritten file holds is not known; with one source they can only be its own."""
    copies = {COPY: WrittenTopic("j", None)}
    found, _ = looked(monkeypatch, [ReverseLink("east.west", OWN)], copies=copies, own="")
    assert found == {}
    written = [ReverseLink("east.west", OWN), ReverseLink("north", OTHER)]
    found, _ = looked(monkeypatch, written, copies=copies, own="")
    assert found[COPY].first == 30


@pytest.mark.parametrize(
    ("naming", "expected"),
    [({}, False), ({"naming": "identity"}, True), ({"naming": {"map": {"a": "b"}}}, True)],
)
def test_a_prefixed_copy_is_shared_only_as_its_file_says(naming: dict[str, Any], expected: bool) -> None:
    """Its name has the source; a look at the state of fifty other links would hold up a failover."""
    link = {"source": "east", "target": "west", "topics": ["a"], **naming}
    clusters = {name: {"bootstrap.servers": "127.0.0.1:1"} for name in ("east", "west", "north")}
    alone = load_config({"clusters": clusters, "links": [link]})
    assert may_be_shared(alone.links[0], alone.links) is expected
    other = {"source": "north", "target": "west", "topics": ["a"], "naming": {"map": {"a": "east.a"}}}
    both = load_config({"clusters": clusters, "links": [link, other]})
    assert may_be_shared(both.links[0], both.links)


def test_no_copy_costs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link without groups in its topics asks for nothing."""
    monkeypatch.setattr(shared_copies, "OtherLinks", None)
    target: Any = None
    assert other_records(CONFIG.links[0], target, {}, own="east.west") == {}
