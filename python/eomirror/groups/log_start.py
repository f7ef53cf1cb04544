"""
Answers that lie before the log start of where a consumer goes.

Retention may have taken the copy of a record that the source still has.  An offset below the log start is out of range,
and a consumer with ``auto.offset.reset=latest`` goes to the end from there, past all that is left.
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
    What a consumer should read first on the other side, where that begins behind the record that it stands at.

    Args:
        translations: Answers.
        cluster: The one that consumers go to.
        client_id: What brokers see.

    Raises:
        ClusterError: The cluster cannot be asked.
    """
    wanted = {(one.to_topic, one.to_partition) for one in translations if one.to_offset is not None}
    return not_below(_log_starts(cluster, wanted, client_id) if wanted else {}, translations)


def not_below(
    starts: Mapping[tuple[str, int], int], translations: Iterable[Translation]
) -> list[Translation]:
    """
    The same answers, none of them below a log start.

    Args:
        starts: Where partitions begin; where that is not known, an answer stays as it is.
        translations: Answers.
    """
    found = []
    for one in translations:
        start = starts.get((one.to_topic, one.to_partition), 0)
        if one.to_offset is not None and one.to_offset < start:
            # the record itself is gone
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
            # one that may not be seen says nothing against the others either
            passing=(AuthorizationError, TopicError, UnreachableError),
        )
    finally:
        admin.close()
