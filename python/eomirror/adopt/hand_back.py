"""
Gives a link back to MirrorMaker 2: MM2's next record is the one that the link would have mirrored next.

The order is what makes it exact:

1. refuse while MM2 runs: a member of its group would go on with what it has in memory;
2. take the link, which fences every lane it ever had: nothing of ours can be committed any more;
3. read the positions, and what MM2 knows already;
4. commit a source offset for every partition into ``mm2-offsets.SOURCE.internal``, in one transaction, under the key
   bytes that Kafka Connect looks for (`eomirror.formats.connect`).

A position is the next source offset to mirror, behind markers and aborted records; MM2 stores the last one it has
dealt with and goes on behind it.  So the offset that is written is the position minus one, whatever is there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock, new_run_id
from eomirror.errors import DifferenceError, StateError, UsageError
from eomirror.formats.connect import Mm2Flow, connect_partition, encode_source_offset
from eomirror.formats.names import LinkNames
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.compact_log import CompactLogReader
from eomirror.kafka.mm2_state import Mm2State
from eomirror.kafka.ownership import LinkOwner
from eomirror.kafka.positions import valid_positions
from eomirror.kafka.producer import TransactionalProducer
from eomirror.lane.plane import CommitOutcome, MetadataRecord
from eomirror.sync.discovery import Discovery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.config import Config, Link
    from eomirror.formats.position import Position
    from eomirror.types import SourcePartition

__all__ = ["HandBack", "HandedBack", "hand_back_to_mm2"]

# what Connect creates
_PARTITIONS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedBack:
    """
    One partition.

    Attributes:
        topic: On the source.
        partition: Its number.
        goes_on: Source offset that MM2 fetches first.
        had: What MM2 had committed before; None for nothing.
    """

    topic: str
    partition: int
    goes_on: int
    had: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBack:
    """
    What was, or would be, written.

    Attributes:
        link: Name of the link.
        place: MM2's topic of source offsets.
        partitions: Every partition that has a position.
        committed: Whether it was.
    """

    link: str
    place: str
    partitions: tuple[HandedBack, ...]
    committed: bool

    def as_dict(self) -> dict[str, Any]:
        """For ``-o json``."""
        return {
            "link": self.link,
            "place": self.place,
            "committed": self.committed,
            "partitions": [asdict(each) for each in self.partitions],
        }


def hand_back_to_mm2(
    config: Config,
    *,
    link: str | None = None,
    flow: Mm2Flow | None = None,
    dry_run: bool = False,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> HandBack:
    """
    Tell MM2 where to go on in every partition of a link, and end the link.

    Args:
        config: The configuration that the mirror ran with.
        link: Name of the link; needed where there are several.
        flow: Where MM2 keeps what it knows; by default as its dedicated mode does, with the link's aliases.
        dry_run: Only look: fences nothing, writes nothing.
        on_event: Told in a few words what is being done.
        clock: Where time comes from.

    Raises:
        UsageError: The configuration has several links and none was named.
        DifferenceError: MM2 runs.
        SupersededError: The link runs.
        StateError: The link has no positions, or a record is not readable.
        MirrorError: A cluster cannot be reached or refuses us.
    """
    if link is None and len(config.links) != 1:
        raise UsageError("the configuration has several links", fix="name one: --link NAME")
    chosen = config.link(link) if link is not None else config.links[0]
    return_ = _Return(
        config,
        chosen,
        flow or Mm2Flow.dedicated(chosen.source, chosen.target),
        on_event or (lambda _: None),
        clock,
    )
    try:
        return return_.run(dry_run=dry_run)
    finally:
        return_.close()


class _Return:
    def __init__(
        self, config: Config, link: Link, flow: Mm2Flow, tell: Callable[[str], None], clock: Clock
    ) -> None:
        self._link, self._flow, self._tell, self._clock = link, flow, tell, clock
        self._clusters = config.clusters[link.source], config.clusters[link.target]
        self._names = LinkNames(link.state_name)
        role = self._names.client_id("hand-back")
        self._role = role
        self._admin = ClusterAdmin(self._clusters[1], client_id=role)
        self._reader = CompactLogReader(self._clusters[1], self._admin, client_id=role, clock=clock)
        self._state = Mm2State(link, flow, *self._clusters, client_id=role, clock=clock)

    def run(self, *, dry_run: bool) -> HandBack:
        members = self._state.group().members
        if members:
            raise DifferenceError(
                f"link {self._link.name}: MirrorMaker 2 runs: in its group {self._flow.group}: {', '.join(members)}",
                fix="stop all of its workers, hand the link back, then start them again",
            )
        positions = self._positions()
        if not positions:
            raise StateError(
                f"link {self._link.name} has mirrored nothing that could be handed back",
                fix="compare the name of the link with that of the run; just start MirrorMaker 2",
            )
        if dry_run:
            return self._found(positions, self._had(), committed=False)
        self._take()
        # nothing of ours can be committed from here on
        positions = self._positions()
        had = self._had()
        self._tell(f"writing {len(positions)} source offsets to {self._flow.offsets_topic}")
        self._write(positions)
        return self._found(positions, had, committed=True)

    def close(self) -> None:
        """Close all clients."""
        self._state.close()
        self._reader.close()
        self._admin.close()

    def _positions(self) -> Mapping[SourcePartition, Position]:
        topic = self._names.positions_topic
        if self._admin.describe_topics([topic])[topic] is None:
            return {}
        return valid_positions(self._reader.read(topic)[1])

    def _had(self) -> Mapping[SourcePartition, int | None]:
        topic = self._flow.offsets_topic
        if self._admin.describe_topics([topic])[topic] is None:
            return {}
        return self._state.committed().offsets

    def _take(self) -> None:
        """Own the link, and give it up again: every lane that it ever had is fenced then."""
        discovery = Discovery(self._link, *self._clusters, clock=self._clock)
        owner = LinkOwner(
            self._link, *self._clusters, run=new_run_id(), clock=self._clock, on_event=self._tell
        )
        try:
            owner.acquire(self._link.lanes, discovery.prepare())
            owner.release()
        finally:
            owner.close()
            discovery.close()

    def _write(self, positions: Mapping[SourcePartition, Position]) -> None:
        topic = self._flow.offsets_topic
        facts = self._admin.describe_topics([topic])[topic]
        if facts is None:
            raise StateError(
                f"topic {topic} does not exist on {self._admin.name}: MirrorMaker 2 never ran here",
                fix=f"create it as Connect does, compacted with {_PARTITIONS} partitions: kafka-topics.sh --create "
                f"--topic {topic} --partitions {_PARTITIONS} --config cleanup.policy=compact",
            )
        records = []
        for source, position in sorted(positions.items()):
            key, value = encode_source_offset(source, position.offset - 1, self._flow)
            # nothing was dealt with yet: MM2 begins at the beginning by itself
            if position.offset > 0:
                number = connect_partition(key, facts.partitions)
                records.append(MetadataRecord(topic, number, key, value))
        producer = TransactionalProducer(
            self._clusters[1],
            client_id=self._role,
            transactional_id=self._names.control_transactional_id,
            transaction_timeout=self._link.transaction_timeout,
            known_topic=topic,
            clock=self._clock,
        )
        try:
            producer.init()
            producer.begin()
            producer.write(records)
            producer.flush(self._link.transaction_timeout)
            producer.take_acks()
            if producer.commit() is CommitOutcome.SUSPECT:
                # InitProducerId returns when that commit's markers are written, or aborts what is left
                producer.init()
        finally:
            producer.close()

    def _found(
        self,
        positions: Mapping[SourcePartition, Position],
        had: Mapping[SourcePartition, int | None],
        *,
        committed: bool,
    ) -> HandBack:
        return HandBack(
            link=self._link.name,
            place=self._flow.offsets_topic,
            partitions=tuple(
                HandedBack(
                    topic=source.topic,
                    partition=source.partition,
                    goes_on=position.offset,
                    had=had.get(source),
                )
                for source, position in sorted(positions.items())
            ),
            committed=committed,
        )
