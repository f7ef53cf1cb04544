"""Reads a range of a partition as Arrow batches, in a Spark task."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import structlog

from eomirror._native import PartitionScan, PlaneReader
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import UnreachableError, UsageError
from eomirror.plane.native.oauth import as_text, with_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eomirror.config import Cluster
    from eomirror.dataframe.offsets import ReadRange
    from eomirror.dataframe.options import SourceOptions

__all__ = ["MirroredRange", "connect", "scan_batches"]

log = structlog.get_logger(__name__)

CLIENT_ID = "eomirror.source"
_CONNECT_SECONDS = 30.0
_STEP_SECONDS = 0.1
# one Arrow batch: large enough that its fixed costs vanish, small beside a worker's memory
_ROWS = 20_000
_BYTES = 8 * 1024 * 1024
# a task reads one partition at a time: larger answers than for a consumer of many
_FETCH = {"fetch.message.max.bytes": 4 * 1024 * 1024, "fetch.wait.max.ms": 100}

# the connection of this worker, which Spark uses for one task after the other; a fork must not use its parent's
_connected: dict[tuple[int, tuple[tuple[str, str], ...]], PlaneReader] = {}


class MirroredRange:
    """
    The copy of a range, as the link's offset map shows it.

    Attributes:
        copy: Offsets of the copy to read.
        ranges: Source offset, target offset and count of the records of the link there.
    """

    def __init__(self, copy: ReadRange, ranges: Sequence[tuple[int, int, int]]) -> None:
        self.copy = copy
        self.ranges = tuple(ranges)


def connect(cluster: Cluster) -> PlaneReader:
    """
    Returns this process's connection to a cluster.

    Raises:
        UsageError: The native client cannot honour a property.
        ClusterError: No broker answers, or the cluster refuses us.
    """
    properties, tokens = with_tokens(as_text(consumer_properties(cluster, client_id=CLIENT_ID, **_FETCH)))
    key = os.getpid(), tuple(sorted(properties.items()))
    reader = _connected.get(key)
    if reader is None:
        if refused := PlaneReader.unsupported_properties(properties, tokens):
            raise UsageError(
                "; ".join(f"option kafka.{name}: {why}" for name, why in refused),
                fix="remove it, or use another login",
            )
        _connected.clear()
        reader = _connected[key] = PlaneReader(properties, _CONNECT_SECONDS, tokens)
    return reader


def scan_batches(
    options: SourceOptions,
    wanted: ReadRange,
    *,
    times: tuple[int, int] | None = None,
    mirrored: MirroredRange | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Any]:
    """
    Yields the committed records of a range as Arrow batches with the columns of `eomirror.dataframe.options`.

    Args:
        wanted: The range, with the topic and partition that the rows show.
        times: First and last timestamp of rows, in ms; others are left out.
        mirrored: The copy to read in its place.

    Raises:
        DataLossError: Records of the range were deleted, or the topic was.
        UnreachableError: The partition had no records for the option's time, although it holds the range.
        MirrorError: The partition cannot be read.
    """
    read = wanted if mirrored is None else mirrored.copy
    scan = PartitionScan(
        read.topic,
        read.partition,
        read.start,
        read.end,
        # the base64 of librdkafka, in the alphabet of the protocol's tools
        topic_id=read.topic_id.replace("+", "-").replace("/", "_") or None,
        headers=options.headers,
        skips_deleted=not options.fail_on_data_loss,
        times=times,
        ranges=None if mirrored is None else mirrored.ranges,
    )
    reader = connect(options.cluster)
    deadline = Deadline(options.patience, clock)
    while True:
        before = scan.position
        ready = scan.step(reader, _STEP_SECONDS, _ROWS, _BYTES)
        if scan.position > before:
            deadline = Deadline(options.patience, clock)
        if ready:
            if rows := scan.take():
                yield _batch(rows, wanted)
            if scan.done:
                break
        elif deadline.passed:
            raise UnreachableError(
                f"{read.topic}-{read.partition}@{scan.position}: no records for {options.patience:.0f} s, although "
                f"the range ends at {read.end}",
                fix="check the leader of the partition; kafkaConsumer.pollTimeoutMs sets the time",
                topic=read.topic,
            )
    if scan.lost:
        log.warning("records_lost", topic=read.topic, partition=read.partition, offsets=scan.lost)


def _batch(rows: Any, shown: ReadRange) -> Any:
    """Returns the Arrow batch of the buffers of a scan."""
    import pyarrow as pa

    count, keys, values, offsets, timestamps, kinds, headers = rows
    buffer = pa.py_buffer
    columns = {
        "key": _binary(pa.binary(), count, keys),
        "value": _binary(pa.binary(), count, values),
        "topic": pa.repeat(pa.scalar(shown.topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(shown.partition, pa.int32()), count),
        "offset": pa.Array.from_buffers(pa.int64(), count, [None, buffer(offsets)]),
        "timestamp": pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, [None, buffer(timestamps)]),
        "timestampType": pa.Array.from_buffers(pa.int32(), count, [None, buffer(kinds)]),
    }
    if headers is not None:
        validity, ends, nulls, number, names, contents = headers
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        pairs = pa.Array.from_buffers(
            pair,
            number,
            [None],
            children=[_binary(pa.string(), number, names), _binary(pa.binary(), number, contents)],
        )
        kind = pa.list_(pa.field("element", pair))
        shown_validity = None if validity is None else buffer(validity)
        columns["headers"] = pa.Array.from_buffers(
            kind, count, [shown_validity, buffer(ends)], nulls, children=[pairs]
        )
    return pa.RecordBatch.from_pydict(columns)


def _binary(kind: Any, count: int, column: Any) -> Any:
    """Returns an array of texts or byte strings."""
    import pyarrow as pa

    validity, ends, data, nulls = column
    known = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(kind, count, [known, pa.py_buffer(ends), pa.py_buffer(data)], nulls)
