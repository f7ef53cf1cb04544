"""
Finds the source record that was mirrored last, from the ends of both logs. Pure.

An at-least-once mirror commits its source offsets periodically (MM2: every minute), and restarts behind the last
committed one.  So its copy, read from the end, is a chain of *runs*::

    source   ... 97 98 99 100 101 102 103 104 105 106        committed: 99
    copy     ... 97 98 99 100 101 102 | 100 101 102 103
                 the run that passed 99     a run that began behind it, after a crash

Every run is the source in order.  The run in which the committed offset was passed may have begun anywhere before
it, and each later one began at the first record behind it.  The answer is the furthest record that any run reached.

All readings of the copy as such a chain are followed at once, record by record, and the furthest record of each is
kept.  If records are distinct, as timestamps make them, there is one reading.  If they repeat there may be several, and
then the logs do not tell which one is true.

A record of the copy that is not among the compared ones of the source is older than they are, if only such records are
before it; else no reading continues.  But if the source was not read to its end, it may be newer, of a run
that got further than the source was read, and was followed by another one::

    source   97 98 99 100 101 102 | not read: 103 ...        committed: 99
    copy     ... 5000 5001 5002 | 100 101

Then no reading continues at all, and more of the source has to be read.  The case that a record which is older than the
compared ones equals one of them, and no other compared one, is not considered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eomirror.kafka.record_digests import RecordDigest

__all__ = ["Alignment", "align"]

# Readings are followed up to this number: more mean that records repeat.
_MOST_READINGS = 2_000

# State of a run at a record before the compared ones; and state before the first run.
_OLDER = -1
_NOWHERE = -2


@dataclass(frozen=True, slots=True)
class Alignment:
    """
    Result of the comparison of two log ends.

    Attributes:
        candidates: Source offsets that may be the last mirrored one, ascending.  One: it is certain.  None: the copy
            does not end like the source.
        pairs: Source and target offset of the records of the last run, ascending; empty unless there is exactly one
            candidate.
    """

    candidates: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()


def align(
    source: Sequence[RecordDigest],
    target: Sequence[RecordDigest],
    committed: int | None,
    *,
    from_start: bool = False,
    to_end: bool = True,
) -> Alignment:
    """
    Finds the source record that was mirrored last.

    Args:
        source: The source from some records before the committed offset on, at least as far as ``target`` has records.
        target: The end of the copy.
        committed: The last source offset that the mirror committed; None if it committed none.
        from_start: True if ``target`` is the whole copy, of which no record was deleted.
        to_end: True if ``source`` goes to the end of its log, so that no record of the copy can be newer.

    Returns:
        The candidates.  ``committed`` itself is one if the copy ends with its record.
    """
    behind = sum(record.offset <= (-1 if committed is None else committed) for record in source)
    reached = _reached(
        [record.digest for record in source],
        [record.digest for record in target],
        behind,
        from_start=from_start,
        to_end=to_end,
    )
    candidates = tuple(source[index].offset for index in reached)
    return Alignment(candidates, _last_run(source, target, reached[0]) if len(reached) == 1 else ())


def _reached(
    source: list[bytes],
    target: list[bytes],
    behind: int,
    *,
    from_start: bool,
    to_end: bool,
) -> list[int]:
    """
    Returns the source indexes that may be the furthest mirrored one.

    A reading is (late, at, furthest).  Early, before the last commit, runs begin at ``behind`` or before it; late,
    at ``behind`` only.  A run that is at the committed record, or further, may be the one in which it was committed.
    """
    places: dict[bytes, list[int]] = {}
    for index, digest in enumerate(source):
        places.setdefault(digest, []).append(index)
    readings = {(False, _NOWHERE, behind - 1)}
    for number, digest in enumerate(target):
        here = places.get(digest, [])
        anywhere = number == 0 and not from_start
        following: set[tuple[bool, int, int]] = set()
        for late, at, furthest in readings:
            if not here and to_end and not late and at < 0:
                # Behind a known record, an unknown one may be newer than the records that were read.
                following.add((late, _OLDER, furthest))
            for place in _places(here, at, behind, late=late, anywhere=anywhere):
                reached = max(furthest, place)
                following.add((late, place, reached))
                if place >= behind - 1:
                    following.add((True, place, reached))
        if len(following) > _MOST_READINGS:
            return _between(places, target, behind)
        readings = following
    return sorted({furthest for late, _, furthest in readings if late and furthest >= 0})


def _places(here: list[int], at: int, behind: int, *, late: bool, anywhere: bool) -> Iterator[int]:
    """Yields the possible indexes of the run after a record that equals those at ``here`` on the source."""
    for place in here:
        if (place == at + 1 and at != _NOWHERE) or anywhere or (place == behind if late else place <= behind):
            yield place


def _between(places: Mapping[bytes, list[int]], target: list[bytes], behind: int) -> list[int]:
    """
    Returns a superset of `_reached` without following every reading.

    It extends from the last possible end of a run to the furthest record that the copy holds.
    """
    ends = [place for place in places.get(target[-1], ()) if place >= behind - 1]
    held = {place for digest in set(target) for place in places.get(digest, ())}
    return sorted(place for place in held if ends and place >= ends[0])


def _last_run(
    source: Sequence[RecordDigest], target: Sequence[RecordDigest], reached: int
) -> tuple[tuple[int, int], ...]:
    """Returns the offsets of the last run's records, if it is the run that got furthest."""
    pairs: list[tuple[int, int]] = []
    for theirs, ours in zip(reversed(source[: reached + 1]), reversed(target), strict=False):
        if theirs.digest != ours.digest:
            break
        pairs.append((theirs.offset, ours.offset))
    return tuple(reversed(pairs))
