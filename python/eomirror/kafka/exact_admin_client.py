"""
AdminClient with the exact metadata of group offsets, and with quick reads of settings, topics and log offsets.

Metadata of a commit is a string of any length, which a Java client, Kafka Streams or franz-go fills.  librdkafka keeps
its length and puts no NUL behind it.  confluent-kafka (2.16) takes it as a C string: it reads beyond the end, into
foreign memory, and it commits a NUL that the group did not have.  So these two requests call librdkafka's functions
directly, on the client that confluent-kafka has connected, with every login that librdkafka knows.

Of settings, confluent-kafka makes several objects for each one, 35 a topic: of 1,000 topics that takes a third of a
second of CPU, and it cannot ask for some of them only.  Here topics share the objects of equal settings.  Of each
offset it makes a future, and of each partition of a topic an object with objects for all of its replicas.  Here the
answer to a request is read once, when its first part is asked for.

The functions and structures are those of rdkafka.h, a stable interface.  The methods take and return what
confluent-kafka's methods of the same names do.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException, cimpl
from confluent_kafka.admin import AclOperation, AdminClient

from eomirror.kafka.cluster_metadata import ConfigValue, config_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
    from confluent_kafka.admin import ConfigResource, OffsetSpec

__all__ = [
    "ExactAdminClient",
    "GroupAnswer",
    "GroupRequest",
    "LogOffset",
    "PartOfAnswer",
    "PartitionLeader",
    "PartitionOffset",
    "RawPartition",
    "TopicAnswer",
    "group_partition",
]

# `rd_kafka_admin_op_t`
_DESCRIBE_CONFIGS, _LIST_GROUP_OFFSETS, _ALTER_OFFSETS, _DESCRIBE_TOPICS, _LIST_OFFSETS = 5, 14, 15, 19, 21
# names and values of settings that are kept: topics of a cluster have few that differ
_MOST_SETTINGS = 4096
_ERROR_BYTES = 512
_Pointer = ctypes.c_void_p
_Read = TypeVar("_Read")
_Part = TypeVar("_Part")
# parts of an answer by what they were asked by, each with its own error
_Parts: TypeAlias = "dict[Hashable, _Part | KafkaError]"


class RawPartition(ctypes.Structure):
    """``rd_kafka_topic_partition_t``."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("error", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


class _Partitions(ctypes.Structure):
    """``rd_kafka_topic_partition_list_t``."""

    _fields_ = (
        ("count", ctypes.c_int),
        ("size", ctypes.c_int),
        ("elements", ctypes.POINTER(RawPartition)),
    )


class PartitionOffset(NamedTuple):
    """
    Offset of a group in a partition, as a coordinator answers.

    Attributes:
        error: Error of this partition; None for none.
    """

    topic: str
    partition: int
    offset: int
    metadata: str
    error: KafkaError | None


class GroupAnswer(NamedTuple):
    """
    Answer of a coordinator about one group.

    Attributes:
        group_id: Name of the group.
        topic_partitions: Its partitions.
    """

    group_id: str
    topic_partitions: list[PartitionOffset]


class LogOffset(NamedTuple):
    """Offset of a partition, as its leader answers: -1001 if the connection broke before; epoch -1 for none."""

    offset: int
    timestamp: int
    leader_epoch: int


class _Leader(NamedTuple):
    """Leader of a partition; its host is empty if it is not among the brokers of the answer."""

    id: int
    host: str


class PartitionLeader(NamedTuple):
    """
    Partition of a described topic.

    Attributes:
        id: Its number.
        leader: Its leader; None for none.
        replicas: As many as it has.
        isr: As many as are in sync.
    """

    id: int
    leader: _Leader | None
    replicas: range
    isr: range


class TopicAnswer(NamedTuple):
    """
    Description of a topic.

    Attributes:
        name: Its name.
        topic_id: Its id.
        partitions: Its partitions.
        authorized_operations: Our rights, if they were asked for.
    """

    name: str
    topic_id: str
    partitions: list[PartitionLeader]
    authorized_operations: tuple[AclOperation, ...]


class ExactAdminClient(AdminClient):  # type: ignore[misc]  # it has no types
    """AdminClient whose offsets of groups have their exact metadata."""

    def list_consumer_group_offsets(
        self, request: Sequence[Any], *, require_stable: bool, request_timeout: float
    ) -> dict[str, GroupRequest]:
        """Asks for the offsets of one group."""
        (group,) = request
        call = _Call(self, _LIST_GROUP_OFFSETS, request_timeout)
        call.set("require_stable_offsets", wanted=require_stable)
        return {group.group_id: call.list(group.group_id)}

    def alter_consumer_group_offsets(
        self, request: Sequence[Any], *, request_timeout: float
    ) -> dict[str, GroupRequest]:
        """Commits offsets of one group."""
        (group,) = request
        return {
            group.group_id: _Call(self, _ALTER_OFFSETS, request_timeout).alter(
                group.group_id, group.topic_partitions
            )
        }

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float, names: Collection[str] = ()
    ) -> dict[ConfigResource, PartOfAnswer[dict[str, ConfigValue]]]:
        """Asks for the settings of resources of one kind; ``names`` limits them to those."""
        request = _Call(self, _DESCRIBE_CONFIGS, request_timeout).describe(resources, names)
        return {resource: PartOfAnswer(request, resource.name) for resource in resources}

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float, include_authorized_operations: bool = False
    ) -> dict[str, PartOfAnswer[TopicAnswer]]:
        """Asks for topics by name."""
        call = _Call(self, _DESCRIBE_TOPICS, request_timeout)
        call.set("include_authorized_operations", wanted=include_authorized_operations)
        request = call.topics(topics.topic_names)
        return {name: PartOfAnswer(request, name) for name in topics.topic_names}

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel,
        request_timeout: float,
    ) -> dict[TopicPartition, PartOfAnswer[LogOffset]]:
        """Asks for offsets of partitions."""
        call = _Call(self, _LIST_OFFSETS, request_timeout)
        call.set("isolation_level", wanted=isolation_level.value)
        request = call.offsets(topic_partition_offsets)
        return {one: PartOfAnswer(request, (one.topic, one.partition)) for one in topic_partition_offsets}


class _Answers:
    """The queue at which the answer to a request arrives."""

    def __init__(self, client: AdminClient, queue: int) -> None:
        # The queue is part of the client.
        self._client, self._queue = client, queue

    def take(self, timeout: float, read: Callable[[Any, int], _Read]) -> _Read:
        """
        Waits for the answer, and returns what ``read`` finds in its event.

        Raises:
            KafkaException: The request failed.
            TimeoutError: No answer in time.
        """
        library = _library()
        event = library.rd_kafka_queue_poll(self._queue, int(timeout * 1000))
        if not event:
            raise TimeoutError
        try:
            if code := library.rd_kafka_event_error(event):
                raise KafkaException(KafkaError(code, _text(library.rd_kafka_event_error_string(event))))
            return read(library, event)
        finally:
            library.rd_kafka_event_destroy(event)

    def __del__(self) -> None:
        _library().rd_kafka_queue_destroy(self._queue)


class PartOfAnswer(Generic[_Part]):
    """Future of one part of an answer, such as the settings of one topic."""

    __slots__ = ("_name", "_request")

    def __init__(self, request: _SharedAnswer[_Part], name: Hashable) -> None:
        self._request, self._name = request, name

    def result(self, timeout: float) -> _Part:
        """
        Waits for the answer.

        Raises:
            KafkaException: The request failed, or this part.
            TimeoutError: No answer in time.
        """
        found = self._request.of(self._name, timeout)
        if isinstance(found, KafkaError):
            raise KafkaException(found)
        return found


class GroupRequest:
    """A request that was sent; its answer arrives at a queue of its own."""

    def __init__(self, client: AdminClient, queue: int, kind: str) -> None:
        self._answers, self._kind = _Answers(client, queue), kind

    def result(self, timeout: float) -> GroupAnswer:
        """Waits for the answer; may be called once.  Raises as `_Answers.take`."""
        return self._answers.take(timeout, lambda library, event: _answer(library, event, self._kind))


class _SharedAnswer(Generic[_Part]):
    """The answer to a request that was sent; it is read once, for all of its parts.  Thread-safe."""

    def __init__(self, client: AdminClient, queue: int, read: Callable[[Any, int], _Parts[_Part]]) -> None:
        self._lock = threading.Lock()
        self._answers: _Answers | None = _Answers(client, queue)
        self._read = read
        self._found: _Parts[_Part] = {}
        self._failure = KafkaError(KafkaError._BAD_MSG, "nothing of it in the answer")

    def of(self, name: Hashable, timeout: float) -> _Part | KafkaError:
        """Returns a part, or its error; raises TimeoutError without an answer in time."""
        with self._lock:
            if self._answers is not None:
                try:
                    self._found = self._answers.take(timeout, self._read)
                except KafkaException as raised:
                    self._failure = raised.args[0]
                self._answers = None
        return self._found.get(name, self._failure)


class _Call:
    """One request with its options, which exist until it is sent."""

    def __init__(self, client: AdminClient, kind: int, seconds: float) -> None:
        self._client = client
        self._library = _library()
        # `Handle` of confluent-kafka: the object's head, then `rd_kafka_t *`
        self._handle = _Pointer.from_address(id(client) + object.__basicsize__).value
        self._options = self._library.rd_kafka_AdminOptions_new(self._handle, kind)
        reason = ctypes.create_string_buffer(_ERROR_BYTES)
        code = self._library.rd_kafka_AdminOptions_set_request_timeout(
            self._options, int(seconds * 1000), reason, len(reason)
        )
        if code:
            self._library.rd_kafka_AdminOptions_destroy(self._options)
            raise KafkaException(KafkaError(code, _text(reason.value)))

    def set(self, option: str, *, wanted: int) -> None:
        """Sets an option; one that the request cannot have stays as it is."""
        error = getattr(self._library, f"rd_kafka_AdminOptions_set_{option}")(self._options, int(wanted))
        if error:
            self._library.rd_kafka_error_destroy(error)

    def list(self, group: str) -> GroupRequest:
        """Sends OffsetFetch for all partitions."""
        made = self._library.rd_kafka_ListConsumerGroupOffsets_new(group.encode(), None)
        return self._sent("List", made)

    def alter(self, group: str, partitions: Sequence[Any]) -> GroupRequest:
        """Sends OffsetCommit."""
        rows = self._library.rd_kafka_topic_partition_list_new(len(partitions))
        texts = []
        for each in partitions:
            row = self._library.rd_kafka_topic_partition_list_add(rows, each.topic.encode(), each.partition)
            row.contents.offset = each.offset
            if each.metadata:
                text = each.metadata.encode()
                # The request copies it before the list is destroyed.
                texts.append(ctypes.create_string_buffer(text, len(text)))
                row.contents.metadata = ctypes.addressof(texts[-1])
                row.contents.metadata_size = len(text)
        made = self._library.rd_kafka_AlterConsumerGroupOffsets_new(group.encode(), rows)
        for index in range(len(partitions)):
            # Python's memory, which librdkafka must not free.
            rows.contents.elements[index].metadata = None
            rows.contents.elements[index].metadata_size = 0
        self._library.rd_kafka_topic_partition_list_destroy(rows)
        return self._sent("Alter", made)

    def describe(
        self, resources: Sequence[ConfigResource], names: Collection[str]
    ) -> _SharedAnswer[dict[str, ConfigValue]]:
        """Sends DescribeConfigs."""
        library = self._library
        rows = (_Pointer * len(resources))()
        wanted = [name.encode() for name in names]
        for index, resource in enumerate(resources):
            rows[index] = library.rd_kafka_ConfigResource_new(resource.restype.value, resource.name.encode())
            for name in wanted:
                # its value is not sent
                library.rd_kafka_ConfigResource_set_config(rows[index], name, b"")
        queue = library.rd_kafka_queue_new(self._handle)
        library.rd_kafka_DescribeConfigs(self._handle, rows, len(rows), self._options, queue)
        library.rd_kafka_ConfigResource_destroy_array(rows, len(rows))
        return self._shared(queue, _settings)

    def topics(self, names: Sequence[str]) -> _SharedAnswer[TopicAnswer]:
        """Sends DescribeTopics."""
        library = self._library
        texts = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
        asked = library.rd_kafka_TopicCollection_of_topic_names(texts, len(names))
        queue = library.rd_kafka_queue_new(self._handle)
        library.rd_kafka_DescribeTopics(self._handle, asked, self._options, queue)
        library.rd_kafka_TopicCollection_destroy(asked)
        return self._shared(queue, _topics)

    def offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> _SharedAnswer[LogOffset]:
        """Sends ListOffsets to all leaders."""
        library = self._library
        rows = library.rd_kafka_topic_partition_list_new(len(wanted))
        add = library.rd_kafka_topic_partition_list_add
        for one, spec in wanted.items():
            add(rows, one.topic.encode(), one.partition).contents.offset = spec._value
        queue = library.rd_kafka_queue_new(self._handle)
        library.rd_kafka_ListOffsets(self._handle, rows, self._options, queue)
        library.rd_kafka_topic_partition_list_destroy(rows)
        return self._shared(queue, _offsets)

    def _shared(self, queue: int, read: Callable[[Any, int], _Parts[_Part]]) -> _SharedAnswer[_Part]:
        self._library.rd_kafka_AdminOptions_destroy(self._options)
        return _SharedAnswer(self._client, queue, read)

    def _sent(self, kind: str, made: int) -> GroupRequest:
        library = self._library
        queue = library.rd_kafka_queue_new(self._handle)
        requests = (_Pointer * 1)(made)
        getattr(library, f"rd_kafka_{kind}ConsumerGroupOffsets")(
            self._handle, requests, 1, self._options, queue
        )
        getattr(library, f"rd_kafka_{kind}ConsumerGroupOffsets_destroy")(made)
        library.rd_kafka_AdminOptions_destroy(self._options)
        return GroupRequest(self._client, queue, kind)


def _answer(library: Any, event: int, kind: str) -> GroupAnswer:
    result = getattr(library, f"rd_kafka_event_{kind}ConsumerGroupOffsets_result")(event)
    count = ctypes.c_size_t()
    groups = getattr(library, f"rd_kafka_{kind}ConsumerGroupOffsets_result_groups")(
        result, ctypes.byref(count)
    )
    group = groups[0]
    if error := library.rd_kafka_group_result_error(group):
        code = library.rd_kafka_error_code(error)
        raise KafkaException(KafkaError(code, _text(library.rd_kafka_error_string(error))))
    rows = library.rd_kafka_group_result_partitions(group).contents
    return GroupAnswer(
        _text(library.rd_kafka_group_result_name(group)),
        [group_partition(rows.elements[index]) for index in range(rows.count)],
    )


def _settings(library: Any, event: int) -> dict[Hashable, dict[str, ConfigValue] | KafkaError]:
    result = library.rd_kafka_event_DescribeConfigs_result(event)
    count, entries = ctypes.c_size_t(), ctypes.c_size_t()
    resources = library.rd_kafka_DescribeConfigs_result_resources(result, ctypes.byref(count))
    name_of, value_of = library.rd_kafka_ConfigEntry_name, library.rd_kafka_ConfigEntry_value
    source_of, is_sensitive = library.rd_kafka_ConfigEntry_source, library.rd_kafka_ConfigEntry_is_sensitive
    is_read_only = library.rd_kafka_ConfigEntry_is_read_only
    found: dict[Hashable, dict[str, ConfigValue] | KafkaError] = {}
    for resource in resources[: count.value]:
        name = _text(library.rd_kafka_ConfigResource_name(resource))
        if code := library.rd_kafka_ConfigResource_error(resource):
            found[name] = KafkaError(code, _text(library.rd_kafka_ConfigResource_error_string(resource)))
            continue
        rows = library.rd_kafka_ConfigResource_configs(resource, ctypes.byref(entries))
        found[name] = {
            _known_text(name_of(row)): _setting(
                value_of(row), source_of(row), bool(is_read_only(row)), bool(is_sensitive(row))
            )
            for row in rows[: entries.value]
        }
    return found


def _offsets(library: Any, event: int) -> dict[Hashable, LogOffset | KafkaError]:
    count = ctypes.c_size_t()
    infos = library.rd_kafka_ListOffsets_result_infos(
        library.rd_kafka_event_ListOffsets_result(event), ctypes.byref(count)
    )
    row_of, time_of = (
        library.rd_kafka_ListOffsetsResultInfo_topic_partition,
        library.rd_kafka_ListOffsetsResultInfo_timestamp,
    )
    epoch_of = library.rd_kafka_topic_partition_get_leader_epoch
    found: dict[Hashable, LogOffset | KafkaError] = {}
    for info in infos[: count.value]:
        place = row_of(info)
        row = place.contents
        found[_known_text(row.topic), row.partition] = (
            KafkaError(row.error) if row.error else LogOffset(row.offset, time_of(info), epoch_of(place))
        )
    return found


def _topics(library: Any, event: int) -> dict[Hashable, TopicAnswer | KafkaError]:
    count, size = ctypes.c_size_t(), ctypes.c_size_t()
    topics = library.rd_kafka_DescribeTopics_result_topics(
        library.rd_kafka_event_DescribeTopics_result(event), ctypes.byref(count)
    )
    found: dict[Hashable, TopicAnswer | KafkaError] = {}
    for topic in topics[: count.value]:
        name = _text(library.rd_kafka_TopicDescription_name(topic))
        error = library.rd_kafka_TopicDescription_error(topic)
        if error and (code := library.rd_kafka_error_code(error)):
            found[name] = KafkaError(code, _text(library.rd_kafka_error_string(error)))
            continue
        rows = library.rd_kafka_TopicDescription_partitions(topic, ctypes.byref(size))
        partitions = [_partition(library, row) for row in rows[: size.value]]
        rights = library.rd_kafka_TopicDescription_authorized_operations(topic, ctypes.byref(size))
        topic_id = library.rd_kafka_TopicDescription_topic_id(topic)
        found[name] = TopicAnswer(
            name,
            _text(library.rd_kafka_Uuid_base64str(topic_id)),
            partitions,
            tuple(map(AclOperation, rights[: size.value])),
        )
    return found


def _partition(library: Any, row: int) -> PartitionLeader:
    size = ctypes.c_size_t()
    library.rd_kafka_TopicPartitionInfo_replicas(row, ctypes.byref(size))
    replicas = size.value
    library.rd_kafka_TopicPartitionInfo_isr(row, ctypes.byref(size))
    leader = library.rd_kafka_TopicPartitionInfo_leader(row)
    known = (
        None if not leader else (library.rd_kafka_Node_id(leader), library.rd_kafka_Node_host(leader) or b"")
    )
    return _shared_partition(library.rd_kafka_TopicPartitionInfo_partition(row), known, replicas, size.value)


@functools.lru_cache(_MOST_SETTINGS)
def _shared_partition(
    number: int, leader: tuple[int, bytes] | None, replicas: int, in_sync: int
) -> PartitionLeader:
    """Returns a partition; those of many topics are alike."""
    led_by = None if leader is None else _Leader(leader[0], _text(leader[1]))
    return PartitionLeader(number, led_by, range(replicas), range(in_sync))


@functools.lru_cache(_MOST_SETTINGS)
def _setting(value: bytes | None, source: int, read_only: bool, sensitive: bool) -> ConfigValue:  # noqa: FBT001  as its caller has them
    """Returns a setting; thousands of topics share one object."""
    return config_value(
        SimpleNamespace(
            value=None if value is None else _text(value),
            source=source,
            is_read_only=read_only,
            is_sensitive=sensitive,
        )
    )


@functools.lru_cache(_MOST_SETTINGS)
def _known_text(found: bytes) -> str:
    return _text(found)


def group_partition(row: RawPartition) -> PartitionOffset:
    """Returns a row of an answer; metadata that is not UTF-8 is an error of its partition."""
    error = KafkaError(row.error) if row.error else None
    raw = ctypes.string_at(row.metadata, row.metadata_size) if row.metadata and row.metadata_size else b""
    try:
        metadata = raw.decode()
    except UnicodeDecodeError:
        # It cannot be copied to a string of another cluster.
        metadata = ""
        error = error or KafkaError(
            KafkaError._BAD_MSG,
            f"the metadata of its offset in {_text(row.topic)}-{row.partition} is not UTF-8",
        )
    return PartitionOffset(_text(row.topic), row.partition, row.offset, metadata, error)


def _text(found: bytes | None) -> str:
    return (found or b"").decode(errors="replace")


@functools.cache
def _library() -> Any:
    """Returns librdkafka's functions in the copy that confluent-kafka has loaded."""
    library = ctypes.CDLL(cimpl.__file__)
    number, text, size = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
    rows = ctypes.POINTER(_Partitions)
    for name, result, arguments in (
        ("AdminOptions_new", _Pointer, (_Pointer, number)),
        ("AdminOptions_set_request_timeout", number, (_Pointer, number, text, size)),
        *(
            (f"AdminOptions_set_{option}", _Pointer, (_Pointer, number))
            for option in ("require_stable_offsets", "include_authorized_operations", "isolation_level")
        ),
        ("AdminOptions_destroy", None, (_Pointer,)),
        ("ListConsumerGroupOffsets_new", _Pointer, (text, _Pointer)),
        ("AlterConsumerGroupOffsets_new", _Pointer, (text, rows)),
        *(
            row
            for kind in ("List", "Alter")
            for row in (
                (f"{kind}ConsumerGroupOffsets", None, (_Pointer, _Pointer, size, _Pointer, _Pointer)),
                (f"{kind}ConsumerGroupOffsets_destroy", None, (_Pointer,)),
                (f"event_{kind}ConsumerGroupOffsets_result", _Pointer, (_Pointer,)),
                (
                    f"{kind}ConsumerGroupOffsets_result_groups",
                    ctypes.POINTER(_Pointer),
                    (_Pointer, ctypes.POINTER(size)),
                ),
            )
        ),
        ("topic_partition_list_new", rows, (number,)),
        ("topic_partition_list_add", ctypes.POINTER(RawPartition), (rows, text, ctypes.c_int32)),
        ("topic_partition_list_destroy", None, (rows,)),
        ("topic_partition_get_leader_epoch", ctypes.c_int32, (ctypes.POINTER(RawPartition),)),
        ("ConfigResource_new", _Pointer, (number, text)),
        ("ConfigResource_set_config", number, (_Pointer, text, text)),
        ("ConfigResource_destroy_array", None, (ctypes.POINTER(_Pointer), size)),
        ("ConfigResource_name", text, (_Pointer,)),
        ("ConfigResource_error", number, (_Pointer,)),
        ("ConfigResource_configs", ctypes.POINTER(_Pointer), (_Pointer, ctypes.POINTER(size))),
        ("ConfigEntry_name", text, (_Pointer,)),
        ("ConfigEntry_value", text, (_Pointer,)),
        ("ConfigEntry_source", number, (_Pointer,)),
        ("ConfigEntry_is_read_only", number, (_Pointer,)),
        ("ConfigEntry_is_sensitive", number, (_Pointer,)),
        ("ConfigResource_error_string", text, (_Pointer,)),
        ("DescribeConfigs", None, (_Pointer, ctypes.POINTER(_Pointer), size, _Pointer, _Pointer)),
        ("DescribeConfigs_result_resources", ctypes.POINTER(_Pointer), (_Pointer, ctypes.POINTER(size))),
        ("event_DescribeConfigs_result", _Pointer, (_Pointer,)),
        ("TopicCollection_of_topic_names", _Pointer, (ctypes.POINTER(text), size)),
        ("TopicCollection_destroy", None, (_Pointer,)),
        ("DescribeTopics", None, (_Pointer, _Pointer, _Pointer, _Pointer)),
        ("event_DescribeTopics_result", _Pointer, (_Pointer,)),
        ("DescribeTopics_result_topics", ctypes.POINTER(_Pointer), (_Pointer, ctypes.POINTER(size))),
        ("TopicDescription_name", text, (_Pointer,)),
        ("TopicDescription_error", _Pointer, (_Pointer,)),
        ("TopicDescription_topic_id", _Pointer, (_Pointer,)),
        ("Uuid_base64str", text, (_Pointer,)),
        ("TopicDescription_partitions", ctypes.POINTER(_Pointer), (_Pointer, ctypes.POINTER(size))),
        (
            "TopicDescription_authorized_operations",
            ctypes.POINTER(number),
            (_Pointer, ctypes.POINTER(size)),
        ),
        ("TopicPartitionInfo_partition", number, (_Pointer,)),
        ("TopicPartitionInfo_leader", _Pointer, (_Pointer,)),
        ("TopicPartitionInfo_isr", _Pointer, (_Pointer, ctypes.POINTER(size))),
        ("TopicPartitionInfo_replicas", _Pointer, (_Pointer, ctypes.POINTER(size))),
        ("Node_id", number, (_Pointer,)),
        ("Node_host", text, (_Pointer,)),
        ("ListOffsets", None, (_Pointer, rows, _Pointer, _Pointer)),
        ("event_ListOffsets_result", _Pointer, (_Pointer,)),
        ("ListOffsets_result_infos", ctypes.POINTER(_Pointer), (_Pointer, ctypes.POINTER(size))),
        ("ListOffsetsResultInfo_topic_partition", ctypes.POINTER(RawPartition), (_Pointer,)),
        ("ListOffsetsResultInfo_timestamp", ctypes.c_int64, (_Pointer,)),
        ("group_result_name", text, (_Pointer,)),
        ("group_result_error", _Pointer, (_Pointer,)),
        ("group_result_partitions", rows, (_Pointer,)),
        ("error_code", number, (_Pointer,)),
        ("error_string", text, (_Pointer,)),
        ("error_destroy", None, (_Pointer,)),
        ("queue_new", _Pointer, (_Pointer,)),
        ("queue_poll", _Pointer, (_Pointer, number)),
        ("queue_destroy", None, (_Pointer,)),
        ("event_error", number, (_Pointer,)),
        ("event_error_string", text, (_Pointer,)),
        ("event_destroy", None, (_Pointer,)),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library
