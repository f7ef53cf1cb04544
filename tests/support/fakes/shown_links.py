"""Links as an operator sees them, with a day of history, for pictures of the pages and for measuring them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from eomirror.plane.protocol import Serving
from eomirror.records.events import LinkEvent
from eomirror.serve.polled import PolledEndpoints
from eomirror.status.live import LinkFacts
from eomirror.status.model import (
    GroupsStatus,
    GroupStatus,
    LaneStatus,
    LinkStatus,
    OwnerStatus,
    PartitionStatus,
)
from support.fakes.status_records import stop

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Time of all pictures: 2026-11-25T09:30:00Z.
NOW_MS = 1_795_599_000_000
_NOW = 1_000_000.0
_TOPICS = ("orders", "payments", "customers", "shipments", "inventory", "audit", "clicks")


class StillClock:
    """A clock that stands, so that a picture is the same each time."""

    def monotonic(self) -> float:
        return _NOW

    def wall_ms(self) -> int:
        return NOW_MS

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Reader:
    def __init__(self, status: LinkStatus) -> None:
        self._status = status

    def read(self) -> LinkStatus:
        return self._status

    def close(self) -> None:
        pass


def running(source: str, target: str, *, rate: float = 420.0, lag: int = 12, topics: int = 7) -> LinkStatus:
    """A link that works; its first topic has the lag."""
    names = [
        _TOPICS[number] if number < len(_TOPICS) else f"team.events-{number:04}" for number in range(topics)
    ]
    return LinkStatus(
        link=f"{source}->{target}", state="running", generation=3, lag_records=lag,
        lag_seconds=lag / max(rate, 1.0), rate=rate, source_seconds=0.004, target_seconds=0.006,
        owner=OwnerStatus(run=f"{NOW_MS - 7_200_000:012x}" + "0" * 20, host="mirror-1", pid=4711, released=False,
                          claim_age_seconds=1.0),
        lanes={number: LaneStatus(lane=number, partitions=4, epoch=7, attempt=1, serving=Serving("native"),
                                  host=f"worker-{number}", pid=900 + number, since=NOW_MS - 7_200_000)
               for number in range(3)},
        partitions=tuple(
            PartitionStatus(
                topic=topic, partition=number, target_topic=f"{source}.{topic}", lane=number % 3,
                position=120_000 + 977 * at, source_lso=120_000 + 977 * at + (lag if not at + number else 0),
                lag_records=0 if at + number else lag, lag_seconds=0.0 if at + number else lag / max(rate, 1.0),
                records=118_000 + 977 * at, rate=rate / topics / 4, last_commit=NOW_MS - 2_000,
            )
            for at, topic in enumerate(names) for number in range(4)
        ),
        groups=GroupsStatus(followed=2, offsets=12, last_checkpoint=NOW_MS - 4_000, by_group=tuple(
            GroupStatus(group=group, offsets=6, last_checkpoint=NOW_MS - 4_000, lag_records=behind)
            for group, behind in (("billing", 40), ("reports", 18_211)))),
        events=(
            LinkEvent(NOW_MS - 9 * 3_600_000, "silent", "the mirror, process 4702 on host mirror-1, was killed"),
            LinkEvent(NOW_MS - 9 * 3_600_000 + 40_000, "take-over", "process 4711 on host mirror-1 took the link"),
        ),
    )  # fmt: skip


def stopped(status: LinkStatus) -> LinkStatus:
    """The same link with a topic that was created again on its source."""
    topic = status.partitions[-1].topic
    reason = f"{topic}-0 was created again: its source ends at 77, before position {status.partitions[-1].position}"
    fix = (
        f"compare, then stop the mirror and start it once with `eomirror run CONFIG --resume-at {topic}-0=0`"
    )
    return replace(
        status,
        lag_records=None,
        lag_seconds=None,
        stopped=(stop(topic, reason, fix, timestamp=NOW_MS - 900_000),),
        partitions=tuple(
            replace(item, stopped=True, problem=reason, fix=fix, lag_records=None, lag_seconds=None, rate=0.0)
            if item.topic == topic
            else item
            for item in status.partitions
        ),
    )


def source_away(status: LinkStatus) -> LinkStatus:
    """The same link while its source does not answer."""
    return replace(
        status, away=("source",), lag_records=None, lag_seconds=None, rate=0.0, problem="no broker of it answers",
        fix="check bootstrap.servers, the brokers, the credentials and the network", source_seconds=None,
        known_lost=12, source_seen_seconds=75.0, last_rate=400.0,
        partitions=tuple(replace(item, lag_records=None, lag_seconds=None) for item in status.partitions),
    )  # fmt: skip


def down(status: LinkStatus) -> LinkStatus:
    """The same link after its mirror was killed."""
    assert status.owner is not None
    owner = replace(status.owner, claim_age_seconds=95.0, claimed_at=NOW_MS - 95_000)
    return replace(status, state="silent", owner=owner, lag_records=41_200, lag_seconds=98.0, rate=0.0)


def many(number: int, *, broken: bool = True) -> list[LinkStatus]:
    """So many links: two clusters that mirror each other, a chain and a hub, then branches; some are broken."""
    pairs = [
        ("east", "west"),
        ("west", "east"),
        ("west", "archive"),
        ("east", "analytics"),
        ("edge-1", "east"),
    ]
    pairs += [(f"edge-{each}", ("east", "west")[each % 2]) for each in range(2, 100)]
    found = [running(*pair, rate=90.0 + 37 * at, lag=at % 5 * 3) for at, pair in enumerate(pairs[:number])]
    if broken:
        for at, change in ((2, stopped), (3, source_away), (4, down), (30, stopped)):
            if at < number:
                found[at] = change(found[at])
    return found


def served(links: list[LinkStatus], *, answers: Mapping[str, object] | None = None) -> PolledEndpoints:
    """Endpoints that have read these links once, and have a history of a day."""
    facts = [LinkFacts(each.link, *each.link.split("->"), "prefix", "auto") for each in links]
    made = PolledEndpoints(
        {one: lambda status=status: _Reader(status) for one, status in zip(facts, links, strict=True)},  # type: ignore[misc]
        version="0.1.0", clock=StillClock(), queries=answers,  # type: ignore[arg-type]  a fake
    )  # fmt: skip
    for status in links:
        _remember(made, status)
    made.start()
    end = time.monotonic() + 30
    while len(made.judged()) < len(links):
        assert time.monotonic() < end
        time.sleep(0.005)
    made.close()
    for each in made.judged():
        # `serve` does not know the time of a commit; a running mirror does
        link = SimpleNamespace(
            status=each.status, topic_rows=each.topic_rows, work=SimpleNamespace(commit_seconds=0.014)
        )
        made._endpoints._history[each.name].add(link, _NOW)  # type: ignore[arg-type]
    return made


def _remember(made: PolledEndpoints, status: LinkStatus) -> None:
    history = made._endpoints._history[status.link]
    topics = sorted({item.topic for item in status.partitions})[:7]
    for ago in range(86_400, 3_600, -60):
        _add(history, status, topics, ago)
    for ago in range(3_600, 0, -10):
        _add(history, status, topics, ago)


def _add(history: object, status: LinkStatus, topics: list[str], ago: int) -> None:
    daily = 1 + 0.6 * math.sin(2 * math.pi * (_NOW - ago - 21_600) / 86_400)
    noise = 0.9 + 0.2 * ((ago // 10 * 7_919) % 101) / 101
    rate = (status.rate or 300.0) * daily * noise
    outage = 32_400 - 600 < ago < 32_400
    backlog = 31_000 < ago < 31_800
    lag = None if outage else 9_000 * (ago - 31_000) / 800 if backlog else (ago // 10 * 31) % 40
    if 1_500 < ago < 1_800:
        lag = 1_200 * (1 - abs(ago - 1_650) / 150)
    history.add(  # type: ignore[attr-defined]
        SimpleNamespace(
            status=SimpleNamespace(
                unread=outage, lag_records=lag, lag_seconds=None if lag is None else lag / rate, rate=rate
            ),
            work=SimpleNamespace(commit_seconds=0.008 + 0.004 * noise * daily),
            topic_rows=[
                SimpleNamespace(
                    topic=topic, lag_records=None if lag is None else int(lag / (at + 1)), rate=rate / (at + 2),
                    lag_seconds=None if lag is None else lag / rate / (at + 1),
                )
                for at, topic in enumerate(topics)
            ],
        ),
        _NOW - ago,
    )  # fmt: skip
