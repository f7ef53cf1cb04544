"""
Ownership of a link: decisions about claims and generations (EO-2, EO-10). Pure.

Two mirrors that are started for one link would fence each other for ever: each InitProducerId fences the other's
producer, the other rebuilds, and so on.  So a newcomer looks before it takes the link:

* it watches the owner's claim for longer than the owner's renewal interval; a claim that advances has a living
  owner, and the newcomer leaves (exit 5) unless it runs with `--take-over`;
* a claim that does not advance, was released, or whose process is known to be dead on this machine is taken;
* ``--take-over`` applies to the owner that the newcomer meets.  Of several newcomers with it, the first that publishes
  owns the link, and the others leave;
* a failover applies to every mirror, also to one that starts meanwhile, and no mirror takes a link from a command that
  renews its claim;
* a newcomer that is fenced on its way gives way: the mirror that fenced it publishes its claim within moments, and
  taking the link back earlier would fence that mirror in turn.  It continues only if no claim appears;
* a process that stands by (`eomirror.link.standby`) watches for as long as the claim advances, and then does as a
  newcomer does;
* a mirror that finds itself fenced reads control: its own run there means that a lane of its own fenced it, and
  it rebuilds; another run means that it was superseded, and it leaves.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

from eomirror.clock import utc
from eomirror.errors import MirrorError, NotReadyError, StateError, SupersededError
from eomirror.link.assignment import assign
from eomirror.records.control import ControlView, Generation
from eomirror.types import Assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from eomirror.config import Link
    from eomirror.records.control import Claim
    from eomirror.records.position import Position
    from eomirror.records.promotion import Promotion
    from eomirror.types import SourcePartition

__all__ = [
    "CLAIM_INTERVAL_SECONDS",
    "STANDBY_INTERVAL_SECONDS",
    "AfterFencing",
    "ClaimDecision",
    "after_fencing",
    "check_positions",
    "is_complete",
    "judge_claim",
    "left",
    "moved",
    "next_generation",
    "refuse_copying_back",
    "refuse_handed_over",
    "refuse_promoted",
    "revised",
    "superseded_by",
    "unpublished",
    "watch_seconds",
]

#: Seconds between renewals of an owner's claim.
CLAIM_INTERVAL_SECONDS = 5.0

#: The same while a process stands by for the link.
STANDBY_INTERVAL_SECONDS = 1.0

# A renewal that is late by less than this, or this share of the interval, does not count as missing.
_LATE_SECONDS = 1.0
_LATE_SHARE = 0.4


class ClaimDecision(enum.Enum):
    """Decision about a claim: TAKE the link, WATCH the claim, or LEAVE to its living owner."""

    TAKE = "take"
    WATCH = "watch"
    LEAVE = "leave"


def watch_seconds(interval: float) -> float:
    """
    Returns the seconds for which a claim must stand still before it counts as dead.

    Args:
        interval: Interval of the owner's renewals, in seconds.
    """
    return interval + max(_LATE_SECONDS, _LATE_SHARE * interval)


def judge_claim(
    first: Claim | None,
    latest: Claim | None,
    *,
    run: str,
    watched: float,
    take_over: bool,
    is_dead: Callable[[Claim], bool],
    fenced: bool = False,
    command: str = "",
) -> ClaimDecision:
    """
    Decides about a claim that has been watched for ``watched`` seconds.

    Args:
        first: Claim at the beginning of the watch.
        latest: Newest claim.
        run: Our own run.
        watched: Seconds on our own monotonic clock (clocks are never compared).
        take_over: ``--take-over``, or a command that stops the mirror (`_takes_over`).
        is_dead: Returns True if the claim's process is known to be dead: only ever True on its own machine.
        fenced: True if our control producer was fenced before we had published a claim.
        command: Command that wants the link; empty for a mirror.
    """
    moved = _renewal(first) != _renewal(latest)
    if fenced and not moved and watched < watch_seconds(CLAIM_INTERVAL_SECONDS):
        # The claim of the mirror that fenced us is on its way.
        return ClaimDecision.WATCH
    if latest is None or latest.released or latest.run == run:
        return ClaimDecision.TAKE
    if is_dead(latest):
        # Even if the claim advanced: its last renewal may become visible after its owner is gone.
        return ClaimDecision.TAKE
    if take_over and _takes_over(first, latest, command=command):
        return ClaimDecision.TAKE
    if moved:
        return ClaimDecision.LEAVE
    if watched >= watch_seconds(latest.interval_ms / 1000):
        return ClaimDecision.TAKE
    return ClaimDecision.WATCH


def _takes_over(first: Claim | None, latest: Claim, *, command: str) -> bool:
    """
    Returns True if the order to take over concerns the owner of ``latest``.

    Between two mirrors, or two commands, it concerns the owner that was present first, so that they do not fence each
    other in turn.  A mirror that a supervisor restarts during a failover must not prevent it: a command takes the link
    from any mirror, and a mirror from no command.
    """
    if bool(command) != bool(latest.command):
        return bool(command)
    return first is not None and first.run == latest.run


def _renewal(claim: Claim | None) -> tuple[str, int] | None:
    return None if claim is None else (claim.run, claim.sequence)


def superseded_by(
    link: str, view: ControlView, *, although_promoted: bool = False, command: str = ""
) -> SupersededError:
    """
    Returns the error for the mirror, or the command, that leaves; names what owns the link.

    A mirror whose link was promoted, or is about to be, must not take the link back.  A command of failover fences the
    lanes some seconds before its promotion is in control: the claim names the command.

    Args:
        view: Control, as it was read last.
        although_promoted: True for a command that works on promoted links.
        command: Command that leaves; empty for a mirror, which alone has ``--take-over``.
    """
    claim, promotion = view.claim, view.history.current
    if promotion is not None and not although_promoted:
        return SupersededError(
            f"link {link} was promoted at {utc(promotion.timestamp)} by host {promotion.host} ({promotion.kind}, "
            f"number {promotion.number}): applications may write to its copies",
            fix=("" if command else "do not start this mirror again; ")
            + _after_promotion(link, view, promotion),
        )
    if claim is not None and claim.command:
        who = f"`eomirror {claim.command}` on {claim.host} (pid {claim.pid}, run {claim.run})"
        if claim.released:
            return SupersededError(
                f"link {link} was taken by {who}, which has ended",
                fix="start this again: it refuses if the link was promoted meanwhile",
            )
        return SupersededError(
            f"link {link} was taken by {who}",
            fix=f"wait until that command has ended: `eomirror history CONFIG --link {quote(link)}` tells if the link "
            "is promoted then; if not, start this again",
        )
    if claim is not None and not claim.released:
        owner = f"run {claim.run} on {claim.host} (pid {claim.pid})"
    elif view.generation is not None:
        owner = f"run {view.generation.run}"
    else:
        owner = "another mirror"
    return SupersededError(
        f"link {link} is owned by {owner}",
        fix="stop that mirror first, then repeat this"
        if command
        else "stop that mirror first, or start this one with --take-over to take the link from it",
    )


class AfterFencing(enum.Enum):
    """Next step of a fenced owner: REBUILD, LEAVE, or LOOK again as a newcomer."""

    REBUILD = "rebuild"
    LEAVE = "leave"
    LOOK = "look"


def after_fencing(view: ControlView, *, run: str) -> AfterFencing:
    """
    Decides after our control producer, or one of our lanes, was fenced.

    The other mirror may have fenced us before it published anything; then control has no record newer than ours, and
    we look at the claim like any newcomer.
    """
    if view.generation is not None and view.generation.run != run:
        return AfterFencing.LEAVE
    if view.claim is not None and view.claim.run != run:
        return AfterFencing.LEAVE
    return AfterFencing.REBUILD if view.generation is not None else AfterFencing.LOOK


def next_generation(
    view: ControlView,
    *,
    run: str,
    lanes: int,
    partitions: Iterable[SourcePartition],
    now_ms: int,
    above: int = 0,
    without: Collection[SourcePartition] = (),
    backlog: Mapping[SourcePartition, int] | None = None,
    weights: Mapping[SourcePartition, float] | None = None,
) -> Generation:
    """
    Returns the lane layout that a starting mirror, or one that changes its lanes, publishes.

    Args:
        lanes: Number of lanes.
        partitions: All partitions to mirror.
        now_ms: Wall clock.
        above: Newest generation of any position.
        without: Partitions that have left the link, and may be new to it.
        backlog: As of `assign`.
        weights: As of `assign`; None if lanes are not balanced.
    """
    before = None if view.generation is None else left(view.generation, without, now_ms=now_ms)
    if backlog is None and before is not None and before.since:
        # what was moved while a lane had no slot is spread again; what was moved to balance lanes stays
        empty = set(range(before.assignment.lanes)) - set(before.assignment.partitions.values())
        backlog = {} if weights is None or empty else None
    assignment = assign(
        None if before is None else before.assignment, lanes, partitions, backlog=backlog, weights=weights
    )
    highest = max(lanes - 1, -1 if before is None else before.highest_lane)
    return Generation(
        generation=1 + max(above, 0 if before is None else before.generation),
        revision=0,
        run=run,
        highest_lane=highest,
        assignment=assignment,
        timestamp=now_ms,
    )


def revised(
    generation: Generation,
    partitions: Iterable[SourcePartition],
    *,
    now_ms: int,
    weights: Mapping[SourcePartition, float] | None = None,
) -> Generation:
    """
    Returns the layout with partitions added; every other partition keeps its lane (EO-2).

    It is a generation of its own for lanes that get a partition which had left the link: within one, a partition has
    one lane.

    Args:
        generation: The layout before.
        partitions: Partitions to add.
        now_ms: Wall clock.
        weights: As of `assign`.

    Raises:
        MirrorError: A partition would change its lane: a bug in the layout, refused before it is published.
    """
    before = generation.assignment
    everything = set(before.partitions) | set(partitions)
    assignment = assign(before, before.lanes, everything, weights=weights)
    moved = [item for item, lane in before.partitions.items() if assignment.partitions.get(item) != lane]
    if moved:
        raise MirrorError(
            f"EO-2: a revision would move {moved[0]} to another lane", fix="report this; restarting is safe"
        )
    again = {assignment.partitions[item] for item in before.parked & assignment.partitions.keys()}
    return replace(
        _next_of(generation, again) if again else generation,
        revision=generation.revision + 1,
        assignment=assignment,
        timestamp=now_ms,
    )


def moved(
    generation: Generation,
    lanes: Mapping[SourcePartition, int | None],
    *,
    givers: Collection[int],
    now_ms: int,
) -> Generation:
    """
    Returns the next generation, in which partitions have other lanes; lanes that are not concerned keep theirs.

    A lane that gives a partition must be fenced behind its publication, a lane that gets one goes on (docs/adr/0030).

    Args:
        generation: The layout before.
        lanes: New lane of each partition that moves; None for one that leaves the link, which is parked.
        givers: Lanes that are fenced behind the publication.
        now_ms: Wall clock.

    Raises:
        StateError: A partition or a lane is not known, or a lane that gives would not be fenced: a bug, refused before
            it is published.  It ends the link: the lanes have given the partitions, and a repetition would fail too.
    """
    before = generation.assignment
    for source, lane in lanes.items():
        had = before.partitions.get(source)
        exists = lane is None or 0 <= lane < before.lanes
        if had is None or not exists or (had != lane and had not in givers):
            raise StateError(
                f"EO-2: {source} of lane {had} cannot move to lane {lane}: the layout has {before.lanes} lanes, and "
                f"{sorted(givers)} would be fenced",
                fix="report this; restarting is safe",
            )
    changed = {source: lane for source, lane in lanes.items() if before.partitions[source] != lane}
    after = {**before.partitions, **changed}
    kept = {source: lane for source, lane in after.items() if lane is not None}
    concerned = {*changed.values(), *(before.partitions[source] for source in changed)}
    return replace(
        _next_of(generation, concerned),
        assignment=Assignment(before.lanes, kept, before.parked | (after.keys() - kept.keys())),
        timestamp=now_ms,
    )


def _next_of(generation: Generation, concerned: Collection[int | None]) -> Generation:
    """Returns the next generation, which these lanes begin, and the others do not."""
    number = generation.generation + 1
    since = (
        number if lane in concerned else generation.of_lane(lane)
        for lane in range(generation.assignment.lanes)
    )
    return replace(generation, generation=number, since=tuple(since))


def left(generation: Generation, sources: Collection[SourcePartition], *, now_ms: int) -> Generation:
    """
    Returns the layout that does not know these parked partitions any more; every other one keeps its lane (EO-2).

    Raises:
        StateError: A lane mirrors one of them: a bug, refused before it is published.
    """
    before = generation.assignment
    if mirrored := sorted(before.partitions.keys() & set(sources)):
        raise StateError(
            f"EO-2: {mirrored[0]} cannot be forgotten: lane {before.partitions[mirrored[0]]} mirrors it",
            fix="report this; restarting is safe",
        )
    return replace(
        generation,
        revision=generation.revision + 1,
        assignment=Assignment(before.lanes, before.partitions, before.parked - frozenset(sources)),
        timestamp=now_ms,
    )


def refuse_ended(link: Link, view: ControlView, *, take_back: bool, although_promoted: bool) -> None:
    """
    Refuses a link that another replicator, or applications, write in place of.

    Args:
        take_back: True if the link is taken although it was handed to another replicator.
        although_promoted: True if it is taken although it is promoted.

    Raises:
        NotReadyError: They do.
    """
    if not take_back:
        refuse_handed_over(link.name, view)
    if not although_promoted:
        refuse_promoted(link.name, view)
    if not link.loops.whole:
        refuse_copying_back(link.name, view)


def refuse_handed_over(link: str, view: ControlView) -> None:
    """
    Refuses to run if another replicator mirrors since the link was handed to it.

    Raises:
        NotReadyError: The link was handed over, and not taken back since.
    """
    handed_over = view.handed_over
    if handed_over is None:
        return
    raise NotReadyError(
        f"link {link} was handed back to MirrorMaker 2 at {utc(handed_over.timestamp)} (source offsets in "
        f"{handed_over.place}): both would write every record",
        fix="to mirror with the link again, also if MirrorMaker 2 was never started: stop MirrorMaker 2, then "
        "`eomirror adopt CONFIG`",
    )


def refuse_copying_back(link: str, view: ControlView) -> None:
    """
    Refuses to run a link whose topics are copied back whole: its loop guard would drop what the old source once wrote.

    Raises:
        NotReadyError: A recreation is not complete.
    """
    order = view.copy_back
    if order is not None and not order.done:
        reversed_ = order.command == "reverse"
        why = "had lost records of them" if reversed_ else "does not have them any more: they were deleted"
        raise NotReadyError(
            f"link {link} copies topics back whole, because the source of link {order.link} {why}, and that is not "
            "complete",
            fix=f"repeat `eomirror {order.command} CONFIG --link {quote(order.link)}"
            f"{'' if reversed_ else ' --orphans recreate'}`: it goes on from here",
        )


def refuse_promoted(link: str, view: ControlView) -> None:
    """
    Refuses to mirror into copies that applications write to since the link was promoted.

    Raises:
        NotReadyError: The link is promoted.
    """
    promotion = view.history.current
    if promotion is None:
        return
    raise NotReadyError(
        f"link {link} was promoted at {utc(promotion.timestamp)} ({promotion.kind}, number {promotion.number}): "
        "applications may write to its copies, and mirroring into them would mix both",
        fix=_after_promotion(link, view, promotion),
    )


def _after_promotion(link: str, view: ControlView, promotion: Promotion) -> str:
    """Returns the recommended action for a link that is promoted."""
    reversal = view.history.reversals.get(promotion.number)
    if reversal is None:
        return (
            f"to bring the new records back: `eomirror reverse CONFIG --link {quote(link)}`; to see the cut: `eomirror "
            f"history CONFIG --link {quote(link)}`"
        )
    return (
        f"link {reversal.link} mirrors in the other direction: run that one; to return: `eomirror failback CONFIG "
        f"--link {quote(link)}`, or, if that link was promoted since, `eomirror reverse CONFIG --link "
        f"{quote(reversal.link)}`"
    )


@dataclass(frozen=True, slots=True)
class _Lost:
    what: str
    seen: str


def is_complete(published: ControlView, view: ControlView, positions: Collection[SourcePartition]) -> bool:
    """
    Returns True if a publication that was left hanging may be committed.

    Its owner may have died before all of it was written, or part of it may be aborted.  A layout whose new
    partitions have no first positions would never run.

    Args:
        published: Open records of control.
        view: Control without them.
        positions: Partitions that have a position, open ones included.
    """
    if published.generation is None:
        return True
    known = frozenset() if view.generation is None else view.generation.assignment.known
    return published.generation.assignment.known - known <= set(positions)


def unpublished(
    view: ControlView, positions: Mapping[SourcePartition, Position]
) -> dict[SourcePartition, Position]:
    """
    Returns first positions of partitions that control does not know: the layout of their transaction is not visible.

    The target did not write all markers of that transaction, and it was ended differently in control (docs/adr/0012).
    No lane can have run with that layout, because a lane runs with the visible one.  The positions are valid
    nevertheless: the link's beginning was decided with them, once, and the user may have chosen it.
    """
    known = frozenset() if view.generation is None else view.generation.assignment.known
    return {
        source: position
        for source, position in positions.items()
        if position.epoch == 0 and source not in known
    }


def check_positions(
    link: str, view: ControlView, positions: Mapping[SourcePartition, Position], *, map_has_records: bool
) -> None:
    """
    Refuses to start from state topics that contradict each other.

    They are read before anything is published, because a publication writes first positions under keys that a lost
    control topic does not know, and compaction would then remove the old ones.

    Raises:
        StateError: Control was lost or restored older than the positions, or the positions were lost.
    """
    generation = 0 if view.generation is None else view.generation.generation
    torn = unpublished(view, positions)
    believed = (position for source, position in positions.items() if source not in torn)
    newest = max((position.generation for position in believed), default=0)
    lost: _Lost | None = None
    if newest > generation:
        lost = _Lost("control", f"positions of generation {newest} exist, control knows {generation}")
    elif view.generation is None and map_has_records:
        lost = _Lost("control and positions", "the offset map has records, control has none")
    if lost is not None:
        raise StateError(
            f"link {link}: the {lost.what} topic was deleted or restored from an older state: {lost.seen}",
            fix="restore the eomirror.* topics of the link together; to start the link afresh, delete all of "
            "them and its target topics",
        )
