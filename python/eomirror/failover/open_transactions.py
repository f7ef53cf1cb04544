"""
Finds the open transactions that hold back the end of a log, and waits until they end.

A crash of the old source leaves the transactions of its producers open.  A reader of committed records gets nothing
behind the first one, also not what other producers wrote.  Each ends in one of three ways:

* its application starts again with the same transactional id, which aborts it;
* its coordinator aborts it when its timeout has passed, which is known to the second;
* by hand (`kafka-transactions.sh abort`): if its coordinator does not know it, nothing else ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import Deadline, utc
from eomirror.errors import MirrorError, NotReadyError, TopicError
from eomirror.kafka.log_ends import existing_ends
from eomirror.recovery.hanging_client import extension_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eomirror.clock import Clock
    from eomirror.config import Cluster
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.types import SourcePartition

__all__ = ["OpenTransaction", "await_ended", "open_transactions"]

log = structlog.get_logger(__name__)

_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_TELL_SECONDS = 10.0
# A coordinator looks for transactions whose time is up every 10 s by default, and then writes their markers.
_ABORT_SECONDS = 60.0
# A transaction that was just decided is not known as open any more until its markers are written.
_MARKER_SECONDS = 10.0
# Where brokers do not tell.
_UNKNOWN_SECONDS = 300.0
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """
    An open transaction that holds back a partition.

    Attributes:
        start: Its first offset; the last stable offset where brokers do not tell.
        end: End of the log, or of the part of it that is wanted.
        producer_id: Its producer; None where brokers do not tell: the other attributes are unknown, too.
        transactional_id: Transactional id; None where its coordinator shows none.
        began_ms: Time of its begin, ms since the epoch; None if its coordinator does not know it as open.
        timeout_ms: Time after which its coordinator aborts it.
    """

    topic: str
    partition: int
    start: int
    end: int
    producer_id: int | None = None
    epoch: int | None = None
    transactional_id: str | None = None
    began_ms: int | None = None
    timeout_ms: int | None = None

    @property
    def ends_ms(self) -> int | None:
        """Time at which its coordinator aborts it, ms since the epoch; None if it does not."""
        return None if self.began_ms is None or self.timeout_ms is None else self.began_ms + self.timeout_ms

    def hangs(self, now_ms: int) -> bool:
        """Returns True if nothing but a person ends it, by what its coordinator says."""
        late = self.ends_ms is None or now_ms > self.ends_ms + _ABORT_SECONDS * 1000
        return self.transactional_id is not None and late

    def named(self, now_ms: int) -> str:
        """Returns who has it open since when, and until when."""
        if self.producer_id is None:
            return "its producer is unknown: the brokers do not tell, or not this user"
        text = f"producer {self.producer_id} epoch {self.epoch}"
        if self.transactional_id is None:
            # a coordinator hides the ids that a user may not describe
            return f"{text}; no coordinator shows its transactional.id: forgotten, or this user lacks Describe on it"
        text = f"transactional.id {self.transactional_id}, {text}"
        if self.began_ms is None or self.ends_ms is None:
            return f"{text}; its coordinator does not know it as open, so that nothing ends it"
        text += f", open for {max(0, now_ms - self.began_ms) / 1000:.0f} s"
        if self.hangs(now_ms):
            return f"{text}; its coordinator has not ended it in time"
        left = max(0, self.ends_ms - now_ms) / 1000
        return f"{text}; its coordinator aborts it at {utc(self.ends_ms)}, in {left:.0f} s"

    def described(self, now_ms: int) -> str:
        """Returns the partition, the offsets that it holds back, and `named`."""
        return (
            f"{self.topic}-{self.partition} is held back from offset {self.start} to {self.end} by an open "
            f"transaction: {self.named(now_ms)}"
        )

    def way_on(self, cluster: Cluster) -> str:
        """Returns the commands that end it, for a `fix`."""
        call = f"kafka-transactions.sh --bootstrap-server {quote(cluster.bootstrap_servers)}"
        where = f"--topic {quote(self.topic)} --partition {self.partition}"
        abort = f"`{call} abort {where} --start-offset"
        if self.producer_id is None:
            return f"find it and end it: `{call} find-hanging {where}`, and {abort} OFFSET`"
        started = (
            f"start the application of {self.transactional_id}, which aborts it; or "
            if self.transactional_id is not None
            else ""
        )
        return f"{started}abort it by hand, if its application is gone: {abort} {self.start}`"

    def as_dict(self, now_ms: int) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.start,
            "to": self.end,
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "epoch": self.epoch,
            "open_seconds": None if self.began_ms is None else max(0, now_ms - self.began_ms) / 1000,
            "ends_at": self.ends_ms,
        }


def open_transactions(
    cluster: Cluster, admin: ClusterAdmin, ends: Mapping[SourcePartition, int], *, client_id: str
) -> list[OpenTransaction]:
    """
    Returns the first open transaction before the end of each partition that one holds back, sorted.

    That is one request to each broker if none is open.

    Args:
        ends: Partition -> end up to which its records are wanted.

    Raises:
        ClusterError: The cluster does not answer.
    """
    stable = _latest(admin, ends, read_committed=True)
    behind = [where for where in ends if stable.get(where, ends[where]) < ends[where]]
    if not behind:
        return []
    # A log that ends before the range holds nothing back.  Asked in this order: it may grow between the two.
    high = _latest(admin, behind, read_committed=False)
    stable = _latest(admin, behind, read_committed=True)
    held = {
        where: stable[where]
        for where in behind
        if where in stable and stable[where] < min(ends[where], high.get(where, 0))
    }
    if not held:
        return []
    known = {}
    try:
        told = extension_client(cluster, client_id).open_transactions(sorted(held), _SECONDS)
        known = {(one[0], one[1]): one for one in sorted(told, key=lambda one: one[4], reverse=True)}
    except MirrorError as error:
        log.debug("open_transactions_not_told", cluster=cluster.alias, reason=error.message)
    found = []
    for where, start in sorted(held.items()):
        one = known.get((where.topic, where.partition))
        began, timeout = (None, None) if one is None or one[6] is None else one[6]
        found.append(
            OpenTransaction(
                topic=where.topic,
                partition=where.partition,
                start=start if one is None else one[4],
                end=ends[where],
                producer_id=None if one is None else one[2],
                epoch=None if one is None else one[3],
                transactional_id=None if one is None else one[5],
                began_ms=began,
                timeout_ms=timeout,
            )
        )
    return found


def _latest(
    admin: ClusterAdmin, partitions: Iterable[SourcePartition], *, read_committed: bool
) -> Mapping[Any, int]:
    return existing_ends(
        admin,
        list(partitions),
        read_committed=read_committed,
        passing=(TopicError,),
    )


def await_ended(
    cluster: Cluster,
    admin: ClusterAdmin,
    ends: Mapping[SourcePartition, int],
    *,
    client_id: str,
    clock: Clock,
    tell: Callable[[str], None] | None = None,
) -> None:
    """
    Waits until no transaction is open before the ends, as long as a coordinator is going to end each.

    Args:
        tell: Receives what is waited for, at once and every few seconds.

    Raises:
        NotReadyError: A transaction hangs; the fix ends it.
        ClusterError: The cluster does not answer.
    """
    say = tell or (lambda _: None)
    unknown = Deadline(_UNKNOWN_SECONDS, clock)
    marked: Deadline | None = None
    said_at = float("-inf")
    while held := open_transactions(cluster, admin, ends, client_id=client_id):
        now_ms = clock.wall_ms()
        hanging = [
            one for one in held if one.hangs(now_ms) or (one.transactional_id is None and unknown.passed)
        ]
        if clock.monotonic() - said_at >= _TELL_SECONDS:
            said_at = clock.monotonic()
            for one in held[:_SHOWN]:
                say(f"waiting: {one.described(now_ms)}")
            if len(held) > _SHOWN:
                say(f"and {len(held) - _SHOWN} more partitions are held back")
        if not hanging:
            marked = None
        elif marked is None:
            marked = Deadline(_MARKER_SECONDS, clock)
        elif marked.passed:
            one = hanging[0]
            more = f"; and {len(hanging) - 1} more partitions" if len(hanging) > 1 else ""
            raise NotReadyError(
                f"cluster {cluster.alias}: {one.described(now_ms)}{more}",
                fix=f"{one.way_on(cluster)}; then repeat this",
            )
        clock.sleep(_LOOK_SECONDS)
