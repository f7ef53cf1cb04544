"""
Encodes the authenticated JSON frames between a lane and the driver.

A frame is four bytes of length, 16 bytes of HMAC-SHA256, and a JSON object.  The key is derived from the run's token,
which only the driver and the closures of its tasks have, and from a nonce of each side.  The MAC covers the direction
and the number of the frame.  So a stranger that finds the port can neither send nor replay frames, and both sides are
authenticated from the first frame on.  Nothing is unpickled from the wire.

The lane starts with a greeting: its nonce, and a proof (HMAC-SHA256 under the token).  It sends it without waiting for
the driver, so the driver distinguishes a lane from a stranger by the first bytes, and answers nothing to a stranger.
A replayed greeting proves nothing: the driver accepts each nonce once.

::

    lane -> driver   nonce (32 bytes), proof (32 bytes)
    driver -> lane   nonce (32 bytes)
    lane -> driver   {"type":"hello","link","lane","epoch","attempt"}
    driver -> lane   {"type":"welcome"}, later "ping", {"type":"stop","reason"}, {"type":"added","partitions"}
                     {"type":"released","partitions","generation"}, {"type":"groups","offsets"}
    lane -> driver   {"type":"progress", ...}, {"type":"groups","offsets"}

Frames are not encrypted: they contain topic names, offsets and group names.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.lane.measures import Histogram, LaneMeasures
from eomirror.lane.spec import (
    AssignedPartition,
    GroupOffset,
    LaneProgress,
    PartitionProgress,
    Released,
    StoppedTopic,
)
from eomirror.plane.protocol import Serving
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "GREETING_BYTES",
    "MAX_FRAME_BYTES",
    "NONCE_BYTES",
    "FrameCodec",
    "FrameError",
    "decode_added",
    "decode_groups",
    "decode_progress",
    "decode_released",
    "encode_added",
    "encode_groups",
    "encode_progress",
    "encode_released",
    "greeting",
    "nonce_of",
]

#: Longer frames are refused before their body is read.
MAX_FRAME_BYTES = 4 << 20
NONCE_BYTES = 32
#: A lane's nonce and its proof.
GREETING_BYTES = 64

# 1,000 partitions are some 200 kB: far below the limit
_PARTITIONS_PER_FRAME = 1000
# half of the limit, for foreign texts of any length: the metadata that a group commits with an offset
_TEXT_BYTES = MAX_FRAME_BYTES // 2
# a control character is \u and four digits in JSON
_BYTES_PER_CHARACTER = 6
_LENGTH_BYTES = 4
_MAC_BYTES = 16


class FrameError(Exception):
    """Received bytes are not a valid frame: the connection must be closed."""


def greeting(token: str, lane_nonce: bytes) -> bytes:
    """
    Returns the first bytes that a lane sends.

    Args:
        token: Secret of the run, in hexadecimal.
        lane_nonce: Random bytes, used once.
    """
    return lane_nonce + hmac.digest(
        bytes.fromhex(token), b"eomirror lane greeting 1" + lane_nonce, hashlib.sha256
    )


def nonce_of(token: str, greeted: bytes) -> bytes:
    """
    Returns the lane's nonce from its greeting.

    Raises:
        FrameError: The sender does not have the token.
    """
    nonce = greeted[:NONCE_BYTES]
    if not hmac.compare_digest(greeted, greeting(token, nonce)):
        raise FrameError("the greeting is not authentic")
    return nonce


class FrameCodec:
    """
    Codec of both directions of one connection; does no I/O, so it serves blocking and non-blocking sockets.

    Args:
        token: Secret of the run, in hexadecimal.
        driver_nonce: Nonce of the driver.
        lane_nonce: Nonce of the lane.
        is_driver: True on the driver's side.
    """

    __slots__ = ("_buffer", "_key", "_received", "_receives", "_sends", "_sent")

    def __init__(self, token: str, *, driver_nonce: bytes, lane_nonce: bytes, is_driver: bool) -> None:
        secret = bytes.fromhex(token)
        self._key = hmac.digest(secret, b"eomirror lane line 1" + driver_nonce + lane_nonce, hashlib.sha256)
        self._sends, self._receives = (b"D", b"L") if is_driver else (b"L", b"D")
        self._sent = 0
        self._received = 0
        self._buffer = bytearray()

    def encode(self, message: Mapping[str, Any]) -> bytes:
        """Returns the next frame to send."""
        body = orjson.dumps(message)
        if len(body) > MAX_FRAME_BYTES:
            raise FrameError(f"a message of {len(body)} bytes is too long to send")
        mac = self._mac(self._sends, self._sent, body)
        self._sent += 1
        return len(body).to_bytes(_LENGTH_BYTES, "big") + mac + body

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """
        Adds received bytes; returns the complete messages.

        Raises:
            FrameError: The other side does not have the token, or the frame is too long or not a JSON object.
        """
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"a frame of {length} bytes is too long")
            end = _LENGTH_BYTES + _MAC_BYTES + length
            if len(self._buffer) < end:
                break
            mac = bytes(self._buffer[_LENGTH_BYTES : _LENGTH_BYTES + _MAC_BYTES])
            body = bytes(self._buffer[_LENGTH_BYTES + _MAC_BYTES : end])
            del self._buffer[:end]
            if not hmac.compare_digest(mac, self._mac(self._receives, self._received, body)):
                raise FrameError("a frame is not authentic")
            self._received += 1
            messages.append(_parse(body))
        return messages

    def _mac(self, direction: bytes, number: int, body: bytes) -> bytes:
        return hmac.digest(self._key, direction + number.to_bytes(8, "big") + body, hashlib.sha256)[
            :_MAC_BYTES
        ]


def encode_progress(progress: LaneProgress) -> list[dict[str, Any]]:
    """Returns the messages of a progress report; several if many partitions changed."""
    fields = {
        "type": "progress",
        **{name: getattr(progress, name) for name in LaneProgress.__slots__},
        "stopped_topics": {topic: astuple(stop) for topic, stop in progress.stopped_topics.items()},
        "serving": astuple(progress.serving),
        "measures": astuple(progress.measures),
    }
    return [
        {
            **fields,
            "partitions": [[getattr(item, name) for name in PartitionProgress.__slots__] for item in chunk],
        }
        for chunk in _chunks(progress.partitions) or [()]
    ]


def decode_progress(message: Mapping[str, Any]) -> LaneProgress:
    """
    Decodes a progress message.

    Raises:
        FrameError: It is not one.
    """
    try:
        fields = {name: message[name] for name in LaneProgress.__slots__}
        partitions = tuple(
            PartitionProgress(
                topic=str(topic),
                partition=int(partition),
                position=int(position),
                lso=None if lso is None else int(lso),
                lag_seconds=None if lag is None else float(lag),
                records=int(records),
                bytes=int(size),
                dropped={str(reason): int(count) for reason, count in dropped.items()},
            )
            for topic, partition, position, lso, lag, records, size, dropped in fields.pop("partitions")
        )
        stopped = {
            str(topic): StoppedTopic(str(reason), str(fix), int(code), bool(retried))
            for topic, (reason, fix, code, retried) in fields.pop("stopped_topics").items()
        }
        measures = _decode_measures(fields.pop("measures"))
        serving = Serving(*fields.pop("serving"))
        return replace(
            LaneProgress(**fields),
            partitions=partitions,
            stopped_topics=stopped,
            measures=measures,
            serving=serving,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a progress message: {error}") from error


def _decode_measures(values: Sequence[Any]) -> LaneMeasures:
    aborted, fenced, *histograms, left_out = values
    durations, records, latency = (
        Histogram(tuple(int(count) for count in counts), float(total)) for counts, total in histograms
    )
    return LaneMeasures(int(aborted), int(fenced), durations, records, latency, int(left_out))


def encode_added(partitions: Sequence[AssignedPartition]) -> list[dict[str, Any]]:
    """Returns the messages that add partitions to a lane; none for no partitions."""
    return [
        {
            "type": "added",
            "partitions": [
                [*item.source, item.topic_id, item.target_topic, item.target_topic_id, item.generation]
                for item in chunk
            ],
        }
        for chunk in _chunks(partitions)
    ]


def decode_added(message: Mapping[str, Any]) -> tuple[AssignedPartition, ...]:
    """
    Decodes the partitions of an ``added`` message.

    Raises:
        FrameError: It is not one.
    """
    try:
        return tuple(
            AssignedPartition(
                SourcePartition(str(topic), int(partition)),
                str(topic_id),
                str(target),
                str(target_id),
                int(generation),
            )
            for topic, partition, topic_id, target, target_id, generation in message["partitions"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not an added message: {error}") from error


def encode_released(released: Released) -> dict[str, Any]:
    """Returns the message that takes partitions from a lane: only one, as the lane answers for all of them at once."""
    return {
        "type": "released",
        "partitions": [list(source) for source in sorted(released.sources)],
        "generation": released.generation,
    }


def decode_released(message: Mapping[str, Any]) -> Released:
    """
    Decodes a ``released`` message.

    Raises:
        FrameError: It is not one.
    """
    try:
        sources = (SourcePartition(str(topic), int(partition)) for topic, partition in message["partitions"])
        return Released(frozenset(sources), int(message["generation"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a released message: {error}") from error


def encode_groups(offsets: Sequence[GroupOffset]) -> list[dict[str, Any]]:
    """Returns the messages with group offsets, for either direction; none for no offsets."""
    return [
        {
            "type": "groups",
            "offsets": [
                [item.group, *item.source, item.upstream, item.downstream, item.metadata] for item in chunk
            ],
        }
        for some in _chunks(offsets)
        for chunk in _short(some)
    ]


def decode_groups(message: Mapping[str, Any]) -> tuple[GroupOffset, ...]:
    """
    Decodes the group offsets of a message.

    Raises:
        FrameError: It is not one.
    """
    try:
        return tuple(
            GroupOffset(
                str(group),
                SourcePartition(str(topic), int(partition)),
                int(upstream),
                None if downstream is None else int(downstream),
                str(metadata),
            )
            for group, topic, partition, upstream, downstream, metadata in message["offsets"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a message about groups: {error}") from error


def _chunks(items: Sequence[Any]) -> list[Sequence[Any]]:
    starts: Iterable[int] = range(0, len(items), _PARTITIONS_PER_FRAME)
    return [items[start : start + _PARTITIONS_PER_FRAME] for start in starts]


def _short(offsets: Sequence[GroupOffset]) -> list[Sequence[GroupOffset]]:
    """Splits offsets into portions whose texts fit a frame; those of a single offset do, as Kafka limits them."""
    portions: list[Sequence[GroupOffset]] = []
    begin, size = 0, 0
    for place, item in enumerate(offsets):
        text = _BYTES_PER_CHARACTER * (len(item.group) + len(item.source.topic) + len(item.metadata))
        if size + text > _TEXT_BYTES and place > begin:
            portions.append(offsets[begin:place])
            begin, size = place, 0
        size += text
    return [*portions, offsets[begin:]]


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FrameError("a frame is not JSON") from error
    if not isinstance(message, dict):
        raise FrameError("a frame is not a JSON object")
    return message
