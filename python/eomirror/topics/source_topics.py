"""The source's topics that a link matches, as the last request found them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from eomirror.errors import ClusterError, MirrorError
from eomirror.kafka.admin import has_topic
from eomirror.records.names import LinkNames
from eomirror.topology.filters import missing_names
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import TopicFacts, TopicShape

__all__ = ["PATIENCE_SECONDS", "Listing", "SourceContact", "SourceTopics"]

log = structlog.get_logger(__name__)


# So many topics are listed between two refreshes.
_MOST_LISTED = 200


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
        # As the last listing, and the last descriptions, have them.
        self._shapes: Mapping[str, TopicShape | None] = {}
        self._described: dict[str, TopicFacts | None] = {}
        self._listed: Mapping[str, TopicFacts | None] = {}
        self._client_id = LinkNames(link.state_name).client_id("finder")

    @property
    def listed(self) -> list[str]:
        """Names of the source's topics, as the last request found them; sorted."""
        return sorted(self._shapes)

    def names(self) -> list[str]:
        """Returns the names of the source's topics, and records whether it answered."""
        requested = self._clock.monotonic()
        self.contact.asked(requested)
        try:
            self._shapes = self._source.topic_shapes()
        except ClusterError:
            self.contact.failed(requested)
            raise
        self.contact.answered(self._clock.monotonic())
        return self.listed

    def differs(self) -> bool:
        """
        Returns True if topics or partitions of the source have changed since the last listing, which this replaces.

        False, without a look, on a source of many topics: listing them takes milliseconds.
        """
        before = self._shapes
        if len(before) > _MOST_LISTED:
            return False
        self.names()
        return self._shapes != before

    def described(self, topics: Sequence[str], *, everything: bool) -> dict[str, TopicFacts | None]:
        """
        Describes topics; None for one that does not exist.

        Args:
            topics: Topics that the last listing has.
            everything: False to keep the description of a topic whose partitions are listed as they were described.

        Raises:
            MirrorError: The source refuses us, or does not answer.
        """
        kept = {} if everything else self._described
        known = {
            topic: facts
            for topic in topics
            if (facts := kept.get(topic)) is not None and facts.shape == self._shapes.get(topic)
        }
        found = self._source.describe_topics([topic for topic in topics if topic not in known])
        self._described = {topic: known.get(topic) or found.get(topic) for topic in topics}
        return self._described

    def matched(self, names: Iterable[str]) -> list[str]:
        """Returns the names that the link matches."""
        matched = [topic for topic in names if self._link.mirrors(topic)]
        self.found = frozenset(matched)
        return matched

    def describe(self, as_of: int, described: Mapping[str, TopicFacts | None]) -> None:
        """Records the partitions of all topics that match, also of those whose names are refused."""
        nameless = sorted(self.found - described.keys())
        if self.listing is not None and not nameless and described == self._listed:
            self.listing = Listing(as_of, self.listing.partitions)
            return
        self._listed = {} if nameless else dict(described)
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


#: A question that waits for longer than this counts as one without an answer.
PATIENCE_SECONDS = 5.0


class SourceContact:
    """
    Tracks the answers of a source to one thread's questions; other threads may read.

    Every ``now`` is in monotonic seconds.
    """

    __slots__ = ("_answered", "_asked", "_failing")

    def __init__(self) -> None:
        self._answered: float | None = None
        self._asked: float | None = None
        self._failing: float | None = None

    def asked(self, now: float) -> None:
        """Records a question."""
        self._asked = now

    def answered(self, now: float) -> None:
        """Records the answer."""
        self._answered, self._asked, self._failing = now, None, None

    def failed(self, asked: float) -> None:
        """Records that a question, asked at that time, has no answer."""
        self._asked = None
        if self._failing is None:
            self._failing = asked

    def age(self, now: float) -> float | None:
        """Returns the seconds since the last answer; None before the first."""
        answered = self._answered
        return None if answered is None else max(0.0, now - answered)

    def failing(self, now: float) -> float:
        """
        Returns the seconds since the first question without an answer; 0 if the last one was answered.

        A question that waits for longer than `PATIENCE_SECONDS` counts: a request fails only after half a minute.
        """
        failing, asked = self._failing, self._asked
        if failing is None and asked is not None and now - asked > PATIENCE_SECONDS:
            failing = asked
        return 0.0 if failing is None else max(0.0, now - failing)
