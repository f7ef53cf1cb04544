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
copy would lack what was mirrored before; its topic is left out until the user adopts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.rights import Right
from eomirror.errors import (
    ClusterError,
    ConfigError,
    Fault,
    MirrorError,
    QuotaError,
    TopicError,
    UnreachableError,
)
from eomirror.kafka.acls import check_transactional_id
from eomirror.kafka.admin import has_topic
from eomirror.lane.spec import AssignedPartition
from eomirror.records.names import LinkNames
from eomirror.topics.acls import check_source_rights, check_target_rights, need
from eomirror.topics.apply import TargetTopics
from eomirror.topics.bidirectional_configs import BidirectionalConfigs
from eomirror.topics.diff import Refuse, TopicPair, default_replication_factor, topic_changes
from eomirror.topics.mm2_topics import (
    log_heartbeat_copies,
    mm2_drift,
    mm2_source_topics,
    mm2_target_topics,
    refuse_heartbeat_copies,
)
from eomirror.topics.plan import Plan
from eomirror.topics.skipped import SkippedTopics
from eomirror.topics.source_contact import SourceContact
from eomirror.topics.state_topics import StateTopicsCheck
from eomirror.topology.filters import missing_names
from eomirror.topology.naming import collisions
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import ConfigValue, CreateTopic, TopicFacts
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.topics.diff import Change
    from eomirror.topics.state_topics import Drift

__all__ = ["Discovery", "Listing"]

log = structlog.get_logger(__name__)

_CONFIGS_SECONDS = 60.0
# Options to adopt that an error lists: they fill three lines of a terminal.
_MOST_OPTIONS = 12


class Listing(NamedTuple):
    """
    Source partitions of all topics that a link matches.

    Attributes:
        as_of: Time before the request, ms since the epoch.
        partitions: Partitions that existed then.
    """

    as_of: int
    partitions: frozenset[SourcePartition]


class Discovery:
    """
    Finds and prepares the topics of one link.  Not thread-safe.

    Args:
        clusters: Clusters of the configuration, which are asked for a topic that another link can create on the source.
        positions: Reads the link's positions, without those that the user overrules: a missing copy that has one was
            deleted.  None if a missing copy is to be created in any case.

    Attributes:
        contact: Time of the source's last answer; other threads may read it.
        listing: Partitions that the last look found, also those of topics that are left out; None before the first
            look.  Other threads may read it.

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
        self.contact = SourceContact()
        self.listing: Listing | None = None
        self._link = link
        self._target_cluster = target.cluster
        self._clock = clock
        self._clusters = clusters or {}
        self._names = LinkNames(link.state_name)
        self._source, self._target = source.admin, target.admin
        self._topics = TargetTopics(self._target, link=link.name, keyed=link.keyed, clock=clock)
        self._source_topics = TargetTopics(self._source, link=link.name, clock=clock)
        self._ids = ("", "")
        self._brokers = 1
        self._target_defaults: dict[str, str | None] | None = None
        self._ready: dict[str, tuple[TopicFacts, TopicFacts]] = {}
        self._read_positions = positions
        # Id of each source topic and the name of its copy, of every position; read when the first copy is missing.
        self._written: frozenset[tuple[str, str, str]] | None = None
        # Source topics whose copy was deleted after it was mirrored, with their id: it is not created again, empty.
        self._lost: dict[str, str] = {}
        # Names that the last look found.
        self._found: frozenset[str] = frozenset()
        self._configs_compared = float("-inf")
        self._skipped = SkippedTopics(link.name)
        # Copies that exist and topics in all, as the last error of a quota states them.
        self._counted = (0, 0)
        self._held_until = float("-inf")
        self._own = StateTopicsCheck(link, self._target, learn=self._learn_defaults, clock=clock)
        self._both_ways = BidirectionalConfigs(link.loops.onward, goes_first=link.source < link.target)

    @property
    def cluster_ids(self) -> tuple[str, str]:
        """Ids of source and target; known after `prepare` or `plan`."""
        return self._ids

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
        return self._look(validate=True)[0]

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
            plan, pairs = self._look(validate=False)
        except (TopicError, ClusterError) as error:
            if strict or isinstance(error, UnreachableError) or not all(self._ids):
                # Also if the cluster ids are not known yet.
                raise
            return self._prepare_others(error)
        self._leave_out(plan, strict=strict)
        if plan.first_run:
            # On a first run no producer uses these ids, so InitProducerId fences none.
            for name in (self._names.control_transactional_id, self._names.transactional_id(0)):
                check_transactional_id(
                    self._target_cluster,
                    name,
                    client_id=self._names.client_id("planner"),
                    transaction_timeout=self._link.transaction_timeout,
                    clock=self._clock,
                )
        self._tell(plan)
        # State topics first: if the mirror dies in between, no copy lacks a topic for its positions.
        try:
            self._own.created(self._topics.apply([*plan.state, *plan.readers]))
            self._source_topics.apply(plan.readers_on_source)
        except QuotaError as error:
            raise self._with_count(error, pairs) from error
        begun = not plan.first_run and self._topics.has_records(self._names.control_topic)
        # Topics that the first generation of a link lacks begin at their beginning, despite the link's `start`.
        self._apply_all(plan, pairs, strict=strict, wait=not begun and self._link.start != "earliest")
        if strict or not begun:
            return self._assigned(plan.targets)
        return self._led(plan.targets, {topic: pair.source for topic, pair in pairs.items()})

    def _leave_out(self, plan: Plan, *, strict: bool) -> None:
        """Logs topics that cannot be mirrored; raises the first error if ``strict``, or if no others are left."""
        for change in (change for each in plan.changes.values() for change in each):
            if isinstance(change, Refuse):
                refused = TopicError(change.reason, fix=change.fix, topic=change.topic)
                # A deleted copy stops its topic, as lanes do for one that was recreated.
                if change.topic not in self._lost and (strict or not plan.targets):
                    raise refused
                self._skipped.record(change.topic, refused)

    def _tell(self, plan: Plan) -> None:
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
            refused = self._apply(pairs, {topic: plan.changes[topic] for topic in pairs})
        except ClusterError as error:
            if strict or isinstance(error, UnreachableError):
                raise
            self._refresh_topics({topic: pair.source for topic, pair in pairs.items()}, plan.targets)
            if not self._ready:
                raise
            return
        held = [error for error in refused.values() if isinstance(error, QuotaError)]
        lasting = [error for error in refused.values() if not isinstance(error, QuotaError)]
        if lasting and (strict or not (self._ready or held)):
            raise lasting[0]
        if held and (strict or wait or not self._ready):
            raise held[0]
        self._leave_refused(refused)

    def _prepare_others(self, refused: MirrorError) -> tuple[AssignedPartition, ...]:
        """Prepares the topics that can be served; raises ``refused`` on a first run, or if there are none."""
        # Errors that are not about single topics are fatal here too.  A first run that failed has created topics, and
        # topics that the next run leaves out would later count as new, and begin at their beginning despite the link's
        # `start`.
        state, _, first_run = self._own.look(brokers=self._brokers)
        if first_run or not self._topics.has_records(self._names.control_topic):
            raise refused
        readers, _ = self._look_at_readers(self._target, mm2_target_topics(self._link, brokers=self._brokers))
        here = mm2_source_topics(self._link, brokers=self._source.describe_cluster().brokers)
        on_source, _ = self._look_at_readers(self._source, here)
        self._own.created(self._topics.apply([*state, *readers]))
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
        names = self._source_names()
        log_heartbeat_copies(self._link, names, self._skipped)
        targets = self._tolerant_names(self._matched(names))
        described = self._source.describe_topics(list(targets))
        self._list(as_of, described)
        sources = {topic: facts for topic, facts in described.items() if facts is not None}
        self._ready = {topic: ready for topic, ready in self._ready.items() if topic in sources}
        targets = {topic: name for topic, name in targets.items() if topic in sources}
        now = self._clock.monotonic()
        everything = now - self._configs_compared >= _CONFIGS_SECONDS
        held = self._skipped.held() if now < self._held_until else frozenset()
        looked_at = {
            topic: sources[topic]
            for topic in targets
            if everything
            or (topic not in self._ready and topic not in held)
            or (topic in self._ready and self._ready[topic][0] != sources[topic])
        }
        if everything:
            self._configs_compared = now
        if looked_at:
            self._refresh_topics(looked_at, targets)
        return self._led(targets, sources)

    def left_out(self) -> dict[str, MirrorError]:
        """Source topics that the last look could not prepare, with the error; no lane has them."""
        standing = self._skipped.errors.items()
        return {
            topic: error for topic, error in standing if topic in self._found and topic not in self._ready
        }

    def goals(self, *, read_committed: bool = True) -> dict[SourcePartition, int]:
        """
        Returns the end of every mirrored partition.

        Args:
            read_committed: Whether an end is the last stable offset, or else the high watermark.

        Raises:
            ClusterError: The source cannot be reached.
        """
        wanted = dict(self._ready)
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
        replicas = default_replication_factor(self._brokers)
        if replicas < default_replication_factor(source):
            log.warning(
                "target_has_fewer_brokers",
                link=self._link.name,
                source=source,
                target=self._brokers,
                replicas=replicas,
                fix="add brokers to the target, or set `replication_factor` to say that fewer replicas are meant",
            )

    def _look(self, *, validate: bool) -> tuple[Plan, dict[str, TopicPair]]:
        """
        Makes every check.

        Args:
            validate: True to let the brokers validate new topics in any case, and not on a first run only: that spends
                a quota on topic changes as the creation does.
        """
        as_of = self._clock.wall_ms()
        source, target = self._source.describe_cluster(), self._target.describe_cluster()
        self._ids = (source.cluster_id, target.cluster_id)
        self._brokers = target.brokers
        self._log_fewer_brokers(source.brokers)
        names = self._source_names()
        matched = self._matched(names)
        self._skipped.log_names(self._link.filter, names)
        refuse_heartbeat_copies(self._link, self._source, names, self._skipped)
        awaited = self._missing(names)
        targets, refused = self._judged_names(matched)
        self._check_same_cluster(targets)
        check_source_rights(self._link, self._source, matched)
        state, drifts, first_run = self._own.look(brokers=self._brokers)
        if first_run:
            self._written = frozenset()
        readers, drifts_there = self._look_at_readers(
            self._target, mm2_target_topics(self._link, brokers=target.brokers)
        )
        on_source, drifts_here = self._look_at_readers(
            self._source, mm2_source_topics(self._link, brokers=source.brokers)
        )
        sources = self._source.describe_topics(list(targets))
        self._list(as_of, sources)
        pairs = self._pairs({topic: facts for topic, facts in sources.items() if facts is not None}, targets)
        changes = {topic: self._changes(pair) for topic, pair in pairs.items()}
        flat = [change for each in changes.values() for change in each]
        check_target_rights(self._link, self._target, [*state, *readers, *flat], pairs)
        by_name: dict[str, MirrorError] = {}
        if validate or first_run:
            # The link cannot do without its own topics; of the others one that is refused is left out.
            for error in (*self._topics.refused([*state, *readers]), *self._source_topics.refused(on_source)):
                raise error
            by_name = {error.topic: error for error in self._topics.refused(flat, spare_settings=True)}
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
            self._ids,
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
        )
        self._configs_compared = self._clock.monotonic()
        return plan, pairs

    def _source_names(self) -> list[str]:
        """Returns the names of the source's topics, and records whether it answered."""
        asked = self._clock.monotonic()
        self.contact.asked(asked)
        try:
            names = self._source.topic_names()
        except ClusterError:
            self.contact.failed(asked)
            raise
        self.contact.answered(self._clock.monotonic())
        return names

    def _matched(self, names: Iterable[str]) -> list[str]:
        matched = [topic for topic in names if self._link.mirrors(topic)]
        self._found = frozenset(matched)
        return matched

    def _list(self, as_of: int, described: Mapping[str, TopicFacts | None]) -> None:
        """Records the partitions of all topics that match, also of those whose names are refused."""
        nameless = sorted(self._found - described.keys())
        others = self._source.visible_topics(nameless)[0] if nameless else {}
        self.listing = Listing(
            as_of,
            frozenset(
                SourcePartition(topic, number)
                for topic, facts in (*described.items(), *others.items())
                if facts is not None
                for number in range(facts.partitions)
            ),
        )

    def _missing(self, names: Sequence[str]) -> dict[str, str]:
        """Returns the topics that are listed by name and that the source lacks, with the recommended action."""
        absent = []
        for topic in missing_names(self._link.topics, self._found):
            # Listed by name and excluded: the link never mirrors it, whether it exists or not.
            if (reason := self._link.filter.reason(topic)) or topic in names:
                log.warning("topic_never_mirrored", link=self._link.name, topic=topic, reason=reason)
            else:
                absent.append(topic)
        # Brokers hide topics from a principal without rights; asked by name, they report the missing right.
        found = self._source.describe_topics(absent) if absent else {}
        return {topic: self._way_on(topic) for topic in absent if found[topic] is None}

    def _way_on(self, topic: str) -> str:
        """Returns the recommended action for a topic that the source lacks."""
        known = next((each for each in self._link.loops.upstream if each.topic == topic), None)
        place = next(filter(self._may_have, known.places), None) if known is not None else None
        if known is None or place is None:
            return (
                f"none until topic {topic} is created on {self._link.source}: this link mirrors it from then on; if "
                "it was deleted for good, take it out of the link's `topics`"
            )
        return (
            f"none while link {known.link} runs: it brings the topic from {place[0]}, and this link mirrors it from "
            "its beginning"
        )

    def _may_have(self, place: tuple[str, str]) -> bool:
        """Returns False if a cluster of the configuration has answered that it lacks a topic."""
        alias, topic = place
        if alias not in self._clusters:
            return False
        try:
            return has_topic(self._clusters[alias], topic, client_id=self._names.client_id("finder"))
        except MirrorError as error:
            # The link that brings the topic waits for this cluster, and reports it.
            log.debug("topic_not_looked_for", link=self._link.name, topic=topic, reason=error.message)
            return True

    def _judged_names(self, matched: Sequence[str]) -> tuple[dict[str, str], dict[str, MirrorError]]:
        """Returns the names of copies, and the error of each topic that cannot have one."""
        targets: dict[str, str] = {}
        refused: dict[str, MirrorError] = {}
        for topic in matched:
            try:
                targets[topic] = self._link.target_topic(topic)
            except TopicError as error:
                refused[topic] = error
        for collision in collisions(matched, self._link.target_naming):
            # The topic that was mirrored first stays; the new one waits for a person.
            staying = self._staying(collision.sources, targets)
            for topic in collision.sources:
                if topic not in staying and targets.pop(topic, None) is not None:
                    refused[topic] = collision.error(f"link {self._link.name}", self._link.target)
        return targets, refused

    def _tolerant_names(self, matched: Sequence[str]) -> dict[str, str]:
        targets, refused = self._judged_names(matched)
        for topic, error in refused.items():
            self._skipped.record(topic, error)
        for topic, name in list(targets.items()):
            if self._ids[0] == self._ids[1] and self._goes_round(topic, name):
                del targets[topic]
                self._skipped.record(topic, _mirrored_again(f"topic {topic}", name, topic))
        return targets

    def _staying(self, sources: Sequence[str], targets: Mapping[str, str]) -> set[str]:
        """Returns the colliding topics that are mirrored already: by this link, or because their copy exists."""
        staying = {topic for topic in sources if topic in self._ready}
        if staying:
            return staying
        names = {topic: targets[topic] for topic in sources if topic in targets}
        found, _ = self._target.visible_topics(sorted(set(names.values())))
        there = {topic for topic, name in names.items() if found.get(name) is not None}
        # If several would share a copy, its owner is unknown.
        return there if len(there) == 1 else set()

    def _check_same_cluster(self, targets: Mapping[str, str]) -> None:
        if self._ids[0] != self._ids[1]:
            return
        culprit = next((topic for topic, name in targets.items() if self._goes_round(topic, name)), None)
        if culprit is None and self._link.naming.kind != "identity":
            return
        if culprit is not None and self._link.source == self._link.target:
            raise _mirrored_again(f"link {self._link.name}: topic {culprit}", targets[culprit], culprit)
        what = f"topic {culprit} would be written to {targets[culprit]}" if culprit else "no topic is renamed"
        raise ConfigError(
            [
                Fault(
                    f"links.{self._link.name}",
                    f"source {self._source.name} and target {self._target.name} are the same cluster "
                    f"(id {self._ids[0]}), and {what}, which the link would mirror again",
                    "correct bootstrap.servers of one cluster; or, to copy topics within a cluster, rename every "
                    "topic to a name that the link's `topics` do not match",
                )
            ]
        )

    def _goes_round(self, topic: str, name: str) -> bool:
        return topic == name or self._link.filter.accepts(name)

    def _look_at_readers(
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

    def _pairs(self, sources: Mapping[str, TopicFacts], targets: Mapping[str, str]) -> dict[str, TopicPair]:
        names = {topic: targets[topic] for topic in sources}
        copies = self._target.describe_topics(sorted(set(names.values())))
        source_configs = self._source.topic_configs(names)
        target_configs = self._target.topic_configs(
            name for name, facts in copies.items() if facts is not None
        )
        for configs in target_configs.values():
            self._learn_defaults(configs)
        if self._target_defaults is None and sources:
            self._learn_from_a_stranger()
        return {
            topic: TopicPair(
                sources[topic], source_configs[topic], name, copies[name], target_configs.get(name)
            )
            for topic, name in names.items()
        }

    def _learn_defaults(self, configs: Mapping[str, ConfigValue]) -> None:
        """Learns the target's topic defaults from any existing topic."""
        known = self._target_defaults or {}
        found = {key: entry.value if entry.is_default else known.get(key) for key, entry in configs.items()}
        self._target_defaults = {**known, **found}

    def _learn_from_a_stranger(self) -> None:
        # Kafka's internal topics come last: they have many settings of their own, which do not show defaults.
        for name in sorted(self._target.topic_names(), key=lambda name: name.startswith("_"))[:1]:
            try:
                self._learn_defaults(self._target.topic_configs([name])[name])
            except MirrorError as error:
                # Optional: without defaults, more settings than necessary are set on copies.
                log.debug("target_defaults_unknown", link=self._link.name, reason=error.message)

    def _changes(self, pair: TopicPair) -> tuple[Change, ...]:
        topic, topic_id = pair.source.name, pair.source.topic_id
        if pair.target is not None:
            self._lost.pop(topic, None)
        elif self._lost.get(topic) == topic_id:
            return (_copy_deleted(pair),)
        elif (ready := self._ready.get(topic)) is not None and ready[0].topic_id == topic_id:
            # Refused by the next look: a broker that has just come back may describe an old state of the cluster.
            self._lost[topic] = topic_id
            del self._ready[topic]
            return ()
        elif self._was_written(pair):
            self._lost[topic] = topic_id
            return (_copy_deleted(pair),)
        changes = topic_changes(
            pair,
            brokers=self._brokers,
            replication_factor=self._link.replication_factor,
            target_defaults=self._target_defaults,
            added_header=self._link.provenance_header or self._link.origin_header,
            guard=self._link.guard,
            aggregate=self._link.aggregate,
            keyed=self._link.keyed,
            target_partitions=self._link.target_partitions,
            sync=self._link.sync_topic_configs,
            excluded=self._link.leaves_config,
        )
        return self._both_ways.carried(pair, changes)

    def _was_written(self, pair: TopicPair) -> bool:
        """Returns True if the link has a position for a copy that is missing."""
        if self._read_positions is None:
            return False
        if self._written is None:
            self._written = frozenset(
                (one.topic, one.topic_id, one.target_topic) for one in self._read_positions().values()
            )
        return (pair.source.name, pair.source.topic_id, pair.name) in self._written

    def _apply(
        self, pairs: Mapping[str, TopicPair], changes: Mapping[str, Sequence[Change]]
    ) -> dict[str, MirrorError]:
        """Creates and changes copies; returns the error of each source topic whose copy is refused or has to wait."""
        errors: list[MirrorError] = []
        fresh = self._topics.apply([change for each in changes.values() for change in each], refused=errors)
        by_name = {error.topic: error for error in errors}
        # A copy that another process created since our look has settled as well.
        missing = {
            pair.name: 1 if self._link.keyed else pair.source.partitions
            for pair in pairs.values()
            if pair.target is None
            and pair.name not in fresh
            and pair.name not in by_name
            and changes[pair.source.name]
        }
        fresh.update(self._topics.settle(missing))
        for topic, pair in pairs.items():
            copy = fresh.get(pair.name, pair.target)
            if copy is not None:
                self._ready[topic] = (pair.source, copy)
            if pair.name not in by_name:
                self._both_ways.note(pair, changes[topic])
        refused = {topic: by_name[pair.name] for topic, pair in pairs.items() if pair.name in by_name}
        self._skipped.clear(pairs.keys() - refused.keys())
        quotas = [error for error in refused.values() if isinstance(error, QuotaError)]
        held = self._with_count(quotas[0], pairs) if quotas else None
        return {
            topic: held
            if held is not None and isinstance(error, QuotaError)
            else TopicError(error.message, fix=error.fix, topic=topic)
            for topic, error in refused.items()
        }

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

    def _with_count(self, error: QuotaError, pairs: Mapping[str, TopicPair]) -> QuotaError:
        """Returns the error with the number of copies that exist; of many it changes with each tenth part only."""
        waiting = {topic for topic, pair in pairs.items() if pair.target is None and topic not in self._ready}
        there = {topic for topic, pair in pairs.items() if pair.target is not None} | self._ready.keys()
        count, total = len(there), len(there | waiting)
        if total != self._counted[1] or not 0 <= count - self._counted[0] < max(1, total // 10):
            self._counted = count, total
        count, total = self._counted
        return QuotaError(
            f"{error.message}: {count} of {total} topics created",
            seconds=error.seconds,
            fix=error.fix,
        )

    def _refresh_topics(self, sources: Mapping[str, TopicFacts], targets: Mapping[str, str]) -> None:
        try:
            pairs = self._pairs(sources, targets)
            self._leave_refused(
                self._apply(pairs, {topic: self._changes(pair) for topic, pair in pairs.items()})
            )
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

    def _assigned(self, targets: Mapping[str, str]) -> tuple[AssignedPartition, ...]:
        return tuple(
            AssignedPartition(SourcePartition(topic, number), source.topic_id, name, copy.topic_id)
            for topic, name in sorted(targets.items())
            if topic in self._ready
            for source, copy in [self._ready[topic]]
            for number in range(
                source.partitions if self._link.keyed else min(source.partitions, copy.partitions)
            )
        )

    def _led(
        self, targets: Mapping[str, str], sources: Mapping[str, TopicFacts]
    ) -> tuple[AssignedPartition, ...]:
        """Returns the partitions that have a leader; the start of the others is unknown until they have one."""
        return tuple(
            item
            for item in self._assigned(targets)
            if item.source.partition not in sources[item.source.topic].leaderless
        )


def _copy_deleted(pair: TopicPair) -> Refuse:
    """Returns the refusal of a topic whose copy was deleted after the link mirrored it (EO-5)."""
    topic = pair.source.name
    options = " ".join(
        f"--resume-at {topic}-{number}=0" for number in range(min(pair.source.partitions, _MOST_OPTIONS))
    )
    more = (
        f" and so on up to {topic}-{pair.source.partitions - 1}"
        if pair.source.partitions > _MOST_OPTIONS
        else ""
    )
    return Refuse(
        topic,
        f"topic {topic}: the target topic {pair.name} was deleted; it is not created again, because an empty copy "
        "would lack the records that were mirrored before",
        f"to fill a new copy from the source's beginning, stop the mirror and start it once with "
        f"`eomirror run CONFIG {options}{more}`; or put the topic under the link's `exclude`",
    )


def _mirrored_again(what: str, name: str, topic: str) -> TopicError:
    """Returns the error of a topic whose copy on the same cluster is a source topic of the link as well."""
    return TopicError(
        f"{what} would be written to {name}, and mirrored again and again: source and target are the same cluster",
        fix="put it under the link's `exclude`",
        topic=topic,
    )
