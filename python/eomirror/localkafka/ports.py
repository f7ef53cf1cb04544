"""
Free ports for brokers that must keep them.

A broker that is killed and started again needs its old port, so the usual trick (bind port 0, close, use
the number) does not do: the kernel may lend that number to any outgoing connection meanwhile.  We draw from below
the range that the kernel lends from, and test by binding.
"""

from __future__ import annotations

import socket
from pathlib import Path

from eomirror.clock import new_token
from eomirror.errors import MirrorError
from eomirror.localkafka.probe import HOST

__all__ = ["free_ports", "is_free"]

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
