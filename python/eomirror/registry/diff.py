"""
Operations that make a target registry equal to its source, and what stands against them. Pure.

Order of the operations of a round, each step a precondition of the next::

    delete,     of versions whose number the source has given to another schema: a registry answers 200 to the same
    purge       version with another schema, and changes nothing
    mode        IMPORT, while the subject (or the context) is empty: only then an id may be given
    register    what others refer to first, then by id
    delete      soft deletions: schemas that refer to others first, which otherwise cannot be deleted
    purge       permanent deletions, with ``deletions: delete``
    level       compatibility, also of a subject whose versions are all soft-deleted: it can be set while they are

A registry drops mode and level of a subject with its last version: when that is deleted for good, or, in older
releases, softly.

A subject with a conflict is left alone as a whole, and so is one that refers to what the target lacks or has as another
schema.  A subject is *ours* if it, or the context of the copies, has the mode IMPORT, or if this run has registered all
that is left of it.  Nothing else is changed: after a failover an application may register where a copy was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from eomirror.registry.state import IMPORT, RegisteredVersion, RegistryState, SubjectState, qualified

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from eomirror.registry.state import Reference

__all__ = ["RegistryPlan", "SchemaConflict", "SchemaOperation", "SchemaPolicy", "registry_plan"]

Action = Literal["mode", "register", "delete", "purge", "level"]

_SIGNS: Mapping[Action, str] = {"mode": "~", "register": "+", "delete": "-", "purge": "-", "level": "~"}
_EMPTY = SubjectState()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOperation:
    """
    One change of the target registry.

    Attributes:
        action: What is done.
        subject: Subject without its context; empty for the context as a whole.
        version: Number of the version; None for a change of the subject.
        registered: What is registered.
        value: New level, or mode; None removes the subject's own.
        force: Set the mode although the subject has versions, all of them soft-deleted copies.  Never for a context.
    """

    action: Action
    subject: str
    version: int | None = None
    registered: RegisteredVersion | None = None
    value: str | None = None
    force: bool = False

    @property
    def sign(self) -> str:
        """``+``, ``~`` or ``-``, as `eomirror plan` shows it."""
        return _SIGNS[self.action]

    def text(self, context: str = "") -> str:
        """Returns the change in words, for people."""
        name = qualified(self.subject, context) or "all subjects"
        if self.action == "register" and self.registered is not None:
            return f"schema {name} version {self.version}, id {self.registered.schema_id}"
        if self.action == "level":
            return f"compatibility of {name}: {self.value or 'that of its context'}"
        if self.action == "mode":
            return f"mode of {name}: {self.value}, so that only a mirror registers"
        how = "permanently" if self.action == "purge" else "softly"
        return f"schema {name} version {self.version}, deleted {how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConflict:
    """
    A subject that is left alone, or a version that stays.

    Attributes:
        subject: Its name on the source; empty for the context as a whole.
        version: The version; None for the subject.
        reason: What stands against it.
        fix: The next step.
    """

    subject: str
    version: int | None
    reason: str
    fix: str

    def __str__(self) -> str:
        at = f" version {self.version}" if self.version is not None else ""
        return f"{self.subject or 'all subjects'}{at}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPolicy:
    """
    Rules of a mirror.

    Attributes:
        context: Context of the copies; empty for the default one.
        deletions: ``report``, ``delete`` or ``ignore``.
        known: Subject and number of each version that this run has registered.
        mirrors: Returns True for a subject that the link mirrors; others of the target are not its to change.
    """

    context: str = ""
    deletions: str = "report"
    known: Collection[tuple[str, int]] = ()
    mirrors: Callable[[str], bool] = lambda _: True


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryPlan:
    """
    Difference of two registries.

    Attributes:
        operations: Changes of the target, in order.
        conflicts: Subjects that are not mirrored.
        kept: Versions of the target that the source has no more.
        context: Context of the copies.
    """

    operations: tuple[SchemaOperation, ...] = ()
    conflicts: tuple[SchemaConflict, ...] = ()
    kept: tuple[SchemaConflict, ...] = ()
    context: str = ""

    @property
    def differs(self) -> bool:
        """True if a run would change something, or leaves a subject alone."""
        return bool(self.operations or self.conflicts)

    @property
    def lines(self) -> list[str]:
        """The plan as `eomirror plan` draws it: ``+ ~ -``, and ``!`` for a conflict."""
        return [
            *(f"{one.sign} {one.text(self.context)}" for one in self.operations),
            *(f"! {one}" for one in self.conflicts),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Returns the plan as plain values."""
        return {
            "operations": [
                {
                    "sign": one.sign,
                    "action": one.action,
                    "subject": qualified(one.subject, self.context),
                    "version": one.version,
                    "id": None if one.registered is None else one.registered.schema_id,
                    "value": one.value,
                }
                for one in self.operations
            ],
            "conflicts": [_plain(one) for one in self.conflicts],
            "kept": [_plain(one) for one in self.kept],
        }


def _plain(one: SchemaConflict) -> dict[str, Any]:
    return {"subject": one.subject, "version": one.version, "reason": one.reason, "fix": one.fix}


def registry_plan(source: RegistryState, target: RegistryState, policy: SchemaPolicy) -> RegistryPlan:
    """
    Returns what makes the target equal to the source.

    Args:
        source: The mirrored subjects of the source.
        target: All subjects of the context of the copies.
        policy: Rules of the mirror.
    """
    diff = _Diff(source, target, policy)
    for subject in sorted({*source.subjects, *filter(policy.mirrors, target.subjects)}):
        diff.compare(subject)
    return diff.plan()


@dataclass(slots=True)
class _Changes:
    """Changes of one subject."""

    mode: list[SchemaOperation] = field(default_factory=list)
    replaced: list[SchemaOperation] = field(default_factory=list)
    register: list[SchemaOperation] = field(default_factory=list)
    delete: list[SchemaOperation] = field(default_factory=list)
    purge: list[SchemaOperation] = field(default_factory=list)
    level: list[SchemaOperation] = field(default_factory=list)


class _Diff:
    """Collects the changes of all subjects."""

    def __init__(self, source: RegistryState, target: RegistryState, policy: SchemaPolicy) -> None:
        self._source = source
        self._target = target
        self._policy = policy
        self._ids = target.contents
        self._changes: dict[str, _Changes] = {}
        self._conflicts: dict[str, SchemaConflict] = {}
        self._kept: list[SchemaConflict] = []

    def compare(self, subject: str) -> None:
        """Adds the changes of a subject, or its conflict."""
        wanted = self._source.subjects.get(subject, _EMPTY)
        there = self._target.subjects.get(subject, _EMPTY)
        changes = _Changes()
        for number, version in sorted(wanted.versions.items()):
            conflict = self._version(changes, subject, number, version, there)
            if conflict is not None:
                self._conflicts[subject] = conflict
                return
        if changes.register and (conflict := self._mode(changes, subject, wanted, there)):
            self._conflicts[subject] = conflict
            return
        ours = self._is_ours(subject, there)
        if ours:
            self._surplus(changes, subject, wanted, there)
        if ours or changes.mode or self._writable(there):
            self._level(changes, subject, wanted, there)
        self._changes[subject] = changes

    def plan(self) -> RegistryPlan:
        """Returns all changes in order."""
        self._unmet_references()
        found = [self._changes[subject] for subject in sorted(self._changes)]
        purges = [one for each in found for one in each.purge]
        operations = [
            *self._context_mode(found),
            *(one for each in found for one in each.replaced),
            *(one for each in found for one in each.mode),
            *self._by_reference(one for each in found for one in each.register),
            *reversed(self._by_reference(one for each in found for one in each.delete)),
            *reversed(self._by_reference(self._without_highest(purges))),
            *self._context_level(found),
            *(one for each in found for one in each.level),
        ]
        return RegistryPlan(
            operations=tuple(operations),
            conflicts=tuple(self._conflicts[subject] for subject in sorted(self._conflicts)),
            kept=tuple(sorted(self._kept, key=lambda one: (one.subject, one.version or 0))),
            context=self._policy.context,
        )

    # -- one subject -----------------------------------------------------------------------------

    def _is_ours(self, subject: str, there: SubjectState) -> bool:
        if there.mode is not None:
            return there.mode == IMPORT
        if self._policy.context and self._target.mode == IMPORT:
            return True
        # releases up to 7.9.2 drop the mode of a subject together with its last version that is not deleted
        closed = not there.lives or self._writable(there)
        return closed and all((subject, number) in self._policy.known for number in there.versions)

    def _writable(self, there: SubjectState) -> bool:
        return (there.mode or self._target.mode) == IMPORT

    def _version(
        self, changes: _Changes, subject: str, number: int, version: RegisteredVersion, there: SubjectState
    ) -> SchemaConflict | None:
        """Adds the changes of a version; returns what stands against it."""
        found = there.versions.get(number)
        same = found is not None and (found.schema_id, found.content) == (version.schema_id, version.content)
        if found is not None and same:
            if version.deleted and not found.deleted:
                if not self._is_ours(subject, there):
                    return self._occupied(subject, there, number)
                changes.delete.append(SchemaOperation(action="delete", subject=subject, version=number))
            if version.deleted or not found.deleted:
                return None
        known = self._ids.get(version.schema_id)
        if known is not None and known != version.content:
            return SchemaConflict(
                subject=subject,
                version=number,
                reason=f"id {version.schema_id} stands for another schema on the target",
                fix="mirror into a context of its own: `context: NAME` under `schemas`",
            )
        if found is not None and not same:
            if not (self._is_ours(subject, there) and self._policy.deletions == "delete"):
                return _taken(subject, number, version, found)
            if not found.deleted:
                changes.replaced.append(SchemaOperation(action="delete", subject=subject, version=number))
            changes.replaced.append(SchemaOperation(action="purge", subject=subject, version=number))
        changes.register.append(
            SchemaOperation(action="register", subject=subject, version=number, registered=version)
        )
        if version.deleted:
            changes.delete.append(SchemaOperation(action="delete", subject=subject, version=number))
        return None

    def _mode(
        self, changes: _Changes, subject: str, wanted: SubjectState, there: SubjectState
    ) -> SchemaConflict | None:
        """Adds the mode that a registration needs; returns what stands against it."""
        if self._writable(there):
            if there.mode is not None and _drops(changes.replaced, there):
                left = there.versions.keys() - {one.version for one in changes.replaced}
                changes.mode.append(
                    SchemaOperation(action="mode", subject=subject, value=IMPORT, force=bool(left))
                )
            return None
        if self._policy.context and there.mode is None:
            if not any(one.versions for one in self._target.subjects.values()):
                # for the whole context, once
                return None
            name = qualified("", self._policy.context)
            return SchemaConflict(
                subject=subject,
                version=None,
                reason=f"context {name} has subjects that are no copies, and takes registrations of applications",
                fix=f"choose another `context`, or set its mode: PUT /mode/{name}?force=true with mode {IMPORT}",
            )
        # an older registry drops the mode together with the last version that is not deleted
        equal = all(
            (found := wanted.versions.get(number)) is not None
            and (found.schema_id, found.content) == (one.schema_id, one.content)
            for number, one in there.versions.items()
        )
        if there.lives or there.mode is not None or not (equal or self._is_ours(subject, there)):
            return self._occupied(subject, there, None)
        changes.mode.append(
            SchemaOperation(action="mode", subject=subject, value=IMPORT, force=bool(there.versions))
        )
        return None

    def _occupied(self, subject: str, there: SubjectState, version: int | None) -> SchemaConflict:
        mode = "takes registrations of applications" if there.mode is None else f"has the mode {there.mode}"
        name = qualified(subject, self._policy.context)
        return SchemaConflict(
            subject=subject,
            version=version,
            reason=f"the subject is no copy: it {mode} on the target",
            fix="mirror into a context (`context: NAME`), exclude the subject, or give it to the mirror: "
            f"PUT /mode/{name}?force=true with mode {IMPORT}",
        )

    def _surplus(self, changes: _Changes, subject: str, wanted: SubjectState, there: SubjectState) -> None:
        """Adds the deletion of versions that the source has no more."""
        for number, version in sorted(there.versions.items()):
            if number in wanted.versions:
                continue
            # a registry that lost its topic, or a wrong address, looks empty
            if self._policy.deletions == "delete" and self._source.subjects:
                if not version.deleted:
                    changes.delete.append(SchemaOperation(action="delete", subject=subject, version=number))
                changes.purge.append(
                    SchemaOperation(action="purge", subject=subject, version=number, registered=version)
                )
            elif self._policy.deletions != "ignore":
                self._kept.append(
                    SchemaConflict(
                        subject=subject,
                        version=number,
                        reason="the source has it no more",
                        fix="`deletions: delete` under `schemas` deletes it; `ignore` says nothing",
                    )
                )

    def _level(self, changes: _Changes, subject: str, wanted: SubjectState, there: SubjectState) -> None:
        """Adds the compatibility level that makes the effective one that of the source."""
        if not wanted.versions and not changes.purge:
            # what the source deleted for good and the target keeps, keeps its level
            return
        level = wanted.level
        if (
            level is None
            and wanted.versions
            and not self._policy.context
            and self._source.level != self._target.level
        ):
            # the level of the whole registry belongs to the target
            level = self._source.level
        dropped = _drops(changes.replaced, there) or (not wanted.lives and _drops(changes.delete, there))
        if level != there.level or (dropped and level is not None):
            changes.level.append(SchemaOperation(action="level", subject=subject, value=level))

    # -- all subjects ----------------------------------------------------------------------------

    def _context_mode(self, found: Iterable[_Changes]) -> list[SchemaOperation]:
        """Returns the mode that registrations need, if the copies have a context of their own."""
        if (
            not self._policy.context
            or self._target.mode == IMPORT
            or not any(each.register for each in found)
        ):
            return []
        return [SchemaOperation(action="mode", subject="", value=IMPORT)]

    def _context_level(self, found: Iterable[_Changes]) -> list[SchemaOperation]:
        """Returns the compatibility level of the context of the copies, if it is another one than on the source."""
        if not self._policy.context or not self._source.subjects or self._target.level == self._source.level:
            return []
        if self._target.mode != IMPORT and not any(each.register for each in found):
            return []
        return [SchemaOperation(action="level", subject="", value=self._source.level)]

    def _unmet_references(self) -> None:
        """Turns subjects whose references will not stand for the same schemas on the target into conflicts."""
        there = {
            (subject, number)
            for subject, number, version in self._target.versions()
            if (own := self._source.subjects.get(subject, _EMPTY).versions.get(number)) is not None
            and own.content == version.content
        }
        while True:
            present = there | {
                (one.subject, one.version)
                for each in self._changes.values()
                for one in each.register
                if one.version
            }
            unmet = [
                (one, reference)
                for each in self._changes.values()
                for one in each.register
                if one.registered is not None
                for reference in one.registered.content.references
                if (reference.subject, reference.version) not in present
            ]
            if not unmet:
                return
            for one, reference in unmet:
                if self._changes.pop(one.subject, None) is not None:
                    self._conflicts[one.subject] = _unmet(one, reference)

    def _without_highest(self, purges: list[SchemaOperation]) -> list[SchemaOperation]:
        """Returns the permanent deletions without the one that would let the target give an id a second time."""
        going = {(one.subject, one.version): one for one in purges}
        staying = {
            version.schema_id
            for subject, number, version in self._target.versions()
            if (subject, number) not in going
        }
        staying |= {version.schema_id for _, _, version in self._source.versions()}
        last = max(purges, key=_id_of, default=None)
        if last is None or _id_of(last) <= max(staying, default=0):
            return purges
        self._kept.append(
            SchemaConflict(
                subject=last.subject,
                version=last.version,
                reason=f"it stays soft-deleted, so that the target does not give id {_id_of(last)} to another schema",
                fix="nothing to do: the next schema of the source takes its place",
            )
        )
        return [one for one in purges if one is not last]

    def _by_reference(self, operations: Iterable[SchemaOperation]) -> list[SchemaOperation]:
        """Returns operations in an order in which schemas stand behind those that they refer to, else by id."""
        waiting = {(one.subject, one.version): one for one in sorted(operations, key=self._place)}
        done: list[SchemaOperation] = []

        def take(key: tuple[str, int | None]) -> None:
            if (one := waiting.pop(key, None)) is not None:
                for reference in self._references(one):
                    take((reference.subject, reference.version))
                done.append(one)

        for key in list(waiting):
            take(key)
        return done

    def _place(self, one: SchemaOperation) -> tuple[int, str, int]:
        version = self._known(one)
        return (0 if version is None else version.schema_id, one.subject, one.version or 0)

    def _references(self, one: SchemaOperation) -> tuple[Reference, ...]:
        version = self._known(one)
        return () if version is None else version.content.references

    def _known(self, one: SchemaOperation) -> RegisteredVersion | None:
        """Returns the version that an operation is about."""
        if one.registered is not None or one.version is None:
            return one.registered
        states = (self._source.subjects, self._target.subjects)
        found = (state[one.subject].versions.get(one.version) for state in states if one.subject in state)
        return next((version for version in found if version is not None), None)


def _drops(deletions: Iterable[SchemaOperation], there: SubjectState) -> bool:
    """Returns True if a registry may drop mode and level of a subject together with these versions."""
    gone = {one.version for one in deletions}
    return bool(gone) and all(one.deleted or number in gone for number, one in there.versions.items())


def _id_of(one: SchemaOperation) -> int:
    return 0 if one.registered is None else one.registered.schema_id


def _taken(subject: str, number: int, version: RegisteredVersion, found: RegisteredVersion) -> SchemaConflict:
    if found.schema_id != version.schema_id:
        reason = f"it has id {version.schema_id} on the source and id {found.schema_id} on the target"
    else:
        reason = f"id {version.schema_id} stands for another schema on the target"
    return SchemaConflict(
        subject=subject,
        version=number,
        reason=reason,
        fix="mirror into a context (`context: NAME`); if the source deleted the version and registered another one, "
        "`deletions: delete` replaces it",
    )


def _unmet(one: SchemaOperation, reference: Reference) -> SchemaConflict:
    return SchemaConflict(
        subject=one.subject,
        version=one.version,
        reason=f"it refers to {reference.subject} version {reference.version}, which is no copy on the target",
        fix=f"let `subjects` match {reference.subject}, or resolve its conflict",
    )
