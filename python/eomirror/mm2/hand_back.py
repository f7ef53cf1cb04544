"""
Gives a link back to MirrorMaker 2: MM2's next record is the one that the link would have mirrored next.

The order is what makes it exact:

1. refuse while MM2 runs: a member of its group would go on with what it has in memory;
2. take the link, which fences every lane it ever had: nothing of ours can be committed any more;
3. read the positions, and what MM2 knows already;
4. commit a source offset for every partition into ``mm2-offsets.SOURCE.internal``, under the key bytes that Kafka
   Connect looks for (`eomirror.records.connect_offsets`), and in the same transaction into control that MM2 mirrors now: a
   run of the link is refused from then on, and so is handing back what MM2 has moved on since.  `eomirror adopt` takes
   the link back.

A position is the next source offset to mirror, behind markers and aborted records; MM2 stores the last one it has
dealt with and goes on behind it.  So the offset that is written is the position minus one, whatever is there.

A position at 0 has no such offset, and one of a source topic that was created anew since says nothing of the new one,
of which the link has mirrored no record: MM2 begins both at the beginning, where it knows no offset.  So what it had
there is taken away; it would go on behind that, past records that nobody has mirrored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock, new_run_id
from eomirror.errors import DifferenceError, MirrorError, StateError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.compacted_topic import CompactedTopicReader, control_view
from eomirror.link.hanging_state_topics import target_hanging_client
from eomirror.link.owner import LinkOwner
from eomirror.link.ownership import refuse_handed_over
from eomirror.link.valid_positions import valid_positions
from eomirror.mm2.state import Mm2State
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.connect_offsets import Mm2Flow, connect_partition, encode_source_offset
from eomirror.records.names import LinkNames
from eomirror.topics.discovery import Discovery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.config import Config, Link
    from eomirror.kafka.cluster_metadata import TopicFacts
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["HandBack", "HandedBack", "goes_on", "hand_back_to_mm2", "source_offsets"]

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
        StateError: The link has no positions or was handed back before, MM2 has never run there, or a record is not
            readable.
        MirrorError: A cluster cannot be reached or refuses us.
    """
    chosen = config.only_link(link)
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


def goes_on(
    positions: Mapping[SourcePartition, Position], sources: Mapping[str, TopicFacts | None]
) -> dict[SourcePartition, int]:
    """
    Source offset that MM2 must fetch first in every partition (pure).

    Args:
        positions: Of the link.
        sources: The source topics now; None for one that does not exist, of which the position is all that is known.
    """

    def is_another(position: Position) -> bool:
        facts = sources.get(position.topic)
        return facts is not None and facts.topic_id != position.topic_id

    return {
        source: 0 if is_another(position) else position.offset
        for source, position in sorted(positions.items())
    }


def source_offsets(
    going_on: Mapping[SourcePartition, int],
    had: Mapping[SourcePartition, int | None],
    flow: Mm2Flow,
    partitions: int,
) -> list[MetadataRecord]:
    """
    Records for MM2's topic of source offsets (pure).

    Args:
        going_on: Source offset that MM2 must fetch first, by partition.
        had: What it had committed before.
        flow: The flow of MM2.
        partitions: How many its topic has.
    """
    records = []
    for source, offset in going_on.items():
        # where it knows no offset it begins at the beginning
        if offset > 0 or had.get(source) is not None:
            key, value = encode_source_offset(source, max(0, offset - 1), flow)
            number = connect_partition(key, partitions)
            records.append(MetadataRecord(flow.offsets_topic, number, key, value if offset > 0 else None))
    return records


class _Return:
    def __init__(
        self, config: Config, link: Link, flow: Mm2Flow, tell: Callable[[str], None], clock: Clock
    ) -> None:
        self._link, self._flow, self._tell, self._clock = link, flow, tell, clock
        self._clusters = config.clusters[link.source], config.clusters[link.target]
        self._names = LinkNames(link.state_name)
        role = self._names.client_id("hand-back")
        self._role = role
        self._source = ClusterAdmin(self._clusters[0], client_id=role)
        self._admin = ClusterAdmin(self._clusters[1], client_id=role)
        self._reader = CompactedTopicReader(self._clusters[1], self._admin, client_id=role, clock=clock)
        self._state = Mm2State(link, flow, *self._clusters, client_id=role, clock=clock)

    def run(self, *, dry_run: bool) -> HandBack:
        members = self._state.group().members
        if members:
            raise DifferenceError(
                f"link {self._link.name}: MirrorMaker 2 runs: in its group {self._flow.group}: {', '.join(members)}",
                fix="stop all of its workers, hand the link back, then start them again",
            )
        self._refuse_handed_over()
        positions = self._positions()
        if not positions:
            raise StateError(
                f"link {self._link.name} has mirrored nothing that could be handed back",
                fix="compare the name of the link with that of the run; just start MirrorMaker 2",
            )
        partitions = self._offsets_partitions()
        if dry_run:
            return self._found(self._going_on(positions), self._had(), committed=False)
        discovery = Discovery(self._link, *self._clusters, clock=self._clock)
        owner = LinkOwner(
            self._link,
            *self._clusters,
            run=new_run_id(),
            clock=self._clock,
            on_event=self._tell,
            hanging_client=target_hanging_client,
        )
        try:
            owner.acquire(self._link.lanes, discovery.prepare())
            try:
                # nothing of ours can be committed from here on
                going_on = self._going_on(self._positions())
                had = self._had()
                self._tell(f"writing {len(going_on)} source offsets to {self._flow.offsets_topic}")
                owner.hand_over(
                    source_offsets(going_on, had, self._flow, partitions),
                    replicator="mm2",
                    place=self._flow.offsets_topic,
                )
            except MirrorError:
                owner.release()
                raise
        finally:
            owner.close()
            discovery.close()
        return self._found(going_on, had, committed=True)

    def close(self) -> None:
        """Close all clients."""
        self._state.close()
        self._reader.close()
        self._admin.close()
        self._source.close()

    def _going_on(self, positions: Mapping[SourcePartition, Position]) -> dict[SourcePartition, int]:
        found = goes_on(
            positions, self._source.describe_topics(sorted({source.topic for source in positions}))
        )
        anew = sorted(
            {source.topic for source, offset in found.items() if offset != positions[source].offset}
        )
        for topic in anew:
            self._tell(f"source topic {topic} was created anew: MirrorMaker 2 begins at its beginning")
        return found

    def _positions(self) -> Mapping[SourcePartition, Position]:
        topic = self._names.positions_topic
        if self._admin.describe_topics([topic])[topic] is None:
            return {}
        return valid_positions(self._reader.read(topic)[1])

    def _refuse_handed_over(self) -> None:
        """MM2 may have gone on since: our positions would send it back."""
        topic = self._names.control_topic
        if self._admin.describe_topics([topic])[topic] is not None:
            records = self._reader.read(topic, wait_for_open=False)[1]
            view = control_view(records)
            refuse_handed_over(self._link.name, view)

    def _had(self) -> Mapping[SourcePartition, int | None]:
        return self._state.committed().offsets

    def _offsets_partitions(self) -> int:
        topic = self._flow.offsets_topic
        facts = self._admin.describe_topics([topic])[topic]
        if facts is None:
            raise StateError(
                f"topic {topic} does not exist on {self._admin.name}: MirrorMaker 2 never ran here",
                fix=f"create it as Connect does, compacted with {_PARTITIONS} partitions: kafka-topics.sh --create "
                f"--topic {topic} --partitions {_PARTITIONS} --config cleanup.policy=compact",
            )
        return facts.partitions

    def _found(
        self,
        going_on: Mapping[SourcePartition, int],
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
                    goes_on=offset,
                    had=had.get(source),
                )
                for source, offset in going_on.items()
            ),
            committed=committed,
        )
