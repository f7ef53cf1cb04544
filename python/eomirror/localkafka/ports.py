"""
Ports of embedded brokers: free ones that a broker can keep, and the brokers that serve behind one.

A broker that is killed and started again needs its old port, so the usual trick (bind port 0, close, use
the number) does not do: the kernel may lend that number to any outgoing connection meanwhile.  We draw from below
the range that the kernel lends from, and test by binding.

A broker's port accepts connections before the broker works, so an open port proves nothing.  We send one Metadata
request (version 1, the oldest whose answer names all brokers; 4.x still serves it) and count the brokers in the answer:
only those that the controller has let in are listed (https://kafka.apache.org/protocol#The_Messages_Metadata).
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from eomirror.clock import new_token
from eomirror.errors import MirrorError

__all__ = [
    "HOST",
    "encode_metadata_request",
    "free_ports",
    "is_free",
    "live_brokers",
    "parse_metadata_response",
]

HOST = "127.0.0.1"
"""Embedded brokers are reachable from this machine only."""

_METADATA, _VERSION, _CORRELATION = 3, 1, 7
_CLIENT_ID = b"eomirror.probe"
_LOWEST = 15_000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int, *, taken: frozenset[int] = frozenset()) -> list[int]:
    """
    Returns ``count`` different ports without a listener, none of them in ``taken``.

    Raises:
        MirrorError: No free port was found.
    """
    highest = _first_lent_port() - 1
    found: list[int] = []
    for _ in range(200 + 50 * count):
        if len(found) == count:
            return found
        port = _LOWEST + int(new_token(), 16) % (highest - _LOWEST)
        if port not in taken and port not in found and is_free(port):
            found.append(port)
    raise MirrorError(
        f"no {count} free ports between {_LOWEST} and {highest}",
        fix="stop what listens there, or choose ports yourself",
    )


def is_free(port: int) -> bool:
    """Returns true if a broker can listen on ``port`` of the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        # as a broker does: connections of its predecessor that are still in TIME_WAIT do not count
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


def _first_lent_port() -> int:
    try:
        first = int(_RANGE_FILE.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first > _LOWEST + 1_000 else 32_768


def encode_metadata_request() -> bytes:
    """A framed Metadata request, version 1, for no topic."""
    header = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(_CLIENT_ID)) + _CLIENT_ID
    body = header + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def parse_metadata_response(payload: bytes) -> frozenset[int]:
    """
    Node ids in a Metadata response, version 1, without its length.

    Raises:
        ValueError: These bytes are something else.
    """
    try:
        correlation, count = struct.unpack_from(">ii", payload, 0)
        if correlation != _CORRELATION:
            raise ValueError(f"answer to request {correlation}, not to {_CORRELATION}")
        nodes, at = set(), 8
        for _ in range(count):
            node, host_size = struct.unpack_from(">ih", payload, at)
            at += 6 + host_size + 4  # host, port
            (rack_size,) = struct.unpack_from(">h", payload, at)
            at += 2 + max(rack_size, 0)
            nodes.add(node)
    except struct.error as error:
        raise ValueError(f"no Metadata response: {error}") from error
    return frozenset(nodes)


def live_brokers(port: int, *, timeout: float = 2.0) -> frozenset[int]:
    """
    Node ids that the broker on a plaintext port of this machine knows to be alive.

    Empty until a broker answers, whatever the reason.

    Args:
        port: Of a listener without TLS or SASL.
        timeout: Seconds for each of connect, send and receive.
    """
    try:
        with socket.create_connection((HOST, port), timeout=timeout) as connection:
            connection.sendall(encode_metadata_request())
            (size,) = struct.unpack(">i", _receive(connection, 4))
            return parse_metadata_response(_receive(connection, size))
    except (OSError, ValueError):
        return frozenset()


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ValueError("connection closed in the middle of an answer")
        parts += part
    return bytes(parts)
