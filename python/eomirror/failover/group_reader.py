"""
Reads where the consumer groups of a link resume on its target.

A promotion moves groups before its record, so it may die in between.  The link stays a mirror then, and a group may go
back on the source.  The next call finds the group ahead on the target, and must not take that for the work of consumers
there: an offset that a checkpoint has is one that the link placed (`eomirror.failover.group_moves`).  The mirror writes
checkpoints of what it follows; an offset that this call has translated itself, and the end of a cut, have none.
"""

from __future__ import annotations

import gc
import threading
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import Deadline
from eomirror.crash import crash_point
from eomirror.errors import AuthorizationError, ClusterError, MirrorError, UnreachableError
from eomirror.failover.group_moves import Absence, plan_moves, unread, written
from eomirror.groups.bidirectional_reader import handed_over, link_wrote, opposite_link
from eomirror.groups.offset_queries import groups_there, unreadable_topics
from eomirror.groups.offset_rule import has_members
from eomirror.groups.offset_translator import OffsetTranslator
from eomirror.kafka.consumer_groups import batches
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.log_ends import skip_missing
from eomirror.kafka.plain_producer import write_records
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.records.mm2 import Checkpoint
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Config, Link
    from eomirror.failover.group_moves import GroupMove
    from eomirror.failover.promoted_link import PromotedLink
    from eomirror.groups.offset_queries import GroupsThere
    from eomirror.groups.translation import Translation
    from eomirror.kafka.consumer_groups import Row
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.records.promotion import Cut, PromotionHistory

__all__ = ["GroupMover", "GroupReader", "collecting_later", "note_moves"]

_SECONDS = 15.0
# A producer queues so many.
_MOST = 10_000
_GROUP_TRIES = 3
_GROUP_PAUSE_SECONDS = 0.5
_GROUP_SECONDS = 30.0

log = structlog.get_logger(__name__)


def note_moves(link: Link, target: ClusterSession, moves: Iterable[GroupMove]) -> str:
    """
    Writes a checkpoint of each offset that was not taken from one; returns the reason if that failed.

    Links with the loop guard have no checkpoints, nor has a link that never followed a group: nothing is written.

    Raises:
        ClusterError: The target does not answer.
    """
    found = [
        Checkpoint(move.group, move.to_topic, move.partition, move.offset, move.to_offset, move.metadata)
        for move in moves
        if not move.from_checkpoint and move.offset >= 0 and move.to_offset is not None
    ]
    topic = link.mm2_names.checkpoints(link.source)
    if not found or link.guard or target.admin.describe_topics([topic])[topic] is None:
        return ""
    for begin in range(0, len(found), _MOST):
        failed = write_records(
            target.cluster,
            topic,
            [(one.key(), one.value()) for one in found[begin : begin + _MOST]],
            client_id=LinkNames(link.state_name).client_id("checkpoints"),
            seconds=_SECONDS,
        )
        if failed:
            return failed
    return ""


# a broker before 2.6 lists no states
_UNKNOWN = "UNKNOWN"


class GroupReader:
    """
    Reads the groups of one link; keeps its connections, and what it has read of positions and checkpoints.

    A failover asks twice: for its check, and when no lane can commit any more.  1,000 groups in 100 partitions have
    100,000 checkpoints, of which the second time reads only those that are new.

    Args:
        target: Connections to the target, for positions and checkpoints.
    """

    def __init__(self, config: Config, link: Link, target: ClusterSession) -> None:
        self._config, self._link, self._target = config, link, target
        self._reader = OffsetMapReader(link, target, keeps=True)

    def positions(self) -> Mapping[SourcePartition, Position]:
        """
        Returns the valid position of every source partition; empty if the link never ran.

        Raises:
            StateError: A position is not readable.
            ClusterError: The target cannot be read.
        """
        return self._reader.positions()

    def moves(
        self, cuts: Mapping[SourcePartition, Cut], history: PromotionHistory, *, answers: bool
    ) -> list[GroupMove]:
        """
        Returns where the groups resume, sorted.

        Args:
            cuts: Cut of each partition.
            history: Promotions of the link.
            answers: True if the source answers; else the groups' checkpoints on the target are read.

        Raises:
            UnreachableError: The source does not answer, and there are no checkpoints.
            ClusterError: A cluster cannot be asked.
        """
        if not self._link.groups:
            return []
        with collecting_later(), _started(self._groups):
            return self._moves(cuts, history, answers=answers)

    def close(self) -> None:
        """Closes the clients of groups and maps."""
        for name in ("_translator", "_groups"):
            if (made := self.__dict__.pop(name, None)) is not None:
                made.close()

    def _moves(
        self, cuts: Mapping[SourcePartition, Cut], history: PromotionHistory, *, answers: bool
    ) -> list[GroupMove]:
        active, away = self._active_on_source() if answers else ({}, {})
        rows, from_checkpoints = self._translator.translate_groups(
            None, self._link.follows, source_unavailable=not answers, away=away
        )
        rows.sort(key=lambda one: (one.group, one.topic, one.partition))
        there = groups_there(self._groups, sorted({row.group for row in rows}))
        # Behind the offsets: a group that goes back has a checkpoint for that before its offset follows.
        placed = self._reader.placed() if any(there.offsets.values()) else {}
        gone = None if self._has_opposite else absences(history)
        # Where applications have written to the copies, consumers have read there by design.
        keeps = self._link.sync_group_offsets and not self._link.guard and not history.promotions
        foreign = _foreign(rows, there, placed) if keeps else {}
        copies = sorted(
            {
                (row.to_topic, row.to_partition)
                for row in rows
                # A group whose offsets cannot be read has no topic.
                if (row.to_offset is None and row.to_topic)
                or (gone and SourcePartition(row.topic, row.partition) in gone)
                or (row.group, row.to_topic, row.to_partition) in foreign
            }
        )
        starts = skip_missing(self._reader.log_starts, copies)
        if foreign:
            source = self._translator.sessions.source
            handed = frozenset() if from_checkpoints else handed_over(self._link, source)
            own = {
                key: frozenset({has})
                for key, has in foreign.items()
                if key in handed or link_wrote(has, placed.get(key, ()), starts.get(key[1:]))
            }
            placed = {**placed, **own}
        return plan_moves(
            rows,
            there,
            cuts,
            starts,
            placed,
            absences=gone,
            active={} if from_checkpoints else active,
            from_checkpoints=from_checkpoints,
            keeps=keeps,
            denied=unreadable_topics(self._target.admin, (row.to_topic for row in rows)),
            limit=self._groups.metadata_limit() if any(row.metadata for row in rows) else None,
        )

    def _active_on_source(self) -> tuple[dict[str, str], dict[str, UnreachableError]]:
        """
        Returns the followed groups with members on the source, with a reason; and the error of a source that is gone.

        Brokers list the states before the offsets are read: a group that is idle then has committed all that it will,
        unless a consumer starts.
        """
        groups = self._translator.groups
        unknown = ""
        try:
            states = {
                name: state for name, state in groups.listed_states().items() if self._link.follows(name)
            }
            if hidden := [name for name, state in states.items() if state == _UNKNOWN]:
                try:
                    states |= {name: state.name for name, state in groups.states(hidden).items()}
                except AuthorizationError as error:
                    unknown = f"it is not known if it has members on the source: {error.message}"
        except UnreachableError as error:
            return {}, {self._link.source: error}
        return {
            name: unknown
            if state == _UNKNOWN and unknown
            else f"it has members on the source (state {state.lower()}), which go on reading and committing"
            for name, state in states.items()
            if has_members(state)
        }, {}

    @cached_property
    def _translator(self) -> OffsetTranslator:
        return OffsetTranslator(self._config, self._link, reader=self._reader)

    @cached_property
    def _groups(self) -> ClusterGroups:
        client_id = LinkNames(self._link.state_name).client_id("groups")
        return ClusterGroups(self._config.clusters[self._link.target], client_id=client_id)

    @property
    def _has_opposite(self) -> bool:
        """Returns True if the map of the link back is asked as well, which tells what applications wrote."""
        return opposite_link(self._config, self._link) is not None


def _foreign(
    rows: Iterable[Translation], there: GroupsThere, placed: Mapping[tuple[str, str, int], Collection[int]]
) -> dict[tuple[str, str, int], int]:
    """Returns offsets on the target that are behind the groups, and in no checkpoint of the link."""
    found = {}
    for row in rows:
        key = row.group, row.to_topic, row.to_partition
        has = there.offset(row.group, key[1:])
        behind = has is not None and row.to_offset is not None and has < row.to_offset
        if has is not None and behind and has not in placed.get(key, ()):
            found[key] = has
    return found


@contextmanager
def collecting_later() -> Iterator[None]:
    """Holds the garbage collector off: 100,000 rows hold no cycles, and it looks at all of them again and again."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _started(groups: ClusterGroups) -> Iterator[None]:
    """Starts the process that asks coordinators beside what the block reads: its imports take a third of a second."""

    def start() -> None:
        # The next request names the reason.
        with suppress(MirrorError):
            groups.states(())

    starting = threading.Thread(target=start, name="groups-start", daemon=True)
    starting.start()
    try:
        yield
    finally:
        starting.join()


def absences(history: PromotionHistory) -> dict[SourcePartition, list[Absence]]:
    """Returns the times at which a link was promoted, by partition; pure."""
    found: dict[SourcePartition, list[Absence]] = {}
    for number, promotion in history.promotions.items():
        resumption = history.resumptions.get(number)
        for cut in promotion.cuts:
            if resumption is not None and cut.source in resumption.starts:
                absence = Absence(cut.position, resumption.starts[cut.source], cut.target_end)
                found.setdefault(cut.source, []).append(absence)
    return found


class GroupMover:
    """
    Moves the groups of a link that is promoted.

    Args:
        call: The command.
        waits: Wait for a broker of the target that restarts meanwhile, and go on without the groups that could not be
            read: no later call may move them, and waiting for a dead source does not help.

    Attributes:
        reader: Reads the groups.
        moves: Groups and partitions, as they were read last.
        refused: Groups that were not moved, with the reason; ``*`` if no group could be read.
    """

    def __init__(self, call: PromotedLink, *, waits: bool) -> None:
        self._call, self._waits = call, waits
        self.reader = GroupReader(call.config, call.link, call.sessions.target)
        self.moves: list[GroupMove] = []
        self.refused: dict[str, str] = {}

    def close(self) -> None:
        """Closes the clients of groups and maps."""
        self.reader.close()

    def move(self, cuts: Mapping[SourcePartition, Cut], history: PromotionHistory, *, answers: bool) -> None:
        """
        Commits the offsets at which the groups resume.

        Args:
            cuts: Cut of each partition.
            history: Promotions of the link.
            answers: True if the source answers.

        Raises:
            MirrorError: The groups could not be read, and the command does not go on without.
        """
        link, target = self._call.link, self._call.sessions.target
        client_id = LinkNames(link.state_name).client_id("groups")
        with collecting_later(), closing(ClusterGroups(target.cluster, client_id=client_id)) as groups:
            try:
                self.moves = self.planned(cuts, history, answers=answers)
            except MirrorError as error:
                if not self._waits:
                    raise
                # The records are there, and groups can be set by hand.
                self.moves, self.refused = [], {"*": error.message}
            moving = written(self.moves)
            self.refused |= unread(self.moves)
            if noted := note_moves(link, target, (move for moves in moving.values() for move in moves)):
                # Only a call that dies from here on, and a group that then goes back, would need them.
                log.warning("moves_not_noted", link=link.name, reason=noted)
            for portion in batches(sorted(moving)):
                rows = {
                    group: [
                        (move.to_topic, move.partition, move.to_offset or 0, move.metadata)
                        for move in moving[group]
                    ]
                    for group in portion
                }
                self.refused |= _refusals(groups, rows, self._call.clock)
                crash_point("failover.group_moved")

    def planned(
        self, cuts: Mapping[SourcePartition, Cut], history: PromotionHistory, *, answers: bool
    ) -> list[GroupMove]:
        """Returns where the groups resume, as `GroupReader.moves`."""
        call = self._call
        deadline = Deadline(_GROUP_SECONDS, call.clock)
        while True:
            try:
                return self.reader.moves(cuts, history, answers=answers)
            except ClusterError as error:
                if isinstance(error, AuthorizationError) or deadline.passed or not self._waits:
                    raise
                log.info("groups_not_read", link=call.link.name, reason=error.message)
                call.tell("the consumer groups could not be read; reading them again")
                self.reader.close()
                call.clock.sleep(_GROUP_PAUSE_SECONDS)


def _refusals(groups: ClusterGroups, wanted: Mapping[str, Sequence[Row]], clock: Clock) -> dict[str, str]:
    """
    Commits offsets of groups; returns the reason of each that was refused.

    The request is repeated if the process that sends it died, and for a group whose members are about to leave.
    """
    deadline = Deadline(_GROUP_SECONDS, clock)
    refused: dict[str, str] = dict.fromkeys(wanted, "")
    for attempt in range(_GROUP_TRIES):
        clock.sleep(_GROUP_PAUSE_SECONDS * attempt)
        try:
            found = groups.write_all({group: wanted[group] for group in refused})
        except MirrorError as error:
            found = dict.fromkeys(refused, error.message)
        refused = {group: reason for group, reason in found.items() if reason}
        if not refused or deadline.passed:
            break
    return refused
