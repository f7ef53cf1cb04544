"""Where the logs of a comparison end now, for a reader that gets no further or wants to know what came meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import TopicError, UnreachableError
from eomirror.kafka.admin import ClusterAdmin

if TYPE_CHECKING:
    from eomirror.clock import Clock
    from eomirror.config import Cluster
    from eomirror.verify.verdict import Range, Scope

__all__ = ["LogEnd", "stalled"]


class LogEnd:
    """
    Asks both clusters; connects when it is asked first.

    Args:
        source: Source cluster.
        target: Target cluster.
        client_id: What brokers see.
        clock: Where time comes from.
    """

    def __init__(self, source: Cluster, target: Cluster, *, client_id: str, clock: Clock) -> None:
        self._clusters = (source, target)
        self._client_id = client_id
        self._clock = clock
        self._admins: tuple[ClusterAdmin, ...] = ()

    def stable(self, one: Scope) -> tuple[int, int]:
        """
        Last stable offsets of a partition and its copy.

        Raises:
            MirrorError: A cluster cannot be reached or refuses us, or a topic is gone.
        """
        if not self._admins:
            self._admins = tuple(
                ClusterAdmin(cluster, client_id=self._client_id, clock=self._clock)
                for cluster in self._clusters
            )
        source, target = (
            admin.offsets([(part.topic, part.partition)], at="latest", read_committed=True)[
                part.topic, part.partition
            ]
            for admin, part in zip(self._admins, (one.source, one.target), strict=True)
        )
        return source, target

    def check(self, one: Scope, reached: tuple[int, int], wanted: tuple[bool, bool]) -> None:
        """
        Say why a comparison gets no further; nothing while a cluster cannot be reached, which is waited for.

        Args:
            one: What is compared.
            reached: Offsets of source and target up to which it was read.
            wanted: Whether more of source and target is waited for.

        Raises:
            TopicError: A log ends before what was there when the comparison began, or its brokers give nothing of it.
            MirrorError: A cluster refuses us.
        """
        try:
            ends = self.stable(one)
        except UnreachableError:
            return
        for part, at, end, waits in zip((one.source, one.target), reached, ends, wanted, strict=True):
            why = stalled(part, at, end) if waits else ""
            if why:
                raise TopicError(
                    why,
                    topic=part.topic,
                    fix="verify again; if it comes back, look at what happens to the topic",
                )

    def close(self) -> None:
        """Close what was opened."""
        for admin in self._admins:
            admin.close()
        self._admins = ()


def stalled(part: Range, reached: int, end: int) -> str:
    """
    Why a log is not read any further; empty if it is read to where it shall be.

    Args:
        part: What shall be read.
        reached: Up to where it was.
        end: Its last stable offset now.
    """
    where = f"{part.topic}-{part.partition}"
    if reached >= part.tail:
        return ""
    if end < part.tail:
        return (
            f"{where} ends at {end} now, before {part.tail}, where it ended when the comparison began: it was created "
            "anew, truncated or restored from an older log meanwhile"
        )
    return f"{where} was read to {reached}, and its brokers give nothing of what lies before {end}"
