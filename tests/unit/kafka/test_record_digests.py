"""Digests by which the ends of two logs are compared."""

from __future__ import annotations

from typing import Any

from eomirror.kafka.record_digests import _digest


class Message:
    """What a consumer hands out."""

    def __init__(self, headers: list[tuple[str, bytes | None]] | None, value: bytes | None = b"v") -> None:
        self._parts: dict[str, Any] = {"key": b"k", "value": value, "headers": headers, "timestamp": (1, 5)}

    def __getattr__(self, name: str) -> Any:
        return lambda: self._parts[name]


def test_the_provenance_header_makes_no_other_record() -> None:
    """Copies of a link that was handed back to MM2 carry it, and their sources do not."""
    plain, other = [("a", b"1")], [("a", b"2")]
    marked: list[tuple[str, bytes | None]] = [("a", b"1"), ("eomirror.hops", b"\x01")]
    assert _digest(Message(marked), timestamps=True) == _digest(Message([*plain]), timestamps=True)
    assert _digest(Message(marked[1:]), timestamps=True) == _digest(Message(None), timestamps=True)
    assert _digest(Message([*other]), timestamps=True) != _digest(Message([*plain]), timestamps=True)
