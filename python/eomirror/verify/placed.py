"""
Compares a partition with its copies in several target partitions, where records are placed by key.

The header ``eomirror.origin`` of each copy names its original.  All target partitions are read first, then the source,
through librdkafka; if there are more copies than the memory holds, in shares, each of which reads everything again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from eomirror._native import OriginComparison
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import TopicError
from eomirror.verify.counts import KINDS, PartitionCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror._native import Transform
    from eomirror.kafka.record_reader import CommittedPartition
    from eomirror.verify.verdict import Range, Scope

__all__ = ["PlacedComparer"]

_MESSAGES = 5000
_STEP_SECONDS = 0.1


class PlacedComparer:
    """
    Compares partitions of a link whose records are placed by key.

    Args:
        alias: Alias of the source cluster, as the header names it.
        source: Reads the source.
        target: Reads the target.
        from_start: True if the link mirrors from the beginning of partitions; else records before the first copy are
            not compared.
        show: Number of differences of a partition that are listed.
        most: Copies in memory.
        patience: Seconds without records after which a log counts as stalled.
        transform: Rules of the link; None without.
    """

    def __init__(
        self,
        alias: str,
        source: CommittedPartition,
        target: CommittedPartition,
        *,
        from_start: bool,
        show: int,
        most: int,
        patience: float,
        transform: Transform | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._alias = alias
        self._clients = {"source": source, "target": target}
        self._from_start = from_start
        self._show = show
        self._most = most
        self._patience = patience
        self._transform = transform
        self._clock = clock

    def compare(
        self,
        one: Scope,
        progress: Callable[[Scope, PartitionCounts], None] | None,
        stopped: Callable[[], bool],
    ) -> PartitionCounts:
        """
        Compares one partition.

        Args:
            one: Its scope, with target partitions in ``placed``.
            progress: Called at most every 0.1 s.
            stopped: Returns True to stop, called as often.

        Raises:
            TopicError: A log ends before its range does.
            MirrorError: A partition cannot be read.
        """
        shares = 1
        results: list[PartitionCounts] = []
        while len(results) < shares:
            counts = self._share(one, (len(results), shares), progress, stopped)
            if counts is None:
                shares, results = shares * 4, []
                continue
            results.append(counts)
            if not counts.whole:
                break
        total = results[0]
        for each in results[1:]:
            # every share reads everything again
            total = total.plus(replace(each, source={}, target={}), show=self._show)
        return replace(total, source=results[0].source, target=results[0].target)

    def _share(
        self,
        one: Scope,
        share: tuple[int, int],
        progress: Callable[[Scope, PartitionCounts], None] | None,
        stopped: Callable[[], bool],
    ) -> PartitionCounts | None:
        """Returns the counts of a share; None if it has too many copies."""
        comparison = OriginComparison(
            f"{self._alias}/{one.source.topic}/{one.source.partition}/",
            one.source.partition,
            (one.source.start, one.source.end),
            len(one.placed),
            shortened={part.partition for part in one.placed if part.start > 0},
            from_start=self._from_start,
            timestamps=one.timestamps,
            most=self._most,
            share=share,
            transform=self._transform,
        )
        differences = dict.fromkeys(KINDS, 0)
        counts = PartitionCounts(differences=differences)
        whole = True
        for side, part in (*(("target", part) for part in one.placed), ("source", one.source)):
            comparison.begin(side, part.topic, part.partition, part.start, part.end)
            tell = _silent if progress is None else partial(progress, one, counts)
            whole = whole and self._read(comparison, side, part, tell, stopped)
            if comparison.too_many:
                return None
            counts = self._counted(comparison, counts, one)
        if whole:
            comparison.finish()
        return replace(self._counted(comparison, counts, one), whole=whole)

    def _read(
        self,
        comparison: OriginComparison,
        side: str,
        part: Range,
        tell: Callable[[], object],
        stopped: Callable[[], bool],
    ) -> bool:
        """Reads a range to its end; returns False if it was stopped."""
        if part.start >= part.end:
            return True
        client = self._clients[side]
        client.assign(part.topic, part.partition, part.start)
        patience = Deadline(self._patience, self._clock)
        done, at = False, part.start
        while not done:
            if stopped():
                return False
            done = comparison.feed(*client.read(_MESSAGES, _STEP_SECONDS))
            if comparison.position > at:
                at, patience = comparison.position, Deadline(self._patience, self._clock)
            elif patience.passed and not done:
                raise TopicError(
                    f"{part.topic}-{part.partition} was read to {at}, and its brokers return no records before "
                    f"{part.end}",
                    topic=part.topic,
                    fix="verify again; if it recurs, find out what changes the topic",
                )
            tell()
        return True

    def _counted(self, comparison: OriginComparison, before: PartitionCounts, one: Scope) -> PartitionCounts:
        """Returns the counts with what the comparison has found since."""
        differences = dict(before.differences)
        found, places = list(before.found), list(before.places)
        for kind, source, partition, offset in comparison.take():
            differences[kind] += 1
            if len(found) < self._show:
                found.append((kind, source, offset))
                places.append(partition)
        records, left_out = comparison.counts()
        sides = [
            {"records": records[side] - left_out[side], "left_out": left_out[side], "position": position}
            for side, position in enumerate((one.source.end, sum(part.end for part in one.placed)))
        ]
        return replace(
            before,
            matched=comparison.matched,
            differences=differences,
            source=sides[0],
            target=sides[1],
            found=tuple(found),
            places=tuple(places),
        )


def _silent() -> None:
    """Reports no progress."""
