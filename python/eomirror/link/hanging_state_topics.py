"""Ends transactions that lanes of older layouts left hanging in the link's state topics (docs/adr/0012)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import TransactionFailedError
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.recovery.hanging_client import TargetHangingClient
from eomirror.recovery.resolve_hanging import HangingResolver

if TYPE_CHECKING:
    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.link.state import LinkState
    from eomirror.records.names import LinkNames
    from eomirror.recovery.hanging import HangingClient

__all__ = ["end_hanging", "target_hanging_client"]

log = structlog.get_logger(__name__)

_TRIES = 5


def target_hanging_client(link: Link, target: ClusterSession) -> TargetHangingClient:
    """Returns the client that finds and ends hanging transactions on a link's target."""
    return TargetHangingClient(link, target, offset_map=OffsetMapReader(link, target))


def end_hanging(
    link: Link, names: LinkNames, state: LinkState, hanging_client: HangingClient, highest: int
) -> None:
    """
    Ends hanging transactions that hide the owner's records in control and positions.

    The lanes that left them may never run again.

    Args:
        state: Reads the state topics.
        highest: Highest lane number that any generation ever used.

    Raises:
        TransactionFailedError: A transaction stays open after it was ended.
        MirrorError: The target refuses the request, or does not answer.
    """
    lanes = partial(hanging_client.lanes, highest)
    positions = partial(state.positions, wait_for_open=False, overruled=())
    for _ in range(_TRIES):
        mending = HangingResolver(names, hanging_client)
        if not mending.find_hanging_state(range(state.positions_partitions()), lanes, positions):
            return
        # The target may fail to write the markers of this end as well.
        log.warning("hanging_transactions_ended", link=link.name, committed=mending.end({}))
    raise TransactionFailedError("a transaction of an older layout's lane stays open after it was ended")
