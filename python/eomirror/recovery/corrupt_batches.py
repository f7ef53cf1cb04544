"""
Records that the source cannot give: a batch that does not match its checksum, or that its leader cannot read (pure).

What was damaged on the way is whole when it is fetched again, so an attempt that met such a batch ends, and the next
one fetches again.  A batch that is damaged on the leader's disk comes back as it is, however often, and would keep all
other topics of the lane from going on: after some attempts that end at the same position, its topic is stopped.
Everything before the batch is mirrored by then, for both planes commit what precedes it before they tell of it.

A leader that fails without saying why (UNKNOWN_SERVER_ERROR) may only be out of reach of its remote storage. That is no
loss of data: its topic is set aside in the same way, and tried again by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.errors import BrokerFailedError, DataLossError, SourceUnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.errors import SourceDamagedError
    from eomirror.types import SourcePartition

__all__ = ["MOST_DAMAGED", "Damage", "after_damage", "damage_error"]

#: So many attempts in a row meet the same damage before its topic is stopped.
MOST_DAMAGED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """
    A batch of the source that could not be read.

    Attributes:
        source: Where.
        position: Committed position of the partition.
        times: How many attempts have met it there.
    """

    source: SourcePartition
    position: int
    times: int


def after_damage(known: Iterable[Damage], error: SourceDamagedError, position: int) -> tuple[Damage, ...]:
    """
    What the next attempt has to know; the damage that was met last comes last.

    Args:
        known: What earlier attempts met.
        error: What this one met.
        position: Committed position of that partition.
    """
    others, times = [], 1
    for damage in known:
        if damage.source != error.source:
            others.append(damage)
        elif damage.position == position:
            times = damage.times + 1
    return (*others, Damage(source=error.source, position=position, times=times))


def damage_error(error: SourceDamagedError, damage: Damage) -> DataLossError | BrokerFailedError | None:
    """The error that stops the topic; None while it is worth another attempt."""
    if damage.times < MOST_DAMAGED:
        return None
    where = damage.source
    if isinstance(error, SourceUnreadableError):
        return BrokerFailedError(
            f"{where}: the source's leader does not give what stands at offset {damage.position}: {error}; "
            f"{damage.times} attempts in a row have met the same, and everything before it is mirrored",
            fix="look into the log of the broker that leads the partition, or have another replica lead it; "
            "a mirror that runs tries again by itself",
            topic=where.topic,
        )
    return DataLossError(
        f"{where}: the batch at offset {damage.position} is damaged on the source: {error}; "
        f"{damage.times} attempts in a row have read the same, and everything before it is mirrored",
        fix="have another replica lead the partition, or restore its log, and start the mirror again; "
        "to go on without these records, with the offset of the first batch behind them "
        f"(kafka-dump-log.sh shows it): --adopt {where}=OFFSET",
        topic=where.topic,
    )
