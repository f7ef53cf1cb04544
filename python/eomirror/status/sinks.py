"""
Status of Spark queries that write through `eomirror.spark.sink` or ``format("eomirror")``, as links.

The progress record of a sink is its position: with it a query is a link without an owner, whose source offsets are the
positions of its partitions.  Which cluster they belong to is not recorded.  It is the one of the configuration that has
all of these partitions, and no fewer records; where several have them, the lag is unknown.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import MirrorError, UnreachableError
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.kafka.parallel import run_all
from eomirror.kafka.session import ClusterSession
from eomirror.records.sink_progress import PROGRESS_TOPIC, decode_progress
from eomirror.status.live import LinkFacts
from eomirror.status.model import LinkStatus, PartitionStatus
from eomirror.status.reader import AWAY_SECONDS, STALL_SECONDS
from eomirror.status.snapshot import sum_known
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.records.sink_progress import SinkProgress

__all__ = [
    "OneSink",
    "SinkReader",
    "SinkState",
    "ends_of",
    "newest_progress",
    "sink_facts",
    "sink_link",
    "sink_status",
]

log = structlog.get_logger(__name__)

_CLIENT_ID = "eomirror.status"
_RECENT_SECONDS = 3.0
_MOST_AT_ONCE = 8


class SinkState(NamedTuple):
    """
    Progress of one sink.

    Attributes:
        name: Name of the sink.
        newest: Its newest record.
        rows: Rows of its last batch.
    """

    name: str
    newest: SinkProgress
    rows: int


def newest_progress(records: Sequence[LogRecord]) -> list[SinkState]:
    """
    Returns the progress of each sink.

    A sink of ``format("eomirror")`` has a record for each target partition, whose key is NAME/TOPIC-PARTITION.

    Args:
        records: The progress topic, oldest first within a partition.

    Raises:
        StateError: A record is damaged, or of a later version.
    """
    found: dict[str, dict[str, SinkProgress]] = {}
    for record in records:
        key = (record.key or b"").decode("utf-8", "replace")
        name = key.partition("/")[0]
        if record.value is None:
            found.get(name, {}).pop(key, None)
            continue
        found.setdefault(name, {})[key] = decode_progress(record.value, record.where)
    states = []
    for name, parts in sorted(found.items()):
        if parts:
            newest = max(parts.values(), key=lambda one: one.timestamp)
            rows = sum(
                one.rows
                for one in parts.values()
                if (one.query, one.batch, one.run) == (newest.query, newest.batch, newest.run)
            )
            states.append(SinkState(name, newest, rows))
    return states


def sink_link(name: str, target: str) -> str:
    """Returns the name under which a sink is shown beside links."""
    return f"sink {name} on {target}"


def sink_facts(link: str) -> LinkFacts:
    """Returns the facts of a sink; ``link`` is its name from `sink_link`."""
    return LinkFacts(link, "its source", link.rpartition(" ")[2], "", "sink")


def sink_status(
    state: SinkState, target: str, ends: Mapping[SourcePartition, int] | None, now_ms: int
) -> LinkStatus:
    """
    Returns the status of a sink.

    Args:
        target: Alias of its cluster.
        ends: Last stable offsets of its source partitions; None if their cluster is not known.
        now_ms: Wall clock.
    """
    newest = state.newest
    age = max(0.0, (now_ms - newest.timestamp) / 1000)
    partitions = tuple(
        _partition(SourcePartition(topic, int(number)), offset, ends, newest.timestamp)
        for topic, numbers in sorted((newest.sources or {}).items())
        for number, offset in sorted(numbers.items(), key=lambda each: int(each[0]))
    )
    what = f"batch {newest.batch} of query {newest.query}" if newest.query else "a batch write"
    return LinkStatus(
        link=sink_link(state.name, target),
        state="running",
        lag_records=sum_known([item.lag_records for item in partitions]) if partitions else None,
        partitions=partitions,
        remark=f"a Spark query: {what}, {state.rows:,} rows, {age:,.0f} s ago"
        + ("" if partitions else "; its source offsets are not known"),
    )


def _partition(
    source: SourcePartition, offset: int, ends: Mapping[SourcePartition, int] | None, timestamp: int
) -> PartitionStatus:
    end = None if ends is None else ends.get(source)
    return PartitionStatus(
        topic=source.topic,
        partition=source.partition,
        target_topic="",
        lane=0,
        position=offset,
        source_lso=end,
        lag_records=None if end is None else max(0, end - offset),
        last_commit=timestamp,
    )


class SinkReader:
    """
    Reads the progress of all sinks on the clusters of a configuration.

    Args:
        clusters: Clusters by alias.
        more_seconds: Added to the time in which a cluster has to answer.
    """

    def __init__(
        self, clusters: Mapping[str, Cluster], *, more_seconds: float = 0.0, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._stall_seconds = STALL_SECONDS + more_seconds
        self._sessions = {
            alias: ClusterSession(
                cluster, client_id=_CLIENT_ID, timeout=AWAY_SECONDS + more_seconds, clock=clock
            )
            for alias, cluster in clusters.items()
        }
        self._lock = threading.Lock()
        self._found: list[LinkStatus] = []
        self._due = float("-inf")

    def read(self) -> list[LinkStatus]:
        """
        Returns the status of each sink; none of a cluster that does not answer, or has no sinks.

        Not thread-safe; `recent` is.
        """
        states: dict[str, list[SinkState]] = {}
        away: set[str] = set()

        def look(alias: str) -> None:
            try:
                records = CompactedTopicReader(self._sessions[alias]).records(
                    PROGRESS_TOPIC, seconds=self._stall_seconds, wait_for_open=False
                )
                states[alias] = newest_progress(records)
            except UnreachableError:
                # its links say so
                away.add(alias)
            except MirrorError as error:
                log.debug("sinks_not_read", cluster=alias, reason=error.message)

        run_all(look, list(self._sessions), threads=_MOST_AT_ONCE, name="sinks")
        asked = [session for alias, session in self._sessions.items() if alias not in away]
        return [
            sink_status(state, alias, ends_of(asked, state.newest.sources or {}), self._clock.wall_ms())
            for alias in self._sessions
            for state in states.get(alias, ())
        ]

    def recent(self) -> list[LinkStatus]:
        """Returns what the last read found; reads if that was some seconds ago.  Thread-safe."""
        with self._lock:
            began = self._clock.monotonic()
            if began >= self._due:
                self._found = self.read()
                now = self._clock.monotonic()
                # a long topic is read more rarely
                self._due = now + max(_RECENT_SECONDS, now - began)
            return self._found

    def close(self) -> None:
        """Closes all clients."""
        for session in self._sessions.values():
            session.close()


class OneSink:
    """
    Reads the progress of one sink.

    Args:
        reader: Reads all sinks.
        link: Its name, from `sink_link`.
    """

    def __init__(self, reader: SinkReader, link: str) -> None:
        self._link = link
        self._reader = reader

    def read(self) -> LinkStatus:
        """
        Returns the status.

        Raises:
            UnreachableError: Its cluster does not answer, or has no progress of it.
        """
        for status in self._reader.recent():
            if status.link == self._link:
                return status
        raise UnreachableError(
            f"{self._link}: its cluster does not answer, or has no progress of it",
            fix="check the cluster; the progress is in topic " + PROGRESS_TOPIC,
        )

    def close(self) -> None:
        """Closes nothing: other sinks have the same reader."""


def ends_of(
    sessions: Iterable[ClusterSession], sources: Mapping[str, Mapping[str, int]]
) -> dict[SourcePartition, int] | None:
    """
    Returns the ends of the one cluster that source offsets can belong to; None if several, or none, can.

    Args:
        sessions: Clusters that answer.
        sources: Topic -> partition -> offset.
    """
    wanted = {
        SourcePartition(topic, int(number)): offset
        for topic, numbers in sources.items()
        for number, offset in numbers.items()
    }
    fitting: list[dict[SourcePartition, int]] = []
    for session in sessions if wanted else ():
        try:
            topics = session.admin.describe_topics(sorted(sources))
            if not all(_has(topics.get(one.topic), one.partition) for one in wanted):
                continue
            ends: Mapping[Any, int] = session.admin.offsets(sorted(wanted), at="latest", read_committed=True)
        except MirrorError:
            continue
        if all(ends.get(one, -1) >= offset for one, offset in wanted.items()):
            fitting.append({one: ends[one] for one in wanted})
    return fitting[0] if len(fitting) == 1 else None


def _has(facts: Any, partition: int) -> bool:
    return facts is not None and partition < facts.partitions
