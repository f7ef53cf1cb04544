"""
The cost of scraping a real mirror: CPU of its driver while it answers `/metrics`.

The kernel counts the CPU time of a process in nanoseconds.  It is read before and after each scrape, and over a quiet
time of the same length behind it, because a driver does more than answer::

    | scrape | as long without one | wait | scrape | as long without one | wait | ...

The difference of both medians belongs to a scrape.  Scrapes come more often than a Prometheus sends them, but never
twice for one look at the links; the share of a core is given for one every 5 s.
"""

from __future__ import annotations

import gzip
import http.client
import json
import re
import sys
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.process import MirrorProcess
from eomirror.localkafka.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.peers.process import Site

__all__ = ["ScrapeCost", "cpu_seconds", "measure_scrape", "scrape_markdown"]

_START_SECONDS = 300.0
#: Usual time between two scrapes.
_USUAL_SECONDS = 5.0
# the endpoints look at the links once a second
_DENSE_SECONDS = 1.2
_RECORDS_PER_SECOND = 200
_AT_ONCE = 50
# of the kernel's posix-timers.h: the scheduler's clock, in nanoseconds
_CPUCLOCK_SCHED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeCost:
    """
    Cost of `/metrics` of a running mirror.

    Attributes:
        partitions: Mirrored partitions.
        topics: Mirrored topics.
        plane: Its data plane.
        scrapes: Scrapes that were measured.
        cpu_ms: CPU of one scrape, quiet times subtracted: of medians.
        most_cpu_ms: The same of the 90th percentile, without subtraction.
        answer_ms: Median time of an answer.
        text_bytes: Size of the text.
        sent_bytes: Size of the answer, compressed.
        driver_percent: CPU of the driver without scrapes, in percent of one core.
    """

    partitions: int
    topics: int
    plane: str
    scrapes: int
    cpu_ms: float
    most_cpu_ms: float
    answer_ms: float
    text_bytes: int
    sent_bytes: int
    driver_percent: float

    @property
    def percent(self) -> float:
        """Share of one core of a scrape every 5 s, in percent."""
        return self.cpu_ms / 1000 / _USUAL_SECONDS * 100

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"percent_every_5_s": round(self.percent, 3)}


def scrape_markdown(found: ScrapeCost) -> str:
    """A table for a report."""
    return "\n".join([
        f"| {found.partitions:,} partitions in {found.topics:,} topics, {found.plane} plane | |",
        "|---|---:|",
        f"| CPU of one scrape, median of {found.scrapes} | {found.cpu_ms:.1f} ms |",
        f"| 90th percentile, with what else the driver did | {found.most_cpu_ms:.1f} ms |",
        f"| one scrape every {_USUAL_SECONDS:g} s, of one core | {found.percent:.2f} % |",
        f"| answer, median | {found.answer_ms:.0f} ms |",
        f"| text, compressed | {found.text_bytes / 1e6:.2f} MB, {found.sent_bytes / 1e3:.0f} kB |",
        f"| driver without scrapes, of one core | {found.driver_percent:.1f} % |",
    ])  # fmt: skip


def measure_scrape(
    site: Site,
    *,
    partitions: int,
    topics: int,
    plane: str,
    scrapes: int,
    say: Callable[[str], None],
) -> ScrapeCost:
    """
    Mirrors a trickle into all partitions, and measures the driver.

    Raises:
        TimeoutError: The mirror has not caught up in time.
        MirrorEndedError: It ended on its own.
    """
    names = [f"scraped-{number:04}" for number in range(topics)]
    each_topic = -(-partitions // topics)
    say(f"creating {topics} topics of {each_topic} partitions")
    _create(site.source, names, each_topic)
    (port,) = free_ports(1)
    path = site.folder / "scraped.yaml"
    # JSON is YAML
    path.write_text(json.dumps({
        "clusters": {
            "scraped": {"bootstrap.servers": site.source},
            "target": {"bootstrap.servers": site.target},
        },
        "links": [{"source": "scraped", "target": "target", "topics": ["scraped-.*"]}],
        "defaults": {"lanes": 2, "plane": plane, "groups": []},
    }))  # fmt: skip
    command = [sys.executable, "-m", "eomirror", "run", str(path), "--listen", f"127.0.0.1:{port}"]
    with (
        MirrorProcess("scraped", command, folder=site.folder) as process,
        _trickle(site.source, names, each_topic),
    ):
        say("starting the mirror")
        _await(process, port, topics)
        say(f"measuring {scrapes} scrapes")
        began, before = time.monotonic(), cpu_seconds(process.pid)
        made = [_measured(process.pid, port) for _ in range(scrapes)]
        took, used = time.monotonic() - began, cpu_seconds(process.pid) - before
        process.check()
    used_by_scrapes = sum(each.with_scrape - each.without for each in made)
    return ScrapeCost(
        partitions=each_topic * topics,
        topics=topics,
        plane=plane,
        scrapes=len(made),
        cpu_ms=round(
            (median(one.with_scrape for one in made) - median(one.without for one in made)) * 1000, 2
        ),
        most_cpu_ms=round(quantiles([one.with_scrape for one in made], n=10)[-1] * 1000, 2),
        answer_ms=round(median(one.answer for one in made) * 1000, 1),
        text_bytes=max(one.text_bytes for one in made),
        sent_bytes=max(one.sent_bytes for one in made),
        driver_percent=round((used - used_by_scrapes) / took * 100, 2),
    )


@dataclass(frozen=True, slots=True)
class _Scrape:
    """CPU of the driver during a scrape and during as long a time without one, the time of the answer, and sizes."""

    with_scrape: float
    without: float
    answer: float
    text_bytes: int
    sent_bytes: int


def _measured(pid: int, port: int) -> _Scrape:
    begin = time.monotonic()
    before = cpu_seconds(pid)
    answer, text_bytes, sent_bytes = _scrape(port)
    between = cpu_seconds(pid)
    time.sleep(answer)
    after = cpu_seconds(pid)
    time.sleep(max(0.0, begin + _DENSE_SECONDS - time.monotonic()))
    return _Scrape(between - before, after - between, answer, text_bytes, sent_bytes)


def cpu_seconds(pid: int) -> float:
    """Returns the CPU seconds of a process, threads that have ended included: clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def _scrape(port: int) -> tuple[float, int, int]:
    """Reads `/metrics` as Prometheus does."""
    began = time.monotonic()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        accepted = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
        connection.request("GET", "/metrics", headers=accepted)
        answer = connection.getresponse()
        body = answer.read()
    took = time.monotonic() - began
    text = gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
    return took, len(text), len(body)


def _await(process: MirrorProcess, port: int, topics: int) -> None:
    """Waits until every topic is scraped, with a known lag of few records."""
    until = time.monotonic() + _START_SECONDS
    while True:
        process.check()
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
        except OSError:
            text = ""
        lags = re.findall(r"^eomirror_lag_records\{.*\} (\S+)$", text, re.MULTILINE)
        if len(lags) == topics and sum(map(float, lags)) < _RECORDS_PER_SECOND * _USUAL_SECONDS:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"the mirror has not caught up in {_START_SECONDS:g} s:\n{process.log_tail()}")
        time.sleep(1.0)


@contextmanager
def _trickle(servers: str, names: Sequence[str], partitions: int) -> Iterator[None]:
    """Writes a few hundred records a second to all partitions in turn."""
    over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "log_level": 3})
        number = 0
        while not over.wait(1 / 20):
            for _ in range(_RECORDS_PER_SECOND // 20):
                topic = names[number % len(names)]
                producer.produce(topic, b"x" * 100, partition=number // len(names) % partitions)
                number += 1
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=write, name="trickle", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _create(servers: str, names: Sequence[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    for first in range(0, len(names), _AT_ONCE):
        new = [NewTopic(name, partitions, 1) for name in names[first : first + _AT_ONCE]]
        for future in admin.create_topics(new).values():
            future.result(120)
