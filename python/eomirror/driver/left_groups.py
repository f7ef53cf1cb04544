"""
Keeps the groups that a link leaves alone on the target in control, for `status`.

Only the driver knows them, and the owner writes them with the next renewal of its claim, when they change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.records.reports import GroupsLeft

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.lane.spec import LaneSpec

__all__ = ["LeftGroupRecords"]

# every starting lane reads control
_MOST = 20


class LeftGroupRecords:
    """
    Keeps the record of groups that are left alone up to date.

    Args:
        spec: Spec of the link's lanes; names the link and the run.
        left_alone: Returns these groups, with the reason of each.
        clock: Source of timestamps.
    """

    def __init__(self, spec: LaneSpec, left_alone: Callable[[], Mapping[str, str]], clock: Clock) -> None:
        self._topic = LinkNames(spec.link.state_name).control_topic
        self._run = spec.run
        self._left_alone = left_alone
        self._clock = clock
        self._written: Mapping[str, str] = {}

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the record that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the record is due again.
        """
        left = self._left_alone()
        if left == self._written:
            commit([])
            return
        one = GroupsLeft(
            groups=dict(sorted(left.items())[:_MOST]),
            count=len(left),
            run=self._run,
            timestamp=self._clock.wall_ms(),
        )
        commit([MetadataRecord(self._topic, 0, one.key(), one.value())])
        self._written = left
