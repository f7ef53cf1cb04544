"""
Raises translated offsets to the log start of their partition.

Retention may have removed the copy of a record that the source still has.  An offset below the log start is out of
range, and a consumer with ``auto.offset.reset=latest`` then jumps to the end, past all remaining records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.errors import AuthorizationError, TopicError, UnreachableError
from eomirror.kafka.admin_client import skip_missing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.groups.translation import Name, Translation
    from eomirror.kafka.session import ClusterSession

__all__ = ["from_log_start", "not_below"]


def not_below(starts: Mapping[Name, int], where: Name, offset: int) -> int:
    """Returns the offset, or the log start if that is later; a partition without a known log start keeps its offset."""
    return max(offset, starts.get(where, offset))


def from_log_start(translations: Sequence[Translation], cluster: ClusterSession) -> list[Translation]:
    """
    Returns the translations, none of them below a log start.

    Args:
        cluster: Cluster that consumers move to.

    Raises:
        ClusterError: The cluster cannot be asked.
    """
    wanted = {(one.to_topic, one.to_partition) for one in translations if one.to_offset is not None}
    starts = _log_starts(cluster, wanted) if wanted else {}
    if not any(starts.values()):
        return list(translations)
    return [_raised(starts, one) for one in translations]


def _raised(starts: Mapping[Name, int], one: Translation) -> Translation:
    if one.to_offset is None:
        return one
    start = not_below(starts, (one.to_topic, one.to_partition), one.to_offset)
    if start == one.to_offset:
        return one
    # The record itself was removed.
    return replace(one, to_offset=start, kind="next" if one.kind == "exact" else one.kind)


def _log_starts(cluster: ClusterSession, partitions: Collection[Name]) -> Mapping[Name, int]:
    return skip_missing(
        lambda asked: cluster.admin.offsets(asked, at="earliest", read_committed=False),
        partitions,
        # A topic that may not be seen does not affect the others.
        passing=(AuthorizationError, TopicError, UnreachableError),
    )
