"""
Finds the offset up to which an old source and its copy still hold the same records.

A source that comes back without its tail ends before the cut.  One that was restored from an older state and written on
holds other records from some offset on, and may have any end.  The records of both sides, which the offset map pairs,
are compared backwards from the cut, in windows that grow, until a window is equal as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import NotReadyError
from eomirror.failover.promoted_link import PromotedLink, merged
from eomirror.kafka.record_digests import RecordDigestReader
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.link.source_comparison import SourceState, changed_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.kafka.session import LinkSessions
    from eomirror.link.source_comparison import ChangedSource
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.records.promotion import Cut, Promotion, PromotionHistory
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.types import SourcePartition

    Range = tuple[int, int, int]

__all__ = ["CommonEnd", "common_ends", "first_difference", "mirrored_copies", "parted", "refuse_changed"]

_FIRST_RECORDS = 1_000
_GROWTH = 4
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonEnd:
    """
    Offset at which the logs of one partition part.

    Attributes:
        changed: How the source differs from the position.
        cut: The cut, moved back to that offset; None if it cannot be found.
        stable: Last stable offset of the source.
    """

    changed: ChangedSource
    cut: Cut | None
    stable: int

    @property
    def is_open(self) -> bool:
        """True if a transaction of the source is open, whose records either log may hold in the end."""
        return self.stable < self.changed.end

    def __str__(self) -> str:
        if self.cut is None:
            return f"{self.changed}; no offset is known up to which both sides hold the same records"
        return f"{self.changed}; both sides hold the same records up to offset {self.cut.position}"


def common_ends(
    link: Link,
    sessions: LinkSessions,
    changed: Mapping[SourcePartition, ChangedSource],
    cuts: Iterable[Cut],
    history: PromotionHistory,
) -> list[CommonEnd]:
    """
    Returns where the logs of changed partitions part; a partition that holds what was mirrored all the same has none.

    Args:
        link: The promoted link.
        sessions: Connections to its clusters.
        changed: Partitions whose topic is the one that was mirrored.
        cuts: Its cuts.
        history: Its promotions.

    Raises:
        StateError: The offset map is not readable.
        ClusterError: A cluster cannot be read.
    """
    wanted = [cut for cut in cuts if cut.source in changed]
    if not wanted:
        return []
    maps = OffsetMapReader(link, sessions.target).maps([changed[cut.source].position for cut in wanted])
    stable = sessions.source.admin.offsets([cut.source for cut in wanted], at="latest", read_committed=True)
    copies = [(cut.target_topic, cut.partition) for cut in wanted]
    starts = sessions.target.admin.offsets(copies, at="earliest", read_committed=False)
    ends = sessions.target.admin.offsets(copies, at="latest", read_committed=True)
    stamped = _stamped(sessions, sorted({cut.target_topic for cut in wanted}))
    found, same = [], []
    for cut in wanted:
        one = changed[cut.source]
        before = _returns(history, cut.source)
        compare = _Comparison(
            sessions,
            cut,
            # what was merged since is behind the cut
            [each for each in maps[cut.source].listed() if each[0] < cut.position],
            [each for each, _ in before],
            starts=(one.log_start, starts[cut.target_topic, cut.partition]),
            copy_end=ends[cut.target_topic, cut.partition],
            begin=one.position.target_begin,
            timestamps=cut.target_topic not in stamped,
        )
        # The link has written nothing there since it began, so no map tells what the two logs have in common.
        begun = one.state is SourceState.COPY and one.position.target_offset is None
        unmapped = not cut.proven and (one.position.keyed or not maps[cut.source].listed())
        at = None if begun or unmapped else compare.end(min(cut.position, stable[cut.source]))
        if unmapped and not begun and one.state is SourceState.COPY:
            same.append(CommonEnd(changed=one, cut=None, stable=stable[cut.source]))
        elif at != cut.position:
            if at is not None and any(
                each.position <= at < start and one.end > each.position for each, start in before
            ):
                # what was brought back there is in no map of this link, which cannot tell it from foreign records
                at = None
            moved = None if at is None else replace(cut, position=at, target_end=compare.copy_of(at))
            found.append(CommonEnd(changed=one, cut=moved, stable=stable[cut.source]))
        elif not cut.proven:
            moved = replace(cut, target_end=compare.copy_of(at))
            same.append(CommonEnd(changed=one, cut=moved, stable=stable[cut.source]))
    # Copies whose end was not known are whole all the same, or nothing tells.  They count only beside others: their
    # topic is copied back without the loop guard, which would drop what such a copy holds before its end.
    copied = {each.changed.source.topic for each in found if each.cut is not None}
    return found + [each for each in same if each.changed.source.topic in copied]


def _returns(history: PromotionHistory, source: SourcePartition) -> list[tuple[Cut, int]]:
    """Returns the cuts of a partition from which the link has returned, and the offset at which it went on."""
    return [
        (cut, resumption.starts[source])
        for number, resumption in history.resumptions.items()
        if number in history.promotions and source in resumption.starts
        for cut in history.promotions[number].cuts
        if cut.source == source
    ]


def _stamped(sessions: LinkSessions, topics: Sequence[str]) -> set[str]:
    """Returns the copies that have timestamps of their own."""
    return {
        topic
        for topic, settings in sessions.target.admin.topic_configs(topics).items()
        if (kind := settings.get("message.timestamp.type")) is not None and kind.value == "LogAppendTime"
    }


class _Comparison:
    """
    Compares one partition with its copy.

    Args:
        ranges: Source offset, target offset and count of what was mirrored.
        earlier: Cuts of earlier promotions, from which the link has returned.
        starts: Log starts of source and copy.
        copy_end: Last stable offset of the copy.
        begin: Offset of the copy from which on the link writes; None if unknown.
        timestamps: Whether the copy has the timestamps of the source.
    """

    def __init__(
        self,
        sessions: LinkSessions,
        cut: Cut,
        ranges: Sequence[Range],
        earlier: Sequence[Cut],
        *,
        starts: tuple[int, int],
        copy_end: int,
        begin: int | None,
        timestamps: bool,
    ) -> None:
        self._cut, self._earlier = cut, earlier
        # others may have written before the first record of the link
        self._begin = () if earlier or begin is None else (begin,)
        self._readers = [RecordDigestReader(session) for session in (sessions.source, sessions.target)]
        self._timestamps = timestamps
        self._ranges = sorted(ranges)
        self._there = [each for one in self._ranges if (each := _from(one, starts))]
        self._log_start, self._copy_end = starts[0], copy_end
        # nothing that was mirrored before is missing in either log
        self._whole = self._there == self._ranges

    def end(self, upper: int) -> int | None:
        """
        Returns the first offset that is not as it was mirrored; None if that is not known.

        Args:
            upper: Offset up to which the source can be read, and was mirrored.
        """
        found: int | None = None
        size = _FIRST_RECORDS
        most = upper
        while True:
            window = _last(self._there, upper, size)
            low = window[0][0] if window else self._log_start
            first = self._first_difference(window, low, upper)
            if first is None and window:
                break
            found = found if first is None else first
            if not window or low == self._there[0][0]:
                if not self._whole and (not window or first == low):
                    return None
                break
            upper = low
            size *= _GROWTH
        return most if found is None else found

    def copy_of(self, offset: int) -> int:
        """
        Returns the offset of the copy from which a source without all from this offset on lacks records.

        It is behind the last one that the source holds: records of others may stand before the next one of the link.
        What was brought back after an earlier promotion may stand there too, and the source holds that.
        """
        held = [
            target + min(count, offset - source)
            for source, target, count in self._ranges
            if source < offset and not self._earlier
        ]
        mirrored = (
            iter(held[-1:])
            if held
            else (
                target + max(0, offset - source)
                for source, target, count in self._ranges
                if source + count > offset
            )
        )
        # what was brought back after an earlier promotion is at its cut and behind it
        earlier = (cut.target_end for cut in self._earlier if cut.position >= offset)
        begin = () if held else self._begin
        ends: list[int] = [*mirrored, *earlier, *begin]
        if self._cut.proven or not ends:
            # Else the end may be any offset before.
            ends.append(self._cut.target_end)
        return min(ends)

    def _first_difference(self, window: Sequence[Range], low: int, high: int) -> int | None:
        here, there = self._readers
        cut = self._cut
        records = here.read(cut.topic, cut.partition, low, high, timestamps=self._timestamps)
        copies = (
            there.read(
                cut.target_topic,
                cut.partition,
                min(target for _, target, _ in window),
                min(self._copy_end, max(target + count for _, target, count in window)),
                timestamps=self._timestamps,
            )
            if window
            else []
        )
        return first_difference(
            {one.offset: one.digest for one in records},
            {one.offset: one.digest for one in copies},
            [(source + each, target + each) for source, target, count in window for each in range(count)],
        )


def first_difference(
    source: Mapping[int, bytes], copy: Mapping[int, bytes], pairs: Sequence[tuple[int, int]]
) -> int | None:
    """
    Returns the first source offset that does not hold what was mirrored from it; None if all do; pure.

    A record of the source that was not mirrored is no difference if one that was follows it: it was dropped.

    Args:
        source: Digests of the source's records by offset.
        copy: The same of the copy.
        pairs: Source and target offset of mirrored records, ascending.
    """
    mirrored = {offset for offset, _ in pairs}
    wrong = next((at for at, there in pairs if at not in source or source[at] != copy.get(there)), None)
    last = max((at for at, _ in pairs if wrong is None or at < wrong), default=-1)
    more = (at for at in source if at > last and at not in mirrored and (wrong is None or at < wrong))
    return min(more, default=wrong)


def _from(one: Range, starts: tuple[int, int]) -> Range | None:
    """Returns what is left of a range in logs that begin at these offsets."""
    source, target, count = one
    less = max(0, starts[0] - source, starts[1] - target)
    return (source + less, target + less, count - less) if less < count else None


def _last(ranges: Sequence[Range], upper: int, most: int) -> list[Range]:
    """Returns the ranges of the last records before an offset, ascending."""
    found: list[Range] = []
    for source, target, count in reversed(ranges):
        count = min(count, upper - source)  # noqa: PLW2901  what is before the offset
        if count <= 0:
            continue
        take = min(count, most)
        found.append((source + count - take, target + count - take, take))
        most -= take
        if most <= 0:
            break
    return found[::-1]


def refuse_changed(config: Config, link: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
    """
    Refuses a source of a promoted link whose logs are not what was mirrored, as its reversal does.

    Raises:
        NotReadyError: They are not; the fix has the ways on.
        MirrorError: As of `reverse`.
    """
    with PromotedLink(config, link, "restore", clock=clock) as made:
        control, promotion = made.in_force()
        parted(made, promotion, control, mirrored_copies(made, promotion, control), accepted=False)


def mirrored_copies(
    made: PromotedLink, promotion: Promotion, control: ControlView
) -> Mapping[SourcePartition, CopyEnd]:
    """Returns how far the copies hold what was mirrored."""
    positions = made.positions()
    there = [positions[cut.source] for cut in promotion.cuts if cut.source in positions]
    return made.copy_ends([one for one in there if not _is_moved(one, promotion)], control)


def parted(
    made: PromotedLink,
    promotion: Promotion,
    control: ControlView,
    copies: Mapping[SourcePartition, CopyEnd],
    *,
    accepted: bool,
) -> list[CommonEnd]:
    """
    Returns the partitions whose source, or copy, is not what was mirrored.

    Args:
        copies: As far as the copies hold it.

    Raises:
        NotReadyError: There are some, and that is not accepted, or cannot be.
    """
    positions = made.positions()
    named = [positions[cut.source] for cut in promotion.cuts if cut.source in positions]
    changed = {
        source: each
        for source, each in changed_sources(
            made.link,
            made.sessions.source,
            named,
            moved_by=promotion.run,
            unproven={one.source for one in named if _is_moved(one, promotion)},
            copies={source: copy.problem for source, copy in copies.items()},
        ).items()
        # a log that begins behind the cut lacks orphans, which are named where they are dealt with
        if each.parts
    }
    if not changed:
        return []
    made.tell(f"looking for what {made.link.source} and the copies have in common")
    parted = common_ends(made.link, made.sessions, changed, promotion.cuts, control.history)
    command = f"eomirror reverse CONFIG --link {quote(made.link.name)}"
    if opened := [each for each in parted if each.is_open]:
        raise NotReadyError(
            f"link {made.link.name}: a transaction is open on {made.link.source} from offset {opened[0].stable} of "
            f"{opened[0].changed.source}, which has lost records, and may be committed later",
            fix=f"end it: kafka-transactions.sh find-hanging, abort; then repeat `{command}`",
        )
    if not promotion.number and parted:
        raise NotReadyError(
            f"link {made.link.name}: {made.link.source} is not what was mirrored: {parted[0]}",
            fix=f"run it: `eomirror run CONFIG --link {quote(made.link.name)}` names the ways on",
        )
    some = "; ".join(map(str, parted[:_SHOWN])) + (
        f"; and {len(parted) - _SHOWN} more" if len(parted) > _SHOWN else ""
    )
    if unknown := [each for each in parted if each.cut is None]:
        names = ", ".join(sorted({each.changed.source.topic for each in unknown})[:_SHOWN])
        raise NotReadyError(
            f"link {made.link.name}: {made.link.source} is not what was mirrored: {some}",
            fix=f"keep what {names} holds there and not on {made.link.target}, delete the topics on "
            f"{made.link.source}, and mirror them there with a new link; or restore their logs, then `{command}`",
        )
    # Also what a merge has mirrored that did not come to its end.
    reached = merged(promotion, positions)
    behind = {cut.source for cut in promotion.cuts if reached.get(cut.source, 0) > cut.position}
    topics = {each.changed.source.topic for each in parted}
    if again := sorted({source.topic for source in behind if source.topic in topics or source in changed}):
        some = some or "; ".join(map(str, list(changed.values())[:_SHOWN]))
        raise NotReadyError(
            f"link {made.link.name}: {made.link.source} is not what was mirrored: {some}; and orphans of "
            f"{', '.join(again[:_SHOWN])} were merged before, which the link back cannot tell from what is lost",
            fix=f"restore the logs of {made.link.source}, then `{command}`",
        )
    if parted and not accepted:
        raise NotReadyError(
            f"link {made.link.name}: {made.link.source} is not what was mirrored: {some}",
            fix=f"`{command} --from-common-end` brings what it lacks back from {made.link.target}, and takes what "
            f"it holds beyond for orphans, which `eomirror restore CONFIG --link {quote(made.link.name)} "
            "--orphans merge|export|keep` deals with then; or restore its logs, and repeat this",
        )
    return parted


def _is_moved(position: Position, promotion: Promotion) -> bool:
    """Returns True for the position that a reversal has set where the logs part, as long as nothing was merged."""
    later = promotion.number > 0 and position.generation > promotion.generation
    return later and position.epoch == 0 and position.target_offset is None
