"""
Compares ACL entries, client quotas and copies without a source on the target with what the source calls for. Pure.

One rule serves all three.  An entry that the source calls for and the target lacks is added; one that the link has
added, and that the source does not call for any more, leaves as `deletions` says.  Everything else on the target
belongs to others: it is neither changed nor deleted.  `OwnEntry` records tell which entries the link has added.

An entry that the reverse link has added to this link's source is not carried back: deleted at its origin, it would
return for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from eomirror.clock import utc
from eomirror.config.rights import told
from eomirror.errors import TopicError
from eomirror.kafka.cluster_metadata import AclEntry, QuotaEntry
from eomirror.records.kept_entries import OwnEntry, TargetComparison
from eomirror.records.names import LinkNames
from eomirror.topology.filters import internal_reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from eomirror.config import Link
    from eomirror.errors import MirrorError
    from eomirror.kafka.cluster_metadata import ScramUser

__all__ = [
    "CopyEntry",
    "EntryChange",
    "EntryDiff",
    "EntryPlan",
    "comparison_of",
    "entry_changes",
    "entry_id",
    "entry_kind",
    "first_entries",
    "wanted_acls",
    "wanted_quotas",
]

_EVERYONE = "User:*"
_ANY = "*"


class CopyEntry(NamedTuple):
    """A copy whose source topic is gone."""

    name: str
    topic: str
    topic_id: str

    def __str__(self) -> str:
        return f"topic {self.name}"


Entry = AclEntry | QuotaEntry | CopyEntry


def entry_kind(entry: Entry) -> str:
    """Returns ``acl``, ``quota`` or ``topic``."""
    return {AclEntry: "acl", QuotaEntry: "quota", CopyEntry: "topic"}[type(entry)]


def entry_id(entry: Entry) -> tuple[str, str]:
    """Returns the key of an entry in `OwnEntry`."""
    return entry_kind(entry), orjson.dumps(list(entry)).decode()


@dataclass(frozen=True, slots=True)
class EntryChange:
    """
    A difference between the target and what the source calls for.

    Attributes:
        sign: ``+`` to add, ``~`` to change, ``-`` to delete, ``=`` to leave as it is.
        value: New value of a quota; None for none.
        before: Present value of a quota; None for none.
        due: True if it is carried out now.
        reason: Reason that it is left, or not due; empty for none.
    """

    sign: str
    entry: Entry
    value: float | None = None
    before: float | None = None
    due: bool = True
    reason: str = ""

    @property
    def text(self) -> str:
        """The entry with its values, for people."""
        texts = [f"{each:g}" for each in (self.before, self.value) if each is not None]
        shown = f"{self.entry}: {' -> '.join(texts)}" if texts else str(self.entry)
        return f"{shown}: {self.reason}" if self.reason else shown


@dataclass(frozen=True, slots=True)
class EntryDiff:
    """
    Differences, and the records that have to stand before they are carried out.

    Attributes:
        changes: Differences.
        notes: Records by the key of their entry; None for one that is deleted.
    """

    changes: tuple[EntryChange, ...] = ()
    notes: Mapping[tuple[str, str], OwnEntry | None] = field(default_factory=dict)

    def __add__(self, other: EntryDiff) -> EntryDiff:
        return EntryDiff(self.changes + other.changes, {**self.notes, **other.notes})

    def held(self, reason: str) -> EntryDiff:
        """Returns the differences without deletions, for a reason; times of absence do not begin."""
        held = [change.entry for change in self.changes if change.sign == "-"]
        text = f"gone on the source, and kept here: {reason}"
        changes = (
            replace(change, due=False, reason=text) if change.sign == "-" else change
            for change in self.changes
        )
        begun = {entry_id(entry) for entry in held}
        return EntryDiff(tuple(changes), {key: note for key, note in self.notes.items() if key not in begun})

    @property
    def due(self) -> tuple[EntryChange, ...]:
        """Differences that are carried out now."""
        return tuple(change for change in self.changes if change.due and change.sign != "=")


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """
    Differences of entries.

    Attributes:
        diff: Differences, with their records.
        problems: Errors of what could not be read or carried out, by what it is.
        users: SCRAM users of the source that the target lacks.
        left: Copies that do not exist any more, of topics that are gone for as long as `deletions: delete` asks for.
    """

    diff: EntryDiff = field(default_factory=EntryDiff)
    problems: Mapping[str, MirrorError] = field(default_factory=dict)
    users: tuple[ScramUser, ...] = ()
    left: tuple[CopyEntry, ...] = ()


def entry_changes(
    of: str,
    wanted: Mapping[Entry, float | None],
    found: Mapping[Entry, float | None],
    own: Mapping[tuple[str, str], OwnEntry],
    *,
    deletions: str,
    delay_ms: int,
    now_ms: int,
) -> EntryDiff:
    """
    Returns the differences of one kind of entries.

    Args:
        of: Kind of the entries.
        wanted: Entries that the source calls for, with the values of quotas.
        found: Entries of the target.
        own: Records of the link, of any kind.
        deletions: As of the link.
        delay_ms: As of the link.
        now_ms: Wall clock.
    """
    ours = {key: record for key, record in own.items() if key[0] == of}
    changes: list[EntryChange] = []
    notes: dict[tuple[str, str], OwnEntry | None] = {}
    for entry, value in wanted.items():
        key = entry_id(entry)
        fresh = OwnEntry(of=of, entry=key[1], values=_values(value), timestamp=now_ms)
        record = ours.pop(key, None)
        if entry not in found:
            changes.append(EntryChange("+", entry, value))
            notes[key] = fresh
        elif found[entry] == value:
            if record is not None and record.gone_since:
                notes[key] = fresh
        elif record is not None and _is_ours(record, found[entry]):
            changes.append(EntryChange("~", entry, value, found[entry]))
            notes[key] = replace(fresh, values=(*_values(value), *_values(found[entry])))
        else:
            reason = f"left: {found[entry]:g} was set on the target by another hand"
            changes.append(EntryChange("=", entry, value, found[entry], due=False, reason=reason))
    there = {entry_id(entry): entry for entry in found}
    for key, record in ours.items():
        if key not in there or not _is_ours(record, found[there[key]]):
            # deleted, or changed, by another hand
            notes[key] = None
        elif deletions != "ignore":
            entry = there[key]
            change = _leaving(
                entry, found[entry], record, deletions=deletions, delay_ms=delay_ms, now_ms=now_ms
            )
            changes.append(change)
            if deletions == "delete" and not record.gone_since:
                notes[key] = replace(record, gone_since=now_ms, timestamp=now_ms)
    return EntryDiff(tuple(changes), notes)


def _leaving(
    entry: Entry, value: float | None, record: OwnEntry, *, deletions: str, delay_ms: int, now_ms: int
) -> EntryChange:
    if deletions == "report":
        reason = "gone on the source, and kept here (deletions: report)"
        return EntryChange("-", entry, before=value, due=False, reason=reason)
    at_ms = (record.gone_since or now_ms) + delay_ms
    if entry_kind(entry) == "topic" and not record.gone_since and at_ms <= now_ms:
        # a broker that has just come back may list old topics
        reason = "gone on the source, and deleted here at the next look"
        return EntryChange("-", entry, before=value, due=False, reason=reason)
    if at_ms > now_ms:
        reason = f"gone on the source, and deleted here after {utc(at_ms)}"
        return EntryChange("-", entry, before=value, due=False, reason=reason)
    return EntryChange("-", entry, before=value)


def _values(value: float | None) -> tuple[str, ...]:
    return () if value is None else (repr(value),)


def _is_ours(record: OwnEntry, value: float | None) -> bool:
    """Returns True if the value of a quota on the target is one that the link has set, or replaces."""
    return value is None or repr(value) in record.values


def wanted_acls(
    link: Link,
    entries: Iterable[AclEntry],
    *,
    theirs: Collection[tuple[str, str]],
    users: Collection[str],
    known: bool = True,
) -> tuple[dict[AclEntry, None], list[EntryChange]]:
    """
    Returns the entries that the target shall have, and those of the source that are selected and not carried.

    Args:
        link: The link.
        entries: Entries of the source.
        theirs: Keys of entries that other links have added to the source.
        users: Principals of the mirror, as far as known.
        known: True if that on the target is among them.
    """
    wanted: dict[AclEntry, None] = {}
    left: list[EntryChange] = []
    for entry in entries:
        selected = _selected(link, entry)
        if selected is None or (selected.permission == "allow" and selected.principal in users):
            # the mirror grants itself nothing; its rights are what `plan --acls` prints
            continue
        carried, reason = _carried(link, selected)
        if entry_id(entry) in theirs and not _goes_on(link, selected, carried):
            continue
        if not reason and _shuts_out(selected, users):
            reason = "it would deny the mirror itself; add it by hand, where the mirror may do without"
        elif not reason and not known and selected.permission == "deny" and selected.operation != "Read":
            reason = "the configuration does not tell the mirror's principal, and it may be this one; add it by hand"
        if reason:
            left.append(EntryChange("=", entry, due=False, reason=f"not carried: {reason}"))
        elif carried is not None:
            wanted[carried] = None
    return wanted, left


def _selected(link: Link, entry: AclEntry) -> AclEntry | None:
    """Returns an entry that the setting selects, with its operation on the target; None for any other."""
    if link.acls is True:
        if (entry.resource, entry.pattern) != ("topic", "literal") or not link.mirrors(entry.name):
            return None
        if entry.name == _ANY:
            return None
        if entry.permission == "allow" and entry.operation == "Write":
            return None
        downgraded = entry.permission == "allow" and entry.operation == "All"
        return entry._replace(operation="Read") if downgraded else entry
    fields: dict[str, Any] = entry._asdict()
    del fields["host"]
    return entry if any(rule.takes(**fields) for rule in link.acls or ()) else None


def _carried(link: Link, entry: AclEntry) -> tuple[AclEntry | None, str]:
    """Returns an entry with the name that its resource has on the target, or the reason that there is none."""
    if entry.resource != "topic":
        return entry, ""
    naming = link.target_naming
    if entry.pattern == "literal" and entry.name != _ANY:
        if not link.mirrors(entry.name):
            # a rule's pattern takes other topics, too
            return None, ""
        try:
            return entry._replace(name=naming.target_topic(entry.name)), ""
        except TopicError as error:
            return None, error.message
    if internal_reason(entry.name):
        return None, ""
    if naming.naming.kind in {"map", "match"}:
        return None, f"naming {naming.naming.kind} has no common beginning for the names that it is about"
    start = naming.beginning("" if entry.name == _ANY else entry.name)
    if not start:
        return None, "with equal names it would be about all topics of the target"
    if LinkNames(link.state_name).control_topic.startswith(start):
        return None, "it would be about the link's own topics as well"
    return entry._replace(pattern="prefixed", name=start), ""


def _goes_on(link: Link, entry: AclEntry, carried: AclEntry | None) -> bool:
    """Returns True if an entry of another link is carried on, as in a chain: names show that it does not come round."""
    return (
        carried is not None
        and entry.resource == "topic"
        and carried.pattern == "literal"
        and carried.name != entry.name
        and not link.guard
    )


def first_entries(wanted: Iterable[AclEntry], found: Collection[AclEntry]) -> list[AclEntry]:
    """Returns the entries on topics that the target lacks, and where none is about the same topics there."""
    topics = [entry for entry in found if entry.resource == "topic"]
    names = {entry.name for entry in topics if entry.pattern == "literal"}
    prefixes = tuple(entry.name for entry in topics if entry.pattern == "prefixed")
    if _ANY in names:
        return []
    there = frozenset(topics)
    return [
        entry
        for entry in wanted
        if entry.resource == "topic" and entry not in there
        if not (entry.pattern == "literal" and entry.name in names) and not entry.name.startswith(prefixes)
    ]


def _shuts_out(entry: AclEntry, users: Collection[str]) -> bool:
    """Returns True if an entry denies the mirror something on the target, as that of a fence does."""
    return entry.permission == "deny" and entry.principal in {_EVERYONE, *users}


def wanted_quotas(
    quotas: Mapping[QuotaEntry, float], *, theirs: Collection[tuple[str, str]], users: Collection[str]
) -> dict[QuotaEntry, float]:
    """
    Returns the quotas that the target shall have: those of users and client ids, without those of the mirror.

    Quotas of addresses stay: the same client has another address on another network.

    Args:
        quotas: Quotas of the source.
        theirs: Keys of quotas that other links have added to the source.
        users: Principals of the mirror on both sides, as far as known.
    """
    names = {user.removeprefix("User:") for user in users}
    return {
        entry: value
        for entry, value in quotas.items()
        if entry_id(entry) not in theirs
        and not any(kind == "ip" or (kind == "user" and name in names) for kind, name in entry.entity)
    }


def comparison_of(
    plan: EntryPlan | None,
    changed: Collection[tuple[str, str]],
    *,
    before: TargetComparison | None,
    command: str,
    now_ms: int,
) -> TargetComparison:
    """
    Returns the record of a comparison; the one before if it says the same.

    Args:
        plan: What stands; None if no entries were compared.
        changed: Sign and text of each change that was carried out.
        before: Record of the comparison before; None for none.
        command: ``run`` or ``apply``.
        now_ms: Wall clock.
    """
    problems = {} if plan is None else {what: told(error) for what, error in plan.problems.items()}
    standing = 0 if plan is None else sum(change.sign != "=" for change in plan.diff.changes)
    counts: dict[str, int] = {}
    for sign, _ in changed:
        counts[sign] = counts.get(sign, 0) + 1
    if before is None:
        before = TargetComparison(standing=0, command=command, timestamp=now_ms)
    fresh = replace(before, standing=standing, problems=problems, command=command)
    if changed:
        fresh = replace(fresh, changed=dict(sorted(counts.items())), changed_at=now_ms)
    return before if fresh == before else replace(fresh, timestamp=now_ms)
