"""
The physical limit: what a relay that only moves bytes from one socket to another can do on this machine.

Three processes over loopback, as with a mirror between two brokers: one sends, one receives into a buffer and sends
that on, one receives and forgets.  Nothing is parsed, kept or acknowledged, so no mirror can move the same bytes with
less CPU; what a mirror takes beyond it is its own work.  Chunks are as large as a fetch of one partition.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["RelayLimit", "measure_relay", "relay_markdown"]

_CHUNK = 1 << 20
_ROUNDS = 5
_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimit:
    """
    Medians over the rounds.

    Attributes:
        gigabytes: Moved in each round, 10^9 bytes.
        megabytes_per_second: End to end, 10^6 bytes.
        cpu_microseconds_per_kilobyte: CPU time of the relay alone, by 1,000 bytes.
        user_share: Part of that CPU time outside the kernel.
    """

    gigabytes: float
    megabytes_per_second: float
    cpu_microseconds_per_kilobyte: float
    user_share: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def relay_markdown(limit: RelayLimit) -> str:
    """A table for a report."""
    return "\n".join(
        [
            "| a plain socket relay | |",
            "|---|---:|",
            f"| MB/s | {limit.megabytes_per_second:,.0f} |",
            f"| CPU of the relay, us per 1,000 bytes | {limit.cpu_microseconds_per_kilobyte:.3f} |",
            f"| of it outside the kernel | {limit.user_share:.0%} |",
        ]
    )


def measure_relay(*, gigabytes: float = 4.0) -> RelayLimit:
    """
    Move bytes from process to process, and take the relay's CPU time.

    Args:
        gigabytes: To move in each round, 10^9 bytes.

    Raises:
        RuntimeError: Some bytes did not arrive.
    """
    size = int(gigabytes * 1e9)
    rounds = [_round(size) for _ in range(_ROUNDS)]
    user = statistics.median(user for _, user, _ in rounds)
    system = statistics.median(system for _, _, system in rounds)
    return RelayLimit(
        gigabytes=gigabytes,
        megabytes_per_second=round(statistics.median(size / seconds / 1e6 for seconds, _, _ in rounds), 1),
        cpu_microseconds_per_kilobyte=round((user + system) * 1e6 / (size / 1000), 4),
        user_share=round(user / (user + system), 3),
    )


def _round(size: int) -> tuple[float, float, float]:
    """Seconds, and user and system CPU seconds of the relay."""
    ours, theirs = _PROCESSES.Pipe()
    relay = _PROCESSES.Process(target=_relay, args=(theirs,))
    relay.start()
    entrance, exit_ = ours.recv()
    sink = _PROCESSES.Process(target=_sink, args=(exit_, theirs))
    sink.start()
    source = _PROCESSES.Process(target=_source, args=(entrance, size))
    source.start()
    told = {kind: value for kind, *value in (ours.recv(), ours.recv())}
    for process in (source, relay, sink):
        process.join()
    received, seconds = told["sink"]
    if received != size:
        raise RuntimeError(f"{received} of {size} bytes came through the relay")
    user, system = told["relay"]
    return seconds, user, system


def _source(port: int, size: int) -> None:
    chunk = memoryview(bytes(_CHUNK))
    with socket.create_connection(("127.0.0.1", port)) as out:
        left = size
        while left:
            out.sendall(chunk[: min(left, _CHUNK)])
            left -= min(left, _CHUNK)


def _relay(pipe: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as entrance, socket.create_server(("127.0.0.1", 0)) as exit_:
        pipe.send((entrance.getsockname()[1], exit_.getsockname()[1]))
        out, _ = exit_.accept()
        into, _ = entrance.accept()
    buffer = memoryview(bytearray(_CHUNK))
    before = _cpu()
    with into, out:
        while count := into.recv_into(buffer):
            out.sendall(buffer[:count])
    after = _cpu()
    pipe.send(("relay", after[0] - before[0], after[1] - before[1]))


def _sink(port: int, pipe: Connection) -> None:
    buffer = bytearray(_CHUNK)
    received = 0
    with socket.create_connection(("127.0.0.1", port)) as into:
        received = into.recv_into(buffer)
        began = time.monotonic()
        while count := into.recv_into(buffer):
            received += count
    pipe.send(("sink", received, time.monotonic() - began))


def _cpu() -> tuple[float, float]:
    spent = os.times()
    return spent.user, spent.system
