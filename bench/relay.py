"""
The physical limit: what a relay that only moves bytes from one socket to another can do on this machine.

Three processes over loopback, as with a mirror between two brokers: one sends, one receives into a buffer and sends
that on, one receives and forgets.  Nothing is parsed, kept or acknowledged, so no mirror can move the same bytes with
less CPU; what a mirror takes beyond it is its own work.  Chunks are as large as a fetch of one partition.

Two ways.  *Hot*: the same chunk again and again, through one buffer, so that everything stays in the processor's
caches; nothing can be faster.  *As brokers and lanes do*: a broker sends its log from the page cache (sendfile(2)),
where records have been for a while, and a lane holds up to 32 MiB until the target has acknowledged them; so most
bytes come from memory when they are received, and again when they are sent.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

__all__ = ["RelayLimit", "measure_relay", "relay_markdown"]

_CHUNK = 1 << 20
_ROUNDS = 5
# beyond any cache of today's processors
_FILE_BYTES = 1 << 30
# what a lane holds at most (rust/kafka, ProducerSettings)
_HELD_BYTES = 32 << 20
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


def relay_markdown(limits: Mapping[str, RelayLimit]) -> str:
    """A table for a report."""
    found = limits.values()
    return "\n".join(
        [
            "| a plain socket relay | " + " | ".join(limits) + " |",
            "|---|" + "---:|" * len(limits),
            "| MB/s | " + " | ".join(f"{limit.megabytes_per_second:,.0f}" for limit in found) + " |",
            "| CPU of the relay, us per 1,000 bytes | "
            + " | ".join(f"{limit.cpu_microseconds_per_kilobyte:.3f}" for limit in found)
            + " |",
            "| of it outside the kernel | " + " | ".join(f"{limit.user_share:.0%}" for limit in found) + " |",
        ]
    )


def measure_relay(*, gigabytes: float = 4.0) -> dict[str, RelayLimit]:
    """
    Move bytes from process to process, and take the relay's CPU time, in both ways.

    Args:
        gigabytes: To move in each round, 10^9 bytes.

    Raises:
        RuntimeError: Some bytes did not arrive.
    """
    with tempfile.NamedTemporaryFile() as log:
        chunk = os.urandom(_CHUNK)
        for _ in range(_FILE_BYTES // _CHUNK):
            log.write(chunk)
        log.flush()
        return {
            "hot": _limit(gigabytes, _Way()),
            "as brokers and lanes do": _limit(gigabytes, _Way(log.name, _HELD_BYTES // _CHUNK)),
        }


@dataclass(frozen=True, slots=True)
class _Way:
    """
    How bytes come and where they stay.

    Attributes:
        path: File to send from, over and over; empty for the same chunk again and again.
        buffers: Through how many buffers they go in turn.
    """

    path: str = ""
    buffers: int = 1


def _limit(gigabytes: float, way: _Way) -> RelayLimit:
    size = int(gigabytes * 1e9)
    rounds = [_round(size, way) for _ in range(_ROUNDS)]
    user = statistics.median(user for _, user, _ in rounds)
    system = statistics.median(system for _, _, system in rounds)
    return RelayLimit(
        gigabytes=gigabytes,
        megabytes_per_second=round(statistics.median(size / seconds / 1e6 for seconds, _, _ in rounds), 1),
        cpu_microseconds_per_kilobyte=round((user + system) * 1e6 / (size / 1000), 4),
        user_share=round(user / (user + system), 3),
    )


def _round(size: int, way: _Way) -> tuple[float, float, float]:
    """Seconds, and user and system CPU seconds of the relay."""
    ours, theirs = _PROCESSES.Pipe()
    relay = _PROCESSES.Process(target=_relay, args=(theirs, way.buffers))
    relay.start()
    entrance, exit_ = ours.recv()
    sink = _PROCESSES.Process(target=_sink, args=(exit_, theirs))
    sink.start()
    source = _PROCESSES.Process(target=_source, args=(entrance, size, way.path))
    source.start()
    told = {kind: value for kind, *value in (ours.recv(), ours.recv())}
    for process in (source, relay, sink):
        process.join()
    received, seconds = told["sink"]
    if received != size:
        raise RuntimeError(f"{received} of {size} bytes came through the relay")
    user, system = told["relay"]
    return seconds, user, system


def _source(port: int, size: int, path: str) -> None:
    chunk = memoryview(bytes(_CHUNK))
    with socket.create_connection(("127.0.0.1", port)) as out:
        left = size
        if path:
            with open(path, "rb") as log:  # noqa: PTH123  sendfile wants a descriptor
                while left:
                    at = (size - left) % _FILE_BYTES
                    left -= os.sendfile(out.fileno(), log.fileno(), at, min(left, _CHUNK, _FILE_BYTES - at))
        while left:
            out.sendall(chunk[: min(left, _CHUNK)])
            left -= min(left, _CHUNK)


def _relay(pipe: Connection, count: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as entrance, socket.create_server(("127.0.0.1", 0)) as exit_:
        pipe.send((entrance.getsockname()[1], exit_.getsockname()[1]))
        out, _ = exit_.accept()
        into, _ = entrance.accept()
    buffers = [memoryview(bytearray(_CHUNK)) for _ in range(count)]
    held: deque[memoryview] = deque()
    before = _cpu()
    with into, out:
        for buffer in itertools.cycle(buffers):
            if len(held) == count:
                out.sendall(held.popleft())
            received = _fill(into, buffer)
            held.append(buffer[:received])
            if received < len(buffer):
                break
        for rest in held:
            out.sendall(rest)
    after = _cpu()
    pipe.send(("relay", after[0] - before[0], after[1] - before[1]))


def _fill(into: socket.socket, buffer: memoryview) -> int:
    received = 0
    while received < len(buffer) and (count := into.recv_into(buffer[received:])):
        received += count
    return received


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
