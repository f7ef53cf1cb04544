"""Parses the address of ``--listen``. Pure."""

from __future__ import annotations

from typing import NamedTuple

from eomirror.errors import UsageError

__all__ = ["Address", "parse_listen"]

_HIGHEST_PORT = 65_535
_LOOPBACK = ("127.", "localhost", "::1")


class Address(NamedTuple):
    """A host and a port to bind."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """True if only processes of this machine can connect."""
        return self.host.startswith(_LOOPBACK)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Address:
    """
    Parses ``HOST:PORT``, ``[IPV6]:PORT``, or ``PORT`` for this machine only.

    Port 0 takes a free one.

    Raises:
        UsageError: The text is neither.
    """
    host, _, number = text.rpartition(":")
    host = host or "127.0.0.1"
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _refused(text, "an IPv6 address stands in brackets")
    if text.startswith(":"):
        raise _refused(text, "the host is missing")
    if not host or any(character.isspace() or character in "/@" for character in host):
        raise _refused(text, "the host is not a name or an address")
    if not (number.isascii() and number.isdigit()) or int(number) > _HIGHEST_PORT:
        raise _refused(text, f"the port is not a number from 0 to {_HIGHEST_PORT}")
    return Address(host, int(number))


def _refused(text: str, reason: str) -> UsageError:
    return UsageError(
        f"--listen {text}: {reason}",
        fix="write HOST:PORT, such as 127.0.0.1:9464, or 0.0.0.0:9464 for all interfaces",
    )
