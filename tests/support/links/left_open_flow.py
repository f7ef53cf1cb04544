"""A link whose lane runs in the test's process, and whatever is left open on its target (docs/adr/0012)."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eomirror._native import HangingTransactionClient
from eomirror.clock import new_run_id
from eomirror.config import load_config
from eomirror.demo.clients import Offsets
from eomirror.kafka.session import ClusterSession, link_sessions
from eomirror.lane.spec import LaneProgress, LaneReport, LaneSpec, StopReason
from eomirror.link.hanging import target_hanging_client
from eomirror.link.owner import LinkOwner
from eomirror.link.state import LinkState
from eomirror.records.names import LinkNames
from eomirror.spark.attempt import run_lane
from eomirror.topics.discovery import Discovery
from eomirror.types import SourcePartition
from support.fakes.quiet_mailbox import QuietMailbox
from support.links.plane import plane_under_test
from support.traffic.left_open import Forgetful
from support.traffic.records import create_topic, produce, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eomirror.localkafka.cluster import LocalCluster
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position

__all__ = ["TIMEOUT", "Flow", "UntilTold"]

#: Seconds for what a broker answers.
TIMEOUT = 15.0


class Until(QuietMailbox):
    """Stops a lane once a position is reached, or its topic is stopped."""

    def __init__(self, goal: int) -> None:
        self._goal = goal
        self._reached = False
        self._end = time.monotonic() + 90

    def report(self, progress: LaneProgress) -> None:
        self._reached = any(one.position >= self._goal for one in progress.partitions)

    def stop(self) -> StopReason | None:
        assert time.monotonic() < self._end, "the lane does not get there"
        return StopReason.SHUTDOWN if self._reached else None


class UntilTold(QuietMailbox):
    """Stops a lane when the test says so, and knows how far it is."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.positions: dict[int, int] = {}

    def report(self, progress: LaneProgress) -> None:
        self.positions = {one.partition: one.position for one in progress.partitions}

    def stop(self) -> StopReason | None:
        return StopReason.SHUTDOWN if self.told.is_set() else None


class Flow:
    """A link with one partition, whose lane runs in this process, and whatever is left open on its target."""

    def __init__(self, east: LocalCluster, west: LocalCluster, name: str, partitions: int = 1) -> None:
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        self.name, self.topic, self.copy = name, f"{name}.t", f"east.{name}.t"
        link = {"name": name, "source": "east", "target": "west", "topics": [self.topic], "lanes": 1}
        link |= {"plane": plane_under_test(), "groups": [f"{name}.group"]}
        self.config = load_config({"clusters": {"east": self.east, "west": self.west}, "links": [link]})
        self.names = LinkNames(self.config.links[0].state_name)
        self.written: list[Any] = []
        create_topic(self.east, self.topic, partitions)

    def write(self, count: int) -> None:
        """Committed records on the source."""
        records = [
            (b"%d" % number, b"v%d" % number, 1_700_000_000_000 + number, ())
            for number in range(len(self.written), len(self.written) + count)
        ]
        more = produce(self.east, self.topic, 1, records, transactional_id=self.topic, abort_every=0)
        self.written += more[0]

    def run(self, lanes: int = 1, mailbox: QuietMailbox | None = None) -> LaneReport:
        """Take the link, and mirror all there is, or until the mailbox says so; partition 0 is the first lane's."""
        (link,) = self.config.links
        source, target = self.config.clusters["east"], self.config.clusters["west"]
        sessions = link_sessions(link, source, target, "test")
        discovery = Discovery(link, *sessions)
        owner = LinkOwner(link, *sessions, run=(run := new_run_id()), hanging_client=target_hanging_client)
        try:
            layout = owner.acquire(lanes, discovery.prepare())
            goal = discovery.goals()[SourcePartition(self.topic, 0)]
            return run_lane(
                LaneSpec(
                    link=link, source=source, target=target, source_cluster_id=layout.source_cluster_id,
                    target_cluster_id=layout.target_cluster_id, run=run, generation=layout.generation, lane=0,
                    epoch=1, attempt=1, seconds=120, partitions=layout.lanes[0],
                ),
                mailbox or Until(goal),
            )  # fmt: skip
        finally:
            owner.release()
            owner.close()
            sessions.close()

    def position(self) -> Position:
        """Of the partition, as committed."""
        return self.positions()[SourcePartition(self.topic, 0)]

    def positions(self) -> Mapping[SourcePartition, Position]:
        """Of all partitions."""
        with self._state() as state:
            return state.positions(wait_for_open=False, overruled=())

    def control(self) -> ControlView:
        """What control says."""
        with self._state() as state:
            return state.control()

    @contextmanager
    def _state(self) -> Iterator[LinkState]:
        target = ClusterSession(self.config.clusters["west"], client_id="test")
        state = LinkState(self.config.links[0], target)
        try:
            yield state
        finally:
            target.close()

    def leave_open(self, *, position: bool, lacking: int = 0) -> Forgetful:
        """
        A transaction of the lane: the records behind the position, and perhaps the position behind them.

        Of the records the last ``lacking`` were not written; the position foresaw them.
        """
        before = self.position()
        behind = self.written[before.total_records :]
        lane = Forgetful(self.west["bootstrap.servers"], self.names.transactional_id(0))
        written = [(key, value) for key, value, *_ in behind][: len(behind) - lacking]
        first = lane.write(self.copy, 0, written) if written else self.end_of_copy()
        if position:
            after = replace(
                before,
                # the marker of the source's transaction is behind them
                offset=before.offset + len(behind) + 1, prev=before.offset,
                target_offset=first + len(behind) - 1, records=len(behind), txn=before.txn + 1,
                total_records=before.total_records + len(behind), leader_epoch=None,
                producer_id=lane.producer_id, producer_epoch=lane.epoch,
                target_producer_id=None, target_producer_epoch=None,
            )  # fmt: skip
            lane.write(self.names.positions_topic, 0, [(after.key(), after.value())])
        return lane

    def end(self, topic: str, *, commit: bool, lane: int = 0) -> None:
        """What the coordinator did there, although it did not elsewhere."""
        properties = {name: str(value) for name, value in self.west.items()}
        client = HangingTransactionClient(properties)
        whose = self.names.transactional_id(lane)
        client.end(whose, [(topic, lane)], commit=commit, transaction_timeout=TIMEOUT, seconds=TIMEOUT)
        wait_for(lambda: not client.open([(topic, lane)], TIMEOUT))

    def end_of_copy(self) -> int:
        """The offset that the next record gets there."""
        return Offsets(self.west).ends(self.copy, 1, committed=False)[0]

    def found(self) -> list[bytes | None]:
        """Keys in the copy."""
        return [key for key, *_ in read_committed(self.west, self.copy)[0]]
