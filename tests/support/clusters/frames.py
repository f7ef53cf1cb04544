"""
Kafka's wire format as far as a proxy has to read it: frames, request headers, and whose transaction it is.

Pure.  https://kafka.apache.org/protocol: a frame is a 4-byte length and so many bytes; a request begins with API
key, version, correlation id and client id, an answer with the correlation id of its request.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

__all__ = [
    "Api", "FrameError", "FrameSplitter", "Request", "answer_error", "correlation_id", "parse_request", "with_error",
]  # fmt: skip

# brokers refuse larger ones (socket.request.max.bytes), and an answer is no larger than what was asked for
_MOST_BYTES = 256 * 1024 * 1024


class Api(enum.IntEnum):
    """API keys that tests name; a proxy passes all others as well."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26


# from this version on strings are compact and headers carry tagged fields (KIP-482)
_FLEXIBLE_SINCE: dict[int, int] = {
    Api.PRODUCE: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
}
# Produce names its transaction since version 3; AddPartitionsToTxn carries many since version 4 (brokers only)
_NAMED_SINCE: dict[int, int] = {Api.PRODUCE: 3}
_NAMED_BEFORE: dict[int, int] = {Api.ADD_PARTITIONS_TO_TXN: 4}
_TOPIC_ID_SINCE = 13  # Produce: a topic's id in place of its name


class FrameError(Exception):
    """What came is no Kafka frame."""


class FrameSplitter:
    """Cuts a stream of bytes into whole frames, length included."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """
        Whole frames, now that these bytes have come.

        Raises:
            FrameError: A length that no frame has, such as the first bytes of a TLS handshake.
        """
        self._rest += data
        frames = []
        begin = 0
        while len(self._rest) - begin >= 4:
            (length,) = struct.unpack_from(">i", self._rest, begin)
            if not 0 <= length <= _MOST_BYTES:
                raise FrameError(f"a frame of {length} bytes")
            if len(self._rest) - begin < 4 + length:
                break
            frames.append(bytes(self._rest[begin : begin + 4 + length]))
            begin += 4 + length
        del self._rest[:begin]
        return frames


@dataclass(frozen=True, slots=True)
class Request:
    """
    What a request says about itself.

    Attributes:
        api_key: Which API; `Api` names some.
        api_version: Of the API.
        correlation_id: Comes back in the answer; unique per connection.
        client_id: Of the client; empty for none.
        transactional_id: Whose transaction it is part of; empty for none.
        commit: Whether an EndTxn commits; None for all other requests.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str = ""
    transactional_id: str = ""
    commit: bool | None = None

    @property
    def flexible(self) -> bool:
        """Whether its fields are compact and tagged; known for transactional requests only."""
        return self.api_version >= _FLEXIBLE_SINCE.get(self.api_key, 1 << 15)


def parse_request(frame: bytes) -> Request:
    """
    The header of a request's frame, and the transaction that it names.

    Raises:
        FrameError: It is too short to be a request.
    """
    reader = _Reader(frame, 4)
    try:
        key, version, correlation = reader.int16(), reader.int16(), reader.int32()
        head = Request(key, version, correlation, reader.string())
        named = _NAMED_SINCE.get(key, 0) <= version < _NAMED_BEFORE.get(key, 1 << 15)
        if key not in _FLEXIBLE_SINCE or not named:
            return head
        if head.flexible:
            reader.tagged_fields()
        identity = reader.compact_string() if head.flexible else reader.string()
        commit = None
        if key == Api.END_TXN:
            reader.skip(8 + 2)  # producer id and epoch
            commit = reader.skip(1) != b"\0"
        return Request(key, version, correlation, head.client_id, identity, commit)
    except struct.error as error:
        raise FrameError(f"a request of {len(frame)} bytes: {error}") from None


def correlation_id(frame: bytes) -> int:
    """Which request of its connection an answer's frame belongs to."""
    if len(frame) < 8:
        raise FrameError(f"an answer of {len(frame)} bytes")
    return int(struct.unpack_from(">i", frame, 4)[0])


def answer_error(request: Request, frame: bytes) -> int | None:
    """
    The error code of an answer: of EndTxn, InitProducerId, and the first partition of a Produce.

    None for other requests, and for what cannot be read.
    """
    place = _error_place(request, frame)
    return None if place is None else _Reader(frame, place).int16()


def with_error(request: Request, frame: bytes, error: int) -> bytes | None:
    """The same answer with another error code, where `answer_error` finds it; None where it finds none."""
    place = _error_place(request, frame)
    return None if place is None else frame[:place] + struct.pack(">h", error) + frame[place + 2 :]


def _error_place(request: Request, frame: bytes) -> int | None:
    reader = _Reader(frame, 8)
    try:
        if request.flexible:
            reader.tagged_fields()
        if request.api_key in (Api.END_TXN, Api.INIT_PRODUCER_ID):
            reader.skip(4)  # throttle time
            return reader.before(2)
        if request.api_key == Api.PRODUCE:
            topics = reader.compact_length() if request.flexible else reader.int32()
            if topics < 1:
                return None
            if request.api_version >= _TOPIC_ID_SINCE:
                reader.skip(16)
            else:
                reader.compact_string() if request.flexible else reader.string()
            partitions = reader.compact_length() if request.flexible else reader.int32()
            if partitions < 1:
                return None
            reader.skip(4)  # index
            return reader.before(2)
    except struct.error:
        return None
    return None


class _Reader:
    """Reads fields one after the other; struct.error where the frame ends too early."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place

    def skip(self, count: int) -> bytes:
        found = self._data[self._place : self._place + count]
        if count < 0 or len(found) < count:
            raise struct.error(f"no {count} bytes at {self._place}")
        self._place += count
        return found

    def before(self, count: int) -> int:
        """The place of the next so many bytes, which are there."""
        place = self._place
        self.skip(count)
        return place

    def int16(self) -> int:
        return int.from_bytes(self.skip(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.skip(4), "big", signed=True)

    def string(self) -> str:
        length = self.int16()
        return "" if length < 0 else self.skip(length).decode("utf-8", "replace")

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.skip(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact_length(self) -> int:
        return self.varint() - 1

    def compact_string(self) -> str:
        length = self.compact_length()
        return "" if length < 0 else self.skip(length).decode("utf-8", "replace")

    def tagged_fields(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())
