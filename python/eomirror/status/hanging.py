"""
Detects hanging transactions on the target, which close a copy to ``read_committed`` readers.

A partition shows its records up to the last stable offset, where its first open transaction begins.  The coordinator
ends each transaction, at the latest after the broker's ``transaction.max.timeout.ms``.  If the coordinator's own
log (``__transaction_state``) was lost, it does not know the transaction, and the partition stays closed for ever.

A transaction hangs for certain in two cases:

* A producer of the link wrote it, according to the positions, and no transactional.id of the link has that producer id
  any more.  The coordinator keeps the id for as long as the transaction is open, so it lost its state.
* Another producer wrote it, and the link has committed records behind its beginning for longer than the largest
  timeout.  The link's positions give the time: timestamps of records are those of the source.

A transaction that ends during the scan does not count: it must be open before and after the coordinators were asked.

librdkafka has no call for it, so the extension's own client asks leaders and coordinators (KIP-664).  If it cannot
serve the cluster, or the user of `status` lacks the rights, the scan reports nothing rather than fail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror._native import HangingTransactionClient, PlaneReader
from eomirror.clock import utc
from eomirror.config.clients import consumer_properties
from eomirror.errors import ClusterError, MirrorError
from eomirror.plane.native.oauth import as_text, with_tokens
from eomirror.records.names import LinkNames
from eomirror.recovery.hanging import OpenRange
from eomirror.status.model import Hanging

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.records.position import Position
    from eomirror.status.model import LinkStatus

__all__ = ["DEFAULT_LONGEST_MS", "HangingTransactions", "candidates", "hanging", "with_hanging"]


log = structlog.get_logger(__name__)

# Timeout of each request; the user of `status` waits for it.
_SECONDS = 5.0
_Where = tuple[str, int]


class HangingTransactions:
    """
    Scans one link's target for hanging transactions.

    Args:
        admin: Admin client of the target.
    """

    def __init__(self, link: Link, target: Cluster, admin: ClusterAdmin) -> None:
        self._names = LinkNames(link.state_name)
        self._target = target
        self._admin = admin

    def look(
        self,
        partitions: Collection[_Where],
        *,
        positions: Collection[Position],
        history: Sequence[Position],
        highest_lane: int,
        now_ms: int,
    ) -> list[Hanging]:
        """
        Returns the hanging transactions; empty if they cannot be determined.

        Sends two requests if no transaction is open.

        Args:
            partitions: Topic and number of existing partitions to scan.
            positions: Valid position of each source partition.
            history: Position records that are still in the log.
            highest_lane: Highest lane number that the link ever used.
            now_ms: Time by the clock of the link's owner.
        """
        try:
            ends = self._admin.offsets(partitions, at="latest", read_committed=False)
            stable = self._admin.offsets(partitions, at="latest", read_committed=True)
            behind = {where: end for where, end in ends.items() if stable[where] < end}
            if not behind:
                return []
            client = self._client()
            longest_ms = self._admin.longest_transaction_ms() or DEFAULT_LONGEST_MS
            found = candidates(_open(client, behind), history, now_ms=now_ms, longest_ms=longest_ms)
            if not found:
                return []
            ids = [
                self._names.control_transactional_id,
                *map(self._names.transactional_id, range(highest_lane + 1)),
            ]
            living = {client.producer_identity(name, _SECONDS) for name in ids}
            return hanging(
                found,
                _open(client, {one.where: one.end for one in found}),
                living={one[0] for one in living if one is not None},
                positions=positions,
                history=history,
                servers=self._target.bootstrap_servers,
            )
        except MirrorError as error:
            log.debug("hanging_transactions_unknown", cluster=self._target.alias, reason=error.message)
            return []

    def _client(self) -> HangingTransactionClient:
        role = self._names.client_id("status")
        properties, tokens = with_tokens(as_text(consumer_properties(self._target, client_id=role)))
        if PlaneReader.unsupported_properties(properties, tokens):
            raise ClusterError("the extension's client cannot honour a property")
        return HangingTransactionClient(properties, tokens)


def _open(client: HangingTransactionClient, ends: Mapping[_Where, int]) -> list[OpenRange]:
    return [
        OpenRange(
            topic=topic, partition=number, producer_id=producer_id, epoch=epoch, start=start,
            end=ends[topic, number],
        )
        for topic, number, producer_id, epoch, start in client.open(list(ends), _SECONDS)
    ]  # fmt: skip


#: Kafka's default of ``transaction.max.timeout.ms``.
DEFAULT_LONGEST_MS = 900_000


def candidates(
    found: Iterable[OpenRange], history: Iterable[Position], *, now_ms: int, longest_ms: int
) -> list[OpenRange]:
    """
    Returns the open transactions that may hang; coordinators are asked about these only.

    Args:
        found: Open transactions.
        history: Position records that are still in the log.
        now_ms: Time by the clock of the link's owner.
        longest_ms: The target's ``transaction.max.timeout.ms``.
    """
    records = list(history)
    ours = {position.producer_id for position in records}
    return [
        one
        for one in found
        if one.producer_id in ours or _is_overdue(_since(one, records), now_ms=now_ms, longest_ms=longest_ms)
    ]


def hanging(
    before: Iterable[OpenRange],
    after: Collection[OpenRange],
    *,
    living: Collection[int],
    positions: Collection[Position],
    history: Iterable[Position],
    servers: str,
) -> list[Hanging]:
    """
    Returns the hanging transactions.

    Args:
        before: `candidates`, found before the coordinators were asked.
        after: Transactions that are open since.
        living: Producer ids that the link's transactional.ids have, according to their coordinators.
        positions: Valid position of each source partition.
        history: Position records that are still in the log.
        servers: Bootstrap servers of the target, for the fix.
    """
    records = list(history)
    ours = {position.producer_id for position in records}
    still = {(one.where, one.producer_id, one.start) for one in after}
    return [
        _described(one, _since(one, records), positions, servers, ours=one.producer_id in ours)
        for one in sorted(before, key=lambda one: (*one.where, one.start))
        if one.producer_id not in living and (one.where, one.producer_id, one.start) in still
    ]


def with_hanging(status: LinkStatus, found: Sequence[Hanging]) -> LinkStatus:
    """Returns the status with these transactions; a partition without another problem gets that of its copy."""
    if not found:
        return status
    # A copy's partitions have the numbers of the source's (EO-11).
    first = {(one.topic, one.partition): one for one in reversed(found)}
    partitions = tuple(
        replace(item, problem=one.problem, fix=one.fix)
        if (one := first.get((item.target_topic, item.partition))) is not None and not item.problem
        else item
        for item in status.partitions
    )
    return replace(status, partitions=partitions, hanging=tuple(found))


def _since(one: OpenRange, history: Iterable[Position]) -> int | None:
    """Returns a time at which the transaction was open: the link's first commit of a record behind its beginning."""
    return min(
        (
            position.timestamp
            for position in history
            if one.where in position.copies
            and position.target_offset is not None
            and position.target_offset > one.start
            and position.producer_id != one.producer_id
        ),
        default=None,
    )


def _is_overdue(since: int | None, *, now_ms: int, longest_ms: int) -> bool:
    return since is not None and now_ms - since > longest_ms


def _described(
    one: OpenRange, since: int | None, positions: Iterable[Position], servers: str, *, ours: bool
) -> Hanging:
    where = f"{one.topic}-{one.partition}"
    known = ""
    if since is not None:
        known = f" since {utc(since)} at the latest,"
    why = (
        "and the transaction coordinators do not know this producer of the link: __transaction_state was lost"
        if ours
        else "longer than transaction.max.timeout.ms allows; the producer does not belong to this link"
    )
    problem = (
        f"{where} of the target is closed to read_committed readers from offset {one.start} "
        f"({one.end - one.start} offsets):{known} a transaction of producer id {one.producer_id} is open there, {why}"
    )
    fix = (
        f"kafka-transactions.sh --bootstrap-server {servers} abort --topic {one.topic} "
        f"--partition {one.partition} --start-offset {one.start}"
    )
    if (committed := _committed(one, positions)) is not None:
        problem += (
            f"; but a position of the link says that offsets up to {committed.target_offset} are committed"
        )
        fix += (
            "; this drops records that the link takes for mirrored, so compare with `eomirror verify` afterwards, and "
            f"mirror them again with --resume-at {committed.source}=OFFSET"
        )
    return Hanging(
        topic=one.topic, partition=one.partition, producer_id=one.producer_id, start=one.start, end=one.end,
        since=since, problem=problem, fix=fix,
    )  # fmt: skip


def _committed(one: OpenRange, positions: Iterable[Position]) -> Position | None:
    """Returns the position that counts a record of the transaction as committed."""
    return next(
        (
            position
            for position in positions
            if one.where in position.copies
            and position.producer_id == one.producer_id
            and position.target_offset is not None
            and position.target_offset >= one.start
        ),
        None,
    )
