"""
Heartbeats of a link, as MirrorMaker 2's readers know them (KIP-382).

MM2's clients find out from the names of heartbeat topics alone which clusters feed one; monitoring looks at their
timestamps.  Those that the link writes on the target itself show that it runs.  Those that it writes on the source
are mirrored, and their copies show besides that it carries records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.kafka.plain_producer import PlainProducer
from eomirror.records.mm2 import Heartbeat, Mm2Names
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link

__all__ = ["Heartbeats"]


class Heartbeats:
    """
    Writes them, to where ``heartbeats`` of the link says.

    Args:
        link: The link; its ``heartbeats`` is not ``off``.
        source: Its source cluster.
        target: Its target cluster.
        clock: Where time comes from.
    """

    def __init__(self, link: Link, source: Cluster, target: Cluster, clock: Clock) -> None:
        names = Mm2Names()
        self._link = link
        self._clock = clock
        on_source = link.heartbeats == "source"
        self._producer = PlainProducer(
            source if on_source else target,
            client_id=LinkNames(link.state_name).client_id("heartbeats"),
            topic=names.heartbeats if on_source else names.remote_heartbeats(link.source),
        )

    def beat(self) -> None:
        """Write one; never waits."""
        beat = Heartbeat(self._link.source, self._link.target, self._clock.wall_ms())
        self._producer.send(beat.key(), beat.value())

    def close(self) -> None:
        """Send what is left, and close."""
        self._producer.close()
