"""The page: every foreign text is escaped, secrets are hidden, thousands of topics are paged, and nothing is loaded."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from eomirror.errors import UnreachableError
from eomirror.plane.protocol import Serving
from eomirror.records.events import LinkEvent
from eomirror.records.reports import TailComparison
from eomirror.serve.http import Request, Response
from eomirror.serve.polled import PolledEndpoints
from eomirror.status.live import LinkFacts
from eomirror.status.model import (
    GroupsStatus,
    GroupStatus,
    Hanging,
    LaneStatus,
    LinkStatus,
    OwnerStatus,
    PartitionStatus,
    RetentionStatus,
)
from eomirror.status.sinks import sink_facts, sink_link
from support.fakes.status_records import fence, gap, stop, verified

EVIL = "<script>alert('x')</script>\"&\x1b[31m"
SECRET = "planted-secret-value"  # noqa: S105  it is planted
FACTS = LinkFacts("east->west", "east", "west", "prefix", "auto")

PARTITION = PartitionStatus(
    topic=EVIL, partition=0, target_topic="east.x", lane=0, position=5, source_lso=9, lag_records=4,
    lag_seconds=2.0, records=5, rate=3.0, last_commit=1,
)  # fmt: skip
STATUS = LinkStatus(
    link="east->west",
    state="running",
    owner=OwnerStatus(run=EVIL, host=EVIL, pid=1, released=False, claim_age_seconds=1.0),
    generation=3,
    lanes={0: LaneStatus(lane=0, partitions=1, epoch=1, attempt=1, serving=Serving("client", EVIL))},
    lag_records=4,
    lag_seconds=2.0,
    partitions=(
        PARTITION,
        replace(PARTITION, topic="halt", stopped=True, problem=EVIL, fix=EVIL, lag_records=None),
        replace(PARTITION, topic="torn", problem=f"refused {SECRET}", fix="", lag_records=None),
    ),
    stopped=(stop("halt", EVIL, EVIL),),
    gaps=(gap(EVIL, 1, 5, 1_000),),
    groups=GroupsStatus(
        followed=1,
        offsets=2,
        last_checkpoint=5,
        by_group=(GroupStatus(group=EVIL, offsets=2, last_checkpoint=5),),
    ),
    events=(LinkEvent(1_000, "stopped", EVIL, "halt"), LinkEvent(10**17, EVIL, f"the {SECRET}")),
    drifted=(EVIL,),
    hanging=(
        Hanging(topic="t", partition=0, producer_id=1, start=0, end=1, since=None, problem=EVIL, fix=EVIL),
    ),
)


class Reader:
    """Returns a status, or raises."""

    def __init__(self, status: LinkStatus | Exception) -> None:
        self.status = status
        self.closed = False

    def read(self) -> LinkStatus:
        if isinstance(self.status, Exception):
            raise self.status
        return self.status

    def close(self) -> None:
        self.closed = True


def served(status: LinkStatus | Exception) -> PolledEndpoints:
    """Endpoints that have read this status once."""
    made = PolledEndpoints(
        {FACTS: lambda: Reader(status)}, version="1.2.3", holds_secret=lambda text: SECRET in text
    )
    assert made.answer(Request(("readyz",))).status == 503
    made.start()
    end = time.monotonic() + 30
    while not made.judged():
        assert time.monotonic() < end
        time.sleep(0.005)
    made.close()
    return made


def page(made: PolledEndpoints, *path: str, **query: str) -> str:
    """The text of a page."""
    found: Response = made.answer(Request(path, query))
    assert found.content_type.startswith("text/html")
    return found.body.decode()


class Tags(HTMLParser):
    """Collects tags and attributes, and checks that tags are closed in order."""

    _VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self._VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_foreign_text_is_shown_and_is_no_markup() -> None:
    """Topics, groups, hosts, reasons: no script, no handler, no style, and no control character."""
    made = served(STATUS)
    for text in (page(made), page(made, "links", "east->west"), page(made, "links", EVIL)):
        tags = Tags(text)
        assert "\x1b" not in text
        assert not {"style", "iframe", "object", "base"} & {tag for tag, _ in tags.tags}
        assert [attributes for tag, attributes in tags.tags if tag == "script"] == [
            {"src": "/page.js", "defer": None}
        ]
        names = {name for _, attributes in tags.tags for name in attributes}
        assert not {name for name in names if name.startswith("on") or name == "style"}
    shown = Tags(page(made, "links", "east->west"))
    assert shown.text.count("<script>alert('x')</script>") >= 10


def test_a_page_loads_nothing_from_elsewhere() -> None:
    """A style sheet, a script and an icon, from the server; links stay on it."""
    made = served(STATUS)
    tags = Tags(page(made, "links", "east->west")).tags
    for _, attributes in tags:
        for name in ("href", "src", "action"):
            assert (attributes.get(name) or "/").startswith(("/", "#"))
    style = made.answer(Request(("style.css",)))
    assert style.content_type == "text/css; charset=utf-8"
    assert b"url(" not in style.body
    assert b"@import" not in style.body


def test_a_screen_reader_finds_its_way() -> None:
    """Language, title, one main heading, a label for the field, heads of columns, names of regions."""
    tags = Tags(page(served(STATUS), "links", "east->west")).tags
    assert ("html", {"lang": "en"}) in tags
    assert [tag for tag, _ in tags].count("h1") == 1
    assert ("label", {"for": "topic"}) in tags
    assert all(attributes.get("scope") == "col" for tag, attributes in tags if tag == "th")
    assert all("aria-label" in attributes for _, attributes in tags if attributes.get("role") == "region")


@pytest.mark.parametrize("path", [(), ("links", "east->west"), ("api", "v1", "links"), ("metrics",),
                                  ("api", "v1", "links", "east->west"), ("livez",), ("readyz",)])  # fmt: skip
def test_a_secret_is_nowhere(path: tuple[str, ...]) -> None:
    """A text that contains one is replaced, in page and data."""
    assert SECRET.encode() not in served(STATUS).answer(Request(path)).body


def test_data_says_what_the_page_says() -> None:
    """Summary of all links, and everything about one; another name is 404 without an echo."""
    made = served(STATUS)
    (summary,) = orjson.loads(made.answer(Request(("api", "v1", "links"))).body)["links"]
    assert (summary["verdict"], summary["lag_records"]) == ("stopped", 4)
    body = orjson.loads(made.answer(Request(("api", "v1", "links", "east->west"))).body)
    assert {row["topic"] for row in body["topic_rows"]} == {EVIL, "halt", "torn"}
    assert [event["kind"] for event in body["events"]] == [EVIL, "stopped"]
    assert body["history"]["hour"]["lag_records"][0] == 4
    assert body["history"]["day"]["rate"][0] == 0
    missing = made.answer(Request(("api", "v1", "links", EVIL)))
    assert (missing.status, missing.body) == (404, b'{"error":"no such link"}')
    assert made.answer(Request(("readyz",))).status == made.answer(Request(("livez",))).status == 200


def test_a_take_over_of_the_last_minutes_is_told() -> None:
    """The link runs, so its verdict does not tell of it."""
    now = time.time_ns() // 1_000_000
    taken = LinkEvent(now - 60_000, "take-over", "run 2 took the link from run 1")
    text = Tags(page(served(replace(STATUS, events=(taken,))), "links", "east->west")).text
    assert "that had not released it.What to do: if the first one was killed" in text
    old = replace(taken, at=now - 16 * 60_000)
    assert (
        "released it.What"
        not in Tags(page(served(replace(STATUS, events=(old,))), "links", "east->west")).text
    )


@pytest.mark.parametrize(("times", "folded"), [(1, True), (2, False)])
def test_a_mirror_that_was_killed_and_started_again_is_one_line_beside_the_events(
    times: int, *, folded: bool
) -> None:
    """Two processes that run the link take it from each other, which is a problem and stands open."""
    now = time.time_ns() // 1_000_000
    taken = tuple(
        LinkEvent(now - 60_000 * at, "take-over", "run 2 took the link from run 1") for at in range(times)
    )
    shown = page(served(replace(STATUS, events=taken)), "links", "east->west")
    before, _, after = shown.partition('id="take-overs"')
    assert 'id="lines"' in before
    assert 'id="events"' in after
    assert ("<details" in after.partition("</section>")[0]) is folded
    assert shown.count("once in the last 15 minutes") == int(folded)


def test_what_a_copy_lacks_is_told_with_what_to_do() -> None:
    """Accepted gaps and dead letters leave the link running, so its verdict does not tell of them."""
    letters = replace(PARTITION, topic="letters", dropped={"dead-letter": 2, "hop": 1})
    made = served(replace(STATUS, partitions=(letters,), stopped=()))
    text = Tags(page(made, "links", "east->west")).text
    assert "the copy lacks them.What to do: keep records on the source for longer" in text
    assert "dead-letter topic has them.What to do: raise the limit" in text
    body = orjson.loads(made.answer(Request(("api", "v1", "links", "east->west"))).body)
    assert body["dead_letters"] == [{"topic": "letters", "records": 2}]
    quiet = Tags(page(served(replace(STATUS, gaps=())), "links", "east->west")).text
    assert "Dead letters" not in quiet
    assert "Accepted gaps" not in quiet


def test_five_thousand_topics_stay_small() -> None:
    """A page of them has 200 rows and under 200 kB, a scrape under 2 MB; the search finds the last one."""
    many = tuple(replace(PARTITION, topic=f"team.service.events-{number:05}") for number in range(5_000))
    made = served(replace(STATUS, partitions=many, stopped=(), hanging=(), drifted=()))
    assert len(made.answer(Request(("links", "east->west"))).body) < 200_000
    # the thread that reads has built what a page needs: a request draws 200 rows, whatever the number of topics
    began = time.process_time()
    made.answer(Request(("links", "east->west")))
    assert time.process_time() - began < 0.1
    body = made.answer(Request(("metrics",))).body
    assert len(body) < 2_000_000
    assert len(list(text_string_to_metric_families(body.decode()))) > 10
    found = page(made, "links", "east->west", topic="04999")
    assert "team.service.events-04999" in found
    assert "team.service.events-04998" not in found
    last = page(made, "links", "east->west", page="25")
    assert len(re.findall(r"<tr><td[^>]*><a[^>]*>team\.service\.events-", last)) == 200
    for wrong in ("0", "-1", "99999", "x", "٣", "9" * 40):
        assert "events-" in page(made, "links", "east->west", page=wrong)


def test_a_comparison_of_ends_is_told_apart_from_a_whole_one() -> None:
    """What stands before the ends was not looked at, so *verified* does not count it."""
    tail = TailComparison(
        outcome="equal", tail=1_000, topics=1, partitions=1, offsets=1, command="cutover", timestamp=5
    )
    shown = page(served(replace(STATUS, tail=tail)), "links", "east->west")
    assert "the last 1,000 offsets of each partition, before cutover" in shown
    assert "no comparison is recorded" in shown


def todo(status: LinkStatus) -> str:
    """What to do now, on the page of all links."""
    return page(served(status)).partition('id="now"')[2].partition("</section>")[0]


def test_what_to_do_names_all_problems_and_how_many_are_not_shown() -> None:
    """Also records that the source is about to delete under a link that keeps up; nothing of a promoted one."""
    stops = tuple(stop(f"t{number}", fix="fix it") for number in range(9))
    shown = todo(replace(STATUS, stopped=stops))
    assert shown.count("<li>") == 5
    assert "topic t0 and 8 more" in shown
    assert "topic t3 is stopped" in shown
    assert "5 more topics are stopped" in shown
    row = RetentionStatus(topic="t", partition=3, used=1.0, left_seconds=0.0, setting="retention.ms")
    calm = replace(STATUS, stopped=(), partitions=(PARTITION,), retention=(row,))
    shown = todo(calm)
    assert "t-3: the source may delete records that are not mirrored, at any time" in shown
    assert "raise the retention" in shown
    promoted = replace(STATUS, state="promoted", stopped=stops)
    assert "stopped" not in todo(promoted)
    shown = page(served(promoted))
    assert "applications write to the target" in shown
    assert "none: the link no longer mirrors" in shown


def test_records_that_the_source_is_about_to_delete_are_listed() -> None:
    """Those of topics that have used most of their retention."""
    row = RetentionStatus(topic=EVIL, partition=3, used=0.9, left_seconds=360.0, setting="retention.ms")
    shown = page(
        served(replace(STATUS, retention=(row, replace(row, topic="far", used=0.5)))), "links", "east->west"
    )
    table = shown.partition('id="retention"')[2].partition("</section>")[0]
    assert "in 6 min (retention.ms)" in table
    assert "90%" in table
    assert "far-3" not in table
    Tags(shown)
    assert 'id="retention"' not in page(served(STATUS), "links", "east->west")


class Failing(Reader):
    """Returns a status once, then raises."""

    def read(self) -> LinkStatus:
        found = super().read()
        self.status = UnreachableError("no way to west", fix="check it")
        return found


def test_what_was_read_last_stays_on_the_page_while_the_target_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its age, marked as old; metrics give no old value, and lags are unknown."""
    monkeypatch.setattr("eomirror.serve.polled._POLL_SECONDS", 0.01)
    owner = OwnerStatus(run="r", host="east-1", pid=4711, released=False, claim_age_seconds=1.0)
    differs = verified(EVIL, "differs", unverified=2, offsets=5, differences={"missing": 3}, timestamp=5)
    reader = Failing(replace(STATUS, owner=owner, verifications=(differs,)))
    made = PolledEndpoints({FACTS: lambda: reader}, version="1.2.3")
    made.start()
    end = time.monotonic() + 30
    while not (made.judged() and made.judged()[0].view.kept_seconds is not None):
        assert time.monotonic() < end
        time.sleep(0.005)
    made.close()
    shown = page(made, "links", "east->west")
    assert "The topics of the link on west cannot be read now" in shown
    assert "no way to west" in shown
    for kept in ("east-1, process 4711", "3 missing", "the source lost these records"):
        assert kept.lower() in shown.lower(), kept
    assert "lag</dt><dd>unknown" in shown
    assert "not now: the topics of the link on west cannot be read" in shown
    assert b"eomirror_lag_records{" not in made.answer(Request(("metrics",))).body
    assert "cannot be read now" in page(made)
    # the target first, then what was wrong when it was last read
    todo = page(made).partition('id="now"')[2].partition("</section>")[0]
    assert todo.index("no way to west") < todo.index("when it was last read: topic halt")


def test_a_link_that_cannot_be_read_is_unknown_with_its_reason() -> None:
    """Also for an error that nothing foresaw, whose text stays in the log."""
    text = page(served(UnreachableError("no way to west", fix="check it")))
    assert "no way to west" in text
    assert "What to do: check it" in text
    text = page(served(ValueError("a detail")))
    assert "reading its topics fails: ValueError" in text
    assert "a detail" not in text


def test_what_was_not_read_is_not_told_as_absent() -> None:
    """A target that does not answer may hold an owner, comparisons and events."""
    made = served(UnreachableError("no way to west", fix="check it"))
    shown = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)", page(made, "links", "east->west")))
    for name in ("lag", "rate", "last commit", "verified", "owner", "state"):
        assert shown[name] == "unknown", name
    assert "cluster west does not answer" in page(made, "links", "east->west")
    card = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)", page(made)))
    assert (card["lag"], card["rate"], card["topics"]) == ("unknown", "unknown", "unknown")


def test_an_open_transaction_of_the_source_is_listed() -> None:
    """Only one that is old enough to be more than work in progress."""
    parts = tuple(
        replace(PARTITION, topic=f"t{number}", open_records=7, open_seconds=seconds)
        for number, seconds in enumerate((1.0, 75.0, None))
    )
    text = page(served(replace(STATUS, partitions=parts)), "links", "east->west")
    assert "Open transactions on the source" in text
    shown = text.partition('id="open"')[2].partition("</section>")[0]
    assert "t1-0" in shown
    assert "(1 min ago)" in shown
    assert "t0-0" not in shown
    assert "find-hanging" in shown
    assert "Open transactions" not in page(served(STATUS), "links", "east->west")
    for opened, told in (
        (parts[1], "0 records, and 7 offsets behind open transactions"),
        (parts[0], "caught up"),
    ):
        calm = replace(opened, lag_records=0, lag_seconds=0.0)
        made = served(replace(STATUS, partitions=(calm,), lag_records=0, lag_seconds=0.0, stopped=()))
        for path in ((), ("links", "east->west")):
            assert f"lag</dt><dd>{told}" in page(made, *path).replace("0 records: caught up", "caught up")


def test_every_text_has_contrast() -> None:
    """4.5 to 1, as WCAG 2 asks for, on the page and on a card, in light and dark."""
    style = served(STATUS).answer(Request(("style.css",))).body.decode()
    schemes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", part)) for part in re.findall(r":root {([^}]*)}", style)
    ]
    assert len(schemes) == 2
    for colours in schemes:
        for name in ("fg", "soft", "ok", "warn", "bad", "link"):
            for behind in ("bg", "card"):
                light, dark = sorted((_luminance(colours[name]), _luminance(colours[behind])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, behind)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(each * 2 for each in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_fence_that_stands_is_told_with_the_command_that_lifts_it() -> None:
    """All producers are denied and nothing else shows it; of a promoted link it is no task, but stays on its page."""
    for state, tasks in (("running", 1), ("stopped", 1), ("promoted", 0)):
        fenced = replace(STATUS, state=state, fence=fence())
        shown = page(served(fenced), "links", "east->west")
        assert "the fence (acl) stands since 2020-09-13T12:26:40Z, by h7" in shown
        assert all(word in shown for word in ("unfence", "CONFIG", "--link"))
        assert todo(fenced).count("stands since 2020-09-13T12:26:40Z, by h7") == tasks
    assert "stands since" not in page(served(STATUS), "links", "east->west")


def test_a_sink_that_is_found_later_is_shown_like_a_link() -> None:
    """It has pages, metrics and data, and its links do not wait for it."""
    sink = sink_facts(sink_link("a", "west"))
    status = LinkStatus(
        link=sink.name, state="running", lag_records=4, partitions=(PARTITION,), remark="7 rows"
    )
    made = PolledEndpoints({}, version="1", sinks=lambda: {sink: lambda: Reader(status)})
    assert made.answer(Request(("readyz",))).status == 200
    made.start()
    end = time.monotonic() + 30
    while not made.judged():
        assert time.monotonic() < end
        time.sleep(0.005)
    made.close()

    assert "7 rows" in page(made, "links", sink.name)
    assert sink.name in page(made)
    assert orjson.loads(made.answer(Request(("api", "v1", "links", sink.name))).body)["lag_records"] == 4
    assert b'eomirror_lag_records{link="sink a on west"' in made.answer(Request(("metrics",))).body
    assert made.answer(Request(("readyz",))).status == 200
