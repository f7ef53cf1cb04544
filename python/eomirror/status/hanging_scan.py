"""
Finds hanging transactions on a link's target (`eomirror.status.hanging`).

librdkafka has no call for it, so the extension's own client asks leaders and coordinators (KIP-664).  If it cannot
serve the cluster, or the user of `status` lacks the rights, the scan reports nothing rather than fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror._native import HangingTransactionClient, PlaneReader
from eomirror.config.clients import consumer_properties
from eomirror.errors import ClusterError, MirrorError
from eomirror.plane.native.oauth import as_text, with_tokens
from eomirror.records.names import LinkNames
from eomirror.recovery.hanging import OpenRange
from eomirror.status.hanging import DEFAULT_LONGEST_MS, Hanging, candidates, hanging

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.records.position import Position

__all__ = ["HangingTransactions"]

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
            living = {client.producer_id(name, _SECONDS) for name in ids}
            return hanging(
                found,
                _open(client, {one.where: one.end for one in found}),
                living={one for one in living if one is not None},
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
