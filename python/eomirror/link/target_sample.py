"""Reads copies just far enough to classify their content (`eomirror.link.filled_targets.Held`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror._native import last_hop
from eomirror.clock import Deadline
from eomirror.errors import StateError
from eomirror.kafka.partition_reader import GONE
from eomirror.link.filled_targets import Held
from eomirror.records.mm2 import Mm2Names, decode_heartbeat
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.kafka.session import ClusterSession

__all__ = ["TargetSample"]

# A copy with records of applications is read in full, and the start must not take for ever.
_SECONDS = 30.0

_Where = tuple[str, int]


class TargetSample:
    """Reads committed records of copies."""

    def __init__(self, target: ClusterSession) -> None:
        self._target = target

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
            deadline = Deadline(_SECONDS, self._target.clock)
            with self._target.reader(tuning={"queued.max.messages.kbytes": 8192}) as reader:
                unread = reader.read(ranges, take, deadline=deadline, to_end=True, passing=GONE, partial=True)
            held.update(dict.fromkeys(unread, Held.UNSEEN))
        for where, (_, stable, end) in copies.items():
            held.setdefault(where, Held.OPEN if stable < end else Held.NOTHING)
        return held


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
    # An alias and any separator may stand before it; the decoder is strict.
    if not message.topic().endswith(name):
        return False
    try:
        decode_heartbeat(message.key(), message.value(), where=message.topic())
    except StateError:
        return False
    return True
