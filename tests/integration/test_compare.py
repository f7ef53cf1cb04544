"""The demo's judge on real brokers: it finds what is planted, and passes what is equal."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eomirror.demo.clients import AtLeastOnceCopier, Offsets, create_topic
from eomirror.demo.compare import Comparison, Revision
from eomirror.demo.scenario import CopierSpec, judge
from eomirror.demo.traffic import Record, TrafficPlan
from eomirror.demo.watch import TopicWatcher, Traffic
from support.traffic.records import wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.integration

PARTITIONS = 2
Records = list[Record]


def written(cluster: Any, topic: str, transactions: list[tuple[Records, bool]]) -> None:
    """Create a topic and write transactions to it, committed or aborted."""
    create_topic(cluster.client_properties, topic, PARTITIONS, retention_ms="-1")
    producer = Producer({**cluster.client_properties, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    for records, commit in transactions:
        producer.begin_transaction()
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def originals() -> list[tuple[Records, bool]]:
    """Four transactions, one of them aborted."""
    plan = TrafficPlan(seed=11, partitions=PARTITIONS, abort_every=4)
    ledger = plan.new_ledger()
    made = []
    for number in range(4):
        transaction = plan.transaction(number, ledger, sent_us=number, wall_ms=1_790_000_000_000)
        ledger.enter(transaction)
        made.append((list(transaction.records), transaction.commit))
    assert [commit for _, commit in made].count(False) == 1
    return made


def compared(east: Any, west: Any, topic: str, copy: list[tuple[Records, bool]]) -> Comparison:
    """Write both sides by hand, and judge them."""
    written(east, topic, originals())
    written(west, f"copy.{topic}", copy)
    watcher = TopicWatcher(west.client_properties, f"copy.{topic}", PARTITIONS)
    verdict = judge(
        east.client_properties, west.client_properties, topic, {f"copy.{topic}": watcher}, PARTITIONS
    )
    return verdict[f"copy.{topic}"][0]


def pair_in_one_partition(records: Records) -> tuple[int, int]:
    """Places of two records that follow each other in a partition."""
    first = 0
    return first, next(
        place for place in range(1, len(records)) if records[place].partition == records[first].partition
    )


def missing(records: Records) -> Records:
    return records[1:]


def duplicate(records: Records) -> Records:
    return [*records, records[3]]


def reordered(records: Records) -> Records:
    one, other = pair_in_one_partition(records)
    swapped = list(records)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    return swapped


def altered(**parts: Any) -> Callable[[Records], Records]:
    def alter(records: Records) -> Records:
        return [dataclasses.replace(records[0], **parts), *records[1:]]

    return alter


def null_for_empty(records: Records) -> Records:
    place = next(place for place, record in enumerate(records) if record.value == b"")
    return [*records[:place], dataclasses.replace(records[place], value=None), *records[place + 1 :]]


def repeated_header(records: Records) -> Records:
    return altered(headers=(*records[0].headers, records[0].headers[-1]))(records)


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        pytest.param(missing, "missing", id="missing"),
        pytest.param(duplicate, "duplicate", id="duplicate"),
        pytest.param(reordered, "reordered", id="swapped"),
        pytest.param(altered(key=b"other"), "altered", id="key"),
        pytest.param(altered(value=b"other"), "altered", id="value"),
        pytest.param(altered(timestamp=1_790_000_000_001), "altered", id="timestamp"),
        pytest.param(null_for_empty, "altered", id="null-for-empty"),
        pytest.param(repeated_header, "altered", id="repeated-header"),
    ],
)
def test_a_planted_defect_is_found(
    east: Any, west: Any, topic_name: str, plant: Callable[[Records], Records], kind: str
) -> None:
    """Exactly one difference, of its kind, read back from real logs."""
    copy = originals()
    place = next(place for place, (_, commit) in enumerate(copy) if commit)
    copy[place] = (plant(copy[place][0]), True)

    found = compared(east, west, topic_name, copy)

    counts = {
        name: getattr(found, name) for name in ("missing", "duplicate", "reordered", "altered", "foreign")
    }
    assert counts == {name: int(name == kind) for name in counts}
    assert [difference.kind for difference in found.differences] == [kind]


def test_an_equal_copy_passes(east: Any, west: Any, topic_name: str) -> None:
    """Offsets may differ, as they do when aborted records are left out; nothing else may."""
    copy = [(records, True) for records, commit in originals() if commit]
    found = compared(east, west, topic_name, copy)
    assert found.perfect
    assert (found.source, found.target) == (150, 150)


def test_records_of_an_aborted_transaction_are_foreign(east: Any, west: Any, topic_name: str) -> None:
    """A copier that reads uncommitted data is found out."""
    copy = [(records, True) for records, _ in originals()]
    found = compared(east, west, topic_name, copy)
    assert (found.foreign, found.missing, found.duplicate, found.altered) == (50, 0, 0, 0)


def test_a_copier_that_starts_at_an_old_position_leaves_duplicates(
    east: Any, west: Any, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """What the demo's second column shows, without a kill: copied twice, in order, nothing missing or altered."""
    source, target, copy = east.client_properties, west.client_properties, f"copy.{topic_name}"
    create_topic(source, topic_name, PARTITIONS)
    create_topic(target, copy, PARTITIONS)
    watcher = TopicWatcher(target, copy, PARTITIONS)
    traffic = Traffic(source, topic_name, TrafficPlan(rng.getrandbits(32), PARTITIONS), rate=0)
    traffic.start()
    watcher.start()
    wait_for(lambda: traffic.ledger.records >= 1000)
    traffic.finish()
    ends = Offsets(source).settled_ends(topic_name, PARTITIONS)
    positions = dict.fromkeys(range(PARTITIONS), 0)
    for _ in range(2):
        copier = AtLeastOnceCopier(source, target, topic=topic_name, target_topic=copy, positions=positions)
        while copier.acknowledged() != ends:
            copier.copy(0.1)
    wait_for(lambda: watcher.records == 2 * traffic.ledger.records)
    watcher.finish()

    comparison, revision = judge(source, target, topic_name, {copy: watcher}, PARTITIONS)[copy]

    assert comparison.line == f"0 missing, {traffic.ledger.records:,} duplicate, 0 reordered, 0 altered"
    assert comparison.source == traffic.ledger.records
    assert revision == Revision(seen=2 * traffic.ledger.records)
    assert watcher.broken == 0
    assert CopierSpec(source, target, topic_name, copy, PARTITIONS, str(tmp_path)).every == 1.0


def test_an_open_transaction_is_seen_from_outside(east: Any, topic_name: str) -> None:
    """The kill's aim: data behind the last stable offset, until the transaction ends."""
    properties = east.client_properties
    create_topic(properties, topic_name, PARTITIONS)
    offsets = Offsets(properties)
    assert offsets.open_transactions(topic_name, PARTITIONS) == {}
    producer = Producer({**properties, "transactional.id": topic_name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"value", partition=1)
    producer.flush(30)
    assert offsets.open_transactions(topic_name, PARTITIONS) == {1: (0, 1)}
    producer.commit_transaction(30)
    wait_for(lambda: offsets.open_transactions(topic_name, PARTITIONS) == {})
