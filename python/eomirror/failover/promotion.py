"""Promotes a link: takes the steps of `eomirror.failover.machine`, and reports each with its time."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.crash import crash_point
from eomirror.errors import MirrorError, NotReadyError, UnreachableError
from eomirror.failover.drain import DrainProgress, SourceDrain, planned_facts
from eomirror.failover.facts import beside_cuts, cuts_of, mirrored, read_facts, source_answers
from eomirror.failover.group_moves import GroupMove, counted
from eomirror.failover.group_reader import GroupMover
from eomirror.failover.machine import FINAL, State, StepOutcome, Verb, checked, following
from eomirror.failover.promoted_link import PromotedLink
from eomirror.failover.readiness import QUIET_SECONDS, Verified, assess, with_refusal, with_verified
from eomirror.link.hanging import end_hanging_copies
from eomirror.link.owner import LinkOwner
from eomirror.link.ownership import CLAIM_INTERVAL_SECONDS
from eomirror.link.state import LinkState
from eomirror.records.promotion import Cut, Promotion, standing_fence
from eomirror.recovery.copy_end import moved
from eomirror.status.derive import IN_STEP_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.config import Config
    from eomirror.failover.readiness import Readiness
    from eomirror.failover.writer_fence import WriterFence
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.link.owner import LinkOwner
    from eomirror.records.control import ControlView, Generation
    from eomirror.records.position import Position
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.types import SourcePartition

__all__ = ["PromotionOptions", "PromotionReport", "promote"]

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1
# what was checked longer ago is checked again
_STALE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionOptions:
    """
    Options of a promotion.

    Attributes:
        dry_run: Check only.
        force: Fail over although the source answers.
        source_gone: Do not ask the source, which takes seconds if it does not answer.
        patience: Seconds that the mirror may take to drain the source.
        quiet: Seconds for which the source's ends must stand still.
        fence: Stops the applications on the source; for a cutover.
        verify: Compares what was mirrored last with the source; raises if it differs.  None to skip it.
        on_switch: Called after the promotion; returns False if it failed.
        check: Called before anything is done; raises if the steps that follow the promotion could not be taken.
        confirm: Called with the verdict before anything is done, where it is no refusal; raises to give up.  A failback
            whose link back is promoted already calls it without a verdict.
    """

    dry_run: bool = False
    force: bool = False
    source_gone: bool = False
    patience: float = 60.0
    quiet: float = QUIET_SECONDS
    fence: WriterFence | None = None
    verify: Callable[[], None] | None = None
    on_switch: Callable[[], bool] | None = None
    check: Callable[[], None] | None = None
    confirm: Callable[[Readiness | None], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionReport:
    """
    Result of a promotion.

    Attributes:
        verb: The command.
        dry_run: True if it only checked.
        state: State in which it ended: ``promoted``, ``refused`` or ``failed``; ``check`` for a dry run.
        readiness: What was checked.
        promotion: The record; None if the link is not promoted.
        groups: Groups and partitions.
        refused_groups: Groups whose commit was refused, with the reason; ``*`` if no group could be read.
        milliseconds: Duration of each step.
        write_pause_ms: Time to the record in which no application wrote: from the fence, or from the last record that
            arrived where the user stops the applications.  None for another command than a cutover.
        switched: Result of the user's command; None without one.
        error: Failure; None for none.
    """

    link: str
    verb: str
    dry_run: bool
    state: str
    readiness: Readiness
    promotion: Promotion | None
    groups: tuple[GroupMove, ...]
    refused_groups: Mapping[str, str]
    milliseconds: Mapping[str, int]
    write_pause_ms: int | None = None
    switched: bool | None = None
    error: MirrorError | None = None

    @property
    def promoted(self) -> bool:
        """True if the link is promoted."""
        return self.promotion is not None

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        promotion = self.promotion
        return {
            "link": self.link,
            "verb": self.verb,
            "dry_run": self.dry_run,
            "state": self.state,
            "promoted": self.promoted,
            "readiness": {
                key: value
                for key, value in replace(self.readiness, groups=()).as_dict().items()
                if key != "groups"
            },
            "promotion": None if promotion is None else promotion_dict(promotion),
            "groups": [move.as_dict() for move in self.groups],
            "refused_groups": dict(self.refused_groups),
            "milliseconds": dict(self.milliseconds),
            "write_pause_ms": self.write_pause_ms,
            "switched": self.switched,
            "error": None if self.error is None else self.error.message,
        }


def promotion_dict(promotion: Promotion) -> dict[str, Any]:
    """Returns a promotion for ``-o json``."""
    return {
        "number": promotion.number,
        "kind": promotion.kind,
        "at": promotion.timestamp,
        "started": promotion.started,
        "host": promotion.host,
        "run": promotion.run,
        "generation": promotion.generation,
        "lost": promotion.lost,
        "at_least": promotion.at_least,
        "uncut": promotion.uncut,
        "ends_at": promotion.ends_at,
        "groups": dict(promotion.groups),
        "milliseconds": dict(promotion.milliseconds),
        "cuts": [
            {
                "topic": cut.topic,
                "partition": cut.partition,
                "position": cut.position,
                "source_end": cut.source_end,
                "lost": cut.lost,
                "gone": cut.gone,
                "target_topic": cut.target_topic,
                "target_end": cut.target_end,
                "at": cut.timestamp,
            }
            for cut in promotion.cuts
        ],
    }


def promote(
    config: Config,
    verb: Verb,
    *,
    link: str | None = None,
    options: PromotionOptions | None = None,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> PromotionReport:
    """
    Promotes a link, or checks if it could be promoted.

    Args:
        config: Configuration that the mirror runs with.
        verb: ``failover``, ``promote`` or ``cutover``.
        link: Name of the link; required if there are several.
        options: Options.
        on_event: Receives a short text for each step.

    Returns:
        The report, also of a refusal and of a failure: see `PromotionReport.error`.

    Raises:
        UsageError: The configuration has several links and none was named.
        ClusterError: The target does not answer.
    """
    with _Run(config, link, verb, options or PromotionOptions(), on_event=on_event, clock=clock) as run:
        return run.to_the_end()


@dataclass(slots=True)
class _Times:
    """
    Times of one call.

    Attributes:
        started_ms: Its begin, without the time for which a person was asked.
        milliseconds: Duration of each step.
        silent_at: Time from which on no application writes.
        pause_ms: Time to the record in which no application wrote.
        ahead_ms: How far the mirror's clock is ahead of ours, as far as known.
    """

    started_ms: int
    milliseconds: dict[str, int] = field(default_factory=dict)
    silent_at: float | None = None
    pause_ms: int | None = None
    ahead_ms: int = 0


@dataclass(slots=True)
class _TakenLink:
    """
    The link when no lane can commit any more, and its cut.

    Attributes:
        view: Control, with the generation of this command.
        every: All positions.
        positions: Those of partitions that have a cut.
        uncut: Source offsets of partitions without a cut.
        uncounted: True if one of these has no leader.
        ends_at: Without the source: time of its last known ends by our own clock, as the other times of the record.
    """

    view: ControlView
    every: Mapping[SourcePartition, Position]
    positions: Mapping[SourcePartition, Position]
    copies: Mapping[SourcePartition, CopyEnd] = field(default_factory=dict)
    cuts: dict[SourcePartition, Cut] = field(default_factory=dict)
    uncut: int = 0
    uncounted: bool = False
    ends_at: int | None = None

    @property
    def generation(self) -> Generation:
        """The layout that this command has published."""
        assert self.view.generation is not None, "retake publishes one"  # noqa: S101  for the type checker
        return self.view.generation


class _Run(PromotedLink):
    """One call of one command: the facts that its steps leave for the later ones."""

    def __init__(
        self, config: Config, link: str | None, verb: Verb, options: PromotionOptions, **given: Any
    ) -> None:
        super().__init__(config, link, verb.value, dry_run=options.dry_run, **given)
        self._verb, self._options = verb, options
        self._times = _Times(self.clock.wall_ms())
        self._source = SourceDrain(self.link, self.sessions, clock=self.clock)
        self._groups = GroupMover(self, waits=verb is Verb.FAILOVER)
        self._opened.callback(self._groups.close)
        self._owner: LinkOwner | None = None
        self._renewal: _Renewal | None = None
        self._answers = False
        self._readiness: Readiness | None = None
        self._taken: _TakenLink | None = None
        self._promotion: Promotion | None = None
        self._switched: bool | None = None
        self._error: MirrorError | None = None
        self._recording = False
        self._steps: dict[State, Callable[[], StepOutcome]] = {
            State.CHECKING: self._check,
            State.FENCING: self._fence,
            State.DRAINING: self._drain,
            State.VERIFYING: self._verify,
            State.TAKING: self._take,
            State.ENDING: self._end,
            State.READING: self._read,
            State.MOVING: self._move,
            State.RECORDING: self._record,
            State.SWITCHING: self._switch,
            State.UNDOING: self._undo,
        }

    def to_the_end(self) -> PromotionReport:
        try:
            state = self._taken_through()
        except BaseException:
            # Ctrl-C, or a defect: a fence that stays would stop the applications for good.
            if self._promotion is None:
                self._timed(State.UNDOING)
            raise
        return PromotionReport(
            link=self.link.name,
            verb=self._verb.value,
            dry_run=self.dry_run,
            state=state.value,
            readiness=self.readiness,
            promotion=self._promotion,
            groups=tuple(self._groups.moves),
            refused_groups=self._groups.refused,
            milliseconds=self._times.milliseconds,
            write_pause_ms=self._times.pause_ms,
            switched=self._switched,
            error=self._error,
        )

    @property
    def readiness(self) -> Readiness:
        """Verdict of the check; raises the error that kept the check from its end."""
        if self._readiness is None:
            raise self._error or AssertionError("the check left no verdict")
        return self._readiness

    def _taken_through(self) -> State:
        state, confirm = State.CHECKING, self._options.confirm
        while state not in FINAL:
            event = self._timed(state)
            if state is State.CHECKING and self.dry_run:
                break
            state = following(state, event)
            if confirm is not None and state not in FINAL:
                # not a part of the step, nor of the command's time: a person may take minutes to answer
                asked = self.clock.monotonic()
                confirm(self.readiness)
                confirm, took = None, self.clock.monotonic() - asked
                self._times.started_ms += round(took * 1000)
                if took > _STALE_SECONDS:
                    # the source may answer again, or another host may have promoted the link
                    state = following(State.CHECKING, self._timed(State.CHECKING))
        return state

    def _timed(self, state: State) -> StepOutcome:
        began = self.clock.monotonic()
        try:
            return self._steps[state]()
        except MirrorError as error:
            log.info("failover_step_failed", link=self.link.name, step=state.value, reason=error.message)
            self._error = self._error or error
            return StepOutcome.FAILED
        finally:
            took = int((self.clock.monotonic() - began) * 1000)
            spent = self._times.milliseconds
            spent[state.value] = spent.get(state.value, 0) + took

    # -- steps -----------------------------------------------------------------------------------

    def _check(self) -> StepOutcome:
        self.tell("checking")
        self._answers = not self._options.source_gone and source_answers(self.config, self.link)
        facts = read_facts(
            self.config, self.link, answers=self._answers, groups=self._groups.reader, clock=self.clock
        )
        known = facts.status.state not in {"never ran", "unknown"} and facts.promotion is None
        if self.dry_run and self._verb is not Verb.FAILOVER and self._answers and known:
            fence = self._options.fence
            facts = planned_facts(
                self.config,
                self.link,
                facts,
                verify=self._options.verify,
                fence=None if fence is None else fence.described,
                clock=self.clock,
            )
        self._groups.moves = list(facts.groups)
        self._times.ahead_ms = round(facts.status.clock_offset_seconds * 1000)
        self._readiness = assess(facts, self._verb, force=self._options.force)
        if self._options.fence is None and facts.status.fence is not None:
            self.tell("; ".join(standing_fence(self.link.name, facts.status.fence)))
        if self._options.check is not None:
            try:
                self._options.check()
            except MirrorError as error:
                self._readiness = with_refusal(self._readiness, "return", error)
        if not self._readiness.ready:
            refusals = "; ".join(f"{check.name}: {check.text}" for check in self._readiness.refusals)
            fixes = [check.fix for check in self._readiness.refusals if check.fix]
            self._error = NotReadyError(
                f"link {self.link.name} is not ready for {self._verb.value}: {refusals}",
                fix="; ".join(dict.fromkeys(fixes)),
            )
        elif not self.dry_run:
            if self._verb is not Verb.FAILOVER:
                # Connects, and reads the state topics, while applications may still write.
                self._source.look()
            crash_point("failover.checked")
        return checked(self._verb, ready=self._readiness.ready)

    def _fence(self) -> StepOutcome:
        if self._options.fence is not None:
            stops = self._options.fence.stops
            self.tell(
                "stopping the applications that write to the source"
                if stops
                else f"stop the applications that write to {self.link.source} now: this command stops none"
            )
            self._times.silent_at = self.clock.monotonic()
            self._options.fence.fence()
        crash_point("failover.fenced")
        return StepOutcome.DONE

    def _drain(self) -> StepOutcome:
        """Waits until the mirror has reached the source's ends, and these stand still."""
        self.tell("waiting until everything is mirrored")
        deadline = Deadline(self._options.patience, self.clock)
        fence = self._options.fence
        before: Mapping[SourcePartition, int] = {}
        since = asked = self.clock.monotonic()
        progress = DrainProgress(by_user=fence is None or not fence.stops)
        while True:
            asked_before, asked = asked, self.clock.monotonic()
            look = self._source.look()
            now = self.clock.monotonic()
            if look.ends != before:
                if before and fence is not None and not fence.stops:
                    # the last record arrived behind the look before this one
                    self._times.silent_at = asked_before
                before, since = look.ends, now
            if look.drained and now - since >= self._options.quiet:
                break
            if deadline.passed:
                raise _not_drained(self.link.name, look.behind, look.uncut)
            if said := progress.told(look, now, deadline.remaining()):
                self.tell(said)
            self.clock.sleep(_LOOK_SECONDS)
        crash_point("failover.drained")
        return StepOutcome.DONE

    def _verify(self) -> StepOutcome:
        if self._options.verify is not None:
            self.tell("comparing what was mirrored last")
            began = self.clock.monotonic()
            self._options.verify()
            if self._readiness is not None:
                compared = Verified(self.clock.monotonic() - began, "what --verify asks for")
                self._readiness = with_verified(self._readiness, compared)
        return StepOutcome.DONE

    def _take(self) -> StepOutcome:
        self.tell("taking the link")
        self._owner = self.owner(self.link, self.sessions, take_over=True)
        self._opened.callback(self._owner.close)
        view, every = self._owner.retake()
        self._taken = _TakenLink(view, every, mirrored(self.link, every, view, self._asked))
        self._renewal = _Renewal(self._owner)
        self._opened.callback(self._renewal.stop)
        self._renewal.start()
        crash_point("failover.taken")
        return StepOutcome.DONE

    def _end(self) -> StepOutcome:
        self.tell("ending what hangs in the copies")
        end_hanging_copies(
            self.link,
            self.sessions.target,
            self.taken.every,
            highest_lane=self.taken.generation.highest_lane,
            # A failover promotes what is there; its cut is behind it.
            abort_torn=self._verb is Verb.FAILOVER,
        )
        crash_point("failover.ended")
        return StepOutcome.DONE

    def _read(self) -> StepOutcome:
        taken, source = self.taken, self._asked
        view = taken.view
        if not self._answers and view.seen is not None:
            seen_at = view.seen - self._times.ahead_ms
            taken.ends_at = seen_at if seen_at <= self.clock.wall_ms() + IN_STEP_MS else None
        # Without their time the ends are no bound.
        known = {} if taken.ends_at is None else view.ends
        taken.copies = self.copy_ends(taken.positions.values(), view)
        taken.cuts = cuts_of(taken.positions.values(), taken.copies, source, known)
        self._refuse_torn_copies()
        if self._verb is Verb.FAILOVER:
            beside = beside_cuts(self.link, taken.every, view, source)
            taken.uncut = sum(some[1] - some[0] for some in beside.values() if some)
            taken.uncounted = None in beside.values()
        self._refuse_unknown_ends()
        self._refuse_later_records()
        crash_point("failover.read")
        return StepOutcome.DONE

    def _move(self) -> StepOutcome:
        self.tell("moving consumer groups")
        self._groups.move(self.taken.cuts, self.taken.view.history, answers=self._answers)
        refused = self._groups.refused
        if refused and self._verb is not Verb.FAILOVER:
            group, reason = min(refused.items())
            raise NotReadyError(
                f"link {self.link.name}: {len(refused)} groups could not be moved: {group}: {reason}",
                fix="mend this, or leave the groups out of the link's `groups`",
            )
        crash_point("failover.groups_moved")
        return StepOutcome.DONE

    def _record(self) -> StepOutcome:
        taken, times, last = self.taken, self._times, self.taken.view.history.last
        self._stop_renewal()
        promotion = Promotion(
            number=1 if last is None else last.number + 1,
            planned=self._verb is not Verb.FAILOVER,
            run=self.run_id,
            host=socket.gethostname(),
            generation=taken.generation.generation,
            source_cluster_id=next((one.source_cluster_id for one in taken.positions.values()), ""),
            target_cluster_id=self.sessions.target.admin.describe_cluster().cluster_id,
            cuts=tuple(cut for _, cut in sorted(taken.cuts.items())),
            groups=counted(self._groups.moves, self._groups.refused),
            started=times.started_ms,
            timestamp=self.clock.wall_ms(),
            milliseconds=dict(times.milliseconds),
            ends_at=taken.ends_at,
            uncut=taken.uncut,
            at_least=taken.uncounted or (self._readiness is not None and self._readiness.at_least),
        )
        self._recording = True
        try:
            assert self._owner is not None, "taken before"  # noqa: S101  for the type checker
            self._owner.promote(promotion, self._moved(promotion), look=self._look_again)
        except MirrorError:
            if self._is_recorded() is not True:
                raise
        self._promotion = promotion
        if times.silent_at is not None:
            times.pause_ms = int((self.clock.monotonic() - times.silent_at) * 1000)
        self.tell(f"promoted: number {promotion.number}")
        crash_point("failover.recorded")
        return StepOutcome.DONE

    def _switch(self) -> StepOutcome:
        if self._options.on_switch is None:
            return StepOutcome.DONE
        self.tell("calling the command of --on-switch")
        self._switched = self._options.on_switch()
        return StepOutcome.DONE if self._switched else StepOutcome.FAILED

    def _undo(self) -> StepOutcome:
        self._stop_renewal()
        if self._recording and (recorded := self._is_recorded()) is not False:
            # Applications that write to the source again would write records that are left behind.
            found = "it is promoted" if recorded else "it is not known if it is promoted"
            self.tell(
                f"{found}: nothing is undone; see `eomirror history CONFIG --link {quote(self.link.name)}`"
            )
            return StepOutcome.DONE
        self.tell("the link stays a mirror; undoing")
        if self._owner is not None:
            self._owner.release()
            if self._owner.published:
                self.tell(
                    "the mirror that ran was superseded: start it again, `eomirror run CONFIG --link "
                    f"{quote(self.link.name)}`"
                )
        if self._options.fence is not None:
            try:
                self._options.fence.undo()
            except MirrorError as error:
                # The first failure keeps its exit code; the fence is what the user must mend.
                self._error = self._error or MirrorError("interrupted")
                self._error.message += (
                    f"; applications may stay stopped: the fence was not lifted: {error.message}"
                )
                self._error.fix = f"`eomirror unfence CONFIG --link {quote(self.link.name)}`"
                self.tell(self._error.message)
        return StepOutcome.DONE

    # -- inside ----------------------------------------------------------------------------------

    def _moved(self, promotion: Promotion) -> list[Position]:
        """Returns the positions of copies that are not whole, at the end that is proved."""
        return [
            moved(
                self.taken.positions[source],
                copy,
                generation=promotion.generation,
                run=self.run_id,
                now_ms=promotion.timestamp,
            )
            for source, copy in sorted(self.taken.copies.items())
            if copy.problem and copy.proven
        ]

    def _refuse_torn_copies(self) -> None:
        """Raises if a planned command would promote a copy that is not what its position says."""
        if self._verb is Verb.FAILOVER:
            return
        for source, copy in sorted(self.taken.copies.items()):
            if copy.problem:
                raise NotReadyError(
                    f"link {self.link.name}: {copy.problem}",
                    fix=f"run the mirror, which stops topic {source.topic} and names the ways on: `eomirror run CONFIG "
                    f"--link {quote(self.link.name)}`; or `eomirror failover`, which counts what is missing as lost",
                )

    def _refuse_unknown_ends(self) -> None:
        """Raises if a copy exists and its end is not known: without a cut, the link back would never read it."""
        taken = self.taken
        without = {one.target_topic for source, one in taken.positions.items() if source not in taken.cuts}
        found = self.sessions.target.admin.describe_topics(sorted(without)) if without else {}
        if there := sorted(topic for topic, facts in found.items() if facts is not None):
            raise UnreachableError(
                f"link {self.link.name}: the end of {', '.join(there[:3])} on {self.link.target} is not known: a "
                "partition has no leader",
                fix="start the brokers that hold its replicas, then repeat this",
            )

    def _look_again(self) -> None:
        """Raises if applications may have written since; the fence comes last, because who lifts it fences us."""
        self._refuse_later_records()
        if self._options.fence is not None:
            self._options.fence.check()

    def _refuse_later_records(self) -> None:
        """Raises if a planned command would leave records of the source behind; no lane runs any more."""
        if self._verb is Verb.FAILOVER:
            return
        cuts = self.taken.cuts
        behind = self._source.behind(cuts, self._source.ends(cuts))
        known = [source for source, cut in cuts.items() if not cut.gone]
        if behind or (uncut := self._source.uncut(known)):
            raise _not_drained(self.link.name, behind, [] if behind else uncut)

    def _is_recorded(self) -> bool | None:
        """Returns True if this run has promoted the link, although its commit was not answered; None if unknown."""
        try:
            current = LinkState(self.link, self.sessions.target).control().history.current
        except MirrorError:
            return None
        return current is not None and current.run == self.run_id

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None

    @property
    def _asked(self) -> ClusterAdmin | None:
        """Admin client of the source; None if it does not answer."""
        return self.sessions.source.admin if self._answers else None

    @property
    def taken(self) -> _TakenLink:
        """The link, which an earlier step has taken."""
        if self._taken is None:
            raise AssertionError("taken before")
        return self._taken


def _not_drained(link: str, behind: Sequence[Cut], uncut: Sequence[SourcePartition]) -> NotReadyError:
    some = ", ".join(
        f"{cut.source} at {cut.position} of {'?' if cut.source_end is None else cut.source_end}"
        for cut in behind[:3]
    )
    if not behind:
        some = "records keep arriving"
    if uncut:
        some = f"the mirror has not begun {', '.join(map(str, uncut[:3]))}"
    return NotReadyError(
        f"link {link}: the source is not silent, or not everything is mirrored: {some}"
        + ("" if len(behind) <= 3 else f" and {len(behind) - 3} more"),  # noqa: PLR2004  as shown
        fix="stop the producers, end open transactions, and let the mirror run until it has caught up",
    )


class _Renewal(threading.Thread):
    """Renews the claim while the steps take their time; ends at the first failure, which the record then finds."""

    def __init__(self, owner: LinkOwner) -> None:
        super().__init__(name="failover-claim", daemon=True)
        self._owner = owner
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(CLAIM_INTERVAL_SECONDS):
            try:
                self._owner.renew()
            except MirrorError as error:
                log.warning("claim_not_renewed", reason=error.message)
                return

    def stop(self) -> None:
        self._over.set()
        self.join()
