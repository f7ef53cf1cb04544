"""
The configuration as the program sees it: frozen, typed, complete; every default is filled in. Pure.

Plain values without clients, files or locks: the driver pickles clusters and links into Spark tasks.
Durations are seconds.  `eomirror.config.load_config` is the only maker of these types outside of tests.
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
    A Kafka cluster and how to reach it.

    Attributes:
        alias: Its name in this configuration; part of topic names, so it has no dot.
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
        """The first brokers to ask, for messages and logs."""
        return str(self.properties.get("bootstrap.servers", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """
    One direction of mirroring; docs/configuration.md describes the settings.

    Attributes:
        name: ``source->target`` unless the file says otherwise.
        source: Alias of the cluster to read.
        target: Alias of the cluster to write.
        topics: Full-match regular expressions of source topics.
        exclude: Topics to leave out; wins over ``topics``.
        groups: Consumer groups to follow.
        group_interval: Seconds between two looks at where they stand.
        sync_group_offsets: Whether their offsets are committed on the target.
        group_rewind: ``follow`` or ``ignore``.
        group_deletions: ``keep`` or ``delete``.
        naming: How a target topic is called.
        forward: ``auto``, ``local``, or the aliases of the origins to forward.
        lanes: Number of transactional producers.
        plane: ``auto``, ``native`` or ``client``.
        commit_interval: Seconds between commits of a lane that is behind.
        commit_interval_min: Seconds between commits of a lane that has caught up.
        epoch: Seconds that one Spark task runs a lane.
        on_gap: ``stop`` or ``accept``.
        on_refused: ``stop``, ``dead-letter`` or ``raise-limit``.
        raise_limit_to: Largest max.message.bytes that ``raise-limit`` may set; None: the source topic's.
        transaction_timeout: Seconds after which the broker aborts an abandoned transaction.
        start: ``earliest``, ``latest``, or milliseconds since 1970: where the first run begins.
        replication_factor: Of topics that the mirror creates; None: three, or as many brokers as there are.
        provenance: ``auto``, ``on`` or ``off``, as configured; `provenance_header` is the answer.
        heartbeats: ``link``, ``source`` or ``off``.
        offset_syncs: ``target``, ``source`` or ``off``.
        loops: What the topology of all links asks of this one.
        cluster_ids: Ids by alias, as brokers told the driver; empty until then (`origin_ids` needs them).
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
        """Which source topics are mirrored."""
        hops = (self.source, self.target) if self.naming.kind == "prefix" else ()
        if self.naming.kind == "prefix":
            return topic_filter(self.topics, self.exclude, hops)
        # prefixed under every naming, and so they can go round under all but prefixes
        beats = tuple(rf"{alias}\.heartbeats" for alias in (self.source, self.target))
        return topic_filter(self.topics, (*self.exclude, *beats))

    def mirrors(self, topic: str) -> bool:
        """Whether a source topic is mirrored: the filter says so, or the link writes its heartbeats there."""
        if topic == self.target_naming.heartbeats:
            return True
        return self.filter.matches(topic) and not self.beats_for(topic)

    def beats_for(self, topic: str) -> bool:
        """Whether the link's own heartbeats on the target take the name that the copy of a source topic would have."""
        return self.heartbeats == "link" and self._is_beats(topic) and self.beats_on_target

    @property
    def beats_on_target(self) -> bool:
        """
        Whether the link writes heartbeats into ``SOURCE.heartbeats`` on the target.

        A topic that the configuration names, rather than matches by a pattern, is an application's: its copy has that
        name then, and the link's own heartbeats give way.
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
        """Whether a consumer group of the source is followed."""
        return topic_filter(self.groups).accepts(group)

    @property
    def target_naming(self) -> TargetNaming:
        """How target topics are called."""
        beats = Mm2Names().heartbeats if self.heartbeats == "source" else ""
        return TargetNaming(self.naming, self.source, self.target, beats)

    def target_topic(self, topic: str) -> str:
        """
        Name on the target of a source topic.

        Raises:
            TopicError: The naming gives no legal name for this topic.
        """
        return self.target_naming.target_topic(topic)

    @property
    def provenance_header(self) -> bool:
        """Whether the link writes the provenance header into records."""
        return self.loops.provenance_header

    @property
    def guard(self) -> bool:
        """Whether the link looks at where records came from, and drops what would go round."""
        return self.loops.guard

    @property
    def origins(self) -> tuple[str, ...] | None:
        """Aliases of the clusters whose records this link forwards; None: of all."""
        return self.loops.origins

    def origin_ids(self, alias: str, cluster_id: str) -> list[str] | None:
        """
        Ids of the clusters whose records this link forwards; None: of all.

        Args:
            alias: A cluster whose id the caller knows, beside those in ``cluster_ids``.
            cluster_id: Its id.

        Raises:
            StateError: The id of an origin is not known: fill in ``cluster_ids`` first.
        """
        if self.origins is None:
            return None
        known = {**self.cluster_ids, alias: cluster_id}
        missing = [origin for origin in self.origins if origin not in known]
        if missing:
            raise StateError(
                f"link {self.name}: the cluster id of {', '.join(missing)} is not known, whose records it forwards",
                fix="make these clusters reachable from here, or set `forward: local` on the link",
            )
        return [known[origin] for origin in self.origins]


@dataclass(frozen=True, slots=True)
class Config:
    """
    A whole configuration without faults.

    Attributes:
        clusters: Clusters by alias.
        links: Links in the order of the file.
        spark: Properties for the Spark context.  Hidden from repr: values may be secret.
        spark_secrets: Keys of ``spark`` whose values must not be shown.
        warnings: What works but deserves a look.
        origin: File or other place that the configuration came from.
    """

    clusters: Mapping[str, Cluster]
    links: tuple[Link, ...]
    spark: Mapping[str, str] = field(default_factory=FrozenMapping, repr=False)
    spark_secrets: frozenset[str] = frozenset()
    warnings: tuple[Fault, ...] = ()
    origin: str = ""

    def link(self, name: str) -> Link:
        """
        The link of that name.

        Raises:
            UsageError: There is none; names those that exist.
        """
        for link in self.links:
            if name in (link.name, link.state_name):
                return link
        known = ", ".join(link.name for link in self.links)
        raise UsageError(f"there is no link {name!r}", fix=f"name one of: {known}")

    def only_link(self, name: str | None = None) -> Link:
        """
        The link of that name, or the one that there is.

        Raises:
            UsageError: There are several, and none was named; or none has this name.
        """
        if name is not None:
            return self.link(name)
        if len(self.links) != 1:
            raise UsageError(
                "the configuration has several links, and this is done for one of them",
                fix=f"name one: --link with one of {', '.join(link.name for link in self.links)}",
            )
        return self.links[0]
