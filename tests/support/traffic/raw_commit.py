"""Commits and reads offsets as no client library does: for the group without a name, any bytes as metadata."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Places", "commit_many", "commit_raw", "fetch_many"]

Places = dict[tuple[str, int], tuple[int, bytes]]
"""Topic and partition -> offset and bytes of the metadata."""

_COMMIT, _FETCH, _VERSION = 8, 9, 2
_AHEAD = 100
# a coordinator that is not there yet, loads, or is not known to the broker yet
_LOADING = {14, 15, 16}
_SECONDS = 30.0


def commit_raw(
    bootstrap: str, group: str, topic: str, partition: int, offset: int, metadata: bytes = b""
) -> None:
    """
    Sends OffsetCommit, version 2, to the first broker, which must be the coordinator.

    Args:
        bootstrap: Of the cluster, without authentication.
        group: May be empty, as from a client that assigns its partitions without a group.
        topic: The topic.
        partition: The partition.
        offset: May be -1, as Sarama commits to reset a partition.
        metadata: Any bytes.
    """
    commit_many(bootstrap, {group: {(topic, partition): (offset, metadata)}})


def commit_many(bootstrap: str, wanted: Mapping[str, Places]) -> None:
    """Commits offsets of groups, one request each, many of them on their way at a time."""

    def body(group: str) -> bytes:
        rows = b"".join(
            _text(topic.encode()) + struct.pack(">iiq", 1, number, offset) + _text(metadata)
            for (topic, number), (offset, metadata) in wanted[group].items()
        )
        head = _text(group.encode()) + struct.pack(">i", -1) + _text(b"") + struct.pack(">q", -1)
        return head + struct.pack(">i", len(wanted[group])) + rows

    waiting, deadline = list(wanted), time.monotonic() + _SECONDS
    while waiting:
        codes = {
            group: _codes(answer)
            for group, answer in _answers(bootstrap, _COMMIT, {each: body(each) for each in waiting})
        }
        waiting = [group for group in waiting if codes[group] & _LOADING and time.monotonic() < deadline]
        assert all(codes[group] <= {0} for group in codes.keys() - set(waiting)), codes
        time.sleep(0.2 if waiting else 0)


def _codes(answer: bytes) -> set[int]:
    """Returns the errors of the partitions in an answer to OffsetCommit; 0 for none."""
    at, found = 4, set()
    for _ in range(_number(answer, 0)):
        _, at = _read_text(answer, at)
        count, at = _number(answer, at), at + 4
        for _ in range(count):
            found.add(struct.unpack_from(">h", answer, at + 4)[0])
            at += 6
    return found


def fetch_many(bootstrap: str, groups: Iterable[str]) -> dict[str, Places]:
    """Returns all offsets of groups, with the bytes of their metadata as they are on the wire."""
    found: dict[str, Places] = {}
    bodies = {group: _text(group.encode()) + struct.pack(">i", -1) for group in groups}
    for group, answer in _answers(bootstrap, _FETCH, bodies):
        assert answer[-2:] == b"\0\0", (group, answer)
        rows, at = found.setdefault(group, {}), 4
        for _ in range(_number(answer, 0)):
            topic, at = _read_text(answer, at)
            count, at = _number(answer, at), at + 4
            for _ in range(count):
                number, offset = struct.unpack_from(">iq", answer, at)
                metadata, at = _read_text(answer, at + 12)
                assert answer[at:][:2] == b"\0\0", (group, topic, answer)
                at += 2
                rows[topic.decode(), number] = offset, metadata
    return found


def _answers(bootstrap: str, kind: int, bodies: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yields the answers in the order of the requests, which a broker keeps on one connection."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    groups = list(bodies)
    with socket.create_connection((host, int(port)), timeout=30) as line, line.makefile("rb") as answers:
        for begin in range(0, len(groups), _AHEAD):
            portion = groups[begin : begin + _AHEAD]
            requests = [
                struct.pack(">hhi", kind, _VERSION, 1) + _text(b"old") + bodies[each] for each in portion
            ]
            line.sendall(b"".join(struct.pack(">i", len(each)) + each for each in requests))
            for group in portion:
                yield group, answers.read(_number(answers.read(4), 0))[4:]


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def _number(data: bytes, at: int) -> int:
    (found,) = struct.unpack_from(">i", data, at)
    return int(found)


def _read_text(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + max(length, 0)
    return data[at + 2 : end], end
