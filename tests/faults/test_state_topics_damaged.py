"""The positions topic is not what the mirror left (fault F21): a reason is given, and nothing starts from a guess."""

from __future__ import annotations

import orjson
import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from eomirror import load_config
from eomirror.errors import MirrorError, StateError
from eomirror.status.reader import StatusReader
from eomirror.types import SourcePartition
from support.links.link import TestLink, alter_topic
from support.traffic.records import create_topic, delete_topic, read_committed, wait_for

pytestmark = [
    pytest.mark.faults, pytest.mark.link(injected=True, lanes=1), pytest.mark.fault("F21"),
    pytest.mark.integration, pytest.mark.spark,
]  # fmt: skip


@pytest.fixture
def link(link: TestLink) -> TestLink:
    """A link whose topic has been mirrored in two runs, with more to mirror."""
    link.create("orders")
    for _ in range(2):
        link.write("orders", 100)
        link.catch_up()
    link.write("orders", 100)
    return link


def records_of(link: TestLink) -> list[tuple[bytes, bytes, int]]:
    """Key, value and partition of all position records of the topic, in log order."""
    found = read_committed(link.west, f"eomirror.{link.name}.positions")
    return [
        (key or b"", value or b"", number)
        for number, records in found.items()
        for key, value, _, _ in records
        if b'"topic"' in (key or b"")
    ]


def append(link: TestLink, key: bytes, value: bytes | None, partition: int) -> None:
    """Write into the positions topic, as only the mirror should."""
    producer = Producer(link.west)
    producer.produce(f"eomirror.{link.name}.positions", value, key, partition)
    assert producer.flush(30) == 0


DAMAGES = {
    "corrupt": (lambda _: b"\x00not json", "is not readable"),
    "unknown version": (lambda value: orjson.dumps({**orjson.loads(value), "v": 99}), "version 99"),
    "fields missing": (lambda _: orjson.dumps({"v": 1, "offset": 0}), "missing or invalid fields"),
}


@pytest.mark.parametrize(
    "damage",
    [name if name == "corrupt" else pytest.param(name, marks=pytest.mark.slow) for name in DAMAGES],
)
def test_a_damaged_position_is_named_and_adopted_over(link: TestLink, damage: str) -> None:
    """Nothing starts from a guess; the user says where to go on, and every record is there once."""
    harm, words = DAMAGES[damage]
    key, value, partition = records_of(link)[-1]
    end = orjson.loads(value)["offset"]
    before = link.found("orders")
    append(link, key, harm(value), partition)

    with pytest.raises(StateError, match=words) as raised:
        link.catch_up()

    assert f"eomirror.{link.name}.positions-{partition}@" in str(raised.value)
    assert link.found("orders") == before
    assert link.stopped(adopt={SourcePartition(link.topic("orders"), 0): end}) == (0, {})
    link.check("orders")
    assert link.stopped() == (0, {})
    link.check("orders")


def test_an_older_position_behind_a_newer_one_is_refused(link: TestLink) -> None:
    """An operator restored a record: it would mirror everything since then a second time."""
    of_last_run = [
        item
        for item in records_of(link)
        if orjson.loads(item[1])["generation"] == orjson.loads(records_of(link)[-1][1])["generation"]
    ]
    older = orjson.loads(of_last_run[-1][1])
    older["offset"] = older["prev"]
    append(link, of_last_run[-1][0], orjson.dumps(older), of_last_run[-1][2])
    before = link.found("orders")

    with pytest.raises(StateError, match="goes back"):
        link.catch_up()

    assert link.found("orders") == before


@pytest.mark.slow
def test_an_older_generation_behind_a_newer_one_is_not_believed(link: TestLink) -> None:
    """EO-3: the highest generation counts, wherever its record stands."""
    key, value, partition = records_of(link)[0]
    assert orjson.loads(value)["generation"] < orjson.loads(records_of(link)[-1][1])["generation"]
    append(link, key, value, partition)

    assert link.stopped() == (0, {})
    link.check("orders")


@pytest.mark.slow
def test_a_position_that_was_deleted_is_asked_for(link: TestLink) -> None:
    """Control knows the partition: without a position it is not started at 0."""
    key, _, _ = records_of(link)[-1]
    for partition in range(8):
        append(link, key, None, partition)
    before = link.found("orders")

    with pytest.raises(MirrorError, match="--resume-at"):
        link.catch_up()

    assert link.found("orders") == before


@pytest.mark.slow
@pytest.mark.parametrize("recreated", [False, True], ids=["deleted", "recreated"])
def test_a_positions_topic_that_is_gone_is_noticed(link: TestLink, recreated: bool) -> None:
    """Deleted, or created again empty by an operator: refused by name, the copy is left alone."""
    topic = f"eomirror.{link.name}.positions"
    delete_topic(link.west, topic)
    if recreated:
        create_topic(link.west, topic, 8, **{"cleanup.policy": "compact"})
    before = link.found("orders")

    with pytest.raises(MirrorError, match="--resume-at"):
        link.catch_up()

    assert link.found("orders") == before


def change_under_it(link: TestLink, topic: str, *, anew: bool) -> None:
    """As a tool does that keeps topics as its own list says: with the broker's default policy."""
    if anew:
        delete_topic(link.west, topic)
        create_topic(link.west, topic, 8, **{"cleanup.policy": "delete"})
    else:
        alter_topic(link.west, topic, cleanup_policy="delete")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check that runs each minute runs at every look for new topics."""
    monkeypatch.setattr("eomirror.topics.state_topics.CHECK_SECONDS", 0.0)
    monkeypatch.setattr("eomirror.driver.link.REFRESH_SECONDS", 0.5)


@pytest.mark.usefixtures("often")
def test_positions_that_are_created_anew_under_a_running_mirror_end_the_link(link: TestLink) -> None:
    """EO-5: what idle partitions know is gone; the link ends by name instead of going on without it."""
    topic = f"eomirror.{link.name}.positions"
    with link.running() as run:
        run.wait(lambda: link.whole("orders"))
        change_under_it(link, topic, anew=True)
        wait_for(lambda: run.error is not None, 60)

    assert isinstance(run.error, StateError)
    assert run.error.exit_code == 1
    assert f"topic {topic} was recreated" in run.error.message
    assert "under the running mirror" in run.error.message
    assert "--resume-at" in run.error.fix


@pytest.mark.usefixtures("often")
def test_a_policy_that_changes_under_a_running_mirror_is_an_event_each_time(link: TestLink) -> None:
    """It is said once for each change, shown by `status` while it lasts, and the mirror goes on."""
    topic = f"eomirror.{link.name}.positions"
    config = load_config(link.path)
    reader = StatusReader(config.links[0], config.clusters["east"], config.clusters["west"])
    with capture_logs() as logged, link.running() as run:

        def said(event: str) -> int:
            return sum(line["event"] == event and line["topic"] == topic for line in logged)

        run.wait(lambda: link.whole("orders"))
        for times in (1, 2):
            change_under_it(link, topic, anew=False)
            run.wait(lambda times=times: said("state_topic_drifted") == times)
            (shown,) = reader.read().drifted
            assert f"topic {topic} has cleanup.policy=delete" in shown
            alter_topic(link.west, topic, cleanup_policy="compact")
            run.wait(lambda times=times: said("state_topic_in_order") == times)
        assert reader.read().drifted == ()
        link.write("orders", 50)
        run.wait(lambda: link.whole("orders"))
    reader.close()

    link.check("orders")
    errors = [line for line in logged if line["event"] == "state_topic_drifted"]
    assert [line["log_level"] for line in errors] == ["error", "error"]
    assert "cleanup.policy=compact" in errors[0]["fix"]


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_an_offset_map_that_is_created_anew_is_named_and_the_mirror_goes_on(link: TestLink) -> None:
    """It serves readers; what is mirrored does not depend on it."""
    topic = f"eomirror.{link.name}.offset-map"
    with capture_logs() as logged, link.running() as run:
        run.wait(lambda: link.whole("orders"))
        change_under_it(link, topic, anew=True)
        run.wait(lambda: any(line["event"] == "state_topic_replaced" for line in logged))
        run.wait(lambda: any(line["event"] == "state_topic_drifted" for line in logged))
        link.write("orders", 50)
        run.wait(lambda: link.whole("orders"))

    link.check("orders")
    assert sum(line["event"] == "state_topic_replaced" for line in logged) == 1
