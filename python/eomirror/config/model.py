"""
Types of a configuration: frozen, complete, with all defaults filled in. Pure.

Plain values without clients, files or locks: the driver pickles clusters and links into Spark tasks.
Durations are seconds.  Outside of tests only `eomirror.config.load_config` creates these types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.config.frozen import FrozenMapping
from eomirror.errors import Fault, StateError, TopicError, UsageError
from eomirror.records.mm2 import Mm2Names
from eomirror.topology.filters import TopicFilter, is_literal, topic_filter
from eomirror.topology.flow import LoopRules
from eomirror.topology.naming import Naming, TargetNaming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config.secret import Secret

__all__ = ["Cluster", "Config", "Link"]


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
    One direction of mirroring; docs/configuration.md describes the settings.

    Attributes:
        name: Name of the link; ``source->target`` by default.
        source: Alias of the cluster to read.
        target: Alias of the cluster to write.
        topics: Full-match regular expressions of source topics.
        exclude: Topics that are not mirrored; wins over ``topics``.
        groups: Consumer groups to follow.
        group_interval: Seconds between two reads of their offsets.
        sync_group_offsets: True to commit their offsets on the target.
        group_rewind: ``follow`` or ``ignore``.
        group_deletions: ``keep`` or ``delete``.
        naming: Naming policy of target topics.
        forward: ``auto``, ``local``, or the aliases of the origins to forward.
        lanes: Number of transactional producers.
        plane: ``auto``, ``native`` or ``client``.
        commit_interval: Seconds between commits of a lane that is behind.
        commit_interval_min: Seconds between commits of a lane that has caught up.
        epoch: Seconds that one Spark task runs a lane.
        on_gap: ``stop`` or ``accept``.
        on_refused: ``stop``, ``dead-letter`` or ``raise-limit``.
        raise_limit_to: Largest max.message.bytes that ``raise-limit`` may set; None: the limit of the source topic.
        transaction_timeout: Seconds after which the broker aborts an abandoned transaction.
        start: Start of the first run: ``earliest``, ``latest``, or milliseconds since 1970.
        replication_factor: Replicas of topics that the mirror creates; None: three, or the number of brokers if less.
        provenance: ``auto``, ``on`` or ``off``, as configured; `provenance_header` is the effective value.
        heartbeats: ``link``, ``source`` or ``off``.
        offset_syncs: ``target``, ``source`` or ``off``.
        loops: Rules that the topology of all links sets for this one.
        cluster_ids: Cluster ids by alias; empty until the driver has read them (`origin_ids` needs them).
    """

    name: str
    source: str
    target: str
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    groups: tuple[str, ...] = (".*",)
    group_interval: float = 1.0
    sync_group_offsets: bool = False
    group_rewind: str = "follow"
    group_deletions: str = "keep"
    naming: Naming = field(default_factory=Naming)
    forward: str | tuple[str, ...] = "auto"
    lanes: int = 2
    plane: str = "auto"
    commit_interval: float = 0.1
    commit_interval_min: float = 0.003
    epoch: float = 300.0
    on_gap: str = "stop"
    on_refused: str = "stop"
    raise_limit_to: int | None = None
    transaction_timeout: float = 15.0
    start: str | int = "earliest"
    replication_factor: int | None = None
    provenance: str = "auto"
    heartbeats: str = "link"
    offset_syncs: str = "target"
    loops: LoopRules = field(default_factory=LoopRules)
    cluster_ids: Mapping[str, str] = field(default_factory=FrozenMapping)

    @property
    def state_name(self) -> str:
        """LINK in the names of the link's own topics and ids (contract.md)."""
        return f"{self.source}.{self.target}" if self.name == f"{self.source}->{self.target}" else self.name

    @property
    def filter(self) -> TopicFilter:
        """Filter of the mirrored source topics."""
        hops = (self.source, self.target) if self.naming.kind == "prefix" else ()
        if self.naming.kind == "prefix":
            return topic_filter(self.topics, self.exclude, hops)
        # heartbeats are prefixed under every naming, so only the prefix naming detects their cycles
        beats = tuple(rf"{alias}\.heartbeats" for alias in (self.source, self.target))
        return topic_filter(self.topics, (*self.exclude, *beats))

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
            return self.target_naming.target_topic(topic) == Mm2Names().remote_heartbeats(self.source)
        except TopicError:
            return False

    def follows(self, group: str) -> bool:
        """Returns True if a consumer group of the source is followed."""
        return topic_filter(self.groups).accepts(group)

    @property
    def target_naming(self) -> TargetNaming:
        """Naming of target topics."""
        beats = Mm2Names().heartbeats if self.heartbeats == "source" else ""
        return TargetNaming(self.naming, self.source, self.target, beats)

    def target_topic(self, topic: str) -> str:
        """
        Returns the target name of a source topic.

        Raises:
            TopicError: The naming gives no legal name for this topic.
        """
        return self.target_naming.target_topic(topic)

    @property
    def provenance_header(self) -> bool:
        """True if the link adds the provenance header to records."""
        return self.loops.provenance_header

    @property
    def guard(self) -> bool:
        """True if the link reads the origin of records and drops those that would go in a cycle."""
        return self.loops.guard

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
