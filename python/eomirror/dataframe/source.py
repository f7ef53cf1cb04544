"""
Readers of ``format("eomirror")`` for batch and streaming queries.

A streaming reader lives in one process of the driver for as long as its query; tasks get a copy that only reads.  Spark
logs the offsets of a micro-batch before it runs it, and after a restart asks for the partitions of the same offsets
again.  It keeps no first offset: a query that begins at ``latest`` and dies in its first batch would begin later.  So
the first batch of such a query is empty, and its end is where the query begins.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import structlog
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from eomirror.dataframe.filters import Restriction
from eomirror.dataframe.offsets import QueryOffsets, ReadRange, limited_by_bytes, limited_by_rows, split
from eomirror.dataframe.options import SourceOptions
from eomirror.errors import DataLossError, MirrorError
from eomirror.log import quiet_unless_configured

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from eomirror.dataframe.offsets import Name
    from eomirror.dataframe.scan import MirroredRange
    from eomirror.dataframe.source_topics import SubscribedTopics

__all__ = ["FrameReader", "PushdownReader", "StreamReader", "batch_reader"]

log = structlog.get_logger(__name__)

# the module in which Spark pushes filters down, and the only one in which a reader may take them
_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass
class RangePartition(InputPartition):  # type: ignore[misc]
    """
    The part of one task.

    Attributes:
        wanted: Offsets to read.
        mirrored: The copy to read in their place.
    """

    wanted: ReadRange
    mirrored: MirroredRange | None = None
    value: Any = field(default=None, init=False)


def batch_reader(options: Mapping[str, str], schema: StructType) -> FrameReader:
    """Returns the reader of a batch query: Spark refuses one that takes filters while it pushes none down."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    pushes = _PUSHDOWN in sys.modules or (main is not None and main.name == _PUSHDOWN)
    return (PushdownReader if pushes else FrameReader)(options, schema)


class FrameReader(DataSourceReader):  # type: ignore[misc]
    """Reads a range of each partition, which is decided when the query is planned."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        del schema
        self.options = SourceOptions.parse(options, streaming=False)
        self.restriction = Restriction()

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the parts of the tasks."""
        from eomirror.dataframe.source_topics import bound_offsets

        topics = _topics(self.options)
        try:
            ids = topics.partitions()
            names = set(ids)
            starts = bound_offsets(topics, self.options.start, names, strict=self.options.strict_times)
            ends = bound_offsets(
                topics, self.options.end, names, strict=self.options.strict_times, at_end=True
            )
            names = {name for name in names if self.restriction.takes(name)}
            if self.restriction.first_time is not None:
                # offsets before the first record of that time hold earlier records only
                found = topics.at_time(names, self.restriction.first_time)
                starts |= {
                    name: max(starts[name], offset if offset >= 0 else ends[name])
                    for name, offset in found.items()
                }
            ranges = []
            for name in sorted(names):
                start, end = self.restriction.offsets(starts[name], ends[name])
                ranges.append(ReadRange(*name, start, end, ids[name]))
            return _partitions(topics, ranges, self.options.min_partitions)
        finally:
            topics.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the rows of one part."""
        return _read(self.options, partition, self.restriction.times)


class PushdownReader(FrameReader):
    """Takes filters on topic, partition, offset and timestamp."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        """Takes what filters say of the parts to read; yields those that Spark has to apply to rows as well."""
        self.restriction, left = self.restriction.pushed(filters)
        yield from left


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads what is committed to the topics, micro-batch after micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        del schema
        self.options = SourceOptions.parse(options, streaming=True)
        self._topics: SubscribedTopics | None = None
        self._groups: Any = None
        self._initial: QueryOffsets | None = None
        self._target: QueryOffsets | None = None
        self._latest: QueryOffsets | None = None
        self._committed: Mapping[Name, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        # tasks only read: connections stay here
        return {"options": self.options}

    # -- the query's offsets ---------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Returns the offsets at which a new query begins."""
        from eomirror.dataframe.source_topics import bound_offsets

        ids = self._known.partitions()
        starts = bound_offsets(self._known, self.options.start, set(ids), strict=self.options.strict_times)
        self._initial = QueryOffsets(starts, _by_topic(ids))
        return self._initial.as_json()

    def getDefaultReadLimit(self) -> Any:
        """Returns the limit of a micro-batch; `latestOffset` applies both if there are two."""
        if self.options.max_rows is not None:
            return ReadMaxRows(self.options.max_rows)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Returns the offsets at which the next micro-batch ends."""
        from eomirror.dataframe.source_topics import checked_ids

        begun = QueryOffsets.of_json(start)
        self._tell_group(begun)
        if self._is_unpinned(begun):
            return start
        available = self._available() if self._target is None else self._target
        again = checked_ids(begun, available.ids, strict=self.options.fail_on_data_loss)
        self._check_present(begun, available.next)
        starts = self._begin(begun, available, again)
        # a log may seem to end earlier than it did, while a new leader knows an older end
        ends: Mapping[Name, int] = {name: max(end, starts[name]) for name, end in available.next.items()}
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(starts, ends)
        return QueryOffsets(ends, available.ids).as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the last stable offsets that were seen, for the query's progress."""
        return None if self._latest is None else self._latest.as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Records where the query ends."""
        self._target = self._available()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns the parts of the tasks of a micro-batch."""
        from eomirror.dataframe.source_topics import checked_ids

        begun, until = QueryOffsets.of_json(start), QueryOffsets.of_json(end)
        known = self._known.partitions()
        current = _by_topic(known)
        strict = self.options.fail_on_data_loss
        self._check_present(until, known)
        gone = checked_ids(until, current, strict=strict)
        again = checked_ids(begun, until.ids, strict=strict)
        starts = self._begin(begun, until, again)
        if begun == self._initial:
            # a first batch that is repeated after a restart: its beginning was looked up again
            self._check_pinned(until, current)
            starts = {name: min(at, until.next[name]) for name, at in starts.items()}
        ranges = []
        for name, last in sorted(until.next.items()):
            if name not in known or name[0] in gone:
                # lost, which failOnDataLoss allows: a topic that is gone, or was created again since
                continue
            if starts[name] > last:
                raise DataLossError(
                    f"{name[0]}-{name[1]}: the query has read to offset {starts[name]}, and its next batch ends at "
                    f"{last}",
                    fix="restore the checkpoint, or start the query with a new one",
                    topic=name[0],
                )
            ranges.append(ReadRange(*name, starts[name], last, until.ids.get(name[0], "")))
        self._check_starts(ranges)
        return _partitions(self._known, ranges, self.options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the rows of one part."""
        return _read(self.options, partition, None)

    def commit(self, end: dict[str, Any]) -> None:
        """Commits the offsets of a completed micro-batch to the group that lag tools look at."""
        self._tell_group(QueryOffsets.of_json(end))

    def stop(self) -> None:
        """Releases the connections."""
        if self._topics is not None:
            self._topics.close()
        if self._groups is not None:
            self._groups.close()

    # --------------------------------------------------------------------------------------------

    @property
    def _known(self) -> SubscribedTopics:
        if self._topics is None:
            self._topics = _topics(self.options)
        return self._topics

    def _available(self) -> QueryOffsets:
        ids = self._known.partitions()
        self._latest = QueryOffsets(self._known.ends(set(ids)), _by_topic(ids))
        return self._latest

    def _is_unpinned(self, begun: QueryOffsets) -> bool:
        """Returns True once, for the first batch of a query that begins at the end."""
        pins = self._initial is not None and begun == self._initial and self.options.start.at == "latest"
        if pins:
            self._initial = replace(self._initial, next={}) if self._initial else None
        return pins

    def _begin(self, begun: QueryOffsets, until: QueryOffsets, again: Collection[str]) -> dict[Name, int]:
        """Returns where a batch begins: at the log's start in new partitions, and in topics that were created again."""
        fresh = [name for name in until.next if name not in begun.next or name[0] in again]
        existing = self._known.partitions() if fresh else {}
        first = self._known.starts([name for name in fresh if name in existing])
        return {name: first.get(name, begun.next.get(name, 0)) for name in until.next}

    def _check_pinned(self, until: QueryOffsets, current: Mapping[str, str]) -> None:
        """Refuses a first batch of Spark's connector that began at the end of that time: ours is empty, and has ids."""
        if self.options.start.at == "latest" and current and not until.ids:
            raise DataLossError(
                "Spark's Kafka connector did not complete the first batch of this checkpoint, and keeps where it began "
                "in a file that this source cannot read: sources/0/0",
                fix="let the connector complete the batch; or set startingOffsets to the offsets in that file",
            )

    def _check_present(self, offsets: QueryOffsets, existing: Collection[Name]) -> None:
        if not self.options.fail_on_data_loss:
            return
        for topic, number in sorted(offsets.next.keys() - set(existing)):
            raise DataLossError(
                f"{topic}-{number} does not exist any more, or the options do not name it, and the checkpoint of the "
                f"query has its offset {offsets.next[topic, number]}",
                fix="to go on without it, set failOnDataLoss to false; records that were not read are lost. A "
                "checkpoint of another cluster is translated first: `eomirror checkpoint translate DIR --link NAME`",
                topic=topic,
            )

    def _check_starts(self, ranges: Sequence[ReadRange]) -> None:
        if not self.options.fail_on_data_loss:
            return
        filled = [one for one in ranges if one.end > one.start]
        first = self._known.starts([(one.topic, one.partition) for one in filled])
        for one in filled:
            if first[one.topic, one.partition] > one.start:
                raise DataLossError(
                    f"{one.topic}-{one.partition}: offsets [{one.start}, {first[one.topic, one.partition]}) were "
                    "deleted (retention or deleted records) before the query read them",
                    fix="to continue at the first record that exists, set failOnDataLoss to false; to keep records "
                    "longer, raise retention.ms of the topic",
                    topic=one.topic,
                )

    def _limited(self, starts: Mapping[Name, int], ends: Mapping[Name, int]) -> Mapping[Name, int]:
        if self.options.max_rows is not None:
            ends = limited_by_rows(starts, ends, self.options.max_rows)
        if self.options.max_bytes is not None:
            waiting = {name: starts[name] for name, end in ends.items() if end > starts[name]}
            ends = limited_by_bytes(starts, ends, self._known.sizes(waiting), self.options.max_bytes)
        return ends

    def _tell_group(self, read: QueryOffsets) -> None:
        """Commits to the group; a failure is logged, because the query does not depend on it."""
        if not self.options.group or read.next == self._committed:
            return
        from eomirror.dataframe.scan import CLIENT_ID
        from eomirror.kafka.consumer_groups import Committed
        from eomirror.kafka.consumer_groups_proxy import ClusterGroups

        try:
            if self._groups is None:
                self._groups = ClusterGroups(self.options.cluster, client_id=CLIENT_ID)
            wanted = {name: Committed(offset) for name, offset in read.next.items()}
            refused = self._groups.write(self.options.group, wanted)
        except MirrorError as error:
            refused = error.message
        if refused:
            log.warning("group_not_committed", group=self.options.group, reason=refused)
        else:
            self._committed = read.next


def _topics(options: SourceOptions) -> SubscribedTopics:
    quiet_unless_configured()
    if options.mirror:
        from eomirror.dataframe.mirrored_topics import MirroredTopics

        return MirroredTopics(options)
    from eomirror.dataframe.source_topics import ClusterTopics

    return ClusterTopics(options)


def _partitions(topics: SubscribedTopics, ranges: Sequence[ReadRange], least: int) -> list[InputPartition]:
    return [RangePartition(one, topics.mirrored(one)) for one in split(ranges, least)]


def _read(options: SourceOptions, partition: InputPartition, times: tuple[int, int] | None) -> Iterator[Any]:
    from eomirror.dataframe.scan import scan_batches

    quiet_unless_configured()
    if not isinstance(partition, RangePartition):
        # Spark's stand-in for no partitions
        return iter(())
    return scan_batches(options, partition.wanted, times=times, mirrored=partition.mirrored)


def _by_topic(ids: Mapping[Name, str]) -> dict[str, str]:
    return {topic: known for (topic, _), known in ids.items() if known}
