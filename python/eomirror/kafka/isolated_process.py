"""
Runs crash-prone librdkafka calls in a child process.

librdkafka is a C library, and some of its defects end the process without an exception: the driver and every link would
be gone.  Calls that are known to do that run here, in a process that may die: their callers get `DiedError`, and the
next call starts a new process.

One process serves all objects of a program.  The first call starts it, and it ends when the last object is closed.  It
ends at once when the program does, even by SIGKILL, because its main thread only waits for the next request and meets
the end of the stream.  A request that it is about to send dies with it, so nothing is written on behalf of a mirror
that is gone.

It starts as a new interpreter, not as a fork, since the caller has threads.  It does not use `multiprocessing`, which
would import the caller's main module again, and so run a script without a guard.  Objects and arguments travel pickled
over a private socket pair.  The caller logs its log events.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

__all__ = ["DiedError", "IsolatedObject", "serve"]

log = structlog.get_logger(__name__)

# without -P the working directory would come first, and may hold modules of the names that we import
_COMMAND = (
    "-P",
    "-c",
    "import sys; from eomirror.kafka.isolated_process import serve; serve(int(sys.argv[1]))",
)
# after the stream has ended the process is about to be gone
_END_SECONDS = 10.0
_LAST_LINE_BYTES = 2_000


class DiedError(Exception):
    """The process died, and the outcome of the call is unknown."""


class IsolatedObject:
    """
    An object in the child process; created on the first call, and again after that process died.

    Args:
        factory: Creates it; an importable class or function.
        arguments: For the factory; picklable.
    """

    def __init__(self, factory: Callable[..., Any], *arguments: Any) -> None:
        self._recipe = (factory, arguments)
        self._handle = next(_HANDLES)

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """
        Calls a method, and waits for its result.  Thread-safe.

        Raises:
            DiedError: The process died before it answered.
            Exception: Any error of the method.
        """
        child = _shared(self._handle)
        return child.call((self._handle, self._recipe, method, arguments, named)).result()

    def close(self) -> None:
        """Releases the object, and the process with its last object.  May be called more than once."""
        _release(self._handle)


class _Child:
    """The process, as seen by the caller."""

    def __init__(self) -> None:
        self.users: set[int] = set()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  it is closed when the process has ended
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # what this program imports, from wherever it has learned to import it
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # Ctrl-C at a terminal is for the program, which then closes the stream
                start_new_session=True,
            )
        self._stream = Connection(ours.detach())
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._death = ""
        self._reader = threading.Thread(target=self._read, name="eomirror-apart", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """True while it accepts calls."""
        return not self._death

    def call(self, call: tuple[Any, ...]) -> Future[Any]:
        """Sends a call; returns a future of its answer."""
        future: Future[Any] = Future()
        with self._lock:
            if self._death:
                raise DiedError(self._death)
            number = next(self._numbers)
            self._waiting[number] = future
            try:
                self._stream.send((number, *call))
            except OSError:
                # it has just died: the reader reports it to all waiting callers
                pass
            except Exception:
                # what cannot be pickled was not sent
                del self._waiting[number]
                raise
        return future

    def close(self) -> None:
        """Ends the process by closing the stream."""
        with self._lock:
            self._death = self._death or "it was closed"
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._stream.fileno())) as end:
                # a plain close would not wake the reader
                end.shutdown(socket.SHUT_RDWR)
        self._reader.join(_END_SECONDS)

    def _read(self) -> None:
        while True:
            try:
                number, good, answer = self._stream.recv()
            except Exception:  # noqa: BLE001  the stream's end, or what cannot be read: it is of no use any more
                break
            if number:
                future = self._waiting.pop(number)
                (future.set_result if good else future.set_exception)(answer)
            else:
                event = dict(answer)
                getattr(log, event.pop("level"))(event.pop("event"), **event)
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._stream.close()
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with self._lock:
            self._death = self._death or _how_it_died(code, self._last_line())
            waiting, self._waiting = self._waiting, {}
            self._errors.close()
        for future in waiting.values():
            future.set_exception(DiedError(self._death))

    def _last_line(self) -> str:
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _LAST_LINE_BYTES))
        lines = self._errors.read().decode(errors="replace").splitlines()
        return lines[-1].strip() if lines else ""


_HANDLES = itertools.count(1)
_LOCK = threading.Lock()
_CHILDREN: list[_Child] = []
# of a parent of ours, from which we were forked: its to end
_INHERITED: list[_Child] = []


def _shared(handle: int) -> _Child:
    """Returns the shared process, started if there is none."""
    with _LOCK:
        if not _CHILDREN or not _CHILDREN[-1].alive:
            # one that died has nothing left to close
            _CHILDREN[:] = [_Child()]
        child = _CHILDREN[-1]
        child.users.add(handle)
        return child


def _release(handle: int) -> None:
    with _LOCK:
        child = _CHILDREN[-1] if _CHILDREN else None
        if child is None or handle not in child.users:
            return
        child.users.discard(handle)
        if child.users or not child.alive:
            return
        _CHILDREN.clear()
    child.close()


def _forked() -> None:
    global _LOCK  # noqa: PLW0603  another thread of the parent may have held it
    _LOCK = threading.Lock()
    _INHERITED.extend(_CHILDREN)
    _CHILDREN.clear()


os.register_at_fork(after_in_child=_forked)


def _how_it_died(code: int, last_line: str) -> str:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{how}: {last_line}" if last_line else how


def serve(descriptor: int) -> None:
    """
    Runs the child process: creates objects, calls them, answers; never returns.

    Args:
        descriptor: Of the socket to the caller.
    """
    # both are for the program, and when it ends this ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stream = Connection(descriptor)
    sending = threading.Lock()
    making = threading.Lock()
    objects: dict[int, Any] = {}

    def send(number: int, *, good: bool, answer: Any) -> None:
        with sending:
            stream.send((number, good, answer))

    def forward(_: Any, level: str, event: MutableMapping[str, Any]) -> str:
        send(0, good=True, answer={**event, "level": level})
        raise structlog.DropEvent

    def answer(number: int, call: tuple[int, tuple[Any, Any], str, Any, Any]) -> None:
        handle, (factory, parts), method, arguments, named = call
        try:
            with making:
                if handle not in objects:
                    objects[handle] = factory(*parts)
            found = getattr(objects[handle], method)(*arguments, **named)
            send(number, good=True, answer=found)
        except Exception as error:  # noqa: BLE001  whatever it is, the one that asks gets it
            try:
                send(number, good=False, answer=error)
            except Exception:  # noqa: BLE001  an error that cannot be pickled, or an answer that could not
                send(number, good=False, answer=RuntimeError(f"{type(error).__name__}: {error}"))

    structlog.configure(processors=[forward], cache_logger_on_first_use=False)
    while True:
        try:
            request = stream.recv()
        except (EOFError, OSError):
            # at once: a thread may be about to write to a cluster in the name of a mirror that is gone
            os._exit(0)
        threading.Thread(target=answer, args=(request[0], request[1:]), daemon=True).start()
