"""
Leaves transactions open that are over, as Kafka 4.3 does in partitions without a leader (docs/adr/0012).

A producer that speaks the first transaction protocol over a bare socket, and forgets to tell the coordinator which
partitions it writes to: their markers are never made.  The brokers must be told not to ask the coordinator
(`UNVERIFIED`).
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["UNVERIFIED", "Forgetful"]

#: Of brokers that let a producer write to a partition that its coordinator has not heard of (KIP-890).
UNVERIFIED: Final = {"transaction.partition.verification.enable": "false"}

_PRODUCE, _FIND_COORDINATOR, _INIT_PRODUCER_ID = 0, 10, 22
_SECONDS = 10.0
_TRANSACTIONAL = 0x10
_NO_LEADER_YET = {3, 5, 6}
# key and value
Record = tuple[bytes, bytes | None]


class Forgetful:
    """
    A producer of one transactional.id on a cluster of one broker.

    Args:
        address: host:port of the broker.
        transactional_id: Taken over at once: its producer is fenced.

    Attributes:
        producer_id: What the coordinator gave.
        epoch: Epoch that the coordinator gave.
    """

    def __init__(self, address: str, transactional_id: str) -> None:
        host, port = address.rsplit(":", 1)
        self._address = host, int(port)
        self._id = transactional_id
        self._sequences: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + _SECONDS
        while True:
            # the first who asks has the brokers make the topic of transactions
            self._ask(_FIND_COORDINATOR, 1, _string(transactional_id) + b"\1")
            answer = self._ask(_INIT_PRODUCER_ID, 1, _string(transactional_id) + struct.pack(">i", 60_000))
            error, self.producer_id, self.epoch = struct.unpack_from(">hqh", answer, 4)
            if error == 0:
                return
            assert time.monotonic() < deadline, f"InitProducerId: error {error}"
            time.sleep(0.1)

    @classmethod
    def posing(cls, address: str, transactional_id: str, producer_id: int, epoch: int) -> Self:
        """As the producer that has the id now, and keeps it; for partitions that it has not written to."""
        made = cls.__new__(cls)
        host, port = address.rsplit(":", 1)
        made._address, made._id, made._sequences = (host, int(port)), transactional_id, {}
        made.producer_id, made.epoch = producer_id, epoch
        return made

    def write(self, topic: str, partition: int, records: Sequence[Record]) -> int:
        """Leave records open; the offset of the first."""
        first = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = first + len(records)
        batch = self._batch(records, first)
        body = _string(self._id) + struct.pack(">hii", -1, 10_000, 1) + _string(topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        deadline = time.monotonic() + _SECONDS
        while True:
            answer = self._ask(_PRODUCE, 8, body)
            # behind one topic, its name, one partition and its number
            error, offset = struct.unpack_from(">hq", answer, 4 + 2 + len(topic.encode()) + 4 + 4)
            if error == 0:
                return int(offset)
            # a topic that has just been made
            assert error in _NO_LEADER_YET, f"Produce: error {error}"
            assert time.monotonic() < deadline, f"Produce: error {error}"
            time.sleep(0.1)

    def _batch(self, records: Sequence[Record], first: int) -> bytes:
        now = time.time_ns() // 1_000_000
        body = b"".join(_record(number, *record) for number, record in enumerate(records))
        head = struct.pack(
            ">hiqqqhii",
            _TRANSACTIONAL,
            len(records) - 1,
            now,
            now,
            self.producer_id,
            self.epoch,
            first,
            len(records),
        )
        checked = head + body
        behind_length = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
        return struct.pack(">qi", 0, len(behind_length)) + behind_length

    def _ask(self, key: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhi", key, version, 1) + _string("forgetful") + body
        with socket.create_connection(self._address, _SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            return _exactly(connection, size)[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = connection.recv(size - len(read))
        assert more, "the broker closed the connection"
        read += more
    return read


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _varint(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    raw = bytearray()
    while True:
        low, left = left & 0x7F, left >> 7
        raw.append(low | (0x80 if left else 0))
        if not left:
            return bytes(raw)


def _record(number: int, key: bytes, value: bytes | None) -> bytes:
    body = b"\0" + _varint(0) + _varint(number) + _varint(len(key)) + key
    body += _varint(-1) if value is None else _varint(len(value)) + value
    body += _varint(0)
    return _varint(len(body)) + body


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _entry(number: int) -> int:
    for _ in range(8):
        number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
    return number


_TABLE = tuple(map(_entry, range(256)))
