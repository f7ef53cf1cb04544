"""Pages of questions that are answered on request: each question reaches the clusters once, and its answer the page."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from html import unescape
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from test_page import EVIL, FACTS, PARTITION, SECRET, STATUS, Reader, Tags

from eomirror.errors import UnreachableError
from eomirror.failover.group_moves import GroupMove
from eomirror.failover.machine import Verb
from eomirror.failover.readiness import Facts, assess
from eomirror.groups.translation import Translation
from eomirror.serve import queries as queries_module
from eomirror.serve.http import Request
from eomirror.serve.polled import PolledEndpoints
from eomirror.serve.queries import LinkQueries

if TYPE_CHECKING:
    from collections.abc import Callable

MOVE = GroupMove(
    group="billing", topic="orders", partition=0, offset=7, to_topic="east.orders", to_offset=5, kind="exact", again=0,
    has=None, action="move",
)  # fmt: skip


class Answers:
    """Answers questions as it is told, and counts them."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def readiness(self, link: str) -> dict[str, Any]:
        self.asked.append(link)
        return self.answer

    def offset(
        self, link: str, topic: str, partition: int, offset: int, *, reverse: bool = False
    ) -> dict[str, Any]:
        self.asked.append((link, topic, partition, offset, reverse))
        return self.answer


def shown(answer: dict[str, Any], what: str, **query: str) -> tuple[str, list[Any]]:
    """Text of a page about the link, and what was asked."""
    answers = Answers(answer)
    made = PolledEndpoints(
        {FACTS: lambda: Reader(STATUS)}, version="1.2.3", queries=answers,
        holds_secret=lambda text: SECRET in text,
    )  # fmt: skip
    made.start()
    end = time.monotonic() + 30
    while not made.judged():
        assert time.monotonic() < end
        time.sleep(0.005)
    made.close()
    response = made.answer(Request(("links", FACTS.name, what), query))
    assert response.status == 200
    page = response.body.decode()
    assert SECRET not in page
    Tags(page)
    return unescape(page), answers.asked


def test_an_offset_is_translated_in_both_directions() -> None:
    """The form keeps what was asked; the answer names topic, partition and cluster of both sides."""
    found = Translation(
        link=FACTS.name, topic="orders", partition=2, offset=1_000, to_topic=EVIL, to_partition=2, to_offset=998,
        kind="exact",
    ).as_dict()  # fmt: skip
    query = {"topic": "orders", "partition": "2", "offset": "1000", "from": "target"}
    page, asked = shown({"offsets": [found]}, "offset", **query)
    assert asked == [(FACTS.name, "orders", 2, 1_000, True)]
    assert "orders-2 at 1,000 on west is" in page
    assert "-2 at 998 on east" in page
    assert 'value="1000"' in page
    page, asked = shown({"offsets": [found]}, "offset")
    assert asked == []
    assert "Answer" not in page


@pytest.mark.parametrize("wrong", ["", "-1", "x", "٣", "9" * 40, EVIL])
def test_what_is_not_an_offset_is_not_asked(wrong: str) -> None:
    """The page says what is needed."""
    page, asked = shown({}, "offset", topic="orders", partition="0", offset=wrong)
    assert asked == []
    assert "a topic, a partition and an offset are needed" in page


def test_readiness_is_a_check_list_for_both_kinds_of_failover() -> None:
    """With what to do for each check that does not hold; a stopped topic refuses a promotion only."""
    facts = Facts(status=STATUS, groups=(MOVE,))
    answer = {
        "planned": assess(facts, Verb.PROMOTE).as_dict(),
        "failover": assess(facts, Verb.FAILOVER, force=True).as_dict(),
    }
    page, _ = shown(answer, "readiness")
    row = re.search(r"<tr><td[^>]*><a [^>]*>stopped topics</a></td>(.*?)</tr>", page)
    assert row is not None
    assert re.findall(r'class="word (\w+)"', row[1]) == ["no", "warn"]
    words = " ".join(f'<span class="t">{each}</span>' for each in ("eomirror", "status", "CONFIG"))
    assert f"What to do: <code>{words}</code> has the reasons" in page
    assert "it would not start, because of: stopped topics" in page
    # what is met is folded
    assert re.search(
        r'<section id="met"><details><summary><h2>Met</h2> <span class="soft">\d+ checks</span>', page
    )
    page, _ = shown(answer, "groups")
    assert "billing" in page
    assert "orders-0" in page


def test_checks_that_fail_come_first_and_lead_to_what_they_count() -> None:
    """Without the source, the verdict on a failover comes before that on a planned promotion."""
    facts = Facts(status=STATUS, groups=(MOVE,))
    for answers, first in ((True, "planned"), (False, "failover")):
        asked = replace(facts, source_answers=answers)
        answer = {
            "planned": assess(asked, Verb.PROMOTE).as_dict(),
            "failover": assess(asked, Verb.FAILOVER, force=True).as_dict(),
        }
        page, _ = shown(answer, "readiness")
        sections = re.findall('<section id="([a-z]+)">', page)
        assert sections[0] == first
        table = page.partition('id="attention"')[2].partition("</section>")[0]
        rows = [re.findall(r'class="word (no|warn|ok)"', row) for row in table.split("<tr>")[2:]]
        assert rows
        assert all(set(row) & {"no", "warn"} for row in rows)
        levels = [min(row, key=["no", "warn", "ok"].index) for row in rows]
        assert levels == sorted(levels, key=["no", "warn"].index)
        assert '<a href="/links/east-%3Ewest#problems">stopped topics</a>' in page


def test_a_loss_that_is_not_known_is_no_ok() -> None:
    """Without the source, no loss up to its last known ends is a lower bound."""
    facts = Facts(status=replace(STATUS, stopped=(), partitions=(PARTITION,)), source_answers=False)
    for known, seen in ((0, 90.0), (None, None)):
        asked = replace(facts, known_lost=known, seen_seconds=seen)
        answer = {verb: assess(asked, verb).as_dict() for verb in (Verb.PROMOTE, Verb.FAILOVER)}
        assert answer[Verb.FAILOVER]["ready"]
        page, _ = shown({"planned": answer[Verb.PROMOTE], "failover": answer[Verb.FAILOVER]}, "readiness")
        headline = page.partition('<section id="failover">')[2].partition("</p>")[0]
        assert "word warn" in headline
        # in the words of the other pages about the link
        assert "it would start; loses at most 4 records, 2.0 s" in headline


def test_groups_that_read_most_again_come_first() -> None:
    """An unknown number is the largest."""
    facts = Facts(
        status=STATUS,
        groups=(
            MOVE,
            GroupMove(**{**_fields(MOVE), "group": "far", "again": 500}),
            GroupMove(**{**_fields(MOVE), "group": "lost", "again": None, "reason": f"{EVIL} {SECRET}"}),
        ),
    )
    page, _ = shown({"planned": assess(facts, Verb.PROMOTE).as_dict()}, "groups")
    rows = page.partition('id="moves"')[2]
    assert rows.index("lost") < rows.index("far") < rows.index("billing")


def _fields(move: GroupMove) -> dict[str, Any]:
    return move.as_dict()


def test_without_the_source_groups_read_again_since_their_checkpoints() -> None:
    """How much that is, is not known; the time of the checkpoint is."""
    move = MOVE._replace(group=EVIL, again=None, reason="as of its last checkpoint")
    facts = Facts(status=STATUS, groups=(move,), source_answers=False)
    answer = {"planned": assess(facts, Verb.PROMOTE).as_dict(), "failover": {}}
    page, _ = shown(answer, "groups")
    assert "The source does not answer" in page
    assert "what it read since <time" in page
    assert "1 resume at their last checkpoints" in page


@pytest.mark.parametrize("what", ["readiness", "groups", "offset"])
def test_an_error_and_a_wait_are_told(what: str) -> None:
    """In place of the answer; the page of a wait looks again."""
    query = {"topic": "t", "partition": "0", "offset": "1"}
    page, _ = shown({"error": "no way to west", "fix": "check it"}, what, **query)
    assert "no way to west" in page
    assert "What to do: check it" in page
    page, _ = shown({"pending": True}, what, **query)
    assert "The clusters are asked" in page
    assert 'data-every="2"' in page


def _queries(monkeypatch: pytest.MonkeyPatch, find: Callable[..., Any]) -> LinkQueries:
    monkeypatch.setattr(queries_module, "translate", find)
    return LinkQueries(SimpleNamespace())  # type: ignore[arg-type]  nothing of it is read


def test_clients_share_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask at once, one thread asks the clusters, and the answer serves for some seconds."""
    go, calls = threading.Event(), []

    def find(*_: Any, **how: Any) -> list[Any]:
        calls.append(how)
        go.wait(30)
        return []

    asked = _queries(monkeypatch, find)
    found: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda: found.append(asked.offset("one", "t", 0, 5))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(30)
    assert [each["offsets"] for each in found] == [[]] * 5
    assert asked.offset("one", "t", 0, 5)["offsets"] == []
    assert len(calls) == 1
    asked.offset("one", "t", 0, 6)
    assert len(calls) == 2


def test_a_cluster_that_does_not_answer_holds_up_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client is told to look again, and at most four questions wait for clusters."""
    go = threading.Event()

    def find(*_: Any, **__: Any) -> list[Any]:
        go.wait(30)
        raise UnreachableError("no way to west", fix="check it")

    monkeypatch.setattr(queries_module, "_PATIENCE_SECONDS", 0.01)
    asked = _queries(monkeypatch, find)
    assert [asked.offset("one", "t", 0, number) for number in range(6)] == [{"pending": True}] * 6
    before = threading.active_count()
    go.set()
    monkeypatch.setattr(queries_module, "_PATIENCE_SECONDS", 30.0)
    assert asked.offset("one", "t", 0, 0)["error"] == "no way to west"
    assert before <= threading.active_count() + 4


def test_an_error_that_nothing_foresaw_stays_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names its type only."""

    def find(*_: Any, **__: Any) -> list[Any]:
        raise ValueError(SECRET)

    found = _queries(monkeypatch, find).offset("one", "t", 0, 5)
    assert found["error"] == "asking fails: ValueError"
