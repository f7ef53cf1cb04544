"""
Heartbeats of a link in MirrorMaker 2's format (KIP-382).

MM2's clients derive from the names of heartbeat topics which clusters feed a cluster; monitoring reads their
timestamps.  Heartbeats that the link writes on the target show that it runs.  Heartbeats that it writes on the source
are mirrored, and their copies also show that it carries records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.kafka.plain_producer import PlainProducer
from eomirror.records.mm2 import Heartbeat
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link

__all__ = ["Heartbeats"]


class Heartbeats:
    """
    Writes heartbeats to the cluster that the link's ``heartbeats`` setting names.

    Args:
        link: A link whose ``heartbeats`` is not ``off``.
    """

    def __init__(self, link: Link, source: Cluster, target: Cluster, clock: Clock) -> None:
        names = link.mm2_names
        self._link = link
        self._clock = clock
        on_source = link.heartbeats == "source"
        self._producer = PlainProducer(
            source if on_source else target,
            client_id=LinkNames(link.state_name).client_id("heartbeats"),
            topic=names.heartbeats if on_source else names.remote_heartbeats(link.source),
        )

    def beat(self) -> None:
        """Writes one heartbeat; never blocks."""
        beat = Heartbeat(self._link.source, self._link.target, self._clock.wall_ms())
        self._producer.send(beat.key(), beat.value())

    def close(self) -> None:
        """Flushes pending heartbeats and closes the producer."""
        self._producer.close()
