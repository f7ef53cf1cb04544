"""
Follows a link's consumer groups: reads source offsets, has lanes write checkpoints and `OffsetWriter` move idle groups.

Rounds run in one thread of the driver; answers of lanes wait in a queue in the meantime.  An error here
never ends a link: it is logged, shown, and retried in the next round.
"""

from __future__ import annotations

import queue
from contextlib import closing
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError
from eomirror.groups.bidirectional_reader import handed_over
from eomirror.groups.followed_groups import ASK_AGAIN_SECONDS, WAITS, GroupBook, GroupsSnapshot
from eomirror.groups.offset_writer import OffsetWriter
from eomirror.groups.translation import unknown_reason
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.session import ClusterSession
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.groups.followed_groups import MirroredPartitions
    from eomirror.lane.spec import GroupOffset

__all__ = ["GroupFollower"]

log = structlog.get_logger(__name__)

# Share groups are found by a request that describes every group.
_SHARED_SECONDS = 300.0
# time between two looks while there is no group: each asks every broker through another process
_NONE_SECONDS = 3.0


class GroupFollower:
    """
    Follows the groups of one link.

    Reason for its size: one field for each result of the last round, which `snapshot` returns.

    Args:
        send: Sends offsets of groups to a lane, if it can be reached.
    """

    def __init__(
        self,
        link: Link,
        source: Cluster,
        target: ClusterSession,
        *,
        send: Callable[[int, Sequence[GroupOffset]], None],
        clock: Clock,
    ) -> None:
        self._link = link
        self._source = source
        self._map_reader = OffsetMapReader(link, target)
        self._send = send
        self._clock = clock
        client_id = LinkNames(link.state_name).client_id("groups")
        self._source_groups = ClusterGroups(source, client_id=client_id)
        self._book = GroupBook()
        self._writer = OffsetWriter(
            link,
            target,
            self._book,
            self._source_groups,
            reader=self._map_reader,
            handed_over=self._handed_over,
            clock=clock,
            client_id=client_id,
        )
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._looked_at: float | None = None
        self._shared: list[str] = []
        self._shared_at = float("-inf")
        self._unreadable: dict[str, str] = {}
        self._followed = 0
        self._pending: Mapping[str, int] = {}
        self._rereads: Mapping[str, int] = {}
        self._problem = ""
        if link.sync_group_offsets and link.guard:
            log.warning(
                "groups_not_moved",
                link=link.name,
                reason="its topics are written on both sides, where no single offset is exact",
                fix="`eomirror cutover` and `failback` move groups; `eomirror offsets export` and `import` one alone",
            )

    def record_answers(self, items: tuple[GroupOffset, ...]) -> None:
        """Queues answers of a lane; thread-safe."""
        self._inbox.put(lambda: self._writer.queue(one.group for one in self._book.answered(items)))

    def lane_restarted(self, partitions: Collection[SourcePartition]) -> None:
        """Records that the lane of these partitions was restarted and remembers nothing; thread-safe."""
        self._inbox.put(lambda: self._book.forget_sent(partitions))

    def left(self, partitions: Collection[SourcePartition]) -> None:
        """Records that the link has forgotten these partitions, which may be mirrored to other copies; thread-safe."""
        self._inbox.put(lambda: self._book.forget(partitions))

    def round(self, mirrored: MirroredPartitions) -> float:
        """
        Reads offsets, sends them to lanes, moves groups; never raises for an error of a cluster.

        Returns:
            Seconds until the next round should begin.
        """
        began = self._clock.monotonic()
        try:
            self._take_answers()
            if self._link.sync_group_offsets:
                self._writer.load()
            self._look(mirrored)
            self._looked_at = began
            if self._link.guard:
                self._problem = ""
                return self._pause(began)  # lanes write no checkpoints there
            self._send_to_lanes(mirrored)
            if self._translate_from_map():
                # By the next round a busy group has other offsets.
                self._send_to_lanes(mirrored)
            if self._link.sync_group_offsets:
                self._writer.write(mirrored.stopped)
                self._writer.deletions.delete()
            self._problem = ""
        except MirrorError as error:
            if error.message != self._problem:
                log.warning("groups_not_followed", link=self._link.name, reason=error.message, fix=error.fix)
            self._problem = error.message
        except Exception as error:
            # A bug in the mirror; readers of the status must not take the old offsets for current ones.
            self._problem = f"a bug in the mirror, see the log: {type(error).__name__}"
            raise
        return self._pause(began)

    def _pause(self, began: float) -> float:
        took = self._clock.monotonic() - began
        if not self._followed and not self._unreadable:
            return max(self._link.group_interval, _NONE_SECONDS)
        # With very many groups a round may take longer than the interval: pause for as long as it took.
        return max(self._link.group_interval - took, took if took > self._link.group_interval else 0.0)

    def snapshot(self) -> GroupsSnapshot:
        """Returns the progress of following; thread-safe."""
        age = None if self._looked_at is None else self._clock.monotonic() - self._looked_at
        skipped: dict[str, int] = {}
        for why in (*self._unreadable.values(), *self._writer.not_written()):
            skipped[why] = skipped.get(why, 0) + 1
        if self._link.guard and self._followed:
            # An offset there would also mark records as read that were written there first.
            skipped["their topics are written on both sides, where no single offset is exact"] = (
                self._followed
            )
        if self._shared:
            skipped["share and streams groups are not supported"] = len(self._shared)
        return GroupsSnapshot(
            followed=self._followed,
            age_seconds=age,
            pending=self._pending,
            skipped=skipped,
            rereads=self._rereads,
            moved=self._writer.moved,
            deleted=self._writer.deletions.deleted,
            error=self._problem,
        )

    def left_alone(self) -> dict[str, str]:
        """Returns groups whose offsets consumers on the target have reached, with the reason; thread-safe."""
        return self._writer.left_alone()

    def waits(self) -> bool:
        """Returns True if the last round failed, or left an offset that waits for the mirror or for its commit."""
        unwritten = self._link.sync_group_offsets and self._writer.waits()
        return bool(self._problem) or (not self._link.guard and (unwritten or WAITS in self._pending))

    def close(self) -> None:
        """Closes all clients."""
        self._source_groups.close()
        self._writer.close()

    def _handed_over(self) -> frozenset[tuple[str, str, int]]:
        client_id = LinkNames(self._link.state_name).client_id("groups")
        with closing(ClusterSession(self._source, client_id=client_id)) as source:
            return handed_over(self._link, source)

    def _take_answers(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()

    def _look(self, mirrored: MirroredPartitions) -> None:
        names, complete = self._source_groups.names(strict=False)
        wanted = [name for name in names if self._link.follows(name)]
        now = self._clock.monotonic()
        if now - self._shared_at >= _SHARED_SECONDS:
            self._shared_at = now
            shared = [name for name in self._source_groups.shared() if self._link.follows(name)]
            if fresh := sorted(set(shared).difference(self._shared)):
                log.warning(
                    "share_groups_not_followed",
                    link=self._link.name,
                    groups=fresh,
                    reason="share and streams groups have no offsets that can be translated",
                )
            self._shared = shared
        unreadable = {}
        standing = set()
        for group, offsets in self._source_groups.read_offsets(wanted):
            if isinstance(offsets, str):
                unreadable[group] = f"its offsets cannot be read: {offsets}"
                standing.add(group)
                continue
            if offsets:
                standing.add(group)
            here = {
                source: committed
                for source, committed in ((SourcePartition(*where), one) for where, one in offsets.items())
                if source in mirrored.lanes
            }
            self._book.observe(group, here, self._clock.monotonic())
            self._take_answers()
        if complete:
            self._book.keep_only(names)
            self._writer.deletions.observe(standing, mirrored.stopped)
        self._unreadable = unreadable
        self._followed = len(self._book)
        self._pending = self._book.pending()
        # lanes of a guarded link write no checkpoints
        self._rereads = {} if self._link.guard else self._book.rereads()

    def _send_to_lanes(self, mirrored: MirroredPartitions) -> None:
        sent = self._book.to_send(mirrored.lanes, mirrored.stopped, self._clock.monotonic())
        for lane, items in sent.items():
            self._send(lane, items)

    def _translate_from_map(self) -> bool:
        """Asks the map; returns True if there are new offsets to send."""
        now = self._clock.monotonic()
        asked = self._book.questions(now)
        if not asked:
            return False
        positions = self._map_reader.positions()
        asked = [item for item in asked if item[1] in positions]
        answers = self._map_reader.answers(
            [Question(positions[source], offset) for _, source, offset in asked]
        )
        for (group, source, offset), (kind, at) in zip(asked, answers, strict=True):
            if kind in {"exact", "next"}:
                self._book.found(group, source, offset, at)
            else:
                # The first mirrored record will never be an earlier one.
                ask_at = float("inf") if kind == "before" else now + ASK_AGAIN_SECONDS
                why = "" if kind == "beyond" else unknown_reason(kind, at)
                self._book.found(group, source, offset, None, why, ask_at=ask_at)
        return any(kind in {"exact", "next"} for kind, _ in answers)
