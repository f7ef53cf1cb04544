"""
What Kafka Connect keeps for MirrorMaker 2 on the target: source offsets, and how many tasks there are. Pure.

Facts from Apache Kafka 4.3, connect/runtime (OffsetStorageWriter.java, KafkaConfigBackingStore.java) and from topics
that a real MM2 has written::

    topic             key                                                                  value
    mm2-offsets.S...  ["MirrorSourceConnector",{"cluster":"S","partition":0,"topic":"t"}]  {"offset":118}
    mm2-configs.S...  tasks-fencing-MirrorSourceConnector                                  {"task-count":2}

The offset is that of the last record that was mirrored, not the next one.  The key is JSON whose order of fields is
nobody's promise, so it is read, not compared.  With exactly-once (KIP-618) a task's transactional.id is
``GROUP-CONNECTOR-TASK``, and a leader publishes the count of tasks before it starts them.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from eomirror.errors import StateError
from eomirror.types import SourcePartition

__all__ = [
    "Mm2Flow",
    "SourceOffset",
    "connect_partition",
    "decode_source_offset",
    "decode_task_count",
    "encode_source_offset",
    "is_connect_key",
]

_SEED = 0x9747B28C
_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Mm2Flow:
    """
    Where one flow of MirrorMaker 2 keeps what it knows; the defaults are those of its dedicated mode.

    Attributes:
        source: Alias of the source cluster, as MM2 calls it.
        target: Alias of the target cluster.
        group: Group of its Connect workers, on the target.
        connector: Name of its source connector.
        offsets_topic: Where Connect keeps source offsets, on the target.
        configs_topic: Where Connect keeps what it runs, on the target.
    """

    source: str
    target: str
    group: str
    connector: str
    offsets_topic: str
    configs_topic: str

    @staticmethod
    def dedicated(source: str, target: str) -> Mm2Flow:
        """The names that ``connect-mirror-maker.sh`` gives."""
        return Mm2Flow(
            source=source,
            target=target,
            group=f"{source}-mm2",
            connector="MirrorSourceConnector",
            offsets_topic=f"mm2-offsets.{source}.internal",
            configs_topic=f"mm2-configs.{source}.internal",
        )

    def transactional_id(self, task: int) -> str:
        """Of a task's producer, with exactly-once on."""
        return f"{self.group}-{self.connector}-{task}"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """
    How far a source connector has come in one partition.

    Attributes:
        source: The source partition.
        offset: Of the last mirrored record; None when somebody reset it.
    """

    source: SourcePartition
    offset: int | None


def is_connect_key(key: bytes | None) -> bool:
    """Whether a key is of the shape that Connect gives every source connector: its name, and a partition of its own."""
    try:
        connector, _ = orjson.loads(key or b"")
    except (orjson.JSONDecodeError, TypeError, ValueError):
        return False
    return isinstance(connector, str) and (key or b"").lstrip().startswith(b"[")


def decode_source_offset(
    key: bytes | None, value: bytes | None, flow: Mm2Flow, *, where: str
) -> SourceOffset | None:
    """
    Read a source offset; None for one of another connector or cluster.

    Args:
        key: The record's key.
        value: The record's value.
        flow: Whose offsets are wanted.
        where: Topic-partition@offset, for the error.

    Raises:
        StateError: It is of this connector, and not as MM2 writes it.
    """
    if not is_connect_key(key):
        return None
    connector, partition = orjson.loads(key or b"")
    if connector != flow.connector:
        return None  # other connectors may keep what they like in a topic that they share
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
            f"{where}: this is no source offset of MirrorMaker 2",
            fix="find out who wrote it; to go on all the same, say where every partition stands: "
            "--at TOPIC-PARTITION=OFFSET",
        ) from error


def encode_source_offset(source: SourcePartition, offset: int, flow: Mm2Flow) -> tuple[bytes, bytes]:
    """
    Key and value of a source offset, in the very bytes that Connect looks a key up by.

    Args:
        source: The source partition.
        offset: Of the last record that was dealt with.
        flow: Whose offset it is.
    """
    where = {"cluster": flow.source, "partition": source.partition, "topic": source.topic}
    return orjson.dumps([flow.connector, where]), orjson.dumps({"offset": offset})


def connect_partition(key: bytes, partitions: int) -> int:
    """
    Partition of a topic that a Java producer chooses for a key: murmur2 (org.apache.kafka.common.utils.Utils).

    A key must stay in its partition: readers of all of them do not know which of two records came later.
    """
    hashed = _SEED ^ len(key)
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 & _WORD
        word = (word ^ word >> 24) * 0x5BD1E995 & _WORD
        hashed = (hashed * 0x5BD1E995 & _WORD) ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * 0x5BD1E995 & _WORD
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & _WORD
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partitions


def decode_task_count(value: bytes | None, *, where: str) -> int:
    """
    How many tasks a leader was about to start; 0 for a record that was deleted.

    Raises:
        StateError: The value is not as Connect writes it.
    """
    if value is None:
        return 0
    try:
        return _number(orjson.loads(value)["task-count"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{where}: this is no task count of Kafka Connect",
            fix="find out who wrote it; only Connect may write to this topic",
        ) from error


def _number(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(found)
    return found
