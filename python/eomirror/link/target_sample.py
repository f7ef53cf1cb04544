"""Reads copies just far enough to classify their content (`eomirror.link.filled_targets.Held`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror._native import last_hop
from eomirror.clock import Clock, Deadline
from eomirror.errors import StateError
from eomirror.kafka.partition_reader import GONE, PartitionReader
from eomirror.link.filled_targets import Held
from eomirror.records.mm2 import Mm2Names, decode_heartbeat
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster

__all__ = ["TargetSample"]

# A copy with records of applications is read in full, and the start must not take for ever.
_SECONDS = 30.0

_Where = tuple[str, int]


class TargetSample:
    """
    Reads committed records of copies; connects on first use.

    Args:
        client_id: Client id that brokers see.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._clock = clock
        self._reader: PartitionReader | None = None

    def look(
        self, copies: Mapping[_Where, tuple[int, int, int]], *, source_cluster_id: str | None
    ) -> dict[_Where, Held]:
        """
        Returns the content of copies, as far as it can be read in half a minute.

        Args:
            copies: First offset to read, last stable offset, and high watermark of each copy.
            source_cluster_id: Count only records that were copied from this cluster; None for all.

        Raises:
            AuthorizationError: A copy may not be read.
            MirrorError: The cluster refuses the request.
        """
        held: dict[_Where, Held] = {}

        def take(where: _Where, message: Any) -> bool:
            if source_cluster_id is None:
                held[where] = Held.HEARTBEATS if _is_heartbeat(message) else Held.RECORDS
                return True
            ours = _copied_from(message) == source_cluster_id
            # A record of an application or another cluster; a later one may be ours.
            held[where] = Held.OURS if ours else Held.RECORDS
            return ours or bool(message.offset() + 1 >= copies[where][1])

        ranges = {where: (begin, stable) for where, (begin, stable, _) in copies.items() if begin < stable}
        if ranges:
            if self._reader is None:
                self._reader = PartitionReader(
                    self._cluster,
                    client_id=self._client_id,
                    clock=self._clock,
                    tuning={"queued.max.messages.kbytes": 8192},
                )
            deadline = Deadline(_SECONDS, self._clock)
            unread = self._reader.read(
                ranges, take, deadline=deadline, to_end=True, passing=GONE, partial=True
            )
            held.update(dict.fromkeys(unread, Held.UNSEEN))
        for where, (_, stable, end) in copies.items():
            held.setdefault(where, Held.OPEN if stable < end else Held.NOTHING)
        return held

    def close(self) -> None:
        """Closes the consumer."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _copied_from(message: Any) -> str | None:
    try:
        headers = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        # The mirror writes only UTF-8 names, and the client shows no headers of such a record.
        return None
    found = next((value for name, value in reversed(headers) if name == HOPS_HEADER), None)
    return None if found is None else last_hop(found, message.topic(), message.key(), message.value())


def _is_heartbeat(message: Any) -> bool:
    name = Mm2Names().heartbeats
    if message.topic() != name and not message.topic().endswith(f".{name}"):
        return False
    try:
        decode_heartbeat(message.key(), message.value(), where=message.topic())
    except StateError:
        return False
    return True
