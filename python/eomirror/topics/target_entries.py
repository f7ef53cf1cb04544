"""
Reads ACL entries, client quotas and copies without a source on both sides, and carries out what `entries` compares.

A record of each entry is written to control before the entry is added, so that a mirror that dies in between still
knows it for its own; one that is refused leaves no record.  An operation without its right is a problem of its own,
with the command that grants it: everything else goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.rights import Right, lacking, told
from eomirror.errors import AuthorizationError, ClusterError, MirrorError
from eomirror.kafka.acls import NoAuthorizerError
from eomirror.kafka.cluster_metadata import is_deleted
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.kafka.plain_producer import write_records
from eomirror.records.control_record import ControlEntry
from eomirror.records.events import PastEvent, change_events
from eomirror.records.kept_entries import OwnEntry, TargetComparison
from eomirror.records.names import INTERNAL_TOPICS, LinkNames
from eomirror.records.reports import decode_reports
from eomirror.topics.entries import (
    CopyEntry,
    EntryChange,
    EntryDiff,
    EntryPlan,
    comparison_of,
    entry_changes,
    entry_id,
    entry_kind,
    first_entries,
    wanted_acls,
    wanted_quotas,
)
from eomirror.topics.native_admin import client_quotas, delete_topics, set_client_quotas
from eomirror.topology.filters import topic_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.cluster_metadata import AclEntry, QuotaEntry, ScramUser
    from eomirror.kafka.session import ClusterSession, LinkSessions
    from eomirror.records.control_record import ControlRecord
    from eomirror.records.position import Position
    from eomirror.records.reports import Reports
    from eomirror.topics.apply import TargetTopics
    from eomirror.types import SourcePartition

__all__ = ["TargetEntries"]

log = structlog.get_logger(__name__)

# interval at which a running mirror compares entries
_ENTRY_SECONDS = 10.0

_WRITE_SECONDS = 10.0
# brokers take a change up within milliseconds
_SEEN_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_CONTROL = ".control"
_ANOTHER_SOURCE = "the source is another cluster than the one that it was mirrored from"
_EXCLUDES = (
    "not carried: no entry is about this copy yet, and with allow.everyone.if.no.acl.found the first one would shut "
    "out the mirror; give the mirror's user its entries first, as `eomirror plan CONFIG --acls` prints them"
)
# right on the target's cluster that a change of a kind of entries needs; one of a topic is the topic's
_RIGHTS = {"acl": Right("Alter", "cluster"), "quota": Right("AlterConfigs", "cluster")}

# what `eomirror apply` writes to control
_OF_APPLY = (OwnEntry, TargetComparison, PastEvent)


@dataclass
class _Sides:
    """
    Holds the entries of both sides, as one comparison has read them.

    Attributes:
        wanted: Entries that the target shall have, by kind.
        found: Entries of the target, by kind.
        stay: Entries of the source that are not carried.
        copies: Copies whose topic is gone, with the reason that they stay; None if they are not known.
        left: Copies whose topic is gone, and that do not exist any more either.
        users: SCRAM users that the target lacks.
        problems: Errors, by what was read.
    """

    wanted: dict[str, Mapping[Any, float | None]] = field(default_factory=dict)
    found: dict[str, Mapping[Any, float | None]] = field(default_factory=dict)
    stay: list[EntryChange] = field(default_factory=list)
    copies: dict[CopyEntry, str] | None = None
    left: frozenset[CopyEntry] = frozenset()
    users: tuple[ScramUser, ...] = ()
    problems: dict[str, MirrorError] = field(default_factory=dict)


class EntryReader:
    """
    Reads entries, records and copies of one link on both sides.  Not thread-safe.

    Args:
        sessions: Connections to both clusters.
        positions: Reads the link's positions; None for a link that has none.
    """

    def __init__(
        self,
        link: Link,
        sessions: LinkSessions,
        positions: Callable[[], Mapping[SourcePartition, Position]] | None,
    ) -> None:
        self._link = link
        self._sessions = sessions
        self._positions = positions
        self._names = LinkNames(link.state_name)
        self._told = False
        # topics of which the link has a copy, as far as it has looked; None before it has
        self._mirrored: set[str] | None = None
        # of those that were absent at the last look: a position, and True if one names another source
        self._absent: dict[str, tuple[Position, bool]] = {}
        # True if the first entry about a copy may shut out all others; None before it was asked for
        self._everyone: bool | None = None

    def read(self, names: Sequence[str], source_id: str, *, running: bool) -> _Sides:
        """Reads both sides; see `TargetEntries.compare`."""
        sides, deletions = _Sides(), self._link.deletions
        self._try("entries", sides, lambda: self._read_entries(names, sides))
        if deletions == "delete" or (deletions == "report" and not running):
            self._try("deletions", sides, lambda: self._read_copies(names, source_id, sides))
        if not running and "acl" in sides.wanted:
            self._try("users", sides, lambda: self._read_users(sides))
        return sides

    def own(self) -> dict[tuple[str, str], OwnEntry]:
        """Returns the link's own entries."""
        return self._own(self._sessions.target, self._names.control_topic)

    def begun(self) -> bool:
        """Returns True if control has other records than those of `eomirror apply`, which may come before any run."""
        records = CompactedTopicReader(self._sessions.target).records(
            self._names.control_topic, wait_for_open=False
        )
        return any(ControlEntry.of(one.key, one.value).declared not in _OF_APPLY for one in records)

    def doubt(self, names: Collection[str], source_id: str, *, due: bool) -> str:
        """
        Returns the reason to delete nothing on the target now; empty for none.

        A source that was lost, or replaced, calls for nothing: that is a disaster, and not a wish.

        Args:
            names: Topics of the source.
            source_id: Id of the source when the link began.
            due: True if something would be deleted now.
        """
        link = self._link
        beats = {link.target_naming.heartbeats, link.mm2_names.heartbeats}
        if not any(link.mirrors(name) and name not in beats for name in names):
            # links write topics to their source as well, such as heartbeats, also after all others were lost
            return "the source has no topic left that the link mirrors: it was replaced, or lost"
        ids = {self._sessions.source.admin.describe_cluster().cluster_id}
        if due and ids == {source_id}:
            ids = {one.source_cluster_id for one in self._last()} or ids
        return "" if source_id in ids else _ANOTHER_SOURCE

    @staticmethod
    def _try(what: str, sides: _Sides, read: Callable[[], None]) -> None:
        """Reads; an error is a problem of what was read."""
        try:
            read()
        except MirrorError as error:
            sides.problems[what] = error

    def _read_entries(self, names: Sequence[str], sides: _Sides) -> None:
        """Reads ACL entries and quotas of both clusters; raises if it is not known what other links have added."""
        link = self._link
        if link.acls is False and not link.quotas:
            return
        theirs, users = self._theirs(names, sides), self._users()

        def read_acls() -> None:
            if (both := self._acls()) is not None:
                known = bool(self._sessions.target.admin.account.principal)
                wanted, sides.stay = wanted_acls(link, both[0], theirs=theirs, users=users, known=known)
                for entry in self._excluding(wanted, both[1]):
                    del wanted[entry]
                    sides.stay.append(EntryChange("=", entry, due=False, reason=_EXCLUDES))
                sides.wanted["acl"], sides.found["acl"] = wanted, dict.fromkeys(both[1])

        def read_quotas() -> None:
            here, there = client_quotas(self._sessions.source), self._quotas()
            sides.wanted["quota"] = wanted_quotas(here, theirs=theirs, users=users)
            sides.found["quota"] = there

        if link.acls is not False:
            self._try("acls", sides, read_acls)
        if link.quotas:
            self._try("quotas", sides, read_quotas)

    def _read_copies(self, names: Collection[str], source_id: str, sides: _Sides) -> None:
        sides.copies, sides.left = self._gone(names, source_id)

    def _read_users(self, sides: _Sides) -> None:
        """Reads the SCRAM users of both clusters."""
        here, there = (session.admin.acls.scram_users() for session in self._sessions)
        known = {(user.name, user.mechanism) for user in there}
        sides.users = tuple(user for user in here if (user.name, user.mechanism) not in known)

    def _acls(self) -> tuple[Sequence[AclEntry], Sequence[AclEntry]] | None:
        """Returns the entries of source and target; None if the source has no authorizer."""
        here = self._sessions.source.admin.acls.entries()
        if here is None:
            if not self._told:
                self._told = True
                log.info(
                    "source_has_no_authorizer", link=self._link.name, meaning="it has no ACL entries to carry"
                )
            return None
        try:
            there = self._sessions.target.admin.acls.entries()
        except AuthorizationError as error:
            # what reads suffices to see what is missing, and not to add it
            raise self.lacking("acl") from error
        if there is None:
            raise NoAuthorizerError(
                f"{self._sessions.target.admin.name} has no authorizer, so it takes no ACL entries",
                fix="set authorizer.class.name there, or `acls: false` on the link",
            )
        return here, there

    def _quotas(self) -> dict[QuotaEntry, float]:
        """Returns the quotas of the target."""
        try:
            return client_quotas(self._sessions.target)
        except AuthorizationError as error:
            raise self.lacking("quota") from error

    def lacking(self, of: str) -> AuthorizationError:
        """Returns the error of a kind of entries whose right on the target is missing."""
        return lacking(f"{of} entries: ", self._sessions.target.admin.account, [_RIGHTS[of]])

    def _users(self) -> frozenset[str]:
        """Returns the principals of the mirror on both sides, as far as the configuration tells them."""
        accounts = (session.admin.account for session in self._sessions)
        return frozenset(f"User:{account.principal}" for account in accounts if account.principal)

    def _theirs(self, names: Sequence[str], sides: _Sides) -> frozenset[tuple[str, str]]:
        """Returns the keys of entries that other links have added to the source."""
        found: set[tuple[str, str]] = set()
        internal = topic_filter((INTERNAL_TOPICS,))
        for topic in names:
            if (
                not topic.endswith(_CONTROL)
                or not internal.accepts(topic)
                or topic == self._names.control_topic
            ):
                continue
            try:
                found |= self._own(self._sessions.source, topic).keys()
            except AuthorizationError as error:
                # a link of another file: until this is granted, its entries count as written by hand
                sides.problems[f"entries of {topic}"] = error
        return frozenset(found)

    def _own(self, session: ClusterSession, control: str) -> dict[tuple[str, str], OwnEntry]:
        """Returns the entries that a link has added, from its control topic; none if that does not exist."""
        return {(one.of, one.entry): one for one in self.reports(session, control).own}

    @staticmethod
    def reports(session: ClusterSession, control: str) -> Reports:
        """Returns the reports in a control topic; none if that does not exist."""
        records = CompactedTopicReader(session).records(control, wait_for_open=False)
        return decode_reports((one.key, one.value) for one in records)

    def _excluding(self, wanted: Mapping[AclEntry, None], found: Collection[AclEntry]) -> list[AclEntry]:
        """
        Returns wanted entries that would take the mirror's own access to a copy, and that of all others.

        With allow.everyone.if.no.acl.found, a topic is open until the first entry about it.
        """
        first = first_entries(wanted, found)
        if not first:
            return []
        target = self._sessions.target.admin
        names = sorted({entry.name for entry in first})
        if len(target.visible_topics(names)[1]) == len(names):
            # closed to the mirror without an entry, so it is not the entry that closes it
            return []
        if self._everyone is None:
            settings = target.broker_settings()
            self._everyone = settings is None or "allow.everyone.if.no.acl.found" in settings
        return first if self._everyone else []

    def _last(self) -> list[Position]:
        """Returns the link's positions of the topics that it mirrors; none if it has never run."""
        topic = self._names.positions_topic
        if self._positions is None or self._sessions.target.admin.describe_topics([topic])[topic] is None:
            return []
        return [one for one in self._positions().values() if self._link.mirrors(one.topic)]

    def forget(self, topics: Collection[str]) -> None:
        """Forgets topics that have left the link."""
        if self._mirrored is not None:
            self._mirrored -= set(topics)

    def _gone(
        self, names: Collection[str], source_id: str
    ) -> tuple[dict[CopyEntry, str], frozenset[CopyEntry]]:
        """Returns copies whose source topic is gone: those that exist, with the reason to stay, if any; and others."""
        there = set(names)
        if self._mirrored is not None:
            self._mirrored |= {topic for topic in there if self._link.mirrors(topic)}
        if self._mirrored is None or not self._mirrored - there <= self._absent.keys():
            # of a topic that was made again with fewer partitions, the older ones are of an earlier copy
            positions = sorted(self._last(), key=lambda one: one.generation)
            elsewhere = {one.topic for one in positions if one.source_cluster_id != source_id}
            self._mirrored = {one.topic for one in positions}
            self._absent = {one.topic: (one, one.topic in elsewhere) for one in positions}
        # a position does not move while its topic is absent
        self._absent = {topic: self._absent[topic] for topic in self._mirrored - there}
        if not self._absent:
            return {}, frozenset()
        # brokers hide topics from a user without rights; asked by name, they tell the missing right
        described, _ = self._sessions.source.admin.visible_topics(sorted(self._absent))
        gone = [self._absent[topic] for topic, facts in described.items() if facts is None]
        copies, _ = self._sessions.target.admin.visible_topics(sorted({one.target_topic for one, _ in gone}))
        found: dict[CopyEntry, str] = {}
        left: set[CopyEntry] = set()
        for one, other in gone:
            copy = copies.get(one.target_topic)
            entry = CopyEntry(one.target_topic, one.topic, one.target_topic_id)
            if copy is not None and one.target_topic_id and copy.topic_id == one.target_topic_id:
                found[entry] = ""
                if other:
                    found[entry] = _ANOTHER_SOURCE
                elif self._link.guard or self._link.aggregate:
                    found[entry] = "the copy holds records of other clusters as well"
            elif (
                self._link.deletes_copies
                and not other
                and is_deleted(one.target_topic, one.target_topic_id, copies)
            ):
                left.add(entry)
        # another one without a copy is not looked for again
        self._mirrored = (self._mirrored & there) | {entry.topic for entry in (*found, *left)}
        return found, frozenset(left)


class TargetEntries:
    """
    Keeps the entries of one link's target alike.  Not thread-safe.

    Args:
        sessions: Connections to both clusters.
        positions: Reads the link's positions; None for a link that has none.
        topics: Creates and changes copies; what it changed and lacks is told with that of entries.

    Attributes:
        changed: Signs and texts of changes that were carried out, until `taken`.
        last: Result of the last `apply`: what stands.
        leaving: Deleted copies whose topic is to leave the link, by that topic; until `forget`.
    """

    def __init__(
        self,
        link: Link,
        sessions: LinkSessions,
        *,
        positions: Callable[[], Mapping[SourcePartition, Position]] | None,
        topics: TargetTopics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.changed: list[tuple[str, str]] = []
        self.last: EntryPlan | None = None
        self.leaving: dict[str, CopyEntry] = {}
        self._link = link
        self._sessions = sessions
        self._topics = topics
        self._read = EntryReader(link, sessions, positions)
        self._clock = clock
        self._names = LinkNames(link.state_name)
        self._kept = float("-inf")
        self._logged: set[str] = set()
        # what the last comparison without a difference has read
        self._alike: object = None

    def keep(self, names: Sequence[str], source_id: str, *, at_once: bool) -> None:
        """
        Compares entries and carries out what differs, if it is time for it.

        Args:
            names: Topics of the source.
            source_id: Id of the source.
            at_once: True if a copy was created, whose entries are missing.
        """
        wanted = self._link.acls is not False or self._link.quotas or self._link.deletions == "delete"
        now = self._clock.monotonic()
        if not wanted or (now - self._kept < _ENTRY_SECONDS and not at_once):
            return
        self._kept = now
        self.apply(self.compare(names, source_id, running=True))

    def begun(self) -> bool:
        """Returns True if a run of the link has begun; see `EntryReader.begun`."""
        return self._read.begun()

    def compare(self, names: Sequence[str], source_id: str, *, running: bool = False) -> EntryPlan:
        """
        Reads both sides, and returns the differences.

        Args:
            names: Topics of the source.
            source_id: Id of the source.
            running: True if copies without a source are looked for only if they are deleted, and SCRAM users are not.
        """
        sides = self._read.read(names, source_id, running=running)
        stay = EntryDiff(tuple(sides.stay))
        seen = (sides.wanted, sides.found, sides.copies, sides.left)
        nothing = not sides.wanted and not sides.copies and self._link.deletions != "delete"
        if nothing or (running and self._alike == seen):
            return EntryPlan(stay, sides.problems)
        try:
            diff = stay + self._differences(sides, names, source_id)
        except MirrorError as error:
            # without its records, what is the link's own is not known
            return EntryPlan(stay, {**sides.problems, "records": error})
        self._alike = None if diff.notes or any(change.sign != "=" for change in diff.changes) else seen
        left = tuple(change.entry for change in diff.due if change.entry in sides.left)
        shown = tuple(change for change in diff.changes if change.entry not in sides.left)
        return EntryPlan(replace(diff, changes=shown), sides.problems, sides.users, left)

    def apply(self, plan: EntryPlan) -> EntryPlan:
        """
        Carries out what is due; returns what stands afterwards.

        Errors are part of the result, and are logged once each.
        """
        problems, notes = dict(plan.problems), dict(plan.diff.notes)
        due = self._allowed(plan.diff.due, problems)
        barred = [change for change in plan.diff.due if change not in due]
        for change in barred:
            notes.pop(entry_id(change.entry), None)
        if (error := self._write(notes)) is not None:
            problems["records"] = error
            barred, due = [*plan.diff.due], []
        refused: dict[Any, MirrorError] = {}
        unsure: set[Any] = set()
        for of in ("acl", "quota", "topic"):
            for signs in ("+~", "-"):
                some = [one for one in due if entry_kind(one.entry) == of and one.sign in signs]
                refused |= self._carried_out(of, some, unsure)
        after: dict[tuple[str, str], OwnEntry | None] = {}
        deleted = [one.entry for one in due if isinstance(one.entry, CopyEntry) and one.entry not in refused]
        self.leaving |= {entry.topic: entry for entry in (*plan.left, *deleted)}
        for change in due:
            error = refused.get(change.entry)
            if error is not None:
                problems[str(change.entry)] = error
                barred.append(change)
            else:
                self.changed.append((change.sign, change.text))
                log.info("target_changed", link=self._link.name, sign=change.sign, entry=change.text)
            # neither a deleted entry nor a refused one is ours; a refused change keeps its record, and so does an
            # entry that may have been added although no answer came, and a copy until the link has forgotten its topic
            keeps = change.sign == "~" or change.entry in unsure or change.entry in deleted
            if not keeps and (error is None) == (change.sign == "-"):
                after[entry_id(change.entry)] = None
        if (error := self._write(after)) is not None:
            problems["records"] = error
        self._log(problems)
        if problems:
            self._alike = None
        stands = [change for change in plan.diff.changes if not change.due]
        self.last = EntryPlan(EntryDiff((*stands, *barred)), problems, plan.users)
        return self.last

    def forget(self, topics: Collection[str]) -> list[CopyEntry]:
        """Forgets topics that have left the link; returns their copies."""
        self._read.forget(topics)
        return [self.leaving.pop(topic) for topic in topics if topic in self.leaving]

    @property
    def stands(self) -> EntryPlan | None:
        """Differences of the target that stand, and what keeps them; None if nothing was compared."""
        refused = {} if self._topics is None else self._topics.lacking
        lacking_ = {f"settings of {name}": error for name, error in refused.items()}
        last = self.last or (EntryPlan() if lacking_ else None)
        return None if last is None else replace(last, problems={**lacking_, **last.problems})

    def taken(self) -> list[tuple[str, str]]:
        """Returns sign and text of each change on the target since the last call, also of topics."""
        found = [*([] if self._topics is None else self._topics.changed), *self.changed]
        self.changed.clear()
        if self._topics is not None:
            self._topics.changed.clear()
        return found

    def record(self, changed: Sequence[tuple[str, str]], stands: EntryPlan | None) -> None:
        """
        Records what `eomirror apply` has changed on the target, and what stands; logs if control does not take it.

        Args:
            changed: Sign and text of each change.
            stands: What stands; None if no entries were compared.
        """
        now_ms = self._clock.wall_ms()
        try:
            before = self._read.reports(self._sessions.target, self._names.control_topic).comparison
        except MirrorError:
            before = None
        comparison = comparison_of(stands, changed, before=before, command="apply", now_ms=now_ms)
        records: list[ControlRecord] = [*change_events(changed, now_ms=now_ms)]
        if comparison != before:
            records.append(comparison)
        if (error := self._written([(one.key(), one.value()) for one in records])) is not None:
            self._log({"records": error})

    def _differences(self, sides: _Sides, names: Sequence[str], source_id: str) -> EntryDiff:
        """Reads the link's records, and returns the differences."""
        own, link = self._read.own(), self._link
        how: dict[str, Any] = {
            "deletions": link.deletions,
            "delay_ms": round(link.deletion_delay * 1000),
            "now_ms": self._clock.wall_ms(),
        }
        diff = EntryDiff()
        for of, wanted in sides.wanted.items():
            diff += entry_changes(of, wanted, sides.found[of], own, **how)
        if sides.copies is not None:
            diff += self._leaving(sides.copies, sides.left, own, how)
        if link.deletions != "delete" or all(change.sign != "-" for change in diff.changes):
            return diff
        due = any(change.sign == "-" for change in diff.due)
        reason = self._read.doubt(names, source_id, due=due)
        return diff.held(reason) if reason else diff

    @staticmethod
    def _leaving(
        copies: Mapping[CopyEntry, str],
        left: Collection[CopyEntry],
        own: Mapping[tuple[str, str], OwnEntry],
        how: Mapping[str, Any],
    ) -> EntryDiff:
        """Returns the differences of copies; the link's positions prove that they are its own."""
        stay = tuple(
            EntryChange("-", entry, due=False, reason=f"gone on the source, and kept here: {reason}")
            for entry, reason in copies.items()
            if reason
        )
        leave: dict[Any, float | None] = {entry: None for entry, reason in copies.items() if not reason}
        leave |= dict.fromkeys(left)
        fresh = {
            key: OwnEntry(of="topic", entry=key[1], timestamp=0)
            for key in (entry_id(entry) for entry in leave)
        }
        return EntryDiff(stay) + entry_changes("topic", {}, leave, {**fresh, **own}, **how)

    # -- writing ---------------------------------------------------------------------------------

    def _allowed(self, due: Sequence[EntryChange], problems: dict[str, MirrorError]) -> list[EntryChange]:
        """Returns the changes whose right on the target's cluster the mirror has; adds an error for the others."""
        barred = set()
        for of, right in _RIGHTS.items():
            if any(entry_kind(change.entry) == of for change in due):
                try:
                    if self._sessions.target.admin.missing_rights([right])[0]:
                        raise self._read.lacking(of)
                except MirrorError as error:
                    problems[f"{of}s"] = error
                    barred.add(of)
        return [change for change in due if entry_kind(change.entry) not in barred]

    def _carried_out(
        self, of: str, changes: Sequence[EntryChange], unsure: set[Any]
    ) -> dict[Any, MirrorError]:
        """
        Carries out changes of a kind: deletions, or others.

        Args:
            unsure: Gets the entries of a request that may have arrived although it failed.

        Returns:
            The error of each entry that is refused.
        """
        if not changes:
            return {}
        target, leave = self._sessions.target, changes[0].sign == "-"
        entries: list[Any] = [one.entry for one in changes]
        try:
            if of == "quota":
                values: dict[Any, float | None] = {one.entry: None if leave else one.value for one in changes}
                return {**set_client_quotas(target, values)}
            if of == "topic":
                # not by name: it may be that of a new copy, if another process forgets the topic meanwhile
                errors = delete_topics(target, {entry.name: entry.topic_id for entry in entries})
                return {entry: errors[entry.name] for entry in entries if entry.name in errors}
            if not leave:
                return {**target.admin.acls.add(entries)}
            refused: dict[Any, MirrorError] = {**target.admin.acls.delete(entries)}
            self._await_gone(frozenset(entries) - refused.keys())
        except MirrorError as error:
            if not isinstance(error, AuthorizationError):
                unsure.update(entries)
            return dict.fromkeys(entries, error)
        return refused

    def _await_gone(self, leaving: Collection[AclEntry]) -> None:
        """Waits until brokers show entries no more: without its record the reverse link would carry one back."""
        deadline = Deadline(_SEEN_SECONDS, self._clock)
        acls = self._sessions.target.admin.acls
        while leaving and not deadline.passed and not frozenset(leaving).isdisjoint(acls.entries() or ()):
            self._clock.sleep(_PAUSE_SECONDS)

    def _write(self, notes: Mapping[tuple[str, str], OwnEntry | None]) -> MirrorError | None:
        """Writes records to control; returns the error if it does not take them."""
        return self._written(
            [(OwnEntry.key_of(*key), None if note is None else note.value()) for key, note in notes.items()]
        )

    def _written(self, records: Sequence[tuple[bytes, bytes | None]]) -> MirrorError | None:
        if not records:
            return None
        target = self._sessions.target
        reason = write_records(
            target.cluster,
            self._names.control_topic,
            records,
            client_id=self._names.client_id("entries"),
            seconds=_WRITE_SECONDS,
        )
        if not reason:
            return None
        return ClusterError(
            f"what the link adds to the target cannot be recorded, so it adds nothing: {reason}",
            fix=f"allow Write on topic {self._names.control_topic}",
        )

    def _log(self, problems: Mapping[str, MirrorError]) -> None:
        """Logs each problem once, for as long as it lasts."""
        texts = {f"{what}: {told(error)}": (what, error) for what, error in problems.items()}
        for text in texts.keys() - self._logged:
            what, error = texts[text]
            log.warning(
                "target_not_kept_alike", link=self._link.name, what=what, reason=error.message, fix=error.fix
            )
        self._logged = set(texts)
