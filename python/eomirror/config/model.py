"""
Types of a configuration: frozen, complete, with all defaults filled in. Pure.

Plain values without clients, files or locks: the driver pickles clusters and links into Spark tasks.
Durations are seconds.  Outside of tests only `eomirror.config.load_config` creates these types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from eomirror.config.schemas import SCHEMAS, SchemaMirror
from eomirror.config.transform import transform_of
from eomirror.config.values import (
    ACLS,
    ALIAS,
    FLAG,
    FLAG_ON,
    FORWARD,
    LINK_NAME,
    NAMING,
    START,
    TRANSFORM,
    choice,
    described,
    duration,
    integer,
    patterns,
    setting,
    settings_of,
)
from eomirror.errors import Fault, StateError, TopicError, UsageError
from eomirror.records.mm2 import Mm2Names
from eomirror.topology.filters import TopicFilter, is_literal, topic_filter
from eomirror.topology.flow import LoopRules
from eomirror.topology.naming import Naming, TargetNaming

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eomirror._native import Transform
    from eomirror.config.acl_rules import AclRule
    from eomirror.config.secret import Secret
    from eomirror.config.transform import Rule

__all__ = [
    "LINK_SETTINGS",
    "Cluster",
    "Config",
    "FrozenMapping",
    "Link",
    "require_mapped",
    "require_untransformed",
]

Value = TypeVar("Value")


class FrozenMapping(Mapping[str, Value], Generic[Value]):
    """Immutable mapping from text, in insertion order."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Value] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __hash__(self) -> int:
        return hash(tuple(sorted((key, hash(value)) for key, value in self._items.items())))

    def __reduce__(self) -> tuple[type[FrozenMapping[Value]], tuple[dict[str, Value]]]:
        return (type(self), (self._items,))


@dataclass(frozen=True, slots=True)
class Cluster:
    """
    A Kafka cluster with its client properties.

    Attributes:
        alias: Name in this configuration; part of topic names, so it has no dot.
        properties: librdkafka properties of every client; secrets are `Secret`.
        consumer: Further properties of consumers only.
        producer: Further properties of producers only.
    """

    alias: str
    properties: Mapping[str, str | Secret]
    consumer: Mapping[str, str | Secret] = field(default_factory=FrozenMapping)
    producer: Mapping[str, str | Secret] = field(default_factory=FrozenMapping)

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap brokers, for messages and logs."""
        return str(self.properties.get("bootstrap.servers", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """
    One direction of mirroring.

    The fields declare the settings of a link: `eomirror.config.load` parses by them, `eomirror.config.schema` publishes
    them, and docs/configuration.md is generated from them.

    Reason for its size: one field for each setting, in one flat section as in the file.

    Attributes:
        loops: Rules that the topology of all links sets for this one: `provenance_header`, `guard` and `origins`.
        cluster_ids: Cluster ids by alias; empty until the driver has read them (`origin_ids` needs them).
        slow: Reason why the client plane serves although the native plane could; empty for none.
    """

    source: str = field(metadata=described(ALIAS, "Alias of the cluster to read.", shareable=False))
    target: str = field(metadata=described(ALIAS, "Alias of the cluster to write.", shareable=False))
    name: str = field(
        metadata=described(
            LINK_NAME,
            "Name of the link, part of its state topics' names. Changing it starts a new link without positions.",
            shareable=False,
        )
    )
    topics: tuple[str, ...] = field(
        metadata=described(
            patterns(),
            "Full-match regular expressions of source topics (syntax of the Rust regex crate, no look-around). A topic "
            "that is listed by its name has to exist on the source when the link starts, or on a cluster from which "
            "other links of the file bring it there.",
        )
    )
    exclude: tuple[str, ...] = setting(
        patterns([]),
        "Topics that are not mirrored, even if `topics` matches them. Internal topics are never mirrored.",
    )
    naming: Naming = setting(  # noqa: RUF009  the call returns a dataclass field
        NAMING,
        "Name of a topic on the target: `prefix` (east.orders), `identity`, "
        '`{separator: "_"}` (east_orders, and MirrorMaker 2\'s separator in the names of topics for its readers; also '
        "with `policy: identity`, and with `separator_for_internal: false`), "
        '`{pattern: "{source}_{topic}"}`, `{match: "(.*)_REPLICA", to: "$1"}` or `{map: {a: b}}`. '
        "A topic that `match` or `map` does not cover is an error of that topic. "
        "Links whose target names would grow without end are refused.",
    )
    aggregate: bool = setting(
        FLAG,
        "States that copies hold the records of several links, each in its order, which is otherwise warned of. "
        "Settings of an existing copy are then only extended: it keeps records at least as long as each source.",
    )
    origin_header: bool = setting(
        FLAG,
        "Adds the header `eomirror.origin` with its place on the source to each record, as text: "
        "`SOURCE/TOPIC/PARTITION/OFFSET`. It replaces a header of this name. The native plane then rewrites each batch "
        "instead of passing it on.",
    )
    partitions: str = setting(
        choice("preserve", "keyed"),
        "Target partition of a record: `preserve`: the number of its source partition; `keyed`: chosen by its key like "
        "Java's producers do (murmur2 modulo the number of target partitions), and by its source partition modulo that "
        "number if it has no key. A keyed link requires `origin_header: true`, serves one way only, and has no "
        "translation of consumer-group offsets.",
    )
    target_partitions: int | None = setting(
        integer(None, 1, 100_000),
        "Number of partitions of a target topic that a link with `partitions: keyed` creates; unset: that of the "
        "source topic. An existing topic keeps its number.",
    )
    forward: str | tuple[str, ...] = setting(
        FORWARD,
        "Origin clusters whose records the link forwards if several clusters use equal names: `auto` (one tree per "
        "origin, built from all links of the file), `local` (records written on the source), or a list of aliases.",
    )
    transform: tuple[Rule, ...] = setting(
        TRANSFORM,
        "Rules that leave records out and change keys, headers and JSON fields of others, in this order, before they "
        "reach the target; or a query of Spark in their place, `{sql: ...}` or `{python: MODULE:FUNCTION}`: "
        "[transform](transform.md).",
    )
    on_unreadable: str = setting(
        choice("stop", "drop", "keep"),
        "Reaction to a record whose value is no JSON, where a rule of `transform` reads a field: `stop` the topic; "
        "`drop` the record; or `keep` it, with a value that is *not masked*.",
    )
    schemas: SchemaMirror | None = field(
        default=None,
        metadata=described(
            SCHEMAS,
            "Schema registries to mirror through their API: `{source: URL, target: URL}`, or with a login, TLS, "
            "`subjects`, `exclude`, `context`, `interval` and `deletions`: [schemas](schemas.md). `false`: none.",
            shareable=False,
        ),
    )
    groups: tuple[str, ...] = setting(
        patterns([".*"], of="group"),
        "Full-match regular expressions of consumer groups of the source to follow: their offsets are translated and "
        "written as MirrorMaker 2 checkpoints to `SOURCE.checkpoints.internal`; `[]` for none. Share groups have no "
        "offsets and are not followed.",
    )
    exclude_groups: tuple[str, ...] = setting(
        patterns([], of="group"),
        "Full-match regular expressions of groups that are not followed, even if `groups` matches them.",
    )
    group_interval: float = setting(
        duration("1s", 0.1, 3600),
        "Interval at which group offsets are read from the source; 3 s at least while it has no group to follow. With "
        "so many groups that a read takes longer, the next one follows at once; the progress shows the age of the "
        "offsets.",
    )
    sync_group_offsets: bool = setting(
        FLAG,
        "Commits translated offsets for the group of the same name on the target, so that a consumer that moves there "
        "resumes without a code change. Only while that group has no member. Off by default, as in MirrorMaker 2: a "
        "group of that name may be another application, which would then skip records.",
    )
    group_rewind: str = setting(
        choice("follow", "ignore"),
        "Effect on the target group when a group is reset to earlier offsets on the source: `follow` resets it too, if "
        "its offsets are still those that the link committed; `ignore` keeps them.",
    )
    group_deletions: str = setting(
        choice("keep", "delete"),
        "Effect on the target group when a group, or all of its offsets, were deleted or have expired on the source: "
        "`keep`, or `delete` it too. `delete` requires `sync_group_offsets` and the ACL to delete groups on the "
        "target. It deletes only groups without members whose offsets are all those that the link committed.",
    )
    lanes: int = setting(integer(2, 1, 256), "Number of transactional producers that share the partitions.")
    balance: str = setting(
        choice("count", "bytes"),
        "Lanes of partitions: `count` spreads them by number, and they stay; `bytes` spreads them by bytes, and a lane "
        "that is behind gives some to one that keeps up, while both run.",
    )
    plane: str = setting(
        choice("auto", "native", "client"),
        "Data plane: `client` (librdkafka), `native` (copies whole batches, in Rust), or `auto`: native if possible, "
        "else client, with the reason in the log.",
    )
    commit_interval: float = setting(
        duration("100ms", 0.001, 900),
        "Time between commits of a lane that is behind; at most a quarter of `transaction_timeout`.",
    )
    commit_interval_min: float = setting(
        duration("3ms", 0.001, 900),
        "Time between commits of a lane that has caught up; at most `commit_interval`.",
    )
    epoch: float = setting(
        duration("300s", 5, 86_400),
        "Time that one Spark task runs a lane before the next task continues it; below 20s throughput suffers.",
    )
    on_gap: str = setting(
        choice("stop", "accept"),
        "Reaction if the source lost records before they were mirrored: `stop` the topic (exit 4), or `accept`: record "
        "the gap and continue after it.",
    )
    on_refused: str = setting(
        choice("stop", "dead-letter", "raise-limit"),
        "Reaction to a record that the target refuses for its size, its timestamp or its missing key: `stop` the topic "
        "and report the record; `dead-letter`: skip it, with a reference to it (and the record, if it fits) in topic "
        "`eomirror.LINK.dead-letter`; or `raise-limit`: raise the target topic's `max.message.bytes` and send it again "
        "(needs AlterConfigs; stops the topic if size is not the reason).",
    )
    raise_limit_to: int | None = setting(
        integer(None, 1, 2_147_483_647),
        "Largest `max.message.bytes` that `on_refused: raise-limit` may set; unset: the limit of the source topic. A "
        "record that was compressed on the source needs more, unless this link's producer compresses too.",
    )
    transaction_timeout: float = setting(
        duration("15s", 1, 3600),
        "Time after which the broker aborts an abandoned transaction; until then read_committed consumers do not get "
        "later records. Brokers refuse more than their transaction.max.timeout.ms (15 minutes by default).",
    )
    start: str | int = setting(
        START,
        "Start offset of the first run of the link: `earliest`, `latest`, an ISO 8601 time with its zone, or "
        "milliseconds since 1970. Topics and partitions that appear later are mirrored from their beginning.",
    )
    replication_factor: int | None = setting(
        integer(None, 1, 100),
        "Replication factor of topics that the mirror creates; unset: three, or the number of brokers if smaller.",
    )
    sync_topic_configs: bool = setting(
        FLAG_ON,
        "Applies changes of the source topics' settings to existing copies, and restores what was changed there. "
        "`false`: settings are set when a copy is created, and never changed.",
    )
    exclude_configs: tuple[str, ...] = setting(
        patterns([], of="setting"),
        "Full-match regular expressions of topic settings that belong to the target: not set on a new copy, and not "
        "changed. Throttles, tiering, `min.insync.replicas` and `unclean.leader.election.enable` always do.",
    )
    acls: bool | tuple[AclRule, ...] = setting(
        ACLS,
        "ACL entries that are carried to the target: `true`: MirrorMaker 2's profile, which is the literal entries of "
        "mirrored topics, without ALLOW Write, and with ALLOW All as Read; or a list of rules, each with `type` "
        "(topic, group), `name`, `operation`, `permission` and `principal`. Only entries that the link "
        "has added are removed, as `deletions` says.",
    )
    quotas: bool = setting(
        FLAG,
        "Carries client quotas of users and client ids to the target. A value that another hand has set there stays.",
    )
    deletions: str = setting(
        choice("report", "ignore", "delete"),
        "Effect on the target when a topic is gone on the source, and when an ACL entry or a quota that the link has "
        "added is: `report` it in `plan`, `ignore` it, or `delete` it there after `deletion_delay`. Nothing that the "
        "link did not make is deleted.",
    )
    deletion_delay: float = setting(
        duration("24h", 0, 30 * 86_400),
        "Time for which something has to be gone on the source before `deletions: delete` deletes it on the target.",
    )
    provenance: str = setting(
        choice("auto", "on", "off"),
        "Adds a header with their origin to mirrored records; `auto`: only if the links of this file let a record "
        "return or arrive twice under an equal name, or if the link has added it before.",
    )
    heartbeats: str = setting(
        choice("link", "source", "off"),
        "Topic of MirrorMaker 2's heartbeats, one a second: `link`: `SOURCE.heartbeats` on the target; `source`: "
        "`heartbeats` on the source, mirrored like any record, so that they prove the whole path; `off`: none.",
    )
    offset_syncs: str = setting(
        choice("target", "source", "off"),
        "Topic of MirrorMaker 2's offset syncs: `target`: `mm2-offset-syncs.SOURCE.internal` on the target, in the "
        "transaction of the records they name; `source`: `mm2-offset-syncs.TARGET.internal` on the source, after the "
        "commit; `off`: none. eomirror's own offset translation does not need them.",
    )
    loops: LoopRules = field(default_factory=LoopRules)
    cluster_ids: Mapping[str, str] = field(default_factory=FrozenMapping)
    slow: str = ""

    @property
    def state_name(self) -> str:
        """LINK in the names of the link's own topics and ids (contract.md)."""
        return f"{self.source}.{self.target}" if self.name == f"{self.source}->{self.target}" else self.name

    @property
    def filter(self) -> TopicFilter:
        """Filter of the mirrored source topics."""
        separator = self.naming.separator
        if self.naming.kind == "prefix":
            return topic_filter(self.topics, self.exclude, (self.target,), separator)
        # heartbeats are prefixed under every naming, so only the prefix naming detects their cycles
        ends = (self.source, self.target)
        beats = tuple(re.escape(self.mm2_names.remote_heartbeats(alias)) for alias in ends)
        return topic_filter(self.topics, (*self.exclude, *beats), (), separator)

    @property
    def mm2_names(self) -> Mm2Names:
        """Names of the topics that the link writes for MirrorMaker 2's readers."""
        return Mm2Names(self.naming.separator, self.naming.separator_for_internal)

    def mirrors(self, topic: str) -> bool:
        """Returns True if the filter matches a source topic, or the link writes its heartbeats there."""
        if topic == self.target_naming.heartbeats:
            return True
        return self.filter.matches(topic) and not self.beats_for(topic)

    def beats_for(self, topic: str) -> bool:
        """Returns True if the link's heartbeats topic on the target has the target name of this source topic."""
        return self.heartbeats == "link" and self._is_beats(topic) and self.beats_on_target

    @property
    def beats_on_target(self) -> bool:
        """
        True if the link writes heartbeats to ``SOURCE.heartbeats`` on the target.

        A topic that the configuration lists by its literal name belongs to an application.  If its target name is that
        of the heartbeats, the link writes no heartbeats.
        """
        named = (pattern for pattern in self.topics if is_literal(pattern))
        return self.heartbeats == "link" and not any(
            self._is_beats(topic) and self.filter.matches(topic) for topic in named
        )

    def _is_beats(self, topic: str) -> bool:
        try:
            return self.target_naming.target_topic(topic) == self.mm2_names.remote_heartbeats(self.source)
        except TopicError:
            return False

    def follows(self, group: str) -> bool:
        """Returns True if a consumer group of the source is followed."""
        return topic_filter(self.groups, self.exclude_groups).accepts(group)

    def leaves_config(self, name: str) -> bool:
        """Returns True if a setting of copies belongs to the target."""
        return topic_filter(self.exclude_configs).accepts(name)

    @property
    def target_naming(self) -> TargetNaming:
        """Naming of target topics."""
        beats = self.mm2_names.heartbeats if self.heartbeats == "source" else ""
        return TargetNaming(self.naming, self.source, self.target, beats)

    def target_topic(self, topic: str) -> str:
        """
        Returns the target name of a source topic.

        Raises:
            TopicError: The naming gives no legal name for this topic.
        """
        return self.target_naming.target_topic(topic)

    @property
    def keyed(self) -> bool:
        """True if records are placed by key: a source partition has several target partitions."""
        return self.partitions == "keyed"

    @property
    def query(self) -> Rule | None:
        """Query of Spark in place of rules; None for a link whose lanes move the records."""
        return self.transform[0] if self.transform and self.transform[0].query else None

    @property
    def producers(self) -> int:
        """Number of transactional producers: one for each lane, or one for a query."""
        return 1 if self.query is not None else self.lanes

    def compiled(self) -> Transform | None:
        """Returns the rules of the transform as the extension applies them; None without rules."""
        return transform_of(self.transform, self.on_unreadable)

    @property
    def masks(self) -> bool:
        """True if rules change records: no digest of an original may reach the target, where it would prove a guess."""
        return any(not rule.drops for rule in self.transform)

    @property
    def remark(self) -> str:
        """Restriction that the link's settings imply, for plan, check, run and status; empty for none."""
        if self.query is not None:
            return (
                f"transform: {self.query.kind}: a query of Spark writes the records; offsets of consumer groups are "
                "not translated, and verify does not compare"
            )
        if not self.keyed:
            return self.slow
        unmapped = "partitions: keyed: offsets of consumer groups are not translated"
        return f"{unmapped}; {self.slow}" if self.slow else unmapped

    @property
    def provenance_header(self) -> bool:
        """True if the link adds the provenance header to records."""
        return self.loops.provenance_header

    @property
    def guard(self) -> bool:
        """True if the link reads the origin of records and drops those that would go in a cycle."""
        return self.loops.guard

    @property
    def deletes_copies(self) -> bool:
        """True if a topic that is gone leaves the link with its copy, which holds no records of others."""
        return self.deletions == "delete" and not (self.guard or self.aggregate)

    @property
    def drops(self) -> bool:
        """True if lanes drop records by their origin: the link has the guard, and copies nothing back whole."""
        return self.loops.guard and not self.loops.whole

    @property
    def origins(self) -> tuple[str, ...] | None:
        """Aliases of the clusters whose records this link forwards; None for all."""
        return self.loops.origins

    def origin_ids(self, alias: str, cluster_id: str) -> list[str] | None:
        """
        Returns the ids of the clusters whose records this link forwards; None for all.

        Args:
            alias: Alias of a cluster whose id the caller knows, beside those in ``cluster_ids``.
            cluster_id: Id of that cluster.

        Raises:
            StateError: The id of an origin is not known: fill in ``cluster_ids`` first.
        """
        if self.origins is None:
            return None
        known = {**self.cluster_ids, alias: cluster_id}
        missing = [origin for origin in self.origins if origin not in known]
        if missing:
            raise StateError(
                f"link {self.name} forwards records of {', '.join(missing)}, whose cluster id is not known",
                fix="make these clusters reachable from here, or set `forward: local` on the link",
            )
        return [known[origin] for origin in self.origins]


#: Settings of a link by name, in the order of the documentation.
LINK_SETTINGS = settings_of(Link)


def require_mapped(links: Iterable[Link]) -> None:
    """
    Raises if a link has no offset map.

    Raises:
        UsageError: Its records are placed by key.
    """
    for link in links:
        if link.query is not None:
            raise UsageError(
                f"link {link.name} is a query (transform: {link.query.kind}), which may write any number of records "
                "for one: it has no offset map, and this command needs one",
                fix="let consumers of the target find their place by time",
            )
        if link.keyed:
            raise UsageError(
                f"link {link.name} places records by key (partitions: keyed): one offset of the source stands for an "
                "offset in each target partition, so the link has no offset map, and this command needs one",
                fix="let consumers of the target find their place by time, or by the header eomirror.origin",
            )


def require_untransformed(link: Link, command: str) -> None:
    """
    Raises if the link has rules that leave records out or change them.

    Args:
        command: What was asked for, for the message.

    Raises:
        UsageError: It has.
    """
    if link.transform:
        raise UsageError(
            f"link {link.name} has a transform, so its copies are not what its source has: {command} would compare "
            "both, or write what is masked or left out over the originals",
            fix="move applications with `cutover` or `promote`, and mirror back by a link of its own to other topics",
        )


@dataclass(frozen=True, slots=True)
class Config:
    """
    A configuration without faults.

    Attributes:
        clusters: Clusters by alias.
        links: Links in the order of the file.
        spark: Properties for the Spark context.  Hidden from repr: values may be secret.
        spark_secrets: Keys of ``spark`` whose values must not be shown.
        warnings: Warnings about valid settings.
        origin: File that the configuration came from; empty for plain values.
    """

    clusters: Mapping[str, Cluster]
    links: tuple[Link, ...]
    spark: Mapping[str, str] = field(default_factory=FrozenMapping, repr=False)
    spark_secrets: frozenset[str] = frozenset()
    warnings: tuple[Fault, ...] = ()
    origin: str = ""

    @property
    def unused_clusters(self) -> tuple[str, ...]:
        """Aliases of clusters that no link reads, writes or names as an origin."""
        used = {alias for link in self.links for alias in (link.source, link.target, *(link.origins or ()))}
        return tuple(alias for alias in self.clusters if alias not in used)

    def chosen(self, names: Iterable[str]) -> list[Link]:
        """
        Returns the links of these names; all links without names.

        Raises:
            UsageError: There is no link of a name.
        """
        return [self.link(name) for name in names] or list(self.links)

    def link(self, name: str) -> Link:
        """
        Returns the link of that name.

        Raises:
            UsageError: There is none; names the existing links.
        """
        for link in self.links:
            if name in (link.name, link.state_name):
                return link
        known = ", ".join(link.name for link in self.links)
        raise UsageError(f"there is no link {name!r}", fix=f"name one of: {known}")

    def mapped_link(self, name: str | None = None) -> Link:
        """
        Returns the same link as `only_link`, for a command that needs an offset map.

        Raises:
            UsageError: As `only_link`; or the link's records are placed by key.
        """
        link = self.only_link(name)
        require_mapped([link])
        return link

    def mapped_links(self, name: str | None = None) -> list[Link]:
        """
        Returns the link of that name; with None, all links that have an offset map.

        Raises:
            UsageError: No link has this name, or there is no offset map.
        """
        found = [self.link(name)] if name is not None else [each for each in self.links if not each.keyed]
        require_mapped(found or self.links)
        return found

    def only_link(self, name: str | None = None) -> Link:
        """
        Returns the link of that name; with None, the only link.

        Raises:
            UsageError: No link has this name, or ``name`` is None and the configuration has several links.
        """
        if name is not None:
            return self.link(name)
        if len(self.links) != 1:
            raise UsageError(
                "the configuration has several links, but this command works on one",
                fix=f"add --link with one of: {', '.join(link.name for link in self.links)}",
            )
        return self.links[0]
