"""
The lane's end of its connection with the driver.

It runs in the task's thread: PySpark forks its workers, so a lane should need no other thread to receive a stop.

No call blocks once connected.  While the connection is busy, reports are merged, not queued: the newest position of a
partition replaces an older one that was not sent yet, so no progress is lost and the memory is bounded.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from eomirror.clock import Clock, Deadline, new_token
from eomirror.errors import LaneError
from eomirror.lane.spec import (
    AssignedPartition,
    GroupOffset,
    LaneProgress,
    LaneSpec,
    PartitionProgress,
    Released,
    StopReason,
)
from eomirror.spark.frames import (
    NONCE_BYTES,
    FrameCodec,
    FrameError,
    decode_added,
    decode_groups,
    decode_released,
    encode_groups,
    encode_progress,
    greeting,
)
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GRACE_SECONDS", "SILENCE_SECONDS", "ChannelMailbox", "NoLineError"]

#: Time that a lane mirrors on after it lost the driver: enough for the current transaction, not for a new epoch.
GRACE_SECONDS = 1.0

#: A driver that sends nothing for this long, although it pings every few seconds, has failed with its host.
SILENCE_SECONDS = 20.0

_SEND_SECONDS = 0.1
_AGAIN_SECONDS = 0.1
_RECEIVE_BYTES = 65536


class NoLineError(LaneError):
    """The driver cannot be reached from the worker."""


class _NotHeardError(Exception):
    """The other side closed the connection before it read the greeting."""


class ChannelMailbox:
    """
    A `LaneMailbox` over a TCP connection; `connect` creates one.

    Args:
        line: Connected socket.
        codec: Encodes and decodes its frames.
        clock: Measures time-outs.
    """

    def __init__(self, line: socket.socket, codec: FrameCodec, clock: Clock) -> None:
        line.setblocking(False)  # noqa: FBT003  the socket takes no keyword
        self._line: socket.socket | None = line
        self._codec = codec
        self._clock = clock
        self._unsent = b""
        self._latest: LaneProgress | None = None
        self._changed: dict[SourcePartition, PartitionProgress] = {}
        self._sent_at = float("-inf")
        self._heard_at = clock.monotonic()
        self._lost_at: float | None = None
        self._stop: StopReason | None = None
        self._added: list[AssignedPartition] = []
        self._released: Released | None = None
        # generation that moved each of them
        self._given: dict[SourcePartition, int] = {}
        self._followed: list[GroupOffset] = []
        self._answers: list[GroupOffset] = []

    @classmethod
    def connect(
        cls, host: str, port: int, *, token: str, spec: LaneSpec, clock: Clock, seconds: float = 5.0
    ) -> ChannelMailbox:
        """
        Connects to the driver and sends the id of the attempt.

        Raises:
            NoLineError: The driver cannot be reached or does not have the token.
        """
        deadline = Deadline(seconds, clock)
        while True:
            try:
                line = socket.create_connection((host, port), timeout=max(0.1, deadline.remaining()))
            except OSError as error:
                if deadline.passed:
                    raise NoLineError(f"the driver does not answer on {host}:{port}: {error}") from error
                clock.sleep(_AGAIN_SECONDS)
                continue
            try:
                return cls._handshake(line, token, spec, clock, deadline)
            except _NotHeardError as error:
                line.close()
                if deadline.passed:
                    raise NoLineError(f"{host}:{port} is not the driver of this run: {error}") from error
                clock.sleep(_AGAIN_SECONDS)
            except (OSError, FrameError) as error:
                line.close()
                raise NoLineError(f"{host}:{port} is not the driver of this run: {error}") from error

    @classmethod
    def _handshake(
        cls, line: socket.socket, token: str, spec: LaneSpec, clock: Clock, deadline: Deadline
    ) -> ChannelMailbox:
        lane_nonce = bytes.fromhex(new_token())
        try:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.settimeout(max(0.1, deadline.remaining()))
            line.sendall(greeting(token, lane_nonce))
            driver_nonce = _receive_exactly(line, NONCE_BYTES)
        except (OSError, FrameError) as error:
            # strangers may have displaced this connection before the driver read the greeting
            raise _NotHeardError(str(error)) from error
        codec = FrameCodec(token, driver_nonce=driver_nonce, lane_nonce=lane_nonce, is_driver=False)
        hello = {
            "type": "hello",
            "link": spec.link.name,
            "lane": spec.lane,
            "epoch": spec.epoch,
            "attempt": spec.attempt,
        }
        line.sendall(codec.encode(hello))
        mailbox = cls(line, codec, clock)
        mailbox._await_welcome(deadline)
        return mailbox

    def report(self, progress: LaneProgress) -> None:
        """Sends progress to the driver, merged with earlier progress that is not sent yet."""
        self._latest = progress
        self._changed.update(
            (SourcePartition(item.topic, item.partition), item) for item in progress.partitions
        )
        self._exchange()

    def stop(self) -> StopReason | None:
        """Returns the reason why the lane must end, or None; a lost driver is a reason."""
        self._exchange()
        if self._lost_at is not None and self._clock.monotonic() - self._lost_at >= GRACE_SECONDS:
            return StopReason.SHUTDOWN
        return self._stop

    def added(self) -> tuple[AssignedPartition, ...]:
        """Returns partitions that were added to this lane since the last call."""
        self._exchange()
        added, self._added = tuple(self._added), []
        return added

    def released(self) -> Released | None:
        """Returns partitions that left this lane since the last call; None for none."""
        self._exchange()
        released, self._released = self._released, None
        return released

    def followed(self) -> tuple[GroupOffset, ...]:
        """Returns group offsets that the driver has sent since the last call."""
        self._exchange()
        followed, self._followed = tuple(self._followed), []
        return followed

    def answer(self, offsets: tuple[GroupOffset, ...]) -> None:
        """Sends the translated group offsets, once the connection is free."""
        self._answers.extend(offsets)
        self._exchange()

    def descriptor(self) -> int | None:
        """Returns the descriptor of the connection; None without one, and while there is something to send."""
        sends = self._unsent or self._latest is not None or self._answers
        return None if self._line is None or sends else self._line.fileno()

    def close(self, seconds: float = 0.5) -> None:
        """Sends what is left, for at most ``seconds``, and closes the connection."""
        deadline = Deadline(seconds, self._clock)
        while self._line is not None and (self._latest is not None or self._unsent or self._answers):
            self._exchange(hurry=True)
            if deadline.passed:
                break
            if self._unsent:
                self._clock.sleep(0.005)
        line, self._line = self._line, None
        if line is not None:
            if not self._unsent:
                with contextlib.suppress(OSError):
                    line.send(self._codec.encode({"type": "bye"}))
            _part(line, seconds)

    # -- inside ----------------------------------------------------------------------------------

    def _await_welcome(self, deadline: Deadline) -> None:
        before = self._heard_at
        while self._heard_at == before:
            self._receive()
            if self._line is None or deadline.passed:
                raise FrameError("no welcome came")
            self._clock.sleep(0.002)

    def _exchange(self, *, hurry: bool = False) -> None:
        if self._line is None:
            return
        now = self._clock.monotonic()
        try:
            self._receive()
            if (
                self._latest is not None
                and not self._unsent
                and (hurry or now - self._sent_at >= _SEND_SECONDS)
            ):
                merged = replace(
                    self._latest,
                    partitions=tuple(self._changed.values()),
                    memory_bytes=psutil.Process().memory_info().rss,
                )
                self._unsent = b"".join(map(self._codec.encode, encode_progress(merged)))
                self._latest = None
                self._changed.clear()
                self._sent_at = now
            if self._answers and not self._unsent:
                answers, self._answers = self._answers, []
                self._unsent = b"".join(map(self._codec.encode, encode_groups(answers)))
            self._send()
        except (OSError, FrameError):
            self._hang_up()
        if now - self._heard_at > SILENCE_SECONDS:
            self._hang_up()

    def _receive(self) -> None:
        while self._line is not None:
            try:
                data = self._line.recv(_RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            if not data:
                self._hang_up()
                return
            for message in self._codec.feed(data):
                # only an authentic frame proves that the driver is alive
                self._heard_at = self._clock.monotonic()
                if message.get("type") == "stop":
                    reason = StopReason(message["reason"])
                    # a lane that is to end does not move
                    if reason is not StopReason.MOVE or self._stop is None:
                        self._stop = reason
                elif message.get("type") == "added":
                    self._add(decode_added(message))
                elif message.get("type") == "released":
                    self._release(decode_released(message))
                elif message.get("type") == "groups":
                    self._followed.extend(decode_groups(message))

    def _add(self, added: Iterable[AssignedPartition]) -> None:
        # the driver may have made the message before a move took the partition away, and sent it behind that
        self._added.extend(item for item in added if item.generation >= self._given.get(item.source, 0))

    def _release(self, released: Released) -> None:
        before = self._released
        self._given |= dict.fromkeys(released.sources, released.generation)
        if before is not None:
            released = Released(
                before.sources | released.sources, max(before.generation, released.generation)
            )
        self._released = released
        # what `_add` takes from here on comes behind it
        self._added = [item for item in self._added if item.source not in released.sources]

    def _send(self) -> None:
        if self._line is None or not self._unsent:
            return
        try:
            sent = self._line.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        self._unsent = self._unsent[sent:]

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
            self._lost_at = self._clock.monotonic()


def _part(line: socket.socket, seconds: float) -> None:
    """
    Closes a socket without losing sent data.

    A socket that is closed with unread data sends a reset, and the driver's system then discards data that the driver
    has not read: (1) the lane sends its last progress, (2) a ping arrives, (3) the lane closes the socket, (4) the
    progress is lost.  So the lane shuts down its sending side, and waits until the driver closes the connection.
    """
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_WR)
        line.settimeout(seconds)
        while line.recv(_RECEIVE_BYTES):
            pass
    line.close()


def _receive_exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = line.recv(count - len(data))
        if not more:
            raise FrameError("the connection was closed")
        data += more
    return data
