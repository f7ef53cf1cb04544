"""EO-9 on real brokers: a lane whose commits look suspect takes new producers and loses or repeats nothing."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.clock import new_run_id
from eomirror.config import load_config
from eomirror.kafka.session import link_sessions
from eomirror.lane.spec import Ending, LaneProgress, LaneSpec, StopReason
from eomirror.link.owner import LinkOwner
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.spark.attempt import run_lane
from eomirror.topics.discovery import Discovery
from support.fakes.quiet_mailbox import QuietMailbox
from support.traffic.records import create_topic, produce, read_committed, some_records

if TYPE_CHECKING:
    from eomirror.types import SourcePartition

pytestmark = pytest.mark.integration


class UntilReached(QuietMailbox):
    """A mailbox that stops the lane once every goal's position is committed."""

    def __init__(self, goals: dict[SourcePartition, int], seconds: float = 60) -> None:
        self.goals = {tuple(source): goal for source, goal in goals.items()}
        self.positions: dict[tuple[str, int], int] = {}
        self.deadline = time.monotonic() + seconds

    def report(self, progress: LaneProgress) -> None:
        for item in progress.partitions:
            self.positions[item.topic, item.partition] = item.position

    def stop(self) -> StopReason | None:
        reached = all(self.positions.get(source, -1) >= goal for source, goal in self.goals.items())
        return StopReason.SHUTDOWN if reached or time.monotonic() > self.deadline else None


def test_every_third_commit_is_suspect(
    east: Any, west: Any, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane recovers in place each time: new producer epoch, control, positions, and on from there."""
    create_topic(east.client_properties, topic_name, 3)
    committed = produce(
        east.client_properties, topic_name, 3, some_records(40, 1_500), transactional_id=topic_name
    )
    config = load_config(
        {
            "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
            "links": [
                {
                    "name": topic_name,
                    "source": "east",
                    "target": "west",
                    "topics": [topic_name],
                    "lanes": 1,
                    # under protocol V2 no commit is suspect
                    "plane": "client",
                }
            ],
        }
    )
    link, source, target = config.links[0], config.clusters["east"], config.clusters["west"]
    sessions, run = link_sessions(link, source, target, "test"), new_run_id()
    discovery, owner = Discovery(link, *sessions), LinkOwner(link, *sessions, run=run)
    inits: list[str] = []
    verdicts = itertools.cycle([True, True, False])
    clean, init = TransactionalProducer.clean, TransactionalProducer.init
    monkeypatch.setattr(TransactionalProducer, "clean", lambda self: clean(self) and next(verdicts))
    monkeypatch.setattr(
        TransactionalProducer, "init", lambda self, seconds=60.0: (inits.append("x"), init(self, seconds))[1]
    )
    # small transactions, so that there are many
    monkeypatch.setattr("eomirror.plane.transaction_size.MOST_RECORDS", 100)
    monkeypatch.setattr("eomirror.lane.transaction.CommitTrigger.due", lambda _self, _transaction: True)
    try:
        layout = owner.acquire(1, discovery.prepare())
        before = len(inits)
        mailbox = UntilReached(discovery.goals())
        report = run_lane(
            LaneSpec(
                link=link, source=source, target=target, source_cluster_id=layout.source_cluster_id,
                target_cluster_id=layout.target_cluster_id, run=run, generation=layout.generation, lane=0,
                epoch=1, attempt=1, seconds=60, partitions=layout.lanes[0],
            ),
            mailbox,
        )  # fmt: skip
    finally:
        owner.release()
        owner.close()
        sessions.close()

    assert report.ending is Ending.STOPPED, report
    assert len(inits) - before > 3
    assert read_committed(west.client_properties, f"east.{topic_name}") == committed
