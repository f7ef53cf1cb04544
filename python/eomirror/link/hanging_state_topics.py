"""Ends what lanes of older layouts left open in the link's own topics (docs/adr/0012)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import TransactionFailedError
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.recovery.hanging_client import TargetHangingClient
from eomirror.recovery.resolve_hanging import HangingResolver

if TYPE_CHECKING:
    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.link.state import LinkState
    from eomirror.records.names import LinkNames
    from eomirror.recovery.hanging import HangingClient

__all__ = ["end_left_open", "target_hanging_client"]

log = structlog.get_logger(__name__)

_TRIES = 5


def target_hanging_client(
    link: Link, target: Cluster, admin: ClusterAdmin, *, client_id: str, clock: Clock
) -> TargetHangingClient:
    """Returns the client that finds and ends hanging transactions on a link's target."""
    return TargetHangingClient(
        link,
        target,
        admin,
        client_id=client_id,
        offset_map=lambda: OffsetMapReader(link, target, clock=clock),
        clock=clock,
    )


def end_left_open(
    link: Link, names: LinkNames, state: LinkState, hanging_client: HangingClient, highest: int
) -> None:
    """
    End what hides the owner's records in control and positions; the lanes that left it open may never run again.

    Args:
        link: The link.
        names: Its names.
        state: Reads its topics.
        hanging_client: Sees and ends what is open.
        highest: Highest lane number that any generation ever used.

    Raises:
        TransactionFailedError: It stays open, also after it was ended.
        MirrorError: The target refuses us, or does not answer.
    """
    lanes = partial(hanging_client.lanes, highest)
    positions = partial(state.positions, wait_for_open=False, overruled=())
    for _ in range(_TRIES):
        mending = HangingResolver(names, hanging_client)
        if not mending.find_hanging_state(range(state.positions_partitions()), lanes, positions):
            return
        # the markers of this end may be left out as well
        log.warning("left_open_ended", link=link.name, committed=mending.end({}))
    raise TransactionFailedError("what lanes of older layouts left open stays open, also after it was ended")
