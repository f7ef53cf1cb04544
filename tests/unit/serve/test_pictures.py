"""Lines and map: they show what the figures say, hide no gap, meet nowhere, and have a text for who cannot see them."""

from __future__ import annotations

import re
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from test_page import EVIL, Tags, page, served

from eomirror.serve.chart import charts
from eomirror.serve.cluster_map import MOST_LINKS, cluster_map
from eomirror.serve.history import PERIODS
from eomirror.serve.http import Request
from eomirror.status.live import LinkFacts
from support.fakes import shown_links

LINK = ("links", "east->west")


def lines(*lag: float | None) -> dict[str, Any]:
    """A history of an hour with these values, the newest last."""
    return {"hour": {"step_seconds": 10, "lag_records": list(lag)}}


def test_a_line_ends_at_the_right_and_its_largest_value_is_on_top() -> None:
    """Time is the width: what was not kept is empty on the left; zero lies on the ground."""
    ((period, (chart,)),) = charts(lines(0, 50, 100), 1_795_599_000_000)
    assert (period, chart.width) == ("hour", 359)
    assert chart.path == "M357 100L358 52L359 4"
    assert chart.area == "M357 100L357 100L358 52L359 4V100z"
    assert (chart.low, chart.high, chart.last, chart.begin, chart.end) == (
        "0",
        "100",
        "100",
        "08:30",
        "09:30",
    )
    assert chart.label == "Lag, records, last hour: 100 at the end, between 0 and 100"


def test_a_gap_is_a_gap() -> None:
    """No line leads over a time without a value; one value alone is a point; a last one may be unknown."""
    ((_, (chart,)),) = charts(lines(1, None, 1, 1, 1, None), 0)
    assert chart.path == "M354 4h.01M356 4L358 4"
    assert chart.last == "unknown"
    assert charts(lines(None, None), 0) == []


def test_zero_all_the_time_is_a_line_on_the_ground() -> None:
    """It is no division by zero."""
    ((_, (chart,)),) = charts(lines(0, 0, 0), 0)
    assert chart.path == "M357 100L359 100"


def test_both_periods_have_lag_rate_and_commit_time_on_the_page() -> None:
    """Each picture has a name, its figures stand beside it as text, and nothing of it is a style or a script."""
    made = shown_links.served(shown_links.many(5))
    text = page(made, *LINK)
    tags = Tags(text)
    pictures = [attributes for tag, attributes in tags.tags if tag == "svg"]
    assert len(pictures) == 8
    assert all(one["role"] == "img" and one["aria-label"] for one in pictures)
    assert {str(one["viewbox"]) for one in pictures} == {
        f"0 0 {slots - 1} 100" for _, slots in PERIODS.values()
    }
    assert not {name for _, attributes in tags.tags for name in attributes if name == "style"}
    for named in ("Lag, records", "Lag, time", "Records per second", "Time of a commit"):
        assert text.count(f"<figcaption>{named}") == 2
    topic = page(made, *LINK, "topics", "orders")
    assert len(re.findall("<svg", topic)) == 6


def _pairs(*pairs: tuple[str, str]) -> list[Any]:
    return [
        SimpleNamespace(facts=LinkFacts(f"{one}->{other}", one, other, "prefix", "auto"))
        for one, other in pairs
    ]


MAPS = {
    "one": _pairs(("a", "b")),
    "both ways": _pairs(("a", "b"), ("b", "a")),
    "chain": _pairs(("a", "b"), ("b", "c"), ("c", "d")),
    "chain and its end": _pairs(("a", "b"), ("b", "c"), ("a", "c")),
    "hub": _pairs(*(("hub", f"leaf{number}") for number in range(12))),
    "aggregate": _pairs(*((f"edge{number}", "hub") for number in range(9))),
    "ring": _pairs(("a", "b"), ("b", "c"), ("c", "a")),
    "mesh": _pairs(*((x, y) for x in "abc" for y in "abc" if x != y)),
    "two links of one pair": _pairs(("a", "b"), ("a", "b"), ("b", "a")),
    "two groups": _pairs(("a", "b"), ("b", "a"), ("x", "y")),
    "long names": _pairs(("a" * 80, "b" * 80)),
}


@pytest.mark.parametrize("name", MAPS)
def test_nothing_of_a_map_meets(name: str) -> None:
    """No box and no label covers another one, all lie within the picture, and each line ends at its boxes."""
    links = MAPS[name]
    made = cluster_map(links)
    assert made is not None
    things = [(box.x, box.y, box.width, box.height) for box in made.boxes]
    things += [(edge.x - made.label_width // 2, edge.y - 22, made.label_width, 44) for edge in made.edges]
    for x, y, width, height in things:
        assert x >= 0
        assert y >= 0
        assert x + width <= made.width
        assert y + height <= made.height
    for (x, y, width, height), (ox, oy, owidth, oheight) in combinations(things, 2):
        assert x + width <= ox or ox + owidth <= x or y + height <= oy or oy + oheight <= y
    boxes = {box.name: box for box in made.boxes}
    assert {*boxes} == {end for link in links for end in (link.facts.source, link.facts.target)}
    for edge in made.edges:
        numbers = [int(number) for number in re.findall(r"\d+", edge.path)]
        source, target = boxes[edge.link.facts.source], boxes[edge.link.facts.target]
        begin_x, begin_y = numbers[:2]
        assert begin_x == (source.x if edge.back else source.x + source.width)
        assert source.y <= begin_y <= source.y + source.height
        assert (target.x + target.width if edge.back else target.x) in numbers


def test_many_links_are_a_grid() -> None:
    """A map of them would be a tangle; so is a chain that is longer than a page is wide."""
    assert cluster_map(_pairs(*((f"e{number}", "hub") for number in range(MOST_LINKS + 1)))) is None
    assert cluster_map(_pairs(*((str(number), str(number + 1)) for number in range(4)))) is None
    assert cluster_map([]) is None
    text = page(shown_links.served(shown_links.many(50)))
    assert 'class="map ' not in text
    cells = re.findall(r'<li class="cell ([a-z-]+)">', text)
    assert len(cells) == 50
    assert cells[:4] == ["stopped", "stopped", "down", "source-away"]
    assert "46 links that need no action" in text
    assert "<title>4 of 50 links need action - eomirror</title>" in text


def test_the_map_has_verdict_rate_and_lag_on_its_edges_and_as_text() -> None:
    """A reader who cannot see it hears the same, and so does one on a phone read it."""
    text = page(shown_links.served(shown_links.many(5)))
    picture = text.partition('<svg class="map ')[2].partition("</svg>")[0]
    assert "east to west: ok, 90/s, lag 0" in picture
    assert "edge-1 to east: down, 0/s, lag 41,200" in picture
    for shown in ("✓ OK", "■ STOPPED", "✗ SOURCE AWAY", "■ DOWN", "90/s · lag 0", "0/s · lag 41,200"):
        assert f">{shown}</text>" in picture
    assert text.count('<li class="cell ') == 5
    Tags(text)
    much = shown_links.running("a", "b", rate=1_234_567.0, lag=123_456)
    assert ">1.2 M/s · lag 123.5 k</text>" in page(shown_links.served([much]))


def test_foreign_names_do_no_harm_on_the_page_of_a_topic() -> None:
    """Its name is part of a path, a title and a heading."""
    found = served(shown_links.running("east", "west")).answer(Request((*LINK, "topics", EVIL)))
    assert found.status == 404
    Tags(found.body.decode())
    assert "\x1b" not in found.body.decode()
