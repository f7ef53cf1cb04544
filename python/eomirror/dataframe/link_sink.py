"""
The sink of a link whose records a query writes: the positions of the link are in the transaction of the micro-batch.

It is the atomic sink (`eomirror.dataframe.sink`) with the identity of a lane: the lane's transactional id, and its
position records in place of the sink's own progress.  So the query needs no checkpoint directory, begins on any machine
where the positions say, and everything that reads positions shows it like a lane.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.crash import crash_point
from eomirror.dataframe.query import link_rows, queried
from eomirror.dataframe.schema import check_schema
from eomirror.dataframe.settings import BATCH_BYTES, WAIT_SECONDS, SinkSettings
from eomirror.dataframe.sink import AtomicSink, Batch
from eomirror.errors import FencedError, RowError, StateError, StoppedError, TransactionFailedError
from eomirror.lane.commit import TransactionStamp, claim_of, grant, state_records
from eomirror.plane.protocol import Account, Advance, Flushed, ProducerIdentity, Serving
from eomirror.records.names import LinkNames
from eomirror.records.position import QUERY_RULE
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror._native import SinkProducer
    from eomirror.config.transform import Rule
    from eomirror.lane.ports import StateReader, TopicComparer
    from eomirror.lane.spec import LaneSpec
    from eomirror.records.position import Position

__all__ = ["LEAST_TIMEOUT", "LinkPorts", "LinkSink", "Placement", "divided", "link_settings"]

log = structlog.get_logger(__name__)

#: Least time in seconds that a transaction of a query may take: its first batch compiles the query.
LEAST_TIMEOUT = 60.0


def link_settings(spec: LaneSpec) -> SinkSettings:
    """Returns the settings of the sink of a link."""
    link, producer = spec.link, spec.target.producer
    names = LinkNames(link.state_name)
    properties = {**spec.target.properties, **producer}
    return SinkSettings(
        name=link.state_name,
        cluster=spec.target,
        topic=None,
        timeout_ms=int(max(link.transaction_timeout, LEAST_TIMEOUT) * 1000),
        codec=str(properties.get("compression.type", properties.get("compression.codec", "none"))),
        batch_bytes=BATCH_BYTES,
        attempts=1,
        tasks=link.lanes,
        group="",
        source_columns=(),
        new_query="refuse",
        run_id="",
        link_id=names.transactional_id(spec.lane),
    )


@dataclass(frozen=True, slots=True)
class Placement:
    """
    Target of each source topic.

    Attributes:
        topics: Source topic -> target topic.
        partitions: Source topic -> number of partitions of its target.
    """

    topics: Mapping[str, str]
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LinkPorts:
    """
    Readers and callback of the sink of a link.

    Attributes:
        state: Reads control and positions.
        topics: Asks for topic ids (EO-5).
        placed: Target of each source topic.
        committed: Called with the positions of each committed transaction, and the seconds that it took.
    """

    state: StateReader
    topics: TopicComparer
    placed: Placement
    committed: Callable[[tuple[Position, ...], float], None] = field(default=lambda _, __: None)


class LinkSink(AtomicSink):
    """
    Writes the micro-batches of one attempt of a link's query.

    Args:
        spec: The attempt.
        positions: Committed positions of its partitions, read behind `open`.
        ports: Its readers and callback.

    Attributes:
        closing: Set to let no further batch begin.
        busy: True while a batch is written.
    """

    _instead = "write rules in place of the query, which serve on every cluster"

    def __init__(self, spec: LaneSpec, query: Rule, ports: LinkPorts, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(link_settings(spec), clock)
        self.closing = self.busy = False
        self.positions: dict[SourcePartition, Position] = {}
        self._spec = spec
        self._query = query
        self._ports = ports
        self._clock = clock
        self._txn = 0
        self._permitted: tuple[Position, ...] = ()
        self._end: Mapping[SourcePartition, int] = {}
        self._began = 0.0

    def open(self) -> None:
        """
        Takes the lane's transactional id: aborts what an earlier attempt left open, and fences it.

        Raises:
            MirrorError: The cluster cannot be reached, or lacks protocol V2.
        """
        self._ready()
        crash_point("lane.initialized")

    def claim(self, *, host: str, pid: int) -> None:
        """Commits the claim of the attempt, before its first records."""
        producer = self._ready()
        identity = ProducerIdentity(*producer.begin(WAIT_SECONDS))
        serving = Serving(plane=self._query.kind, reason="transform is a query", protocol="V2")
        record = claim_of(self._stamp(identity), serving, host=host, pid=pid)
        topics = self._ports.state.state_topics()
        number = self._spec.lane % topics.positions_partitions
        producer.send(topics.positions, number, record.key(), record.value())
        producer.settle(WAIT_SECONDS)
        crash_point("lane.claim_written")
        producer.commit(WAIT_SECONDS)
        crash_point("lane.claimed")

    def take(self, df: Any, number: int, query: str, end: Mapping[SourcePartition, int]) -> None:
        """
        Writes one micro-batch.

        Args:
            df: Records of the source.
            number: Id of the batch.
            query: Id of the Spark query.
            end: Source offsets behind the batch.

        Raises:
            MirrorError: The batch is not written; nothing of it is visible.
        """
        self.busy = True
        try:
            self._take(df, Batch(query, number, None, None), end)
        finally:
            self.busy = False

    def _take(self, df: Any, batch: Batch, end: Mapping[SourcePartition, int]) -> None:
        if self.closing:
            raise StoppedError(f"link {self._spec.link.name}: the query stops between two batches")
        self._end = end
        self._began = self._clock.monotonic()
        self.write(df, batch)

    # -- what a sink of a user does otherwise -------------------------------------------------------

    @property
    def _who(self) -> str:
        return f"link {self._spec.link.name}: transform: {self._query.kind}"

    def _rows(self, df: Any) -> Any:
        placed = self._ports.placed
        rows = link_rows(queried(self._query, df), placed.topics, placed.partitions)
        check_schema(rows.schema, self._settings)
        return rows

    def _look(self, producer: SinkProducer) -> None:
        """Reads nothing: positions are read once for an attempt, which a failed batch ends."""

    def _is_due(self, batch: Batch) -> bool:
        del batch
        for source, end in self._end.items():
            if source not in self.positions or end < self.positions[source].offset:
                raise StateError(
                    f"link {self._spec.link.name}: a batch of the query ends at {source}@{end}, before the position",
                    fix="report this as a bug, with the log",
                )
        return True

    def _record(
        self, producer: SinkProducer, reports: list[dict[str, Any]], written: Any, batch: Batch
    ) -> None:
        del batch
        crash_point("lane.flushed")
        ids = self._ports.topics.request_ids(
            sorted({source.topic for source in self._end}),
            sorted({self._ports.placed.topics[source.topic] for source in self._end}),
        )
        source_ids, target_ids = ids.result()
        moved = {
            source: (self.positions[source].offset, end)
            for source, end in self._end.items()
            if end > self.positions[source].offset
        }
        counts: Counter[SourcePartition] = Counter()
        newest: dict[SourcePartition, int] = {}
        for report in reports:
            for topic, partition, rows, timestamp in report.get("sources", ()):
                source = SourcePartition(topic, partition)
                counts[source] += rows
                newest[source] = max(timestamp, newest.get(source, -1))
        size = sum(one[3] for report in reports for one in report["written"])
        flushed = Flushed(
            accounts=_accounts(moved, (counts, newest), size, read_rows(written), self._ports.placed.topics),
            advances={source: Advance(end, None) for source, (_, end) in moved.items()},
        )
        self._txn += 1
        permit = grant(
            flushed,
            self.positions,
            source_ids=source_ids,
            target_ids=target_ids,
            stamp=self._stamp(ProducerIdentity(*self._identity)),
        )
        for record in state_records(permit, self._ports.state.state_topics()):
            producer.send(record.topic, record.partition, record.key, record.value or b"")
        producer.settle(WAIT_SECONDS)
        self._permitted = permit.positions
        crash_point("lane.state_written")

    def _too_long(self, batch: Batch, seconds: float) -> None:
        """Raises for a batch that the coordinator has aborted; also a process that stood still comes here."""
        limit = self._settings.timeout_ms / 1000
        if seconds >= limit:
            raise TransactionFailedError(
                f"{self._who}: {batch} took {seconds:.1f} s, and the coordinator aborts a transaction after "
                f"{limit:g} s: if it takes that long again, set transaction_timeout of the link above "
                f"{int(seconds * 2)}s"
            )

    def _after(
        self, error: Exception, producer: SinkProducer, batch: Batch, attempt: int, seconds: float
    ) -> None:
        """Aborts; the lane's next attempt reads the positions and goes on."""
        del attempt
        if not isinstance(error, FencedError):
            self._give_up(producer, batch, seconds)
            self._too_long(batch, seconds)
        raise error

    def _committed(self) -> None:
        crash_point("lane.committed")
        self.positions.update({position.source: position for position in self._permitted})
        self._ports.committed(self._permitted, self._clock.monotonic() - self._began)

    # -----------------------------------------------------------------------------------------------

    def _stamp(self, identity: ProducerIdentity) -> TransactionStamp:
        return TransactionStamp.of(
            self._spec, identity, txn=max(self._txn, 1), timestamp=self._clock.wall_ms()
        )


def _accounts(
    moved: Mapping[SourcePartition, tuple[int, int]],
    written: tuple[Mapping[SourcePartition, int], Mapping[SourcePartition, int]],
    size: int,
    read: int | None,
    targets: Mapping[str, str],
) -> tuple[Account, ...]:
    """
    Returns the accounts of a micro-batch: what each source partition gave, and what the query left out of it.

    Args:
        moved: Offsets ``[begin, end)`` of each partition that moved.
        written: Rows written of each, and their largest timestamp; -1 for none.
        size: Bytes of all rows.
        read: Records read of all partitions; None if unknown.
        targets: Target topic of each source topic.

    Raises:
        RowError: A row names a source partition that the batch has not read.
    """
    counts, newest = written
    if strange := sorted(counts.keys() - moved.keys()):
        raise RowError(
            f"transform: a row names {strange[0]} as its source, which the batch has not read",
            fix="return topic and partition of each row as the function gets them",
        )
    dropped = divided(moved, counts, read)
    rows = sum(counts.values())
    return tuple(
        Account(
            source=source,
            target_topic=targets[source.topic],
            target_partition=source.partition,
            records=counts.get(source, 0),
            bytes=size * counts.get(source, 0) // rows if rows else 0,
            dropped={QUERY_RULE: dropped[source]} if dropped.get(source) else {},
            target_offset=None,
            source_timestamp=newest[source] if newest.get(source, -1) >= 0 else None,
            first_source_offset=begin,
            offset_map=b"",
            digest="",
        )
        for source, (begin, _) in sorted(moved.items())
    )


def divided(
    moved: Mapping[SourcePartition, tuple[int, int]], counts: Mapping[SourcePartition, int], read: int | None
) -> dict[SourcePartition, int]:
    """
    Returns how many records the query left out of each partition.

    Their sum is exact.  Spark counts the records of the whole batch; a partition's own number is not known where its
    offsets hold markers, or records that were aborted or compacted: then they are divided by the offsets that are left.

    Args:
        moved: Offsets ``[begin, end)`` of each partition.
        counts: Rows written of each.
        read: Records read of all partitions; None if unknown, and then each offset counts as a record.
    """
    room = {
        source: max(0, end - begin - counts.get(source, 0)) for source, (begin, end) in sorted(moved.items())
    }
    total, left = sum(room.values()), 0
    if read is None or total == 0:
        return room
    # a query may also give more rows than it has read
    left = min(total, max(0, read - sum(counts.values())))
    found = {}
    for source, most in room.items():
        found[source] = most * left // total
    rest = left - sum(found.values())
    for source, most in room.items():
        more = min(rest, most - found[source])
        found[source] += more
        rest -= more
    return found


def read_rows(written: Any) -> int | None:
    """Returns how many records the plan of a batch that has run has read; None if Spark does not tell."""
    try:
        leaves = written._jdf.queryExecution().executedPlan().collectLeaves()  # noqa: SLF001  py4j: no public access
        if leaves.size() != 1 or leaves.apply(0).nodeName() == "LocalTableScan":
            # the last: a condition that is never true, for which Spark reads nothing
            return None
        found = leaves.apply(0).metrics().get("numOutputRows")
        return int(found.get().value()) if found.isDefined() else None
    except Exception as error:  # noqa: BLE001  Spark's internals, which another release may lack
        log.info("records_read_unknown", reason=str(error)[:200])
        return None
