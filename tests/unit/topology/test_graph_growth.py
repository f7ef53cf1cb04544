"""Names that grow with each time round are refused, with the names; what ends by name is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror.config import Link
from eomirror.topology.graph import topology
from eomirror.topology.naming import Naming

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX, IDENTITY = Naming("prefix"), Naming("identity")
JOINED = Naming("pattern", pattern="{source}_{topic}")
MARKED = Naming("match", match="(.*)", to="$1_REPLICA")
BACK = Naming("match", match="(.*)_REPLICA", to="$1")


def link(way: str, naming: Naming, topics: Sequence[str] = (".*",), exclude: Sequence[str] = ()) -> Link:
    """A link such as ``A>B``."""
    source, target = way.split(">")
    return Link(
        name=f"{source}->{target}",
        source=source,
        target=target,
        topics=tuple(topics),
        naming=naming,
        exclude=tuple(exclude),
    )


def test_a_name_that_both_ways_add_to_is_shown_with_its_way() -> None:
    """Once for the circle, at its first link."""
    (fault,) = topology([link("A>B", JOINED, [".*orders"]), link("B>A", JOINED)]).faults

    assert (fault.link, fault.key) == (0, "naming")
    assert fault.message == (
        "names grow without end: orders of A becomes A_orders on B, which becomes B_A_orders on A, "
        "which becomes A_B_A_orders on B, and so on"
    )
    assert fault.fix.endswith("under `exclude` of B->A")


@pytest.mark.parametrize(
    "links",
    [
        [link("A>B", JOINED), link("B>A", JOINED)],
        [link("A>B", PREFIX), link("B>A", JOINED)],
        [link("A>B", MARKED), link("B>A", IDENTITY)],
        [link("A>B", MARKED), link("B>A", MARKED)],
        [link("A>B", JOINED), link("B>C", IDENTITY), link("C>A", IDENTITY)],
        [link("A>B", Naming("pattern", pattern="x{topic}"), ["[a-z]+"]), link("B>A", IDENTITY)],
    ],
    ids=["joined", "prefix and joined", "marked and back as it is", "marked", "ring", "small letters"],
)
def test_circles_in_which_a_name_grows_are_refused(links: Sequence[Link]) -> None:
    """Whichever of the links adds to the name."""
    faults = [one for one in topology(links).faults if one.key == "naming"]

    assert len(faults) == 1
    assert "names grow without end" in faults[0].message


@pytest.mark.parametrize(
    "links",
    [
        [link("A>B", PREFIX), link("B>A", PREFIX)],
        [link("A>B", PREFIX), link("B>C", PREFIX), link("C>A", PREFIX)],
        [link("A>B", IDENTITY), link("B>A", IDENTITY)],
        [link("A>B", JOINED), link("C>B", JOINED), link("B>D", JOINED)],
        [link("A>B", JOINED, exclude=["B_.*"]), link("B>A", JOINED, exclude=["A_.*"])],
        [link("A>B", JOINED, ["orders.*"]), link("B>A", JOINED)],
        [link("A>B", JOINED, ["orders"]), link("B>A", JOINED, ["payments"])],
        [link("A>B", MARKED, exclude=[".*_REPLICA"]), link("B>A", MARKED, exclude=[".*_REPLICA"])],
        [link("A>B", IDENTITY, [".*_REPLICA"]), link("B>A", BACK, [".*_REPLICA"])],
        [link("A>B", Naming("map", names=(("a", "b"),)), ["a"]), link("B>A", JOINED, ["b"])],
    ],
    ids=[
        "prefix", "prefix ring", "identity", "no circle", "exclude", "not taken", "other topics", "marked once",
        "back", "map",
    ],
)  # fmt: skip
def test_what_ends_by_its_names_is_not_refused(links: Sequence[Link]) -> None:
    """Nothing of these grows, however often it goes round."""
    assert [one for one in topology(links).faults if one.key == "naming"] == []


def test_a_mesh_of_many_links_is_decided_soon() -> None:
    """Every sequence of its links is a way, and the first that grows is enough."""
    names = "ABCDEFGH"
    mesh = [link(f"{one}>{two}", JOINED) for one in names for two in names if one != two]

    assert any("names grow" in one.message for one in topology(mesh).faults)
