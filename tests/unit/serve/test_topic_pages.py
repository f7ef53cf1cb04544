"""Topics and partitions: sorted and filtered by plain links, folded where all is well, a page for each topic."""

from __future__ import annotations

import re
from dataclasses import replace

import orjson
import pytest
from test_page import EVIL, PARTITION, STATUS, Tags, page, served

from eomirror.serve.http import Request
from support.fakes import shown_links

LINK = ("links", "east->west")
CALM = shown_links.running("east", "west")
MANY = shown_links.running("east", "west", topics=60)


def rows(text: str, section: str = "topics") -> list[str]:
    """First cells of the rows of a table."""
    table = text.partition(f'<section id="{section}">')[2].partition("</section>")[0]
    return re.findall(r"<tr><td[^>]*>(?:<a [^>]*>)?([^<]*)", table)


def test_each_column_sorts_in_both_directions_without_a_script() -> None:
    """The head is a link to the other order, and tells the present one; unknown is the largest."""
    parts = tuple(
        replace(PARTITION, topic=topic, lag_records=lag, rate=rate)
        for topic, lag, rate in (("a", 5, 1.0), ("b", None, 3.0), ("c", 7, 2.0))
    )
    made = served(replace(STATUS, partitions=parts, stopped=()))
    assert rows(page(made, *LINK)) == ["b", "c", "a"]
    for sort, order, wanted in (
        ("topic", "ascending", "abc"), ("topic", "descending", "cba"), ("lag", "descending", "bca"),
        ("lag", "ascending", "acb"), ("rate", "descending", "bca"), ("rate", "", "bca"),
    ):  # fmt: skip
        text = page(made, *LINK, sort=sort, order=order)
        assert rows(text) == list(wanted), (sort, order)
        assert text.count(f'aria-sort="{order or "descending"}"') == 1
    text = page(made, *LINK, sort="topic", order="ascending")
    assert '<a href="/links/east-%3Ewest?sort=topic&amp;order=descending#topics">topic</a>' in text
    for wrong in ("nothing", EVIL):
        assert rows(page(made, *LINK, sort=wrong, order=wrong)) == ["b", "c", "a"]


def test_chips_filter_by_state_and_keep_the_rest_of_the_question() -> None:
    """Each has its number; a state that no topic has shows none."""
    made = served(STATUS)
    text = page(made, *LINK, sort="topic")
    assert re.findall(r">(\w+ \d+)</a>", text.partition('class="chips"')[2].partition("</nav>")[0]) == [
        "all 3", "ok 1", "problem 1", "stopped 1",
    ]  # fmt: skip
    assert 'href="/links/east-%3Ewest?sort=topic&amp;state=stopped#topics"' in text
    assert rows(page(made, *LINK, state="stopped")) == ["halt"]
    assert rows(page(made, *LINK, state=EVIL)) == []
    Tags(page(made, *LINK, state=EVIL, sort=EVIL, topic=EVIL))


def test_events_and_groups_stand_before_topics_and_what_is_well_is_folded() -> None:
    """A long list of topics is one line until it is opened or asked for; those that are not ok stay open."""
    text = page(served(MANY), *LINK)
    places = [text.index(f'<section id="{key}">') for key in ("events", "groups", "topics", "speed", "lanes")]
    assert places == sorted(places)
    folded = '<section id="{}"><details><summary><h2>'
    for key in ("topics", "speed", "lanes"):
        assert folded.format(key) in text, key
    assert "60 topics, 60 ok" in text
    assert folded.format("topics") not in page(served(MANY), *LINK, state="ok")
    assert folded.format("topics") not in page(served(CALM), *LINK), "seven are no long list"
    bad = shown_links.stopped(MANY)
    text = page(served(bad), *LINK)
    assert rows(text, "troubled") == [bad.stopped[0].topic]
    assert folded.format("topics") in text


def test_the_page_of_a_topic_has_its_partitions() -> None:
    """With position, lag, lane, state, problem and fix, those that lag most first; the data are the same."""
    parts = tuple(
        replace(PARTITION, topic="orders", partition=number, lane=number % 3, position=1_000 + number,
                source_lso=1_000 + 2 * number, lag_records=number)
        for number in range(5)
    )  # fmt: skip
    torn = replace(parts[4], problem=f"it is torn {EVIL}", fix="`mend it`", lag_records=None)
    made = served(replace(STATUS, partitions=(*parts[:4], torn), stopped=()))
    text = page(made, *LINK, "topics", "orders")
    assert rows(text, "partitions") == ["4", "3", "2", "1", "0"]
    assert rows(page(made, *LINK, "topics", "orders", sort="partition"), "partitions") == list("01234")
    assert rows(page(made, *LINK, "topics", "orders", state="problem"), "partitions") == ["4"]
    shown = Tags(text).text
    assert "it is torn <script>" in shown
    assert "What to do: mend it" in shown
    assert "1,004" in shown
    assert "<title>problem: orders of east-&gt;west - eomirror</title>" in text
    body = orjson.loads(made.answer(Request(("api", "v1", *LINK, "topics", "orders"))).body)
    assert [part["partition"] for part in body["partitions"]] == [4, 3, 2, 1, 0]
    assert body["partitions"][1]["lane"] == 0
    assert body["history"]["hour"]["rate"]
    assert "/links/east-%3Ewest/topics/orders" in page(made, *LINK)


def test_a_topic_with_thousands_of_partitions_is_paged() -> None:
    """Two hundred rows a page; the history of a topic that is not kept is absent, not empty."""
    parts = tuple(replace(PARTITION, topic="wide", partition=number) for number in range(5_000))
    made = served(replace(STATUS, partitions=parts, stopped=()))
    text = page(made, *LINK, "topics", "wide", page="25", sort="partition")
    assert rows(text, "partitions")[0] == "4,800"
    assert len(rows(text, "partitions")) == 200
    assert len(text) < 250_000


@pytest.mark.parametrize("path", [(*LINK, "topics", "none"), ("links", "none", "topics", "t"), ("nothing", "here"),
                                  (*LINK, "topics"), (*LINK, "topics", "t", "more")])  # fmt: skip
def test_what_does_not_exist_is_a_page_with_a_way_back(path: tuple[str, ...]) -> None:
    """With the header of all pages."""
    found = served(CALM).answer(Request(path))
    assert found.status == 404
    text = found.body.decode()
    assert re.search(r"<h1>No such (topic|page)</h1>", text)
    assert '<a href="/">All links</a>' in text
    assert "data-every" not in text
    assert served(CALM).answer(Request(("api", "v1", *path))).status == 404


def test_since_is_told_only_where_it_is_a_problem() -> None:
    """A lag that comes and goes with each transaction has no begin; one record is no records."""
    calm = replace(CALM, lag_records=1, lag_seconds=0.2)
    text = page(served(calm), *LINK)
    assert "1 record, less than 5 s" in text
    assert "behind since" not in text
    down = replace(CALM, state="silent", lag_records=500, lag_seconds=30.0)
    assert "500 records, 30.0 s: behind since" in page(served(down), *LINK)


def test_a_verdict_that_needs_an_action_has_its_time() -> None:
    """On the page of the link and on its card; one that needs none would only count the hours."""
    made = shown_links.served([shown_links.stopped(CALM)])
    for text in (page(made, *LINK), page(made)):
        verdict = text.partition('<p class="verdict">')[2].partition("</p>")[0]
        assert "since" in verdict
        assert "2026-11-25 09:15:00Z" in verdict
    calm = page(served(CALM), *LINK).partition('<p class="verdict">')[2].partition("</p>")[0]
    assert "since" not in calm


def test_groups_have_their_lag() -> None:
    """Those with most come first."""
    text = page(served(CALM), *LINK)
    table = text.partition('<section id="groups">')[2].partition("</section>")[0]
    assert rows(text, "groups") == ["reports", "billing"]
    assert "18,211" in table
