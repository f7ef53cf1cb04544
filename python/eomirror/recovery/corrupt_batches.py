"""
Decides about source batches that fail their checksum or that the leader cannot read. Pure.

A batch that was damaged in transit is intact when it is fetched again.  So an attempt that meets such a batch ends, and
the next one fetches again.  A batch that is corrupt on the leader's disk stays corrupt and would block all other topics
of the lane.  After several attempts that end at the same position, its topic is stopped.  Records before the batch are
mirrored by then, because both planes commit them before they report it.

A leader that fails without a reason (UNKNOWN_SERVER_ERROR) may only have lost its remote storage.  That is no data
loss: its topic is stopped in the same way, and retried automatically.
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

#: Consecutive attempts that meet the same damage before its topic is stopped.
MOST_DAMAGED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """
    A source batch that could not be read.

    Attributes:
        position: Committed position of the partition.
        times: Number of attempts that met it there.
    """

    source: SourcePartition
    position: int
    times: int


def after_damage(known: Iterable[Damage], error: SourceDamagedError, position: int) -> tuple[Damage, ...]:
    """
    Returns the damage list for the next attempt; the latest entry is last.

    Args:
        known: From earlier attempts.
        error: From this attempt.
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
    """Returns the error that stops the topic; None while another attempt is worthwhile."""
    if damage.times < MOST_DAMAGED:
        return None
    where = damage.source
    if isinstance(error, SourceUnreadableError):
        return BrokerFailedError(
            f"{where}: the source's leader cannot read offset {damage.position}: {error}; "
            f"{damage.times} attempts in a row have met the same, and everything before it is mirrored",
            fix="check the log of the broker that leads the partition, or elect another replica; "
            "a running mirror retries automatically",
            topic=where.topic,
        )
    return DataLossError(
        f"{where}: the batch at offset {damage.position} is damaged on the source: {error}; "
        f"{damage.times} attempts in a row have read the same, and everything before it is mirrored",
        fix="elect another replica as leader, or restore its log, and start the mirror again; "
        "to skip these records, pass the offset of the first batch after them "
        f"(kafka-dump-log.sh shows it): --resume-at {where}=OFFSET",
        topic=where.topic,
    )
