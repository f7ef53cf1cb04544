"""
Reads MirrorMaker 2's state on the target, and the signs that it runs, from the brokers.

Signs that it runs, and their value:

* members of its Connect group (``SOURCE-mm2``): a running worker is one, and a killed one stays one for the
  session timeout (10 s by default).  A worker that the coordinator has lost sight of is not a member;
* its source offsets and its copies grow: with exactly-once every second if it writes heartbeats, else every
  ``offset.flush.interval.ms`` (a minute), so that only an idle flow does not show here;
* with exactly-once, fencing its transactional ids works whether it runs or not: its open transactions are aborted, and
  later ones are refused.  An at-least-once worker that the coordinator lost sight of cannot be fenced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import ClusterError, StateError
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.link.fencing import fence
from eomirror.records.connect_offsets import decode_source_offset, decode_task_count, is_connect_key
from eomirror.records.mm2 import decode_offset_sync
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.connect_offsets import Mm2Flow
    from eomirror.records.mm2 import OffsetSync


__all__ = ["MirroredOffsets", "Mm2Group", "Mm2State"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Mm2Group:
    """
    The group of a flow's Connect workers.

    Attributes:
        state: State as the coordinator names it; empty if the group does not exist.
        members: Client id and host of every member.
    """

    state: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirroredOffsets:
    """
    Committed offsets of a flow.

    Attributes:
        offsets: Last mirrored source offset of every partition; None if it was reset.
        contradictions: Partitions with two different offsets, under keys that are serialized differently.
        transactional: True if every visible commit was made in a transaction.
    """

    offsets: Mapping[SourcePartition, int | None]
    contradictions: frozenset[SourcePartition]
    transactional: bool


class Mm2State:
    """
    Reads the state of one flow of MM2.

    Args:
        link: The link that adopts the flow.

    Attributes:
        passed_over: Records in MM2's topics that are not its own, by location.
    """

    def __init__(self, link: Link, flow: Mm2Flow, source: ClusterSession, target: ClusterSession) -> None:
        self.passed_over: list[str] = []
        self._link = link
        self._flow = flow
        self._client_id = target.client_id
        self._timeout = link.transaction_timeout
        self._clock = target.clock
        sessions = {"source": source, "target": target}
        self._clusters = {side: session.cluster for side, session in sessions.items()}
        self._admins = {side: session.admin for side, session in sessions.items()}
        self._readers = {side: CompactedTopicReader(session) for side, session in sessions.items()}

    def group(self) -> Mm2Group:
        """
        Returns the members of the group of its workers.

        Raises:
            AuthorizationError: The group may not be described.
            ClusterError: The target cannot be reached.
        """
        state, members = self._admins["target"].group(self._flow.group)
        return Mm2Group(state, tuple(f"{client_id} on {host}" for client_id, host in members))

    def signs(self, copies: Sequence[str]) -> dict[tuple[str, int], int]:
        """
        Returns the log ends that grow while MM2 works, open transactions included.

        Args:
            copies: Target topics that only MM2 writes.

        Raises:
            ClusterError: The target cannot be asked.
        """
        admin = self._admins["target"]
        names = [self._flow.offsets_topic, *copies]
        facts = admin.describe_topics(names)
        return admin.offsets(
            [
                (name, number)
                for name, topic in facts.items()
                if topic is not None
                for number in range(topic.partitions)
            ],
            at="latest",
            read_committed=False,
        )

    def committed(self) -> MirroredOffsets:
        """
        Returns its committed offsets; reads to the very end and waits for open transactions.

        A record with another key than Connect's is skipped and listed; an unreadable one of this flow is refused.

        Raises:
            ClusterError: The topic does not exist, or a transaction stays open in it.
            StateError: A record is not as MM2 writes it.
        """
        topic = self._flow.offsets_topic
        admin = self._admins["target"]
        if admin.describe_topics([topic])[topic] is None:
            raise ClusterError(
                f"topic {topic} does not exist on {admin.name}: MirrorMaker 2 keeps its source offsets elsewhere, or "
                "never ran",
                fix="name the topic: --offsets-topic NAME (a Connect cluster's offset.storage.topic), and give the "
                "alias that MM2 has for the source: --mm2-source ALIAS",
            )
        count, records = self._readers["target"].read(topic, seconds=2 * self._timeout + 60)
        ends = admin.offsets([(topic, number) for number in range(count)], at="latest", read_committed=False)
        newest: dict[tuple[SourcePartition, bytes], int | None] = {}
        lasts: dict[int, int] = {}
        wanted: set[int] = set()
        for record in records:
            lasts[record.partition] = max(record.offset, lasts.get(record.partition, -1))
            if not is_connect_key(record.key):
                self._pass_over(f"{record.where}: its key is not a key of Kafka Connect: {record.key!r:.120}")
                continue
            found = decode_source_offset(record.key, record.value, self._flow, where=record.where)
            if found is not None:
                newest[found.source, record.key or b""] = found.offset
                wanted.add(record.partition)
        offsets: dict[SourcePartition, int | None] = {}
        contradictions = set()
        for (source, _), offset in newest.items():
            if source in offsets and offsets[source] != offset:
                contradictions.add(source)
            offsets[source] = offset
        return MirroredOffsets(
            offsets,
            frozenset(contradictions),
            # The record of a transaction is followed by its marker.
            bool(wanted) and all(ends[topic, number] > lasts[number] + 1 for number in wanted),
        )

    def tasks(self) -> int:
        """
        Returns the task count of its last leader with exactly-once; 0 without exactly-once.

        Raises:
            StateError: The count is not readable.
            ClusterError: The target cannot be read.
        """
        key = f"tasks-fencing-{self._flow.connector}".encode()
        count = 0
        for record in self._readers["target"].records(self._flow.configs_topic):
            if record.key == key:
                count = decode_task_count(record.value, where=record.where)
        return count

    def fence(self, tasks: int) -> None:
        """
        Runs InitProducerId for every task's id: aborts its open transactions and fences its producers.

        Returns when all markers of aborted and committed transactions are written.

        Raises:
            AuthorizationError: The ids may not be used.
            MirrorError: The target refuses the request.
        """
        fence(
            self._clusters["target"],
            {self._flow.transactional_id(task): self._client_id for task in range(tasks)},
            known_topic=self._flow.offsets_topic,
            transaction_timeout=self._timeout,
            clock=self._clock,
        )

    def synced(self) -> dict[SourcePartition, tuple[OffsetSync, ...]]:
        """
        Returns the furthest offset syncs of every partition: one from either side, where MM2 may keep them.

        A sync is written after its record was acknowledged, so the mirror has come at least that far.  With a flow in
        the opposite direction, each of these topics may belong to that flow, which names its syncs after topics of
        its own: the caller has to tell them apart.  Other records are skipped and listed.

        Raises:
            ClusterError: A cluster cannot be read.
        """
        found: dict[tuple[SourcePartition, str], OffsetSync] = {}
        names = self._link.mm2_names
        for side, topic in (
            ("source", names.offset_syncs(self._flow.target)),
            ("target", names.offset_syncs(self._flow.source)),
        ):
            for record in self._readers[side].records(topic):
                try:
                    sync = decode_offset_sync(record.key, record.value, where=record.where)
                except StateError as error:
                    self._pass_over(error.message)
                    continue
                key = SourcePartition(sync.topic, sync.partition), side
                if key not in found or sync.upstream > found[key].upstream:
                    found[key] = sync
        syncs: dict[SourcePartition, tuple[OffsetSync, ...]] = {}
        for (source, _), sync in found.items():
            syncs[source] = (*syncs.get(source, ()), sync)
        return syncs

    def _pass_over(self, what: str) -> None:
        log.warning("record_passed_over", reason=what)
        self.passed_over.append(what)
