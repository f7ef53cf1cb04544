"""
Records that the source deletes before they are mirrored (fault F18), and logs with holes that lost nothing.

A gap is a log start beyond the position; compaction, markers and aborted ranges make offsets jump without one.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.links.link import TestLink
from support.links.plane import kafka_of
from support.traffic.records import Record, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.judges.ledger import Entry

pytestmark = [pytest.mark.faults, pytest.mark.fault("F18"), pytest.mark.integration, pytest.mark.spark]


def offset_of(properties: Mapping[str, Any], topic: str, which: OffsetSpec) -> int:
    """First offset of a partition, or its high watermark."""
    partition = TopicPartition(topic, 0)
    found = AdminClient(dict(properties)).list_offsets({partition: which})
    return int(found[partition].result(30).offset)


def delete_records(properties: Mapping[str, Any], topic: str, before: int) -> None:
    """Delete what lies before an offset, as retention does."""
    admin = AdminClient(dict(properties))
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(30)


def gaps(link: TestLink) -> list[tuple[int, int]]:
    """Ranges of the accepted gaps that the control topic records."""
    (records,) = read_committed(link.west, f"eomirror.{link.name}.control").values()
    found = []
    for key, value, _, _ in records:
        names, body = orjson.loads(key or b"{}"), orjson.loads(value or b"{}")
        if "from" in {**names, **body}:
            both = {**names, **body}
            found.append((both["from"], both["to"]))
    return found


def test_a_gap_while_the_mirror_does_not_run(link: TestLink) -> None:
    """EO-6: exit code 4 with the exact range; others go on; a log start at the position is none."""
    link.create("lost", "edge", "healthy")
    for word in ("lost", "edge", "healthy"):
        link.write(word, 100, abort_every=0)
    link.catch_up()
    for word in ("lost", "edge", "healthy"):
        link.write(word, 100, abort_every=0)
    # 100 records and 2 markers, twice
    delete_records(link.east, link.topic("lost"), 150)
    delete_records(link.east, link.topic("edge"), 102)
    link.entry.injected(2)

    code, stopped = link.stopped()

    assert code == 4
    assert set(stopped) == {"lost"}
    assert f"{link.topic('lost')}-0: the source deleted offsets [102, 150)" in stopped["lost"]
    link.check("edge", "healthy")
    link.entry.records += 100
    assert link.found("lost")[0] == link.written["lost"][0][:100]


@pytest.mark.parametrize("on_gap", [pytest.param("stop", marks=pytest.mark.slow), "accept"])
def test_a_gap_under_a_running_mirror(link: TestLink, on_gap: str) -> None:
    """EO-6: the mirror waits behind an open transaction, and what waits there is deleted; named, or recorded."""
    link.settings["on_gap"] = on_gap
    link.create("lost", "healthy")
    link.write("lost", 100, abort_every=0)
    held = Producer({**link.east, "transactional.id": f"{link.name}-held", "linger.ms": 0})
    held.init_transactions(30)
    with link.running() as run:
        run.wait(lambda: link.whole("lost"))
        held.begin_transaction()
        held.produce(link.topic("lost"), b"open", b"open", 0)
        held.flush(30)
        link.write("lost", 100, abort_every=0)
        link.write("healthy")
        run.wait(lambda: link.whole("healthy"))
        # 100 records and 2 markers are mirrored; the open record is at 102
        delete_records(link.east, link.topic("lost"), 153)
        link.entry.injected()
        if on_gap == "stop":
            text = run.wait(lambda: run.stopped.get(link.topic("lost")))
            assert "the source deleted offsets [102, 153)" in text
            link.write("healthy")
            run.wait(lambda: link.whole("healthy"))
            held.abort_transaction(30)
        else:
            run.wait(lambda: gaps(link))
            assert gaps(link) == [(102, 153)]
            held.abort_transaction(30)
            del link.written["lost"][0][100:150]
            run.wait(lambda: link.whole("lost"))
    link.check("healthy")
    if on_gap == "stop":
        link.entry.records += 100
        assert link.found("lost")[0] == link.written["lost"][0][:100]
    else:
        link.check("lost")


RUNS = 24
# so many run in CI
_QUICK = 1


@pytest.fixture(scope="module")
def compacting() -> Iterator[LocalCluster]:
    """A cluster whose cleaner looks for work all the time."""
    properties = {"log.cleaner.backoff.ms": "100"}
    with LocalCluster.start(
        ClusterSpec("compacting", properties=properties, kafka_version=kafka_of("east"))
    ) as cluster:
        yield cluster


def few_keys(rng: random.Random, count: int) -> list[Record]:
    """Records of few keys, some of them deleted: most will be compacted away."""
    return [
        (
            b"key-%d" % rng.randrange(20),
            None if rng.random() < 0.1 else rng.randbytes(rng.randrange(200)),
            1_600_000_000_000 + number,
            (),
        )
        for number in range(count)
    ]


def final_state(records: list[Record]) -> dict[bytes | None, Record]:
    """The last record of each key; what compaction must keep of it."""
    state: dict[bytes | None, Record] = {}
    for record in records:
        state[record[0]] = record
    return {key: record for key, record in state.items() if record[1] is not None}


@pytest.mark.parametrize(
    "number",
    [number if number < _QUICK else pytest.param(number, marks=pytest.mark.slow) for number in range(RUNS)],
)
def test_holes_that_lost_nothing_raise_no_alarm(
    number: int,
    compacting: LocalCluster,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    seed: int,
    entry: Entry,
) -> None:
    """Compaction, markers, aborted ranges at every place, and restarts between them: no gap, no stop, equal states."""
    rng = random.Random(f"{seed}/{number}")
    link = TestLink(compacting.client_properties, west.client_properties, topic_name, tmp_path, spark_context)
    link.create(
        "holes",
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms="0",
        delete_retention_ms="86400000",
    )
    for _ in range(rng.randrange(2, 4)):
        for _ in range(rng.randrange(1, 4)):
            link.write_these(
                "holes",
                few_keys(rng, rng.randrange(100, 600)),
                per_transaction=rng.choice((7, 50, 200)),
                abort_every=rng.choice((0, 1, 2, 5)),
            )
        if rng.random() < 0.7:
            await_compaction(link)
        code, stopped = link.stopped()
        assert (code, stopped) == (0, {}), f"seed {seed}/{number}"
    expected = final_state(link.written["holes"][0])
    entry.records += len(expected)
    assert final_state(link.found("holes")[0]) == expected, f"seed {seed}/{number}"


def await_compaction(link: TestLink) -> None:
    """Wait until fewer records than offsets are left, if there is anything to compact."""
    topic = link.topic("holes")
    if len(link.written["holes"][0]) < 200:
        return

    def is_compacted() -> bool:
        return len(read_committed(link.east, topic)[0]) < len(link.written["holes"][0])

    for _ in range(12):
        with contextlib.suppress(AssertionError):
            wait_for(is_compacted, 5)
            return
        # the newest segment is not compacted, and on a fast machine all may be in it
        link.write_these("holes", few_keys(random.Random(0), 1), abort_every=0)
    pytest.fail("the source does not compact")
