"""Health of a running mirror: alive while the driver's loop moves, ready while all links run."""

from __future__ import annotations

import gzip
import http.client
import re
import time
from dataclasses import replace
from typing import Any

import orjson
import pytest

from eomirror.config import Link
from eomirror.errors import UnreachableError
from eomirror.lane.spec import StoppedTopic
from eomirror.plane.protocol import Serving
from eomirror.records.reports import StandbyProcess
from eomirror.serve.http import Address, HttpServer, Request
from eomirror.serve.running import STUCK_SECONDS, RunningEndpoints
from eomirror.status.derive import unread_status
from eomirror.status.model import LaneStatus, LinkStatus, OwnerStatus, PartitionStatus
from eomirror.status.repeated_reader import TopicsRead
from eomirror.status.snapshot import LinkSnapshot, Snapshot, TopicSnapshot
from eomirror.status.work import LaneWork

STOPPED = (
    TopicSnapshot(
        topic="bad", target_topic="b.bad", partitions=(), lag_records=0, lag_seconds=0.0,
        stopped=StoppedTopic("recreated", "adopt it", 4),
    ),
)  # fmt: skip


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> _Clock:
    """A clock that stands still."""
    return _Clock()


@pytest.fixture
def endpoints(clock: _Clock) -> RunningEndpoints:
    """Endpoints of two links."""
    links = [Link(name=name, source="a", target=name, topics=(".*",)) for name in ("b", "c")]
    return RunningEndpoints(links, version="1", clock=clock)


def states(**links: str) -> Snapshot:
    """A snapshot with the links in these states."""
    return Snapshot(seconds=1, links=tuple(LinkSnapshot(link=name, state=links[name]) for name in links))


def ask(endpoints: RunningEndpoints, *path: str) -> tuple[int, dict[str, object]]:
    """Status and JSON of an answer."""
    answer = endpoints.answer(Request(path))
    return answer.status, orjson.loads(answer.body)


def test_it_is_ready_when_all_links_run(endpoints: RunningEndpoints) -> None:
    """Not before the first snapshot, and not while one link waits."""
    assert ask(endpoints, "readyz") == (503, {"ready": False, "links": {"b": "starting", "c": "starting"}})
    endpoints.update(states(b="running", c="waiting"))
    assert ask(endpoints, "readyz")[0] == 503
    endpoints.update(states(b="running", c="paused"))
    assert ask(endpoints, "ready") == (200, {"ready": True, "links": {"b": "unknown", "c": "paused"}})


@pytest.mark.parametrize(
    ("link", "word"),
    [
        (LinkSnapshot(link="c", state="running", source_failing_seconds=9.0), "source away"),
        (LinkSnapshot(link="c", state="running", claim_age_seconds=50.0), "target away"),
        (LinkSnapshot(link="c", state="running", lanes=(LaneStatus(lane=0, state="starting"),)), "starting"),
        (LinkSnapshot(link="c", state="failed", error="x"), "down"),
        (LinkSnapshot(link="c", state="running", topics=STOPPED, source_failing_seconds=9.0), "stopped"),
        (LinkSnapshot(link="c", state="running", topics=STOPPED, claim_age_seconds=50.0), "stopped"),
    ],
)
def test_it_is_not_ready_while_a_link_mirrors_nothing(
    endpoints: RunningEndpoints, link: LinkSnapshot, word: str
) -> None:
    """The body has the verdict that the page shows."""
    endpoints.update(Snapshot(seconds=1, links=(LinkSnapshot(link="b", state="paused"), link)))
    assert ask(endpoints, "readyz") == (503, {"ready": False, "links": {"b": "paused", "c": word}})


def test_a_stopped_topic_alone_alerts(endpoints: RunningEndpoints) -> None:
    """A restart does not help it, and the others are mirrored."""
    link = LinkSnapshot(link="c", state="running", topics=STOPPED)
    endpoints.update(Snapshot(seconds=1, links=(LinkSnapshot(link="b", state="paused"), link)))
    assert ask(endpoints, "readyz") == (200, {"ready": True, "links": {"b": "paused", "c": "stopped"}})


def test_it_is_alive_while_the_loop_moves(endpoints: RunningEndpoints, clock: _Clock) -> None:
    """A loop that stands still is worth a restart."""
    assert ask(endpoints, "livez")[0] == 200
    clock.now += STUCK_SECONDS + 1
    assert ask(endpoints, "livez") == (503, {"alive": False, "loop_age_seconds": STUCK_SECONDS + 1})
    endpoints.update(states(b="waiting", c="failed"))
    assert ask(endpoints, "health")[0] == 200


def test_metrics_before_the_first_snapshot_name_the_process(endpoints: RunningEndpoints) -> None:
    """A scrape during the start is an answer."""
    answer = endpoints.answer(Request(("metrics",)))
    assert answer.status == 200
    assert b"process_resident_memory_bytes" in answer.body
    assert b"eomirror_link_state" not in answer.body


def test_a_scrape_is_compressed_as_prometheus_asks_for_it(endpoints: RunningEndpoints) -> None:
    """In both formats: of thousands of topics it would be megabytes."""
    endpoints.update(states(b="running", c="running"))
    server = HttpServer(Address("127.0.0.1", 0), endpoints.answer)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        for accept in ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", "text/plain"):
            connection.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            body = answer.read()
            assert answer.getheader("Content-Encoding") == "gzip"
            text = gzip.decompress(body)
            assert b'eomirror_link_state{link="c",state="running"} 1' in text
            assert len(body) < len(text) / 4
    finally:
        connection.close()
        server.close()


def test_the_last_commit_is_that_of_the_driver(endpoints: RunningEndpoints, clock: _Clock) -> None:
    """The topics are read every ten seconds; the driver hears of a commit at once."""

    def after(committed: int) -> object:
        lane = LaneStatus(lane=0, state="open", work=LaneWork(committed=committed))
        endpoints.update(Snapshot(seconds=1, links=(LinkSnapshot(link="b", state="running", lanes=(lane,)),)))
        return ask(endpoints, "api", "v1", "links", "b")[1]["last_commit"]

    assert after(0) is None
    clock.now += 2
    assert after(1) == 102_000
    clock.now += 2
    assert after(1) == 102_000


def test_a_source_that_the_lanes_hear_is_not_told_as_away(endpoints: RunningEndpoints, clock: _Clock) -> None:
    """While the target is away, the reader of the topics asks neither."""
    link = LinkSnapshot(link="b", state="running", away="cluster b: no answer", source_age_seconds=6.0)
    endpoints.update(Snapshot(seconds=1, links=(link,)))
    read = LinkStatus(link="b", state="running", source_seconds=0.004, target_seconds=0.004)
    kept = unread_status("b", read, UnreachableError("cluster b: no answer", fix="check it"))
    endpoints._topics["b"] = TopicsRead(kept, 1.0, clock.now, clock.now - 40, failed=True)
    page = endpoints.answer(Request(("links", "b"))).body.decode()
    speed = page.partition('id="speed"')[2].partition("</section>")[0]
    assert "source, a</dt><dd>answers: lanes heard it 5.0 s ago" in speed
    assert "target, b</dt><dd>does not answer" in speed
    assert "Events, gaps, groups and comparisons were read 40.0 s ago" in page


def test_a_process_that_stands_by_shows_the_link_as_its_topics_do(
    endpoints: RunningEndpoints, clock: _Clock
) -> None:
    """Another mirror runs it: page and health tell of that one, and who would take it over."""
    endpoints.update(states(b="standby", c="running"))
    assert ask(endpoints, "readyz")[1]["links"] == {"b": "starting", "c": "unknown"}
    process = StandbyProcess(run="r", host="second.example", pid=7, since=0, interval_ms=10_000, timestamp=0)
    status = LinkStatus(
        link="b", state="running", owner=OwnerStatus(run="0" * 22, host="first.example", pid=9), lag_records=0,
        lag_seconds=0.0, standbys=(process,),
    )  # fmt: skip
    endpoints._topics["b"] = TopicsRead(status, 0.1, clock.now, clock.now)
    clock.now += 5
    assert ask(endpoints, "readyz") == (200, {"ready": True, "links": {"b": "ok", "c": "unknown"}})
    page = endpoints.answer(Request(("links", "b"))).body.decode()
    assert "first.example, process 9" in page
    assert re.search(r"stands by.*second\.example, process 7", page, re.DOTALL)


def test_another_path_is_not_found(endpoints: RunningEndpoints) -> None:
    """The answer repeats nothing of the request."""
    answer = endpoints.answer(Request(("<script>",)))
    assert (answer.status, answer.content_type) == (404, "text/html; charset=utf-8")
    assert b"No such page" in answer.body
    assert b"script>" not in answer.body.replace(b'<script src="/page.js" defer></script>', b"")
    assert ask(endpoints, "api", "<script>") == (404, {"error": "no such path"})


def test_the_page_tells_which_cluster_is_slow(endpoints: RunningEndpoints, clock: _Clock) -> None:
    """By the answers to the thread that reads the topics, beside what the lanes measured."""
    endpoints.update(states(b="running", c="running"))
    page = endpoints.answer(Request(("links", "b"))).body.decode()
    assert page.count("not asked yet") == 2
    read = LinkStatus(link="c", state="running", source_seconds=0.004, target_seconds=0.45)
    endpoints._topics["c"] = TopicsRead(read, 0.1, 100.0, 100.0)
    clock.now += 2
    page = endpoints.answer(Request(("links", "c"))).body.decode()
    speed = page.partition('id="speed"')[2].partition("</section>")[0]
    assert re.search(r"source, a</dt><dd><span[^>]*>.*?fast</span> answers in less than 10 ms", speed)
    assert re.search(r"target, c</dt><dd><span[^>]*>.*?slow</span> answers in 300 ms to 1\.0 s", speed)
    assert "last commit on the target" in speed


def test_a_lag_that_is_unknown_says_why(endpoints: RunningEndpoints, clock: _Clock) -> None:
    """As the driver tells, or because the source has not answered it; a run that ended as caught up knows its lag."""
    item = PartitionStatus(
        topic="orders",
        partition=0,
        target_topic="o",
        lane=1,
        position=7,
        source_lso=7,
        lag_records=0,
        lag_seconds=0.0,
    )

    def reason(item: PartitionStatus, **facts: Any) -> object:
        clock.now += 2
        topic = TopicSnapshot(
            topic="orders",
            target_topic="o",
            partitions=(item,),
            lag_records=item.lag_records,
            lag_seconds=0.0,
        )
        link = LinkSnapshot(
            link="b", state="running", topics=(topic,), lag_records=item.lag_records, lag_seconds=0.0, **facts
        )
        endpoints.update(Snapshot(seconds=1, links=(link,)))
        return ask(endpoints, "api", "v1", "links", "b")[1]["reason"]

    unknown = "the lag of topic orders is unknown: "
    silent = replace(item, source_lso=None, lag_records=None)
    why = "orders-0: lane 1 has not reported for 12 s"
    assert reason(silent, lag_unknown=why, source_age_seconds=1.0) == unknown + why
    assert reason(item) == unknown + "a has not answered the driver yet"
    assert reason(item, source_age_seconds=20.0) == unknown + "a has not answered the driver for 20 s"
    assert unknown not in str(reason(item, source_age_seconds=20.0, caught_up=True))


def test_the_history_of_a_mirror_grows_while_no_client_asks(
    endpoints: RunningEndpoints, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who opens the page after an outage sees how it began; the time of a commit is known here."""
    monkeypatch.setattr("eomirror.serve.running.SAMPLE_SECONDS", 0.001)
    lane = LaneStatus(lane=0, state="fetching", serving=Serving("native"))
    for link in ("b", "c"):
        assert ask(endpoints, "api", "v1", "links", link)[0] == 404
    running = LinkSnapshot(
        link="b", state="running", lanes=(lane,), lag_records=5, lag_seconds=0.5, records_per_second=70.0,
        commit_ms=20, source_age_seconds=1.0,
    )  # fmt: skip
    endpoints.update(Snapshot(seconds=1, links=(running, replace(running, link="c"))))
    endpoints.start()
    seen: list[object] = []
    try:
        for _ in range(2_000):
            if seen:
                break
            clock.now += 10
            time.sleep(0.01)
            # the ring itself: a request would be a look of its own
            seen = endpoints._endpoints._history["b"].link(clock.now)["hour"]["rate"]
    finally:
        endpoints.close()
    history = endpoints._endpoints._history["b"].link(clock.now)["hour"]
    assert 70.0 in history["rate"]
    assert 0.02 in history["commit_seconds"]
