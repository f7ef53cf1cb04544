"""
Twelve faults, each named within 15 s by pages, metrics and an alert rule, with what to do.

They are looked at where an operator looks: the page and `/metrics` of `run --listen` and of `serve`, and the
expressions of the shipped rules on what was scraped, without their ``for`` and with short thresholds of ages.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ResourceType

from support.links.link import alter_topic
from support.links.watched_links import PASSWORD, RUN, SERVE, WatchedLinks, watched_links
from support.traffic.records import create_topic, delete_topic, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(480),
]  # fmt: skip

log = logging.getLogger(__name__)

#: What is promised.  The assertion allows more, for a machine that does much else; the figures are printed.
SECONDS = 15.0
_ALLOWED = 3 * SECONDS

_VERDICT = "eomirror_link_verdict"


@dataclass(frozen=True)
class Fault:
    """
    A fault of one link.

    Attributes:
        inject: Makes it; yields the monotonic time at which it was there, or None for the time before.
        alerts: Alert by place.
        words: What the page says; by place, if they differ.
        series: Metric, labels and least value, by place.
        options: Settings of its link.
        slow: True if CI leaves it out.
    """

    inject: Callable[[WatchedLinks, str], AbstractContextManager[float | None]]
    alerts: dict[str, str]
    words: tuple[str, ...] | dict[str, tuple[str, ...]]
    series: dict[str, tuple[str, dict[str, str], float]]
    options: dict[str, Any] = field(default_factory=dict)
    slow: bool = True


def both(value: Any) -> dict[str, Any]:
    """The same in both places."""
    return {RUN: value, SERVE: value}


def verdict(word: str) -> tuple[str, dict[str, str], float]:
    """The series of a verdict."""
    return _VERDICT, {"verdict": word}, 1.0


@contextmanager
def recreated(links: WatchedLinks, name: str) -> Iterator[None]:
    """Its records must not be mixed with those of the topic before."""
    delete_topic(links.source.direct, links.topic(name))
    create_topic(links.source.direct, links.topic(name))
    links.write(name, 5)
    yield


def held_open(links: WatchedLinks, name: str) -> Producer:
    """A transaction of the source that does not end."""
    producer = Producer({
        **links.source.direct, "transactional.id": f"held-{name}", "linger.ms": 0, "transaction.timeout.ms": 600_000
    })  # fmt: skip
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(links.topic(name), b"open", b"open", 0)
    assert producer.flush(30) == 0
    return producer


@contextmanager
def open_transaction(links: WatchedLinks, name: str) -> Iterator[None]:
    """What follows it in its partition cannot be mirrored."""
    producer = held_open(links, name)
    links.write(name)
    try:
        yield
    finally:
        producer.abort_transaction(30)


@contextmanager
def gap(links: WatchedLinks, name: str) -> Iterator[float]:
    """Records that wait behind an open transaction are deleted."""
    producer = held_open(links, name)
    links.write(name)
    since = time.monotonic()
    admin = AdminClient(links.source.direct)
    for future in admin.delete_records([TopicPartition(links.topic(name), 0, 80)]).values():
        future.result(30)
    try:
        yield since
    finally:
        producer.abort_transaction(30)


@contextmanager
def refused_record(links: WatchedLinks, name: str) -> Iterator[None]:
    """The copy takes smaller records than the topic."""
    alter_topic(links.target.direct, f"east.{links.topic(name)}", max_message_bytes="2000")
    producer = Producer(links.source.direct)
    producer.produce(links.topic(name), b"large" * 2_000, b"large")
    assert producer.flush(30) == 0
    yield


@contextmanager
def revoked_right(links: WatchedLinks, name: str) -> Iterator[None]:
    """The mirror may not read the topic any more."""
    links.source.revoke(ResourceType.TOPIC, f"{name}.")
    try:
        yield
    finally:
        links.source.grant(ResourceType.TOPIC, f"{name}.")


@contextmanager
def superseded(links: WatchedLinks, name: str) -> Iterator[float]:
    """Another mirror takes the link; the fault is there when its claim is."""
    other = links.second("--link", name, "--take-over")
    try:
        other.start()

        def taken() -> float | None:
            events = links.data(SERVE, name).get("events", [])
            return next((event["at"] for event in events if event["kind"] == "take-over"), None)

        at = wait_for(taken, 120)
        # the start of Spark is not counted
        yield time.monotonic() - (time.time() - at / 1000)
    finally:
        other.close()


def frozen_lane(links: WatchedLinks, name: str) -> psutil.Process:
    """Freezes the process of the link's lane."""
    (lane,) = links.data(SERVE, name)["lanes"]
    worker = psutil.Process(lane["pid"])
    worker.suspend()
    return worker


@contextmanager
def stalled_lane(links: WatchedLinks, name: str) -> Iterator[float]:
    """The lane's process stands still while records wait."""
    worker = frozen_lane(links, name)
    links.write(name)
    try:
        yield time.monotonic()
    finally:
        worker.resume()


@contextmanager
def retention(links: WatchedLinks, name: str) -> Iterator[float]:
    """The source deletes what a lane that stands still has not mirrored."""
    worker = frozen_lane(links, name)
    links.write(name, 200)
    since = time.monotonic()
    alter_topic(links.source.direct, links.topic(name), retention_ms="1", segment_bytes="1048576")
    try:
        yield since
    finally:
        worker.resume()


@contextmanager
def killed(links: WatchedLinks, name: str) -> Iterator[float]:
    """SIGKILL to the mirror and all that it started."""
    del name
    links.mirror.kill()
    yield time.monotonic()


def stopped(side: str) -> Callable[[WatchedLinks, str], AbstractContextManager[float]]:
    """A cluster that is away."""

    @contextmanager
    def inject(links: WatchedLinks, name: str) -> Iterator[float]:
        del name
        cluster = getattr(links, side)
        cluster.kill()
        try:
            yield time.monotonic()
        finally:
            cluster.start()

    return inject


@contextmanager
def wrong_password(links: WatchedLinks, name: str) -> Iterator[float]:
    """The source's password was changed, and the connections were closed."""
    del name
    links.source.set_password("another")
    links.source.kill()
    links.source.start()
    try:
        yield time.monotonic()
    finally:
        links.source.set_password(PASSWORD)


_STOPPED = both(("eomirror_topic_stopped", {}, 1.0))

FAULTS: dict[str, Fault] = {
    "recreated": Fault(
        recreated, both("EomirrorTopicStopped"), ("■ stopped", "created again", "What to do:"), _STOPPED,
    ),
    "gap": Fault(
        gap, both("EomirrorTopicStopped"), ("■ stopped", "deleted offsets [", "What to do:"),
        both(("eomirror_stopped_topics", {"reason": "data_loss"}, 1.0)), slow=False,
    ),
    "accepted": Fault(
        gap, both("EomirrorDataGap"), ("Accepted gaps", "What to do:"), both(("eomirror_gap_records_total", {}, 1.0)),
        options={"on_gap": "accept"},
    ),
    "refused": Fault(
        refused_record, both("EomirrorTopicStopped"), ("■ stopped", "max.message.bytes", "What to do:"), _STOPPED,
        slow=False,
    ),
    "letters": Fault(
        refused_record, both("EomirrorDeadLetters"), ("Dead letters", "What to do:"),
        both(("eomirror_dead_letters_total", {}, 1.0)), options={"on_refused": "dead-letter"},
    ),
    "right": Fault(
        revoked_right, both("EomirrorTopicStopped"), ("■ stopped", "kafka-acls", "What to do:"), _STOPPED,
    ),
    "transaction": Fault(
        open_transaction, both("EomirrorOldOpenTransaction"), ("Open transactions on the source", "What to do:"),
        both(("eomirror_open_source_transactions", {}, 1.0)),
    ),
    "stalled": Fault(
        stalled_lane, both("EomirrorStalled"), ("‖ stalled", "What to do:"), both(verdict("stalled")),
    ),
    "retention": Fault(
        retention, both("EomirrorUnknown"), ("deleted offsets", "What to do:"),
        both(("eomirror_problem_partitions", {}, 1.0)),
    ),
    "superseded": Fault(
        superseded, both("EomirrorSuperseded"), {RUN: ("■ down", "is owned by run", "What to do: stop that mirror"),
        SERVE: ("Superseded", "What to do: if the first one was killed")},
        {RUN: ("eomirror_superseded_total", {}, 1.0), SERVE: ("eomirror_recent_take_overs", {}, 1.0)},
    ),
    "source-down": Fault(
        stopped("source"), both("EomirrorSourceUnreachable"),
        ("✗ source away", "cluster east", "check bootstrap.servers"),
        {RUN: ("eomirror_source_unreachable_seconds", {}, 3.0), SERVE: verdict("source away")},
    ),
    "target-down": Fault(
        stopped("target"), both("EomirrorTargetUnreachable"),
        ("✗ target away", "cluster west", "check bootstrap.servers"), both(verdict("target away")),
    ),
    "password": Fault(
        wrong_password, {RUN: "EomirrorSourceUnreachable", SERVE: "EomirrorUnknown"},
        {RUN: ("✗ source away", "cluster east", "What to do:", "sasl"),
         SERVE: ("? unknown", "cluster east", "What to do:", "sasl")},
        {RUN: ("eomirror_source_unreachable_seconds", {}, 3.0), SERVE: verdict("unknown")},
    ),
    "killed": Fault(
        killed, both("EomirrorMirrorDown"),
        ("■ down", "it was killed", "What to do: start the mirror: eomirror run CONFIG"),
        {RUN: ("up", {}, 0.0), SERVE: verdict("down")},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def links(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedLinks]:
    """One mirror for the faults that this session tests."""
    wanted = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
    ]
    options = {name: FAULTS[name].options for name in wanted}
    # a run ends when the last topic of its last link is stopped, and its page with it
    with watched_links(tmp_path_factory.mktemp("named"), [*wanted, "steady"], options) as rig:
        yield rig


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if fault.slow else []) for name, fault in FAULTS.items()],
)
def test_a_fault_is_named(links: WatchedLinks, name: str, record_property: Any) -> None:
    """By both pages with what to do, in both metrics, and by an alert, none of which was there before."""
    fault = FAULTS[name]
    links.start_mirror()
    links.healthy(name)
    before = {place: set(links.firing(place, name)) for place in fault.alerts}
    assert not {place for place, alert in fault.alerts.items() if alert in before[place]}, before
    started = time.monotonic()
    with fault.inject(links, name) as since:
        found = links.named(
            name,
            started if since is None else since,
            fault.alerts,
            fault.words if isinstance(fault.words, dict) else both(fault.words),
            fault.series,
            seconds=_ALLOWED,
        )
    record_property("named", str(found))
    log.info("named %s: %s", name, found)
