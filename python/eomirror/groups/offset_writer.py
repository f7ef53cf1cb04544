"""
Writes the offsets of followed groups on the target, and deletes groups there that were deleted on the source.

Lanes write checkpoints; this commits them for groups without members on the target (`decide_sync`), so that consumers
resume there by their group id alone.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.errors import AuthorizationError
from eomirror.groups.bidirectional_reader import link_wrote
from eomirror.groups.corrections import not_below
from eomirror.groups.followed_groups import DeletedGroups, SyncDecision, decide_deletion, decide_sync
from eomirror.groups.offset_rule import NOT_OURS
from eomirror.groups.shared_copies import copies_of, may_be_shared, other_records
from eomirror.kafka.consumer_groups import Committed
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.log_ends import skip_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.groups.followed_groups import GroupBook
    from eomirror.groups.translation import Name, OtherRecords
    from eomirror.kafka.consumer_groups import TargetGroup
    from eomirror.kafka.session import ClusterSession
    from eomirror.link.offset_map_reader import OffsetMapReader

__all__ = ["OffsetWriter"]

log = structlog.get_logger(__name__)

# Interval of checks for groups that could not be moved.
_RECHECK_SECONDS = 10.0
# Each look reads the positions of all links of the target.
_OTHERS_SECONDS = 60.0
_BEYOND = "its copy on the target ends before its translated offset"
# Per round, so that a round stays short.
_MOST_MOVED = 500


class _OwnOffsets:
    """
    Offsets on the target that the link wrote, as far as it knows.

    Attributes:
        placed: Offsets that it wrote last, by group.
    """

    def __init__(
        self,
        reader: OffsetMapReader,
        handed_over: Callable[[], Collection[tuple[str, str, int]]],
        clock: Clock,
    ) -> None:
        self._reader, self._read_handed_over, self._clock = reader, handed_over, clock
        self.placed: dict[str, dict[Name, int]] = {}
        # Offsets that may have been written, by earlier runs (the newest checkpoint may not have been committed to the
        # group) or by a request without an answer.
        self._earlier: dict[tuple[str, str, int], frozenset[int]] = {}
        # Offsets of consumers there that were those of the group at some time.
        self._agreed: dict[tuple[str, str, int], int] = {}
        self._loaded = False
        self._handed: Collection[tuple[str, str, int]] = ()
        self._handed_at = float("-inf")

    def load(self) -> None:
        """Reads the offsets that earlier runs wrote from their checkpoints, once."""
        if not self._loaded:
            for each in self._reader.checkpoint_log():
                one = each[-1]
                self.placed.setdefault(one.group, {})[one.topic, one.partition] = one.downstream
                self._earlier[one.group, one.topic, one.partition] = frozenset(c.downstream for c in each)
            self._loaded = True

    def of(self, group: str, there: TargetGroup, starts: Mapping[Name, int] | None = None) -> dict[Name, int]:
        """Returns the offsets that the link wrote last, as far as it knows."""
        found = {
            where: offset
            for where, offset in there.offsets.items()
            if link_wrote(offset, self._earlier.get((group, *where), ()), (starts or {}).get(where))
        }
        return {**self.placed.get(group, {}), **found}

    def with_handed_over(
        self,
        group: str,
        wanted: Mapping[Name, Committed],
        there: TargetGroup,
        starts: Mapping[Name, int],
    ) -> dict[Name, int]:
        """Returns `of`, and offsets there that the link did not write, and that are its own after all."""
        self.placed.setdefault(group, {})
        placed, now = self.of(group, there, starts), self._clock.monotonic()
        for where, one in wanted.items():
            has = there.offsets.get(where)
            if has is None or has == placed.get(where) or has > one.offset:
                continue
            if has == one.offset:
                # Consumers there have read as far as the group: from here on the offset follows.
                self._agreed[group, *where] = has
                continue
            if has == self._agreed.get((group, *where)):
                placed[where] = has
                continue
            if now - self._handed_at >= _OTHERS_SECONDS:
                self._handed, self._handed_at = self._read_handed_over(), now
            if (group, *where) in self._handed:
                placed[where] = has
        return placed

    def begin(self, group: str, write: Mapping[Name, Committed]) -> None:
        """Records offsets before the request that writes them: it may be executed and not answered."""
        for where, one in write.items():
            known = self._earlier.get((group, *where), frozenset())
            self._earlier[group, *where] = known | {
                one.offset,
                self.placed[group].get(where, one.offset),
            }

    def written(self, group: str, write: Mapping[Name, Committed]) -> None:
        """Records offsets that were written."""
        self.placed[group].update({where: one.offset for where, one in write.items()})
        for where in write:
            self._earlier.pop((group, *where), None)


class _DeletedOnSource:
    """
    Groups that were deleted on the source: deletes them on the target, or keeps the reason that they stay.

    Attributes:
        kept: Groups that stay, with the reason.
        deleted: Number of deleted groups.
    """

    def __init__(
        self, link: Link, own: _OwnOffsets, source: ClusterGroups, target: ClusterGroups, clock: Clock
    ) -> None:
        self._link, self._own, self._source, self._target, self._clock = link, own, source, target, clock
        self._deletions = DeletedGroups()
        self._gone: list[str] = []
        self.kept: dict[str, str] = {}
        self.deleted = 0
        self._deleted_at = float("-inf")

    def observe(self, standing: Collection[str], stopped: Collection[str]) -> None:
        """
        Records a look at the source that every broker has answered.

        Args:
            standing: Groups that have, or may have, an offset there.
            stopped: Stopped source topics.
        """
        # With a stopped topic, the source may be another cluster's successor: its groups are not deleted for good.
        placed = [] if stopped else [group for group in self._own.placed if self._link.follows(group)]
        self._gone = self._deletions.seen(placed, standing, self._clock.monotonic())

    def delete(self) -> None:
        """
        Deletes groups that were deleted on the source, or records the reason that they stay.

        Raises:
            ClusterError: A cluster cannot be asked.
        """
        now = self._clock.monotonic()
        if now - self._deleted_at < _RECHECK_SECONDS:
            return
        self._deleted_at = now
        if self._link.group_deletions == "keep":
            self._stay(dict.fromkeys(self._gone, "it was deleted on the source, and group_deletions is keep"))
            return
        # Groups that had to stay come last, the most recently checked one at the very end.
        waiting = [group for group in self._gone if group not in self.kept]
        still = set(self._gone)
        again = [group for group in self.kept if group in still]
        gone = [*waiting, *again][:_MOST_MOVED]
        # Asked once more, one by one: a group's coordinator is more reliable than a list.
        standing = self._source.committed(gone)
        kept = {group: self.kept[group] for group in again[max(0, len(gone) - len(waiting)) :]}
        for group, there in self._target.describe([group for group in gone if not standing[group]]).items():
            why = there if isinstance(there, str) else decide_deletion(there, self._own.of(group, there))
            if why == "":
                why = _refusal(self._target.delete, group)
                if not why:
                    self.deleted += 1
                    log.info("group_deleted", link=self._link.name, group=group)
            if why:
                kept[group] = why
            else:
                self._own.placed.pop(group, None)
        # While a broker of the source is unreachable, no new deletions are detected.
        self._gone = [group for group in self._gone if group in self._own.placed]
        self._stay(kept)

    def _stay(self, kept: dict[str, str]) -> None:
        for group in sorted(kept.keys() - self.kept.keys()):
            log.info("group_not_deleted", link=self._link.name, group=group, reason=kept[group])
        self.kept = kept


class OffsetWriter:
    """
    Writes offsets on the target of one link, whose `sync_group_offsets` is on.

    Args:
        book: Followed groups and their checkpoints.
        source: Groups of the source.
        reader: Reader of the link's checkpoints and copies.
        handed_over: Returns group, target topic and partition of offsets that the link back has translated.

    Attributes:
        moved: Number of commits for groups.
        deletions: Groups that were deleted on the source.
    """

    def __init__(
        self,
        link: Link,
        target: ClusterSession,
        book: GroupBook,
        source: ClusterGroups,
        *,
        reader: OffsetMapReader,
        handed_over: Callable[[], Collection[tuple[str, str, int]]],
        clock: Clock,
        client_id: str,
    ) -> None:
        self._link, self._book, self._clock = link, book, clock
        self._target = ClusterGroups(target.cluster, client_id=client_id)
        self._session, self._reader = target, reader
        self._own = _OwnOffsets(reader, handed_over, clock)
        self.deletions = _DeletedOnSource(link, self._own, source, self._target, clock)
        self.moved = 0
        self._skipped: dict[str, str] = {}
        # In order of arrival: a busy group goes behind those that wait already.
        self._turn: dict[str, None] = {}
        self._recheck_at = float("-inf")
        self._renewed: dict[str, float] = {}
        self._renew_seconds = 0.0
        # Records of other links in the copies, and the time of that look.
        self._others: tuple[dict[Name, OtherRecords], float] = {}, float("-inf")

    def queue(self, groups: Iterable[str]) -> None:
        """Records that these groups have new checkpoints."""
        self._turn |= dict.fromkeys(groups)

    def waits(self) -> bool:
        """Returns True if groups have new checkpoints that no round has come to yet."""
        return bool(self._turn)

    def not_written(self) -> list[str]:
        """Returns the reason for each group that is not moved or not deleted; thread-safe."""
        skipped = [
            # Where consumers of a group have read is that group's own business.
            f"{group}: {reason}" if NOT_OURS in reason else reason
            for group, reason in self._skipped.copy().items()
        ]
        return [*skipped, *self.deletions.kept.values()]

    def left_alone(self) -> dict[str, str]:
        """Returns groups whose offsets consumers on the target have reached, with the reason; thread-safe."""
        return {group: reason for group, reason in self._skipped.copy().items() if NOT_OURS in reason}

    def close(self) -> None:
        """Closes all clients."""
        self._target.close()

    def load(self) -> None:
        """Reads the offsets that earlier runs wrote from their checkpoints, once."""
        self._own.load()

    def write(self, stopped: Collection[str]) -> None:
        """
        Commits checkpoints for groups without members, in turn.

        Args:
            stopped: Stopped source topics.

        Raises:
            ClusterError: The target cannot be asked.
        """
        if self._renew_seconds == 0.0:
            # Offsets of a group without members expire; a quarter of the retention is early enough.
            self._renew_seconds = max(30.0, self._target.retention_seconds() / 4)
        now = self._clock.monotonic()
        if now - self._recheck_at >= _RECHECK_SECONDS:
            self._recheck_at = now
            # of deleted groups
            self._renewed = {group: at for group, at in self._renewed.items() if group in self._own.placed}
            self.queue(
                [*self._skipped, *(group for group in self._book.groups() if self._renew_due(group, now))]
            )
        self._look_for_others(now)
        turn = list(itertools.islice(self._turn, _MOST_MOVED))
        decisions: dict[str, tuple[SyncDecision, str]] = {}
        fresh: set[Name] = set()
        looked, starts = self._looked(turn, stopped, now)
        for group, (there, wanted, left_out) in looked.items():
            placed = self._own.with_handed_over(group, wanted, there, starts)
            renew = self._renew_due(group, now)
            decision = decide_sync(
                wanted,
                there,
                placed,
                rewind=self._link.group_rewind,
                renew=renew,
                others=self._others[0],
            )
            decisions[group] = decision, left_out
            fresh |= decision.write.keys() - there.offsets.keys()
        # A topic's offsets of groups are deleted with it.  A lane without records does not notice that its copy was
        # recreated, and an offset of the old one would be beyond the end: the first new records would be skipped.
        ends = skip_missing(self._reader.stable_ends, fresh)
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
            self._own.begin(group, write)
            refused = _refusal(self._target.write, group, write) if write else ""
            if write and not refused:
                self._own.written(group, write)
                self._renewed[group] = now
                self.moved += 1
                log.debug("group_moved", link=self._link.name, group=group, offsets=len(write))
            self._note(group, refused or decision.skipped or left_out)
        for group in turn:
            del self._turn[group]

    def _look_for_others(self, now: float) -> None:
        """Looks for links of other files that write to the copies; those of the same file are refused at the start."""
        if now - self._others[1] < _OTHERS_SECONDS or not may_be_shared(self._link):
            return
        copies = copies_of(self._reader.positions().values())
        found = other_records(self._link, self._session, copies, own=self._link.state_name)
        self._others = found, now

    def _looked(
        self, turn: Sequence[str], stopped: Collection[str], now: float
    ) -> tuple[dict[str, tuple[TargetGroup, dict[Name, Committed], str]], Mapping[Name, int]]:
        """
        Returns the groups on the target, their offsets within the copies, and reasons for missing offsets.

        Beside them are the log starts of copies whose offsets are due.
        """
        found = {}
        due = set()
        for group, there in self._target.describe(turn).items():
            if isinstance(there, str):
                # Checked again like a group that has members; groups behind it do not wait for it.
                self._note(group, there)
                continue
            wanted, left_out = self._wanted(group, stopped)
            found[group] = there, wanted, left_out
            renew = self._renew_due(group, now)
            due |= {where for where, one in wanted.items() if renew or there.offsets.get(where) != one.offset}
        # A copy without a leader does not delay its group: the offset stays as it is while the copy is unreadable.
        starts = skip_missing(self._reader.log_starts, self._reader.with_leader(due))
        for _, wanted, _ in found.values():
            for where, one in wanted.items():
                wanted[where] = one._replace(offset=not_below(starts, where, one.offset))
        return found, starts

    def _wanted(self, group: str, stopped: Collection[str]) -> tuple[dict[Name, Committed], str]:
        """
        Returns the wanted offsets of a group, and the reason for partitions without one.

        A checkpoint of a stopped topic may belong to a deleted copy, and the group would be set beyond the end of a new
        one of that name.
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

    def _renew_due(self, group: str, now: float) -> bool:
        return now - self._renewed.get(group, float("-inf")) >= self._renew_seconds

    def _note(self, group: str, skipped: str) -> None:
        if not skipped:
            self._skipped.pop(group, None)
        elif self._skipped.get(group) != skipped:
            self._skipped[group] = skipped
            log.info("group_not_moved", link=self._link.name, group=group, reason=skipped)


def _refusal(change: Callable[..., str], *arguments: Any) -> str:
    """Changes one group; returns the reason if that fails, else an empty string."""
    try:
        return change(*arguments)
    except AuthorizationError as error:
        # A missing right on this group only.
        return error.message
