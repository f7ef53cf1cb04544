"""The partition that a Java producer chooses for a key, apart from the code under test."""

from __future__ import annotations

__all__ = ["java_partition"]

_SEED = 0x9747B28C
_WORD = 0xFFFFFFFF


def java_partition(key: bytes, partitions: int) -> int:
    """Returns the partition of a key: murmur2 (org.apache.kafka.common.utils.Utils)."""
    hashed = _SEED ^ len(key)
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 & _WORD
        word = (word ^ word >> 24) * 0x5BD1E995 & _WORD
        hashed = (hashed * 0x5BD1E995 & _WORD) ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * 0x5BD1E995 & _WORD
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & _WORD
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partitions
