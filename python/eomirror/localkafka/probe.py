"""
Asks a broker whether it serves, with the few bytes of the Kafka protocol that this takes.

A broker's port accepts connections before the broker works, so an open port proves nothing.  We send one
Metadata request (version 1, the oldest whose answer names all brokers; 4.x still serves it) and count the
brokers in the answer: only those that the controller has let in are listed.
https://kafka.apache.org/protocol#The_Messages_Metadata
"""

from __future__ import annotations

import socket
import struct

__all__ = ["HOST", "encode_metadata_request", "live_brokers", "parse_metadata_response"]

HOST = "127.0.0.1"
"""Embedded brokers are reachable from this machine only."""

_METADATA, _VERSION, _CORRELATION = 3, 1, 7
_CLIENT_ID = b"eomirror.probe"


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
