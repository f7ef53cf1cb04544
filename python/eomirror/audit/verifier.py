"""Carries out `eomirror verify`: asks both clusters for facts, compares partitions, fetches what differs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eomirror._native import PartitionComparison, PlaneReader, decode_offset_map
from eomirror.audit.verify import (
    LinkVerdict,
    PartitionFacts,
    PartitionVerdict,
    Range,
    Scope,
    Shown,
    altered_parts,
    scope,
)
from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.clients import consumer_properties
from eomirror.errors import DifferenceError
from eomirror.formats.names import LinkNames
from eomirror.formats.offset_map import read_offset_map_key
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.compact_log import CompactLogReader
from eomirror.kafka.positions import valid_positions
from eomirror.kafka.verify_client import CommittedPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eomirror.config import Cluster, Link
    from eomirror.formats.position import Position
    from eomirror.types import SourcePartition

__all__ = ["Verifier"]

_CONNECT_SECONDS = 30.0
_STEP_SECONDS = 0.1
_MESSAGES = 5000

#: Keys of a compacted partition that are kept at a time, about 100 bytes each; more are compared in shares.
MOST_KEYS = 1_000_000


class Verifier:
    """
    Compares what a link has mirrored with its source.

    Args:
        link: The link.
        source: Its source cluster.
        target: Its target cluster.
        show: For how many differences of a partition the records are fetched.
        most_keys: Keys of a compacted partition that are kept in memory.
        native: Whether the native plane may read; it does where it can.
        clock: Where time comes from.

    Raises:
        MirrorError: A cluster cannot be reached or refuses us.
    """

    def __init__(
        self,
        link: Link,
        source: Cluster,
        target: Cluster,
        *,
        show: int = 10,
        most_keys: int = MOST_KEYS,
        native: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._link = link
        self._show = show
        self._most_keys = most_keys
        role = LinkNames(link.state_name).client_id("verify")
        self._names = LinkNames(link.state_name)
        self._source = ClusterAdmin(source, client_id=role, clock=clock)
        self._target = ClusterAdmin(target, client_id=role, clock=clock)
        self._states = CompactLogReader(target, self._target, client_id=role, clock=clock)
        self._clients = tuple(
            CommittedPartition(cluster, client_id=role, clock=clock) for cluster in (source, target)
        )
        self._readers: tuple[PlaneReader, PlaneReader] | None = None
        self._reason = "" if native else "librdkafka was asked for"
        self._ids = ("", "")
        if native:
            self._reason = "; ".join(
                f"{cluster.alias}: {name}: {why}"
                for cluster in (source, target)
                for name, why in PlaneReader.refusals(_text(cluster, role))
            )
        if not self._reason:
            self._readers = (
                PlaneReader(_text(source, role), _CONNECT_SECONDS),
                PlaneReader(_text(target, role), _CONNECT_SECONDS),
            )

    @property
    def plane(self) -> str:
        """Who reads: ``native`` or ``client``."""
        return "client" if self._readers is None else "native"

    @property
    def reason(self) -> str:
        """Why the native plane does not read; empty if it does."""
        return self._reason

    def run(
        self, *, topics: str | None = None, progress: Callable[[Scope, Mapping[str, Any]], None] | None = None
    ) -> LinkVerdict:
        """
        Compare what is committed now.

        Args:
            topics: Only source topics that this regular expression matches whole.
            progress: Called while a partition is compared, at most every 0.1 s.

        Raises:
            DifferenceError: The link never ran.
            MirrorError: A partition could not be read.
        """
        scopes, waiting = self.look(topics)
        verdicts = [self.compare(one, progress) for one in scopes]
        return LinkVerdict(
            link=self._link.name,
            plane=self.plane,
            reason=self._reason,
            partitions=tuple(verdicts),
            waiting=tuple(waiting),
        )

    def look(self, topics: str | None = None) -> tuple[list[Scope], list[str]]:
        """
        Say what there is to compare, and which topics have not been begun.

        Raises:
            DifferenceError: The link never ran.
        """
        chosen = re.compile(topics or ".*")
        named = self._link.filter
        matched = [
            topic for topic in self._source.topic_names() if named.matches(topic) and chosen.fullmatch(topic)
        ]
        self._ids = (self._source.describe_cluster().cluster_id, self._target.describe_cluster().cluster_id)
        if self._target.describe_topics([self._names.positions_topic])[self._names.positions_topic] is None:
            raise DifferenceError(
                f"link {self._link.name} never ran: the target has no {self._names.positions_topic}",
                fix="run `eomirror run CONFIG` first",
            )
        # the ends of the target first: what lies before them has its position when positions are read after
        guesses = {self._link.target_topic(topic) for topic in matched}
        stable = self._ends(self._target, guesses)
        _, records = self._states.read(self._names.positions_topic)
        found = {
            source: position
            for source, position in sorted(valid_positions(records).items())
            if chosen.fullmatch(source.topic) and named.matches(source.topic)
        }
        facts = self._facts(list(found.values()), stable)
        begun = {source.topic for source in found}
        return [scope(one) for one in facts], [topic for topic in matched if topic not in begun]

    def compare(
        self, one: Scope, progress: Callable[[Scope, Mapping[str, Any]], None] | None = None
    ) -> PartitionVerdict:
        """
        Compare one partition.

        Raises:
            MirrorError: It could not be read.
        """
        if one.problem:
            return PartitionVerdict(scope=one)
        shares = 1
        results: list[tuple[dict[str, Any], list[tuple[str, int | None, int | None]]]] = []
        while len(results) < shares:
            by_key = (self._most_keys, len(results), shares) if one.by_key else None
            comparison = self._comparison(one, by_key)
            found = self._finish(one, comparison, progress)
            if comparison.too_many_keys:
                shares, results = shares * 4, []
                continue
            results.append((comparison.counts(), found))
        counts = [each for each, _ in results]
        kinds = counts[0]["differences"]
        shown = sorted(
            (each for _, found in results for each in found),
            key=lambda each: [-1 if n is None else n for n in each[1:]],
        )
        return PartitionVerdict(
            scope=one,
            matched=sum(each["matched"] for each in counts),
            differences={kind: sum(each["differences"][kind] for each in counts) for kind in kinds},
            source=counts[0]["source"],
            target=counts[0]["target"],
            shown=tuple(self._shown(one, *each) for each in shown[: self._show]),
        )

    def close(self) -> None:
        """Close all connections."""
        self._readers = None
        for client in self._clients:
            client.close()
        self._states.close()
        self._source.close()
        self._target.close()

    def _comparison(self, one: Scope, by_key: tuple[int, int, int] | None) -> PartitionComparison:
        guard = None
        if self._link.guard and self._link.provenance_header:
            source_id, target_id = self._ids
            guard = (source_id, target_id, self._link.origin_ids(self._link.source, source_id))
        return PartitionComparison(
            _tuple(one.source), _tuple(one.target), timestamps=one.timestamps, guard=guard, by_key=by_key
        )

    def _finish(
        self,
        one: Scope,
        comparison: PartitionComparison,
        progress: Callable[[Scope, Mapping[str, Any]], None] | None,
    ) -> list[tuple[str, int | None, int | None]]:
        found: list[tuple[str, int | None, int | None]] = []
        if self._readers is None:
            for client, part in zip(self._clients, (one.source, one.target), strict=True):
                client.assign(part.topic, part.partition, part.start)
        done = False
        while not done:
            done = (
                self._feed(comparison)
                if self._readers is None
                else comparison.step(*self._readers, _STEP_SECONDS)
            )
            found += comparison.take()[: self._show - len(found)]
            if progress is not None:
                progress(one, comparison.counts())
        return found

    def _feed(self, comparison: PartitionComparison) -> bool:
        done = False
        for side, client in zip(("source", "target"), self._clients, strict=True):
            if comparison.wants(side):
                messages, reached = client.read(_MESSAGES, _STEP_SECONDS)
                done = comparison.feed(side, messages, reached)
        # both sides may be empty, and then nobody has asked yet
        return done or comparison.feed("source", [], None)

    def _shown(self, one: Scope, kind: str, source_offset: int | None, target_offset: int | None) -> Shown:
        source, target = (
            None if offset is None else client.one(part.topic, part.partition, offset)
            for client, part, offset in zip(
                self._clients, (one.source, one.target), (source_offset, target_offset), strict=True
            )
        )
        return Shown(
            kind=kind,
            source_offset=source_offset,
            target_offset=target_offset,
            parts=altered_parts(source, target) if source and target and kind == "altered" else (),
            source=_readable(source),
            target=_readable(target),
        )

    def _facts(
        self, positions: list[Position], stable: Mapping[tuple[str, int], int]
    ) -> list[PartitionFacts]:
        sources = self._source.describe_topics(sorted({each.topic for each in positions}))
        targets = self._target.describe_topics(sorted({each.target_topic for each in positions}))
        source_names = [name for name, facts in sources.items() if facts is not None]
        target_names = [name for name, facts in targets.items() if facts is not None]
        source_starts = self._ends(self._source, source_names, at="earliest")
        source_stable = self._ends(self._source, source_names)
        target_starts = self._ends(self._target, target_names, at="earliest")
        configs = {
            "source": self._source.topic_configs(source_names) if source_names else {},
            "target": self._target.topic_configs(target_names) if target_names else {},
        }

        def setting(side: str, topic: str, name: str) -> str:
            value = configs[side].get(topic, {}).get(name)
            return (value.value or "") if value is not None else ""

        from_start = self._link.start == "earliest"
        mapped: dict[SourcePartition, list[tuple[int, int, int]]] = {}
        if not from_start or any([*source_starts.values(), *target_starts.values()]):
            mapped = self._mapped(positions)
        facts = []
        for each in positions:
            target = (each.target_topic, each.target_partition)
            source_topic, target_topic = sources[each.topic], targets[each.target_topic]
            cleanup = setting("source", each.topic, "cleanup.policy") + setting(
                "target", each.target_topic, "cleanup.policy"
            )
            facts.append(
                PartitionFacts(
                    position=each,
                    source_id=None if source_topic is None else source_topic.topic_id,
                    target_id=None if target_topic is None else target_topic.topic_id,
                    source_start=source_starts.get((each.topic, each.partition), 0),
                    source_stable=source_stable.get((each.topic, each.partition), 0),
                    target_start=target_starts.get(target, 0),
                    target_stable=stable.get(target, 0),
                    mapped=mapped.get(each.source, ()),
                    from_start=from_start,
                    compacted="compact" in cleanup,
                    timestamps=setting("target", each.target_topic, "message.timestamp.type")
                    != "LogAppendTime",
                )
            )
        return facts

    def _mapped(self, positions: list[Position]) -> dict[SourcePartition, list[tuple[int, int, int]]]:
        """Ranges of the offset map, for the topics that are meant now."""
        topic = self._names.offset_map_topic
        if self._target.describe_topics([topic])[topic] is None:
            return {}
        ids = {each.source: each.topic_id for each in positions}
        ranges: dict[SourcePartition, list[tuple[int, int, int]]] = {}
        for record in self._states.read(topic)[1]:
            source, topic_id, _ = read_offset_map_key(record.key, where=record.where)
            if record.value is not None and ids.get(source) == topic_id:
                ranges.setdefault(source, []).extend(decode_offset_map(record.value)[2])
        return {source: sorted(found) for source, found in ranges.items()}

    def _ends(
        self, admin: ClusterAdmin, topics: Iterable[str], *, at: str = "latest"
    ) -> dict[tuple[str, int], int]:
        described = admin.describe_topics(sorted(topics))
        partitions = [
            (name, number)
            for name, facts in described.items()
            if facts is not None
            for number in range(facts.partitions)
        ]
        return admin.offsets(partitions, at=at, read_committed=True) if partitions else {}


def _tuple(part: Range) -> tuple[str, int, int, int, int]:
    return part.topic, part.partition, part.start, part.end, part.tail


def _text(cluster: Cluster, role: str) -> dict[str, str]:
    """Properties as text, as librdkafka's own files have them."""
    given = consumer_properties(cluster, client_id=role)
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
        if isinstance(value, str | bool | int | float)
    }


_LONGEST = 200


def _readable(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """A record for people and JSON: bytes as text where they are, shortened."""
    if record is None:
        return None
    return {
        **record,
        "key": _bytes(record["key"]),
        "value": _bytes(record["value"]),
        "headers": [[name, _bytes(value)] for name, value in record["headers"]],
    }


def _bytes(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value[:_LONGEST].decode("utf-8", "backslashreplace")
    return text if len(value) <= _LONGEST else f"{text}... ({len(value)} bytes)"
