"""
Mirrors one context of a registry into another one, round by round.

A round reads the source, plans, writes, and reads back what it wrote: a registry may answer 200 to a registration that
it does not keep.  The target is read as a whole at first and every few minutes, else only where something changes,
because its copies take no registrations of applications.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import RegistryError, RegistryRefusedError
from eomirror.registry.client import RegistryClient
from eomirror.registry.diff import RegistryPlan, SchemaPolicy, registry_plan
from eomirror.registry.state import IMPORT, READWRITE, RegisteredVersion, RegistryState, SubjectState
from eomirror.topology.filters import topic_filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.config import Link
    from eomirror.config.schemas import SchemaMirror
    from eomirror.registry.diff import SchemaConflict, SchemaOperation

__all__ = [
    "RegistryMirror",
    "SchemasSnapshot",
    "applied_schemas",
    "planned_schemas",
    "registry_clients",
    "registry_mirror",
]

log = structlog.get_logger(__name__)

#: The whole target, and contents that were read before, are read again after this time.
_WHOLE_SECONDS = 300.0
# a registry of several processes behind one address may show a change some moments after its answer
_SHOWN_SECONDS, _LOOK_SECONDS = 5.0, 0.2
_ABSENT = SubjectState()

SchemasState = Literal["starting", "mirrored", "behind", "conflict", "refused", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasSnapshot:
    """
    State of the mirror of schemas.

    Attributes:
        state: ``starting``; ``mirrored``; ``behind``: a change failed, and is repeated; ``conflict``: subjects are left
            alone; ``refused``: the target does not keep what is registered; ``away``: a registry does not answer.
        subjects: Mirrored subjects of the source.
        versions: Their versions.
        pending: Changes that the last round did not make.
        conflicts: Subjects that are left alone.
        kept: Versions of the target that the source has no more.
        written: Changes that were made in this run.
        problem: The first reason for the state; empty for none.
        fix: The next step.
        equal_at: Wall clock of the last round after which the target had all that the source had, but for subjects
            with a conflict, ms since the epoch; 0 for none in this run.
    """

    state: SchemasState = "starting"
    subjects: int = 0
    versions: int = 0
    pending: int = 0
    conflicts: int = 0
    kept: int = 0
    written: int = 0
    problem: str = ""
    fix: str = ""
    equal_at: int = 0


@dataclass(slots=True)
class _LastRead:
    """
    State that was read before.

    Attributes:
        state: State of the subjects.
        whole_until: End of the time after which it is read anew.
    """

    state: RegistryState = field(default_factory=RegistryState)
    whole_until: Deadline | None = None

    def due(self, clock: Clock) -> bool:
        """Returns True if all has to be read anew, and begins the next period."""
        if self.whole_until is not None and not self.whole_until.passed:
            return False
        self.whole_until = Deadline(_WHOLE_SECONDS, clock)
        return True


class RegistryMirror:
    """
    Mirrors the subjects of one registry.

    Args:
        settings: What is mirrored.
        source: Registry to read.
        target: Registry to write, in the context of the copies.
        clock: Source of time.
        name: Link, for the log.
        stopped: Returns True if a round is to end early.
        changed: Takes sign and text of each change that was made.
    """

    def __init__(
        self,
        settings: SchemaMirror,
        source: RegistryClient,
        target: RegistryClient,
        *,
        clock: Clock = SYSTEM_CLOCK,
        name: str = "",
        stopped: Callable[[], bool] = lambda: False,
        changed: Callable[[tuple[str, str]], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._clock = clock
        self._name = name
        self._stopped = stopped
        self._changed = changed
        self._filter = topic_filter(settings.subjects, settings.exclude)
        self._was = _LastRead()
        self._there = _LastRead()
        self._registered: set[tuple[str, int]] = set()
        self._snapshot = SchemasSnapshot()

    @property
    def snapshot(self) -> SchemasSnapshot:
        """State after the last round."""
        return self._snapshot

    def close(self) -> None:
        """Closes both clients."""
        self._source.close()
        self._target.close()

    def look(self) -> RegistryPlan:
        """
        Returns what a round would change; changes nothing.

        Raises:
            RegistryError: A registry does not answer, or refuses a request.
        """
        self._was.state = self._read_source(anew=self._was.due(self._clock))
        self._there.state = self._read_target(anew=self._there.due(self._clock))
        return self._plan()

    def round(self) -> SchemasSnapshot:
        """
        Makes the target equal to the source, as far as that is possible; raises nothing that a registry answers.

        A round that is stopped tells nothing about the registries.
        """
        if self._snapshot.state == "refused":
            return self._snapshot
        try:
            plan = self.look()
            failed = self._apply(plan)
        except RegistryError as error:
            # half of the changes may be made
            self._was.whole_until = self._there.whole_until = None
            if self._stopped():
                return self._snapshot
            refused = isinstance(error, RegistryRefusedError)
            self._tell("refused" if refused else "behind" if error.code else "away", error)
        else:
            self._conclude(failed)
        return self._snapshot

    # -- reading ---------------------------------------------------------------------------------

    def _read_source(self, *, anew: bool) -> RegistryState:
        client, known = self._source, RegistryState() if anew else self._was.state
        wanted = [name for name in client.subjects(deleted=True) if self._filter.accepts(name)]
        return RegistryState(
            subjects={name: self._subject(client, name, known, mode=False) for name in wanted},
            level=client.level(effective=True) or known.level,
        )

    def _read_target(self, *, anew: bool) -> RegistryState:
        """Reads the target: all of it, or the subjects that differ from the source as they were read last."""
        client, known, source = self._target, self._there.state, self._was.state
        if anew:
            names, known = set(client.subjects(deleted=True)), RegistryState()
        else:
            # of others, those of applications need no second look
            ours = {
                name
                for name, one in known.subjects.items()
                if self._filter.accepts(name) and (self._settings.context or one.mode == IMPORT)
            }
            names = {
                name
                for name in {*source.subjects, *ours}
                if not _alike(source.subjects.get(name), known.subjects.get(name))
            }
        subjects = {name: one for name, one in known.subjects.items() if name not in names}
        subjects |= {name: self._subject(client, name, RegistryState(), mode=True) for name in names}
        found = RegistryState(
            {name: one for name, one in subjects.items() if one != _ABSENT}, *self._common()
        )
        contents = found.contents
        ids = {version.schema_id for _, _, version in source.versions()} - contents.keys()
        # an id that no listed subject has may be in use: the login may not list all
        asked = {one: known.ids[one] if one in known.ids else client.content(one) for one in sorted(ids)}
        return replace(found, ids={one: content for one, content in asked.items() if content is not None})

    def _common(self) -> tuple[str, str]:
        """
        Returns level and mode of subjects of the target without their own.

        A context that inherits its mode takes registrations: only its own mode makes it one of copies.
        """
        level = self._target.level(effective=True) or self._there.state.level
        return level, self._target.mode(effective=not self._settings.context) or READWRITE

    def _subject(
        self, client: RegistryClient, name: str, known: RegistryState, *, mode: bool
    ) -> SubjectState:
        """
        Reads a subject; contents that are known are not read again, but for the last of them.

        A subject whose versions were all deleted for good begins again at version 1.
        """
        if self._stopped():
            raise RegistryError("the link ends", code=1)
        # in this order: a version that is registered in between must not pass for a deleted one
        numbers, live = client.versions(name, deleted=True), set(client.versions(name))
        before = dict(known.subjects.get(name, _ABSENT).versions)
        if last := max(before.keys() & set(numbers), default=None):
            old = before[last]
            if client.version(name, last) != (old.schema_id, old.content):
                before.clear()
        versions: dict[int, RegisteredVersion] = {}
        for number in numbers:
            if number in before:
                versions[number] = replace(before[number], deleted=number not in live)
            elif (found := client.version(name, number)) is not None:
                versions[number] = RegisteredVersion(*found, deleted=number not in live)
        return SubjectState(versions, client.level(name), client.mode(name) if mode else None)

    def _plan(self) -> RegistryPlan:
        policy = SchemaPolicy(
            context=self._settings.context,
            deletions=self._settings.deletions,
            known=self._registered,
            mirrors=self._filter.accepts,
        )
        return registry_plan(self._was.state, self._there.state, policy)

    # -- writing ---------------------------------------------------------------------------------

    def _apply(self, plan: RegistryPlan) -> dict[str, RegistryError]:
        """
        Makes the changes of a plan; returns the subjects with a change that was refused, and the reason.

        Raises:
            RegistryError: The target does not answer.
        """
        failed: dict[str, RegistryError] = {}
        for one in plan.operations:
            needed = () if one.registered is None else one.registered.content.references
            if one.subject in failed or "" in failed or any(each.subject in failed for each in needed):
                continue
            if self._stopped():
                break
            try:
                if one.subject and one.subject not in self._was.state.subjects:
                    self._check_gone(one.subject)
                self._do(one)
            except RegistryRefusedError:
                raise
            except RegistryError as error:
                if not error.code:
                    raise
                failed[one.subject] = error
                continue
            if one.action == "register" and one.version is not None:
                self._registered.add((one.subject, one.version))
            self._snapshot = replace(self._snapshot, written=self._snapshot.written + 1)
            self._changed((one.sign, one.text(plan.context)))
            log.info("schema_changed", link=self._name, change=f"{one.sign} {one.text(plan.context)}")
        self._there.state = self._read_changed({one.subject for one in plan.operations})
        return failed

    def _read_changed(self, names: set[str]) -> RegistryState:
        """Returns the state of the target after changes of these subjects."""
        client, state = self._target, self._there.state
        read = {name: self._subject(client, name, RegistryState(), mode=True) for name in names if name}
        subjects = {name: one for name, one in {**state.subjects, **read}.items() if one != _ABSENT}
        level, mode = self._common() if "" in names else (state.level, state.mode)
        return replace(state, subjects=subjects, level=level, mode=mode)

    def _check_gone(self, subject: str) -> None:
        """Checks that the source has no more a subject that it does not list: the login may not list all."""
        if self._source.versions(subject, deleted=True):
            raise RegistryError(
                f"{self._source.name} has {subject}, and does not list it: its copy is not deleted",
                fix="give the login of the source the right to list all subjects that `subjects` matches",
                code=1,
            )

    def _shown(self, lacking: Callable[[], str]) -> str:
        """Returns what a change lacks once that is nothing, or has not changed for some seconds."""
        deadline = Deadline(_SHOWN_SECONDS, self._clock)
        while text := lacking():
            if deadline.passed or self._stopped():
                break
            self._clock.sleep(_LOOK_SECONDS)
        return text

    def _do(self, one: SchemaOperation) -> None:
        """Makes one change, and reads it back."""
        target, number = self._target, one.version
        if one.action == "mode":
            target.set_mode(one.subject, one.value, force=one.force)
            if self._shown(lambda: "its mode" if target.mode(one.subject) != one.value else ""):
                raise self._refused(one, f"its mode is not {one.value}")
        elif one.action == "level":
            target.set_level(one.subject, one.value)
            if self._shown(lambda: "its level" if target.level(one.subject) != one.value else ""):
                raise self._unkept(one, "its compatibility is another one")
        elif number is None:
            raise RegistryError(f"{one.action} of {one.subject} names no version")
        elif one.action == "register" and one.registered is not None:
            self._register(one, number, one.registered)
        else:
            permanent = one.action == "purge"
            target.delete(one.subject, number, permanent=permanent)
            if self._shown(
                lambda: "its end" if number in target.versions(one.subject, deleted=permanent) else ""
            ):
                raise self._unkept(one, "the version is still there")
            if permanent:
                self._registered.discard((one.subject, number))

    def _register(self, one: SchemaOperation, number: int, wanted: RegisteredVersion) -> None:
        target = self._target
        before = set(target.versions(one.subject, deleted=True))
        target.register(one.subject, number, wanted)
        lacking = self._shown(lambda: self._lacking(one.subject, number, wanted))
        if not lacking:
            return
        found = target.version(one.subject, number)
        if self._stopped() or (found is not None and found[0] == wanted.schema_id):
            raise self._unkept(one, lacking)
        if not before:
            with suppress(RegistryError):
                self._undo(one.subject, wanted)
        raise self._refused(one, lacking)

    def _lacking(self, subject: str, number: int, wanted: RegisteredVersion) -> str:
        """Returns what stands in a registered version's place, by its number and by its id; empty if it does."""
        found = self._target.version(subject, number)
        if found is None:
            return f"it has no version {number}"
        if found[0] != wanted.schema_id:
            return f"version {number} has id {found[0]}"
        if found[1] != wanted.content:
            return "its content is another one"
        if number not in self._target.versions(subject):
            return "the version is still deleted"
        # readers of records ask for the id
        same = self._target.content(wanted.schema_id) == wanted.content
        return "" if same else f"id {wanted.schema_id} stands for another schema"

    def _undo(self, subject: str, wanted: RegisteredVersion) -> None:
        """Removes what a registry took under a number or an id of its own, and the mode of the subject."""
        for number in self._target.versions(subject, deleted=True):
            found = self._target.version(subject, number)
            if found is not None and found[1] == wanted.content:
                self._target.delete(subject, number)
                self._target.delete(subject, number, permanent=True)
        if not self._settings.context:
            self._target.set_mode(subject, None)

    def _unkept(self, one: SchemaOperation, got: str) -> RegistryError:
        """Returns the error of a change that the target did not make, and that concerns its subject only."""
        return RegistryError(self._answered(one, got), fix="compare both registries there", code=1)

    def _refused(self, one: SchemaOperation, got: str) -> RegistryRefusedError:
        """Returns the error of a change that shows that the target cannot be one."""
        return RegistryRefusedError(
            self._answered(one, got),
            fix="it does not keep ids and versions, so that records would name other schemas: mirror to another "
            "registry, or mirror the topic of the registry (docs/schemas.md)",
            code=1,
        )

    def _answered(self, one: SchemaOperation, got: str) -> str:
        done = f"{one.sign} {one.text(self._settings.context)}"
        return f"{self._target.name} answered that it has done `{done}`, but {got}"

    # -- telling ---------------------------------------------------------------------------------

    def _conclude(self, failed: dict[str, RegistryError]) -> None:
        left = self._plan()
        pending = left.operations
        first = next(iter(failed.values()), None)
        conflict: SchemaConflict | None = next(iter(left.conflicts), None)
        state: SchemasState = "behind" if failed or pending else "conflict" if left.conflicts else "mirrored"
        problem = first.message if first else str(conflict) if conflict else ""
        if pending and not first:
            problem = f"the next round has to do {pending[0].sign} {pending[0].text(left.context)}"
        self._note(
            replace(
                self._snapshot,
                state=state,
                subjects=len(self._was.state.subjects),
                versions=sum(1 for _ in self._was.state.versions()),
                pending=len(pending),
                conflicts=len(left.conflicts),
                kept=len(left.kept),
                problem=problem,
                fix=first.fix if first else conflict.fix if conflict and not pending else "",
                equal_at=self._clock.wall_ms() if state != "behind" else self._snapshot.equal_at,
            )
        )

    def _tell(self, state: SchemasState, error: RegistryError) -> None:
        self._note(replace(self._snapshot, state=state, problem=error.message, fix=error.fix))

    def _note(self, snapshot: SchemasSnapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        if (before.state, before.problem) != (snapshot.state, snapshot.problem):
            tell = log.info if snapshot.state == "mirrored" else log.warning
            tell(
                "schemas",
                link=self._name,
                state=snapshot.state,
                subjects=snapshot.subjects,
                reason=snapshot.problem,
                fix=snapshot.fix,
            )


def _alike(source: SubjectState | None, target: SubjectState | None) -> bool:
    """Returns True if a subject needs no second look: its copy was equal when it was read."""
    if source is None or target is None:
        return source is target
    return source.versions == target.versions and source.level == target.level


def registry_clients(
    link: Link, settings: SchemaMirror, clock: Clock = SYSTEM_CLOCK
) -> tuple[RegistryClient, RegistryClient]:
    """
    Returns clients of both registries of a link, the second in the context of the copies.

    Raises:
        RegistryError: A certificate file cannot be used.
    """
    name = "schema registry of"
    return (
        RegistryClient(settings.source, name=f"{name} {link.source}", clock=clock),
        RegistryClient(settings.target, name=f"{name} {link.target}", context=settings.context, clock=clock),
    )


def registry_mirror(
    link: Link,
    *,
    clock: Clock = SYSTEM_CLOCK,
    stopped: Callable[[], bool] = lambda: False,
    changed: Callable[[tuple[str, str]], None] = lambda _: None,
) -> RegistryMirror | None:
    """Returns the mirror of a link's registries; None if it mirrors none."""
    if link.schemas is None:
        return None
    source, target = registry_clients(link, link.schemas, clock)
    return RegistryMirror(
        link.schemas, source, target, clock=clock, name=link.name, stopped=stopped, changed=changed
    )


def planned_schemas(link: Link) -> RegistryPlan | None:
    """
    Returns what a run would change in the target's registry; None if the link mirrors none.

    Raises:
        RegistryError: A registry does not answer, or refuses a request.
    """
    mirror = registry_mirror(link)
    if mirror is None:
        return None
    with closing(mirror):
        return mirror.look()


def applied_schemas(link: Link, changed: Callable[[tuple[str, str]], None]) -> SchemasSnapshot | None:
    """
    Makes the target's registry equal to the source's once, and returns how it ended; None if the link mirrors none.

    Args:
        link: Link with the registries.
        changed: Takes sign and text of each change that was made.
    """
    try:
        mirror = registry_mirror(link, changed=changed)
    except RegistryError as error:
        # its certificates cannot be read
        return SchemasSnapshot(state="away", problem=error.message, fix=error.fix)
    if mirror is None:
        return None
    with closing(mirror):
        return mirror.round()
