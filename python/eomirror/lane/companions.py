"""
Records for MirrorMaker 2's readers that go into the data's own transaction, besides positions and offset map.

They are made when the data is acknowledged, and not foreseen: MM2's reader of syncs keeps every one that it sees, and
would keep a wrong one beside the later record that corrects it.  A transaction that holds some takes one more
round trip.  `Companions.plan` changes nothing; what it said becomes true with `Companions.committed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eomirror._native import decode_offset_map
from eomirror.formats.mm2 import Mm2Names
from eomirror.lane.offset_syncs import TAIL_SECONDS, Mirrored, OffsetSyncs
from eomirror.lane.plane import MetadataRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config import Link
    from eomirror.formats.mm2 import OffsetSync
    from eomirror.lane.plane import Account

__all__ = ["Companions", "Permitted", "Plan", "SyncSink"]


class Permitted(Protocol):
    """What a transaction records: a `eomirror.lane.commit.CommitPermit`."""

    @property
    def chunks(self) -> tuple[Account, ...]:
        """The accounts whose ranges it holds."""


class SyncSink(Protocol):
    """Where offset syncs go that are not written into the transaction."""

    def send(self, syncs: Sequence[OffsetSync]) -> None:
        """Send syncs of committed records, without waiting; what cannot be sent is superseded by the next."""

    def close(self) -> None:
        """Close the client."""


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What goes with one transaction.

    Attributes:
        records: To be written into it.
        mirrored: The records that it mirrors, by partition.
        syncs: Offset syncs of these, wherever they go.
        quiet: It was begun for what is left over.
    """

    records: Sequence[MetadataRecord]
    mirrored: Sequence[Mirrored]
    syncs: Sequence[OffsetSync]
    quiet: bool


class Companions:
    """
    What a lane writes for MM2's readers.

    Args:
        link: The link.
        sink: Where offset syncs go with ``offset_syncs: source``.
    """

    def __init__(self, link: Link, sink: SyncSink | None = None) -> None:
        names = Mm2Names()
        self._place = link.offset_syncs
        self._syncs_topic = names.offset_syncs(link.source)
        self._sink = sink
        self._syncs = OffsetSyncs()
        self._quiet_since: float | None = None
        self._quiet = False

    def forget(self) -> None:
        """The lane begins again from what the target says."""
        self._syncs.forget()
        self._quiet_since = None
        self._quiet = False

    def due(self, now: float) -> bool:
        """
        Whether a lane that has nothing else to do should begin a transaction for what is left over.

        Args:
            now: Monotonic seconds.
        """
        if not self._syncs.tails:
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        self._quiet = now - self._quiet_since >= TAIL_SECONDS
        return self._quiet

    def plan(self, permitted: Permitted) -> Plan:
        """What a transaction should hold; changes nothing."""
        mirrored = [] if self._place == "off" else [_mirrored(account) for account in permitted.chunks]
        syncs = self._syncs.due(mirrored, quiet=self._quiet)
        records = [
            MetadataRecord(self._syncs_topic, 0, sync.key(), sync.value())
            for sync in (syncs if self._place == "target" else ())
        ]
        return Plan(records, mirrored, syncs, self._quiet)

    def committed(self, plan: Plan) -> None:
        """The transaction that ``plan`` was made for is committed."""
        self._syncs.committed(plan.mirrored, quiet=plan.quiet)
        self._quiet_since = None
        self._quiet = False
        if self._sink is not None and plan.syncs:
            self._sink.send(plan.syncs)

    def aborted(self) -> None:
        """The transaction was not committed; what was left over is left over still."""
        self._quiet = False


def _mirrored(account: Account) -> Mirrored:
    _, _, ranges = decode_offset_map(account.offset_map)
    return Mirrored(account.source, ranges)
