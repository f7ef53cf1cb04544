"""
Hands a link back to MirrorMaker 2: MM2's next record is the one that the link would have mirrored next.

The order of the steps makes it exact:

1. refuse while MM2 runs: a member of its group would resume with the offsets in its memory;
2. take the link, which fences every lane it ever had: no lane can commit any more;
3. read the positions, and MM2's present offsets;
4. commit a source offset for every partition into ``mm2-offsets.SOURCE.internal``, under the key bytes that Kafka
   Connect looks for (`eomirror.records.connect_offsets`), and in the same transaction a record in control that MM2
   mirrors the link.  After it, a run of the link is refused, and so is a second hand-over, which would move MM2 back.
   `eomirror adopt` takes the link back.

A position is the next source offset to mirror, behind markers and aborted records; MM2 stores the last offset that it
has processed and resumes behind it.  So the written offset is the position minus one, whatever record is there.

A position at 0 has no such offset, and a position of a recreated source topic is not valid for the new one, of which
the link has mirrored no record: MM2 begins both at their beginning if it knows no offset.  So its old offset there is
deleted; otherwise it would resume behind that, and skip records that were never mirrored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eomirror._native import key_partition
from eomirror.clock import SYSTEM_CLOCK, Clock, new_run_id
from eomirror.config.model import require_untransformed
from eomirror.errors import DifferenceError, MirrorError, StateError
from eomirror.kafka.compacted_topic import CompactedTopicReader, control_view
from eomirror.kafka.session import link_sessions
from eomirror.link.hanging import target_hanging_client
from eomirror.link.owner import LinkOwner
from eomirror.link.ownership import refuse_handed_over, refuse_promoted
from eomirror.link.state import link_discovery
from eomirror.link.valid_positions import valid_positions
from eomirror.mm2.state import Mm2State
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.connect_offsets import Mm2Flow, encode_source_offset
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.config import Config, Link
    from eomirror.kafka.cluster_metadata import TopicFacts
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["HandBack", "HandedBack", "goes_on", "hand_back_to_mm2", "source_offsets"]

# Connect's default partition count.
_PARTITIONS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedBack:
    """
    Hand-over of one partition.

    Attributes:
        topic: Source topic.
        goes_on: Source offset that MM2 fetches first.
        had: MM2's offset before; None for none.
    """

    topic: str
    partition: int
    goes_on: int
    had: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBack:
    """
    Result of a hand-over.

    Attributes:
        place: MM2's topic of source offsets.
        partitions: Every partition that has a position.
        committed: True if the offsets were written.
    """

    link: str
    place: str
    partitions: tuple[HandedBack, ...]
    committed: bool

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
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
    Writes MM2's resume offset of every partition of a link, and ends the link.

    Args:
        config: Configuration that the mirror ran with.
        link: Name of the link; required if there are several.
        flow: Names of MM2's topics and group; by default those of its dedicated mode, with the link's aliases.
        dry_run: Only inspect: fences nothing, writes nothing.
        on_event: Receives a short text for each step.

    Raises:
        UsageError: The configuration has several links and none was named.
        DifferenceError: MM2 runs.
        SupersededError: The link runs.
        StateError: The link has no positions or was handed back before, MM2 has never run there, or a record is not
            readable.
        MirrorError: A cluster cannot be reached or refuses the request.
    """
    chosen = config.mapped_link(link)
    require_untransformed(chosen, "`hand-back`")
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
    Returns the source offset that MM2 must fetch first in every partition. Pure.

    Args:
        positions: Positions of the link.
        sources: The source topics; None for one that does not exist, of which only the position is known.
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
    Returns the records for MM2's topic of source offsets. Pure.

    Args:
        going_on: Source offset that MM2 must fetch first, by partition.
        had: MM2's offsets before.
        partitions: Partition count of MM2's topic.
    """
    records = []
    for source, offset in going_on.items():
        # Without an offset MM2 begins at the beginning.
        if offset > 0 or had.get(source) is not None:
            key, value = encode_source_offset(source, max(0, offset - 1), flow)
            number = key_partition(key, partitions)
            records.append(MetadataRecord(flow.offsets_topic, number, key, value if offset > 0 else None))
    return records


class _Return:
    def __init__(
        self, config: Config, link: Link, flow: Mm2Flow, on_event: Callable[[str], None], clock: Clock
    ) -> None:
        self._link, self._flow, self._on_event, self._clock = link, flow, on_event, clock
        clusters = config.clusters[link.source], config.clusters[link.target]
        self._sessions = link_sessions(link, *clusters, "hand-back", clock=clock)
        self._names = LinkNames(link.state_name)
        self._source, self._admin = (session.admin for session in self._sessions)
        self._reader = CompactedTopicReader(self._sessions.target)
        self._state = Mm2State(link, flow, *self._sessions)

    def run(self, *, dry_run: bool) -> HandBack:
        members = self._state.group().members
        if members:
            raise DifferenceError(
                f"link {self._link.name}: MirrorMaker 2 runs: in its group {self._flow.group}: {', '.join(members)}",
                fix="stop all of its workers, hand the link back, then start them again",
            )
        self._refuse_ended()
        positions = self._positions()
        if not positions:
            raise StateError(
                f"link {self._link.name} has mirrored no partition that could be handed back",
                fix="compare the name of the link with that of the run; just start MirrorMaker 2",
            )
        partitions = self._offsets_partitions()
        if dry_run:
            return self._found(self._going_on(positions), self._had(), committed=False)
        discovery = link_discovery(self._link, *self._sessions, clock=self._clock)
        owner = LinkOwner(
            self._link,
            *self._sessions,
            run=new_run_id(),
            clock=self._clock,
            on_event=self._on_event,
            hanging_client=target_hanging_client,
            command="hand-back",
        )
        try:
            owner.acquire(self._link.lanes, discovery.prepare())
            try:
                # From here no lane can commit.
                going_on = self._going_on(self._positions())
                had = self._had()
                self._on_event(f"writing {len(going_on)} source offsets to {self._flow.offsets_topic}")
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
        return self._found(going_on, had, committed=True)

    def close(self) -> None:
        """Closes all clients."""
        self._sessions.close()

    def _going_on(self, positions: Mapping[SourcePartition, Position]) -> dict[SourcePartition, int]:
        found = goes_on(
            positions, self._source.describe_topics(sorted({source.topic for source in positions}))
        )
        anew = sorted(
            {source.topic for source, offset in found.items() if offset != positions[source].offset}
        )
        for topic in anew:
            self._on_event(f"source topic {topic} was recreated: MirrorMaker 2 begins at its beginning")
        return found

    def _positions(self) -> Mapping[SourcePartition, Position]:
        return valid_positions(self._reader.records(self._names.positions_topic))

    def _refuse_ended(self) -> None:
        """
        Raises if the link was handed back before, or is promoted.

        MM2 may have advanced, and our positions would rewind it.  It must not write among the records of applications.
        """
        view = control_view(self._reader.records(self._names.control_topic, wait_for_open=False))
        refuse_handed_over(self._link.name, view)
        refuse_promoted(self._link.name, view)

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
