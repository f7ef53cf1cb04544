"""The source's topics that a link matches, as the last request found them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from eomirror.errors import ClusterError, MirrorError
from eomirror.kafka.admin import has_topic
from eomirror.records.names import LinkNames
from eomirror.topics.source_contact import SourceContact
from eomirror.topology.filters import missing_names
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import TopicFacts

__all__ = ["Listing", "SourceTopics"]

log = structlog.get_logger(__name__)


class Listing(NamedTuple):
    """
    Source partitions of all topics that a link matches.

    Attributes:
        as_of: Time before the request, ms since the epoch.
        partitions: Partitions that existed then.
    """

    as_of: int
    partitions: frozenset[SourcePartition]


class SourceTopics:
    """
    Finds the topics that a link matches.

    Args:
        clusters: Clusters of the configuration, which are asked for a topic that another link can create on the source.

    Attributes:
        contact: Time of the source's last answer; other threads may read it.
        listing: Partitions that the last request found, also those of topics that are left out; None before the first
            one.  Other threads may read it.
        found: Names that the last request found.
    """

    def __init__(
        self, link: Link, source: ClusterAdmin, clusters: Mapping[str, Cluster], clock: Clock
    ) -> None:
        self.contact = SourceContact()
        self.listing: Listing | None = None
        self.found: frozenset[str] = frozenset()
        self._link = link
        self._source = source
        self._clusters = clusters
        self._clock = clock
        self._client_id = LinkNames(link.state_name).client_id("finder")

    def names(self) -> list[str]:
        """Returns the names of the source's topics, and records whether it answered."""
        requested = self._clock.monotonic()
        self.contact.asked(requested)
        try:
            names = self._source.topic_names()
        except ClusterError:
            self.contact.failed(requested)
            raise
        self.contact.answered(self._clock.monotonic())
        return names

    def matched(self, names: Iterable[str]) -> list[str]:
        """Returns the names that the link matches."""
        matched = [topic for topic in names if self._link.mirrors(topic)]
        self.found = frozenset(matched)
        return matched

    def describe(self, as_of: int, described: Mapping[str, TopicFacts | None]) -> None:
        """Records the partitions of all topics that match, also of those whose names are refused."""
        nameless = sorted(self.found - described.keys())
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

    def missing(self, names: Sequence[str]) -> dict[str, str]:
        """Returns the topics that are listed by name and that the source lacks, with the recommended action."""
        absent = []
        for topic in missing_names(self._link.topics, self.found):
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
            return has_topic(self._clusters[alias], topic, client_id=self._client_id)
        except MirrorError as error:
            # The link that brings the topic waits for this cluster, and reports it.
            log.debug("topic_not_looked_for", link=self._link.name, topic=topic, reason=error.message)
            return True
