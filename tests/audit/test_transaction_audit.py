"""O3, O4 and O6 on real brokers: what the mirror writes audits clean, and what is planted is found by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror._native import encode_offset_map
from eomirror.config import load_config
from eomirror.errors import MirrorError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import offset_map_key, offset_map_partition
from eomirror.records.position import Position
from eomirror.types import SourcePartition
from eomirror.verify.transactions import TransactionAudit, audit_link
from support.judges.audited import assert_audited
from support.traffic.records import (
    create_topic,
    delete_topic,
    produce,
    read_committed,
    some_records,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

MAP_PARTITIONS = 3


def configuration(east: Any, west: Any, name: str) -> dict[str, Any]:
    return {
        "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
        "links": [{"name": name, "source": "east", "target": "west", "topics": [name]}],
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_mirror_that_is_killed_in_mid_transaction_audits_clean(
    east: Any, west: Any, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Lanes that die before and after their positions are written leave nothing torn, uncovered or open."""
    create_topic(east.client_properties, topic_name, 3)
    document = configuration(east, west, topic_name)
    path = tmp_path / "mirror.yaml"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    config = load_config(document)
    command = [sys.executable, "-m", "eomirror", "run", str(path), "--until", "caught-up"]
    committed: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for number, point in enumerate(("lane.state_written", "lane.committed")):
        # every fifth source transaction is aborted
        more = produce(
            east.client_properties, topic_name, 3, some_records(seed + number, 600),
            transactional_id=topic_name, abort_every=5,
        )  # fmt: skip
        for partition, records in more.items():
            committed[partition] += records
        flag = tmp_path / point
        environment = {**os.environ, "EOMIRROR_CRASH_POINT": f"{point}@{flag}"}
        with (tmp_path / "log").open("ab") as output:
            code = subprocess.run(
                command, env=environment, stdout=output, stderr=output, timeout=120, check=False
            ).returncode
        assert code == 0, f"{point}: exit {code}; see {tmp_path / 'log'}"
        assert flag.exists(), f"{point} was not passed"

    audit = assert_audited(config)
    # the records are the source's, so what was audited is what was meant
    assert read_committed(west.client_properties, f"east.{topic_name}") == committed
    assert audit.records == sum(map(len, committed.values()))
    assert audit.transactions >= 2
    # two lanes, two runs, and one attempt more for each that died
    assert audit.claims >= 6
    assert (audit.foreign_records, audit.unproven_records) == (0, 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_running_mirror_audits_clean(
    east: Any, west: Any, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """A cut through a link that goes on shows nothing wrong, whatever is under way; at rest all of it is judged."""
    create_topic(east.client_properties, topic_name, 3)
    document = configuration(east, west, topic_name)
    path = tmp_path / "mirror.yaml"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    config = load_config(document)
    audits: list[TransactionAudit] = []
    written = 0
    with (tmp_path / "log").open("ab") as output:
        mirror = subprocess.Popen(
            [sys.executable, "-m", "eomirror", "run", str(path)], stdout=output, stderr=output
        )
        try:
            copy = f"east.{topic_name}"
            for number in range(40):
                committed = produce(
                    east.client_properties, topic_name, 3, some_records(seed + number, 200),
                    transactional_id=topic_name, abort_every=4,
                )  # fmt: skip
                written += sum(map(len, committed.values()))
                if number == 0:
                    # one transaction of the mirror at least, so that there is something to cut through
                    wait_for(lambda: audited_records(config) > 0, 60)
                elif number % 8 == 0:
                    audits.append(audit_link(config.links[0], config.clusters["west"], at_rest=False))
            wait_for(
                lambda: sum(map(len, read_committed(west.client_properties, copy).values())) == written, 60
            )
        finally:
            mirror.terminate()
            mirror.wait(30)

    assert [audit.findings for audit in audits] == [()] * len(audits)
    assert audits[-1].transactions > audits[0].transactions
    assert assert_audited(config).records == written


def audited_records(config: Any) -> int:
    try:
        return audit_link(config.links[0], config.clusters["west"], at_rest=False).records
    except MirrorError:
        return 0


class Forger:
    """A link's target, written by hand: sound unless a test says otherwise."""

    def __init__(self, east: Any, west: Any, name: str) -> None:
        self.document = configuration(east, west, name)
        config = load_config(self.document)
        self.link, self.target = config.links[0], config.clusters["west"]
        self.names = LinkNames(self.link.state_name)
        self.source = SourcePartition(name, 0)
        self.topic = f"east.{name}"
        create_topic(west.client_properties, self.names.positions_topic)
        create_topic(west.client_properties, self.names.offset_map_topic, MAP_PARTITIONS)
        create_topic(west.client_properties, self.topic)
        admin = ClusterAdmin(self.target, client_id="forger")
        facts = admin.describe_topics([self.topic])[self.topic]
        assert facts is not None
        admin.close()
        self.producer = TransactionalProducer(
            self.target,
            client_id="forger",
            transactional_id=self.names.transactional_id(0),
            transaction_timeout=60,
            known_topic=self.names.positions_topic,
        )
        self.producer.init()
        identity = self.producer.identity()
        self.position = Position(
            topic=name, partition=0, offset=0, source_cluster_id="s", topic_id="id", target_topic=self.topic,
            target_partition=0, target_topic_id=facts.topic_id, generation=1, lane=0, run="run", epoch=1, attempt=1,
            producer_id=identity.producer_id, producer_epoch=identity.producer_epoch, txn=0, timestamp=1,
        )  # fmt: skip
        self.next_target = 0
        self.producer.begin()
        self.state(self.position, [])
        self.end()

    def data(self, count: int) -> None:
        self.producer.produce_all([(self.topic, b"value", b"key", 0)] * count)

    def state(self, position: Position, ranges: list[tuple[int, int, int]]) -> None:
        records = [MetadataRecord(self.names.positions_topic, 0, position.key(), position.value())]
        if ranges:
            records.append(
                MetadataRecord(
                    self.names.offset_map_topic,
                    offset_map_partition(self.source, MAP_PARTITIONS),
                    offset_map_key(self.source, position.topic_id, ranges[0][0]),
                    encode_offset_map(self.topic, 0, ranges),
                )
            )
        self.producer.write(records)

    def end(self) -> None:
        self.producer.flush(30)
        self.producer.commit()

    def after(self, count: int) -> tuple[Position, list[tuple[int, int, int]]]:
        """The position behind ``count`` more records, and where they will be."""
        before = self.position
        ranges = [(before.offset, self.next_target, count)]
        position = replace(
            before, offset=before.offset + count, prev=before.offset, txn=before.txn + 1, records=count,
            target_offset=self.next_target + count - 1, total_records=before.total_records + count,
        )  # fmt: skip
        return position, ranges

    def transaction(self, count: int, change: Callable[[Position], Position] = lambda same: same) -> None:
        position, ranges = self.after(count)
        self.producer.begin()
        self.data(count)
        self.state(change(position), ranges)
        self.end()
        # the marker has an offset, too
        self.next_target += count + 1
        self.position = position

    def audit(self, *, at_rest: bool = True, settle: float = 5.0) -> TransactionAudit:
        return audit_link(self.link, self.target, at_rest=at_rest, seconds=60, settle=settle)


@pytest.fixture
def forger(east: Any, west: Any, topic_name: str) -> Iterator[Forger]:
    """Two sound transactions."""
    made = Forger(east, west, topic_name)
    made.transaction(5)
    made.transaction(3)
    yield made
    made.producer.close()


def test_the_forged_link_is_sound_until_something_is_planted(forger: Forger) -> None:
    """The control of the tests below: two transactions, eight records, nothing wrong and nothing unknown."""
    audit = forger.audit()
    assert audit.clean, audit.findings
    assert audit.complete
    assert (audit.transactions, audit.records, audit.positions, audit.set_positions) == (2, 8, 3, 1)
    assert audit.to_json()["clean"] is True
    assert audit.widest_spread_transaction is not None
    assert audit.bytes_read > 0


def test_a_record_committed_without_its_position_is_found(forger: Forger) -> None:
    """UncoveredData names the first such record, also when the next transaction is sound."""
    forger.producer.begin()
    forger.data(2)
    forger.end()
    planted = forger.next_target
    forger.next_target += 3
    forger.transaction(4)
    audit = forger.audit()
    assert dict(audit.counts) == {"UncoveredData": 1}
    assert (audit.findings[0].topic, audit.findings[0].offset) == (forger.topic, planted)
    assert audit.transactions == 3


def test_a_strangers_record_is_counted_and_no_finding(forger: Forger, west: Any) -> None:
    """A shared topic may have records of others, in transactions and outside of them."""
    produce(
        west.client_properties, forger.topic, 1, some_records(1, 20),
        transactional_id="stranger", per_transaction=10, abort_every=0,
    )  # fmt: skip
    audit = forger.audit()
    assert audit.clean, audit.findings
    assert (audit.foreign_records, audit.foreign_producers) == (20, 1)


def test_a_position_without_its_records_is_found(forger: Forger) -> None:
    """PositionWithoutData: a restart would skip these source records for ever."""
    position, ranges = forger.after(4)
    forger.producer.begin()
    forger.state(position, ranges)
    forger.end()
    assert dict(forger.audit().counts) == {"PositionWithoutData": 1}


def test_a_wrong_link_in_the_chain_is_found(forger: Forger) -> None:
    """BrokenChain names both offsets."""
    forger.transaction(2, lambda position: replace(position, prev=(position.prev or 0) - 1))
    audit = forger.audit()
    assert dict(audit.counts) == {"BrokenChain": 1}
    assert "7 as the previous position, which is 8" in audit.findings[0].detail
    assert audit.findings[0].transaction is not None
    assert audit.findings[0].transaction.txn == 3


def test_a_wrong_target_offset_is_found(forger: Forger) -> None:
    """WrongTargetOffset: the position names another record than its last."""
    forger.transaction(2, lambda position: replace(position, target_offset=(position.target_offset or 0) - 1))
    assert dict(forger.audit().counts) == {"WrongTargetOffset": 1}


def test_an_open_transaction_is_found_at_rest_only(forger: Forger) -> None:
    """OpenTransaction where the marker is missing; a running link always has one, which is no finding."""
    forger.producer.begin()
    forger.data(2)
    forger.producer.flush(30)
    audit = forger.audit(settle=0)
    assert dict(audit.counts) == {"OpenTransaction": 1}
    assert (audit.findings[0].topic, audit.findings[0].offset) == (forger.topic, forger.next_target)
    running = forger.audit(at_rest=False)
    assert running.clean
    assert running.under_way == 1
    forger.producer.abort()
    assert forger.audit().clean


def test_positions_of_a_deleted_target_are_not_held_against_its_successor(forger: Forger, west: Any) -> None:
    """A target topic that was created anew has none of the old records; that is counted, and no finding."""
    delete_topic(west.client_properties, forger.topic)
    create_topic(west.client_properties, forger.topic)
    audit = forger.audit()
    assert audit.clean, audit.findings
    assert (audit.transactions, audit.unproven_positions, audit.complete) == (0, 2, False)


def test_the_command_tells_what_the_audit_found_and_ends_with_0_or_3(forger: Forger, tmp_path: Path) -> None:
    """Clean ends with 0; an uncovered record ends with 3 and is named in the table and in JSON."""
    path = tmp_path / "mirror.yaml"
    path.write_text(yaml.safe_dump(forger.document))
    path.chmod(0o600)

    def command(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "verify", str(path), "--transactions", *arguments],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    code, told, errors = command("--at-rest", "-o", "json")
    assert code == 0, errors
    (link,) = json.loads(told)["links"]
    assert (link["clean"], link["complete"], link["records"], link["at_rest"]) == (True, True, 8, True)
    planted = forger.next_target
    forger.producer.begin()
    forger.data(2)
    forger.end()
    # a running link's last transaction is not judged: its position may be on the way
    code, told, _ = command("-o", "table")
    assert (code, "under way: " in told) == (0, True), told
    code, told, _ = command("--at-rest", "-o", "table")
    assert code == 3, told
    assert f"UncoveredData {forger.topic}-0@{planted}" in " ".join(told.split()), told
    code, told, _ = command("--at-rest", "-o", "json")
    assert code == 3, told
    assert json.loads(told)["links"][0]["counts"] == {"UncoveredData": 1}


def test_at_rest_without_transactions_is_refused(tmp_path: Path) -> None:
    """Exit 2, and the fix."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "verify", str(tmp_path / "none.yaml"), "--at-rest"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--transactions" in done.stderr
