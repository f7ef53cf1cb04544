"""Moves of consumers, kept until the logs are whole, and judged then."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.links.moving.judge import Count, Log, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["Move", "Moves", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of a topic on one side, ``east`` or ``west``."""

    side: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Move:
    """
    One consumer in one partition.

    Attributes:
        by: What told it where to go on, such as ``library``.
        kind: Of flow.
        group: Its name.
        origin: Where it has read.
        read_to: Next offset there.
        to: Where it goes on.
        start: Next offset there; None when it was told nothing.
        announced: How many records it was told that it will read twice, at most; None for none at all.
        saw: What it then really read there.
    """

    by: str
    kind: str
    group: str
    origin: Place
    read_to: int
    to: Place
    start: int | None
    announced: int | None = None
    saw: Log | None = None


@dataclass(slots=True)
class Moves:
    """All moves of a run."""

    made: list[Move] = field(default_factory=list)

    def judged(
        self, log: Callable[[Place], Log], left: Callable[[Place], Collection[bytes] | None]
    ) -> tuple[dict[tuple[str, str], Count], list[str]]:
        """
        What came of them.

        Args:
            log: The log of a partition, with everything that compaction took.
            left: What compaction has left there; None for a partition that is not compacted.  What it took before the
                mirror came is on one side only, and neither skipped nor read.

        Returns:
            Counts by teller and kind, and what was wrong, move by move.
        """
        counts: dict[tuple[str, str], Count] = defaultdict(Count)
        groups: dict[tuple[str, str], set[str]] = defaultdict(set)
        logs: dict[Place, Log] = {}
        wrong = []
        for move in self.made:
            for place in (move.origin, move.to):
                if place not in logs:
                    logs[place] = log(place)
            groups[move.by, move.kind].add(move.group)
            if move.start is None:
                counts[move.by, move.kind].enter(None)
                continue
            there, here, kept = logs[move.origin], logs[move.to], left(move.to)
            if kept is not None:
                here = {value: offset for value, offset in here.items() if value in there or value in kept}
            found = judge(move.read_to, move.start, there, here)
            counts[move.by, move.kind].enter(found, announced=move.announced)
            if found.skipped or found.again:
                wrong.append(f"{move.by}: {found} for {_brief(move)}")
            if move.saw is not None and (fault := _misread(move, logs[move.to], compacted=kept is not None)):
                wrong.append(f"misread: {fault} for {_brief(move)}")
        for key, names in groups.items():
            counts[key].consumers = len(names)
        return dict(counts), wrong


def _brief(move: Move) -> str:
    return (
        f"{move.group} ({move.kind}) from {move.origin} at {move.read_to} to {move.to} at {move.start}, "
        f"announced {move.announced}"
    )


def _misread(move: Move, log: Log, *, compacted: bool) -> str:
    """Whether a real consumer read what the log holds from there on; compaction may have taken some of it."""
    assert move.saw is not None
    assert move.start is not None
    last = max(move.saw.values(), default=move.start - 1)
    expected = {value: offset for value, offset in log.items() if move.start <= offset <= last}
    if any(expected.get(value) != offset for value, offset in move.saw.items()):
        return "it read what is not in the log"
    if not compacted and len(expected) != len(move.saw):
        return f"it read {len(move.saw)} records of {len(expected)}"
    return ""
