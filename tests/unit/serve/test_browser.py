"""The page in Chromium: it runs under its own policy, updates in place, and foreign names do no harm."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_answer_pages import MOVE, Answers
from test_page import EVIL, FACTS, PARTITION, STATUS, Reader, served

from eomirror.failover.machine import Verb
from eomirror.failover.readiness import Facts, assess
from eomirror.serve.http import Address, HttpServer, Request, Response
from eomirror.serve.polled import PolledEndpoints
from support.fakes import shown_links
from support.fakes.status_records import stop
from support.judges.browser import CHROMIUM, Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.status.model import LinkStatus

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"), pytest.mark.timeout(120),
]  # fmt: skip


def test_a_page_updates_itself_and_runs_no_foreign_script(tmp_path: Path) -> None:
    """Chromium shows what a later read found; it reports neither a refused resource nor an error of the script."""
    first, later = (served(replace(STATUS, rate=rate)) for rate in (4_111.0, 4_777.0))
    shown: list[Request] = []

    def answer(request: Request) -> Response:
        if request.path[:1] != ("links",):
            return later.answer(request)
        shown.append(request)
        return (first if len(shown) == 1 else later).answer(request)

    server = HttpServer(Address("127.0.0.1", 0), answer)
    try:
        done = subprocess.run(
            [
                str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
                f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", "--dump-dom",
                f"{server.url}links/east-%3Ewest",
            ],
            capture_output=True, text=True, timeout=100, check=True,
        )  # fmt: skip
    finally:
        server.close()
    page = done.stdout
    assert "Pause updates</button>" in page
    assert 'hidden="">Pause' not in page, "page.js did not run"
    assert "4,777 records/s" in page
    assert "4,111" not in page
    assert "CONSOLE" not in done.stderr, done.stderr
    # the heading of a foreign name is text, not an element
    assert "<script>alert" not in page
    assert EVIL.split("(", maxsplit=1)[0].replace("<", "&lt;").replace(">", "&gt;") in page


PICTURES = Path(__file__).resolve().parents[3] / "docs" / "images"
_NAMED = {"link", "button", "textbox", "combobox", "region", "heading", "navigation", "columnheader"}
LONG = "a-topic-with-a-name-of-249-characters." + "x" * 211


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser with a fresh profile."""
    with Browser(tmp_path) as made:
        yield made


def serving(status: LinkStatus) -> tuple[HttpServer, str]:
    """Serves a link and the answers about it; returns the server, and the URL of the link's page."""
    facts = Facts(status=status, groups=(MOVE, MOVE._replace(group=LONG, again=None, kind="unknown")))
    answer = {
        "planned": assess(facts, Verb.PROMOTE).as_dict(),
        "failover": assess(facts, Verb.FAILOVER, force=True).as_dict(),
    }
    made = PolledEndpoints({FACTS: lambda: Reader(status)}, version="1", queries=Answers(answer))
    made.start()
    end = time.monotonic() + 30
    while not made.judged():
        assert time.monotonic() < end
        time.sleep(0.005)
    server = HttpServer(Address("127.0.0.1", 0), made.answer)
    return server, f"{server.url}links/east-%3Ewest"


def long_names() -> LinkStatus:
    """A status with the longest name that a topic can have, and a foreign one."""
    parts = (*STATUS.partitions, replace(PARTITION, topic=LONG, lag_records=123_456_789_012))
    stopped = stop(LONG, f"{LONG} {EVIL}", f"`eomirror run` {EVIL}")
    return replace(STATUS, partitions=parts, stopped=(*STATUS.stopped, stopped))


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_its_window(browser: Browser, width: int) -> None:
    """Long names wrap, on a phone too; a table that is wider scrolls in its frame.  No script of a name runs."""
    server, link = serving(long_names())
    with closing(server):
        for dark in (False, True):
            browser.show_as(width, 900, dark=dark)
            for part in ("", "/readiness", "/groups", "/offset", "/topics/halt", f"/topics/{LONG}", None):
                url = server.url if part is None else link + part
                browser.visit(url)
                assert browser.run("document.scrollingElement.scrollWidth") == width, url
                assert browser.said == []
                assert (
                    browser.run("document.querySelectorAll('main script, main img, main style').length") == 0
                )
                colour = browser.run("getComputedStyle(document.body).backgroundColor")
                assert (colour == "rgb(255, 255, 255)") is not dark


@pytest.mark.parametrize("number", [1, 5, 50])
def test_links_are_readable_however_many(browser: Browser, number: int) -> None:
    """A map, a grid for many and on a phone: one of them is seen, and no text of it is cut by its edge."""
    server = HttpServer(Address("127.0.0.1", 0), shown_links.served(shown_links.many(number)).answer)
    with closing(server):
        for width in (1280, 1168, 838, 660, 390):
            browser.show_as(width, 900)
            browser.visit(server.url)
            assert browser.said == []
            assert browser.run("document.scrollingElement.scrollWidth") == width
            seen = browser.run(
                "Array.from(document.querySelectorAll('.map, .grid')).filter((one) => one.checkVisibility())"
                ".map((one) => one.classList[0])"
            )
            columns = {1: 2, 5: 4, 50: 99}[number]
            assert seen == (["map"] if width > {2: 640, 4: 1168}.get(columns, 9_999) else ["grid"])
            cut = browser.run(
                "Array.from(document.querySelectorAll('.map text, .cell, .card')).filter((one) => {"
                " const box = one.getBoundingClientRect();"
                " return box.left < 0 || box.right > innerWidth || one.scrollWidth > one.clientWidth + 1; })"
                ".map((one) => one.textContent)"
            )
            assert cut == []


def test_an_opened_part_stays_open_and_an_outage_is_in_the_title(browser: Browser) -> None:
    """A part that changes is replaced while its reader looks into it; a server that is away is told in the tab."""
    calm = shown_links.running("east", "west")
    made = [
        shown_links.served([replace(calm, lanes={0: replace(calm.lanes[0], pid=pid)})]) for pid in (71, 72)
    ]
    asked: list[Request] = []

    away = threading.Event()

    def answer(request: Request) -> Response:
        asked.append(request)
        if away.is_set():
            return Response(b"", "text/plain", 503)
        return made[sum(each.path[:1] == ("links",) for each in asked) > 1].answer(request)

    server = HttpServer(Address("127.0.0.1", 0), answer)
    with closing(server):
        browser.show_as(1280, 900)
        browser.visit(f"{server.url}links/east-%3Ewest")
        assert browser.run("document.title").startswith("ok: ")
        browser.run("document.querySelector('#lanes details').open = true")
        browser.wait_for("document.querySelector('#lanes').textContent.includes('process 72')")
        assert browser.run("document.querySelector('#lanes details').open")
        assert not browser.run("document.querySelector('#speed details').open")
        away.set()
        browser.wait_for("!document.getElementById('away').hidden")
        assert browser.run("document.title") == "no answer - eomirror"
        away.clear()
        browser.wait_for("document.getElementById('away').hidden")
        assert browser.run("document.title").startswith("ok: ")


@pytest.mark.parametrize(("name", "path"), [("links", ""), ("link", "links/east-%3Ewest")])
def test_the_pictures_of_the_documents_are_of_these_pages(
    browser: Browser, name: str, path: str, tmp_path: Path
) -> None:
    """EOMIRROR_REWRITE=1 draws them anew; fonts differ between machines, so only size and weight are compared."""
    server = HttpServer(Address("127.0.0.1", 0), shown_links.served(shown_links.many(5)).answer)
    with closing(server):
        browser.show_as(1200, 660 if name == "links" else 820)
        browser.visit(server.url + path)
        kept = PICTURES / f"{name}.png"
        drawn = kept if os.environ.get("EOMIRROR_REWRITE") else tmp_path / "drawn.png"
        browser.picture(drawn, whole=False)
    assert drawn.read_bytes()[:24] == kept.read_bytes()[:24], "signature, width and height"
    assert kept.stat().st_size < 150_000


def test_everything_is_reached_with_the_keyboard(browser: Browser) -> None:
    """The first stop leads past the header; each one is visible and marked; the search is sent with Enter."""
    server, link = serving(long_names())
    with closing(server):
        browser.show_as(1280, 900)
        browser.visit(link)
        browser.run("document.getElementById('pause').click()")
        browser.run("document.activeElement.blur()")
        wanted = browser.run(
            "Array.from(document.querySelectorAll('a, button, input, select, summary, [tabindex=\"0\"]'))"
            ".filter((one) => one.checkVisibility()).length"
        )
        shown = set()
        for number in range(wanted):
            browser.press("Tab")
            at = browser.run(
                "(() => { const one = document.activeElement, box = one.getBoundingClientRect(),"
                " style = getComputedStyle(one);"
                " return [Array.from(document.querySelectorAll('*')).indexOf(one), one.textContent,"
                " box.left >= 0 && box.width > 0,"
                " style.outlineStyle != 'none' && parseFloat(style.outlineWidth) >= 1]; })()"
            )
            assert at[2:] == [True, True], at
            assert number or at[1] == "Skip to the content"
            shown.add(at[0])
        assert len(shown) == wanted
        browser.run(
            "document.getElementById('topic').focus(); document.getElementById('topic').value = 'halt'"
        )
        browser.press("Enter")
        browser.wait_for("location.search == '?topic=halt' && document.readyState == 'complete'")
        assert browser.run("document.querySelectorAll('#topics tbody tr').length") == 1


def test_a_screen_reader_hears_a_name_for_each_thing(browser: Browser) -> None:
    """Links, fields, buttons and regions have names; headings tell the parts of the page."""
    server, link = serving(long_names())
    with closing(server):
        for url in (server.url, link, f"{link}/readiness", f"{link}/offset"):
            browser.visit(url)
            names = browser.names()
            told = [(role, name) for role, name in names if role in _NAMED]
            assert told
            assert not [role for role, name in told if not name.strip()]
            assert sum(role == "heading" for role, _ in names) >= 1
            assert {"main", "navigation"} <= {role for role, _ in names}


def test_five_thousand_partitions_are_shown_in_a_fifth_of_a_second(browser: Browser) -> None:
    """From the request to the last byte; the body is compressed."""
    many = tuple(replace(PARTITION, topic=f"team.service.events-{number:05}") for number in range(5_000))
    server, link = serving(replace(STATUS, partitions=many, stopped=(), hanging=(), drifted=()))
    with closing(server):
        browser.show_as(1280, 900)
        browser.visit(server.url)
        times = []
        for _ in range(3):
            assert browser.visit(link) < 5
            times.append(
                browser.run(
                    "(() => { const t = performance.getEntriesByType('navigation')[0];"
                    " return t.responseEnd - t.requestStart; })()"
                )
            )
        assert min(times) < 200, times
        assert browser.run("document.querySelectorAll('#topics tbody tr').length") == 200
        sent = browser.run("performance.getEntriesByType('navigation')[0].encodedBodySize")
        assert sent < 20_000
