"""Finds hanging transactions of a lane or its link and resolves them, by `eomirror.recovery.hanging`. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from eomirror.errors import DataLossError, MirrorError, StateError, TransactionFailedError
from eomirror.plane.protocol import ProducerIdentity
from eomirror.records.mm2 import decode_checkpoint, decode_offset_sync
from eomirror.records.names import ReadersTopics
from eomirror.records.offset_map import offset_map_partition
from eomirror.records.position import decode_key, decode_position
from eomirror.recovery.hanging import (
    RecordState,
    ahead_error,
    copy_was_committed,
    lost_error,
    orphaned_error,
    positions_were_committed,
    state_was_committed,
    unclear_error,
)
from eomirror.recovery.resume import copy_overwritten_error
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.records.names import LinkNames, StateTopics
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import HangingClient, OpenRange

__all__ = ["HangingResolver"]

_Where = tuple[str, int]

# attempts to read states while they change; a new attempt tries again
_LOOKS = 3
# states in which a leader reports the producer at the offset
_TOLD = frozenset({RecordState.COMMITTED, RecordState.DELETED})


class HangingResolver:
    """
    Resolves hanging transactions for a lane or for the owner of its link.

    Each ``find_`` method returns whether there is something to end; `end` ends it.  Ending fences the caller's own
    producer, so the caller starts over and searches again.

    Args:
        hanging_client: Finds and ends transactions.
        readers: Topics of MM2's readers that the lane writes to.
    """

    def __init__(
        self, names: LinkNames, hanging_client: HangingClient, readers: ReadersTopics | None = None
    ) -> None:
        self._names = names
        self._hanging_client = hanging_client
        self._readers = readers or ReadersTopics()
        # (lane, whether to commit) -> partitions
        self._plan: dict[tuple[int, bool], list[_Where]] = {}
        # ended transactions: partition, producer, first offset
        self._ended: set[tuple[_Where, int, int]] = set()

    def find_hanging_state(
        self,
        numbers: Collection[int],
        lanes: Callable[[], Mapping[int, int]],
        positions: Callable[[], Mapping[SourcePartition, Position]],
    ) -> bool:
        """
        Searches control and partitions of the positions topic, before their content is used.

        Args:
            numbers: Partitions of the positions topic.
            lanes: Called if something is open: returns producer id -> lane, for lanes whose earlier producers are
                fenced.
            positions: Called if only control is open: returns the valid positions.

        Raises:
            UnreachableError: The outcome of a transaction is unknown, or it stays open although it was ended.
            MirrorError: The target refuses us.
        """
        found = self._hanging_client.open(
            [(self._names.control_topic, 0), *((self._names.positions_topic, number) for number in numbers)]
        )
        known = lanes() if found else {}
        for producer_id in sorted({one.producer_id for one in found} & known.keys()):
            ranges = [one for one in found if one.producer_id == producer_id]
            told = [one for one in ranges if one.topic == self._names.positions_topic]
            if told:
                commit = self._positions_committed(told)
            else:
                commit = state_was_committed(self._behind(ranges, positions()), in_doubt=True)
            for one in ranges:
                self._end_later(one, known[producer_id], commit=commit)
        return bool(self._plan)

    def find_hanging_copies(
        self,
        positions: Mapping[SourcePartition, Position],
        *,
        topics: StateTopics,
        dead_letters: bool,
        mine: Mapping[int, int],
        lanes: Callable[[], Mapping[int, int]],
        stop: Callable[[Position, MirrorError], object],
    ) -> bool:
        """
        Searches the copies of partitions, and the state topics that describe them.

        Args:
            positions: The valid ones, with no hanging transaction among them.
            topics: The link's topics that lanes write.
            dead_letters: Whether the link has a dead-letter topic.
            mine: Producer id -> lane, for the lane that mirrors these partitions.
            lanes: Called if a copy is open for another producer: returns that lane, and all that may have had them
                before.
            stop: Takes a position whose topic must stop, and the error; returns true to have the transaction aborted.

        Raises:
            UnreachableError: A transaction stays open although it was ended.
            MirrorError: The target refuses us.
        """
        copies = {copy: one for one in positions.values() if not one.keyed for copy in one.copies}
        placed = [one for one in positions.values() if one.keyed]
        map_numbers = {offset_map_partition(one, topics.offset_map_partitions) for one in positions}
        state = [(topics.offset_map, number) for number in map_numbers]
        if dead_letters:
            state.append((topics.dead_letter, 0))
        told = [(topic, 0) for topic in (self._readers.checkpoints, self._readers.offset_syncs) if topic]
        shared = {copy for one in placed for copy in one.copies} - copies.keys()
        found = self._hanging_client.open([*copies, *sorted(shared), *state, *told])
        # other lanes write to the offset map constantly, and each of them costs some round trips
        others = any(one.where in copies and one.producer_id not in mine for one in found)
        known = lanes() if others else mine
        # we are the successor of each producer with an open copy; other producers in shared topics are lanes at work
        ours = mine.keys() | {one.producer_id for one in found if one.where in copies}
        # other lanes write to partitions of records placed by key as well: there, only our own are judged
        for one in (one for one in found if one.producer_id in (mine if one.where in shared else ours)):
            lane = known.get(one.producer_id)
            position = copies.get(one.where) or _placed_by(placed, one)
            if lane is None:
                if position is not None and position.producer_id == one.producer_id:
                    stop(position, orphaned_error(position, one))
                continue
            try:
                if position is not None:
                    commit: bool | None = copy_was_committed(position, one)
                elif one.where in told:
                    commit = self._readers_committed(one, copies)
                else:
                    commit = self._state_committed(one, positions)
            except DataLossError as error:
                if position is None or not stop(position, error):
                    continue
                commit = False
            if commit is not None:
                self._end_later(one, lane, commit=commit)
        return bool(self._plan)

    def stop_torn_topics(
        self,
        positions: Collection[Position],
        *,
        lanes: Callable[[], Mapping[int, int]],
        again: Callable[[], Mapping[SourcePartition, Position]],
        stop: Callable[[Position, DataLossError], object],
    ) -> None:
        """
        Checks that the records of positions are committed, and that no records of lanes follow them.

        Args:
            positions: Of topics whose ids match.
            lanes: Returns producer id -> lane, for all that may have mirrored these partitions.
            again: Called if records follow: returns the valid positions at that time.
            stop: Takes a position whose topic must stop, and the error.

        Raises:
            TransactionFailedError: The positions have moved, so another process runs the lane.
            MirrorError: The target does not answer.
        """
        positions = _furthest(positions)
        named = _named(positions)
        if not named:
            return
        states = self._hanging_client.record_states(named)
        written = {
            (one.target_topic, one.target_partition): (named[one.target_topic, one.target_partition], writer)
            for one, writer in _known_writers(positions)
            if states.get((one.target_topic, one.target_partition)) in _TOLD
        }
        replaced = self._hanging_client.overwritten(written) if written else frozenset()
        # a position that the owner set may precede records of lanes: the user may want them again
        # (nor are records of other lanes, which follow in a partition of records placed by key)
        ours = _named(one for one in positions if one.epoch > 0 and not one.keyed)
        # a transactional.id gets a new producer id at times (KIP-890); later records mostly have the previous one
        earlier = {one.producer_id for one in positions}
        behind = (
            self._hanging_client.committed_behind(ours, lambda: lanes().keys() | earlier)
            if ours
            else frozenset()
        )
        if deleted := [
            one
            for one in positions
            if one.epoch > 0
            and not one.keyed
            and states.get((one.target_topic, one.target_partition)) is RecordState.DELETED
        ]:
            behind = behind | self._hanging_client.mapped_behind(deleted)
        now = again() if behind else {}
        for one in positions:
            where = one.target_topic, one.target_partition
            if states.get(where) is RecordState.ABORTED:
                stop(one, lost_error(one))
            elif where in replaced:
                stop(one, copy_overwritten_error(one))
            elif where in behind:
                found = now.get(one.source)
                # `compacted` may be new knowledge of this attempt, which no commit has recorded
                if found is None or replace(found, compacted=one.compacted) != one:
                    # written by an attempt that has taken the lane since: no error
                    raise TransactionFailedError(f"{one.source}: its position has moved since it was read")
                stop(one, ahead_error(one))

    def end(self, identities: Mapping[int, ProducerIdentity]) -> Mapping[str, bool]:
        """
        Ends the transactions of the last search.

        Args:
            identities: Identities of lanes whose ids were ours during the search, and must still be.

        Returns:
            Partition name -> whether its transaction is committed.

        Raises:
            FencedError: Another process has taken the lane's id since.
            MirrorError: The target refuses, or does not answer in time.
        """
        plan, self._plan = self._plan, {}
        held = dict(identities)
        for (lane, commit), partitions in plan.items():
            held[lane] = self._hanging_client.end(lane, partitions, commit=commit, held=held.get(lane))
        return {
            f"{topic}-{number}": commit
            for (_, commit), partitions in plan.items()
            for topic, number in partitions
        }

    def release(self) -> None:
        """Releases connections until the next search."""
        self._hanging_client.release()

    # -- inside ----------------------------------------------------------------------------------

    def _end_later(self, found: OpenRange, lane: int, *, commit: bool) -> None:
        known = found.where, found.producer_id, found.start
        if known in self._ended:
            name = f"{found.topic}-{found.partition}"
            raise unclear_error(name, f"it is open from offset {found.start} on, although it was ended")
        self._ended.add(known)
        self._plan.setdefault((lane, commit), []).append(found.where)

    def _positions_committed(self, ranges: Sequence[OpenRange]) -> bool:
        # a position that only advanced names a record of an earlier transaction
        told = [position for one in ranges for position in self._positions_in(one) if position.records]
        newest = _transaction(told[-1]) if told else None
        whose = ranges[0].producer_id
        last = self._record_states([one for one in told if _transaction(one) == newest], whose)
        earlier = [one for one in told if _transaction(one) != newest]
        return positions_were_committed(
            last, () if RecordState.COMMITTED in last else self._record_states(earlier, whose)
        )

    def _record_states(self, positions: Sequence[Position], producer_id: int) -> Collection[RecordState]:
        """
        Returns the states of the records that these positions name, of the last one in each partition.

        They may have been speculative and never written (ADR 0006).  A marker or another producer's record at that
        offset can be read, but is not theirs.

        Raises:
            UnreachableError: Another producer's open transaction may hide committed records, or the state is unknown.
        """
        named, writers = _named(positions), _writers(positions)
        moving: Collection[_Where] = ()
        for _ in range(_LOOKS):
            states = dict(self._hanging_client.record_states(named)) if named else {}
            shown = [where for where, state in states.items() if state is RecordState.COMMITTED]
            if any(
                self._hanging_client.is_written_by(where, named[where], writers[where]) for where in shown
            ):
                return list(states.values())
            states.update(dict.fromkeys(shown, RecordState.DELETED))
            hidden = {where for where, state in states.items() if state is RecordState.PENDING}
            found = [one for one in self._open(hidden) if one.start <= named[one.where]]
            # another producer's open transaction hides committed records after it
            ours = {one.where for one in found if one.producer_id == producer_id}
            if others := {one.where for one in found} - ours:
                raise unclear_error(
                    _first(others),
                    "our records there become readable when other producers end their transactions",
                )
            # The transaction has ended since the request, or there was none: a new leader serves its log as
            # soon as it knows the replicas' logs, and a request for the end of the log waits for that.
            moving = hidden - ours
            if not moving:
                return list(states.values())
        raise unclear_error(_first(moving), "the states of our records keep changing")

    def _open(self, partitions: Collection[_Where]) -> Sequence[OpenRange]:
        return self._hanging_client.open(partitions) if partitions else ()

    def _positions_in(self, found: OpenRange) -> list[Position]:
        told = []
        where = f"{found.topic}-{found.partition}@{found.start}"
        for key, value in self._hanging_client.records(found):
            source = decode_key(key, where=where)
            if value is not None and not isinstance(source, int):
                told.append(decode_position(source, value, where=where))
        return [one for one in told if one.producer_id == found.producer_id]

    def _behind(
        self, ranges: Sequence[OpenRange], positions: Mapping[SourcePartition, Position]
    ) -> list[bool]:
        """Returns for each chunk, dead letter or gap whether the position of its partition is past it."""
        told = [_spoken_of(key) for one in ranges for key, _ in self._hanging_client.records(one)]
        return [
            positions[source].offset > offset for source, offset in filter(None, told) if source in positions
        ]

    def _state_committed(
        self, found: OpenRange, positions: Mapping[SourcePartition, Position]
    ) -> bool | None:
        """Returns None if it concerns none of these partitions: then another lane must end it."""
        behind = self._behind([found], positions)
        if not behind:
            return None
        # a missing chunk makes translated offsets earlier, a wrong one makes them wrong; a missing dead letter is a
        # record that goes unreported, a wrong one is a duplicate
        return state_was_committed(behind, in_doubt=found.topic != self._names.offset_map_topic)

    def _readers_committed(self, found: OpenRange, copies: Mapping[_Where, Position]) -> bool:
        """
        Returns whether records for MM2's readers name committed records only.

        A missing one is replaced by the next; a wrong one names offsets of aborted records.  False if it concerns no
        copy of these: no other lane would end it.
        """
        where = f"{found.topic}-{found.partition}@{found.start}"
        by_source = {one.source: one for one in copies.values()}
        behind = []
        for key, value in self._hanging_client.records(found):
            # other producers write there too, such as MirrorMaker 2
            with suppress(StateError):
                if found.topic == self._readers.checkpoints:
                    checkpoint = decode_checkpoint(key, value, where=where)
                    position = copies.get((checkpoint.topic, checkpoint.partition))
                    # a group that has read everything resumes at the lane's position
                    least = checkpoint.upstream
                else:
                    sync = decode_offset_sync(key, value, where=where)
                    position = by_source.get(SourcePartition(sync.topic, sync.partition))
                    least = sync.upstream + 1
                if position is not None:
                    behind.append(position.offset >= least)
        return state_was_committed(behind, in_doubt=False)


def _furthest(positions: Collection[Position]) -> Collection[Position]:
    """Returns the positions; of those placed by key, only the one with the last record in each target partition."""
    last: dict[_Where, int] = {}
    for one in positions:
        if one.keyed and one.target_offset is not None:
            where = one.target_topic, one.target_partition
            last[where] = max(one.target_offset, last.get(where, -1))
    if not last:
        return positions
    return [
        one
        for one in positions
        if not one.keyed or last.get((one.target_topic, one.target_partition)) == one.target_offset
    ]


def _placed_by(placed: Sequence[Position], found: OpenRange) -> Position | None:
    """
    Returns the position that tells the most about an open transaction in a partition of records placed by key.

    That is the one with the furthest record there, of those whose last transaction is one of the same producer.  If
    there is none, the result has no record there: the transaction is not committed.  None for any other partition.
    """
    parts = [_part(one, found.partition) for one in placed if found.where in one.copies]
    if not parts:
        return None
    whose = [part for part in parts if part.producer_id == found.producer_id]
    if not whose:
        return replace(parts[0], target_offset=None)
    return max(whose, key=lambda part: -1 if part.target_offset is None else part.target_offset)


def _part(position: Position, partition: int) -> Position:
    """Returns a position as it concerns one of its target partitions, with or without records there."""
    for part in position.by_copy():
        if part.target_partition == partition:
            return part
    return replace(position, target_partition=partition, target_offset=None)


def _named(positions: Iterable[Position]) -> dict[_Where, int]:
    """Returns the target offsets that positions name; for several in one partition, of the last one."""
    return {
        (one.target_topic, one.target_partition): one.target_offset
        for one in positions
        if one.target_offset is not None
    }


def _writers(positions: Iterable[Position]) -> dict[_Where, ProducerIdentity]:
    """Returns the producers of the records that positions name; for several in one partition, of the last one."""
    return {
        (one.target_topic, one.target_partition): ProducerIdentity(one.producer_id, one.producer_epoch)
        for one in positions
        if one.target_offset is not None
    }


def _known_writers(positions: Iterable[Position]) -> list[tuple[Position, ProducerIdentity]]:
    """Returns positions of lanes whose last record has a known producer."""
    return [
        (one, ProducerIdentity(*writer))
        for one in positions
        if one.epoch > 0 and (writer := one.target_writer) is not None
    ]


def _first(partitions: Collection[_Where]) -> str:
    """Returns one of the partitions, for display."""
    topic, number = min(partitions)
    return f"{topic}-{number}"


def _transaction(position: Position) -> tuple[int, int, int, int]:
    return position.epoch, position.attempt, position.producer_epoch, position.txn


def _spoken_of(key: bytes | None) -> tuple[SourcePartition, int] | None:
    """Returns source partition and first offset of a chunk, dead letter or gap; None for other records."""
    body = orjson.loads(key or b"{}")
    offset = next((body[name] for name in ("first", "offset", "from") if name in body), None)
    return None if offset is None else (SourcePartition(body["topic"], body["partition"]), offset)
