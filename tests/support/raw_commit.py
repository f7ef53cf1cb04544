"""Commits offsets that no client library sends: for the group without a name, or the offset -1."""

from __future__ import annotations

import socket
import struct

__all__ = ["commit_raw"]


def commit_raw(bootstrap: str, group: str, topic: str, partition: int, offset: int) -> None:
    """
    Sends OffsetCommit, version 2, to the first broker, which must be the coordinator.

    Args:
        bootstrap: Of the cluster, without authentication.
        group: May be empty, as from a client that assigns its partitions without a group.
        topic: The topic.
        partition: The partition.
        offset: May be -1, as Sarama commits to reset a partition.
    """

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    body = struct.pack(">hhi", 8, 2, 1) + text("old") + text(group) + struct.pack(">i", -1) + text("")
    body += struct.pack(">qi", -1, 1) + text(topic) + struct.pack(">iiq", 1, partition, offset) + text("")
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(struct.pack(">i", len(body)) + body)
        answer = line.recv(4096)
    assert answer[-2:] == b"\0\0", answer
