"""
Tells which records of an old source a link back has written: they are no orphans.

Their header says so, and the mark proves it: the header names the producer of its batch (docs/adr/0017).  An
application that emits a record again, with the header of another, writes a record of its own.  The loop guard of the
native plane decides by the same function, so what is counted here is what a merge mirrors.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import structlog

from eomirror._native import last_hop
from eomirror.config.rights import Right, account_of, named
from eomirror.errors import AuthorizationError, ClusterError, UnreachableError
from eomirror.records.names import HOPS_HEADER
from eomirror.recovery.hanging_client import extension_client

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror._native import HangingTransactionClient
    from eomirror.config import Cluster
    from eomirror.types import SourcePartition

__all__ = ["CopiedRecords", "headers_of"]

log = structlog.get_logger(__name__)

# Offsets that one request covers at most, and how long it may take.
_OFFSETS = 200_000
_SECONDS = 120.0


class CopiedRecords:
    """
    Copies of another cluster's records among those of a cluster.

    Args:
        cluster: Cluster whose records are judged.
        client_id: Client id that its brokers see.

    Attributes:
        emitted_again: Records that claim to be copies, and are none.
    """

    def __init__(self, cluster: Cluster, *, client_id: str) -> None:
        self._cluster, self._client_id = cluster, client_id
        self._client: HangingTransactionClient | None = None
        self._unserved = False
        self.emitted_again = 0

    def judge(self, source: SourcePartition, end: int, origin: str) -> Callable[[Any], bool]:
        """
        Returns a function that returns True for a message that a link has copied from the cluster with that id.

        Args:
            source: Partition of the messages, which come in the order of its log.
            end: Offset behind the last of them.
            origin: Id of the other cluster; empty for no copies.
        """
        copied: Sequence[tuple[int, int]] = ()
        until = -1

        def is_copied(message: Any) -> bool:
            nonlocal copied, until
            claimed = _claimed_origin(message)
            if not origin or claimed not in {origin, None}:
                return False
            offset = message.offset()
            if offset >= until:
                asked = self._ask(source, (offset, min(end, offset + _OFFSETS)), origin)
                if asked is None or asked[1] <= offset:
                    # retention has passed the record meanwhile, or nothing but the header tells
                    return claimed == origin
                copied, until = asked
            at = bisect_right(copied, (offset, end)) - 1
            found = at >= 0 and offset < copied[at][1]
            self.emitted_again += claimed == origin and not found
            return found

        return is_copied

    def _ask(
        self, source: SourcePartition, offsets: tuple[int, int], origin: str
    ) -> tuple[Sequence[tuple[int, int]], int] | None:
        if self._unserved:
            return None
        try:
            if self._client is None:
                self._client = extension_client(self._cluster, self._client_id)
            return self._client.copied((source.topic, source.partition), offsets, origin, _SECONDS)
        except AuthorizationError as error:
            right = Right("Read", "topic", source.topic)
            raise named(error, account_of(self._cluster), rights=[right]) from None
        except UnreachableError:
            raise
        except ClusterError as error:
            log.warning(
                "copies_judged_by_header_alone",
                cluster=self._cluster.alias,
                reason=error.message,
                effect="a record that an application emitted again with the header of a copy is taken for the copy",
            )
            self._unserved = True
            return None


def headers_of(message: Any) -> list[tuple[str, bytes | None]] | None:
    """Returns the headers; None if the client cannot show them, because a name is not UTF-8."""
    try:
        return message.headers() or []
    except (SystemError, UnicodeDecodeError):
        return None


def _claimed_origin(message: Any) -> str | None:
    """Returns the cluster that a record's header says it was copied from; empty for none, None if it is not shown."""
    headers = headers_of(message)
    if headers is None:
        return None
    found = next((value for name, value in reversed(headers) if name == HOPS_HEADER), None)
    return "" if found is None else last_hop(found, message.topic(), message.key(), message.value()) or ""
