"""
The state records that were sent along with the data of the open transaction, before it was acknowledged: pure.

They say what the commit will most likely record (`eomirror.lane.commit.speculative_records`), and save a round trip.  Each round of
a transaction foresees all of it anew, so only what has changed since the round before is sent again; and behind the
permit, only what came otherwise.  Within a transaction, like anywhere else, the later record of a key counts (rule 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.plane.protocol import MetadataRecord

__all__ = ["SpeculativeState"]


_UNSAID = object()


class SpeculativeState:
    """What the open transaction says of itself so far."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[tuple[str, int, bytes], bytes | None] = {}

    def forget(self) -> None:
        """Another transaction is begun."""
        self._said.clear()

    def changed(self, records: Sequence[MetadataRecord]) -> list[MetadataRecord]:
        """
        Those of ``records`` that the transaction does not say yet; they count as said from now on.

        Args:
            records: With keys of their own.
        """
        said = self._said
        fresh = [
            one for one in records if said.get((one.topic, one.partition, one.key), _UNSAID) != one.value
        ]
        said.update({(one.topic, one.partition, one.key): one.value for one in fresh})
        return fresh
