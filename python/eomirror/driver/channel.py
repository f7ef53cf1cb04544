"""
The driver's end of the connections with its lanes: one listening socket, one thread per connection.

Any process that reaches the port may connect.  A connection is a stranger until its first 64 bytes prove that it holds
the run's token; without the proof it is dropped within seconds.  At most 64 strangers are kept, and a new one replaces
the oldest, so idle strangers cannot keep lanes out.  A lane sends its proof without waiting for an answer, so it is a
stranger only until its first packet arrives.  A stranger costs one thread and 64 bytes.  A lane that a flood of
strangers displaced connects again (`eomirror.spark.mailbox`).
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
# replayed greetings are recognised among this many; an older replay gains 5 s of a thread and nothing else
_REMEMBERED_NONCES = 16_384

Message = Mapping[str, Any]


class AttemptId(NamedTuple):
    """Id of one attempt of a lane; later attempts of a lane compare greater."""

    link: str
    lane: int
    epoch: int
    attempt: int


class LaneChannel:
    """
    Accepts connections of lanes, receives their progress and sends them commands.

    Args:
        host: Address to bind.
        port: Port to bind; 0 takes a free one.
        token: Secret of the run.
        on_hello: Returns the first messages for an attempt that has connected.
        on_progress: Called with the progress of an attempt.
        on_groups: Called with the group offsets that an attempt reports.
        on_goodbye: Called when the newest attempt of a lane is not connected any more, with whether it took its leave;
            it uses no method of the channel.
        clock: Measures time-outs.

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
        on_goodbye: Callable[[AttemptId, bool], None] = lambda _, __: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._token = token
        self._clock = clock
        self._on_hello = on_hello
        self._on_progress = on_progress
        self._on_groups = on_groups
        self._on_goodbye = on_goodbye
        self._lock = threading.Condition()
        # the newest attempt of each lane
        self._lines: dict[tuple[str, int], _Line] = {}
        # earlier attempts too: one that mirrors on after its epoch still reports (ADR 0013)
        self._open: set[_Line] = set()
        # in order of arrival
        self._strangers: dict[socket.socket, None] = {}
        # nonces of accepted greetings, and connections that have greeted but not yet said hello
        self._nonces: OrderedDict[bytes, None] = OrderedDict()
        self._greeted: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server((host, port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="lane-channel", daemon=True).start()

    def send(self, link: str, lane: int, messages: Iterable[Message], *, all_attempts: bool = False) -> None:
        """
        Sends messages to a lane if it is connected.

        A lane that connects later gets the messages of ``on_hello``, so change its result before calling this.

        Args:
            lane: Number of the lane.
            messages: Messages to send.
            all_attempts: Send to all connected attempts of the lane, not only to the newest.
        """
        with self._lock:
            line = self._lines.get((link, lane))
            lines = self._of(link, lane) if all_attempts else [line] if line is not None else []
        messages = list(messages)
        for line in lines:
            line.send(messages)

    def wait_disconnected(self, link: str, lane: int, seconds: float) -> bool:
        """Waits until no attempt of a lane is connected; returns False after ``seconds``."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._of(link, lane), seconds)

    def forget(self, link: str, lane: int) -> None:
        """Closes the connections of a lane: attempts of another run may connect, whose numbers begin anew."""
        with self._lock:
            lines = self._of(link, lane)
            self._lines.pop((link, lane), None)
        for line in lines:
            line.close()

    def close(self) -> None:
        """Closes all connections; lanes that still run stop then."""
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
                # out of file descriptors, or the client closed the connection before it was accepted
                self._clock.sleep(0.1)
                continue
            with self._lock:
                closed = self._closed
                if not closed:
                    if len(self._strangers) >= _MAX_STRANGERS:
                        oldest = next(iter(self._strangers))
                        del self._strangers[oldest]
                        # within the lock: its thread takes the lock to close it, so the descriptor is not reused yet
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
                # out of threads: drop this connection; a later one may find a thread
                with self._lock:
                    del self._strangers[connection]
                    connection.close()

    def _serve(self, connection: socket.socket) -> None:
        line: _Line | None = None
        try:
            line, early = self._handshake(connection)
            for message in early:
                self._dispatch(line, message)
            while True:
                for message in line.receive():
                    self._dispatch(line, message)
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
                    # under the lock: told later, the attempt that connects next would be taken for lost
                    self._on_goodbye(line.attempt, line.parted)

    def _handshake(self, connection: socket.socket) -> tuple[_Line, list[dict[str, Any]]]:
        # one deadline for the whole handshake: a stranger that sends byte by byte must not hold a place
        deadline = Deadline(_HANDSHAKE_SECONDS, self._clock)
        connection.settimeout(_HANDSHAKE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while len(data) < GREETING_BYTES:
            # read not a byte beyond the greeting from a stranger
            data += _some(connection, deadline, GREETING_BYTES - len(data))
        lane_nonce = nonce_of(self._token, data)
        self._admit(connection, lane_nonce)
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
            # an attempt of an earlier epoch stays connected: it may mirror on for a while and reports its work
            # (`eomirror.spark.handover`)
            before.close()
        # register first, then call on_hello: a change in between is sent twice, never missed
        line.send([{"type": "welcome"}, *self._on_hello(line.attempt)])
        return line, messages[1:]

    def _admit(self, connection: socket.socket, lane_nonce: bytes) -> None:
        """Moves a connection from the strangers to the lanes, so that new strangers no longer replace it."""
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

    def _dispatch(self, line: _Line, message: Message) -> None:
        if message.get("type") == "progress":
            self._on_progress(line.attempt, decode_progress(message))
        elif message.get("type") == "groups":
            self._on_groups(line.attempt, decode_groups(message))
        elif message.get("type") == "bye":
            line.parted = True


class _Line:
    """An authenticated connection with a lane."""

    def __init__(
        self, connection: socket.socket, codec: FrameCodec, attempt: AttemptId, clock: Clock
    ) -> None:
        self.attempt = attempt
        # the lane has said that it closes the connection; one that is killed does not
        self.parted = False
        self._connection = connection
        self._codec = codec
        self._clock = clock
        self._sent_at = clock.monotonic()
        self._sending = threading.Lock()
        connection.settimeout(_PING_SECONDS)

    def receive(self) -> list[dict[str, Any]]:
        """Returns received messages; pings the lane when none arrive."""
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except TimeoutError:
            self.send([{"type": "ping"}])
            return []
        if not data:
            raise FrameError("the lane has hung up")
        messages = self._codec.feed(data)
        if self._clock.monotonic() - self._sent_at >= _PING_SECONDS:
            # a lane that sends all the time needs pings too
            self.send([{"type": "ping"}])
        return messages

    def send(self, messages: Iterable[Message]) -> None:
        """Sends messages; closes the connection if the lane accepts no data for seconds."""
        with self._sending:
            self._sent_at = self._clock.monotonic()
            try:
                for message in messages:
                    self._connection.sendall(self._codec.encode(message))
            except OSError:
                self.close()

    def close(self) -> None:
        """Wakes the connection's thread, which closes it."""
        _wake(self._connection)


def _attempt_of(message: Message) -> AttemptId:
    try:
        if message["type"] != "hello":
            raise FrameError("the first message is not a hello")
        return AttemptId(
            str(message["link"]), int(message["lane"]), int(message["epoch"]), int(message["attempt"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a hello: {error}") from error


def _some(connection: socket.socket, deadline: Deadline, most: int) -> bytes:
    if deadline.passed:
        raise FrameError("the handshake timed out")
    connection.settimeout(max(0.01, deadline.remaining()))
    data = connection.recv(most)
    if not data:
        raise FrameError("the connection was closed during the handshake")
    return data


def _wake(connection: socket.socket) -> None:
    """Ends a thread's wait on this socket; the thread closes it, so that the descriptor is not reused too early."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
