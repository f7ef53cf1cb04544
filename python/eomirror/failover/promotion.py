"""Promotes a link: takes the steps of `eomirror.failover.machine`, and reports each with its time."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline, new_run_id
from eomirror.crash import crash_point
from eomirror.errors import AuthorizationError, ClusterError, MirrorError, NotReadyError, UnreachableError
from eomirror.failover.drain import DrainProgress, SourceDrain, planned_facts
from eomirror.failover.facts import beside_cuts, cuts_of, mirrored, read_facts, source_answers
from eomirror.failover.group_moves import GroupMove, counted, unread, written
from eomirror.failover.group_reader import GroupReader, collecting_later, note_moves
from eomirror.failover.machine import FINAL, State, StepOutcome, Verb, checked, following
from eomirror.failover.readiness import QUIET_SECONDS, Verified, assess, with_refusal, with_verified
from eomirror.kafka.consumer_groups import batches
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.session import link_sessions
from eomirror.link.copy_ends import CopyEnds
from eomirror.link.hanging import end_hanging_copies, target_hanging_client
from eomirror.link.owner import LinkOwner
from eomirror.link.ownership import CLAIM_INTERVAL_SECONDS
from eomirror.link.state import LinkState
from eomirror.records.names import LinkNames
from eomirror.records.promotion import Cut, Promotion
from eomirror.recovery.copy_end import moved
from eomirror.status.derive import IN_STEP_MS
from eomirror.status.standing_fence import standing_fence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.failover.readiness import Readiness
    from eomirror.kafka.consumer_groups import Row
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.types import SourcePartition

__all__ = ["PromotionOptions", "PromotionReport", "WriterFence", "promote"]

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1
_GROUP_TRIES = 3
_GROUP_PAUSE_SECONDS = 0.5
_GROUP_SECONDS = 30.0
# what was checked longer ago is checked again
_STALE_SECONDS = 30.0


class WriterFence(Protocol):
    """
    Stops the applications that write to the source of a link, and lets them write again.

    Attributes:
        stops: False if the user stops the applications: `fence` then changes nothing.
    """

    @property
    def stops(self) -> bool:
        """See the attribute."""

    def fence(self) -> None:
        """Returns when no application writes any more; raises if that cannot be shown."""

    def check(self) -> None:
        """Raises if applications may write again, although `fence` of this object has stopped them."""

    def undo(self) -> None:
        """Undoes what `fence` of this object did; does nothing without it."""

    def described(self) -> str:
        """Returns what `fence` would do, in words; raises if it could not."""


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
    run = _Run(
        config,
        config.mapped_link(link),
        verb,
        options=options or PromotionOptions(),
        on_event=on_event or (lambda _: None),
        clock=clock,
    )
    try:
        return run.to_the_end()
    finally:
        run.close()


class _Run:
    """One call of one command: the facts that its steps leave for the later ones."""

    def __init__(
        self,
        config: Config,
        link: Link,
        verb: Verb,
        *,
        options: PromotionOptions,
        on_event: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._config, self._link, self._verb, self._options = config, link, verb, options
        self._on_event, self._clock = on_event, clock
        self._run = new_run_id()
        self._started_ms = clock.wall_ms()
        clusters = config.clusters[link.source], config.clusters[link.target]
        self._sessions = link_sessions(link, *clusters, verb.value, clock=clock)
        self._source = SourceDrain(link, self._sessions, clock=clock)
        self._groups = GroupReader(config, link, self._sessions.target)
        self._owner: LinkOwner | None = None
        self._renewal: _Renewal | None = None
        self._answers = False
        self._readiness: Readiness | None = None
        self._confirmed = False
        self._view: ControlView | None = None
        # All positions, and those that have a cut.
        self._every: Mapping[SourcePartition, Position] = {}
        self._positions: Mapping[SourcePartition, Position] = {}
        self._cuts: dict[SourcePartition, Cut] = {}
        self._copies: Mapping[SourcePartition, CopyEnd] = {}
        # Source offsets of partitions without a cut.
        self._uncut, self._uncounted = 0, False
        # How far the mirror's clock is ahead of ours, as far as known.
        self._offset_ms = 0
        # Without the source: time of its last known ends by our own clock, as the other times of the record.
        self._ends_at: int | None = None
        self._moves: list[GroupMove] = []
        self._refused: dict[str, str] = {}
        self._promotion: Promotion | None = None
        self._switched: bool | None = None
        self._error: MirrorError | None = None
        self._milliseconds: dict[str, int] = {}
        # Time from which on no application writes.
        self._silent_at: float | None = None
        self._pause_ms: int | None = None
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
            link=self._link.name,
            verb=self._verb.value,
            dry_run=self._options.dry_run,
            state=state.value,
            readiness=self.readiness,
            promotion=self._promotion,
            groups=tuple(self._moves),
            refused_groups=self._refused,
            milliseconds=self._milliseconds,
            write_pause_ms=self._pause_ms,
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
        state = State.CHECKING
        while state not in FINAL:
            event = self._timed(state)
            if state is State.CHECKING and self._options.dry_run:
                break
            state = following(state, event)
            if self._options.confirm is not None and not self._confirmed and state not in FINAL:
                # not a part of the step, nor of the command's time: a person may take minutes to answer
                self._confirmed = True
                asked = self._clock.monotonic()
                self._options.confirm(self.readiness)
                took = self._clock.monotonic() - asked
                self._started_ms += round(took * 1000)
                if took > _STALE_SECONDS:
                    # the source may answer again, or another host may have promoted the link
                    state = following(State.CHECKING, self._timed(State.CHECKING))
        return state

    def close(self) -> None:
        self._stop_renewal()
        if self._owner is not None:
            self._owner.close()
        self._groups.close()
        self._sessions.close()

    def _timed(self, state: State) -> StepOutcome:
        began = self._clock.monotonic()
        try:
            return self._steps[state]()
        except MirrorError as error:
            log.info("failover_step_failed", link=self._link.name, step=state.value, reason=error.message)
            self._error = self._error or error
            return StepOutcome.FAILED
        finally:
            took = int((self._clock.monotonic() - began) * 1000)
            self._milliseconds[state.value] = self._milliseconds.get(state.value, 0) + took

    # -- steps -----------------------------------------------------------------------------------

    def _check(self) -> StepOutcome:
        self._on_event("checking")
        self._answers = not self._options.source_gone and source_answers(self._config, self._link)
        facts = read_facts(
            self._config,
            self._link,
            answers=self._answers,
            groups=self._groups,
            clock=self._clock,
        )
        known = facts.status.state not in {"never ran", "unknown"} and facts.promotion is None
        if self._options.dry_run and self._verb is not Verb.FAILOVER and self._answers and known:
            fence = self._options.fence
            facts = planned_facts(
                self._config,
                self._link,
                facts,
                verify=self._options.verify,
                fence=None if fence is None else fence.described,
                clock=self._clock,
            )
        self._moves = list(facts.groups)
        self._offset_ms = round(facts.status.clock_offset_seconds * 1000)
        self._readiness = assess(facts, self._verb, force=self._options.force)
        if self._options.fence is None and facts.status.fence is not None:
            self._on_event("; ".join(standing_fence(self._link.name, facts.status.fence)))
        if self._options.check is not None:
            try:
                self._options.check()
            except MirrorError as error:
                self._readiness = with_refusal(self._readiness, "return", error)
        if not self._readiness.ready:
            refusals = "; ".join(f"{check.name}: {check.text}" for check in self._readiness.refusals)
            fixes = [check.fix for check in self._readiness.refusals if check.fix]
            self._error = NotReadyError(
                f"link {self._link.name} is not ready for {self._verb.value}: {refusals}",
                fix="; ".join(dict.fromkeys(fixes)),
            )
        elif not self._options.dry_run:
            if self._verb is not Verb.FAILOVER:
                # Connects, and reads the state topics, while applications may still write.
                self._source.look()
            crash_point("failover.checked")
        return checked(self._verb, ready=self._readiness.ready)

    def _fence(self) -> StepOutcome:
        if self._options.fence is not None:
            stops = self._options.fence.stops
            self._on_event(
                "stopping the applications that write to the source"
                if stops
                else f"stop the applications that write to {self._link.source} now: this command stops none"
            )
            self._silent_at = self._clock.monotonic()
            self._options.fence.fence()
        crash_point("failover.fenced")
        return StepOutcome.DONE

    def _drain(self) -> StepOutcome:
        """Waits until the mirror has reached the source's ends, and these stand still."""
        self._on_event("waiting until everything is mirrored")
        deadline = Deadline(self._options.patience, self._clock)
        fence = self._options.fence
        before: Mapping[SourcePartition, int] = {}
        since = asked = self._clock.monotonic()
        progress = DrainProgress(by_user=fence is None or not fence.stops)
        while True:
            asked_before, asked = asked, self._clock.monotonic()
            look = self._source.look()
            now = self._clock.monotonic()
            if look.ends != before:
                if before and fence is not None and not fence.stops:
                    # the last record arrived behind the look before this one
                    self._silent_at = asked_before
                before, since = look.ends, now
            if look.drained and now - since >= self._options.quiet:
                break
            if deadline.passed:
                raise self._not_drained(look.behind, look.uncut)
            if said := progress.told(look, now, deadline.remaining()):
                self._on_event(said)
            self._clock.sleep(_LOOK_SECONDS)
        crash_point("failover.drained")
        return StepOutcome.DONE

    def _verify(self) -> StepOutcome:
        if self._options.verify is not None:
            self._on_event("comparing what was mirrored last")
            began = self._clock.monotonic()
            self._options.verify()
            if self._readiness is not None:
                compared = Verified(self._clock.monotonic() - began, "what --verify asks for")
                self._readiness = with_verified(self._readiness, compared)
        return StepOutcome.DONE

    def _take(self) -> StepOutcome:
        self._on_event("taking the link")
        self._owner = LinkOwner(
            self._link,
            *self._sessions,
            run=self._run,
            clock=self._clock,
            take_over=True,
            on_event=self._on_event,
            hanging_client=target_hanging_client,
            command=self._verb.value,
        )
        self._view, self._every = self._owner.retake()
        source = self._sessions.source.admin if self._answers else None
        self._positions = mirrored(self._link, self._every, self._view, source)
        self._renewal = _Renewal(self._owner)
        self._renewal.start()
        crash_point("failover.taken")
        return StepOutcome.DONE

    def _end(self) -> StepOutcome:
        self._on_event("ending what hangs in the copies")
        end_hanging_copies(
            self._link,
            self._sessions.target,
            self._every,
            highest_lane=self._highest_lane(),
            # A failover promotes what is there; its cut is behind it.
            abort_torn=self._verb is Verb.FAILOVER,
        )
        crash_point("failover.ended")
        return StepOutcome.DONE

    def _read(self) -> StepOutcome:
        source = self._sessions.source.admin if self._answers else None
        view = self._known_view()
        if not self._answers and view.seen is not None:
            seen_at = view.seen - self._offset_ms
            self._ends_at = seen_at if seen_at <= self._clock.wall_ms() + IN_STEP_MS else None
        # Without their time the ends are no bound.
        known = {} if self._ends_at is None else view.ends
        self._copies = CopyEnds(self._link, self._sessions.target).read(
            self._positions.values(), highest_lane=self._highest_lane()
        )
        self._cuts = cuts_of(self._positions.values(), self._copies, source, known)
        self._refuse_torn_copies()
        if self._verb is Verb.FAILOVER:
            beside = beside_cuts(self._link, self._every, view, source)
            self._uncut = sum(some[1] - some[0] for some in beside.values() if some)
            self._uncounted = None in beside.values()
        self._refuse_unknown_ends()
        self._refuse_later_records()
        crash_point("failover.read")
        return StepOutcome.DONE

    @collecting_later()
    def _move(self) -> StepOutcome:
        self._on_event("moving consumer groups")
        try:
            self._moves = self._planned_moves()
        except MirrorError as error:
            if self._verb is not Verb.FAILOVER:
                raise
            # The records are there; groups can be set by hand, and waiting for a dead source does not help.
            self._moves, self._refused = [], {"*": error.message}
        target = self._config.clusters[self._link.target]
        groups = ClusterGroups(target, client_id=LinkNames(self._link.state_name).client_id("groups"))
        try:
            moving = written(self._moves)
            self._refused |= unread(self._moves)
            noted = note_moves(
                self._link, self._sessions.target, (move for moves in moving.values() for move in moves)
            )
            if noted:
                # Only a call that dies from here on, and a group that then goes back, would need them.
                log.warning("moves_not_noted", link=self._link.name, reason=noted)
            for portion in batches(sorted(moving)):
                rows = {
                    group: [
                        (move.to_topic, move.partition, move.to_offset or 0, move.metadata)
                        for move in moving[group]
                    ]
                    for group in portion
                }
                self._refused |= _refusals(groups, rows, self._clock)
                crash_point("failover.group_moved")
        finally:
            groups.close()
        if self._refused and self._verb is not Verb.FAILOVER:
            group, reason = min(self._refused.items())
            raise NotReadyError(
                f"link {self._link.name}: {len(self._refused)} groups could not be moved: {group}: {reason}",
                fix="mend this, or leave the groups out of the link's `groups`",
            )
        crash_point("failover.groups_moved")
        return StepOutcome.DONE

    def _record(self) -> StepOutcome:
        view, owner = self._known_view(), self._known_owner()
        assert view.generation is not None, "retake publishes one"  # noqa: S101  for the type checker
        self._stop_renewal()
        last = view.history.last
        promotion = Promotion(
            number=1 if last is None else last.number + 1,
            planned=self._verb is not Verb.FAILOVER,
            run=self._run,
            host=socket.gethostname(),
            generation=view.generation.generation,
            source_cluster_id=next((one.source_cluster_id for one in self._positions.values()), ""),
            target_cluster_id=self._sessions.target.admin.describe_cluster().cluster_id,
            cuts=tuple(cut for _, cut in sorted(self._cuts.items())),
            groups=counted(self._moves, self._refused),
            started=self._started_ms,
            timestamp=self._clock.wall_ms(),
            milliseconds=dict(self._milliseconds),
            ends_at=self._ends_at,
            uncut=self._uncut,
            at_least=self._uncounted or (self._readiness is not None and self._readiness.at_least),
        )
        self._recording = True
        try:
            owner.promote(promotion, self._moved(promotion), look=self._look_again)
        except MirrorError:
            if self._is_recorded() is not True:
                raise
        self._promotion = promotion
        if self._silent_at is not None:
            self._pause_ms = int((self._clock.monotonic() - self._silent_at) * 1000)
        self._on_event(f"promoted: number {promotion.number}")
        crash_point("failover.recorded")
        return StepOutcome.DONE

    def _switch(self) -> StepOutcome:
        if self._options.on_switch is None:
            return StepOutcome.DONE
        self._on_event("calling the command of --on-switch")
        self._switched = self._options.on_switch()
        return StepOutcome.DONE if self._switched else StepOutcome.FAILED

    def _undo(self) -> StepOutcome:
        self._stop_renewal()
        if self._recording and (recorded := self._is_recorded()) is not False:
            # Applications that write to the source again would write records that are left behind.
            found = "it is promoted" if recorded else "it is not known if it is promoted"
            self._on_event(
                f"{found}: nothing is undone; see `eomirror history CONFIG --link {quote(self._link.name)}`"
            )
            return StepOutcome.DONE
        self._on_event("the link stays a mirror; undoing")
        if self._owner is not None:
            self._owner.release()
            if self._owner.published:
                self._on_event(
                    "the mirror that ran was superseded: start it again, `eomirror run CONFIG --link "
                    f"{quote(self._link.name)}`"
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
                self._error.fix = f"`eomirror unfence CONFIG --link {quote(self._link.name)}`"
                self._on_event(self._error.message)
        return StepOutcome.DONE

    # -- inside ----------------------------------------------------------------------------------

    def _planned_moves(self) -> list[GroupMove]:
        """
        Returns where the groups resume.

        A failover waits for a broker of the target that restarts meanwhile: no later call may move the groups.
        """
        deadline = Deadline(_GROUP_SECONDS, self._clock)
        while True:
            try:
                return self._groups.moves(self._cuts, self._known_view().history, answers=self._answers)
            except ClusterError as error:
                denied = isinstance(error, AuthorizationError)
                if denied or deadline.passed or self._verb is not Verb.FAILOVER:
                    raise
                log.info("groups_not_read", link=self._link.name, reason=error.message)
                self._on_event("the consumer groups could not be read; reading them again")
                self._groups.close()
                self._clock.sleep(_GROUP_PAUSE_SECONDS)

    def _moved(self, promotion: Promotion) -> list[Position]:
        """Returns the positions of copies that are not whole, at the end that is proved."""
        return [
            moved(
                self._positions[source],
                copy,
                generation=promotion.generation,
                run=self._run,
                now_ms=promotion.timestamp,
            )
            for source, copy in sorted(self._copies.items())
            if copy.problem and copy.proven
        ]

    def _refuse_torn_copies(self) -> None:
        """Raises if a planned command would promote a copy that is not what its position says."""
        if self._verb is Verb.FAILOVER:
            return
        for source, copy in sorted(self._copies.items()):
            if copy.problem:
                raise NotReadyError(
                    f"link {self._link.name}: {copy.problem}",
                    fix=f"run the mirror, which stops topic {source.topic} and names the ways on: `eomirror run CONFIG "
                    f"--link {quote(self._link.name)}`; or `eomirror failover`, which counts what is missing as lost",
                )

    def _refuse_unknown_ends(self) -> None:
        """Raises if a copy exists and its end is not known: without a cut, the link back would never read it."""
        without = {one.target_topic for source, one in self._positions.items() if source not in self._cuts}
        found = self._sessions.target.admin.describe_topics(sorted(without)) if without else {}
        if there := sorted(topic for topic, facts in found.items() if facts is not None):
            raise UnreachableError(
                f"link {self._link.name}: the end of {', '.join(there[:3])} on {self._link.target} is not known: a "
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
        behind = self._source.behind(self._cuts, self._source.ends(self._cuts))
        known = [source for source, cut in self._cuts.items() if not cut.gone]
        if behind or (uncut := self._source.uncut(known)):
            raise self._not_drained(behind, [] if behind else uncut)

    def _is_recorded(self) -> bool | None:
        """Returns True if this run has promoted the link, although its commit was not answered; None if unknown."""
        try:
            current = LinkState(self._link, self._sessions.target).control().history.current
        except MirrorError:
            return None
        return current is not None and current.run == self._run

    def _not_drained(self, behind: Sequence[Cut], uncut: Sequence[SourcePartition]) -> NotReadyError:
        some = ", ".join(
            f"{cut.source} at {cut.position} of {'?' if cut.source_end is None else cut.source_end}"
            for cut in behind[:3]
        )
        if not behind:
            some = "records keep arriving"
        if uncut:
            some = f"the mirror has not begun {', '.join(map(str, uncut[:3]))}"
        return NotReadyError(
            f"link {self._link.name}: the source is not silent, or not everything is mirrored: {some}"
            + ("" if len(behind) <= 3 else f" and {len(behind) - 3} more"),  # noqa: PLR2004  as shown
            fix="stop the producers, end open transactions, and let the mirror run until it has caught up",
        )

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None

    def _highest_lane(self) -> int:
        view = self._known_view()
        assert view.generation is not None, "retake publishes one"  # noqa: S101  for the type checker
        return view.generation.highest_lane

    def _known_owner(self) -> LinkOwner:
        if self._owner is None:
            raise AssertionError("taken before")
        return self._owner

    def _known_view(self) -> ControlView:
        if self._view is None:
            raise AssertionError("taken before")
        return self._view


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
