"""
Adjusts translated offsets that are before the log start of their partition.

Retention may have removed the copy of a record that the source still has.  An offset below the log start is out of
range, and a consumer with ``auto.offset.reset=latest`` then jumps to the end, past all remaining records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.errors import AuthorizationError, TopicError, UnreachableError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.admin_client import skip_missing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.groups.translation import Translation

__all__ = ["from_log_start", "not_below"]


def from_log_start(
    translations: Sequence[Translation], cluster: Cluster, *, client_id: str
) -> list[Translation]:
    """
    Returns the translations, moved up to the log start of their partition.

    Args:
        cluster: Cluster that consumers move to.
        client_id: Client id that brokers see.

    Raises:
        ClusterError: The cluster cannot be asked.
    """
    wanted = {(one.to_topic, one.to_partition) for one in translations if one.to_offset is not None}
    return not_below(_log_starts(cluster, wanted, client_id) if wanted else {}, translations)


def not_below(
    starts: Mapping[tuple[str, int], int], translations: Iterable[Translation]
) -> list[Translation]:
    """
    Returns the translations, none of them below a log start.

    Args:
        starts: Log starts of partitions; without one, an answer stays as it is.
    """
    found = []
    for one in translations:
        start = starts.get((one.to_topic, one.to_partition), 0)
        if one.to_offset is not None and one.to_offset < start:
            # The record itself was removed.
            kind = "next" if one.kind == "exact" else one.kind
            found.append(replace(one, to_offset=start, kind=kind))
        else:
            found.append(one)
    return found


def _log_starts(
    cluster: Cluster, partitions: Collection[tuple[str, int]], client_id: str
) -> Mapping[tuple[str, int], int]:
    admin = ClusterAdmin(cluster, client_id=client_id)
    try:
        return skip_missing(
            lambda asked: admin.offsets(asked, at="earliest", read_committed=False),
            partitions,
            # A topic that may not be seen does not affect the others.
            passing=(AuthorizationError, TopicError, UnreachableError),
        )
    finally:
        admin.close()
