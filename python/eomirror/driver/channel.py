"""
The driver's end of the lanes' lines: one listening socket, one thread per connection.

Any process that reaches the port may connect.  A connection is a stranger until its first 64 bytes prove that it holds
the run's token; it is dropped when they do not, or do not come within seconds.  At most 64 strangers are kept, and a
new one takes the place of the oldest: so strangers who say nothing cannot keep lanes out, and a lane, which sends its
proof without waiting for an answer, is a stranger only for as long as its first packet travels.  A stranger costs one
thread and 64 bytes.  A lane that lost its place to a flood of strangers connects again (`eomirror.spark.mailbox`).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline, new_token
from eomirror.spark.frames import (
    GREETING_BYTES,
    FrameCodec,
    FrameError,
    decode_groups,
    decode_progress,
    nonce_of,
)

if TYPE_CHECKING:
    from eomirror.lane.spec import GroupOffset, LaneProgress

__all__ = ["AttemptId", "LaneChannel"]

log = structlog.get_logger(__name__)

_PING_SECONDS = 5.0
_HANDSHAKE_SECONDS = 5.0
_MAX_STRANGERS = 64
_RECEIVE_BYTES = 65536
# of that many lanes before it a greeting that is sent again is recognised; what it gains beyond is 5 s of a thread
_REMEMBERED_NONCES = 16_384

Message = Mapping[str, Any]


class AttemptId(NamedTuple):
    """One attempt of a lane; later attempts of a lane compare greater."""

    link: str
    lane: int
    epoch: int
    attempt: int


class LaneChannel:
    """
    Listens for lanes, hears their progress, tells them what to do.

    Args:
        host: Address to bind.
        port: Port to bind; 0 takes a free one.
        token: The run's secret.
        on_hello: Asked when an attempt has connected: what it must be told at once.
        on_progress: Told what an attempt reports.
        on_groups: Told what an attempt says about offsets of groups.
        clock: Where time comes from.

    All callbacks are called from the connections' threads.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str,
        on_hello: Callable[[AttemptId], Iterable[Message]],
        on_progress: Callable[[AttemptId, LaneProgress], None],
        on_groups: Callable[[AttemptId, tuple[GroupOffset, ...]], None] = lambda _, __: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._token = token
        self._clock = clock
        self._on_hello = on_hello
        self._on_progress = on_progress
        self._on_groups = on_groups
        self._lock = threading.Condition()
        # of each lane's newest attempt
        self._lines: dict[tuple[str, int], _Line] = {}
        # also of attempts before it: one that goes on behind its epoch still reports
        self._open: set[_Line] = set()
        # in the order in which they came
        self._strangers: dict[socket.socket, None] = {}
        # of lanes that have greeted, and of those that say hello at this moment
        self._nonces: OrderedDict[bytes, None] = OrderedDict()
        self._greeted: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server((host, port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="lane-channel", daemon=True).start()

    def tell(self, link: str, lane: int, messages: Iterable[Message], *, everybody: bool = False) -> None:
        """
        Send messages to a lane if it is connected.

        A lane that is not is told by ``on_hello`` when it connects: change what that answers before calling this.

        Args:
            link: The link.
            lane: Its lane.
            messages: What to send.
            everybody: To all of its attempts, and not only to the newest.
        """
        with self._lock:
            line = self._lines.get((link, lane))
            lines = self._of(link, lane) if everybody else [line] if line is not None else []
        messages = list(messages)
        for line in lines:
            line.send(messages)

    def await_silence(self, link: str, lane: int, seconds: float) -> bool:
        """Wait until no attempt of a lane is connected; whether that came."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._of(link, lane), seconds)

    def close(self) -> None:
        """Hang up on everybody; lanes still running take it as a reason to stop."""
        with self._lock:
            self._closed = True
            lines = list(self._open)
            strangers = [*self._strangers, *self._greeted]
        _wake(self._listener)
        self._listener.close()
        for line in lines:
            line.close()
        for stranger in strangers:
            _wake(stranger)

    # -- inside ----------------------------------------------------------------------------------

    def _of(self, link: str, lane: int) -> list[_Line]:
        return [line for line in self._open if line.attempt[:2] == (link, lane)]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                # out of file descriptors, or a connection that was gone before we took it
                self._clock.sleep(0.1)
                continue
            with self._lock:
                closed = self._closed
                if not closed:
                    if len(self._strangers) >= _MAX_STRANGERS:
                        oldest = next(iter(self._strangers))
                        del self._strangers[oldest]
                        # within the lock: its thread closes it only after taking the lock, so the number is still its
                        _wake(oldest)
                    self._strangers[connection] = None
            if closed:
                connection.close()
                continue
            try:
                threading.Thread(
                    target=self._serve, args=(connection,), name="lane-line", daemon=True
                ).start()
            except RuntimeError:
                # no more threads: this one goes, and the next may find some
                with self._lock:
                    del self._strangers[connection]
                    connection.close()

    def _serve(self, connection: socket.socket) -> None:
        line: _Line | None = None
        try:
            line, early = self._introduce(connection)
            for message in early:
                self._hear(line, message)
            while True:
                for message in line.receive():
                    self._hear(line, message)
        except (OSError, FrameError) as error:
            log.debug("lane_line_closed", attempt=line and line.attempt, reason=str(error))
        finally:
            with self._lock:
                self._strangers.pop(connection, None)
                self._greeted.discard(connection)
                connection.close()
                if line is not None:
                    self._open.discard(line)
                    self._lock.notify_all()
                if line is not None and self._lines.get(line.attempt[:2]) is line:
                    del self._lines[line.attempt[:2]]

    def _introduce(self, connection: socket.socket) -> tuple[_Line, list[dict[str, Any]]]:
        # one deadline for all of it: a stranger who drips bytes must not hold a place
        deadline = Deadline(_HANDSHAKE_SECONDS, self._clock)
        connection.settimeout(_HANDSHAKE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while len(data) < GREETING_BYTES:
            # not a byte more of a stranger than the greeting
            data += _some(connection, deadline, GREETING_BYTES - len(data))
        lane_nonce = nonce_of(self._token, data)
        self._know(connection, lane_nonce)
        driver_nonce = bytes.fromhex(new_token())
        connection.sendall(driver_nonce)
        codec = FrameCodec(self._token, driver_nonce=driver_nonce, lane_nonce=lane_nonce, is_driver=True)
        messages: list[dict[str, Any]] = []
        while not messages:
            messages = codec.feed(_some(connection, deadline, _RECEIVE_BYTES))
        line = _Line(connection, codec, _attempt_of(messages[0]), self._clock)
        with self._lock:
            self._greeted.discard(connection)
            if self._closed:
                raise FrameError("the channel is closed")
            before = self._lines.get(line.attempt[:2])
            if before is not None and before.attempt > line.attempt:
                raise FrameError("a later attempt of this lane is connected")
            self._lines[line.attempt[:2]] = line
            self._open.add(line)
        if before is not None and before.attempt.epoch == line.attempt.epoch:
            # of an epoch before, it may go on for a while (`eomirror.spark.handover`), and counts what it does
            before.close()
        # registered first, asked second: what changes in between is told twice, never missed
        line.send([{"type": "welcome"}, *self._on_hello(line.attempt)])
        return line, messages[1:]

    def _know(self, connection: socket.socket, lane_nonce: bytes) -> None:
        """Make a stranger a lane that is about to say hello: newcomers no longer take its place."""
        with self._lock:
            if connection not in self._strangers:
                raise FrameError("newer connections took its place")
            if lane_nonce in self._nonces:
                raise FrameError("a greeting was sent again")
            self._nonces[lane_nonce] = None
            if len(self._nonces) > _REMEMBERED_NONCES:
                self._nonces.popitem(last=False)
            del self._strangers[connection]
            self._greeted.add(connection)

    def _hear(self, line: _Line, message: Message) -> None:
        if message.get("type") == "progress":
            self._on_progress(line.attempt, decode_progress(message))
        elif message.get("type") == "groups":
            self._on_groups(line.attempt, decode_groups(message))


class _Line:
    """One authenticated connection."""

    def __init__(
        self, connection: socket.socket, codec: FrameCodec, attempt: AttemptId, clock: Clock
    ) -> None:
        self.attempt = attempt
        self._connection = connection
        self._codec = codec
        self._clock = clock
        self._sent_at = clock.monotonic()
        self._sending = threading.Lock()
        connection.settimeout(_PING_SECONDS)

    def receive(self) -> list[dict[str, Any]]:
        """Messages that came; pings the lane when it says nothing."""
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except TimeoutError:
            self.send([{"type": "ping"}])
            return []
        if not data:
            raise FrameError("the lane has hung up")
        messages = self._codec.feed(data)
        if self._clock.monotonic() - self._sent_at >= _PING_SECONDS:
            # a lane that talks all the time needs signs of life as well
            self.send([{"type": "ping"}])
        return messages

    def send(self, messages: Iterable[Message]) -> None:
        """Send, or hang up: a lane that takes nothing for seconds is stuck, and its task's end will tell why."""
        with self._sending:
            self._sent_at = self._clock.monotonic()
            try:
                for message in messages:
                    self._connection.sendall(self._codec.encode(message))
            except OSError:
                self.close()

    def close(self) -> None:
        """Wake the connection's thread, which closes it."""
        _wake(self._connection)


def _attempt_of(message: Message) -> AttemptId:
    try:
        if message["type"] != "hello":
            raise FrameError("the first message is no hello")
        return AttemptId(
            str(message["link"]), int(message["lane"]), int(message["epoch"]), int(message["attempt"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a hello: {error}") from error


def _some(connection: socket.socket, deadline: Deadline, most: int) -> bytes:
    if deadline.passed:
        raise FrameError("did not say who it is in time")
    connection.settimeout(max(0.01, deadline.remaining()))
    data = connection.recv(most)
    if not data:
        raise FrameError("hung up before saying who it is")
    return data


def _wake(connection: socket.socket) -> None:
    """End whatever a thread waits for on this socket; that thread closes it, so its number is not reused early."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
