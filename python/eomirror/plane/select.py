"""
Selects the plane of each producer of a lane, with the reason.

The native plane serves unless the link says ``plane: client``.  The client plane takes over in three cases, which
docs/guarantees.md lists for users.  First, the target refuses a record: the client plane isolates it, because it can
send ranges of records and skip one (`eomirror.lane.poison_records`), and the lane returns to the native plane after
the search.  Second, a cluster has a property that only librdkafka has.  Third, the source holds message format 0 or
1, which only librdkafka reads.  In the last two cases the native plane raises PlaneChangedError if the link says
``plane: auto``, and the client plane stays for the attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.plane.client.plane import ClientPlane
from eomirror.plane.native.batch_reader import BatchReader
from eomirror.plane.native.plane import NativePlane
from eomirror.plane.protocol import SendPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.clock import Clock
    from eomirror.lane.spec import LaneSpec
    from eomirror.link.lane_state import LaneTopics
    from eomirror.plane.protocol import Plane

__all__ = ["PlaneSelector", "plane_selector"]

log = structlog.get_logger(__name__)

_SEARCH = "a record that the target refuses is being isolated"


class PlaneSelector:
    """
    Holds the plane of a lane, one at a time.  Not thread-safe.

    Args:
        lane: Number of the lane, for the log.
        native: Makes a native plane.
        client: Makes a client plane, for a reason.
    """

    def __init__(self, lane: int, *, native: Callable[[], Plane], client: Callable[[str], Plane]) -> None:
        self._lane = lane
        self._native, self._client = native, client
        # why only the client plane can serve; empty if both can
        self._reason = ""
        self._plane: Plane | None = None
        # name of `_plane`, and what it knows of refused records
        self._serves = ""
        self._send_plan = SendPlan()

    def select(self, send_plan: SendPlan) -> Plane:
        """
        Returns the plane of the next producer, and closes the one before if it is another.

        Args:
            send_plan: How to send records from the next transaction on.
        """
        reason = self._reason or (_SEARCH if send_plan.ranges else "")
        wanted = "client" if reason else "native"
        if self._plane is None or wanted != self._serves:
            self.close()
            self._plane = self._client(reason) if reason else self._native()
            self._serves, self._send_plan = wanted, SendPlan()
            log.info("plane_serves", lane=self._lane, plane=wanted, **({"reason": reason} if reason else {}))
        if send_plan != self._send_plan:
            self._plane.set_send_plan(send_plan)
            self._send_plan = send_plan
        return self._plane

    def fall_back(self, reason: str) -> None:
        """Selects the client plane from the next producer on, for a reason."""
        self._reason = reason
        log.info("plane_chosen", lane=self._lane, plane="client", reason=reason)

    def close(self) -> None:
        """Closes all clients."""
        if self._plane is not None:
            self._plane.close()
            self._plane = None


def plane_selector(spec: LaneSpec, topics: LaneTopics, clock: Clock) -> PlaneSelector:
    """
    Returns the selector of a lane.

    Args:
        spec: Its link says which plane is wanted.
        topics: Reads the settings of topics.
    """
    policies = topics.source_policies
    selector = PlaneSelector(
        spec.lane,
        native=lambda: NativePlane(spec, topics.target_settings, clock, policies=policies),
        client=lambda reason: ClientPlane(
            spec, clock, reason=reason, policies=policies, explain=BatchReader(spec).holes
        ),
    )
    if spec.link.plane == "client":
        selector.fall_back("the link says so")
    return selector
