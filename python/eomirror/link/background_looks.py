"""
Looks at a lane's clusters at an interval, each time in a thread, so that the lane does not wait.

`TargetLogEnds` checks once a minute that copies still end behind their last acknowledged record.  A transaction shows
the offsets of its records on the target (`eomirror.lane.commit.grant`).  A partition without new records shows nothing:
its copy may lose records with a broker's disk, or in an unclean election, and stay short for hours (EO-5).

A copy that seems cut is read again, after a pause and with a new client each time.  A broker that was frozen, and
does not know yet that another one leads, answers from its old state.  A log does not shrink under one leader epoch, so
an answer counts only if its epoch is newer than the one that showed the copy whole.

`OffsetMapSweep` finds chunks of the offset map that no reader can use any more.  Chunks below both log starts are at
the beginning of the map's log, because they were written first.  So every ten minutes a bounded part of the beginning
is read.  The lane deletes the chunks that are found (`eomirror.lane.offset_map_compaction`), and the next look finds
the rest.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import DataLossError, MirrorError
from eomirror.kafka.log_ends import skip_missing
from eomirror.lane.offset_map_compaction import unreadable
from eomirror.link.offset_map_reader import OffsetMapReader, chunk_of
from eomirror.records.offset_map import chunk_prefix, prefix_of_chunk
from eomirror.recovery.resume import copy_cut_error, cut_copies

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["BackgroundLook", "OffsetMapSweep", "TargetLogEnds"]

log = structlog.get_logger(__name__)

Found = TypeVar("Found")


class BackgroundLook(ABC, Generic[Found]):
    """
    Looks again and again, one look at a time.

    Args:
        link: Name of the link, for the log.
        event: Name of the log event of a failed look; the next one retries.
        first_seconds: Time until the first look.
        seconds: Time between two looks.
        close_seconds: Maximum wait for a look that is under way at the end.
    """

    def __init__(
        self,
        *,
        link: str,
        event: str,
        first_seconds: float,
        seconds: float,
        close_seconds: float,
        clock: Clock,
    ) -> None:
        self._link = link
        self._event = event
        self._seconds = seconds
        self._close_seconds = close_seconds
        self._clock = clock
        self._closing = threading.Event()
        self._next = clock.monotonic() + first_seconds
        self._thread: threading.Thread | None = None
        self._found: tuple[Found, ...] = ()

    @abstractmethod
    def look(self, positions: Collection[Position]) -> tuple[Found, ...]:
        """
        Looks and waits; returns the findings.

        Args:
            positions: Positions that the lane has committed.

        Raises:
            MirrorError: A cluster cannot be asked.
        """

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        """
        Starts a look in the background if one is due; returns at once.

        Args:
            positions: Positions that the lane has committed.
        """
        now = self._clock.monotonic()
        if now < self._next or self._thread is not None or not positions:
            return
        self._next = now + self._seconds
        self._thread = threading.Thread(target=self._run, args=(tuple(positions.values()),), daemon=True)
        self._thread.start()

    @property
    def looking(self) -> bool:
        """True while a look is under way."""
        return self._thread is not None and self._thread.is_alive()

    def take(self) -> tuple[Found, ...]:
        """Returns the findings since the last call."""
        if self._thread is None or self._thread.is_alive():
            return ()
        self._thread = None
        found, self._found = self._found, ()
        return found

    def close(self) -> None:
        """Asks a look that is under way to end, and waits a moment; it ends when the lane closes its connections."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(self._close_seconds)

    def _run(self, positions: Collection[Position]) -> None:
        try:
            self._found = self.look(positions)
        except MirrorError as error:
            log.info(self._event, link=self._link, reason=error.message)
        except Exception:
            # the lane has closed connections that are in use: errors of that are expected
            if not self._closing.is_set():
                raise


_SECONDS = 60.0
# Between the reads of a copy that seems cut; the second is as long as a broker's session with its controller.
_PAUSES = (2.0, 9.0)
_CLOSE_SECONDS = 0.1
_SLICE_SECONDS = 0.1
# The leader epoch of a broker that reports none.
_UNKNOWN = -1

_Where = tuple[str, int]
_Pair = tuple["SourcePartition", _Where]


class TargetLogEnds(BackgroundLook[DataLossError]):
    """
    Compares the ends of a lane's copies with its positions; see `eomirror.lane.ports.CopyWatch`.

    Args:
        target: Connections to the target.
    """

    def __init__(self, link: Link, target: ClusterSession, *, clock: Clock = SYSTEM_CLOCK) -> None:
        # A starting lane has compared all of them.
        super().__init__(
            link=link.name,
            event="copies_not_looked_at",
            first_seconds=_SECONDS,
            seconds=_SECONDS,
            close_seconds=_CLOSE_SECONDS,
            clock=clock,
        )
        self._target = target
        # The newest leader epoch under which a copy was seen whole.
        self._whole: dict[_Where, int] = {}

    def look(self, positions: Collection[Position]) -> tuple[DataLossError, ...]:
        """
        Checks and waits; returns one error for each topic whose copy lost records.

        Args:
            positions: Positions that the lane has committed.

        Raises:
            MirrorError: The target does not answer.
        """
        waiting = [one for each in positions for one in each.by_copy() if one.target_offset is not None]
        cut = self._cut(self._target.admin, waiting)
        for pause in _PAUSES:
            if not cut:
                return ()
            if not self._pauses(pause):
                return ()
            waiting = [one for one in waiting if _pair(one) in cut]
            from eomirror.kafka.admin import ClusterAdmin  # noqa: PLC0415  this module is loaded before a fork

            # Not the lane's client: its connection may lead to a broker that was frozen.
            admin = ClusterAdmin(self._target.cluster, client_id=self._target.client_id, clock=self._clock)
            try:
                cut = self._cut(admin, waiting)
                # A recreated topic is handled elsewhere (`eomirror.recovery.resume`).
                topics = admin.visible_topics(sorted({one.target_topic for one in waiting}))[0]
            finally:
                admin.close()
            same = {
                _pair(one)
                for one in waiting
                if (facts := topics.get(one.target_topic)) and facts.topic_id == one.target_topic_id
            }
            cut = {pair: end for pair, end in cut.items() if pair in same}
        errors: dict[str, DataLossError] = {}
        for one in waiting:
            if _pair(one) in cut:
                errors.setdefault(one.topic, copy_cut_error(one, cut[_pair(one)]))
        return tuple(errors.values())

    # -- inside ----------------------------------------------------------------------------------

    def _pauses(self, seconds: float) -> bool:
        """Sleeps; returns False if the lane closes in the meantime."""
        deadline = Deadline(seconds, self._clock)
        while not deadline.passed and not self._closing.is_set():
            self._clock.sleep(min(_SLICE_SECONDS, deadline.remaining()))
        return not self._closing.is_set()

    def _cut(self, admin: ClusterAdmin, positions: Collection[Position]) -> dict[_Pair, int]:
        """Returns the log ends of copies that seem cut, from one read."""
        epochs: dict[_Where, int] = {}

        def ask(partitions: Sequence[_Where]) -> Mapping[_Where, int]:
            found = admin.log_ends(partitions)
            epochs.update({where: epoch for where, (_, epoch) in found.items()})
            return {where: end for where, (end, _) in found.items()}

        ends = skip_missing(ask, {(one.target_topic, one.target_partition) for one in positions})
        cut = {_pair(one): end for one in positions for end in cut_copies([one], ends).values()}
        shorter = {where for _, where in cut}
        for where in ends.keys() - shorter:
            self._whole[where] = max(epochs[where], self._whole.get(where, _UNKNOWN))
        return {
            (source, where): end
            for (source, where), end in cut.items()
            if epochs[where] == _UNKNOWN or epochs[where] > self._whole.get(where, _UNKNOWN)
        }


def _pair(position: Position) -> _Pair:
    """Returns the source partition and the copy that a position concerns."""
    return position.source, (position.target_topic, position.target_partition)


_SWEEP_FIRST_SECONDS = 60.0
_SWEEP_SECONDS = 600.0
# Per partition of the map's topic; about 3 MB.
_MOST_RECORDS = 20_000
_SWEEP_CLOSE_SECONDS = 2.0

_Range = tuple[int, int, int]


class OffsetMapSweep(BackgroundLook[tuple[int, bytes]]):
    """
    Scans the beginning of a link's offset map for one lane.

    Args:
        source: Connections to the source.
        target: Connections to the target.
    """

    def __init__(
        self, link: Link, source: ClusterSession, target: ClusterSession, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(
            link=link.name,
            event="offset_map_not_swept",
            first_seconds=_SWEEP_FIRST_SECONDS,
            seconds=_SWEEP_SECONDS,
            close_seconds=_SWEEP_CLOSE_SECONDS,
            clock=clock,
        )
        self._reads = link
        self._source = source
        self._target = target
        # Deleted by this lane, and perhaps not compacted away yet.
        self._deleted: frozenset[tuple[int, bytes]] = frozenset()

    def take(self) -> tuple[tuple[int, bytes], ...]:
        """Returns the map partition and key of each chunk that was found since the last call."""
        if not (found := super().take()):
            return ()
        deleted, self._deleted = self._deleted, frozenset(found)
        return tuple(each for each in found if each not in deleted)

    def look(self, positions: Collection[Position]) -> tuple[tuple[int, bytes], ...]:
        """
        Scans and waits; returns the map partition and key of each chunk.

        Raises:
            MirrorError: A cluster cannot be asked.
            StateError: A chunk is not readable.
        """
        by_source = {one.source: one for one in positions}
        copies = [(one.target_topic, one.target_partition) for one in positions]
        starts = self._source.admin.offsets(list(by_source), at="earliest", read_committed=False)
        target_starts = self._target.admin.offsets(copies, at="earliest", read_committed=False)
        windows = OffsetMapReader(self._reads, self._target).oldest(by_source, _MOST_RECORDS)
        by_prefix = {chunk_prefix(one.source, one.topic_id): one for one in positions}
        found: list[tuple[int, bytes]] = []
        for partition, records in windows.items():
            chunks: dict[SourcePartition, list[tuple[bytes, list[_Range]]]] = {}
            for record in records:
                position = by_prefix.get(prefix_of_chunk(record.key))
                if position is None:
                    continue
                held = chunks.setdefault(position.source, [])
                if record.value is None:
                    held.append((record.key or b"", []))
                    continue
                topic, number, ranges = chunk_of(record)
                # A chunk of another target topic: readers ignore it.
                if (topic, number) == (position.target_topic, position.target_partition):
                    held.append((record.key or b"", ranges))
            for one, log_of_it in chunks.items():
                position = by_source[one]
                keys = unreadable(
                    log_of_it,
                    source_start=starts[one],
                    target_start=target_starts[position.target_topic, position.target_partition],
                    last_target=position.target_offset,
                )
                found += [(partition, key) for key in keys]
        return tuple(found)
