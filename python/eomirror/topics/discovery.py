"""
Finds the topics that a link mirrors, checks all of them, and only then creates their copies.

`Discovery.prepare` runs once when the mirror starts.  It makes every check that leaves no trace before it creates the
first topic, so that a mirror which cannot run leaves nothing behind; the errors that it raises need a person.  A link
that has run before starts nevertheless with the topics that can be served.  `Discovery.refresh` runs every few seconds
while lanes work.  It leaves out a topic that cannot be served, logs that once, and continues with the others: one bad
topic must not stop a thousand good ones.  `Discovery.prepare` leaves it out in the same way, also on a first run: a
name that collides, or a topic that the brokers or a policy refuse.  When it can be served it is mirrored from its
beginning, like any new topic.

A copy that is missing although the link has a position for it was deleted.  It is not created again, because an empty
copy would lack what was mirrored before; its topic is left out until the user adopts it.  A topic whose copy
`deletions: delete` has deleted has no position any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.rights import Right
from eomirror.errors import (
    ClusterError,
    MirrorError,
    QuotaError,
    TopicError,
    UnreachableError,
)
from eomirror.kafka.acls import check_transactional_id
from eomirror.kafka.session import LinkSessions
from eomirror.records.kept_entries import OwnEntry
from eomirror.records.names import LinkNames
from eomirror.topics.acls import check_source_rights, check_target_rights, need
from eomirror.topics.apply import TargetTopics
from eomirror.topics.copies import TopicCopies, copy_names, goes_round, mirrored_again, refuse_same_cluster
from eomirror.topics.diff import Refuse, TopicPair, default_replication_factor
from eomirror.topics.entries import EntryPlan, entry_id
from eomirror.topics.mm2_topics import (
    log_heartbeat_copies,
    mm2_drift,
    mm2_source_topics,
    mm2_target_topics,
    refuse_heartbeat_copies,
)
from eomirror.topics.plan import Plan
from eomirror.topics.skipped import SkippedTopics
from eomirror.topics.source_topics import SourceTopics
from eomirror.topics.state_topics import StateTopicsCheck
from eomirror.topics.target_entries import TargetEntries
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import CreateTopic, TopicFacts
    from eomirror.kafka.session import ClusterSession
    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.position import Position
    from eomirror.topics.diff import Change
    from eomirror.topics.source_topics import Listing, SourceContact
    from eomirror.topics.state_topics import Drift

__all__ = ["Discovery"]

log = structlog.get_logger(__name__)

# All settings of all copies are compared at this interval, or in this share of a core's time: a topic costs 2 ms.
_CONFIGS_SECONDS = 60.0
_CONFIGS_SECONDS_PER_TOPIC = 0.3


class Discovery:
    """
    Finds and prepares the topics of one link.  Not thread-safe.

    Args:
        clusters: Clusters of the configuration, which are asked for a topic that another link can create on the source.
        positions: Reads the link's positions, without those that the user overrules: a missing copy that has one was
            deleted.  None if a missing copy is to be created in any case.

    Attributes:
        cluster_ids: Ids of source and target; known after `prepare` or `plan`.
        contact: Time of the source's last answer; other threads may read it.
        entries: ACL entries, client quotas, and copies whose topic is gone.

    Raises:
        ClusterError: librdkafka refuses a cluster's properties.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterSession,
        target: ClusterSession,
        *,
        clock: Clock = SYSTEM_CLOCK,
        clusters: Mapping[str, Cluster] | None = None,
        positions: Callable[[], Mapping[SourcePartition, Position]] | None = None,
    ) -> None:
        self.cluster_ids = ("", "")
        self._link = link
        self._target_cluster = target.cluster
        self._clock = clock
        self._source, self._target = source.admin, target.admin
        self._found = SourceTopics(link, self._source, clusters or {}, clock)
        self._copies = TopicCopies(link, self._source, self._target, clock, positions)
        self.entries = TargetEntries(
            link, LinkSessions(source, target), positions=positions, topics=self._copies.topics, clock=clock
        )
        self._source_topics = TargetTopics(self._source, link=link.name, clock=clock)
        self._configs_compared = float("-inf")
        self._skipped = SkippedTopics(link.name)
        self._held_until = float("-inf")
        self._named: tuple[tuple[list[str], frozenset[str]], dict[str, str]] | None = None
        self._own = StateTopicsCheck(link, self._target, learn=self._copies.learn_defaults, clock=clock)

    @property
    def contact(self) -> SourceContact:
        """Time of the source's last answer; other threads may read it."""
        return self._found.contact

    @property
    def listing(self) -> Listing | None:
        """Partitions that the last request found; None before the first one.  Other threads may read it."""
        return self._found.listing

    def plan(self) -> Plan:
        """
        Makes every check that leaves no trace, and returns the pending creations and changes.

        Raises:
            ClusterError: A cluster cannot be reached.
            ConfigError: Two aliases are the same cluster, and records would cycle.
            TopicError: A topic cannot have its name on the target.
            AuthorizationError: A right is missing, on either side.
            StateError: The link's state topics are damaged.
        """
        return self._examine(validate=True)[0]

    def apply(self) -> Plan:
        """
        Carries out what `plan` shows, which is returned; a topic that cannot be served is left out, as by `refresh`.

        Raises:
            MirrorError: As for `plan`.
        """
        plan = self.plan()
        self.prepare(strict=False)
        self.entries.apply(plan.entries)
        return plan

    def keep(self) -> tuple[list[tuple[str, str]], EntryPlan | None, dict[str, bytes]]:
        """
        Compares ACL entries, quotas, and copies whose topic is gone, and carries out what differs, if it is time.

        Returns:
            What `TargetEntries.taken` returns, and `TargetEntries.stands`; and the topics that are to leave the link
            with their copies, with the key of their record in control.

        Raises:
            ClusterError: The source does not list its topics.
        """
        created = any(sign == "+" for sign, _ in self._copies.topics.changed)
        self.entries.keep(self._found.listed, self.cluster_ids[0], at_once=created)
        leaving = {
            topic: OwnEntry.key_of(*entry_id(one)) for topic, one in sorted(self.entries.leaving.items())
        }
        return self.entries.taken(), self.entries.stands, leaving

    def forget(self, topics: Collection[str]) -> None:
        """Forgets topics that have left the link; one that is made again is a new one."""
        for entry in self.entries.forget(topics):
            self._copies.topics.lacking.pop(entry.name, None)
        self._copies.forget(topics)

    def differs(self) -> bool:
        """Returns True if the topics of the source have changed; see `SourceTopics.differs`."""
        return self._found.differs()

    def prepare(self, *, strict: bool = True, patient: bool = True) -> tuple[AssignedPartition, ...]:
        """
        Checks everything, then creates missing topics and waits until they can be written.

        Args:
            strict: True if a topic that cannot be served is refused even if the link has run before; otherwise the
                other topics are prepared, and it is left out as by `refresh`.
            patient: True to wait in this call for a quota on topic changes, if the link cannot begin before.

        Returns:
            Every partition to mirror.

        Raises:
            QuotaError: Unless ``patient``: the link cannot begin until a quota allows more topics.
            MirrorError: As for `plan`; also if a transactional.id may not be used.  On a first run no topic was
                created, as far as a quota let the brokers validate all topics.
        """
        while True:
            try:
                return self._prepare(strict=strict)
            except QuotaError as error:
                if not patient:
                    raise
                log.warning("topics_held_back", link=self._link.name, reason=error.message, fix=error.fix)
                self._clock.sleep(error.seconds)

    def _prepare(self, *, strict: bool) -> tuple[AssignedPartition, ...]:
        try:
            plan, pairs = self._examine(validate=False)
        except (TopicError, ClusterError) as error:
            if strict or isinstance(error, UnreachableError) or not all(self.cluster_ids):
                # Also if the cluster ids are not known yet.
                raise
            return self._prepare_others(error)
        self._leave_out(plan, strict=strict)
        names = LinkNames(self._link.state_name)
        if plan.first_run:
            # On a first run no producer uses these ids, so InitProducerId fences none.
            for name in (names.control_transactional_id, names.transactional_id(0)):
                check_transactional_id(
                    self._target_cluster,
                    name,
                    client_id=names.client_id("planner"),
                    transaction_timeout=self._link.transaction_timeout,
                    clock=self._clock,
                )
        self._log_plan(plan)
        # State topics first: if the mirror dies in between, no copy lacks a topic for its positions.
        try:
            self._own.created(self._copies.topics.apply([*plan.state, *plan.readers]))
            self._source_topics.apply(plan.readers_on_source)
        except QuotaError as error:
            raise self._copies.with_count(error, pairs) from error
        begun = (
            not plan.first_run
            and self._copies.topics.has_records(names.control_topic)
            and self.entries.begun()
        )
        # Topics that the first generation of a link lacks begin at their beginning, despite the link's `start`.
        self._apply_all(plan, pairs, strict=strict, wait=not begun and self._link.start != "earliest")
        if strict or not begun:
            return self._copies.assigned(plan.targets)
        return self._copies.led(plan.targets, {topic: pair.source for topic, pair in pairs.items()})

    def _leave_out(self, plan: Plan, *, strict: bool) -> None:
        """Logs topics that cannot be mirrored; raises the first error if ``strict``, or if no others are left."""
        for change in (change for each in plan.changes.values() for change in each):
            if isinstance(change, Refuse):
                refused = TopicError(change.reason, fix=change.fix, topic=change.topic)
                # A deleted copy stops its topic, as lanes do for one that was recreated.
                if change.topic not in self._copies.lost and (strict or not plan.targets):
                    raise refused
                self._skipped.record(change.topic, refused)

    def _log_plan(self, plan: Plan) -> None:
        """Logs what a person may want to know before the link begins."""
        for drift in plan.drifts:
            log.warning(
                "state_topic_drifted",
                link=self._link.name,
                topic=drift.topic,
                setting=drift.setting,
                wanted=drift.wanted,
                found=drift.found,
            )
        for pattern in plan.unmatched(self._link.topics):
            log.warning(
                "pattern_matches_no_topic",
                link=self._link.name,
                pattern=pattern,
                fix="none until a topic of that name appears; patterns are regular expressions: pay.*, not pay*",
            )
        for topic, fix in plan.awaited.items():
            log.warning(
                "topic_awaited",
                link=self._link.name,
                topic=topic,
                reason=f"it does not exist on cluster {self._source.name}",
                fix=fix,
            )
        if not plan.targets and not plan.awaited and not plan.changes:
            log.warning("no_topic_matches", link=self._link.name, topics=list(self._link.topics))

    def _apply_all(self, plan: Plan, pairs: Mapping[str, TopicPair], *, strict: bool, wait: bool) -> None:
        """
        Creates and changes copies; leaves out a topic that the brokers refuse, unless ``strict``.

        Raises:
            QuotaError: A quota delays copies, and the link cannot begin without them: ``strict``, ``wait``, or there
                are no others.
        """
        try:
            refused = self._applied(pairs, {topic: plan.changes[topic] for topic in pairs})
        except ClusterError as error:
            if strict or isinstance(error, UnreachableError):
                raise
            self._refresh_topics({topic: pair.source for topic, pair in pairs.items()}, plan.targets)
            if not self._copies.ready:
                raise
            return
        held = [error for error in refused.values() if isinstance(error, QuotaError)]
        lasting = [error for error in refused.values() if not isinstance(error, QuotaError)]
        if lasting and (strict or not (self._copies.ready or held)):
            raise lasting[0]
        if held and (strict or wait or not self._copies.ready):
            raise held[0]
        self._leave_refused(refused)

    def _prepare_others(self, refused: MirrorError) -> tuple[AssignedPartition, ...]:
        """Prepares the topics that can be served; raises ``refused`` on a first run, or if there are none."""
        # Errors that are not about single topics are fatal here too.  A first run that failed has created topics, and
        # topics that the next run leaves out would later count as new, and begin at their beginning despite the link's
        # `start`.
        state, _, first_run = self._own.compare(brokers=self._copies.brokers)
        control = LinkNames(self._link.state_name).control_topic
        has_records = not first_run and self._copies.topics.has_records(control)
        if not (has_records and self.entries.begun()):
            raise refused
        readers, _ = self._compare_readers(
            self._target, mm2_target_topics(self._link, brokers=self._copies.brokers)
        )
        here = mm2_source_topics(self._link, brokers=self._source.describe_cluster().brokers)
        on_source, _ = self._compare_readers(self._source, here)
        self._own.created(self._copies.topics.apply([*state, *readers]))
        self._source_topics.apply(on_source)
        found = self.refresh()
        if not found:
            raise refused
        log.warning(
            "link_begins_without_some_topics",
            link=self._link.name,
            topics=len({item.source.topic for item in found}),
            reason=refused.message,
            fix=refused.fix,
        )
        return found

    def refresh(self) -> tuple[AssignedPartition, ...]:
        """
        Returns every partition to mirror; topics that appeared or grew have been prepared on the target.

        A topic that cannot be served, or a partition without a leader, is left out.  A recreated source topic is listed
        with its new id: its lane decides about it (EO-5).

        Raises:
            StateError: The link's state topics were deleted or recreated under the running mirror.
            ClusterError: A cluster cannot be reached; the result is unknown.
        """
        self._own.check()
        as_of = self._clock.wall_ms()
        names = self._found.names()
        targets = self._targets(names)
        now = self._clock.monotonic()
        interval = max(_CONFIGS_SECONDS, _CONFIGS_SECONDS_PER_TOPIC * len(targets))
        everything = now - self._configs_compared >= interval
        described = self._found.described(list(targets), everything=everything)
        self._found.describe(as_of, described)
        sources = {topic: facts for topic, facts in described.items() if facts is not None}
        self._copies.ready = {topic: ready for topic, ready in self._copies.ready.items() if topic in sources}
        targets = {topic: name for topic, name in targets.items() if topic in sources}
        held = self._skipped.held() if now < self._held_until else frozenset()
        changed = frozenset() if everything else self._copies.changed_settings(targets)
        looked_at = {
            topic: sources[topic]
            for topic in targets
            if everything
            or topic in changed
            or (topic not in self._copies.ready and topic not in held)
            or (topic in self._copies.ready and self._copies.ready[topic][0] != sources[topic])
        }
        if everything:
            self._configs_compared = now
        if looked_at:
            self._refresh_topics(looked_at, targets)
        return self._copies.led(targets, sources)

    def left_out(self) -> dict[str, MirrorError]:
        """Source topics that the last look could not prepare, with the error; no lane has them."""
        standing = self._skipped.errors.items()
        return {
            topic: error
            for topic, error in standing
            if topic in self._found.found and topic not in self._copies.ready
        }

    def goals(self, *, read_committed: bool = True) -> dict[SourcePartition, int]:
        """
        Returns the end of every mirrored partition.

        Args:
            read_committed: Whether an end is the last stable offset, or else the high watermark.

        Raises:
            ClusterError: The source cannot be reached.
        """
        wanted = dict(self._copies.ready)
        while True:
            partitions = [
                (topic, number)
                for topic, (source, _) in wanted.items()
                for number in range(source.partitions)
            ]
            try:
                found = self._source.offsets(partitions, at="latest", read_committed=read_committed)
            except TopicError as error:
                # Deleted since the last look: it has no end.
                if wanted.pop(error.topic, None) is None:
                    raise
            else:
                return {SourcePartition(*where): offset for where, offset in found.items()}

    # -- checks, in the order in which a person would want to hear of them ------------------------

    def _log_fewer_brokers(self, source: int) -> None:
        """Logs that copies get fewer than three replicas because the target has fewer brokers than the source."""
        if self._link.replication_factor is not None:
            return
        replicas = default_replication_factor(self._copies.brokers)
        if replicas < default_replication_factor(source):
            log.warning(
                "target_has_fewer_brokers",
                link=self._link.name,
                source=source,
                target=self._copies.brokers,
                replicas=replicas,
                fix="add brokers to the target, or set `replication_factor` to say that fewer replicas are meant",
            )

    def _examine(self, *, validate: bool) -> tuple[Plan, dict[str, TopicPair]]:
        """
        Makes every check.

        Args:
            validate: True to let the brokers validate new topics in any case, and not on a first run only: that spends
                a quota on topic changes as the creation does.
        """
        as_of = self._clock.wall_ms()
        source, target = self._source.describe_cluster(), self._target.describe_cluster()
        self.cluster_ids = (source.cluster_id, target.cluster_id)
        self._copies.brokers = target.brokers
        self._log_fewer_brokers(source.brokers)
        names = self._found.names()
        self._named = None
        matched = self._found.matched(names)
        self._skipped.log_names(self._link.filter, names)
        refuse_heartbeat_copies(self._link, self._source, names, self._skipped)
        awaited = self._found.missing(names)
        targets, refused = copy_names(self._link, self._target, matched, self._copies.ready)
        if self.cluster_ids[0] == self.cluster_ids[1]:
            refuse_same_cluster(self._link, self._source, self._target, self.cluster_ids[0], targets)
        check_source_rights(self._link, self._source, matched)
        state, drifts, first_run = self._own.compare(brokers=self._copies.brokers)
        if first_run:
            self._copies.first_run()
        readers, drifts_there = self._compare_readers(
            self._target, mm2_target_topics(self._link, brokers=target.brokers)
        )
        on_source, drifts_here = self._compare_readers(
            self._source, mm2_source_topics(self._link, brokers=source.brokers)
        )
        sources = self._source.describe_topics(list(targets))
        self._found.describe(as_of, sources)
        pairs = self._copies.pairs(
            {topic: facts for topic, facts in sources.items() if facts is not None}, targets
        )
        changes = {topic: self._copies.changes(pair) for topic, pair in pairs.items()}
        flat = [change for each in changes.values() for change in each]
        check_target_rights(self._link, self._target, [*state, *readers, *flat], pairs)
        by_name: dict[str, MirrorError] = {}
        if validate or first_run:
            # The link cannot do without its own topics; of the others one that is refused is left out.
            for error in (
                *self._copies.topics.refused([*state, *readers]),
                *self._source_topics.refused(on_source),
            ):
                raise error
            by_name = {error.topic: error for error in self._copies.topics.refused(flat, spare_settings=True)}
        refused |= {
            change.topic: TopicError(change.reason, fix=change.fix, topic=change.topic)
            for change in flat
            if isinstance(change, Refuse)
        }
        refused |= {topic: by_name[name] for topic, name in targets.items() if name in by_name}
        targets = {topic: name for topic, name in targets.items() if topic not in refused}
        pairs = {topic: pair for topic, pair in pairs.items() if topic not in refused}
        for topic, why in refused.items():
            changes[topic] = (Refuse(topic, why.message, why.fix),)
        drifts = (*drifts, *drifts_there, *drifts_here)
        left_out = self._link.filter.left_out(names)
        listed = self.listing.partitions if self.listing is not None else ()
        partitions = frozenset(each for each in listed if each.topic in targets)
        plan = Plan(
            self.cluster_ids,
            targets,
            state,
            readers,
            on_source,
            drifts,
            changes,
            first_run,
            left_out,
            partitions,
            awaited,
            self.entries.compare(names, source.cluster_id) if validate else EntryPlan(),
        )
        self._configs_compared = self._clock.monotonic()
        return plan, pairs

    def _targets(self, names: list[str]) -> dict[str, str]:
        """Returns the copy of each topic to mirror; names and copies of the last look are not matched again."""
        seen = names, frozenset(self._copies.ready)
        if self._named is None or self._named[0] != seen:
            log_heartbeat_copies(self._link, names, self._skipped)
            matched = self._found.matched(names)
            targets = self._tolerant_names(matched)
            # of a refused topic the target decides, too
            self._named = (seen, targets) if len(targets) == len(matched) else None
            return targets
        return self._named[1]

    def _tolerant_names(self, matched: Sequence[str]) -> dict[str, str]:
        targets, refused = copy_names(self._link, self._target, matched, self._copies.ready)
        for topic, error in refused.items():
            self._skipped.record(topic, error)
        for topic, name in list(targets.items()):
            if self.cluster_ids[0] == self.cluster_ids[1] and goes_round(self._link, topic, name):
                del targets[topic]
                self._skipped.record(topic, mirrored_again(f"topic {topic}", name, topic))
        return targets

    def _compare_readers(
        self, admin: ClusterAdmin, wanted: Sequence[CreateTopic]
    ) -> tuple[tuple[CreateTopic, ...], tuple[Drift, ...]]:
        """Returns the missing topics for MM2's readers, and the drift of existing ones."""
        found = admin.describe_topics([topic.name for topic in wanted])
        existing = [topic for topic in wanted if found[topic.name] is not None]
        for name, rights in admin.topic_rights([topic.name for topic in existing]).items():
            right = Right("Write", "topic", name)
            purpose = "write records for MirrorMaker 2's readers there, unless the link turns that off"
            need(self._link, admin, rights, right, purpose)
        configs = admin.topic_configs([topic.name for topic in existing])
        drifts: list[Drift] = []
        for topic in existing:
            drifts += mm2_drift(topic, {key: entry.value for key, entry in configs[topic.name].items()})
        return tuple(topic for topic in wanted if found[topic.name] is None), tuple(drifts)

    # -- comparing and applying -------------------------------------------------------------------

    def _applied(
        self, pairs: Mapping[str, TopicPair], changes: Mapping[str, Sequence[Change]]
    ) -> dict[str, MirrorError]:
        refused = self._copies.apply(pairs, changes)
        self._skipped.clear(pairs.keys() - refused.keys())
        return refused

    def _leave_refused(self, refused: Mapping[str, MirrorError]) -> None:
        """Logs the topics that the brokers refuse, one by one, and in one line those that wait for a quota."""
        held = [topic for topic, error in refused.items() if isinstance(error, QuotaError)]
        if held:
            error = refused[held[0]]
            self._skipped.hold(held, error)
            seconds = error.seconds if isinstance(error, QuotaError) else 0.0
            self._held_until = self._clock.monotonic() + seconds
        for topic, error in refused.items():
            if topic not in held:
                self._skipped.record(topic, error)

    def _refresh_topics(self, sources: Mapping[str, TopicFacts], targets: Mapping[str, str]) -> None:
        try:
            pairs = self._copies.pairs(sources, targets)
            changes = {topic: self._copies.changes(pair) for topic, pair in pairs.items()}
            self._leave_refused(self._applied(pairs, changes))
        except MirrorError as error:
            if len(sources) == 1:
                self._skipped.record(next(iter(sources)), error)
                return
            # Either a cluster is unreachable, which this request reports once, or one topic makes the request fail for
            # all.
            self._source.describe_cluster()
            self._target.describe_cluster()
            topics = list(sources)
            # By halves: with a thousand topics described one by one, new topics would wait for minutes.
            for half in (topics[: len(topics) // 2], topics[len(topics) // 2 :]):
                self._refresh_topics({topic: sources[topic] for topic in half}, targets)
