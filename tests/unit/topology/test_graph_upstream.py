"""Topics that other links create on a link's source: where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.config import Link
from eomirror.topology.graph import topology
from eomirror.topology.naming import Naming

if TYPE_CHECKING:
    from collections.abc import Sequence

IDENTITY = Naming("identity")


def link(way: str, topics: Sequence[str] = ("orders",), naming: Naming = IDENTITY, **given: Any) -> Link:
    """A link such as ``a>b``."""
    source, target = way.split(">")
    return Link(
        name=f"{source}->{target}", source=source, target=target, topics=tuple(topics), naming=naming, **given
    )


def upstream(*links: Link) -> dict[str, list[tuple[str, str, list[str]]]]:
    """Awaited topics of every link: the topic, the link that creates it, and the places it may come from."""
    return {
        one.name: [
            (each.topic, each.link, [f"{alias}/{name}" for alias, name in each.places])
            for each in rule.upstream
        ]
        for one, rule in zip(links, topology(links).rules, strict=True)
        if rule.upstream
    }


def test_a_topic_of_one_spoke_comes_through_the_hub() -> None:
    """Every link of hub and spokes may get the topic from every other cluster."""
    links = [link("spoke1>hub"), link("spoke2>hub"), link("hub>spoke1"), link("hub>spoke2")]

    assert upstream(*links) == {
        "spoke1->hub": [("orders", "hub->spoke1", ["hub/orders", "spoke2/orders"])],
        "spoke2->hub": [("orders", "hub->spoke2", ["hub/orders", "spoke1/orders"])],
        "hub->spoke1": [("orders", "spoke1->hub", ["spoke1/orders", "spoke2/orders"])],
        "hub->spoke2": [("orders", "spoke1->hub", ["spoke1/orders", "spoke2/orders"])],
    }


def test_a_topic_that_no_link_writes_comes_from_nowhere() -> None:
    """One way, other names, an excluded topic, and patterns."""
    assert upstream(link("a>b"), link("a>c")) == {}
    assert upstream(link("a>b", ["orders"]), link("b>a", ["payments"])) == {}
    assert upstream(link("a>b"), link("b>a", [".*"], exclude=("orders",))) == {}
    assert upstream(link("a>b", ["order.*"]), link("b>a", ["order.*"])) == {}


def test_names_are_followed_back_through_every_naming() -> None:
    """The topic at a place is the original's, whatever the copy is called."""
    chain = link("b>c", [r"a\.orders"])
    assert upstream(link("a>b", [".*"], Naming("prefix")), chain)["b->c"] == [
        (r"a.orders", "a->b", ["a/orders"])
    ]
    named = Naming("pattern", pattern="{source}_{topic}")
    assert upstream(link("a>b", [".*"], named), link("b>c", ["a_orders"]))["b->c"][0][2] == ["a/orders"]
    mapped = Naming("map", names=(("bestellungen", "orders"), ("ventes", "orders"), ("x", "y")))
    assert upstream(link("a>b", [".*"], mapped), link("b>c"))["b->c"][0][2] == [
        "a/bestellungen",
        "a/ventes",
    ]
    matched = Naming("match", match="(.*)_REPLICA", to="$1")
    assert upstream(link("a>b", ["orders_REPLICA", "x"], matched), link("b>c"))["b->c"][0][2] == [
        "a/orders_REPLICA"
    ]
    # which topics an expression would give this name cannot be told
    assert upstream(link("a>b", [".*_REPLICA"], matched), link("b>c")) == {}


def test_a_chain_of_links_is_followed_to_its_beginning() -> None:
    """The link that creates the topic is the last one of the chain."""
    found = upstream(link("a>b", [".*"]), link("b>c", [".*"]), link("c>d"))

    assert found == {"c->d": [("orders", "b->c", ["b/orders", "a/orders"])]}
