"""Reads a link's state topics: control, positions, and the offset map's log ends; and what discovery needs of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import StateError
from eomirror.kafka.compacted_topic import CompactedTopicReader, control_view
from eomirror.link.ownership import refuse_copying_back, refuse_handed_over, refuse_promoted
from eomirror.link.valid_positions import valid_positions
from eomirror.records.control import ControlView
from eomirror.records.names import LinkNames
from eomirror.topics import discovery

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.config import Cluster, Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.records.promotion import PromotionHistory
    from eomirror.topics.discovery import Discovery
    from eomirror.types import SourcePartition

__all__ = ["LinkState", "control_of", "history_of", "link_discovery", "refuse_ended"]


def control_of(link: Link, target: ClusterSession) -> ControlView:
    """
    Returns the control topic of a link; empty if it never ran.

    Raises:
        StateError: A record is not readable.
        ClusterError: The target does not answer.
    """
    topic = LinkNames(link.state_name).control_topic
    if target.admin.describe_topics([topic])[topic] is None:
        return ControlView()
    return LinkState(link, target).control(wait_for_open=False)


def history_of(link: Link, target: ClusterSession) -> PromotionHistory:
    """
    Returns the promotions of a link; empty if it never ran.

    Raises:
        StateError: A record is not readable.
        ClusterError: The target does not answer.
    """
    return control_of(link, target).history


def refuse_ended(link: Link, target: ClusterSession) -> None:
    """
    Refuses a link that applications, another replicator, or a recreation writes in place of.

    The owner checks that again with the claim in its hands; this comes before the source is asked.

    Raises:
        NotReadyError: The link is promoted, or copies topics back whole.
        StateError: It was handed to another replicator, or a record is not readable.
        MirrorError: The target does not answer.
    """
    # a cluster that is away is named within seconds; a description of topics waits 30 s for it
    target.admin.describe_cluster()
    topic = LinkNames(link.state_name).control_topic
    if target.admin.describe_topics([topic])[topic] is None:
        return
    view = LinkState(link, target).control(wait_for_open=False)
    refuse_handed_over(link.name, view)
    refuse_promoted(link.name, view)
    refuse_copying_back(link.name, view)


def link_discovery(
    link: Link,
    source: ClusterSession,
    target: ClusterSession,
    *,
    clock: Clock = SYSTEM_CLOCK,
    clusters: Mapping[str, Cluster] | None = None,
    overruled: Collection[SourcePartition] = (),
) -> Discovery:
    """
    Returns the discovery of a link, which creates no copy that the link has a position for (EO-5).

    Args:
        clusters: As of `Discovery`.
        overruled: Partitions whose positions the caller sets anew: their copies may be created.
    """
    positions = partial(LinkState(link, target).positions, wait_for_open=False, overruled=overruled)
    return discovery.Discovery(link, source, target, clock=clock, clusters=clusters, positions=positions)


class LinkState:
    """
    Reads the state topics of one link.

    Args:
        target: Connections to the target.
    """

    def __init__(self, link: Link, target: ClusterSession) -> None:
        self._names = LinkNames(link.state_name)
        self._admin = target.admin
        # Another producer's open transaction may delay the read for as long as its timeout.
        self._patience = 2 * link.transaction_timeout + 10
        self._reader = CompactedTopicReader(target)

    def control(self, *, wait_for_open: bool = True) -> ControlView:
        """
        Returns the content of control.

        Args:
            wait_for_open: See `CompactedTopicReader.read`.

        Raises:
            StateError: A record is not readable.
            MirrorError: The target refuses the request, or does not answer.
        """
        topic = self._names.control_topic
        _, records = self._reader.read(topic, seconds=self._patience, wait_for_open=wait_for_open)
        return control_view(records)

    def positions(
        self, *, wait_for_open: bool, overruled: Collection[SourcePartition]
    ) -> Mapping[SourcePartition, Position]:
        """
        Returns the valid position of every source partition.

        Args:
            wait_for_open: See `CompactedTopicReader.read`.
            overruled: Partitions whose positions are ignored.

        Raises:
            StateError: A record is not readable, or goes back.
            MirrorError: The target refuses the request, or does not answer.
        """
        topic = self._names.positions_topic
        _, records = self._reader.read(topic, seconds=self._patience, wait_for_open=wait_for_open)
        return valid_positions(records, overruled=overruled)

    def positions_partitions(self) -> int:
        """
        Returns the partition count of the positions topic.

        Raises:
            StateError: The topic does not exist.
            MirrorError: The target refuses the request, or does not answer.
        """
        topic = self._names.positions_topic
        facts = self._admin.describe_topics([topic])[topic]
        if facts is None:
            raise StateError(
                f"topic {topic} does not exist",
                fix="restore the eomirror.* topics of the link together; see `eomirror plan CONFIG`",
            )
        return facts.partitions

    def map_has_records(self) -> bool:
        """
        Returns True if the offset map's log is not empty, committed or not.

        Raises:
            MirrorError: The target refuses the request, or does not answer.
        """
        topic = self._names.offset_map_topic
        facts = self._admin.describe_topics([topic])[topic]
        if facts is None:
            return False
        names = [(topic, number) for number in range(facts.partitions)]
        ends = self._admin.offsets(names, at="latest", read_committed=False)
        return any(end > 0 for end in ends.values())
