"""
Reports the state of `eomirror run` to systemd: ready, alive, stopping, and one line for ``systemctl status``.

The protocol is sd_notify(3): a datagram of ``NAME=value`` lines to the socket that ``NOTIFY_SOCKET`` names. Without
that variable every method does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Final

from eomirror.cli.render import human_things

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.status.snapshot import Snapshot

__all__ = ["ServiceManager", "is_ready", "status_line"]

#: states of a link that still does its first work
_STARTING: Final = frozenset({"preparing", "acquiring"})


def is_ready(snapshot: Snapshot) -> bool:
    """
    Returns True if every link mirrors, has ended, or waits for a cluster.

    A link whose cluster is away counts: the mirror retries it for ever, and a restart of the service would not help.
    """
    return bool(snapshot.links) and all(link.state not in _STARTING for link in snapshot.links)


def status_line(snapshot: Snapshot) -> str:
    """Returns the number of links in each state and the lag, such as ``2 running; lag 12 records``."""
    states = [link.state for link in snapshot.links]
    text = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lag = snapshot.lag_records
    return f"{text}; lag {'unknown' if lag is None else human_things(lag, 'record')}"


class ServiceManager:
    """
    Sends the state of this process to the service manager that started it.

    Args:
        environ: The environment; ``NOTIFY_SOCKET`` names the socket.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._ready = False
        self._stopping = False
        self._status = ""

    def alive(self, snapshot: Snapshot, *, stopping: bool = False) -> None:
        """
        Resets the watchdog and reports the links; once each, that the service is ready, and that it stops.

        Args:
            stopping: The mirror was asked to stop: it commits its open transactions and ends.
        """
        lines = ["WATCHDOG=1"]
        if not self._ready and is_ready(snapshot):
            self._ready = True
            lines.append("READY=1")
        if stopping and not self._stopping:
            self._stopping = True
            lines.append("STOPPING=1")
        if (status := status_line(snapshot)) != self._status:
            self._status = status
            lines.append(f"STATUS={status}")
        self._send(lines)

    def _send(self, lines: list[str]) -> None:
        if not self._address:
            return
        # an abstract socket begins with a zero byte, which the variable writes as @
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        # a service manager that is away or busy must not stop the mirror
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(0)
            channel.sendto("\n".join(lines).encode(), address)
