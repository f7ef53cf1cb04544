"""
Tracks state records that were sent with the data, before the data was acknowledged. Pure.

They speculate on what the commit will record (`eomirror.lane.commit.speculative_records`), which saves a round trip.
Each round of a transaction computes all of them again, so only changed records are sent: first against the round
before, then against the permit.  Within a transaction too, the last record of a key wins (EO-3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.plane.protocol import MetadataRecord

__all__ = ["SpeculativeState"]


_MISSING = object()


class SpeculativeState:
    """State records that the open transaction holds so far."""

    __slots__ = ("_written",)

    def __init__(self) -> None:
        self._written: dict[tuple[str, int, bytes], bytes | None] = {}

    def forget(self) -> None:
        """Starts a new transaction."""
        self._written.clear()

    def changed(self, records: Sequence[MetadataRecord]) -> list[MetadataRecord]:
        """
        Returns those of ``records`` that the transaction does not hold yet, and marks them as written.

        Args:
            records: Each with a key of its own.
        """
        said = self._written
        fresh = [
            one for one in records if said.get((one.topic, one.partition, one.key), _MISSING) != one.value
        ]
        said.update({(one.topic, one.partition, one.key): one.value for one in fresh})
        return fresh
