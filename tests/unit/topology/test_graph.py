"""Loops and twins: which links write provenance, and whose records they forward."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from eomirror.config import Link
from eomirror.topology.graph import Topology, topology
from eomirror.topology.naming import Naming

if TYPE_CHECKING:
    from collections.abc import Sequence

IDENTITY = Naming("identity")


def link(way: str, naming: Naming = IDENTITY, topics: Sequence[str] = (".*",), **given: object) -> Link:
    """A link such as ``A>B``."""
    source, target = way.split(">")
    name = f"{source}->{target}"
    return Link(name=name, source=source, target=target, topics=tuple(topics), naming=naming, **given)  # type: ignore[arg-type]


def verdict(*links: Link) -> Topology:
    """The verdict over links that must have no fault."""
    found = topology(links)
    assert found.faults == ()
    return found


def origins(*links: Link) -> dict[str, str]:
    """Origins of every link, as letters."""
    rules = verdict(*links).rules
    return {
        f"{one.source}>{one.target}": "".join(rule.origins or ("*",))
        for one, rule in zip(links, rules, strict=True)
    }


def headers(*links: Link) -> str:
    """For every link: whether it writes the header."""
    return "".join("+" if rule.provenance_header else "-" for rule in verdict(*links).rules)


def test_one_link_needs_nothing() -> None:
    """No other link, no loop, no cost."""
    assert headers(link("A>B")) == "-"
    assert origins(link("A>B")) == {"A>B": "*"}


def test_two_clusters_with_equal_names_forward_what_is_local() -> None:
    """Active-active: both carry the header."""
    assert origins(link("A>B"), link("B>A")) == {"A>B": "A", "B>A": "B"}
    assert headers(link("A>B"), link("B>A")) == "++"


def test_links_know_what_carries_their_copies_on_and_back() -> None:
    """A setting of such a copy is the next link's source's as well."""

    def onward(*links: Link) -> list[list[str]]:
        return [[",".join(each.include) for each in rule.onward] for rule in verdict(*links).rules]

    assert onward(link("A>B", topics=["t"]), link("B>A", topics=["t", "u"])) == [["t,u"], ["t"]]
    assert onward(link("A>B"), link("A>C"), link("B>C")) == [[], [], []]
    assert onward(link("A>B"), link("B>C"), link("C>A"), link("B>D")) == [[".*"], [".*"], [".*"], []]
    assert onward(link("A>B", provenance="on")) == [[]]


def test_prefixed_names_need_no_header_whatever_the_ring() -> None:
    """Names tell."""
    prefix = Naming()
    assert headers(link("A>B", prefix), link("B>A", prefix)) == "--"
    assert headers(link("A>B", prefix), link("B>C", prefix), link("C>A", prefix)) == "---"
    assert headers(link("A>B", prefix), link("B>A")) == "--"


def test_a_full_mesh_forwards_what_is_local() -> None:
    """design.md: in a full mesh X -> Y carries records that are local to X only."""
    ways = [f"{a}>{b}" for a, b in permutations("ABCD", 2)]
    assert origins(*(link(way) for way in ways)) == {way: way[0] for way in ways}


def test_a_ring_forwards_along_shortest_ways() -> None:
    """Both ways round: neighbours straight, the opposite cluster by the lower name."""
    ways = ["A>B", "B>C", "C>D", "D>A", "B>A", "C>B", "D>C", "A>D"]
    found = origins(*(link(way) for way in ways))
    assert found == {
        "A>B": "AD",
        "B>C": "AB",
        "C>D": "C",
        "D>A": "D",
        "B>A": "BC",
        "C>B": "C",
        "D>C": "D",
        "A>D": "AB",
    }
    # every origin reaches every other cluster exactly once
    for origin in "ABCD":
        assert sorted(way[2] for way in ways if origin in found[way]) == sorted(set("ABCD") - {origin})


def test_a_one_way_ring_carries_everything_but_back_home() -> None:
    """A record stops before the cluster where it began."""
    assert origins(link("A>B"), link("B>C"), link("C>A")) == {"A>B": "AC", "B>C": "AB", "C>A": "BC"}


def test_a_hub_passes_on_to_all_other_leaves() -> None:
    """Leaf -> hub carries the leaf, hub -> leaf all others."""
    found = origins(link("A>H"), link("B>H"), link("H>A"), link("H>B"))
    assert found == {"A>H": "A", "B>H": "B", "H>A": "BH", "H>B": "AH"}


def test_a_chain_needs_nothing() -> None:
    """One way only: no header, everything is forwarded."""
    assert headers(link("A>B"), link("B>C")) == "--"


def test_two_ways_without_a_circle_make_twins() -> None:
    """A reaches C straight and by B: B -> C carries only what began in B."""
    links = (link("A>B"), link("A>C"), link("B>C"))
    assert headers(*links) == "+++"
    assert origins(*links) == {"A>B": "A", "A>C": "A", "B>C": "B"}


def test_different_literal_topics_each_way_meet_nowhere() -> None:
    """Orders there, payments back: no loop, no header."""
    assert headers(link("A>B", topics=["orders"]), link("B>A", topics=["pay"])) == "--"
    assert headers(link("A>B", topics=["orders"]), link("B>A", topics=["orders", "pay"])) == "++"


def test_replica_names_there_and_back_are_a_circle() -> None:
    """TOPIC_REPLICA and its reverse in one file: x comes back as x."""
    there = link("A>B", Naming("pattern", pattern="{topic}_REPLICA"), ["orders"])
    back = link("B>A", Naming("match", match="(.*)_REPLICA", to="$1"), [".*_REPLICA"])
    assert headers(there, back) == "++"
    assert all(rule.guard for rule in verdict(there, back).rules)
    # written under new names in both directions, never taken back: nothing to guard
    out = Naming("pattern", pattern="{topic}_REPLICA")
    assert headers(link("A>B", out, ["orders"]), link("B>A", out, ["orders"])) == "--"


def test_forward_is_taken_as_it_is() -> None:
    """For a process that sees one link only."""
    found = origins(link("A>B", forward="local"))
    assert found == {"A>B": "A"}
    assert headers(link("A>B", forward="local")) == "+"
    assert origins(link("A>B", forward=("A", "C"))) == {"A>B": "AC"}


def test_an_origin_by_two_ways_is_refused() -> None:
    """A list that makes twins of what another link brings already."""
    found = topology(
        [link("A>B"), link("A>C"), link("B>C", forward=("A", "B")), link("C>A"), link("C>B"), link("B>A")]
    )
    assert [(fault.link, fault.key) for fault in found.faults] == [(2, "forward")]
    assert "records of A would reach C from B and from A" in found.faults[0].message


def test_different_topics_without_one_tree_are_refused() -> None:
    """A sends payments to C only through B, but the shortest tree would drop them there."""
    links = [link("A>B", topics=[".*"]), link("A>C", topics=["orders"]), link("B>C", topics=[".*"])]
    found = topology(links)
    assert [(fault.link, fault.key) for fault in found.faults] == [(2, "forward")]
    assert "set `forward`" in found.faults[0].fix
    assert topology([links[0], links[1], link("B>C", topics=["orders"])]).faults == ()


def test_provenance_off_is_refused_where_it_must_be_on() -> None:
    """Certain loops and twins are faults; possible loops are warnings."""
    found = topology([link("A>B", provenance="off"), link("B>A")])
    assert [fault.key for fault in found.faults] == ["provenance"]
    found = topology([link("A>B", topics=["a.*"], provenance="off"), link("B>A", topics=["b.*"])])
    assert (found.faults, [warning.key for warning in found.warnings]) == ((), ["provenance"])
    assert headers(link("A>B", provenance="off")) == "-"
    assert headers(link("A>B", provenance="on")) == "+"


def test_records_that_come_in_with_a_header_are_forwarded() -> None:
    """Z writes the header into A: inside of A and B its records still travel."""
    links = (link("A>B"), link("B>A"), link("Z>A", Naming(), provenance="on"))
    assert origins(*links) == {"A>B": "AZ", "B>A": "B", "Z>A": "*"}


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_every_record_arrives_exactly_once_in_any_mesh_with_holes(count: int) -> None:
    """Whatever links are missing: every origin reaches each reachable cluster by exactly one link."""
    names = "ABCDEFG"[:count]
    pairs = list(permutations(names, 2))
    for hole in range(len(pairs)):
        links = [link(f"{a}>{b}") for number, (a, b) in enumerate(pairs) if number % len(pairs) != hole]
        rules = verdict(*links).rules
        for origin in names:
            carrying = [
                one
                for one, rule in zip(links, rules, strict=True)
                if rule.origins is None or origin in rule.origins
            ]
            targets = [
                one.target for one in carrying if one.source == origin or rule_reaches(carrying, origin, one)
            ]
            assert len(targets) == len(set(targets))
            assert origin not in targets


def rule_reaches(carrying: list[Link], origin: str, one: Link) -> bool:
    """Whether records of ``origin`` get to the link's source by the carrying links."""
    reached = {origin}
    while more := {other.target for other in carrying if other.source in reached} - reached:
        reached |= more
    return one.source in reached
