"""Ends transactions that lanes of older layouts left hanging in state topics, and in copies (docs/adr/0012)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import DataLossError, StateError, TransactionFailedError, UnreachableError
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.records.names import LinkNames, ReadersTopics, StateTopics
from eomirror.recovery.hanging_client import TargetHangingClient
from eomirror.recovery.resolve_hanging import HangingResolver

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.config import Link
    from eomirror.errors import MirrorError
    from eomirror.kafka.session import ClusterSession
    from eomirror.link.state import LinkState
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import HangingClient
    from eomirror.types import SourcePartition

__all__ = ["end_hanging", "end_hanging_copies", "target_hanging_client"]

log = structlog.get_logger(__name__)

_TRIES = 5


def target_hanging_client(link: Link, target: ClusterSession) -> TargetHangingClient:
    """Returns the client that finds and ends hanging transactions on a link's target."""
    return TargetHangingClient(link, target, offset_map=OffsetMapReader(link, target))


def end_hanging(
    link: Link,
    names: LinkNames,
    state: LinkState,
    hanging_client: HangingClient,
    highest: int,
    *,
    only: Collection[int] | None = None,
) -> None:
    """
    Ends hanging transactions that hide the owner's records in control and positions.

    The lanes that left them may never run again.

    Args:
        state: Reads the state topics.
        highest: Highest lane number that any generation ever used.
        only: The fenced lanes, while others run; None for all lanes.

    Raises:
        TransactionFailedError: A transaction stays open after it was ended.
        MirrorError: The target refuses the request, or does not answer.
    """

    def lanes() -> Mapping[int, int]:
        found = hanging_client.lanes(highest)
        return {producer: lane for producer, lane in found.items() if only is None or lane in only}

    partitions = state.positions_partitions()
    numbers = range(partitions) if only is None else sorted({lane % partitions for lane in only})
    positions = partial(state.positions, wait_for_open=False, overruled=())
    for _ in range(_TRIES):
        mending = HangingResolver(names, hanging_client)
        if not mending.find_hanging_state(numbers, lanes, positions):
            return
        # The target may fail to write the markers of this end as well.
        log.warning("hanging_transactions_ended", link=link.name, committed=mending.end({}))
    raise TransactionFailedError("a transaction of an older layout's lane stays open after it was ended")


def end_hanging_copies(
    link: Link,
    target: ClusterSession,
    positions: Mapping[SourcePartition, Position],
    *,
    highest_lane: int,
    abort_torn: bool = False,
) -> None:
    """
    Ends transactions that fenced lanes left hanging in the copies and in the topics that describe them.

    Args:
        link: The link; all of its lanes are fenced.
        target: Connections to its target.
        positions: Its final positions.
        highest_lane: Highest lane number that any generation ever used.
        abort_torn: Abort a hanging transaction of which a part was committed, which else is an error: its copy has lost
            records, and then holds none of that transaction.

    Raises:
        MirrorError: A copy contradicts its position, a transaction stays open, or the target does not answer.
    """
    names = LinkNames(link.state_name)
    mm2 = link.mm2_names
    readers = ReadersTopics(
        checkpoints=mm2.checkpoints(link.source) if link.groups else "",
        offset_syncs=mm2.offset_syncs(link.source) if link.offset_syncs == "target" else "",
    )
    known = target.admin.describe_topics(
        [
            names.positions_topic,
            names.offset_map_topic,
            *filter(None, (readers.checkpoints, readers.offset_syncs)),
        ]
    )
    map_facts = known[names.offset_map_topic]
    if map_facts is None:
        raise StateError(
            f"topic {names.offset_map_topic} does not exist",
            fix="restore the eomirror.* topics of the link together; see `eomirror plan CONFIG`",
        )
    readers = ReadersTopics(
        checkpoints=readers.checkpoints if known.get(readers.checkpoints) else "",
        offset_syncs=readers.offset_syncs if known.get(readers.offset_syncs) else "",
    )
    topics = StateTopics(
        names.positions_topic, 0, names.offset_map_topic, map_facts.partitions, names.dead_letter_topic
    )
    copies = target.admin.describe_topics(sorted({one.target_topic for one in positions.values()}))
    there = {source: one for source, one in positions.items() if copies[one.target_topic] is not None}
    client = target_hanging_client(link, target)
    torn: list[MirrorError] = []

    def stop(_: Position, error: MirrorError) -> bool:
        aborts = abort_torn and isinstance(error, DataLossError)
        if not aborts:
            torn.append(error)
        return aborts

    resolver = HangingResolver(names, client, readers)
    lanes = partial(client.lanes, highest_lane)
    for _ in range(_TRIES):
        if not resolver.find_hanging_copies(
            there,
            topics=topics,
            dead_letters=link.on_refused == "dead-letter",
            mine=lanes(),
            lanes=lanes,
            stop=stop,
        ):
            resolver.release()
            if torn:
                raise torn[0]
            return
        log.warning("hanging_transactions_ended", link=link.name, committed=resolver.end({}))
    raise UnreachableError(
        f"link {link.name}: a transaction of a lane stays open in a copy after it was ended",
        fix="wait until the target is healthy, then repeat this",
    )
