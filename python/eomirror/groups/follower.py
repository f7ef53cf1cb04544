"""
Follows a link's consumer groups: reads source offsets, has lanes write checkpoints, moves idle groups.

Rounds run in one thread of the driver; answers of lanes wait in a queue in the meantime.  An error here
never ends a link: it is logged, shown, and retried in the next round.
"""

from __future__ import annotations

import itertools
import queue
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import AuthorizationError, MirrorError
from eomirror.groups.followed_groups import (
    ASK_AGAIN_SECONDS,
    WAITS,
    DeletedGroups,
    GroupBook,
    GroupsSnapshot,
    decide_deletion,
    decide_sync,
)
from eomirror.groups.log_start import not_below
from eomirror.groups.translation import unknown_reason
from eomirror.kafka.admin_client import skip_missing
from eomirror.kafka.consumer_groups import Committed
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.groups.followed_groups import Mirrored, SyncDecision
    from eomirror.kafka.consumer_groups import TargetGroup
    from eomirror.lane.spec import GroupOffset

__all__ = ["GroupFollower"]

log = structlog.get_logger(__name__)

# Interval of checks for groups that could not be moved.
_RECHECK_SECONDS = 10.0
# Share groups are found by a request that describes every group.
_SHARED_SECONDS = 300.0
_BEYOND = "its copy on the target ends before its translated offset"
# Per round, so that a round stays short.
_MOST_MOVED = 500


class GroupFollower:
    """
    Follows the groups of one link.

    Args:
        send: Sends offsets of groups to a lane, if it can be reached.
    """

    def __init__(
        self,
        link: Link,
        source: Cluster,
        target: Cluster,
        *,
        send: Callable[[int, Sequence[GroupOffset]], None],
        clock: Clock,
    ) -> None:
        self._link = link
        self._target = target
        self._send = send
        self._clock = clock
        self._client_id = LinkNames(link.state_name).client_id("groups")
        self._source_groups = ClusterGroups(source, client_id=self._client_id)
        self._target_groups: ClusterGroups | None = None
        self._reader: OffsetMapReader | None = None
        self._book = GroupBook()
        self._inbox: queue.SimpleQueue[tuple[GroupOffset, ...] | frozenset[SourcePartition]] = (
            queue.SimpleQueue()
        )
        self._looked_at: float | None = None
        self._shared: list[str] = []
        self._shared_at = float("-inf")
        self._unreadable: dict[str, str] = {}
        self._followed = self._moved = self._removed = 0
        self._pending: Mapping[str, int] = {}
        self._problem = ""
        # State of the target: offsets we wrote, reasons for skipping, order of turns, time of the last write.
        self._placed: dict[str, dict[tuple[str, int], int]] | None = None
        self._skipped: dict[str, str] = {}
        # In order of arrival: a busy group goes behind those that wait already.
        self._turn: dict[str, None] = {}
        self._recheck_at = float("-inf")
        self._renewed: dict[str, float] = {}
        self._renew_seconds = 0.0
        self._deleted = DeletedGroups()
        self._gone: list[str] = []
        self._kept: dict[str, str] = {}
        self._removed_at = float("-inf")

    def record_answers(self, items: tuple[GroupOffset, ...]) -> None:
        """Queues answers of a lane; thread-safe."""
        self._inbox.put(items)

    def lane_restarted(self, partitions: Collection[SourcePartition]) -> None:
        """Records that the lane of these partitions was restarted and remembers nothing; thread-safe."""
        self._inbox.put(frozenset(partitions))

    def round(self, mirrored: Mirrored) -> float:
        """
        Reads offsets, sends them to lanes, moves groups; never raises for an error of a cluster.

        Returns:
            Seconds until the next round should begin.
        """
        began = self._clock.monotonic()
        try:
            self._take_answers()
            if self._placed is None:
                self._placed = self._last_checkpoints() if self._link.sync_group_offsets else {}
            self._look(mirrored)
            self._looked_at = began
            if self._link.guard:
                self._problem = ""
                return self._pause(began)  # lanes write no checkpoints there
            self._send_to_lanes(mirrored)
            if self._look_up():
                # By the next round a busy group has other offsets.
                self._send_to_lanes(mirrored)
            if self._link.sync_group_offsets:
                self._move(mirrored.stopped)
                self._remove()
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
        # With very many groups a round may take longer than the interval: pause for as long as it took.
        return max(self._link.group_interval - took, took if took > self._link.group_interval else 0.0)

    def snapshot(self) -> GroupsSnapshot:
        """Returns the progress of following; thread-safe."""
        age = None if self._looked_at is None else self._clock.monotonic() - self._looked_at
        skipped: dict[str, int] = {}
        reasons = (self._unreadable.copy(), self._skipped.copy(), self._kept)
        for why in (why for each in reasons for why in each.values()):
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
            moved=self._moved,
            deleted=self._removed,
            error=self._problem,
        )

    def waits(self) -> bool:
        """Returns True if the last round failed, or saw an offset that only waits for the mirror."""
        return bool(self._problem) or (not self._link.guard and WAITS in self._pending)

    def close(self) -> None:
        """Closes all clients."""
        self._source_groups.close()
        if self._target_groups is not None:
            self._target_groups.close()
        if self._reader is not None:
            self._reader.close()

    # -- the source ------------------------------------------------------------------------------

    def _take_answers(self) -> None:
        while not self._inbox.empty():
            item = self._inbox.get()
            if isinstance(item, frozenset):
                self._book.forget_sent(item)
            else:
                self._turn |= dict.fromkeys(one.group for one in self._book.answered(item))

    def _look(self, mirrored: Mirrored) -> None:
        names, complete = self._source_groups.names(strict=False)
        wanted = [name for name in names if self._link.follows(name)]
        now = self._clock.monotonic()
        if now - self._shared_at >= _SHARED_SECONDS:
            self._shared_at = now
            self._shared = [name for name in self._source_groups.shared() if self._link.follows(name)]
        unreadable = {}
        standing = set()
        for group, offsets in self._source_groups.look_at(wanted):
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
            # With a stopped topic, the source may be another cluster's successor: its groups are not deleted for good.
            placed = [] if mirrored.stopped else [one for one in self._all_placed if self._link.follows(one)]
            self._gone = self._deleted.seen(placed, standing, self._clock.monotonic())
        self._unreadable = unreadable
        self._followed = len(self._book)
        self._pending = self._book.pending()

    # -- what lanes do not remember --------------------------------------------------------------

    def _send_to_lanes(self, mirrored: Mirrored) -> None:
        sent = self._book.to_send(mirrored.lanes, mirrored.stopped, self._clock.monotonic())
        for lane, items in sent.items():
            self._send(lane, items)

    def _look_up(self) -> bool:
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

    # -- the target ------------------------------------------------------------------------------

    def _move(self, stopped: Collection[str]) -> None:
        if self._target_groups is None:
            self._target_groups = ClusterGroups(self._target, client_id=self._client_id)
        if self._renew_seconds == 0.0:
            # Offsets of a group without members expire; a quarter of the retention is early enough.
            self._renew_seconds = max(30.0, self._target_groups.retention_seconds() / 4)
        now = self._clock.monotonic()
        if now - self._recheck_at >= _RECHECK_SECONDS:
            self._recheck_at = now
            self._turn |= dict.fromkeys(self._skipped)
            self._turn |= dict.fromkeys(group for group in self._book.groups() if self._renew_due(group, now))
        turn = list(itertools.islice(self._turn, _MOST_MOVED))
        decisions: dict[str, tuple[SyncDecision, str]] = {}
        fresh: set[tuple[str, int]] = set()
        for group, (there, wanted, left_out) in self._looked(turn, stopped, now).items():
            placed = self._all_placed.setdefault(group, {})
            decision = decide_sync(
                wanted, there, placed, rewind=self._link.group_rewind, renew=self._renew_due(group, now)
            )
            decisions[group] = decision, left_out
            fresh |= decision.write.keys() - there.offsets.keys()
        # A topic's offsets of groups are deleted with it.  A lane without records does not notice that its copy was
        # recreated, and an offset of the old one would be beyond the end: the first new records would be skipped.
        ends = skip_missing(self._map_reader.stable_ends, fresh)
        for group, (decision, left_out) in decisions.items():
            write = {
                where: one
                for where, one in decision.write.items()
                if where not in fresh or one.offset <= ends.get(where, -1)
            }
            if len(write) < len(decision.write):
                left_out = _BEYOND  # noqa: PLW2901  says more
            # To the end: if its coordinator does not answer, the next round begins with the others.
            self._turn[group] = self._turn.pop(group)
            refused = self._written(group, write) if write else ""
            if write and not refused:
                self._all_placed[group].update({where: one.offset for where, one in write.items()})
                self._renewed[group] = now
                self._moved += 1
                log.debug("group_moved", link=self._link.name, group=group, offsets=len(write))
            self._note(group, refused or decision.skipped or left_out)
        for group in turn:
            del self._turn[group]

    def _looked(
        self, turn: Sequence[str], stopped: Collection[str], now: float
    ) -> dict[str, tuple[TargetGroup, dict[tuple[str, int], Committed], str]]:
        """Returns the groups on the target, their offsets within the copies, and reasons for missing offsets."""
        assert self._target_groups is not None, "groups are moved after connecting"  # noqa: S101  for the type checker
        found = {}
        due = set()
        for group, there in self._target_groups.look(turn).items():
            if isinstance(there, str):
                # Checked again like a group that has members; groups behind it do not wait for it.
                self._note(group, there)
                continue
            wanted, left_out = self._wanted(group, stopped)
            found[group] = there, wanted, left_out
            renew = self._renew_due(group, now)
            due |= {where for where, one in wanted.items() if renew or there.offsets.get(where) != one.offset}
        # A copy without a leader does not delay its group: the offset stays as it is while the copy is unreadable.
        starts = skip_missing(self._map_reader.log_starts, self._map_reader.with_leader(due))
        return {
            group: (
                there,
                {
                    where: replace(one, offset=not_below(starts, where, one.offset))
                    for where, one in wanted.items()
                },
                left_out,
            )
            for group, (there, wanted, left_out) in found.items()
        }

    def _written(self, group: str, offsets: Mapping[tuple[str, int], Committed]) -> str:
        """Commits offsets; returns the reason if that fails, else an empty string."""
        assert self._target_groups is not None, "offsets are written after a look"  # noqa: S101  for the type checker
        try:
            return self._target_groups.write(group, offsets)
        except AuthorizationError as error:
            # A missing right on this group only.
            return error.message

    def _remove(self) -> None:
        """Deletes groups that were deleted on the source, or records the reason that they stay."""
        now = self._clock.monotonic()
        if now - self._removed_at < _RECHECK_SECONDS or self._target_groups is None:
            return
        self._removed_at = now
        if self._link.group_deletions == "keep":
            self._stay(dict.fromkeys(self._gone, "it was deleted on the source, and group_deletions is keep"))
            return
        # Groups that had to stay come last, the most recently checked one at the very end.
        waiting = [group for group in self._gone if group not in self._kept]
        still = set(self._gone)
        again = [group for group in self._kept if group in still]
        gone = [*waiting, *again][:_MOST_MOVED]
        # Asked once more, one by one: a group's coordinator is more reliable than a list.
        standing = self._source_groups.committed(gone)
        kept = {group: self._kept[group] for group in again[max(0, len(gone) - len(waiting)) :]}
        for group, there in self._target_groups.look(
            [group for group in gone if not standing[group]]
        ).items():
            why = there if isinstance(there, str) else decide_deletion(there, self._all_placed[group])
            if why == "":
                why = self._deleted_there(group)
                if not why:
                    self._removed += 1
                    log.info("group_deleted", link=self._link.name, group=group)
            if why:
                kept[group] = why
            else:
                self._all_placed.pop(group, None)
                self._renewed.pop(group, None)
        # While a broker of the source is unreachable, no new deletions are detected.
        self._gone = [group for group in self._gone if group in self._all_placed]
        self._stay(kept)

    def _deleted_there(self, group: str) -> str:
        """Deletes the group; returns the reason if that fails, else an empty string."""
        assert self._target_groups is not None, "groups are deleted after a look"  # noqa: S101  for the type checker
        try:
            return self._target_groups.delete(group)
        except AuthorizationError as error:
            return error.message

    def _stay(self, kept: dict[str, str]) -> None:
        for group in sorted(kept.keys() - self._kept.keys()):
            log.info("group_not_deleted", link=self._link.name, group=group, reason=kept[group])
        self._kept = kept

    def _wanted(self, group: str, stopped: Collection[str]) -> tuple[dict[tuple[str, int], Committed], str]:
        """
        Returns the wanted offsets of a group, and the reason for partitions without one.

        A checkpoint of a stopped topic may belong to a deleted copy, and the group would be set beyond the end of a new
        one of
        that name.
        """
        checkpoints = self._book.checkpoints(group)
        wanted = {
            (self._link.target_topic(source.topic), source.partition): Committed(
                item.downstream, item.metadata
            )
            for source, item in checkpoints.items()
            if item.downstream is not None and source.topic not in stopped
        }
        left_out = any(source.topic in stopped for source in checkpoints)
        return wanted, "one of its topics is stopped" if left_out else ""

    @property
    def _map_reader(self) -> OffsetMapReader:
        if self._reader is None:
            self._reader = OffsetMapReader(self._link, self._target, clock=self._clock)
        return self._reader

    @property
    def _all_placed(self) -> dict[str, dict[tuple[str, int], int]]:
        if self._placed is None:
            self._placed = {}
        return self._placed

    def _renew_due(self, group: str, now: float) -> bool:
        return now - self._renewed.get(group, float("-inf")) >= self._renew_seconds

    def _note(self, group: str, skipped: str) -> None:
        if not skipped:
            self._skipped.pop(group, None)
        elif self._skipped.get(group) != skipped:
            self._skipped[group] = skipped
            log.info("group_not_moved", link=self._link.name, group=group, reason=skipped)

    def _last_checkpoints(self) -> dict[str, dict[tuple[str, int], int]]:
        """Returns the offsets of groups from checkpoints of earlier runs."""
        placed: dict[str, dict[tuple[str, int], int]] = {}
        for one in self._map_reader.checkpoints():
            placed.setdefault(one.group, {})[one.topic, one.partition] = one.downstream
        return placed
