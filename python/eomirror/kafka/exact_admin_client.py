"""
AdminClient that reads and commits offsets of groups with the exact bytes of their metadata.

Metadata of a commit is a string of any length, which a Java client, Kafka Streams or franz-go fills.  librdkafka keeps
its length and puts no NUL behind it.  confluent-kafka (2.16) takes it as a C string: it reads beyond the end, into
foreign memory, and it commits a NUL that the group did not have.  So these two requests call librdkafka's functions
directly, on the client that confluent-kafka has connected, with every login that librdkafka knows.

The functions and structures are those of rdkafka.h, a stable interface.  The methods take and return what
confluent-kafka's methods of the same names do.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, cimpl
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ExactAdminClient",
    "GroupAnswer",
    "GroupRequest",
    "PartitionOffset",
    "RawPartition",
    "group_partition",
]

# `rd_kafka_admin_op_t`
_LIST_OFFSETS, _ALTER_OFFSETS = 14, 15
_ERROR_BYTES = 512
_Pointer = ctypes.c_void_p


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


class ExactAdminClient(AdminClient):  # type: ignore[misc]  # it has no types
    """AdminClient whose offsets of groups have their exact metadata."""

    def list_consumer_group_offsets(
        self, request: Sequence[Any], *, require_stable: bool, request_timeout: float
    ) -> dict[str, GroupRequest]:
        """Asks for the offsets of one group."""
        (group,) = request
        call = _Call(self, _LIST_OFFSETS, request_timeout)
        call.require_stable(wanted=require_stable)
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


class GroupRequest:
    """A request that was sent; its answer arrives at a queue of its own."""

    def __init__(self, client: AdminClient, queue: int, kind: str) -> None:
        # The queue is part of the client.
        self._client, self._queue, self._kind = client, queue, kind

    def result(self, timeout: float) -> GroupAnswer:
        """
        Waits for the answer; may be called once.

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
            return _answer(library, event, self._kind)
        finally:
            library.rd_kafka_event_destroy(event)

    def __del__(self) -> None:
        _library().rd_kafka_queue_destroy(self._queue)


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

    def require_stable(self, *, wanted: bool) -> None:
        """Offsets of open transactions are an error, instead of the ones before them."""
        error = self._library.rd_kafka_AdminOptions_set_require_stable_offsets(self._options, int(wanted))
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
        ("AdminOptions_set_require_stable_offsets", _Pointer, (_Pointer, number)),
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
