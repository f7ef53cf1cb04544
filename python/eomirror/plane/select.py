"""Selects a lane's plane, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror._native import PlaneReader
from eomirror.errors import ClusterError
from eomirror.plane.client.plane import ClientPlane
from eomirror.plane.fallback import FallbackPlane
from eomirror.plane.native.batch_reader import BatchReader
from eomirror.plane.native.oauth import with_tokens
from eomirror.plane.native.plane import NativePlane, lane_properties

if TYPE_CHECKING:
    from eomirror.clock import Clock
    from eomirror.lane.spec import LaneSpec
    from eomirror.link.lane_state import LaneTopics
    from eomirror.plane.protocol import Plane

__all__ = ["choose_plane", "unsupported_properties"]

log = structlog.get_logger(__name__)

# batches keep the codec of their producers, so these have no effect
_CODECS = ("compression.type", "compression.codec", "compression.level")


def choose_plane(spec: LaneSpec, topics: LaneTopics, clock: Clock) -> Plane:
    """
    Returns the plane of a lane, not yet open.

    Args:
        spec: Its link says which plane is wanted.
        topics: Reads the settings of target topics.

    Raises:
        ClusterError: ``plane: native`` is set, and the native plane cannot honour a property of a cluster.
    """
    wanted = spec.link.plane
    reasons = [] if wanted == "client" else unsupported_properties(spec)
    if reasons and wanted == "native":
        raise ClusterError(
            f"the native plane cannot honour {'; '.join(reasons)}",
            fix="set plane: auto or plane: client on the link, or remove these properties",
        )
    if wanted == "client" or reasons:
        reason = "; ".join(reasons) or "the link says so"
        log.info("plane_chosen", lane=spec.lane, plane="client", reason=reason)
        return _client_plane(spec, topics, clock, reason)
    return FallbackPlane(
        spec.lane,
        native=lambda: NativePlane(spec, topics.target_settings, clock, policies=topics.source_policies),
        client=lambda reason: _client_plane(spec, topics, clock, reason),
        fall_back=wanted == "auto",
    )


def _client_plane(spec: LaneSpec, topics: LaneTopics, clock: Clock, reason: str) -> ClientPlane:
    return ClientPlane(
        spec, clock, reason=reason, policies=topics.source_policies, explain=BatchReader(spec).holes
    )


def unsupported_properties(spec: LaneSpec) -> list[str]:
    """Returns the clusters' properties that the native plane cannot honour, each with its reason."""
    source, target = lane_properties(spec)
    found = [
        f"{cluster.alias}: {name}: {reason}"
        for cluster, properties in ((spec.source, source), (spec.target, target))
        for name, reason in PlaneReader.refusals(*with_tokens(properties))
    ]
    found += [
        f"{spec.target.alias}: {name}: batches keep the compression of their producers"
        for name in _CODECS
        if name in target
    ]
    return found
