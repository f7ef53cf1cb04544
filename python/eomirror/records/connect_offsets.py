"""
Records of Kafka Connect for MirrorMaker 2 on the target: source offsets and the number of tasks. Pure.

Source: Apache Kafka 4.3, connect/runtime (OffsetStorageWriter.java, KafkaConfigBackingStore.java), and topics that a
real MM2 has written::

    topic             key                                                                  value
    mm2-offsets.S...  ["MirrorSourceConnector",{"cluster":"S","partition":0,"topic":"t"}]  {"offset":118}
    mm2-configs.S...  tasks-fencing-MirrorSourceConnector                                  {"task-count":2}

The offset is that of the last mirrored record, not the next one.  The key is JSON without a guaranteed order of fields,
so it is parsed, not compared.  With exactly-once (KIP-618) a task's transactional.id is ``GROUP-CONNECTOR-TASK``, and a
leader publishes the number of tasks before it starts them.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from eomirror.errors import StateError
from eomirror.types import SourcePartition

__all__ = [
    "Mm2Flow",
    "SourceOffset",
    "decode_source_offset",
    "decode_task_count",
    "encode_source_offset",
    "is_connect_key",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mm2Flow:
    """
    Names of one MirrorMaker 2 flow and of its state.

    Attributes:
        source: MM2's alias of the source cluster.
        target: MM2's alias of the target cluster.
        group: Group id of the Connect workers, on the target.
        connector: Name of the source connector.
        offsets_topic: Connect's offset.storage.topic, on the target.
        configs_topic: Connect's config.storage.topic, on the target.
    """

    source: str
    target: str
    group: str
    connector: str
    offsets_topic: str
    configs_topic: str

    @staticmethod
    def dedicated(source: str, target: str) -> Mm2Flow:
        """Returns the names of MM2's dedicated mode (``connect-mirror-maker.sh``)."""
        return Mm2Flow(
            source=source,
            target=target,
            group=f"{source}-mm2",
            connector="MirrorSourceConnector",
            offsets_topic=f"mm2-offsets.{source}.internal",
            configs_topic=f"mm2-configs.{source}.internal",
        )

    def transactional_id(self, task: int) -> str:
        """Returns the transactional id of a task's producer, with exactly-once on."""
        return f"{self.group}-{self.connector}-{task}"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """
    Progress of a source connector in one partition.

    Attributes:
        offset: Offset of the last mirrored record; None after a reset.
    """

    source: SourcePartition
    offset: int | None


def is_connect_key(key: bytes | None) -> bool:
    """Returns True if a key has the form of every source connector: its name and a partition."""
    try:
        connector, _ = orjson.loads(key or b"")
    except (orjson.JSONDecodeError, TypeError, ValueError):
        return False
    return isinstance(connector, str) and (key or b"").lstrip().startswith(b"[")


def decode_source_offset(
    key: bytes | None, value: bytes | None, flow: Mm2Flow, *, where: str
) -> SourceOffset | None:
    """
    Decodes a source offset; returns None for one of another connector or cluster.

    Args:
        flow: Flow whose offsets to return.
        where: Topic-partition@offset of the record, for the error.

    Raises:
        StateError: The record is of this connector, but not in MM2's format.
    """
    if not is_connect_key(key):
        return None
    connector, partition = orjson.loads(key or b"")
    if connector != flow.connector:
        return None  # other connectors may share the topic and use other formats
    try:
        if partition["cluster"] != flow.source:
            return None
        source = SourcePartition(str(partition["topic"]), _number(partition["partition"]))
        if value is None:
            return SourceOffset(source, None)
        body = orjson.loads(value)
        return SourceOffset(source, None if body is None else _number(body["offset"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{where}: not a source offset of MirrorMaker 2",
            fix="find out which program wrote it; to continue anyway, choose a resume offset for every partition: "
            "--at TOPIC-PARTITION=OFFSET",
        ) from error


def encode_source_offset(source: SourcePartition, offset: int, flow: Mm2Flow) -> tuple[bytes, bytes]:
    """
    Encodes key and value of a source offset; the key has exactly the bytes by which Connect looks it up.

    Args:
        source: Source partition.
        offset: Offset of the last record that was mirrored or skipped.
        flow: Flow of the offset.
    """
    where = {"cluster": flow.source, "partition": source.partition, "topic": source.topic}
    return orjson.dumps([flow.connector, where]), orjson.dumps({"offset": offset})


def decode_task_count(value: bytes | None, *, where: str) -> int:
    """
    Decodes the number of tasks that a leader was about to start; returns 0 for a deleted record.

    Raises:
        StateError: The value is not in Connect's format.
    """
    if value is None:
        return 0
    try:
        return _number(orjson.loads(value)["task-count"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{where}: not a task count of Kafka Connect",
            fix="find out which program wrote it; only Connect may write to this topic",
        ) from error


def _number(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(found)
    return found
