"""
What `eomirror.recovery.hanging` decides, asked of the target and carried out through `eomirror.lane.ports`.

Pure.
"""

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

# how often it is asked what became of records while that changes; who begins anew asks again
_LOOKS = 3
# of these a leader tells what stands at the offset
_TOLD = frozenset({RecordState.COMMITTED, RecordState.DELETED})


class HangingResolver:
    """
    What a lane, or the owner of its link, does about transactions that were left open.

    Each look answers whether there is something to end; `end` ends it.  Whoever did that has lost his producer, begins
    anew, and looks again.

    Args:
        names: Of the link.
        hanging_client: Looks, and ends.
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
        # what was ended once: where, whose, from which offset
        self._ended: set[tuple[_Where, int, int]] = set()

    def find_hanging_state(
        self,
        numbers: Collection[int],
        lanes: Callable[[], Mapping[int, int]],
        positions: Callable[[], Mapping[SourcePartition, Position]],
    ) -> bool:
        """
        Looks at control and at partitions of the positions topic, before anything is concluded from them.

        Args:
            lanes: Asked where something is open: producer id -> lane, of lanes whose earlier producers are fenced.
            positions: Asked where only control is open: the valid positions.

        Raises:
            UnreachableError: It cannot be told how a transaction ended, or it stays open although it was ended.
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
        Looks at the copies of partitions, and at what describes them.

        Args:
            positions: The valid ones, with nothing of theirs left open.
            topics: The link's topics that lanes write.
            letters: Whether there is a topic for dead letters.
            mine: Producer id -> lane, of the lane that mirrors these partitions.
            lanes: Asked where a copy is open for another producer: that lane, and all that may have had them before.
            stop: Takes a position whose topic cannot go on, and why.

        Raises:
            UnreachableError: Something stays open although it was ended.
            MirrorError: The target refuses us.
        """
        copies = {(one.target_topic, one.target_partition): one for one in positions.values()}
        map_numbers = {offset_map_partition(one, topics.offset_map_partitions) for one in positions}
        state = [(topics.offset_map, number) for number in map_numbers]
        if dead_letters:
            state.append((topics.dead_letter, 0))
        told = [(topic, 0) for topic in (self._readers.checkpoints, self._readers.offset_syncs) if topic]
        found = self._hanging_client.open([*copies, *state, *told])
        # other lanes write to the offset map all the time, and each of them costs some round trips
        others = any(one.where in copies and one.producer_id not in mine for one in found)
        known = lanes() if others else mine
        # who has one of these copies open has no successor but us; any other lane is at work where all of them write
        ours = mine.keys() | {one.producer_id for one in found if one.where in copies}
        for one in (one for one in found if one.producer_id in ours):
            lane = known.get(one.producer_id)
            position = copies.get(one.where)
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
                if position is not None:
                    stop(position, error)
                continue
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
        Looks whether the records that positions name can be read, and no records of lanes behind them.

        Args:
            positions: Of topics that are the ones that they speak of.
            lanes: Producer id -> lane, of all that may have mirrored these partitions.
            again: Asked where records stand behind one: the valid positions, now.
            stop: Takes a position whose topic cannot go on, and why.

        Raises:
            TransactionFailedError: They have moved, so somebody else runs the lane.
            MirrorError: The target does not answer.
        """
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
        # what the owner sets is not behind all that lanes wrote: the user may want it again
        ours = _named(one for one in positions if one.epoch > 0)
        # a transactional.id gets another producer id now and then (KIP-890); what is behind mostly has the one before
        earlier = {one.producer_id for one in positions}
        behind = (
            self._hanging_client.committed_behind(ours, lambda: lanes().keys() | earlier)
            if ours
            else frozenset()
        )
        if deleted := [
            one
            for one in positions
            if one.epoch > 0 and states.get((one.target_topic, one.target_partition)) is RecordState.DELETED
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
                # that the source is compacted may be this attempt's own knowledge, which no commit has recorded
                if found is None or replace(found, compacted=one.compacted) != one:
                    # written by an attempt that has taken the lane since, and all is well
                    raise TransactionFailedError(f"{one.source}: its position has moved since it was read")
                stop(one, ahead_error(one))

    def end(self, identities: Mapping[int, ProducerIdentity]) -> Mapping[str, bool]:
        """
        Ends what the last look found.

        Args:
            identities: Of lanes whose ids were ours when we looked, and must still be.

        Returns:
            Partition, for people -> whether what was open there is committed now.

        Raises:
            FencedError: Somebody else has taken the lane's id since.
            MirrorError: The target does not do it, or not in time.
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
        """The looks are over for a while."""
        self._hanging_client.release()

    # -- inside ----------------------------------------------------------------------------------

    def _end_later(self, found: OpenRange, lane: int, *, commit: bool) -> None:
        known = found.where, found.producer_id, found.start
        if known in self._ended:
            name = f"{found.topic}-{found.partition}"
            raise unclear_error(name, f"it is open from offset {found.start} on, also after it was ended")
        self._ended.add(known)
        self._plan.setdefault((lane, commit), []).append(found.where)

    def _positions_committed(self, ranges: Sequence[OpenRange]) -> bool:
        # one that only advanced names what an earlier transaction wrote
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
        What became of the records that these name, of the last one in each partition.

        They may have been foreseen and never written (0006).  What stands there instead, the marker that aborted
        them or a record of somebody else, can be read, and is none of theirs.

        Raises:
            UnreachableError: What is committed may be hidden behind what somebody else has open, or cannot be told.
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
            # behind somebody else's open transaction also what is committed is not shown
            ours = {one.where for one in found if one.producer_id == producer_id}
            if others := {one.where for one in found} - ours:
                raise unclear_error(
                    _first(others), "what it holds of ours can be told when others have ended theirs"
                )
            # Who had it open has ended that since we asked, or it was no transaction: a new leader shows what it has as
            # soon as it knows what the others have, and whoever asks for the end of the log waits for that.
            moving = hidden - ours
            if not moving:
                return list(states.values())
        raise unclear_error(_first(moving), "what it holds of ours changes while we look")

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
        """Of each chunk, letter or gap: whether the position of its partition is behind it."""
        told = [_spoken_of(key) for one in ranges for key, _ in self._hanging_client.records(one)]
        return [
            positions[source].offset > offset for source, offset in filter(None, told) if source in positions
        ]

    def _state_committed(
        self, found: OpenRange, positions: Mapping[SourcePartition, Position]
    ) -> bool | None:
        """None where it speaks of no partition of these: then it is another lane's to end."""
        behind = self._behind([found], positions)
        if not behind:
            return None
        # a chunk too few makes translated offsets earlier, one too many makes them wrong; a letter too few is a record
        # that nobody hears of, one too many comes twice
        return state_was_committed(behind, in_doubt=found.topic != self._names.offset_map_topic)

    def _readers_committed(self, found: OpenRange, copies: Mapping[_Where, Position]) -> bool:
        """
        Returns whether what tells MM2's readers where to go on speaks of committed records only.

        One too few is made up for by the next; one too many names offsets at which the records are aborted.  False
        where it speaks of no copy of these: nobody else would end it.
        """
        where = f"{found.topic}-{found.partition}@{found.start}"
        by_source = {one.source: one for one in copies.values()}
        behind = []
        for key, value in self._hanging_client.records(found):
            # other producers write there as well, MirrorMaker 2 perhaps
            with suppress(StateError):
                if found.topic == self._readers.checkpoints:
                    checkpoint = decode_checkpoint(key, value, where=where)
                    position = copies.get((checkpoint.topic, checkpoint.partition))
                    # a group that has read everything goes on where the lane does
                    least = checkpoint.upstream
                else:
                    sync = decode_offset_sync(key, value, where=where)
                    position = by_source.get(SourcePartition(sync.topic, sync.partition))
                    least = sync.upstream + 1
                if position is not None:
                    behind.append(position.offset >= least)
        return state_was_committed(behind, in_doubt=False)


def _named(positions: Iterable[Position]) -> dict[_Where, int]:
    """The records of the target that positions name, of several in one partition the last one's."""
    return {
        (one.target_topic, one.target_partition): one.target_offset
        for one in positions
        if one.target_offset is not None
    }


def _writers(positions: Iterable[Position]) -> dict[_Where, ProducerIdentity]:
    """Who wrote the records that positions name, of several in one partition the last one's."""
    return {
        (one.target_topic, one.target_partition): ProducerIdentity(one.producer_id, one.producer_epoch)
        for one in positions
        if one.target_offset is not None
    }


def _known_writers(positions: Iterable[Position]) -> list[tuple[Position, ProducerIdentity]]:
    """Positions of lanes that know who wrote the last record of the copy."""
    return [
        (one, ProducerIdentity(*writer))
        for one in positions
        if one.epoch > 0 and (writer := one.target_writer) is not None
    ]


def _first(partitions: Collection[_Where]) -> str:
    """One of them, for people."""
    topic, number = min(partitions)
    return f"{topic}-{number}"


def _transaction(position: Position) -> tuple[int, int, int, int]:
    return position.epoch, position.attempt, position.producer_epoch, position.txn


def _spoken_of(key: bytes | None) -> tuple[SourcePartition, int] | None:
    """Source partition and offset that a chunk, a letter or a gap begins with; None for other records."""
    body = orjson.loads(key or b"{}")
    offset = next((body[name] for name in ("first", "offset", "from") if name in body), None)
    return None if offset is None else (SourcePartition(body["topic"], body["partition"]), offset)
